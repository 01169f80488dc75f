"""PrimFuncs made from the loop nests of kernels (docs/kernels.md).

One translation serves every kernel that the C backend has. Scalars become bindings, in the order
of the kernel and with the same float operations (scalars.py), so that the bits are those of the C.
An `affine.for` is a loop; what it carries is in local buffers of one element, which LLVM keeps in
registers; an `affine.if` assigns such buffers.

Buffers are flat, with an offset in elements that the caller gives: all are views of one arena.

A `Tiling` has some parallel loops run over tiles: the body is then emitted for all iterations of a
tile together. Iterations along `lanes` are the elements of vectors, those along `copies` follow
each other within each operation ("unroll and jam"). Nothing is reordered within an iteration, and
iterations of a parallel loop are independent, so results do not change by a bit. Where a guard
holds for some copies only, both of its sides are computed for all, and one is chosen for each.
"""

# TVM's annotations are narrower than what it takes.
# pyright: reportArgumentType=false, reportReturnType=false
from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from tvm import ir, tirx
from xdsl.dialects import affine, arith, func, memref
from xdsl.dialects.builtin import FloatAttr, IndexType, IntegerAttr, MemRefType
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue
from xdsl.utils.hints import isa

from poetc.backends.c.indexing import index_arithmetic
from poetc.backends.tvm import mathir, scalars
from poetc.backends.tvm.guards import Guards, sequence
from poetc.backends.tvm.pipeline import NOALIAS
from poetc.backends.tvm.scalars import Expr, Scalar, element_dtype
from poetc.backends.tvm.tiles import At, Axis, Piece, Tiling, elements_of
from poetc.backends.tvm.values import Local
from poetc.errors import InputError
from poetc.ir.index import Index, Variable
from poetc.kernels.access import tile_of
from poetc.kernels.addresses import extent, extent_of
from poetc.kernels.dependences import yielded


def prim_func(
    function: func.FuncOp, name: str, *, noalias: bool = True, tiling: Tiling | None = None
) -> tirx.PrimFunc:
    """The PrimFunc of a kernel: one flat buffer for each argument, results among them, and for
    each table of constants that it reads (`tables_of`). That of a tile function has its starts
    (int32), too.

    `noalias` promises that no two arguments share bytes of which one is written. Raises InputError
    for what is outside the form of kernels.
    """
    try:
        return _Function(function, tiling or {}).translate(name, noalias)
    except ValueError as error:
        raise InputError(f"kernel @{function.sym_name.data}: {error}") from error


