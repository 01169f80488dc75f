"""Sums that run outside of the loops over what they are sums of, a block of terms at a time, so
that a buffer larger than a cache is read once, from its first to its last row.

    for i in 0 to 16:                      for i, k: y[i, k] = 0
      for k in 0 to 512:                   for b in 0 to 144:            // in order
        s = 0                                for i in 0 to 16:
        for b in 0 to 144:                     for k in 0 to 512:
          t = 0                     becomes      t = 0
          for c in 0 to 32:                      for c in 0 to 32:
            t += x[i, 32 b + c]                    t += x[i, 32 b + c] * w[32 b + c, k]
                 * w[32 b + c, k]                y[i, k] += t
          s += t                           for i, k: y[i, k] = f(y[i, k])
        y[i, k] = f(s)

Unfinished sums wait in the result. Each is made of the same terms in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects import affine, arith, func
from xdsl.dialects.builtin import IndexType, UnitAttr
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from poetc.ir.buffers import element_bytes
from poetc.kernels.access import linear_addresses
from poetc.kernels.addresses import SEQUENTIAL, extent
from poetc.kernels.analysis import buffer_bytes, buffers
from poetc.kernels.arrange.legality import may_jam
from poetc.kernels.dependences import yielded

Values = dict[SSAValue, SSAValue]
"""What stands for values in a copy."""

_LEAST_TERMS = 8
"""Terms of a block from which on loading and storing its sum is worth it."""


@dataclass(frozen=True)
class _Sums:
    """A nest of parallel loops, each of whose iterations stores one sum.

    `terms` are the loops of the sum but the innermost one, and `guards` what they are under: each
    the guard behind so many of these loops. The innermost of them adds the sum of a block of terms,
    `block`, to the one before.
    """

    loops: Sequence[affine.ForOp]
    terms: Sequence[affine.ForOp]
    guards: Sequence[affine.IfOp]
    block: affine.ForOp
    store: affine.StoreOp


def terms_outside(function: func.FuncOp, cache_bytes: int) -> func.FuncOp | None:
    """A copy of a kernel in which sums run outside of the loops over what they are sums of, where
    that reads a buffer larger than a cache by row; None where there are none such."""
    copy = function.clone()
    results = buffers(copy, "results")
    found = [
        sums
        for op in list(copy.body.block.ops)
        if isinstance(op, affine.ForOp)
        and (sums := _sums(op, results)) is not None
        and _is_read_by_row(sums, cache_bytes)
    ]
    for sums in found:
        _turn(sums)
    return copy if found else None


def _sums(outermost: affine.ForOp, results: Sequence[SSAValue]) -> _Sums | None:
    """The sums that a nest makes, if that is all it does."""
    loops = [outermost]
    while len(loops[-1].body.block.ops) == 2 and isinstance(
        inner := loops[-1].body.block.first_op, affine.ForOp
    ):
        loops.append(inner)
    body = loops[-1].body.block
    sums = [op for op in body.ops if op.regions]
    stores = [op for op in body.ops if isinstance(op, affine.StoreOp)]
    if len(sums) != 1 or len(stores) != 1 or any(loop.inits for loop in loops):
        return None
    terms: list[affine.ForOp] = []
    guards: list[affine.IfOp] = []
    op, before = sums[0], None
    while True:
        if not isinstance(op, affine.ForOp) or len(op.inits) != 1 or op.lowerBoundOperands:
            return None
        if before is not None and op.inits[0] is not before:
            return None
        terms.append(op)
        before = op.body.block.args[1]
        inside = [each for each in op.body.block.ops if each.regions]
        if len(inside) != 1:
            return None
        (op,) = inside
        if isinstance(op, affine.IfOp):
            guard = op
            then, other = guard.then_region.block, guard.else_region.blocks
            if not _hands_on(terms[-1].body.block, guard) or not other:
                return None
            if tuple(yielded(other[0])) != (before,) or len(other[0].ops) > 1:
                return None
            guards.append(guard)
            first = then.first_op
            if first is None or not _hands_on(then, first):
                return None
            op = first
        elif not _hands_on(terms[-1].body.block, op):
            break
    if not isinstance(op, affine.ForOp) or not op.inits:
        return None
    made = _Sums(loops, terms, guards, op, stores[0])
    return made if _may_turn(made, results) else None


def _hands_on(block: Block, op: Operation) -> bool:
    """Whether an operation is all there is in a block, which yields its results."""
    handed_on = tuple(yielded(block)) == tuple(op.results)
    return block.first_op is op and len(block.ops) == 2 and handed_on


def _may_turn(sums: _Sums, results: Sequence[SSAValue]) -> bool:
    """Whether the sum may wait in the result."""
    store, last = sums.store, sums.terms[-1]
    before = last.body.block.args[1]
    (total,) = yielded(last.body.block)
    adds = total.owner
    body = sums.loops[-1].body.block
    own = {*sums.terms[0].walk()}
    needed = {value.owner for op in own for value in op.operands} - own
    variables = {loop.body.block.args[0] for loop in sums.loops}
    return (
        store.memref in results
        and store.memref.uses.get_length() == 1
        and variables.issuperset(store.indices)
        and store.value.type == before.type
        and isinstance(adds, arith.AddfOp)
        and adds.lhs is before
        and before.uses.get_length() == 1
        and needed.isdisjoint(body.ops)
        and all(map(may_jam, sums.loops))
    )


def _is_read_by_row(sums: _Sums, cache_bytes: int) -> bool:
    """Whether the innermost loop runs along rows of a buffer larger than a cache, of which the rows
    for one block of terms stay in it."""
    variable = sums.loops[-1].body.block.args[0]
    loads = [op for op in sums.block.walk() if isinstance(op, affine.LoadOp)]
    rows = extent(sums.block)
    return rows >= _LEAST_TERMS and any(
        address is not None
        and address.terms.get(variable) == 1
        and sums.terms[-1].body.block.args[0] in address.terms
        and buffer_bytes(load.memref) > cache_bytes
        and rows * extent(sums.loops[-1]) * element_bytes(load.result.type) <= cache_bytes
        for load, address in linear_addresses(loads).items()
        if isinstance(load, affine.LoadOp)
    )


def _turn(sums: _Sums) -> None:
    """Replaces a nest by three: the first values of sums, the sums, and what is made of them."""
    store, body = sums.store, sums.loops[-1].body.block
    first, last = sums.terms[0], sums.terms[-1]
    (total,) = yielded(last.body.block)

    def begun(values: Values) -> list[Operation]:
        return [_stored(store, first.inits[0], values)]

    def added(values: Values) -> list[Operation]:
        before = _loaded(store, values)
        values[last.body.block.args[1]] = before.result
        ops = _cloned(list(last.body.block.ops)[:-1], values)
        return [before, *ops, _stored(store, total, values)]

    def finished(values: Values) -> list[Operation]:
        done = _loaded(store, values)
        values[first.results[0]] = done.result
        return [done, *_cloned([op for op in list(body.ops)[:-1] if op is not first], values)]

    values: Values = {}
    blocks = [_block(loop, values) for loop in sums.terms]
    ops = _over(sums.loops, sums.guards, added, values)
    for loop, block in zip(sums.terms[::-1], blocks[::-1], strict=True):
        new = _loop(loop, block, ops)
        new.attributes[SEQUENTIAL] = UnitAttr()
        ops = [new]
    nests = [*_over(sums.loops, (), begun, {}), *ops, *_over(sums.loops, (), finished, {})]
    for nest in nests:
        Rewriter.insert_op(nest, InsertPoint.before(sums.loops[0]))
    Rewriter.erase_op(sums.loops[0])


def _over(
    loops: Sequence[affine.ForOp],
    guards: Sequence[affine.IfOp],
    inside: Callable[[Values], list[Operation]],
    values: Values,
) -> Sequence[Operation]:
    """The loops around other content, under guards as far inside as their variables are."""
    blocks = [_block(loop, values) for loop in loops]
    depths: dict[SSAValue, int] = {
        loop.body.block.args[0]: depth for depth, loop in enumerate(loops, 1)
    }
    ops: Sequence[Operation] = inside(values)
    for depth in range(len(loops), -1, -1):
        for guard in reversed(guards):
            if max((depths.get(value, 0) for value in guard.args), default=0) == depth:
                ops = [_guarded(guard, ops, values)]
        if depth:
            ops = [_loop(loops[depth - 1], blocks[depth - 1], ops)]
    return ops


def _guarded(guard: affine.IfOp, ops: Sequence[Operation], values: Values) -> affine.IfOp:
    """Operations under a guard like this one, which hands on nothing."""
    return affine.IfOp.build(
        operands=[[values.get(value, value) for value in guard.args]],
        result_types=[[]],
        properties={"condition": guard.condition},
        regions=[Region(Block([*ops, affine.YieldOp.get()])), Region()],
    )


def _block(loop: affine.ForOp, values: Values) -> Block:
    """A block with the variable of a loop that is like this one."""
    block = Block(arg_types=[IndexType()])
    variable = loop.body.block.args[0]
    block.args[0].name_hint = variable.name_hint
    values[variable] = block.args[0]
    return block


def _loop(loop: affine.ForOp, block: Block, ops: Sequence[Operation]) -> affine.ForOp:
    """A loop like this one that carries no values, with these operations in a block."""
    block.add_ops([*ops, affine.YieldOp.get()])
    names = ("lowerBoundMap", "upperBoundMap", "step")
    return affine.ForOp.build(
        operands=[[], [], []],
        result_types=[[]],
        properties={name: loop.properties[name] for name in names},
        attributes=dict(loop.attributes),
        regions=[Region(block)],
    )


def _cloned(ops: Sequence[Operation], values: Values) -> list[Operation]:
    return [op.clone(values) for op in ops]


def _loaded(store: affine.StoreOp, values: Values) -> affine.LoadOp:
    """A load from the place of a store."""
    load = affine.LoadOp(store.memref, [values[v] for v in store.indices], store.map)
    load.result.name_hint = "sum"
    return load


def _stored(store: affine.StoreOp, value: SSAValue, values: Values) -> affine.StoreOp:
    """The same store of another value."""
    indices = [values[v] for v in store.indices]
    return affine.StoreOp(values.get(value, value), store.memref, indices, store.map)
