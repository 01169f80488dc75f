"""poet-schedule and the planners behind it: every budget gives the bits of the unlimited one."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import of_work
from hypothesis import given, settings
from hypothesis import strategies as st
from outcomes import must_reach, reached
from random_graphs import RandomGraph, random_graphs

from poetc.budget import Budget
from poetc.costmodel.device import Device, Storage
from poetc.errors import InputError, TimeLimitError, UnscheduledError
from poetc.interpreter import run_graph
from poetc.ir.graph import view_unscheduled
from poetc.passes.poet_verify import verify_graph
from poetc.planning import fit
from poetc.planning.memory import plan_graph_memory
from poetc.planning.order import order_graph
from poetc.planning.plan import plan_graph, schedule_and_plan
from poetc.planning.problem import ScheduleOptions
from poetc.planning.transfers import plan_graph_transfers
from poetc.schedule.arena.memory import MemoryPlan, plan_memory

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


@pytest.mark.slow
@must_reach("limited", "planned")
@settings(max_examples=40, deadline=None)
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
    most = plan_graph(scratch, ScheduleOptions()).use.peak_bytes
    ram = round(start + share * (most - start))
    options = ScheduleOptions(
        budget=Budget(ram), device=device, remat=remat, gap=0.0, **of_work(0.2)
    )
    try:
        report = plan_graph(graph, options)
    except UnscheduledError:
        assert ram < most
        return
    reached("limited" if ram < most else "unlimited")
    module.verify()
    verify_graph(graph)
    run = run_graph(module, random.arguments(), ram)
    assert same(wanted, run.results)
    assert run.peak_bytes == report.use.peak_bytes <= ram
    assert run.page_ins == report.use.page_ins and run.page_outs == report.use.page_outs
    assert run.recomputes == len(report.use.recomputes) or remat
    assert graph.ram == ram and report.bound_nj <= report.use.energy_nj

    if device is not None:
        plan_graph_transfers(graph, device)
        makespan_ns = graph.attributes["schedule"].data["makespan_ns"].value.data  # pyright: ignore
        assert makespan_ns <= report.use.makespan_ns
        if not device.dma:
            assert makespan_ns == report.use.makespan_ns
        verify_graph(graph)
        moved = run_graph(module, random.arguments(), ram)
        assert same(wanted, moved.results) and moved.page_ins == run.page_ins
    try:
        plan = plan_graph_memory(graph)
    except TimeLimitError as error:
        assert error.diagnosis.excess_bytes > 0 and graph.arena_bytes is None
        return
    reached("planned")
    assert plan.arena_bytes <= ram
    module.verify()
    verify_graph(graph)
    assert same(wanted, run_graph(module, random.arguments(), ram, arena=True).results)


@pytest.mark.slow
@must_reach("planned")
@settings(max_examples=30, deadline=None)
@given(random_graphs(9), st.floats(0, 1), DEVICES)
def test_all_at_once(random: RandomGraph, share: float, device: Device | None):
    module, graph = random.parse()
    wanted = run_graph(module, random.arguments()).results
    start = sum(t.bytes for t in view_unscheduled(graph).problem.tensors if t.start is not None)
    most = plan_graph(graph.clone(), ScheduleOptions()).use.peak_bytes
    ram = round(start + share * (most - start))
    before = str(graph)
    try:
        report = schedule_and_plan(
            graph, ScheduleOptions(budget=Budget(ram), device=device, **of_work(0.2))
        )
    except UnscheduledError:
        assert str(graph) == before
        return
    reached("planned")
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
        plan_graph(graph, ScheduleOptions(budget=Budget(100)))
    plan_graph(graph, ScheduleOptions())
    with pytest.raises(InputError, match="@main is scheduled already"):
        plan_graph(graph, ScheduleOptions())


TWO_LAYERS = """
poet.graph @main(%x: tensor<f32>) -> (tensor<f32>) {
  %h = poet.compute "spread" (%a = %x : tensor<f32>) -> tensor<100xf32>
      cost #poet.cost<energy_nj = 5, time_ns = 5, workspace = 0, flops = 0> {
    %r = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<100xf32>
    poet.yield %r : tensor<100xf32>
  }
  %s = poet.compute "sum" (%a = %h : tensor<100xf32>) -> tensor<f32>
      cost #poet.cost<energy_nj = 9, time_ns = 9, workspace = 0, flops = 0> {
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %r = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [0]
        : (tensor<100xf32>, tensor<f32>) -> tensor<f32>
    poet.yield %r : tensor<f32>
  }
  %m = poet.compute "spread" (%a = %s : tensor<f32>) -> tensor<100xf32>
      cost #poet.cost<energy_nj = 5, time_ns = 5, workspace = 0, flops = 0> {
    %r = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<100xf32>
    poet.yield %r : tensor<100xf32>
  }
  %t = poet.compute "sum" (%a = %m : tensor<100xf32>) -> tensor<f32>
      cost #poet.cost<energy_nj = 9, time_ns = 9, workspace = 0, flops = 0> {
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %r = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [0]
        : (tensor<100xf32>, tensor<f32>) -> tensor<f32>
    poet.yield %r : tensor<f32>
  }
  %y = poet.compute "sum_from" (%a = %h : tensor<100xf32>, %b = %t : tensor<f32>) -> tensor<f32>
      cost #poet.cost<energy_nj = 9, time_ns = 9, workspace = 0, flops = 0> {
    %r = stablehlo.reduce(%a init: %b) applies stablehlo.add across dimensions = [0]
        : (tensor<100xf32>, tensor<f32>) -> tensor<f32>
    poet.yield %r : tensor<f32>
  }
  poet.return %y : tensor<f32>
}"""


@pytest.fixture
def fragmented(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arenas come out 40 bytes bigger than what is alive at once."""

    def plan(*arguments: Any, **options: Any) -> MemoryPlan:
        found = plan_memory(*arguments, **options)
        return replace(found, arena_bytes=found.arena_bytes + 40)

    monkeypatch.setattr(fit, "plan_memory", plan)


