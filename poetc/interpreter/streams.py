"""Executes the tiles of a `poet.stream`: slices move between pages and buffers in bytes of RAM.

What a buffer holds before something is moved or computed into it is no number, so a tile that reads
what has not arrived gives a wrong result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from xdsl.dialects import affine
from xdsl.dialects.builtin import MemRefType
from xdsl.dialects.func import FuncOp
from xdsl.dialects.memref import GlobalOp
from xdsl.ir import Block, Operation, SSAValue

from poetc.interpreter.functions import InterpreterError
from poetc.interpreter.kernels import memory_dtype, run_kernel, tables_of
from poetc.interpreter.memory import (
    POISON,
    bytes_of,
    content_of,
    name_of,
    offset_in,
    padded,
    stored_dtype,
)
from poetc.ir import poet
from poetc.ir.locations import source_location
from poetc.ir.stablehlo.base import Array
from poetc.ir.symbols import named_in

if TYPE_CHECKING:
    from poetc.interpreter.graphs import Machine


@dataclass
class StreamRun:
    """The state while the tiles of a stream run, and what they have moved.

    `places` has the array of each argument of the tiles: a buffer, or the content of a page, with
    elements as `memory_dtype` says. `workspace` are its bytes.
    """

    stream: poet.StreamOp
    places: dict[SSAValue, Array]
    workspace: Array
    read_bytes: int = 0
    written_bytes: int = 0
    slices_in: int = 0
    slices_out: int = 0
    positions: dict[SSAValue, int] = field(default_factory=dict)

    def run(self) -> None:
        """Runs all tiles. Raises InterpreterError for an access outside of a buffer, and unless
        each element of a result on storage is written once."""
        self.functions = named_in(self.stream, FuncOp)
        self.tables = tables_of(named_in(self.stream, GlobalOp).values())
        arguments = self.stream.tiles.block.args
        self.written: dict[SSAValue, Array] = {
            page: np.zeros(self.places[page].shape, np.int64)
            for page in arguments[len(self.stream.operands) :]
            if isinstance(page.type, poet.PageType)
        }
        self._block(self.stream.tiles.block)
        for number, result in enumerate(arguments[len(self.stream.operands) :]):
            times = self.written.get(result, np.ones(()))
            if (times != 1).any():
                index = tuple(int(i) for i in np.argwhere(times != 1)[0])
                raise self._fault(
                    self.stream,
                    f"element {list(index)} of result {number} is written to storage "
                    f"{times[index]} times",
                )

    def _fault(self, op: Operation, message: str) -> InterpreterError:
        return InterpreterError(
            f'poet.stream "{self.stream.label.data}": {message}', source_location(op)
        )

    def _block(self, block: Block) -> None:
        for op in block.ops:
            match op:
                case affine.ForOp():
                    for start in poet.tile_starts(op):
                        self.positions[op.body.block.args[0]] = start
                        self._block(op.body.block)
                case poet.TileBufferOp():
                    self.places[op.buffer] = self._buffer(op)
                case poet.SliceInOp():
                    self.places[op.buffer] = buffer = self._buffer(op)
                    if (ahead := op.ahead_place(self.stream.block_bytes)) is not None:
                        # Blocks of the next slice arrive from now on.
                        self.workspace[slice(*ahead)] = POISON
                    page = self.places[op.page]
                    if (self.written.get(op.page, np.ones(())) == 0).any():
                        raise self._fault(op, "a page is read before all of it is written")
                    outside, inside = self._ranges(op, buffer.shape)
                    if op.rows is not None and op.row_dim is not None:
                        outside = self._rows(op, page, outside)
                    buffer[inside] = page[outside]
                    self.read_bytes += page[outside].nbytes
                    self.slices_in += 1
                case poet.SliceOutOp():
                    buffer, page = self.places[op.buffer], self.places[op.page]
                    outside, inside = self._ranges(op, buffer.shape)
                    page[outside] = buffer[inside]
                    self.written[op.page][outside] += 1
                    self.written_bytes += page[outside].nbytes
                    self.slices_out += 1
                case poet.TileOp():
                    run_kernel(
                        self.functions[op.function.string_value()],
                        [self.places[buffer] for buffer in op.buffers],
                        [self.positions[position] for position in op.positions],
                        self.tables,
                    )
                case _:
                    pass  # the end of a loop

    def _buffer(self, op: poet.TileBufferOp | poet.SliceInOp) -> Array:
        """The buffer, which holds no number yet."""
        type_ = op.buffer.type
        assert isinstance(type_, MemRefType)
        begin = op.offset.value.data
        part = self.workspace[begin : begin + op.bytes]
        part[:] = POISON
        return part.view(memory_dtype(type_.element_type)).reshape(type_.get_shape())

    def _rows(
        self, op: poet.SliceInOp, page: Array, outside: tuple[slice, ...]
    ) -> tuple[slice | Array, ...]:
        """The same places in a page, with those in a list of rows in its dimension."""
        assert op.rows is not None and op.row_dim is not None
        dim = op.row_dim.value.data
        rows = self.places[op.rows].reshape(-1)[outside[dim]].astype(np.int64)
        if rows.size and not 0 <= rows.min() <= rows.max() < page.shape[dim]:
            raise self._fault(op, f"a row from {rows.min()} to {rows.max()} of {page.shape}")
        return (*outside[:dim], rows, *outside[dim + 1 :])

    def _ranges(
        self, op: poet.AnySlice, shape: Sequence[int]
    ) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """The part of a slice that is in the tensor: its place there, and in the buffer."""
        found = op.inside(self.positions, shape)
        outside = tuple(slice(here.start, here.stop) for _, here in found)
        return outside, tuple(slice(h.start - start, h.stop - start) for start, h in found)


def run_stream(machine: Machine, op: poet.StreamOp) -> None:
    """Runs a stream: results and workspace take RAM, what is on storage does not."""
    if machine.under_way:
        raise machine.out_of_order(op)
    for operand in op.operands:
        if not isinstance(operand.type, poet.PageType):
            machine.touch(op, operand)
        elif operand not in machine.numbers:
            raise InterpreterError(
                f"{op.where} uses {name_of(operand)}, which is not on storage",
                source_location(op),
            )
    resident = [r for r in op.results if not isinstance(r.type, poet.PageType)]
    takes_over = {op.results[r]: op.operands[o] for r, o in op.inplace_pairs}
    for value in (*takes_over, *takes_over.values()):
        machine.touch_own(op, value)
    reused = sum(machine.resident[operand] for operand in takes_over.values())
    machine.need(sum(map(machine.size, resident)) + padded(op.workspace_bytes) - reused, op.where)
    made: dict[SSAValue, Array] = {}
    for result in op.results:
        size = bytes_of(result.type)
        if isinstance(result.type, poet.PageType):
            machine.storage.reserve(name_of(result), machine.page_offset(result), size)
            made[result] = np.full(size, POISON, np.uint8)
        elif result in takes_over:
            made[result] = machine.ram.bytes(takes_over[result])
        else:
            offset = poet.offset_of(result)
            machine.memory(result).reserve(name_of(result), offset, size)
            made[result] = machine.memory(result).place(name_of(result), offset, size)
    scratch = f"the workspace of {op.where}", offset_in(op.workspace_offset), op.workspace_bytes
    machine.ram.reserve(*scratch)
    workspace = machine.ram.place(*scratch) if op.workspace_bytes else np.zeros(0, np.uint8)
    places: dict[SSAValue, Array] = {}
    inplace = {operand: made[result] for result, operand in takes_over.items()}
    for argument, value in zip(op.tiles.block.args, (*op.operands, *op.results), strict=True):
        if value in made:
            content = made[value]
        elif value in inplace:
            content = inplace[value]
        elif isinstance(value.type, poet.PageType):
            machine.storage.read(value)  # checks it
            content = machine.storage.bytes(value)
        else:
            content = machine.memory(value).bytes(value)
        shape, dtype = content_of(value.type)
        places[argument] = content.view(stored_dtype(dtype)).reshape(shape)
    run = StreamRun(op, places, workspace)
    run.run()
    machine.page_ins += run.slices_in
    machine.page_in_bytes += run.read_bytes
    machine.page_outs += run.slices_out
    machine.page_out_bytes += run.written_bytes
    numbers = machine.number(op)
    for operand in takes_over.values():
        machine.end(operand, f"{op.where} took over its buffer")
    for result, number in zip(op.results, numbers, strict=True):
        is_page = isinstance(result.type, poet.PageType)
        offset = machine.page_offset(result) if is_page else poet.offset_of(result)
        shape, dtype = content_of(result.type)
        array = made[result].view(stored_dtype(dtype)).reshape(shape)
        machine.begin(
            result,
            array.astype(dtype) if dtype == np.bool_ else array.view(dtype),
            offset,
            number,
        )
    machine.ram.reserve(*scratch)
