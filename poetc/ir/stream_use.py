"""What is moved in a graph with kernels that run in tiles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects import affine
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Block, SSAValue
from xdsl.ir.affine import AffineConstantExpr

from poetc.errors import InputError
from poetc.ir.buffers import element_bytes
from poetc.ir.graph import round_up, tensor_bytes
from poetc.ir.poet import (
    AnyPageIn,
    AnyPageOut,
    GraphOp,
    SliceInOp,
    SliceOutOp,
    StreamOp,
    runs_of,
)


def refuse_tiles(graph: GraphOp, what: str, instead: str = "--emit=c") -> None:
    """Raises InputError for a graph with kernels that run in tiles, with which `what` does not go,
    but what to give `instead` does."""
    if any(isinstance(run, StreamOp) for run in runs_of(graph)):
        raise InputError(
            f"kernels that run in tiles (poet.stream) do not go with {what}; {instead} does"
        )


@dataclass
class Moved:
    """How often pages and slices are read and written in a step, and their bytes."""

    page_ins: int = 0
    page_in_bytes: int = 0
    page_outs: int = 0
    page_out_bytes: int = 0

    def add(self, size: int, *, out: bool) -> None:
        """Counts one transfer."""
        if out:
            self.page_outs += 1
            self.page_out_bytes += size
        else:
            self.page_ins += 1
            self.page_in_bytes += size


def moved_in(graph: GraphOp, align: int = 1) -> Moved:
    """What a scheduled graph moves: tensors padded to a multiple of `align`, slices as far as they
    are within their tensors."""
    moved = Moved()
    for op in graph.block.ops:
        if isinstance(op, AnyPageIn | AnyPageOut):
            size = round_up(tensor_bytes(op.tensor.type), align)
            moved.add(size, out=isinstance(op, AnyPageOut))
        elif isinstance(op, StreamOp):
            _count(op.tiles.block, {}, moved)
    return moved


def _count(block: Block, at: Mapping[SSAValue, int], moved: Moved) -> None:
    for op in block.ops:
        match op:
            case affine.ForOp():
                (end,) = op.upperBoundMap.data.results
                assert isinstance(end, AffineConstantExpr)
                variable = op.body.block.args[0]
                for start in range(0, end.value, op.step.value.data):
                    _count(op.body.block, {**at, variable: start}, moved)
            case SliceInOp() | SliceOutOp():
                positions = [at[position] for position in op.positions]
                map_ = op.starts.data
                starts = map_.eval(positions[: map_.num_dims], positions[map_.num_dims :])
                type_ = op.buffer.type
                assert isinstance(type_, MemRefType)
                sizes = (
                    max(0, min(start + size, extent) - max(start, 0))
                    for start, size, extent in zip(
                        starts, type_.get_shape(), op.extents(), strict=True
                    )
                )
                size = math.prod(sizes) * element_bytes(type_.element_type)
                moved.add(size, out=isinstance(op, SliceOutOp))
            case _:
                pass
