"""The timeline of split transfers: by hand, and against the checker, which is independent of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from conftest import MODELS
from hypothesis import given, settings
from hypothesis import strategies as st
from outcomes import must_reach, reached
from xdsl.dialects import test
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, TensorType, f32
from xdsl.ir import Operation, SSAValue

from poetc.compilation import compile_step
from poetc.errors import InputError
from poetc.ir import transfers
from poetc.ir.graph import Storage, graphs, view_scheduled
from poetc.ir.graph import Transfer as Cost
from poetc.ir.poet import (
    ComputeOp,
    CostAttr,
    FreeOp,
    GraphOp,
    PageInOp,
    PageOutOp,
    PageType,
    ReturnOp,
    StreamOp,
    YieldOp,
)
from poetc.ir.text import parse_module, read_module
from poetc.ir.timeline import simulate, simulate_events
from poetc.ir.transfers import (
    FEW,
    join_transfers,
    most_under_way,
    split_at_once,
    split_transfers,
    transfer_slots,
)
from poetc.options import Given
from poetc.passes.poet_verify import verify_graph
from poetc.planning.problem import alignment_of, storage_of
from poetc.request import options_of
from poetc.schedule.model.checker import replay
from poetc.schedule.model.problem import Compute, Free, PageIn, PageOut

READ, WRITE = 10, 20


def storage(read_ns: int = READ, write_ns: int = WRITE, byte_ns: int = 0, dma: bool = True):
    return Storage(
        lambda bytes: Cost(read_ns + byte_ns * bytes, 0),
        lambda bytes: Cost(write_ns + byte_ns * bytes, 0),
        dma,
    )


def kernel(result: str, operands: str, time_ns: int) -> str:
    bindings = ", ".join(
        f"%{letter} = %{operand} : tensor<4xf32>"
        for letter, operand in zip("pqrs", operands.split(), strict=False)
    )
    return f"""
  %{result} = poet.compute "{result}" ({bindings}) -> tensor<4xf32>
      cost #poet.cost<energy_nj = 0, time_ns = {time_ns}, workspace = 0, flops = 0> {{
    poet.yield %p : tensor<4xf32>
  }}"""


PAGE = "!poet.page<tensor<4xf32>>"
STEP = f"""
poet.graph @main(%x: tensor<4xf32>, %w: {PAGE} {{poet.role = "param", poet.name = "weights"}})
    -> tensor<4xf32> attributes {{schedule = {{}}}} {{
  %x_page = poet.pageout %x : tensor<4xf32> -> {PAGE}
  %w_1 = poet.pagein %w : {PAGE} -> tensor<4xf32>
  {kernel("a", "x", 12)}
  poet.free %x : tensor<4xf32>
  {kernel("b", "a w_1", 5)}
  poet.free %w_1 : tensor<4xf32>
  %x_1 = poet.pagein %x_page : {PAGE} -> tensor<4xf32>
  {kernel("c", "b x_1", 7)}
  poet.free %a : tensor<4xf32>
  poet.free %b : tensor<4xf32>
  poet.free %x_1 : tensor<4xf32>
  poet.return %c : tensor<4xf32>
}}"""


def test_stalls_by_hand() -> None:
    graph = graphs(parse_module(STEP))[0]
    split_transfers(graph, storage())
    timeline = simulate(graph, storage())
    # x is written from 0 to 20, "a" runs from 0 to 12: the free of x waits for 8. The weights are
    # read from 20 to 30: "b" waits for 10. Reading x back has nothing beside it.
    # So it stays whole.
    assert str(graph).count("poet.wait") == 2
    rows = [(t.tensor, t.direction, t.start_ns, t.end_ns, t.stall_ns) for t in timeline.transfers]
    assert rows == [("x", "out", 0, 20, 8), ("weights", "in", 20, 30, 10), ("x", "in", 35, 45, 10)]
    assert [t.queued_ns for t in timeline.transfers] == [0, 0, 35]
    assert timeline.makespan_ns == 52 and timeline.compute_ns == 24
    assert timeline.stall_ns == 28 and timeline.bus_ns == 40
    assert timeline.bus_use == 40 / 52


def test_names_and_places_outlive_the_split() -> None:
    text = STEP.replace("pageout %x :", "pageout %x offset 24 :")
    text = text.replace("pagein %w :", "pagein %w offset 48 :")
    graph = graphs(parse_module(text))[0]
    before = str(graph)
    split_at_once(graph)
    assert "%x_page = poet.wait %x_page_transfer" in str(graph)
    assert "offset 24" in str(graph) and "offset 48" in str(graph)
    join_transfers(graph)
    assert str(graph) == before


def test_transfers_are_named_after_kernels() -> None:
    """A tensor that is no argument has the label of the kernel that makes it."""
    text = f"""
