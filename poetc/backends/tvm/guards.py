"""Guards of a kernel: branches where all copies agree, else both sides and a choice."""

# TVM's annotations are narrower than what it takes.
# pyright: reportArgumentType=false, reportReturnType=false
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tvm import tirx
from xdsl.dialects import affine, memref
from xdsl.ir import Block, Operation, Region

from poetc.backends.c.indexing import constraints_of
from poetc.backends.tvm import scalars
from poetc.backends.tvm.scalars import Scalar
from poetc.backends.tvm.tiles import At
from poetc.backends.tvm.values import Predicate, Stmt, Values
from poetc.errors import InputError
from poetc.ir.index import NO_FACTS, Facts, Index
from poetc.kernels.dependences import yielded

Copied = dict[tuple[int, ...], Scalar]
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


class Guards(Values):
    """The translation of guards, for one of `operations`."""

    def operations(self, block: Block, at: At) -> None:
        """Emits all operations of a block but its terminator."""
        raise NotImplementedError

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
    ) -> list[Copied]:
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
            branches.append(sequence(inner) if inner else None)
        then, otherwise = branches
        self.out.append(tirx.IfThenElse(test.expr, then or sequence([]), otherwise))
        return [
            {key: self.from_memory(local.get(), result) for key, local in found.items()}
            for result, found in zip(op.results, locals_, strict=True)
        ]

    def sides(
        self, op: affine.IfOp, at: At, places: Sequence[At], conditions: Sequence[_Condition]
    ) -> list[Copied]:
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
        inside = Predicate(loops, places, tests, facts, outside)
        then = self.side(op, op.then_region, at, inside)
        if all(test is True for test in tests):
            return then
        negated = [_negated(test) for test in tests]
        nothing = [NO_FACTS] * len(places)
        beyond = Predicate(loops, places, negated, nothing, outside)
        otherwise = self.side(op, op.else_region, at, beyond)
        values: list[Copied] = [{} for _ in op.results]
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
        self, op: affine.IfOp, region: Region, at: At, predicate: Predicate | None = None
    ) -> list[Copied]:
        """The values that one side of a guard hands on, computed here."""
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
        """The constraints of a guard that are not known to hold, and the facts where it holds."""
        indices = [self.index(operand, at) for operand in op.args]
        facts = self.facts_at(at)
        tests: list[_Test] = []
        for index, equal in constraints_of(op.condition.data, indices, facts):
            low, high = facts.low(index), facts.high(index)
            if high < 0 or (equal and low > 0):
                return _Condition((), NO_FACTS, never=True)
            if low < 0 or (equal and high > 0):
                tests.append((index, equal))
            facts = facts.and_([index, -index] if equal else [index])
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


def _negated(test: bool | Scalar) -> bool | Scalar:
    return not test if isinstance(test, bool) else test._replace(expr=tirx.Not(test.expr))


def _stores(op: Operation) -> bool:
    return any(isinstance(inner, affine.StoreOp | memref.StoreOp) for inner in op.walk())


def sequence(statements: Sequence[Stmt]) -> Stmt:
    if not statements:
        return tirx.Evaluate(scalars.integer(0).expr)
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))
