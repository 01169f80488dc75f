"""Least RAM and fastest time of a problem, and the errors that report them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from poetc.schedule.exact import bounds, machine
from poetc.schedule.exact.highs import solve_mip
from poetc.schedule.exact.milp import SlotModel
from poetc.schedule.exact.points import sequence
from poetc.schedule.exact.slots import all_slots
from poetc.schedule.heuristics.anneal import annealed
from poetc.schedule.heuristics.greedy import greedy, priorities
from poetc.schedule.heuristics.reorder import Frontier, permuted, renamed
from poetc.schedule.heuristics.repair import repair, squeeze
from poetc.schedule.heuristics.streaming import stream
from poetc.schedule.model import keep_all
from poetc.schedule.model.checker import Report, replay
from poetc.schedule.model.clock import Effort
from poetc.schedule.model.errors import InfeasibleProblem, ScheduleError, SolverTimeLimit
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Compute, Problem, Step
from poetc.schedule.model.rebuild import Event, rebuild
from poetc.schedule.params import DEFAULTS
from poetc.schedule.search.milps import BUILD
from poetc.schedule.search.state import OFFER, TOLERANCE, Search

# Price of a recompute where a page-in costs 1 nJ.
RECOMPUTE_NJ = 4


@dataclass(frozen=True)
class Least:
    """The least of something: `known` is reached by a checked schedule (None: none found), less
    than `bound` by none, less than `order_bound` by none in the given order of the operations.
    `operation` is the one that needs it (None: the start or the end)."""

    known: int | None
    bound: int
    order_bound: int
    operation: int | None = None
    steps: tuple[Step, ...] | None = field(default=None, repr=False, compare=False)


def _variant(instance: Instance, **changes) -> Instance:
    return dataclasses.replace(instance, problem=dataclasses.replace(instance.problem, **changes))


def _try(
    search: Search, instance: Instance, events: list[Event] | None
) -> tuple[Report, tuple[Step, ...]] | None:
    if events is None:
        return None
    steps = rebuild(instance, events)
    search.clock.work += OFFER * len(steps)
    try:
        return replay(instance.problem, steps), steps
    except ScheduleError:
        return None


def least_ram(
    instance: Instance, seconds: float = DEFAULTS.message_s, other_orders: bool = True
) -> Least:
    """The least RAM with which there is a schedule, whatever it costs; the deadline is left aside.

    With `other_orders` the schedule may be in another order. It is the same whatever energy and
    time things take, but for what the clock cuts short.
    """
    params = instance.params
    given = _without_costs(instance)
    bound, operation = bounds.ram_needed_in_any_order(given)
    order_bound = max(bound, bounds.ram_needed(given)[0])
    search = _LeastRam(given, bound, seconds)
    order_bound = max(order_bound, search.within(given, params.least_order_share) or 0)
    if search.known > bound and other_orders:
        tiny = given.recomputes <= params.exact_most // 10
        for count, order in enumerate(Frontier(given.problem)):
            if (
                count >= (params.least_orders if tiny else params.least_few_orders)
                or search.late
                or search.known <= bound
            ):
                break
            other = dataclasses.replace(given, problem=permuted(given.problem, order))
            if bounds.ram_needed(other)[0] < search.known:
                search.within(other, params.least_order_share, order)
    if search.report is None:
        return Least(None, bound, order_bound, operation)
    known = search.report.peak_bytes
    if known > bound:
        at = search.report.peak_step
        step = None if at is None else search.steps[at]
        operation = step.operation if isinstance(step, Compute) else operation
    return Least(known, bound, order_bound, operation, search.steps)


def _without_costs(instance: Instance) -> Instance:
    """Without limits of RAM and time, and the same costs on every device. Page-ins are cheap, as
    they take no room beside that of their tensor."""
    problem = instance.problem
    paging = {"pagein_time_ns": 0, "pagein_energy_nj": 1, "pageout_time_ns": 0}
    return _variant(
        instance,
        operations=tuple(
            dataclasses.replace(
                o,
                energy_nj=RECOMPUTE_NJ,
                time_ns=0,
                variants=tuple(
                    dataclasses.replace(v, energy_nj=RECOMPUTE_NJ, time_ns=0, bus_ns=0)
                    for v in o.variants
                ),
            )
            for o in problem.operations
        ),
        tensors=tuple(
            dataclasses.replace(t, pageout_energy_nj=0, **paging) for t in problem.tensors
        ),
        ram_bytes=None,
        deadline_ns=None,
        dma=False,
        idle_power_nw=0,
    )


class _LeastRam:
    """The schedule of least RAM that has been found, in any of several orders."""

    def __init__(self, given: Instance, bound: int, seconds: float) -> None:
        self.given, self.bound = given, bound
        self.search = Search(given, seconds, 0.0)
        self.report: Report | None = None
        self.steps: tuple[Step, ...] = ()

    @property
    def known(self) -> float:
        return math.inf if self.report is None else self.report.peak_bytes

    @property
    def late(self) -> bool:
        return self.search.remaining <= 0

    def within(
        self, instance: Instance, share: float, order: Sequence[int] | None = None
    ) -> int | None:
        """Looks for less in one order, for a share of the remaining effort. What is proven about
        that order, or None."""
        search, params = self.search, instance.params
        effort = search.part(share)

        def offer(events: list[Event] | None) -> bool:
            found = _try(search, instance, events)
            if found is None or found[0].peak_bytes >= self.known:
                return False
            self.report, steps = found
            self.steps = steps if order is None else tuple(renamed(s, order) for s in steps)
            return True

        offer(keep_all.sequence(instance))
        offer(keep_all.paging_all(instance))
        if instance.has_variants:
            self._stream(instance, offer)
        if self.known <= self.bound:
            return None
        exact = instance.recomputes <= params.exact_most
        share = params.least_repair_share if exact else params.least_repair_alone_share
        squeeze(instance, self.bound, offer, effort.part(share))
        kinds = list(priorities(instance))
        for number, priority in enumerate(kinds):
            share = params.least_greedy_share if exact else 1.0
            trying = effort.part(share / (len(kinds) - number))
            low, high = self.bound, min(self.known, 2 * sum(t.bytes for t in instance.tensors))
            while low < high and not trying.over:
                middle = int(low + high) // 2
                if offer(greedy(instance, middle, priority, trying)):
                    high = min(middle, self.known)
                else:
                    low = middle + 1
        if self.known <= self.bound or not exact:
            return None
        model = SlotModel(instance, all_slots(instance), minimise="ram")
        effort.spend(BUILD * len(model.slots))
        model.lp.lower[model.ram] = math.ceil(self.bound / instance.unit)
        outcome = solve_mip(
            model.lp,
            effort,
            on_point=lambda x: offer(sequence(model, x)),
        )
        if outcome.x is not None:
            offer(sequence(model, outcome.x))
        if outcome.bound <= 0 or not math.isfinite(outcome.bound):
            return None
        # The model counts whole units; less than one more than the last but one is not ruled out.
        proven = (math.ceil(outcome.bound - 1e-6) - 1) * instance.unit + 1
        return proven if _odd_workspace(instance) else proven + instance.unit - 1

    def _stream(self, instance: Instance, offer: Callable[[list[Event]], bool]) -> None:
        """Looks for less by the ways to run operations; everything is streamed or paged."""
        low, high = self.bound, min(self.known, 2 * sum(t.bytes for t in instance.tensors))
        while low < high and not self.late:
            # Where no operation needs what is kept for others, the bound is enough.
            middle = low if low == self.bound else int(low + high) // 2
            known = self.known
            stream(instance, middle, offer, Effort(0.0, self.search.clock))
            if self.known < known:
                high = min(middle, self.known)
            else:
                low = middle + 1


def _odd_workspace(instance: Instance) -> bool:
    ways = (way for ways in instance.ways for way in ways.values())
    return any(way.workspace_bytes % instance.unit for way in ways)


def fastest(instance: Instance, seconds: float = DEFAULTS.message_s) -> Least:
    """The shortest makespan with the problem's RAM and storage."""
    params = instance.params
    free = _variant(instance, deadline_ns=None)
    search = Search(free, seconds, 0.0)
    bound = needed = bounds.time_needed(free)
    best: int | None = None

    def offer(events: list[Event] | None) -> None:
        nonlocal best
        found = _try(search, free, events)
        if found and (best is None or found[0].makespan_ns < best):
            best = found[0].makespan_ns

    offer(keep_all.sequence(free))
    hurried = _variant(free, deadline_ns=bound)
    limit = free.problem.ram_bytes
    if limit is not None and (best is None or best > bound):
        repair(
            free,
            limit,
            offer,
            search.part(params.least_repair_share),
            time_weight=1e3 * max(free.base_energy, 1.0) / max(bound, 1),
        )
    if free.problem.dma and params.anneal and (best is None or best > bound):
        steps = annealed(free, search.part(params.anneal_share))
        if steps is not None:
            taken_ns = replay(free.problem, steps).makespan_ns
            best = taken_ns if best is None else min(best, taken_ns)
    for priority in priorities(hurried):
        trying = search.part(params.least_greedy_share)
        if (best is None or best > bound) and not trying.over:
            offer(greedy(hurried, math.inf if limit is None else limit, priority, trying))
    if (best is None or best > bound) and free.recomputes <= params.exact_most:
        model = SlotModel(free, all_slots(free), minimise="time", overlap=True)
        search.clock.work += BUILD * len(model.slots)
        outcome = solve_mip(
            model.lp,
            search.part(),
            on_point=lambda x: offer(sequence(model, x)),
        )
        if outcome.x is not None:
            offer(sequence(model, outcome.x))
        if math.isfinite(outcome.bound):
            value = model.value(outcome.bound)
            bound = max(bound, math.ceil(value - TOLERANCE / 4 * max(value, 1.0)))
    # Only what is needed without a model holds in any order.
    order_bound = bound if best is None else min(bound, best)
    return Least(best, min(order_bound, needed), order_bound)


