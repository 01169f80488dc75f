"""Element-wise operations, and those of which nothing is left."""

# pyright: reportMissingImports=false
from __future__ import annotations

import operator
from typing import Any

import torch
from jax import Array, lax
from jax import numpy as jnp
from jax.scipy import special

from poetc.frontends.aten.registry import (
    LOWERINGS,
    TAKE_MAXIMA,
    Lowering,
    UnsupportedError,
    aten,
    lowers,
)

LOWERINGS |= {
    aten.abs: jnp.abs,
    aten.__lshift__: jnp.left_shift,
    aten.__rshift__: jnp.right_shift,
    aten.bitwise_and: jnp.bitwise_and,
    aten.bitwise_left_shift: jnp.left_shift,
    aten.bitwise_not: jnp.bitwise_not,
    aten.bitwise_or: jnp.bitwise_or,
    aten.bitwise_right_shift: jnp.right_shift,
    aten.bitwise_xor: jnp.bitwise_xor,
    aten.ceil: jnp.ceil,
    aten.eq: jnp.equal,
    aten.floor: jnp.floor,
    aten.fmod: jnp.fmod,
    aten.ge: jnp.greater_equal,
    aten.gt: jnp.greater,
    aten.isinf: lambda x: jnp.abs(x) == jnp.inf,
    aten.isnan: lambda x: x != x,
    aten.le: jnp.less_equal,
    aten.logical_and: jnp.logical_and,
    aten.logical_not: jnp.logical_not,
    aten.logical_or: jnp.logical_or,
    aten.logical_xor: jnp.logical_xor,
    aten.lt: jnp.less,
    aten.maximum: jnp.maximum,
    aten.minimum: jnp.minimum,
    aten.mul: jnp.multiply,
    aten.ne: jnp.not_equal,
    aten.neg: jnp.negative,
    aten.relu: lambda x: jnp.maximum(x, 0),
    aten.remainder: jnp.remainder,
    aten.round.default: jnp.round,
    aten.sign: jnp.sign,
    aten.trunc: jnp.trunc,
    aten.where: jnp.where,
    operator.getitem: operator.getitem,
}


def _of_floats(function: Lowering) -> Lowering:
    """A function of numbers with a fraction: whole ones become such of PyTorch's default type."""

    def apply(*arguments: Any) -> Array:
        return function(
            *(
                jnp.asarray(x, jnp.float32)
                if isinstance(x, Array) and not jnp.issubdtype(x.dtype, jnp.floating)
                else x
                for x in arguments
            )
        )

    return apply


_OF_FLOATS: dict[Any, Lowering] = {
    aten.acos: jnp.arccos,
    aten.acosh: jnp.arccosh,
    aten.asin: jnp.arcsin,
    aten.asinh: jnp.arcsinh,
    aten.atan: jnp.arctan,
    aten.atan2: jnp.arctan2,
    aten.atanh: jnp.arctanh,
    aten.cos: jnp.cos,
    aten.cosh: jnp.cosh,
    aten.digamma: special.digamma,
    aten.erf: lax.erf,
    aten.erfc: lax.erfc,
    aten.erfinv: lax.erf_inv,
    aten.exp: jnp.exp,
    aten.lgamma: special.gammaln,
    aten.log: jnp.log,
    aten.log10: jnp.log10,
    aten.log2: jnp.log2,
    aten.polygamma: lambda n, x: special.polygamma(n, x),
    aten.reciprocal: lambda x: 1 / x,
    aten.rsqrt: lax.rsqrt,
    aten.sin: jnp.sin,
    aten.sinh: jnp.sinh,
    aten.sigmoid: lambda x: 1 / (1 + jnp.exp(-x)),
    aten.sqrt: jnp.sqrt,
    aten.tan: jnp.tan,
    aten.tanh: jnp.tanh,
    aten.div.Tensor: operator.truediv,
    aten.div.Scalar: operator.truediv,
}
LOWERINGS |= {target: _of_floats(function) for target, function in _OF_FLOATS.items()}


@lowers(aten.add)
def _add(x: Array, y: Any, alpha: float = 1) -> Array:
    return x + (y if alpha == 1 else y * alpha)


@lowers(aten.sub)
def _sub(x: Array, y: Any, alpha: float = 1) -> Array:
    return x - (y if alpha == 1 else y * alpha)


