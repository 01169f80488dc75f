"""Elements named by indices."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import Array, lax
from jax import numpy as jnp

from poetc.frontends.aten.registry import UnsupportedError, aten, lowers


def _at(x: Array, dim: int, index: Array) -> Any:
    """The places of `x` that `index` names along `dim`; they are within bounds."""
    return x.at[(slice(None),) * (dim % x.ndim) + (index,)]


_IN_BOUNDS = {"mode": "promise_in_bounds", "wrap_negative_indices": False}


@lowers(aten.embedding)
def _embedding(weight: Array, indices: Array, *_: Any) -> Array:
    return weight.at[indices].get(**_IN_BOUNDS)


@lowers(aten.embedding_dense_backward)
def _embedding_backward(
    g: Array, indices: Array, count: int, padding: int, by_frequency: bool
) -> Array:
    if by_frequency:
        raise UnsupportedError("embedding with scale_grad_by_freq=True")
    if padding >= 0:
        g = jnp.where((indices == padding)[..., None], 0, g)
    zeros = jnp.zeros((count, g.shape[-1]), g.dtype)
    return zeros.at[indices].add(g, **_IN_BOUNDS)


@lowers(aten.index_select)
def _index_select(x: Array, dim: int, index: Array) -> Array:
    return _at(x, dim, index).get(**_IN_BOUNDS)


def _indexed(x: Array, indices: Sequence[Array | None]) -> Any:
    """The places that PyTorch's `x[indices]` names."""
    used = [(dim, jnp.asarray(index)) for dim, index in enumerate(indices) if index is not None]
    if len(used) != 1 or used[0][1].dtype == bool:
        raise UnsupportedError("other indices than whole numbers for one dimension")
    dim, index = used[0]
    # Elsewhere than in `gather` and `embedding`, negative ones count from the end.
    return _at(x, dim, jnp.where(index < 0, index + x.shape[dim], index))


@lowers(aten.index)
def _index(x: Array, indices: Sequence[Array | None]) -> Array:
    return _indexed(x, indices).get(**_IN_BOUNDS)


@lowers(aten.index_put)
def _index_put(
    x: Array, indices: Sequence[Array | None], source: Array, accumulate: bool = False
) -> Array:
    if not accumulate:
        raise UnsupportedError("assignment to elements (adding to them is lowered)")
    return _indexed(x, indices).add(source, **_IN_BOUNDS)


@lowers(aten.gather)
def _gather(x: Array, dim: int, index: Array, **_: Any) -> Array:
    if x.ndim == 1:
        return _at(x, 0, index).get(**_IN_BOUNDS)
    _check_one_per_row(x, dim, index)
    picked = jnp.where(_picks(x, dim, index), x, jnp.zeros((), x.dtype))
    return jnp.sum(picked, dim, keepdims=True)


@lowers(aten.scatter)
def _scatter(x: Array, dim: int, index: Array, source: Any, **options: Any) -> Array:
    if options:
        raise UnsupportedError(f"scatter with {', '.join(options)}")
    _check_one_per_row(x, dim, index)
    return jnp.where(_picks(x, dim, index), source, x)


@lowers(aten.scatter_add)
def _scatter_add(x: Array, dim: int, index: Array, source: Array) -> Array:
    if x.ndim == 1:
        return _at(x, 0, index).add(source, **_IN_BOUNDS)
    _check_one_per_row(x, dim, index)
    return x + jnp.where(_picks(x, dim, index), source, jnp.zeros((), x.dtype))


def _check_one_per_row(x: Array, dim: int, index: Array) -> None:
    expected = list(x.shape)
    expected[dim] = 1
    if list(index.shape) != expected:
        raise UnsupportedError(
            f"indices of the shape {index.shape}, not one for each row of {x.shape}"
        )


def _picks(x: Array, dim: int, index: Array) -> Array:
    """Whether an element of `x` is the one that `index`, of extent 1 along `dim`, names."""
    return lax.broadcasted_iota("int32", x.shape, dim % x.ndim) == index
