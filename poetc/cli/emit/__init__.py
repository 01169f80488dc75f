"""What `--emit` writes, one backend a file: `--emit=plan` is `plan.py`, which has a `BACKEND`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from poetc.cli.arguments import given
from poetc.errors import InputError

if TYPE_CHECKING:
    from poetc.driver import Compiled
    from poetc.report import Summary
    from poetc.request import Options
    from poetc.step_data import StepData

DEFAULT = "ir"


@dataclass(frozen=True)
class Job:
    """What to write: a compiled step, what was asked for, the data of one run if they are given,
    and the summary when it is called."""

    arguments: argparse.Namespace
    compiled: Compiled
    options: Options
    step: StepData | None
    summary: Callable[[], Summary]


def _nothing(arguments: argparse.Namespace) -> None:
    pass


def runs_plans(arguments: argparse.Namespace) -> bool:
    """Whether the program is one that runs plans."""
    return arguments.executor == "plan"


@dataclass(frozen=True)
class Backend:
    """A form in which a compiled step is written.

    `emit` writes it and may return a note for the user. `takes` are options that say how; what is
    said where another backend is asked for is `says`. It `borrows` options of others. `check`
    raises InputError, before the search, for what would be refused after it. `plans` says whether
    the schedule is data for a program.
    """

    emit: Callable[[Job], str | None]
    takes: tuple[str, ...] = ()
    borrows: tuple[str, ...] = ()
    says: str = ""
    check: Callable[[argparse.Namespace], None] = _nothing
    plans: Callable[[argparse.Namespace], bool] = runs_plans


@cache
def names() -> tuple[str, ...]:
    """What `--emit` takes, the default first."""
    found = {module.name for module in iter_modules(__path__)}
    return (DEFAULT, *sorted(found - {DEFAULT}))


def load(name: str) -> Backend:
    """The backend of one of the `names`."""
    return import_module(f"{__name__}.{name}").BACKEND


def refuse_others(arguments: argparse.Namespace, backend: Backend) -> None:
    """Raises InputError for options that only say how another backend writes."""
    for other in map(load, names()):
        if other is backend:
            continue
        unused = given(arguments, *(name for name in other.takes if name not in backend.borrows))
        if unused:
            raise InputError(f"{' '.join(unused)} {other.says}")