@lowers(aten.div.Tensor_mode, aten.div.Scalar_mode)
def _rounded_div(x: Array, y: Any, *, rounding_mode: str | None) -> Array:
    if rounding_mode == "floor":
        return jnp.floor_divide(x, y)
    type = jnp.result_type(x, y)
    whole = not jnp.issubdtype(type, jnp.floating)
    if rounding_mode == "trunc":
        x, y = jnp.broadcast_arrays(x, jnp.asarray(y, type))
        return lax.div(x.astype(type), y) if whole else jnp.trunc(x / y)
    return LOWERINGS[aten.div.Tensor](x, y)


@lowers(aten.pow)
def _pow(x: Any, y: Any) -> Array:
    if isinstance(y, float | int):
        if y == 0.5:
            return jnp.sqrt(x)
        if float(y).is_integer():
            return lax.integer_pow(x, int(y))
    return lax.pow(*jnp.broadcast_arrays(jnp.float32(x), jnp.float32(y)))


@lowers(aten.clamp)
def _clamp(x: Array, low: Any = None, high: Any = None) -> Array:
    x = x if low is None else jnp.maximum(x, low)
    return x if high is None else jnp.minimum(x, high)


@lowers(aten.hardtanh)
def _hardtanh(x: Array, low: float = -1, high: float = 1) -> Array:
    return _clamp(x, low, high)


@lowers(aten.leaky_relu)
def _leaky_relu(x: Array, slope: float = 0.01) -> Array:
    return jnp.where(x > 0, x, x * slope)


@lowers(aten.rrelu_with_noise_functional)
def _rrelu(
    x: Array, noise: Array, low: float = 1 / 8, high: float = 1 / 3, training: bool = False, *_: Any
) -> tuple[Array, Array]:
    if training:
        raise UnsupportedError("rrelu in training (use leaky_relu, or eval() on that module)")
    return _leaky_relu(x, (low + high) / 2), noise


@lowers(aten.rrelu_with_noise_backward)
def _rrelu_backward(
    g: Array, x: Array, _noise: Array, low: float, high: float, _training: bool, _result: bool
) -> Array:
    return jnp.where(x > 0, g, g * ((low + high) / 2))


@lowers(aten.elu)
def _elu(x: Array, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Array:
    below = (alpha * scale) * _expm1(jnp.minimum(x, 0) * input_scale)
    return jnp.where(x > 0, x * scale, below)


@lowers(aten.lerp.Scalar)
def _lerp(start: Array, end: Array, weight: float) -> Array:
    # The form that PyTorch takes for each weight.
    difference = end - start
    return start + weight * difference if abs(weight) < 0.5 else end - difference * (1 - weight)


@lowers(aten.log1p)
def _log1p(x: Array) -> Array:
    # Kahan: log(u) is wrong for the rounding of u = 1 + x, which log(u) / (u - 1) is not.
    u = 1 + x
    return jnp.where(u == 1, x, x * (jnp.log(u) / jnp.where(u == 1, 1, u - 1)))


@lowers(aten.expm1)
def _expm1(x: Array) -> Array:
    # Kahan, as above; for -1 the quotient is 0 / 0 only where exp(x) is 0.
    u = jnp.exp(x)
    near = jnp.where(u == 1, x, (u - 1) * (x / jnp.where(u == 1, 1, jnp.log(u))))
    return jnp.where(jnp.abs(x) < 0.5, near, u - 1)


@lowers(aten._to_copy, aten.clone, aten.detach, aten.alias, aten.lift_fresh_copy)
def _same(x: Array, **_: Any) -> Array:
    # Every result is converted to the type that PyTorch says it has.
    return x


TAKE_MAXIMA.add(_same)


@lowers(aten.fill)
def _fill(x: Array, value: Any) -> Array:
    return jnp.broadcast_to(value, x.shape)


@lowers(aten.copy)
def _copy(x: Array, source: Array, non_blocking: bool = False) -> Array:
    return jnp.broadcast_to(source, x.shape)


@lowers(
    aten._assert_async,
    torch.ops.profiler._record_function_enter_new,
    torch.ops.profiler._record_function_exit,
)
def _nothing(*_: Any) -> None:
    return None
