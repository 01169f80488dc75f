"""Rules for element-wise operations; each says why the bits stay.

Floats are rounded to nearest even. NaN is one value: which payload an operation passes on differs
between processors and no result may depend on it.
"""

import math

import numpy as np
from xdsl.ir import SSAValue

from poetc.ir import dense
from poetc.ir import stablehlo as hlo
from poetc.simplify.driver import Rewriter

INFINITY = float("inf")

_SWAPPED = {"EQ": "EQ", "NE": "NE", "LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}


def constant_last(op: hlo.BinaryElementwiseOp, rewriter: Rewriter) -> SSAValue | None:
    """f(c, x) -> f(x, c) for commutative f, so that the rules below look at one side only."""
    facts = rewriter.facts
    if facts.splat(op.lhs) is None or facts.splat(op.rhs) is not None:
        return None
    return rewriter.emit(type(op)(op.rhs, op.lhs))


def constant_last_in_compare(op: hlo.CompareOp, rewriter: Rewriter) -> SSAValue | None:
    """compare(LT, c, x) -> compare(GT, x, c): the same comparison read from the other side."""
    facts = rewriter.facts
    if facts.splat(op.lhs) is None or facts.splat(op.rhs) is not None:
        return None
    swapped = hlo.CompareOp(op.rhs, op.lhs, _SWAPPED[op.direction], op.compare_type)
    return rewriter.emit(swapped)


def add_zero(op: hlo.AddOp, rewriter: Rewriter) -> SSAValue | None:
    """x + -0.0 -> x, exact for every x including both zeros; x + 0 -> x for integers.

    x + +0.0 -> x only where x cannot be -0.0, because -0.0 + +0.0 is +0.0.
    """
    facts = rewriter.facts
    if not hlo.is_float(op.lhs):
        return op.lhs if facts.is_splat(op.rhs, 0) else None
    if facts.is_splat(op.rhs, -0.0):
        return op.lhs
    if facts.is_splat(op.rhs, 0.0) and facts.never_negative_zero(op.lhs):
        return op.lhs
    return None


def subtract_zero(op: hlo.SubtractOp, rewriter: Rewriter) -> SSAValue | None:
    """x - +0.0 -> x, exact for every x: -0.0 - +0.0 is -0.0; x - 0 -> x for integers."""
    return op.lhs if rewriter.facts.is_splat(op.rhs, 0.0) else None


def multiply_one(op: hlo.MultiplyOp, rewriter: Rewriter) -> SSAValue | None:
    """x * 1 -> x: the product is x itself, no rounding."""
    return op.lhs if rewriter.facts.is_splat(op.rhs, 1) else None


def scale_by_minus_one(op: hlo.MultiplyOp | hlo.DivideOp, rewriter: Rewriter) -> SSAValue | None:
    """x * -1, x / -1 -> -x: the sign changes, no rounding."""
    if not hlo.is_float(op.lhs) or not rewriter.facts.is_splat(op.rhs, -1.0):
        return None
    return rewriter.emit(hlo.NegateOp(op.lhs))


def multiply_int_zero(op: hlo.MultiplyOp, rewriter: Rewriter) -> SSAValue | None:
    """x * 0 -> 0 for integers; a float may be NaN, infinite or negative."""
    return op.rhs if not hlo.is_float(op.lhs) and rewriter.facts.is_splat(op.rhs, 0) else None


def divide_one(op: hlo.DivideOp, rewriter: Rewriter) -> SSAValue | None:
    """x / 1 -> x: the quotient is x itself, no rounding."""
    return op.lhs if rewriter.facts.is_splat(op.rhs, 1.0) else None


def divide_power_of_two(op: hlo.DivideOp, rewriter: Rewriter) -> SSAValue | None:
    """x / 2^k -> x * 2^-k where 2^-k is exact: both round the same real number."""
    divisor = rewriter.facts.splat(op.rhs)
    if divisor is None or not hlo.is_float(op.rhs):
        return None
    number = float(divisor)
    if not math.isfinite(number) or abs(math.frexp(number)[0]) != 0.5:
        return None
    with np.errstate(over="ignore"):
        reciprocal = divisor.dtype.type(1 / number)
    if float(reciprocal) != 1 / number:
        return None
    return rewriter.emit(hlo.MultiplyOp(op.lhs, rewriter.splat(reciprocal, op.rhs.type)))


def negative_constant(op: hlo.MultiplyOp | hlo.DivideOp, rewriter: Rewriter) -> SSAValue | None:
    """-x * c -> x * -c, -x / c -> x / -c: only the sign changes, rounding is symmetric in it."""
    constant = rewriter.facts.splat(op.rhs)
    negate = op.lhs.owner
    if constant is None or not isinstance(negate, hlo.NegateOp):
        return None
    if not hlo.is_float(op.lhs) or np.isnan(constant):
        return None
    return rewriter.emit(
        type(op)(negate.operand, rewriter.splat(np.negative(constant), op.rhs.type))
    )


def negate_negate(op: hlo.NegateOp, rewriter: Rewriter) -> SSAValue | None:
    """-(-x) -> x: flips the sign twice; two's complement for integers."""
    inner = op.operand.owner
    return inner.operand if isinstance(inner, hlo.NegateOp) else None


def negate_scaled(op: hlo.NegateOp, rewriter: Rewriter) -> SSAValue | None:
    """-(x * c) -> x * -c, -(x / c) -> x / -c: rounding is symmetric in the sign.

    Where the product has other uses it would be computed twice.
    """
    inner = op.operand.owner
    if not isinstance(inner, hlo.MultiplyOp | hlo.DivideOp) or not op.operand.has_one_use():
        return None
    constant = rewriter.facts.splat(inner.rhs)
    if not hlo.is_float(op.operand) or constant is None or np.isnan(constant):
        return None
    return rewriter.emit(
        type(inner)(inner.lhs, rewriter.splat(np.negative(constant), inner.rhs.type))
    )


def add_negated(op: hlo.AddOp, rewriter: Rewriter) -> SSAValue | None:
    """x + -y -> x - y, -x + y -> y - x: IEEE 754 defines the difference so."""
    for value, other in ((op.rhs, op.lhs), (op.lhs, op.rhs)):
        if isinstance(value.owner, hlo.NegateOp):
            return rewriter.emit(hlo.SubtractOp(other, value.owner.operand))
    return None


def subtract_negated(op: hlo.SubtractOp, rewriter: Rewriter) -> SSAValue | None:
    """x - -y -> x + y: IEEE 754 defines the difference so."""
    if isinstance(op.rhs.owner, hlo.NegateOp):
        return rewriter.emit(hlo.AddOp(op.lhs, op.rhs.owner.operand))
    return None


def same_operands(
    op: hlo.MaximumOp | hlo.MinimumOp | hlo.AndOp | hlo.OrOp, rewriter: Rewriter
) -> SSAValue | None:
    """max(x, x), min(x, x), x and x, x or x -> x: one of two equal operands."""
    return op.lhs if op.lhs is op.rhs else None


def maximum_identity(op: hlo.MaximumOp, rewriter: Rewriter) -> SSAValue | None:
    """max(x, -inf) -> x: nothing is smaller, NaN stays NaN, zeros meet no other zero."""
    return op.lhs if rewriter.facts.is_splat(op.rhs, -INFINITY) else None


def minimum_identity(op: hlo.MinimumOp, rewriter: Rewriter) -> SSAValue | None:
    """min(x, +inf) -> x: nothing is larger, NaN stays NaN, zeros meet no other zero."""
    return op.lhs if rewriter.facts.is_splat(op.rhs, INFINITY) else None


def and_constant(op: hlo.AndOp, rewriter: Rewriter) -> SSAValue | None:
    """x and all ones -> x; x and 0 -> 0."""
    if rewriter.facts.is_splat(op.rhs, 0):
        return op.rhs
    return op.lhs if rewriter.facts.is_splat(op.rhs, _all_ones(op)) else None


def or_constant(op: hlo.OrOp, rewriter: Rewriter) -> SSAValue | None:
    """x or 0 -> x; x or all ones -> all ones."""
    if rewriter.facts.is_splat(op.rhs, 0):
        return op.lhs
    return op.rhs if rewriter.facts.is_splat(op.rhs, _all_ones(op)) else None


def xor_zero(op: hlo.XorOp, rewriter: Rewriter) -> SSAValue | None:
    """x xor 0 -> x."""
    return op.lhs if rewriter.facts.is_splat(op.rhs, 0) else None


def cancels(op: hlo.XorOp | hlo.SubtractOp, rewriter: Rewriter) -> SSAValue | None:
    """x xor x -> 0, x - x -> 0 for integers; a float may be NaN or infinite."""
    if op.lhs is not op.rhs or hlo.is_float(op.lhs):
        return None
    dtype = dense.dtype_of(hlo.element_type_of(op.lhs))
    return rewriter.splat(dtype.type(0), op.lhs.type)


def compare_same(op: hlo.CompareOp, rewriter: Rewriter) -> SSAValue | None:
    """x == x, x <= x, x >= x -> true, x != x, x < x, x > x -> false for integers; a float may be
    NaN."""
    if op.lhs is not op.rhs or hlo.is_float(op.lhs):
        return None
    return rewriter.splat(np.bool_(op.direction in ("EQ", "LE", "GE")), op.result.type)


def _all_ones(op: hlo.AndOp | hlo.OrOp) -> int:
    return int(hlo.identity("and", hlo.element_type_of(op.lhs)))


def not_not(op: hlo.NotOp, rewriter: Rewriter) -> SSAValue | None:
    """not not x -> x: flips every bit twice."""
    inner = op.operand.owner
    return inner.operand if isinstance(inner, hlo.NotOp) else None


def select_same(op: hlo.SelectOp, rewriter: Rewriter) -> SSAValue | None:
    """select(p, x, x) -> x."""
    return op.on_true if op.on_true is op.on_false else None


def select_constant(op: hlo.SelectOp, rewriter: Rewriter) -> SSAValue | None:
    """select(true, x, y) -> x, select(false, x, y) -> y."""
    pred = rewriter.facts.splat(op.pred)
    if pred is None:
        return None
    return op.on_true if pred else op.on_false


def select_not(op: hlo.SelectOp, rewriter: Rewriter) -> SSAValue | None:
    """select(not p, x, y) -> select(p, y, x)."""
    inner = op.pred.owner
    if not isinstance(inner, hlo.NotOp):
        return None
    return rewriter.emit(hlo.SelectOp(inner.operand, op.on_false, op.on_true))


def convert_same(op: hlo.ConvertOp, rewriter: Rewriter) -> SSAValue | None:
    """A convert to the operand's own type -> the operand."""
    return op.operand if op.operand.type == op.result.type else None


def convert_bool(op: hlo.ConvertOp, rewriter: Rewriter) -> SSAValue | None:
    """i1 -> i32 -> f32 or i1, and such: straight from i1, since 0 and 1 are exact everywhere."""
    inner = op.operand.owner
    if not isinstance(inner, hlo.ConvertOp) or hlo.element_type_of(inner.operand) != hlo.i1:
        return None
    return rewriter.emit(hlo.ConvertOp(inner.operand, hlo.element_type_of(op.result)))


def compare_rectified(op: hlo.CompareOp, rewriter: Rewriter) -> SSAValue | None:
    """compare(x > 0) -> compare(max(x, 0) > 0) where max(x, 0) was computed before.

    The maximum is x itself where x > 0, a zero where it is not, and NaN, which is not > 0, for
    NaN. The backward pass then keeps the activation only, not its argument as well.
    """
    if op.direction != "GT" or op.is_total or rewriter.facts.splat(op.rhs) != 0:
        return None
    if not hlo.is_float(op.lhs):
        return None
    rectified = rewriter.find(hlo.MaximumOp(op.lhs, op.rhs))
    if rectified is None:
        return None
    return rewriter.emit(hlo.CompareOp(rectified, op.rhs, op.direction, op.compare_type))
