"""Operations that give numbers another type."""

from typing import ClassVar

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, IntegerType, TensorType, i1, i32
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition

from poetc.ir import dense, types
from poetc.ir.stablehlo import semantics
from poetc.ir.stablehlo.base import (
    ELEMENT_TYPES,
    Array,
    Scalar,
    ScalarBuilder,
    Value,
    check_elements,
    element_type_of,
    shape_of,
    with_shape,
)
from poetc.ir.stablehlo.elementwise import UnaryElementwiseOp


@irdl_op_definition
class BitcastConvertOp(UnaryElementwiseOp):
    """The bits of the operand as a number of another type of the same size."""

    name = "stablehlo.bitcast_convert"
    SHORT_SIGNATURE: ClassVar = False
    ELEMENTS: ClassVar = types.with_arithmetic("float", "signed", "unsigned")

    def __init__(self, operand: Value, element_type: Attribute):
        self._init([operand], TensorType(element_type, shape_of(operand)))

    def verify_op(self) -> None:
        check_elements("operand 0", self.operand, self.ELEMENTS)
        check_elements("result", self.result, self.ELEMENTS)
        self._verify_result(with_shape(self.result, shape_of(self.operand)))

    def evaluate(self, *operands: Array) -> Array:
        return (
            np.ascontiguousarray(operands[0])
            .view(dense.dtype_of(element_type_of(self.result)))
            .reshape(operands[0].shape)
        )

    def lower(self, b: ScalarBuilder, *operands: Scalar) -> Scalar:
        to = element_type_of(self.result)
        return operands[0] if operands[0].type == to else b.unary(arith.BitcastOp, operands[0], to)


@irdl_op_definition
class ConvertOp(UnaryElementwiseOp):
    """The value in another element type: to i1 by `!= 0`, f32 to integers towards zero."""

    name = "stablehlo.convert"
    ELEMENTS: ClassVar = ELEMENT_TYPES  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, operand: Value, element_type: Attribute):
        self._init([operand], TensorType(element_type, shape_of(operand)))

    def verify_op(self) -> None:
        self._verify_result(with_shape(self.result, shape_of(self.operand)))

    def evaluate(self, *operands: Array) -> Array:
        return semantics.convert(operands[0], dense.dtype_of(element_type_of(self.result)))

    def lower(self, b: ScalarBuilder, *operands: Scalar) -> Scalar:
        return converted(b, operands[0], element_type_of(self.result))


def converted(b: ScalarBuilder, x: Scalar, to: Attribute) -> Scalar:
    """stablehlo.convert on a scalar."""
    if x.type == to:
        return x
    zero = b.constant(0, x.type)
    if isinstance(x.type, AnyFloat):
        if to == i1:
            return b.compare("une", x, zero)
        if isinstance(to, AnyFloat):
            wider = to.bitwidth > x.type.bitwidth
            return b.unary(arith.ExtFOp if wider else arith.TruncFOp, x, to)
        assert isinstance(to, IntegerType)
        return _to_unsigned(b, x) if to == types.ui32 else _to_integer(b, x, to)
    if to == i1:
        return b.compare("ne", x, zero)
    if isinstance(to, AnyFloat):
        is_signed = types.ELEMENT_TYPES[x.type].arithmetic == "signed"
        return b.unary(arith.SIToFPOp if is_signed else arith.UIToFPOp, x, to)
    if types.ui32 in (x.type, to) and x.type != i1:
        return b.unary(arith.BitcastOp, x, to)
    assert isinstance(x.type, IntegerType) and isinstance(to, IntegerType)
    if to.bitwidth < x.type.bitwidth:
        return b.unary(arith.TruncIOp, x, to)
    return b.unary(arith.ExtUIOp if x.type == i1 else arith.ExtSIOp, x, to)


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


def _to_unsigned(b: ScalarBuilder, x: Scalar) -> Scalar:
    """As `_to_integer`, through which large numbers go less half of the range."""
    half, whole = (b.constant(2.0**bits, x.type) for bits in (31, 32))
    is_upper = b.compare("oge", x, half)
    low = b.select(is_upper, b.binary(arith.SubfOp, x, half), x)
    low = b.select(b.compare("ogt", x, b.constant(0, x.type)), low, b.constant(0, x.type))
    number = _to_integer(b, low, i32)
    upper = b.binary(arith.XOrIOp, number, b.constant(-(1 << 31), i32))
    number = b.select(is_upper, upper, number)
    number = b.select(b.compare("oge", x, whole), b.constant(-1, i32), number)
    return b.unary(arith.BitcastOp, number, types.ui32)