def refuse_hopeless(search: Search, in_order: bool = True) -> None:
    """Raises `InfeasibleProblem` where that needs no search; with `in_order` also where that is
    proven for the given order of the operations only."""
    instance, problem, params = search.instance, search.instance.problem, search.params
    ram, deadline = problem.ram_bytes, problem.deadline_ns
    needed = bounds.ram_needed if in_order else bounds.ram_needed_in_any_order
    if ram is not None and needed(instance)[0] > ram:
        small = instance.recomputes <= params.exact_most
        _refuse_ram(search, least_ram(instance, params.hopeless_s, other_orders=small))
    if deadline is not None and bounds.time_needed(instance) > deadline:
        _refuse_deadline(search, params.hopeless_s)
    if problem.storage_bytes is not None and instance.pages_of_end() > problem.storage_bytes:
        raise InfeasibleProblem(
            f"{problem.storage_bytes} bytes of storage are less than the {instance.pages_of_end()} "
            "that start or must end there"
        )


def refuse(search: Search, strategy: str) -> None:
    """Raises `InfeasibleProblem` for a problem that `strategy` has proven to have no schedule in
    the given order. If a schedule in another one turns up, `auto` gets it instead."""
    instance, problem = search.instance, search.instance.problem
    if strategy == "keep-all":
        _refuse_keep_all(search)
    if strategy == "poet":
        message = "the model of strategy poet has no schedule within these limits"
        raise InfeasibleProblem(message, any_order=False)
    least = least_ram(instance, _seconds(search))
    enough = problem.ram_bytes is None or (least.known or math.inf) <= problem.ram_bytes
    if enough and problem.deadline_ns is not None:
        any_order = search.none_in_time
        if strategy == "auto" and problem.dma and search.params.machine and not any_order:
            # A proof is of use however soon others want the time, but they get most of it.
            left = search.until - search.clock.work
            if search.patient_until < math.inf:
                left = min(left * search.params.machine_share, search.params.machine_work)
            effort = Effort(left, search.clock, lambda: search.seconds >= search.time_limit_s)
            found = machine.in_time(instance, effort.unless(search.stop.is_set))
            if found.steps is not None:
                search.adopt(found.steps, instance.base_energy)
                return
            any_order = found.proven
        _refuse_deadline(search, _seconds(search), any_order)
    if enough and strategy == "auto" and least.steps is not None:
        search.adopt(least.steps, instance.base_energy)
        return
    _refuse_ram(search, least)


