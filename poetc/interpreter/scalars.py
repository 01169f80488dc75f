"""The scalar operations of kernels, on arrays that hold one number for each iteration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Attribute, Operation

from poetc.interpreter.functions import InterpreterError
from poetc.ir import mathlib
from poetc.ir.dense import dtype_of
from poetc.ir.locations import source_location
from poetc.ir.stablehlo import semantics
from poetc.ir.stablehlo.base import Array

_POSITIONS = np.dtype(np.int64)


def _power(base: Array, exponent: Array) -> Array:
    """Integer powers, which wrap."""
    power = np.ones_like(base)
    while (exponent > 0).any():
        power = np.where((exponent > 0) & (exponent & 1 == 1), power * base, power)
        base, exponent = base * base, exponent >> 1
    return power


def _to_int(array: Array, dtype: np.dtype[Any]) -> Array:
    """Towards zero; what no integer of the type can be is its least or greatest, and NaN is 0."""
    limits = np.iinfo(dtype)
    above, below = array >= -float(limits.min), array < float(limits.min)
    inside = np.where(above | below | (array != array), 0, array).astype(dtype)
    return np.where(above, limits.max, np.where(below, limits.min, inside)).astype(dtype)


_OPERATIONS: Mapping[type[Operation], Callable[..., Any]] = {
    arith.NegfOp: np.negative,
    math.AbsFOp: np.abs,
    arith.MaximumfOp: semantics.maximum,
    arith.MinimumfOp: semantics.minimum,
    math.IPowIOp: _power,
    # Towards zero; divisors are neither 0 nor -1.
    arith.DivSIOp: lambda a, b: a // b + ((a % b != 0) & ((a < 0) != (b < 0))).astype(a.dtype),
}

_UNSIGNED: Mapping[type[Operation], Callable[..., Any]] = {
    arith.DivUIOp: np.floor_divide,
    arith.RemUIOp: np.remainder,
    arith.ShRUIOp: np.right_shift,
}


def scalar_dtype(type_: Attribute) -> np.dtype[Any]:
    """How numbers of a type are held here: those of `index` in 64 bits."""
    return _POSITIONS if isinstance(type_, IndexType) else dtype_of(type_)


def scalar(op: Operation, operands: Sequence[Array]) -> Array:
    """The result of one operation; InterpreterError for one that kernels do not have."""
    kind = type(op)
    to = scalar_dtype(op.results[0].type)
    if (symbol := mathlib.symbol_of(op)) is not None:
        return mathlib.evaluate(mathlib.short_name(symbol), *operands)
    if kind in _OPERATIONS:
        return _OPERATIONS[kind](*operands)
    if kind in _UNSIGNED:
        return _signed(_UNSIGNED[kind](*map(mathlib.unsigned, operands)))
    match op:
        case arith.BitcastOp():
            return np.ascontiguousarray(operands[0]).reshape(operands[0].shape).view(to)
        case arith.FPToSIOp():
            return _to_int(operands[0], to)
        case arith.SIToFPOp() | arith.ExtSIOp() if operands[0].dtype == np.bool_:
            return (-operands[0].astype(np.int8)).astype(to)
        case arith.UIToFPOp() | arith.ExtUIOp():
            return mathlib.unsigned(operands[0]).astype(to)
        case arith.TruncIOp() if to == np.bool_:
            return (operands[0] & 1).astype(to)
        case (
            arith.SIToFPOp()
            | arith.ExtSIOp()
            | arith.TruncIOp()
            | arith.IndexCastOp()
            | arith.ExtFOp()
            | arith.TruncFOp()
        ):
            return operands[0].astype(to)
        case _:
            try:
                return mathlib.arithmetic(op, operands)
            except KeyError:
                raise InterpreterError(
                    f"cannot interpret {op.name} in a kernel", source_location(op)
                ) from None


def _signed(array: Array) -> Array:
    return array.view(f"i{array.itemsize}")
