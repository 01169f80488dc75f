"""Comparing elements, and choosing by what holds."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, FunctionType, TensorType, i1, i32
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from poetc.ir import types
from poetc.ir.stablehlo import semantics
from poetc.ir.stablehlo.base import (
    ELEMENT_TYPES,
    Array,
    FloatFacts,
    Head,
    IntRange,
    Scalar,
    ScalarBuilder,
    Value,
    check,
    check_elements,
    check_type,
    element_type_of,
    hull,
    parse_operands,
    shape_of,
    tensor_type,
)
from poetc.ir.stablehlo.elementwise import ElementwiseOp
from poetc.ir.stablehlo_attributes import ComparisonDirectionAttr, ComparisonTypeAttr


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

    def int_range(self, ranges: Sequence[IntRange]) -> IntRange | None:
        return hull(ranges[1:])

    def lacks_negative_zero(self, facts: FloatFacts) -> bool:
        return facts.never_negative_zero(self.on_true) and facts.never_negative_zero(self.on_false)

    def evaluate(self, *operands: Array) -> Array:
        pred, on_true, on_false = operands
        return np.where(pred, on_true, on_false)

    def lower(self, b: ScalarBuilder, *operands: Scalar) -> Scalar:
        return b.select(*operands)
