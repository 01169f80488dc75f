"""MILPs over some of the slots, for better schedules, and over all of them."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from poetc.schedule.exact.cuts import Cut, Tight
from poetc.schedule.exact.highs import Outcome, solve_mip
from poetc.schedule.exact.milp import SlotModel
from poetc.schedule.exact.points import point, sequence
from poetc.schedule.exact.slots import NONE, Slot, slots_where
from poetc.schedule.model.clock import Effort
from poetc.schedule.model.rebuild import Run, prune, stages
from poetc.schedule.search.state import Search

Allowed = Callable[[int, int], bool]

# Work to build a model, for each slot, and to choose slots, for each that is possible.
BUILD, LOOK = 6e-5, 1e-6


@dataclass
class Guide:
    """Bounds of the LP relaxation on recomputes: a schedule with the recompute of a slot uses at
    least the energy of `floor`. `cuts` have been of use in smaller models."""

    floor: dict[Slot, float] = field(default_factory=dict)
    cuts: set[Cut] = field(default_factory=set)

    def copy(self) -> Guide:
        return Guide(dict(self.floor), set(self.cuts))

    def learn(self, model: SlotModel, outcome: Outcome, ceiling: float) -> None:
        """Takes the reduced costs of the recomputes from an optimum of the relaxation of `model`,
        which holds for schedules that use less than `ceiling` nJ."""
        if outcome.duals is None:
            return
        for slot, column in zip(model.slots, model.run, strict=True):
            if column == NONE:
                continue
            floor = model.value(outcome.objective + outcome.duals[column] - 1e-3)
            floor = min(floor, ceiling)
            if floor > self.floor.get(slot, 0.0):
                self.floor[slot] = floor

    def hopeless(self, slot: Slot, energy_nj: float) -> bool:
        """Has no schedule that uses less than `energy_nj` a recompute in this slot?"""
        return self.floor.get(slot, 0.0) >= energy_nj


def no_time_for(search: Search, slots: list[Slot]) -> bool:
    """Would building a model take most of the effort that is left?"""
    return len(slots) * BUILD > search.remaining / 2


def near(search: Search, guide: Guide, depth: int) -> None:
    """Looks for a better schedule among the recomputes of ancestors at most `depth` edges above the
    operation of the stage, and those of the best schedule."""
    above = search.instance.depth
    neighbourhood(
        search,
        guide,
        f"depth {depth}",
        lambda stage, operation: above[stage].get(operation, math.inf) <= depth,
        search.part(search.params.near_share),
        search.gap,
        gathering=True,
    )


def windows(
    search: Search, guide: Guide, share: float, patience: float | None = None, seed: int = 0
) -> None:
    """Improves the best schedule in one window of stages after another, mostly where it recomputes
    or pages in something, for at most a share of the remaining effort and until
    so many in a row have not, `patience` or those of the parameters."""
    params = search.params
    if not params.windows:
        return
    patience = params.window_patience if patience is None else patience
    effort = search.part(share)
    n, above = search.instance.n, search.instance.depth
    rng = random.Random(seed)
    failures = 0
    for width in itertools.cycle(params.window_stages):
        if search.finished or search.steps is None or failures >= patience:
            return
        if effort.over:
            return
        busy = sorted({slot.stage for slot in recomputes(search)}) or list(range(n))
        first = max(0, rng.choice(busy) - rng.randrange(width))
        energy = search.energy_nj

        def allowed(stage: int, operation: int, first=first, last=first + width) -> bool:
            near = above[stage].get(operation, math.inf) <= params.window_depth
            return first <= stage < last and near

        # A window changes little: there the gap of the whole would hide what there is to gain.
        name, gap = f"stages {first} to {first + width - 1}", search.gap / 10
        neighbourhood(search, guide, name, allowed, effort.part(1.0, params.window_work), gap)
        failures = 0 if search.energy_nj < energy else failures + 1


def neighbourhood(
    search: Search,
    guide: Guide,
    name: str,
    allowed: Allowed,
    effort: Effort,
    gap: float,
    gathering: bool = False,
) -> None:
    """Looks for a better schedule with the recomputes of the best one and those that `allowed` lets
    through. With `gathering` the cuts go to the guide."""
    used, affordable = recomputes(search), search.affordable()
    energy = search.energy_nj

    def hopeless(slot: Slot) -> bool:
        return guide.hopeless(slot, energy)

    def wanted(stage: int, operation: int) -> bool:
        slot = Slot(stage, operation)
        if slot in used:
            return True
        return allowed(stage, operation) and affordable(stage, operation) and not hopeless(slot)

    slots = slots_where(search.instance, wanted)
    effort.spend(LOOK * search.instance.recomputes)
    if no_time_for(search, slots):
        return
    model = SlotModel(search.instance, slots, overhead=search.overhead_nj)
    search.note(f"{name}: {len(slots)} slots, {model.lp.columns} columns")
    learner = guide if gathering and search.params.guide else None
    run_model(search, model, False, effort, gap, learner)


def recomputes(search: Search) -> set[Slot]:
    """The slots of the recomputes of the best schedule."""
    if search.steps is None:
        return set()
    instance = search.instance
    kept, _ = prune(instance, search.events)
    return {
        Slot(stage, event.operation)
        for event, stage in zip(kept, stages(instance.n, kept), strict=True)
        if isinstance(event, Run) and event.operation != stage
    }


def exact(search: Search, guide: Guide | None = None, gap: float | None = None) -> bool:
    """The MILP over all slots. True when there provably is no schedule."""
    instance = search.instance
    affordable, energy = search.affordable(), search.energy_nj
    slots = slots_where(
        instance,
        lambda t, k: affordable(t, k) and not (guide and guide.hopeless(Slot(t, k), energy)),
    )
    if no_time_for(search, slots):
        return False
    problem = instance.problem
    time_matters = problem.deadline_ns is not None or problem.idle_power_nw > 0
    overlap = problem.dma and time_matters
    model = SlotModel(instance, slots, overhead=search.overhead_nj, overlap=overlap)
    search.note(f"all: {len(slots)} slots, {model.lp.columns} columns, {model.lp.rows} rows")
    infeasible = run_model(search, model, True, search.part(), gap)
    if overlap and search.params.serial and not infeasible:
        # With DMA the model's makespan is a lower bound: what it takes for fast may wait for
        # transfers.
        for serial in search.params.serial_shares:
            if search.finished:
                break
            model = SlotModel(instance, slots, overhead=search.overhead_nj, serial=serial)
            search.note(f"all, with computing and {serial:.0%} of transfers for the makespan")
            run_model(search, model, False, search.part(0.5), gap)
    return infeasible


def run_model(
    search: Search,
    model: SlotModel,
    bounding: bool,
    effort: Effort,
    gap: float | None = None,
    guide: Guide | None = None,
) -> bool:
    """Solves `model` from the best schedule. With `bounding` its bound counts, up to the energy
    that the model was cut down for. True when there provably is no schedule at all."""
    ceiling = search.energy_nj
    effort.spend(BUILD * len(model.slots))

    def on_outcome(outcome: Outcome) -> None:
        if bounding and not outcome.infeasible:
            search.raise_bound(min(model.value(outcome.objective), ceiling))

    tight = Tight(model, on_outcome)
    target = search.goal(gap) / model.scale
    # With a guide the cuts are of use in larger models, even where this one is of no more interest.
    cutting = effort.part(search.params.milp_cut_share)
    tight.rounds(cutting, math.inf if guide is not None else target)
    if guide is not None:
        guide.cuts |= tight.found
    relaxed = tight.outcome
    if relaxed is not None and not relaxed.infeasible:
        if relaxed.objective >= target:
            search.note(f"relaxation: bound {model.value(relaxed.objective):.6g}, nothing better")
            return False
        tight.fix(search.energy_nj / model.scale)
        model.lp = tight.settled()
    infeasible = solve_model(search, model, ceiling if bounding else -math.inf, effort, gap)
    if not (bounding and infeasible):
        return False
    if search.steps is None:
        return True
    search.raise_bound(ceiling)
    return False


def solve_model(
    search: Search,
    model: SlotModel,
    ceiling: float,
    effort: Effort,
    gap: float | None = None,
) -> bool:
    """Solves `model` from the best schedule; its bound counts up to `ceiling` nJ. True when it is
    infeasible."""
    warm = search.params.warm_start and search.steps is not None
    start = point(model, search.events) if warm else None

    def on_point(x: np.ndarray) -> None:
        search.offer(sequence(model, x), "MILP")

    def on_bound(bound: float) -> None:
        search.raise_bound(min(model.value(bound), ceiling))

    outcome = solve_mip(
        model.lp,
        effort,
        relative_gap=search.gap if gap is None else gap,
        start=start,
        on_point=on_point,
        on_bound=on_bound,
    )
    if outcome.x is not None:
        on_point(outcome.x)
    on_bound(ceiling if outcome.infeasible and search.steps is not None else outcome.bound)
    search.note(f"HiGHS: {outcome.status}, bound {model.value(outcome.bound):.6g}")
    return outcome.infeasible
