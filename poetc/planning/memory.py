"""Places of the tensors of a scheduled graph in the arena, and of its pages in storage."""

from __future__ import annotations

from xdsl.dialects.builtin import I64, DenseArrayBase, IntegerAttr, i64
from xdsl.ir import SSAValue

from poetc.costmodel.device import DEFAULT_WRITE_UNIT_BYTES, MIN_WRITE_UNIT_BYTES
from poetc.diagnosis import Diagnosis, Reason
from poetc.errors import InputError, TimeLimitError
from poetc.ir.graph import ALIGN_BYTES, GraphView, view_scheduled
from poetc.ir.poet import (
    NO_OFFSET,
    GraphOp,
    PageInOp,
    PageInStartOp,
    PageOutOp,
    PageOutStartOp,
    PageType,
    RunOp,
)
from poetc.schedule.arena.check import ArenaError, check_packing
from poetc.schedule.arena.memory import MemoryPlan, lay_out, plan_memory
from poetc.schedule.model.errors import ScheduleError
from poetc.units import check_limit

PLANNED = "planned"
"""Attribute of a graph between poet-schedule and poet-plan-memory: the offset of each buffer, which
transfers and memory were planned together with."""


def planned_offsets(graph: GraphOp) -> tuple[int, ...] | None:
    """The offsets in bytes of the buffers of a scheduled graph that were planned with it, in the
    order of `lay_out`; None where they were not, or when memory has been planned."""
    found = graph.attributes.get(PLANNED)
    if not isinstance(found, DenseArrayBase):
        return None
    return tuple(int(offset) for offset in found.get_values())


def plan_graph_memory(
    graph: GraphOp, align: int = ALIGN_BYTES, unit: int | None = None
) -> MemoryPlan:
    """Sets all offsets of a scheduled graph, its `arena_bytes` and `storage_bytes`.

    Buffers lie where the scheduler has planned them, if it has and the graph is still the same.
    `unit` is the unit of the storage image in bytes, by default the graph's `storage_unit`.
    Raises TimeLimitError, changing nothing, if the arena exceeds the graph's `ram`; InputError if
    the graph is not scheduled or breaks the rules of live ranges.
    """
    name = f"graph @{graph.sym_name.data}"
    if not graph.is_scheduled:
        raise InputError(f"{name} is not scheduled")
    check_align(align)
    if unit is not None:
        check_limit(unit, "unit")
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
        offsets = _planned(graph, view, align)
        target_bytes = graph.ram or 0
        plan = plan_memory(
            view.problem,
            view.steps,
            align,
            unit_bytes=unit,
            offsets=offsets,
            target_bytes=target_bytes,
            block_bytes=graph.block_bytes,
        )
    except ScheduleError as error:
        raise InputError(f"{name}: {error}") from error
    if graph.ram is not None and plan.arena_bytes > graph.ram:
        excess_bytes = plan.arena_bytes - graph.ram
        raise TimeLimitError(
            Diagnosis(
                Reason.ARENA,
                subject=name,
                ram_bytes=graph.ram,
                needed_bytes=plan.arena_bound_bytes,
                excess_bytes=excess_bytes,
            )
        )
    write_memory_plan(view, plan, unit)
    graph.attributes.pop(PLANNED, None)
    return plan


def check_align(align: int) -> int:
    """`align`, if tensors can have it as alignment in bytes; raises InputError if not."""
    if align < ALIGN_BYTES or align & (align - 1):
        raise InputError(f"align must be a power of two and at least {ALIGN_BYTES}, not {align}")
    return check_limit(align, "align")


def _planned(graph: GraphOp, view: GraphView, align: int) -> tuple[int, ...] | None:
    """The offsets that were planned, if they are of the buffers that the graph has."""
    offsets = planned_offsets(graph)
    if offsets is None:
        return None
    layout = lay_out(view.problem, view.steps)
    if len(offsets) != len(layout.bytes):
        return None
    lifetimes = list(zip(layout.first, layout.last, strict=True))
    arena_bytes = sum(layout.bytes) + sum(offsets)
    try:
        check_packing(
            layout.bytes, lifetimes, offsets, arena_bytes, align, layout.names, layout.align
        )
    except ArenaError:
        return None
    return offsets


