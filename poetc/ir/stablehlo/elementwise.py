"""Operations whose result element depends on the operand elements in the same place."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
from xdsl.dialects.builtin import FunctionType, TensorType, f32, i1, i32
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from poetc.ir import dense, mathlib, types
from poetc.ir.stablehlo import semantics
from poetc.ir.stablehlo.base import (
    ELEMENT_TYPES,
    Array,
    Head,
    PrettyOp,
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
from poetc.ir.stablehlo_attributes import ComparisonDirectionAttr, ComparisonTypeAttr


class BinaryElementwiseOp(PrettyOp):
    """Two operands and a result of the same type.

    `MEANING` is the function on arrays.
    """

    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    SHORT_SIGNATURE: ClassVar = True
    ELEMENTS: ClassVar[tuple[Attribute, ...]] = ELEMENT_TYPES

    MEANING: ClassVar[Callable[..., Any]]

    def __init__(self, lhs: Value, rhs: Value):
        self._init([lhs, rhs], tensor_type(lhs))

    def evaluate(self, *operands: Array) -> Array:
        lhs, rhs = operands
        return type(self).MEANING(lhs, rhs)

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        return parse_operands(parser, 2), {}

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)

    def verify_op(self) -> None:
        check_elements("operand 0", self.lhs, self.ELEMENTS)
        check_type("operand 1", self.rhs.type, self.lhs.type)
        self._verify_result(tensor_type(self.lhs))


@irdl_op_definition
class AddOp(BinaryElementwiseOp):
    """lhs + rhs; i32 wraps."""

    name = "stablehlo.add"
    MEANING: ClassVar = staticmethod(np.add)
    ELEMENTS: ClassVar = (f32, i32)


@irdl_op_definition
class SubtractOp(BinaryElementwiseOp):
    """lhs - rhs; i32 wraps."""

    name = "stablehlo.subtract"
    MEANING: ClassVar = staticmethod(np.subtract)
    ELEMENTS: ClassVar = (f32, i32)


@irdl_op_definition
class MultiplyOp(BinaryElementwiseOp):
    """lhs * rhs; i32 wraps."""

    name = "stablehlo.multiply"
    MEANING: ClassVar = staticmethod(np.multiply)
    ELEMENTS: ClassVar = (f32, i32)


@irdl_op_definition
class DivideOp(BinaryElementwiseOp):
    """lhs / rhs."""

    name = "stablehlo.divide"
    MEANING: ClassVar = staticmethod(np.divide)
    ELEMENTS: ClassVar = (f32,)


@irdl_op_definition
class MaximumOp(BinaryElementwiseOp):
    """The larger operand; NaN if one is NaN; +0.0 for 0.0 and -0.0."""

    name = "stablehlo.maximum"
    MEANING: ClassVar = staticmethod(semantics.maximum)
    ELEMENTS: ClassVar = (f32, i32)


@irdl_op_definition
class MinimumOp(BinaryElementwiseOp):
    """The smaller operand; NaN if one is NaN; -0.0 for 0.0 and -0.0."""

    name = "stablehlo.minimum"
    MEANING: ClassVar = staticmethod(semantics.minimum)
    ELEMENTS: ClassVar = (f32, i32)


@irdl_op_definition
class PowerOp(BinaryElementwiseOp):
    """lhs to the power of rhs."""

    name = "stablehlo.power"
    MEANING: ClassVar = staticmethod(partial(mathlib.evaluate, "pow"))
    ELEMENTS: ClassVar = (f32,)


@irdl_op_definition
class AndOp(BinaryElementwiseOp):
    """Bitwise and."""

    name = "stablehlo.and"
    MEANING: ClassVar = staticmethod(np.bitwise_and)
    ELEMENTS: ClassVar = (i32, i1)


@irdl_op_definition
class OrOp(BinaryElementwiseOp):
    """Bitwise or."""

    name = "stablehlo.or"
    MEANING: ClassVar = staticmethod(np.bitwise_or)
    ELEMENTS: ClassVar = (i32, i1)


@irdl_op_definition
class XorOp(BinaryElementwiseOp):
    """Bitwise exclusive or."""

    name = "stablehlo.xor"
    MEANING: ClassVar = staticmethod(np.bitwise_xor)
    ELEMENTS: ClassVar = (i32, i1)


class UnaryElementwiseOp(PrettyOp):
    """One operand and a result of the same shape, by default of the same type.

    `MEANING` is the function on arrays.
    """

    operand = operand_def(TensorType)
    SHORT_SIGNATURE: ClassVar = True
    ELEMENTS: ClassVar[tuple[Attribute, ...]] = ELEMENT_TYPES

    MEANING: ClassVar[Callable[..., Any]]

    def __init__(self, operand: Value):
        self._init([operand], tensor_type(operand))

    def evaluate(self, *operands: Array) -> Array:
        return type(self).MEANING(operands[0])

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        return parse_operands(parser, 1), {}

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)

    def verify_op(self) -> None:
        check_elements("operand 0", self.operand, self.ELEMENTS)
        self._verify_result(tensor_type(self.operand))


@irdl_op_definition
class NegateOp(UnaryElementwiseOp):
    """-operand: flips the sign bit of f32."""

    name = "stablehlo.negate"
    MEANING: ClassVar = staticmethod(np.negative)
    ELEMENTS: ClassVar = (f32, i32)


@irdl_op_definition
class AbsOp(UnaryElementwiseOp):
    """Absolute value: clears the sign bit of f32."""

    name = "stablehlo.abs"
    MEANING: ClassVar = staticmethod(np.abs)
    ELEMENTS: ClassVar = (f32, i32)


@irdl_op_definition
class ExponentialOp(UnaryElementwiseOp):
    """e to the power of the operand."""

    name = "stablehlo.exponential"
    MEANING: ClassVar = staticmethod(partial(mathlib.evaluate, "exp"))
    ELEMENTS: ClassVar = (f32,)


@irdl_op_definition
class LogOp(UnaryElementwiseOp):
    """Natural logarithm."""

    name = "stablehlo.log"
    MEANING: ClassVar = staticmethod(partial(mathlib.evaluate, "log"))
    ELEMENTS: ClassVar = (f32,)


@irdl_op_definition
class RsqrtOp(UnaryElementwiseOp):
    """1 / sqrt(operand)."""

    name = "stablehlo.rsqrt"
    MEANING: ClassVar = staticmethod(partial(mathlib.evaluate, "rsqrt"))
    ELEMENTS: ClassVar = (f32,)


@irdl_op_definition
class SqrtOp(UnaryElementwiseOp):
    """Square root."""

    name = "stablehlo.sqrt"
    MEANING: ClassVar = staticmethod(partial(mathlib.evaluate, "sqrt"))
    ELEMENTS: ClassVar = (f32,)


@irdl_op_definition
class TanhOp(UnaryElementwiseOp):
    """Hyperbolic tangent."""

    name = "stablehlo.tanh"
    MEANING: ClassVar = staticmethod(partial(mathlib.evaluate, "tanh"))
    ELEMENTS: ClassVar = (f32,)


@irdl_op_definition
class SignOp(UnaryElementwiseOp):
    """-1, 0 or 1 with the operand's sign; f32 keeps -0.0 and NaN."""

    name = "stablehlo.sign"
    MEANING: ClassVar = staticmethod(semantics.sign)
    ELEMENTS: ClassVar = (f32, i32)


