"""poet-read-ahead: reads slices of kernels in tiles while tiles before them run.

On a device with DMA, where RAM is left beside such a kernel, blocks of the next slice of an operand
on storage are read there meanwhile: as many as there is room for. Memory is planned again.
"""

from dataclasses import dataclass

from poetc.costmodel.device import Device
from poetc.ir.graph import GraphOp
from poetc.passes.on_device import DevicePass
from poetc.planning.problem import alignment_of
from poetc.planning.read_ahead import read_graph_ahead


@dataclass(frozen=True)
class PoetReadAheadPass(DevicePass):
    """Reads slices ahead of the tiles that need them."""

    name = "poet-read-ahead"

    def run_on(self, graph: GraphOp, device: Device) -> None:
        read_graph_ahead(graph, device, alignment_of(device))
