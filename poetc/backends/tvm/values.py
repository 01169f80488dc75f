"""The values of a kernel while it is translated: names, scalars, indices, and memory."""

# TVM's annotations are narrower than what it takes.
# pyright: reportArgumentType=false, reportReturnType=false
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from tvm import ir, tirx
from xdsl.dialects import affine, func, memref
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineMap

from poetc.backends.c.indexing import flat_index, mapped
from poetc.backends.c.text import c_identifier
from poetc.backends.tvm import scalars
from poetc.backends.tvm.scalars import Expr, Scalar, Translator
from poetc.backends.tvm.tiles import At, Axis, Tiling, elements_of
from poetc.errors import InputError
from poetc.ir.index import NO_FACTS, ZERO, Atom, Facts, Index, Quotient, Variable, is_known
from poetc.kernels.access import Access
from poetc.kernels.dependences import dependences

_ON_STACK = "disable_lower_builtin"
"""Annotation of allocations that keeps them on the stack; TVM would call its runtime for each."""

Stmt = Any


@dataclass(frozen=True, eq=False)
class Predicate:
    """A guard that holds for some copies: a test for each choice of copies of `loops`.

    `outside` are the names of variables from around the guard.
    """

    loops: Sequence[affine.ForOp]
    places: Sequence[At]
    tests: Sequence[bool | Scalar]
    all_facts: Sequence[Facts]
    outside: frozenset[str]

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
        """The facts that the guard establishes, if `at` says which copies these are."""
        found = self.matching(at)
        return self.all_facts[found[0]] if len(found) == 1 else NO_FACTS


class Local:
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


