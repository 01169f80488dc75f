"""Integers of 64 bits -> integers of 32, where all values are known to fit.

JAX counts the elements of random tensors so. What is known are the ranges of constants and counts,
and of sums and products of these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Block, Operation, SSAValue

from poetc.errors import InputError
from poetc.ir import dense, types
from poetc.ir import stablehlo as hlo
from poetc.ir.locations import source_location
from poetc.ir.stablehlo.base import IntRange


def narrow_integers(block: Block) -> None:
    """Replace the operations on integers of 64 bits by the same on 32.

    Raises InputError for an operation whose results may not fit.
    """
    ranges: dict[SSAValue, IntRange] = {}
    values: dict[SSAValue, SSAValue] = {}
    replaced: list[Operation] = []
    for op in block.ops:
        if not isinstance(op, hlo.StablehloOp) or not any(
            map(_is_wide, (*op.operand_types, *op.result_types))
        ):
            continue
        type = _narrowed(op.result.type)
        if type != op.result.type:
            ranges[op.result] = _fitting(op, ranges)
        properties = dict(op.properties)
        if isinstance(op, hlo.ConstantOp):
            array = op.array().astype(dense.dtype_of(type.element_type))
            properties["value"] = dense.from_array(array, type.element_type)
        new = op.create(
            operands=[values.get(operand, operand) for operand in op.operands],
            result_types=[type],
            properties=properties,
            attributes=op.attributes,
            location=op.location,
            regions=[region.clone() for region in op.regions],
        )
        block.insert_op_before(new, op)
        values[op.result] = new.results[0]
        replaced.append(op)
    for op in reversed(replaced):
        op.results[0].replace_all_uses_with(values[op.results[0]])
        block.erase_op(op)


def _is_wide(type: Attribute) -> bool:
    return isinstance(type, TensorType) and types.narrowed(type.element_type) != type.element_type


def _narrowed(type: Attribute) -> TensorType:
    assert isinstance(type, TensorType)
    return TensorType(types.narrowed(type.element_type), type.get_shape())


def _limits(type: Attribute) -> IntRange:
    dtype = dense.dtype_of(hlo.element_type_of(type))
    if dtype.kind == "b":
        return 0, 1
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def _fitting(op: hlo.StablehloOp, ranges: dict[SSAValue, IntRange]) -> IntRange:
    """The range of the results, which is inside of that of the narrow type."""
    least, most = _limits(_narrowed(op.result.type))
    found = _range(op, ranges)
    if found is None or found[0] < least or found[1] > most:
        type = hlo.element_type_of(op.result)
        raise InputError(
            f"{op.name}: integers of type {type} are supported where their values are known to fit "
            f"into 32 bits; these may not: use {types.narrowed(type)}",
            source_location(op),
        )
    return found


def _range(op: hlo.StablehloOp, ranges: dict[SSAValue, IntRange]) -> IntRange | None:
    if isinstance(op, hlo.ConstantOp):
        array = op.array()
        return (int(array.min()), int(array.max())) if array.size else (0, 0)
    if isinstance(op, hlo.IotaOp):
        return 0, max(0, hlo.shape_of(op)[op.dim] - 1)
    if isinstance(op, hlo.ConvertOp) and hlo.element_type_of(op.operand) == hlo.f32:
        return None
    operands = op.operands[1:] if isinstance(op, hlo.SelectOp) else op.operands
    known = [ranges.get(operand, _limits(operand.type)) for operand in operands]
    return _combined(op, known)


def _combined(op: hlo.StablehloOp, known: Sequence[IntRange]) -> IntRange | None:
    if isinstance(op, hlo.SelectOp | hlo.MovementOp | hlo.ConvertOp):
        return min(low for low, _ in known), max(high for _, high in known)
    if isinstance(op, hlo.ShiftRightLogicalOp):
        return (0, known[0][1]) if known[0][0] >= 0 else None
    return op.int_range(known) if isinstance(op, hlo.ElementwiseOp) else None
