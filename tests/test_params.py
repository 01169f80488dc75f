"""Parameters and optimiser state on storage: same bits, in RAM that is too little for them."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compiled import DEVICE, Model, prepare
from conftest import MODELS, more, of_work
from hypothesis import given, settings
from hypothesis import strategies as st
from outcomes import must_reach, reached
from random_graphs import RandomGraph, random_graphs
from test_passes_schedule import device, same
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, StringAttr

from poetc.budget import Budget
from poetc.cli import main
from poetc.costmodel import device as device_module
from poetc.costmodel.device import load_device
from poetc.diagnosis import Diagnosis, Reason
from poetc.driver import compile_module
from poetc.errors import (
    InfeasibleError,
    InputError,
    PoetcError,
    TimeLimitError,
)
from poetc.interpreter import InterpreterError, Run, run_func, run_graph
from poetc.ir.graph import graphs, view_scheduled, view_unscheduled
from poetc.ir.poet import AnyPageOut, GraphOp, PageType
from poetc.ir.poet.transfers import transfer_of
from poetc.ir.text import make_context, module_text, parse_module
from poetc.passes.poet_verify import verify_graph
from poetc.pipeline import front_passes, run_passes
from poetc.planning import places
from poetc.planning.memory import plan_graph_memory
from poetc.planning.plan import plan_graph, schedule_and_plan
from poetc.planning.problem import ScheduleOptions
from poetc.planning.solver import Solver
from poetc.planning.transfers import plan_graph_transfers
from poetc.request import Options
from poetc.schedule.model.problem import PageIn, PageOut, Place

NRF = load_device(DEVICE)


def stored(graph: GraphOp) -> list[int]:
    return [i for i in range(len(graph.arguments)) if graph.is_stored(i)]


def chosen(graph: GraphOp) -> str:
    schedule = graph.attributes["schedule"]
    assert isinstance(schedule, DictionaryAttr)
    params = schedule.data["params"]
    assert isinstance(params, StringAttr)
    return params.data


def options(ram_bytes: int | None, params: str = "storage", **changes) -> ScheduleOptions:
    settings = {"time_limit_s": 5.0, "gap": 0.05, "device": NRF} | changes
    return ScheduleOptions(budget=Budget(ram_bytes), params=params, **settings)


def ordered(text: str) -> ModuleOp:
    """StableHLO brought to the input of the scheduler."""
    module = parse_module(text, "step.mlir")
    run_passes(make_context(), module, front_passes(module, DEVICE), lambda *_: None)
    return module


# Real models


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ram_bytes"),
    [
        ("kws_conv", 8 << 10),
        ("gesture_mlp", 7 << 10),
        *more(("gesture_mlp", 12 << 10), ("lenet5", 224 << 10)),
    ],
)
def test_models_in_little_ram(name: str, ram_bytes: int) -> None:
    """32 bytes of static data and 1 KB of stack are in the budget. Larger ones, with the same
    budgets, are run in C (`test_storage_models.py`)."""
    model = prepare(name)
    wanted = run_graph(model.module, model.arguments).results
    compiled = compile_module(
        make_context(),
        model.module.clone(),
        Options(
            device=NRF,
            device_name=DEVICE,
            ram_bytes=ram_bytes,
            static_bytes=32,
            stack_bytes=1024,
            gap=0.05,
            time_limit_s=10.0,
        ),
    )
    graph, budget = compiled.graph, ram_bytes - 32 - 1024
    assert graph.arena_bytes is not None and graph.arena_bytes <= budget
    run = run_graph(graph, model.arguments, budget, arena=True)
    assert same(wanted, run.results)
    assert compiled.report is not None and compiled.report.params == chosen(graph)
    assert bool(stored(graph)) == (chosen(graph) == "storage")
    assert (name, chosen(graph)) == (name, "ram" if ram_bytes == 12 << 10 else "storage")


@pytest.fixture(scope="module")
def gesture() -> Model:
    return prepare("gesture_mlp")


def test_steps_one_after_another(gesture: Model) -> None:
    """New values are the next step's old ones."""
    module = gesture.module.clone()
    graph = graphs(module)[0]
    schedule_and_plan(graph, options(6 << 10))
    verify_graph(graph)
    updates = {k: i for i in range(len(graph.arguments)) if (k := graph.updates(i)) is not None}
    left, right = list(gesture.arguments), list(gesture.arguments)
    for _ in range(3):
        wanted = run_graph(gesture.module, left).results
        got = run_graph(module, right, 6 << 10, arena=True).results
        assert same(wanted, got)
        for k, i in updates.items():
            left[i], right[i] = wanted[k], got[k]


