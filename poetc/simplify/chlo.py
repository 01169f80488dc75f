"""Expansion of the CHLO operations that JAX leaves in its output.

erf and erfc follow Cephes (S. L. Moshier, `ndtrf.c`, single precision): erf(x) = x T(x²) for
|x| < 1; erfc(x) = exp(-x²)/x P(1/x²) for 1 <= x < 2, with R in place of P for x >= 2. Two changes
make it more accurate: T - 1 is used in place of T, so that x, and 1 - x for erfc, enter the result
with one rounding; and the rounding error of x² is carried into the exponential, without which erfc
would be wrong by 30 units in the last place at x = 9. erf is within 2 and erfc within 5 units in
the last place.
"""

from collections.abc import Callable, Sequence

import numpy as np
from xdsl.ir import SSAValue

from poetc.ir import stablehlo as hlo
from poetc.ir.types import computed_type
from poetc.simplify.driver import Rewriter

# T - 1.
_T = (
    7.853861353153693e-5,
    -8.010193625184903e-4,
    5.188327685732524e-3,
    -2.685381193529856e-2,
    1.128358514861418e-1,
    -3.761262582423300e-1,
    1.28379165726710e-1,
)
_P = (
    2.326819970068386e-2,
    -1.387039388740657e-1,
    3.687424674597105e-1,
    -5.824733027278666e-1,
    6.210004621745983e-1,
    -4.944515323274145e-1,
    3.404879937665872e-1,
    -2.741127028184656e-1,
    5.638259427386472e-1,
)
_R = (
    0.0,
    -1.047766399936249e1,
    1.297719955372516e1,
    -7.495518717768503e0,
    2.921019019210786e0,
    -1.015265279202700e0,
    4.218463358204948e-1,
    -2.820767439740514e-1,
    5.641895067754075e-1,
)

# erfc underflows to zero in float32 from here on; beyond it x² would overflow.
_LARGEST = 10.5

# 2^12 + 1 splits a float32 into halves of 12 bits, whose products are exact (Veltkamp).
_SPLITTER = 4097.0


class FloatBuilder:
    """float32 arithmetic on tensors of one type."""

    def __init__(self, like: SSAValue, rewriter: Rewriter):
        self.type = like.type
        self.rewriter = rewriter

    def constant(self, value: float) -> SSAValue:
        return self.rewriter.splat(np.float32(value), self.type)

    def add(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.rewriter.emit(hlo.AddOp(a, b))

    def sub(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.rewriter.emit(hlo.SubtractOp(a, b))

    def mul(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.rewriter.emit(hlo.MultiplyOp(a, b))

    def div(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.rewriter.emit(hlo.DivideOp(a, b))

    def negate(self, a: SSAValue) -> SSAValue:
        return self.rewriter.emit(hlo.NegateOp(a))

    def apply(self, kind: Callable[[SSAValue], hlo.StablehloOp], a: SSAValue) -> SSAValue:
        """A unary operation."""
        return self.rewriter.emit(kind(a))

    def less(self, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.rewriter.emit(hlo.CompareOp(a, b, "LT", "FLOAT"))

    def select(self, pred: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
        return self.rewriter.emit(hlo.SelectOp(pred, a, b))

    def polynomial(self, x: SSAValue, coefficients: Sequence[SSAValue]) -> SSAValue:
        """Horner's scheme, highest power first."""
        result = coefficients[0]
        for coefficient in coefficients[1:]:
            result = self.add(self.mul(result, x), coefficient)
        return result


def in_single_precision(op: hlo.StablehloOp, rewriter: Rewriter) -> SSAValue | None:
    """f(x) of floats of 16 bits -> the same of 32, rounded."""
    element = hlo.element_type_of(op.result)
    computed = computed_type(element)
    if computed == element:
        return None
    operands = [rewriter.emit(hlo.ConvertOp(operand, computed)) for operand in op.operands]
    return rewriter.emit(hlo.ConvertOp(rewriter.emit(type(op)(*operands)), element))


def expand_square(op: hlo.SquareOp, rewriter: Rewriter) -> SSAValue | None:
    """square(x) -> x * x."""
    return rewriter.emit(hlo.MultiplyOp(op.operand, op.operand))


def expand_erf(op: hlo.ErfOp, rewriter: Rewriter) -> SSAValue | None:
    """erf(x) -> x + x (T(x²) - 1), or 1 - erfc(|x|) with the sign of x where |x| >= 1."""
    build = FloatBuilder(op.operand, rewriter)
    x = op.operand
    magnitude = rewriter.emit(hlo.AbsOp(x))
    one = build.constant(1)
    tail = build.sub(one, _erfc_tail(build, magnitude))
    signed = build.select(build.less(x, build.constant(0)), rewriter.emit(hlo.NegateOp(tail)), tail)
    near_zero = build.add(x, _excess_near_zero(build, x))
    return build.select(build.less(magnitude, one), near_zero, signed)


def expand_erfc(op: hlo.ErfcOp, rewriter: Rewriter) -> SSAValue | None:
    """erfc(x) -> (1 - x) - x (T(x²) - 1), or for |x| >= 1 the tail, taken from 2 for negative x."""
    build = FloatBuilder(op.operand, rewriter)
    x = op.operand
    magnitude = rewriter.emit(hlo.AbsOp(x))
    one = build.constant(1)
    tail = _erfc_tail(build, magnitude)
    signed = build.select(
        build.less(x, build.constant(0)), build.sub(build.constant(2), tail), tail
    )
    near_zero = build.sub(build.sub(one, x), _excess_near_zero(build, x))
    return build.select(build.less(magnitude, one), near_zero, signed)


def _excess_near_zero(build: FloatBuilder, x: SSAValue) -> SSAValue:
    """erf(x) - x = x (T(x²) - 1) for |x| < 1."""
    coefficients = [build.constant(value) for value in _T]
    return build.mul(x, build.polynomial(build.mul(x, x), coefficients))


def _erfc_tail(build: FloatBuilder, magnitude: SSAValue) -> SSAValue:
    """erfc of a magnitude of at least 1; anything finite below; NaN for NaN."""
    limit = build.constant(_LARGEST)
    x = build.rewriter.emit(hlo.MinimumOp(magnitude, limit))
    square = build.mul(x, x)
    # square + error is x² exactly (Dekker's product of x = high + low with itself).
    scaled = build.mul(x, build.constant(_SPLITTER))
    high = build.sub(scaled, build.sub(scaled, x))
    low = build.sub(x, high)
    cross = build.mul(high, low)
    error = build.sub(build.mul(high, high), square)
    error = build.add(build.add(error, build.add(cross, cross)), build.mul(low, low))
    # exp(-square - error) = exp(-square) (1 - error) up to the square of the tiny error.
    power = build.rewriter.emit(hlo.ExponentialOp(build.rewriter.emit(hlo.NegateOp(square))))
    power = build.sub(power, build.mul(power, error))
    inverse = build.div(build.constant(1), x)
    below_two = build.less(x, build.constant(2))
    # One polynomial with chosen coefficients costs less than a choice between two.
    coefficients = [
        build.select(below_two, build.constant(p), build.constant(r))
        for p, r in zip(_P, _R, strict=True)
    ]
    fraction = build.polynomial(build.mul(inverse, inverse), coefficients)
    return build.mul(build.mul(power, inverse), fraction)
