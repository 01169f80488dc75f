"""Element-wise StableHLO operations as scalar expressions of the arith and math dialects."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat, IndexType, IntegerType
from xdsl.ir import Attribute, Operation

from poetc.errors import InputError
from poetc.ir import stablehlo
from poetc.kernels.builder import Builder, Val
from poetc.kernels.index import Index

_BOOL = IntegerType(1)

# What each binary operation is on floats and on integers (a name: the comparison that chooses).
_BINARY: dict[str, tuple[type | None, type | str | None]] = {
    "add": (arith.AddfOp, arith.AddiOp),
    "subtract": (arith.SubfOp, arith.SubiOp),
    "multiply": (arith.MulfOp, arith.MuliOp),
    "divide": (arith.DivfOp, None),
    "maximum": (arith.MaximumfOp, "sgt"),
    "minimum": (arith.MinimumfOp, "slt"),
    "power": (math.PowFOp, None),
    "and": (None, arith.AndIOp),
    "or": (None, arith.OrIOp),
    "xor": (None, arith.XOrIOp),
}

_UNARY_FLOAT: dict[str, type[Operation]] = {
    "negate": arith.NegfOp,
    "abs": math.AbsFOp,
    "exponential": math.ExpOp,
    "log": math.LogOp,
    "rsqrt": math.RsqrtOp,
    "sqrt": math.SqrtOp,
    "tanh": math.TanhOp,
}

_FLOAT_PREDICATES = {
    "EQ": "oeq",
    "NE": "une",
    "GE": "oge",
    "GT": "ogt",
    "LE": "ole",
    "LT": "olt",
}


def element_type(type: Attribute) -> Attribute:
    """Element type of a tensor type."""
    return type.element_type  # pyright: ignore


def combine(b: Builder, kind: str, lhs: Val, rhs: Val) -> Val:
    """The StableHLO binary operation `kind` (`add`, `maximum`, ...) on scalars."""
    on_float, on_int = _BINARY[kind]
    op = on_float if isinstance(lhs.type, AnyFloat) else on_int
    if op is None:
        raise InputError(f"stablehlo.{kind} on {lhs.type} is not supported in kernels")
    if isinstance(op, str):
        return b.select(b.compare(op, lhs, rhs), lhs, rhs)
    return b.binary(op, lhs, rhs)


def compare(b: Builder, direction: str, compare_type: str | None, lhs: Val, rhs: Val) -> Val:
    """stablehlo.compare on scalars; booleans compare as unsigned."""
    if compare_type == "TOTALORDER":
        raise InputError("stablehlo.compare with TOTALORDER is not supported in kernels")
    if isinstance(lhs.type, AnyFloat):
        return b.compare(_FLOAT_PREDICATES[direction], lhs, rhs)
    if direction in ("EQ", "NE"):
        return b.compare(direction.lower(), lhs, rhs)
    unsigned = compare_type == "UNSIGNED" or lhs.type == _BOOL
    return b.compare(("u" if unsigned else "s") + direction.lower(), lhs, rhs)


def convert(b: Builder, x: Val, to: Attribute) -> Val:
    """stablehlo.convert on a scalar."""
    if x.type == to:
        return x
    zero = b.constant(0, x.type)
    if isinstance(x.type, AnyFloat):
        if to == _BOOL:
            return b.compare("une", x, zero)
        if isinstance(to, AnyFloat):
            wider = to.bitwidth > x.type.bitwidth
            return b.unary(arith.ExtFOp if wider else arith.TruncFOp, x, to)
        assert isinstance(to, IntegerType)
        return _to_integer(b, x, to)
    if to == _BOOL:
        return b.compare("ne", x, zero)
    if isinstance(to, AnyFloat):
        return b.unary(arith.UIToFPOp if x.type == _BOOL else arith.SIToFPOp, x, to)
    assert isinstance(x.type, IntegerType) and isinstance(to, IntegerType)
    if to.bitwidth < x.type.bitwidth:
        return b.unary(arith.TruncIOp, x, to)
    return b.unary(arith.ExtUIOp if x.type == _BOOL else arith.ExtSIOp, x, to)


def _to_integer(b: Builder, x: Val, to: IntegerType) -> Val:
    """Float to integer: truncates, saturates, and turns NaN into 0; `arith.fptosi` itself is only
    given numbers that fit."""
    limit = 1 << (to.bitwidth - 1)
    above = b.compare("oge", x, b.constant(float(limit), x.type))
    below = b.compare("olt", x, b.constant(-float(limit), x.type))
    outside = b.binary(arith.OrIOp, above, below)
    outside = b.binary(arith.OrIOp, outside, b.compare("une", x, x))
    fits = b.select(outside, b.constant(0, x.type), x)
    number = b.unary(arith.FPToSIOp, fits, to)
    number = b.select(above, b.constant(limit - 1, to), number)
    return b.select(below, b.constant(-limit, to), number)


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


def _negate(b: Builder, x: Val) -> Val:
    return b.binary(arith.SubiOp, b.constant(0, x.type), x)


def _sign(b: Builder, x: Val) -> Val:
    """-1, 0 or 1; zeros keep their sign and NaN stays NaN."""
    zero, one, minus_one = (b.constant(value, x.type) for value in (0, 1, -1))
    greater, less = ("ogt", "olt") if isinstance(x.type, AnyFloat) else ("sgt", "slt")
    positive = b.select(b.compare(greater, x, zero), one, x)
    return b.select(b.compare(less, x, zero), minus_one, positive)


def invert(b: Builder, x: Val) -> Val:
    """stablehlo.not on a scalar."""
    return b.binary(arith.XOrIOp, x, b.constant(1 if x.type == _BOOL else -1, x.type))


def _is_finite(b: Builder, x: Val) -> Val:
    return b.compare("olt", b.unary(math.AbsFOp, x), b.constant(float("inf"), x.type))


def _unary(b: Builder, name: str, x: Val) -> Val:
    is_float = isinstance(x.type, AnyFloat)
    match name:
        case "sign":
            return _sign(b, x)
        case "not":
            return invert(b, x)
        case "is_finite" if is_float:
            return _is_finite(b, x)
        case "negate" if not is_float:
            return _negate(b, x)
        case "abs" if not is_float:
            negative = b.compare("slt", x, b.constant(0, x.type))
            return b.select(negative, _negate(b, x), x)
        case _ if is_float and name in _UNARY_FLOAT:
            return b.unary(_UNARY_FLOAT[name], x)
    raise InputError(f"stablehlo.{name} on {x.type} is not supported in kernels")


def is_elementwise(op: Operation) -> bool:
    """Whether the result element depends on just the operand elements in the same place."""
    return isinstance(
        op,
        stablehlo.BinaryElementwiseOp
        | stablehlo.UnaryElementwiseOp
        | stablehlo.CompareOp
        | stablehlo.SelectOp,
    )


def evaluate(b: Builder, op: Operation, operand: Callable[[int], Val]) -> Val:
    """The element-wise `op`; `operand(i)` gives the element of its operand i."""
    name = op.name.removeprefix("stablehlo.")
    match op:
        case stablehlo.CompareOp():
            return compare(b, op.direction, op.compare_type, operand(0), operand(1))
        case stablehlo.SelectOp():
            return b.select(operand(0), operand(1), operand(2))
        case stablehlo.ConvertOp():
            return convert(b, operand(0), element_type(op.result.type))
        case stablehlo.BinaryElementwiseOp():
            return combine(b, name, operand(0), operand(1))
        case stablehlo.UnaryElementwiseOp():
            return _unary(b, name, operand(0))
    raise InputError(f"{op.name} is not supported in kernels")