def test_ram_when_it_is_enough(gesture: Model) -> None:
    for ram_bytes in (None, 12 << 10):
        graph = graphs(gesture.module.clone())[0]
        report = schedule_and_plan(graph, options(ram_bytes, "auto"))
        assert report.params == chosen(graph) == "ram" and not stored(graph)
        assert graph.bank_bytes is None and graph.storage_unit is None


def test_storage_with_ram_to_spare(gesture: Model) -> None:
    """Asked for, each parameter is read at least and written exactly once."""
    graph = graphs(gesture.module.clone())[0]
    report = schedule_and_plan(graph, options(None))
    count = len(stored(graph))
    assert count and report.use.page_ins == report.use.page_outs == count
    # The comparison is with the program that has everything in RAM.
    assert report.unlimited.page_ins == 0
    assert report.use.energy_nj > report.unlimited.energy_nj


@pytest.mark.slow
def test_without_paging_only_parameters_move(gesture: Model) -> None:
    graph = graphs(gesture.module.clone())[0]
    schedule_and_plan(graph, options(8 << 10, paging=False))
    view = view_scheduled(graph)
    moved = {view.values[s.tensor] for s in view.steps if isinstance(s, PageIn | PageOut)}
    old = set(graph.arguments)
    pages = [page for i in stored(graph) if (page := graph.new_page(i))]
    new = {op.tensor for page in pages if isinstance(op := transfer_of(page), AnyPageOut)}
    assert len(new) == len(pages) and moved <= old | new


def test_the_least_ram_is_that_of_what_was_allowed(gesture: Model) -> None:
    def refused(params: str) -> Diagnosis:
        graph = graphs(gesture.module.clone())[0]
        with pytest.raises(InfeasibleError) as error:
            schedule_and_plan(graph, options(1 << 10, params))
        assert not graph.is_scheduled
        return error.value.diagnosis

    least = {params: refused(params).known_bytes for params in ("ram", "storage", "auto")}
    assert least["auto"] == least["storage"]
    assert least["storage"] is not None and least["ram"] is not None
    assert least["storage"] < least["ram"]
    graph = graphs(gesture.module.clone())[0]
    assert plan_graph(graph, options(least["auto"], "auto")).params == "storage"


def test_what_cannot_be_asked_for(gesture: Model) -> None:
    def refused(**changes) -> str:
        with pytest.raises(InputError) as error:
            plan_graph(graphs(gesture.module.clone())[0], options(8 << 10, **changes))
        return error.value.message

    assert "need a device with storage; test has none" in refused(device=device(True, None))
    assert "need a device with storage, and no device" in refused(device=None)
    assert "goes with parameters in RAM only" in refused(ram_scope="activations")
    assert "params is auto, ram, storage, not disk" in refused(params="disk")


# The driver


