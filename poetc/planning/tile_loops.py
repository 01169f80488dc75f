"""A compute as a `poet.stream`: its nests in tiles, and the loops that move their slices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from xdsl.dialects import affine
from xdsl.dialects.builtin import IndexType, MemRefType, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Region, SSAValue

from poetc.costmodel.slices import SliceCosts
from poetc.ir.buffers import element_bytes
from poetc.ir.poet import (
    ComputeOp,
    CostAttr,
    PageType,
    SliceInOp,
    SliceOutOp,
    StreamOp,
    TileBufferOp,
    TileOp,
)
from poetc.kernels.analysis import buffers
from poetc.kernels.distribute import Distributed, Nest, distribute
from poetc.kernels.index import Index, Var, affine_map
from poetc.kernels.positions import with_positions
from poetc.kernels.slices import NotTileable, Slice
from poetc.kernels.tiles import Sum, Tiled, nest_loops, tile
from poetc.schedule.arena.pack import round_up
from poetc.variants.candidates import tile_sizes
from poetc.variants.nests import Nest as NestModel
from poetc.variants.nests import nests
from poetc.variants.tiling import NestSearch

_WORD_BYTES = 4

_SHARES = (1.0, 0.7, 0.5, 0.3, 0.2, 0.1)
"""Of the RAM, for which tiles are looked for one after another until some fit."""


@dataclass(frozen=True)
class TiledKernel:
    """A kernel that runs in tiles: its nests with their tile functions, and the buffers between
    them. `streamed` are the operands and results on storage, as buffers of the kernel.
    `transfer_ns` is the time of all transfers."""

    distributed: Distributed
    tiled: tuple[Tiled, ...]
    streamed: frozenset[int]
    workspace_bytes: int
    transfer_ns: float


def tile_kernel(
    kernel: FuncOp,
    streamed: frozenset[int],
    limit_bytes: int,
    costs: SliceCosts,
    name: Callable[[str], str],
) -> TiledKernel | None:
    """The fastest tiles of a kernel whose buffers take at most `limit_bytes`, None without any.

    `streamed` are the buffers on storage; results whose elements no tile makes side by side are not
    among those of the outcome. `name` gives names for functions.
    """
    distributed = distribute(kernel)
    streamed -= _stay(distributed, streamed)
    listed = with_positions(distributed, streamed, len(kernel.body.block.args))
    found = _tile_nests(kernel, listed, streamed, limit_bytes, costs, name)
    if found is None and listed.between != distributed.between:
        # The lists of positions take more than the tables, maybe.
        found = _tile_nests(kernel, distributed, streamed, limit_bytes, costs, name)
    return found


def _tile_nests(
    kernel: FuncOp,
    distributed: Distributed,
    streamed: frozenset[int],
    limit_bytes: int,
    costs: SliceCosts,
    name: Callable[[str], str],
) -> TiledKernel | None:
    """The same for a kernel that is taken apart."""
    outside = _outside(kernel, distributed)
    between = sum(_padded(type_) for type_ in outside)
    found: list[Tiled] = []
    transfer_ns, most = 0.0, 0
    for nest in distributed.nests:
        best = _tile_nest(nest, streamed, limit_bytes - between, costs, name)
        if best is None:
            return None
        tiled, ns = best
        found.append(tiled)
        transfer_ns += ns
        most = max(most, _bytes(tiled))
    return TiledKernel(distributed, tuple(found), streamed, between + most, transfer_ns)


def _outside(kernel: FuncOp, distributed: Distributed) -> list[MemRefType]:
    """Buffers that all nests share: workspaces, and what they give each other."""
    types = [buffer.type for buffer in buffers(kernel, "workspace")]
    return [type_ for type_ in (*types, *distributed.between) if isinstance(type_, MemRefType)]


def _stay(distributed: Distributed, streamed: frozenset[int]) -> frozenset[int]:
    """Results that cannot be on storage: no slice has just what a tile makes, or two nests do."""
    writers: dict[int, int] = {}
    stay: set[int] = set()
    for nest in distributed.nests:
        inputs = len(buffers(nest.function, "inputs"))
        for argument in range(inputs, inputs + len(buffers(nest.function, "results"))):
            buffer = nest.buffers[argument]
            writers[buffer] = writers.get(buffer, 0) + 1
            try:
                tile(nest.function, "tile", (), frozenset({argument}))
            except NotTileable:
                stay.add(buffer)
    stay |= {buffer for buffer, count in writers.items() if count > 1}
    return frozenset(stay & streamed)


def _tile_nest(
    nest: Nest,
    streamed: frozenset[int],
    limit_bytes: int,
    costs: SliceCosts,
    name: Callable[[str], str],
) -> tuple[Tiled, float] | None:
    """The fastest tiles within a limit, and the time of their transfers."""
    on_storage = frozenset(n for n, buffer in enumerate(nest.buffers) if buffer in streamed)
    for tiles, ns in _candidates(nest, on_storage, limit_bytes, costs):
        try:
            tiled = tile(nest.function, "tile", tiles, on_storage)
        except NotTileable:
            continue
        if _bytes(tiled) <= limit_bytes:
            called = name(nest.function.sym_name.data)
            return tile(nest.function, called, tiles, on_storage), ns
    return None


def _candidates(
    nest: Nest, on_storage: frozenset[int], limit_bytes: int, costs: SliceCosts
) -> Iterator[tuple[list[tuple[int, int]], float]]:
    """Tiles of loops, the fastest first."""
    if limit_bytes <= 0:
        return
    if not on_storage:
        yield [], 0.0
    tree = nests(nest.function)
    model = tree if isinstance(tree, NestModel) else tree.together
    if model is None:
        yield [], 0.0
        return
    pages = len(buffers(nest.function, "inputs")) + len(buffers(nest.function, "results"))
    resident = frozenset(range(pages)) - on_storage
    numbers = {
        loop: n
        for n, loop in enumerate(op for op in nest.function.walk() if isinstance(op, affine.ForOp))
    }
    places = {numbers[loop]: place for place, loop in enumerate(nest_loops(nest.function).all)}
    # Loops that `tile` keeps whole, such as those of a block of a sum.
    sizes = [
        tile_sizes(loop.extent) if loop.number in places else (max(1, loop.extent),)
        for loop in model.loops
    ]
    search = NestSearch(model, costs, sizes=sizes)
    # The search takes a result for the place of its sums, and knows no slices that must be filled.
    for share in _SHARES:
        for found in reversed(search.front(limit_bytes * share, resident=resident)):
            tiles = [(places.get(number), size) for number, size in found.tiling.tiles]
            known = [(place, size) for place, size in tiles if place is not None]
            if len(known) == len(tiles):
                yield known, found.transfer_ns


def _padded(type_: MemRefType) -> int:
    return round_up(type_.element_count() * element_bytes(type_.element_type), _WORD_BYTES)


def _bytes(tiled: Tiled) -> int:
    """Of all slices and sums of a nest, whose places are multiples of their elements."""
    return _places(tiled, 0)[1]


def _places(tiled: Tiled, begin: int) -> tuple[list[int], int]:
    """Offsets of the slices and sums, in their order, and their end."""
    offsets: list[int] = []
    for buffer in tiled.buffers:
        if isinstance(buffer, Slice | Sum):
            begin = round_up(begin, max(_WORD_BYTES, element_bytes(buffer.type.element_type)))
            offsets.append(begin)
            begin += _padded(buffer.type)
    return offsets, begin


def stream_of(
    compute: ComputeOp,
    kernel: FuncOp,
    tiled: TiledKernel,
    values: Sequence[SSAValue],
    costs: SliceCosts,
) -> StreamOp:
    """The stream that runs a compute in tiles. `values` are its operands, pages where they are on
    storage; the compute is left as it is."""
    types = [
        PageType(result.type)
        if n in tiled.streamed and isinstance(result.type, TensorType)
        else result.type
        for n, result in enumerate(compute.results, len(values))
    ]
    cost = compute.cost or CostAttr(0)
    stream = StreamOp(
        compute.label.data,
        values,
        types,
        compute.body.clone(),
        cost=CostAttr(
            cost.energy_nj + math.ceil(tiled.transfer_ns * costs.power_w),
            cost.time_ns + math.ceil(tiled.transfer_ns),
            tiled.workspace_bytes,
            cost.flops,
        ),
        attributes=dict(compute.attributes),
    )
    block = stream.tiles.block
    whole: dict[int, SSAValue] = dict(enumerate(block.args))
    for argument, own in zip(block.args, kernel.body.block.args, strict=False):
        argument.name_hint = own.name_hint
    begin = 0
    for number, type_ in enumerate(_outside(kernel, tiled.distributed), len(block.args)):
        block.add_op(buffer := TileBufferOp(type_, begin))
        whole[number] = buffer.buffer
        begin += _padded(type_)
    for nest, own in zip(tiled.distributed.nests, tiled.tiled, strict=True):
        _add_nest(block, own, [whole[buffer] for buffer in nest.buffers], begin)
    return stream


def _add_nest(block: Block, tiled: Tiled, whole: Sequence[SSAValue], begin: int) -> None:
    offsets = iter(_places(tiled, begin)[0])
    places = [next(offsets) if isinstance(b, Slice | Sum) else 0 for b in tiled.buffers]
    taken: dict[int, SSAValue] = {}
    starts: dict[Var, Index] = {}
    written: list[list[SliceOutOp]] = []
    blocks = [block]
    for depth in range(len(tiled.variables) + 1):
        written.append([])
        for number, part in enumerate(tiled.buffers):
            if isinstance(part, int):
                taken[number] = whole[part]
                continue
            if part.depth != depth:
                continue
            here = blocks[-1]
            if isinstance(part, Slice) and part.read:
                map, positions = affine_map([start.substitute(starts) for start in part.starts])
                rows = (part.rows[0], whole[part.rows[1]]) if part.rows is not None else None
                op = SliceInOp(
                    whole[part.argument], map.data, positions, part.type, places[number], rows
                )
            else:
                op = TileBufferOp(part.type, places[number])
            here.add_op(op)
            taken[number] = op.buffer
            if isinstance(part, Slice) and part.written:
                map, positions = affine_map([start.substitute(starts) for start in part.starts])
                written[-1].append(SliceOutOp(op.buffer, whole[part.argument], map.data, positions))
        if depth < len(tiled.variables):
            variable, size = tiled.variables[depth], tiled.tiles[depth]
            inner = Block(arg_types=[IndexType()])
            inner.args[0].name_hint = "ijklmnpqrstuvw"[depth % 14]
            loop = affine.ForOp.from_region([], [], [], [], 0, variable.extent, Region(inner), size)
            starts[variable] = Index.of(Var(variable.number, variable.extent, ssa=inner.args[0]))
            blocks[-1].add_op(loop)
            blocks.append(inner)
    blocks[-1].add_op(
        TileOp(
            tiled.function.sym_name.data,
            [taken[number] for number in range(len(tiled.buffers))],
            [loop.args[0] for loop in blocks[1:]],
        )
    )
    for depth in reversed(range(len(blocks))):
        blocks[depth].add_ops(written[depth])
        if depth:
            blocks[depth].add_op(affine.YieldOp.get())
