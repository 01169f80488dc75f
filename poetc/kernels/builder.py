"""Builds a loop nest from the inside: every scalar goes to the outermost scope that can hold it.

A stack of scopes (function, loops, guards) is open at any time. A scalar is emitted where its
operands are all defined and, for a load, where its indices are known to be in bounds; it is
remembered there, so that asking for it again costs nothing while that scope stays open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from xdsl.dialects import affine, arith, memref
from xdsl.dialects.builtin import (
    AffineMapAttr,
    AnyFloat,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    UnitAttr,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from poetc.ir.buffers import type_in_kernel
from poetc.ir.dense import dtype_of
from poetc.ir.index import (
    ZERO,
    Atom,
    Condition,
    Dynamic,
    Index,
    Var,
    affine_map,
    affine_set,
    constant,
    holds,
    within,
)
from poetc.ir.types import computed_type
from poetc.kernels.analysis import IN_ALL, SEQUENTIAL

_BOOL = IntegerType(1)


class Val(NamedTuple):
    """A scalar and the depth of the scope it was emitted in."""

    ssa: SSAValue
    depth: int
    element: Attribute | None = None
    """The element type, where that of the scalar in the code is another one."""

    @property
    def type(self) -> Attribute:
        return self.element or self.ssa.type

    def of(self, element: Attribute | None) -> Val:
        """The same scalar as a number of that element type."""
        return self._replace(element=None if element == self.ssa.type else element)


@dataclass
class Scope:
    """An open region: the function, a loop (`var`), or one side of a guard (`facts`)."""

    block: Block
    var: Var | None = None
    facts: tuple[Condition, ...] = ()
    guard: bool = False
    memo: dict[Hashable, Val] = field(default_factory=dict)


class Builder:
    """Emits scalars, loops, guards, loads and stores into a nest of open scopes."""

    def __init__(self, block: Block) -> None:
        self.scopes = [Scope(block)]
        # Integers that are positions in loops, not read from memory.
        self.positions: dict[SSAValue, Index] = {}
        self._numbers = 0

    # Scopes

    @contextmanager
    def at(self, depth: int) -> Iterator[None]:
        """Make the scope at `depth` the innermost one for a while: hoists what is built."""
        inner = self.scopes[depth + 1 :]
        del self.scopes[depth + 1 :]
        yield
        self.scopes.extend(inner)

    @property
    def depth(self) -> int:
        """Depth of the innermost open scope."""
        return len(self.scopes) - 1

    def sink(self, depth: int) -> int:
        """Move into guards for as long as that crosses no loop: inside a guard a scalar is
        evaluated only where it is wanted, and no more often."""
        while depth + 1 < len(self.scopes) and self.scopes[depth + 1].guard:
            depth += 1
        return depth

    def recall(self, key: Hashable) -> Val | None:
        """The value that an open scope has under `key`."""
        for scope in reversed(self.scopes):
            if (found := scope.memo.get(key)) is not None:
                return found
        return None

    def remember(self, key: Hashable, value: Val) -> Val:
        """Remember `value` for as long as its scope stays open."""
        self.scopes[value.depth].memo[key] = value
        return value

    def number(self) -> int:
        """A fresh number; variables are ordered by it."""
        self._numbers += 1
        return self._numbers

    def loop(
        self,
        extent: int,
        name: str,
        inits: Sequence[Val],
        body: Callable[[Var, list[Val]], Sequence[Val]],
        *,
        axis: object = None,
        part: int = 0,
        between: tuple[Val, Val] | None = None,
        in_order: bool = False,
    ) -> list[Val]:
        """An `affine.for` over `0 .. extent-1` in the innermost scope.

        `body` maps the loop variable and the accumulators to the next accumulators; the final ones
        are returned. The loop runs from the first to before the second of two positions `between`
        that are read from memory, in all at most `extent` times for different such ranges; its
        iterations read what others write if they are `in_order`.
        """
        types = [init.ssa.type for init in inits]
        block = Block(arg_types=[IndexType(), *types])
        block.args[0].name_hint = name
        for argument in block.args[1:]:
            argument.name_hint = "acc"
        depth = len(self.scopes)
        var = Var(self.number(), extent, axis, part, block.args[0], depth)
        self.scopes.append(Scope(block, var))
        pairs = zip(block.args[1:], inits, strict=True)
        results = body(var, [Val(argument, depth, init.element) for argument, init in pairs])
        block.add_op(affine.YieldOp.get(*(result.ssa for result in results)))
        self.scopes.pop()
        var.open = False
        if not extent:
            # Compilers warn of what only a loop that never runs would read.
            return list(inits)
        loop = _for(block, inits, extent, between)
        if in_order:
            loop.attributes[SEQUENTIAL] = UnitAttr()
        self.scopes[-1].block.add_op(loop)
        pairs = zip(loop.results, inits, strict=True)
        return [Val(result, depth - 1, init.element) for result, init in pairs]

    def guarded(
        self,
        conditions: Sequence[Condition],
        then: Callable[[], Sequence[Val]],
        otherwise: Callable[[], Sequence[Val]],
        opposite: Sequence[Condition] = (),
    ) -> list[Val]:
        """`then` where all conditions hold, else `otherwise`, as an `affine.if` in the innermost
        scope, or without one where the answer is known. `opposite` is what holds otherwise."""
        facts = [fact for scope in self.scopes for fact in scope.facts]
        open_conditions = [c for c in dict.fromkeys(conditions) if not holds(c, facts)]
        if any(c.negative() for c in open_conditions):
            return list(otherwise())
        if not open_conditions:
            return list(then())
        blocks: list[Block] = []
        for branch, known in ((then, tuple(open_conditions)), (otherwise, tuple(opposite))):
            block = Block()
            blocks.append(block)
            self.scopes.append(Scope(block, facts=known, guard=True))
            results = branch()
            block.add_op(affine.YieldOp.get(*(result.ssa for result in results)))
            self.scopes.pop()
            types = [result.ssa.type for result in results]
            elements = [result.element for result in results]
        condition, operands = affine_set(open_conditions)
        op = affine.IfOp.build(
            operands=[operands],
            result_types=[types],
            properties={"condition": condition},
            regions=[Region(blocks[0]), Region(blocks[1])],
        )
        self.scopes[-1].block.add_op(op)
        pairs = zip(op.results, elements, strict=True)
        return [Val(result, self.depth, element) for result, element in pairs]

    # Scalars

    def emit(
        self, key: Hashable, operands: Sequence[Val], make: Callable[[], Operation], depth: int = 0
    ) -> Val:
        """A pure operation on scalars. `key` with the operands identifies it."""
        full_key = (key, tuple(operand.ssa for operand in operands))
        if (found := self.recall(full_key)) is not None:
            return found
        for operand in operands:
            depth = max(depth, operand.depth)
        depth = self.sink(depth)
        op = make()
        self.scopes[depth].block.add_op(op)
        return self.remember(full_key, Val(op.results[0], depth))

    def constant(self, value: float | int, type: Attribute) -> Val:
        """A scalar constant, at the top of the function."""
        if (computed := computed_type(type)) != type:
            nearest = float(dtype_of(type).type(value))
            return self.constant(nearest, computed).of(type)
        if (code := type_in_kernel(type)) != type:
            assert isinstance(code, IntegerType)
            half = 1 << (code.bitwidth - 1)
            return self.constant((int(value) + half) % (2 * half) - half, code).of(type)
        is_float = isinstance(type, AnyFloat)
        # By text: -0.0 and 0.0 are equal but not the same, NaN is the same but not equal.
        key = (type, repr(float(value) if is_float else int(value)))
        if (found := self.recall(key)) is not None:
            return found
        op = arith.ConstantOp(
            FloatAttr(float(value), type) if is_float else IntegerAttr(int(value), type)  # pyright: ignore
        )
        op.result.name_hint = _constant_name(value)
        first = self.scopes[0].block
        last = next((o for o in first.ops if not isinstance(o, arith.ConstantOp)), None)
        if last is None:
            first.add_op(op)
        else:
            first.insert_op_before(op, last)
        return self.remember(key, Val(op.result, 0))

    def index_value(self, index: Index) -> Val:
        """The index as a scalar of type `index`."""
        if index.is_constant:
            return self.constant(index.const, IndexType())
        atom = index.single()
        if isinstance(atom, Var | Dynamic):
            assert atom.ssa is not None
            return Val(atom.ssa, atom.depth)
        if not index.is_dynamic:
            attribute, operands = affine_map([index])
            values = [Val(v.ssa, v.depth) for v in dict.fromkeys(index.vars()) if v.ssa]
            return self.emit(attribute, values, lambda: affine.ApplyOp(operands, attribute))
        return self._dynamic_value(index)

    def _dynamic_value(self, index: Index) -> Val:
        """Affine maps take loop variables only: add what was read from memory by hand."""
        fixed: dict[Atom, int] = {
            atom: c for atom, c in index.terms if not isinstance(atom, Dynamic)
        }
        start = Index(index.const, fixed)
        total = None if start == ZERO else self.index_value(start)
        for atom, c in index.terms:
            if not isinstance(atom, Dynamic):
                continue
            term = Val(atom.ssa, atom.depth)
            if c != 1:
                term = self.binary(arith.MuliOp, term, self.index_value(constant(c)))
            total = term if total is None else self.binary(arith.AddiOp, total, term)
        assert total is not None
        return total

    def binary(self, op: type[Operation], lhs: Val, rhs: Val) -> Val:
        """`op` applied to two scalars."""
        if lhs.ssa is rhs.ssa:
            if op in (arith.AndIOp, arith.OrIOp):
                return lhs
            if op in (arith.XOrIOp, arith.SubiOp):
                return self.constant(0, lhs.type)
        found = self.emit(op, [lhs, rhs], lambda: op(lhs.ssa, rhs.ssa))  # pyright: ignore
        return found.of(lhs.element)

    def unary(self, op: type[Operation], operand: Val, type: Attribute | None = None) -> Val:
        """`op` applied to a scalar, with the result type for conversions."""
        if type is None:
            found = self.emit(op, [operand], lambda: op(operand.ssa))  # pyright: ignore
            return found.of(operand.element)
        code = type_in_kernel(type)
        if op is arith.BitcastOp:
            operand = self.stored(operand)
            if code == operand.ssa.type:
                return self.loaded(operand).of(type)
        found = self.emit((op, code), [operand], lambda: op(operand.ssa, code))  # pyright: ignore
        return self.loaded(found).of(type)

    def rounded(self, number: Val, type: Attribute) -> Val:
        """A float of 32 bits as one of a type that has fewer."""
        return self.unary(arith.TruncFOp, number.of(None), type)

    def loaded(self, number: Val) -> Val:
        """A number as code computes with it, from one as it is in memory."""
        computed = computed_type(number.ssa.type)
        if computed == number.ssa.type:
            return number
        return self.unary(arith.ExtFOp, number, computed).of(number.ssa.type)

    def stored(self, number: Val) -> Val:
        """A number as it is in memory."""
        type = type_in_kernel(number.type)
        if type == number.ssa.type or not isinstance(type, AnyFloat):
            return number
        if isinstance(number.ssa.owner, arith.ExtFOp):
            return Val(number.ssa.owner.operands[0], number.depth)
        return self.emit((arith.TruncFOp, type), [number], lambda: arith.TruncFOp(number.ssa, type))

    def compare(self, predicate: str, lhs: Val, rhs: Val) -> Val:
        """`arith.cmpf` or `arith.cmpi`, as the operands' type asks."""
        op = arith.CmpfOp if isinstance(lhs.type, AnyFloat) else arith.CmpiOp
        if lhs.ssa is rhs.ssa and op is arith.CmpiOp:
            # Compilers warn of it. A float may be NaN.
            return self.constant(predicate in ("eq", "sle", "sge", "ule", "uge"), _BOOL)
        return self.emit((op, predicate), [lhs, rhs], lambda: op(lhs.ssa, rhs.ssa, predicate))

    def select(self, condition: Val, on_true: Val, on_false: Val) -> Val:
        """`arith.select`."""
        if on_true.ssa is on_false.ssa:
            return on_true
        found = self.emit(
            arith.SelectOp,
            [condition, on_true, on_false],
            lambda: arith.SelectOp(condition.ssa, on_true.ssa, on_false.ssa),
        )
        return found.of(on_true.element)

    # Memory

    def place(self, shape: Sequence[int], indices: Sequence[Index], depth: int = 0) -> int:
        """Depth of the outermost scope in which `indices` are defined and inside `shape`."""
        pending: list[Condition] = []
        for index, size in zip(indices, shape, strict=True):
            depth = max(depth, index.depth)
            pending += [c for c in within(index, size) if not holds(c, ())]
        if pending:
            facts = [fact for scope in self.scopes[: depth + 1] for fact in scope.facts]
            while depth < self.depth and not all(holds(c, facts) for c in pending):
                depth += 1
                facts += self.scopes[depth].facts
        return depth

    def load(self, buffer: SSAValue, indices: Sequence[Index], depth: int = 0) -> Val:
        """The element at `indices`, loaded no further out than `depth`."""
        assert isinstance(buffer.type, MemRefType)
        shape = buffer.type.get_shape()
        indices = [ZERO if n == 1 else i for i, n in zip(indices, shape, strict=True)]
        key = (buffer, tuple(indices))
        if (found := self.recall(key)) is not None:
            return found
        depth = self.sink(self.place(shape, indices, depth))
        if any(index.is_dynamic for index in indices):
            positions = [self.index_value(index) for index in indices]
            depth = self.sink(max([depth, *(position.depth for position in positions)]))
            op = memref.LoadOp.get(buffer, [position.ssa for position in positions])
        else:
            attribute, operands = affine_map(indices)
            op = affine.LoadOp(buffer, operands, attribute)
        self.scopes[depth].block.add_op(op)
        return self.remember(key, self.loaded(Val(op.results[0], depth)))

    def store(self, value: Val, buffer: SSAValue, indices: Sequence[Index]) -> None:
        """Store `value` in the innermost scope."""
        attribute, operands = affine_map(indices)
        value = self.stored(value)
        self.scopes[-1].block.add_op(affine.StoreOp(value.ssa, buffer, operands, attribute))


def _for(
    block: Block, inits: Sequence[Val], extent: int, between: tuple[Val, Val] | None
) -> affine.ForOp:
    starts = [init.ssa for init in inits]
    types = [start.type for start in starts]
    if between is None:
        return affine.ForOp.from_region([], [], starts, types, 0, extent, Region(block))
    first, end = ([bound.ssa] for bound in between)
    same = AffineMapAttr(AffineMap(0, 1, (AffineExpr.symbol(0),)))
    loop = affine.ForOp.from_region(first, end, starts, types, same, same, Region(block))
    loop.attributes[IN_ALL] = IntegerAttr(extent, i64)
    return loop


def _constant_name(value: float | int) -> str:
    if value == 0 and math.copysign(1, value) < 0:
        return "neg_zero"
    names = {0: "zero", 1: "one", float("inf"): "inf", float("-inf"): "neg_inf"}
    return names.get(value, "c")
