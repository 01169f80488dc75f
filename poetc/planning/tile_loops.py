"""A compute as a `poet.stream`: its nests in tiles, and the loops that move their slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects import affine
from xdsl.dialects.builtin import IndexType, TensorType
from xdsl.ir import Block, Region, SSAValue

from poetc.ir.index import Index, Var, affine_map
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
from poetc.kernels.slices import Slice
from poetc.planning.tile_search import (
    TiledKernel,
    TileLoop,
    outside,
    padded_bytes,
    slice_places,
    slots,
)


def stream_of(
    compute: ComputeOp,
    tiled: TiledKernel,
    names: Sequence[Sequence[str]],
    values: Sequence[SSAValue],
    cost: CostAttr,
) -> StreamOp:
    """The stream that runs a compute in tiles, with the `names` of the tile functions. `values` are
    its operands, pages where they are on storage; it has that `cost`. The compute is left as it
    is."""
    types = [
        PageType(result.type)
        if n in tiled.streamed and isinstance(result.type, TensorType)
        else result.type
        for n, result in enumerate(compute.results, len(values))
    ]
    stream = StreamOp(
        compute.label.data,
        values,
        types,
        compute.body.clone(),
        cost=cost,
        attributes=dict(compute.attributes),
    )
    block = stream.tiles.block
    whole: dict[int, SSAValue] = dict(enumerate(block.args))
    for argument, own in zip(block.args, tiled.kernel.body.block.args, strict=False):
        argument.name_hint = own.name_hint
    begin = 0
    for number, type_ in enumerate(outside(tiled.kernel, tiled.distributed), len(block.args)):
        block.add_op(buffer := TileBufferOp(type_, begin))
        whole[number] = buffer.buffer
        begin += padded_bytes(type_)
    for loop, own in zip(tiled.loops, names, strict=True):
        _add_loop(block, loop, own, whole, begin)
    return stream


def _add_loop(
    block: Block, loop: TileLoop, names: Sequence[str], whole: Mapping[int, SSAValue], begin: int
) -> None:
    """Adds a loop over tiles, of functions with these names. `whole` are the buffers of the
    kernel."""
    places, numbers = slice_places(loop, begin)[0], slots(loop)
    made: dict[int, SSAValue] = {}
    starts: list[dict[Var, Index]] = [{} for _ in loop.tiled]
    written: list[list[SliceOutOp]] = []
    blocks = [block]
    first = loop.tiled[0]
    for depth in range(len(first.variables) + 1):
        written.append([])
        for nest, tiled, own, at in zip(loop.nests, loop.tiled, numbers, starts, strict=True):
            for slot, part in zip(own, tiled.buffers, strict=True):
                if isinstance(part, int) or part.depth != depth:
                    continue
                if isinstance(part, Slice):
                    page = whole[nest.buffers[part.argument]]
                    map, positions = affine_map([start.substitute(at) for start in part.starts])
                if slot not in made:
                    if isinstance(part, Slice) and part.read:
                        rows = part.rows and (part.rows[0], whole[nest.buffers[part.rows[1]]])
                        op = SliceInOp(page, map.data, positions, part.type, places[slot], rows)
                    else:
                        op = TileBufferOp(part.type, places[slot])
                    blocks[-1].add_op(op)
                    made[slot] = op.buffer
                if isinstance(part, Slice) and part.written:
                    written[-1].append(SliceOutOp(made[slot], page, map.data, positions))
        if depth < len(first.variables):
            variable, size = first.variables[depth], first.tiles[depth]
            inner = Block(arg_types=[IndexType()])
            inner.args[0].name_hint = "ijklmnpqrstuvw"[depth % 14]
            for_ = affine.ForOp.from_region([], [], [], [], 0, variable.extent, Region(inner), size)
            position = Index.of(Var(variable.number, variable.extent, ssa=inner.args[0]))
            for tiled, at in zip(loop.tiled, starts, strict=True):
                at[tiled.variables[depth]] = position
            blocks[-1].add_op(for_)
            blocks.append(inner)
    for name, nest, tiled, own in zip(names, loop.nests, loop.tiled, numbers, strict=True):
        given = [
            whole[nest.buffers[part]] if isinstance(part, int) else made[slot]
            for slot, part in zip(own, tiled.buffers, strict=True)
        ]
        blocks[-1].add_op(TileOp(name, given, [inner.args[0] for inner in blocks[1:]]))
    for depth in reversed(range(len(blocks))):
        blocks[depth].add_ops(written[depth])
        if depth:
            blocks[depth].add_op(affine.YieldOp.get())