def unsettled(search: Search) -> SolverTimeLimit:
    """The error for a search that ended with neither a schedule nor a proof, and what is known."""
    instance, problem = search.instance, search.instance.problem
    message = (
        f"the search ended after {search.seconds:.1f} s without a schedule, and without a proof "
        "that there is none"
    )
    time_bound_ns = bounds.time_needed(instance)
    if problem.ram_bytes is None:
        return SolverTimeLimit(message, time_bound_ns=time_bound_ns, bound_nj=search.proven_nj)
    least = least_ram(instance, search.params.last_s, other_orders=False)
    aside = ", the deadline left aside," if problem.deadline_ns is not None else ""
    known = f"{least.known} bytes of RAM are enough{aside} and " if least.known is not None else ""
    return SolverTimeLimit(
        f"{message}; {known}less than {least.bound} bytes of RAM are not enough",
        least_ram_bytes=least.known,
        ram_bound_bytes=least.bound,
        time_bound_ns=time_bound_ns,
        bound_nj=search.proven_nj,
    )


def _refuse_keep_all(search: Search) -> None:
    free = _variant(search.instance, ram_bytes=None, deadline_ns=None, storage_bytes=None)
    report = replay(free.problem, rebuild(free, keep_all.sequence(free)))
    deadline = search.instance.problem.deadline_ns
    if deadline is not None and report.makespan_ns > deadline:
        raise InfeasibleProblem(
            f"keep-all takes {report.makespan_ns} ns, the deadline is {deadline} ns",
            fastest_ns=report.makespan_ns,
            time_bound_ns=report.makespan_ns,
            any_order=False,
        )
    raise InfeasibleProblem(
        f"keep-all needs {report.peak_bytes} bytes of RAM, not {search.instance.problem.ram_bytes}",
        least_ram_bytes=report.peak_bytes,
        ram_bound_bytes=report.peak_bytes,
        any_order=False,
    )


