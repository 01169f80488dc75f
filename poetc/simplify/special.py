"""Expansion of the functions of CHLO but erf: inverse trigonometric, hyperbolic, gamma, erf_inv,
and next_after.

They are made of the functions that have bodies of their own, by the identities in the docstrings,
and are within 5 units in the last place, but for the gamma functions near their zeros, and the
inverse of the error function near 1. That is of M. Giles (Approximating the erfinv function, GPU
Computing Gems, 2011, single precision); the gamma functions are sums of C. Lanczos (1964), g = 7.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from xdsl.dialects.builtin import IntegerType, Signedness
from xdsl.ir import SSAValue

from poetc.errors import InputError
from poetc.ir import buffers
from poetc.ir import stablehlo as hlo
from poetc.ir.locations import source_location
from poetc.ir.stablehlo import chlo as ops
from poetc.ir.stablehlo import functions
from poetc.ir.stablehlo.words import Words
from poetc.simplify.chlo import FloatBuilder
from poetc.simplify.driver import Rewriter, Rules

_TINY = 2.0**-13
"""Below it odd functions with derivative 1 at zero are their argument."""

_LARGE = 1e9
"""From here on, x and sqrt(x² + 1) are the same."""

_NEAR = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087),
    *(-0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
)
_FAR = (
    *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773),
    *(-0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
)
_LANCZOS = (
    *(676.520368121885098567009190444019, -1259.13921672240287047156078755283),
    *(771.3234287776530788486528258894, -176.61502916214059906584551354),
    *(12.507343278686904814458936853, -0.13857109526572011689554707),
    *(9.984369578019570859563e-6, 1.50563273514931155834e-7),
)
_G = 7.0


def _atan2(build: FloatBuilder, y: SSAValue, x: SSAValue) -> SSAValue:
    return build.rewriter.emit(functions.Atan2Op(y, x))


def _cathetus(build: FloatBuilder, x: SSAValue) -> SSAValue:
    """sqrt((1 - x) (1 + x))."""
    one = build.constant(1)
    return build.apply(hlo.SqrtOp, build.mul(build.sub(one, x), build.add(one, x)))


def _atan(build: FloatBuilder, x: SSAValue) -> SSAValue:
    """atan2(x, 1)."""
    return _atan2(build, x, build.constant(1))


def _asin(build: FloatBuilder, x: SSAValue) -> SSAValue:
    """atan2(x, sqrt(1 - x²))."""
    return _atan2(build, x, _cathetus(build, x))


def _acos(build: FloatBuilder, x: SSAValue) -> SSAValue:
    """atan2(sqrt(1 - x²), x)."""
    return _atan2(build, _cathetus(build, x), x)


def _odd(build: FloatBuilder, x: SSAValue, function: Callable[[SSAValue], SSAValue]) -> SSAValue:
    """An odd function, which is x near zero, from what it is for |x|."""
    magnitude = build.apply(hlo.AbsOp, x)
    value = function(magnitude)
    signed = build.select(build.less(x, build.constant(0)), build.negate(value), value)
    return build.select(build.less(magnitude, build.constant(_TINY)), x, signed)


def _half_power(build: FloatBuilder, a: SSAValue) -> SSAValue:
    """exp(a) / 2 for a large a, where exp(a) may be too large."""
    root = build.apply(hlo.ExponentialOp, build.mul(a, build.constant(0.5)))
    return build.mul(build.mul(root, build.constant(0.5)), root)


def _sinh(build: FloatBuilder, x: SSAValue) -> SSAValue:
    """(e + e / (e + 1)) / 2 with e = exp(x) - 1."""

    def function(a: SSAValue) -> SSAValue:
        limit = build.constant(40)
        e = build.apply(
            functions.ExponentialMinusOneOp, build.rewriter.emit(hlo.MinimumOp(a, limit))
        )
        rest = build.div(e, build.add(e, build.constant(1)))
        half = build.mul(build.add(e, rest), build.constant(0.5))
        return build.select(build.less(a, limit), half, _half_power(build, a))

    return _odd(build, x, function)


def _cosh(build: FloatBuilder, x: SSAValue) -> SSAValue:
    """(e + 1 / e) / 2 with e = exp(|x|)."""
    a, limit = build.apply(hlo.AbsOp, x), build.constant(40)
    e = build.apply(hlo.ExponentialOp, build.rewriter.emit(hlo.MinimumOp(a, limit)))
    both = build.add(e, build.div(build.constant(1), e))
    half = build.mul(both, build.constant(0.5))
    return build.select(build.less(a, limit), half, _half_power(build, a))


def _log_twice(build: FloatBuilder, a: SSAValue) -> SSAValue:
    return build.add(build.apply(hlo.LogOp, a), build.constant(math.log(2)))


def _asinh(build: FloatBuilder, x: SSAValue) -> SSAValue:
    """log(1 + x + x² / (1 + sqrt(x² + 1)))."""

    def function(a: SSAValue) -> SSAValue:
        one, limit = build.constant(1), build.constant(_LARGE)
        inside = build.rewriter.emit(hlo.MinimumOp(a, limit))
        square = build.mul(inside, inside)
        root = build.apply(hlo.SqrtOp, build.add(square, one))
        excess = build.add(inside, build.div(square, build.add(one, root)))
        value = build.apply(functions.LogPlusOneOp, excess)
        return build.select(build.less(a, limit), value, _log_twice(build, a))

    return _odd(build, x, function)


def _acosh(build: FloatBuilder, x: SSAValue) -> SSAValue:
    """log(1 + t + sqrt(t (t + 2))) with t = x - 1."""
    one, limit = build.constant(1), build.constant(_LARGE)
    t = build.sub(build.rewriter.emit(hlo.MinimumOp(x, limit)), one)
    root = build.apply(hlo.SqrtOp, build.mul(t, build.add(t, build.constant(2))))
    value = build.apply(functions.LogPlusOneOp, build.add(t, root))
    value = build.select(build.less(x, limit), value, _log_twice(build, x))
    return build.select(build.less(x, one), build.constant(math.nan), value)


def _atanh(build: FloatBuilder, x: SSAValue) -> SSAValue:
    """log(1 + 2 x / (1 - x)) / 2."""

    def function(a: SSAValue) -> SSAValue:
        ratio = build.div(build.add(a, a), build.sub(build.constant(1), a))
        return build.mul(build.apply(functions.LogPlusOneOp, ratio), build.constant(0.5))

    return _odd(build, x, function)


def _erf_inv(build: FloatBuilder, x: SSAValue) -> SSAValue:
    """x p(w) with w = -log(1 - x²), of which p is one polynomial below 5, and one of sqrt(w) from
    there on."""
    square = build.mul(x, x)
    w = build.negate(build.apply(functions.LogPlusOneOp, build.negate(square)))
    near = build.less(w, build.constant(5))
    close = build.sub(w, build.constant(2.5))
    far = build.sub(build.apply(hlo.SqrtOp, w), build.constant(3))
    coefficients = [
        build.select(near, build.constant(a), build.constant(b))
        for a, b in zip(_NEAR, _FAR, strict=True)
    ]
    value = build.mul(x, build.polynomial(build.select(near, close, far), coefficients))
    end = build.rewriter.emit(
        hlo.CompareOp(build.apply(hlo.AbsOp, x), build.constant(1), "EQ", "FLOAT")
    )
    return build.select(end, build.mul(x, build.constant(math.inf)), value)


class _Lanczos:
    """The part that both gamma functions share: where they are mirrored, and the logarithm of
    t = z + 7.5, for z = x - 1, or -x if mirrored."""

    def __init__(self, build: FloatBuilder, x: SSAValue) -> None:
        self.mirrored = build.less(x, build.constant(0.5))
        one = build.constant(1)
        self.z = build.select(self.mirrored, build.negate(x), build.sub(x, one))
        half = build.constant(_G + 0.5)
        self.t = build.add(self.z, half)
        ratio = build.apply(functions.LogPlusOneOp, build.div(self.z, half))
        self.log_t = build.add(build.constant(math.log(_G + 0.5)), ratio)
        self.total, self.slope = one, build.constant(0)
        for number, coefficient in enumerate(_LANCZOS):
            place = build.add(self.z, build.constant(number + 1))
            term = build.div(build.constant(coefficient), place)
            self.total = build.add(self.total, term)
            self.slope = build.sub(self.slope, build.div(term, place))


def _lgamma(build: FloatBuilder, x: SSAValue) -> SSAValue:
    """log(sqrt(2 pi)) + (z + 1/2) log(t) - t + log of Lanczos' sum; log(pi / |sin(pi x)|) less that
    for x < 1/2."""
    parts = _Lanczos(build, x)
    ahead = build.sub(build.add(parts.z, build.constant(0.5)), build.div(parts.t, parts.log_t))
    value = build.add(
        build.mul(ahead, parts.log_t), build.constant(math.log(math.sqrt(2 * math.pi)))
    )
    value = build.add(value, build.apply(hlo.LogOp, parts.total))
    magnitude = build.apply(hlo.AbsOp, x)
    fraction = build.sub(magnitude, build.apply(functions.FloorOp, magnitude))
    other = build.sub(build.constant(1), fraction)
    fraction = build.select(build.less(build.constant(0.5), fraction), other, fraction)
    angle = build.mul(build.constant(math.pi), fraction)
    sine = build.apply(hlo.LogOp, build.apply(functions.SineOp, angle))
    mirror = build.sub(build.sub(build.constant(math.log(math.pi)), sine), value)
    # At a pole the sine is zero.
    mirror = build.select(build.apply(hlo.IsFiniteOp, sine), mirror, build.negate(sine))
    value = build.select(parts.mirrored, mirror, value)
    infinity = build.constant(math.inf)
    endless = build.rewriter.emit(hlo.CompareOp(magnitude, infinity, "EQ", "FLOAT"))
    return build.select(endless, infinity, value)


def _digamma(build: FloatBuilder, x: SSAValue) -> SSAValue:
    """log(t) + the logarithmic derivative of Lanczos' sum - 7 / t; less pi / tan(pi x) for
    x < 1/2."""
    parts = _Lanczos(build, x)
    value = build.add(parts.log_t, build.div(parts.slope, parts.total))
    value = build.sub(value, build.div(build.constant(_G), parts.t))
    floor = build.apply(functions.FloorOp, build.add(x, build.constant(0.5)))
    angle = build.mul(build.constant(math.pi), build.add(x, build.apply(hlo.AbsOp, floor)))
    cosine = build.mul(build.constant(math.pi), build.apply(functions.CosineOp, angle))
    tangent = build.div(cosine, build.apply(functions.SineOp, angle))
    mirror = build.sub(value, tangent)
    value = build.select(parts.mirrored, mirror, value)
    whole = build.rewriter.emit(hlo.CompareOp(x, build.apply(functions.FloorOp, x), "EQ", "FLOAT"))
    zero = build.constant(0)
    below = build.rewriter.emit(hlo.CompareOp(x, zero, "LE", "FLOAT"))
    pole = build.rewriter.emit(hlo.AndOp(whole, below))
    return build.select(pole, build.constant(math.nan), value)


# Even Bernoulli numbers.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66)
_TERMS = 10


def _polygamma(op: ops.PolygammaOp, rewriter: Rewriter) -> SSAValue | None:
    """Up to sign and factorial, the sum of (x + k)^-s for all k >= 0 with s = order + 1: ten of
    them, and the formula of Euler and Maclaurin for the others."""
    if hlo.element_count(op.rhs) == 0:
        return op.rhs
    order = rewriter.facts.splat(op.lhs)
    if order is None or order not in range(_TERMS):
        raise InputError(
            f"{op.name} is supported for an order that is a constant from 0 to {_TERMS - 1}",
            source_location(op),
        )
    if order == 0:
        return rewriter.emit(ops.DigammaOp(op.rhs))
    build, s = FloatBuilder(op.rhs, rewriter), int(order) + 1
    far = build.add(op.rhs, build.constant(_TERMS))
    inverse = build.div(build.constant(1), far)
    # far^-s (far / (s - 1) + 1/2 + sum of c_j far^(1 - 2 j))
    square = build.mul(inverse, inverse)
    series, power, rising, factorial = build.constant(0.5), inverse, float(s), 2.0
    for j, number in enumerate(_BERNOULLI, 1):
        term = build.mul(power, build.constant(number * rising / factorial))
        series = build.add(series, term)
        power = build.mul(power, square)
        rising *= (s + 2 * j - 1) * (s + 2 * j)
        factorial *= (2 * j + 1) * (2 * j + 2)
    series = build.add(series, build.div(far, build.constant(s - 1)))
    total = build.mul(_power(build, inverse, s), series)
    for k in reversed(range(_TERMS)):
        place = build.add(op.rhs, build.constant(k))
        total = build.add(total, _power(build, build.div(build.constant(1), place), s))
    scale = math.factorial(s - 1) * (-1) ** s
    return build.mul(total, build.constant(scale))


def _power(build: FloatBuilder, x: SSAValue, exponent: int) -> SSAValue:
    result = x
    for _ in range(exponent - 1):
        result = build.mul(result, x)
    return result


def _next_after(op: ops.NextAfterOp, rewriter: Rewriter) -> SSAValue:
    """The bits as a number one more, or one less where that is nearer to zero."""
    element = hlo.element_type_of(op.result)
    bits = buffers.element_bytes(element) * 8
    sign, ones = 1 << bits - 1, (1 << bits) - 1
    unsigned = IntegerType(bits, Signedness.UNSIGNED)
    x, y = (
        Words(rewriter.emit(hlo.BitcastConvertOp(value, unsigned)), rewriter.emit)
        for value in op.operands
    )
    less, more = x + ones, x + 1
    beyond = ((y & ones - sign) < (x & ones - sign)).chooses(less, more)
    next = ((x ^ y) & sign).equals(0).chooses(beyond, less)
    next = (x & ones - sign).equals(0).chooses((y & sign) | 1, next)
    found = next.of(hlo.BitcastConvertOp(next.value, element))
    for value, other, kind, instead in (
        (op.lhs, op.rhs, "EQ", op.rhs),
        (op.lhs, op.lhs, "NE", op.lhs),
        (op.rhs, op.rhs, "NE", op.rhs),
    ):
        condition = found.of(hlo.CompareOp(value, other, kind, "FLOAT"))
        found = found.of(hlo.SelectOp(condition.value, instead, found.value))
    return found.value


def _rule(expand: Callable[[FloatBuilder, SSAValue], SSAValue]) -> Callable[..., SSAValue]:
    def rule(op: hlo.ChloUnaryOp, rewriter: Rewriter) -> SSAValue:
        return expand(FloatBuilder(op.operand, rewriter), op.operand)

    return rule


EXPANSIONS: Rules = {
    ops.AsinOp: (_rule(_asin),),
    ops.AcosOp: (_rule(_acos),),
    ops.AtanOp: (_rule(_atan),),
    ops.SinhOp: (_rule(_sinh),),
    ops.CoshOp: (_rule(_cosh),),
    ops.AsinhOp: (_rule(_asinh),),
    ops.AcoshOp: (_rule(_acosh),),
    ops.AtanhOp: (_rule(_atanh),),
    ops.ErfInvOp: (_rule(_erf_inv),),
    ops.LgammaOp: (_rule(_lgamma),),
    ops.DigammaOp: (_rule(_digamma),),
    ops.PolygammaOp: (_polygamma,),
    ops.NextAfterOp: (_next_after,),
}
"""The rules of `stablehlo-simplify` for these functions."""
