"""The types that generated code computes with: one mapping for all backends."""

from __future__ import annotations

from typing import Literal

from xdsl.dialects.builtin import Float32Type, IndexType, IntegerType
from xdsl.ir import Attribute

from poetc.errors import InputError

Kind = Literal["float32", "int32", "bool"]
"""A type by its name in NumPy and TVM. A bool takes a byte in memory."""


def kind_of(type_: Attribute) -> Kind:
    """How code holds a number of an element type or of `index`. Raises InputError if none can."""
    match type_:
        case Float32Type():
            return "float32"
        case IndexType():
            return "int32"
        case IntegerType() if type_.width.data == 32:
            return "int32"
        case IntegerType() if type_.width.data == 1:
            return "bool"
    raise InputError(f"generated code has no type for {type_}; it knows f32, i32 and i1")
