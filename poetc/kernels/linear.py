"""Index maps of lowered kernels as linear forms of loop variables.

In the text of an affine load or store loop variables are not told from symbols, and xDSL reads all
of them as symbols; hence dimensions and symbols are the same here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import affine, arith, memref
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import BlockArgument, SSAValue
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    AffineSymExpr,
)


@dataclass(frozen=True)
class Linear:
    """`Σ coefficient · loop variable + rest`. A rest of None is any number, at each evaluation
    another one."""

    terms: Mapping[SSAValue, int]
    rest: int | None = 0


UNKNOWN = Linear({}, None)


def access_indices(
    op: affine.LoadOp | affine.StoreOp | memref.LoadOp | memref.StoreOp,
) -> list[Linear]:
    """The index of each dimension that a load or store is at."""
    if isinstance(op, memref.LoadOp | memref.StoreOp):
        return [_linear_value(index) for index in op.indices]
    return [_linear(expr, op.map.data, op.indices) for expr in op.map.data.results]


def _linear_value(value: SSAValue) -> Linear:
    """An index that is an SSA value."""
    owner = value.owner
    if isinstance(value, BlockArgument) and isinstance(value.block.parent_op(), affine.ForOp):
        if value.index == 0:
            return Linear({value: 1})
    elif isinstance(owner, affine.ApplyOp):
        return _linear(owner.map.data.results[0], owner.map.data, owner.mapOperands)
    elif isinstance(owner, arith.ConstantOp) and isinstance(owner.value, IntegerAttr):
        return Linear({}, owner.value.value.data)
    return UNKNOWN


def _linear(expr: AffineExpr, map: AffineMap, operands: Sequence[SSAValue]) -> Linear:
    match expr:
        case AffineConstantExpr():
            return Linear({}, expr.value)
        case AffineDimExpr():
            return _linear_value(operands[expr.position])
        case AffineSymExpr():
            return _linear_value(operands[map.num_dims + expr.position])
        case AffineBinaryOpExpr(kind=AffineBinaryOpKind.Add):
            a, b = _linear(expr.lhs, map, operands), _linear(expr.rhs, map, operands)
            if a.rest is None or b.rest is None:
                return UNKNOWN
            terms = dict(a.terms)
            for v, c in b.terms.items():
                terms[v] = terms.get(v, 0) + c
            return Linear(terms, a.rest + b.rest)
        case AffineBinaryOpExpr(kind=AffineBinaryOpKind.Mul):
            a, b = _linear(expr.lhs, map, operands), _linear(expr.rhs, map, operands)
            if a.rest is None or b.rest is None or (a.terms and b.terms):
                return UNKNOWN
            # Either factor may be the constant one.
            factor, scaled = (a.rest, b) if b.terms else (b.rest, a)
            assert factor is not None and scaled.rest is not None
            terms = {v: c * factor for v, c in scaled.terms.items()}
            return Linear(terms, scaled.rest * factor)
    return UNKNOWN
