"""How far results are from what they should be: one definition for the command, tests, benchmarks.

The difference of a tensor is the largest one of its elements, relative to the largest element of
the expected tensor: single elements near zero say nothing. Where a whole tensor is zero on paper
(the gradient of a bias that a softmax takes out again, say), all of it is what rounding has left,
and nothing relative to it means anything. What rounding leaves is of the size of the rounding error
of what it was computed from, so no difference is relative to less than the *floor*: the rounding
error, at the largest element of the step, of the floats with the fewest digits that it computes
with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from ml_dtypes import finfo
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation

from poetc.ir.types import ELEMENT_TYPES, is_float

TOLERANCE = 1e-4
"""The largest difference allowed in one step of a model that is computed in another order. With
the models of the tests it is less than a third of this."""

ROUNDING = float(np.finfo(np.float32).eps)


def rounding_of(step: Operation) -> float:
    """The rounding error of the floats with the fewest digits in a step."""
    types = {value.type for op in step.walk() for value in (*op.operands, *op.results)}
    elements = (type.element_type for type in types if isinstance(type, TensorType))
    known = (ELEMENT_TYPES[element].dtype for element in elements if element in ELEMENT_TYPES)
    return max((float(finfo(dtype).eps) for dtype in known if is_float(dtype)), default=ROUNDING)


def tolerance(rounding: float) -> float:
    """The largest difference allowed in one step that rounds so. With few digits it is a few
    roundings, because other compilers leave some out."""
    return max(TOLERANCE, 8 * rounding)


def floor(step: Iterable[np.ndarray], rounding: float = ROUNDING) -> float:
    """The least number that differences are relative to, given the arguments or expected results of
    a step that rounds so.

    Only floating-point numbers that are finite count; 0 where there are none.
    """
    most = 0.0
    for array in step:
        if is_float(array.dtype):
            sizes = np.abs(array.astype(np.float64))
            most = max(most, float(np.max(sizes, initial=0.0, where=np.isfinite(sizes))))
    return rounding * most


def scale(expected: np.ndarray, at_least: float) -> float:
    """The number that differences of a tensor are relative to."""
    sizes = np.abs(expected.astype(np.float64))
    return max(float(np.max(sizes, initial=0.0, where=np.isfinite(sizes))), at_least)


def difference(got: np.ndarray, expected: np.ndarray, at_least: float) -> float:
    """The difference of a tensor; `at_least` is the floor of its step.

    Infinite where the shapes differ, or where one number is not finite and the other not the same.
    """
    if got.shape != expected.shape:
        return float("inf")
    with np.errstate(invalid="ignore", over="ignore"):
        a, b = got.astype(np.float64), expected.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        error = float(np.max(np.abs(np.where(same, 0.0, a - b)), initial=0.0))
    if not error:
        return 0.0
    size = scale(expected, at_least)
    return error / size if np.isfinite(error) and size else float("inf")


def differences(got: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> list[float]:
    """The difference of each result of a step."""
    at_least = floor(expected)
    return [difference(a, b, at_least) for a, b in zip(got, expected, strict=True)]
