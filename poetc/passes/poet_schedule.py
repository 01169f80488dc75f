"""poet-schedule: decides what is kept in RAM, recomputed or paged, and writes it into the graph.

The graph becomes a scheduling problem (`ir/graph.py`), the problem is solved (`schedule/`), the
schedule is checked, and the graph is rewritten to it. `schedule_and_plan` does that together with
the transfer and memory planners, and schedules again with less RAM where the arena does not fit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from xdsl.context import Context
from xdsl.dialects.builtin import (
    DictionaryAttr,
    Float64Type,
    FloatAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    i64,
)
from xdsl.passes import ModulePass

from poetc.costmodel.device import Device, load_device
from poetc.errors import InfeasibleError, InputError, TimeLimitError
from poetc.ir.graph import (
    ALIGN_BYTES,
    GraphView,
    Storage,
    Transfer,
    graphs,
    view_scheduled,
    view_unscheduled,
    write_schedule,
)
from poetc.ir.poet import GraphOp
from poetc.passes.inplace import inplace_candidates
from poetc.passes.poet_plan_memory import ArenaOverflowError, write_memory_plan
from poetc.schedule.arena import page_bytes
from poetc.schedule.checker import Report, check, replay
from poetc.schedule.errors import (
    InfeasibleProblem,
    NoScheduleError,
    SolverInterrupted,
    SolverTimeLimit,
    StrategyUndefinedError,
)
from poetc.schedule.memory import MemoryPlan, plan_memory
from poetc.schedule.problem import Problem, Schedule, Step
from poetc.schedule.transfers import overlap_transfers

if TYPE_CHECKING:
    from poetc.schedule.solve import Progress

    ProgressCallback = Callable[[Progress], bool | None]

MAX_ATTEMPTS = 8
"""How often a graph is scheduled, with ever less RAM, until its arena fits."""

LEAST_TIME_S = 1.0
"""What the solver gets for another attempt when the time limit has passed in the first one."""

PACK_EFFORT = 4_000_000
"""Effort of `arena.pack`; five times that before a graph is scheduled again."""


@dataclass(frozen=True)
class ScheduleOptions:
    """What to schedule for.

    `ram_bytes` None is no limit: the program order with frees. `deadline_ns` bounds the makespan.
    Without a `device` there is no auxiliary storage. `gap` is the optimality gap to stop at,
    relative to the energy.
    """

    ram_bytes: int | None = None
    deadline_ns: int | None = None
    strategy: str = "auto"
    paging: bool = True
    remat: bool = True
    time_limit_s: float = 60.0
    gap: float = 0.01
    device: Device | None = None
    ram_scope: str = "all"
    align: int = ALIGN_BYTES


@dataclass(frozen=True)
class ScheduleReport:
    """What was decided for one graph, and what it costs.

    `use` is what the checker counted; `unlimited` the same for the program order with unlimited
    RAM, without recomputing or paging. `bound_nj`: no schedule within the limits uses less.
    `budget_bytes` is the RAM that it was scheduled for, less than asked where the arena would not
    have fitted otherwise; `attempts` counts the tries. `memory` is None until memory is planned.
    `interrupted` says that the user stopped the search and this is the best that it had found.
    """

    problem: Problem
    steps: tuple[Step, ...]
    use: Report
    unlimited: Report
    bound_nj: int
    status: str
    strategy: str
    budget_bytes: int | None
    solve_s: float
    log: tuple[str, ...] = ()
    attempts: int = 1
    memory: MemoryPlan | None = None
    interrupted: bool = False

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

    return Storage(read, write, device.dma)


def problem_view(graph: GraphOp, options: ScheduleOptions) -> GraphView:
    """The scheduling problem of an unscheduled graph under `options`."""
    limited = options.ram_bytes is not None or options.deadline_ns is not None
    missing = next((op for op in graph.computes if op.cost is None), None)
    if limited and missing is not None:
        raise InputError(
            f'poet.compute "{missing.label.data}" has no cost: poet-annotate comes before '
            "poet-schedule"
        )
    for name, limit in (("ram", options.ram_bytes), ("deadline", options.deadline_ns)):
        if limit is not None and limit <= 0:
            raise InputError(f"{name} must be more than zero, not {limit}")
    device = options.device
    return view_unscheduled(
        graph,
        storage=storage_of(device) if device else None,
        ram_bytes=options.ram_bytes,
        deadline_ns=options.deadline_ns,
        idle_power_nw=_idle_power_nw(device),
        align=options.align,
        ram_scope=options.ram_scope,
        may_share=inplace_candidates(graph),
    )


def schedule_graph(
    graph: GraphOp, options: ScheduleOptions, progress: ProgressCallback | None = None
) -> ScheduleReport:
    """Schedules a graph in place.

    `progress` is that of `schedule.solve`. On Ctrl-C the best schedule so far is used; without one
    `SolverInterrupted`, a KeyboardInterrupt, is raised. Raises InputError for a graph that cannot
    be scheduled, InfeasibleError when that is proven, and TimeLimitError when no schedule was found
    in time.
    """
    view = problem_view(graph, options)
    report = _Scheduler(view, options, progress).solve(options.ram_bytes)
    write_schedule(view, report.steps)
    _describe(graph, report, options)
    return report


def schedule_and_plan(
    graph: GraphOp, options: ScheduleOptions, progress: ProgressCallback | None = None
) -> ScheduleReport:
    """Schedules a graph in place, overlaps transfers and plans memory, so that the arena fits.

    Where the arena would exceed the RAM, transfers overlap less, and then the graph is scheduled
    again for as much less RAM. Raises like `schedule_graph`, and ArenaOverflowError when no
    schedule whose arena fits was found.
    """
    view = problem_view(graph, options)
    report = _Scheduler(view, options, progress).solve_until_it_fits()
    assert report.memory is not None
    write_schedule(view, report.steps)
    _describe(graph, report, options)
    write_memory_plan(view_scheduled(graph, align=options.align), report.memory)
    return report


class _Scheduler:
    """Solves one problem, possibly several times with less RAM."""

    def __init__(
        self, view: GraphView, options: ScheduleOptions, progress: ProgressCallback | None
    ) -> None:
        self.view, self.options, self.progress = view, options, progress
        self.name = f"graph @{view.graph.sym_name.data}"
        self.deadline_s = time.monotonic() + options.time_limit_s
        unlimited = replace(view.problem, ram_bytes=None, deadline_ns=None)
        self.unlimited = replay(unlimited, _keep_all(unlimited).steps)

    def solve(self, budget_bytes: int | None) -> ScheduleReport:
        """A checked schedule within `budget_bytes`."""
        from poetc.schedule.solve import STRATEGIES, solve

        options = self.options
        if options.strategy not in STRATEGIES:
            known = ", ".join(STRATEGIES)
            raise InputError(f"unknown strategy {options.strategy!r}; there are {known}")
        problem = replace(self.view.problem, ram_bytes=budget_bytes)
        started_s = time.monotonic()
        interrupted = False
        try:
            if budget_bytes is None and problem.deadline_ns is None and options.strategy == "auto":
                schedule = _keep_all(problem)
            else:
                schedule = solve(
                    problem,
                    strategy=options.strategy,
                    time_limit_s=max(LEAST_TIME_S, self.deadline_s - started_s),
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
            raise InfeasibleError(f"{self.name}: {error}") from error
        except StrategyUndefinedError as error:
            raise InputError(f"{self.name}: {error}") from error
        except SolverTimeLimit as error:
            raise TimeLimitError(f"{self.name}: {error}") from error
        return ScheduleReport(
            problem=problem,
            steps=schedule.steps,
            use=check(problem, schedule),
            unlimited=self.unlimited,
            bound_nj=schedule.bound_nj,
            status=schedule.status,
            strategy=schedule.strategy,
            budget_bytes=budget_bytes,
            solve_s=time.monotonic() - started_s,
            log=schedule.log,
            interrupted=interrupted,
        )

    def solve_until_it_fits(self) -> ScheduleReport:
        """A schedule with a memory plan whose arena is within the RAM."""
        ram = self.options.ram_bytes
        first = self.solve(ram)
        report, excess = self.plan(first)
        solve_s = first.solve_s
        # Between an infeasible budget and one whose arena is too big, others may still do.
        low, high = 0, first.use.peak_bytes
        attempts = 1
        budget = high - excess
        while (
            excess > 0
            and not report.interrupted
            and attempts < MAX_ATTEMPTS
            and low < budget < high
        ):
            attempts += 1
            try:
                again = self.solve(budget)
            except (InfeasibleError, TimeLimitError):
                low = budget
            else:
                solve_s += again.solve_s
                report, excess = self.plan(again)
                high = min(budget, again.use.peak_bytes)
            if excess > 0:
                budget = high - excess
                if budget <= low:
                    budget = (low + high) // 2 // self.options.align * self.options.align
        if excess > 0 and report.interrupted:
            # The best schedule so far is of no use.
            raise SolverInterrupted(None)
        if excess > 0:
            assert ram is not None
            raise ArenaOverflowError(
                f"{self.name}: schedules within {ram} bytes of RAM exist, but the smallest arena "
                f"found for one has {ram + excess} bytes, {excess} too many",
                excess,
            )
        # Only the first solution had all of the RAM: its bound is that of the question asked.
        bound_nj = min(first.bound_nj, report.use.energy_nj)
        report = replace(report, bound_nj=bound_nj, attempts=attempts, solve_s=solve_s)
        if report.status == "optimal" and report.gap > self.options.gap:
            report = replace(report, status="feasible")
        return report

    def plan(self, report: ScheduleReport) -> tuple[ScheduleReport, int]:
        """`report` with transfers overlapped and memory planned; bytes by which it is too big."""
        options = self.options
        ram = options.ram_bytes if options.ram_scope == "all" else None
        # Memory is planned for all tensors, whatever the scope of the budget.
        problem = replace(report.problem, ram_bytes=options.ram_bytes)
        everything = replace(problem, ram_bytes=None)
        if options.ram_scope != "all":
            scope = replace(options, ram_scope="all", ram_bytes=None)
            everything = problem_view(self.view.graph, scope).problem
        peak = report.use.peak_bytes
        unmoved = tuple(range(len(report.steps)))
        orders = [overlap_transfers(problem, report.steps)]
        if ram is not None and orders[0] != unmoved:
            # Transfers that overlap need RAM longer: if the arena does not fit, overlap less.
            for room in ((peak + ram) // 2, peak):
                orders.append(overlap_transfers(problem, report.steps, room))
            orders.append(unmoved)
        best: tuple[int, tuple[int, ...], MemoryPlan] | None = None
        for effort in (PACK_EFFORT, 5 * PACK_EFFORT):
            for order in dict.fromkeys(orders):
                steps = [report.steps[i] for i in order]
                memory = plan_memory(everything, steps, options.align, effort)
                excess = 0 if ram is None else max(0, memory.arena_bytes - ram)
                if best is None or excess < best[0]:
                    best = excess, order, memory
                if not excess:
                    break
            if not best or not best[0]:
                break
        assert best is not None
        excess, order, memory = best
        steps = tuple(report.steps[i] for i in order)
        use = replay(problem, steps)
        return replace(report, problem=problem, steps=steps, use=use, memory=memory), excess


def _keep_all(problem: Problem) -> Schedule:
    """The program order, everything freed at its last use."""
    from poetc.schedule.solve import solve

    return solve(problem, strategy="keep-all")


def _idle_power_nw(device: Device | None) -> int:
    return round(device.idle_power_w * 1e9) if device else 0


def _describe(graph: GraphOp, report: ScheduleReport, options: ScheduleOptions) -> None:
    """Leaves on the graph what was asked and what was found."""
    if options.ram_bytes is not None:
        # A budget for activations alone is not what the verifier means by `ram`.
        name = "ram" if options.ram_scope == "all" else "activations_ram"
        graph.attributes[name] = IntegerAttr(options.ram_bytes, i64)
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
    graph.attributes["schedule"] = DictionaryAttr(
        {
            "strategy": StringAttr(report.strategy),
            "status": StringAttr(report.status),
            "gap": FloatAttr(round(report.gap, 6), Float64Type()),
            **{name: IntegerAttr(value, i64) for name, value in numbers.items()},
        }
    )


@dataclass(frozen=True)
class PoetSchedulePass(ModulePass):
    """Schedules each graph for `ram` bytes and a `deadline` in nanoseconds.

    `device` is a name or the path of a device file, `time_limit` is in seconds, `gap` relative.
    """

    name = "poet-schedule"

    ram: int | None = None
    deadline: int | None = None
    strategy: str = "auto"
    paging: bool = True
    remat: bool = True
    time_limit: float = 60.0
    gap: float = 0.01
    device: str | None = None
    ram_scope: str = "all"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        options = ScheduleOptions(
            ram_bytes=self.ram,
            deadline_ns=self.deadline,
            strategy=self.strategy,
            paging=self.paging,
            remat=self.remat,
            time_limit_s=self.time_limit,
            gap=self.gap,
            device=load_device(self.device) if self.device else None,
            ram_scope=self.ram_scope,
        )
        for graph in graphs(op):
            schedule_graph(graph, options)
