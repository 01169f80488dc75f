"""Passes over graphs that are planned for a device."""

from abc import abstractmethod
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from poetc.costmodel.device import Device, device_of
from poetc.ir.graph import GraphOp, graphs


@dataclass(frozen=True)
class DevicePass(ModulePass):
    """A pass over each graph for `device` (a name or the path of a device file), or the device of a
    `profile`, with `storage` in place of its own."""

    device: str | None = None
    profile: str | None = None
    storage: str | None = None

    @abstractmethod
    def run_on(self, graph: GraphOp, device: Device) -> None:
        """Changes one graph."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        device = device_of(self.device, self.profile, "host", self.storage)
        for graph in graphs(op):
            self.run_on(graph, device)
