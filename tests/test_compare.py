"""How results are compared: relative to a tensor's largest element, with a floor for the step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from poetc.compare import (
    ROUNDING,
    TOLERANCE,
    difference,
    differences,
    floor,
    rounding_of,
    tolerance,
)
from poetc.ir.text import parse_module

FLOATS = st.floats(-1e6, 1e6, width=32)
TENSORS = arrays.arrays(np.float32, arrays.array_shapes(max_side=4), elements=FLOATS)


def array(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_relative_to_the_largest_element() -> None:
    assert difference(array(0.0, 101.0), array(1.0, 100.0), 0.0) == pytest.approx(0.01)
    assert difference(array(1e-9, 100.0), array(0.0, 100.0), 0.0) == pytest.approx(1e-11)


def test_what_is_zero_on_paper_is_relative_to_the_step() -> None:
    """The key bias of attention: its gradient is noise, here and in any other program."""
    loss, noise = array(6.26), array(2.9e-14, -1e-14)
    assert differences([loss, -noise], [loss, noise]) == [0.0, pytest.approx(7.8e-8, rel=0.01)]
    # What should be zero and is not even nearly does not pass for noise.
    assert differences([loss, array(1e-6, 0.0)], [loss, noise])[1] > 1
    assert differences([loss, array(1e-6, 0.0)], [loss, array(0.0, 0.0)])[1] > 1


def test_small_tensors_that_are_not_zero_count_in_full() -> None:
    """The second moments of Adam, say: small, but larger than what rounding leaves."""
    loss, small = array(2.3), array(2.8e-5, 1e-6)
    assert differences([loss, small * np.float32(1.01)], [loss, small])[1] == pytest.approx(
        0.01, rel=1e-3
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite(value: float) -> None:
    assert difference(array(value, 1.0), array(value, 1.0), 0.0) == 0
    for got, expected in ((value, 1.0), (1.0, value), (-value, value)):
        if not (np.isnan(got) and np.isnan(expected)):
            assert difference(array(got, 1.0), array(expected, 1.0), 1.0) == float("inf")
    assert floor([array(value, 2.0)]) == 2 * ROUNDING


def test_other_types_and_shapes() -> None:
    three = np.array([3, 0], np.int32)
    assert difference(three, three, 0.0) == 0 and difference(three + 1, three, 0.0) > 0.3
    assert difference(np.array([True]), np.array([False]), 1e-7) > 1
    assert difference(array(1.0), array(1.0, 1.0), 0.0) == float("inf")
    assert difference(array(), array(), 0.0) == 0 and floor([three]) == 0


def test_a_step_is_as_exact_as_its_shortest_floats() -> None:
    def rounding(*types: str) -> float:
        lines = "".join(
            f"%{i} = stablehlo.convert %x : (tensor<2xf32>) -> tensor<2x{type}>\n"
            for i, type in enumerate(types)
        )
        head = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n"
        return rounding_of(parse_module(f"{head}{lines}return %x : tensor<2xf32>\n}}"))

    assert rounding("i8", "i64") == ROUNDING and tolerance(ROUNDING) == TOLERANCE
    assert rounding("f16", "i8") == 2.0**-10 and rounding("f16", "bf16") == 2.0**-7
    assert tolerance(2.0**-7) == 2.0**-4
    assert floor([array(8.0)], 2.0**-7) == 2.0**-4


@given(TENSORS, TENSORS, st.sampled_from((0.0, 1e-7, 1.0)), st.sampled_from((2.0, 0.25)))
def test_laws(a: np.ndarray, b: np.ndarray, at_least: float, factor: float) -> None:
    """No difference only between equals, symmetric in its sign, the same in other units, smaller
    with a greater floor."""
    found = difference(a, b, at_least)
    assert difference(b, b, at_least) == 0
    assert (found == 0) == (a.shape == b.shape and bool(np.all(a == b)))
    assert difference(-a, -b, at_least) == found
    scaled = difference(a.astype(np.float64) * factor, b * np.float64(factor), at_least * factor)
    assert scaled == pytest.approx(found)
    assert difference(a, b, 2 * at_least + 1e-9) <= found
