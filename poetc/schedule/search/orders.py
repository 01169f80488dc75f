"""The search in the given order of the operations and in others."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

from poetc.schedule.exact import bounds
from poetc.schedule.heuristics.reorder import Frontier, orders, permuted, polish, renamed
from poetc.schedule.model.errors import StrategyUndefinedError
from poetc.schedule.model.rebuild import Event, Load, Run, events_of
from poetc.schedule.search import first
from poetc.schedule.search.bounding import relaxation
from poetc.schedule.search.milps import Guide, exact, windows
from poetc.schedule.search.portfolio import improve, portfolio
from poetc.schedule.search.state import TOLERANCE, Progress, Search
from poetc.schedule.strategies import constructive

# Work for another order and for a constructive strategy, for each operation, and for a turn of what
# is left to try.
LANE, CONSTRUCT, TURN = 1e-5, 4e-4, 1e-2

WHOLE_GAP = 0.1
"""Gap to which the whole model is solved, as a share of that asked for: bounds of other orders need
room."""


def several_orders(search: Search) -> bool:
    """Looks in the given order and, unless nothing is left to save, in others. True when there
    provably is no schedule in the given order and none is found in another.

    Where the schedule is in another order the bound is the lesser of those for the two orders.
    """
    if search.instance.has_variants:
        return _with_variants(search)
    return _Orders(search).run()


def _with_variants(search: Search) -> bool:
    """Looks in the given order, until the effort is spent; True when there provably is no schedule.
    Where operations can run as they are it looks for such schedules, too, in all orders, so that
    variants make none dearer."""
    instance, until, limit_s = search.instance, search.until, search.time_limit_s
    as_it_is = first.fits_as_it_is(instance)
    if as_it_is:
        share = search.params.plain_share
        search.within(search.part(1 - share))
        search.time_limit_s -= share * (limit_s - search.seconds)
    proven = portfolio(search)
    in_another = not proven and search.steps is not None and _in_other_orders(search)
    search.until, search.time_limit_s = until, limit_s
    plain = None
    if as_it_is and not proven and search.energy_nj > instance.least_energy_nj:
        plain = search.inner(instance.without_variants(), search.part(search.params.plain_share))
        plain.counted = True
        several_orders(plain)
        search.note(f"schedule {plain.energy_nj} nJ without variants")
        events, order = _in_own_order(plain)
        if order == list(range(instance.n)):
            search.offer(events, "without variants")
        elif plain.energy_nj < search.energy_nj and _continue(search, events, order):
            return False
    # What is proven of the given order does not hold for others.
    while not (proven or in_another or search.optimal) and search.extend():
        work = search.clock.work
        proven = improve(search)
        if search.clock.work == work:
            break
    return proven and search.steps is None


def _in_other_orders(search: Search) -> bool:
    """Looks for something better in other orders than the given one, for which the bound of the
    search holds, where the whole model of one takes no time; whether there is something."""
    orders = _Orders(search)
    orders.given.raise_bound(search.bound_nj)
    if not orders.tiny:
        return False
    orders.further(search.params.further_share, search.params.further_work)
    if orders.best is orders.given:
        return False
    orders.best.ceiling_nj = math.inf
    orders.within(1.0, orders.best, improve)
    return True


def _continue(search: Search, events: Sequence[Event], order: Sequence[int]) -> bool:
    """Goes on from events in another order (`_in_own_order`), and takes what that leads to; whether
    it did."""
    instance = search.instance
    other = search.inner(
        dataclasses.replace(instance, problem=permuted(instance.problem, order)), search.part()
    )
    other.offer(events)
    other.raise_bound(other.instance.base_energy)
    improve(other)
    if other.steps is None or not other.better_than(search):
        return False
    steps = tuple(renamed(step, order) for step in other.steps)
    search.adopt(steps, min(search.bound_nj, other.bound_nj))
    return True


def _in_own_order(found: Search) -> tuple[list[Event], list[int]]:
    """The events of a search's best schedule, and the order of their first runs, by whose places
    they name the operations; both are empty where there is no schedule."""
    events = events_of(found.steps or ())
    order = list(dict.fromkeys(e.operation for e in events if isinstance(e, Run)))
    place = {k: at for at, k in enumerate(order)}
    return [
        dataclasses.replace(event, operation=place[event.operation])
        if isinstance(event, Run)
        else event
        for event in events
    ], order


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
        self.search, self.params = search, search.params
        recomputes = search.instance.recomputes
        self.small, self.tiny = recomputes <= self.params.small, recomputes <= self.params.tiny
        self.paging = any(search.instance.pageable)
        # A second bound takes no time where the whole model does not.
        self.margin = self.params.margin if self.paging and not self.tiny else 0.0
        self.given = self._lane(range(search.instance.n))
        self.best = self.given
        self.frontier = Frontier(search.instance.problem)
        self.untried = iter(self.frontier)
        # Constructive strategies that have not come to an end.
        few = search.instance.n <= self.params.baselines_most
        self.waiting = list(constructive()) if few and self.params.baselines else []
        # Searches without paging, and without recomputing, where both can save RAM.
        ways = [dataclasses.replace(search.instance, **{w: False}) for w in ("paging", "remat")]
        both = recomputes and ways[0].pageable != search.instance.pageable
        self.single = [
            search.inner(way, search.part()) for way in ways if both and self.params.single
        ]

    def run(self) -> bool:
        """Looks until the gap or the time limit is reached; True when there provably is no schedule
        in the given order and none is found in another."""
        proven = _without_deadline(self) or self._search() or self._go_on()
        while not (proven or self.search.optimal) and self.search.extend():
            # Where the whole model is settled nothing is left but more orders.
            if self.tiny and _solved(self.given) and _solved(self.best):
                break
            proven = self._go_on()
        settled = self.search.relative_gap <= TOLERANCE or self.search.content
        if not (settled or self.search.stop.is_set()):
            self._construct(late=True)
        return proven and self.search.steps is None

    def _construct(self, late: bool = False) -> None:
        """Makes the schedules of the constructive strategies, so that none of them is better."""
        search = self.search
        for strategy in list(self.waiting):
            effort = search.part(self.params.baseline_share, self.params.baseline_work)
            baseline = search.inner(search.instance, effort)
            if late:
                # The search is at an end, but none of these is to be better.
                late_s = self.params.baseline_late_s
                baseline.time_limit_s += late_s
                baseline.until = search.until + late_s * search.clock.pace
            if baseline.remaining <= 0:
                return
            search.clock.work += CONSTRUCT * search.instance.n
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
        """Tries what is left while the gap is open: other random numbers, more orders, and the
        whole model in the orders whose bound is open. True when there provably is no schedule in
        the given order."""
        search = self.search
        whole, turn = True, 0
        while self.params.again and not search.finished:
            turn += 1
            search.clock.work += TURN
            self._one_way(self.params.again_single_share, portfolio)
            lanes = list(dict.fromkeys((self.best, self.given)))
            for lane in lanes:
                self._quietly(
                    self.params.again_repair_share, lane, functools.partial(_repair, seed=turn)
                )
            self._quietly(
                self.params.again_windows_share, self.best, functools.partial(_windows, seed=turn)
            )
            if not search.finished and search.instance.problem.ram_bytes is not None:
                self.further(self.params.again_orders_share, more=True)
            # The whole model says nothing new where it has come to its end.
            lanes = [lane for lane in dict.fromkeys((self.given, self.best)) if whole]
            whole = False
            for lane in lanes:
                lane.ceiling_nj = search.energy_nj
                proven = self._quietly(self.params.again_whole_share, lane, _whole)
                whole = whole or lane.remaining <= 0
                if proven and lane is self.given and search.steps is None:
                    return True
        return False

    def _one_way(
        self, share: float, step: Callable[[Search], object], most: float = math.inf
    ) -> None:
        """Goes on with the searches that save RAM in one way only, which are smaller."""
        search = self.search
        for single in list(self.single):
            if search.finished:
                return
            single.within(search.part(share, most))
            step(single)
            if single.better_than(search):
                way = "recomputing" if single.instance.remat else "paging"
                self._take(single, f"{way} only")
                search.note(f"schedule {search.energy_nj} nJ {way} only")
            if step is portfolio and single.remaining > 0:
                self.single.remove(single)

    def _take(self, found: Search, name: str) -> None:
        """Takes what another search has found for the given order, and goes on from there."""
        self.given.offer(found.events, name)
        if found.better_than(self.search) and found.steps is not None:
            self.best = self.given
            self.search.adopt(found.steps, self.given.bound_nj)

    def _quietly(self, share: float, lane: _Lane, step: Callable[[Search], bool | None]) -> bool:
        """Runs a step like `within`; what it notes is kept only if it finds something better."""
        log, before = list(self.search.log), self.search.energy_nj
        proven = self.within(share, lane, step)
        if self.search.energy_nj >= before:
            self.search.log = log
        return proven

    def _search(self) -> bool:
        """The main part of the search, as `run`."""
        if self.search.instance.problem.ram_bytes is None:
            return self.within(1.0, self.given, portfolio)
        given, problem = self.given, self.search.instance.problem
        assert problem.ram_bytes is not None
        if bounds.ram_needed(self.search.instance)[0] > problem.ram_bytes:
            return self._in_further_orders(proven=True)
        if self.small or self.paging:
            # With page-ins another order seldom saves much, and its bound takes long.
            proven = self.within(self.params.given_share, given, self._begin)
            if first.in_time(self.search):
                return True
            if proven or given.optimal:
                return self._in_further_orders(proven)
        else:
            self.within(self.params.first_share, given, first.first_schedules)
            if not self.search.finished:
                self._construct()
        self._others()
        self._polish()
        if self.best is not given:
            # The bound is the lesser of those of both.
            bounding = improve if self.paging else relaxation
            if not self.small:
                self.within(self.params.other_bound_share, given, bounding)
        proven = self.within(1.0, self.best, improve)
        if proven and self.best is given:
            return self._in_further_orders(proven)
        return False

    def _begin(self, lane: Search) -> bool:
        """Begins the search in the given order. In large problems with a schedule nearly
        all of the effort is for its bound."""
        first.first_schedules(lane)
        if self.small:
            repaired = functools.partial(first.repaired, share=1.0)
            self._one_way(self.params.single_share, repaired, self.params.single_work)
        if not self.tiny and not self.search.finished:
            self._construct()
        if not self.small and lane.steps is not None:
            lane.within(self.search.part(self.params.begin_share))
        return improve(lane, briefly=True)

    def _in_further_orders(self, proven: bool) -> bool:
        """Goes on where the given order is settled: it has no schedule, if that is `proven`, or one
        within the gap of its optimum. True when there is none in any order that is tried."""
        search = self.search
        if proven:
            self.given.bound_nj = math.inf
        self.further(self.params.further_share)
        if search.steps is None:
            return True
        if not self.tiny and self.best is not self.given:
            self.best.ceiling_nj = math.inf
            self.within(1.0, self.best, improve)
        return False

    def further(self, share: float, most: float = math.inf, more: bool = False) -> None:
        """Looks for something better in one order after another, `more` than it found worth it."""
        search, problem = self.search, self.search.instance.problem
        if not self.params.neighbours:
            return
        effort = search.part(share, most)
        solved = self.tiny and not search.instance.has_variants
        gap = 0.0 if solved else min(search.gap, 1.0)
        tries = self.params.further_least
        if solved:
            enough = self.params.further_recomputes // max(search.instance.recomputes, 1)
            tries = max(tries, min(self.params.further_most, enough))
        for count, order in enumerate(self.untried):
            least = search.energy_nj * (1 - max(gap, TOLERANCE)) <= search.instance.base_energy
            if least or search.content or count >= tries or search.stop.is_set():
                return
            if effort.over:
                if more:
                    return
                search.note(f"the effort ends the search in other orders after {count} of {tries}")
                return
            lane = self._lane(order)
            if bounds.ram_needed(lane.instance)[0] > (problem.ram_bytes or 0):
                continue
            # Variants are worth what is saved clearly.
            margin = gap if search.instance.has_variants else self.margin
            lane.ceiling_nj = search.energy_nj * (1 - margin)
            lane.within(effort)
            lane.gap = gap
            begin, before = len(lane.log), search.energy_nj
            if not self.tiny:
                first.first_schedules(lane)
            if self.small and (self.tiny or (lane.steps is None and search.steps is None)):
                improve(lane)
            if search.energy_nj < before:
                self.frontier.prefer(order)
                search.log += lane.log[begin:]

    def _others(self) -> None:
        """First schedules in other orders."""
        search = self.search
        effort = search.part(self.params.orders_share).unless(lambda: search.optimal)
        lanes: list[_Lane] = []
        for order in orders(search.instance, effort, 2 if self.params.reorder else 0):
            lanes.append(self._lane(order))
            if not search.finished:
                self.within(self.params.first_share, lanes[-1], first.first_schedules)
        for lane in (*lanes, self.given):
            if search.steps is None and self.params.gradual:
                self.within(
                    self.params.first_share, lane, lambda lane: first.repaired(lane, gradually=True)
                )

    def _polish(self) -> None:
        """Changes the best order and its recomputes together."""
        search, best = self.search, self.best
        if not self.params.polish or best.steps is None:
            return
        if any(isinstance(event, Load) for event in best.events):
            return
        effort = search.part(self.params.polish_share).unless(lambda: search.optimal)
        seed = 0

        def found(order: tuple[int, ...], events: list[Event]) -> None:
            lane = self._lane(order)
            lane.offer(events, "recomputes and order")
            search.log += lane.log

        # Each round begins with the best so far.
        while not effort.over and len(self.best.events) > search.instance.n:
            polish(search.instance, self.best.order, self.best.events, found, effort, seed)
            seed += 1

    def within(self, share: float, lane: _Lane, step: Callable[[Search], bool | None]) -> bool:
        """Runs a step of the search in one order, with a share of the remaining effort."""
        search = self.search
        if search.finished:
            return False
        # Without any schedule the first steps get more time.
        share = max(share, self.params.haste_share) if search.steps is None else share
        lane.within(search.part(share))
        impatient = search.impatient
        lane.patience_s = search.patience_s if impatient else math.inf
        lane.patient_until = search.patient_until if impatient else math.inf
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
            instance = dataclasses.replace(instance, problem=permuted(instance.problem, order))

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

        search.clock.work += LANE * instance.n
        lane = _Lane(instance, 0.0, search.gap, progress, clock=search.clock)
        lane.follow(search)
        lane.within(search.part())
        lane.enough_nj = search.enough_nj
        lane.bound_nj = instance.base_energy
        lane.order = order
        return lane


def _without_deadline(orders: _Orders) -> bool:
    """Begins with the problem without its deadline, whose bound holds here, too, and whose schedule
    is often in time; True when even that provably has no schedule."""
    search, instance = orders.search, orders.search.instance
    problem = dataclasses.replace(instance.problem, deadline_ns=None)
    if problem == instance.problem or not search.params.relaxed:
        return False
    free = dataclasses.replace(instance, problem=problem)
    relaxed = search.inner(free, search.part(search.params.relaxed_share))
    relaxed.counted = True
    if several_orders(relaxed):
        return True
    orders.given.raise_bound(relaxed.bound_nj)
    events, order = _in_own_order(relaxed)
    if relaxed.report is not None:
        search.fastest_ns = relaxed.report.makespan_ns
        lane = orders.given if order == list(range(instance.n)) else orders._lane(order)
        lane.raise_bound(relaxed.bound_nj)
        lane.offer(events, "without the deadline")
        search.log += lane.log
    return False


def _repair(search: Search, seed: int) -> None:
    """Repairs with other random numbers, and gradually now and then."""
    gradually = search.params.gradual and seed % 3 == 0
    first.repaired(search, gradually=gradually, share=1.0, seed=seed)


def _windows(search: Search, seed: int) -> None:
    windows(search, Guide(), 1.0, seed=seed)


def _solved(lane: Search) -> bool:
    """Whether the whole model has come to its end in this order (`_whole`)."""
    return lane.relative_gap <= max(lane.gap * WHOLE_GAP, TOLERANCE)


def _whole(search: Search) -> bool:
    """The whole model, to a gap that leaves room for what bounds say of other orders."""
    if search.instance.recomputes > search.params.small:
        return improve(search)
    return exact(search, gap=search.gap * WHOLE_GAP)
