"""Rules that compute at compile time what does not depend on any argument.

Float results are those of NumPy's float32 + - * / and comparisons, which IEEE 754 defines to the
bit, as the generated code computes them. A fold that gives NaN is not made: its sign and payload
differ between processors. Mathematical functions are left to the run time.
"""

from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from poetc.interpreter.functions import evaluate
from poetc.ir import stablehlo as hlo
from poetc.ir.types import is_float
from poetc.simplify.driver import Rewriter
from poetc.simplify.facts import MAX_FOLDED_ELEMENTS

_IDEMPOTENT = ("maximum", "minimum", "and", "or")
"""Reducers that give c for c and c."""


def fold_elementwise(op: Any, rewriter: Rewriter) -> SSAValue | None:
    """f(constants) -> constant: one evaluation for splats, one per element of small tensors."""
    if op.function():
        return None
    facts = rewriter.facts
    splats = [facts.splat(operand) for operand in op.operands]
    if all(splat is not None for splat in splats):
        scalar = _evaluate_scalars(op, splats)
        return None if _is_nan(scalar) else rewriter.splat(scalar, op.result.type)
    arrays = [facts.array(operand) for operand in op.operands]
    if any(array is None for array in arrays):
        return None
    result = evaluate(op, [array for array in arrays if array is not None])
    return None if _is_nan(result) else rewriter.emit(hlo.ConstantOp(result))


def _evaluate_scalars(op: Any, scalars: list[Any]) -> Any:
    """The op's scalar meaning: its operands and result shrunk to rank 0."""
    constants = [hlo.ConstantOp(np.asarray(scalar)) for scalar in scalars]
    shrunk = type(op).create(
        operands=[constant.result for constant in constants],
        result_types=[hlo.TensorType(hlo.element_type_of(op.result), ())],
        properties=op.properties,
    )
    result = evaluate(shrunk, [np.asarray(scalar) for scalar in scalars])
    shrunk.erase()
    return result[()]


def _is_nan(values: Any) -> bool:
    return is_float(np.asarray(values).dtype) and bool(np.isnan(values).any())


def fold_movement(op: Any, rewriter: Rewriter) -> SSAValue | None:
    """Moving equal elements gives equal elements; moving a small constant gives another one."""
    facts = rewriter.facts
    splats = [facts.splat(operand) for operand in op.operands]
    if splats[0] is not None and all(_same(splats[0], splat) for splat in splats):
        is_final = (
            isinstance(op, hlo.BroadcastInDimOp)
            and isinstance(op.operand.owner, hlo.ConstantOp)
            and hlo.shape_of(op.operand) == ()
            and hlo.element_count(op.result) != 1
        )
        return None if is_final else rewriter.splat(splats[0], op.result.type)
    arrays = [facts.array(operand) for operand in op.operands]
    if hlo.element_count(op.result) > MAX_FOLDED_ELEMENTS or any(a is None for a in arrays):
        return None
    result = evaluate(op, [array for array in arrays if array is not None])
    return rewriter.emit(hlo.ConstantOp(result))


def _same(a: np.generic, b: np.generic | None) -> bool:
    return b is not None and a.tobytes() == b.tobytes()


def shrink_constant(op: hlo.ConstantOp, rewriter: Rewriter) -> SSAValue | None:
    """A constant of equal elements -> its one element, broadcast."""
    if hlo.element_count(op.result) <= 1:
        return None
    array = op.array()
    first = array.flat[0]
    if array.tobytes() != first.tobytes() * array.size:
        return None
    return rewriter.splat(first, op.result.type)


def compare_ranges(op: hlo.CompareOp, rewriter: Rewriter) -> SSAValue | None:
    """compare(i, j) where the ranges of i and j decide it -> constant, such as iota < 0."""
    left, right = rewriter.facts.int_range(op.lhs), rewriter.facts.int_range(op.rhs)
    if left is None or right is None:
        return None
    below, above = left[1] < right[0], left[0] > right[1]
    at_most, at_least = left[1] <= right[0], left[0] >= right[1]
    always, never = {
        "LT": (below, at_least),
        "LE": (at_most, above),
        "GT": (above, at_most),
        "GE": (at_least, below),
        "EQ": (at_most and at_least, below or above),
        "NE": (below or above, at_most and at_least),
    }[op.direction]
    if not always and not never:
        return None
    return rewriter.splat(np.bool_(always), op.result.type)


def reduce_splat(op: hlo.ReduceOp, rewriter: Rewriter) -> SSAValue | None:
    """Reducing equal elements by an idempotent f -> one step of it: f(f(i, c), c) = f(i, c)."""
    splat, init = rewriter.facts.splat(op.operand), rewriter.facts.splat(op.init)
    if splat is None or init is None or op.kind not in _IDEMPOTENT:
        return None
    if hlo.element_count(op.operand) == 0:
        return None
    scalars = [rewriter.emit(hlo.ConstantOp(np.asarray(value))) for value in (init, splat)]
    combined = rewriter.emit(hlo.REDUCERS[op.kind](*scalars))
    return rewriter.emit(hlo.BroadcastInDimOp(combined, (), hlo.shape_of(op.result)))
