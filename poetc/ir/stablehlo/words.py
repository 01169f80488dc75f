"""Arithmetic on unsigned numbers, written with the operators of Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from xdsl.ir import Attribute, SSAValue

from poetc.ir import dense
from poetc.ir.stablehlo.base import StablehloOp, element_type_of, shape_of
from poetc.ir.stablehlo.bits import AndOp, OrOp, ShiftLeftOp, ShiftRightLogicalOp, XorOp
from poetc.ir.stablehlo.comparison import CompareOp, SelectOp
from poetc.ir.stablehlo.constants import ConstantOp
from poetc.ir.stablehlo.conversion import ConvertOp
from poetc.ir.stablehlo.elementwise import AddOp, MultiplyOp
from poetc.ir.stablehlo.movement import BroadcastInDimOp, ConcatenateOp, ReshapeOp, SliceOp
from poetc.ir.stablehlo_attributes import Dims
from poetc.ir.types import ui32

Emit = Callable[[StablehloOp], SSAValue]
"""Adds an operation; its result."""


class Words:
    """Unsigned numbers with the operators of Python, which wrap around. Scalars are combined with
    each element."""

    def __init__(self, value: SSAValue, emit: Emit) -> None:
        self.value, self.emit = value, emit

    def of(self, op: StablehloOp) -> Words:
        """The result of an operation, which is added."""
        return Words(self.emit(op), self.emit)

    def _with(self, other: Words | int, kind: Callable[..., StablehloOp]) -> Words:
        if isinstance(other, int):
            dtype = dense.dtype_of(element_type_of(self.value))
            other = self.of(ConstantOp(np.asarray(other, dtype)))
        shape = max(shape_of(self.value), shape_of(other.value), key=len)
        return self.of(kind(self.broadcast(shape).value, other.broadcast(shape).value))

    def broadcast(self, shape: Dims) -> Words:
        """A scalar in each place; a tensor of that shape as it is."""
        is_same = shape_of(self.value) == shape
        return self if is_same else self.of(BroadcastInDimOp(self.value, (), shape))

    def __add__(self, other: Words | int) -> Words:
        return self._with(other, AddOp)

    def __mul__(self, other: Words | int) -> Words:
        return self._with(other, MultiplyOp)

    def __xor__(self, other: Words | int) -> Words:
        return self._with(other, XorOp)

    def __and__(self, other: int) -> Words:
        return self._with(other, AndOp)

    def __or__(self, other: Words | int) -> Words:
        return self._with(other, OrOp)

    def __lshift__(self, bits: int) -> Words:
        return self._with(bits, ShiftLeftOp)

    def __rshift__(self, bits: int) -> Words:
        return self._with(bits, ShiftRightLogicalOp)

    def __lt__(self, other: Words) -> Words:
        return self._with(other, lambda a, b: CompareOp(a, b, "LT"))

    def equals(self, other: int) -> Words:
        """Where elements are equal to a number."""
        return self._with(other, lambda a, b: CompareOp(a, b, "EQ"))

    def chooses(self, on_true: Words, on_false: Words) -> Words:
        """By a condition the element of one or the other."""
        return self.of(SelectOp(self.value, on_true.value, on_false.value))

    def to(self, element: Attribute) -> Words:
        """As numbers of another type, by the low bits."""
        is_same = element_type_of(self.value) == element
        return self if is_same else self.of(ConvertOp(self.value, element))

    def halves(self) -> list[Words]:
        """The low and the high 32 bits of 64."""
        return [self.to(ui32), (self >> 32).to(ui32)]

    def shaped(self, shape: Dims) -> Words:
        """The same elements in another shape."""
        return self if shape_of(self.value) == shape else self.of(ReshapeOp(self.value, shape))

    def repeated(self, dim: int, times: int) -> Words:
        """Each element several times along a dimension."""
        shape = shape_of(self.value)
        apart = (*shape[: dim + 1], times, *shape[dim + 1 :])
        dims = [d + (d > dim) for d in range(len(shape))]
        many = self.of(BroadcastInDimOp(self.value, dims, apart))
        return many.shaped((*shape[:dim], shape[dim] * times, *shape[dim + 1 :]))

    def first(self, shape: Dims) -> Words:
        """The first elements along each dimension."""
        if shape_of(self.value) == shape:
            return self
        return self.of(SliceOp(self.value, [0] * len(shape), shape))

    def column(self, place: int) -> Words:
        """The elements in a place along the last dimension, which the result does not have."""
        *others, _ = shape_of(self.value)
        limits = [*others, place + 1]
        part = self.of(SliceOp(self.value, [0] * len(others) + [place], limits))
        return part.shaped(tuple(others))


def joined(parts: Sequence[Words], dim: int) -> Words:
    """One behind the other along a dimension."""
    return parts[0].of(ConcatenateOp([part.value for part in parts], dim))