@irdl_op_definition
class NotOp(UnaryElementwiseOp):
    """Bitwise not."""

    name = "stablehlo.not"
    MEANING: ClassVar = staticmethod(np.invert)
    ELEMENTS: ClassVar = (i32, i1)


@irdl_op_definition
class IsFiniteOp(UnaryElementwiseOp):
    """Whether the operand is neither infinite nor NaN."""

    name = "stablehlo.is_finite"
    MEANING: ClassVar = staticmethod(np.isfinite)
    ELEMENTS: ClassVar = (f32,)

    def __init__(self, operand: Value):
        self._init([operand], TensorType(i1, shape_of(operand)))

    def verify_op(self) -> None:
        check_elements("operand 0", self.operand, self.ELEMENTS)
        self._verify_result(TensorType(i1, shape_of(self.operand)))


@irdl_op_definition
class ConvertOp(UnaryElementwiseOp):
    """The value in another element type: to i1 by `!= 0`, f32 to i32 towards zero."""

    name = "stablehlo.convert"
    ELEMENTS: ClassVar = ELEMENT_TYPES

    def __init__(self, operand: Value, element_type: Attribute):
        self._init([operand], TensorType(element_type, shape_of(operand)))

    def verify_op(self) -> None:
        self._verify_result(with_shape(self.result, shape_of(self.operand)))

    def evaluate(self, *operands: Array) -> Array:
        return semantics.convert(operands[0], dense.dtype_of(element_type_of(self.result)))


@irdl_op_definition
class CompareOp(PrettyOp):
    """Element-wise comparison; false for NaN, except NE."""

    name = "stablehlo.compare"
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
        """FLOAT, SIGNED or UNSIGNED where it is written out; it follows from the element type."""
        return None if self.comparison_type is None else self.comparison_type.data

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
            self.compare_type in (None, expected),
            f"compare type {self.compare_type} does not fit {element}, expected {expected}",
        )

    def evaluate(self, *operands: Array) -> Array:
        lhs, rhs = operands
        return semantics.COMPARISONS[self.direction](lhs, rhs)


@irdl_op_definition
class SelectOp(PrettyOp):
    """on_true where pred, else on_false; pred is a scalar or has the operands' shape."""

    name = "stablehlo.select"
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
