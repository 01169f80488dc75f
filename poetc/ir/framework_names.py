"""Names of operations in frameworks, where StableHLO has another one."""

FRAMEWORK_NAMES = {
    "chlo.bessel_i1e": "jax.scipy.special.i1e",
    "stablehlo.all_gather": "jax.lax.all_gather",
    "stablehlo.all_reduce": "jax.lax.psum",
    "stablehlo.custom_call": "code outside StableHLO, such as LAPACK",
    "stablehlo.rng": "jax.random",
}
"""By name; several where several functions lead to the operation."""
