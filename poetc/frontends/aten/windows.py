"""Convolutions and pooling, with their gradients."""

# pyright: reportMissingImports=false
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array, lax
from jax import numpy as jnp

from poetc.frontends.aten.registry import MAXIMA, UnsupportedError, aten, lowers


def _convolve(
    x: Array,
    weight: Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Array:
    if x.ndim == 3:  # one dimension is two of which one has the extent 1
        y = _convolve(
            x[:, :, None],
            weight[:, :, None],
            (1, *stride),
            (0, *padding),
            (1, *dilation),
            groups,
        )
        return y[:, :, 0]
    if x.ndim != 4:
        raise UnsupportedError(f"convolution over {x.ndim - 2} dimensions (1 and 2 are lowered)")
    return lax.conv_general_dilated(
        x,
        weight,
        stride,
        [(p, p) for p in padding],
        rhs_dilation=dilation,
        feature_group_count=groups,
    )


def _convolution_of(
    shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
) -> Callable[[Array, Array], Array]:
    """Input, weight → output of that shape."""

    def forward(x: Array, weight: Array) -> Array:
        return _convolve(x, weight, stride, padding, dilation, groups)

    def backward(x: Array, weight: Array) -> Array:
        # A transposed convolution is the gradient of a convolution from its output to its input.
        like = jax.ShapeDtypeStruct(tuple(shape), x.dtype)
        return jax.linear_transpose(lambda y: forward(y, weight), like)(x)[0]

    return backward if transposed else forward


def _transposed_shape(
    x: Array,
    weight: Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> tuple[int, ...]:
    sizes = (
        (n - 1) * s - 2 * p + d * (k - 1) + o + 1
        for n, k, s, p, d, o in zip(
            x.shape[2:], weight.shape[2:], stride, padding, dilation, output_padding, strict=True
        )
    )
    return (x.shape[0], weight.shape[1] * groups, *sizes)


@lowers(aten.convolution)
def _convolution(
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Array:
    shape = (
        _transposed_shape(x, weight, stride, padding, dilation, output_padding, groups)
        if transposed
        else ()
    )
    y = _convolution_of(shape, stride, padding, dilation, transposed, groups)(x, weight)
    return y if bias is None else y + bias.reshape(-1, *(1,) * (y.ndim - 2))


@lowers(aten.convolution_backward)
def _convolution_backward(
    g: Array,
    x: Array,
    weight: Array,
    _bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    _output_padding: Sequence[int],
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Array | None, Array | None, Array | None]:
    function = _convolution_of(g.shape, stride, padding, dilation, transposed, groups)
    return (
        jax.vjp(lambda x: function(x, weight), x)[1](g)[0] if wanted[0] else None,
        jax.vjp(lambda weight: function(x, weight), weight)[1](g)[0] if wanted[1] else None,
        jnp.sum(g, (0, *range(2, g.ndim))) if wanted[2] else None,
    )


def _pair(value: int | Sequence[int]) -> tuple[int, int]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * 2 if len(values) == 1 else values  # pyright: ignore[reportReturnType]


def _windows(
    x: Array,
    size: int | Sequence[int],
    stride: Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    ceil_mode: bool,
) -> dict[str, Any]:
    """Arguments of `lax.reduce_window` for windows over the last two dimensions."""
    if ceil_mode:
        raise UnsupportedError("windows with ceil_mode=True (pad the input instead)")
    before = (1,) * (x.ndim - 2)
    return {
        "window_dimensions": (*before, *_pair(size)),
        "window_strides": (*before, *_pair(stride or size)),
        "padding": [(0, 0)] * len(before) + [(p, p) for p in _pair(padding)],
        "window_dilation": (*before, *_pair(dilation)),
    }


def _max_pool(x: Array, **windows: Any) -> Array:
    return lax.reduce_window(x, -jnp.inf, lax.max, **windows)


@lowers(aten.max_pool2d_with_indices)
def _max_pool2d(
    x: Array,
    size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[Array, object]:
    return _max_pool(x, **_windows(x, size, stride, padding, dilation, ceil_mode)), MAXIMA


@lowers(aten.max_pool2d_with_indices_backward)
def max_pool2d_backward(
    g: Array,
    x: Array,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    _maxima: object,
) -> Array:
    windows = _windows(x, size, stride, padding, dilation, ceil_mode)
    if set(windows["window_dilation"]) != {1}:
        raise UnsupportedError("gradient of max_pool2d with dilation")
    return jax.vjp(lambda x: _max_pool(x, **windows), x)[1](g)[0]


def _average_pool(
    shape: Sequence[int],
    size: Sequence[int],
    stride: Sequence[int],
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Callable[[Array], Array]:
    def pool(x: Array) -> Array:
        windows = _windows(x, size, stride, padding, 1, ceil_mode)
        total = lax.reduce_window(x, 0.0, lax.add, **windows)
        if divisor is not None or count_include_pad or not any(_pair(padding)):
            return total / (divisor or math.prod(_pair(size)))
        return total / lax.reduce_window(jnp.ones(tuple(shape)), 0.0, lax.add, **windows)

    return pool


@lowers(aten.avg_pool2d)
def _avg_pool2d(
    x: Array,
    size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Array:
    return _average_pool(x.shape, size, stride, padding, ceil_mode, count_include_pad, divisor)(x)


@lowers(aten.avg_pool2d_backward)
def _avg_pool2d_backward(g: Array, x: Array, *arguments: Any) -> Array:
    return jax.linear_transpose(_average_pool(x.shape, *arguments), x)(g)[0]


@lowers(aten._adaptive_avg_pool2d)
def _adaptive_avg_pool2d(x: Array, size: Sequence[int]) -> Array:
    if any(n % k for n, k in zip(x.shape[-2:], size, strict=True)):
        raise UnsupportedError(
            f"adaptive pooling of {x.shape[-2:]} to {tuple(size)}, not a divisor"
        )
    return _avg_pool2d(x, [n // k for n, k in zip(x.shape[-2:], size, strict=True)])


@lowers(aten._adaptive_avg_pool2d_backward)
def _adaptive_avg_pool2d_backward(g: Array, x: Array) -> Array:
    return jax.linear_transpose(lambda x: _adaptive_avg_pool2d(x, g.shape[-2:]), x)(g)[0]