@pytest.mark.usefixtures("fragmented")
def test_schedules_again_for_less_ram_until_the_arena_fits():
    _, graph = RandomGraph(TWO_LAYERS, ((),)).parse()
    report = schedule_and_plan(graph, ScheduleOptions(budget=Budget(820)))
    assert report.attempts == 2 and report.arena_bytes is not None
    assert report.arena_bytes < 804  # what is alive at once without recomputing
    assert len(report.use.recomputes) == 1 and report.use.peak_bytes == 408
    assert report.memory is not None and report.memory.arena_bytes <= 820
    # The bound is that of the budget asked for, which allows the cheaper schedule.
    assert report.bound_nj == 37 and report.use.energy_nj == 42 and report.status == "feasible"
    assert graph.ram == 820


@pytest.mark.usefixtures("fragmented")
def test_says_so_when_no_arena_fits():
    _, graph = RandomGraph(TWO_LAYERS, ((),)).parse()
    before = str(graph)
    with pytest.raises(
        TimeLimitError, match="smallest arena found takes 28 B more than the 420 B of RAM"
    ) as found:
        schedule_and_plan(graph, ScheduleOptions(budget=Budget(420)))
    assert found.value.diagnosis.excess_bytes == 28 and str(graph) == before


def test_budget_for_activations_only():
    text = """
    poet.graph @main(%x: tensor<4xf32>,
                     %w: tensor<4xf32> {poet.role = "param", poet.updates = 0 : i64})
        -> (tensor<4xf32>) {
      %g = poet.compute "gradient" (%a = %x : tensor<4xf32>, %b = %w : tensor<4xf32>)
          -> tensor<4xf32> cost #poet.cost<energy_nj = 1, time_ns = 1, workspace = 0, flops = 0> {
        %r = stablehlo.multiply %a, %b : tensor<4xf32>
        poet.yield %r : tensor<4xf32>
      }
      %w1 = poet.compute "update" (%a = %w : tensor<4xf32>, %b = %g : tensor<4xf32>)
          -> tensor<4xf32> inplace [[0, 0]]
          cost #poet.cost<energy_nj = 1, time_ns = 1, workspace = 0, flops = 0> {
        %r = stablehlo.subtract %a, %b : tensor<4xf32>
        poet.yield %r : tensor<4xf32>
      }
      poet.return %w1 : tensor<4xf32>
    }"""
    module, graph = RandomGraph(text, ((4,), (4,))).parse()
    report = schedule_and_plan(graph, ScheduleOptions(budget=Budget(16), ram_scope="activations"))
    assert report.use.peak_bytes == 16 and graph.ram is None  # %x alone
    assert graph.arena_bytes == 48
    verify_graph(graph)
    run_graph(module, [np.ones(4, np.float32)] * 2, arena=True)
