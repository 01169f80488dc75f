"""Effort: what a search does, counted as work, so that its results do not depend on the machine.

Work is counted where it is done, by what is done: iterations of the simplex method, looks of branch
and bound at its limits, tensors that a heuristic weighs. Each has a price in *seconds of work*,
about the seconds that it takes on one core of a desktop computer. What a step of the search may do
is a share of the work that is left. The clock on the wall only cuts off.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

PACE = 0.7
"""Seconds of work for each second of a time limit. Where that takes longer the limit cuts a search
short; on all faster machines the search is the same, and ends before it."""


class Clock:
    """The work that has been done, in seconds of work, and the seconds since it began, of which
    there are `limit_s`. A time limit stands for `pace` times as much work. The time of a clock that
    is not `counted` is used up by seconds instead of work."""

    def __init__(self, limit_s: float = math.inf, pace: float = PACE, counted: bool = True) -> None:
        self.begin = time.monotonic()
        self.limit_s, self.pace, self.counted = limit_s, pace, counted
        self.work = 0.0

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self.begin

    @property
    def left_s(self) -> float:
        """Seconds until the limit, negative after it."""
        return self.limit_s - self.seconds

    @property
    def used_s(self) -> float:
        """The seconds of a time limit that are used up; where work is counted those that it stands
        for, the same on every machine."""
        return self.work / self.pace if self.counted else self.seconds

    def fork(self) -> Clock:
        """One that goes on from here, for another thread."""
        other = Clock(self.limit_s, self.pace, self.counted)
        other.begin, other.work = self.begin, self.work
        return other


class Effort:
    """The limit of a step: `work` from now on by `clock`, unless `ended` says that it is over."""

    def __init__(
        self,
        work: float = math.inf,
        clock: Clock | None = None,
        ended: Callable[[], bool] = lambda: False,
    ) -> None:
        self.clock, self.ended = clock or Clock(), ended
        self.until = self.clock.work + work

    @property
    def left(self) -> float:
        """The work that it may still do, 0 where it is over."""
        return 0.0 if self.ended() else max(0.0, self.until - self.clock.work)

    @property
    def over(self) -> bool:
        return self.clock.work >= self.until or self.ended()

    def spend(self, work: float) -> None:
        """Counts work that was done."""
        self.clock.work += work

    def part(self, share: float, most: float = math.inf) -> Effort:
        """A share of what is left, and at most so much work."""
        return Effort(min(self.left * share, most), self.clock, self.ended)

    def apart(self, work: float) -> Effort:
        """Effort of so much work in another thread, which this one does not count."""
        return Effort(work, self.clock.fork(), self.ended)

    def unless(self, ended: Callable[[], bool]) -> Effort:
        """This effort, which is over when `ended` says so, too."""
        return Effort(self.left, self.clock, lambda: self.ended() or ended())
