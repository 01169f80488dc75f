"""Operations that give numbers another type."""

import re
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, IntegerAttr, IntegerType, TensorType, i1, i32
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer

from poetc.ir import buffers, dense, types
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
    element_type_of,
    hull,
    is_float,
    parse_operands,
    shape_of,
    tensor_type,
    with_shape,
)
from poetc.ir.stablehlo.elementwise import UnaryElementwiseOp


@irdl_op_definition
class BitcastConvertOp(UnaryElementwiseOp):
    """The bits of the operand as numbers of another type.

    If its elements are n times smaller, the result has a last dimension of n, the lowest bits
    first; if they are larger, the operand has one. `stablehlo-simplify` expands both.
    """

    name = "stablehlo.bitcast_convert"
    SHORT_SIGNATURE: ClassVar = False
    ELEMENTS: ClassVar = types.with_arithmetic("float", "signed", "unsigned")

    def __init__(self, operand: Value, element_type: Attribute):
        shape = shape_of(operand)
        before, after = map(buffers.element_bytes, (element_type_of(operand), element_type))
        if before > after:
            shape = (*shape, before // after)
        self._init([operand], TensorType(element_type, shape[:-1] if before < after else shape))

    @property
    def is_in_place(self) -> bool:
        """Whether operand and result have elements of one size."""
        return shape_of(self.operand) == shape_of(self.result)

    def verify_op(self) -> None:
        check_elements("operand 0", self.operand, self.ELEMENTS)
        check_elements("result", self.result, self.ELEMENTS)
        sides = (self.operand, self.result)
        sizes = [buffers.element_bytes(element_type_of(value)) for value in sides]
        small, large = sorted(sides, key=lambda v: buffers.element_bytes(element_type_of(v)))
        ratio = max(sizes) // min(sizes)
        shape = shape_of(large) if ratio == 1 else (*shape_of(large), ratio)
        check(
            shape_of(small) == shape,
            f"operand and result have elements of {sizes} bytes, so that {small.type} should be "
            f"{with_shape(small, shape)}",
        )

    def evaluate(self, *operands: Array) -> Array:
        shape, dtype = shape_of(self.result), dense.dtype_of(element_type_of(self.result))
        return np.ascontiguousarray(operands[0]).reshape(-1).view(dtype).reshape(shape)

    def lower(self, b: ScalarBuilder, *operands: Scalar) -> Scalar:
        to = element_type_of(self.result)
        return operands[0] if operands[0].type == to else b.unary(arith.BitcastOp, operands[0], to)


@irdl_op_definition
class ConvertOp(UnaryElementwiseOp):
    """The value in another element type: to i1 by `!= 0`, floats to integers towards zero,
    integers by their low bits."""

    name = "stablehlo.convert"
    ELEMENTS: ClassVar = ELEMENT_TYPES  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, operand: Value, element_type: Attribute):
        self._init([operand], TensorType(element_type, shape_of(operand)))

    def verify_op(self) -> None:
        self._verify_result(with_shape(self.result, shape_of(self.operand)))

    def int_range(self, ranges: Sequence[IntRange]) -> IntRange | None:
        return hull(ranges)

    def lacks_negative_zero(self, facts: FloatFacts) -> bool:
        # Integer zero converts to +0.0.
        return not is_float(self.operand)

    def evaluate(self, *operands: Array) -> Array:
        return semantics.convert(operands[0], dense.dtype_of(element_type_of(self.result)))

    def lower(self, b: ScalarBuilder, *operands: Scalar) -> Scalar:
        return converted(b, operands[0], element_type_of(self.result))


def converted(b: ScalarBuilder, x: Scalar, to: Attribute) -> Scalar:
    """stablehlo.convert on a scalar."""
    if x.type == to:
        return x
    computed = types.computed_type(to)
    if computed != to:
        return b.rounded(converted(b, x, computed), to)
    x = x.of(types.computed_type(x.type))
    if x.type == to:
        return x
    zero = b.constant(0, x.type)
    if isinstance(x.type, AnyFloat):
        if to == i1:
            return b.compare("une", x, zero)
        assert isinstance(to, IntegerType)
        is_signed = types.ELEMENT_TYPES[to].arithmetic == "signed"
        return _to_integer(b, x, to) if is_signed else _to_unsigned(b, x, to)
    if to == i1:
        return b.compare("ne", x, zero)
    is_signed = types.ELEMENT_TYPES[x.type].arithmetic == "signed"
    if isinstance(to, AnyFloat):
        return b.unary(arith.SIToFPOp if is_signed else arith.UIToFPOp, x, to)
    assert isinstance(x.type, IntegerType) and isinstance(to, IntegerType)
    if to.bitwidth == x.type.bitwidth:
        return b.unary(arith.BitcastOp, x, to)
    if to.bitwidth < x.type.bitwidth:
        return b.unary(arith.TruncIOp, x, to)
    return b.unary(arith.ExtSIOp if is_signed else arith.ExtUIOp, x, to)


def _to_integer(b: ScalarBuilder, x: Scalar, to: IntegerType) -> Scalar:
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


