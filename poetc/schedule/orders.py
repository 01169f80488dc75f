"""The search in the given order of the operations and in others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from poetc.schedule import bounds, portfolio
from poetc.schedule.instance import Instance
from poetc.schedule.rebuild import Event, Load
from poetc.schedule.reorder import Frontier, orders, permuted, polish, renamed
from poetc.schedule.search import TOLERANCE, Progress, Search

# Shares of the time for the given order, and for what it begins with where the problem is too large
# for the whole model and there is a schedule.
GIVEN_SHARE, BEGIN_SHARE = 0.7, 0.95
# Shares of the remaining time for first schedules in one order, for looking for other orders, for
# improving order and reruns together, and for the bound in the given order if it is not the best.
FIRST_SHARE = 0.1
ORDERS_SHARE = 0.15
POLISH_SHARE = 0.6
BOUND_SHARE = 0.3
HASTE_SHARE = 0.5
# By how much a schedule must be better to change the order where tensors can be paged, as the bound
# of a second order takes long there.
MARGIN = 0.03
# Share of the remaining time for further orders where the given one is settled, and how many are
# tried: where the whole model takes no time fewer the larger it is, and elsewhere. Nearly all of
# what there is to gain is found in the first dozen.
FURTHER_SHARE = 0.3
MOST_TRIES, FEW_TRIES = 60, 12
TRIES_TIMES_RERUNS = 1_000


def several_orders(search: Search) -> bool:
    """Looks in the given order and, unless nothing is left to save, in others. True when there
    provably is no schedule in the given order and none is found in another.

    Where the schedule is in another order the bound is the lesser of those for the two orders.
    """
    if search.instance.problem.ram_bytes is None:
        return portfolio.portfolio(search)
    return _Orders(search).run()


class _Lane(Search):
    """A search in one order, whose operation k is operation `order[k]` of the given problem, for
    what uses less than `ceiling_nj`."""

    order: Sequence[int] = ()
    ceiling_nj: float = math.inf

    @property
    def energy_nj(self) -> float:
        return min(super().energy_nj, self.ceiling_nj)

    @property
    def relative_gap(self) -> float:
        if math.isinf(self.energy_nj):
            return math.inf
        return (self.energy_nj - self.bound_nj) / max(self.energy_nj, 1.0)


class _Orders:
    """Searches in several orders that share a clock and whose schedules go to `search`."""

    def __init__(self, search: Search) -> None:
        self.search = search
        reruns = search.instance.reruns
        self.small, self.tiny = reruns <= portfolio.SMALL, reruns <= portfolio.TINY
        self.paging = any(search.instance.pageable)
        # A second bound takes no time where the whole model does not.
        self.margin = MARGIN if self.paging and not self.tiny else 0.0
        self.given = self._lane(range(search.instance.n))
        self.best = self.given

    def run(self) -> bool:
        given, problem = self.given, self.search.instance.problem
        assert problem.ram_bytes is not None
        if bounds.ram_needed(self.search.instance)[0] > problem.ram_bytes:
            return self._in_further_orders(proven=True)
        if self.small or self.paging:
            # With page-ins another order seldom saves much, and its bound takes long.
            proven = self._within(GIVEN_SHARE, given, self._begin)
            if proven or given.optimal:
                return self._in_further_orders(proven)
        else:
            self._within(FIRST_SHARE, given, portfolio.first_schedules)
        self._others()
        self._polish()
        if self.best is not given:
            # The bound is the lesser of those of both.
            bounding = portfolio.improve if self.paging else portfolio.outline
            if not self.small:
                self._within(BOUND_SHARE, given, bounding)
        proven = self._within(1.0, self.best, portfolio.improve)
        if proven and self.best is given:
            return self._in_further_orders(proven)
        return False

    def _begin(self, lane: Search) -> bool:
        """What the search in the given order begins with. In large problems with a schedule nearly
        all of the time is for its bound."""
        portfolio.first_schedules(lane)
        if not self.small and lane.steps is not None:
            lane.time_limit_s = self.search.seconds + self.search.remaining * BEGIN_SHARE
        return portfolio.improve(lane, briefly=True)

    def _in_further_orders(self, proven: bool) -> bool:
        """Goes on where the given order is settled: it has no schedule, if that is `proven`, or one
        within the gap of its optimum. True when there is none in any order that is tried."""
        search = self.search
        if proven:
            self.given.bound_nj = math.inf
        self._further()
        if search.steps is None:
            return True
        if not self.tiny and self.best is not self.given:
            self.best.ceiling_nj = math.inf
            self._within(1.0, self.best, portfolio.improve)
        return False

    def _further(self) -> None:
        """Looks for something better in one order after another."""
        search, problem = self.search, self.search.instance.problem
        until = search.seconds + search.remaining * FURTHER_SHARE
        gap = 0.0 if self.tiny else search.gap
        tries = FEW_TRIES
        if self.tiny:
            tries = min(MOST_TRIES, TRIES_TIMES_RERUNS // max(search.instance.reruns, 1))
            tries = max(tries, FEW_TRIES)
        frontier = Frontier(problem)
        for count, order in enumerate(frontier):
            least = search.energy_nj * (1 - max(gap, TOLERANCE)) <= search.instance.base_energy
            if least or count >= tries or search.stop.is_set():
                return
            if search.seconds > until:
                search.note(f"the clock ends the search in other orders after {count} of {tries}")
                return
            lane = self._lane(order)
            if bounds.ram_needed(lane.instance)[0] > (problem.ram_bytes or 0):
                continue
            lane.ceiling_nj = search.energy_nj * (1 - self.margin)
            lane.time_limit_s = until
            lane.gap = gap
            begin, before = len(lane.log), search.energy_nj
            if not self.tiny:
                portfolio.first_schedules(lane)
            if self.small and (self.tiny or (lane.steps is None and search.steps is None)):
                portfolio.improve(lane)
            if search.energy_nj < before:
                frontier.prefer(order)
                search.log += lane.log[begin:]

    def _others(self) -> None:
        """First schedules in other orders."""
        search = self.search
        until = search.seconds + search.remaining * ORDERS_SHARE
        problem = search.instance.problem
        lanes = []
        for order in orders(problem, lambda: search.finished or search.seconds > until):
            lanes.append(self._lane(order))
            if not search.finished:
                self._within(FIRST_SHARE, lanes[-1], portfolio.first_schedules)
        for lane in (*lanes, self.given):
            if search.steps is None:
                self._within(FIRST_SHARE, lane, lambda lane: portfolio.mended(lane, gradually=True))

    def _polish(self) -> None:
        """Changes the best order and its reruns together."""
        search, best = self.search, self.best
        if best.steps is None or any(isinstance(event, Load) for event in best.events):
            return
        until = search.seconds + search.remaining * POLISH_SHARE
        seed = 0

        def found(order: tuple[int, ...], events: list[Event]) -> None:
            lane = self._lane(order)
            lane.offer(events, "reruns and order")
            search.log += lane.log

        def stop() -> bool:
            return search.finished or search.seconds > until

        # Each round begins with the best so far.
        while not stop() and len(self.best.events) > search.instance.n:
            polish(search.instance, self.best.order, self.best.events, found, stop, seed)
            seed += 1

    def _within(self, share: float, lane: _Lane, step: Callable[[Search], bool | None]) -> bool:
        """Runs a step of the search in one order, in a share of the remaining time."""
        search = self.search
        if search.finished:
            return False
        # Without any schedule the first steps get more time.
        share = max(share, HASTE_SHARE) if search.steps is None else share
        lane.time_limit_s = search.seconds + search.remaining * share
        lane.patience_s = search.patience_s if search.impatient else math.inf
        begin = len(lane.log)
        try:
            return bool(step(lane))
        finally:
            search.log += lane.log[begin:]

    def _lane(self, order: Sequence[int]) -> _Lane:
        """A search in one order that tells of what it finds."""
        search = self.search
        instance = search.instance
        if list(order) != list(range(instance.n)):
            problem = permuted(instance.problem, order)
            instance = Instance(problem, remat=instance.remat, paging=instance.paging)

        def progress(_: Progress) -> None:
            # Within the gap of the energy that no schedule avoids the bound is no question.
            least = lane.energy_nj * (1 - search.gap) <= instance.base_energy
            margin = 0.0 if least or lane is self.best else self.margin
            if lane.steps is not None and lane.energy_nj < search.energy_nj * (1 - margin):
                self.best = lane
                steps = tuple(renamed(step, order) for step in lane.steps)
                search.adopt(steps, min(self.given.bound_nj, lane.bound_nj))
            search.raise_bound(min(self.given.bound_nj, self.best.bound_nj))

        lane = _Lane(instance, search.time_limit_s, search.gap, progress)
        lane.begin, lane.stop, lane.enough_nj = search.begin, search.stop, search.enough_nj
        lane.bound_nj = instance.base_energy
        lane.order = order
        return lane
