"""Operations whose result element depends on the operand elements in the same place."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat, FunctionType, TensorType, i1, i32
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from poetc.errors import InputError
from poetc.ir import mathlib, types
from poetc.ir.remainder import RemOp
from poetc.ir.stablehlo import semantics
from poetc.ir.stablehlo.base import (
    ELEMENT_TYPES,
    Array,
    Head,
    IntRange,
    PrettyOp,
    Scalar,
    ScalarBuilder,
    Value,
    check,
    check_elements,
    check_type,
    element_type_of,
    parse_operands,
    shape_of,
    tensor_type,
    with_shape,
)
from poetc.ir.stablehlo.index_maps import Indices
from poetc.ir.stablehlo_attributes import ComparisonDirectionAttr, ComparisonTypeAttr

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

    def evaluate(self, *operands: Array) -> Array:
        return self.meaning(*operands)

    @staticmethod
    def operand_at(operand: SSAValue, at: Indices) -> Indices:
        """Which element of an operand the result element `at` needs: that in the same place, or the
        only one of a scalar."""
        return at if shape_of(operand) else ()

    @staticmethod
    def int_range(ranges: Sequence[IntRange]) -> IntRange | None:
        """Range of an integer result before it wraps, for operands of these ranges."""
        return None


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

    @staticmethod
    def int_range(ranges: Sequence[IntRange]) -> IntRange | None:
        (low, high), (low2, high2) = ranges
        return low + low2, high + high2


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

    @staticmethod
    def int_range(ranges: Sequence[IntRange]) -> IntRange | None:
        (low, high), (low2, high2) = ranges
        return low - high2, high - low2


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

    @staticmethod
    def int_range(ranges: Sequence[IntRange]) -> IntRange | None:
        (low, high), (low2, high2) = ranges
        products = [a * b for a in (low, high) for b in (low2, high2)]
        return min(products), max(products)


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

    @staticmethod
    def int_range(ranges: Sequence[IntRange]) -> IntRange | None:
        (low, high), (low2, high2) = ranges
        return max(low, low2), max(high, high2)


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

    @staticmethod
    def int_range(ranges: Sequence[IntRange]) -> IntRange | None:
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


def compared(b: ScalarBuilder, direction: str, lhs: Scalar, rhs: Scalar) -> Scalar:
    """stablehlo.compare on scalars."""
    if isinstance(lhs.type, AnyFloat):
        return b.compare(("u" if direction == "NE" else "o") + direction.lower(), lhs, rhs)
    if direction in ("EQ", "NE"):
        return b.compare(direction.lower(), lhs, rhs)
    is_signed = types.ELEMENT_TYPES[lhs.type].arithmetic == "signed"
    return b.compare(("s" if is_signed else "u") + direction.lower(), lhs, rhs)


def _total_order(b: ScalarBuilder, x: Scalar) -> Scalar:
    """`semantics.total_order`: of a number with a sign, all bits but that are the other way."""
    x = x.of(types.computed_type(x.type))
    bits = b.unary(arith.BitcastOp, x, i32)
    sign = b.binary(arith.ShRSIOp, bits, b.constant(31, i32))
    flipped = b.binary(arith.AndIOp, sign, b.constant(0x7FFFFFFF, i32))
    return b.binary(arith.XOrIOp, bits, flipped)


@irdl_op_definition
class CompareOp(ElementwiseOp):
    """Element-wise comparison; false for NaN, except NE, but for TOTALORDER."""

    name = "stablehlo.compare"
    SHORT_SIGNATURE: ClassVar = False
    ELEMENTS: ClassVar = ELEMENT_TYPES  # pyright: ignore[reportIncompatibleVariableOverride]
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    comparison_direction = prop_def(ComparisonDirectionAttr)
    comparison_type = opt_prop_def(ComparisonTypeAttr, prop_name="compare_type")

    def __init__(self, lhs: Value, rhs: Value, direction: str, compare_type: str | None = None):
        self._init(
            [lhs, rhs],
            TensorType(i1, shape_of(lhs)),
            {
                "comparison_direction": ComparisonDirectionAttr(direction),
                "compare_type": None if compare_type is None else ComparisonTypeAttr(compare_type),
            },
        )

    @property
    def direction(self) -> str:
        """EQ, NE, GE, GT, LE or LT."""
        return self.comparison_direction.data

    @property
    def compare_type(self) -> str | None:
        """FLOAT, SIGNED or UNSIGNED where it is written out, which follows from the element type;
        TOTALORDER for floats in the order of `semantics.total_order`."""
        return None if self.comparison_type is None else self.comparison_type.data

    @property
    def is_total(self) -> bool:
        """Whether floats are compared as `semantics.total_order` has them."""
        return self.compare_type == "TOTALORDER"

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        properties: dict[str, Attribute] = {
            "comparison_direction": ComparisonDirectionAttr(
                parser.parse_keyword_in(ComparisonDirectionAttr.keywords)
            )
        }
        parser.parse_punctuation(",")
        operands = parse_operands(parser, 2)
        if parser.parse_optional_punctuation(",") is not None:
            properties["compare_type"] = ComparisonTypeAttr(
                parser.parse_keyword_in(ComparisonTypeAttr.keywords)
            )
        return operands, properties

    def print_head(self, printer: Printer) -> None:
        printer.print_string(f" {self.direction},")
        self._print_operands(printer)
        if self.compare_type is not None:
            printer.print_string(f", {self.compare_type}")

    def verify_op(self) -> None:
        check_type("operand 1", self.rhs.type, self.lhs.type)
        self._verify_result(TensorType(i1, shape_of(self.lhs)))
        element = element_type_of(self.lhs)
        expected = types.ELEMENT_TYPES[element].compare_type
        check(
            self.compare_type in (None, expected) or (self.is_total and expected == "FLOAT"),
            f"compare type {self.compare_type} does not fit {element}, expected {expected}",
        )

    def evaluate(self, *operands: Array) -> Array:
        lhs, rhs = map(semantics.total_order, operands) if self.is_total else operands
        return semantics.COMPARISONS[self.direction](lhs, rhs)

    def lower(self, b: ScalarBuilder, *operands: Scalar) -> Scalar:
        if self.is_total:
            operands = tuple(_total_order(b, x) for x in operands)
        return compared(b, self.direction, *operands)


@irdl_op_definition
class SelectOp(ElementwiseOp):
    """on_true where pred, else on_false; pred is a scalar or has the operands' shape."""

    name = "stablehlo.select"
    ELEMENTS: ClassVar = ELEMENT_TYPES  # pyright: ignore[reportIncompatibleVariableOverride]
    pred = operand_def(TensorType)
    on_true = operand_def(TensorType)
    on_false = operand_def(TensorType)

    def __init__(self, pred: Value, on_true: Value, on_false: Value):
        self._init([pred, on_true, on_false], tensor_type(on_true))

    @classmethod
    def parse(cls, parser: Parser) -> "SelectOp":
        operands = parse_operands(parser, 3)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        position = parser.pos
        first = parser.parse_type()
        if isinstance(first, FunctionType):
            if len(first.inputs) != 3 or len(first.outputs) != 1:
                parser.raise_error(
                    "expected 3 operand types and one result type", position, parser.pos
                )
            inputs, type = first.inputs.data, first.outputs.data[0]
        else:
            parser.parse_punctuation(",")
            type = parser.parse_type()
            inputs = (first, type, type)
        values = [parser.resolve_operand(o, t) for o, t in zip(operands, inputs, strict=True)]
        return cls.create(operands=values, result_types=[type], attributes=attributes)

    def print(self, printer: Printer) -> None:
        self._print_operands(printer)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        if self.on_true.type == self.on_false.type == self.result.type:
            printer.print_list([self.pred.type, self.result.type], printer.print_attribute)
        else:
            printer.print_operation_type(self)

    def verify_op(self) -> None:
        check_elements("pred", self.pred, (i1,))
        if shape_of(self.pred) not in ((), shape_of(self.on_true)):
            raise VerifyException(
                f"pred is {self.pred.type}, expected a scalar or the shape of {self.on_true.type}"
            )
        check_type("on_false", self.on_false.type, self.on_true.type)
        self._verify_result(tensor_type(self.on_true))

    def evaluate(self, *operands: Array) -> Array:
        pred, on_true, on_false = operands
        return np.where(pred, on_true, on_false)

    def lower(self, b: ScalarBuilder, *operands: Scalar) -> Scalar:
        return b.select(*operands)
