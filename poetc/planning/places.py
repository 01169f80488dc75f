"""Where parameters are between steps: in RAM, on storage, or where a step takes less energy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from poetc.diagnosis import Diagnosis, Reason, Tried
from poetc.errors import InputError, UnscheduledError
from poetc.ir.graph import GraphView, MayShare
from poetc.ir.poet import GraphOp
from poetc.options import OPTIONS
from poetc.planning.fit import Fit
from poetc.planning.inplace import inplace_candidates
from poetc.planning.problem import ScheduleOptions, instance_of, problem_view
from poetc.planning.report import ScheduleReport, with_bound, within_gap
from poetc.planning.solver import ProgressCallback, Solver, diagnosis, keep_all, restrictions
from poetc.schedule.exact.bounds import ram_needed_in_any_order
from poetc.schedule.model.checker import replay
from poetc.schedule.model.errors import ScheduleError, SolverInterrupted


@dataclass
class _Way:
    """A place of the parameters, and what is known of it so far.

    `bound_nj`: no schedule uses less, inf where there is none. Is that all there is to say, it is
    `settled`. `view` is that in which is searched next, and `found` that of the report.
    """

    view: GraphView
    params: str
    bound_nj: float
    found: GraphView | None = None
    report: ScheduleReport | None = None
    failure: Diagnosis | None = None
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
        tiles = self.view.make_stream is not None
        return Tried(self.params, energy_nj, bound_nj, self.searched, tiles)


def choose(
    graph: GraphOp,
    options: ScheduleOptions,
    progress: ProgressCallback | None,
) -> tuple[GraphView, ScheduleReport]:
    """The view and a schedule with a memory plan, with parameters where `options` want them.

    For "auto" that is in RAM first. On storage is searched too, unless what is found first uses
    less than any schedule with them there; half of the time is left for that. What is cut short and
    may still be better is searched again in the time that is left in the end. Raises
    UnscheduledError with the diagnosis of the place that says most.
    """
    places = OPTIONS["params"].choices or ()
    if options.params not in places:
        raise InputError(f"params is {', '.join(places)}, not {options.params}")
    end_s = options.now_s + options.time_limit_s
    may_share = inplace_candidates(graph)
    in_ram = problem_view(graph, replace(options, params="ram"), may_share)
    reference = replace(in_ram.problem, ram_bytes=None, deadline_ns=None)
    unlimited = replay(reference, keep_all(reference).steps)
    ways = _ways(graph, in_ram, options, may_share)
    interrupted: SolverInterrupted | None = None
    for turn, way in [(turn, way) for turn in range(2) for way in ways]:
        energy_nj = min(w.energy_nj for w in ways)
        left_s = end_s - options.now_s
        if way.settled or way.bound_nj >= energy_nj:
            continue
        over = options.late or left_s <= way.spent_s
        if turn and (over or within_gap(energy_nj, way.bound_nj, options.gap)):
            continue
        others = [w.bound_nj for w in ways[ways.index(way) + 1 :] if not turn]
        solver = Solver(
            way.view,
            replace(options, params=way.params),
            progress,
            unlimited,
            end_s,
            1 / (1 + len(others)),
            min(others, default=math.inf),
        )
        try:
            _search(way, solver)
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
        raise UnscheduledError.of(
            replace(
                chosen,
                restrictions=restrictions(graph, options),
                tried=tuple(way.tried for way in ways),
            )
        )
    report = replace(
        best.report,
        tried=tuple(way.tried for way in ways),
        interrupted=best.report.interrupted or interrupted is not None,
    )
    bounds = [way.tried.bound_nj for way in ways if way.tried.bound_nj is not None]
    assert best.found is not None
    return best.found, with_bound(report, min(bounds), options.gap)


def _search(way: _Way, solver: Solver) -> None:
    """Searches one way, and notes in it what comes of that. Variants cost no less than the view
    says: where those of a schedule cost more, there is another search with what they cost, as long
    as something may be better by more than the gap."""
    options = solver.options
    started_s = options.now_s
    way.searched = True
    while True:
        solver.view = way.view
        try:
            found = Fit(solver).run()
        except UnscheduledError as error:
            if way.report is None:
                way.failure = failure = error.diagnosis
                # Also where that is proven for one order only: so are bounds.
                way.settled = failure.is_proof
                none = way.settled and failure.reason is not Reason.STRATEGY
                bound_nj = way.bound_nj if way.view.left_out else solver.bound_nj
                way.bound_nj = math.inf if none else max(way.bound_nj, bound_nj)
            break
        if not way.view.left_out:
            way.bound_nj = min(max(way.bound_nj, solver.bound_nj), way.energy_nj)
        view = way.view
        exact = None if view.settle is None else view.settle(found.steps)
        if exact is not None:
            view, way.view = exact
        settled = found if exact is None else _at_costs_of(view, found)
        if settled is not None and settled.use.energy_nj < way.energy_nj:
            way.found, way.report = view, settled
        way.bound_nj = min(way.bound_nj, way.energy_nj)
        near = way.report is not None and within_gap(way.energy_nj, way.bound_nj, options.gap)
        way.settled = found.status == "optimal" and (near or exact is None)
        over = found.interrupted or options.late or options.now_s >= solver.end_s
        if exact is None or near or over:
            break
    if way.view.settle is not None and way.report is not None:
        # Found in another of these searches than the bound, maybe.
        near = within_gap(way.energy_nj, way.bound_nj, options.gap)
        status, bound_nj = "optimal" if near else "feasible", int(way.bound_nj)
        way.report = replace(way.report, status=status, bound_nj=bound_nj)
    if way.report is None and way.failure is None:
        # The cost of variants is too much for the deadline.
        way.failure = diagnosis(way.view.graph, options)
    way.spent_s = options.now_s - started_s


def _at_costs_of(view: GraphView, found: ScheduleReport) -> ScheduleReport | None:
    """The schedule that was found, at the higher costs of the variants in `view`; None if it misses
    the deadline then."""
    problem = replace(view.problem, ram_bytes=found.problem.ram_bytes)
    try:
        return replace(found, problem=problem, use=replay(problem, found.steps))
    except ScheduleError:
        return None


def _ways(
    graph: GraphOp, in_ram: GraphView, options: ScheduleOptions, may_share: MayShare
) -> list[_Way]:
    """Where parameters may be, in the order in which that is tried. What takes no search to see
    that it does not fit is settled, if there is another one."""
    stored = _stored(graph, options, may_share)
    ways = []
    if options.params != "storage":
        ways.append(_Way(in_ram, "ram", instance_of(in_ram.problem, options).least_energy_nj))
    if stored is not None:
        # Tensors that were left out are not in the problem.
        problem = stored.any_tiles if stored.left_out else stored.problem
        assert problem is not None
        ways.append(_Way(stored, "storage", instance_of(problem, options).least_energy_nj))
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
    needed, _ = ram_needed_in_any_order(instance_of(view.problem, options))
    return options.arena_bytes is None or needed <= options.arena_bytes


def _neither(in_ram: Diagnosis | None, stored: Diagnosis | None) -> Diagnosis:
    """The diagnosis of no schedule with parameters in RAM (None: by a bound), nor any with them
    on storage.

    Whatever runs with parameters in RAM runs in as little RAM with them on storage: all are paged
    in before it and out after it. So what is proven about RAM on storage is proven for both. Only a
    deadline may be easier to meet with parameters in RAM.
    """
    assert stored is not None
    if in_ram is None or not stored.is_proof or not stored.is_about_time:
        return stored
    if not in_ram.is_proof:
        return in_ram
    return min(in_ram, stored, key=lambda d: d.soonest_ns) if in_ram.is_about_time else stored
