"""Transfers of a scheduled graph: which run beside computing, and when each is waited for."""

from __future__ import annotations

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, i64

from poetc.costmodel.device import Device
from poetc.errors import InputError
from poetc.ir.graph import reorder_block, view_scheduled
from poetc.ir.poet import GraphOp
from poetc.ir.transfers import join_transfers, split_transfers
from poetc.planning.memory import planned_offsets
from poetc.planning.problem import alignment_of, idle_power_nw, storage_of
from poetc.planning.report import with_makespan
from poetc.schedule.model.checker import Report, replay
from poetc.schedule.model.errors import ScheduleError
from poetc.schedule.model.transfers import overlap_transfers


def plan_graph_transfers(graph: GraphOp, device: Device, align: int | None = None) -> None:
    """Moves the transfers of a scheduled graph in place, and splits them into starts and waits.

    Where the scheduler has planned transfers and memory together, they stay where they are.
    `align` is the alignment of tensors in bytes, by default that of the device.
    Raises InputError if the graph is not scheduled or breaks the rules of live ranges.
    """
    name = f"graph @{graph.sym_name.data}"
    if not graph.is_scheduled:
        raise InputError(f"{name} is not scheduled")
    join_transfers(graph)
    storage = storage_of(device, graph.block_bytes)
    use: Report | None = None
    power_nw = idle_power_nw(device)
    if planned_offsets(graph) is None:
        view = view_scheduled(graph, storage=storage, idle_power_nw=power_nw)
        try:
            order = overlap_transfers(view.problem, view.steps, graph.ram)
            use = replay(view.problem, [view.steps[i] for i in order])
        except ScheduleError as error:
            raise InputError(f"{name}: {error}") from error
        if order != tuple(range(len(order))):
            reorder_block(graph, [*(view.ops[i] for i in order), graph.return_op])
    if storage is not None and storage.dma:
        align = alignment_of(device) if align is None else align
        timeline = split_transfers(graph, storage, align, _deadline_ns(graph))
        use = use and with_makespan(use, timeline.makespan_ns, power_nw)
    if use is not None:
        update_schedule(graph, use)


def _deadline_ns(graph: GraphOp) -> int | None:
    """The deadline that the graph was scheduled for."""
    schedule = graph.attributes.get("schedule")
    found = schedule.data.get("deadline_ns") if isinstance(schedule, DictionaryAttr) else None
    return found.value.data if isinstance(found, IntegerAttr) else None


def update_schedule(graph: GraphOp, use: Report) -> None:
    """Keeps the numbers in the `schedule` attribute true."""
    schedule = graph.attributes.get("schedule")
    if not isinstance(schedule, DictionaryAttr):
        return
    names = [name for name in ("makespan_ns", "energy_nj", "peak_bytes") if name in schedule.data]
    values = {name: IntegerAttr(getattr(use, name), i64) for name in names}
    graph.attributes["schedule"] = DictionaryAttr({**schedule.data, **values})
