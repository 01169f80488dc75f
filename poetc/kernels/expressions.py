"""Positions in loops as numbers, and numbers as positions."""

from __future__ import annotations

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, IntegerType, i32, i64
from xdsl.ir import Attribute

from poetc.ir.dense import dtype_of
from poetc.ir.index import Index
from poetc.ir.stablehlo.conversion import converted
from poetc.ir.types import with_arithmetic
from poetc.kernels.builder import Builder, Val

_INDEX_BYTES = 4
"""The bytes of a position in generated code."""


def from_index(b: Builder, index: Index, to: Attribute) -> Val:
    """A position as a number (stablehlo.iota)."""
    position = b.index_value(index)
    number = b.unary(arith.IndexCastOp, position, to if isinstance(to, IntegerType) else i32)
    if dtype_of(number.type).itemsize >= _INDEX_BYTES:
        b.positions[number.ssa] = index
    return converted(b, number, to)


def to_index(b: Builder, number: Val) -> Val:
    """An integer as a position."""
    if number.ssa in b.positions:
        return b.index_value(b.positions[number.ssa])
    if number.type not in with_arithmetic("signed"):
        if dtype_of(number.type).itemsize < _INDEX_BYTES:
            return b.unary(arith.IndexCastOp, converted(b, number, i32), IndexType())
        # Any large one is outside of all tensors.
        signed = number.of(None)
        largest = b.constant(np.iinfo(dtype_of(signed.type)).max, signed.type)
        number = b.select(b.compare("slt", signed, b.constant(0, signed.type)), largest, signed)
    if number.type == i64:
        low, high = (b.constant(bound, i64) for bound in (-1, (1 << 31) - 1))
        number = b.select(b.compare("slt", number, low), low, number)
        number = b.select(b.compare("sgt", number, high), high, number)
        number = b.unary(arith.TruncIOp, number, i32)
    return b.unary(arith.IndexCastOp, number, IndexType())


def clamp(b: Builder, position: Val, high: int) -> Val:
    """The position brought into `0 .. high`."""
    low_limit, high_limit = b.constant(0, position.type), b.constant(high, position.type)
    position = b.select(b.compare("slt", position, low_limit), low_limit, position)
    return b.select(b.compare("sgt", position, high_limit), high_limit, position)
