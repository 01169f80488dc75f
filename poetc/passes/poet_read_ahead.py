"""poet-read-ahead: reads slices of kernels in tiles while tiles before them run.

On a device with DMA, where RAM is left beside such a kernel, blocks of the next slice of an operand
on storage are read there meanwhile: as many as there is room for. Memory is planned again.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from poetc.costmodel.device import device_of
from poetc.ir.graph import graphs
from poetc.planning.problem import alignment_of
from poetc.planning.read_ahead import read_graph_ahead


@dataclass(frozen=True)
class PoetReadAheadPass(ModulePass):
    """Reads ahead on `device` (a name or the path of a device file), or the device of a `profile`,
    with `storage` in place of its own."""

    name = "poet-read-ahead"

    device: str | None = None
    profile: str | None = None
    storage: str | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        device = device_of(self.device, self.profile, "host", self.storage)
        for graph in graphs(op):
            read_graph_ahead(graph, device, alignment_of(device))
