"""poet-schedule: decides what is kept in RAM, recomputed or paged, and writes it into the graph.

The graph becomes a scheduling problem (`ir/graph.py`), the problem is solved (`schedule/`), the
schedule is checked, and the graph is rewritten to it. `schedule_and_plan` does that together with
the transfer and memory planners, and schedules again with less RAM where the arena does not fit.

With `params=storage` parameters are on auxiliary storage between steps: those arguments and the
results that update them become pages. `params=auto` looks for schedules both ways, as far as the
second may be better than the first, and takes the one that uses less energy.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from xdsl.context import Context
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    Float64Type,
    FloatAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    i64,
)
from xdsl.passes import ModulePass

from poetc.budget import Deadline
from poetc.costmodel.device import (
    DEFAULT_WRITE_UNIT_BYTES,
    NO_CACHE_LINE_BYTES,
    Device,
    device_of,
)
from poetc.costmodel.predict import predicted_time_ns
from poetc.errors import InfeasibleError, InputError, TimeLimitError, Tried, UnscheduledError
from poetc.ir.graph import (
    ALIGN_BYTES,
    GraphView,
    MayShare,
    Storage,
    Transfer,
    graphs,
    view_scheduled,
    view_unscheduled,
    write_schedule,
)
from poetc.ir.poet import IO_PLACES, GraphOp
from poetc.ir.transfers import split_transfers
from poetc.options import OPTIONS, SEARCH, SearchOptions, default
from poetc.page import page_bytes
from poetc.passes.inplace import inplace_candidates
from poetc.passes.poet_plan_memory import ArenaOverflowError, write_memory_plan
from poetc.schedule import strategies
from poetc.schedule.arena.memory import MemoryPlan, plan_memory
from poetc.schedule.arena.relocate import ROUNDS, relocate
from poetc.schedule.heuristics.order import low_peak_order
from poetc.schedule.heuristics.reorder import permuted
from poetc.schedule.model.checker import Report, check, replay
from poetc.schedule.model.errors import (
    InfeasibleProblem,
    NoScheduleError,
    ScheduleError,
    SolverInterrupted,
    SolverTimeLimit,
    StrategyUndefinedError,
)
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Problem, Schedule, Step
from poetc.schedule.model.transfers import overlap_transfers, without_overlap
from poetc.schedule.search.state import TOLERANCE
from poetc.units import format_time

if TYPE_CHECKING:
    from poetc.schedule.solve import Progress

    ProgressCallback = Callable[[Progress], bool | None]

MAX_ATTEMPTS = 8
"""How often a graph is scheduled, with ever less RAM, until its arena fits."""

LEAST_TIME_S = 0.3
"""What the solver gets for another attempt when the time limit has passed in the first one."""

PACK_EFFORT = 1_000_000
"""Effort of `arena.pack` for each order of the transfers: to be within the RAM, and once more to
have no waste."""

WASTE_PRICE = 0.002
"""What it may cost, of the energy, that an arena has no more bytes than are alive at once."""

TIDY_ROUNDS = 300
"""Rounds of `relocate` for an arena that fits, but has more bytes than are alive at once."""

ARENA_SHARE, MOST_ARENA_S = 0.2, 5.0
"""Share of the time limit that the solver leaves to the search for an arena, and its most."""

MAX_LATE = 6
"""How often a step with a profile is scheduled again until what is predicted for it is in time."""

GRACE_S, GRACE_SHARE = 0.7, 0.07
"""The search for an arena ends so long after the time limit at the latest, or after that share of
it, whichever is more."""


@dataclass(frozen=True)
class ScheduleOptions(SearchOptions):
    """What to schedule for.

    `arena_bytes` None is no limit: the program order with frees. `deadline_ns` bounds the makespan.
    Without a `device` there is no auxiliary storage. `gap` is the optimality gap to stop at,
    relative to the energy. `params` is "ram", "storage", or "auto": where that takes less energy
    within the limits. `patience` is the share of the time limit after which a search without any
    schedule ends.
    """

    arena_bytes: int | None = None
    deadline_ns: int | None = None
    device: Device | None = None
    align: int = ALIGN_BYTES
    params: str = "ram"
    patience: float = 1.0


@dataclass(frozen=True)
class ScheduleReport:
    """What was decided for one graph, and what it costs.

    `use` is what the checker counted; `unlimited` the same for the program order with unlimited
    RAM, parameters in RAM, without recomputing or paging. `params` says where parameters are
    between steps: "ram" or "storage". `bound_nj`: no schedule within the limits uses less, with the
    parameters in any of the ways that were `tried`.
    `arena_bytes` is the RAM that it was scheduled for, less than asked where the arena would not
    have fitted otherwise; `attempts` counts the tries, `moves` the page-ins that are there only so
    that an arena fits. `memory` is None until memory is planned.
    `interrupted` says that the user stopped the search and this is the best that it had found.
    `predicted_ns` is what the step takes by the profile of the device, the places of pages taken
    into account; None without a profile, and before memory is planned.
    """

    problem: Problem
    steps: tuple[Step, ...]
    use: Report
    unlimited: Report
    bound_nj: int
    status: str
    strategy: str
    arena_bytes: int | None
    solve_s: float
    log: tuple[str, ...] = ()
    attempts: int = 1
    moves: int = 0
    memory: MemoryPlan | None = None
    interrupted: bool = False
    params: str = "ram"
    predicted_ns: int | None = None
    tried: tuple[Tried, ...] = ()

    @property
    def waste_bytes(self) -> int:
        """Bytes of the arena beyond the most that are alive at once; 0 before memory is planned."""
        return max(0, self.memory.arena_bytes - self.use.peak_bytes) if self.memory else 0

    @property
    def gap(self) -> float:
        """(energy − bound) / energy."""
        energy_nj = self.use.energy_nj
        return (energy_nj - self.bound_nj) / energy_nj if energy_nj else 0.0


def storage_of(device: Device) -> Storage | None:
    """The storage of `device`, None if it has none. A page is its tensor and a trailer."""
    from poetc.costmodel.cost import pagein_cost, pageout_cost

    if device.storage is None:
        return None

    def read(bytes: int) -> Transfer:
        return Transfer(*pagein_cost(page_bytes(bytes), device))

    def write(bytes: int) -> Transfer:
        return Transfer(*pageout_cost(page_bytes(bytes), device))

    # A processor that moves pages itself does so through its cache.
    line_bytes = device.cache_line_bytes if device.dma else NO_CACHE_LINE_BYTES
    return Storage(read, write, device.dma, line_bytes=line_bytes)


def problem_view(
    graph: GraphOp, options: ScheduleOptions, may_share: MayShare | None = None
) -> GraphView:
    """The scheduling problem of an unscheduled graph under `options`.

    For `params="auto"` it is that with parameters in RAM. With parameters on storage the operations
    are in the order that `poet-order{params=storage}` would give them. `may_share` saves proving
    again which results may take over which buffers.
    """
    limited = options.arena_bytes is not None or options.deadline_ns is not None
    missing = next((op for op in graph.computes if op.cost is None), None)
    if limited and missing is not None:
        raise InputError(
            f'poet.compute "{missing.label.data}" has no cost: poet-annotate comes before '
            "poet-schedule"
        )
    for name, limit in (("ram", options.arena_bytes), ("deadline", options.deadline_ns)):
        if limit is not None and limit <= 0:
            raise InputError(f"{name} must be more than zero, not {limit}")
    device = options.device
    store_params = options.params == "storage"
    if store_params and (device is None or device.storage is None):
        which = f"; {device.name} has none" if device else ", and no device is given"
        raise InputError(f"parameters on storage need a device with storage{which}")
    view = view_unscheduled(
        graph,
        storage=storage_of(device) if device else None,
        ram_bytes=options.arena_bytes,
        deadline_ns=options.deadline_ns,
        idle_power_nw=_idle_power_nw(device),
        align=options.align,
        ram_scope=options.ram_scope,
        store_params=store_params,
        may_share=may_share or inplace_candidates(graph),
    )
    if not store_params:
        return view
    # The graph was ordered for parameters that are always there.
    order = low_peak_order(view.problem)
    computes = tuple(view.computes[k] for k in order)
    return replace(view, problem=permuted(view.problem, order), computes=computes)


def schedule_graph(
    graph: GraphOp, options: ScheduleOptions, progress: ProgressCallback | None = None
) -> ScheduleReport:
    """Schedules a graph in place.

    `progress` is that of `schedule.solve`. On Ctrl-C the best schedule so far is used; without one
    `SolverInterrupted`, a KeyboardInterrupt, is raised. Raises InputError for a graph that cannot
    be scheduled, InfeasibleError when that is proven, and TimeLimitError when no schedule was found
    in time.
    """
    view, report = _choose(
        graph, options, progress, lambda scheduler: scheduler.solve(options.arena_bytes)
    )
    write_schedule(view, report.steps)
    _describe(graph, report, options)
    return report


def deadline_of(graph: GraphOp, deadline: Deadline | None) -> int | None:
    """A deadline in ns; the unlimited step runs each kernel once."""
    if deadline is None:
        return None
    return deadline.within_ns(sum(c.cost.time_ns for c in graph.computes if c.cost is not None))


def schedule_and_plan(
    graph: GraphOp, options: ScheduleOptions, progress: ProgressCallback | None = None
) -> ScheduleReport:
    """Schedules a graph in place, overlaps transfers and plans memory, so that the arena fits.

    Where the arena would exceed the RAM, transfers overlap less, then buffers move on the way, and
    then the graph is scheduled again for as much less RAM. Raises like `schedule_graph`, and
    ArenaOverflowError when no schedule whose arena fits was found.
    """
    view, report = _plan_in_time(graph, options, progress)
    assert report.memory is not None
    write_schedule(view, report.steps)
    placed = view_scheduled(graph, align=options.align)
    write_memory_plan(placed, report.memory, _unit_bytes(options))
    storage = storage_of(options.device) if options.device else None
    if storage is not None and storage.dma:
        timeline = split_transfers(graph, storage, options.align, options.deadline_ns)
        use = with_makespan(report.use, timeline.makespan_ns, report.problem.idle_power_nw)
        report = replace(report, use=use)
    _describe(graph, report, options)
    return report


def with_makespan(use: Report, makespan_ns: int, idle_power_nw: int) -> Report:
    """What the same steps use if they take another time."""

    def idle_nj(time_ns: int) -> int:
        return -(-idle_power_nw * time_ns // 10**9)

    energy_nj = use.energy_nj - idle_nj(use.makespan_ns) + idle_nj(makespan_ns)
    return replace(use, makespan_ns=makespan_ns, energy_nj=energy_nj)


def _plan_in_time(
    graph: GraphOp, options: ScheduleOptions, progress: ProgressCallback | None
) -> tuple[GraphView, ScheduleReport]:
    """A schedule with a memory plan. With a profile, what that predicts is within the deadline.

    The time of the solver is off by how pages lie in blocks, which only a plan tells. So it is
    asked for a deadline that is off as the last plan was, until a plan is in time.
    """
    device, deadline_ns = options.device, options.deadline_ns
    end_s = time.monotonic() + options.time_limit_s

    def attempt(limit_ns: int | None, left_s: float) -> tuple[GraphView, ScheduleReport]:
        asked = replace(options, deadline_ns=limit_ns, time_limit_s=left_s)
        view, report = _choose(graph, asked, progress, _Scheduler.solve_until_it_fits)
        if device is None or device.profile is None:
            return view, report
        assert report.memory is not None
        predicted_ns = predicted_time_ns(report.problem, report.steps, report.memory, device)
        problem = replace(report.problem, deadline_ns=deadline_ns)
        return view, replace(report, problem=problem, predicted_ns=predicted_ns)

    if device is None or device.profile is None or deadline_ns is None:
        return attempt(deadline_ns, options.time_limit_s)
    view, report = attempt(None, options.time_limit_s / 2)
    # What the solver is asked for: more than `low_ns`, for which there is none, up to `high_ns`.
    low_ns, high_ns = 0, report.use.makespan_ns - 1
    for turn in range(MAX_LATE + 1):
        predicted_ns, makespan_ns = report.predicted_ns, report.use.makespan_ns
        assert predicted_ns is not None
        if predicted_ns <= deadline_ns:
            return view, report
        left_s = end_s - time.monotonic()
        if turn == MAX_LATE or low_ns >= high_ns or left_s <= 0:
            break
        # The deadline, off as the last plan was; or half way between what is known.
        limit_ns = makespan_ns - predicted_ns + deadline_ns
        limit_ns = min(limit_ns, deadline_ns * makespan_ns // predicted_ns)
        if not low_ns < limit_ns <= high_ns:
            limit_ns = (low_ns + high_ns + 1) // 2
        try:
            view, report = attempt(limit_ns, left_s)
        except (InfeasibleError, TimeLimitError):
            if not device.profile.transfers.block_bytes:
                raise
            # With pages at other places in blocks there may be one.
            low_ns = limit_ns
        else:
            high_ns = report.use.makespan_ns - 1
    raise TimeLimitError(
        f"graph @{graph.sym_name.data}: by the profile, and with its pages where they are, the "
        f"last schedule found takes {format_time(predicted_ns)}, after the deadline"
    )


@dataclass
class _Way:
    """A place of the parameters, and what is known of it so far.

    `bound_nj`: no schedule uses less, inf where there is none. Is that all there is to say, it is
    `settled`.
    """

    view: GraphView
    params: str
    bound_nj: float
    report: ScheduleReport | None = None
    failure: UnscheduledError | None = None
    searched: bool = False
    settled: bool = False
    spent_s: float = 0.0

    @property
    def energy_nj(self) -> float:
        return math.inf if self.report is None else self.report.use.energy_nj

    @property
    def tried(self) -> Tried:
        energy_nj = None if self.report is None else self.report.use.energy_nj
        bound_nj = None if math.isinf(self.bound_nj) else int(self.bound_nj)
        return Tried(self.params, "", energy_nj, bound_nj, self.searched)


def _choose(
    graph: GraphOp,
    options: ScheduleOptions,
    progress: ProgressCallback | None,
    solve: Callable[[_Scheduler], ScheduleReport],
) -> tuple[GraphView, ScheduleReport]:
    """Solves with parameters where `options` want them; the view and what was found for it.

    For "auto" that is in RAM first. On storage is searched too, unless what is found first uses
    less than any schedule with them there; half of the time is left for that. What is cut short and
    may still be better is searched again in the time that is left in the end.
    """
    places = OPTIONS["params"].choices or ()
    if options.params not in places:
        raise InputError(f"params is {', '.join(places)}, not {options.params}")
    end_s = time.monotonic() + options.time_limit_s
    may_share = inplace_candidates(graph)
    in_ram = problem_view(graph, replace(options, params="ram"), may_share)
    reference = replace(in_ram.problem, ram_bytes=None, deadline_ns=None)
    unlimited = replay(reference, _keep_all(reference).steps)
    ways = _ways(graph, in_ram, options, may_share)
    interrupted: SolverInterrupted | None = None
    for turn, way in [(turn, way) for turn in range(2) for way in ways]:
        energy_nj = min(w.energy_nj for w in ways)
        left_s = end_s - time.monotonic()
        if way.settled or way.bound_nj >= energy_nj:
            continue
        if turn and (left_s <= way.spent_s or _good(energy_nj, way.bound_nj, options.gap)):
            continue
        others = [w.bound_nj for w in ways[ways.index(way) + 1 :] if not turn]
        scheduler = _Scheduler(
            way.view,
            replace(options, params=way.params),
            progress,
            unlimited,
            end_s,
            options.patience / (1 + len(others)),
            min(others, default=math.inf),
        )
        try:
            _search(way, scheduler, solve)
        except SolverInterrupted as stop:
            interrupted = stop
        if interrupted or (way.report is not None and way.report.interrupted):
            break
    best = min(ways, key=lambda way: way.energy_nj)
    if best.report is None and interrupted:
        raise interrupted
    if best.report is None:
        failures = [way.failure for way in ways]
        chosen = _neither(failures[0] if len(ways) > 1 else None, failures[-1])
        chosen.tried = tuple(way.tried for way in ways)
        raise chosen from chosen.__cause__
    report = replace(
        best.report,
        tried=tuple(way.tried for way in ways),
        interrupted=best.report.interrupted or interrupted is not None,
    )
    bounds = [way.tried.bound_nj for way in ways if way.tried.bound_nj is not None]
    return best.view, with_bound(report, min(bounds), options.gap)


def with_bound(report: ScheduleReport, bound_nj: int, gap: float) -> ScheduleReport:
    """`report` with a bound that holds for more than its own search."""
    report = replace(report, bound_nj=min(report.bound_nj, bound_nj))
    if report.status == "optimal" and not _good(report.use.energy_nj, report.bound_nj, gap):
        report = replace(report, status="feasible")
    return report


def _good(energy_nj: float, bound_nj: float, gap: float) -> bool:
    """Whether nothing that is left out may be better by more than the gap."""
    return energy_nj - bound_nj <= max(gap, TOLERANCE) * max(energy_nj, 1.0)


def _search(
    way: _Way, scheduler: _Scheduler, solve: Callable[[_Scheduler], ScheduleReport]
) -> None:
    """Searches one way, and notes in it what comes of that."""
    started_s = time.monotonic()
    way.searched = True
    try:
        found = solve(scheduler)
    except (InfeasibleError, TimeLimitError) as error:
        if way.report is None:
            way.failure = error
            # Also where that is proven for one order only: so are bounds.
            way.settled = isinstance(error.__cause__, InfeasibleProblem)
            way.bound_nj = math.inf if way.settled else max(way.bound_nj, scheduler.bound_nj)
    else:
        if found.use.energy_nj < way.energy_nj:
            way.report = found
        way.bound_nj = min(max(way.bound_nj, scheduler.bound_nj), way.energy_nj)
        way.settled = found.status == "optimal"
    way.spent_s = time.monotonic() - started_s


def _ways(
    graph: GraphOp, in_ram: GraphView, options: ScheduleOptions, may_share: MayShare
) -> list[_Way]:
    """Where parameters may be, in the order in which that is tried. What takes no search to see
    that it does not fit is settled, if there is another one."""
    stored = _stored(graph, options, may_share)
    ways = []
    if options.params != "storage":
        ways.append(_Way(in_ram, "ram", _instance(in_ram, options).least_energy_nj))
    if stored is not None:
        ways.append(_Way(stored, "storage", _instance(stored, options).least_energy_nj))
    if len(ways) > 1 and not _may_fit(in_ram, options):
        ways[0].bound_nj, ways[0].settled = math.inf, True
    return ways


def _stored(graph: GraphOp, options: ScheduleOptions, may_share: MayShare) -> GraphView | None:
    """The problem with parameters on storage, where they may or must be there."""
    asked = replace(options, params="storage")
    if options.params == "storage":
        return problem_view(graph, asked, may_share)
    device = options.device
    if (
        options.params != "auto"
        or options.arena_bytes is None
        or options.ram_scope != "all"
        or device is None
        or device.storage is None
        or all(graph.role(i) != "param" for i in range(len(graph.arguments)))
    ):
        return None
    try:
        return problem_view(graph, asked, may_share)
    except InputError:
        # They cannot be on storage, but nobody said that they must.
        return None


def _may_fit(view: GraphView, options: ScheduleOptions) -> bool:
    """False where it takes no search to see that the RAM is too little."""
    from poetc.schedule.exact.bounds import ram_needed_in_any_order

    needed, _ = ram_needed_in_any_order(_instance(view, options))
    return options.arena_bytes is None or needed <= options.arena_bytes


def _instance(view: GraphView, options: ScheduleOptions) -> Instance:
    return Instance(view.problem, remat=options.remat, paging=options.paging)


def _neither(in_ram: UnscheduledError | None, stored: UnscheduledError | None) -> UnscheduledError:
    """The error to raise when there is no schedule with parameters in RAM (None: by a bound) nor
    with them on storage.

    Whatever runs with parameters in RAM runs in as little RAM with them on storage: all are paged
    in before it and out after it. So what is proven about RAM on storage is proven for both. Only a
    deadline may be easier to meet with parameters in RAM.
    """
    assert stored is not None
    found = stored.__cause__
    about_time = isinstance(found, InfeasibleProblem) and found.ram_bound_bytes is None
    if in_ram is None or not about_time:
        return stored
    other = in_ram.__cause__
    if not isinstance(other, InfeasibleProblem):
        return in_ram
    if other.ram_bound_bytes is not None:
        return stored
    return min(in_ram, stored, key=_fastest_ns)


def _fastest_ns(error: UnscheduledError) -> float:
    found = error.__cause__
    assert isinstance(found, InfeasibleProblem)
    return min(
        math.inf if time_ns is None else time_ns
        for time_ns in (found.fastest_ns, found.time_bound_ns)
    )


class _Scheduler:
    """Solves one problem, possibly several times with less RAM, until `end_s` on the clock.

    `unlimited` is the program with unlimited RAM, for comparison. Without a schedule that uses at
    most `enough_nj` the search ends after the fraction `patience` of the time.
    """

    def __init__(
        self,
        view: GraphView,
        options: ScheduleOptions,
        progress: ProgressCallback | None,
        unlimited: Report,
        end_s: float,
        patience: float,
        enough_nj: float,
    ) -> None:
        self.view, self.options, self.progress = view, options, progress
        self.unlimited, self.enough_nj = unlimited, enough_nj
        started_s = time.monotonic()
        self.end_s = end_s
        self.patient_until_s = started_s + patience * (end_s - started_s)
        self.latest_s = end_s + max(GRACE_S, GRACE_SHARE * options.time_limit_s)
        self.bound_nj = 0
        """No schedule uses less: what is proven for all of the RAM."""
        self.name = f"graph @{view.graph.sym_name.data}"

    def solve(self, arena_bytes: int | None, arena_share: float = 0.0) -> ScheduleReport:
        """A checked schedule within `arena_bytes`. The solver leaves that share of its time, also
        where it ends without a schedule early, and at most `MOST_ARENA_S`."""
        from poetc.schedule.solve import solve

        options = self.options
        if options.strategy not in strategies.names():
            known = ", ".join(strategies.names())
            raise InputError(f"unknown strategy {options.strategy!r}; there are {known}")
        problem = replace(self.view.problem, ram_bytes=arena_bytes)
        started_s = time.monotonic()
        time_limit_s, patience_s = (
            max(LEAST_TIME_S, left_s - min(arena_share * left_s, MOST_ARENA_S))
            for left_s in (self.end_s - started_s, self.patient_until_s - started_s)
        )
        interrupted = False
        try:
            if arena_bytes is None and problem.deadline_ns is None and options.strategy == "auto":
                schedule = _keep_all(problem)
            else:
                schedule = solve(
                    problem,
                    strategy=options.strategy,
                    time_limit_s=time_limit_s,
                    patience_s=patience_s,
                    enough_nj=self.enough_nj,
                    gap=options.gap,
                    remat=options.remat,
                    paging=options.paging,
                    progress=self.progress,
                )
        except SolverInterrupted as stop:
            if stop.schedule is None:
                raise
            schedule, interrupted = stop.schedule, True
        except (InfeasibleProblem, NoScheduleError) as error:
            if isinstance(error, InfeasibleProblem) and error.operation is not None:
                # To others, operations are numbered as in the graph.
                compute = self.view.computes[error.operation]
                error.operation = self.view.graph.computes.index(compute)
            # Who leaves the order open wants a proof for all of them.
            proven = options.strategy != "auto" or (
                isinstance(error, InfeasibleProblem) and error.any_order
            )
            kind = InfeasibleError if proven else TimeLimitError
            raise kind(f"{self.name}: {error}") from error
        except StrategyUndefinedError as error:
            raise InputError(f"{self.name}: {error}") from error
        except SolverTimeLimit as error:
            if arena_bytes == options.arena_bytes:
                self.bound_nj = error.bound_nj
            raise TimeLimitError(f"{self.name}: {error}") from error
        if arena_bytes == options.arena_bytes:
            self.bound_nj = schedule.bound_nj
        return ScheduleReport(
            problem=problem,
            steps=schedule.steps,
            use=check(problem, schedule),
            unlimited=self.unlimited,
            bound_nj=schedule.bound_nj,
            status=schedule.status,
            strategy=schedule.strategy,
            arena_bytes=arena_bytes,
            solve_s=time.monotonic() - started_s,
            log=schedule.log,
            interrupted=interrupted,
            params=options.params,
        )

    def solve_until_it_fits(self) -> ScheduleReport:
        """A schedule with a memory plan whose arena is within the RAM.

        Where no arena fits, buffers move on the way (`schedule/arena/relocate.py`). If that is not
        possible, or costs more than the gap that is asked for, less RAM is tried as well.
        """
        ram, align = self.options.arena_bytes, self.options.align
        first = self.solve(ram, ARENA_SHARE)
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
            and time.monotonic() < (self.latest_s if best is None else self.until_s(best))
        ):
            attempts += 1
            try:
                again = self.solve(budget, ARENA_SHARE)
            except (InfeasibleError, TimeLimitError):
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
            assert ram is not None
            raise ArenaOverflowError(
                f"{self.name}: schedules within {ram} bytes of RAM exist, but the smallest arena "
                f"found for one has {ram + least_excess} bytes, {least_excess} too many",
                least_excess,
            )
        best = self.without_waste(best)
        log = best.log
        if self.late():
            log = (*log, "the clock cut the search for an arena short")
        # Only the first solution had all of the RAM: its bound is that of the question asked.
        bound_nj = min(first.bound_nj, best.use.energy_nj)
        best = replace(best, bound_nj=bound_nj, attempts=attempts, solve_s=solve_s, log=log)
        if best.status == "optimal" and best.gap > self.options.gap:
            best = replace(best, status="feasible")
        return best

    def until_s(self, found: ScheduleReport) -> float:
        """How long a better schedule than the one that was found is looked for."""
        patient = found.use.energy_nj > self.enough_nj
        return self.patient_until_s if patient else self.end_s

    def late(self) -> bool:
        """Whether the time for arenas is over, too: it is that of the solver and a little more."""
        return time.monotonic() > self.latest_s

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
        instance = self.instance(replace(problem, deadline_ns=None))
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

    def instance(self, problem: Problem) -> Instance:
        """`problem` with the options of the solve."""
        return Instance(problem, remat=self.options.remat, paging=self.options.paging)

    def placed(self, report: ScheduleReport, offsets: Sequence[int]) -> ScheduleReport:
        """`report` with a plan that has its buffers at `offsets`."""
        memory = plan_memory(
            replace(report.problem, ram_bytes=None),
            report.steps,
            align=self.options.align,
            unit_bytes=_unit_bytes(self.options),
            offsets=offsets,
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
            scope = replace(options, ram_scope="all", arena_bytes=None)
            everything = problem_view(self.view.graph, scope).problem
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
                unit_bytes=_unit_bytes(self.options),
                stop=self.late,
                target_bytes=target_bytes,
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
            tight = without_overlap(self.instance(problem), steps)
            peak = replay(problem, tight).peak_bytes
            yield overlapped(tight, (peak + ram) // 2)
            yield overlapped(tight, peak)
            yield tight
        yield steps


def _keep_all(problem: Problem) -> Schedule:
    """The program order, everything freed at its last use."""
    from poetc.schedule.solve import solve

    return solve(problem, strategy="keep-all")


def _excess(report: ScheduleReport, bytes: int | None) -> int:
    """By how much the arena exceeds `bytes`; None is no limit."""
    assert report.memory is not None
    return 0 if bytes is None else max(0, report.memory.arena_bytes - bytes)


def _unit_bytes(options: ScheduleOptions) -> int:
    """Unit of the storage image."""
    storage = options.device.storage if options.device else None
    return storage.write_unit_bytes if storage else DEFAULT_WRITE_UNIT_BYTES


def _idle_power_nw(device: Device | None) -> int:
    return round(device.idle_power_w * 1e9) if device else 0


def mark_cache_line(graph: GraphOp, device: Device | None) -> None:
    """Leaves on the graph that pages do not go through the cache of `device`, if that is so."""
    storage = storage_of(device) if device else None
    if storage is not None and storage.line_bytes > NO_CACHE_LINE_BYTES:
        graph.attributes["cache_line_bytes"] = IntegerAttr(storage.line_bytes, i64)


def _describe(graph: GraphOp, report: ScheduleReport, options: ScheduleOptions) -> None:
    """Leaves on the graph what was asked and what was found."""
    if options.arena_bytes is not None:
        # A budget for activations alone is not what the verifier means by `ram`.
        name = "ram" if options.ram_scope == "all" else "activations_ram"
        graph.attributes[name] = IntegerAttr(options.arena_bytes, i64)
    if any(graph.is_stored(i) for i in range(len(graph.arguments))):
        # For the memory planner, which knows no device.
        graph.attributes["storage_unit"] = IntegerAttr(_unit_bytes(options), i64)
    mark_cache_line(graph, options.device)
    describe(graph, report)


def describe(graph: GraphOp, report: ScheduleReport) -> None:
    """Leaves on the graph what was found."""
    use, unlimited = report.use, report.unlimited
    numbers = {
        "energy_nj": use.energy_nj,
        "bound_nj": report.bound_nj,
        "makespan_ns": use.makespan_ns,
        "peak_bytes": use.peak_bytes,
        "recomputes": len(use.recomputes),
        "page_ins": use.page_ins,
        "page_outs": use.page_outs,
        "unlimited_energy_nj": unlimited.energy_nj,
        "unlimited_makespan_ns": unlimited.makespan_ns,
        "unlimited_peak_bytes": unlimited.peak_bytes,
    }
    if report.predicted_ns is not None:
        numbers["predicted_ns"] = report.predicted_ns
    graph.attributes["schedule"] = DictionaryAttr(
        {
            "strategy": StringAttr(report.strategy),
            "status": StringAttr(report.status),
            "gap": FloatAttr(round(report.gap, 6), Float64Type()),
            **{name: IntegerAttr(value, i64) for name, value in numbers.items()},
            "params": StringAttr(report.params),
            "tried": ArrayAttr(map(_attribute, report.tried)),
        }
    )


def _attribute(tried: Tried) -> DictionaryAttr:
    numbers = {"energy_nj": tried.energy_nj, "bound_nj": tried.bound_nj}
    return DictionaryAttr(
        {
            "params": StringAttr(tried.params),
            "splits": StringAttr(tried.splits),
            "searched": IntegerAttr.from_bool(tried.searched),
            **{name: IntegerAttr(n, i64) for name, n in numbers.items() if n is not None},
        }
    )


@dataclass(frozen=True)
class PoetSchedulePass(ModulePass):
    """Schedules each graph for `ram` bytes and a `deadline` in nanoseconds.

    `device` is a name or the path of a device file, `profile` the path of a profile (the device is
    then, by default, the one it was measured on), `time_limit` is in seconds, `gap` relative,
    `params` one of "auto", "ram" and "storage". `io`, "arena" or "caller", says where inputs and
    results are (default: what the graph says, or in the arena).
    """

    name = "poet-schedule"

    ram: int | None = None
    deadline: int | None = None
    strategy: str = default("strategy")
    paging: bool = default("paging")
    remat: bool = default("remat")
    time_limit: int | float = default("time_limit")
    gap: int | float = default("gap")
    device: str | None = None
    profile: str | None = None
    ram_scope: str = default("ram_scope")
    params: str = default("params")
    io: str | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        options = ScheduleOptions(
            arena_bytes=self.ram,
            deadline_ns=self.deadline,
            device=device_of(self.device, self.profile, "host")
            if self.device or self.profile
            else None,
            params=self.params,
            **{field: getattr(self, option) for field, option in SEARCH.items()},
        )
        if self.io not in (None, *IO_PLACES):
            raise InputError(f"io is {' or '.join(IO_PLACES)}, not {self.io}")
        for graph in graphs(op):
            if self.io is not None:
                graph.attributes["io"] = StringAttr(self.io)
            schedule_graph(graph, options)
