"""poet-plan-memory: a place in the arena for every value in RAM, one in storage for every page.

Results that take over an operand's buffer share its offset, so a parameter keeps its place. Values
share bytes when they never live at the same time. Buffers of the caller have no place. An arena
over the graph's `ram` is an error: the bytes alive at once fit, but no packing of them was found.

Parameters that are arguments of page type have their places in a storage image that outlives the
step; the page-out of a new value has the place of the old value, in the other one of two banks that
are `bank_bytes` apart (`schedule/memory.py`).
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from poetc.ir.graph import ALIGN_BYTES, graphs
from poetc.planning.memory import plan_graph_memory


@dataclass(frozen=True)
class PoetPlanMemoryPass(ModulePass):
    """Places tensors and pages; `align` is the alignment of each in bytes.

    `unit` is the unit of the storage image (default: the graph's `storage_unit`, else 512).
    """

    name = "poet-plan-memory"

    align: int = ALIGN_BYTES
    unit: int | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for graph in graphs(op):
            plan_graph_memory(graph, self.align, self.unit)
