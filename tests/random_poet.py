"""Random valid poet graphs, built through the Python API: unscheduled, scheduled, with places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from hypothesis import strategies as st
from xdsl.dialects import test
from xdsl.dialects.builtin import (
    DictionaryAttr,
    FunctionType,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    TensorType,
    f32,
    i1,
    i32,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue

from poetc.ir.graph import FREE_STORAGE
from poetc.ir.poet import (
    ComputeOp,
    CostAttr,
    FreeOp,
    GraphOp,
    PageInOp,
    PageOutOp,
    ReturnOp,
    YieldOp,
)
from poetc.ir.transfers import split_transfers
from poetc.page import page_bytes

Stage = Literal["unscheduled", "scheduled", "planned", "split"]
"""Planned: scheduled, and every buffer has its place in the arena or in storage. Split: planned,
and transfers are split into start and wait."""

ELEMENT_BYTES = {f32: 4, i32: 4, i1: 1}

types = st.builds(
    TensorType,
    st.sampled_from([f32, f32, i32, i1]),
    st.lists(st.integers(1, 3), max_size=2),
)
# xDSL reads a string with an escaped byte, hence any beyond ASCII, as bytes.
labels = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=5)
hints = st.sampled_from([None, None, "x", "y", "loss", "a"])
costs = st.builds(CostAttr, *[st.integers(0, 99)] * 4)


def bytes_of(type: Attribute) -> int:
    assert isinstance(type, TensorType)
    size = ELEMENT_BYTES[type.element_type]
    for extent in type.get_shape():
        size *= extent
    return size


@dataclass
class _Builder:
    draw: Callable
    stage: Stage
    live: dict[SSAValue, int] = field(default_factory=dict)
    """Values that may be used, with their offsets in the arena (0 if there are none)."""
    pages: list[PageOutOp] = field(default_factory=list)
    ops: list[Operation] = field(default_factory=list)
    peak_bytes: int = 0
    arena_bytes: int = 0
    storage_bytes: int = 0

    def place(self, size: int, taken: list[tuple[int, int]]) -> int:
        """The lowest place for `size` bytes beside all live values and `taken`."""
        if self.stage != "planned":
            return 0
        used = sorted([(offset, bytes_of(v.type)) for v, offset in self.live.items()] + taken)
        offset = 0
        for at, length in used:
            if offset + size <= at:
                break
            offset = max(offset, (at + length + 3) // 4 * 4)
        self.arena_bytes = max(self.arena_bytes, offset + size)
        return offset

    def count(self, extra_bytes: int = 0) -> None:
        in_ram = sum(bytes_of(value.type) for value in self.live)
        self.peak_bytes = max(self.peak_bytes, in_ram + extra_bytes)

    def compute(
        self, operands: list[SSAValue], results: list[TensorType], inplace: list[tuple[int, int]]
    ) -> ComputeOp:
        cost = self.draw(st.none() | costs)
        workspace = cost.workspace if cost else 0
        compute = ComputeOp(self.draw(labels), operands, results, cost=cost, inplace=inplace)
        inner = test.TestPureOp(list(compute.block.args), results)
        compute.block.add_ops([inner, YieldOp(*inner.results)])
        for value in (*compute.results, *compute.block.args, *inner.results):
            value.name_hint = self.draw(hints)
        taken: list[tuple[int, int]] = []
        offsets: list[int] = []
        for i, type in enumerate(results):
            pair = dict(inplace).get(i)
            if pair is not None:
                offsets.append(self.live[operands[pair]])
                continue
            offsets.append(self.place(bytes_of(type), taken))
            taken.append((offsets[-1], bytes_of(type)))
        fresh = sum(size for _, size in taken)
        workspace_offset = self.place(workspace, taken)
        if self.stage == "planned":
            compute.result_offsets = offsets
            if workspace:
                compute.workspace_offset = IntegerAttr(workspace_offset, i64)
        self.count(fresh + workspace)
        for _, operand in inplace:
            del self.live[operands[operand]]
        self.live.update(zip(compute.results, offsets, strict=True))
        self.ops.append(compute)
        return compute

    def random_compute(self, kept: set[SSAValue]) -> None:
        pool = list(self.live)
        operands = (
            self.draw(st.lists(st.sampled_from(pool), max_size=3, unique=True)) if pool else []
        )
        results = self.draw(st.lists(types, max_size=2))
        inplace = []
        free = [i for i, v in enumerate(operands) if v not in kept]
        if free and self.draw(st.booleans()):
            operand = self.draw(st.sampled_from(free))
            results = [operands[operand].type, *results]
            inplace = [(0, operand)]
        self.compute(operands, results, inplace)

    def page_out(self) -> None:
        value = self.draw(st.sampled_from(list(self.live)))
        op = PageOutOp(value)
        if self.stage == "planned":
            op.offset = IntegerAttr(self.storage_bytes, i64)
            self.storage_bytes += page_bytes(bytes_of(value.type))
        op.page.name_hint = self.draw(hints)
        self.pages.append(op)
        self.ops.append(op)

    def page_in(self) -> None:
        op = PageInOp(self.draw(st.sampled_from(self.pages)).page)
        size = bytes_of(op.tensor.type)
        offset = self.place(size, [])
        if self.stage == "planned":
            op.offset = IntegerAttr(offset, i64)
        op.tensor.name_hint = self.draw(hints)
        self.live[op.tensor] = offset
        self.count()
        self.ops.append(op)

    def free(self, value: SSAValue) -> None:
        del self.live[value]
        self.ops.append(FreeOp(value))


@st.composite
def poet_graphs(draw: st.DrawFn, stage: Stage) -> GraphOp:
    """A valid graph in a module; when scheduled, `ram` is exactly what it needs."""
    if stage == "split":
        graph = draw(poet_graphs("planned"))
        split_transfers(graph, FREE_STORAGE)
        return graph
    inputs = draw(st.lists(types, max_size=2))
    params = draw(st.lists(st.tuples(types, st.booleans()), max_size=2))
    argument_types = [*inputs, *(type for type, _ in params)]
    # Outputs come before new values of parameters; both are known only at the end.
    graph = GraphOp("main", (argument_types, []))
    builder = _Builder(draw, stage)
    for argument in graph.arguments:
        argument.name_hint = draw(hints)
        builder.live[argument] = builder.place(bytes_of(argument.type), [])
    builder.count()
    places = dict(builder.live)
    kept: set[SSAValue] = set(graph.arguments[len(inputs) :])
    for _ in range(draw(st.integers(0, 8))):
        actions = ["compute", "compute"]
        if stage != "unscheduled":
            if builder.live:
                actions.append("pageout")
            if builder.pages:
                actions.append("pagein")
            actions += ["free"] * bool(set(builder.live) - kept)
        match draw(st.sampled_from(actions)):
            case "compute":
                builder.random_compute(kept)
            case "pageout":
                builder.page_out()
            case "pagein":
                builder.page_in()
            case "free":
                builder.free(draw(st.sampled_from([v for v in builder.live if v not in kept])))
    outputs = [v for v in builder.live if v not in kept and draw(st.booleans())]
    updates: dict[SSAValue, int] = {}
    for (type, updated), param in zip(params, graph.arguments[len(inputs) :], strict=True):
        if updated:
            new = builder.compute([param], [type], [(0, 0)]).results[0]
            updates[param] = len(outputs)
            outputs.append(new)
            kept.add(new)
    if stage != "unscheduled":
        for value in [v for v in builder.live if v not in kept and v not in outputs]:
            builder.free(value)
    graph.block.add_ops([*builder.ops, ReturnOp(*outputs)])
    graph.function_type = FunctionType.from_lists(argument_types, [value.type for value in outputs])
    for i, argument in enumerate(graph.arguments):
        role = "param" if i >= len(inputs) else "input"
        graph.set_arg_attr(i, "poet.role", StringAttr(role))
        if argument in updates:
            graph.set_arg_attr(i, "poet.updates", IntegerAttr(updates[argument], i64))
        if stage == "planned":
            graph.set_arg_attr(i, "poet.offset", IntegerAttr(places[argument], i64))
        if draw(st.booleans()):
            graph.set_arg_attr(i, "poet.name", StringAttr(draw(labels)))
    if stage != "unscheduled":
        graph.attributes["schedule"] = DictionaryAttr({})
        graph.attributes["ram"] = IntegerAttr(builder.peak_bytes, i64)
    if stage == "planned":
        # Places leave gaps, so the arena may need more than the sum of what is in it.
        graph.attributes["ram"] = IntegerAttr(max(builder.peak_bytes, builder.arena_bytes), i64)
        graph.attributes["arena_bytes"] = IntegerAttr(builder.arena_bytes, i64)
        graph.attributes["storage_bytes"] = IntegerAttr(builder.storage_bytes, i64)
    ModuleOp([graph])
    return graph
