"""Sums of products: their base class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, TensorType, f32
from xdsl.irdl import operand_def, opt_prop_def

from poetc.ir import buffers, dense, types
from poetc.ir.stablehlo import semantics
from poetc.ir.stablehlo.base import (
    Array,
    FloatFacts,
    Fuses,
    PrettyOp,
    check_elements,
    element_count,
    element_type_of,
)
from poetc.ir.stablehlo.index_maps import Indices, Reduction, ReductionOp
from poetc.ir.stablehlo.sums import Blocks, blocks_of
from poetc.ir.stablehlo_attributes import Dims, PrecisionAttr


class ContractionOp(PrettyOp, ReductionOp):
    """Sums of products of elements of two operands; each sum starts from +0.0."""

    FUSES: ClassVar = Fuses.ANCHOR

    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    precision_config = opt_prop_def(ArrayAttr[PrecisionAttr])

    @property
    def loops(self) -> Dims:
        """Extents of the loops of each sum, outermost first."""
        raise NotImplementedError

    @property
    def summed(self) -> tuple[tuple[int, int], ...]:
        """The pairs of dimensions of lhs and rhs that each sum runs along together."""
        raise NotImplementedError

    @property
    def products(self) -> int:
        """How many pairs of elements are multiplied, without padding and the zeros of dilation."""
        return element_count(self.result) * math.prod(self.loops)

    @property
    def blocks(self) -> Blocks | None:
        """In which each sum is added; None for integers."""
        adds_floats = types.is_float(dense.dtype_of(element_type_of(self.result)))
        return blocks_of(self.loops) if adds_floats else None

    def reduction(self, at: Indices) -> Contraction:
        raise NotImplementedError

    def reads_each(self, index: int) -> float:
        return self.products / max(1, element_count(self.operands[index]))

    def lacks_negative_zero(self, facts: FloatFacts) -> bool:
        # Sums that start from +0.0; one that is rounded at the end may become -0.0 there.
        return element_type_of(self.result) == f32

    def _verify_sums(self) -> None:
        """Operands of one element type; sums of that one, or of a wider one of the same kind."""
        check_elements("operand 0", self.lhs, types.with_arithmetic("float", "signed", "unsigned"))
        element = types.ELEMENT_TYPES[element_type_of(self.lhs)]
        check_elements("operand 1", self.rhs, (element.mlir,))
        wider = [
            other
            for other in types.with_arithmetic(element.arithmetic)
            if other == element.mlir or buffers.element_bytes(other) > element.dtype.itemsize
        ]
        check_elements("result", self.result, wider)

    def _for_sums(self, operands: Sequence[Array]) -> list[Array]:
        """The operands in the type that the sums are made in."""
        dtype = dense.dtype_of(types.computed_type(element_type_of(self.result)))
        return [semantics.convert(operand, dtype) for operand in operands]

    def _rounded(self, sums: Array) -> Array:
        """The sums as elements of the result."""
        return semantics.convert(sums, dense.dtype_of(element_type_of(self.result)))


class Contraction(Reduction):
    """The sum of products for an element, from zero on."""

    op: ContractionOp


def precision_attr() -> ArrayAttr:
    """The precision of both operands when nothing is said of it."""
    return ArrayAttr([PrecisionAttr("DEFAULT")] * 2)
