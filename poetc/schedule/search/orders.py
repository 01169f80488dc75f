"""The search in the given order of the operations and in others."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from poetc.schedule.exact import bounds
from poetc.schedule.heuristics.reorder import Frontier, orders, permuted, polish, renamed
from poetc.schedule.model.errors import StrategyUndefinedError
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.rebuild import Event, Load
from poetc.schedule.search import portfolio
from poetc.schedule.search.state import TOLERANCE, Progress, Search
from poetc.schedule.strategies import constructive

# Shares of the time for the given order, and for what it begins with where the problem is too large
# for the whole model and there is a schedule.
GIVEN_SHARE, BEGIN_SHARE = 0.7, 0.95
# Shares of the remaining time for first schedules in one order, for looking for other orders, for
# improving order and recomputes together, and for the bound in the given order if it is not the
# best.
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
TRIES_TIMES_RECOMPUTES = 1_000
# Operations up to which the constructive strategies are made; seconds for each, the share of the
# remaining time before the search, and how late they may be after it.
COMPARED, COMPARED_S, COMPARED_SHARE, LATE_S = 600, 2.0, 0.03, 0.3
# Shares of the remaining time for what is left to try where the gap is open: a restriction of the
# problem, repairing, windows of stages, more orders, and the whole model.
RESTRICTED_SHARE, REPAIR_SHARE, WINDOWS_SHARE, MORE_SHARE, WHOLE_SHARE = 0.3, 0.1, 0.2, 0.2, 0.5


def several_orders(search: Search) -> bool:
    """Looks in the given order and, unless nothing is left to save, in others. True when there
    provably is no schedule in the given order and none is found in another.

    Where the schedule is in another order the bound is the lesser of those for the two orders.
    """
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
        recomputes = search.instance.recomputes
        self.small, self.tiny = recomputes <= portfolio.SMALL, recomputes <= portfolio.TINY
        self.paging = any(search.instance.pageable)
        # A second bound takes no time where the whole model does not.
        self.margin = MARGIN if self.paging and not self.tiny else 0.0
        self.given = self._lane(range(search.instance.n))
        self.best = self.given
        self.frontier = Frontier(search.instance.problem)
        self.further = iter(self.frontier)
        # Constructive strategies that have not come to an end.
        self.waiting = list(constructive()) if search.instance.n <= COMPARED else []

    def run(self) -> bool:
        """Looks until the gap or the time limit is reached; True when there provably is no schedule
        in the given order and none is found in another."""
        proven = self._search() or self._go_on()
        if self.search.relative_gap > TOLERANCE and not self.search.stop.is_set():
            self._construct(LATE_S)
        return proven and self.search.steps is None

    def _construct(self, late_s: float | None = None) -> None:
        """Makes the schedules of the constructive strategies, so that none of them is better."""
        search = self.search
        for strategy in list(self.waiting):
            if late_s is None:
                seconds = min(COMPARED_S, search.remaining * COMPARED_SHARE)
            else:
                seconds = min(COMPARED_S, search.time_limit_s + late_s - search.seconds)
            if seconds <= 0 or search.stop.is_set():
                return
            baseline = Search(search.instance, seconds, search.gap)
            try:
                strategy.run(baseline)
            except StrategyUndefinedError as error:
                search.note(f"{strategy.name}: {error}")
            if baseline.steps is not None and baseline.better_than(search):
                self._take(baseline, strategy.name)
                search.note(f"schedule {search.energy_nj} nJ {strategy.name}")
            if baseline.remaining > 0:
                self.waiting.remove(strategy)

    def _go_on(self) -> bool:
        """Tries what is left while the gap is open: restrictions of the problem, other random
        numbers, more orders, and the whole model in the orders whose bound is open. True when there
        provably is no schedule in the given order."""
        search = self.search
        restricted = portfolio.restrictions(self.given.instance)
        whole, turn = True, 0
        while not search.finished:
            turn += 1
            for instance in restricted if turn == 1 else ():
                if not search.finished:
                    self._restricted(instance)
            lanes = list(dict.fromkeys((self.best, self.given)))
            for lane in lanes:
                self._quietly(REPAIR_SHARE, lane, functools.partial(_repair, seed=turn))
            self._quietly(WINDOWS_SHARE, self.best, functools.partial(_windows, seed=turn))
            if not search.finished and search.instance.problem.ram_bytes is not None:
                self._further(MORE_SHARE, more=True)
            # The whole model says nothing new where it has come to its end.
            lanes = [lane for lane in dict.fromkeys((self.given, self.best)) if whole]
            whole = False
            for lane in lanes:
                lane.ceiling_nj = search.energy_nj
                proven = self._quietly(WHOLE_SHARE, lane, _whole)
                whole = whole or lane.remaining <= 0
                if proven and lane is self.given and search.steps is None:
                    return True
        return False

    def _take(self, found: Search, name: str) -> None:
        """Takes what another search has found for the given order, and goes on from there."""
        self.given.offer(found.events, name)
        if found.better_than(self.search) and found.steps is not None:
            self.best = self.given
            self.search.adopt(found.steps, self.given.bound_nj)

    def _restricted(self, instance: Instance) -> None:
        """Searches a restriction of the problem; what is found is a schedule of the whole."""
        search = self.search
        inner = Search(instance, search.remaining * RESTRICTED_SHARE, search.gap)
        inner.stop = search.stop
        portfolio.portfolio(inner)
        if inner.steps is not None and inner.better_than(search):
            self._take(inner, "restricted")
            search.note(f"schedule {search.energy_nj} nJ with fewer ways to save RAM")

    def _quietly(self, share: float, lane: _Lane, step: Callable[[Search], bool | None]) -> bool:
        """Runs a step like `_within`; what it notes is kept only if it finds something better."""
        log, before = list(self.search.log), self.search.energy_nj
        proven = self._within(share, lane, step)
        if self.search.energy_nj >= before:
            self.search.log = log
        return proven

    def _search(self) -> bool:
        """The main part of the search, as `run`."""
        if self.search.instance.problem.ram_bytes is None:
            return self._within(1.0, self.given, portfolio.portfolio)
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
            if not self.search.finished:
                self._construct()
        self._others()
        self._polish()
        if self.best is not given:
            # The bound is the lesser of those of both.
            bounding = portfolio.improve if self.paging else portfolio.relaxation
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
        if not self.tiny and not self.search.finished:
            self._construct()
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

    def _further(self, share: float = FURTHER_SHARE, more: bool = False) -> None:
        """Looks for something better in one order after another, `more` than it found worth it."""
        search, problem = self.search, self.search.instance.problem
        until = search.seconds + search.remaining * share
        gap = 0.0 if self.tiny else search.gap
        tries = FEW_TRIES
        if self.tiny:
            tries = min(MOST_TRIES, TRIES_TIMES_RECOMPUTES // max(search.instance.recomputes, 1))
            tries = max(tries, FEW_TRIES)
        for count, order in enumerate(self.further):
            least = search.energy_nj * (1 - max(gap, TOLERANCE)) <= search.instance.base_energy
            if least or count >= tries or search.stop.is_set():
                return
            if search.seconds > until:
                if more:
                    return
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
                self.frontier.prefer(order)
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
                self._within(
                    FIRST_SHARE, lane, lambda lane: portfolio.repaired(lane, gradually=True)
                )

    def _polish(self) -> None:
        """Changes the best order and its recomputes together."""
        search, best = self.search, self.best
        if best.steps is None or any(isinstance(event, Load) for event in best.events):
            return
        until = search.seconds + search.remaining * POLISH_SHARE
        seed = 0

        def found(order: tuple[int, ...], events: list[Event]) -> None:
            lane = self._lane(order)
            lane.offer(events, "recomputes and order")
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
            enough = lane.steps is not None and lane.energy_nj < search.energy_nj * (1 - margin)
            if enough or (not margin and lane.better_than(search)):
                self.best = lane
                steps = tuple(renamed(step, order) for step in lane.steps or ())
                search.adopt(steps, min(self.given.bound_nj, lane.bound_nj))
            search.raise_bound(min(self.given.bound_nj, self.best.bound_nj))

        lane = _Lane(instance, search.time_limit_s, search.gap, progress)
        lane.begin, lane.stop, lane.enough_nj = search.begin, search.stop, search.enough_nj
        lane.bound_nj = instance.base_energy
        lane.order = order
        return lane


def _repair(search: Search, seed: int) -> None:
    """Repairs with other random numbers, and gradually now and then."""
    portfolio.repaired(search, gradually=seed % 3 == 0, share=1.0, seed=seed)


def _windows(search: Search, seed: int) -> None:
    portfolio.windows(search, portfolio.Guide(), 1.0, seed=seed)


def _whole(search: Search) -> bool:
    """The whole model, to a gap that leaves room for what bounds say of other orders."""
    if search.instance.recomputes > portfolio.SMALL:
        return portfolio.improve(search)
    return portfolio.exact(search, gap=search.gap / 10)
