"""Elements named by indices, and those sorted."""

# pyright: reportMissingImports=false
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array, lax
from jax import numpy as jnp

from poetc.frontends.aten.registry import UnsupportedError, aten, lowers

_IN_BOUNDS = {"mode": "promise_in_bounds", "wrap_negative_indices": False}


@lowers(aten.embedding)
def _embedding(weight: Array, indices: Array, *_: Any) -> Array:
    return weight.at[indices].get(**_IN_BOUNDS)


@lowers(aten.embedding_renorm)
def _embedding_renorm(weight: Array, indices: Array, most: float, order: float) -> Array:
    rows = lax.iota("int32", weight.shape[0])[:, None]
    used = jnp.any(rows == indices.reshape(1, -1), axis=1)
    size = jnp.abs(weight)
    norm = jnp.sum(size * size if order == 2 else size**order, axis=1) ** (1 / order)
    scale = jnp.where(used & (norm > most), most / (norm + 1e-7), 1)
    return weight * scale[:, None]


@lowers(aten.embedding_dense_backward)
def _embedding_backward(
    g: Array, indices: Array, count: int, padding: int, by_frequency: bool
) -> Array:
    if by_frequency:
        ones = jnp.ones(indices.shape, g.dtype)
        often = jnp.zeros((count,), g.dtype).at[indices].add(ones, **_IN_BOUNDS)
        g = g / often.at[indices].get(**_IN_BOUNDS)[..., None]
    if padding >= 0:
        g = jnp.where((indices == padding)[..., None], 0, g)
    zeros = jnp.zeros((count, g.shape[-1]), g.dtype)
    return zeros.at[indices].add(g, **_IN_BOUNDS)


# Along one dimension

Rows = Callable[..., Array]
"""A function of vectors that is applied to all rows along one dimension."""


def _by_rows(function: Rows, dim: int, *arrays: Array) -> Array:
    """`function` for all vectors along `dim` of arrays that are equal in the other dimensions."""
    moved = [jnp.moveaxis(x, dim, -1) for x in arrays]
    rows = [x.reshape(-1, x.shape[-1]) for x in moved]
    result = jax.vmap(function)(*rows) if moved[0].ndim > 1 else function(*moved)
    return jnp.moveaxis(result.reshape(*moved[0].shape[:-1], result.shape[-1]), -1, dim)


def _corner(x: Array, dim: int, like: Array) -> Array:
    """The part of `x` that indices of the shape of `like` reach along `dim`."""
    limits = list(like.shape)
    limits[dim] = x.shape[dim]
    return lax.slice(x, (0,) * x.ndim, limits)


def _one_per_row(x: Array, dim: int, index: Array) -> bool:
    expected = list(x.shape)
    expected[dim] = 1
    return list(index.shape) == expected


def _picks(x: Array, dim: int, index: Array) -> Array:
    """Whether an element of `x` is the one that `index`, of extent 1 along `dim`, names."""
    return lax.broadcasted_iota("int32", x.shape, dim % x.ndim) == index


@lowers(aten.index_select)
def _index_select(x: Array, dim: int, index: Array) -> Array:
    places = (slice(None),) * (dim % x.ndim) + (index,)
    return x.at[places].get(**_IN_BOUNDS) if x.ndim else x


@lowers(aten.gather)
def _gather(x: Array, dim: int, index: Array, **_: Any) -> Array:
    if not x.ndim:
        return x
    if x.ndim > 1 and _one_per_row(x, dim, index):
        picked = jnp.where(_picks(x, dim, index), x, jnp.zeros((), x.dtype))
        return jnp.sum(picked, dim, keepdims=True)
    return _by_rows(lambda x, i: x.at[i].get(**_IN_BOUNDS), dim, _corner(x, dim, index), index)


