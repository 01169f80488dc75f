"""poet-schedule and the planners behind it: every budget gives the bits of the unlimited one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import RandomGraph, random_graphs

from poetc.costmodel.device import Device, Storage
from poetc.errors import InfeasibleError, InputError
from poetc.interpreter import run_graph
from poetc.ir.graph import view_unscheduled
from poetc.passes.poet_order import order_graph
from poetc.passes.poet_plan_memory import ArenaOverflowError, plan_graph_memory
from poetc.passes.poet_plan_transfers import plan_graph_transfers
from poetc.passes.poet_schedule import ScheduleOptions, schedule_and_plan, schedule_graph
from poetc.passes.poet_verify import verify_graph

STORAGE = Storage(
    read_latency_s=2e-9,
    read_bytes_per_s=8e9,
    write_latency_s=3e-9,
    write_bytes_per_s=4e9,
    power_w=1.0,
    block_bytes=4,
)


def device(dma: bool, storage: Storage | None = STORAGE) -> Device:
    return Device(
        name="test",
        description="a device",
        flops_per_s=1e9,
        memory_bytes_per_s=1e9,
        active_power_w=1.0,
        idle_power_w=0.5,
        ram_bytes=1 << 20,
        alignment_bytes=4,
        dma=dma,
        storage=storage,
    )


def same(before: list[np.ndarray], after: list[np.ndarray]) -> bool:
    return [a.tobytes() for a in before] == [b.tobytes() for b in after]


DEVICES = st.sampled_from([None, device(True), device(False), device(False, None)])


@settings(max_examples=80, deadline=None)
@given(random_graphs(9), st.floats(0, 1), DEVICES, st.booleans(), st.booleans())
def test_pass_by_pass(
    random: RandomGraph, share: float, device: Device | None, ordered: bool, remat: bool
):
    module, graph = random.parse()
    wanted = run_graph(module, random.arguments()).results
    if ordered:
        order_graph(graph)
    start = sum(t.bytes for t in view_unscheduled(graph).problem.tensors if t.start is not None)
    scratch = graph.clone()
    most = schedule_graph(scratch, ScheduleOptions()).use.peak_bytes
    ram = round(start + share * (most - start))
    options = ScheduleOptions(ram_bytes=ram, device=device, remat=remat, time_limit_s=1, gap=0.0)
    try:
        report = schedule_graph(graph, options)
    except InfeasibleError:
        assert ram < most
        return
    module.verify()
    verify_graph(graph)
    run = run_graph(module, random.arguments(), ram)
    assert same(wanted, run.results)
    assert run.peak_bytes == report.use.peak_bytes <= ram
    assert run.page_ins == report.use.page_ins and run.page_outs == report.use.page_outs
    assert run.recomputes == len(report.use.recomputes) or remat
    assert graph.ram == ram and report.bound_nj <= report.use.energy_nj

    if device is not None:
        makespan_ns = plan_graph_transfers(graph, device)
        assert makespan_ns <= report.use.makespan_ns
        if not device.dma:
            assert makespan_ns == report.use.makespan_ns
        verify_graph(graph)
        moved = run_graph(module, random.arguments(), ram)
        assert same(wanted, moved.results) and moved.page_ins == run.page_ins
    try:
        plan = plan_graph_memory(graph)
    except ArenaOverflowError as error:
        assert error.excess_bytes > 0 and graph.arena_bytes is None
        return
    assert plan.arena_bytes <= ram
    module.verify()
    verify_graph(graph)
    assert same(wanted, run_graph(module, random.arguments(), ram, arena=True).results)


@settings(max_examples=60, deadline=None)
@given(random_graphs(9), st.floats(0, 1), DEVICES)
def test_all_at_once(random: RandomGraph, share: float, device: Device | None):
    module, graph = random.parse()
    wanted = run_graph(module, random.arguments()).results
    start = sum(t.bytes for t in view_unscheduled(graph).problem.tensors if t.start is not None)
    most = schedule_graph(graph.clone(), ScheduleOptions()).use.peak_bytes
    ram = round(start + share * (most - start))
    before = str(graph)
    try:
        report = schedule_and_plan(
            graph, ScheduleOptions(ram_bytes=ram, device=device, time_limit_s=1)
        )
    except InfeasibleError:
        assert str(graph) == before
        return
    assert report.memory is not None and report.memory.arena_bytes <= ram
    assert graph.arena_bytes == report.memory.arena_bytes
    verify_graph(graph)
    run = run_graph(module, random.arguments(), ram, arena=True)
    assert same(wanted, run.results) and run.peak_bytes == report.use.peak_bytes


def test_needs_costs():
    text = """
    poet.graph @main(%x: tensor<4xf32>) -> (tensor<4xf32>) {
      %y = poet.compute "neg" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
        %r = stablehlo.negate %a : tensor<4xf32>
        poet.yield %r : tensor<4xf32>
      }
      poet.return %y : tensor<4xf32>
    }"""
    _, graph = RandomGraph(text, ()).parse()
    with pytest.raises(InputError, match='"neg" has no cost: poet-annotate comes before'):
        schedule_graph(graph, ScheduleOptions(ram_bytes=100))
    schedule_graph(graph, ScheduleOptions())
    with pytest.raises(InputError, match="@main is scheduled already"):
        schedule_graph(graph, ScheduleOptions())
