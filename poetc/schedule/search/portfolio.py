"""Our strategy: a greedy schedule at once, then MILPs over more and more slots.

Small problems go straight to the MILP over all slots. For large ones MILPs over the recomputes that
lie close to what they are for (few edges above the operation of the stage) give schedules, and
MILPs over all recomputes in a window of stages improve them. The LP relaxation over all slots,
tightened by cuts and by bounds of blocks of stages, gives the bound, and branch and bound on it
adds to that. Beside it, on the other core, goes branch and bound on the RAM that some stages need.
Each better schedule makes everything that follows smaller, because what costs more than the
schedule's whole overhead cannot be in a better one.
"""

from __future__ import annotations

import itertools
import math
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from poetc.schedule.exact import checkpoints, pages
from poetc.schedule.exact.blocks import THREADS, block_rows
from poetc.schedule.exact.cuts import Cut, Tight
from poetc.schedule.exact.highs import Either, Outcome, Row, solve_mip
from poetc.schedule.exact.milp import NONE, Slot, SlotModel, slots_where
from poetc.schedule.heuristics.greedy import greedy, priorities
from poetc.schedule.heuristics.repair import repair
from poetc.schedule.model import keep_all
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.rebuild import Run, prune, stages
from poetc.schedule.search.state import TOLERANCE, Search

# Seconds for the greedy schedules; share of the time that is left for repairing.
GREEDY_S = 2.0
REPAIR_SHARE = 0.25
RESTRICTED_SHARE = 0.1
# Optional slots up to which the MILP over all of them is solved at once.
SMALL = 1_500
# So few are solved to a gap that nobody asks for: that takes no time either.
TINY, TINY_GAP = 300, 1e-6
# Optional slots beyond which the relaxation takes so long that a weaker one comes first.
LARGE = 60_000
# Recomputes at most so many edges above the operation of their stage, step by step.
DEPTHS = (2, 4)
# Windows have these numbers of stages in turn; so many in a row without success are enough.
WINDOWS = (12, 24)
WINDOW_DEPTH = 8
PATIENCE = 12
# Shares of the remaining time for the LP relaxation and for each step; seconds for a window.
BOUND_SHARE = 0.5
STEP_SHARE = 0.1
CUT_SHARE = 0.3
# Rounds of cuts without success before the blocks, where there is nothing quicker left.
PATIENCE_CUTS = 6
# Columns up to which branch and bound over all slots is tried where it is not the only way.
BRANCH = 60_000
# Share of the remaining time for the first try of branch and bound.
BRANCH_SHARE = 0.12
# Recomputes that the relaxation may leave for the MILP over all slots that are left, and the share
# of the remaining time for that.
LEFT = 2_500
WHOLE_SHARE = 0.75
# Stages of a block whose bound is added to the relaxation, the share of the remaining time for a
# pass over them, and the share of what is missing that one has to gain to be followed by another.
BLOCK = 16
BLOCK_SHARE = 0.8
BLOCK_PROGRESS = 0.1
WINDOW_S = 8.0
# Seconds to wait for the other thread when it is told to stop.
JOIN_S = 1.5
# Numbers of checkpoints of the models that bound large problems, the shares of the remaining time
# for the LP relaxation and for branch and bound of each, and the recomputes that are possible in
# problems for which the latter pays.
CHECKPOINTS = (10, 20)
RELAX_SHARE, CHECKPOINT_SHARE = 0.5, 0.25
MANY = 20_000
# Those where this goes on beside the bounds of blocks, on the other core, and the share of the
# remaining time for both.
LADDER = (20, 30, 40)
RACE_SHARE = 0.75
# Recomputes that are possible in problems for which no MILP over slots is built.
HUGE = 100_000
# Seconds to build a model, per slot: what there is no time to build is not begun.
BUILD_S = 2e-4
# Shares of the time of transfers that are added to that of computing, one model after another,
# where the makespan with DMA is not known. With all of it the model is safe.
SERIAL = (1.0, 0.5, 0.25)