def _scattered(x: Array, dim: int, index: Array, source: Any, method: str) -> Array:
    """`x` with elements of `source` where `index` says along `dim`, one after the other; `method`
    (set, add, multiply, max, min) says what an element and what is there make."""
    if not x.ndim:
        return _scattered(x[None], 0, index[None], jnp.reshape(source, -1)[:1], method)[0]
    dim %= x.ndim
    if isinstance(source, Array) and source.ndim:
        source = lax.slice(source, (0,) * x.ndim, index.shape)
    source = jnp.broadcast_to(jnp.asarray(source, x.dtype), index.shape)
    corner = _corner(x, dim, index)

    def put(x: Array, i: Array, y: Array) -> Array:
        return getattr(x.at[i], method)(y, **_IN_BOUNDS)

    new = _by_rows(put, dim, corner, index, source)
    return new if corner.shape == x.shape else lax.dynamic_update_slice(x, new, (0,) * x.ndim)


_METHODS = {
    "sum": "add",
    "add": "add",
    "mean": "add",
    "prod": "multiply",
    "multiply": "multiply",
    "amax": "max",
    "amin": "min",
}
"""PyTorch's name of a reduction → the method of JAX."""


@lowers(aten.scatter)
def _scatter(x: Array, dim: int, index: Array, source: Any, *, reduce: str = "") -> Array:
    if not reduce and x.ndim > 1 and _one_per_row(x, dim, index):
        if isinstance(source, Array) and source.ndim:
            source = lax.slice(source, (0,) * x.ndim, index.shape)
        return jnp.where(_picks(x, dim, index), source, x)
    return _scattered(x, dim, index, source, _METHODS[reduce] if reduce else "set")


@lowers(aten.scatter_add)
def scatter_add(x: Array, dim: int, index: Array, source: Array) -> Array:
    """`x` plus elements of `source` where `index` says along `dim`."""
    if x.ndim > 1 and _one_per_row(x, dim, index):
        source = lax.slice(source, (0,) * x.ndim, index.shape)
        return x + jnp.where(_picks(x, dim, index), source, jnp.zeros((), x.dtype))
    return _scattered(x, dim, index, source, "add")


@lowers(aten.scatter_reduce)
def _scatter_reduce(
    x: Array, dim: int, index: Array, source: Array, reduce: str, *, include_self: bool = True
) -> Array:
    start = x
    if not include_self:
        neutral = {"amax": -jnp.inf, "amin": jnp.inf, "prod": 1}.get(reduce, 0)
        start = _scattered(x, dim, index, neutral, "set")
    result = _scattered(start, dim, index, source, _METHODS[reduce])
    if reduce == "mean":
        one = jnp.ones((), x.dtype)
        count = _scattered(jnp.full(x.shape, include_self, x.dtype), dim, index, one, "add")
        return result / jnp.maximum(count, 1)
    return result


# By several dimensions, or by a mask


def _places(x: Array, indices: Sequence[Array | None]) -> tuple[Any, ...]:
    """The indices of PyTorch's `x[indices]`, none negative, for `x.at`."""
    return tuple(
        # Elsewhere than in `gather` and `embedding`, negative ones count from the end.
        slice(None) if index is None else jnp.where(index < 0, index + x.shape[dim], index)
        for dim, index in enumerate(indices)
    )


@lowers(aten.index, aten._unsafe_index)
def _index(x: Array, indices: Sequence[Array | None]) -> Array:
    return x.at[_places(x, indices)].get(**_IN_BOUNDS)


@lowers(aten.index_put, aten._unsafe_index_put)
def _index_put(
    x: Array, indices: Sequence[Array | None], source: Array, accumulate: bool = False
) -> Array:
    used = [index for index in indices if index is not None]
    if any(index.dtype == bool for index in used):
        if len(used) > 1:
            raise UnsupportedError("assignment by a mask and other indices (use torch.where)")
        before = next(dim for dim, index in enumerate(indices) if index is not None)
        return _masked_put(x, before, used[0], source, accumulate)
    put = x.at[_places(x, indices)]
    return (put.add if accumulate else put.set)(source.astype(x.dtype), **_IN_BOUNDS)


