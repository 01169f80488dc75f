"""The element types of tensors: one table, which all parts of the compiler ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import (
    IndexType,
    IntegerType,
    Signedness,
    bf16,
    f16,
    f32,
    i1,
    i8,
    i16,
    i32,
    i64,
)
from xdsl.ir import Attribute

from poetc.errors import InputError

ui8, ui16, ui32, ui64 = (IntegerType(n, Signedness.UNSIGNED) for n in (8, 16, 32, 64))

Arithmetic = Literal["float", "signed", "unsigned", "bool"]
"""How numbers of a type are added and compared."""


@dataclass(frozen=True)
class ElementType:
    """An element type, by all of its names.

    A number has one type where code computes with it and may have another one in memory: a boolean
    takes a byte there, and a float of 16 bits is one of 32 in code, which is rounded after each
    operation. In code an unsigned number is a signed one with the same bits, and operations on it
    are those that take them for an unsigned number.
    """

    mlir: Attribute
    arithmetic: Arithmetic
    dtype: np.dtype
    """In NumPy."""
    c: str
    c_memory: str
    tvm: str | None
    """None where the TVM backend has no code for it."""
    tvm_memory: str | None
    compare_type: str
    """The name of its comparison in `stablehlo.compare`."""

    @property
    def name(self) -> str:
        """The name in MLIR."""
        return str(self.mlir)


def _integer(mlir: IntegerType, tvm: str | None = None) -> ElementType:
    bits, is_signed = mlir.bitwidth, mlir.signedness.data != Signedness.UNSIGNED
    kind, prefix = ("signed", "") if is_signed else ("unsigned", "u")
    dtype, c = np.dtype(f"{prefix}int{bits}"), f"int{bits}_t"
    return ElementType(mlir, kind, dtype, c, c, tvm, tvm, kind.upper())


FLOAT32 = ElementType(
    f32, "float", np.dtype(np.float32), "float", "float", "float32", "float32", "FLOAT"
)
BFLOAT16, FLOAT16 = (
    ElementType(mlir, "float", np.dtype(dtype), "uint16_t", "uint16_t", None, None, "FLOAT")
    for mlir, dtype in ((bf16, ml_dtypes.bfloat16), (f16, np.float16))
)
INT32 = _integer(i32, "int32")
BOOL = ElementType(i1, "bool", np.dtype(np.bool_), "bool", "uint8_t", "bool", "int8", "UNSIGNED")

ELEMENT_TYPES: Mapping[Attribute, ElementType] = MappingProxyType(
    {
        type.mlir: type
        for type in (
            FLOAT32,
            BFLOAT16,
            FLOAT16,
            _integer(i8),
            _integer(i16),
            INT32,
            _integer(i64),
            _integer(ui8),
            _integer(ui16),
            _integer(ui32, "int32"),
            _integer(ui64),
            BOOL,
        )
    }
)
"""The element types by their attribute in MLIR."""

_BY_DTYPE = {type.dtype: type for type in ELEMENT_TYPES.values()}


def listed(conjunction: str) -> str:
    """The names of all element types in a sentence, `conjunction` ("and", "or") before the last."""
    *names, last = (type.name for type in ELEMENT_TYPES.values())
    return f"{', '.join(names)} {conjunction} {last}"


def with_arithmetic(*kinds: Arithmetic) -> tuple[Attribute, ...]:
    """The element types in MLIR whose arithmetic is of one of these kinds."""
    return tuple(type.mlir for type in ELEMENT_TYPES.values() if type.arithmetic in kinds)


def type_of_array(dtype: np.dtype) -> ElementType:
    """The element type of the numbers of an array. Raises KeyError for one that is not in the
    table."""
    return _BY_DTYPE[dtype]


def type_in_code(type: Attribute) -> ElementType:
    """How code holds a number of an element type or of `index`. Raises InputError if none can."""
    found = INT32 if isinstance(type, IndexType) else ELEMENT_TYPES.get(type)
    if found is None:
        raise InputError(f"generated code has no type for {type}; it knows {listed('and')}")
    return found


def computed_type(type: Attribute) -> Attribute:
    """The element type in which code computes with numbers of one: f32 for floats of 16 bits.

    A result of an element-wise operation is rounded to its own type at once, that of a reduction
    or contraction at the end of all sums.
    """
    return f32 if type in (BFLOAT16.mlir, FLOAT16.mlir) else type


def computed_dtype(dtype: np.dtype) -> np.dtype:
    """The same for NumPy's types."""
    return FLOAT32.dtype if dtype in (BFLOAT16.dtype, FLOAT16.dtype) else dtype


def rounded(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Numbers of float32 as floats of 16 bits, to nearest, ties to even, where `dtype` is of these;
    anything else as it is."""
    if array.dtype != FLOAT32.dtype or dtype == array.dtype or computed_dtype(dtype) == dtype:
        return array
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return array.astype(dtype)


def is_float(dtype: np.dtype) -> bool:
    """Whether numbers of a type of NumPy are floats: bf16 is of no kind that NumPy knows."""
    return dtype.kind == "f" or dtype == BFLOAT16.dtype


def narrowed(type: Attribute) -> Attribute:
    """The type of 32 bits for an integer type of 64; other types as they are."""
    return {i64: i32, ui64: ui32}.get(type, type)  # pyright: ignore[reportArgumentType, reportCallIssue]
