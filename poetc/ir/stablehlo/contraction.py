"""Sums of products: their base class, and that of sums which go on with other sums."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, TensorType, f32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import operand_def, opt_prop_def

from poetc.ir import buffers, dense, types
from poetc.ir.stablehlo import semantics
from poetc.ir.stablehlo.base import (
    INTS,
    Array,
    FloatFacts,
    Fuses,
    PrettyOp,
    Walk,
    check,
    check_elements,
    check_type,
    element_count,
    element_type_of,
    i64s,
    ints,
    shape_of,
)
from poetc.ir.stablehlo.index_maps import Indices, Read, Reduction, ReductionOp
from poetc.ir.stablehlo.sums import Blocks, blocks_of
from poetc.ir.stablehlo_attributes import Dims, PrecisionAttr


class ContractionOp(PrettyOp, ReductionOp):
    """Sums of products of elements of two operands; each sum starts from +0.0."""

    FUSES: ClassVar = Fuses.ANCHOR
    OPERANDS: ClassVar[int] = 2
    RESUMED: ClassVar[type[ResumedOp]]
    """The operation that goes on with sums of this one."""

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
    def whole_loops(self) -> Dims:
        """The extents for the sum that this one is a part of."""
        return self.loops

    @property
    def blocks(self) -> Blocks | None:
        """In which each sum is added; None for integers."""
        adds_floats = types.is_float(dense.dtype_of(element_type_of(self.result)))
        return blocks_of(self.whole_loops) if adds_floats else None

    @property
    def block_positions(self) -> int | None:
        """Blocks of sums begin where the position in the outermost loop is a multiple of this, and
        some perhaps elsewhere; None where a sum is one block."""
        if self.blocks is None:
            return None
        outermost = next(i for i, extent in enumerate(self.loops) if extent > 1)
        return self.blocks.positions if self.blocks.loop == outermost else 1

    def reduction(self, at: Indices) -> Contraction:
        raise NotImplementedError

    def along_outermost(self, operand: int, dim: int) -> Walk | None:
        """How the operands are walked along the outermost loop of the sums, if that is over
        dimension `dim` of that operand; None if it is not."""
        return None

    def summand(
        self,
        walk: Walk,
        operands: Sequence[SSAValue],
        start: int,
        init: SSAValue | None,
        whole: bool = False,
    ) -> ContractionOp:
        """The sums over a range of the outermost loop, which begins at `start`, on `operands` cut
        as `along_outermost` says; from `init` on, or from zero. They are not rounded to fewer
        digits than sums have. `whole`: they go on with an `init` in the blocks of the whole sum."""
        properties = {**self.properties, **self._summand_properties(walk, operands, start)}
        if whole:
            properties["whole"] = i64s(self.loops)
        kind = type(self) if init is None else self.RESUMED
        element = types.computed_type(element_type_of(self.result))
        return kind.create(
            operands=operands if init is None else [init, *operands],
            result_types=[TensorType(element, shape_of(self.result))],
            properties=properties,
            attributes=self.attributes,
        )

    def _summand_properties(
        self, walk: Walk, operands: Sequence[SSAValue], start: int
    ) -> dict[str, Attribute]:
        """The properties of a `summand` that are not those of the whole."""
        return {}

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


class ResumedOp(ContractionOp):
    """Each sum starts from its element of `init`, the first operand: it goes on with the sums of
    another contraction."""

    OPERANDS: ClassVar[int] = 3

    init = operand_def(TensorType)
    whole = opt_prop_def(INTS)

    @property
    def whole_loops(self) -> Dims:
        return ints(self.whole) or self.loops

    def lacks_negative_zero(self, facts: FloatFacts) -> bool:
        return False

    def along(self, dim: int) -> Walk | None:
        return None

    def reads_each(self, index: int) -> float:
        return super().reads_each(index) if index else 1.0

    def verify_op(self) -> None:
        """A part of a sum has all positions of its loops, but perhaps of the outermost."""
        super().verify_op()
        check_type("init", self.init.type, self.result.type)
        own, whole = self.loops, self.whole_loops
        fewer = [i for i, (n, of) in enumerate(zip(own, whole, strict=False)) if n != of]
        check(
            len(whole) == len(own)
            and all(own[i] < whole[i] and math.prod(whole[:i]) == 1 for i in fewer),
            f"a sum over {list(own)} is no part of one over {list(whole)}",
        )


def in_blocks(ranges: Iterable[tuple[int, int]], every: int | None) -> Iterator[tuple[int, int]]:
    """Start and size of the ranges, in pieces of whole blocks of so many positions, or of a part of
    one."""
    for start, size in ranges:
        end = start + size
        step = every or 1
        borders = {-(-start // step) * step, end // step * step}
        inside = sorted({start, end, *(b for b in borders if start < b < end)})
        yield from ((a, b - a) for a, b in pairwise(inside))


class Contraction(Reduction):
    """The sum of products for an element; `start` is where it begins, zero if that is None."""

    op: ContractionOp

    @property
    def start(self) -> Read | None:
        """The element that the sum starts from; None if that is zero."""
        return (self.op.init, self.at) if isinstance(self.op, ResumedOp) else None


def precision_attr() -> ArrayAttr:
    """The precision of both operands when nothing is said of it."""
    return ArrayAttr([PrecisionAttr("DEFAULT")] * 2)
