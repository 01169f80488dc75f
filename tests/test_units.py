"""Numbers of options and passes as users write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poetc.errors import InputError
from poetc.units import (
    check_limit,
    parse_bytes,
    parse_duration_ns,
    parse_fraction,
    parse_seconds,
)


@given(st.floats(min_value=1e-12, max_value=0.99))
def test_small_numbers_are_read_as_python_writes_them(number: float) -> None:
    """As `1e-05`, which `poetc.compile(gap=1e-5)` gives."""
    assert parse_fraction(str(number), "--gap") == number
    assert parse_seconds(str(number), "--time-limit") == number


def test_exponents() -> None:
    assert parse_bytes("4e3", "--ram") == 4000
    assert parse_bytes("1e0KB", "--ram") == 1024
    assert parse_duration_ns("2E-3s", "--deadline") == 2_000_000
    assert parse_duration_ns("1e1x", "--deadline") == 10.0


@pytest.mark.parametrize("text", ["1e", "e5", "1e5e5", "1e999", "1e-999", "0e5", "nan", "inf"])
def test_what_is_no_number_is_refused(text: str) -> None:
    for parse in (parse_bytes, parse_duration_ns, parse_seconds):
        with pytest.raises(InputError, match=f"--option={text}: "):
            parse(text, "--option")


@pytest.mark.parametrize("value", [True, False])
def test_truth_is_no_limit(value: bool) -> None:
    with pytest.raises(InputError, match=f"ram must be a number, not {str(value).lower()}"):
        check_limit(value, "ram")
