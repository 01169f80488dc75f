"""One question to the solver: a checked schedule of a problem within some RAM, or a diagnosis."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from poetc.diagnosis import Diagnosis, Kernel, Reason
from poetc.errors import InputError, UnscheduledError
from poetc.ir.graph import GraphView
from poetc.ir.locations import kernel_location
from poetc.ir.poet import GraphOp, RunOp, runs_of
from poetc.planning.problem import ScheduleOptions, instance_of
from poetc.planning.report import ScheduleReport
from poetc.schedule import strategies
from poetc.schedule.exact.bounds import ram_needed_in_any_order, time_needed
from poetc.schedule.model.checker import Report, check
from poetc.schedule.model.errors import (
    InfeasibleProblem,
    NoScheduleError,
    SolveError,
    SolverInterrupted,
    SolverTimeLimit,
    StrategyUndefinedError,
)
from poetc.schedule.model.problem import Problem, Schedule
from poetc.schedule.params import DEFAULTS
from poetc.schedule.solve import Progress, solve

ProgressCallback = Callable[[Progress], bool | None]

LEAST_TIME_S = 0.3
"""Seconds for another attempt when the time limit has passed in the first one."""

MOST_ARENA_S = 5.0
"""Seconds that the solver leaves to the search for an arena, at most."""

GRACE_S, GRACE_SHARE = 0.7, 0.07
"""The search for an arena ends so long after the time limit at the latest, or after that share of
it, whichever is more."""

HURRY_S = 0.3
"""How long the search for an arena goes on after Ctrl-C."""


class Solver:
    """Solves one problem, possibly several times with less RAM, until `end_s` of the time limit
    (`ScheduleOptions.now_s`).

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
        started_s = options.now_s
        self.end_s = end_s
        self.patient_until_s = started_s + patience * (end_s - started_s)
        # By the clock on the wall.
        self.latest_s = self._wall_end_s() + max(GRACE_S, GRACE_SHARE * options.time_limit_s)
        self.bound_nj = 0
        """No schedule uses less: what is proven for all of the RAM."""

    def solve(self, arena_bytes: int | None, arena_share: float = 0.0) -> ScheduleReport:
        """A checked schedule within `arena_bytes`. The solver leaves that share of its time, also
        where it ends without a schedule early, and at most `MOST_ARENA_S`.

        Raises UnscheduledError with a diagnosis, InputError for a strategy that is not defined for
        the problem, and SolverInterrupted on Ctrl-C without a schedule.
        """
        options = self.options
        if options.strategy not in strategies.names():
            known = ", ".join(strategies.names())
            raise InputError(f"unknown strategy {options.strategy!r}; there are {known}")
        problem = replace(self.view.problem, ram_bytes=arena_bytes)
        started_s, now_s = time.monotonic(), options.now_s
        time_limit_s, effort_s, patient_s = (
            max(LEAST_TIME_S, left_s - min(arena_share * left_s, MOST_ARENA_S))
            for left_s in (
                self._wall_end_s() - started_s,
                self.end_s - now_s,
                self.patient_until_s - now_s,
            )
        )
        interrupted = False
        try:
            if arena_bytes is None and problem.deadline_ns is None and options.strategy == "auto":
                schedule = keep_all(problem)
            else:
                schedule = solve(
                    problem,
                    strategy=options.strategy,
                    time_limit_s=time_limit_s,
                    patience=patient_s / effort_s,
                    effort_s=effort_s if options.counted else None,
                    clock=options.clock,
                    enough_nj=self.enough_nj,
                    params=replace(DEFAULTS, threads=options.threads),
                    gap=options.gap,
                    remat=options.remat,
                    paging=options.paging,
                    progress=self.progress,
                )
        except SolverInterrupted as stop:
            if stop.schedule is None:
                raise
            schedule, interrupted = stop.schedule, True
            self.hurry()
        except StrategyUndefinedError as error:
            name = self.view.graph.sym_name.data
            raise InputError(f"graph @{name}: {error}") from error
        except SolveError as error:
            if isinstance(error, SolverTimeLimit) and arena_bytes == options.arena_bytes:
                self.bound_nj = error.bound_nj
            seconds = time.monotonic() - started_s
            raise UnscheduledError.of(self._diagnosis(error, seconds)) from error
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

    def hurry(self) -> None:
        """Ends the time for schedules, and soon that for arenas."""
        self.end_s = self.patient_until_s = self.options.now_s
        self.latest_s = time.monotonic() + HURRY_S

    def _wall_end_s(self) -> float:
        """When the time limit passes."""
        clock, now_s = self.options.clock, time.monotonic()
        return now_s + (self.options.time_limit_s if clock is None else clock.left_s)

    def _diagnosis(self, error: SolveError, seconds: float) -> Diagnosis:
        """The solver's `error` in the user's terms, after `seconds`."""
        graph, options = self.view.graph, self.options
        asked = diagnosis(graph, options)
        match error:
            case SolverTimeLimit():
                return replace(asked, reason=Reason.SEARCH, searched_s=seconds)
            case InfeasibleProblem(time_bound_ns=None, fastest_ns=None, ram_bound_bytes=None):
                # The strategy's own model excludes it, or the storage is too small.
                models = options.strategy != "auto"
                reason = Reason.STRATEGY if models else Reason.STORAGE
                return replace(asked, reason=reason, proven=models or error.any_order)
            case InfeasibleProblem() if self.view.any_tiles is not None:
                return self._of_any_tiles(error, replace(asked, searched_s=seconds))
            case InfeasibleProblem():
                kernel = None
                if error.operation is not None:
                    kernel = kernel_of(graph, self.view.computes[error.operation])
                late = error.ram_bound_bytes is None
                return replace(
                    asked,
                    reason=Reason.DEADLINE if late else Reason.RAM,
                    # Who leaves the order open wants a proof for all of them.
                    proven=options.strategy != "auto" or error.any_order,
                    in_order=options.strategy == "auto" and not error.any_order,
                    kernel=kernel,
                    needed_bytes=_total(error.ram_bound_bytes, options),
                    known_bytes=_total(error.least_ram_bytes, options),
                    time_bound_ns=error.time_bound_ns,
                    fastest_ns=error.fastest_ns,
                )
            case NoScheduleError():
                proven = options.strategy != "auto"
                return replace(asked, reason=Reason.STRATEGY, proven=proven)
            case _:
                raise error

    def _of_any_tiles(self, error: InfeasibleProblem, asked: Diagnosis) -> Diagnosis:
        """The diagnosis where kernels may run in tiles: a proof for the tiles that were weighed is
        one only where it holds for all tiles."""
        problem, graph = self.view.any_tiles, self.view.graph
        assert problem is not None
        instance = instance_of(problem, self.options)
        needed_bytes, operation = ram_needed_in_any_order(instance)
        needed_ns = time_needed(instance)
        if problem.ram_bytes is not None and needed_bytes > problem.ram_bytes:
            kernel = None
            if operation is not None:
                kernel = kernel_of(graph, self.view.computes[operation])
            asked = replace(asked, reason=Reason.RAM, kernel=kernel)
        elif problem.deadline_ns is not None and needed_ns > problem.deadline_ns:
            asked = replace(asked, reason=Reason.DEADLINE)
        return replace(
            asked,
            proven=asked.reason is not Reason.SEARCH,
            needed_bytes=_total(needed_bytes, self.options),
            known_bytes=_total(error.least_ram_bytes, self.options),
            time_bound_ns=needed_ns,
            fastest_ns=error.fastest_ns,
        )


