"""Updates of a table in place, in the rows alone that a scatter of a few rows reaches.

A kernel that subtracts such a gradient from a table runs over all rows, and of each looks up in a
sorted list whether something goes to it (`kernels/rows.py`). Where nothing does, it stores what it
has loaded, if that is so for each bit: `x - 0.0` is x, `x - -0.0` is not, nor `x - 0.0 * rate` with
a rate that is read from memory. Then the list is run over in place of the rows:

    for each element: table[element] = old[element], nothing where the table is in its place
    for each place in the list, the first of its row:
        for each element of the row: table[element] = update of table[element]

The list may have anything in it. A row that something goes to is in it at the place that looking it
up finds, as the lookup compares the two; so it is updated there, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.dialects import affine, arith, func, memref
from xdsl.dialects.builtin import (
    AffineMapAttr,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    UnitAttr,
    i64,
)
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue
from xdsl.ir.affine import (
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    AffineSymExpr,
)

from poetc.ir.dense import dtype_of
from poetc.ir.loops import parents
from poetc.kernels.addresses import COPIES, IN_ALL, SEQUENTIAL, extent
from poetc.kernels.analysis import buffers
from poetc.kernels.arrange import may_alias_too

_EQUAL = 0
_BELOW = 6  # of numbers without a sign

_ADDS = (arith.AddfOp, arith.AddiOp)
_SUBTRACTS = (arith.SubfOp, arith.SubiOp)
_MULTIPLIES = (arith.MulfOp, arith.MuliOp)


def in_rows(function: func.FuncOp, in_place: Collection[tuple[int, int]]) -> func.FuncOp:
    """A kernel with the same bits whose updates run over the rows alone that change, or the kernel
    itself; `in_place` are the pairs of a result and an operand that are one buffer in all calls."""
    if not _updates(function, in_place):
        return function
    copy = function.clone()
    for update in _updates(copy, in_place):
        update.replace()
    return copy if may_alias_too(copy, function) else function


def _updates(function: func.FuncOp, in_place: Collection[tuple[int, int]]) -> list[_Update]:
    """The updates of tables of a kernel that change some rows alone."""
    results, operands = buffers(function, "results"), buffers(function, "inputs")
    pairs = {(results[result], operands[operand]) for result, operand in in_place}
    return [
        update
        for op in function.body.block.ops
        if isinstance(op, affine.ForOp) and (update := _update(op, pairs)) is not None
    ]


@dataclass(frozen=True)
class _Update:
    """A loop over all rows of a table. `load` and `store` are those of an element of it; `rows` is
    the list in which a row is looked up, `begin` the place that this finds, by what is in `finds`.
    """

    loop: affine.ForOp
    load: affine.LoadOp
    store: affine.StoreOp
    rows: SSAValue
    begin: SSAValue
    finds: frozenset[Operation]

    def replace(self) -> None:
        """Puts the two nests in the place of the loop."""
        block = self.loop.parent_block()
        assert block is not None
        block.insert_ops_before([self._copy(), self._over_list()], self.loop)
        self.loop.detach()
        self.loop.erase()

    def _copy(self) -> affine.ForOp:
        """The nest that copies all elements."""
        around = [op for op in parents(self.store) if isinstance(op, affine.ForOp)]
        around = around[: around.index(self.loop) + 1]
        variables: dict[SSAValue, Block] = {
            loop.body.block.args[0]: Block(arg_types=[IndexType()]) for loop in around
        }
        for variable, block in variables.items():
            block.args[0].name_hint = variable.name_hint
        indices = [variables[each].args[0] for each in self.store.indices]
        load = affine.LoadOp(self.load.memref, indices, self.store.map)
        nest: list[Operation] = [
            load,
            affine.StoreOp(load.result, self.store.memref, indices, self.store.map),
        ]
        for loop, block in zip(around, variables.values(), strict=True):
            block.add_ops([*nest, affine.YieldOp.get()])
            nest = [affine.ForOp.from_region([], [], [], [], 0, extent(loop), Region(block))]
        (outer,) = nest
        assert isinstance(outer, affine.ForOp)
        outer.attributes[COPIES] = UnitAttr()
        return outer

    def _over_list(self) -> affine.ForOp:
        """The nest that updates the rows in the list."""
        assert isinstance(self.rows.type, MemRefType)
        (count,) = self.rows.type.get_shape()
        block = Block(arg_types=[IndexType()])
        (place,) = block.args
        place.name_hint = "r"
        number = memref.LoadOp.get(self.rows, [place])
        row = arith.IndexCastOp(number.res, IndexType())
        block.add_ops([number, row])
        new: dict[SSAValue, SSAValue] = {self.loop.body.block.args[0]: row.result}
        own = Block(arg_types=[IndexType()])
        for op in self.loop.body.block.ops:
            made = op.clone(new)
            (block if op in self.finds else own).add_op(made)
            new.update(zip(op.results, made.results, strict=True))
        limit = arith.ConstantOp(IntegerAttr(extent(self.loop), IndexType()))
        is_first = arith.CmpiOp(new[self.begin], place, _EQUAL)
        is_row = arith.CmpiOp(row.result, limit.result, _BELOW)
        both = arith.AndIOp(is_first.result, is_row.result)
        behind = AffineMap(1, 0, (AffineExpr.dimension(0) + 1,))
        after = affine.ApplyOp([place], AffineMapAttr(behind))
        end = arith.SelectOp(both.result, after.result, place)
        same = AffineMapAttr(AffineMap(0, 1, (AffineExpr.symbol(0),)))
        once = affine.ForOp.from_region([place], [end.result], [], [], same, same, Region(own))
        once.attributes[IN_ALL] = IntegerAttr(count, i64)
        block.add_ops([limit, is_first, is_row, both, after, end, once, affine.YieldOp.get()])
        for op in [op for op in once.walk() if isinstance(op, affine.LoadOp | affine.StoreOp)]:
            if row.result in op.indices:
                self._take(op)
        nest = affine.ForOp.from_region([], [], [], [], 0, count, Region(block))
        nest.attributes[SEQUENTIAL] = UnitAttr()
        return nest

    def _take(self, op: affine.LoadOp | affine.StoreOp) -> None:
        """Lets an access take a row that is read from memory, and the new table."""
        block = op.parent_block()
        assert block is not None
        indices: list[SSAValue] = []
        for result in op.map.data.results:
            if isinstance(result, AffineDimExpr | AffineSymExpr):
                first = op.map.data.num_dims if isinstance(result, AffineSymExpr) else 0
                indices.append(op.indices[first + result.position])
                continue
            assert isinstance(result, AffineConstantExpr)
            number = arith.ConstantOp(IntegerAttr(result.value, IndexType()))
            block.insert_op_before(number, op)
            indices.append(number.result)
        table = self.store.memref
        if isinstance(op, affine.StoreOp):
            block.insert_op_before(memref.StoreOp.get(op.value, table, indices), op)
        else:
            load = memref.LoadOp.get(table, indices)
            block.insert_op_before(load, op)
            op.result.replace_all_uses_with(load.res)
        op.detach()
        op.erase()


def _update(loop: affine.ForOp, in_place: Collection[tuple[SSAValue, SSAValue]]) -> _Update | None:
    """The update that a loop is, if it changes nothing in rows that are not looked up."""
    inside = [op for op in loop.walk() if op is not loop]
    stores = [op for op in inside if isinstance(op, affine.StoreOp | memref.StoreOp)]
    sums = [op for op in inside if IN_ALL in op.attributes]
    if IN_ALL in loop.attributes or len(stores) != 1 or len(sums) != 1:
        return None
    (store,), (sum_,) = stores, sums
    assert isinstance(sum_, affine.ForOp)
    found = _looked_up(loop, sum_)
    if found is None or not isinstance(store, affine.StoreOp):
        return None
    load = _without(sum_, store.value)
    if not isinstance(load, affine.LoadOp) or (store.memref, load.memref) not in in_place:
        return None
    if load.map != store.map or list(load.indices) != list(store.indices):
        return None
    rows, begin = found
    finds = _finding(begin, loop.body.block)
    if rows in (load.memref, store.memref) or load in finds or any(op.regions for op in finds):
        return None
    # Each element of a row is at the variables of the loops around.
    around = [op for op in parents(store) if op is not loop.parent_op()]
    own = {op.body.block.args[0] for op in around if isinstance(op, affine.ForOp)}
    kinds = AffineDimExpr | AffineSymExpr | AffineConstantExpr
    plain = all(isinstance(result, kinds) for result in store.map.data.results)
    row = loop.body.block.args[0]
    others = {
        use.operation
        for use in row.uses
        if not isinstance(use.operation, arith.IndexCastOp) and use.operation not in (load, store)
    }
    if others or not plain or not own.issuperset(store.indices) or row not in store.indices:
        return None
    if any(isinstance(op, affine.IfOp) for op in inside):
        return None
    return _Update(loop, load, store, rows, begin, finds)


def _finding(value: SSAValue, block: Block) -> frozenset[Operation]:
    """The operations of a block that a value in it comes from."""
    found: set[Operation] = set()
    pending = [value]
    while pending:
        op = pending.pop().owner
        if isinstance(op, Operation) and op.parent_block() is block and op not in found:
            found.add(op)
            pending += op.operands
    return frozenset(found)


def _looked_up(loop: affine.ForOp, sum_: affine.ForOp) -> tuple[SSAValue, SSAValue] | None:
    """The list in which the row of a loop is looked up, and the place that is found, of a sum that
    has no term where the list has another row there."""
    if len(sum_.lowerBoundOperands) != 1 or len(sum_.upperBoundOperands) != 1:
        return None
    (begin,), (end,) = sum_.lowerBoundOperands, sum_.upperBoundOperands
    if not isinstance(begin.owner, arith.IndexCastOp) or not isinstance(
        end.owner, arith.IndexCastOp
    ):
        return None
    choice = end.owner.input.owner
    if begin.owner.parent_block() is not loop.body.block or not isinstance(choice, arith.SelectOp):
        return None
    hit = choice.cond.owner
    if choice.rhs is not begin.owner.input or not isinstance(hit, arith.CmpiOp):
        return None
    there, row = hit.lhs.owner, hit.rhs.owner
    if hit.predicate.value.data != _EQUAL or not isinstance(row, arith.IndexCastOp):
        return None
    if not isinstance(there, memref.LoadOp) or list(there.indices) != [begin]:
        return None
    is_list = isinstance(there.memref, BlockArgument) and row.input is loop.body.block.args[0]
    return (there.memref, begin) if is_list else None


def _without(sum_: affine.ForOp, value: SSAValue) -> Any:
    """A value where a sum has no term: a load whose bits it has, or a number of NumPy; None where
    neither is known."""
    op = value.owner
    if op is sum_:
        inits = zip(sum_.results, sum_.inits, strict=True)
        return _without(sum_, next(init for result, init in inits if result is value))
    if isinstance(op, affine.LoadOp):
        return op
    if isinstance(op, arith.ConstantOp):
        assert isinstance(op.value, FloatAttr | IntegerAttr)
        if isinstance(value.type, IndexType):
            return None
        return dtype_of(value.type).type(op.value.value.data)
    if not isinstance(op, (*_ADDS, *_SUBTRACTS, *_MULTIPLIES)) or value.type == IntegerType(1):
        return None
    left, right = _without(sum_, op.operands[0]), _without(sum_, op.operands[1])
    if left is None or right is None:
        return None
    if not isinstance(left, affine.LoadOp) and not isinstance(right, affine.LoadOp):
        with np.errstate(all="ignore"):
            if isinstance(op, _MULTIPLIES):
                return left * right
            return left + right if isinstance(op, _ADDS) else left - right
    if isinstance(op, _MULTIPLIES):
        neutral, sides = 1, ((left, right), (right, left))
    elif isinstance(op, _ADDS):
        neutral, sides = -0.0, ((left, right), (right, left))
    else:
        neutral, sides = 0.0, ((left, right),)
    return next((kept for kept, number in sides if _is(number, neutral)), None)


def _is(number: object, neutral: float) -> bool:
    """Whether a number is this one, with its sign; zero of integers has none."""
    if not isinstance(number, np.generic) or number != neutral:
        return False
    signs = np.signbit(number), np.signbit(neutral)
    return isinstance(number, np.integer) or signs[0] == signs[1]


__all__ = ["in_rows"]