def _masked_put(x: Array, before: int, mask: Array, source: Array, accumulate: bool) -> Array:
    """`x` with `source` where the mask, of the dimensions from `before`, is true."""
    after = x.ndim - before - mask.ndim
    if source.ndim > after and source.shape[source.ndim - after - 1] != 1:
        raise UnsupportedError(
            "assignment of a value to each element under a mask (use torch.where)"
        )
    # The dimension of the elements under the mask is as many as the mask has.
    shape = list(source.shape)
    if source.ndim > after:
        shape[source.ndim - after - 1 : source.ndim - after] = [1] * mask.ndim
    source = source.reshape(shape)
    mask = mask.reshape(*mask.shape, *(1,) * after)
    return jnp.where(mask, x + source if accumulate else source, x)


@lowers(aten.masked_scatter)
def _masked_scatter(x: Array, mask: Array, source: Array) -> Array:
    mask = jnp.broadcast_to(mask, x.shape).reshape(-1)
    if not source.size:
        return x
    order = lax.cumsum(mask.astype(jnp.int32)) - 1
    taken = source.reshape(-1).at[jnp.clip(order, 0, source.size - 1)].get(**_IN_BOUNDS)
    return jnp.where(mask, taken, x.reshape(-1)).reshape(x.shape)


@lowers(aten.masked_scatter_backward)
def _masked_scatter_backward(g: Array, mask: Array, shape: Sequence[int]) -> Array:
    mask = jnp.broadcast_to(mask, g.shape).reshape(-1)
    order = jnp.maximum(lax.cumsum(mask.astype(jnp.int32)) - 1, 0)
    part = jnp.where(mask, g.reshape(-1), 0)
    taken = jnp.zeros(max(math.prod(shape), 1), g.dtype).at[order].add(part, mode="drop")
    return taken[: math.prod(shape)].reshape(shape)


# Sorted


@lowers(aten.sort.default)
def sort(x: Array, dim: int = -1, descending: bool = False) -> tuple[Array, Array]:
    """Values and places along a dimension in order; what is equal stays in order."""
    if not x.ndim:
        return x, jnp.zeros((), jnp.int32)
    place = lax.broadcasted_iota("int32", x.shape, dim % x.ndim)
    # Descending is ascending from the end, backwards.
    if descending:
        x, place = jnp.flip(x, dim), jnp.flip(place, dim)
    sorted_, places = lax.sort((x, place), dimension=dim % x.ndim, num_keys=1)
    return (jnp.flip(sorted_, dim), jnp.flip(places, dim)) if descending else (sorted_, places)


@lowers(aten.sort.stable)
def _stable_sort(
    x: Array, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Array, Array]:
    return sort(x, dim, descending)


@lowers(aten.topk)
def _topk(
    x: Array, k: int, dim: int = -1, largest: bool = True, _sorted: bool = True
) -> tuple[Array, Array]:
    if not x.ndim:
        return sort(x)
    values, places = (lax.slice_in_dim(part, 0, k, axis=dim) for part in sort(x, dim, largest))
    return values, places


@lowers(aten.searchsorted)
def _searchsorted(
    edges: Array,
    x: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Array | None = None,
) -> Array:
    if sorter is not None:
        edges = _gather(edges, -1, sorter)
    right = right or side == "right"
    rows = edges if edges.ndim == 1 else edges[..., None, :]
    x = jnp.asarray(x)[..., None]
    return jnp.sum((rows <= x if right else rows < x).astype(jnp.int32), axis=-1)


def _ranked(x: Array, rank: int, dim: int, keepdim: bool) -> tuple[Array, Array]:
    """The element of a rank, from 0, along a dimension."""
    values, places = (lax.slice_in_dim(p, rank, rank + 1, axis=dim) for p in sort(x, dim))
    return (values, places) if keepdim else (jnp.squeeze(values, dim), jnp.squeeze(places, dim))


@lowers(aten.kthvalue)
def _kthvalue(x: Array, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Array, Array]:
    return _ranked(x, k - 1, dim, keepdim)


@lowers(aten.median.dim)
def _median(x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    return _ranked(x, (x.shape[dim] - 1) // 2, dim, keepdim)


@lowers(aten.median.default)
def _median_of_all(x: Array) -> Array:
    return _ranked(x.reshape(-1), (math.prod(x.shape) - 1) // 2, 0, False)[0]
