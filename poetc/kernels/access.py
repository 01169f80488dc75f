"""Loads and stores of lowered kernels: their indices, read back from affine maps, and the loops
around them; and affine maps and conditions evaluated on arrays.

In the text of an affine load or store loop variables are not told from symbols, and xDSL reads all
of them as symbols; hence dimensions and symbols are the same here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import numpy as np
from xdsl.dialects import affine, arith, func, memref
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineConstraintKind,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    AffineSet,
    AffineSymExpr,
)

from poetc.kernels.index import Index, constant

LOADS = (affine.LoadOp, memref.LoadOp)
STORES = (affine.StoreOp, memref.StoreOp)
Access = affine.LoadOp | affine.StoreOp | memref.LoadOp | memref.StoreOp


def map_indices(
    map: AffineMap, operands: Sequence[SSAValue], known: Mapping[SSAValue, Index]
) -> list[Index | None]:
    """The results of a map; None for one that depends on a value which is not `known`."""
    values = [index_value(operand, known) for operand in operands]
    return [_index(expr, values, map.num_dims) for expr in map.results]


def access_indices(op: Access, known: Mapping[SSAValue, Index]) -> list[Index | None]:
    """Where a load or store is in each dimension; None where that was read from memory."""
    if isinstance(op, memref.LoadOp | memref.StoreOp):
        return [index_value(index, known) for index in op.indices]
    return map_indices(op.map.data, list(op.indices), known)


def index_value(value: SSAValue, known: Mapping[SSAValue, Index]) -> Index | None:
    """A value of type index."""
    if value in known:
        return known[value]
    match value.owner:
        case affine.ApplyOp() as op:
            return map_indices(op.map.data, list(op.mapOperands), known)[0]
        case arith.ConstantOp(value=IntegerAttr() as number):
            return constant(number.value.data)
        case _:
            return None


def _index(expr: AffineExpr, values: Sequence[Index | None], dims: int) -> Index | None:
    match expr:
        case AffineConstantExpr():
            return constant(expr.value)
        case AffineDimExpr():
            return values[expr.position]
        case AffineSymExpr():
            return values[dims + expr.position]
        case AffineBinaryOpExpr():
            lhs, rhs = _index(expr.lhs, values, dims), _index(expr.rhs, values, dims)
            if lhs is None or rhs is None:
                return None
            match expr.kind:
                case AffineBinaryOpKind.Add:
                    return lhs + rhs
                case AffineBinaryOpKind.Mul:
                    # Either factor may be the constant one.
                    factor, scaled = (lhs, rhs) if lhs.is_constant else (rhs, lhs)
                    return scaled * factor.const if factor.is_constant else None
                case AffineBinaryOpKind.Mod:
                    return lhs % rhs.const if rhs.is_constant else None
                case AffineBinaryOpKind.FloorDiv:
                    return lhs // rhs.const if rhs.is_constant else None
                case AffineBinaryOpKind.CeilDiv:
                    return -(-lhs // rhs.const) if rhs.is_constant else None
    return None


def loops_around(op: Operation) -> list[affine.ForOp]:
    """The loops around an operation, the outermost first."""
    return [parent for parent in parents(op) if isinstance(parent, affine.ForOp)][::-1]


def parents(op: Operation) -> Iterator[Operation]:
    """The operations around one in its function, the innermost first."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, func.FuncOp):
        yield parent
        parent = parent.parent_op()


def value_of(expr: AffineExpr, operands: Sequence[np.ndarray], dims: int) -> np.ndarray:
    """An expression of the first `dims` operands as dimensions and the others as symbols, element
    by element."""
    # Typed for integers; it computes with operators that arrays have.
    numbers = cast(Sequence[int], operands)
    return np.asarray(expr.eval(numbers[:dims], numbers[dims:]))


def holds(condition: AffineSet, operands: Sequence[np.ndarray]) -> np.ndarray:
    """Where a condition on operands, dimensions and then symbols, holds."""
    result = np.asarray(True)
    for constraint in condition.constraints:
        left, right = (
            value_of(side, operands, condition.num_dims)
            for side in (constraint.lhs, constraint.rhs)
        )
        match constraint.kind:
            case AffineConstraintKind.ge:
                result = result & (left >= right)
            case AffineConstraintKind.le:
                result = result & (left <= right)
            case AffineConstraintKind.eq:
                result = result & (left == right)
    return result
