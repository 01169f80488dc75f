"""Loops whose variable is divided in guards, as two: the guard is then the same for all iterations
of the inner one."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import affine, func
from xdsl.dialects.builtin import AffineMapAttr, IndexType
from xdsl.ir import Block, Region
from xdsl.ir.affine import AffineConstraintKind, AffineExpr, AffineMap

from poetc.backends.c.indexing import value_of
from poetc.ir.index import Index, Quotient, Variable
from poetc.kernels.addresses import extent


def split_by_divisors(function: func.FuncOp) -> None:
    """Makes two loops of each parallel loop whose variable is divided in guards: by the divisor,
    and for the remainder outside.

    For all iterations of the inner loop such a guard is then the same. Guards like this come from
    convolutions with holes: the gradient of one with strides.
    """
    for loop in [op for op in function.walk() if isinstance(op, affine.ForOp) and not op.inits]:
        divisors = {
            d for op in loop.walk() if isinstance(op, affine.IfOp) for d in _divisors(op, loop)
        }
        if len(divisors) == 1 and extent(loop) % (divisor := divisors.pop()) == 0:
            _split(loop, divisor, extent(loop) // divisor)


def _divisors(op: affine.IfOp, loop: affine.ForOp) -> Iterator[int]:
    """The divisors of remainders that must be zero and that the variable of the loop is part of."""
    probe = Variable("probe")
    own = loop.body.block.args[0]
    if own not in op.args:
        return
    others = [Index.of(Variable(f"other{i}")) for i in range(len(op.args))]
    indices = [
        Index.of(probe) if a is own else other for a, other in zip(op.args, others, strict=True)
    ]
    conditions = op.condition.data
    for constraint in conditions.constraints:
        if constraint.kind is not AffineConstraintKind.eq:
            continue
        left = value_of(constraint.lhs, indices, conditions.num_dims)
        for term, _ in left.terms:
            if not isinstance(term, Quotient) or not term.remainder:
                continue
            if abs(dict(term.of.terms).get(probe, 0)) == 1:
                yield term.divisor


def _split(loop: affine.ForOp, divisor: int, count: int) -> None:
    variable = loop.body.block.args[0]
    inner_block = Block(arg_types=[IndexType()])
    inner_block.args[0].name_hint = variable.name_hint
    for op in list(loop.body.block.ops):
        op.detach()
        inner_block.add_op(op)
    inner = affine.ForOp.from_region([], [], [], [], 0, count, Region(inner_block))
    place = inner_block
    while (
        len(ops := list(place.ops)) == 2 and isinstance(ops[0], affine.ForOp) and not ops[0].inits
    ):
        place = ops[0].body.block
    position = AffineExpr.dimension(0) * divisor + AffineExpr.dimension(1)
    whole = affine.ApplyOp(
        [inner_block.args[0], variable], AffineMapAttr(AffineMap(2, 0, (position,)))
    )
    variable.replace_uses_with_if(whole.result, lambda use: use.operation is not whole)
    assert place.first_op is not None
    place.insert_op_before(whole, place.first_op)
    loop.body.block.add_ops([inner, affine.YieldOp.get()])
    loop.properties["upperBoundMap"] = AffineMapAttr(AffineMap.constant_map(divisor))
    variable.name_hint = "remainder"
