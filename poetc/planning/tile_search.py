"""The ways to run a kernel in tiles: which of its buffers are on storage, and in how much RAM."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from xdsl.dialects import affine
from xdsl.dialects.builtin import ArrayAttr, MemRefType
from xdsl.dialects.func import FuncOp

from poetc.costmodel.slices import SliceCosts
from poetc.errors import InputError
from poetc.ir.buffers import element_bytes
from poetc.kernels.access import STORES
from poetc.kernels.analysis import STARTS, buffer_bytes, buffers, may_alias, work
from poetc.kernels.distribute import Distributed, Nest, distribute
from poetc.kernels.positions import looked_up, with_positions
from poetc.kernels.slices import NotTileable, Slice
from poetc.kernels.tiles import Sum, Tiled, nest_loops, sums_in_result, tile
from poetc.page import MOST_SLICE_DIMENSIONS
from poetc.schedule.arena.pack import round_up
from poetc.variants.bounds import product_bytes, stream_bytes
from poetc.variants.candidates import tile_sizes
from poetc.variants.nests import Nest as NestModel
from poetc.variants.nests import common_loops, nest_model, together
from poetc.variants.tiling import NestSearch
from poetc.variants.tiling import Tiled as Weighed

_WORD_BYTES = 4

_MOST_TILINGS = 2_000
"""In the first grid of tilings with the parallel loops outside, of which there are few orders."""

_SHARES = (1.0, 0.7, 0.5, 0.3, 0.2, 0.1)
"""The shares of the RAM for which tiles are looked for, one after another, until some fit."""

_WEIGH, _TILE = 1e-3, 1.5e-3
"""Work of weighing the tilings of a nest within some RAM, and of making the function of one."""

_PRECISION = 32
"""The least RAM of a kernel in tiles is looked for up to such a part of it."""


@dataclass(frozen=True)
class TileLoop:
    """Nests in one loop over tiles: one, or two that read the same slices. Of each nest its tile
    function and its tiles (places and sizes as `tile` takes them), and which slices are written
    `over` others, by their places among the buffers of the function; and what all slices are: bytes
    that are moved, the time of that, and of what is written."""

    nests: tuple[Nest, ...]
    tiled: tuple[Tiled, ...]
    tiles: tuple[tuple[tuple[int, int], ...], ...]
    over: tuple[Mapping[int, int], ...]
    read_bytes: int
    written_bytes: int
    transfer_ns: float
    write_ns: float


@dataclass(frozen=True)
class TiledKernel:
    """A kernel that runs in tiles: loops over tiles, one after the other, and the buffers between
    nests. `streamed` are the operands and results on storage, as buffers of the kernel.
    `workspace_bytes` are those of all slices, sums and buffers between nests."""

    kernel: FuncOp
    distributed: Distributed
    loops: tuple[TileLoop, ...]
    streamed: frozenset[int]
    workspace_bytes: int

    @property
    def transfer_ns(self) -> float:
        """The time of all transfers."""
        return sum(loop.transfer_ns for loop in self.loops)

    @property
    def write_ns(self) -> float:
        """The time of what is written."""
        return sum(loop.write_ns for loop in self.loops)

    @property
    def read_bytes(self) -> int:
        return sum(loop.read_bytes for loop in self.loops)

    @property
    def written_bytes(self) -> int:
        return sum(loop.written_bytes for loop in self.loops)


class KernelTiles:
    """Looks for tiles of one kernel, with transfers at `costs`. In tiles that are cut off, all of
    it takes `rest_ns` more than in others.

    `streamable` are the operands and results that can be on storage: none where no tiles are
    known. `work` is what was done for it so far (`schedule/model/clock.py`).
    """

    def __init__(self, kernel: FuncOp, costs: SliceCosts, rest_ns: float = 0.0) -> None:
        self.kernel, self.rest_ns = kernel, rest_ns
        try:
            self.distributed = distribute(kernel)
        except InputError:
            # A nest gives a later one positions: it runs as it is.
            self.streamable: frozenset[int] = frozenset()
            return
        self.costs = costs
        # Without a nest, where tensors have no elements, nothing is moved.
        able = _of_few_dimensions(kernel) if self.distributed.nests else ()
        self.streamable = frozenset(able) - self._stay()
        self._nests: dict[tuple[Nest, ...], _LoopTiles] = {}
        self._tables = frozenset().union(*map(looked_up, self.distributed.nests))
        self._listed = {frozenset[int](): self.distributed}
        self._iterations = sum(map(_iterations, self.distributed.nests))
        self._found: dict[tuple[frozenset[int], int], TiledKernel | None] = {}

    def fastest(self, streamed: frozenset[int], limit_bytes: int) -> TiledKernel | None:
        """The fastest tiles whose buffers take at most `limit_bytes`, with these operands and
        results on storage, which are `streamable`; None without any."""
        key = streamed, limit_bytes
        if key not in self._found:
            self._found[key] = self._fastest(streamed, limit_bytes)
        return self._found[key]

    @property
    def work(self) -> float:
        return sum(nest.work for nest in self._nests.values())

    def front(self, streamed: frozenset[int], limit_bytes: int, most: int) -> list[TiledKernel]:
        """At most so many ways with growing speed and RAM up to a limit, the fastest first: each
        has three quarters of the RAM of the one before at most, so that there are some between
        what is best with more and with less RAM."""
        found: list[TiledKernel] = []
        while len(found) < most and (way := self.fastest(streamed, limit_bytes)) is not None:
            found.append(way)
            limit_bytes = way.workspace_bytes * 3 // 4
        return found

    def least_bytes(self, tensors: Sequence[frozenset[int]]) -> int:
        """Bytes without which the kernel does not run in any tiles, beside buffers that are never
        on storage: what its nests share, and while one runs, an element of each of the `tensors`
        (the buffers of each, all streamable) that it reads or writes, streamed or not, but for
        those that it may write over others."""
        if not self.streamable:
            return 0
        listed = self._with_lists(frozenset().union(*tensors))

        def least(distributed: Distributed) -> int:
            shared = sum(map(padded_bytes, outside(self.kernel, distributed)))
            return shared + max(map(elements, distributed.nests), default=0)

        def elements(nest: Nest) -> int:
            own = zip(nest.function.body.block.args, nest.buffers, strict=True)
            used = {buffer for argument, buffer in own if argument.uses}
            used -= {nest.buffers[result] for result in self._tiles_of(nest).over[0]}
            return _WORD_BYTES * sum(bool(buffers & used) for buffers in tensors)

        if listed.between == self.distributed.between:
            return least(self.distributed)
        return min(least(self.distributed), sum(map(padded_bytes, outside(self.kernel, listed))))

    def least_moving_ns(self, tensor: frozenset[int], written: bool) -> float:
        """Time without which a tensor, some buffers of the kernel, all streamable, is not read (or
        `written`) in any tiles: that of one run of all of it, where tiles of some nest make up all
        of it."""
        moved_bytes = self._least_read_or_written(tensor, written)
        rates = self.costs.write if written else self.costs.read
        return rates.run_ns + moved_bytes * rates.byte_ns if moved_bytes else 0.0

    def least_moved_bytes(self, streamed: frozenset[int], workspace_bytes: int) -> int:
        """Bytes that the kernel reads and writes at least in any tiles within so much RAM, with
        these buffers on storage, which are `streamable`."""
        once = sum(
            self._least_read_or_written(frozenset({buffer}), written)
            for buffer in streamed
            for written in (False, True)
        )
        products = [0.0] * len(self.distributed.nests)
        for number, nest in enumerate(self.distributed.nests):
            if (model := self._tiles_of(nest).model) is not None:
                products[number] = product_bytes(model, streamed, workspace_bytes)
        for pair in pairs(self.distributed):
            # A slice that one of them reads the other one need not read again.
            one, other = pair.nests
            products[one], products[other] = max(products[one], products[other]), 0.0
        return max(once, int(sum(products)))

    def _least_read_or_written(self, tensor: frozenset[int], written: bool) -> int:
        """Bytes of a tensor, some buffers of the kernel, that it reads or writes in any tiles."""
        if not self.streamable:
            return 0
        found: list[int] = []
        for distributed in (self.distributed, self._with_lists(tensor)):
            sizes = [
                stream_bytes(model, stream)
                for nest in distributed.nests
                if (model := self._tiles_of(nest).model) is not None
                for stream in model.streams
                if stream.buffer in tensor and stream.stored == written
            ]
            found.append(max(sizes, default=0))
        return min(found)

    def smallest(self, streamed: frozenset[int], enough_bytes: int) -> TiledKernel | None:
        """Tiles that take `enough_bytes` or less, or hardly more than the least that is found."""
        most_bytes = sum(buffer_bytes(buffer) for buffer in self.kernel.body.block.args)
        low, limit = 0, max(_WORD_BYTES, enough_bytes)
        while (way := self.fastest(streamed, limit)) is None and limit < 2 * most_bytes:
            low, limit = limit, 2 * limit
        while way is not None and way.workspace_bytes > enough_bytes:
            middle = max(enough_bytes, (low + way.workspace_bytes) // 2)
            if way.workspace_bytes - low <= way.workspace_bytes // _PRECISION or middle <= low:
                break
            found = self.fastest(streamed, middle)
            low, way = (middle, way) if found is None else (low, found)
        return way

    def _with_lists(self, streamed: frozenset[int]) -> Distributed:
        """The nests of the kernel, with lists of positions in what is on storage."""
        tables = streamed & self._tables
        if tables not in self._listed:
            count = len(self.kernel.body.block.args)
            self._listed[tables] = with_positions(self.distributed, tables, count)
        return self._listed[tables]

    def _fastest(self, streamed: frozenset[int], limit_bytes: int) -> TiledKernel | None:
        listed = self._with_lists(streamed)
        found = self._of_nests(listed, streamed, limit_bytes)
        if found is None and listed.between != self.distributed.between:
            # The lists of positions take more than the tables, maybe.
            found = self._of_nests(self.distributed, streamed, limit_bytes)
        return found

    def _of_nests(
        self, distributed: Distributed, streamed: frozenset[int], limit_bytes: int
    ) -> TiledKernel | None:
        """The same for the kernel taken apart in one way."""
        between = sum(map(padded_bytes, outside(self.kernel, distributed)))
        found: dict[int, TileLoop] = {}
        for number, nest in enumerate(distributed.nests):
            best = self._tiles_of(nest).fastest(streamed, limit_bytes - between)
            if best is None:
                return None
            found[number] = best
        for pair in pairs(distributed):
            one, other = (distributed.nests[number] for number in pair.nests)
            if not pair.shared & streamed:
                continue
            both = self._tiles_of(one, other).fastest(streamed, limit_bytes - between)
            apart_ns = sum(found[number].transfer_ns for number in pair.nests)
            if both is not None and both.transfer_ns < apart_ns:
                for number in pair.nests:
                    del found[number]
                found[pair.at] = both
        loops = tuple(found[number] for number in sorted(found))
        ends = (slice_places(loop, between)[1] for loop in loops)
        workspace_bytes = max(ends, default=between)
        return TiledKernel(self.kernel, distributed, loops, streamed, workspace_bytes)

    def _tiles_of(self, *nests: Nest) -> _LoopTiles:
        if nests not in self._nests:
            if len(nests) == 1:
                model, places = _model(*nests), [_places(*nests)]
            else:
                model, places = _both(*map(self._tiles_of, nests))
            rest_ns = self.rest_ns * sum(map(_iterations, nests)) / max(1, self._iterations)
            self._nests[nests] = _LoopTiles(nests, model, places, self.costs, rest_ns)
        return self._nests[nests]

    def _stay(self) -> frozenset[int]:
        """Results that cannot be on storage: no slice has just what a tile makes, or two nests
        do."""
        writers: dict[int, int] = {}
        stay: set[int] = set()
        for nest in self.distributed.nests:
            inputs = len(buffers(nest.function, "inputs"))
            for argument in range(inputs, inputs + len(buffers(nest.function, "results"))):
                buffer = nest.buffers[argument]
                writers[buffer] = writers.get(buffer, 0) + 1
                try:
                    tile(nest.function, "tile", (), frozenset({argument}))
                except NotTileable:
                    stay.add(buffer)
        return frozenset(stay | {buffer for buffer, count in writers.items() if count > 1})


def _of_few_dimensions(kernel: FuncOp) -> list[int]:
    """The operands and results of a kernel that can be moved in slices, by their numbers."""
    types = [b.type for b in (*buffers(kernel, "inputs"), *buffers(kernel, "results"))]
    return [
        number
        for number, type_ in enumerate(types)
        if isinstance(type_, MemRefType) and len(type_.get_shape()) <= MOST_SLICE_DIMENSIONS
    ]


class _LoopTiles:
    """The same for nests of a kernel in one loop over tiles, which have that model together (None:
    they do not run in tiles). `places` are, for each nest, those in `nest_loops` of its loops, by
    the numbers that they have in the model."""

    def __init__(
        self,
        nests: tuple[Nest, ...],
        model: NestModel | None,
        places: list[dict[int, int]],
        costs: SliceCosts,
        rest_ns: float,
    ) -> None:
        self.nests, self.model, self.places = nests, model, places
        self.pages = frozenset[int]().union(*map(_pages, nests))
        self._tiled: dict[tuple[object, ...], TileLoop | None] = {}
        self.work = 0.0
        self.over = written_over(nests)
        if self.model is None:
            return
        # Some loops `tile` keeps whole, such as those of a partial sum under a guard.
        sizes = [
            tile_sizes(loop.extent) if loop.number in self.places[0] else (max(1, loop.extent),)
            for loop in self.model.loops
        ]
        self.search = NestSearch(self.model, costs, sizes=sizes, rest_ns=rest_ns)
        # Slices of a result have all of the parallel loops inside of those of the sum.
        parallel, given = self.model.parallel, tuple(range(len(self.model.loops)))
        ordered = (tuple(sorted(o, key=lambda n: n >= parallel)) for o in self.search.orders)
        orders = list(dict.fromkeys((*ordered, given)))
        self.in_turn = NestSearch(self.model, costs, sizes, orders, _MOST_TILINGS, rest_ns)

    def fastest(self, streamed: frozenset[int], limit_bytes: int) -> TileLoop | None:
        on_storage = self.pages & streamed
        for tiles, weighed in self._candidates(on_storage, limit_bytes):
            tiled = self._tile(tiles, on_storage)
            if tiled is None or slice_places(tiled, 0)[1] > limit_bytes:
                continue
            if weighed is None:
                return tiled
            return replace(
                tiled,
                read_bytes=weighed.read_bytes,
                written_bytes=weighed.written_bytes,
                transfer_ns=weighed.transfer_ns,
                write_ns=weighed.write_ns,
            )
        return None

    def _tile(
        self, tiles: tuple[tuple[int, int], ...], streamed: frozenset[int]
    ) -> TileLoop | None:
        """The nests in these tiles of the loops of the model, by their numbers."""
        key = tiles, streamed
        if key not in self._tiled:
            self.work += _TILE * len(self.nests)
            own = [tuple((places[n], size) for n, size in tiles) for places in self.places]
            try:
                tiled = [
                    tile(
                        nest.function,
                        nest.function.sym_name.data,
                        sizes,
                        _arguments(nest, streamed),
                    )
                    for nest, sizes in zip(self.nests, own, strict=True)
                ]
                self._tiled[key] = tile_loop(self.nests, tiled, own, self.over)
            except NotTileable:
                self._tiled[key] = None
        return self._tiled[key]

    def _candidates(
        self, on_storage: frozenset[int], limit_bytes: int
    ) -> Iterator[tuple[tuple[tuple[int, int], ...], Weighed | None]]:
        """Tiles of loops, the fastest first."""
        if limit_bytes < 0:
            return
        if self.model is None or not on_storage:
            if len(self.nests) == 1:
                yield (), None
            return
        resident = self.pages - on_storage
        searches = [self.search]
        if any(s.stored and s.buffer in on_storage for s in self.model.streams):
            searches.append(self.in_turn)
        for share in _SHARES:
            self.work += _WEIGH * len(searches)
            fronts = [s.front(limit_bytes * share, resident=resident) for s in searches]
            for found in sorted(itertools.chain(*fronts), key=lambda tiled: tiled.weighed_ns):
                if all(number in self.places[0] for number, _ in found.tiles):
                    yield found.tiles, found


def _iterations(nest: Nest) -> int:
    return work(nest.function).iterations


def _pages(nest: Nest) -> frozenset[int]:
    """The operands and results of the kernel that a nest touches."""
    count = len(buffers(nest.function, "inputs")) + len(buffers(nest.function, "results"))
    return frozenset(nest.buffers[:count])


def _arguments(nest: Nest, streamed: frozenset[int]) -> frozenset[int]:
    """The arguments of a nest that are on storage."""
    return frozenset(n for n, buffer in enumerate(nest.buffers) if buffer in streamed)


def _places(nest: Nest) -> dict[int, int]:
    """The places in `nest_loops` of the loops that can run in tiles, by their numbers."""
    loops = (op for op in nest.function.walk() if isinstance(op, affine.ForOp))
    numbers = {loop: n for n, loop in enumerate(loops)}
    return {numbers[loop]: at for at, loop in enumerate(nest_loops(nest.function).all)}


def _model(nest: Nest) -> NestModel | None:
    """The model of a nest, in terms of the buffers of the kernel."""
    model = nest_model(nest.function)
    if model is None:
        return None
    over = _may_be_over(nest.function)
    streams = tuple(
        replace(
            s,
            buffer=nest.buffers[s.buffer],
            over=nest.buffers[over[s.buffer]] if s.stored and s.buffer in over else None,
        )
        for s in model.streams
    )
    in_result = model.sum_in_result if sums_in_result(nest.function) is not None else 0
    return replace(model, streams=streams, sum_in_result=in_result)


def _may_be_over(function: FuncOp) -> dict[int, int]:
    """Of results of a nest the operand that each may be written over, no two the same: by their
    numbers among its arguments."""
    operands, results = (range(len(buffers(function, kind))) for kind in ("inputs", "results"))
    found: dict[int, int] = {}
    used = [bool(argument.uses) for argument in function.body.block.args]
    for result in results:
        for operand in operands:
            free = used[operand] and operand not in found.values()
            if free and may_alias(function, result, operand):
                found[len(operands) + result] = operand
                break
    return found


def written_over(nests: Sequence[Nest]) -> list[dict[int, int]]:
    """The same for each of some nests that run one after the other in each tile: a later one reads
    what was in an operand."""
    found: list[dict[int, int]] = []
    for number, nest in enumerate(nests):
        later = {b for other in nests[number + 1 :] for b in _reads_and_writes(other)[0]}
        own = _may_be_over(nest.function)
        found.append({r: o for r, o in own.items() if nest.buffers[o] not in later})
    return found


def tile_loop(
    nests: tuple[Nest, ...],
    tiled: Sequence[Tiled],
    tiles: Sequence[tuple[tuple[int, int], ...]],
    over: Sequence[Mapping[int, int]],
) -> TileLoop:
    """Nests in one loop over tiles, where results may be written `over` operands like this
    (`written_over`). Nothing is said of what is moved."""
    places: list[Mapping[int, int]] = []
    for nest, own, sizes, allowed in zip(nests, tiled, tiles, over, strict=True):
        parallel = len(nest_loops(nest.function).parallel)
        slices = [(n, part) for n, part in enumerate(own.buffers) if isinstance(part, Slice)]
        # Where a parallel loop is inside, not all of a slice is written in one tile.
        places.append(
            {
                at: other
                for at, part in slices
                if part.written and all(place >= parallel for place, _ in sizes[part.depth :])
                for other, read in slices
                if allowed.get(part.argument) == read.argument
                and (read.type, read.starts, read.rows) == (part.type, part.starts, None)
            }
        )
    return TileLoop(nests, tuple(tiled), tuple(tiles), tuple(places), 0, 0, 0.0, 0.0)


def _both(one: _LoopTiles, other: _LoopTiles) -> tuple[NestModel | None, list[dict[int, int]]]:
    """The model of two nests in one loop over tiles of the loops that both have, whose numbers are
    those of the pairs of loops; and the places of these loops in each nest. There is no model where
    no loops are common."""
    first, second = one.model, other.model
    if first is None or second is None:
        return None, []
    (places,), (others,) = one.places, other.places
    common = [
        (a, b)
        for a, b in common_loops(first, second)
        if first.loops[a].number in places and second.loops[b].number in others
    ]
    if not common:
        return None, []
    return together(first, second, common), [
        {n: places[first.loops[a].number] for n, (a, _) in enumerate(common)},
        {n: others[second.loops[b].number] for n, (_, b) in enumerate(common)},
    ]


@dataclass(frozen=True)
class _Pair:
    """Two nests that may run in one loop over tiles in place of the one `at`, and the buffers that
    both read."""

    nests: tuple[int, int]
    at: int
    shared: frozenset[int]


def pairs(distributed: Distributed) -> Iterator[_Pair]:
    """Nests that read the same buffers, and neither of which needs what the other one makes: one of
    them may run where the other does."""
    touched = [_reads_and_writes(nest) for nest in distributed.nests]

    def ordered(a: int, b: int) -> bool:
        (reads, writes), (others, made) = touched[a], touched[b]
        return bool(writes & (others | made) or made & reads)

    taken: set[int] = set()
    for one, other in combinations(range(len(touched)), 2):
        shared = touched[one][0] & touched[other][0]
        if not shared or ordered(one, other) or taken & {one, other}:
            continue
        between = range(one + 1, other)
        if not any(ordered(one, n) for n in between):
            at = other
        elif not any(ordered(n, other) for n in between):
            at = one
        else:
            continue
        taken |= {one, other}
        yield _Pair((one, other), at, shared)


def _reads_and_writes(nest: Nest) -> tuple[frozenset[int], frozenset[int]]:
    """The buffers of the kernel that a nest reads and writes."""
    found: tuple[set[int], set[int]] = set(), set()
    for argument, buffer in zip(nest.function.body.block.args, nest.buffers, strict=True):
        for use in argument.uses:
            found[isinstance(use.operation, STORES)].add(buffer)
    return frozenset(found[0]), frozenset(found[1])


def outside(kernel: FuncOp, distributed: Distributed) -> list[MemRefType]:
    """Buffers that all nests share: workspaces, and what they give each other."""
    types = [buffer.type for buffer in buffers(kernel, "workspace")]
    return [type_ for type_ in (*types, *distributed.between) if isinstance(type_, MemRefType)]


def padded_bytes(type_: MemRefType) -> int:
    """The bytes of a buffer in the workspace of a stream."""
    return round_up(type_.element_count() * element_bytes(type_.element_type), _WORD_BYTES)


def slots(loop: TileLoop) -> list[list[int]]:
    """For each nest and each buffer of its tile function the number of its slice or sum among all
    in the loop, -1 for a whole buffer. Slices that both nests read are one, and so are one that is
    written over another and that one."""
    known: dict[object, int] = {}

    def slot(nest: Nest, tiled: Tiled, over: Mapping[int, int], place: int) -> int:
        place = over.get(place, place)
        part, key = tiled.buffers[place], (nest, place)
        if isinstance(part, int):
            return -1
        if isinstance(part, Slice) and part.read and part.rows is None:
            starts = tiled.function.attributes[STARTS]
            assert isinstance(starts, ArrayAttr)
            key = nest.buffers[part.argument], part.type, starts.data[place]
        return known.setdefault(key, len(known))

    return [
        [slot(nest, tiled, over, place) for place in range(len(tiled.buffers))]
        for nest, tiled, over in zip(loop.nests, loop.tiled, loop.over, strict=True)
    ]


def slice_places(loop: TileLoop, begin: int) -> tuple[dict[int, int], int]:
    """Offsets of the slices and sums of a loop over tiles from `begin` on, by the numbers of their
    `slots`, and their end. They are multiples of their elements."""
    offsets: dict[int, int] = {}
    for own, tiled in zip(slots(loop), loop.tiled, strict=True):
        for slot, buffer in zip(own, tiled.buffers, strict=True):
            if slot in offsets or not isinstance(buffer, Slice | Sum):
                continue
            begin = round_up(begin, max(_WORD_BYTES, element_bytes(buffer.type.element_type)))
            offsets[slot] = begin
            begin += padded_bytes(buffer.type)
    return offsets, begin
