"""`solve`: the one function that turns a problem into a schedule."""

from __future__ import annotations

import math
from collections.abc import Callable

from poetc.schedule.model.clock import Clock
from poetc.schedule.model.errors import (
    NoScheduleError,
    SolverInterrupted,
)
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Problem, Schedule
from poetc.schedule.params import DEFAULTS, SearchParams
from poetc.schedule.search import infeasibility
from poetc.schedule.search.state import Progress, Search
from poetc.schedule.strategies import load


def solve(
    problem: Problem,
    *,
    strategy: str = "auto",
    time_limit_s: float = 60.0,
    gap: float = 0.01,
    remat: bool = True,
    paging: bool = True,
    progress: Callable[[Progress], bool | None] | None = None,
    patience: float = 1.0,
    enough_nj: float = math.inf,
    params: SearchParams = DEFAULTS,
    clock: Clock | None = None,
    effort_s: float | None = None,
) -> Schedule:
    """The schedule of least energy that is found in the time, with a proven bound.

    `gap` is the relative gap at which the search ends and "optimal" is said. `remat` allows
    operations to run again, `paging` tensors to move to storage and back (without it only those
    move that start or must end there). `progress` is called with each better schedule or bound; it
    may return False to end the search. `patience` is the share of
    time and effort after which it ends without a schedule of `enough_nj` or less. `params` are the
    techniques of the search and its numbers. The work that it does is counted by `clock`. With
    `effort_s` it ends at the work that so many seconds stand for, and does not depend on the
    machine; without, it goes on until the time limit, as long as the gap is open.

    Raises `InfeasibleProblem` when it is proven that no schedule keeps to the limits, or none that
    keeps to the stage rules in the given order of the operations, while the search found none in
    other orders (`any_order` says which). Raises `SolverTimeLimit` when the time ends without
    schedule or proof, `SolverInterrupted` (a KeyboardInterrupt) on Ctrl-C with the best schedule so
    far, and ValueError for an unknown strategy or a gap that is none. Baselines that construct
    schedules raise `NoScheduleError` where theirs do not keep to the limits, which proves nothing,
    and `StrategyUndefinedError` where they do not apply.
    """
    chosen = load(strategy)
    if not gap >= 0:
        raise ValueError(f"a gap of {gap}: not a number from 0 on")
    instance = Instance(problem, remat, paging, params)
    search = Search(instance, time_limit_s, gap, progress, patience, enough_nj, clock, effort_s)
    try:
        search.raise_bound(instance.base_energy)
        infeasibility.refuse_hopeless(search, in_order=strategy != "auto")
        proven = chosen.run(search)
    except KeyboardInterrupt:
        raise SolverInterrupted(search.schedule(strategy)) from None
    if proven and search.steps is None:
        if chosen.constructs:
            raise NoScheduleError(_nothing(search, strategy))
        infeasibility.refuse(search, strategy)
    schedule = search.schedule(strategy)
    if schedule is not None:
        return schedule
    raise infeasibility.unsettled(search)


def _nothing(search: Search, strategy: str) -> str:
    """The message when a strategy that constructs schedules has none within the limits."""
    problem = search.instance.problem
    sizes = {"of RAM": problem.ram_bytes, "of storage": problem.storage_bytes}
    within = [f"{size} bytes {what}" for what, size in sizes.items() if size is not None]
    within += [f"{problem.deadline_ns} ns"] if problem.deadline_ns is not None else []
    return (
        f"strategy {strategy} finds no schedule within {' and '.join(within) or 'no limits'}; "
        "this proves nothing about other strategies"
    )
