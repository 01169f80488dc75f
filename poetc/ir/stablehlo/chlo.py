"""The CHLO operations that JAX leaves in the text."""

import math

import numpy as np
from xdsl.dialects.builtin import TensorType, f32
from xdsl.irdl import irdl_op_definition, operand_def
from xdsl.parser import Parser
from xdsl.printer import Printer

from poetc.ir.stablehlo import semantics
from poetc.ir.stablehlo.base import Array, StablehloOp, Value, check_elements, tensor_type


class ChloUnaryOp(StablehloOp):
    """An op that JAX leaves in the text and `stablehlo-simplify` expands; on f32.

    The meaning is exact but for one rounding; what it is expanded into computes other bits.
    """

    operand = operand_def(TensorType)

    def __init__(self, operand: Value):
        self._init([operand], tensor_type(operand))

    @classmethod
    def parse(cls, parser: Parser):
        operand = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        type = parser.parse_type()
        parser.parse_punctuation("->")
        return cls.create(
            operands=[parser.resolve_operand(operand, type)],
            result_types=[parser.parse_type()],
            attributes=attributes,
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_ssa_value(self.operand)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.operand.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.result.type)

    def verify_op(self) -> None:
        check_elements("operand 0", self.operand, (f32,))
        self._verify_result(tensor_type(self.operand))


@irdl_op_definition
class SquareOp(ChloUnaryOp):
    """operand * operand."""

    name = "chlo.square"

    def evaluate(self, *operands: Array) -> Array:
        return np.multiply(operands[0], operands[0])


@irdl_op_definition
class ErfOp(ChloUnaryOp):
    """The error function."""

    name = "chlo.erf"

    def evaluate(self, *operands: Array) -> Array:
        return semantics.rounded(math.erf, operands[0])


@irdl_op_definition
class ErfcOp(ChloUnaryOp):
    """1 - erf(operand), accurate where erf is close to 1."""

    name = "chlo.erfc"

    def evaluate(self, *operands: Array) -> Array:
        return semantics.rounded(math.erfc, operands[0])
