"""New tensors, and tensors of another shape."""

# pyright: reportMissingImports=false
from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from poetc.frontends.aten.registry import LOWERINGS, aten, lowers


@lowers(aten.full)
def _full(shape: Sequence[int], value: Any, **_: Any) -> Array:
    return jnp.full(shape, value)


@lowers(aten.full_like)
def _full_like(x: Array, value: Any, **_: Any) -> Array:
    return jnp.full(x.shape, value)


@lowers(aten.empty, aten.empty_permuted, aten.empty_strided)
def _empty(shape: Sequence[int], *_: Any, **_options: Any) -> Array:
    return jnp.zeros(shape)


@lowers(aten.new_empty_strided)
def _new_empty(_x: Array, shape: Sequence[int], *_: Any, **_options: Any) -> Array:
    return jnp.zeros(shape)


@lowers(aten.scalar_tensor)
def _scalar_tensor(value: Any, **_: Any) -> Array:
    return jnp.asarray(value)


@lowers(aten.arange.start_step)
def _arange(start: Any, end: Any, step: Any = 1, **_: Any) -> Array:
    count = lax.iota("int32", math.ceil((end - start) / step))
    return start + step * count


# Shapes

LOWERINGS |= {
    aten._unsafe_view: jnp.reshape,
    aten.cat: lambda tensors, dim=0: jnp.concatenate([x for x in tensors if x.size], dim),
    aten.flip: jnp.flip,
    aten.permute: jnp.transpose,
    aten.reshape: jnp.reshape,
    aten.t: jnp.transpose,
    aten.transpose: jnp.swapaxes,
    aten.unsqueeze: jnp.expand_dims,
    aten.view: jnp.reshape,
}


@lowers(aten.as_strided)
def _as_strided(
    x: Array, shape: Sequence[int], strides: Sequence[int], offset: int | None = None
) -> Array:
    contiguous = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    if list(strides) == contiguous and not offset and math.prod(shape) == x.size:
        return jnp.reshape(x, shape)
    return jnp.reshape(x, -1)[_strided(shape, strides, offset)]


def _strided(shape: Sequence[int], strides: Sequence[int], offset: int | None) -> np.ndarray:
    """The places in memory of the elements of a tensor with strides."""
    places = np.full(shape, offset or 0, np.int32)
    for dim, stride in enumerate(strides):
        places += stride * np.arange(shape[dim]).reshape(-1, *(1,) * (len(shape) - dim - 1))
    return places


@lowers(aten.as_strided_scatter)
def _as_strided_scatter(
    x: Array,
    source: Array,
    shape: Sequence[int],
    strides: Sequence[int],
    offset: int | None = None,
) -> Array:
    flat = jnp.reshape(x, -1).at[_strided(shape, strides, offset)].set(source)
    return jnp.reshape(flat, x.shape)


@lowers(aten.diagonal)
def _diagonal(x: Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Array:
    return jnp.diagonal(x, offset, dim1, dim2)


@lowers(aten.diagonal_scatter)
def _diagonal_scatter(
    x: Array, source: Array, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Array:
    moved = jnp.moveaxis(x, (dim1, dim2), (-2, -1))
    place = np.arange(source.shape[-1], dtype=np.int32)
    places = (..., place + max(-offset, 0), place + max(offset, 0))
    return jnp.moveaxis(moved.at[places].set(source), (-2, -1), (dim1, dim2))


@lowers(aten.unfold)
def _unfold(x: Array, dim: int, size: int, step: int) -> Array:
    if not x.ndim:
        return x[None]
    dim %= x.ndim
    starts = np.arange(0, x.shape[dim] - size + 1, step, dtype=np.int32)
    windows = jnp.take(x, starts[:, None] + np.arange(size, dtype=np.int32), dim)
    return jnp.moveaxis(windows, dim + 1, -1)


@lowers(aten.split_with_sizes)
def _split(x: Array, sizes: Sequence[int], dim: int = 0) -> list[Array]:
    return jnp.split(x, list(accumulate(sizes))[:-1], dim)


@lowers(aten.squeeze)
def _squeeze(x: Array, dims: Any = None) -> Array:
    dims = range(x.ndim) if dims is None else [dims] if isinstance(dims, int) else dims
    return jnp.squeeze(x, tuple(dim for dim in dims if x.shape[dim] == 1))


@lowers(aten.expand)
def _expand(x: Array, shape: Sequence[int]) -> Array:
    own = (1,) * (len(shape) - x.ndim) + x.shape
    return jnp.broadcast_to(x, [a if b == -1 else b for a, b in zip(own, shape, strict=True)])


@lowers(aten.repeat)
def _repeat(x: Array, repeats: Sequence[int]) -> Array:
    return jnp.tile(x, repeats)


@lowers(aten.constant_pad_nd)
def _pad(x: Array, pads: Sequence[int], value: Any = 0) -> Array:
    pairs = [(0, 0, 0)] * (x.ndim - len(pads) // 2)
    pairs += [(pads[i], pads[i + 1], 0) for i in range(len(pads) - 2, -1, -2)]
    return lax.pad(x, jnp.asarray(value, x.dtype), pairs)


def _range(size: int, start: int | None, end: int | None, step: int) -> range:
    return range(size)[slice(start, end, step)]


@lowers(aten.slice)
def _slice(
    x: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    taken = _range(x.shape[dim], start, end, step)
    return lax.slice_in_dim(x, taken.start, taken.stop, step, dim)


@lowers(aten.select)
def _select(x: Array, dim: int, index: int) -> Array:
    return jnp.squeeze(lax.index_in_dim(x, index, dim), dim)


def _spread(x: Array, size: int, dim: int, taken: range, value: Any) -> Array:
    """`x` at the places `taken` along `dim`, of extent `size`, and `value` elsewhere."""
    high = size - taken.start - (len(taken) - 1) * taken.step - 1
    if not taken:
        return jnp.full((*x.shape[:dim], size, *x.shape[dim + 1 :]), value, x.dtype)
    pads = [(0, 0, 0)] * x.ndim
    pads[dim] = (taken.start, high, taken.step - 1)
    return lax.pad(x, jnp.asarray(value, x.dtype), pads)


@lowers(aten.slice_backward)
def _slice_backward(
    g: Array, shape: Sequence[int], dim: int, start: int, end: int, step: int
) -> Array:
    dim %= len(shape)
    return _spread(g, shape[dim], dim, _range(shape[dim], start, end, step), 0)


@lowers(aten.select_backward)
def _select_backward(g: Array, shape: Sequence[int], dim: int, index: int) -> Array:
    dim %= len(shape)
    index %= shape[dim]
    return _spread(jnp.expand_dims(g, dim), shape[dim], dim, range(index, index + 1), 0)


@lowers(aten.slice_scatter)
def _slice_scatter(
    x: Array,
    source: Array,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Array:
    dim %= x.ndim
    size = x.shape[dim]
    taken = _range(size, start, end, step)
    source = jnp.broadcast_to(source, (*x.shape[:dim], len(taken), *x.shape[dim + 1 :]))
    if len(taken) == size:
        return source
    inside = _spread(jnp.full(source.shape, True), size, dim, taken, False)
    return jnp.where(inside, _spread(source, size, dim, taken, 0), x)


@lowers(aten.select_scatter)
def _select_scatter(x: Array, source: Array, dim: int, index: int) -> Array:
    index %= x.shape[dim]
    return _slice_scatter(x, jnp.expand_dims(source, dim), dim, index, index + 1)
