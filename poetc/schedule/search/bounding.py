"""Bounds of large problems: the relaxation over all slots, and what RAM a few stages need."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Sequence

import numpy as np

from poetc.schedule.exact import checkpoints, pages
from poetc.schedule.exact.blocks import block_rows
from poetc.schedule.exact.cuts import Cut, Tight
from poetc.schedule.exact.highs import Outcome, Row, solve_mip
from poetc.schedule.exact.milp import SlotModel
from poetc.schedule.exact.points import sequence
from poetc.schedule.exact.slots import NONE, slots_where
from poetc.schedule.model.clock import Effort
from poetc.schedule.search.milps import BUILD, Guide
from poetc.schedule.search.state import Search


def relaxation(search: Search) -> None:
    """Bounds a large problem by what RAM a few stages need."""
    params = search.params
    for count in params.checkpoint_counts:
        share = params.checkpoint_share if search.instance.recomputes > params.many else 0.0
        checkpointed(search, (count,), share)


def checkpointed(search: Search, counts: Sequence[int], share: float) -> None:
    """Bounds by what RAM a few stages need, for these numbers of stages in turn: the relaxation,
    and branch and bound for a share of the remaining effort."""
    instance = search.instance
    limit = instance.problem.ram_bytes
    if limit is None or not search.params.checkpoints:
        return
    for count in counts:
        if search.finished:
            return
        stages = checkpoints.choose(instance, limit, count)
        model = checkpoints.Checkpoints(instance, stages, search.overhead_nj)
        search.clock.work += checkpoints.BUILD * len(model.lp.index)
        ceiling = search.energy_nj

        def on_bound(bound: float, ceiling=ceiling) -> None:
            search.raise_bound(min(bound, ceiling))

        outcome = checkpoints.relax(model, search.part(search.params.checkpoint_relax_share))
        on_bound(ceiling if outcome.infeasible else model.value(outcome.bound))
        if not search.finished and share > 0:
            enough_nj = min(search.goal(), ceiling)
            checkpoints.bound(model, search.part(share), search.gap / 10, enough_nj, on_bound)
        search.note(f"{len(stages)} checkpoints, bound {search.bound_nj:.6g}")


class Bounding:
    """The LP relaxation over all slots, with everything that makes it tighter."""

    def __init__(self, search: Search, guide: Guide) -> None:
        self.search, self.guide = search, guide
        slots = slots_where(search.instance, search.affordable())
        self.model = SlotModel(search.instance, slots, overhead=search.overhead_nj, relaxation=True)
        lp = self.model.lp
        search.clock.work += BUILD * len(slots)
        search.note(f"relaxation of {lp.columns} columns, {lp.rows} rows")
        # The bound holds up to here: the model leaves out what dearer schedules may do.
        self.ceiling = search.energy_nj
        self.fixed = False
        self.usable = True
        # Blocks that are solved at a time.
        self.threads = search.params.threads
        # Another thread may set it.
        self.halt = threading.Event()
        self.tight = Tight(self.model, self._on_outcome)
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
        if search.params.guide and not self.fixed:
            self.guide.learn(self.model, outcome, self.ceiling)

    @property
    def infeasible(self) -> bool:
        return self.tight.outcome is not None and self.tight.outcome.infeasible

    def _part(self, share: float) -> Effort:
        """A share of the remaining effort."""
        return self.search.part(share).unless(self.halt.is_set)

    @property
    def _ended(self) -> bool:
        """Nothing more to do, or nothing more that can be done."""
        return self.search.finished or not self.usable or self.infeasible or self.halt.is_set()

    def cut(self, share: float, patience: int = 1) -> None:
        """Adds cuts, for at most a share of the remaining effort (`Tight.rounds`)."""
        search = self.search
        self.usable = self.tight.rounds(
            self._part(share), search.goal() / self.model.scale, patience
        )
        search.note(f"cuts: {len(self.tight.rows)}, bound {search.bound_nj:.6g}")

    def tighten(self, effort: Effort) -> None:
        """Adds cuts, first tries of branch and bound, and the bounds of blocks."""
        search = self.search
        self.cut(search.params.relaxation_share)
        self.branch(search.params.branch_share)
        self.rest(effort.part(search.params.rest_share))
        if not self._ended and self.model.lp.columns <= search.params.branch_most:
            before = search.bound_nj
            self.cut(search.params.cut_share, search.params.cut_patience)
            if search.bound_nj > before:
                self.branch(search.params.branch_share)
        self.blocks(effort)

    def fix(self) -> None:
        """Fixes the columns that no schedule of interest has."""
        search = self.search
        if not self.usable or search.steps is None:
            return
        target = search.goal()
        if self.tight.fix(target / self.model.scale):
            self.ceiling = min(self.ceiling, target)
            self.fixed = True

    def blocks(self, effort: Effort) -> None:
        """Adds the bounds of blocks of stages, shifted from pass to pass, for as long as they help
        and the effort lasts."""
        search, n = self.search, self.search.instance.n
        stage = np.array([slot.stage for slot in self.model.slots])
        for shift in itertools.cycle((0, search.params.block_stages // 2)):
            if not search.params.blocks or self._ended or effort.over:
                return
            self.fix()
            firsts = [max(0, t) for t in range(-shift, n + 1, search.params.block_stages)]
            edges = np.searchsorted(stage, [*firsts, n + 1])
            bounds = [(a, b - 1) for a, b in itertools.pairwise(edges.tolist()) if a < b]
            before = search.bound_nj
            passing = effort.part(search.params.block_share)
            rows = block_rows(self.tight, bounds[::-1], passing, self.threads)
            if not rows:
                return
            self.tight.add(rows)
            self.cut(0.5)
            search.note(f"{len(rows)} of {len(bounds)} blocks, bound {search.bound_nj:.6g}")
            if search.bound_nj - before < search.params.block_progress * (search.goal() - before):
                return

    def branch(self, share: float) -> None:
        """The MILP of the relaxation, for at most a share of the remaining effort. It says nothing
        of memory in recomputes: what it finds is no schedule."""
        search, tight = self.search, self.tight
        if not search.params.branch or self._ended:
            return
        self.fix()
        if np.count_nonzero(tight.lower < tight.upper) > search.params.branch_most:
            return

        def on_bound(bound: float) -> None:
            search.raise_bound(min(self.model.value(bound), self.ceiling))

        outcome = solve_mip(
            tight.settled(),
            self._part(share),
            relative_gap=search.gap / 10,
            cutoff=self.ceiling / self.model.scale,
            enough=search.goal() / self.model.scale,
            on_bound=on_bound,
        )
        on_bound(math.inf if outcome.infeasible else outcome.bound)
        search.note(f"HiGHS: {outcome.status}, bound {search.bound_nj:.6g}")

    def rest(self, effort: Effort) -> None:
        """The MILP with memory in recomputes as well, where the relaxation leaves few of them. Its
        points are schedules."""
        search, relaxation, tight = self.search, self.model, self.tight
        if not search.params.rest or self._ended:
            return
        self.fix()
        if search.steps is None or np.count_nonzero(self._recomputes()) > search.params.rest_most:
            return
        self.ceiling, self.fixed = min(self.ceiling, search.goal()), True
        target = self.ceiling / relaxation.scale
        row = None
        if search.params.page_budget:
            row = pages.budget(tight, target, effort.part(0.25))
        if row is not None:
            tight.add([row])
            prices = zip(row.index, row.value, strict=True)
            tight.drop([write for write, price in prices if price > row.upper])
            self.cut(search.params.relaxation_share)
            if self._ended:
                return
            self.fix()
        model = self._left(row)
        search.note(f"rest: {model.lp.columns} columns, {model.lp.rows} rows")

        def on_bound(bound: float) -> None:
            search.raise_bound(min(model.value(bound), self.ceiling))

        def on_outcome(outcome: Outcome) -> None:
            on_bound(math.inf if outcome.infeasible else outcome.objective)

        effort.spend(BUILD * len(model.slots))
        bounded = Tight(model, on_outcome)
        cuts = self.guide.cuts.union(tight.found, tight.cuts.lasting())
        rows = bounded.cuts.rows(sorted(cuts, key=Cut.key))
        if rows:
            bounded.add(rows)
        if not bounded.rounds(effort.part(0.5), target) or search.optimal:
            return
        bounded.fix(target)
        outcome = solve_mip(
            bounded.settled(),
            effort,
            relative_gap=search.gap / 10,
            cutoff=target,
            enough=search.goal() / model.scale,
            on_point=lambda x: search.offer(sequence(model, x), "MILP"),
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
