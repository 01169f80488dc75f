"""Types of the memory of kernels, and what elements take in it. Knows nothing of NumPy, so that the
dialect is read without it."""

from __future__ import annotations

from functools import cache

from xdsl.dialects.builtin import FixedBitwidthType, IntegerType, MemRefType, TensorType
from xdsl.ir import Attribute

from poetc.errors import InputError


def type_in_kernel(type: Attribute) -> Attribute:
    """The type that memory of kernels has for numbers of an element type: the arith dialect knows
    signs of operations, not of numbers."""
    return IntegerType(type.bitwidth) if isinstance(type, IntegerType) else type


@cache
def buffer_type(tensor: TensorType) -> MemRefType:
    """The type that a kernel has for the memory of a tensor."""
    return MemRefType(type_in_kernel(tensor.element_type), tensor.get_shape())


def element_bytes(type: Attribute) -> int:
    """Bytes of one element in memory; an i1 takes a whole byte. InputError for a type that has no
    size in memory."""
    if not isinstance(type, FixedBitwidthType):
        raise InputError(f"elements of type {type} have no size in memory")
    return -(-type.bitwidth // 8)
