"""Sums, means and maxima of bags of rows of an embedding, with their gradients."""

# pyright: reportMissingImports=false
from __future__ import annotations

from typing import Any

from jax import Array, lax
from jax import numpy as jnp

from poetc.frontends.aten.indices import scatter_add
from poetc.frontends.aten.registry import aten, lowers

_SUM, _MEAN, _MAX = range(3)

_IN_BOUNDS = {"mode": "promise_in_bounds", "wrap_negative_indices": False}


def _bags(indices: Array, offsets: Array) -> Array:
    """The bag of each index."""
    place = lax.iota("int32", indices.shape[0])
    return jnp.sum((place[:, None] >= offsets[None, 1:]).astype(jnp.int32), axis=1)


@lowers(aten._embedding_bag, aten._embedding_bag_forward_only)
def _embedding_bag(
    weight: Array,
    indices: Array,
    offsets: Array,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: Array | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Array, Array, Array, Array]:
    """The content of each bag; then for the gradient the bag of each index, how many count in each
    bag, and which index of a bag has the maximum of each column."""
    starts = offsets[:-1] if include_last_offset else offsets
    count = starts.shape[0]
    bag = _bags(indices, offsets)
    counts = indices != padding_idx if padding_idx >= 0 else jnp.full(indices.shape, True)
    own = (bag[None] == lax.iota("int32", count)[:, None]) & counts[None]
    size = jnp.sum(own.astype(jnp.int32), axis=1)
    rows = weight.at[indices].get(**_IN_BOUNDS)
    if mode == _MAX:
        each = jnp.where(own[..., None], rows[None], -jnp.inf)
        best = jnp.argmax(each, axis=1)
        named = indices.at[best].get(**_IN_BOUNDS)
        empty = size[:, None] == 0
        return jnp.where(empty, 0, jnp.max(each, axis=1)), bag, size, jnp.where(empty, -1, named)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    total = own.astype(rows.dtype) @ rows
    if mode == _MEAN:
        total = total / jnp.maximum(size, 1)[:, None]
    return total, bag, size, size


@lowers(aten._embedding_bag_dense_backward)
def _dense_backward(
    g: Array,
    indices: Array,
    bag: Array,
    size: Array,
    maxima: Array,
    count: int,
    by_frequency: bool,
    mode: int,
    per_sample_weights: Array | None = None,
    padding_idx: int = -1,
) -> Array:
    zeros = jnp.zeros((count, g.shape[1]), g.dtype)
    if mode == _MAX:
        return scatter_add(zeros, 0, jnp.maximum(maxima, 0), jnp.where(maxima < 0, 0, g))
    part = g.at[bag].get(**_IN_BOUNDS)
    if mode == _MEAN:
        part = part / jnp.maximum(size.at[bag].get(**_IN_BOUNDS), 1)[:, None]
    if per_sample_weights is not None:
        part = part * per_sample_weights[:, None]
    if by_frequency:
        ones = jnp.ones(indices.shape, g.dtype)
        often = jnp.zeros((count,), g.dtype).at[indices].add(ones, **_IN_BOUNDS)
        part = part / often.at[indices].get(**_IN_BOUNDS)[:, None]
    if padding_idx >= 0:
        part = jnp.where((indices == padding_idx)[:, None], 0, part)
    return zeros.at[indices].add(part, **_IN_BOUNDS)


@lowers(aten._embedding_bag_backward)
def _embedding_bag_backward(
    g: Array,
    indices: Array,
    offsets: Array,
    _bag: Array,
    size: Array,
    maxima: Array,
    count: int,
    by_frequency: bool,
    mode: int,
    _sparse: bool,
    *rest: Any,
) -> Array:
    bag = _bags(indices, offsets)
    return _dense_backward(g, indices, bag, size, maxima, count, by_frequency, mode, *rest)


@lowers(aten._embedding_bag_per_sample_weights_backward)
def _per_sample_weights_backward(
    g: Array,
    weight: Array,
    indices: Array,
    offsets: Array,
    _bag: Array,
    _mode: int,
    padding_idx: int = -1,
) -> Array:
    rows = weight.at[indices].get(**_IN_BOUNDS)
    each = jnp.sum(rows * g.at[_bags(indices, offsets)].get(**_IN_BOUNDS), axis=1)
    return jnp.where(indices == padding_idx, 0, each) if padding_idx >= 0 else each
