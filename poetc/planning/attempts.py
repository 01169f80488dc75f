"""The attempts to schedule a step: the time that they share, and the best that was found."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from poetc.planning.plan import plan_graph
from poetc.planning.problem import ScheduleOptions
from poetc.planning.report import ScheduleReport
from poetc.planning.solver import ProgressCallback
from poetc.planning.tiles import Step


@dataclass(frozen=True)
class Found:
    """A scheduled step and how it was found."""

    step: Step
    report: ScheduleReport


class Attempts:
    """Attempts at what is `asked`, one after the other, each for a turn of the time limit."""

    def __init__(self, asked: ScheduleOptions, progress: ProgressCallback | None) -> None:
        self.clock = asked.new_clock()
        self.asked = replace(asked, clock=self.clock)
        self.progress = progress
        self.turn_s = math.inf
        """When the turn ends, in seconds of the time limit that were used."""
        self.best: Found | None = None

    @property
    def left_s(self) -> float:
        """The seconds left of the turn."""
        return max(0.0, min(self.all_left_s, self.turn_s - self.clock.used_s))

    @property
    def all_left_s(self) -> float:
        """The seconds left of the time limit, counted by work (`Clock.used_s`); 0 once it has
        passed."""
        if self.clock.left_s <= 0:
            return 0.0
        return max(0.0, self.clock.limit_s - self.clock.used_s)

    def is_less(self, energy_nj: float) -> bool:
        """Whether the best schedule takes more, beyond the gap, and the user waits for others."""
        if self.best is None:
            return True
        report = self.best.report
        return not report.interrupted and energy_nj < report.use.energy_nj * (1 - self.asked.gap)

    def offer(self, found: Found) -> None:
        """Takes what was found if it is better than what there is."""
        energy_nj = found.report.use.energy_nj
        if self.best is None or energy_nj < self.best.report.use.energy_nj:
            self.best = found

    def planned(self, step: Step) -> ScheduleReport | None:
        """The report of `plan_graph`; None if the user ended it and there is a schedule already."""
        try:
            return plan_graph(step.graph, step.asked, self.progress)
        except KeyboardInterrupt:
            self.interrupt()
            return None

    def interrupt(self) -> None:
        """Ends the search with what there is; on Ctrl-C without anything that is raised again."""
        if self.best is None:
            raise
        report = replace(self.best.report, interrupted=True)
        self.best = replace(self.best, report=report)
