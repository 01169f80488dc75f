"""Least RAM and fastest time of a problem, and the errors that report them."""

from __future__ import annotations

import dataclasses
import math
import threading
from dataclasses import dataclass

from poetc.schedule import bounds
from poetc.schedule.baselines import keep_all
from poetc.schedule.checker import Report, replay
from poetc.schedule.errors import InfeasibleProblem, ScheduleError
from poetc.schedule.greedy import greedy, tastes
from poetc.schedule.highs import solve_mip
from poetc.schedule.instance import Instance
from poetc.schedule.milp import SlotModel, all_slots
from poetc.schedule.problem import Compute, Problem, Step
from poetc.schedule.rebuild import Event, rebuild
from poetc.schedule.search import TOLERANCE, Search

# Seconds that may be spent on finding the number for an error message, and the least of them when
# the time limit is near.
SECONDS = 5.0
LEAST_SECONDS = 1.0
# Optional slots beyond which the exact models are not tried for an error message.
EXACT_SLOTS = 2_000


@dataclass(frozen=True)
class Least:
    """The least of something: `known` is reached by a checked schedule (None: none found), `bound`
    is proven necessary; `operation` is the one that needs it (None: the start or the end)."""

    known: int | None
    bound: int
    operation: int | None = None


def _variant(instance: Instance, **changes) -> Instance:
    return dataclasses.replace(instance, problem=dataclasses.replace(instance.problem, **changes))


def _try(instance: Instance, events: list[Event] | None) -> tuple[Report, tuple[Step, ...]] | None:
    if events is None:
        return None
    steps = rebuild(instance, events)
    try:
        return replay(instance.problem, steps), steps
    except ScheduleError:
        return None


def least_ram(instance: Instance, seconds: float = SECONDS) -> Least:
    """The least RAM with which there is a schedule; the deadline is left aside."""
    free = _variant(instance, ram_bytes=None, deadline_ns=None)
    bound, operation = bounds.ram_needed(free)
    search = Search(free, seconds, 0.0)
    best: tuple[Report, tuple[Step, ...]] | None = None

    def offer(events: list[Event] | None) -> bool:
        nonlocal best
        found = _try(free, events)
        if found and (best is None or found[0].peak_bytes < best[0].peak_bytes):
            best = found
            return True
        return False

    offer(keep_all.sequence(free))
    for taste in tastes(free):
        low, high = bound, best[0].peak_bytes if best else 2 * sum(t.bytes for t in free.tensors)
        while low < high and search.remaining > seconds / 2:
            middle = (low + high) // 2
            if offer(greedy(free, middle, taste)):
                assert best is not None
                high = min(middle, best[0].peak_bytes)
            else:
                low = middle + 1
    if best is None or best[0].peak_bytes > bound:
        slots = all_slots(free)
        exact = len(slots) <= EXACT_SLOTS
        if exact:
            model = SlotModel(free, slots, minimise="ram")
            model.lp.lower[model.ram] = math.ceil(bound / free.unit)
            outcome = solve_mip(
                model.lp,
                search.remaining,
                threading.Event(),
                on_point=lambda x: offer(model.sequence(x)),
            )
            if outcome.x is not None:
                offer(model.sequence(outcome.x))
            if outcome.bound > 0 and math.isfinite(outcome.bound):
                # The model counts whole units; less than one more than the last but one is not
                # ruled out.
                proven = (math.ceil(outcome.bound - 1e-6) - 1) * free.unit + 1
                bound = max(bound, proven if _odd_workspace(free) else proven + free.unit - 1)
    if best is None:
        return Least(None, bound, operation)
    report, steps = best
    if report.peak_bytes > bound:
        step = steps[report.peak_step] if report.peak_step is not None else None
        operation = step.operation if isinstance(step, Compute) else operation
    return Least(report.peak_bytes, min(bound, report.peak_bytes), operation)


def _odd_workspace(instance: Instance) -> bool:
    return any(o.workspace_bytes % instance.unit for o in instance.operations)


