"""Element-wise operations that are mathematical functions: their bodies are in poetc/ir/math."""

from typing import ClassVar

import numpy as np
from xdsl.dialects import arith, math
from xdsl.irdl import irdl_op_definition

from poetc.ir import mathlib
from poetc.ir.stablehlo import semantics
from poetc.ir.stablehlo.base import Array, FloatFacts, Scalar, ScalarBuilder
from poetc.ir.stablehlo.elementwise import BinaryElementwiseOp, UnaryElementwiseOp


def _integer_power(b: ScalarBuilder, x: Scalar, n: Scalar) -> Scalar:
    """Of 1 and -1 all powers are 1 and -1, so that the lowest bit of the exponent is enough."""
    zero, one, minus_one = (b.constant(value, x.type) for value in (0, 1, -1))
    is_negative = b.compare("slt", n, zero)
    is_unit = b.binary(arith.OrIOp, b.compare("eq", x, one), b.compare("eq", x, minus_one))
    exponent = b.select(is_negative, b.binary(arith.AndIOp, n, one), n)
    power = b.binary(math.IPowIOp, x, exponent)
    return b.select(is_negative, b.select(is_unit, power, zero), power)


def _unsigned_power(b: ScalarBuilder, x: Scalar, n: Scalar) -> Scalar:
    """The power of the square, whose exponent is half as large and so has no sign."""
    one = b.constant(1, x.type)
    half = b.binary(arith.ShRUIOp, n, one)
    is_odd = b.compare("ne", b.binary(arith.AndIOp, n, one), b.constant(0, x.type))
    power = b.binary(math.IPowIOp, b.binary(arith.MuliOp, x, x), half)
    return b.binary(arith.MuliOp, power, b.select(is_odd, x, one))


@irdl_op_definition
class PowerOp(BinaryElementwiseOp):
    """lhs to the power of rhs; of integers, a negative exponent gives the quotient of 1 and the
    power, towards zero, and 0 for 0."""

    name = "stablehlo.power"
    SCALARS: ClassVar = {
        "float": math.PowFOp,
        "signed": _integer_power,
        "unsigned": _unsigned_power,
    }
    MEANING: ClassVar = staticmethod(semantics.power)


@irdl_op_definition
class ExponentialOp(UnaryElementwiseOp):
    """e to the power of the operand."""

    name = "stablehlo.exponential"
    SCALARS: ClassVar = {"float": math.ExpOp}

    def lacks_negative_zero(self, facts: FloatFacts) -> bool:
        return True


@irdl_op_definition
class LogOp(UnaryElementwiseOp):
    """Natural logarithm."""

    name = "stablehlo.log"
    SCALARS: ClassVar = {"float": math.LogOp}


@irdl_op_definition
class RsqrtOp(UnaryElementwiseOp):
    """1 / sqrt(operand)."""

    name = "stablehlo.rsqrt"
    SCALARS: ClassVar = {"float": math.RsqrtOp}


@irdl_op_definition
class SqrtOp(UnaryElementwiseOp):
    """Square root."""

    name = "stablehlo.sqrt"
    SCALARS: ClassVar = {"float": math.SqrtOp}


@irdl_op_definition
class TanhOp(UnaryElementwiseOp):
    """Hyperbolic tangent."""

    name = "stablehlo.tanh"
    SCALARS: ClassVar = {"float": math.TanhOp}


@irdl_op_definition
class LogPlusOneOp(UnaryElementwiseOp):
    """log(1 + operand), accurate near zero."""

    name = "stablehlo.log_plus_one"
    SCALARS: ClassVar = {"float": math.Log1pOp}


@irdl_op_definition
class ExponentialMinusOneOp(UnaryElementwiseOp):
    """e to the power of the operand, less one, accurate near zero."""

    name = "stablehlo.exponential_minus_one"
    SCALARS: ClassVar = {"float": math.ExpM1Op}


@irdl_op_definition
class FloorOp(UnaryElementwiseOp):
    """The largest integer that is not above the operand; keeps -0.0."""

    name = "stablehlo.floor"
    ROUNDS: ClassVar = False
    SCALARS: ClassVar = {"float": math.FloorOp}


@irdl_op_definition
class CeilOp(UnaryElementwiseOp):
    """The smallest integer that is not below the operand; keeps -0.0."""

    name = "stablehlo.ceil"
    ROUNDS: ClassVar = False
    SCALARS: ClassVar = {"float": math.CeilOp}


@irdl_op_definition
class RoundNearestEvenOp(UnaryElementwiseOp):
    """The nearest integer, the even one of two; keeps -0.0."""

    name = "stablehlo.round_nearest_even"
    ROUNDS: ClassVar = False
    SCALARS: ClassVar = {"float": math.RoundEvenOp}


@irdl_op_definition
class RoundNearestAfzOp(UnaryElementwiseOp):
    """The nearest integer, the one away from zero of two; keeps -0.0."""

    name = "stablehlo.round_nearest_afz"
    ROUNDS: ClassVar = False
    SCALARS: ClassVar = {"float": math.RoundOp}


@irdl_op_definition
class SineOp(UnaryElementwiseOp):
    """Sine of an angle in radians."""

    name = "stablehlo.sine"
    SCALARS: ClassVar = {"float": math.SinOp}


@irdl_op_definition
class CosineOp(UnaryElementwiseOp):
    """Cosine of an angle in radians."""

    name = "stablehlo.cosine"
    SCALARS: ClassVar = {"float": math.CosOp}


@irdl_op_definition
class Atan2Op(BinaryElementwiseOp):
    """The angle of the point (rhs, lhs), in radians from -pi to pi."""

    name = "stablehlo.atan2"
    SCALARS: ClassVar = {"float": math.Atan2Op}


@irdl_op_definition
class CbrtOp(UnaryElementwiseOp):
    """Cube root; of a negative number, too."""

    name = "stablehlo.cbrt"
    SCALARS: ClassVar = {"float": math.CbrtOp}


def _tangent(b: ScalarBuilder, x: Scalar) -> Scalar:
    return b.binary(arith.DivfOp, b.unary(math.SinOp, x), b.unary(math.CosOp, x))


@irdl_op_definition
class TanOp(UnaryElementwiseOp):
    """Tangent of an angle in radians."""

    name = "stablehlo.tan"
    SCALARS: ClassVar = {"float": _tangent}
    IS_SLOW: ClassVar = True

    @staticmethod
    def MEANING(x: Array) -> Array:
        return mathlib.evaluate("sin", x) / mathlib.evaluate("cos", x)


def _logistic(b: ScalarBuilder, x: Scalar) -> Scalar:
    one = b.constant(1, x.type)
    power = b.unary(math.ExpOp, b.unary(arith.NegfOp, x))
    return b.binary(arith.DivfOp, one, b.binary(arith.AddfOp, one, power))


@irdl_op_definition
class LogisticOp(UnaryElementwiseOp):
    """1 / (1 + exp(-operand))."""

    name = "stablehlo.logistic"
    SCALARS: ClassVar = {"float": _logistic}
    IS_SLOW: ClassVar = True

    @staticmethod
    def MEANING(x: Array) -> Array:
        one = np.float32(1)
        return one / (one + mathlib.evaluate("exp", -x))
