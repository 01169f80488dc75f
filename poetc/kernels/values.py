"""Facts about the elements of a value, from the operations that define it."""

from __future__ import annotations

from xdsl.dialects.builtin import i32, i64
from xdsl.ir import Block, Operation, SSAValue

from poetc.ir import stablehlo
from poetc.ir.index import Index, constant, holds
from poetc.ir.stablehlo import element_type_of
from poetc.ir.stablehlo.index_maps import Indices


def counted(value: SSAValue, at: Indices) -> Index | None:
    """The position that the element of a tensor of integers is equal to, where it is counted or
    constant; None where it is not, or depends on memory."""
    while isinstance(op := value.owner, Operation):
        if element_type_of(value) not in (i32, i64):
            return None
        if isinstance(op, stablehlo.IotaOp):
            return at[op.dim]
        if isinstance(op, stablehlo.ConstantOp):
            array = op.array()
            one = array.flat[0] if array.size and (array == array.flat[0]).all() else None
            return None if one is None or abs(int(one)) >= 1 << 31 else constant(int(one))
        if isinstance(op, stablehlo.ConvertOp):
            value = op.operand
            continue
        moves = op.moves(at) if isinstance(op, stablehlo.MovementOp) else []
        possible = [m for m in moves if not any(c.negative() for c in m.conditions)]
        if not possible or not all(holds(c, ()) for c in possible[0].conditions):
            return None
        value, at = possible[0].source, possible[0].indices
    return None


def is_costly(value: SSAValue) -> bool:
    """Whether an element costs more than a load: it is not just moved, constant or counted."""
    op = value.owner
    while isinstance(op, stablehlo.MovementOp) and op.ONE_SOURCE:
        op = op.operands[0].owner
    return not isinstance(
        op, Block | stablehlo.ConstantOp | stablehlo.IotaOp | stablehlo.PositionOp
    )
