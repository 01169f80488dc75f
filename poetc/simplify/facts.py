"""Facts that are known at compile time about the values of a StableHLO block."""

from collections.abc import Mapping

import numpy as np
from xdsl.ir import Attribute, SSAValue

from poetc.ir import stablehlo as hlo
from poetc.ir.dense import dtype_of
from poetc.ir.stablehlo.base import IntRange
from poetc.ir.types import is_float

# Constants of more elements are never made by folding: they would become data in flash.
MAX_FOLDED_ELEMENTS = 16


class Facts:
    """Facts about the values that `learn` has been told of; nothing is known of others."""

    def __init__(self) -> None:
        self._splats: dict[SSAValue, np.generic] = {}
        self._arrays: dict[SSAValue, np.ndarray] = {}
        self._ranges: dict[SSAValue, IntRange] = {}
        self._never_negative_zero: set[SSAValue] = set()

    def splat(self, value: SSAValue) -> np.generic | None:
        """The element that all elements are equal to, bit for bit."""
        return self._splats.get(value)

    def is_splat(self, value: SSAValue, scalar: float) -> bool:
        """Whether all elements are `scalar`; zeros must have its sign. Not for NaN."""
        known = self._splats.get(value)
        if known is None or known != scalar:
            return False
        return not is_float(known.dtype) or bool(np.signbit(known) == np.signbit(scalar))

    def array(self, value: SSAValue) -> np.ndarray | None:
        """All elements, of a small constant."""
        splat = self._splats.get(value)
        if splat is not None and hlo.element_count(value) <= MAX_FOLDED_ELEMENTS:
            return np.full(hlo.shape_of(value), splat)
        return self._arrays.get(value)

    def int_range(self, value: SSAValue) -> IntRange | None:
        """Smallest and largest value that an integer element can have."""
        return self._ranges.get(value)

    def never_negative_zero(self, value: SSAValue) -> bool:
        """Whether no float element can be -0.0, so that adding +0.0 changes no bit."""
        return value in self._never_negative_zero

    def learn(self, op: hlo.StablehloOp) -> None:
        """Derive what is known of the result of `op` from what is known of its operands."""
        result = op.result
        if isinstance(op, hlo.ConstantOp):
            array = op.array()
            if array.size:
                first = array.flat[0]
                if array.tobytes() == first.tobytes() * array.size:
                    self._splats[result] = first
                elif array.size <= MAX_FOLDED_ELEMENTS:
                    self._arrays[result] = array
        elif isinstance(op, hlo.MovementOp):
            splats = [self.splat(operand) for operand in op.operands]
            first = splats[0]
            if first is not None and all(
                s is not None and s.tobytes() == first.tobytes() for s in splats
            ):
                self._splats[result] = first
        if hlo.is_float(result):
            if op.lacks_negative_zero(self):
                self._never_negative_zero.add(result)
        elif hlo.element_type_of(result) != hlo.i1:
            found, limits = range_of(op, self._ranges), limits_of(result.type)
            # Integers wrap around: a sum that may overflow is not in the range computed for it.
            if found is not None and limits[0] <= found[0] and found[1] <= limits[1]:
                self._ranges[result] = found


def range_of(op: hlo.StablehloOp, known: Mapping[SSAValue, IntRange]) -> IntRange | None:
    """Range of the integer result of an operation before it wraps, where operands that are not
    `known` may be anything."""
    if any(map(hlo.is_float, op.operands)):
        return None  # as what counts elements, or finds the largest
    return op.int_range([known.get(x) or limits_of(x.type) for x in op.operands])


def limits_of(type: Attribute) -> IntRange:
    """The range of all integers, or booleans, of a tensor's type."""
    dtype = dtype_of(hlo.element_type_of(type))
    if dtype.kind == "b":
        return 0, 1
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)
