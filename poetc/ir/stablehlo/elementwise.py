"""Operations whose result element depends on the operand elements in the same place."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat, TensorType, i1
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def
from xdsl.parser import Parser
from xdsl.printer import Printer

from poetc.errors import InputError
from poetc.ir import mathlib, types
from poetc.ir.remainder import RemOp
from poetc.ir.stablehlo import semantics
from poetc.ir.stablehlo.base import (
    ELEMENT_TYPES,
    Along,
    Array,
    FloatFacts,
    Head,
    IntRange,
    PrettyOp,
    Scalar,
    ScalarBuilder,
    Value,
    Walk,
    check_elements,
    check_type,
    parse_operands,
    shape_of,
    tensor_type,
    with_shape,
)
from poetc.ir.stablehlo.index_maps import Indices

Scalars = Mapping[types.Arithmetic, type[Operation] | Callable[..., Scalar]]


class _Elements:
    """The element types that an operation has a scalar meaning for."""

    def __get__(self, instance: object, owner: "type[ElementwiseOp]") -> tuple[Attribute, ...]:
        return types.with_arithmetic(*owner.SCALARS)


class ElementwiseOp(PrettyOp):
    """An operation on the elements in the same place of all operands.

    `SCALARS` has what it is on scalars, for each arithmetic of elements that it takes: an operation
    of the arith or math dialect, or a function that builds several. An operation that is a
    mathematical function (mathlib.py) needs no more than that; others have their meaning on arrays
    in `MEANING`.
    """

    SHORT_SIGNATURE: ClassVar = True
    SCALARS: ClassVar[Scalars] = {}
    ELEMENTS: ClassVar = _Elements()
    MEANING: ClassVar[Callable[..., Any] | None] = None
    ROUNDS: ClassVar[bool] = True
    """Whether a result on floats may have more digits than the operands."""
    IS_SLOW: ClassVar[bool] = False
    """Whether it costs much more than an addition, though it is no function."""

    @classmethod
    def function(cls) -> str | None:
        """The symbol of the mathematical function that it is on floats."""
        scalar = cls.SCALARS.get("float")
        return mathlib.symbol_of(scalar) if isinstance(scalar, type) else None

    @classmethod
    def scalar(cls, b: ScalarBuilder, *operands: Scalar) -> Scalar:
        """Builds the operation on scalars, which have one type, and rounds its result to that."""
        type_ = operands[0].type
        scalar = cls.SCALARS.get(types.ELEMENT_TYPES[type_].arithmetic)
        if scalar is None:
            raise InputError(f"{cls.name} on {type_} is not supported in kernels")
        computed = types.computed_type(type_)
        operands = tuple(operand.of(computed) for operand in operands)
        if not isinstance(scalar, type):
            result = scalar(b, *operands)
        elif len(operands) == 1:
            result = b.unary(scalar, *operands)
        else:
            result = b.binary(scalar, *operands)
        if computed == type_ or result.type != computed:
            return result
        return b.rounded(result, type_) if cls.ROUNDS else result.of(type_)

    def lower(self, b: ScalarBuilder, *operands: Scalar) -> Scalar:
        """Builds this operation on an element of each operand."""
        return self.scalar(b, *operands)

    @classmethod
    def meaning(cls, *operands: Array) -> Array:
        """The operation on arrays, which have one type; its result is rounded to that."""
        dtype = operands[0].dtype
        computed = types.computed_dtype(dtype)
        if computed != dtype:
            result = np.asarray(cls.meaning(*(array.astype(computed) for array in operands)))
            return result.astype(dtype) if result.dtype == computed else result
        symbol = cls.function()
        if symbol is not None and types.is_float(dtype):
            return mathlib.evaluate(mathlib.short_name(symbol), *operands)
        assert cls.MEANING is not None, cls
        return cls.MEANING(*operands)

    def along(self, dim: int) -> Walk | None:
        # An operand of rank 0 stands for all elements.
        return tuple(Along(dim) if shape_of(x) else None for x in self.operands)

    def evaluate(self, *operands: Array) -> Array:
        return self.meaning(*operands)

    @staticmethod
    def operand_at(operand: SSAValue, at: Indices) -> Indices:
        """The element of an operand that the result element `at` needs: the one in the same place,
        or the only one of a scalar."""
        return at if shape_of(operand) else ()


class BinaryElementwiseOp(ElementwiseOp):
    """Two operands and a result of the same type."""

    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)

    def __init__(self, lhs: Value, rhs: Value):
        self._init([lhs, rhs], tensor_type(lhs))

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        return parse_operands(parser, 2), {}

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)

    def verify_op(self) -> None:
        check_elements("operand 0", self.lhs, self.ELEMENTS)
        check_type("operand 1", self.rhs.type, self.lhs.type)
        self._verify_result(tensor_type(self.lhs))


def _choice(predicate: str) -> Callable[..., Scalar]:
    """The left operand where an integer comparison holds, else the right one."""
    return lambda b, x, y: b.select(b.compare(predicate, x, y), x, y)


@irdl_op_definition
class AddOp(BinaryElementwiseOp):
    """lhs + rhs; integers wrap, i1 is or."""

    name = "stablehlo.add"
    SCALARS: ClassVar = {
        "float": arith.AddfOp,
        "signed": arith.AddiOp,
        "unsigned": arith.AddiOp,
        "bool": arith.OrIOp,
    }
    MEANING: ClassVar = staticmethod(np.add)

    def int_range(self, ranges: Sequence[IntRange]) -> IntRange | None:
        (low, high), (low2, high2) = ranges
        return low + low2, high + high2

    def lacks_negative_zero(self, facts: FloatFacts) -> bool:
        # Rounding to nearest, a sum is -0.0 only if both operands are.
        return facts.never_negative_zero(self.lhs) or facts.never_negative_zero(self.rhs)


@irdl_op_definition
class SubtractOp(BinaryElementwiseOp):
    """lhs - rhs; integers wrap."""

    name = "stablehlo.subtract"
    SCALARS: ClassVar = {
        "float": arith.SubfOp,
        "signed": arith.SubiOp,
        "unsigned": arith.SubiOp,
    }
    MEANING: ClassVar = staticmethod(np.subtract)

    def int_range(self, ranges: Sequence[IntRange]) -> IntRange | None:
        (low, high), (low2, high2) = ranges
        return low - high2, high - low2

    def lacks_negative_zero(self, facts: FloatFacts) -> bool:
        # a - b is -0.0 only for -0.0 - +0.0.
        return facts.never_negative_zero(self.lhs)


@irdl_op_definition
class MultiplyOp(BinaryElementwiseOp):
    """lhs * rhs; integers wrap, i1 is and."""

    name = "stablehlo.multiply"
    SCALARS: ClassVar = {
        "float": arith.MulfOp,
        "signed": arith.MuliOp,
        "unsigned": arith.MuliOp,
        "bool": arith.AndIOp,
    }
    MEANING: ClassVar = staticmethod(np.multiply)

    def int_range(self, ranges: Sequence[IntRange]) -> IntRange | None:
        (low, high), (low2, high2) = ranges
        products = [a * b for a in (low, high) for b in (low2, high2)]
        return min(products), max(products)

    def lacks_negative_zero(self, facts: FloatFacts) -> bool:
        # A square has no sign.
        return self.lhs is self.rhs


def _harmless(b: ScalarBuilder, y: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """Whether a divisor is 0, whether it is -1, and one that is 1 in place of these."""
    one = b.constant(1, y.type)
    is_zero = b.compare("eq", y, b.constant(0, y.type))
    is_minus_one = b.compare("eq", y, b.constant(-1, y.type))
    return is_zero, is_minus_one, b.select(is_minus_one, one, b.select(is_zero, one, y))


def _quotient(b: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
    is_zero, is_minus_one, divisor = _harmless(b, y)
    quotient = b.binary(arith.DivSIOp, x, divisor)
    quotient = b.select(is_minus_one, b.binary(arith.SubiOp, b.constant(0, x.type), x), quotient)
    return b.select(is_zero, b.constant(-1, x.type), quotient)


def _unsigned_quotient(b: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
    is_zero = b.compare("eq", y, b.constant(0, y.type))
    quotient = b.binary(arith.DivUIOp, x, b.select(is_zero, b.constant(1, y.type), y))
    return b.select(is_zero, b.constant(-1, x.type), quotient)


@irdl_op_definition
class DivideOp(BinaryElementwiseOp):
    """lhs / rhs; integers towards zero, all bits for a divisor of 0, and the smallest number by -1
    wraps."""

    name = "stablehlo.divide"
    SCALARS: ClassVar = {
        "float": arith.DivfOp,
        "signed": _quotient,
        "unsigned": _unsigned_quotient,
    }
    MEANING: ClassVar = staticmethod(semantics.divide)
    IS_SLOW: ClassVar = True


def _remainder(b: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
    is_zero, _, divisor = _harmless(b, y)
    return b.select(is_zero, x, b.binary(arith.RemSIOp, x, divisor))


def _unsigned_remainder(b: ScalarBuilder, x: Scalar, y: Scalar) -> Scalar:
    is_zero = b.compare("eq", y, b.constant(0, y.type))
    divisor = b.select(is_zero, b.constant(1, y.type), y)
    return b.select(is_zero, x, b.binary(arith.RemUIOp, x, divisor))


@irdl_op_definition
class RemainderOp(BinaryElementwiseOp):
    """lhs - rhs * (lhs / rhs) with the quotient towards zero; for a divisor of 0, lhs if these are
    integers."""

    name = "stablehlo.remainder"
    SCALARS: ClassVar = {
        "float": RemOp,
        "signed": _remainder,
        "unsigned": _unsigned_remainder,
    }
    MEANING: ClassVar = staticmethod(semantics.remainder)
    IS_SLOW: ClassVar = True


@irdl_op_definition
class MaximumOp(BinaryElementwiseOp):
    """The larger operand; NaN if one is NaN; +0.0 for 0.0 and -0.0."""

    name = "stablehlo.maximum"
    ROUNDS: ClassVar = False
    SCALARS: ClassVar = {
        "float": arith.MaximumfOp,
        "signed": _choice("sgt"),
        "unsigned": _choice("ugt"),
        "bool": arith.OrIOp,
    }
    MEANING: ClassVar = staticmethod(semantics.maximum)

    def int_range(self, ranges: Sequence[IntRange]) -> IntRange | None:
        (low, high), (low2, high2) = ranges
        return max(low, low2), max(high, high2)

    def lacks_negative_zero(self, facts: FloatFacts) -> bool:
        # maximum(x, c) >= c, and it gives +0.0 for two zeros of different sign.
        return any(
            splat is not None and float(splat) >= 0 and not np.signbit(splat)
            for splat in (facts.splat(self.lhs), facts.splat(self.rhs))
        )


@irdl_op_definition
class MinimumOp(BinaryElementwiseOp):
    """The smaller operand; NaN if one is NaN; -0.0 for 0.0 and -0.0."""

    name = "stablehlo.minimum"
    ROUNDS: ClassVar = False
    SCALARS: ClassVar = {
        "float": arith.MinimumfOp,
        "signed": _choice("slt"),
        "unsigned": _choice("ult"),
        "bool": arith.AndIOp,
    }
    MEANING: ClassVar = staticmethod(semantics.minimum)

    def int_range(self, ranges: Sequence[IntRange]) -> IntRange | None:
        (low, high), (low2, high2) = ranges
        return min(low, low2), min(high, high2)


class UnaryElementwiseOp(ElementwiseOp):
    """One operand and a result of the same shape, by default of the same type."""

    operand = operand_def(TensorType)

    def __init__(self, operand: Value):
        self._init([operand], tensor_type(operand))

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        return parse_operands(parser, 1), {}

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)

    def verify_op(self) -> None:
        check_elements("operand 0", self.operand, self.ELEMENTS)
        self._verify_result(tensor_type(self.operand))


def _negated(b: ScalarBuilder, x: Scalar) -> Scalar:
    return b.binary(arith.SubiOp, b.constant(0, x.type), x)


def _magnitude(b: ScalarBuilder, x: Scalar) -> Scalar:
    return b.select(b.compare("slt", x, b.constant(0, x.type)), _negated(b, x), x)


def _sign(b: ScalarBuilder, x: Scalar) -> Scalar:
    zero, one, minus_one = (b.constant(value, x.type) for value in (0, 1, -1))
    greater, less = ("ogt", "olt") if isinstance(x.type, AnyFloat) else ("sgt", "slt")
    positive = b.select(b.compare(greater, x, zero), one, x)
    return b.select(b.compare(less, x, zero), minus_one, positive)


def _is_finite(b: ScalarBuilder, x: Scalar) -> Scalar:
    return b.compare("olt", b.unary(math.AbsFOp, x), b.constant(float("inf"), x.type))


@irdl_op_definition
class NegateOp(UnaryElementwiseOp):
    """-operand: flips the sign bit of a float."""

    name = "stablehlo.negate"
    ROUNDS: ClassVar = False
    SCALARS: ClassVar = {"float": arith.NegfOp, "signed": _negated, "unsigned": _negated}
    MEANING: ClassVar = staticmethod(np.negative)


@irdl_op_definition
class AbsOp(UnaryElementwiseOp):
    """Absolute value: clears the sign bit of a float."""

    name = "stablehlo.abs"
    ROUNDS: ClassVar = False
    SCALARS: ClassVar = {"float": math.AbsFOp, "signed": _magnitude}
    MEANING: ClassVar = staticmethod(np.abs)

    def lacks_negative_zero(self, facts: FloatFacts) -> bool:
        return True


@irdl_op_definition
class SignOp(UnaryElementwiseOp):
    """-1, 0 or 1 with the operand's sign; floats keep -0.0 and NaN."""

    name = "stablehlo.sign"
    ROUNDS: ClassVar = False
    SCALARS: ClassVar = {"float": _sign, "signed": _sign}
    MEANING: ClassVar = staticmethod(semantics.sign)


