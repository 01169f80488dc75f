"""poet-plan-transfers: moves page-outs and page-ins so that they overlap computing.

On a device with DMA a transfer runs beside the kernels, one at a time. The pass starts page-outs as
soon as their tensor is made, lets buffers live until the page-out has ended, and starts page-ins in
time for their reader, never needing more RAM than the graph's `ram` (without one, than the graph
needed before). Then it splits each transfer into a start and a wait. Without DMA there is nothing
to gain: transfers stay where they are, and whole.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from poetc.costmodel.device import device_of
from poetc.ir.graph import graphs
from poetc.planning.transfers import plan_graph_transfers


@dataclass(frozen=True)
class PoetPlanTransfersPass(ModulePass):
    """Overlaps transfers with computing on `device` (a name or the path of a device file), or the
    device of a `profile`, with `storage` in place of its own. Where poet-schedule has planned
    transfers, it only splits them."""

    name = "poet-plan-transfers"

    device: str | None = None
    profile: str | None = None
    storage: str | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        device = device_of(self.device, self.profile, "host", self.storage)
        for graph in graphs(op):
            plan_graph_transfers(graph, device)
