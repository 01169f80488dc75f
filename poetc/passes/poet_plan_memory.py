"""poet-plan-memory: a place in the arena for every value in RAM, one in storage for every page.

Results that take over an operand's buffer share its offset, so a parameter keeps its place. Values
share bytes when they never live at the same time. An arena over the graph's `ram` is an error:
the bytes alive at once fit, but no packing of them was found.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import I64, IntegerAttr, ModuleOp, i64
from xdsl.passes import ModulePass

from poetc.errors import InputError, TimeLimitError
from poetc.ir.graph import ALIGN_BYTES, GraphView, graphs, view_scheduled
from poetc.ir.poet import ComputeOp, GraphOp, PageInOp, PageOutOp
from poetc.schedule.errors import ScheduleError
from poetc.schedule.memory import MemoryPlan, plan_memory


class ArenaOverflowError(TimeLimitError):
    """The smallest arena that was found exceeds the budget by `excess_bytes`."""

    def __init__(self, message: str, excess_bytes: int) -> None:
        super().__init__(message)
        self.excess_bytes = excess_bytes


def plan_graph_memory(graph: GraphOp, align: int = ALIGN_BYTES) -> MemoryPlan:
    """Sets all offsets of a scheduled graph, its `arena_bytes` and `storage_bytes`.

    Raises ArenaOverflowError, changing nothing, if the arena exceeds the graph's `ram`; InputError
    if the graph is not scheduled or breaks the rules of residence.
    """
    name = f"graph @{graph.sym_name.data}"
    if not graph.is_scheduled:
        raise InputError(f"{name} is not scheduled")
    if align < 1:
        raise InputError(f"align must be at least 1, not {align}")
    view = view_scheduled(graph, align=align)
    try:
        plan = plan_memory(view.problem, view.steps, align)
    except ScheduleError as error:
        raise InputError(f"{name}: {error}") from error
    if graph.ram is not None and plan.arena_bytes > graph.ram:
        excess = plan.arena_bytes - graph.ram
        raise ArenaOverflowError(
            f"{name} needs an arena of {plan.arena_bytes} bytes, {excess} more than the "
            f"{graph.ram} bytes of RAM; at most {plan.arena_bound_bytes} bytes are alive at once",
            excess,
        )
    write_memory_plan(view, plan)
    return plan


def write_memory_plan(view: GraphView, plan: MemoryPlan) -> None:
    """Sets the offsets of `plan` on the graph of `view`."""
    graph = view.graph
    for i in range(len(graph.arguments)):
        graph.set_arg_attr(i, "poet.offset", _optional(plan.start[i]))
    for op, made, workspace, page in zip(
        view.ops, plan.made, plan.workspace, plan.pages, strict=True
    ):
        match op:
            case ComputeOp():
                op.result_offsets = made
                op.workspace_offset = _optional(workspace)
            case PageInOp():
                op.offset = _optional(made[0])
            case PageOutOp():
                op.offset = _optional(page)
            case _:
                pass
    graph.attributes["arena_bytes"] = IntegerAttr(plan.arena_bytes, i64)
    graph.attributes["storage_bytes"] = IntegerAttr(plan.storage_bytes, i64)


def _optional(value: int | None) -> IntegerAttr[I64] | None:
    return None if value is None else IntegerAttr(value, i64)


@dataclass(frozen=True)
class PoetPlanMemoryPass(ModulePass):
    """Places tensors and pages; `align` is the alignment of each in bytes."""

    name = "poet-plan-memory"

    align: int = ALIGN_BYTES

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for graph in graphs(op):
            plan_graph_memory(graph, self.align)
