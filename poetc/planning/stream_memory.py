"""Places in arena and storage of a graph with streams."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import SSAValue

from poetc.costmodel.device import DEFAULT_WRITE_UNIT_BYTES
from poetc.ir.buffers import element_bytes
from poetc.ir.graph import tensor_bytes, widest_element_bytes
from poetc.ir.poet import (
    NO_OFFSET,
    ComputeOp,
    FreeOp,
    GraphOp,
    PageInOp,
    PageInStartOp,
    PageOutOp,
    PageOutStartOp,
    PageType,
    RunOp,
    StreamOp,
    is_banked,
)
from poetc.page import page_bytes
from poetc.schedule.arena.memory import place_image
from poetc.schedule.arena.pack import Buffer, pack

_EFFORT = 500_000
"""Of packing: what does not pack is scheduled in less RAM, which is sooner done."""


class _Lifetimes:
    """What needs bytes from one operation to another one, each as a buffer."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.first: list[int] = []
        self.last: list[int] = []
        self.align: list[int] = []
        self.of: dict[object, int] = {}

    def begin(self, what: object, size: int, at: int, align: int = 1) -> None:
        self.of[what] = len(self.sizes)
        self.sizes.append(size)
        self.first.append(at)
        self.last.append(at)
        self.align.append(align)

    def end(self, what: object, at: int) -> None:
        buffer = self.of[what]
        self.last[buffer] = max(self.last[buffer], at)

    def packed(self, align: int, target_bytes: int = 0) -> tuple[tuple[int, ...], int]:
        """Offsets, and bytes of all together."""
        boxes = [
            Buffer(*box) for box in zip(self.sizes, self.first, self.last, self.align, strict=True)
        ]
        found = pack(boxes, align, _EFFORT, target_bytes=target_bytes)
        return found.offsets, found.arena_bytes


def plan_stream_memory(graph: GraphOp, align: int = 4, unit: int | None = None) -> int:
    """Bytes of the arena of a scheduled graph with streams, whose offsets are set.

    So are its `arena_bytes` and `storage_bytes`. `unit` is the unit of the storage image in bytes,
    by default the graph's `storage_unit`. The arena may exceed the graph's `ram`.
    """
    unit = unit or graph.storage_unit or DEFAULT_WRITE_UNIT_BYTES
    callers = graph.caller_values()
    stored = [a for a in graph.arguments if isinstance(a.type, PageType)]
    image = place_image(
        [page_bytes(_bytes(a), align, graph.block_bytes) for a in stored],
        [is_banked(graph, a.index) for a in stored],
        unit,
    )
    places: dict[SSAValue, int] = dict(zip(stored, image.offsets, strict=True))
    for argument in stored:
        if (new := graph.new_page(argument.index)) is not None:
            places[new] = places[argument]
    ram, storage = _Lifetimes(), _Lifetimes()
    _find(graph, callers, places, ram, storage, align)
    offsets, arena_bytes = ram.packed(align, graph.ram or 0)
    page_offsets, pages_bytes = storage.packed(align)
    for page, buffer in storage.of.items():
        assert isinstance(page, SSAValue)
        places[page] = image.end + page_offsets[buffer]

    def place(value: SSAValue) -> int | None:
        if isinstance(value.type, PageType):
            return places[value]
        return None if value in callers else offsets[ram.of[value]]

    arguments = ((a.index, place(a)) for a in graph.arguments)
    graph.set_arg_attrs(
        "poet.offset", {i: None if at is None else IntegerAttr(at, i64) for i, at in arguments}
    )
    for op in graph.block.ops:
        match op:
            case RunOp():
                made = map(place, op.results)
                op.result_offsets = [NO_OFFSET if at is None else at for at in made]
                if op in ram.of:
                    op.workspace_offset = IntegerAttr(offsets[ram.of[op]], i64)
            case PageInOp() | PageInStartOp():
                op.offset = IntegerAttr(place(op.tensor) or 0, i64)
            case PageOutOp() | PageOutStartOp():
                op.offset = IntegerAttr(places[op.page], i64)
            case _:
                pass
    numbers = {"arena_bytes": arena_bytes, "storage_bytes": image.end + pages_bytes}
    if image.bank_bytes is not None:
        numbers |= {"bank_bytes": image.bank_bytes, "storage_unit": unit}
    for name, number in numbers.items():
        graph.attributes[name] = IntegerAttr(number, i64)
    return arena_bytes


def _find(
    graph: GraphOp,
    callers: frozenset[SSAValue],
    places: dict[SSAValue, int],
    ram: _Lifetimes,
    storage: _Lifetimes,
    align: int,
) -> None:
    """The buffers and pages of the step."""
    block_bytes = graph.block_bytes

    def begin(value: SSAValue, at: int) -> None:
        if isinstance(value.type, PageType):
            if value not in places:
                storage.begin(value, page_bytes(_bytes(value), align, block_bytes), at)
        elif value not in callers:
            ram.begin(value, _bytes(value), at, max(align, _element_bytes(value)))

    for argument in graph.arguments:
        begin(argument, -1)
    for at, op in enumerate(graph.block.ops):
        for operand in op.operands:
            for lifetimes in (ram, storage):
                if operand in lifetimes.of:
                    lifetimes.end(operand, at)
        taken = dict(op.inplace_pairs) if isinstance(op, RunOp) else {}
        for result in op.results:
            if result.index in taken:
                old = op.operands[taken[result.index]]
                ram.of[result] = ram.of[old]
            else:
                begin(result, at)
        size = op.cost.workspace if isinstance(op, ComputeOp | StreamOp) and op.cost else 0
        if size:
            ram.begin(op, size, at, max(align, widest_element_bytes(op)))
    # What nothing frees stays: results, and parameters in RAM.
    end = len(list(graph.block.ops))
    freed = {op.tensor for op in graph.block.ops if isinstance(op, FreeOp)}
    freed |= {
        op.operands[operand]
        for op in graph.block.ops
        if isinstance(op, RunOp)
        for _, operand in op.inplace_pairs
    }
    for value in ram.of:
        if isinstance(value, SSAValue) and value not in freed:
            ram.end(value, end)


def _bytes(value: SSAValue) -> int:
    return tensor_bytes(value.type.tensor if isinstance(value.type, PageType) else value.type)


def _element_bytes(value: SSAValue) -> int:
    return element_bytes(value.type.get_element_type())  # pyright: ignore[reportAttributeAccessIssue]
