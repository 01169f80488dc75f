"""poet-stream: schedules a step in little RAM, with kernels that run in tiles where that is needed
or takes less energy.

Parameters are on storage between steps. It is poet-schedule with variants of kernels: a compute may
become a `poet.stream`, whose operands and results are on storage. What was planned of memory is
written by poet-plan-memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from poetc.budget import Budget
from poetc.costmodel.device import load_device
from poetc.ir.graph import ALIGN_BYTES, graphs
from poetc.options import default
from poetc.page import BLOCK_BYTES, check_block_bytes
from poetc.planning.memory import check_align
from poetc.planning.plan import plan_graph
from poetc.planning.problem import ScheduleOptions
from poetc.units import check_limit


@dataclass(frozen=True)
class PoetStreamPass(ModulePass):
    """Schedules each graph within `ram` bytes of tensors and buffers, at the costs of `device`.
    Pages are in blocks of `block` bytes, of which one is in RAM beside that, if any kernel runs in
    tiles, or with `in_blocks` in any case."""

    name = "poet-stream"

    ram: int
    device: str = default("device")
    align: int = ALIGN_BYTES
    block: int = BLOCK_BYTES
    in_blocks: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Raises InfeasibleError where it is proven that no schedule fits, and TimeLimitError where
        none was found."""
        options = self.options
        for graph in graphs(op):
            plan_graph(graph, options)

    @property
    def options(self) -> ScheduleOptions:
        """The options of the schedule. Raises InputError for numbers that mean nothing."""
        check_limit(self.ram, "ram")
        check_align(self.align)
        check_block_bytes(self.block, "block")
        return ScheduleOptions(
            budget=Budget(self.ram + self.block, block_bytes=self.block),
            device=load_device(self.device),
            align=self.align,
            params="storage",
            in_blocks=self.in_blocks,
        )