Allowed = Callable[[int, int], bool]


@dataclass
class Guide:
    """What the LP relaxation says about recomputes: a schedule with that of a slot uses at least
    the energy of `floor`. `cuts` have been of use in smaller models."""

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


def portfolio(search: Search) -> bool:
    """Looks until the gap or the time limit is reached; True when there provably is no schedule."""
    first_schedules(search)
    return improve(search)


def improve(search: Search, briefly: bool = False) -> bool:
    """Goes on from the first schedules, or from where it was before, as `portfolio` does; `briefly`
    only with the steps of large problems that are enough for most of them."""
    if search.relative_gap <= TOLERANCE or search.remaining <= 0 or search.stop.is_set():
        return False
    optional = sum(slot.optional for slot in slots_where(search.instance, _affordable(search)))
    if optional <= TINY:
        return exact(search, gap=min(search.gap, TINY_GAP))
    if search.finished:
        return False
    if optional > SMALL:
        if search.large is None:
            search.large = Large(search, optional)
        search.large.begin()
        if briefly and search.steps is not None:
            return False
        bounding = search.large.bounding
        if bounding is not None and bounding.infeasible:
            return search.steps is None
        return not search.large.go_on() and exact(search, search.large.guide)
    return exact(search, Guide())


class Large:
    """The search in a problem too large for the MILP over all slots. It goes on from what is known
    when there is time again."""

    def __init__(self, search: Search, optional: int) -> None:
        self.search, self.optional = search, optional
        self.guide = Guide()
        self.bounding: Bounding | None = None
        self.begun = False
        # Each series of windows is another one.
        self.series = 0

    def begin(self) -> None:
        """The steps that are enough for most problems."""
        search = self.search
        if self.begun:
            return
        self.begun = True
        if not any(search.instance.pageable) or self.optional > LARGE:
            relaxation(search)
        if search.instance.recomputes > HUGE:
            # To build even one of the models that follow takes too long.
            return
        for depth in DEPTHS:
            if not search.finished:
                near(search, self.guide, depth)
        if search.finished or self.optional * BUILD_S >= search.remaining / 2:
            return
        self.bounding = Bounding(search, self.guide)
        if search.steps is None:
            self.bounding.cut(BOUND_SHARE)
        else:
            self._race()

    def go_on(self) -> bool:
        """The rest; True when there is no time for the MILP over all slots."""
        search, bounding = self.search, self.bounding
        if search.instance.recomputes > HUGE or search.finished:
            return True
        if bounding is not None and bounding.infeasible:
            return True
        if bounding is not None and search.steps is not None:
            seed, guide = self.series, self.guide.copy()
            self._together(
                lambda: bounding.branch(1.0), lambda other: windows(other, guide, 1.0, seed=seed)
            )
            self.series += 1
        windows(search, self.guide, 1.0, seed=self.series)
        self.series += 1
        if search.finished:
            return True
        if _no_time_for(search, slots_where(search.instance, _affordable(search))):
            windows(search, self.guide, 1.0, math.inf, seed=self.series)
            return True
        return False

    def _race(self) -> None:
        """Proves bounds by the relaxation over all slots, and by checkpoints beside it."""
        search, bounding = self.search, self.bounding
        assert bounding is not None
        until = search.seconds + search.remaining * RACE_SHARE
        bounding.threads = 1

        def side(other: Search) -> None:
            other.time_limit_s = until
            checkpointed(other, LADDER, 1.0)
            # What blocks say does not depend on how many are solved at a time.
            bounding.threads = THREADS

        self._together(lambda: bounding.tighten(until), side, race=True)

    def _together(
        self, prove: Callable[[], object], side: Callable[[Search], object], race: bool = False
    ) -> None:
        """Proves bounds in this thread while `side` goes on in another one, from what is known now.

        What both find does not depend on how fast each is: the side's schedule is taken when both
        have ended, and not at all where the bound is enough for the present one. In a `race` both
        prove bounds for the same schedule, and who gets to the gap first stops the other; the bound
        is then that of the gap, whoever it was.
        """
        search, bounding = self.search, self.bounding
        assert bounding is not None
        if search.finished:
            return
        if race:
            search.most_nj = goal(search)
        other = search.fork()
        failures: list[BaseException] = []

        def run() -> None:
            try:
                side(other)
            except BaseException as error:
                failures.append(error)
            if failures or (race and other.optimal):
                bounding.halt.set()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        interrupted = True
        try:
            prove()
            if not search.finished:
                thread.join()
            interrupted = False
        finally:
            other.stop.set()
            # A thread that does not stop is left behind: it works for `other` only.
            thread.join(JOIN_S)
            if interrupted or race or not search.optimal:
                search.join(other)
            search.most_nj = math.inf
        if failures:
            raise failures[0]