class Values:
    """State while one kernel is translated."""

    def __init__(self, function: func.FuncOp, tiling: Tiling) -> None:
        self.function, self.tiling = function, tiling
        self.dependences = dependences(function)
        self.axes: dict[affine.ForOp, Axis] = {}
        # By value, then by the copies it belongs to.
        self.scalars: dict[SSAValue, dict[tuple[int, ...], Scalar]] = {}
        self.indices: dict[SSAValue, dict[tuple[int, ...], Index]] = {}
        self.buffers: dict[SSAValue, tuple[Expr, str]] = {}
        self.tables: dict[str, tuple[Expr, str]] = {}
        self.variables: dict[str, Scalar] = {}
        self.translator = Translator(self.bind)
        # Guards around this place that hold for some copies only.
        self.predicates: list[Predicate] = []
        # Vectors of loads that are transposed, by load and copies, for each iteration of a strip.
        self.strip_position = 0
        self.strips: dict[tuple[Operation, tuple[int, ...]], list[Scalar]] = {}
        self.out: list[Stmt] = []
        self.names: dict[str, int] = {}

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
        """The facts about these copies from all guards around them."""
        facts = NO_FACTS
        for predicate in self.predicates:
            facts = facts.and_(predicate.facts(at).nonnegative)
        return facts

    def index_expr(self, index: Index, at: At) -> Scalar:
        """The number. What is linear in the lane is a ramp, so that accesses are of vectors."""
        _check_range(index)
        lane = [(t, c) for t, c in index.terms if isinstance(t, Variable) and t in self.lane_axes()]
        rest = index - Index(0, dict(lane))
        total: Scalar | None = None
        constant = rest.const
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

    def term(self, term: Atom, at: At) -> tuple[Scalar, int]:
        """A term, and by how much it is too large: divisions are of numbers >= 0."""
        if isinstance(term, Variable):
            return self.variables[term.name], 0
        assert isinstance(term, Quotient)
        low = self.facts_at(at).low(term.of)
        if not is_known(low):
            raise ValueError(f"the sign of a dividend of {term.divisor} is unknown")
        shift = -(low // term.divisor) if low < 0 else 0
        dividend = self.index_expr(term.of + shift * term.divisor, at)
        if term.remainder:
            return scalars.arithmetic(tirx.Mod, dividend, scalars.integer(term.divisor)), 0
        return scalars.arithmetic(tirx.Div, dividend, scalars.integer(term.divisor)), shift

    # Memory

    def flat(self, op: Access, at: At) -> Index:
        """The element that a load or store is of, counted from the start of its buffer."""
        if isinstance(op, affine.LoadOp | affine.StoreOp):
            return flat_index(op.memref, self.map(op.map.data, op.indices, at))
        return flat_index(op.memref, [self.index(i, at) for i in op.indices])

    def load(self, op: affine.LoadOp | memref.LoadOp, at: At) -> None:
        source, result = op.memref, op.results[0]
        if (strip := self.strips.get((op, self.key(result, at)))) is not None:
            self.define(result, at, strip[self.strip_position])
            return
        buffer, dtype = self.buffers[source]
        place = self.safe(self.flat(op, at), source, at)
        loaded = Scalar(tirx.BufferLoad(buffer, [place.expr]), dtype, place.lanes)
        self.define(result, at, self.from_memory(loaded, result))

    def from_memory(self, loaded: Scalar, value: SSAValue | None, default: str = "t") -> Scalar:
        """A loaded value in the type that it is computed with: bytes become booleans.

        The comparison of a byte is written where it is used: TVM's analysis of bindings does not
        know vectors of booleans.
        """
        bound = self.bind(loaded, value, default)
        return scalars.not_zero(bound) if loaded.type == "int8" else bound

    def safe(self, flat: Index, buffer: SSAValue, at: At) -> Scalar:
        """An index to load from, also where a guard does not hold and the value is not used."""
        test: Scalar | None = None
        outermost: Predicate | None = None
        for predicate in self.predicates:
            found = predicate.test(at)
            if found is None:
                continue
            outermost = outermost or predicate
            test = found if test is None else scalars.arithmetic(tirx.And, test, found)
        if test is None or outermost is None:
            return self.index_expr(flat, at)
        size = elements_of(buffer.type)
        if flat.low >= 0 and flat.high < size:
            return self.index_expr(flat, at)
        # Loops inside the guard count on from a place that is chosen outside of them.
        inner = Index(0, {t: c for t, c in flat.terms if self.is_inside(t, outermost)})
        if inner.low < 0 or inner.high >= size:
            inner = ZERO
        start = self.index_expr(flat - inner, at)
        test = scalars.widened(test, start.lanes)
        chosen = tirx.Select(test.expr, start.expr, scalars.number(0, start).expr)
        place = self.bind(start._replace(expr=chosen), None, "place")
        if not inner.terms:
            return place
        return scalars.arithmetic(tirx.Add, place, self.index_expr(inner, at))

    def is_inside(self, term: Atom, predicate: Predicate) -> bool:
        """Whether a term varies within the guard, and is no vector."""
        if not isinstance(term, Variable) or term.name in predicate.outside:
            return False
        return self.variables[term.name].lanes == 1

    def store(self, op: affine.StoreOp | memref.StoreOp, at: At) -> None:
        value, target = self.scalar(op.value, at), op.memref
        if target not in self.buffers or target.owner is not self.function.body.block:
            raise InputError("a kernel stores to what is not one of its arguments")
        buffer, dtype = self.buffers[target]
        place = self.index_expr(self.flat(op, at), at)
        value = scalars.widened(value, place.lanes)
        if value.lanes > place.lanes:
            raise InputError("several iterations of a parallel loop store to one element")
        if dtype == "int8":
            value = scalars.cast(value, "int8")
        self.out.append(tirx.BufferStore(buffer, value.expr, [place.expr]))

    def mutable(self, value: SSAValue, default: str) -> Local:
        """A variable that can be assigned, for a value that loops or guards determine."""
        type_ = scalars.scalar_dtype(value.type)
        return self.local(self.name(value, default), type_, self.lanes(value))

    def local(self, name: str, type_: str, lanes: int) -> Local:
        local = Local(name, type_, lanes)
        self.out.append(tirx.AllocBuffer(local.buffer, {_ON_STACK: tirx.IntImm("bool", 1)}))
        return local


def _is_analysed(scalar: Scalar) -> bool:
    """Whether TVM's analysis looks into an expression, for each use of what it is bound to."""
    leaf = isinstance(scalar.expr, ir.TensorLoad | tirx.Var | tirx.IntImm)
    return not leaf and (scalar.type != "float32" or isinstance(scalar.expr, tirx.Select))


def _check_range(index: Index) -> None:
    total = Index(index.const)
    for atom, coefficient in index.terms:
        total += Index.of(atom) * coefficient
        if (total.low < -(2**31) and is_known(total.low)) or (
            total.high >= 2**31 and is_known(total.high)
        ):
            raise ValueError("an index does not fit in 32 bits")