@irdl_op_definition
class IsFiniteOp(UnaryElementwiseOp):
    """Whether the operand is neither infinite nor NaN."""

    name = "stablehlo.is_finite"
    SCALARS: ClassVar = {"float": _is_finite}
    MEANING: ClassVar = staticmethod(np.isfinite)

    def __init__(self, operand: Value):
        self._init([operand], TensorType(i1, shape_of(operand)))

    def verify_op(self) -> None:
        check_elements("operand 0", self.operand, self.ELEMENTS)
        self._verify_result(TensorType(i1, shape_of(self.operand)))


@irdl_op_definition
class ClampOp(ElementwiseOp):
    """The operand, at least `lower` and at most `upper`; each of these may be a scalar."""

    name = "stablehlo.clamp"
    lower_bound = operand_def(TensorType)
    operand = operand_def(TensorType)
    upper_bound = operand_def(TensorType)
    ELEMENTS: ClassVar = ELEMENT_TYPES  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, lower: Value, operand: Value, upper: Value):
        self._init([lower, operand, upper], tensor_type(operand))

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        return parse_operands(parser, 3), {}

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)

    def verify_op(self) -> None:
        for name, bound in (("lower", self.lower_bound), ("upper", self.upper_bound)):
            if bound.type != with_shape(self.operand, ()):
                check_type(f"{name} bound", bound.type, self.operand.type)
        self._verify_result(tensor_type(self.operand))

    def evaluate(self, *operands: Array) -> Array:
        lower, x, upper = operands
        return MinimumOp.meaning(MaximumOp.meaning(x, lower), upper)

    def lower(self, b: ScalarBuilder, *operands: Scalar) -> Scalar:
        lower, x, upper = operands
        return MinimumOp.scalar(b, MaximumOp.scalar(b, x, lower), upper)