def first_schedules(search: Search) -> None:
    """Offers the schedule that keeps everything, greedy and repaired ones."""
    instance = search.instance
    search.offer(keep_all.sequence(instance), "keep-all")
    limit = instance.problem.ram_bytes
    ram = math.inf if limit is None else limit
    repaired(search)
    for restricted in restrictions(instance):
        if not search.finished:
            repaired(search, restricted, share=RESTRICTED_SHARE)
    until = search.seconds + min(GREEDY_S, search.remaining / 4)

    def late() -> bool:
        return search.finished or search.seconds > until

    for priority in priorities(instance):
        if late():
            break
        events = greedy(instance, ram, priority, late)
        if events is not None:
            search.offer(events, f"greedy {priority}")


def restrictions(instance: Instance) -> list[Instance]:
    """The problem without paging and without recomputes, where it has both: fewer ways to go, among
    which a good one is found sooner."""
    both = instance.paging and any(instance.pageable) and instance.remat and instance.recomputes > 0
    if not both:
        return []
    return [replace(instance, paging=False), replace(instance, remat=False)]


def repaired(
    search: Search,
    instance: Instance | None = None,
    gradually: bool = False,
    share: float = REPAIR_SHARE,
    seed: int = 0,
) -> None:
    """Offers sequences that keep everything but for what exceeds the RAM, repaired at once or
    `gradually`; those of `instance`, which may be a restriction of that of the search."""
    instance = instance or search.instance
    limit = instance.problem.ram_bytes
    if limit is None:
        return
    weights = [0.0]
    if instance.problem.deadline_ns is not None:
        weights += [w * instance.base_energy / max(instance.base_time_ns, 1) for w in (1.0, 10.0)]
    for weight in weights:
        until = search.seconds + search.remaining * share / len(weights)
        repair(
            instance,
            limit,
            lambda events: search.offer(events, "repaired"),
            # A first schedule may take all of the time.
            lambda until=until: (
                search.finished or (search.steps is not None and search.seconds > until)
            ),
            time_weight=weight,
            gradually=gradually,
            seed=seed,
        )


def relaxation(search: Search) -> None:
    """Bounds a large problem by what RAM a few stages need."""
    for count in CHECKPOINTS:
        share = CHECKPOINT_SHARE if search.instance.recomputes > MANY else 0.0
        checkpointed(search, (count,), share)


def checkpointed(search: Search, counts: Sequence[int], share: float) -> None:
    """Bounds by what RAM a few stages need, for these numbers of stages in turn: the relaxation,
    and branch and bound for a share of the remaining time."""
    instance = search.instance
    limit = instance.problem.ram_bytes
    if limit is None:
        return
    for count in counts:
        if search.finished:
            return
        stages = checkpoints.choose(instance, limit, count)
        model = checkpoints.Checkpoints(instance, stages, overhead(search))
        ceiling = search.energy_nj
        enough = threading.Event()

        def on_bound(bound: float, ceiling=ceiling, enough=enough) -> None:
            search.raise_bound(min(bound, ceiling))
            if search.optimal or search.stop.is_set():
                enough.set()

        outcome = checkpoints.relax(model, search.remaining * RELAX_SHARE, search.stop)
        on_bound(ceiling if outcome.infeasible else model.value(outcome.bound))
        if not search.finished and share > 0:
            stop = Either(search.stop, enough)
            seconds = search.remaining * share
            checkpoints.bound(model, seconds, stop, search.gap / 10, on_bound)
        search.note(f"{len(stages)} checkpoints, bound {search.bound_nj:.6g}")


