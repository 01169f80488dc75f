"""How far results are from what they should be: one definition for the command, tests, benchmarks.

The difference of a tensor is the largest one of its elements, relative to the largest element of
the expected tensor: single elements near zero say nothing. Where a whole tensor is zero on paper
(the gradient of a bias that a softmax takes out again, say), all of it is what rounding has left,
and nothing relative to it means anything. What rounding leaves is of the size of the rounding error
of what it was computed from, so no difference is relative to less than the *floor*: the rounding
error of single precision at the largest element of the step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

TOLERANCE = 1e-4
"""What a difference may be in one step of a model that is computed in another order: with those of
the tests it is less than a third of this."""

ROUNDING = float(np.finfo(np.float32).eps)


def floor(step: Iterable[np.ndarray]) -> float:
    """What differences are relative to at least, given the arguments or expected results of a step.

    Only floating-point numbers that are finite count; 0 where there are none.
    """
    most = 0.0
    for array in step:
        if array.dtype.kind == "f":
            sizes = np.abs(array.astype(np.float64))
            most = max(most, float(np.max(sizes, initial=0.0, where=np.isfinite(sizes))))
    return ROUNDING * most


def scale(expected: np.ndarray, at_least: float) -> float:
    """What the difference of a tensor is relative to."""
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