def drive(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


GESTURE = str(MODELS / "gesture_mlp.mlir")


@pytest.mark.slow
def test_the_driver_chooses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for choice, ram, found in (
        ("auto", "7KB", "storage"),
        ("auto", "12KB", "ram"),
        ("storage", "12KB", "storage"),
        ("ram", "12KB", "ram"),
    ):
        code, out, err = drive(
            capsys, GESTURE, f"--ram={ram}", f"--params={choice}", "--json", "--stream=never"
        )
        assert code == 0 and f'params = "{found}"' in out
        assert json.loads(err)["params"] == found
    # What is scheduled already cannot be had in another way.
    path = tmp_path / "scheduled.mlir"
    path.write_text(out)
    assert drive(capsys, str(path), "--params=ram")[0] == 0
    code, _, err = drive(capsys, str(path), "--params=storage")
    assert code == 2 and "in RAM, but --params=storage is asked for" in err


@pytest.mark.slow
def test_the_driver_refuses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = drive(capsys, GESTURE, "--ram=7KB", "--params=ram", "--stream=never")
    assert code == 3 and "no schedule with --params=ram fits into" in err
    code, _, err = drive(capsys, GESTURE, "--ram=4KB", "--stream=never")
    # The least of both choices, not that with parameters in RAM.
    assert code == 3 and "least RAM known to work" in err
    least = int(err.split("known to work: ")[1].split(" B")[0].replace(",", "").split("(")[-1])
    assert least < 7 << 10
    assert drive(capsys, GESTURE, f"--ram={least}", "--stream=never", "-q")[0] == 0

    board = (Path(device_module.__file__).parent / "devices" / f"{DEVICE}.toml").read_text()
    path = tmp_path / "bare.toml"
    path.write_text(board.split("storage = ")[0])
    code, _, err = drive(capsys, GESTURE, "--params=storage", f"--device={path}")
    assert (
        code == 2 and f"--params=storage cannot go with --device={path} (it has no storage)" in err
    )
    code, _, err = drive(capsys, GESTURE, "--ram=7KB", f"--device={path}", "--stream=never")
    assert code == 3
    code, _, err = drive(capsys, GESTURE, "--params=storage", "--ram-scope=activations")
    assert code == 2 and "--params=storage cannot go with --ram-scope=activations" in err


# How "auto" chooses


def small() -> GraphOp:
    return graphs(ordered(MOMENTUM))[0]


def test_auto_takes_storage_when_half_of_the_time_found_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And goes on in RAM then: for all that is known a schedule there is better."""
    seen: list[tuple[str, float]] = []
    left_s: list[float] = []
    solve = Solver.solve

    def slow(self, budget, arena_share=0.0):
        now_s = self.options.now_s
        left_s.append(self.end_s - now_s)
        share = (self.patient_until_s - now_s) / left_s[-1]
        seen.append((self.options.params, round(share, 1)))
        if self.options.params == "ram":
            # The time limit is counted by work, of which there is none in this.
            time.sleep(0.05)
            raise TimeLimitError(Diagnosis(Reason.SEARCH))
        return solve(self, budget, arena_share)

    monkeypatch.setattr(Solver, "solve", slow)
    graph = small()
    report = plan_graph(graph, options(1 << 20, "auto", stop="work"))
    assert report.params == "storage" and report.status == "feasible"
    assert seen == [("ram", 0.5), ("storage", 1.0), ("ram", 1.0)]
    assert left_s[0] == left_s[1] > left_s[2]


TOO_SLOW = Diagnosis(Reason.DEADLINE, proven=True, fastest_ns=90, time_bound_ns=80)
SLOWER = Diagnosis(Reason.DEADLINE, proven=True, fastest_ns=99, time_bound_ns=95)
TOO_BIG = Diagnosis(Reason.RAM, proven=True, needed_bytes=64)
UNKNOWN = Diagnosis(Reason.SEARCH)


@pytest.mark.parametrize(
    ("in_ram", "on_storage", "raised"),
    [
        (None, TOO_BIG, TOO_BIG),
        (UNKNOWN, TOO_BIG, TOO_BIG),
        (TOO_BIG, UNKNOWN, UNKNOWN),
        (TOO_SLOW, SLOWER, TOO_SLOW),
        (UNKNOWN, SLOWER, UNKNOWN),
        (TOO_BIG, SLOWER, SLOWER),
        (None, SLOWER, SLOWER),
    ],
)
def test_the_error_when_neither_works(
    in_ram: Diagnosis | None, on_storage: Diagnosis, raised: Diagnosis
) -> None:
    assert places._neither(in_ram, on_storage) is raised


# Steps written by hand

MOMENTUM = """\
func.func public @main(
    %w: tensor<64xf32> {tf.aliasing_output = 1 : i32},
    %m: tensor<64xf32> {tf.aliasing_output = 2 : i32},
    %scale: tensor<64xf32> {tf.aliasing_output = 3 : i32},
    %frozen: tensor<64xf32>,
    %x: tensor<64xf32>) -> (tensor<f32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %decay = stablehlo.constant dense<0.9> : tensor<64xf32>
  %rate = stablehlo.constant dense<0.1> : tensor<64xf32>
  %0 = stablehlo.multiply %w, %x : tensor<64xf32>
  %1 = stablehlo.add %0, %frozen : tensor<64xf32>
  %2 = stablehlo.tanh %1 : tensor<64xf32>
  %3 = stablehlo.multiply %2, %scale : tensor<64xf32>
  %loss = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<64xf32>, tensor<f32>) -> tensor<f32>
  %g = stablehlo.multiply %3, %x : tensor<64xf32>
  %4 = stablehlo.multiply %m, %decay : tensor<64xf32>
  %m1 = stablehlo.add %4, %g : tensor<64xf32>
  %5 = stablehlo.multiply %m1, %rate : tensor<64xf32>
  %w1 = stablehlo.subtract %w, %5 : tensor<64xf32>
  return %loss, %w1, %m1, %scale : tensor<f32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
}
"""

ADAM = """\
func.func public @main(
    %w: tensor<96xf32> {tf.aliasing_output = 0 : i32},
    %m: tensor<96xf32> {tf.aliasing_output = 1 : i32},
    %v: tensor<96xf32> {tf.aliasing_output = 2 : i32},
    %t: tensor<f32> {tf.aliasing_output = 3 : i32},
    %x: tensor<96xf32>) -> (tensor<96xf32>, tensor<96xf32>, tensor<96xf32>, tensor<f32>) {
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %b1 = stablehlo.constant dense<0.9> : tensor<96xf32>
  %b2 = stablehlo.constant dense<0.99> : tensor<96xf32>
  %eps = stablehlo.constant dense<1.0e-3> : tensor<96xf32>
  %g = stablehlo.multiply %w, %x : tensor<96xf32>
  %t1 = stablehlo.add %t, %one : tensor<f32>
  %0 = stablehlo.multiply %m, %b1 : tensor<96xf32>
  %m1 = stablehlo.add %0, %g : tensor<96xf32>
  %1 = stablehlo.multiply %v, %b2 : tensor<96xf32>
  %2 = stablehlo.multiply %g, %g : tensor<96xf32>
  %v1 = stablehlo.add %1, %2 : tensor<96xf32>
  %3 = stablehlo.sqrt %v1 : tensor<96xf32>
  %4 = stablehlo.add %3, %eps : tensor<96xf32>
  %5 = stablehlo.divide %m1, %4 : tensor<96xf32>
  %6 = stablehlo.broadcast_in_dim %t1, dims = [] : (tensor<f32>) -> tensor<96xf32>
  %7 = stablehlo.divide %5, %6 : tensor<96xf32>
  %w1 = stablehlo.subtract %w, %7 : tensor<96xf32>
  return %w1, %m1, %v1, %t1 : tensor<96xf32>, tensor<96xf32>, tensor<96xf32>, tensor<f32>
}
"""

# Two micro-batches: both add to the accumulated gradient, which is kept from step to step.
ACCUMULATE = """\
func.func public @main(
    %w: tensor<32x16xf32> {jax.buffer_donor = true},
    %acc: tensor<32x16xf32> {tf.aliasing_output = 1 : i32},
    %x: tensor<2x4x32xf32>, %y: tensor<2x4x16xf32>) -> (tensor<f32>, tensor<32x16xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %xa = stablehlo.slice %x [0:1, 0:4, 0:32] : (tensor<2x4x32xf32>) -> tensor<1x4x32xf32>
  %xb = stablehlo.slice %x [1:2, 0:4, 0:32] : (tensor<2x4x32xf32>) -> tensor<1x4x32xf32>
  %ya = stablehlo.slice %y [0:1, 0:4, 0:16] : (tensor<2x4x16xf32>) -> tensor<1x4x16xf32>
  %yb = stablehlo.slice %y [1:2, 0:4, 0:16] : (tensor<2x4x16xf32>) -> tensor<1x4x16xf32>
  %x0 = stablehlo.reshape %xa : (tensor<1x4x32xf32>) -> tensor<4x32xf32>
  %x1 = stablehlo.reshape %xb : (tensor<1x4x32xf32>) -> tensor<4x32xf32>
  %y0 = stablehlo.reshape %ya : (tensor<1x4x16xf32>) -> tensor<4x16xf32>
  %y1 = stablehlo.reshape %yb : (tensor<1x4x16xf32>) -> tensor<4x16xf32>
  %p0 = stablehlo.dot_general %x0, %w, contracting_dims = [1] x [0]
      : (tensor<4x32xf32>, tensor<32x16xf32>) -> tensor<4x16xf32>
  %e0 = stablehlo.subtract %p0, %y0 : tensor<4x16xf32>
  %g0 = stablehlo.dot_general %x0, %e0, contracting_dims = [0] x [0]
      : (tensor<4x32xf32>, tensor<4x16xf32>) -> tensor<32x16xf32>
  %acc0 = stablehlo.add %acc, %g0 : tensor<32x16xf32>
  %p1 = stablehlo.dot_general %x1, %w, contracting_dims = [1] x [0]
      : (tensor<4x32xf32>, tensor<32x16xf32>) -> tensor<4x16xf32>
  %e1 = stablehlo.subtract %p1, %y1 : tensor<4x16xf32>
  %g1 = stablehlo.dot_general %x1, %e1, contracting_dims = [0] x [0]
      : (tensor<4x32xf32>, tensor<4x16xf32>) -> tensor<32x16xf32>
  %acc1 = stablehlo.add %acc0, %g1 : tensor<32x16xf32>
  %l = stablehlo.multiply %e1, %e1 : tensor<4x16xf32>
  %loss = stablehlo.reduce(%l init: %zero) applies stablehlo.add across dimensions = [0, 1]
      : (tensor<4x16xf32>, tensor<f32>) -> tensor<f32>
  return %loss, %acc1 : tensor<f32>, tensor<32x16xf32>
}
"""


def arguments(module: ModuleOp) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    types = graphs(module)[0].function_type.inputs
    return [rng.uniform(0.1, 1, t.get_shape()).astype(np.float32) for t in types]  # type: ignore


def at_every_budget(text: str, keep: tuple[int, ...] = ()) -> list[tuple[ModuleOp, Run]]:
    """The step with parameters on storage, from the least RAM up; bits as without limits.

    The arguments `keep` are made parameters that the step does not update.
    """
    module = ordered(text)
    for i in keep:
        graphs(module)[0].set_arg_attr(i, "poet.role", StringAttr("param"))
    given = arguments(module)
    wanted = run_func(parse_module(text, "step.mlir"), given)
    with pytest.raises(InfeasibleError) as error:
        plan_graph(graphs(module.clone())[0], options(8))
    least = error.value.diagnosis.known_bytes
    assert least is not None
    runs = []
    for ram_bytes in (least, least + least // 4, 2 * least, None):
        copy = module.clone()
        graph = graphs(copy)[0]
        schedule_and_plan(graph, options(ram_bytes))
        verify_graph(graph)
        again = parse_module(module_text(copy), "again.mlir")
        assert module_text(again) == module_text(copy)
        run = run_graph(again, given, ram_bytes, arena=True)
        assert same(wanted, run.results)
        runs.append((copy, run))
    return runs


def test_momentum() -> None:
    """Two arguments updated (by one kernel where they are fused), one returned as it came, one
    constant."""
    for module, run in at_every_budget(MOMENTUM, keep=(2, 3)):
        graph = graphs(module)[0]
        assert stored(graph) == [0, 1, 2, 3]
        assert [graph.new_page(i) is not None for i in range(4)] == [True, True, False, False]
        assert run.page_outs >= 2 and run.page_ins >= 4
        assert graph.return_op.arguments[3] is graph.arguments[2]
        # Constants lie before the banks.
        offsets = [graph.offset(i) for i in range(4)]
        assert max(offsets[2:]) < min(offsets[:2])  # type: ignore


def test_adam() -> None:
    for module, _ in at_every_budget(ADAM):
        graph = graphs(module)[0]
        assert stored(graph) == [0, 1, 2, 3]
        assert all(graph.new_page(i) is not None for i in range(4))


@pytest.mark.slow
def test_gradients_that_accumulate() -> None:
    for module, run in at_every_budget(ACCUMULATE, keep=(0,)):
        graph = graphs(module)[0]
        assert stored(graph) == [0, 1]
        assert graph.new_page(0) is None and graph.new_page(1) is not None
        assert run.page_ins >= 2


TWO_RESULTS = """\
poet.graph @main(%w: tensor<4xf32> {poet.role = "param", poet.updates = 0 : i64},
                 %c: tensor<4xf32> {poet.role = "param"}, %x: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %v = poet.compute "update" (%a = %w : tensor<4xf32>, %b = %x : tensor<4xf32>) -> tensor<4xf32>
      inplace [[0, 0]] cost #poet.cost<energy_nj = 1, time_ns = 1, workspace = 0, flops = 4> {
    %r = stablehlo.add %a, %b : tensor<4xf32>
    poet.yield %r : tensor<4xf32>
  }
  poet.return %v, RESULT : tensor<4xf32>, tensor<4xf32>
}
"""


def test_a_new_value_that_is_an_output_too() -> None:
    text = TWO_RESULTS.replace("RESULT", "%v")
    graph = graphs(parse_module(text, "step.mlir"))[0]
    with pytest.raises(InputError, match=r"new value of parameter w, .* use params=ram"):
        plan_graph(graph, options(1 << 10))
    # Nobody said that it must be on storage.
    with pytest.raises(InfeasibleError, match="at least 48 B are needed"):
        plan_graph(graph, options(20, "auto"))


def test_a_constant_that_is_an_output_too() -> None:
    module = parse_module(TWO_RESULTS.replace("RESULT", "%c"), "step.mlir")
    given = [np.full(4, i, np.float32) for i in range(3)]
    graph = graphs(module)[0]
    schedule_and_plan(graph, options(48))
    verify_graph(graph)
    assert not isinstance(graph.return_op.arguments[1].type, PageType)
    run = run_graph(module, given, 48, arena=True)
    assert same([given[0] + given[2], given[1]], run.results)


# The interpreter and the passes one by one


def test_the_interpreter_keeps_old_values() -> None:
    module = parse_module(TWO_RESULTS.replace("RESULT", "%c"), "step.mlir")
    given = [np.full(4, i, np.float32) for i in range(3)]
    graph = graphs(module)[0]
    schedule_and_plan(graph, options(48))
    graph.attributes["bank_bytes"] = graph.attributes["bank_bytes"].__class__(0, 64)  # type: ignore
    with pytest.raises(InterpreterError, match="overwrites %w on storage"):
        run_graph(module, given, arena=True)


@pytest.mark.slow
@must_reach("scheduled")
@settings(max_examples=30, deadline=None)
@given(random_graphs(8), st.floats(0, 1), st.booleans())
def test_random_graphs_pass_by_pass(random: RandomGraph, share: float, dma: bool) -> None:
    module, graph = random.parse()
    wanted = run_graph(module, random.arguments()).results
    params = sum(graph.role(i) == "param" for i in range(len(graph.arguments)))
    most = plan_graph(graph.clone(), options(None, device=device(dma))).use.peak_bytes
    ram_bytes = max(1, round(share * most))
    limited = options(ram_bytes, device=device(dma), gap=0.0, **of_work(0.2))
    try:
        report = plan_graph(graph, limited)
    except InfeasibleError:
        assert ram_bytes < most
        return
    reached("scheduled")
    assert len(stored(graph)) == params
    module.verify()
    verify_graph(graph)
    view = view_scheduled(graph)
    assert sum(t.start is Place.STORAGE for t in view.problem.tensors) == params
    run = run_graph(module, random.arguments(), ram_bytes)
    assert same(wanted, run.results)
    assert (run.page_ins, run.page_outs) == (report.use.page_ins, report.use.page_outs)
    assert run.peak_bytes == report.use.peak_bytes <= ram_bytes
    plan_graph_transfers(graph, device(dma))
    verify_graph(graph)
    # Only where everything is placed without holes the budget is kept for sure.
    del graph.attributes["ram"]
    plan_graph_memory(graph)
    module.verify()
    verify_graph(graph)
    assert same(wanted, run_graph(module, random.arguments(), arena=True).results)


@pytest.mark.slow
@must_reach("scheduled")
@settings(max_examples=20, deadline=None)
@given(random_graphs(8), st.floats(0, 1))
def test_less_ram_is_enough_with_parameters_on_storage(random: RandomGraph, share: float) -> None:
    """Whatever can be done with parameters in RAM can be done with them on storage."""
    _, graph = random.parse()
    most = plan_graph(graph.clone(), options(None, "ram")).use.peak_bytes
    start = sum(t.bytes for t in view_unscheduled(graph).problem.tensors if t.start is not None)
    ram_bytes = max(1, round(start + share * (most - start)))
    limited = options(ram_bytes, "ram", device=device(False), time_limit_s=20, gap=1.0)
    try:
        plan_graph(graph.clone(), limited)
    except PoetcError:
        return
    reached("scheduled")
    plan_graph(graph, replace(limited, params="storage"))