def overhead(search: Search) -> float:
    """What the best schedule spends beyond the least energy; a better one has no recompute or
    page-in that costs more."""
    return search.energy_nj - search.instance.base_energy


def _affordable(search: Search) -> Allowed:
    most, energy = overhead(search), search.instance.run_energy
    return lambda stage, operation: energy[operation] <= most


def goal(search: Search, gap: float | None = None) -> float:
    """The bound, in nJ, that ends the search: nothing that uses as much or more is of interest."""
    return search.energy_nj * (1 - (search.gap if gap is None else gap) + 1e-9)


class Bounding:
    """The LP relaxation over all slots, with everything that makes it tighter."""

    def __init__(self, search: Search, guide: Guide) -> None:
        self.search, self.guide = search, guide
        slots = slots_where(search.instance, _affordable(search))
        self.model = SlotModel(search.instance, slots, overhead=overhead(search), relaxation=True)
        lp = self.model.lp
        search.note(f"relaxation of {lp.columns} columns, {lp.rows} rows")
        # The bound holds up to here: the model leaves out what dearer schedules may do.
        self.ceiling = search.energy_nj
        self.fixed = False
        self.usable = True
        # Blocks that are solved at a time.
        self.threads = THREADS
        # Another thread may set it.
        self.halt = Either(search.stop)
        self.tight = Tight(self.model, self.halt, self._on_outcome)
        cuts = self.tight.cuts
        rows = cuts.rows(sorted(guide.cuts.union(cuts.lasting()), key=Cut.key))
        if rows:
            self.tight.add(rows)

    def _on_outcome(self, outcome: Outcome) -> None:
        search = self.search
        if outcome.infeasible:
            search.raise_bound(self.ceiling)
            return
        search.raise_bound(min(self.model.value(outcome.objective), self.ceiling))
        if not self.fixed:
            self.guide.learn(self.model, outcome, self.ceiling)

    @property
    def infeasible(self) -> bool:
        return self.tight.outcome is not None and self.tight.outcome.infeasible

    def cut(self, share: float, patience: int = 1) -> None:
        """Adds cuts, for at most a share of the remaining time (`Tight.rounds`)."""
        search = self.search
        seconds = search.remaining * share
        self.usable = self.tight.rounds(seconds, goal(search) / self.model.scale, patience)
        search.note(f"cuts: {len(self.tight.rows)}, bound {search.bound_nj:.6g}")

    def tighten(self, until: float) -> None:
        """Adds cuts, first tries of branch and bound, and the bounds of blocks."""
        search = self.search
        self.cut(BOUND_SHARE)
        self.branch(BRANCH_SHARE)
        self.whole((until - search.seconds) * WHOLE_SHARE)
        go_on = self.usable and not self.infeasible and not search.finished
        if go_on and self.model.lp.columns <= BRANCH:
            before = search.bound_nj
            self.cut(CUT_SHARE, PATIENCE_CUTS)
            if search.bound_nj > before:
                self.branch(BRANCH_SHARE)
        self.blocks(until)

    def fix(self) -> None:
        """Fixes the columns that no schedule of interest has."""
        search = self.search
        if not self.usable or search.steps is None:
            return
        target = goal(search)
        if self.tight.fix(target / self.model.scale):
            self.ceiling = min(self.ceiling, target)
            self.fixed = True

    def blocks(self, until: float) -> None:
        """Adds the bounds of blocks of stages, shifted from pass to pass, for as long as they help
        and at most until then."""
        search, n = self.search, self.search.instance.n
        stage = np.array([slot.stage for slot in self.model.slots])
        for shift in itertools.cycle((0, BLOCK // 2)):
            left = until - search.seconds
            if search.finished or not self.usable or self.infeasible or left <= 0:
                return
            if self.halt.is_set():
                return
            self.fix()
            firsts = [max(0, t) for t in range(-shift, n + 1, BLOCK)]
            edges = np.searchsorted(stage, [*firsts, n + 1])
            bounds = [(a, b - 1) for a, b in itertools.pairwise(edges.tolist()) if a < b]
            before = search.bound_nj
            rows = block_rows(self.tight, bounds[::-1], left * BLOCK_SHARE, self.halt, self.threads)
            if not rows:
                return
            self.tight.add(rows)
            self.cut(0.5)
            search.note(f"{len(rows)} of {len(bounds)} blocks, bound {search.bound_nj:.6g}")
            if search.bound_nj - before < BLOCK_PROGRESS * (goal(search) - before):
                return

    def branch(self, share: float) -> None:
        """The MILP of the relaxation, for at most a share of the remaining time. It says nothing of
        memory in recomputes: what it finds is no schedule."""
        search, tight = self.search, self.tight
        if search.finished or not self.usable or self.infeasible or self.halt.is_set():
            return
        self.fix()
        if np.count_nonzero(tight.lower < tight.upper) > BRANCH:
            return

        def on_bound(bound: float) -> None:
            search.raise_bound(min(self.model.value(bound), self.ceiling))
            if search.optimal:
                enough.set()

        enough = Either(self.halt)
        outcome = solve_mip(
            tight.settled(),
            search.remaining * share,
            enough,
            relative_gap=search.gap / 10,
            cutoff=self.ceiling / self.model.scale,
            on_bound=on_bound,
        )
        on_bound(math.inf if outcome.infeasible else outcome.bound)
        search.note(f"HiGHS: {outcome.status}, bound {search.bound_nj:.6g}")

    def whole(self, seconds: float) -> None:
        """The MILP with memory in recomputes as well, where the relaxation leaves few of them. Its
        points are schedules."""
        search, relaxation, tight = self.search, self.model, self.tight
        until = search.seconds + seconds
        if search.finished or not self.usable or self.infeasible or self.halt.is_set():
            return
        self.fix()
        if search.steps is None or np.count_nonzero(self._recomputes()) > LEFT:
            return
        self.ceiling, self.fixed = min(self.ceiling, goal(search)), True
        target = self.ceiling / relaxation.scale
        row = pages.budget(tight, target, (until - search.seconds) / 4, self.halt)
        if row is not None:
            tight.add([row])
            prices = zip(row.index, row.value, strict=True)
            tight.drop([write for write, price in prices if price > row.upper])
            self.cut(BOUND_SHARE)
            if search.finished or not self.usable or self.infeasible:
                return
            self.fix()
        model = self._left(row)
        search.note(f"whole: {model.lp.columns} columns, {model.lp.rows} rows")

        def on_bound(bound: float) -> None:
            search.raise_bound(min(model.value(bound), self.ceiling))
            if search.optimal:
                enough.set()

        def on_outcome(outcome: Outcome) -> None:
            on_bound(math.inf if outcome.infeasible else outcome.objective)

        enough = Either(self.halt)
        bounded = Tight(model, enough, on_outcome)
        cuts = self.guide.cuts.union(tight.found, tight.cuts.lasting())
        rows = bounded.cuts.rows(sorted(cuts, key=Cut.key))
        if rows:
            bounded.add(rows)
        if not bounded.rounds((until - search.seconds) / 2, target) or enough.is_set():
            return
        bounded.fix(target)
        outcome = solve_mip(
            bounded.settled(),
            until - search.seconds,
            enough,
            relative_gap=search.gap / 10,
            cutoff=target,
            on_point=lambda x: search.offer(model.sequence(x), "MILP"),
            on_bound=on_bound,
        )
        on_bound(math.inf if outcome.infeasible else outcome.bound)
        search.note(f"HiGHS: {outcome.status}, bound {search.bound_nj:.6g}")

    def _recomputes(self) -> np.ndarray:
        """For each slot of the relaxation, is it a recompute that is not fixed?"""
        run = np.array(self.model.run)
        return (run != NONE) & (self.tight.upper[run] > 0)

    def _left(self, row: Row | None) -> SlotModel:
        """The model of what the relaxation leaves, with the page budget of `row`."""
        relaxation, upper = self.model, self.tight.upper
        left = zip(relaxation.slots[:-1], self._recomputes()[:-1], strict=True)
        slots = [slot for slot, free in left if free or not slot.optional]
        model = SlotModel(self.search.instance, slots, overhead=relaxation.overhead)
        # Stages in which a tensor is not paged in.
        none = {
            (v, relaxation.slots[use.slot].stage)
            for v, uses in enumerate(relaxation.events)
            for use in uses
            if use.load != NONE and upper[use.load] <= 0
        }
        for v, uses in enumerate(model.events):
            for use in uses:
                if use.load != NONE and (v, model.slots[use.slot].stage) in none:
                    model.lp.fix(use.load, 0.0)
        for v, write in model.write.items():
            if upper[relaxation.write[v]] <= 0:
                model.lp.fix(write, 0.0)
        if row is not None:
            price = dict(zip(row.index, row.value, strict=True))
            prices = {w: price.get(relaxation.write[v], 0.0) for v, w in model.write.items()}
            model.lp.row(list(prices), list(prices.values()), upper=row.upper)
        return model


def _no_time_for(search: Search, slots: list[Slot]) -> bool:
    """Would building a model take most of the time that is left?"""
    return len(slots) * BUILD_S > search.remaining / 2


def near(search: Search, guide: Guide, depth: int) -> None:
    """Looks for a better schedule among the recomputes of ancestors at most `depth` edges above the
    operation of the stage, and those of the best schedule."""
    above = search.instance.depth
    neighbourhood(
        search,
        guide,
        f"depth {depth}",
        lambda stage, operation: above[stage].get(operation, math.inf) <= depth,
        search.remaining * STEP_SHARE,
        search.gap,
        gathering=True,
    )


def windows(
    search: Search, guide: Guide, share: float, patience: float = PATIENCE, seed: int = 0
) -> None:
    """Improves the best schedule in one window of stages after another, mostly where it recomputes
    or pages in something, for at most a share of the remaining time."""
    until = search.seconds + search.remaining * share
    n, above = search.instance.n, search.instance.depth
    rng = random.Random(seed)
    failures = 0
    for width in itertools.cycle(WINDOWS):
        if search.finished or search.steps is None or failures >= patience:
            return
        seconds = min(WINDOW_S, until - search.seconds)
        if seconds <= 0:
            return
        busy = sorted({slot.stage for slot in recomputes(search)}) or list(range(n))
        first = max(0, rng.choice(busy) - rng.randrange(width))
        energy = search.energy_nj

        def allowed(stage: int, operation: int, first=first, last=first + width) -> bool:
            return first <= stage < last and above[stage].get(operation, math.inf) <= WINDOW_DEPTH

        # A window changes little: there the gap of the whole would hide what there is to gain.
        name, gap = f"stages {first} to {first + width - 1}", search.gap / 10
        neighbourhood(search, guide, name, allowed, seconds, gap)
        failures = 0 if search.energy_nj < energy else failures + 1


def neighbourhood(
    search: Search,
    guide: Guide,
    name: str,
    allowed: Allowed,
    seconds: float,
    gap: float,
    gathering: bool = False,
) -> None:
    """Looks for a better schedule with the recomputes of the best one and those that `allowed` lets
    through. With `gathering` the cuts go to the guide."""
    used, affordable = recomputes(search), _affordable(search)
    energy = search.energy_nj

    def hopeless(slot: Slot) -> bool:
        return guide.hopeless(slot, energy)

    def wanted(stage: int, operation: int) -> bool:
        slot = Slot(stage, operation)
        if slot in used:
            return True
        return allowed(stage, operation) and affordable(stage, operation) and not hopeless(slot)

    slots = slots_where(search.instance, wanted)
    if _no_time_for(search, slots):
        return
    model = SlotModel(search.instance, slots, overhead=overhead(search))
    search.note(f"{name}: {len(slots)} slots, {model.lp.columns} columns")
    run_model(search, model, False, seconds, gap, guide if gathering else None)


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
    affordable, energy = _affordable(search), search.energy_nj
    slots = slots_where(
        instance,
        lambda t, k: affordable(t, k) and not (guide and guide.hopeless(Slot(t, k), energy)),
    )
    if _no_time_for(search, slots):
        return False
    problem = instance.problem
    time_matters = problem.deadline_ns is not None or problem.idle_power_nw > 0
    overlap = problem.dma and time_matters
    model = SlotModel(instance, slots, overhead=overhead(search), overlap=overlap)
    search.note(f"all: {len(slots)} slots, {model.lp.columns} columns, {model.lp.rows} rows")
    infeasible = run_model(search, model, bounding=True, gap=gap)
    if overlap and not infeasible:
        # With DMA the model's makespan is a lower bound: what it takes for fast may wait for
        # transfers.
        for serial in SERIAL:
            if search.finished:
                break
            model = SlotModel(instance, slots, overhead=overhead(search), serial=serial)
            search.note(f"all, with computing and {serial:.0%} of transfers for the makespan")
            run_model(search, model, False, search.remaining / 2, gap)
    return infeasible


def run_model(
    search: Search,
    model: SlotModel,
    bounding: bool,
    seconds: float = math.inf,
    gap: float | None = None,
    guide: Guide | None = None,
) -> bool:
    """Solves `model` from the best schedule. With `bounding` its bound counts, up to the energy
    that the model was cut down for. True when there provably is no schedule at all."""
    ceiling = search.energy_nj
    seconds = min(search.remaining, seconds)
    begin = search.seconds

    def on_outcome(outcome: Outcome) -> None:
        if bounding and not outcome.infeasible:
            search.raise_bound(min(model.value(outcome.objective), ceiling))

    tight = Tight(model, search.stop, on_outcome)
    target = goal(search, gap) / model.scale
    # With a guide the cuts are of use in larger models, even where this one is of no more interest.
    tight.rounds(seconds * CUT_SHARE, math.inf if guide is not None else target)
    if guide is not None:
        guide.cuts |= tight.found
    relaxed = tight.outcome
    if relaxed is not None and not relaxed.infeasible:
        if relaxed.objective >= target:
            search.note(f"relaxation: bound {model.value(relaxed.objective):.6g}, nothing better")
            return False
        tight.fix(search.energy_nj / model.scale)
        model.lp = tight.settled()
    seconds -= search.seconds - begin
    infeasible = solve_model(search, model, ceiling if bounding else -math.inf, seconds, gap)
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
    seconds: float = math.inf,
    gap: float | None = None,
) -> bool:
    """Solves `model` from the best schedule; its bound counts up to `ceiling` nJ. True when it is
    infeasible."""
    start = model.point(search.events) if search.steps is not None else None

    def on_point(x: np.ndarray) -> None:
        search.offer(model.sequence(x), "MILP")

    def on_bound(bound: float) -> None:
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
    on_bound(ceiling if outcome.infeasible and search.steps is not None else outcome.bound)
    search.note(f"HiGHS: {outcome.status}, bound {model.value(outcome.bound):.6g}")
    return outcome.infeasible