def _seconds(search: Search) -> float:
    params = search.params
    left_s = search.remaining / search.clock.pace
    return min(params.message_s, max(params.hopeless_s, left_s * params.message_share))


def _who(problem: Problem, operation: int | None) -> str:
    if operation is None:
        return "what must be in RAM at the start or the end"
    return f"operation {problem.operations[operation].name}"


IN_ORDER = "in this order of the operations"


def _needs(least: Least, unit: str, limit: int, least_word: str) -> tuple[str, str]:
    """How a refusal goes on: for which orders it is proven, and what is needed."""
    if least.bound > limit:
        if least.known == least.bound:
            return "", f"{least_word} {least.known} {unit}"
        if least.known is None:
            return "", f"at least {least.bound} {unit} are needed"
        return "", f"{least.known} {unit} are enough, less than {least.bound} are not"
    place = f" {IN_ORDER}"
    if least.known is None:
        # Not less than what has been refused.
        return place, f"at least {max(least.order_bound, limit + 1)} {unit} are needed"
    if least.known <= limit:
        return place, f"in another order {least.known} {unit} are enough"
    if least.known <= least.order_bound:
        return place, f"{least.known} {unit} are enough"
    return place, f"{least.known} {unit} are enough, less than {least.order_bound} are not"


def _refuse_ram(search: Search, least: Least) -> None:
    problem = search.instance.problem
    limit = problem.ram_bytes
    assert limit is not None
    place, needs = _needs(least, "bytes", limit, "the least that works is")
    if least.known is None and problem.storage_bytes is not None:
        needs += f", or more storage than {problem.storage_bytes} bytes"
    any_order = least.bound > limit
    raise InfeasibleProblem(
        f"{limit} bytes of RAM are too few{place}: {needs} (for {_who(problem, least.operation)})",
        least_ram_bytes=least.known,
        ram_bound_bytes=least.bound if any_order else max(least.order_bound, limit + 1),
        operation=least.operation,
        any_order=any_order,
    )


def _refuse_deadline(search: Search, seconds: float, in_any_order: bool = False) -> None:
    """Raises the error for a deadline that is missed; with `in_any_order` that is proven."""
    problem = search.instance.problem
    limit = problem.deadline_ns
    assert limit is not None
    least = fastest(search.instance, seconds)
    known = [ns for ns in (least.known, search.fastest_ns) if ns is not None]
    least = dataclasses.replace(least, known=min(known, default=None))
    if in_any_order:
        least = dataclasses.replace(least, bound=max(least.bound, limit + 1))
    place, needs = _needs(least, "ns", limit, "the fastest possible is")
    any_order = least.bound > limit
    raise InfeasibleProblem(
        f"the deadline of {limit} ns is too short{place}: {needs}",
        fastest_ns=least.known,
        time_bound_ns=least.bound if any_order else max(least.order_bound, limit + 1),
        any_order=any_order,
    )