def diagnosis(
    graph: GraphOp, options: ScheduleOptions, reason: Reason = Reason.SEARCH
) -> Diagnosis:
    """A diagnosis that says what was asked for, and nothing yet of what was found."""
    return Diagnosis(
        reason,
        subject=f"graph @{graph.sym_name.data}",
        ram_bytes=_total(options.arena_bytes, options),
        deadline_ns=options.deadline_ns,
        reserved=options.budget.reserved,
        strategy=options.strategy,
        restrictions=restrictions(graph, options),
    )


def _total(arena_bytes: int | None, options: ScheduleOptions) -> int | None:
    """All of the RAM where the arena has that size."""
    return None if arena_bytes is None else arena_bytes + options.budget.reserved_bytes


def restrictions(graph: GraphOp, options: ScheduleOptions) -> tuple[str, ...]:
    """The options that exclude schedules."""
    device = options.device
    has_storage = device is not None and device.storage is not None
    has_params = any(graph.role(i) == "param" for i in range(len(graph.arguments)))
    given = [f"--strategy={options.strategy}"] if options.strategy != "auto" else []
    given += ["--paging=off"] if not options.paging else []
    given += ["--remat=off"] if not options.remat else []
    if options.params != "auto" and has_storage and has_params:
        given.append(f"--params={options.params}")
    if device is not None and not has_storage and options.paging:
        given.append(device.why_no_storage())
    return tuple(given)


def kernel_of(graph: GraphOp, compute: RunOp) -> Kernel:
    """A kernel of `graph` as a diagnosis names it."""
    location = kernel_location(compute)
    source = None if location is None else str(location)
    return Kernel(compute.label.data, runs_of(graph).index(compute) + 1, source)


def keep_all(problem: Problem) -> Schedule:
    """The program order, everything freed at its last use."""
    return solve(problem, strategy="keep-all")
