"""The CHLO operations that JAX leaves in the text."""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.irdl import irdl_op_definition, operand_def
from xdsl.parser import Parser
from xdsl.printer import Printer

from poetc.ir import types
from poetc.ir.stablehlo import semantics
from poetc.ir.stablehlo.base import (
    Array,
    StablehloOp,
    Value,
    check_elements,
    check_type,
    parse_operands,
    tensor_type,
)
from poetc.ir.stablehlo.elementwise import MultiplyOp

FLOATS = types.with_arithmetic("float")


class ChloUnaryOp(StablehloOp):
    """An op that JAX leaves in the text and `stablehlo-simplify` expands; on floats.

    The meaning is exact but for one rounding; what it is expanded into computes other bits.
    """

    operand = operand_def(TensorType)
    MEANING: ClassVar[Callable[..., Any]]
    """The function in float64, unless the class has a meaning of its own."""

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
        check_elements("operand 0", self.operand, FLOATS)
        self._verify_result(tensor_type(self.operand))

    def evaluate(self, *operands: Array) -> Array:
        found = np.asarray(self.MEANING(operands[0].astype(np.float64)))
        return found.astype(np.float32).astype(operands[0].dtype)


@irdl_op_definition
class SquareOp(ChloUnaryOp):
    """operand * operand."""

    name = "chlo.square"

    def evaluate(self, *operands: Array) -> Array:
        return MultiplyOp.meaning(operands[0], operands[0])


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


@irdl_op_definition
class AsinOp(ChloUnaryOp):
    """Inverse sine."""

    name = "chlo.asin"
    MEANING: ClassVar = staticmethod(np.arcsin)


@irdl_op_definition
class AcosOp(ChloUnaryOp):
    """Inverse cosine."""

    name = "chlo.acos"
    MEANING: ClassVar = staticmethod(np.arccos)


@irdl_op_definition
class AtanOp(ChloUnaryOp):
    """Inverse tangent."""

    name = "chlo.atan"
    MEANING: ClassVar = staticmethod(np.arctan)


@irdl_op_definition
class SinhOp(ChloUnaryOp):
    """Hyperbolic sine."""

    name = "chlo.sinh"
    MEANING: ClassVar = staticmethod(np.sinh)


@irdl_op_definition
class CoshOp(ChloUnaryOp):
    """Hyperbolic cosine."""

    name = "chlo.cosh"
    MEANING: ClassVar = staticmethod(np.cosh)


@irdl_op_definition
class AsinhOp(ChloUnaryOp):
    """Inverse hyperbolic sine."""

    name = "chlo.asinh"
    MEANING: ClassVar = staticmethod(np.arcsinh)


@irdl_op_definition
class AcoshOp(ChloUnaryOp):
    """Inverse hyperbolic cosine."""

    name = "chlo.acosh"
    MEANING: ClassVar = staticmethod(np.arccosh)


@irdl_op_definition
class AtanhOp(ChloUnaryOp):
    """Inverse hyperbolic tangent."""

    name = "chlo.atanh"
    MEANING: ClassVar = staticmethod(np.arctanh)


@irdl_op_definition
class ErfInvOp(ChloUnaryOp):
    """The number of which the operand is the error function."""

    name = "chlo.erf_inv"
    MEANING: ClassVar = staticmethod(semantics.erf_inv)


@irdl_op_definition
class LgammaOp(ChloUnaryOp):
    """Logarithm of the absolute value of the gamma function."""

    name = "chlo.lgamma"
    MEANING: ClassVar = staticmethod(semantics.lgamma)


@irdl_op_definition
class DigammaOp(ChloUnaryOp):
    """Derivative of lgamma."""

    name = "chlo.digamma"
    MEANING: ClassVar = staticmethod(semantics.digamma)


class ChloBinaryOp(StablehloOp):
    """An op on the elements in the same place of two tensors of floats; see `ChloUnaryOp`."""

    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)

    def __init__(self, lhs: Value, rhs: Value):
        self._init([lhs, rhs], tensor_type(rhs))

    @classmethod
    def parse(cls, parser: Parser):
        operands = parse_operands(parser, 2)
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        position = parser.pos
        types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        parser.parse_punctuation("->")
        return cls.create(
            operands=parser.resolve_operands(operands, types, position),
            result_types=[parser.parse_type()],
            attributes=attributes,
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_ssa_value)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_list(self.operand_types, printer.print_attribute)
        printer.print_string(" -> ")
        printer.print_attribute(self.result.type)

    def verify_op(self) -> None:
        check_elements("operand 1", self.rhs, FLOATS)
        check_type("operand 0", self.lhs.type, self.rhs.type)
        self._verify_result(tensor_type(self.rhs))


@irdl_op_definition
class PolygammaOp(ChloBinaryOp):
    """The derivative of digamma of the order that the first operand says, of the second operand.

    `stablehlo-simplify` expands it where the order is a constant, from 0 to 9.
    """

    name = "chlo.polygamma"

    def evaluate(self, *operands: Array) -> Array:
        order, x = (array.astype(np.float64) for array in operands)
        return semantics.polygamma(order, x).astype(np.float32).astype(operands[1].dtype)


@irdl_op_definition
class NextAfterOp(ChloBinaryOp):
    """The number of the type that is next to the first operand on the side of the second one."""

    name = "chlo.next_after"

    def evaluate(self, *operands: Array) -> Array:
        x, y = operands
        return np.where(x == y, y, np.nextafter(x, y))
