"""Reductions and products of matrices."""

# pyright: reportMissingImports=false
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from jax import Array, lax
from jax import numpy as jnp

from poetc.frontends.aten.registry import LOWERINGS, Lowering, UnsupportedError, aten, lowers


def _reduction(function: Callable[..., Array]) -> Lowering:
    def reduce(x: Array, dims: Any = None, keepdim: bool = False, **_: Any) -> Array:
        # No dimensions are all of them.
        axis = dims if isinstance(dims, int) else tuple(dims) if dims else None
        return function(x, axis=axis, keepdims=keepdim)

    return reduce


LOWERINGS |= {
    aten.all: _reduction(jnp.all),
    aten.amax: _reduction(jnp.max),
    aten.amin: _reduction(jnp.min),
    aten.max.default: jnp.max,
    aten.min.default: jnp.min,
    aten.any: _reduction(jnp.any),
    aten.mean: _reduction(jnp.mean),
    aten.sum: _reduction(jnp.sum),
}


def _extremum(reduce: Callable[..., Array]) -> Lowering:
    def find(x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
        value = reduce(x, axis=dim, keepdims=True)
        # Of several, the first.
        size = x.shape[dim]
        from_end = size - 1 - lax.broadcasted_iota("int32", x.shape, dim % x.ndim)
        index = size - 1 - jnp.max(jnp.where(x == value, from_end, 0), dim, keepdims=True)
        return (value, index) if keepdim else (jnp.squeeze(value, dim), jnp.squeeze(index, dim))

    return find


LOWERINGS |= {aten.max.dim: _extremum(jnp.max), aten.min.dim: _extremum(jnp.min)}


@lowers(aten.argmax)
def _argmax(x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    if dim is None:
        raise UnsupportedError("argmax without a dimension")
    return LOWERINGS[aten.max.dim](x, dim, keepdim)[1]


@lowers(aten.linalg_vector_norm)
def _norm(x: Array, order: float = 2, dims: Any = None, keepdim: bool = False, **_: Any) -> Array:
    sizes = {1: jnp.abs, 2: jnp.square, math.inf: jnp.abs}
    if order not in sizes:
        raise UnsupportedError(f"the norm of order {order} (1, 2 and inf are lowered)")
    total = _reduction(jnp.max if order == math.inf else jnp.sum)(sizes[order](x), dims, keepdim)
    return jnp.sqrt(total) if order == 2 else total


@lowers(aten.var_mean.correction)
def _var_mean(
    x: Array, dims: Sequence[int] | None = None, *, correction: Any = 1, keepdim: bool = False
) -> tuple[Array, Array]:
    axis = tuple(dims) if dims else tuple(range(x.ndim))
    mean = jnp.mean(x, axis, keepdims=True)
    difference = x - mean
    count = math.prod(x.shape[i] for i in axis) - (1 if correction is None else correction)
    var = jnp.sum(difference * difference, axis, keepdims=keepdim) / count
    return var, mean if keepdim else jnp.squeeze(mean, axis)


@lowers(aten.var.correction)
def _var(x: Array, *arguments: Any, **options: Any) -> Array:
    return _var_mean(x, *arguments, **options)[0]


LOWERINGS |= {
    aten.bmm: jnp.matmul,
    aten.dot: jnp.matmul,
    aten.mm: jnp.matmul,
    aten.mv: jnp.matmul,
}
