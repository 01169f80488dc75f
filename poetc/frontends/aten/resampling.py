"""Images of another size, padded by their own elements, or read at places in between."""

# pyright: reportMissingImports=false
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from poetc.frontends.aten.registry import LOWERINGS, aten, lowers

Taps = list[tuple[np.ndarray, np.ndarray | None]]
"""Per summand, for each element of the result: the index, and the weight if it is not 1."""


def _places(size: int, count: int, scale: float | None, align: bool) -> np.ndarray:
    """Where the elements of a result of that extent are in an input of the other."""
    at = np.arange(size, dtype=np.float32)
    if align:
        return at * np.float32((count - 1) / (size - 1) if size > 1 else 0)
    step = np.float32(1 / scale if scale else count / size)
    return (at + np.float32(0.5)) * step - np.float32(0.5)


def _nearest(exact: bool) -> Callable[..., Taps]:
    def taps(size: int, count: int, scale: float | None, _align: bool) -> Taps:
        step = np.float32(1 / scale if scale else count / size)
        at = (np.arange(size, dtype=np.float32) + np.float32(0.5 * exact)) * step
        return [(np.minimum(np.floor(at).astype(np.int32), count - 1), None)]

    return taps


def _linear(size: int, count: int, scale: float | None, align: bool) -> Taps:
    at = np.maximum(_places(size, count, scale, align), 0)
    low = np.minimum(at.astype(np.int32), count - 1)
    weight = (at - low).astype(np.float32)
    return [(low, 1 - weight), (np.minimum(low + 1, count - 1), weight)]


def cubic_weights(t: Any) -> list[Any]:
    """Weights of the four elements around a place, `t` after the second (Keys, a = -0.75)."""
    a = -0.75

    def near(d: Any) -> Any:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Any) -> Any:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _cubic(size: int, count: int, scale: float | None, align: bool) -> Taps:
    at = _places(size, count, scale, align)
    low = np.floor(at)
    weights = cubic_weights((at - low).astype(np.float32))
    return [
        (np.clip(low + k - 1, 0, count - 1).astype(np.int32), weight.astype(np.float32))
        for k, weight in enumerate(weights)
    ]


def _resample(x: Array, dim: int, taps: Taps) -> Array:
    total: Any = None
    for index, weight in taps:
        part = jnp.take(x, index, dim, mode="clip")
        if weight is not None:
            part = part * weight.reshape(-1, *(1,) * (x.ndim - dim - 1))
        total = part if total is None else total + part
    return total


def _upsample(taps: Callable[..., Taps], rank: int, has_align: bool) -> tuple[Any, Any]:
    """An operator that gives images another size, and its gradient."""

    def forward(x: Array, size: Sequence[int], *more: Any) -> Array:
        align = bool(more[0]) if has_align else False
        scales = [*more[has_align:], *(None,) * rank][:rank]
        for i, (extent, scale) in enumerate(zip(size, scales, strict=True)):
            dim = x.ndim - rank + i
            x = _resample(x, dim, taps(extent, x.shape[dim], scale, align))
        return x

    def backward(g: Array, size: Sequence[int], shape: Sequence[int], *more: Any) -> Array:
        like = jax.ShapeDtypeStruct(tuple(shape), g.dtype)
        return jax.linear_transpose(lambda x: forward(x, size, *more), like)(g)[0]

    return forward, backward


for _name, _taps, _rank, _has_align in (
    ("nearest1d", _nearest(False), 1, False),
    ("nearest2d", _nearest(False), 2, False),
    ("nearest3d", _nearest(False), 3, False),
    ("_exact1d", _nearest(True), 1, False),
    ("_exact2d", _nearest(True), 2, False),
    ("_exact3d", _nearest(True), 3, False),
    ("linear1d", _linear, 1, True),
    ("bilinear2d", _linear, 2, True),
    ("trilinear3d", _linear, 3, True),
    ("bicubic2d", _cubic, 2, True),
):
    _operator = f"_upsample_nearest{_name}" if _name.startswith("_exact") else f"upsample_{_name}"
    _forward, _backward = _upsample(_taps, _rank, _has_align)
    LOWERINGS[getattr(aten, _operator).default] = _forward
    LOWERINGS[getattr(aten, f"{_operator}_backward").default] = _backward


# Padding


