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

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from tvm import ir, tirx
from xdsl.dialects import affine, arith, func, memref
from xdsl.dialects.builtin import (
    FloatAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.utils.hints import isa

from poetc.backends.c.indexing import (
    NO_FACTS,
    Facts,
    Index,
    Quotient,
    Remainder,
    Variable,
    constraints_of,
    flat_index,
    index_arithmetic,
    mapped,
)
from poetc.backends.c.prepare import yielded
from poetc.backends.c.text import c_identifier
from poetc.backends.tvm import mathir, scalars
from poetc.backends.tvm.pipeline import NOALIAS
from poetc.backends.tvm.scalars import Expr, Scalar, Translator, element_dtype
from poetc.errors import InputError

_ON_STACK = "disable_lower_builtin"
"""Annotation of allocations that keeps them on the stack; TVM would call its runtime for each."""

Stmt = Any


@dataclass(frozen=True)
class Piece:
    """Iterations `start`, ... of a loop, in `tiles` tiles of `copies * lanes` iterations each."""

    start: int
    tiles: int
    copies: int = 1
    lanes: int = 1

    @property
    def iterations(self) -> int:
        return self.copies * self.lanes


Tiling = Mapping[affine.ForOp, Sequence[Piece]]
"""How parallel loops run; the pieces of each cover all of its iterations, in order."""


class _Axis(NamedTuple):
    """A tiled loop around what is being emitted."""

    base: Index
    piece: Piece
    lane: Variable | None


_Values = dict[tuple[int, ...], Scalar]
"""A value for each choice of copies that it depends on."""

_Test = tuple[Index, bool]
"""An index that must not be negative, or must be zero if the second is true."""


class _Condition(NamedTuple):
    """A guard for some copies: what has to be tested, and what follows where it holds."""

    tests: tuple[_Test, ...]
    facts: Facts
    never: bool = False

    def without(self, tests: Sequence[_Test]) -> _Condition:
        return self._replace(tests=tuple(test for test in self.tests if test not in tests))


At = Mapping[affine.ForOp, int]
"""Which of the copies of each tiled loop an operation is emitted for."""


def prim_func(
    function: func.FuncOp, name: str, *, noalias: bool = True, tiling: Tiling | None = None
) -> tirx.PrimFunc:
    """The PrimFunc of a kernel: one flat buffer for each argument, results among them, and for
    each table of constants that it reads (`tables_of`).

    `noalias` promises that no two arguments share bytes of which one is written. Raises InputError
    for what is outside the form of kernels.
    """
    try:
        return _Function(function, tiling or {}).translate(name, noalias)
    except ValueError as error:
        raise InputError(f"kernel @{function.sym_name.data}: {error}") from error


def elements_of(type_: Attribute) -> int:
    """Elements of a memref."""
    assert isa(type_, MemRefType)
    return int(np.prod(type_.get_shape(), dtype=np.int64))


def dependences(function: func.FuncOp) -> dict[SSAValue, frozenset[affine.ForOp]]:
    """The parallel loops whose variable each value depends on, by data or through guards.

    What is in memory counts as independent: a load depends on what its index does.
    """
    found: dict[SSAValue, frozenset[affine.ForOp]] = {}
    none: frozenset[affine.ForOp] = frozenset()

    def of(values: Sequence[SSAValue]) -> frozenset[affine.ForOp]:
        return none.union(*(found.get(value, none) for value in values))

    def visit(block: Block) -> None:
        for op in block.ops:
            match op:
                case affine.ForOp():
                    body = op.body.block
                    variable, *carried = body.args
                    found[variable] = none if op.inits else frozenset({op})
                    for argument, init in zip(carried, op.inits, strict=True):
                        found[argument] = of([init])
                    while True:
                        visit(body)
                        grown = False
                        for argument, value in zip(carried, yielded(body), strict=True):
                            more = found[argument] | of([value])
                            grown |= more != found[argument]
                            found[argument] = more
                        if not grown:
                            break
                    for result, argument in zip(op.results, carried, strict=True):
                        found[result] = found[argument]
                case affine.IfOp():
                    guard = of(op.args)
                    branches = [region.block for region in op.regions if region.blocks]
                    for branch in branches:
                        visit(branch)
                    for i, result in enumerate(op.results):
                        found[result] = guard.union(*(of([yielded(b)[i]]) for b in branches))
                case _:
                    for result in op.results:
                        found[result] = of(op.operands)

    visit(function.body.block)
    return found


class _Function:
    """State while one kernel is translated."""

    def __init__(self, function: func.FuncOp, tiling: Tiling) -> None:
        self.function, self.tiling = function, tiling
        self.dependences = dependences(function)
        self.axes: dict[affine.ForOp, _Axis] = {}
        # By value, then by the copies it belongs to.
        self.scalars: dict[SSAValue, dict[tuple[int, ...], Scalar]] = {}
        self.indices: dict[SSAValue, dict[tuple[int, ...], Index]] = {}
        self.buffers: dict[SSAValue, tuple[Expr, str]] = {}
        self.tables: dict[str, tuple[Expr, str]] = {}
        self.variables: dict[str, Scalar] = {}
        self.translator = Translator(self.bind)
        # Guards around this place that hold for some copies only.
        self.predicates: list[_Predicate] = []
        # Vectors of loads that are transposed, by load and copies, for each iteration of a strip.
        self.strip_position = 0
        self.strips: dict[tuple[Operation, tuple[int, ...]], list[Scalar]] = {}
        self.out: list[Stmt] = []
        self.names: dict[str, int] = {}

    def translate(self, name: str, noalias: bool) -> tirx.PrimFunc:
        parameters: list[Expr] = []
        for argument in self.function.body.block.args:
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
        body = _sequence(self.out)
        if self.translator.called:
            text = ir.StringImm(mathir.module_text(self.translator.called))
            body = tirx.AttrStmt(ir.StringImm(""), "pragma_import_llvm", text, body)
        made = tirx.PrimFunc(parameters, body)
        return made.with_attr("global_symbol", name).with_attr(NOALIAS, noalias)

    # Names and values

    def name(self, value: SSAValue | None, default: str) -> str:
        hint = value.name_hint if value is not None else None
        base = c_identifier(hint or default)
        self.names[base] = self.names.get(base, 0) + 1
        return base if self.names[base] == 1 else f"{base}_{self.names[base]}"

    def bind(self, scalar: Scalar, value: SSAValue | None = None, default: str = "t") -> Scalar:
        """The scalar, computed here.

        Where TVM analyses integers, comparisons and choices, it puts the definition of a binding
        in place of each of its uses, which takes exponential time if bindings are made of
        bindings. It does not look into memory, so such a value is stored in a local buffer.
        """
        if _is_analysed(scalar):
            local = self.local(self.name(value, default), scalar.type, scalar.lanes)
            self.out.append(local.set(scalar))
            return self.from_memory(local.get(), value, default)
        variable = tirx.Var(self.name(value, default), scalars.vector(scalar.type, scalar.lanes))
        self.out.append(tirx.Bind(variable, scalar.expr))
        return scalar._replace(expr=variable)

    def loops(self, value: SSAValue) -> tuple[affine.ForOp, ...]:
        """The tiled loops around this place that the value depends on."""
        depends = self.dependences.get(value, frozenset())
        return tuple(loop for loop in self.axes if loop in depends)

    def key(self, value: SSAValue, at: At) -> tuple[int, ...]:
        return tuple(at.get(loop, 0) for loop in self.loops(value))

    def each(self, loops: Sequence[affine.ForOp], at: At) -> Iterator[dict[affine.ForOp, int]]:
        """`at`, with every choice of a copy for those of the loops that it says nothing about."""
        free = [loop for loop in loops if loop not in at and self.axes[loop].piece.copies > 1]
        for copies in product(*(range(self.axes[loop].piece.copies) for loop in free)):
            yield {**at, **dict(zip(free, copies, strict=True))}

    def each_of(self, values: Sequence[SSAValue], at: At) -> Iterator[dict[affine.ForOp, int]]:
        """The same for all loops that one of the values depends on."""
        return self.each(list(dict.fromkeys(loop for v in values for loop in self.loops(v))), at)

    def lanes(self, value: SSAValue) -> int:
        return max((self.axes[loop].piece.lanes for loop in self.loops(value)), default=1)

    def scalar(self, value: SSAValue, at: At) -> Scalar:
        key = self.key(value, at)
        if (found := self.scalars.get(value, {}).get(key)) is not None:
            return found
        if value not in self.indices:
            hint = f"%{value.name_hint}" if value.name_hint else "a value"
            raise InputError(f"{hint} is used where it is not defined")
        return self.index_expr(self.indices[value][key], at)

    def index(self, value: SSAValue, at: At) -> Index:
        key = self.key(value, at)
        if (found := self.indices.get(value, {}).get(key)) is not None:
            return found
        # Read from memory, or carried by a loop: a variable of unknown range.
        scalar = self.scalars[value][key]
        variable = Variable(self.name(value, "position"))
        self.variables[variable.name] = scalar
        self.indices.setdefault(value, {})[key] = index = Index.of(variable)
        return index

    def define(self, value: SSAValue, at: At, scalar: Scalar) -> None:
        self.scalars.setdefault(value, {})[self.key(value, at)] = scalar
        # Of an earlier piece of the loop, or of the other branch of a guard.
        self.indices.get(value, {}).pop(self.key(value, at), None)

    def define_index(self, value: SSAValue, at: At, index: Index) -> None:
        self.indices.setdefault(value, {})[self.key(value, at)] = index
        self.scalars.get(value, {}).pop(self.key(value, at), None)

    # Indices

    def map(self, map_: AffineMap, operands: Sequence[SSAValue], at: At) -> list[Index]:
        indices = [self.index(operand, at) for operand in operands]
        return mapped(map_, indices, self.facts_at(at))

    def facts_at(self, at: At) -> Facts:
        """What guards say about these copies."""
        facts = NO_FACTS
        for predicate in self.predicates:
            facts = facts.and_(predicate.facts(at).nonnegative)
        return facts

    def index_expr(self, index: Index, at: At) -> Scalar:
        """The number. What is linear in the lane is a ramp, so that accesses are of vectors."""
        _check_range(index)
        lane = [(t, c) for t, c in index.terms if isinstance(t, Variable) and t in self.lane_axes()]
        rest = Index(tuple(p for p in index.terms if p not in lane), index.constant)
        total: Scalar | None = None
        constant = rest.constant
        for term, coefficient in rest.terms:
            part, shift = self.term(term, at)
            constant -= shift * coefficient
            if coefficient != 1:
                part = scalars.arithmetic(tirx.Mul, part, scalars.integer(coefficient))
            total = part if total is None else scalars.arithmetic(tirx.Add, total, part)
        if total is None:
            total = scalars.integer(constant)
        elif constant:
            total = scalars.arithmetic(tirx.Add, total, scalars.integer(constant))
        for variable, coefficient in lane:
            lanes = self.lane_axes()[variable]
            if total.lanes == 1:
                ramp = tirx.Ramp(total.expr, scalars.integer(coefficient).expr, lanes)
                total = Scalar(ramp, "int32", lanes)
            else:
                ramp = tirx.Ramp(scalars.integer(0).expr, scalars.integer(coefficient).expr, lanes)
                total = scalars.arithmetic(tirx.Add, total, Scalar(ramp, "int32", lanes))
        return total

    def lane_axes(self) -> dict[Variable, int]:
        return {a.lane: a.piece.lanes for a in self.axes.values() if a.lane is not None}

    def term(self, term: Variable | Quotient | Remainder, at: At) -> tuple[Scalar, int]:
        """A term, and by how much it is too large: divisions are of numbers >= 0."""
        if isinstance(term, Variable):
            return self.variables[term.name], 0
        low = self.facts_at(at).low(term.dividend)
        if low is None:
            raise ValueError(f"the sign of a dividend of {term.divisor} is unknown")
        shift = -(low // term.divisor) if low < 0 else 0
        dividend = self.index_expr(term.dividend + Index((), shift * term.divisor), at)
        if isinstance(term, Quotient):
            return scalars.arithmetic(tirx.Div, dividend, scalars.integer(term.divisor)), shift
        return scalars.arithmetic(tirx.Mod, dividend, scalars.integer(term.divisor)), 0

    # Memory

    def load(self, op: Operation, source: SSAValue, indices: Sequence[Index], at: At) -> None:
        result = op.results[0]
        if (strip := self.strips.get((op, self.key(result, at)))) is not None:
            self.define(result, at, strip[self.strip_position])
            return
        buffer, dtype = self.buffers[source]
        place = self.safe(flat_index(source, indices), source, at)
        loaded = Scalar(tirx.BufferLoad(buffer, [place.expr]), dtype, place.lanes)
        self.define(result, at, self.from_memory(loaded, result))

    def from_memory(self, loaded: Scalar, value: SSAValue | None, default: str = "t") -> Scalar:
        """What was loaded as it is computed with: bytes as booleans.

        The comparison of a byte is written where it is used: TVM's analysis of bindings does not
        know vectors of booleans.
        """
        bound = self.bind(loaded, value, default)
        return scalars.not_zero(bound) if loaded.type == "int8" else bound

    def safe(self, flat: Index, buffer: SSAValue, at: At) -> Scalar:
        """An index to load from, also where a guard does not hold and the value is not used."""
        test: Scalar | None = None
        outermost: _Predicate | None = None
        for predicate in self.predicates:
            found = predicate.test(at)
            if found is None:
                continue
            outermost = outermost or predicate
            test = found if test is None else scalars.arithmetic(tirx.And, test, found)
        if test is None or outermost is None:
            return self.index_expr(flat, at)
        size = elements_of(buffer.type)
        low, high = flat.bounds
        if low is not None and low >= 0 and high is not None and high < size:
            return self.index_expr(flat, at)
        # Loops inside the guard count on from a place that is chosen outside of them.
        inner = Index(tuple(p for p in flat.terms if self.is_inside(p[0], outermost)))
        low, high = inner.bounds
        if low is None or low < 0 or high is None or high >= size:
            inner = Index()
        start = self.index_expr(flat - inner, at)
        test = scalars.widened(test, start.lanes)
        chosen = tirx.Select(test.expr, start.expr, scalars.number(0, start).expr)
        place = self.bind(start._replace(expr=chosen), None, "place")
        if not inner.terms:
            return place
        return scalars.arithmetic(tirx.Add, place, self.index_expr(inner, at))

    def is_inside(self, term: Any, predicate: _Predicate) -> bool:
        """Whether a term varies within the guard, and is no vector."""
        if not isinstance(term, Variable) or term.name in predicate.outside:
            return False
        return self.variables[term.name].lanes == 1

    def store(self, value: Scalar, target: SSAValue, indices: Sequence[Index], at: At) -> None:
        if target not in self.buffers or target.owner is not self.function.body.block:
            raise InputError("a kernel stores to what is not one of its arguments")
        buffer, dtype = self.buffers[target]
        place = self.index_expr(flat_index(target, indices), at)
        value = scalars.widened(value, place.lanes)
        if value.lanes > place.lanes:
            raise InputError("several iterations of a parallel loop store to one element")
        if dtype == "int8":
            value = scalars.cast(value, "int8")
        self.out.append(tirx.BufferStore(buffer, value.expr, [place.expr]))

    def mutable(self, value: SSAValue, default: str) -> _Local:
        """A variable that can be assigned, for a value that loops or guards determine."""
        type_ = scalars.scalar_dtype(value.type)
        return self.local(self.name(value, default), type_, self.lanes(value))

    def local(self, name: str, type_: str, lanes: int) -> _Local:
        local = _Local(name, type_, lanes)
        self.out.append(tirx.AllocBuffer(local.buffer, {_ON_STACK: tirx.IntImm("bool", 1)}))
        return local

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
                case affine.StoreOp():
                    for here in self.each(list(self.axes), at):
                        indices = self.map(op.map.data, op.indices, here)
                        self.store(self.scalar(op.value, here), op.memref, indices, here)
                case memref.StoreOp():
                    for here in self.each(list(self.axes), at):
                        indices = [self.index(i, here) for i in op.indices]
                        self.store(self.scalar(op.value, here), op.memref, indices, here)
                case affine.LoadOp():
                    for here in self.each_of([op.result], at):
                        indices = self.map(op.map.data, op.indices, here)
                        self.load(op, op.memref, indices, here)
                case memref.LoadOp():
                    for here in self.each_of([op.res], at):
                        indices = [self.index(i, here) for i in op.indices]
                        self.load(op, op.memref, indices, here)
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
        start, end = loop_bounds(op)
        pieces = self.tiling.get(op, (Piece(start, end - start),))
        for piece in pieces:
            with self.loop(op.body.block.args[0], piece.tiles) as tile:
                base = tile * piece.iterations + Index((), piece.start)
                lane = None
                if piece.lanes > 1:
                    lane = Variable(self.name(None, "lane"), 0, piece.lanes - 1)
                    ramp = tirx.Ramp(scalars.integer(0).expr, scalars.integer(1).expr, piece.lanes)
                    self.variables[lane.name] = Scalar(ramp, "int32", piece.lanes)
                self.axes[op] = _Axis(base, piece, lane)
                variable = op.body.block.args[0]
                for here in self.each([op], at):
                    index = base + Index((), here.get(op, 0) * piece.lanes)
                    if lane is not None:
                        index += Index.of(lane)
                    self.define_index(variable, here, index)
                self.operations(op.body.block, at)
                del self.axes[op]

    @contextmanager
    def loop(self, variable: SSAValue, count: int, start: int = 0) -> Iterator[Index]:
        """What is emitted inside runs `count` times; a loop that runs once is none."""
        outer, self.out = self.out, []
        name = self.name(variable, "i")
        counter = tirx.Var(name, "int32")
        self.variables[name] = Scalar(counter, "int32")
        yield Index.of(Variable(name, start, start + count - 1)) if count > 1 else Index((), start)
        inner, self.out = self.out, outer
        if count > 1:
            first, extent = scalars.integer(start).expr, scalars.integer(count).expr
            kind = tirx.ForKind.SERIAL
            self.out.append(tirx.For(counter, first, extent, kind, _sequence(inner)))
        elif count == 1:
            # Names stay apart, so the statements can stand where they are.
            self.out += inner

    def reduction(self, op: affine.ForOp, at: At) -> None:
        """A loop that carries values from one iteration to the next.

        If it runs along the rows of a matrix and lanes along a column, it is done in strips: as
        many vectors are loaded along the rows as there are lanes, and transposed in registers.
        """
        variable, *carried = op.body.block.args
        places = [list(self.each_of([argument], at)) for argument in carried]
        locals_: dict[tuple[int, tuple[int, ...]], _Local] = {}
        for i, (argument, init) in enumerate(zip(carried, op.inits, strict=True)):
            for here in places[i]:
                local = self.mutable(argument, "acc")
                locals_[i, self.key(argument, here)] = local
                self.out.append(local.set(self.scalar(init, here)))

        def start() -> None:
            for i, argument in enumerate(carried):
                for here in places[i]:
                    local = locals_[i, self.key(argument, here)]
                    self.define(argument, here, self.from_memory(local.get(), argument, "acc"))

        def step() -> None:
            self.operations(op.body.block, at)
            values = yielded(op.body.block)
            news = [
                (argument, here, self.scalar(values[i], here))
                for i, argument in enumerate(carried)
                for here in places[i]
            ]
            for argument, here, new in news:
                self.define(argument, here, scalars.widened(new, self.lanes(argument)))

        def finish() -> None:
            # All bindings stand for values from before, so the order does not matter.
            for i, argument in enumerate(carried):
                for here in places[i]:
                    local = locals_[i, self.key(argument, here)]
                    self.out.append(local.set(self.scalar(argument, here)))

        first, end = loop_bounds(op)
        transposed, size = self.transposed_loads(op, at)
        if transposed and end - first >= size:
            strips = (end - first) // size
            with self.loop(variable, strips) as strip:
                start()
                base = strip * size + Index((), first)
                self.define_index(variable, {}, base)
                for load in transposed:
                    self.load_strip(load, size, at)
                for position in range(size):
                    self.define_index(variable, {}, base + Index((), position))
                    self.strip_position = position
                    step()
                self.strips = {}
                finish()
            first += strips * size
        with self.loop(variable, end - first, first) as position:
            start()
            self.define_index(variable, {}, position)
            step()
            finish()
        for i, (argument, result) in enumerate(zip(carried, op.results, strict=True)):
            for here in places[i]:
                local = locals_[i, self.key(argument, here)]
                self.define(result, here, self.from_memory(local.get(), result, "acc"))

    def transposed_loads(self, op: affine.ForOp, at: At) -> tuple[list[affine.LoadOp], int]:
        """Loads directly in the loop with a stride along lanes, and none along the loop; and how
        many iterations to do at a time: a power of two, at least the lanes."""
        axis = next((a for a in self.axes.values() if a.lane is not None), None)
        body = op.body.block
        if axis is None or axis.lane is None or any(inner.regions for inner in body.ops):
            return [], 0
        first, end = loop_bounds(op)
        probe = Variable("probe", first, end - 1)
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
            terms = dict(flat_index(load.memref, self.map(load.map.data, load.indices, here)).terms)
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
            flat = flat_index(load.memref, self.map(load.map.data, load.indices, here))
            stride = dict(flat.terms)[axis.lane]
            along = Index(tuple(p for p in flat.terms if p[0] != axis.lane), flat.constant)
            rows: list[Scalar] = []
            for lane in range(axis.piece.lanes):
                place = self.safe(along + Index((), lane * stride), load.memref, here)
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

    def guard(self, op: affine.IfOp, at: At) -> None:
        """A branch on what copies have in common; where they differ, both sides and a choice."""
        places = list(self.each_of(op.args, at))
        conditions = [self.condition(op, here) for here in places]
        common = conditions[0].tests
        for condition in conditions[1:]:
            common = tuple(test for test in common if test in condition.tests)
        if any(condition.never for condition in conditions):
            common = ()
        rest = [condition.without(common) for condition in conditions]
        if _stores(op) and len(places) > 1 and any(condition.tests for condition in rest):
            for here in places:
                self.guard(op, here)
            return
        if not common:
            values = self.sides(op, at, places, rest)
        else:
            values = self.branch(op, at, places, common, rest)
        for result, found in zip(op.results, values, strict=True):
            for here in self.each_of([result], at):
                self.define(result, here, found[self.key(result, here)])

    def branch(
        self,
        op: affine.IfOp,
        at: At,
        places: Sequence[At],
        common: Sequence[_Test],
        rest: Sequence[_Condition],
    ) -> list[_Values]:
        """A branch on tests that are the same for all copies."""
        test = self.test(common, places[0])
        locals_ = [
            {self.key(r, here): self.mutable(r, "t") for here in self.each_of([r], at)}
            for r in op.results
        ]
        branches: list[Stmt | None] = []
        for side in (True, False):
            outer, self.out = self.out, []
            other = op.else_region
            values = self.sides(op, at, places, rest) if side else self.side(op, other, at)
            for local, found in zip(locals_, values, strict=True):
                self.out += [local[key].set(found[key]) for key in local]
            inner, self.out = self.out, outer
            branches.append(_sequence(inner) if inner else None)
        then, otherwise = branches
        self.out.append(tirx.IfThenElse(test.expr, then or _sequence([]), otherwise))
        return [
            {key: self.from_memory(local.get(), result) for key, local in found.items()}
            for result, found in zip(op.results, locals_, strict=True)
        ]

    def sides(
        self, op: affine.IfOp, at: At, places: Sequence[At], conditions: Sequence[_Condition]
    ) -> list[_Values]:
        """One side of a guard if all copies take it, else both as far as any copy does."""
        loops = tuple(dict.fromkeys(loop for value in op.args for loop in self.loops(value)))
        tests: list[bool | Scalar] = []
        for here, condition in zip(places, conditions, strict=True):
            if condition.never or not condition.tests:
                tests.append(not condition.never)
            else:
                tests.append(self.bind(self.test(condition.tests, here), None, "inside"))
        if all(test is False for test in tests):
            return self.side(op, op.else_region, at)
        facts = [condition.facts for condition in conditions]
        outside = frozenset(self.variables)
        inside = _Predicate(loops, places, tests, facts, outside)
        then = self.side(op, op.then_region, at, inside)
        if all(test is True for test in tests):
            return then
        negated = [_negated(test) for test in tests]
        nothing = [NO_FACTS] * len(places)
        beyond = _Predicate(loops, places, negated, nothing, outside)
        otherwise = self.side(op, op.else_region, at, beyond)
        values: list[_Values] = [{} for _ in op.results]
        for i, result in enumerate(op.results):
            for here in self.each_of([result], at):
                key, test = self.key(result, here), inside.exact(here)
                yes, no = then[i][key], otherwise[i][key]
                if isinstance(test, bool):
                    values[i][key] = yes if test else no
                else:
                    values[i][key] = self.bind(self.chosen(test, yes, no), result)
        return values

    def side(
        self, op: affine.IfOp, region: Region, at: At, predicate: _Predicate | None = None
    ) -> list[_Values]:
        """What one side of a guard hands on, computed here."""
        if not region.blocks:
            return []
        if predicate is not None:
            self.predicates.append(predicate)
        self.operations(region.block, at)
        if predicate is not None:
            self.predicates.pop()
        return [
            {
                self.key(result, here): self.scalar(value, here)
                for here in self.each_of([result], at)
            }
            for result, value in zip(op.results, yielded(region.block), strict=True)
        ]

    def chosen(self, test: Scalar, yes: Scalar, no: Scalar) -> Scalar:
        lanes = max(yes.lanes, no.lanes)
        test, yes, no = (scalars.widened(value, lanes) for value in (test, yes, no))
        return Scalar(tirx.Select(test.expr, yes.expr, no.expr), yes.type, lanes)

    def condition(self, op: affine.IfOp, at: At) -> _Condition:
        """What is not known about a guard, and what is known where it holds."""
        indices = [self.index(operand, at) for operand in op.args]
        facts = self.facts_at(at)
        tests: list[_Test] = []
        for index, equal in constraints_of(op.condition.data, indices, facts):
            low, high = facts.low(index), facts.high(index)
            if (high is not None and high < 0) or (equal and low is not None and low > 0):
                return _Condition((), NO_FACTS, never=True)
            if low is None or low < 0 or (equal and (high is None or high > 0)):
                tests.append((index, equal))
            facts = facts.and_([index, index * -1] if equal else [index])
        return _Condition(tuple(tests), facts)

    def test(self, tests: Sequence[_Test], at: At) -> Scalar:
        """Whether all of the tests hold."""
        result: Scalar | None = None
        for index, equal in tests:
            node = tirx.EQ if equal else tirx.GE
            left = self.index_expr(index, at)
            one = scalars.arithmetic(node, left, scalars.integer(0))._replace(type="bool")
            result = one if result is None else scalars.arithmetic(tirx.And, result, one)
        assert result is not None
        if result.lanes > 1:
            raise InputError("a guard differs between the lanes of a vector")
        return result

    # Scalar operations

    def operation(self, op: Operation, at: At) -> None:
        if len(op.results) != 1 or op.regions:
            raise InputError(f"the TVM backend does not know {op.name}")
        result = op.results[0]
        if isinstance(op, arith.ConstantOp):
            match op.value:
                case IntegerAttr() if isinstance(result.type, IndexType):
                    self.define_index(result, at, Index((), op.value.value.data))
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


class _Predicate:
    """A guard that holds for some copies: a test for each choice of copies of `loops`.

    `outside` are the names of variables from around the guard.
    """

    def __init__(
        self,
        loops: Sequence[affine.ForOp],
        places: Sequence[At],
        tests: Sequence[bool | Scalar],
        facts: Sequence[Facts],
        outside: frozenset[str],
    ) -> None:
        self.loops, self.outside = loops, outside
        self.places, self.tests, self.all_facts = places, tests, facts

    def matching(self, at: At) -> list[int]:
        """The choices that agree with `at`."""
        return [
            i
            for i, place in enumerate(self.places)
            if all(at.get(loop, place.get(loop)) == place.get(loop) for loop in self.loops)
        ]

    def exact(self, at: At) -> bool | Scalar:
        """The test of copies that fix all loops of the guard."""
        (index,) = self.matching(at)
        return self.tests[index]

    def test(self, at: At) -> Scalar | None:
        """Whether the guard holds for any of the copies at hand; None if it surely does."""
        tests = [self.tests[i] for i in self.matching(at)]
        if any(test is True for test in tests):
            return None
        open_tests = [test for test in tests if isinstance(test, Scalar)]
        if not open_tests:
            return Scalar(tirx.IntImm("bool", 0), "bool")
        result = open_tests[0]
        for test in open_tests[1:]:
            result = result._replace(expr=tirx.Or(result.expr, test.expr))
        return result

    def facts(self, at: At) -> Facts:
        """What the guard establishes, if `at` says which copies these are."""
        found = self.matching(at)
        return self.all_facts[found[0]] if len(found) == 1 else NO_FACTS


def _negated(test: bool | Scalar) -> bool | Scalar:
    return not test if isinstance(test, bool) else test._replace(expr=tirx.Not(test.expr))


def _stores(op: Operation) -> bool:
    return any(isinstance(inner, affine.StoreOp | memref.StoreOp) for inner in op.walk())


def _is_analysed(scalar: Scalar) -> bool:
    """Whether TVM's analysis looks into an expression, for each use of what it is bound to."""
    leaf = isinstance(scalar.expr, ir.TensorLoad | tirx.Var | tirx.IntImm)
    return not leaf and (scalar.type != "float32" or isinstance(scalar.expr, tirx.Select))


class _Local:
    """A variable of a kernel that is assigned: a buffer of one vector."""

    def __init__(self, name: str, type_: str, lanes: int) -> None:
        self.type, self.lanes = type_, lanes
        self.memory_type = "int8" if type_ == "bool" else type_
        # One vector, not an array of numbers: that would be accessed number by number.
        dtype = scalars.vector(self.memory_type, lanes)
        self.buffer = tirx.decl_buffer((1,), dtype, name, scope="local")
        self.place = scalars.integer(0).expr

    def get(self) -> Scalar:
        return Scalar(tirx.BufferLoad(self.buffer, [self.place]), self.memory_type, self.lanes)

    def set(self, value: Scalar) -> Stmt:
        value = scalars.widened(value, self.lanes)
        if self.type == "bool":
            value = scalars.cast(value, "int8")
        return tirx.BufferStore(self.buffer, value.expr, [self.place])


def loop_bounds(op: affine.ForOp) -> tuple[int, int]:
    """The first iteration of a loop, and the one behind its last."""
    if op.lowerBoundOperands or op.upperBoundOperands or op.step.value.data != 1:
        raise InputError("affine.for needs constant bounds and a step of 1")
    (low,), (high,) = op.lowerBoundMap.data.eval([], []), op.upperBoundMap.data.eval([], [])
    return low, max(low, high)


def _check_range(index: Index) -> None:
    total = Index((), index.constant)
    for part in index.terms:
        total = Index((*total.terms, part), total.constant)
        low, high = total.bounds
        if (low is not None and low < -(2**31)) or (high is not None and high >= 2**31):
            raise ValueError("an index does not fit in 32 bits")


def _sequence(statements: Sequence[Stmt]) -> Stmt:
    if not statements:
        return tirx.Evaluate(scalars.integer(0).expr)
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))
