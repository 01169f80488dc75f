"""The plan of a step: schedule, transfers and memory, which depend on one another.

`plan_graph` decides all three together. It writes the schedule into the graph and leaves the
offsets of the buffers there as the attribute `planned`; the transfers are in the order that was
planned, and whole. `plan_transfers` splits them into starts and waits, and `plan_memory` gives
every buffer its place. The passes poet-schedule, poet-plan-transfers and poet-plan-memory call one
of these each.
"""

from __future__ import annotations

from dataclasses import replace

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, i64

from poetc.costmodel.predict import predicted_time_ns
from poetc.diagnosis import Reason
from poetc.errors import InfeasibleError, TimeLimitError, UnscheduledError
from poetc.ir.graph import GraphView, view_scheduled, write_schedule
from poetc.ir.poet import GraphOp
from poetc.ir.transfers import join_transfers, split_transfers
from poetc.options import check_search
from poetc.planning.memory import (
    PLANNED,
    plan_graph_memory,
    take_offsets,
    write_memory_plan,
)
from poetc.planning.places import choose
from poetc.planning.problem import ScheduleOptions, block_bytes_of, storage_of, unit_bytes
from poetc.planning.report import ScheduleReport, describe, describe_asked, with_makespan
from poetc.planning.solver import ProgressCallback, diagnosis
from poetc.planning.transfers import plan_graph_transfers
from poetc.planning.variants import drop_kernels

MAX_LATE = 6
"""How often a step with a profile is scheduled again until what is predicted for it is in time."""


def plan_graph(
    graph: GraphOp, options: ScheduleOptions, progress: ProgressCallback | None = None
) -> ScheduleReport:
    """Decides schedule, transfers and memory of a graph, and writes the schedule into it.

    Where the arena would exceed the RAM, transfers overlap less, then buffers move on the way, and
    then the graph is scheduled again for as much less RAM. `progress` is that of `schedule.solve`.
    On Ctrl-C the best schedule so far is used; without one `SolverInterrupted`, a
    KeyboardInterrupt, is raised. Raises InputError for a graph that cannot be scheduled,
    InfeasibleError when that is proven, and TimeLimitError when no schedule whose arena fits was
    found in time.
    """
    _check(graph, options)
    if options.clock is None:
        options = replace(options, clock=options.new_clock())
    view, report = _plan_in_time(graph, options, progress)
    assert report.memory is not None
    block_bytes = block_bytes_of(options, report.steps)
    write_schedule(view, report.steps)
    if block_bytes is not None:
        graph.attributes["block_bytes"] = IntegerAttr(block_bytes, i64)
    if view.make_stream is not None:
        drop_kernels(graph, view.computes)
    placed = view_scheduled(graph, align=options.align)
    write_memory_plan(placed, report.memory, unit_bytes(options))
    storage = storage_of(options.device, block_bytes) if options.device else None
    if storage is not None and storage.dma:
        timeline = split_transfers(graph, storage, options.align, options.deadline_ns)
        join_transfers(graph)
        use = with_makespan(report.use, timeline.makespan_ns, report.problem.idle_power_nw)
        report = replace(report, use=use)
    offsets = take_offsets(graph, options.align)
    describe_asked(graph, options)
    describe(graph, report)
    graph.attributes[PLANNED] = DenseArrayBase.from_list(i64, offsets)
    return report


def schedule_and_plan(
    graph: GraphOp, options: ScheduleOptions, progress: ProgressCallback | None = None
) -> ScheduleReport:
    """`plan_graph`, and the transfers and memory of its plan written into the graph, too."""
    report = plan_graph(graph, options, progress)
    if options.device is not None:
        plan_graph_transfers(graph, options.device, options.align)
    plan_graph_memory(graph, options.align)
    return report


def _check(graph: GraphOp, options: ScheduleOptions) -> None:
    """Raises InputError as `check_search` does, and InfeasibleError where nothing is left for
    tensors."""
    check_search(options)
    if options.arena_bytes is not None and options.arena_bytes <= 0 < options.budget.reserved_bytes:
        raise InfeasibleError(replace(diagnosis(graph, options, Reason.RESERVED), proven=True))


def _plan_in_time(
    graph: GraphOp, options: ScheduleOptions, progress: ProgressCallback | None
) -> tuple[GraphView, ScheduleReport]:
    """A schedule with a memory plan. With a profile, what that predicts is within the deadline.

    The time of the solver is off by how pages lie in blocks, which only a plan tells. So it is
    asked for a deadline that is off as the last plan was, until a plan is in time.
    """
    device, deadline_ns = options.device, options.deadline_ns
    end_s = options.now_s + options.time_limit_s

    def attempt(limit_ns: int | None, left_s: float) -> tuple[GraphView, ScheduleReport]:
        asked = replace(options, deadline_ns=limit_ns, time_limit_s=left_s)
        view, report = choose(graph, asked, progress)
        if device is None or device.profile is None:
            return view, report
        assert report.memory is not None
        predicted_ns = predicted_time_ns(report.problem, report.steps, report.memory, device)
        problem = replace(report.problem, deadline_ns=deadline_ns)
        return view, replace(report, problem=problem, predicted_ns=predicted_ns)

    if device is None or device.profile is None or deadline_ns is None:
        return attempt(deadline_ns, options.time_limit_s)
    view, report = attempt(None, options.time_limit_s / 2)
    # The deadline of the solver: more than `low_ns`, for which there is none, up to `high_ns`.
    low_ns, high_ns = 0, report.use.makespan_ns - 1
    for turn in range(MAX_LATE + 1):
        predicted_ns, makespan_ns = report.predicted_ns, report.use.makespan_ns
        assert predicted_ns is not None
        if predicted_ns <= deadline_ns:
            return view, report
        left_s = end_s - options.now_s
        if turn == MAX_LATE or low_ns >= high_ns or left_s <= 0 or options.late:
            break
        # The deadline, off as the last plan was; or half way between what is known.
        limit_ns = makespan_ns - predicted_ns + deadline_ns
        limit_ns = min(limit_ns, deadline_ns * makespan_ns // predicted_ns)
        if not low_ns < limit_ns <= high_ns:
            limit_ns = (low_ns + high_ns + 1) // 2
        try:
            view, report = attempt(limit_ns, left_s)
        except UnscheduledError:
            if not device.profile.transfers.block_bytes:
                raise
            # With pages at other places in blocks there may be one.
            low_ns = limit_ns
        else:
            high_ns = report.use.makespan_ns - 1
    late = diagnosis(graph, options, Reason.PAGES)
    raise TimeLimitError(replace(late, fastest_ns=predicted_ns))
