"""`solve`: the one function that turns a problem into a schedule."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from poetc.schedule import bounds, limits
from poetc.schedule.baselines.keep_all import keep_all
from poetc.schedule.baselines.poet import poet
from poetc.schedule.errors import InfeasibleProblem, SolverInterrupted, SolverTimeLimit
from poetc.schedule.instance import Instance
from poetc.schedule.portfolio import portfolio
from poetc.schedule.problem import Problem, Schedule
from poetc.schedule.search import Progress, Search

# A strategy looks for schedules and bounds until the search is finished. It returns True when it has
# proven that there is no schedule (of its own kind: only "auto" speaks for all).
STRATEGIES: dict[str, Callable[[Search], bool]] = {
    "auto": portfolio,
    "milp": portfolio,
    "poet": poet,
    "keep-all": keep_all,
}


def solve(
    problem: Problem,
    *,
    strategy: str = "auto",
    time_limit_s: float = 60.0,
    gap: float = 0.01,
    remat: bool = True,
    paging: bool = True,
    progress: Callable[[Progress], bool | None] | None = None,
) -> Schedule:
    """The schedule of least energy that is found in the time, with a proven bound.

    `gap` is the relative gap at which the search ends and "optimal" is said. `remat` allows operations
    to run again, `paging` tensors to move to storage and back (without it only those move that start
    or must end there). `progress` is called with each better schedule or bound; it may return False to
    end the search.

    Raises `InfeasibleProblem` when it is proven that no schedule keeps to the limits,
    `SolverTimeLimit` when the time ends without schedule or proof, `SolverInterrupted` (a
    KeyboardInterrupt) on Ctrl-C with the best schedule so far, and ValueError for an unknown strategy.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"unknown strategy {strategy!r}, there are {', '.join(STRATEGIES)}")
    instance = Instance(problem, remat=remat, paging=paging)
    search = Search(instance, time_limit_s, gap, progress)
    try:
        search.raise_bound(instance.base_energy)
        limits.refuse_hopeless(search)
        proven = STRATEGIES[strategy](search)
    except KeyboardInterrupt:
        raise SolverInterrupted(search.schedule(strategy)) from None
    schedule = search.schedule(strategy)
    if schedule is not None:
        return schedule
    if proven:
        limits.refuse(search, strategy)
    raise SolverTimeLimit(
        f"no schedule found in {time_limit_s:g} s, and no proof that there is none"
    )
