"""Ways to schedule, ours and published ones, one file each: `chen_sqrt.py` is the strategy
`chen-sqrt`, the function in it with the decorator `strategy`. Files whose names begin with an
underscore are what several strategies share.

A strategy looks for schedules and bounds until the search is finished. It returns True when it has
proven that there is no schedule (of its own kind: only "auto" speaks for all).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from poetc.schedule.search.state import Search

DEFAULT = "auto"

INTERNAL = ("milp",)
"""Strategies that `--strategy` does not offer: parts of others, for tests and benchmarks."""


@dataclass(frozen=True)
class Strategy:
    """One way to schedule.

    With a `turn` it constructs schedules without searching and proves nothing: it returns True when
    it has nothing more to try. "auto" makes the schedules of these too, in the order of their
    turns, so that none of them is better.
    """

    name: str
    run: Callable[[Search], bool]
    turn: int | None = None

    @property
    def constructs(self) -> bool:
        """Whether it makes schedules without searching, and so proves nothing."""
        return self.turn is not None


_loaded: dict[str, Strategy] = {}


def strategy(
    *, turn: int | None = None
) -> Callable[[Callable[[Search], bool]], Callable[[Search], bool]]:
    """Makes a function the strategy that its file is called after."""

    def register(run: Callable[[Search], bool]) -> Callable[[Search], bool]:
        name = run.__module__.rpartition(".")[2].replace("_", "-")
        _loaded[name] = Strategy(name, run, turn)
        return run

    return register


@cache
def names() -> tuple[str, ...]:
    """All strategies, the default first. Their files, which bring the solver along, are not
    imported."""
    modules = [module.name for module in iter_modules(__path__)]
    found = {name.replace("_", "-") for name in modules if not name.startswith("_")}
    return (DEFAULT, *sorted(found - {DEFAULT}))


def load(name: str) -> Strategy:
    """The strategy of that name. Raises ValueError for an unknown one."""
    if name not in names():
        raise ValueError(f"unknown strategy {name!r}, there are {', '.join(names())}")
    import_module(f"{__name__}.{name.replace('-', '_')}")
    return _loaded[name]


def constructive() -> tuple[Strategy, ...]:
    """The strategies that construct schedules, in the order of their turns."""
    found = [each for each in map(load, names()) if each.turn is not None]
    return tuple(sorted(found, key=lambda each: each.turn or 0))
