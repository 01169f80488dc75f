"""What is known at compile time about the values of a StableHLO block."""

from collections.abc import Sequence

import numpy as np
from xdsl.ir import SSAValue

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
            if self._lacks_negative_zero(op):
                self._never_negative_zero.add(result)
        elif (element := hlo.element_type_of(result)) != hlo.i1:
            found, limits = self._find_range(op), np.iinfo(dtype_of(element))
            # Integers wrap around: a sum that may overflow is not in the range computed for it.
            if found is not None and limits.min <= found[0] and found[1] <= limits.max:
                self._ranges[result] = found

    def _find_range(self, op: hlo.StablehloOp) -> IntRange | None:
        if isinstance(op, hlo.ConstantOp):
            array = op.array()
            return (int(array.min()), int(array.max())) if array.size else None
        if isinstance(op, hlo.PositionOp):
            return op.range
        if isinstance(op, hlo.IotaOp):
            return 0, max(0, hlo.shape_of(op)[op.dim] - 1)
        if isinstance(op, hlo.ConvertOp) and hlo.element_type_of(op.operand) == hlo.i1:
            return 0, 1
        operands = op.operands[1:] if isinstance(op, hlo.SelectOp) else op.operands
        ranges = [self.int_range(operand) for operand in operands]
        if not ranges or any(r is None for r in ranges):
            return None
        return _combine(op, [r for r in ranges if r is not None])

    def _lacks_negative_zero(self, op: hlo.StablehloOp) -> bool:
        never = self.never_negative_zero
        if isinstance(op, hlo.ConstantOp):
            array = op.array()
            return not np.any((array == 0) & np.signbit(array))
        if isinstance(op, hlo.AddOp):
            # Rounding to nearest, a sum is -0.0 only if both operands are.
            return never(op.lhs) or never(op.rhs)
        if isinstance(op, hlo.SubtractOp):
            # a - b is -0.0 only for -0.0 - +0.0.
            return never(op.lhs)
        if isinstance(op, hlo.MultiplyOp):
            # A square has no sign.
            return op.lhs is op.rhs
        if isinstance(op, hlo.MaximumOp):
            # maximum(x, c) >= c, and it gives +0.0 for two zeros of different sign.
            return any(
                splat is not None and float(splat) >= 0 and not np.signbit(splat)
                for splat in (self.splat(op.lhs), self.splat(op.rhs))
            )
        if isinstance(op, hlo.ReduceOp | hlo.ReduceWindowOp):
            # Sums that start from an element which is not -0.0 stay so, as for AddOp.
            return op.kind == "add" and never(op.init)
        if isinstance(op, hlo.ScatterOp):
            of_both = op.kind in ("replace", "maximum", "minimum") and never(op.updates)
            return never(op.operand) and (op.kind == "add" or of_both)
        if isinstance(op, hlo.SelectAndScatterOp):
            return never(op.init)
        if isinstance(op, hlo.DotGeneralOp | hlo.ConvolutionOp):
            # Sums that start from +0.0; one that is rounded at the end may become -0.0 there.
            return hlo.element_type_of(op.result) == hlo.f32
        if isinstance(op, hlo.ConvertOp):
            # Integer zero converts to +0.0.
            return not hlo.is_float(op.operand)
        if isinstance(op, hlo.AbsOp):
            return True
        if isinstance(op, hlo.SelectOp):
            return never(op.on_true) and never(op.on_false)
        if isinstance(op, hlo.GatherOp):
            return never(op.operand)
        if isinstance(op, hlo.ExponentialOp):
            return True
        return isinstance(op, hlo.MovementOp) and all(map(never, op.operands))


def _combine(op: hlo.StablehloOp, ranges: Sequence[IntRange]) -> IntRange | None:
    """Range of the result of `op` on operands of these ranges, before wrapping."""
    if isinstance(op, hlo.SelectOp | hlo.MovementOp):
        # `pad` and `concatenate` have elements of all their operands.
        return min(r[0] for r in ranges), max(r[1] for r in ranges)
    return op.int_range(ranges) if isinstance(op, hlo.ElementwiseOp) else None
