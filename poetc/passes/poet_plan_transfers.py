"""poet-plan-transfers: moves page-outs and page-ins so that they overlap computing.

On a device with DMA a transfer runs beside the kernels, one at a time. The pass starts page-outs as
soon as their tensor is made, lets buffers live until the page-out has ended, and starts page-ins in
time for their reader, never needing more RAM than the graph's `ram` (without one, than the graph
needed before). Then it splits each transfer into a start and a wait. Without DMA there is nothing
to gain: transfers stay where they are, and whole.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp, i64
from xdsl.passes import ModulePass

from poetc.costmodel.device import Device, load_device
from poetc.errors import InputError
from poetc.ir.graph import graphs, reorder_block, view_scheduled
from poetc.ir.poet import GraphOp
from poetc.ir.transfers import join_transfers, split_transfers
from poetc.passes.poet_schedule import storage_of, with_makespan
from poetc.schedule.model.checker import Report, replay
from poetc.schedule.model.errors import ScheduleError
from poetc.schedule.model.transfers import overlap_transfers


def plan_graph_transfers(graph: GraphOp, device: Device) -> int:
    """Moves the transfers of a scheduled graph in place; returns its makespan in nanoseconds.

    Raises InputError if the graph is not scheduled or breaks the rules of live ranges.
    """
    name = f"graph @{graph.sym_name.data}"
    if not graph.is_scheduled:
        raise InputError(f"{name} is not scheduled")
    join_transfers(graph)
    storage = storage_of(device)
    view = view_scheduled(graph, storage=storage, idle_power_nw=round(device.idle_power_w * 1e9))
    try:
        order = overlap_transfers(view.problem, view.steps, graph.ram)
        report = replay(view.problem, [view.steps[i] for i in order])
    except ScheduleError as error:
        raise InputError(f"{name}: {error}") from error
    if order != tuple(range(len(order))):
        reorder_block(graph, [*(view.ops[i] for i in order), graph.return_op])
    if storage is not None and storage.dma:
        makespan_ns = split_transfers(graph, storage).makespan_ns
        report = with_makespan(report, makespan_ns, view.problem.idle_power_nw)
    _update(graph, report)
    return report.makespan_ns


def _update(graph: GraphOp, use: Report) -> None:
    """Keeps the numbers in the `schedule` attribute true."""
    schedule = graph.attributes.get("schedule")
    if not isinstance(schedule, DictionaryAttr):
        return
    names = [name for name in ("makespan_ns", "energy_nj", "peak_bytes") if name in schedule.data]
    values = {name: IntegerAttr(getattr(use, name), i64) for name in names}
    graph.attributes["schedule"] = DictionaryAttr({**schedule.data, **values})


@dataclass(frozen=True)
class PoetPlanTransfersPass(ModulePass):
    """Overlaps transfers with computing on `device` (a name or the path of a device file)."""

    name = "poet-plan-transfers"

    device: str = "host"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        device = load_device(self.device)
        for graph in graphs(op):
            plan_graph_transfers(graph, device)
