"""Integers of 64 bits -> integers of 32, where all values are known to fit: small processors take
several instructions for one operation on 64.

JAX counts the elements of random tensors so. What is known are the ranges of constants and counts,
and of sums and products of these.
"""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Block, Operation, SSAValue

from poetc.ir import dense, types
from poetc.ir import stablehlo as hlo
from poetc.ir.stablehlo.base import IntRange
from poetc.simplify.facts import limits_of, range_of


def narrow_integers(block: Block) -> None:
    """Replace the operations on integers of 64 bits by the same on 32, where that is possible."""
    ranges = _fitting(block)
    values: dict[SSAValue, SSAValue] = {}
    replaced: list[Operation] = []
    for op in list(block.ops):
        if values.keys().isdisjoint(op.operands) and ranges.keys().isdisjoint(op.results):
            continue
        assert isinstance(op, hlo.StablehloOp)
        type = _narrowed(op.result.type) if op.result in ranges else op.result.type
        properties = dict(op.properties)
        if isinstance(op, hlo.ConstantOp):
            element = hlo.element_type_of(type)
            array = op.array().astype(dense.dtype_of(element))
            properties["value"] = dense.from_array(array, element)
        new = op.create(
            operands=[values.get(operand, operand) for operand in op.operands],
            result_types=[type],
            properties=properties,
            attributes=op.attributes,
            location=op.location,
            regions=[region.clone() for region in op.regions],
        )
        block.insert_op_before(new, op)
        replaced.append(op)
        if op.result in ranges:
            values[op.result] = new.results[0]
        else:
            op.result.replace_all_uses_with(new.results[0])
    for op in reversed(replaced):
        block.erase_op(op)


def _is_wide(type: Attribute) -> bool:
    return isinstance(type, TensorType) and types.narrowed(type.element_type) != type.element_type


def _narrowed(type: Attribute) -> TensorType:
    assert isinstance(type, TensorType)
    return TensorType(types.narrowed(type.element_type), type.get_shape())


def _fitting(block: Block) -> dict[SSAValue, IntRange]:
    """The ranges of wide values that are known to fit and that only operations use which can do
    without wide ones: other operands of theirs, and their results, fit as well."""
    ranges: dict[SSAValue, IntRange] = {}
    users: list[Operation] = []
    for op in block.ops:
        if any(map(_is_wide, (*op.operand_types, *op.result_types))):
            users.append(op)
        if isinstance(op, hlo.StablehloOp) and len(op.results) == 1 and _is_wide(op.result.type):
            least, most = limits_of(_narrowed(op.result.type))
            found = range_of(op, ranges)
            if found is not None and least <= found[0] and found[1] <= most:
                ranges[op.result] = found
    before = -1
    while len(ranges) != before:
        before = len(ranges)
        for op in users:
            wide = [v for v in (*op.operands, *op.results) if _is_wide(v.type)]
            is_free = isinstance(op, hlo.ConvertOp) or (
                isinstance(op, hlo.StablehloOp)
                and not isinstance(op, hlo.BitcastConvertOp)
                and len(op.results) == 1
                and all(value in ranges for value in wide)
            )
            if not is_free:
                for value in wide:
                    ranges.pop(value, None)
    return ranges
