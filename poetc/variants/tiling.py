"""The search for the tiles of a nest: tile sizes and loop orders, by RAM and time of transfers.

All tile sizes of a grid and all orders that make a difference are weighed at once, as arrays; then
what is best is improved by neighbouring sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import numpy as np

from poetc.costmodel.slices import SliceCosts
from poetc.variants.candidates import grid, loop_orders, neighbours, tile_sizes
from poetc.variants.footprints import Spans, spans
from poetc.variants.nests import Nest, Stream

Numbers = np.ndarray

MOST_TILINGS = 500
"""In the first grid."""

ROUNDS = 2
"""Of improving what was best."""

CLEARLY = 0.97
"""More RAM has to save so much time, or it is not worth a point of the front."""

IMPOSSIBLE_BYTES = 1 << 56
"""RAM of tilings of which a tile makes slices with gaps: it does not have what belongs there."""

_WORD_BYTES = 4


@dataclass(frozen=True)
class Tiled:
    """How a nest runs in tiles: (number of a loop in the kernel, iterations in a tile) from the
    outermost tile loop on; other loops are in one tile whole. And what that takes: RAM of slices
    and sums, bytes that are moved, time of that, and of what is written. `weighed_ns` is by what
    tilings are compared: the time of transfers, and what code of tiles takes (`SliceCosts`)."""

    tiles: tuple[tuple[int, int], ...]
    ram_bytes: int
    read_bytes: int
    written_bytes: int
    transfer_ns: float
    write_ns: float
    steps: int
    weighed_ns: float


class _Points(NamedTuple):
    """Tilings in columns. Of each the index of the tile size of each loop, and of the order; bytes
    of sums that are interrupted, beside results that are streamed, and beside those in RAM, and
    whether a parallel tile loop is inside of those of the sum; what the code of tiles takes; and of
    each stream, in rows, bytes of a slice, and time of transfers."""

    index: Numbers
    order: Numbers
    sums: Numbers
    sums_beside: Numbers
    spread: Numbers
    code_ns: Numbers
    box: Numbers
    ns: Numbers

    def take(self, which: Numbers | slice) -> _Points:
        """Some of the columns."""
        return _Points(*(each[..., which] for each in self))


class _Sweep(NamedTuple):
    """The transfers of one stream while each loop that moves it runs once. `in_order_ns` is their
    time where its slices go from the first to the last byte of the buffer: each is `one_run`, and
    loops of outer dimensions are outside."""

    box_bytes: Numbers
    bytes: Numbers
    ns: Numbers
    in_order_ns: Numbers
    one_run: Numbers
    moved_by: list[Numbers | None]


class NestSearch:
    """Tilings of one nest.

    `sizes` of the tiles of each loop, by growing size, and `orders` of the tile loops are chosen if
    they are not given; the first grid has at most about `most` tilings. If all tiles were cut off,
    the nest would take `rest_ns` more than in tiles that are not.
    """

    def __init__(
        self,
        nest: Nest,
        costs: SliceCosts,
        sizes: Sequence[tuple[int, ...]] | None = None,
        orders: Sequence[tuple[int, ...]] | None = None,
        most: int = MOST_TILINGS,
        rest_ns: float = 0.0,
    ) -> None:
        self.nest, self.costs, self.most, self.rest_ns = nest, costs, most, rest_ns
        self.streams = nest.streams
        self._over = _in_place(nest.streams)
        self.extents = [max(1, loop.extent) for loop in nest.loops]
        self.sizes = sizes or [tile_sizes(extent) for extent in self.extents]
        self.orders = orders or list(loop_orders(nest, self.streams))
        radix = np.cumprod([1, *map(len, self.sizes[:-1])], dtype=np.int64)
        self._radix = radix[: len(self.sizes)]
        self._keys = np.zeros(0, np.int64)
        self._weighed: _Points | None = None
        self._tables: dict[tuple[int, int], Spans] = {}

    def front(
        self, limit_bytes: float = np.inf, resident: frozenset[int] = frozenset()
    ) -> list[Tiled]:
        """Tilings within a limit of RAM, by growing RAM and falling time.

        `resident` buffers of the kernel are in RAM whole, which does not count here.
        """
        if self._weighed is None:
            self._add(grid(self.nest, self.sizes, self.most))
        assert self._weighed is not None
        best, ram = self._best(self._weighed, limit_bytes, resident)
        rounds = 1 if resident else ROUNDS
        for _ in range(rounds if self.sizes else 0):
            near = best.index
            if self.nest.blocks < len(self.sizes):
                # Those with whole partial sums may lead further, though others are better so far.
                whole = self._best(self._with_whole_blocks(), limit_bytes, resident)[0].index
                near = np.concatenate([near, whole], axis=1)
            if not self._add(neighbours(near, self.sizes, self.nest.parallel)):
                break
            best, ram = self._best(self._weighed, limit_bytes, resident)
        return self._tiled(best, ram, resident)

    def weigh(self, tiles: Sequence[int]) -> Tiled:
        """One tiling in the first of the orders: iterations in a tile of each loop of the nest,
        which must be among the sizes."""
        index = np.array([own.index(t) for own, t in zip(self.sizes, tiles, strict=True)], np.int64)
        points = self._weigh(index.reshape(len(tiles), 1)).take(slice(1))
        ram, _ = self._totals(points, frozenset())
        (tiled,) = self._tiled(points, ram, frozenset())
        return tiled

    def _totals(self, points: _Points, resident: frozenset[int]) -> tuple[Numbers, Numbers]:
        """RAM, and time of transfers."""
        beside = any(s.buffer in resident and s.stored for s in self.streams)
        ram = np.array(points.sums_beside if beside else points.sums)
        ns = np.zeros(ram.shape)
        for number, stream in enumerate(self.streams):
            if stream.buffer not in resident:
                box = points.box[number]
                if number in self._over and stream.over not in resident:
                    box = np.where(points.spread, box, 0)
                ram += box
                ns += points.ns[number]
        return ram, ns

    def _add(self, index: Numbers) -> bool:
        """Weighs those of the tilings that are not weighed yet; whether there were any."""
        keys = self._radix @ index
        fresh = np.flatnonzero(~np.isin(keys, self._keys))
        fresh = fresh[np.unique(keys[fresh], return_index=True)[1]]
        if not len(fresh):
            return False
        self._keys = np.concatenate([self._keys, keys[fresh]])
        points = self._weigh(index[:, fresh])
        if self._weighed is not None:
            points = _joined([self._weighed, points])
        self._weighed = points
        return True

    def _best(
        self, points: _Points, limit_bytes: float, resident: frozenset[int]
    ) -> tuple[_Points, Numbers]:
        """The points by RAM of which none is worse than another one, nor hardly better than one
        with less RAM; and their RAM. Less than a block of storage is as good as a block."""
        ram, transfer_ns = self._totals(points, resident)
        ns = transfer_ns + points.code_ns
        kept = np.flatnonzero((ram <= limit_bytes) & (ram < IMPOSSIBLE_BYTES))
        seen = np.maximum(ram[kept], self.costs.block_bytes)
        kept = kept[np.lexsort((points.order[kept], ram[kept], ns[kept], seen))]
        before = np.concatenate([[np.inf], np.minimum.accumulate(ns[kept])[:-1]])
        kept = kept[ns[kept] < before]
        chosen, last_ns, moving_ns = [], np.inf, np.inf
        for k in kept.tolist():
            # The fastest is worth more RAM where it moves less.
            fastest = k == kept[-1] and transfer_ns[k] < moving_ns
            if ns[k] < last_ns * CLEARLY or fastest:
                chosen.append(k)
                last_ns, moving_ns = ns[k], transfer_ns[k]
        return points.take(np.array(chosen, np.int64)), ram[chosen]

    def _with_whole_blocks(self) -> _Points:
        """The points whose sums are interrupted between partial sums, if at all."""
        assert self._weighed is not None
        index, blocks = self._weighed.index, self.nest.blocks
        whole = np.array([len(own) - 1 for own in self.sizes[blocks:]], np.int64)
        return self._weighed.take((index[blocks:] == whole.reshape(-1, 1)).all(axis=0))

    # Weighing

    def _weigh(self, index: Numbers) -> _Points:
        """All these tilings in all orders, order by order."""
        tiles, counts = self._tiles(index)
        sweeps = [self._sweep(number, index, tiles, counts) for number in range(len(self.streams))]
        columns = index.shape[1]
        boxes = _rows([sweep.box_bytes for sweep in sweeps], columns)
        code_ns = self._code_ns(tiles, counts, columns)
        points: list[_Points] = []
        for number, order in enumerate(self.orders):
            sums = _sum_bytes(self.nest, order, tiles, counts, columns)
            ns = [
                np.where(_in_order(stream, sweep, order, counts), sweep.in_order_ns, sweep.ns)
                * _times(stream, sweep, order, counts)
                for stream, sweep in zip(self.streams, sweeps, strict=True)
            ]
            orders = np.full(columns, number)
            points.append(_Points(index, orders, *sums, code_ns, boxes, _rows(ns, columns)))
        return _joined(points)

    def _code_ns(self, tiles: list[Numbers], counts: list[Numbers], columns: int) -> Numbers:
        """What the code of tiles takes, as time of transfers: each begins all loops that run in
        tiles, and calls the function; each sum is interrupted between its tiles; and tiles that are
        cut off run loops that are not arranged."""
        parallel, ones = self.nest.parallel, np.ones(columns, np.int64)
        every, parts = prod(counts, start=ones), prod(counts[parallel:], start=ones)
        begun = np.where(every > 1, every * (1 + sum(count > 1 for count in counts)), 0)
        interrupted = prod(self.extents[:parallel]) * (parts - 1)
        full = (n // t * t / n for n, t in zip(self.extents, tiles, strict=True))
        loops_ns = begun * self.costs.loop_ns + (1 - prod(full, start=1.0)) * self.rest_ns
        return self.costs.code_share * (loops_ns + interrupted * self.costs.resumed_ns)

    def _spans(self, stream: int, dim: int, index: Numbers) -> tuple[Numbers, ...]:
        touched = self.streams[stream].dims[dim]
        loops = [loop for loop, _ in touched.terms]
        key = stream, dim
        if key not in self._tables:
            extents = tuple(self.extents[loop] for loop in loops)
            own = tuple(self.sizes[loop] for loop in loops)
            # It makes no difference which loops of the nest they are.
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
        filled = np.full(columns, not stream.partial)
        moved_by: list[Numbers | None] = [None] * len(self.sizes)
        alignment = np.full(columns, self.costs.block_bytes, np.int64)
        stride = stream.element_bytes
        for dim, (length, total, _, whole, fills) in reversed(
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
            filled &= fills
            elements *= total
            stride *= dim.extent
        runs, run_bytes, alignment, one_run = self._runs(stream, touched, alignment)
        # Of a loop that moves two dimensions each counts all of its slices.
        runs *= elements / np.maximum(prod(total for _, total, *_ in touched), 1)
        if stream.stored:
            ns = self.costs.write_ns(runs, run_bytes, alignment, stride)
            in_order_ns = self.costs.append_ns(runs, run_bytes, alignment)
        else:
            ns = in_order_ns = self.costs.read_ns(runs, run_bytes, alignment)
        size = -(-box * stream.element_bytes // _WORD_BYTES) * _WORD_BYTES
        if stream.stored:
            size = np.where(filled, size, IMPOSSIBLE_BYTES)
        return _Sweep(
            size,
            elements * stream.element_bytes,
            ns,
            in_order_ns,
            one_run,
            moved_by,
        )

    def _runs(
        self, stream: Stream, touched: Sequence[tuple[Numbers, ...]], alignment: Numbers
    ) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """How many runs all slices have, of how many bytes, at multiples of what, and whether each
        slice is one.

        Rows of which the inner dimensions are whole are one run; so are, where they are read, runs
        with gaps between them that are not worth another one.
        """
        columns = alignment.shape[0]
        runs = np.ones(columns)
        run_bytes = np.full(columns, float(stream.element_bytes))
        adjacent, one_run = np.ones(columns, bool), np.ones(columns, bool)
        stride = stream.element_bytes
        for dim, (length, total, slices, whole, _) in reversed(
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
            one_run &= grows | (length == 1)
            adjacent &= whole
            stride *= dim.extent
        return runs, run_bytes, alignment, one_run

    def _tiled(self, points: _Points, ram: Numbers, resident: frozenset[int]) -> list[Tiled]:
        _, ns = self._totals(points, resident)
        write_ns = np.zeros(ns.shape)
        for number, stream in enumerate(self.streams):
            if stream.stored and stream.buffer not in resident:
                write_ns += points.ns[number]
        tiles, counts = self._tiles(points.index)
        sweeps = [self._sweep(n, points.index, tiles, counts) for n in range(len(self.streams))]
        moved = np.zeros((2, len(ram)))
        for number in np.unique(points.order):
            here = points.order == number
            for stream, sweep in zip(self.streams, sweeps, strict=True):
                if stream.buffer in resident:
                    continue
                times = _times(stream, sweep, self.orders[number], counts)
                moved[int(stream.stored), here] += (sweep.bytes * times)[here]
        loops = self.nest.loops
        found: list[Tiled] = []
        for column, (read, written) in enumerate(moved.T.tolist()):
            order = self.orders[int(points.order[column])]
            parted = [loop for loop in order if counts[loop][column] > 1]
            found.append(
                Tiled(
                    tuple((loops[loop].number, int(tiles[loop][column])) for loop in parted),
                    int(ram[column]),
                    round(read),
                    round(written),
                    float(ns[column]),
                    float(write_ns[column]),
                    prod(int(counts[loop][column]) for loop in parted),
                    float(ns[column] + points.code_ns[column]),
                )
            )
        return found

    def _tiles(self, index: Numbers) -> tuple[list[Numbers], list[Numbers]]:
        """Iterations in a tile of each loop, and how many tiles."""
        tiles = [np.array(own)[index[loop]] for loop, own in enumerate(self.sizes)]
        return tiles, [-(-n // t) for n, t in zip(self.extents, tiles, strict=True)]


def _sum_bytes(
    nest: Nest, order: Sequence[int], tiles: list[Numbers], counts: list[Numbers], columns: int
) -> tuple[Numbers, Numbers, Numbers]:
    """RAM of sums that are interrupted, beside a result in whose place they can wait: one that
    is streamed, or one that is in RAM whole; and where a parallel tile loop is inside."""
    loops, parallel = nest.loops, nest.parallel
    more, whole = np.zeros((2, columns), np.int64)
    spread = np.zeros(columns, bool)
    waits = sorted({loop.resumed_bytes for loop in loops[parallel:]})
    for number, size in enumerate(waits):
        # A sum of partial sums waits, and then one of these.
        own = size - (waits[number - 1] if number else 0)
        held, interrupted = np.ones(columns, np.int64), np.zeros(columns, bool)
        for loop in order:
            if loop >= parallel:
                if loops[loop].resumed_bytes >= size:
                    interrupted |= counts[loop] > 1
            else:
                inside = interrupted & (counts[loop] > 1)
                spread |= inside
                held *= np.where(inside, loops[loop].extent, tiles[loop])
        held = np.where(interrupted, held, 0)
        more += held * (own if number else max(own - nest.sum_in_result, 0))
        whole += held * own
    return np.where(spread, whole, more), more, spread


def _in_place(streams: Sequence[Stream]) -> set[int]:
    """The stores whose slices are those of loads, no two of the same."""
    taken: set[int] = set()
    found: set[int] = set()
    for number, stream in enumerate(streams):
        for other, read in enumerate(streams):
            fits = not read.stored and read.buffer == stream.over and read.dims == stream.dims
            if stream.stored and fits and other not in taken:
                taken.add(other)
                found.add(number)
                break
    return found


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


def _in_order(
    stream: Stream, sweep: _Sweep, order: Sequence[int], counts: list[Numbers]
) -> Numbers:
    """Whether the slices of a stream are moved from the first to the last byte of its buffer."""
    moving = [
        (loop, coefficient)
        for dim in stream.dims
        for loop, coefficient in sorted(dim.terms, key=lambda term: -abs(term[1]))
    ]
    found = sweep.one_run
    for n, (loop, coefficient) in enumerate(moving):
        parted = counts[loop] > 1
        if coefficient < 0:
            found = found & ~parted
        for other, _ in moving[:n]:
            if other == loop or order.index(other) > order.index(loop):
                found = found & ~(parted & (counts[other] > 1))
    return found


def _rows(each: Sequence[Numbers], columns: int) -> Numbers:
    return np.array(each).reshape(len(each), columns)


def _joined(points: Sequence[_Points]) -> _Points:
    return _Points(*(np.concatenate(each, axis=-1) for each in zip(*points, strict=True)))
