"""What the examples of a property test must have come to: a test that nothing reaches proves
nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

import hypothesis

P = ParamSpec("P")

_reached: set[str] = set()

_RUNS = 5
"""What the examples of one run of a test do not come to, those of another may: each run has its own
seed."""


def reached(outcome: str) -> None:
    """Says that the example of the test that runs has come to `outcome`."""
    _reached.add(outcome)


def must_reach(*outcomes: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """A decorator above `@given`: the test fails unless some example came to each of `outcomes`,
    in one of its runs."""

    def decorate(test: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(test)
        def checked(*args: P.args, **kwargs: P.kwargs) -> None:
            missing = set(outcomes)
            for run in range(_RUNS):
                _reached.clear()
                hypothesis.seed(run)(test)(*args, **kwargs)
                missing -= _reached
                if not missing:
                    return
            assert not missing, f"no example came to {', '.join(sorted(missing))}"

        return checked

    return decorate