def _padded(index: Callable[[np.ndarray, int], np.ndarray]) -> tuple[Any, Any]:
    """An operator that pads by elements of the tensor, and its gradient; `index` says by which."""

    def forward(x: Array, pads: Sequence[int]) -> Array:
        for i in range(len(pads) // 2):
            dim = x.ndim - 1 - i
            n = x.shape[dim]
            at = np.arange(-pads[2 * i], n + pads[2 * i + 1])
            x = _resample(x, dim, [(index(at, n).astype(np.int32), None)])
        return x

    def backward(g: Array, x: Array, pads: Sequence[int]) -> Array:
        return jax.linear_transpose(lambda x: forward(x, pads), x)(g)[0]

    return forward, backward


for _name, _index in (
    ("reflection", lambda at, n: (n - 1) - np.abs((n - 1) - np.abs(at))),
    ("replication", lambda at, n: np.clip(at, 0, n - 1)),
):
    for _rank in (1, 2, 3):
        _forward, _backward = _padded(_index)
        LOWERINGS[getattr(aten, f"{_name}_pad{_rank}d").default] = _forward
        LOWERINGS[getattr(aten, f"{_name}_pad{_rank}d_backward").default] = _backward


# Grids


def _unnormalized(at: Array, size: int, align: bool) -> Array:
    return (at + 1) / 2 * (size - 1) if align else ((at + 1) * size - 1) / 2


def _reflected(at: Array, low: float, high: float) -> Array:
    if low == high:
        return jnp.zeros_like(at)
    span = high - low
    at = jnp.abs(at - low)
    extra = jnp.fmod(at, span)
    even = jnp.fmod(jnp.floor(at / span), 2) == 0
    return jnp.where(even, extra + low, span - extra + low)


def _bounded(at: Array, size: int, padding: int, align: bool) -> Array:
    """Places for a mode of padding: 0 zeros, 1 the border, 2 reflection."""
    if padding == 2:
        at = _reflected(at, 0, size - 1) if align else _reflected(at, -0.5, size - 0.5)
    return at if padding == 0 else jnp.clip(at, 0, size - 1)


def _grid_sample(x: Array, grid: Array, mode: int, padding: int, align: bool) -> Array:
    """Images read at places from -1 to 1; `mode` 0 is bilinear, 1 nearest, 2 bicubic."""
    height, width = x.shape[2:]
    flat = x.reshape(*x.shape[:2], -1)

    def at(column: Array, row: Array) -> Array:
        """Elements at whole places, 0 outside."""
        inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
        place = jnp.clip(row, 0, height - 1) * width + jnp.clip(column, 0, width - 1)
        place = jax.lax.stop_gradient(place).astype(jnp.int32)
        taken = jax.vmap(
            lambda image, i: image.at[:, i].get(
                mode="promise_in_bounds", wrap_negative_indices=False
            )
        )(flat, place)
        return taken * inside[:, None]

    column = _unnormalized(grid[..., 0], width, align)
    row = _unnormalized(grid[..., 1], height, align)
    if mode == 2:
        left, top = jnp.floor(column), jnp.floor(row)
        across, down = cubic_weights(column - left), cubic_weights(row - top)
        total: Any = 0
        for i, wr in enumerate(down):
            for j, wc in enumerate(across):
                place = (
                    _bounded(left + (j - 1), width, padding, align),
                    _bounded(top + (i - 1), height, padding, align),
                )
                total = total + at(*place) * (wr * wc)[:, None]
        return total
    column = _bounded(column, width, padding, align)
    row = _bounded(row, height, padding, align)
    if mode == 1:
        return at(jnp.round(column), jnp.round(row))
    left, top = jnp.floor(column), jnp.floor(row)
    east, south = column - left, row - top
    corners = (
        (left, top, (1 - east) * (1 - south)),
        (left + 1, top, east * (1 - south)),
        (left, top + 1, (1 - east) * south),
        (left + 1, top + 1, east * south),
    )
    return sum(at(c, r) * weight[:, None] for c, r, weight in corners)  # pyright: ignore


LOWERINGS[aten.grid_sampler_2d] = _grid_sample


@lowers(aten.grid_sampler_2d_backward)
def _grid_sample_backward(
    g: Array,
    x: Array,
    grid: Array,
    mode: int,
    padding: int,
    align: bool,
    _wanted: Sequence[bool],
) -> tuple[Array, ...]:
    return jax.vjp(lambda x, grid: _grid_sample(x, grid, mode, padding, align), x, grid)[1](g)


def _scaled(x: Any, size: Sequence[int] | None, scales: Sequence[float] | None) -> list[int]:
    """The extents of a result: given, or by the factors."""
    if size is not None:
        return list(size)
    assert scales is not None
    inner = x.shape[-len(scales) :]
    return [math.floor(n * scale) for n, scale in zip(inner, scales, strict=True)]


@lowers(aten.upsample_nearest2d.vec)
def _nearest2d_vec(x: Array, size: Any, scales: Any) -> Array:
    return LOWERINGS[aten.upsample_nearest2d.default](x, _scaled(x, size, scales), *(scales or ()))


@lowers(aten.upsample_bilinear2d.vec)
def _bilinear2d_vec(x: Array, size: Any, align: bool, scales: Any) -> Array:
    size = _scaled(x, size, scales)
    return LOWERINGS[aten.upsample_bilinear2d.default](x, size, align, *(scales or ()))
