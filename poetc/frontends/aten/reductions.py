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


def _extreme(function: Callable[..., Array]) -> Callable[..., Array]:
    """A maximum or minimum like `jnp.max`, which does not know integers of 64 bits."""

    def reduce(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
        axes = range(x.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
        axes = tuple(dim % x.ndim for dim in axes)
        result = function(x, axes)
        return jnp.expand_dims(result, axes) if keepdims else result

    return reduce


_max, _min = _extreme(lax.reduce_max), _extreme(lax.reduce_min)

LOWERINGS |= {
    aten.all: _reduction(jnp.all),
    aten.amax: _reduction(_max),
    aten.amin: _reduction(_min),
    aten.max.default: _max,
    aten.min.default: _min,
    aten.any: _reduction(jnp.any),
    aten.mean: _reduction(jnp.mean),
    aten.sum: _reduction(jnp.sum),
}


@lowers(aten.prod)
def _prod(x: Array, dim: int | None = None, keepdim: bool = False, **_: Any) -> Array:
    return jnp.prod(x, axis=dim, keepdims=keepdim)


def _position(reduce: Callable[..., Array]) -> Lowering:
    """The first index of the extremum along a dimension, or in the flat tensor."""

    def find(x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
        if dim is None:
            index = find(x.reshape(-1), 0)
            return index.reshape((1,) * x.ndim) if keepdim else index
        size = x.shape[dim]
        place = lax.broadcasted_iota("int32", x.shape, dim % x.ndim)
        first = jnp.where(x == reduce(x, axis=dim, keepdims=True), place, size - 1)
        return _min(first, axis=dim, keepdims=keepdim)

    return find


def _extremum(reduce: Callable[..., Array]) -> Lowering:
    """Values and first indices of the extremum along a dimension."""
    position = _position(reduce)

    def find(x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
        return reduce(x, axis=dim, keepdims=keepdim), position(x, dim, keepdim)

    return find


LOWERINGS |= {
    aten.max.dim: _extremum(_max),
    aten.min.dim: _extremum(_min),
    aten.argmax: _position(_max),
    aten.argmin: _position(_min),
}


@lowers(aten.cumsum)
def _cumsum(x: Array, dim: int, **_: Any) -> Array:
    x = x.astype(jnp.int32) if x.dtype == bool else x
    return lax.cumsum(x, dim % x.ndim) if x.ndim else x


@lowers(aten.cumprod)
def _cumprod(x: Array, dim: int, **_: Any) -> Array:
    return lax.cumprod(x, dim % x.ndim) if x.ndim else x


@lowers(aten.logcumsumexp)
def _logcumsumexp(x: Array, dim: int) -> Array:
    return lax.associative_scan(jnp.logaddexp, x, axis=dim) if x.ndim else x


def _running(extreme: Callable[..., Array]) -> Lowering:
    """Running extrema, and where each is: of several, the last."""

    def run(x: Array, dim: int) -> tuple[Array, Array]:
        if not x.ndim:
            return x, jnp.zeros((), jnp.int32)
        dim %= x.ndim
        values = extreme(x, dim)
        place = lax.broadcasted_iota("int32", x.shape, dim)
        return values, lax.cummax(jnp.where(x == values, place, 0), dim)

    return run


LOWERINGS |= {aten.cummax: _running(lax.cummax), aten.cummin: _running(lax.cummin)}


@lowers(aten.linalg_vector_norm)
def _norm(x: Array, order: float = 2, dims: Any = None, keepdim: bool = False, **_: Any) -> Array:
    sizes = {1: jnp.abs, 2: jnp.square, math.inf: jnp.abs}
    if order not in sizes:
        raise UnsupportedError(f"the norm of order {order} (1, 2 and inf are lowered)")
    total = _reduction(_max if order == math.inf else jnp.sum)(sizes[order](x), dims, keepdim)
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


@lowers(aten._trilinear)
def _trilinear(
    a: Array,
    b: Array,
    c: Array,
    new_a: Sequence[int],
    new_b: Sequence[int],
    new_c: Sequence[int],
    summed: Sequence[int],
    _unroll_dim: int = 1,
) -> Array:
    parts = ((a, new_a), (b, new_b), (c, new_c))
    a, b, c = (jnp.expand_dims(x, tuple(dims)) for x, dims in parts)
    return jnp.sum(a * b * c, tuple(summed))
