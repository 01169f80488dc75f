"""Bytes moved in a graph with kernels that run in tiles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects import affine
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Block, SSAValue

from poetc.errors import InputError
from poetc.ir.buffers import element_bytes
from poetc.ir.graph import round_up, tensor_bytes
from poetc.ir.loops import loops_around
from poetc.ir.poet import (
    AnyPageIn,
    AnyPageOut,
    GraphOp,
    SliceInOp,
    SliceOutOp,
    StreamOp,
    TileOp,
    runs_of,
    tile_starts,
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

    def add(self, size: int, *, out: bool, times: int = 1) -> None:
        """Counts transfers, of `size` bytes together."""
        if out:
            self.page_outs += times
            self.page_out_bytes += size
        else:
            self.page_ins += times
            self.page_in_bytes += size


@dataclass
class Slices:
    """How many slices of a page are moved in a kernel that runs in tiles, and their bytes."""

    count: int = 0
    bytes: int = 0


def moved_in(graph: GraphOp, align: int = 1) -> Moved:
    """The bytes that a scheduled graph moves: tensors padded to a multiple of `align`, slices as
    far as they are within their tensors."""
    moved = Moved()
    for op in graph.block.ops:
        if isinstance(op, AnyPageIn | AnyPageOut):
            size = round_up(tensor_bytes(op.tensor.type), align)
            moved.add(size, out=isinstance(op, AnyPageOut))
        elif isinstance(op, StreamOp):
            for value, slices in slices_of(op).items():
                moved.add(slices.bytes, out=value in op.results, times=slices.count)
    return moved


def slices_of(stream: StreamOp) -> dict[SSAValue, Slices]:
    """The slices that a kernel in tiles reads of each operand and writes of each result, as far as
    they are within their tensors. Operands and results without slices are left out."""
    found: dict[SSAValue, Slices] = {}
    _count(stream.tiles.block, {}, found)
    of_values: dict[SSAValue, Slices] = {}
    values: dict[SSAValue, SSAValue] = dict(
        zip(stream.tiles.block.args, (*stream.operands, *stream.results), strict=True)
    )
    for page, slices in found.items():
        own = of_values.setdefault(values[page], Slices())
        own.count += slices.count
        own.bytes += slices.bytes
    return of_values


def loops_of(stream: StreamOp) -> list[list[tuple[int, int]]]:
    """The loops around each tile of a kernel in tiles, from the outermost one on: iterations, and
    how many of them are in a tile."""
    tiles = (op for op in stream.tiles.walk() if isinstance(op, TileOp))
    return [
        [(starts.stop, starts.step) for starts in map(tile_starts, loops_around(tile))]
        for tile in tiles
    ]


def _count(block: Block, at: Mapping[SSAValue, int], found: dict[SSAValue, Slices]) -> None:
    for op in block.ops:
        match op:
            case affine.ForOp():
                variable = op.body.block.args[0]
                for start in tile_starts(op):
                    _count(op.body.block, {**at, variable: start}, found)
            case SliceInOp() | SliceOutOp():
                type_ = op.buffer.type
                assert isinstance(type_, MemRefType)
                sizes = (len(inside) for _, inside in op.inside(at, type_.get_shape()))
                slices = found.setdefault(op.page, Slices())
                slices.count += 1
                slices.bytes += math.prod(sizes) * element_bytes(type_.element_type)
            case _:
                pass
