"""Distances between rows, and weights that are normalized, with their gradients."""

# pyright: reportMissingImports=false
from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax import Array
from jax import numpy as jnp

from poetc.frontends.aten.registry import aten, lowers


def _distance(difference: Array, p: float) -> Array:
    size = jnp.abs(difference)
    if p == 0:
        return jnp.sum((size != 0).astype(size.dtype), axis=-1)
    if p == 1:
        return jnp.sum(size, axis=-1)
    if p == 2:
        return jnp.sqrt(jnp.sum(size * size, axis=-1))
    if p == math.inf:
        return jnp.max(size, axis=-1)
    return jnp.sum(size**p, axis=-1) ** (1 / p)


def _slope(difference: Array, distance: Array, p: float) -> Array:
    """The derivative of the distance by each difference; 0 where the distance is 0."""
    sign, size, whole = jnp.sign(difference), jnp.abs(difference), distance[..., None]
    if p == 0:
        return jnp.zeros_like(difference)
    if p == 1:
        return sign
    if p == math.inf:
        return sign * (size == whole)
    divisor = jnp.where(whole == 0, 1, whole)
    slope = difference / divisor if p == 2 else sign * (size / divisor) ** (p - 1)
    return jnp.where(whole == 0, 0, slope)


def _pairs(x: Array, y: Array) -> Array:
    return x[..., :, None, :] - y[..., None, :, :]


@lowers(aten._cdist_forward)
def _cdist(x: Array, y: Array, p: float, _mode: int | None) -> Array:
    return _distance(_pairs(x, y), p)


@lowers(aten._cdist_backward)
def _cdist_backward(g: Array, x: Array, y: Array, p: float, distance: Array) -> Array:
    total = jnp.sum(g[..., None] * _slope(_pairs(x, y), distance, p), axis=-2)
    return jnp.broadcast_to(total, x.shape)


def _each_pair(x: Array) -> tuple[Any, Any]:
    return np.triu_indices(x.shape[0], 1)


@lowers(aten._pdist_forward)
def _pdist(x: Array, p: float = 2) -> Array:
    first, second = _each_pair(x)
    return _distance(x[first] - x[second], p)


@lowers(aten._pdist_backward)
def _pdist_backward(g: Array, x: Array, p: float, distance: Array) -> Array:
    first, second = _each_pair(x)
    part = g[:, None] * _slope(x[first] - x[second], distance, p)
    return jnp.zeros_like(x).at[first].add(part).at[second].add(-part)


@lowers(aten._weight_norm_interface_backward)
def _weight_norm_backward(
    g: Array, direction: Array, length: Array, norms: Array, dim: int
) -> tuple[Array, Array]:
    others = tuple(i for i in range(direction.ndim) if i != dim % direction.ndim)
    along = jnp.sum(g * direction, axis=others, keepdims=True)
    by_direction = length * (g / norms - direction * (along / norms**3))
    return by_direction, along / norms
