"""Positions in loops as numbers, and numbers as positions."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, IntegerType, i32
from xdsl.ir import Attribute

from poetc.ir.types import ui32
from poetc.kernels.builder import Builder, Val
from poetc.kernels.index import Index


def from_index(b: Builder, index: Index, to: Attribute) -> Val:
    """A position as a number (stablehlo.iota)."""
    position = b.index_value(index)
    integer = to if isinstance(to, IntegerType) and to != ui32 else IntegerType(32)
    number = b.unary(arith.IndexCastOp, position, integer)
    b.positions[number.ssa] = index
    return number.of(to) if isinstance(to, IntegerType) else b.unary(arith.SIToFPOp, number, to)


def to_index(b: Builder, number: Val) -> Val:
    """An integer as a position."""
    if number.ssa in b.positions:
        return b.index_value(b.positions[number.ssa])
    if number.type == ui32:
        # Any large one is outside of all tensors.
        signed = number.of(i32)
        largest = b.constant((1 << 31) - 1, i32)
        number = b.select(b.compare("slt", signed, b.constant(0, i32)), largest, signed)
    return b.unary(arith.IndexCastOp, number, IndexType())


def clamp(b: Builder, position: Val, high: int) -> Val:
    """The position brought into `0 .. high`."""
    low_limit, high_limit = b.constant(0, position.type), b.constant(high, position.type)
    position = b.select(b.compare("slt", position, low_limit), low_limit, position)
    return b.select(b.compare("sgt", position, high_limit), high_limit, position)
