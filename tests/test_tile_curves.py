"""Energy against RAM with kernels in tiles: more RAM takes no more."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outcomes import must_reach, reached
from test_alternatives import ADAM

from poetc.compilation import compile_step
from poetc.ir.text import parse_module
from poetc.options import OPTIONS, Given
from poetc.request import options_of

LEAST_BYTES, MOST_BYTES = 584, 6920
"""The least RAM in which the step is known to run, and what it takes with all in RAM."""


def energy_nj(ram_bytes: int) -> float:
    """What a step takes in that much RAM, of which 8 bytes are no arena. The search ends by a
    proof, long before its limit of work."""
    given: dict[str, str | int] = {"stop": "work", "stack": 4, "static": 4}
    options = options_of(Given.of(given | {"ram": ram_bytes}), lambda warning: None)
    found = compile_step(parse_module(ADAM, "adam"), "adam", options).brief
    assert found.energy_nj is not None and found.ram.total_bytes <= ram_bytes
    if found.streams:
        reached("tiles")
    return found.energy_nj


@pytest.mark.slow
@must_reach("tiles")
@settings(max_examples=5, deadline=None)
@given(
    st.integers(LEAST_BYTES // 4, MOST_BYTES // 4),
    st.sampled_from((4, 64, 172, 500, 2000)),
)
def test_more_ram_takes_no_more_energy(words: int, more_bytes: int) -> None:
    less, more = energy_nj(4 * words), energy_nj(min(4 * words + more_bytes, MOST_BYTES))
    assert more * (1 - OPTIONS["gap"].value(None)) <= less


def test_ram_that_lets_a_kernel_have_larger_tiles() -> None:
    """The largest tiles that fit may leave too little for the tensors of other kernels."""
    assert energy_nj(2096) * (1 - OPTIONS["gap"].value(None)) <= energy_nj(1924)
