"""Element-wise StableHLO operations as scalar expressions of the arith and math dialects."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat, IndexType, IntegerType
from xdsl.ir import Attribute, Operation

from poetc.errors import InputError
from poetc.ir import stablehlo
from poetc.kernels.builder import Builder, Val

_BOOL = IntegerType(1)

# What each binary operation is on floats, on integers, and on booleans (None: no such operation).
_BINARY: dict[str, tuple[type | None, type | str | None, type | None]] = {
    "add": (arith.AddfOp, arith.AddiOp, arith.OrIOp),
    "subtract": (arith.SubfOp, arith.SubiOp, None),
    "multiply": (arith.MulfOp, arith.MuliOp, arith.AndIOp),
    "divide": (arith.DivfOp, arith.DivSIOp, None),
    "maximum": (arith.MaximumfOp, "sgt", arith.OrIOp),
    "minimum": (arith.MinimumfOp, "slt", arith.AndIOp),
    "power": (math.PowFOp, None, None),
    "and": (None, arith.AndIOp, arith.AndIOp),
    "or": (None, arith.OrIOp, arith.OrIOp),
    "xor": (None, arith.XOrIOp, arith.XOrIOp),
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
    on_float, on_int, on_bool = _BINARY[kind]
    if isinstance(lhs.type, AnyFloat):
        op = on_float
    else:
        op = on_bool if lhs.type == _BOOL else on_int
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
        return b.unary(arith.FPToSIOp, x, to)
    if to == _BOOL:
        return b.compare("ne", x, zero)
    if isinstance(to, AnyFloat):
        return b.unary(arith.UIToFPOp if x.type == _BOOL else arith.SIToFPOp, x, to)
    assert isinstance(x.type, IntegerType) and isinstance(to, IntegerType)
    if to.bitwidth < x.type.bitwidth:
        return b.unary(arith.TruncIOp, x, to)
    return b.unary(arith.ExtUIOp if x.type == _BOOL else arith.ExtSIOp, x, to)


def from_index(b: Builder, index: Val, to: Attribute) -> Val:
    """A position as a number (stablehlo.iota)."""
    if isinstance(to, IntegerType):
        return b.unary(arith.IndexCastOp, index, to)
    return b.unary(arith.SIToFPOp, b.unary(arith.IndexCastOp, index, IntegerType(32)), to)


def to_index(b: Builder, number: Val) -> Val:
    """An integer that is read from memory as a position."""
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


def _not(b: Builder, x: Val) -> Val:
    return b.binary(arith.XOrIOp, x, b.constant(1 if x.type == _BOOL else -1, x.type))


def _is_finite(b: Builder, x: Val) -> Val:
    return b.compare("olt", b.unary(math.AbsFOp, x), b.constant(float("inf"), x.type))


def _unary(b: Builder, name: str, x: Val) -> Val:
    is_float = isinstance(x.type, AnyFloat)
    match name:
        case "sign":
            return _sign(b, x)
        case "not":
            return _not(b, x)
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
