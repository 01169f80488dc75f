"""Reductions of several operands -> folds; sorting -> folds that count, and gathers.

A sort counts, for each element, those that go before it, and that is its place; the element for a
place is then found by comparing the places of all. Both loops read the operands where they are, in
time that grows with the square of the length: up to a few thousand elements that is little on the
devices at hand, and there is no limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from xdsl.ir import Attribute, Block, Region, SSAValue

from poetc.errors import InputError
from poetc.ir import stablehlo as hlo
from poetc.ir.dataflow import computed_from
from poetc.ir.locations import source_location
from poetc.ir.stablehlo_attributes import GatherDims
from poetc.simplify.driver import Rewriter, remove_dead

Emit = Callable[[hlo.StablehloOp], SSAValue]
"""Adds an operation; its result."""

FoldLike = hlo.ReduceTogetherOp | hlo.SortOp | hlo.TopKOp


def expand_folds(op: FoldLike, operands: Sequence[SSAValue], emit: Emit) -> list[SSAValue]:
    """The results of the operation on these operands, by other operations."""
    for body in op.regions:
        try:
            hlo.check_pure_body(op, body)
        except InputError as error:
            raise InputError(error.message, source_location(op)) from error
    if isinstance(op, hlo.ReduceTogetherOp):
        return [
            emit(
                hlo.FoldOp(
                    operands[: op.count], operands[op.count :], op.dims, op.body.clone(), number
                )
            )
            for number in range(op.count)
        ]
    shape = hlo.shape_of(operands[0])
    if isinstance(op, hlo.TopKOp):
        order = _order(operands, len(shape) - 1, op.k, _descending(operands[0]), emit)
        return [_taken(operands[0], order, len(shape) - 1, emit), order]
    if shape[op.dim] <= 1:
        return list(operands)
    order = _order(operands, op.dim, shape[op.dim], op.comparator.block, emit)
    return [_taken(value, order, op.dim, emit) for value in operands]


def fold_nothing(op: hlo.FoldOp, rewriter: Rewriter) -> SSAValue | None:
    """A fold over no elements -> what it starts from."""
    shape = hlo.shape_of(op.inputs[0])
    if 0 not in (shape[d] for d in op.dims):
        return None
    return rewriter.emit(hlo.BroadcastInDimOp(op.inits[op.number], (), hlo.shape_of(op.result)))


def carry_less(op: hlo.FoldOp, rewriter: Rewriter) -> SSAValue | None:
    """A fold -> one without the values and operands that its result does not depend on."""
    body = op.body.clone()
    block, end = body.block, body.block.last_op
    assert end is not None
    carried = len(op.inits)
    needed, reached = {op.number}, 0
    while reached < len(needed):
        reached = len(needed)
        live = computed_from([end.operands[n] for n in needed])
        needed |= {n for n in range(carried) if block.args[n] in live}
    kept = sorted(needed)
    # One operand has the extents of the loops.
    read = [n for n in range(len(op.inputs)) if block.args[carried + n] in live] or [0]
    if len(kept) == carried and len(read) == len(op.inputs):
        return None
    block.add_op(hlo.ReturnOp(*(end.operands[n] for n in kept)))
    block.erase_op(end)
    remove_dead(block)
    for number, argument in reversed(list(enumerate(block.args))):
        if number not in needed and number - carried not in read:
            block.erase_arg(argument)
    inputs, inits = [op.inputs[n] for n in read], [op.inits[n] for n in kept]
    return rewriter.emit(hlo.FoldOp(inputs, inits, op.dims, body, kept.index(op.number)))


def _descending(value: SSAValue) -> Block:
    """The comparator of the largest first."""
    element = hlo.element_type_of(value)
    block = Block(arg_types=[hlo.TensorType(element, ())] * 2)
    left, right = block.args
    greater = hlo.CompareOp(left, right, "GT", "TOTALORDER" if hlo.is_float(value) else None)
    block.add_ops((greater, hlo.ReturnOp(greater)))
    return block


def _order(
    operands: Sequence[SSAValue], dim: int, count: int, comparator: Block, emit: Emit
) -> SSAValue:
    """For the first `count` places along the dimension, which element goes there."""
    shape = hlo.shape_of(operands[0])
    rank, size = len(shape), shape[dim]
    own = list(range(rank))
    other = [rank if d == dim else d for d in own]
    pairs = (*shape, size)
    used = [n for n in range(len(operands)) if _is_used(comparator, n)]
    elements = [
        emit(hlo.BroadcastInDimOp(operands[n], dims, pairs)) for dims in (own, other) for n in used
    ]
    here, there = (emit(hlo.IotaOp(hlo.TensorType(hlo.i32, pairs), d)) for d in (dim, rank))
    zero = emit(hlo.ConstantOp(np.int32(0)))
    body = _counting(comparator, used, [hlo.element_type_of(operands[n]) for n in used])
    places = emit(hlo.FoldOp([*elements, here, there], [zero], [rank], body))
    grid = (*shape[:dim], count, *shape[dim + 1 :], size)
    places = emit(hlo.BroadcastInDimOp(places, other, grid))
    here, there = (emit(hlo.IotaOp(hlo.TensorType(hlo.i32, grid), d)) for d in (dim, rank))
    return emit(hlo.FoldOp([places, here, there], [zero], [rank], _finding()))


def _is_used(comparator: Block, number: int) -> bool:
    return any(comparator.args[2 * number + side].uses.get_length() for side in range(2))


def _counting(comparator: Block, used: Sequence[int], types: Sequence[Attribute]) -> Region:
    """The body that takes a count, the own elements, others, and where both are, and adds one if
    the others go before.

    The comparator gets the one that stands first as its right side: equal ones stay in order.
    """
    count = hlo.TensorType(hlo.i32, ())
    scalars = [hlo.TensorType(type, ()) for type in types]
    block = Block(arg_types=[count, *scalars, *scalars, count, count])
    counted, *elements, here, there = block.args
    own, others = elements[: len(used)], elements[len(used) :]

    def emit(op: hlo.StablehloOp) -> SSAValue:
        block.add_op(op)
        return op.result

    earlier = emit(hlo.CompareOp(there, here, "LT"))
    values: dict[SSAValue, SSAValue] = {}
    for n, mine, other in zip(used, own, others, strict=True):
        values[comparator.args[2 * n]] = emit(hlo.SelectOp(earlier, mine, other))
        values[comparator.args[2 * n + 1]] = emit(hlo.SelectOp(earlier, other, mine))
    end = comparator.last_op
    assert end is not None
    for op in comparator.ops:
        if op is not end:
            block.add_op(op.clone(values))
    before = emit(hlo.XorOp(values[end.operands[0]], earlier))
    total = emit(hlo.AddOp(counted, emit(hlo.ConvertOp(before, hlo.i32))))
    block.add_op(hlo.ReturnOp(total))
    return Region(block)


def _finding() -> Region:
    """The body that takes what was found, the place of an element, the wanted one, and where the
    element is."""
    block = Block(arg_types=[hlo.TensorType(hlo.i32, ())] * 4)
    found, place, wanted, here = block.args
    hit = hlo.CompareOp(place, wanted, "EQ")
    chosen = hlo.SelectOp(hit, here, found)
    block.add_ops((hit, chosen, hlo.ReturnOp(chosen)))
    return Region(block)


def _taken(value: SSAValue, order: SSAValue, dim: int, emit: Emit) -> SSAValue:
    """The elements in that order along the dimension."""
    counted = value.owner
    if isinstance(counted, hlo.IotaOp) and counted.dim == dim:
        element = hlo.element_type_of(value)
        return order if element == hlo.i32 else emit(hlo.ConvertOp(order, element))
    rank = len(hlo.shape_of(value))
    others = tuple(d for d in range(rank) if d != dim)
    dims = GatherDims((), (dim,), others, others, (dim,), rank)
    return emit(hlo.GatherOp(value, order, dims, [1] * rank))
