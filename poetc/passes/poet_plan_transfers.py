"""poet-plan-transfers: moves page-outs and page-ins so that they overlap computing.

On a device with DMA a transfer runs beside the kernels, one at a time. The pass starts page-outs as
soon as their tensor is made, lets buffers live until the page-out has ended, and starts page-ins in
time for their reader, never needing more RAM than the graph's `ram` (without one, than the graph
needed before). Then it splits each transfer into a start and a wait. Without DMA there is nothing
to gain: transfers stay where they are, and whole.
"""

from dataclasses import dataclass

from poetc.costmodel.device import Device
from poetc.ir.graph import GraphOp
from poetc.passes.on_device import DevicePass
from poetc.planning.transfers import plan_graph_transfers


@dataclass(frozen=True)
class PoetPlanTransfersPass(DevicePass):
    """Overlaps transfers with computing. Where poet-schedule has planned transfers, it only splits
    them."""

    name = "poet-plan-transfers"

    def run_on(self, graph: GraphOp, device: Device) -> None:
        plan_graph_transfers(graph, device)
