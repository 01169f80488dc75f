"""Our strategy: a greedy schedule at once, then the MILP over the slots."""

from __future__ import annotations

import math

import numpy as np

from poetc.schedule.baselines import keep_all
from poetc.schedule.greedy import greedy, tastes
from poetc.schedule.highs import solve_mip
from poetc.schedule.milp import SlotModel, all_slots
from poetc.schedule.search import Search


def portfolio(search: Search) -> bool:
    """Looks until the gap or the time limit is reached; True when there provably is no schedule."""
    first_schedules(search)
    if search.finished:
        return False
    return exact(search)


def first_schedules(search: Search) -> None:
    """Offers the schedule that keeps everything, and greedy ones."""
    instance = search.instance
    search.offer(keep_all.sequence(instance), "keep-all")
    limit = instance.problem.ram_bytes
    ram = math.inf if limit is None else limit
    for taste in tastes(instance):
        if search.finished or (search.steps is not None and search.seconds > 2):
            break
        events = greedy(instance, ram, taste)
        if events is not None:
            search.offer(events, f"greedy {taste}")


def exact(search: Search) -> bool:
    """The MILP over all slots."""
    model = SlotModel(search.instance, all_slots(search.instance))
    search.note(f"model of {model.lp.columns} columns, {model.lp.rows} rows")
    return run_model(search, model, bounding=True)


def run_model(search: Search, model: SlotModel, bounding: bool, seconds: float = math.inf) -> bool:
    """Solves `model` from the best schedule; its bound counts if `bounding`. True if infeasible."""

    def on_point(x: np.ndarray) -> None:
        search.offer(model.sequence(x), "MILP")

    def on_bound(bound: float) -> None:
        if bounding:
            search.raise_bound(model.value(bound))

    start = model.point(search.events) if search.steps is not None else None
    outcome = solve_mip(
        model.lp,
        min(search.remaining, seconds),
        search.stop,
        relative_gap=search.gap,
        start=start,
        on_point=on_point,
        on_bound=on_bound,
    )
    if outcome.x is not None:
        on_point(outcome.x)
    on_bound(outcome.bound)
    search.note(f"HiGHS: {outcome.status}, bound {model.value(outcome.bound):.6g}")
    return outcome.infeasible and bounding and search.steps is None
