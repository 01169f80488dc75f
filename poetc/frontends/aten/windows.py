"""Pooling over two and three dimensions, with its gradients."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from poetc.frontends.aten.indices import scatter_add
from poetc.frontends.aten.registry import TAKE_MAXIMA, Maxima, aten, lowers, numbers

Sizes = int | Sequence[int]


@dataclass(frozen=True)
class _Windows:
    """Windows over the last dimensions of a tensor, of the extents `inner`. Of each: size, stride,
    padding on both sides, dilation, number of windows."""

    inner: tuple[int, ...]
    size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    count: tuple[int, ...]

    def over(self, ndim: int) -> dict[str, Any]:
        """Arguments of `lax.reduce_window` for a tensor of that many dimensions."""
        outer = (1,) * (ndim - len(self.inner))
        # The reach of the last window beyond the end: with ceil_mode more than the padding.
        after = (
            max((c - 1) * s + d * (k - 1) + 1 - n - p, 0)
            for n, k, s, p, d, c in zip(*self._each(), strict=True)
        )
        return {
            "window_dimensions": (*outer, *self.size),
            "window_strides": (*outer, *self.stride),
            "padding": [(0, 0)] * len(outer) + list(zip(self.padding, after, strict=True)),
            "window_dilation": (*outer, *self.dilation),
        }

    def _each(self) -> tuple[tuple[int, ...], ...]:
        return self.inner, self.size, self.stride, self.padding, self.dilation, self.count

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """For each window and element of it, flat: the flat place in the tensor, and whether it is
        not in the padding."""
        flat = np.zeros((1, 1), np.int32)
        valid = np.ones((1, 1), bool)
        for n, k, s, p, d, c in zip(*self._each(), strict=True):
            at = np.arange(c)[:, None] * s - p + np.arange(k) * d
            inside = (at >= 0) & (at < n)
            at = np.where(inside, at, 0)
            flat = (flat[:, None, :, None] * n + at[None, :, None, :]).reshape(
                flat.shape[0] * c, -1
            )
            valid = (valid[:, None, :, None] & inside[None, :, None, :]).reshape(flat.shape)
        return flat, valid

    def sizes(self, with_padding: bool) -> np.ndarray:
        """How many elements are in each window: of the tensor, or of it with its padding."""
        each = [
            ((at := np.arange(c)[:, None] * s - p + np.arange(k)) >= (-p if with_padding else 0))
            & (at < (n + p if with_padding else n))
            for n, k, s, p, _, c in zip(*self._each(), strict=True)
        ]
        return reduce(np.multiply.outer, [inside.sum(1) for inside in each]).astype(np.float32)


def _windows(
    x: Array,
    rank: int,
    size: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
) -> _Windows:
    """The windows over the last `rank` dimensions of `x`, as PyTorch counts them."""

    def each(value: Sizes) -> tuple[int, ...]:
        values = (value,) if isinstance(value, int) else tuple(value)
        return values * rank if len(values) == 1 else values

    inner = x.shape[-rank:]
    parts = (each(size), each(stride or size), each(padding), each(dilation))
    count: list[int] = []
    for n, k, s, p, d in zip(inner, *parts, strict=True):
        rest = n + 2 * p - d * (k - 1) - 1
        windows = (rest + (s - 1 if ceil_mode else 0)) // s + 1
        # The last one begins in the tensor or in the padding before it.
        if ceil_mode and (windows - 1) * s >= n + p:
            windows -= 1
        count.append(windows)
    return _Windows(inner, *parts, tuple(count))


# Maxima


@dataclass(frozen=True)
class _Maxima(Maxima):
    """The places of the maxima of windows, made where they are read."""

    x: Array
    windows: _Windows

    def indices(self) -> Array:
        """Flat in the dimensions of the windows; of several, the first."""
        flat, valid = self.windows.places()
        inner = len(self.windows.inner)
        outer = self.x.shape[: self.x.ndim - inner]
        rows = self.x.reshape(*outer, -1)[..., flat]
        rows = jnp.where(valid, rows, -jnp.inf)
        first = jnp.argmax(rows, axis=-1, keepdims=True)
        chosen = lax.broadcasted_iota("int32", rows.shape, rows.ndim - 1) == first
        return jnp.sum(jnp.where(chosen, flat, 0), axis=-1).reshape(*outer, *self.windows.count)


def _max_pool(x: Array, windows: _Windows) -> Array:
    return lax.reduce_window(x, -jnp.inf, lax.max, **windows.over(x.ndim))


@lowers(aten.max_pool2d_with_indices)
def _max_pool2d(
    x: Array,
    size: Sizes,
    stride: Sizes = (),
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    rank: int = 2,
) -> tuple[Array, _Maxima]:
    windows = _windows(x, rank, size, stride, padding, dilation, ceil_mode)
    return _max_pool(x, windows), _Maxima(x, windows)


@lowers(aten.max_pool3d_with_indices)
def _max_pool3d(x: Array, *arguments: Any) -> tuple[Array, _Maxima]:
    defaults = ((), (), 0, 1, False)
    return _max_pool2d(x, *arguments, *defaults[len(arguments) :], 3)


@lowers(aten.max_pool2d_with_indices_backward, aten.max_pool3d_with_indices_backward)
def _max_pool_backward(
    g: Array,
    x: Array,
    _size: Sizes,
    _stride: Sizes,
    _padding: Sizes,
    dilation: Sequence[int],
    _ceil_mode: bool,
    maxima: Any,
) -> Array:
    if isinstance(maxima, _Maxima) and set(maxima.windows.dilation) == {1}:
        # A kernel of its own is made for the gradient that JAX has.
        return jax.vjp(lambda x: _max_pool(x, maxima.windows), x)[1](g)[0]
    rank = len(maxima.windows.inner) if isinstance(maxima, _Maxima) else len(dilation)
    return _to_places(g, x, numbers(maxima), rank)


TAKE_MAXIMA.add(_max_pool_backward)


def _to_places(g: Array, x: Array, places: Array, rank: int) -> Array:
    """Gradients of maxima, added at their places, which are flat in the last `rank` dimensions."""
    outer = x.shape[: x.ndim - rank]
    zeros = jnp.zeros((*outer, np.prod(x.shape[x.ndim - rank :])), x.dtype)
    rows = (part.reshape(*outer, -1) for part in (places, g))
    return scatter_add(zeros, -1, *rows).reshape(x.shape)


def _adaptive_bounds(n: int, k: int) -> list[tuple[int, int]]:
    """Begin and end of `k` windows that cover `n` elements."""
    return [(i * n // k, -(-(i + 1) * n // k)) for i in range(k)]


@lowers(aten.adaptive_max_pool2d, aten.adaptive_max_pool3d)
def _adaptive_max_pool(x: Array, size: Sequence[int]) -> tuple[Array, Array]:
    rank = len(size)
    inner = x.shape[-rank:]
    flat = np.zeros((1, 1), np.int32)
    for n, k in zip(inner, size, strict=True):
        bounds = _adaptive_bounds(n, k)
        longest = max(b - a for a, b in bounds)
        # A window that is shorter has its first element several times.
        at = np.array([[a] * (longest - (b - a)) + list(range(a, b)) for a, b in bounds])
        flat = (flat[:, None, :, None] * n + at[None, :, None, :]).reshape(len(flat) * k, -1)
    outer = x.shape[: x.ndim - rank]
    rows = x.reshape(*outer, -1)[..., flat]
    first = jnp.argmax(rows, axis=-1, keepdims=True)
    chosen = lax.broadcasted_iota("int32", rows.shape, rows.ndim - 1) == first
    places = jnp.sum(jnp.where(chosen, flat.astype(np.int32), 0), axis=-1)
    shape = (*outer, *size)
    return jnp.max(rows, axis=-1).reshape(shape), places.reshape(shape)


@lowers(aten.adaptive_max_pool2d_backward, aten.adaptive_max_pool3d_backward)
def _adaptive_max_pool_backward(g: Array, x: Array, places: Array) -> Array:
    return _to_places(g, x, places, 2 if x.ndim < 5 else 3)


# Averages


def _average_pool(
    x: Array,
    rank: int,
    size: Sizes,
    stride: Sizes = (),
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Callable[[Array], Array]:
    """The function that pools tensors of the shape of `x`."""
    windows = _windows(x, rank, size, stride, padding, 1, ceil_mode)
    sizes = windows.sizes(count_include_pad)
    if divisor is not None or (sizes == sizes.flat[0]).all():
        sizes = divisor or float(sizes.flat[0])

    def pool(x: Array) -> Array:
        return lax.reduce_window(x, 0.0, lax.add, **windows.over(x.ndim)) / sizes

    return pool


@lowers(aten.avg_pool2d)
def _avg_pool2d(x: Array, *arguments: Any) -> Array:
    return _average_pool(x, 2, *arguments)(x)


@lowers(aten.avg_pool3d)
def _avg_pool3d(x: Array, *arguments: Any) -> Array:
    return _average_pool(x, 3, *arguments)(x)


@lowers(aten.avg_pool2d_backward)
def _avg_pool2d_backward(g: Array, x: Array, *arguments: Any) -> Array:
    return jax.linear_transpose(_average_pool(x, 2, *arguments), x)(g)[0]


@lowers(aten.avg_pool3d_backward)
def _avg_pool3d_backward(g: Array, x: Array, *arguments: Any) -> Array:
    return jax.linear_transpose(_average_pool(x, 3, *arguments), x)(g)[0]


@lowers(aten._adaptive_avg_pool2d, aten._adaptive_avg_pool3d)
def _adaptive_avg_pool(x: Array, size: Sequence[int]) -> Array:
    rank = len(size)
    inner = x.shape[-rank:]
    if not any(n % k for n, k in zip(inner, size, strict=True)):
        windows = [n // k for n, k in zip(inner, size, strict=True)]
        return _average_pool(x, rank, windows)(x)
    for dim, (n, k) in enumerate(zip(inner, size, strict=True), x.ndim - rank):
        weights = np.zeros((n, k), np.float32)
        for i, (a, b) in enumerate(_adaptive_bounds(n, k)):
            weights[a:b, i] = 1 / (b - a)
        x = jnp.moveaxis(jnp.tensordot(x, weights, ((dim,), (0,))), -1, dim)
    return x


@lowers(aten._adaptive_avg_pool2d_backward, aten._adaptive_avg_pool3d_backward)
def _adaptive_avg_pool_backward(g: Array, x: Array) -> Array:
    size = g.shape[-2:] if x.ndim < 5 else g.shape[-3:]
    return jax.linear_transpose(lambda x: _adaptive_avg_pool(x, size), x)(g)[0]
