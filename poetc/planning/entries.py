"""Places of an entry that reads the parameters of a step: between steps, both share one RAM.

Parameters in RAM begin the arena of the step, so that what is above them is free between steps; an
entry has its own tensors there. Parameters on storage are pages at the places that the step has for
them, in the bank that is the current one.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping

from xdsl.dialects.builtin import I64, DenseArrayBase, IntegerAttr, UnitAttr, i64

from poetc.errors import InputError
from poetc.image import layout_of
from poetc.ir.graph import ALIGN_BYTES, round_up, tensor_bytes, view_scheduled
from poetc.ir.poet import (
    BANKED,
    NO_OFFSET,
    GraphOp,
    PageInOp,
    PageInStartOp,
    PageOutOp,
    PageOutStartOp,
    PageType,
    RunOp,
    is_banked,
    offset_of,
    runs_of,
)
from poetc.planning.memory import PLANNED, is_page, planned_offsets
from poetc.schedule.arena.memory import lay_out


def parameters_first(graph: GraphOp, align: int) -> None:
    """Moves what is in RAM for the whole step, its parameters, to the beginning of the arena that
    was planned for a scheduled graph; the others keep their order.

    Where that would take more RAM, for alignment, all stays where it is.
    """
    offsets = planned_offsets(graph)
    view = view_scheduled(graph, align=align)
    layout = lay_out(view.problem, view.steps)
    if offsets is None or len(offsets) != len(layout.bytes):
        return
    end = len(view.steps)
    kept = {
        buffer
        for i in range(len(graph.arguments))
        if graph.role(i) == "param"
        and (buffer := layout.start[i]) is not None
        and (layout.first[buffer], layout.last[buffer]) == (-1, end)
    }
    widest = max((align, *layout.align))
    moved = list(offsets)
    total = 0
    for b in sorted(kept, key=lambda b: (-max(align, layout.align[b]), offsets[b])):
        moved[b] = total = round_up(total, max(align, layout.align[b]))
        total += layout.bytes[b]
    # Buffers between two of them move together, by a multiple of the widest alignment.
    ends = sorted(offsets[b] for b in kept)
    islands: dict[int, list[int]] = {}
    for b, offset in enumerate(offsets):
        if b not in kept and layout.bytes[b]:
            islands.setdefault(bisect(ends, offset), []).append(b)
    for _, buffers in sorted(islands.items()):
        start = min(offsets[b] for b in buffers)
        further = round_up(total, widest) + start % widest
        further -= widest if further - widest >= total else 0
        for b in buffers:
            moved[b] = offsets[b] - start + further
        total = max(moved[b] + layout.bytes[b] for b in buffers)
    arena_bytes = max(o + layout.bytes[b] for b, o in enumerate(offsets))
    if total <= max(arena_bytes, graph.ram or 0):
        graph.attributes[PLANNED] = DenseArrayBase.from_list(i64, moved)


def kept_bytes(graph: GraphOp, align: int) -> int:
    """The bytes of the arena of a planned step up to the end of the last parameter in it, where
    tensors of any alignment may begin."""
    ends = [
        (graph.offset(i) or 0) + round_up(tensor_bytes(argument.type), align)
        for i, argument in enumerate(graph.arguments)
        if graph.role(i) == "param" and not graph.is_stored(i)
    ]
    widest = max(align, 2 * ALIGN_BYTES, graph.cache_line_bytes or 1)
    return round_up(max(ends, default=0), widest)


def share_places(
    graph: GraphOp, step: GraphOp, parameters: Mapping[int, int], base_bytes: int
) -> None:
    """Moves an entry, planned by itself, to where it runs beside the parameters of a `step`.

    `parameters` gives the argument of the step that an argument of the entry is, by the numbers of
    whole ones; `base_bytes` is where the arena of the entry begins. Raises InputError if the pages
    of the two differ.
    """
    if base_bytes and graph.arena_bytes:
        _move_arena(graph, base_bytes)
    if any(graph.is_stored(i) for i in range(len(graph.arguments))):
        _share_image(graph, step, parameters)


def _move_arena(graph: GraphOp, base_bytes: int) -> None:
    def moved(offset: int) -> IntegerAttr[I64]:
        return IntegerAttr(offset + base_bytes, i64)

    places = {
        i: moved(offset)
        for i in range(len(graph.arguments))
        if not graph.is_stored(i) and (offset := graph.offset(i)) is not None
    }
    graph.set_arg_attrs("poet.offset", places)
    for op in graph.block.ops:
        match op:
            case RunOp():
                if op.result_offsets is not None:
                    op.result_offsets = [
                        o if o == NO_OFFSET or is_page(result) else o + base_bytes
                        for result, o in zip(op.results, op.result_offsets, strict=True)
                    ]
                if op.workspace_offset is not None:
                    op.workspace_offset = moved(op.workspace_offset.value.data)
            case PageInOp() | PageInStartOp():
                if op.offset is not None:
                    op.offset = moved(op.offset.value.data)
            case _:
                pass
    for name in ("arena_bytes", "ram"):
        if (size := getattr(graph, name)) is not None:
            graph.attributes[name] = moved(size)


def _share_image(graph: GraphOp, step: GraphOp, parameters: Mapping[int, int]) -> None:
    own, shared = layout_of(graph), layout_of(step)
    if own is None or shared is None:
        raise InputError("an entry has pages that the step has not")
    for i, j in parameters.items():
        if not step.is_stored(j):
            continue
        offset = step.offset(j)
        assert offset is not None
        graph.set_arg_attr(i, "poet.offset", IntegerAttr(offset, i64))
        graph.set_arg_attr(i, BANKED, UnitAttr() if is_banked(step, j) else None)
    # Pages of the entry itself are behind the image, as those of the step are.
    further = shared.pages_start - own.pages_start
    for op in graph.block.ops:
        if isinstance(op, PageOutOp | PageOutStartOp):
            offset = offset_of(op.page)
            assert offset is not None
            op.offset = IntegerAttr(offset + further, i64)
        elif isinstance(op, RunOp):
            places = zip(op.results, op.result_offsets or (), strict=True)
            op.result_offsets = [o + further if is_page(r) else o for r, o in places]
    assert graph.storage_bytes is not None
    for name, value in (
        ("storage_bytes", graph.storage_bytes + further),
        ("bank_bytes", shared.bank_bytes),
        ("storage_unit", shared.unit_bytes),
    ):
        graph.attributes[name] = IntegerAttr(value, i64)


def _pages(graph: GraphOp) -> set[tuple[int, str, tuple[int, ...], bool, int]]:
    """Places, types and shapes of the pages of parameters, whether they are in banks, and the bytes
    of their blocks (0: a page is in one piece)."""
    layout = layout_of(graph)
    tensors = () if layout is None else layout.tensors
    return {(t.offset, t.dtype, t.shape, t.updated, t.block_bytes or 0) for t in tensors}


def check_shared(graph: GraphOp, step: GraphOp, parameters: Mapping[int, int]) -> None:
    """Raises AssertionError unless an entry reads the parameters of the step where the step has
    them, writes none, and has nothing of its own over those in RAM."""
    other = sorted(_pages(graph) - _pages(step))
    assert not other, f"no pages of the step: {other}"
    assert all(graph.new_page(i) is None for i in range(len(graph.arguments)))
    kept = [
        (offset, offset + tensor_bytes(argument.type))
        for i, argument in enumerate(step.arguments)
        if step.role(i) == "param" and not step.is_stored(i)
        if (offset := step.offset(i)) is not None
    ]
    callers = graph.caller_values()
    own: list[tuple[int, int]] = [
        (c.workspace_offset.value.data, c.cost.workspace)
        for c in runs_of(graph)
        if c.workspace_offset is not None and c.cost is not None
    ]
    for value in (*graph.arguments, *(r for op in graph.block.ops for r in op.results)):
        if isinstance(value.type, PageType) or value in callers:
            continue
        begin = offset_of(value)
        if begin is None:  # A transfer that is under way, or nothing in RAM.
            continue
        own.append((begin, tensor_bytes(value.type)))
    for begin, size in own:
        assert all(begin + size <= low or high <= begin for low, high in kept), "over a parameter"
    for j in parameters.values():
        assert step.role(j) != "input"