poet.graph @main(%x: tensor<4xf32>, %w: tensor<4xf32> {{poet.role = "param"}}) -> tensor<4xf32>
    attributes {{schedule = {{}}}} {{
  {kernel("a", "x", 1)}
  %p, %q = poet.compute "two" (%r = %a : tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {{
    poet.yield %r, %r : tensor<4xf32>, tensor<4xf32>
  }}
  %a_page = poet.pageout %a : tensor<4xf32> -> {PAGE}
  %q_page = poet.pageout %q : tensor<4xf32> -> {PAGE}
  poet.free %x : tensor<4xf32>
  poet.free %a : tensor<4xf32>
  poet.free %q : tensor<4xf32>
  poet.return %p : tensor<4xf32>
}}"""
    timeline = simulate(graphs(parse_module(text))[0], storage())
    assert [t.tensor for t in timeline.transfers] == ["a", "two.1"]


def test_without_dma_every_transfer_stalls() -> None:
    graph = graphs(parse_module(STEP))[0]
    whole = simulate(graph, storage(dma=False))
    assert whole.makespan_ns == 24 + 40 and whole.stall_ns == 40
    split_transfers(graph, storage())
    assert simulate(graph, storage(dma=False)) == whole


def test_transfers_need_a_storage() -> None:
    graph = graphs(parse_module(STEP))[0]
    with pytest.raises(InputError, match=r"poet\.pageout on a device without storage"):
        simulate(graph, None)


# Random steps


@dataclass
class _Steps:
    """Legal steps of a random program, in the order drawn, as a graph."""

    random: Random
    ram: dict[int, SSAValue] = field(default_factory=dict)
    pages: dict[int, SSAValue] = field(default_factory=dict)
    ops: list[Operation] = field(default_factory=list)

    def page_out(self, v: int) -> None:
        op = PageOutOp(self.ram[v])
        self.pages[v] = op.page
        self.ops.append(op)

    def page_in(self, v: int) -> None:
        op = PageInOp(self.pages[v])
        self.ram[v] = op.tensor
        self.ops.append(op)

    def free(self, v: int) -> None:
        self.ops.append(FreeOp(self.ram.pop(v)))

    def compute(self, inputs: list[int], output: int, type: TensorType, inplace: bool) -> None:
        operands = [self.ram[v] for v in inputs]
        cost = CostAttr(0, self.random.randint(0, 60))
        pairs = [(0, 0)] if inplace else []
        op = ComputeOp(f"k{output}", operands, [type], cost=cost, inplace=pairs)
        inner = test.TestPureOp(list(op.block.args), [type])
        op.block.add_ops([inner, YieldOp(*inner.results)])
        self.ops.append(op)
        if inplace:
            del self.ram[inputs[0]]
        self.ram[output] = op.results[0]


def random_graph(random: Random) -> GraphOp:
    """Kernels in a row, with page-outs, frees and page-ins anywhere that they are legal."""
    count = random.randint(1, 10)
    types = [TensorType(f32, [random.choice([1, 2, 5, 30])]) for _ in range(count + 1)]
    readers: list[list[int]] = []
    for k in range(count):
        readers.append(random.sample(range(k + 1), random.randint(1, min(2, k + 1))))
    last_use = {v: max((k for k, r in enumerate(readers) if v in r), default=-1) for v in range(99)}
    graph = GraphOp("main", ([types[0]], [types[count]]))
    steps = _Steps(random, {0: graph.arguments[0]})
    for k in range(count):
        for _ in range(random.randint(0, 4)):
            movable = [v for v in steps.ram if v not in steps.pages]
            droppable = [v for v in steps.ram if v in steps.pages or last_use[v] < k]
            absent = [v for v in steps.pages if v not in steps.ram and last_use[v] >= k]
            match random.choice(["out", "out", "free", "in"]):
                case "out" if movable:
                    steps.page_out(random.choice(movable))
                case "free" if droppable:
                    steps.free(random.choice(droppable))
                case "in" if absent:
                    steps.page_in(random.choice(absent))
        for v in readers[k]:
            if v not in steps.ram:
                steps.page_in(v)
        first = readers[k][0]
        inplace = types[first] == types[k + 1] and last_use[first] == k and random.random() < 0.5
        steps.compute(readers[k], k + 1, types[k + 1], inplace)
    result = steps.ram[count]
    for v in [v for v in steps.ram if v != count]:
        steps.free(v)
    graph.block.add_ops([*steps.ops, ReturnOp(result)])
    graph.attributes["schedule"] = DictionaryAttr({})
    ModuleOp([graph])
    return graph


@pytest.mark.slow
@must_reach("overlap", "held")
@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(0, 60), st.integers(0, 2))
def test_agrees_with_the_checker(seed: int, read_ns: int, write_ns: int, byte_ns: int) -> None:
    graph = random_graph(Random(seed))
    before = str(graph)
    for dma in (False, True):
        device = storage(read_ns, write_ns, byte_ns, dma)
        view = view_scheduled(graph, storage=device)
        report = replay(view.problem, view.steps)
        timeline = split_transfers(graph, device, deadline_ns=report.makespan_ns)
        verify_graph(graph)
        assert simulate(graph, device) == timeline
        assert timeline.makespan_ns == report.makespan_ns
        assert timeline.compute_ns == report.busy_ns
        assert timeline.bus_ns == report.bus_ns
        assert timeline.makespan_ns == timeline.compute_ns + timeline.stall_ns
        # Transfers are in the order that they had, and so is everything else. Where there are
        # never too many, they are where they were.
        again = view_scheduled(graph, storage=device)
        for kinds in (PageIn | PageOut, Compute | Free):
            old, new = ([s for s in v.steps if isinstance(s, kinds)] for v in (view, again))
            assert old == new
        held = most_under_way(graph) >= FEW
        if dma and 0 < timeline.stall_ns < timeline.bus_ns:
            reached("overlap")
        if held:
            reached("held")
        join_transfers(graph)
        assert held or str(graph) == before


@must_reach("slower")
@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_few_under_way(seed: int, most: int) -> None:
    """A limit costs time at most, and breaks no rule."""
    graph = random_graph(Random(seed))
    device = storage()
    ops = list(graph.block.ops)
    fastest_ns = simulate_events(graph, transfers._events(ops, len(ops)), device, 4).makespan_ns
    transfers._rewrite(graph, transfers._events(ops, most))
    verify_graph(graph)
    assert most_under_way(graph) <= most
    assert simulate(graph, device).makespan_ns >= fastest_ns
    if simulate(graph, device).makespan_ns > fastest_ns:
        reached("slower")
    slots = transfer_slots(graph)
    assert max(slots.values(), default=-1) + 1 == most_under_way(graph)


def test_more_than_few_for_a_deadline() -> None:
    """Nine page-ins beside one kernel: each must have been started before it."""
    names = [f"w{i}" for i in range(9)]
    arguments = ", ".join(f'%{name}: {PAGE} {{poet.role = "param"}}' for name in names)
    reads = "\n".join(f"%{n}_1 = poet.pagein %{n} : {PAGE} -> tensor<4xf32>" for n in names)
    frees = "\n".join(f"poet.free %{name}_1 : tensor<4xf32>" for name in names)
    text = f"""
poet.graph @main(%x: tensor<4xf32>, {arguments}) -> tensor<4xf32> attributes {{schedule = {{}}}} {{
  {reads}
  {kernel("long", "x", 90)}
  {kernel("short", "long w0_1 w8_1", 1)}
  poet.free %x : tensor<4xf32>
  poet.free %long : tensor<4xf32>
  {frees}
  poet.return %short : tensor<4xf32>
}}"""
    graph = graphs(parse_module(text))[0]
    before = str(graph)
    assert split_transfers(graph, storage(), deadline_ns=91).makespan_ns == 91
    assert most_under_way(graph) == 9
    join_transfers(graph)
    assert str(graph) == before
    assert split_transfers(graph, storage()).makespan_ns == 90 + 5 * READ + 1
    assert most_under_way(graph) == FEW


def test_split_at_once() -> None:
    graph = graphs(parse_module(STEP))[0]
    before = str(graph)
    split_at_once(graph)
    verify_graph(graph)
    assert most_under_way(graph) == 1 and len(transfer_slots(graph)) == 3
    assert simulate(graph, storage()).makespan_ns == 24 + 40
    join_transfers(graph)
    assert str(graph) == before


@pytest.mark.slow
@pytest.mark.usefixtures("by_work")
def test_kernels_in_tiles() -> None:
    """The bus is in use while slices move, as the checker has it; they are read where an operand is
    on storage, and written where a result is."""
    path = MODELS / "gesture_mlp.mlir"
    asked = {"device": "nrf52840", "ram": "3KB"}
    given = Given(asked | {"stop": "work", "time_limit": "30"})
    options = options_of(given, warn=lambda message: None)
    graph = compile_step(
        read_module(path.read_bytes(), path.name), path.name, options
    ).compiled.graph
    device, align = storage_of(options.device, graph.block_bytes), alignment_of(options.device)
    view = view_scheduled(graph, storage=device, align=align)
    report, timeline = replay(view.problem, view.steps), simulate(graph, device, align)
    assert timeline.compute_ns == report.busy_ns and timeline.bus_ns == report.bus_ns
    moved_ns = sum(transfer.end_ns - transfer.start_ns for transfer in timeline.transfers)
    assert timeline.slices_ns == timeline.bus_ns - moved_ns > 0
    assert timeline.makespan_ns == report.makespan_ns
    assert timeline.makespan_ns == timeline.compute_ns + timeline.slices_ns + timeline.stall_ns
    streams = [op for op in graph.block.ops if isinstance(op, StreamOp)]
    assert len({any(isinstance(r.type, PageType) for r in op.results) for op in streams}) == 2
    for op in streams:
        assert op.cost is not None
        assert bool(op.cost.read_ns) == any(isinstance(o.type, PageType) for o in op.operands)
        assert bool(op.cost.write_ns) == any(isinstance(r.type, PageType) for r in op.results)
