"""A compute as a `poet.stream`: its nests in tiles, and the loops that move their slices."""

from __future__ import annotations

from collections.abc import Sequence

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
from poetc.kernels.tiles import Sum, Tiled
from poetc.planning.tile_search import TiledKernel, outside, padded_bytes, slice_places


def stream_of(
    compute: ComputeOp,
    tiled: TiledKernel,
    names: Sequence[str],
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
    for nest, own, name in zip(tiled.distributed.nests, tiled.nests, names, strict=True):
        _add_nest(block, own.tiled, name, [whole[buffer] for buffer in nest.buffers], begin)
    return stream


def _add_nest(block: Block, tiled: Tiled, name: str, whole: Sequence[SSAValue], begin: int) -> None:
    offsets = iter(slice_places(tiled, begin)[0])
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
            name,
            [taken[number] for number in range(len(tiled.buffers))],
            [loop.args[0] for loop in blocks[1:]],
        )
    )
    for depth in reversed(range(len(blocks))):
        blocks[depth].add_ops(written[depth])
        if depth:
            blocks[depth].add_op(affine.YieldOp.get())
