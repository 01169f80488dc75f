"""A schedule with a memory plan: until the arena fits, transfers overlap less, buffers move, or the
step is scheduled for less RAM."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from poetc.diagnosis import Reason
from poetc.errors import TimeLimitError, UnscheduledError
from poetc.planning.problem import (
    NO_LIMIT,
    block_bytes_of,
    instance_of,
    problem_view,
    unit_bytes,
)
from poetc.planning.report import ScheduleReport, with_bound
from poetc.planning.solver import Solver, diagnosis
from poetc.schedule.arena.memory import MemoryPlan, plan_memory
from poetc.schedule.arena.relocate import ROUNDS, relocate
from poetc.schedule.model.checker import replay
from poetc.schedule.model.errors import ScheduleError, SolverInterrupted
from poetc.schedule.model.problem import Problem, Step
from poetc.schedule.model.transfers import overlap_transfers, without_overlap

MAX_ATTEMPTS = 8
"""How often a graph is scheduled, with ever less RAM, until its arena fits."""

PACK_EFFORT = 1_000_000
"""Effort of `arena.pack` for each order of the transfers: to be within the RAM, and once more to
have no waste."""

WASTE_PRICE = 0.002
"""The share of the energy that it may cost to have an arena of no more than the live bytes."""

TIDY_ROUNDS = 300
"""Rounds of `relocate` for an arena that fits, but has more bytes than are alive at once."""

ARENA_SHARE = 0.2
"""Share of the time limit that the solver leaves to the search for an arena."""


class Fit:
    """Looks for a schedule whose arena fits, with a `solver` of the problem."""

    def __init__(self, solver: Solver) -> None:
        self.solver, self.options = solver, solver.options

    def run(self) -> ScheduleReport:
        """A schedule with a memory plan whose arena is within the RAM.

        Where no arena fits, buffers move on the way (`arena/relocate.py`). If that is not possible,
        or costs more than the gap that is asked for, less RAM is tried as well. On Ctrl-C the first
        schedule gets an arena in little time. Raises UnscheduledError like `Solver.solve`, and
        where no arena fits; SolverInterrupted on Ctrl-C without a schedule that fits.
        """
        first = self.solver.solve(self.options.arena_bytes, ARENA_SHARE)
        try:
            return self._fitted(first)
        except KeyboardInterrupt:
            if first.interrupted:
                raise
            self.solver.hurry()
            return self._fitted(replace(first, interrupted=True))

    def _fitted(self, first: ScheduleReport) -> ScheduleReport:
        """The result of `run`, from the schedule for all of the RAM."""
        ram, align = self.options.arena_bytes, self.options.align
        report, excess = self.plan(first)
        best = report if not excess else self.moved(first, ram)
        solve_s = first.solve_s
        # Between an infeasible budget and one whose arena is too big, others may still do.
        low, high = 0, first.use.peak_bytes
        attempts = 1
        least_excess = excess
        budget = high - excess
        while (
            excess > 0
            and not first.interrupted
            and attempts < MAX_ATTEMPTS
            and low < budget < high
            and not self.good(best, first)
            and not self.ended(best)
        ):
            attempts += 1
            try:
                again = self.solver.solve(budget, ARENA_SHARE)
            except UnscheduledError:
                low = budget
            else:
                solve_s += again.solve_s
                report, excess = self.plan(again)
                least_excess = min(least_excess, excess)
                found = report if not excess else self.moved(again, ram)
                if found and (best is None or found.use.energy_nj < best.use.energy_nj):
                    best = found
                high = min(budget, again.use.peak_bytes)
            if excess > 0:
                budget = high - excess
                if budget <= low:
                    budget = (low + high) // 2 // align * align
        if best is None and first.interrupted:
            # The best schedule so far is of no use.
            raise SolverInterrupted(None)
        if best is None:
            asked = diagnosis(self.solver.view.graph, self.options, Reason.ARENA)
            raise TimeLimitError(replace(asked, excess_bytes=least_excess))
        best = self.without_waste(best)
        log = best.log
        if self.late():
            log = (*log, "the clock cut the search for an arena short")
        # Only the first solution had all of the RAM: its bound is that of the question asked.
        bound_nj = min(first.bound_nj, best.use.energy_nj)
        best = replace(best, bound_nj=bound_nj, attempts=attempts, solve_s=solve_s, log=log)
        return with_bound(best, bound_nj, self.options.gap)

    def ended(self, found: ScheduleReport | None) -> bool:
        """Whether no better schedule than the one that was found is looked for any more."""
        if found is None:
            return self.late()
        patient = found.use.energy_nj > self.solver.enough_nj
        until_s = self.solver.patient_until_s if patient else self.solver.end_s
        return self.options.late or self.options.now_s >= until_s

    def late(self) -> bool:
        """Whether the time for arenas is over, too: it is that of the solver and a little more."""
        return time.monotonic() > self.solver.latest_s

    def good(self, found: ScheduleReport | None, first: ScheduleReport) -> bool:
        """Whether `found` is as good as can be told within the gap."""
        if found is None:
            return False
        return found.use.energy_nj * (1 - self.options.gap) <= first.use.energy_nj

    def moved(
        self,
        report: ScheduleReport,
        arena_bytes: int | None,
        rounds: int = ROUNDS,
        most_nj: float = math.inf,
    ) -> ScheduleReport | None:
        """`report` with buffers that move on the way so that the arena has at most `arena_bytes`.

        None if that is not found or costs more than `most_nj`.
        """
        if arena_bytes is None or self.options.ram_scope != "all":
            return None
        problem = replace(report.problem, ram_bytes=self.options.arena_bytes)
        # Until it is known where transfers overlap, the time is not.
        instance = instance_of(replace(problem, deadline_ns=None), self.options)
        steps = without_overlap(instance, report.steps)
        found = relocate(
            instance,
            steps,
            arena_bytes,
            max(self.options.align, *(tensor.align for tensor in instance.tensors), 1),
            self.late,
            rounds=rounds,
            most_nj=most_nj,
        )
        if found is None:
            return None
        before, use = report.use, replay(instance.problem, found.steps)
        pages, more = use.page_ins - before.page_ins, use.energy_nj - before.energy_nj
        log = (*report.log, f"{pages} page-ins more for a smaller arena, {more} nJ")
        moved = replace(
            report, problem=problem, steps=found.steps, use=use, log=log, moves=report.moves + pages
        )
        try:
            planned, _ = self.plan(moved)
            if _excess(planned, arena_bytes):
                # Packing everything again has not found what is known to fit.
                use = replay(problem, found.steps)
                planned = self.placed(replace(moved, use=use), found.offsets)
        except ScheduleError:
            return None
        return None if _excess(planned, arena_bytes) else planned

    def without_waste(self, report: ScheduleReport) -> ScheduleReport:
        """`report` with no more in the arena than is alive at once, if that costs little."""
        if not report.waste_bytes or self.options.arena_bytes is None or self.late():
            return report
        most_nj = report.use.energy_nj * WASTE_PRICE
        tidy = self.moved(report, report.use.peak_bytes, TIDY_ROUNDS, most_nj)
        if tidy is None or tidy.waste_bytes >= report.waste_bytes:
            return report
        return tidy if tidy.use.energy_nj <= report.use.energy_nj + most_nj else report

    def placed(self, report: ScheduleReport, offsets: Sequence[int]) -> ScheduleReport:
        """`report` with a plan that has its buffers at `offsets`."""
        memory = plan_memory(
            replace(report.problem, ram_bytes=None),
            report.steps,
            align=self.options.align,
            unit_bytes=unit_bytes(self.options),
            offsets=offsets,
            block_bytes=block_bytes_of(self.options, report.steps),
        )
        return replace(report, memory=memory)

    def plan(self, report: ScheduleReport) -> tuple[ScheduleReport, int]:
        """`report` with transfers overlapped and memory planned; bytes by which it is too big."""
        options = self.options
        ram = options.arena_bytes if options.ram_scope == "all" else None
        # Memory is planned for all tensors, whatever the scope of the budget.
        problem = replace(report.problem, ram_bytes=options.arena_bytes)
        everything = replace(problem, ram_bytes=None)
        if options.ram_scope != "all":
            scope = replace(options, ram_scope="all", budget=NO_LIMIT)
            everything = problem_view(self.solver.view.graph, scope).problem
        best: ScheduleReport | None = None
        most_nj = math.inf
        seen: set[tuple[Step, ...]] = set()
        for steps in self._variants(problem, report):
            if steps in seen:
                continue
            seen.add(steps)
            try:
                use = replay(problem, steps)
            except ScheduleError:
                # It takes longer than it may; the last one does not.
                continue
            memory = self.packed(everything, steps, ram)
            found = replace(report, problem=problem, steps=steps, use=use, memory=memory)
            if best is None:
                best = found
            elif _excess(best, ram):
                best = min(best, found, key=lambda r: _excess(r, ram))
            elif use.energy_nj <= most_nj and found.waste_bytes < best.waste_bytes:
                best = found
            if not _excess(best, ram):
                most_nj = min(most_nj, best.use.energy_nj * (1 + WASTE_PRICE))
                if not best.waste_bytes or options.ram_scope != "all":
                    break
        if best is None:
            raise ScheduleError("the schedule takes longer than it may")
        return best, _excess(best, ram)

    def packed(self, problem: Problem, steps: Sequence[Step], ram: int | None) -> MemoryPlan:
        """A plan within `ram`, if one is found, and then the lowest that is."""

        def attempt(target_bytes: int) -> MemoryPlan:
            return plan_memory(
                problem,
                steps,
                align=self.options.align,
                effort=PACK_EFFORT,
                unit_bytes=unit_bytes(self.options),
                stop=self.late,
                target_bytes=target_bytes,
                block_bytes=block_bytes_of(self.options, steps),
            )

        plan = attempt(ram or 0)
        if ram is None or not plan.arena_bound_bytes < plan.arena_bytes <= ram:
            return plan
        return min(plan, attempt(0), key=lambda plan: plan.arena_bytes)

    def _variants(self, problem: Problem, report: ScheduleReport) -> Iterator[tuple[Step, ...]]:
        """The steps with less and less overlap of transfers and computing, and in the end as they
        are. Some may miss the deadline."""
        problem = replace(problem, deadline_ns=None)

        def overlapped(steps: tuple[Step, ...], room: int | None) -> tuple[Step, ...]:
            return tuple(steps[i] for i in overlap_transfers(problem, steps, room, self.late))

        steps, ram = report.steps, problem.ram_bytes
        yield overlapped(steps, None)
        if problem.dma and ram is not None and self.options.ram_scope == "all" and not self.late():
            # Transfers that overlap need RAM longer.
            tight = without_overlap(instance_of(problem, self.options), steps)
            peak = replay(problem, tight).peak_bytes
            yield overlapped(tight, (peak + ram) // 2)
            yield overlapped(tight, peak)
            yield tight
        yield steps


def _excess(report: ScheduleReport, bytes: int | None) -> int:
    """The bytes by which the arena exceeds `bytes`; None is no limit."""
    assert report.memory is not None
    return 0 if bytes is None else max(0, report.memory.arena_bytes - bytes)
