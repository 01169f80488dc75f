"""Our strategy: a greedy schedule at once, then MILPs over more and more slots.

Small problems go straight to the MILP over all slots. For large ones an LP relaxation of it gives a
bound and the reduced costs. MILPs over the reruns that lie close to what they are for (few edges
above the operation of the stage) give schedules, and MILPs over all reruns in a window of stages
improve them. Each better schedule makes everything that follows smaller, because what costs more
than the schedule's whole overhead cannot be in a better one.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from poetc.schedule.baselines import keep_all
from poetc.schedule.greedy import greedy, tastes
from poetc.schedule.highs import solve_lp, solve_mip
from poetc.schedule.milp import NONE, Slot, SlotModel, slots_where
from poetc.schedule.rebuild import Run, prune, stages
from poetc.schedule.search import Search

# Seconds for the greedy schedules.
GREEDY_S = 2.0
# Optional slots up to which the MILP over all of them is solved at once.
SMALL = 1_500
# Reruns at most so many edges above the operation of their stage, step by step.
DEPTHS = (2, 4, 8)
# Windows have these numbers of stages in turn; so many in a row without success are enough.
WINDOWS = (12, 24)
PATIENCE = 12
# Shares of the remaining time for the LP relaxation and for each step; seconds for a window.
BOUND_SHARE = 0.5
STEP_SHARE = 0.25
WINDOW_S = 8.0
# Seconds to build a model, per slot: what there is no time to build is not begun.
BUILD_S = 2e-4

Allowed = Callable[[int, int], bool]


@dataclass
class Guide:
    """What the LP relaxation says about reruns: no schedule better than the best has one of
    `cut`."""

    cut: set[Slot] = field(default_factory=set)


def portfolio(search: Search) -> bool:
    """Looks until the gap or the time limit is reached; True when there provably is no schedule."""
    first_schedules(search)
    if search.finished:
        return False
    guide = Guide()
    optional = sum(slot.optional for slot in slots_where(search.instance, _affordable(search)))
    if optional > SMALL:
        if relaxation(search, guide):
            return search.steps is None
        for depth in DEPTHS:
            if not search.finished:
                near(search, guide, depth)
        windows(search, guide)
        if search.finished:
            return False
    return exact(search, guide)


def first_schedules(search: Search) -> None:
    """Offers the schedule that keeps everything, and greedy ones."""
    instance = search.instance
    search.offer(keep_all.sequence(instance), "keep-all")
    limit = instance.problem.ram_bytes
    ram = math.inf if limit is None else limit
    until = search.seconds + GREEDY_S
    for taste in tastes(instance):
        if search.finished or search.seconds > until:
            break
        events = greedy(instance, ram, taste)
        if events is not None:
            search.offer(events, f"greedy {taste}")


def overhead(search: Search) -> float:
    """What the best schedule spends beyond the least energy; a better one has no rerun or page-in
    that costs more."""
    return search.energy_nj - search.instance.base_energy


def _affordable(search: Search) -> Allowed:
    most, energy = overhead(search), search.instance.run_energy
    return lambda stage, operation: energy[operation] <= most


def relaxation(search: Search, guide: Guide) -> bool:
    """Bounds the problem by an LP over all slots and fills `guide`. True when there is no better
    schedule."""
    instance = search.instance
    slots = slots_where(instance, _affordable(search))
    if _no_time_for(search, slots):
        return False
    model = SlotModel(instance, slots, overhead=overhead(search), outline=True)
    search.note(f"relaxation of {model.lp.columns} columns, {model.lp.rows} rows")
    outcome = solve_lp(model.lp, search.remaining * BOUND_SHARE, search.stop, "simplex")
    search.note(f"HiGHS: {outcome.status}, bound {model.value(outcome.bound):.6g}")
    if outcome.infeasible:
        search.raise_bound(search.energy_nj)
        return True
    search.raise_bound(min(model.value(outcome.bound), search.energy_nj))
    if outcome.duals is not None:
        room = search.energy_nj / model.scale - outcome.objective + 1e-3
        guide.cut.update(
            slot
            for slot, column in zip(model.slots, model.run, strict=True)
            if column != NONE and outcome.duals[column] > room
        )
    return False


def _no_time_for(search: Search, slots: list[Slot]) -> bool:
    """Would building a model take most of the time that is left?"""
    return len(slots) * BUILD_S > search.remaining / 2


def near(search: Search, guide: Guide, depth: int) -> None:
    """Looks for a better schedule among the reruns of ancestors at most `depth` edges above the
    operation of the stage, and those of the best schedule."""
    above = search.instance.depth
    neighbourhood(
        search,
        guide,
        f"depth {depth}",
        lambda stage, operation: above[stage].get(operation, math.inf) <= depth,
        search.remaining * STEP_SHARE,
        search.gap,
    )


def windows(search: Search, guide: Guide) -> None:
    """Improves the best schedule in one window of stages after another, mostly where it reruns or
    pages in something."""
    n, above = search.instance.n, search.instance.depth
    rng = random.Random(0)
    failures = 0
    for width in itertools.cycle(WINDOWS):
        if search.finished or search.steps is None or failures == PATIENCE:
            return
        busy = sorted({slot.stage for slot in reruns(search)}) or list(range(n))
        first = max(0, rng.choice(busy) - rng.randrange(width))
        energy = search.energy_nj

        def allowed(stage: int, operation: int, first=first, last=first + width) -> bool:
            return first <= stage < last and above[stage].get(operation, math.inf) <= DEPTHS[-1]

        # A window changes little: there the gap of the whole would hide what there is to gain.
        name, gap = f"stages {first} to {first + width - 1}", search.gap / 10
        neighbourhood(search, guide, name, allowed, WINDOW_S, gap)
        failures = 0 if search.energy_nj < energy else failures + 1


def neighbourhood(
    search: Search, guide: Guide, name: str, allowed: Allowed, seconds: float, gap: float
) -> None:
    """Looks for a better schedule with the reruns of the best one and those that `allowed` lets
    through."""
    used, affordable = reruns(search), _affordable(search)

    def wanted(stage: int, operation: int) -> bool:
        slot = Slot(stage, operation)
        if slot in used:
            return True
        return allowed(stage, operation) and affordable(stage, operation) and slot not in guide.cut

    slots = slots_where(search.instance, wanted)
    if _no_time_for(search, slots):
        return
    model = SlotModel(search.instance, slots, overhead=overhead(search))
    search.note(f"{name}: {len(slots)} slots, {model.lp.columns} columns")
    run_model(search, model, bounding=False, seconds=seconds, gap=gap)


def reruns(search: Search) -> set[Slot]:
    """The slots of the reruns of the best schedule."""
    if search.steps is None:
        return set()
    instance = search.instance
    kept, _ = prune(instance, search.events)
    return {
        Slot(stage, event.operation)
        for event, stage in zip(kept, stages(instance.n, kept), strict=True)
        if isinstance(event, Run) and event.operation != stage
    }


def exact(search: Search, guide: Guide | None = None) -> bool:
    """The MILP over all slots. True when there provably is no schedule."""
    instance = search.instance
    affordable, cut = _affordable(search), guide.cut if guide else set()
    slots = slots_where(instance, lambda t, k: affordable(t, k) and Slot(t, k) not in cut)
    if _no_time_for(search, slots):
        return False
    model = SlotModel(instance, slots, overhead=overhead(search))
    search.note(f"all: {len(slots)} slots, {model.lp.columns} columns, {model.lp.rows} rows")
    infeasible = run_model(search, model, bounding=True)
    problem = instance.problem
    time_matters = problem.deadline_ns is not None or problem.idle_power_nw > 0
    if problem.dma and time_matters and not infeasible and not search.finished:
        # With DMA the model's makespan is a lower bound: what it takes for fast may wait for
        # transfers.
        model = SlotModel(instance, slots, overhead=overhead(search), sequential=True)
        search.note("all, with the sum of computing and transfers for the makespan")
        run_model(search, model, bounding=False)
    return infeasible


def run_model(
    search: Search,
    model: SlotModel,
    bounding: bool,
    seconds: float = math.inf,
    gap: float | None = None,
) -> bool:
    """Solves `model` from the best schedule. With `bounding` its bound counts, up to the energy
    that the model was cut down for. True when there provably is no schedule at all."""
    ceiling = search.energy_nj
    start = model.point(search.events) if search.steps is not None else None

    def on_point(x: np.ndarray) -> None:
        search.offer(model.sequence(x), "MILP")

    def on_bound(bound: float) -> None:
        if bounding:
            search.raise_bound(min(model.value(bound), ceiling))

    outcome = solve_mip(
        model.lp,
        min(search.remaining, seconds),
        search.stop,
        relative_gap=search.gap if gap is None else gap,
        start=start,
        on_point=on_point,
        on_bound=on_bound,
    )
    if outcome.x is not None:
        on_point(outcome.x)
    on_bound(outcome.bound)
    search.note(f"HiGHS: {outcome.status}, bound {model.value(outcome.bound):.6g}")
    if not (bounding and outcome.infeasible):
        return False
    if search.steps is None:
        return True
    search.raise_bound(ceiling)
    return False