def write_memory_plan(view: GraphView, plan: MemoryPlan, unit: int) -> None:
    """Sets the offsets of `plan`, whose storage image has that unit, on the graph of `view`."""
    graph = view.graph
    callers = graph.caller_values()
    places: dict[int, IntegerAttr[I64] | None] = {}
    for i, argument in enumerate(graph.arguments):
        place = plan.start_pages[i] if graph.is_stored(i) else plan.start[i]
        places[i] = _optional(None if argument in callers else place)
    graph.set_arg_attrs("poet.offset", places)
    for op, made, workspace, pages in zip(
        view.ops, plan.made, plan.workspace, plan.pages, strict=True
    ):
        match op:
            case RunOp():
                in_ram, on_storage = iter(made), iter(pages)
                places_of = [next(on_storage if is_page(r) else in_ram) for r in op.results]
                op.result_offsets = [
                    NO_OFFSET if result in callers else offset
                    for result, offset in zip(op.results, places_of, strict=True)
                ]
                op.workspace_offset = _optional(workspace)
            case PageInOp() | PageInStartOp():
                op.offset = _optional(made[0])
            case PageOutOp() | PageOutStartOp():
                op.offset = _optional(pages[0])
            case _:
                pass
    graph.attributes["arena_bytes"] = IntegerAttr(plan.arena_bytes, i64)
    graph.attributes["storage_bytes"] = IntegerAttr(plan.storage_bytes, i64)
    if plan.bank_bytes is not None:
        graph.attributes["bank_bytes"] = IntegerAttr(plan.bank_bytes, i64)
        graph.attributes["storage_unit"] = IntegerAttr(unit, i64)


def take_offsets(graph: GraphOp, align: int) -> tuple[int, ...]:
    """Removes the offsets of a graph, and returns those of its buffers, in the order of `lay_out`.

    With them as the attribute `PLANNED`, `plan_graph_memory` sets them again.
    """
    view = view_scheduled(graph, align=align)
    layout = lay_out(view.problem, view.steps)
    offsets = [0] * len(layout.bytes)

    def take(buffer: int | None, offset: int | None) -> None:
        if buffer is not None and offset is not None and offset != NO_OFFSET:
            offsets[buffer] = offset

    for i, buffer in enumerate(layout.start[: len(graph.arguments)]):
        take(buffer, None if graph.is_stored(i) else graph.offset(i))
    for op, made, workspace in zip(view.ops, layout.made, layout.workspace, strict=True):
        match op:
            case RunOp():
                offsets_of = zip(op.results, op.result_offsets or (), strict=True)
                in_ram = [offset for result, offset in offsets_of if not is_page(result)]
                for buffer, offset in zip(made, in_ram, strict=True):
                    take(buffer, offset)
                if op.workspace_offset is not None:
                    take(workspace, op.workspace_offset.value.data)
                op.result_offsets = op.workspace_offset = None
            case PageInOp() | PageOutOp():
                if made and op.offset is not None:
                    take(made[0], op.offset.value.data)
                op.offset = None
            case _:
                pass
    graph.set_arg_attrs("poet.offset", dict.fromkeys(range(len(graph.arguments))))
    for name in ("arena_bytes", "storage_bytes", "bank_bytes", "storage_unit"):
        graph.attributes.pop(name, None)
    return tuple(offsets)


def is_page(value: SSAValue) -> bool:
    """Whether a value is a page on storage."""
    return isinstance(value.type, PageType)


def _optional(value: int | None) -> IntegerAttr[I64] | None:
    return None if value is None else IntegerAttr(value, i64)
