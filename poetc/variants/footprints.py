"""The bytes that a stream touches in tiles: in the slice of one tile, and in all slices together.
For each dimension they are in a table over the tile sizes of the loops that move it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from poetc.variants.nests import Dim

Numbers = np.ndarray

MOST_POSITIONS = 1 << 20
"""Of tiles along one dimension; beyond that all slices count as whole ones."""


class Spans(NamedTuple):
    """Of one dimension, for each combination of tile sizes of its loops, in their order.

    `length`: positions in the slice of a tile, at most. `total`: those in all slices together, from
    one end to the other. `slices`: how many are not empty. `whole`: whether a tile may touch
    everything; then the slice is everything, and no loop moves it. `filled`: whether a tile touches
    all positions of its slice, but those that are cut off.
    """

    length: Numbers
    total: Numbers
    slices: Numbers
    whole: Numbers
    filled: Numbers


@lru_cache(maxsize=1 << 12)
def spans(dim: Dim, extents: tuple[int, ...], sizes: tuple[tuple[int, ...], ...]) -> Spans:
    """The table of a dimension whose loops have `extents` and can have tiles of `sizes`."""
    shape = tuple(map(len, sizes))
    size = np.meshgrid(*(np.array(s, np.int64) for s in sizes), indexing="ij")
    tiles = np.ones(shape, np.int64)
    for extent, t in zip(extents, size, strict=True):
        tiles = tiles * -(-extent // t)
    if dim.rows:
        reach = np.full(shape, dim.rows, np.int64)
        for t in size:
            reach = reach * t
    else:
        reach = np.full(shape, dim.high - dim.low + 1, np.int64)
        for (_, coefficient), t in zip(dim.terms, size, strict=True):
            reach = reach + abs(coefficient) * (t - 1)
    whole = reach >= dim.extent
    if prod(sum(-(-n // t) for t in s) for n, s in zip(extents, sizes, strict=True)) > (
        MOST_POSITIONS
    ):
        total, slices = reach * tiles, tiles
    else:
        total, slices = _clipped(dim, extents, sizes)
    still = tiles == 1
    length = np.where(whole, dim.extent, np.where(still, total, reach))
    one = np.minimum(slices, 1)
    return Spans(
        length,
        np.where(whole, dim.extent, total),
        np.where(whole, 1, np.where(still, one, slices)),
        whole,
        _filled(dim, size) | (still & _complete(dim, extents)),
    )


def _filled(dim: Dim, size: Sequence[Numbers]) -> Numbers:
    """Whether the positions of a tile have no gaps: those of the loops with smaller coefficients
    reach as far as one with a greater coefficient advances."""
    terms = sorted(zip((abs(c) for _, c in dim.terms), size, strict=True), key=lambda term: term[0])
    filled = np.full(np.shape(size[0]) if size else (), not (dim.gaps or dim.rows))
    reach = np.full(filled.shape, dim.high - dim.low + 1, np.int64)
    for coefficient, t in terms:
        filled = filled & ((t == 1) | (coefficient <= reach))
        reach = reach + coefficient * (t - 1)
    return filled


def _complete(dim: Dim, extents: Sequence[int]) -> bool:
    """Whether all iterations together touch a whole dimension."""
    if dim.rows or dim.gaps or prod(extents) > MOST_POSITIONS:
        return False
    return len(_positions(dim, extents)) == dim.extent


def _positions(dim: Dim, extents: Sequence[int]) -> Numbers:
    """Different positions within the buffer that all iterations touch."""
    positions = np.arange(dim.low, dim.high + 1)
    for (_, coefficient), extent in zip(dim.terms, extents, strict=True):
        positions = np.unique(np.add.outer(positions, coefficient * np.arange(extent)))
    return positions[(positions >= 0) & (positions < dim.extent)]


def _clipped(
    dim: Dim, extents: tuple[int, ...], sizes: tuple[tuple[int, ...], ...]
) -> tuple[Numbers, Numbers]:
    """Positions in all slices together, and how many slices are not empty."""
    dims = len(extents)
    low, high = np.full((1,) * dims, dim.low, np.int64), np.full((1,) * dims, dim.high, np.int64)
    rows = np.full((1,) * dims, dim.rows, np.int64)
    begins: list[Numbers] = []
    for axis, (extent, own) in enumerate(zip(extents, sizes, strict=True)):
        starts = [np.arange(0, extent, t) for t in own]
        start = np.concatenate(starts)
        last = np.concatenate([np.minimum(s + t, extent) - 1 for s, t in zip(starts, own)])  # noqa: B905
        begins.append(np.cumsum([0, *(len(s) for s in starts[:-1])]))
        along = tuple(-1 if axis == other else 1 for other in range(dims))
        if dim.rows:
            rows = rows * (last - start + 1).reshape(along)
        else:
            coefficient = dim.terms[axis][1]
            ends = coefficient * start, coefficient * last
            low = low + np.minimum(*ends).reshape(along)
            high = high + np.maximum(*ends).reshape(along)
    if dim.rows:
        touched = np.minimum(rows, dim.extent)
    else:
        touched = np.maximum(np.minimum(high, dim.extent - 1) - np.maximum(low, 0) + 1, 0)
    found = np.minimum(touched, 1)
    for axis, at in enumerate(begins):
        touched = np.add.reduceat(touched, at, axis=axis)
        found = np.add.reduceat(found, at, axis=axis)
    return touched, found
