"""Positions in loops as numbers, and numbers as positions."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, IntegerType
from xdsl.ir import Attribute

from poetc.kernels.builder import Builder, Val
from poetc.kernels.index import Index


def from_index(b: Builder, index: Index, to: Attribute) -> Val:
    """A position as a number (stablehlo.iota)."""
    position = b.index_value(index)
    integer = to if isinstance(to, IntegerType) else IntegerType(32)
    number = b.unary(arith.IndexCastOp, position, integer)
    b.positions[number.ssa] = index
    return number if to is integer else b.unary(arith.SIToFPOp, number, to)


def to_index(b: Builder, number: Val) -> Val:
    """An integer as a position."""
    if number.ssa in b.positions:
        return b.index_value(b.positions[number.ssa])
    return b.unary(arith.IndexCastOp, number, IndexType())


def clamp(b: Builder, position: Val, high: int) -> Val:
    """The position brought into `0 .. high`."""
    low_limit, high_limit = b.constant(0, position.type), b.constant(high, position.type)
    position = b.select(b.compare("slt", position, low_limit), low_limit, position)
    return b.select(b.compare("sgt", position, high_limit), high_limit, position)
