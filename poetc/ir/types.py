"""The element types of tensors: one table, which all parts of the compiler ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
from xdsl.dialects.builtin import (
    FixedBitwidthType,
    IndexType,
    IntegerType,
    Signedness,
    f32,
    i1,
    i32,
    i64,
)
from xdsl.ir import Attribute

from poetc.errors import InputError

ui32 = IntegerType(32, Signedness.UNSIGNED)
ui64 = IntegerType(64, Signedness.UNSIGNED)

Arithmetic = Literal["float", "signed", "unsigned", "bool"]
"""How numbers of a type are added and compared."""


@dataclass(frozen=True)
class ElementType:
    """An element type, by all of its names.

    A number has one type where code computes with it and may have another one in memory: a boolean
    takes a byte there. In code an unsigned number is a signed one with the same bits, and
    operations on it are those that take them for an unsigned number.
    """

    mlir: Attribute
    arithmetic: Arithmetic
    dtype: np.dtype
    """In NumPy."""
    c: str
    c_memory: str
    tvm: str
    tvm_memory: str
    compare_type: str
    """What `stablehlo.compare` calls its comparison."""

    @property
    def name(self) -> str:
        """As MLIR spells it."""
        return str(self.mlir)


FLOAT32 = ElementType(
    f32, "float", np.dtype(np.float32), "float", "float", "float32", "float32", "FLOAT"
)
INT32 = ElementType(
    i32, "signed", np.dtype(np.int32), "int32_t", "int32_t", "int32", "int32", "SIGNED"
)
UINT32 = ElementType(
    ui32, "unsigned", np.dtype(np.uint32), "int32_t", "int32_t", "int32", "int32", "UNSIGNED"
)
BOOL = ElementType(i1, "bool", np.dtype(np.bool_), "bool", "uint8_t", "bool", "int8", "UNSIGNED")

ELEMENT_TYPES: Mapping[Attribute, ElementType] = MappingProxyType(
    {type.mlir: type for type in (FLOAT32, INT32, UINT32, BOOL)}
)
"""The element types by their attribute in MLIR."""


def listed(conjunction: str) -> str:
    """The names of all element types in a sentence, `conjunction` ("and", "or") before the last."""
    *names, last = (type.name for type in ELEMENT_TYPES.values())
    return f"{', '.join(names)} {conjunction} {last}"


def with_arithmetic(*kinds: Arithmetic) -> tuple[Attribute, ...]:
    """The element types in MLIR whose arithmetic is of one of these kinds."""
    return tuple(type.mlir for type in ELEMENT_TYPES.values() if type.arithmetic in kinds)


def type_of_array(dtype: np.dtype) -> ElementType:
    """The element type of an array, by the kind of its numbers: all floats become f32, and so on.

    Raises KeyError for other kinds than those of the table.
    """
    return {type.dtype.kind: type for type in ELEMENT_TYPES.values()}[dtype.kind]


def type_in_code(type: Attribute) -> ElementType:
    """How code holds a number of an element type or of `index`. Raises InputError if none can."""
    found = INT32 if isinstance(type, IndexType) else ELEMENT_TYPES.get(type)
    if found is None:
        raise InputError(f"generated code has no type for {type}; it knows {listed('and')}")
    return found


def type_in_kernel(type: Attribute) -> Attribute:
    """The type that the arith dialect has for numbers of an element type: it knows signs of
    operations, not of numbers."""
    return i32 if type == ui32 else type


def narrowed(type: Attribute) -> Attribute:
    """The type of 32 bits for an integer type of 64, of which programs may have some whose values
    are known to fit; other types as they are."""
    return {i64: i32, ui64: ui32}.get(type, type)  # pyright: ignore[reportArgumentType, reportCallIssue]


def element_bytes(type: Attribute) -> int:
    """Bytes of one element in memory; an i1 takes a whole byte. InputError for a type that has no
    size in memory."""
    if not isinstance(type, FixedBitwidthType):
        raise InputError(f"elements of type {type} have no size in memory")
    return -(-type.bitwidth // 8)