class _Function(Guards):
    """The translation of one kernel."""

    def translate(self, name: str, noalias: bool) -> tirx.PrimFunc:
        parameters: list[Expr] = []
        for argument in self.function.body.block.args:
            if isinstance(argument.type, IndexType):
                parameters.append(self.start(argument))
                continue
            self.buffers[argument] = _parameter(argument.type, self.name(argument, "x"))
            parameters.append(self.buffers[argument][0])
        # In the order of `tables_of`, which a function that is in no module has none of.
        for op in self.function.walk():
            if isinstance(op, memref.GetGlobalOp):
                symbol = op.name_.root_reference.data
                if symbol not in self.tables:
                    self.tables[symbol] = _parameter(op.memref.type, self.name(None, symbol))
                    parameters.append(self.tables[symbol][0])
        self.operations(self.function.body.block, {})
        body = sequence(self.out)
        if self.translator.called:
            text = ir.StringImm(mathir.module_text(self.translator.called))
            body = tirx.AttrStmt(ir.StringImm(""), "pragma_import_llvm", text, body)
        made = tirx.PrimFunc(parameters, body)
        return made.with_attr("global_symbol", name).with_attr(NOALIAS, noalias)

    def start(self, argument: BlockArgument) -> Expr:
        """The parameter that says where a tile begins in one of its loops."""
        count, _ = tile_of(argument)
        name = self.name(argument, "start")
        parameter = tirx.Var(name, "int32")
        self.variables[name] = Scalar(parameter, "int32")
        self.define_index(argument, {}, Index.of(Variable(name, 0, count - 1)))
        return parameter

    # Operations

    def operations(self, block: Block, at: At) -> None:
        """Emits all operations of a block but its terminator."""
        for op in block.ops:
            match op:
                case affine.YieldOp() | func.ReturnOp():
                    pass
                case affine.ForOp() if op.inits:
                    self.reduction(op, at)
                case affine.ForOp():
                    self.parallel(op, at)
                case affine.IfOp():
                    self.guard(op, at)
                case affine.StoreOp() | memref.StoreOp():
                    for here in self.each(list(self.axes), at):
                        self.store(op, here)
                case affine.LoadOp() | memref.LoadOp():
                    for here in self.each_of(op.results, at):
                        self.load(op, here)
                case affine.ApplyOp():
                    for here in self.each_of([op.result], at):
                        index = self.map(op.map.data, op.operands, here)[0]
                        self.define_index(op.result, here, index)
                case memref.GetGlobalOp():
                    self.buffers[op.memref] = self.tables[op.name_.root_reference.data]
                case _:
                    for here in self.each_of(op.results, at):
                        self.operation(op, here)

    def parallel(self, op: affine.ForOp, at: At) -> None:
        """A loop whose iterations are independent, in tiles if the tiling says so."""
        if op.lowerBoundOperands:
            with self.loop_between(op, at) as position:
                self.define_index(op.body.block.args[0], {}, position)
                self.operations(op.body.block, at)
            return
        pieces = self.tiling.get(op, (Piece(0, extent(op)),))
        for piece in pieces:
            with self.loop(op.body.block.args[0], piece.tiles) as tile:
                base = tile * piece.iterations + piece.start
                lane = None
                if piece.lanes > 1:
                    lane = Variable(self.name(None, "lane"), 0, piece.lanes - 1)
                    ramp = tirx.Ramp(scalars.integer(0).expr, scalars.integer(1).expr, piece.lanes)
                    self.variables[lane.name] = Scalar(ramp, "int32", piece.lanes)
                self.axes[op] = Axis(base, piece, lane)
                variable = op.body.block.args[0]
                for here in self.each([op], at):
                    index = base + here.get(op, 0) * piece.lanes
                    if lane is not None:
                        index += Index.of(lane)
                    self.define_index(variable, here, index)
                self.operations(op.body.block, at)
                del self.axes[op]

    @contextmanager
    def loop(self, variable: SSAValue, count: int, start: int = 0) -> Iterator[Index]:
        """A context whose code runs `count` times; a loop that runs once is none."""
        outer, self.out = self.out, []
        name = self.name(variable, "i")
        counter = tirx.Var(name, "int32")
        self.variables[name] = Scalar(counter, "int32")
        yield Index.of(Variable(name, start, start + count - 1)) if count > 1 else Index(start)
        inner, self.out = self.out, outer
        if count > 1:
            first, times = scalars.integer(start).expr, scalars.integer(count).expr
            kind = tirx.ForKind.SERIAL
            self.out.append(tirx.For(counter, first, times, kind, sequence(inner)))
        elif count == 1:
            # Names stay apart, so the statements can stand where they are.
            self.out += inner

    @contextmanager
    def loop_between(self, op: affine.ForOp, at: At) -> Iterator[Index]:
        """The same for a loop over a tile, or between positions that were read from memory."""
        (low,) = self.map(op.lowerBoundMap.data, op.lowerBoundOperands, at)
        highs = self.map(op.upperBoundMap.data, op.upperBoundOperands, at)
        first, *counts = (self.index_expr(i, at).expr for i in (low, *(h - low for h in highs)))
        count = functools.reduce(tirx.min, counts)
        outer, self.out = self.out, []
        name = self.name(op.body.block.args[0], "p")
        counter = tirx.Var(name, "int32")
        self.variables[name] = Scalar(counter, "int32")
        yield Index.of(Variable(name, 0, extent_of(op.body.block.args[0]) - 1))
        inner, self.out = self.out, outer
        kind = tirx.ForKind.SERIAL
        self.out.append(tirx.For(counter, first, count, kind, sequence(inner)))

    def reduction(self, op: affine.ForOp, at: At) -> None:
        """A loop that carries values from one iteration to the next.

        If it runs along the rows of a matrix and lanes along a column, it is done in strips: as
        many vectors are loaded along the rows as there are lanes, and transposed in registers.
        """
        variable, *carried = op.body.block.args
        # Of each copy of each carried value: its number, which copy it is, and its variable.
        slots: list[tuple[int, At, Local]] = []
        for i, (argument, init) in enumerate(zip(carried, op.inits, strict=True)):
            for here in self.each_of([argument], at):
                local = self.mutable(argument, "acc")
                self.out.append(local.set(self.scalar(init, here)))
                slots.append((i, here, local))

        def read(values: Sequence[SSAValue]) -> None:
            for i, here, local in slots:
                self.define(values[i], here, self.from_memory(local.get(), values[i], "acc"))

        def step() -> None:
            self.operations(op.body.block, at)
            values = yielded(op.body.block)
            news = [self.scalar(values[i], here) for i, here, _ in slots]
            for (i, here, _), new in zip(slots, news, strict=True):
                self.define(carried[i], here, scalars.widened(new, self.lanes(carried[i])))

        def finish() -> None:
            # All bindings stand for values from before, so the order does not matter.
            for i, here, local in slots:
                self.out.append(local.set(self.scalar(carried[i], here)))

        def iterate(position: Index) -> None:
            read(carried)
            self.define_index(variable, {}, position)
            step()
            finish()

        if op.lowerBoundOperands:
            with self.loop_between(op, at) as position:
                iterate(position)
        else:
            first, count = 0, extent(op)
            transposed, size = self.transposed_loads(op, at)
            if transposed and count >= size:
                strips = count // size
                with self.loop(variable, strips) as strip:
                    read(carried)
                    base = strip * size
                    self.define_index(variable, {}, base)
                    for load in transposed:
                        self.load_strip(load, size, at)
                    for position in range(size):
                        self.define_index(variable, {}, base + position)
                        self.strip_position = position
                        step()
                    self.strips = {}
                    finish()
                first = strips * size
            with self.loop(variable, count - first, first) as position:
                iterate(position)
        read(op.results)

    def transposed_loads(self, op: affine.ForOp, at: At) -> tuple[list[affine.LoadOp], int]:
        """Loads directly in the loop with a stride along lanes, and none along the loop; and how
        many iterations to do at a time: a power of two, at least the lanes."""
        axis = next((a for a in self.axes.values() if a.lane is not None), None)
        body = op.body.block
        if axis is None or axis.lane is None or any(inner.regions for inner in body.ops):
            return [], 0
        probe = Variable("probe", 0, extent(op) - 1)
        self.define_index(body.args[0], {}, Index.of(probe))
        found: list[affine.LoadOp] = []
        for load in body.ops:
            if not isinstance(load, affine.LoadOp) or any(
                operand.owner is body and operand is not body.args[0] for operand in load.indices
            ):
                continue
            here = next(self.each_of([load.result], at))
            if any(operand not in self.indices for operand in load.indices):
                continue
            terms = dict(self.flat(load, here).terms)
            linear = all(isinstance(term, Variable) for term in terms)
            if linear and terms.get(probe) == 1 and terms.get(axis.lane, 1) != 1:
                found.append(load)
        return found, 1 << (axis.piece.lanes - 1).bit_length()

    def load_strip(self, load: affine.LoadOp, size: int, at: At) -> None:
        """Loads `size` iterations of the loop, as a vector along the lanes for each of them."""
        axis = next(a for a in self.axes.values() if a.lane is not None)
        assert axis.lane is not None
        buffer, dtype = self.buffers[load.memref]
        for here in self.each_of([load.result], at):
            flat = self.flat(load, here)
            stride = dict(flat.terms)[axis.lane]
            along = flat - Index.of(axis.lane) * stride
            rows: list[Scalar] = []
            for lane in range(axis.piece.lanes):
                place = self.safe(along + lane * stride, load.memref, here)
                ramp = tirx.Ramp(place.expr, scalars.integer(1).expr, size)
                row = Scalar(tirx.BufferLoad(buffer, [ramp]), dtype, size)
                rows.append(self.bind(row, load.result, "row"))
            # Rows that only make it a square do not matter.
            columns = self.transposed(rows + rows[-1:] * (size - len(rows)))
            columns = [self.first_lanes(column, len(rows)) for column in columns]
            if dtype == "int8":
                columns = [scalars.not_zero(column) for column in columns]
            self.strips[load, self.key(load.result, here)] = columns

    def first_lanes(self, value: Scalar, lanes: int) -> Scalar:
        if value.lanes == lanes:
            return value
        indices = [scalars.integer(i).expr for i in range(lanes)]
        return self.bind(Scalar(tirx.Shuffle([value.expr], indices), value.type, lanes))

    def transposed(self, rows: list[Scalar]) -> list[Scalar]:
        """The columns of a square matrix: halves are interleaved, once for each bit of an index."""
        lanes = len(rows)
        for _ in range(lanes.bit_length() - 1):
            half = lanes // 2
            merged: list[Scalar] = []
            for a, b in zip(rows[:half], rows[half:], strict=True):
                for start in (0, half):
                    order = [n for i in range(start, start + half) for n in (i, i + lanes)]
                    indices = [scalars.integer(i).expr for i in order]
                    expr = tirx.Shuffle([a.expr, b.expr], indices)
                    merged.append(self.bind(a._replace(expr=expr), None, "mixed"))
            rows = merged
        return rows

    # Scalar operations

    def operation(self, op: Operation, at: At) -> None:
        if len(op.results) != 1 or op.regions:
            raise InputError(f"the TVM backend does not know {op.name}")
        result = op.results[0]
        if isinstance(op, arith.ConstantOp):
            match op.value:
                case IntegerAttr() if isinstance(result.type, IndexType):
                    self.define_index(result, at, Index(op.value.value.data))
                case IntegerAttr() | FloatAttr():
                    value = scalars.constant(op.value.value.data, scalars.scalar_dtype(result.type))
                    self.define(result, at, value)
                case _:
                    raise InputError(f"the TVM backend has no constant of {result.type}")
            return
        if isinstance(result.type, IndexType):
            index = index_arithmetic(op, lambda value: self.index(value, at))
            if index is not None:
                self.define_index(result, at, index)
                return
        operands = [self.scalar(operand, at) for operand in op.operands]
        self.define(result, at, self.bind(self.translator.compute(op, operands), result))


def _parameter(type_: Attribute, name: str) -> tuple[Expr, str]:
    """The buffer of an argument and the type of its elements."""
    assert isa(type_, MemRefType)
    dtype = element_dtype(type_.element_type)
    alignment = np.dtype(dtype).itemsize
    shape = (elements_of(type_),)
    buffer = tirx.decl_buffer(shape, dtype, name, data_alignment=alignment, offset_factor=1)
    return buffer, dtype
