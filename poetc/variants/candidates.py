"""The tilings of a nest that are compared: tile sizes, by their index among those of each loop, and
orders of the tile loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from math import prod

import numpy as np

from poetc.variants.nests import Nest, Stream

Numbers = np.ndarray
Sizes = Sequence[tuple[int, ...]]
"""Of each loop of a nest the tile sizes, by growing size: the last one is the whole loop."""

MOST_SIZES = 24
"""Tile sizes of a loop that are considered at all."""

MOST_WITHIN = 12
"""Places within a partial sum at which the first tilings interrupt it."""


def loop_orders(nest: Nest, streams: Sequence[Stream]) -> Iterator[tuple[int, ...]]:
    """Orders of the tile loops, from the outermost on.

    Loops that move the same streams are next to each other: nothing is gained by others between
    them. Those of a sum keep their order.
    """
    moved = [
        frozenset(
            n for n, s in enumerate(streams) for d in s.dims for at, _ in d.terms if at == loop
        )
        for loop in range(len(nest.loops))
    ]
    parallel = nest.parallel
    groups: dict[object, list[int]] = {}
    for loop in range(parallel):
        groups.setdefault(frozenset(moved[loop]), []).append(loop)
    for loop in range(parallel, len(nest.loops)):
        joins = loop > parallel and moved[loop] == moved[loop - 1]
        last = next(reversed(groups)) if joins else ("sum", loop)
        groups.setdefault(last, []).append(loop)
    for order in permutations(groups.values()):
        loops = tuple(loop for group in order for loop in group)
        sums = [loop for loop in loops if loop >= parallel]
        if sums == sorted(sums):
            yield loops


def tile_sizes(extent: int) -> tuple[int, ...]:
    """From 1 to all: every size of a short loop; of a long one those that differ in the number of
    tiles, and powers of two, of which slices may begin where blocks do."""
    if extent <= MOST_SIZES:
        return tuple(range(1, extent + 1))
    powers = [1 << k for k in range(extent.bit_length())]
    every = range(1, extent + 1) if extent < 4096 else _few(extent)
    others = sorted({-(-extent // count) for count in every}.difference(powers))
    room = max(2, MOST_SIZES - len(powers))
    return tuple(sorted({*powers, *(others[i] for i in _thinned(len(others), room))}))


def _few(extent: int) -> Iterator[int]:
    """Numbers of tiles, each a fifth more than the one before."""
    count = 1.0
    while count < extent:
        yield round(count)
        count *= 1.2
    yield extent


def _thinned(length: int, most: int) -> list[int]:
    """Indices, first and last among them, evenly spread."""
    if length <= most:
        return list(range(length))
    return sorted({round(i * (length - 1) / (most - 1)) for i in range(most)})


def grid(nest: Nest, sizes: Sizes, most: int) -> Numbers:
    """Tilings over all tile sizes, a column each: at most about `most` whose sums are interrupted
    between partial sums, if at all, as many where they are within these, and all tiles of one
    parallel loop."""
    parallel, blocks = nest.parallel, nest.blocks
    whole = tuple(len(own) - 1 for own in sizes[blocks:])
    every = list(_sum_tiles(sizes[parallel:]))
    between = [sums for sums in every if sums[blocks - parallel :] == whole]
    within = every[len(between) :]
    within = [within[i] for i in _thinned(len(within), MOST_WITHIN)]
    found = [_in_grid(sizes[:parallel], sums, most) for sums in (between, within) if sums]
    last = [len(own) - 1 for own in sizes]
    for loop in range(parallel):
        found.append(np.tile(np.array(last, np.int64), (last[loop], 1)))
        found[-1][:, loop] = range(last[loop])
    return np.concatenate(found).T


def _in_grid(parallel: Sizes, sums: Sequence[tuple[int, ...]], most: int) -> Numbers:
    """At most about `most` tilings with these tiles of the `sums`, a row each."""
    room = max(1.0, most / len(sums))
    counts = [len(own) for own in parallel]
    # The longest lists are thinned out until the grid is small enough.
    while prod(counts) > room and max(counts) > 2:
        counts[counts.index(max(counts))] -= 1
    chosen = [_thinned(len(own), count) for own, count in zip(parallel, counts, strict=True)]
    rows = [(*p, *s) for p, s in product(product(*chosen), sums)]
    return np.array(rows, np.int64).reshape(len(rows), len(parallel) + len(sums[0]))


def _sum_tiles(sizes: Sizes) -> Iterator[tuple[int, ...]]:
    """A sum is interrupted at one of its loops: those outside have tiles of one iteration,
    those inside are whole."""
    whole = [len(own) - 1 for own in sizes]
    yield tuple(whole)
    for at, own in enumerate(sizes):
        for index in range(len(own) - 1):
            yield (*[0] * at, index, *whole[at + 1 :])


def neighbours(index: Numbers, sizes: Sizes, parallel: int) -> Numbers:
    """Tilings in which one loop, or two, have the next sizes."""
    loops, found = len(sizes), [index]
    last = np.array([[len(own) - 1] for own in sizes]).reshape(loops, 1)
    for loop, by in product(range(loops), (-2, -1, 1, 2)):
        one = index.copy()
        one[loop] += by
        found.append(one)
    for up, down in permutations(range(loops), 2):
        two = index.copy()
        two[up] += 1
        two[down] -= 1
        found.append(two)
    near = np.concatenate(found, axis=1)
    near = near[:, ((near >= 0) & (near <= last)).all(axis=0)]
    return near[:, _keeps_sums(near, sizes, parallel)]


def _keeps_sums(index: Numbers, sizes: Sizes, parallel: int) -> Numbers:
    """Where each sum is interrupted at one of its loops, as `_sum_tiles` has it."""
    legal = np.ones(index.shape[1], bool)
    parted = np.zeros(index.shape[1], bool)
    for loop in range(len(sizes) - 1, parallel - 1, -1):
        legal &= ~parted | (index[loop] == 0)
        parted |= index[loop] < len(sizes[loop]) - 1
    return legal
