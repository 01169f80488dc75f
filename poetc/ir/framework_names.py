"""What frameworks call operations, where StableHLO has another name for them."""

FRAMEWORK_NAMES = {
    "chlo.acos": "jax.numpy.arccos, torch.acos",
    "chlo.acosh": "jax.numpy.arccosh, torch.acosh",
    "chlo.asin": "jax.numpy.arcsin, torch.asin",
    "chlo.asinh": "jax.numpy.arcsinh, torch.asinh",
    "chlo.atan": "jax.numpy.arctan, torch.atan",
    "chlo.atanh": "jax.numpy.arctanh, torch.atanh",
    "chlo.bessel_i1e": "jax.scipy.special.i1e",
    "chlo.erf_inv": "jax.lax.erf_inv, jax.random.normal, torch.erfinv",
    "chlo.lgamma": "jax.lax.lgamma, torch.lgamma",
    "stablehlo.all_gather": "jax.lax.all_gather",
    "stablehlo.all_reduce": "jax.lax.psum",
    "stablehlo.custom_call": "code outside StableHLO, such as LAPACK",
    "stablehlo.logistic": "jax.nn.sigmoid, torch.sigmoid",
    "stablehlo.rng": "jax.random",
    "stablehlo.rng_bit_generator": "jax.random",
    "stablehlo.tan": "jax.numpy.tan, torch.tan",
}
"""By name; several where several functions lead to the operation."""
