"""The ways to run a kernel in tiles: which of its buffers are on storage, and in how much RAM."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects import affine
from xdsl.dialects.builtin import MemRefType
from xdsl.dialects.func import FuncOp

from poetc.costmodel.slices import SliceCosts
from poetc.errors import InputError
from poetc.ir.buffers import element_bytes
from poetc.kernels.analysis import buffer_bytes, buffers
from poetc.kernels.distribute import Distributed, Nest, distribute
from poetc.kernels.positions import with_positions
from poetc.kernels.slices import NotTileable, Slice
from poetc.kernels.tiles import Sum, Tiled, nest_loops, tile
from poetc.schedule.arena.pack import round_up
from poetc.variants.bounds import product_bytes, stream_bytes
from poetc.variants.candidates import tile_sizes
from poetc.variants.nests import nest_model
from poetc.variants.tiling import NestSearch
from poetc.variants.tiling import Tiled as Weighed

_WORD_BYTES = 4

_MOST_TILINGS = 2_000
"""In the first grid of tilings with the parallel loops outside, of which there are few orders."""

_SHARES = (1.0, 0.7, 0.5, 0.3, 0.2, 0.1)
"""Of the RAM, for which tiles are looked for one after another until some fit."""


_PRECISION = 32
"""The least RAM of a kernel in tiles is looked for up to such a part of it."""


@dataclass(frozen=True)
class TiledNest:
    """A nest in tiles (places and sizes as `tile` takes them), and what its slices are: bytes that
    are moved, the time of that, and of what is written."""

    tiled: Tiled
    tiles: tuple[tuple[int, int], ...]
    read_bytes: int
    written_bytes: int
    transfer_ns: float
    write_ns: float


@dataclass(frozen=True)
class TiledKernel:
    """A kernel that runs in tiles: its nests with their tile functions, and the buffers between
    them. `streamed` are the operands and results on storage, as buffers of the kernel.
    `workspace_bytes` are those of all slices, sums and buffers between nests."""

    kernel: FuncOp
    distributed: Distributed
    nests: tuple[TiledNest, ...]
    streamed: frozenset[int]
    workspace_bytes: int

    @property
    def transfer_ns(self) -> float:
        """The time of all transfers."""
        return sum(nest.transfer_ns for nest in self.nests)

    @property
    def write_ns(self) -> float:
        """The time of what is written."""
        return sum(nest.write_ns for nest in self.nests)

    @property
    def read_bytes(self) -> int:
        return sum(nest.read_bytes for nest in self.nests)

    @property
    def written_bytes(self) -> int:
        return sum(nest.written_bytes for nest in self.nests)


class KernelTiles:
    """Looks for tiles of one kernel, with transfers at `costs`.

    `streamable` are the operands and results that can be on storage: none where no tiles are
    known.
    """

    def __init__(self, kernel: FuncOp, costs: SliceCosts) -> None:
        self.kernel = kernel
        count = len(buffers(kernel, "inputs")) + len(buffers(kernel, "results"))
        try:
            self.distributed = distribute(kernel)
        except InputError:
            # A nest gives a later one positions: it runs as it is.
            self.streamable: frozenset[int] = frozenset()
            return
        self.costs = costs
        self.streamable = frozenset(range(count)) - self._stay()
        self._nests: dict[Nest, _NestTiles] = {}
        self._listed: dict[frozenset[int], Distributed] = {}
        self._found: dict[tuple[frozenset[int], int], TiledKernel | None] = {}

    def fastest(self, streamed: frozenset[int], limit_bytes: int) -> TiledKernel | None:
        """The fastest tiles whose buffers take at most `limit_bytes`, with these operands and
        results on storage, which are `streamable`; None without any."""
        key = streamed, limit_bytes
        if key not in self._found:
            self._found[key] = self._fastest(streamed, limit_bytes)
        return self._found[key]

    def front(self, streamed: frozenset[int], limit_bytes: int, most: int) -> list[TiledKernel]:
        """At most so many ways with growing speed and RAM up to a limit, the fastest first: each
        has half of the RAM of the one before at most."""
        found: list[TiledKernel] = []
        while len(found) < most and (way := self.fastest(streamed, limit_bytes)) is not None:
            found.append(way)
            limit_bytes = way.workspace_bytes // 2
        return found

    def least_bytes(self, tensors: Sequence[frozenset[int]]) -> int:
        """Bytes without which the kernel does not run in any tiles, beside buffers that are never
        on storage: what its nests share, and while one runs, an element of each of the `tensors`
        (the buffers of each, all streamable) that it reads or writes, streamed or not."""
        if not self.streamable:
            return 0
        listed = self._with_lists(frozenset().union(*tensors))

        def least(distributed: Distributed) -> int:
            shared = sum(map(padded_bytes, outside(self.kernel, distributed)))
            return shared + max(map(elements, distributed.nests), default=0)

        def elements(nest: Nest) -> int:
            own = zip(nest.function.body.block.args, nest.buffers, strict=True)
            used = {buffer for argument, buffer in own if argument.uses}
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
        products = 0.0
        for nest in self.distributed.nests:
            on_storage = {n for n, buffer in enumerate(nest.buffers) if buffer in streamed}
            if (model := self._nest(nest).model) is not None:
                products += product_bytes(model, on_storage, workspace_bytes)
        return max(once, int(products))

    def _least_read_or_written(self, tensor: frozenset[int], written: bool) -> int:
        """Bytes of a tensor, some buffers of the kernel, that it reads or writes in any tiles."""
        if not self.streamable:
            return 0
        found: list[int] = []
        for distributed in (self.distributed, self._with_lists(tensor)):
            sizes = [
                stream_bytes(model, stream)
                for nest in distributed.nests
                if (model := self._nest(nest).model) is not None
                for stream in model.streams
                if nest.buffers[stream.buffer] in tensor and stream.stored == written
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
        if streamed not in self._listed:
            count = len(self.kernel.body.block.args)
            self._listed[streamed] = with_positions(self.distributed, streamed, count)
        return self._listed[streamed]

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
        found: list[TiledNest] = []
        for nest in distributed.nests:
            best = self._nest(nest).fastest(streamed, limit_bytes - between)
            if best is None:
                return None
            found.append(best)
        ends = (slice_places(nest.tiled, between)[1] for nest in found)
        workspace_bytes = max(ends, default=between)
        return TiledKernel(self.kernel, distributed, tuple(found), streamed, workspace_bytes)

    def _nest(self, nest: Nest) -> _NestTiles:
        if nest not in self._nests:
            self._nests[nest] = _NestTiles(nest, self.costs)
        return self._nests[nest]

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


class _NestTiles:
    """The same for one nest of a kernel."""

    def __init__(self, nest: Nest, costs: SliceCosts) -> None:
        self.nest = nest
        function = nest.function
        model = nest_model(function)
        # Sums that are interrupted have a buffer of their own.
        self.model = None if model is None else replace(model, sum_in_result=0)
        pages = len(buffers(function, "inputs")) + len(buffers(function, "results"))
        self.pages = frozenset(range(pages))
        loops = (op for op in function.walk() if isinstance(op, affine.ForOp))
        numbers = {loop: n for n, loop in enumerate(loops)}
        self.places = {numbers[loop]: at for at, loop in enumerate(nest_loops(function).all)}
        self._tiled: dict[tuple[object, ...], Tiled | None] = {}
        if self.model is None:
            return
        # Loops that `tile` keeps whole, such as those of a block of a sum.
        sizes = [
            tile_sizes(loop.extent) if loop.number in self.places else (max(1, loop.extent),)
            for loop in self.model.loops
        ]
        self.search = NestSearch(self.model, costs, sizes=sizes)
        # Slices of a result have all of the parallel loops inside of those of the sum.
        parallel, given = self.model.parallel, tuple(range(len(self.model.loops)))
        ordered = (tuple(sorted(o, key=lambda n: n >= parallel)) for o in self.search.orders)
        orders = list(dict.fromkeys((*ordered, given)))
        self.in_turn = NestSearch(self.model, costs, sizes=sizes, orders=orders, most=_MOST_TILINGS)

    def fastest(self, streamed: frozenset[int], limit_bytes: int) -> TiledNest | None:
        on_storage = {n for n, buffer in enumerate(self.nest.buffers) if buffer in streamed}
        for tiles, weighed in self._candidates(frozenset(on_storage), limit_bytes):
            tiled = self._tile(tiles, frozenset(on_storage))
            if tiled is None or slice_places(tiled, 0)[1] > limit_bytes:
                continue
            if weighed is None:
                return TiledNest(tiled, tiles, 0, 0, 0.0, 0.0)
            moved = weighed.read_bytes, weighed.written_bytes
            return TiledNest(tiled, tiles, *moved, weighed.transfer_ns, weighed.write_ns)
        return None

    def _tile(self, tiles: tuple[tuple[int, int], ...], on_storage: frozenset[int]) -> Tiled | None:
        key = tiles, on_storage
        if key not in self._tiled:
            try:
                name = self.nest.function.sym_name.data
                self._tiled[key] = tile(self.nest.function, name, tiles, on_storage)
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
            yield (), None
            return
        resident = self.pages - on_storage
        searches = [self.search]
        if any(s.stored and s.buffer in on_storage for s in self.model.streams):
            searches.append(self.in_turn)
        # The search takes a result for the place of its sums.
        for share in _SHARES:
            fronts = [s.front(limit_bytes * share, resident=resident) for s in searches]
            for found in sorted(itertools.chain(*fronts), key=lambda tiled: tiled.transfer_ns):
                tiles = [(self.places.get(number), size) for number, size in found.tiles]
                known = tuple((place, size) for place, size in tiles if place is not None)
                if len(known) == len(tiles):
                    yield known, found


def outside(kernel: FuncOp, distributed: Distributed) -> list[MemRefType]:
    """Buffers that all nests share: workspaces, and what they give each other."""
    types = [buffer.type for buffer in buffers(kernel, "workspace")]
    return [type_ for type_ in (*types, *distributed.between) if isinstance(type_, MemRefType)]


def padded_bytes(type_: MemRefType) -> int:
    """What a buffer takes of the workspace of a stream."""
    return round_up(type_.element_count() * element_bytes(type_.element_type), _WORD_BYTES)


def slice_places(tiled: Tiled, begin: int) -> tuple[list[int], int]:
    """Offsets of the slices and sums of a nest from `begin` on, in their order, and their end. They
    are multiples of their elements."""
    offsets: list[int] = []
    for buffer in tiled.buffers:
        if isinstance(buffer, Slice | Sum):
            begin = round_up(begin, max(_WORD_BYTES, element_bytes(buffer.type.element_type)))
            offsets.append(begin)
            begin += padded_bytes(buffer.type)
    return offsets, begin
