"""The search for the tiles of a nest: tile sizes and loop orders, by RAM and time of transfers.

All tile sizes of a grid and all orders that make a difference are weighed at once, as arrays; then
what is best is improved by neighbouring sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from math import prod
from typing import NamedTuple

import numpy as np

from poetc.costmodel.slices import SliceCosts
from poetc.variants.footprints import Spans, spans
from poetc.variants.nests import Nest, Stream

Numbers = np.ndarray

MOST_SIZES = 24
"""Tile sizes of a loop that are considered at all."""

MOST_TILINGS = 1000
"""In the first grid."""

ROUNDS = 3
"""Of improving what was best."""

CLEARLY = 0.97
"""More RAM has to save so much time, or it is not worth a point of the front."""

_WORD_BYTES = 4


@dataclass(frozen=True)
class Tiling:
    """How a nest runs: `tiles` are (number of a loop in the kernel, iterations in a tile), from the
    outermost tile loop on; other loops of `loops`, those of the nest, are in one tile whole.
    `buffers`: of each slice that moves."""

    loops: tuple[int, ...]
    tiles: tuple[tuple[int, int], ...]
    buffers: int = 1


@dataclass(frozen=True)
class Tiled:
    """What a tiling takes: RAM of slices and sums, bytes and runs that are moved, time of that."""

    tiling: Tiling
    ram_bytes: int
    read_bytes: int
    written_bytes: int
    runs: int
    transfer_ns: float
    steps: int


class _Points(NamedTuple):
    """Tilings in columns: index of the tile size of each loop, index of the order."""

    index: Numbers
    order: Numbers
    ram: Numbers
    ns: Numbers

    def take(self, which: Numbers) -> _Points:
        return _Points(self.index[:, which], self.order[which], self.ram[which], self.ns[which])


class _Sweep(NamedTuple):
    """What one stream moves while each loop that moves it runs once."""

    box_bytes: Numbers
    bytes: Numbers
    runs: Numbers
    ns: Numbers
    moved_by: list[Numbers | None]


class NestSearch:
    """Tilings of one nest.

    `resident` are the buffers that are in RAM whole, which take neither RAM nor transfers here.
    `buffers`: of each slice that moves, 1, or 2 where transfers run beside computing. `sizes` of
    the tiles of each loop, by growing size, and `orders` of the tile loops are chosen if they are
    not given; the first grid has at most about `most` tilings.
    """

    def __init__(
        self,
        nest: Nest,
        costs: SliceCosts,
        resident: frozenset[int] = frozenset(),
        buffers: int = 1,
        sizes: Sequence[tuple[int, ...]] | None = None,
        orders: Sequence[tuple[int, ...]] | None = None,
        most: int = MOST_TILINGS,
    ) -> None:
        self.nest, self.costs, self.buffers, self.most = nest, costs, buffers, most
        self.streams = [s for s in nest.streams if s.buffer not in resident]
        self.sum_in_resident = any(
            s.buffer in resident and s.stored and nest.sum_in_result for s in nest.streams
        )
        self.extents = [max(1, loop.extent) for loop in nest.loops]
        self.sizes = sizes or [_sizes(extent) for extent in self.extents]
        self.orders = orders or list(_orders(nest, self.streams))
        self._tables: dict[tuple[int, int], Spans] = {}

    def front(self, limit_bytes: float = np.inf) -> list[Tiled]:
        """Tilings within a limit of RAM, by growing RAM and falling time."""
        least = self.costs.block_bytes
        best = _pareto(self._weighed(self._grid()), limit_bytes, least)
        for _ in range(ROUNDS if self.sizes else 0):
            near = self._neighbours(best.index)
            if not near.shape[1]:
                break
            better = _pareto([best, *self._weighed(near)], limit_bytes, least)
            if better.ns.shape == best.ns.shape and (better.ns == best.ns).all():
                break
            best = better
        return self._tiled(best)

    def weigh(self, tiles: Sequence[int]) -> Tiled:
        """One tiling in the first of the orders: iterations in a tile of each loop of the nest,
        which must be among the sizes."""
        index = np.array([own.index(t) for own, t in zip(self.sizes, tiles, strict=True)], np.int64)
        (tiled,) = self._tiled(self._weighed(index.reshape(len(tiles), 1))[0])
        return tiled

    # Candidates

    def _grid(self) -> Numbers:
        parallel = self.nest.parallel
        sums = list(self._sum_tiles())
        room = max(1.0, self.most / len(sums))
        counts = [len(own) for own in self.sizes[:parallel]]
        # The longest lists are thinned out until the grid is small enough.
        while prod(counts) > room and max(counts) > 2:
            counts[counts.index(max(counts))] -= 1
        chosen = [_thinned(len(own), count) for own, count in zip(self.sizes, counts, strict=False)]
        grid = np.array([[*p, *s] for p, s in product(product(*chosen), sums)], np.int64)
        return grid.reshape(len(grid), len(self.sizes)).T

    def _sum_tiles(self) -> Iterator[tuple[int, ...]]:
        """A sum is interrupted at one of its loops: those outside have tiles of one iteration,
        those inside are whole."""
        sizes = self.sizes[self.nest.parallel :]
        whole = [len(own) - 1 for own in sizes]
        yield tuple(whole)
        for at, own in enumerate(sizes):
            for index in range(len(own) - 1):
                yield (*[0] * at, index, *whole[at + 1 :])

    def _neighbours(self, index: Numbers) -> Numbers:
        """Tilings in which one loop, or two, have the next sizes."""
        loops, found = len(self.sizes), [index]
        last = np.array([[len(own) - 1] for own in self.sizes]).reshape(loops, 1)
        steps = [(loop, by) for loop in range(loops) for by in (-2, -1, 1, 2)]
        for loop, by in steps:
            one = index.copy()
            one[loop] += by
            found.append(one)
        for (a, up), (b, down) in product(steps, steps):
            if a != b and up == 1 and down == -1:
                two = index.copy()
                two[a] += 1
                two[b] -= 1
                found.append(two)
        near = np.unique(np.concatenate(found, axis=1), axis=1)
        near = near[:, ((near >= 0) & (near <= last)).all(axis=0)]
        return near[:, self._keeps_sums(near)]

    def _keeps_sums(self, index: Numbers) -> Numbers:
        legal = np.ones(index.shape[1], bool)
        parted = np.zeros(index.shape[1], bool)
        for loop in range(len(self.sizes) - 1, self.nest.parallel - 1, -1):
            legal &= ~parted | (index[loop] == 0)
            parted |= index[loop] < len(self.sizes[loop]) - 1
        return legal

    # Weighing

    def _weighed(self, index: Numbers) -> list[_Points]:
        """All these tilings in all orders."""
        tiles, counts = self._tiles(index)
        sweeps = [self._sweep(number, index, tiles, counts) for number in range(len(self.streams))]
        points: list[_Points] = []
        for number, order in enumerate(self.orders):
            ram = self._sum_bytes(order, tiles, counts, index.shape[1])
            ns = np.zeros(index.shape[1])
            for stream, sweep in zip(self.streams, sweeps, strict=True):
                times = _times(stream, sweep, order, counts)
                ns += sweep.ns * times
                ram = ram + sweep.box_bytes
            points.append(_Points(index, np.full(index.shape[1], number), ram, ns))
        return points

    def _sum_bytes(
        self, order: Sequence[int], tiles: list[Numbers], counts: list[Numbers], columns: int
    ) -> Numbers:
        """RAM of sums that are interrupted, beside a result in whose place they can wait."""
        loops, parallel = self.nest.loops, self.nest.parallel
        held = np.ones(columns, np.int64)
        interrupted = np.zeros(columns, bool)
        spread = np.zeros(columns, bool)
        for loop in order:
            if loop >= parallel:
                interrupted |= counts[loop] > 1
            else:
                inside = interrupted & (counts[loop] > 1)
                spread |= inside
                held *= np.where(inside, self.extents[loop], tiles[loop])
        size = np.zeros(columns, np.int64)
        for loop in range(parallel, len(loops)):
            size = np.where(counts[loop] > 1, loops[loop].resumed_bytes, size)
        in_result = np.where(spread & (not self.sum_in_resident), 0, self.nest.sum_in_result)
        return np.where(interrupted, held * np.maximum(size - in_result, 0), 0)

    def _spans(self, stream: int, dim: int, index: Numbers) -> tuple[Numbers, ...]:
        touched = self.streams[stream].dims[dim]
        loops = [loop for loop, _ in touched.terms]
        key = stream, dim
        if key not in self._tables:
            extents = tuple(self.extents[loop] for loop in loops)
            own = tuple(self.sizes[loop] for loop in loops)
            # Which loops of the nest they are makes no difference.
            terms = tuple((n, c) for n, (_, c) in enumerate(touched.terms))
            self._tables[key] = spans(replace(touched, terms=terms), extents, own)
        at = tuple(index[loop] for loop in loops)
        columns = index.shape[1]
        if not loops:
            return tuple(np.full(columns, table) for table in self._tables[key])
        return tuple(table[at] for table in self._tables[key])

    def _sweep(
        self, number: int, index: Numbers, tiles: list[Numbers], counts: list[Numbers]
    ) -> _Sweep:
        stream, columns = self.streams[number], index.shape[1]
        touched = [self._spans(number, dim, index) for dim in range(len(stream.dims))]
        box, elements = np.ones(columns, np.int64), np.ones(columns)
        moved_by: list[Numbers | None] = [None] * len(self.sizes)
        alignment = np.full(columns, self.costs.block_bytes, np.int64)
        stride = stream.element_bytes
        for dim, (length, total, _, whole) in reversed(
            list(zip(stream.dims, touched, strict=True))
        ):
            start = np.full(columns, dim.low, np.int64)
            for loop, coefficient in dim.terms:
                moves, before = ~whole & (counts[loop] > 1), moved_by[loop]
                if before is not None:
                    # A loop that moves two dimensions moves them together.
                    elements = np.where(before & moves, elements / counts[loop], elements)
                moved_by[loop] = moves if before is None else moves | before
                start += np.minimum(coefficient * (tiles[loop] - 1), 0)
                step = abs(coefficient) * tiles[loop] * stride
                alignment = np.where(moves, np.gcd(alignment, step), alignment)
            first = np.where(whole | bool(dim.rows), 0, np.maximum(start, 0))
            alignment = np.gcd(alignment, first * stride)
            box *= length
            elements *= total
            stride *= dim.extent
        runs, run_bytes, alignment = self._runs(stream, touched, alignment)
        # Of a loop that moves two dimensions each counts all of its slices.
        runs *= elements / np.maximum(prod(total for _, total, _, _ in touched), 1)
        moves_at_all = np.zeros(columns, bool)
        for moves in moved_by:
            moves_at_all |= False if moves is None else moves
        move = self.costs.write_ns if stream.stored else self.costs.read_ns
        size = -(-box * stream.element_bytes // _WORD_BYTES) * _WORD_BYTES
        return _Sweep(
            size * np.where(moves_at_all, self.buffers, 1),
            elements * stream.element_bytes,
            runs,
            move(runs, run_bytes, alignment),
            moved_by,
        )

    def _runs(
        self, stream: Stream, touched: Sequence[tuple[Numbers, ...]], alignment: Numbers
    ) -> tuple[Numbers, Numbers, Numbers]:
        """How many runs all slices have, of how many bytes, at multiples of what.

        Rows of which the inner dimensions are whole are one run; so are, where they are read, runs
        with gaps between them that are not worth another one.
        """
        columns = alignment.shape[0]
        runs = np.ones(columns)
        run_bytes = np.full(columns, float(stream.element_bytes))
        adjacent = np.ones(columns, bool)
        stride = stream.element_bytes
        for dim, (_, total, slices, whole) in reversed(
            list(zip(stream.dims, touched, strict=True))
        ):
            mean = total / np.maximum(slices, 1)
            apart = ~whole & bool(dim.rows)
            grows = adjacent & ~apart
            near = stride - run_bytes <= self.costs.gap_bytes
            spanned = ~apart & ~grows & near & (not stream.stored)
            single = ~apart & (mean <= 1)
            spanning = np.where(spanned, (mean - 1) * stride + run_bytes, run_bytes)
            run_bytes = np.where(grows, run_bytes * mean, spanning)
            runs = runs * np.where(grows | spanned, slices, total)
            strided = ~(grows | spanned | single)
            alignment = np.where(strided, np.gcd(alignment, stride), alignment)
            adjacent &= whole
            stride *= dim.extent
        return runs, run_bytes, alignment

    def _tiled(self, points: _Points) -> list[Tiled]:
        tiles, counts = self._tiles(points.index)
        sweeps = [self._sweep(n, points.index, tiles, counts) for n in range(len(self.streams))]
        moved = np.zeros((3, len(points.ram)))
        for number in np.unique(points.order):
            here = points.order == number
            for stream, sweep in zip(self.streams, sweeps, strict=True):
                times = _times(stream, sweep, self.orders[number], counts)
                moved[int(stream.stored), here] += (sweep.bytes * times)[here]
                moved[2, here] += (sweep.runs * times)[here]
        loops = self.nest.loops
        found: list[Tiled] = []
        for column, (read, written, runs) in enumerate(moved.T.tolist()):
            order = self.orders[int(points.order[column])]
            parted = [loop for loop in order if counts[loop][column] > 1]
            tiling = Tiling(
                tuple(loop.number for loop in loops),
                tuple((loops[loop].number, int(tiles[loop][column])) for loop in parted),
                self.buffers,
            )
            found.append(
                Tiled(
                    tiling,
                    int(points.ram[column]),
                    round(read),
                    round(written),
                    round(runs),
                    float(points.ns[column]),
                    prod(int(counts[loop][column]) for loop in parted),
                )
            )
        return found

    def _tiles(self, index: Numbers) -> tuple[list[Numbers], list[Numbers]]:
        """Iterations in a tile of each loop, and how many tiles."""
        tiles = [np.array(own)[index[loop]] for loop, own in enumerate(self.sizes)]
        return tiles, [-(-n // t) for n, t in zip(self.extents, tiles, strict=True)]


def _times(stream: Stream, sweep: _Sweep, order: Sequence[int], counts: list[Numbers]) -> Numbers:
    """How often a stream is moved all over: once for each iteration of the tile loops that do not
    move it and are outside of one that does."""
    times = np.ones(sweep.ns.shape, np.int64)
    inside = np.zeros(sweep.ns.shape, bool)
    for loop in reversed(order):
        moves = sweep.moved_by[loop]
        again = inside if moves is None else inside & ~moves
        if loop in stream.needed_in:
            times = np.where(again, times * counts[loop], times)
        if moves is not None:
            inside = inside | moves
    return times


def _orders(nest: Nest, streams: Sequence[Stream]) -> Iterator[tuple[int, ...]]:
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


def _sizes(extent: int) -> tuple[int, ...]:
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


def _pareto(points: Sequence[_Points], limit_bytes: float, least_bytes: int) -> _Points:
    """The points by RAM of which none is worse than another one, nor hardly better than one with
    less RAM. Less than `least_bytes` is as good as that."""
    ram = np.concatenate([p.ram for p in points])
    ns = np.concatenate([p.ns for p in points])
    order = np.concatenate([p.order for p in points])
    kept = np.flatnonzero(ram <= limit_bytes)
    kept = kept[np.lexsort((ram[kept], ns[kept], np.maximum(ram[kept], least_bytes)))]
    before = np.concatenate([[np.inf], np.minimum.accumulate(ns[kept])[:-1]])
    kept = kept[ns[kept] < before]
    chosen, last = [], np.inf
    for k in kept:
        if ns[k] < last * CLEARLY or k == kept[-1]:
            chosen.append(k)
            last = ns[k]
    index = np.concatenate([p.index for p in points], axis=1)
    return _Points(index[:, chosen], order[chosen], ram[chosen], ns[chosen])
