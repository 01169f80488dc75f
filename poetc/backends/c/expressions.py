"""Expressions of C, and the operators and calls that scalar operations are printed as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from xdsl.dialects import arith, func, math
from xdsl.dialects.builtin import Float32Type, IndexType, IntegerType, i32
from xdsl.ir import Attribute, Operation

from poetc.errors import InputError
from poetc.ir import mathlib
from poetc.ir.buffers import element_bytes
from poetc.ir.index import Index, Variable
from poetc.ir.types import type_in_code

_HALF_BYTES = 2
"""The bytes of a float that C has as its bits."""


class Level(IntEnum):
    """How tightly an expression holds together; operands that hold less get parentheses."""

    CHOICE = 0
    OR = 1
    AND = 2
    COMPARE = 3
    SUM = 4
    PRODUCT = 5
    UNARY = 6
    ATOM = 7


@dataclass(frozen=True)
class Expression:
    """C text of a value.

    `reads` are the variables and buffers in it that may change later. `operation` has left operand,
    operator and right operand (without parentheses) of a sum or product.
    """

    text: str
    level: Level = Level.ATOM
    reads: frozenset[str] = frozenset()
    operation: tuple[str, str, str] | None = None

    def at(self, level: Level) -> str:
        """The text as an operand where `level` is needed."""
        return self.text if self.level >= level else f"({self.text})"


BINARY: Mapping[type[Operation], tuple[str, Level]] = {
    arith.AddfOp: ("+", Level.SUM),
    arith.SubfOp: ("-", Level.SUM),
    arith.MulfOp: ("*", Level.PRODUCT),
    arith.DivfOp: ("/", Level.PRODUCT),
}

_WRAPPING: Mapping[type[Operation], str] = {
    arith.AddiOp: "poetc_add",
    arith.SubiOp: "poetc_sub",
    arith.MuliOp: "poetc_mul",
    arith.ShLIOp: "poetc_shift_left",
    arith.ShRSIOp: "poetc_shift_right",
    math.IPowIOp: "poetc_power",
}
"""Functions of `poetc_scalar.h`, one for each type of integers."""

_UNSIGNED: Mapping[type[Operation], str] = {
    arith.DivUIOp: "/",
    arith.RemUIOp: "%",
    arith.ShRUIOp: ">>",
}

# On i1 these are logical; operands have no effects, so that short-circuiting does no harm.
_BITWISE: Mapping[type[Operation], tuple[str, str, Level]] = {
    arith.AndIOp: ("&", "&&", Level.AND),
    arith.OrIOp: ("|", "||", Level.OR),
    arith.XOrIOp: ("^", "!=", Level.COMPARE),
}

# By predicate number: the operator, and whether the result is negated (true if unordered).
CMPF: Mapping[int, tuple[str, bool]] = {
    1: ("==", False),
    2: (">", False),
    3: (">=", False),
    4: ("<", False),
    5: ("<=", False),
    9: ("<=", True),
    10: ("<", True),
    11: (">=", True),
    12: (">", True),
    13: ("!=", False),
}

_CMPI: Sequence[str] = ("==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">=")

_FIRST_UNSIGNED_CMPI = 6


def element_c_type(type_: Attribute) -> str:
    """The C type of an element in memory. Raises InputError for a type C code cannot hold."""
    return type_in_code(type_).c_memory


def scalar_c_type(type_: Attribute) -> str:
    return type_in_code(type_).c


def float_literal(value: float) -> Expression:
    """The float32 `value` exactly."""
    number = np.float32(value)
    bits = int(number.view(np.uint32))
    if not np.isfinite(number):
        return Expression(f"poetc_float(0x{bits:08x}u)")
    if 0 < abs(number) < np.finfo(np.float32).tiny:
        # Compilers may warn of decimal denormals.
        text = float(number).hex()
    else:
        text = np.format_float_scientific(number, unique=True, trim="0")
        mantissa, exponent = text.split("e")
        if -5 <= int(exponent) <= 7:
            text = np.format_float_positional(number, unique=True, trim="0")
        else:
            text = f"{mantissa}e{int(exponent)}"
    return Expression(f"{text}f", Level.UNARY if text[0] == "-" else Level.ATOM)


def integer_literal(value: int) -> Expression:
    value = int(value)
    if value in (-(2**31), -(2**63)):
        return Expression("INT32_MIN" if value == -(2**31) else "INT64_MIN")
    if not -(2**31) < value < 2**31:
        return Expression(f"INT64_C({value})")
    return Expression(str(value), Level.UNARY if value < 0 else Level.ATOM)


def _unsigned(type_: Attribute) -> str:
    """The unsigned C type of numbers of that type; booleans have no sign as they are."""
    return "uint32_t" if type_ == IntegerType(1) else f"u{scalar_c_type(type_)}"


def _suffix(type_: Attribute) -> str:
    """The end of the name of a function on integers of that type."""
    return "" if type_ in (i32, IndexType()) else f"_{type_}"


def _as(type_: Attribute, text: str) -> tuple[str, Level]:
    """An expression that C computes in int, as a number of the type that it fits into."""
    return f"({scalar_c_type(type_)})({text})", Level.UNARY


def index_level(index: Index) -> Level:
    if not index.terms:
        return Level.ATOM if index.const >= 0 else Level.UNARY
    return Level.ATOM if isinstance(index.single(), Variable) else Level.SUM


def vector_type(lanes: int) -> str:
    """The type of vectors; functions that use them define it."""
    return f"lanes{lanes}"


def integers_type(lanes: int) -> str:
    """The type of vectors of integers and booleans; of these, all bits of what is true are set."""
    return f"ints{lanes}"


def words_type(lanes: int) -> str:
    """The type of vectors of integers without a sign, which wrap."""
    return f"words{lanes}"


def place_type(lanes: int) -> str:
    """The type of vectors where they are in memory, at any float."""
    return f"place{lanes}"


def spread(expression: Expression, type_: Attribute, lanes: int) -> Expression:
    """A vector with a number of a type in all lanes."""
    if isinstance(type_, Float32Type):
        # Nothing changes if +0 is taken away.
        text = f"{expression.at(Level.SUM)} - ({vector_type(lanes)}){{0.0f}}"
    elif type_ == IntegerType(1):
        text = f"({integers_type(lanes)}){{0}} - (int32_t){expression.at(Level.UNARY)}"
    else:
        text = f"({integers_type(lanes)}){{0}} + {expression.at(Level.UNARY)}"
    return Expression(text, Level.SUM, expression.reads)


def render(op: Operation, parts: Sequence[Expression]) -> tuple[str, Level]:
    def call(name: str) -> tuple[str, Level]:
        return f"{name}({', '.join(part.text for part in parts)})", Level.ATOM

    boolean = op.operands and op.operands[0].type == IntegerType(1)
    kind, type_ = type(op), op.results[0].type
    if kind in BINARY:
        operator, level = BINARY[kind]
        left, right = parts[0].at(level), parts[1].at(Level(level + 1))
        return f"{left} {operator} {right}", level
    if kind in _BITWISE:
        bitwise, logical, level = _BITWISE[kind]
        if boolean:
            inner = Level(level + 1) if kind is not arith.OrIOp else Level.COMPARE
            return f"{parts[0].at(inner)} {logical} {parts[1].at(inner)}", level
        left, right = (part.at(Level.UNARY) for part in parts)
        text = f"{left} {bitwise} {right}"
        return _as(type_, text) if _is_small(type_) else (text, Level.OR)
    if kind in _WRAPPING and not boolean:
        return call(_WRAPPING[kind] + _suffix(type_))
    if kind in _UNSIGNED:
        unsigned = _unsigned(type_)
        left, right = (f"({unsigned}){part.at(Level.UNARY)}" for part in parts)
        return _as(type_, f"{left} {_UNSIGNED[kind]} {right}")
    if (symbol := _called_function(op)) is not None:
        return call(symbol)
    match op:
        case arith.CmpiOp():
            predicate = op.predicate.value.data
            left, right = (part.at(Level.SUM) for part in parts)
            if predicate >= _FIRST_UNSIGNED_CMPI:
                unsigned = _unsigned(op.lhs.type)
                left, right = (f"({unsigned}){part.at(Level.UNARY)}" for part in parts)
            return f"{left} {_CMPI[predicate]} {right}", Level.COMPARE
        case arith.SelectOp():
            return conditional(type_, parts[0].at(Level.OR), parts[1], parts[2])
        case arith.NegfOp():
            operand = parts[0].at(Level.ATOM)
            return f"-{operand}", Level.UNARY
        case math.AbsFOp():
            return call("poetc_abs")
        case arith.DivSIOp() | arith.RemSIOp():
            left, right = (part.at(Level.UNARY) for part in parts)
            text = f"{left} {'/' if kind is arith.DivSIOp else '%'} {right}"
            return _as(type_, text) if _is_small(type_) else (text, Level.PRODUCT)
        case arith.ExtFOp():
            return call(f"poetc_from_{op.operands[0].type}")
        case arith.TruncFOp():
            return call(f"poetc_to_{type_}")
        case arith.BitcastOp() if element_bytes(type_) == _HALF_BYTES:
            return f"({scalar_c_type(type_)}){parts[0].at(Level.UNARY)}", Level.UNARY
        case arith.BitcastOp():
            to_float = isinstance(op.result.type, Float32Type)
            return call("poetc_as_float" if to_float else "poetc_as_int")
        case arith.FPToSIOp() if _is_small(type_):
            return f"({scalar_c_type(type_)}){call('poetc_to_int')[0]}", Level.UNARY
        case arith.FPToSIOp():
            return call(f"poetc_to_int{_suffix(type_)}")
        case arith.SIToFPOp() if not boolean:
            return f"(float){parts[0].at(Level.UNARY)}", Level.UNARY
        case arith.SIToFPOp():
            return f"{parts[0].at(Level.OR)} ? -1.0f : 0.0f", Level.CHOICE
        case arith.UIToFPOp() if boolean:
            return f"{parts[0].at(Level.OR)} ? 1.0f : 0.0f", Level.CHOICE
        case arith.UIToFPOp():
            unsigned = _unsigned(op.operands[0].type)
            return f"(float)({unsigned}){parts[0].at(Level.UNARY)}", Level.UNARY
        case arith.ExtUIOp() if boolean:
            return f"{parts[0].at(Level.OR)} ? 1 : 0", Level.CHOICE
        case arith.ExtSIOp() if boolean:
            return f"{parts[0].at(Level.OR)} ? -1 : 0", Level.CHOICE
        case arith.TruncIOp() if op.result.type == IntegerType(1):
            return f"({parts[0].at(Level.UNARY)} & 1) != 0", Level.COMPARE
        case arith.TruncIOp() | arith.ExtSIOp():
            return f"({scalar_c_type(type_)}){parts[0].at(Level.UNARY)}", Level.UNARY
        case arith.ExtUIOp():
            unsigned = _unsigned(op.operands[0].type)
            text = f"({scalar_c_type(type_)})({unsigned}){parts[0].at(Level.UNARY)}"
            return text, Level.UNARY
        case arith.IndexCastOp() if type_ not in (i32, IndexType(), IntegerType(1)):
            return f"({scalar_c_type(type_)}){parts[0].at(Level.UNARY)}", Level.UNARY
        case arith.IndexCastOp():
            return parts[0].text, parts[0].level
    raise InputError(f"the C backend does not know {op.name} of {op.results[0].type}")


def _is_small(type_: Attribute) -> bool:
    """Whether C computes with int in place of the type."""
    return isinstance(type_, IntegerType) and 1 < type_.bitwidth < 32


def conditional(
    type_: Attribute, condition: str, yes: Expression, no: Expression
) -> tuple[str, Level]:
    """One of two numbers of a type."""
    text = f"{condition} ? {yes.at(Level.OR)} : {no.at(Level.OR)}"
    return _as(type_, text) if _is_small(type_) else (text, Level.CHOICE)


def called_functions(function: func.FuncOp) -> frozenset[str]:
    """C names of the functions that the printed function calls, `poetc_scalar.h` left out."""
    return frozenset(
        symbol for op in function.walk() if (symbol := _called_function(op)) is not None
    )


def _called_function(op: Operation) -> str | None:
    if isinstance(op, func.CallOp):
        return op.callee.root_reference.data
    return mathlib.symbol_of(op)
