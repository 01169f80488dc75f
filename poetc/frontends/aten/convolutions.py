"""Convolutions, with their gradients."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array, lax
from jax import numpy as jnp

from poetc.frontends.aten.registry import aten, lowers


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
    if x.ndim == 5:
        return _convolve_volume(x, weight, stride, padding, dilation, groups)
    return lax.conv_general_dilated(
        x,
        weight,
        stride,
        [(p, p) for p in padding],
        rhs_dilation=dilation,
        feature_group_count=groups,
    )


def _convolve_volume(
    x: Array,
    weight: Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Array:
    """The sum of what each plane of the weight makes of the planes that it meets."""
    p, s, d = padding[0], stride[0], dilation[0]
    x = jnp.pad(x, [(0, 0), (0, 0), (p, p), (0, 0), (0, 0)])
    depth = (x.shape[2] - d * (weight.shape[2] - 1) - 1) // s + 1
    total: Any = 0
    for k in range(weight.shape[2]):
        planes = lax.slice_in_dim(x, k * d, k * d + (depth - 1) * s + 1, s, 2)
        images = jnp.moveaxis(planes, 2, 1).reshape(-1, x.shape[1], *x.shape[3:])
        y = _convolve(images, weight[:, :, k], stride[1:], padding[1:], dilation[1:], groups)
        total = total + y
    return jnp.moveaxis(total.reshape(x.shape[0], depth, *total.shape[1:]), 1, 2)


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
