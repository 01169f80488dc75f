"""poet-plan-memory: a place in the arena for every value in RAM, one in storage for every page.

Results that take over an operand's buffer share its offset, so a parameter keeps its place. Values
share bytes when they never live at the same time. Buffers of the caller have no place. An arena
over the graph's `ram` is an error: the bytes alive at once fit, but no packing of them was found.

Parameters that are arguments of page type have their places in a storage image that outlives the
step; the page-out of a new value has the place of the old value, in the other one of two banks that
are `bank_bytes` apart (`schedule/arena/memory.py`).
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import I64, IntegerAttr, ModuleOp, i64
from xdsl.passes import ModulePass

from poetc.costmodel.device import DEFAULT_WRITE_UNIT_BYTES, MIN_WRITE_UNIT_BYTES
from poetc.errors import InputError, TimeLimitError
from poetc.ir.graph import ALIGN_BYTES, GraphView, graphs, view_scheduled
from poetc.ir.poet import (
    NO_OFFSET,
    ComputeOp,
    GraphOp,
    PageInOp,
    PageInStartOp,
    PageOutOp,
    PageOutStartOp,
)
from poetc.schedule.arena.memory import MemoryPlan, plan_memory
from poetc.schedule.model.errors import ScheduleError


class ArenaOverflowError(TimeLimitError):
    """The smallest arena that was found exceeds the budget by `excess_bytes`."""

    def __init__(self, message: str, excess_bytes: int) -> None:
        super().__init__(message)
        self.excess_bytes = excess_bytes


def plan_graph_memory(
    graph: GraphOp, align: int = ALIGN_BYTES, unit: int | None = None
) -> MemoryPlan:
    """Sets all offsets of a scheduled graph, its `arena_bytes` and `storage_bytes`.

    `unit` is the unit of the storage image in bytes, by default the graph's `storage_unit`.
    Raises ArenaOverflowError, changing nothing, if the arena exceeds the graph's `ram`; InputError
    if the graph is not scheduled or breaks the rules of live ranges.
    """
    name = f"graph @{graph.sym_name.data}"
    if not graph.is_scheduled:
        raise InputError(f"{name} is not scheduled")
    if align < ALIGN_BYTES or align & (align - 1):
        raise InputError(f"align must be a power of two and at least {ALIGN_BYTES}, not {align}")
    given = unit is not None
    if unit is None:
        unit = graph.storage_unit or DEFAULT_WRITE_UNIT_BYTES
    stored = any(graph.is_stored(i) for i in range(len(graph.arguments)))
    multiple = align if stored else ALIGN_BYTES
    if (stored or given) and (unit < MIN_WRITE_UNIT_BYTES or unit % multiple):
        raise InputError(
            f"the unit of the storage image must be a multiple of {multiple} and at least "
            f"{MIN_WRITE_UNIT_BYTES}, not {unit}"
        )
    view = view_scheduled(graph, align=align)
    try:
        plan = plan_memory(
            view.problem, view.steps, align, unit_bytes=unit, target_bytes=graph.ram or 0
        )
    except ScheduleError as error:
        raise InputError(f"{name}: {error}") from error
    if graph.ram is not None and plan.arena_bytes > graph.ram:
        excess = plan.arena_bytes - graph.ram
        raise ArenaOverflowError(
            f"{name} needs an arena of {plan.arena_bytes} bytes, {excess} more than the "
            f"{graph.ram} bytes of RAM; at most {plan.arena_bound_bytes} bytes are alive at once",
            excess,
        )
    write_memory_plan(view, plan, unit)
    return plan


def write_memory_plan(view: GraphView, plan: MemoryPlan, unit: int) -> None:
    """Sets the offsets of `plan`, whose storage image has that unit, on the graph of `view`."""
    graph = view.graph
    callers = graph.caller_values()
    places: dict[int, IntegerAttr[I64] | None] = {}
    for i, argument in enumerate(graph.arguments):
        place = plan.start_pages[i] if graph.is_stored(i) else plan.start[i]
        places[i] = _optional(None if argument in callers else place)
    graph.set_arg_attrs("poet.offset", places)
    for op, made, workspace, page in zip(
        view.ops, plan.made, plan.workspace, plan.pages, strict=True
    ):
        match op:
            case ComputeOp():
                op.result_offsets = [
                    NO_OFFSET if result in callers else offset
                    for result, offset in zip(op.results, made, strict=True)
                ]
                op.workspace_offset = _optional(workspace)
            case PageInOp() | PageInStartOp():
                op.offset = _optional(made[0])
            case PageOutOp() | PageOutStartOp():
                op.offset = _optional(page)
            case _:
                pass
    graph.attributes["arena_bytes"] = IntegerAttr(plan.arena_bytes, i64)
    graph.attributes["storage_bytes"] = IntegerAttr(plan.storage_bytes, i64)
    if plan.bank_bytes is not None:
        graph.attributes["bank_bytes"] = IntegerAttr(plan.bank_bytes, i64)
        graph.attributes["storage_unit"] = IntegerAttr(unit, i64)


def _optional(value: int | None) -> IntegerAttr[I64] | None:
    return None if value is None else IntegerAttr(value, i64)


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
