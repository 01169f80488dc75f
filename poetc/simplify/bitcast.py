"""Bits of numbers as several smaller ones, or one larger one, by shifts."""

from __future__ import annotations

from functools import reduce
from operator import or_

from xdsl.dialects.builtin import IntegerType, Signedness
from xdsl.ir import Attribute, SSAValue

from poetc.ir import buffers
from poetc.ir import stablehlo as hlo
from poetc.ir.stablehlo.words import Words, joined
from poetc.simplify.driver import Rewriter


def resize_elements(op: hlo.BitcastConvertOp, rewriter: Rewriter) -> SSAValue | None:
    """bitcast_convert to smaller or larger numbers -> shifts, and one for numbers of one size."""
    if op.is_in_place:
        return None
    source, target = hlo.element_type_of(op.operand), hlo.element_type_of(op.result)
    shape, bits = hlo.shape_of(op.result), Words(op.operand, rewriter.emit)
    bits = _cast(bits, _unsigned(source))
    if len(shape) > len(hlo.shape_of(op.operand)):
        step = 8 * buffers.element_bytes(target)
        parts = [(bits >> n * step).to(_unsigned(target)) for n in range(shape[-1])]
        found = joined([part.shaped((*shape[:-1], 1)) for part in parts], len(shape) - 1)
    else:
        step, count = 8 * buffers.element_bytes(source), hlo.shape_of(op.operand)[-1]
        parts = [bits.column(n).to(_unsigned(target)) << n * step for n in range(count)]
        found = reduce(or_, parts)
    return _cast(found, target).value


def _unsigned(element: Attribute) -> IntegerType:
    return IntegerType(8 * buffers.element_bytes(element), Signedness.UNSIGNED)


def _cast(words: Words, element: Attribute) -> Words:
    is_same = hlo.element_type_of(words.value) == element
    return words if is_same else words.of(hlo.BitcastConvertOp(words.value, element))