def fastest(instance: Instance, seconds: float = SECONDS) -> Least:
    """The shortest makespan with the problem's RAM and storage."""
    free = _variant(instance, deadline_ns=None)
    search = Search(free, seconds, 0.0)
    bound = free.base_time_ns
    best: int | None = None

    def offer(events: list[Event] | None) -> None:
        nonlocal best
        found = _try(free, events)
        if found and (best is None or found[0].makespan_ns < best):
            best = found[0].makespan_ns

    offer(keep_all.sequence(free))
    hurried = _variant(free, deadline_ns=bound)
    limit = free.problem.ram_bytes
    for taste in tastes(hurried):
        if search.remaining > seconds / 2:
            offer(greedy(hurried, math.inf if limit is None else limit, taste))
    if best is None or best > bound:
        slots = all_slots(free)
        if len(slots) <= EXACT_SLOTS:
            model = SlotModel(free, slots, minimise="time")
            outcome = solve_mip(
                model.lp,
                search.remaining,
                search.stop,
                on_point=lambda x: offer(model.sequence(x)),
            )
            if outcome.x is not None:
                offer(model.sequence(outcome.x))
            if math.isfinite(outcome.bound):
                value = model.value(outcome.bound)
                bound = max(bound, math.ceil(value - TOLERANCE / 4 * max(value, 1.0)))
    return Least(best, bound if best is None else min(bound, best))


def refuse_hopeless(search: Search) -> None:
    """Raises `InfeasibleProblem` where that needs no search."""
    instance, problem = search.instance, search.instance.problem
    ram, deadline = problem.ram_bytes, problem.deadline_ns
    if ram is not None and bounds.ram_needed(instance)[0] > ram:
        _refuse_ram(search)
    if deadline is not None and instance.base_time_ns > deadline:
        _refuse_deadline(search)
    if problem.storage_bytes is not None and instance.pages_of_end() > problem.storage_bytes:
        raise InfeasibleProblem(
            f"{problem.storage_bytes} bytes of storage are less than the {instance.pages_of_end()} "
            "that start or must end there"
        )


def refuse(search: Search, strategy: str) -> None:
    """Raises `InfeasibleProblem` for a problem that `strategy` has proven to have no schedule."""
    instance, problem = search.instance, search.instance.problem
    if strategy == "keep-all":
        _refuse_keep_all(search)
    if strategy == "poet":
        raise InfeasibleProblem("the model of strategy poet has no schedule within these limits")
    if problem.deadline_ns is not None:
        least = least_ram(instance, _seconds(search))
        if problem.ram_bytes is None or (least.known or math.inf) <= problem.ram_bytes:
            _refuse_deadline(search)
    _refuse_ram(search)


def _refuse_keep_all(search: Search) -> None:
    free = _variant(search.instance, ram_bytes=None, deadline_ns=None, storage_bytes=None)
    report = replay(free.problem, rebuild(free, keep_all.sequence(free)))
    deadline = search.instance.problem.deadline_ns
    if deadline is not None and report.makespan_ns > deadline:
        raise InfeasibleProblem(
            f"keep-all takes {report.makespan_ns} ns, the deadline is {deadline} ns",
            fastest_ns=report.makespan_ns,
            time_bound_ns=report.makespan_ns,
        )
    raise InfeasibleProblem(
        f"keep-all needs {report.peak_bytes} bytes of RAM, not {search.instance.problem.ram_bytes}",
        least_ram_bytes=report.peak_bytes,
        ram_bound_bytes=report.peak_bytes,
    )


def _seconds(search: Search) -> float:
    return min(SECONDS, max(LEAST_SECONDS, search.remaining))


def _who(problem: Problem, operation: int | None) -> str:
    if operation is None:
        return "what must be in RAM at the start or the end"
    return f"operation {problem.operations[operation].name}"


def _refuse_ram(search: Search) -> None:
    problem = search.instance.problem
    least = least_ram(search.instance, _seconds(search))
    if least.known is None:
        needs = f"at least {least.bound} bytes are needed"
        if problem.storage_bytes is not None:
            needs += f", and more storage than {problem.storage_bytes} bytes"
    elif least.known == least.bound:
        needs = f"the least that works is {least.known} bytes"
    else:
        needs = f"{least.known} bytes work, less than {least.bound} do not"
    raise InfeasibleProblem(
        f"{problem.ram_bytes} bytes of RAM are too few: {needs} "
        f"(for {_who(problem, least.operation)})",
        least_ram_bytes=least.known,
        ram_bound_bytes=least.bound,
        operation=least.operation,
    )


def _refuse_deadline(search: Search) -> None:
    problem = search.instance.problem
    least = fastest(search.instance, _seconds(search))
    if least.known is None:
        needs = f"at least {least.bound} ns are needed"
    elif least.known == least.bound:
        needs = f"the fastest possible is {least.known} ns"
    else:
        needs = f"{least.known} ns are possible, less than {least.bound} are not"
    raise InfeasibleProblem(
        f"the deadline of {problem.deadline_ns} ns is too short: {needs}",
        fastest_ns=least.known,
        time_bound_ns=least.bound,
    )
