"""The backends of `--emit`, one a file: `--emit=plan` is `plan.py`, which has a `BACKEND`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from poetc.errors import InputError
from poetc.options import Given

if TYPE_CHECKING:
    from poetc.backends.c.emit import Executor
    from poetc.compilation import CompiledStep
    from poetc.request import Options
    from poetc.step_data import StepData

DEFAULT = "ir"


@dataclass(frozen=True)
class Job:
    """A compiled step, how it is to be written and to where (None: standard output), and the data
    of one run if they are given."""

    step: CompiledStep
    given: Given
    output: str | None
    data: StepData | None = None


def runs_plans(given: Given) -> bool:
    """Whether the program is one that runs plans."""
    return given.text("executor") == "plan"


@dataclass(frozen=True)
class Backend:
    """A form in which a compiled step is written.

    `emit` writes it and may return a note for the user. `takes` are options that say how; what is
    said where another backend is asked for is `says`. It `borrows` options of others. `check`
    raises InputError, before the search, for what would be refused after it: of the options, and of
    the output. `plans` says whether the schedule is data for a program, `has_entries` whether
    other entry points than the step are written, too, `keeps_loops` whether loops of kernels are to
    stay as they are lowered. `untiled` says what of it has no kernels in tiles, and what has; empty
    where there may be some.
    """

    emit: Callable[[Job], str | None]
    takes: tuple[str, ...] = ()
    borrows: tuple[str, ...] = ()
    says: str = ""
    check: Callable[[Given, str | None], None] = lambda given, output: None
    plans: Callable[[Given], bool] = runs_plans
    has_entries: bool = False
    keeps_loops: Callable[[Given], bool] = lambda given: False
    untiled: Callable[[Given], str] = lambda given: ""


@cache
def names() -> tuple[str, ...]:
    """The values of `--emit`, the default first."""
    found = {module.name for module in iter_modules(__path__)}
    return (DEFAULT, *sorted(found - {DEFAULT}))


def load(name: str) -> Backend:
    """The backend of one of the `names`."""
    return import_module(f"{__name__}.{name}").BACKEND


def refuse_others(given: Given, backend: Backend) -> None:
    """Raises InputError for options that only say how another backend writes."""
    for other in map(load, names()):
        if other is backend:
            continue
        unused = given.flags(*(name for name in other.takes if name not in backend.borrows))
        if unused:
            raise InputError(f"{' '.join(unused)} {other.says}")


def check_entries(others: Sequence[str], name: str, given: Given) -> None:
    """Raises InputError for `others`, entry points beside the step, where only that is written."""
    backend = load(name)
    what = f"--emit={name}" if not backend.has_entries else ""
    if backend.plans(given):
        what = "a plan"
    if others and what:
        named = ", ".join(f"@{other}" for other in others)
        raise InputError(
            f"{named}: other entry points than the step are for --emit=c, whose schedule is code, "
            f"and --emit=report; {what} has none"
        )


def executor(given: Given, backend: Backend, options: Options) -> Executor | None:
    """The maker of a program that runs plans, if that is asked for, or a plan for one."""
    if not backend.plans(given):
        return None
    from poetc.backends.plan.source import PlanExecutor

    if given.text("io") == "caller":
        raise InputError("plans have inputs and results in the arena: --io=arena")
    has_storage = options.device.storage is not None
    ram_bytes = options.ram_bytes if options.ram_scope == "all" else None
    return PlanExecutor(ram_bytes, has_storage and options.paging)
