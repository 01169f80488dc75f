"""What frameworks call operations, where StableHLO has another name for them."""

FRAMEWORK_NAMES = {
    "chlo.bessel_i1e": "jax.scipy.special.i1e",
    "stablehlo.all_gather": "jax.lax.all_gather",
    "stablehlo.all_reduce": "jax.lax.psum",
    "stablehlo.custom_call": "code outside StableHLO, such as LAPACK",
    "stablehlo.rng": "jax.random",
}
"""By name; several where several functions lead to the operation."""
