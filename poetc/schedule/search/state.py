"""The state of a solve: the best checked schedule, the best bound, and the clock."""

from __future__ import annotations

import copy
import dataclasses
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from poetc.schedule.model.checker import Report, replay
from poetc.schedule.model.clock import Clock, Effort
from poetc.schedule.model.errors import ScheduleError
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Schedule, Step
from poetc.schedule.model.rebuild import Event, rebuild
from poetc.schedule.model.transfers import hurried, overlap_transfers
from poetc.schedule.params import SearchParams

if TYPE_CHECKING:
    from poetc.schedule.search.portfolio import Large

# Work for a step of a schedule that is offered, and for one that a move of `hurried` passes.
OFFER, HURRY = 1.2e-5, 5e-6

# A gap below this is rounding in HiGHS, whose rows hold to 1e-6.
TOLERANCE = 2e-6


@dataclass(frozen=True)
class Progress:
    """The progress that a callback is told; it may return False to stop the search.

    `bound_nj` is proven; it falls when a better schedule is found in another order for which less
    is proven yet. `energy_nj` belongs to the best schedule (inf before there is one).
    """

    seconds: float
    bound_nj: float
    energy_nj: float
    gap: float


class Search:
    """Best schedule and best bound so far.

    Schedules come in through `offer`, which rebuilds and checks them; nothing that fails the
    checker is ever kept. Bounds come in through `raise_bound`.
    """

    def __init__(
        self,
        instance: Instance,
        time_limit_s: float,
        gap: float,
        progress: Callable[[Progress], bool | None] | None = None,
        patience: float = 1.0,
        enough_nj: float = math.inf,
        clock: Clock | None = None,
        effort_s: float | None = None,
    ) -> None:
        self.instance, self.gap, self.progress = instance, gap, progress
        self.clock = clock or Clock()
        # Seconds of the clock.
        begin_s = self.clock.seconds
        self.time_limit_s = begin_s + time_limit_s
        self.enough_nj = enough_nj
        # The work at which it ends, and at which it does without a schedule that is good enough.
        self.counted = effort_s is not None
        work = self.clock.pace * (time_limit_s if effort_s is None else effort_s)
        self.until = self.clock.work + work
        self.patience_s = self.patient_until = math.inf
        if patience < 1:
            self.patience_s = begin_s + patience * time_limit_s
            self.patient_until = self.clock.work + patience * work
        self.stop = threading.Event()
        self.bound_nj = 0.0
        self.steps: tuple[Step, ...] | None = None
        self.events: tuple[Event, ...] = ()
        self.report: Report | None = None
        # The makespan of the fastest schedule known of those that miss the deadline.
        self.fastest_ns: int | None = None
        # It is proven that no schedule in any order meets the deadline.
        self.none_in_time = False
        self.log: list[str] = []
        # Bounds are of no interest beyond this.
        self.most_nj = math.inf
        # The state that `portfolio` goes on from when it is given more time.
        self.large: Large | None = None

    @property
    def params(self) -> SearchParams:
        return self.instance.params

    @property
    def seconds(self) -> float:
        return self.clock.seconds

    @property
    def remaining(self) -> float:
        """The work that is left; 0 where the search has been ended."""
        until = min(self.until, self.patient_until) if self.impatient else self.until
        return 0.0 if self.ended() else max(0.0, until - self.clock.work)

    def ended(self) -> bool:
        """Whether the time is over, or it was told to stop."""
        limit_s = self.time_limit_s
        if self.impatient:
            limit_s = min(limit_s, self.patience_s)
        return self.seconds >= limit_s or self.stop.is_set()

    def part(self, share: float = 1.0, most: float = math.inf) -> Effort:
        """A share of the remaining work, and at most so much."""
        return Effort(min(self.remaining * share, most), self.clock, self.ended)

    def within(self, effort: Effort) -> None:
        """Makes the search end with `effort`."""
        self.until = effort.until

    def extend(self) -> bool:
        """Gives the search what is left of its time, by the clock, once its work is done; False
        where no time is left, or only so much work was to be done."""
        if self.counted or self.ended():
            return False
        work, pace, now_s = self.clock.work, self.clock.pace, self.seconds
        self.until = work + pace * (self.time_limit_s - now_s)
        self.patient_until = work + pace * (self.patience_s - now_s)
        return True

    @property
    def impatient(self) -> bool:
        """Whether the search ends earlier: without a schedule of `enough_nj` or less."""
        return self.steps is None or self.energy_nj > self.enough_nj

    @property
    def energy_nj(self) -> float:
        return self.report.energy_nj if self.report is not None else math.inf

    @property
    def relative_gap(self) -> float:
        if self.report is None:
            return math.inf
        return (self.energy_nj - self.bound_nj) / max(self.energy_nj, 1.0)

    @property
    def optimal(self) -> bool:
        return self.relative_gap <= max(self.gap, TOLERANCE)

    @property
    def content(self) -> bool:
        """There is a schedule, and any will do: a gap of 1 or more is asked for."""
        return self.gap >= 1 and self.report is not None

    @property
    def finished(self) -> bool:
        """Nothing more to do: within the gap, without effort left, or ended."""
        return self.optimal or self.remaining <= 0

    @property
    def overhead_nj(self) -> float:
        """Energy of the best schedule beyond the least energy; a better one has no recompute or
        page-in that costs more."""
        if not self.params.overhead_filter:
            return math.inf
        return self.energy_nj - self.instance.base_energy

    def affordable(self) -> Callable[[int, int], bool]:
        """Whether a better schedule may have a recompute (stage, operation)."""
        most, energy = self.overhead_nj, self.instance.least_run_energy
        return lambda stage, operation: energy[operation] <= most

    def goal(self, gap: float | None = None) -> float:
        """The bound, in nJ, that ends the search: nothing that uses as much or more is of
        interest."""
        return self.energy_nj * (1 - (self.gap if gap is None else gap) + 1e-9)

    def better_than(self, other: Search) -> bool:
        """Is its best schedule better: less energy, or the same in less time?"""
        return self.report is not None and other.improved_by(self.report)

    def improved_by(self, report: Report) -> bool:
        """Is a schedule of which the checker says this better than the best one?"""
        if self.report is None or report.energy_nj != self.report.energy_nj:
            return report.energy_nj < self.energy_nj
        return report.makespan_ns < self.report.makespan_ns

    def offer(self, events: Sequence[Event], source: str = "") -> bool:
        """Takes a sequence if its schedule passes the checker and beats the best; says whether."""
        problem = self.instance.problem
        steps = rebuild(self.instance, events)
        self.clock.work += OFFER * len(steps)
        try:
            if problem.dma:
                order = overlap_transfers(problem, steps)
                steps = tuple(steps[index] for index in order)
                steps = self._hurried(steps)
            report = replay(problem, steps)
        except ScheduleError as error:
            self.note(f"rejected ({source}): {error}")
            return False
        if not self.improved_by(report):
            return False
        self.steps, self.report, self.events = steps, report, tuple(events)
        self.note(f"schedule {report.energy_nj} nJ {source}".rstrip())
        self.tell()
        return True

    def _hurried(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """`steps` with transfers that overlap more, where that is what may make them the best."""
        problem = self.instance.problem
        report = replay(dataclasses.replace(problem, deadline_ns=None), steps)
        least_ns = max(report.busy_ns, report.bus_ns)
        late = problem.deadline_ns is not None and report.makespan_ns > problem.deadline_ns
        if problem.deadline_ns is not None and least_ns > problem.deadline_ns:
            return steps
        saved_nj = problem.idle_power_nw * (report.makespan_ns - least_ns) // 10**9
        better = report.energy_nj - saved_nj < self.energy_nj
        if not (better and (late or saved_nj > 0) and self.params.hurry):
            return steps
        self.clock.work += HURRY * min(
            self.params.shuffle_steps, self.params.shuffle_rounds * len(steps) ** 2
        )
        return hurried(problem, steps, self.params.shuffle_rounds, self.params.shuffle_steps)

    def adopt(self, steps: tuple[Step, ...], bound_nj: float) -> None:
        """Takes steps whose first runs are in another order than the problem's, checked like any
        others, if they beat the best, and a bound that holds for both orders."""
        report = replay(self.instance.problem, steps)
        if self.improved_by(report):
            self.steps, self.report, self.events = steps, report, ()
            self.bound_nj = bound_nj
            self.tell()

    def inner(self, instance: Instance, effort: Effort) -> Search:
        """A search in another instance with the same clock, which ends with `effort`."""
        other = Search(instance, 0.0, self.gap, clock=self.clock)
        other.follow(self)
        other.within(effort)
        return other

    def follow(self, other: Search) -> None:
        """Makes the search end when the clock or the user ends `other`."""
        self.stop, self.time_limit_s = other.stop, other.time_limit_s

    def fork(self) -> Self:
        """A search that begins with what is known now and the same effort, for another thread. It
        tells nobody of what it finds; `join` takes that."""
        other = copy.copy(self)
        other.progress, other.stop, other.log = None, threading.Event(), []
        other.clock = self.clock.fork()
        return other

    def join(self, other: Search) -> None:
        """Takes what a fork has found, if it is better, and what it has noted."""
        # By the time, which each line begins with.
        self.log = sorted(self.log + other.log, key=lambda line: float(line.split()[0]))
        if other.better_than(self):
            self.steps, self.report, self.events = other.steps, other.report, other.events
            self.tell()
        self.raise_bound(other.bound_nj)

    def raise_bound(self, bound_nj: float) -> None:
        """Takes a proven lower bound on the energy."""
        bound_nj = min(bound_nj, self.most_nj)
        if bound_nj > self.bound_nj and not math.isinf(bound_nj):
            self.bound_nj = bound_nj
            self.tell()

    def tell(self) -> None:
        """Calls the progress callback; stops the search if it says so."""
        if self.progress is not None:
            gap = self.relative_gap
            state = Progress(self.seconds, self.bound_nj, self.energy_nj, gap)
            if self.progress(state) is False:
                self.stop.set()

    def note(self, text: str) -> None:
        self.log.append(f"{self.seconds:8.2f} s  {text}")

    @property
    def proven_nj(self) -> int:
        """The bound in whole nJ. So are energies: it is rounded up, but for what HiGHS may be wrong
        by. The energy that no schedule avoids is a plain sum."""
        bound = math.ceil(self.bound_nj - TOLERANCE / 4 * max(self.bound_nj, 1.0))
        return max(0, bound, self.instance.least_energy_nj)

    def schedule(self, strategy: str) -> Schedule | None:
        """The best schedule so far."""
        if self.steps is None or self.report is None:
            return None
        report = self.report
        return Schedule(
            steps=self.steps,
            energy_nj=report.energy_nj,
            bound_nj=min(self.proven_nj, report.energy_nj),
            makespan_ns=report.makespan_ns,
            peak_bytes=report.peak_bytes,
            strategy=strategy,
            status="optimal" if self.optimal else "feasible",
            log=tuple(self.log),
        )