def _to_unsigned(b: ScalarBuilder, x: Scalar, to: IntegerType) -> Scalar:
    """As `_to_integer`, through which large numbers go less half of the range."""
    signed = IntegerType(to.bitwidth)
    half, whole = (b.constant(2.0**bits, x.type) for bits in (to.bitwidth - 1, to.bitwidth))
    is_upper = b.compare("oge", x, half)
    low = b.select(is_upper, b.binary(arith.SubfOp, x, half), x)
    low = b.select(b.compare("ogt", x, b.constant(0, x.type)), low, b.constant(0, x.type))
    number = _to_integer(b, low, signed)
    upper = b.binary(arith.XOrIOp, number, b.constant(-(1 << to.bitwidth - 1), signed))
    number = b.select(is_upper, upper, number)
    number = b.select(b.compare("oge", x, whole), b.constant(-1, signed), number)
    return b.unary(arith.BitcastOp, number, to)


@irdl_op_definition
class ReducePrecisionOp(UnaryElementwiseOp):
    """The nearest number with fewer bits of exponent and mantissa; infinity if there is none."""

    name = "stablehlo.reduce_precision"
    exponent_attr = prop_def(IntegerAttr, prop_name="exponent_bits")
    mantissa_attr = prop_def(IntegerAttr, prop_name="mantissa_bits")
    ELEMENTS: ClassVar = types.with_arithmetic("float")

    def __init__(self, operand: Value, exponent_bits: int, mantissa_bits: int):
        properties = {
            "exponent_bits": IntegerAttr(exponent_bits, i32),
            "mantissa_bits": IntegerAttr(mantissa_bits, i32),
        }
        self._init([operand], tensor_type(operand), {**properties})

    @property
    def exponent_bits(self) -> int:
        """Bits of the exponent."""
        return self.exponent_attr.value.data

    @property
    def mantissa_bits(self) -> int:
        """Bits of the mantissa behind the point."""
        return self.mantissa_attr.value.data

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        operands = parse_operands(parser, 1)
        parser.parse_punctuation(",")
        parser.parse_keyword("format")
        parser.parse_punctuation("=")
        position = parser.pos
        match = re.fullmatch(r"e(\d+)m(\d+)", parser.parse_identifier())
        if match is None:
            parser.raise_error("expected a format such as e8m7", position, parser.pos)
        names = ("exponent_bits", "mantissa_bits")
        pairs = zip(names, match.groups(), strict=True)
        return operands, {name: IntegerAttr(int(bits), i32) for name, bits in pairs}

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)
        printer.print_string(f", format = e{self.exponent_bits}m{self.mantissa_bits}")

    def verify_op(self) -> None:
        super().verify_op()
        exponent, mantissa = self.exponent_bits, self.mantissa_bits
        fits = 1 <= exponent <= _EXPONENT_BITS and 1 <= mantissa <= _MANTISSA_BITS
        check(fits, f"e{self.exponent_bits}m{self.mantissa_bits} is not e1m1 to e8m23")

    @property
    def _limits(self) -> tuple[int, int]:
        """The exponent of the largest numbers that are too small, and of the largest that there
        are, in the place that it has in the bits."""
        bias, reduced = ((1 << (bits - 1)) - 1 for bits in (_EXPONENT_BITS, self.exponent_bits))
        return bias - reduced << _MANTISSA_BITS, bias + reduced << _MANTISSA_BITS

    def evaluate(self, *operands: Array) -> Array:
        dtype = operands[0].dtype
        x = operands[0].astype(np.float32)
        bits = np.ascontiguousarray(x).view(np.uint32).reshape(x.shape)
        dropped = _MANTISSA_BITS - self.mantissa_bits
        if dropped:
            last = (bits >> dropped) & 1
            half = ((1 << (dropped - 1)) - 1 + last).astype(np.uint32)
            bits = (bits + half) >> dropped << dropped
        low, high = self._limits
        exponent, sign = bits & np.uint32(_EXPONENT), bits & np.uint32(1 << 31)
        if self.exponent_bits < _EXPONENT_BITS:
            bits = np.where(exponent > high, sign | np.uint32(_EXPONENT), bits)
            bits = np.where(exponent <= low, sign, bits)
        return np.where(np.isnan(x), x, bits.astype(np.uint32).view(np.float32)).astype(dtype)

    def lower(self, b: ScalarBuilder, *operands: Scalar) -> Scalar:
        type_ = operands[0].type
        x = operands[0].of(types.computed_type(type_))

        def number(value: int) -> Scalar:
            return b.constant(value - (1 << 32) if value >> 31 else value, i32)

        def masked(bits: Scalar, mask: int) -> Scalar:
            return b.binary(arith.AndIOp, bits, number(mask))

        bits = b.unary(arith.BitcastOp, x, i32)
        dropped = _MANTISSA_BITS - self.mantissa_bits
        if dropped:
            last = masked(b.binary(arith.ShRSIOp, bits, number(dropped)), 1)
            bits = b.binary(arith.AddiOp, bits, number((1 << (dropped - 1)) - 1))
            bits = masked(b.binary(arith.AddiOp, bits, last), (1 << 32) - (1 << dropped))
        if self.exponent_bits < _EXPONENT_BITS:
            low, high = self._limits
            exponent, sign = masked(bits, _EXPONENT), masked(bits, 1 << 31)
            infinite = b.binary(arith.OrIOp, sign, number(_EXPONENT))
            bits = b.select(b.compare("sgt", exponent, number(high)), infinite, bits)
            bits = b.select(b.compare("sle", exponent, number(low)), sign, bits)
        found = b.select(b.compare("une", x, x), x, b.unary(arith.BitcastOp, bits, x.type))
        return converted(b, found, type_)


_EXPONENT_BITS, _MANTISSA_BITS = 8, 23
_EXPONENT = 0x7F800000
"""The exponent in the bits of a float."""
