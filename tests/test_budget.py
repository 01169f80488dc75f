"""The limits of a step: what is left of the RAM for the arena, and the time that a multiple is."""

from __future__ import annotations

import pytest

from poetc.budget import Budget, Deadline
from poetc.errors import InputError


@pytest.mark.parametrize(
    ("budget", "arena_bytes", "used_bytes"),
    [
        (Budget(8192, 32, 1024), 7136, 7136 + 1056),
        (Budget(None, 32, 1024), None, 5000 + 1056),
        (Budget(1000, 32, 1024), -56, 5000 + 1056),
        # As in the POET paper: nothing is set aside, but the program has it all the same.
        (Budget(8192, 32, 1024, "activations"), 8192, 8192 + 1056),
    ],
)
def test_what_is_left_and_what_is_used(
    budget: Budget, arena_bytes: int | None, used_bytes: int
) -> None:
    assert budget.arena_bytes == arena_bytes
    arena = arena_bytes if arena_bytes is not None and arena_bytes > 0 else 5000
    assert budget.used_bytes(arena) == used_bytes


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [("20ms", 20_000_000), ("1.5x", 1500), ("2X", 2000), ("0.0001x", 1), ("1.0004x", 1000)],
)
def test_deadline_of_a_step_of_a_microsecond(text: str, time_ns: int) -> None:
    assert Deadline.parse(text, "--deadline").within_ns(1000) == time_ns


def test_a_multiple_of_no_time_is_some_time() -> None:
    assert Deadline(multiple=1.5).within_ns(0) == 1


def test_deadline_without_a_unit() -> None:
    with pytest.raises(InputError, match="--deadline=3: needs a unit"):
        Deadline.parse("3", "--deadline")
