"""Kinds of tensors, and the report of what is in RAM."""

from __future__ import annotations

import json
import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import optimiser_steps
import pytest
from compiled import DEVICE, Model, prepare
from conftest import MODELS, TRAINED, more
from xdsl.dialects.builtin import ModuleOp

from poetc.backends.c.compiler import find_compiler
from poetc.backends.c.emit import emit
from poetc.backends.c.layout import DEFAULT_STACK_BYTES, STATIC_BYTES
from poetc.backends.c.stack import measure_stack
from poetc.cli import main
from poetc.costmodel.device import load_device
from poetc.driver import Compiled, compile_module
from poetc.ir.graph import graphs, view_unscheduled
from poetc.ir.kinds import TENSOR_KINDS, tensor_kinds
from poetc.ir.poet import GraphOp
from poetc.ir.text import make_context, parse_module
from poetc.ir.unschedule import origins, unscheduled
from poetc.pipeline import front_passes, run_passes
from poetc.planning.problem import problem_view
from poetc.report import Summary, summarize
from poetc.report_ram import KINDS
from poetc.request import Options
from poetc.schedule.model.clock import Clock
from poetc.schedule.model.problem import Problem

pytestmark = pytest.mark.usefixtures("whole")


def annotated(text: str) -> ModuleOp:
    """StableHLO brought to annotated poet IR."""
    module = parse_module(text, "step.mlir")
    run_passes(make_context(), module, front_passes(module, DEVICE), lambda *_: None)
    return module


def options(ram_bytes: int | None = None, **changes) -> Options:
    settings = {
        "static_bytes": STATIC_BYTES,
        "stack_bytes": DEFAULT_STACK_BYTES,
        "time_limit_s": 5.0,
        "gap": 0.2,
    }
    device = load_device(DEVICE)
    return Options(device, DEVICE, ram_bytes, **(settings | changes))


def compiled(module: ModuleOp, asked: Options) -> tuple[Compiled, Summary]:
    result = compile_module(make_context(), module.clone(), asked)
    return result, summarize(result, "step.mlir")


def made(graph: GraphOp) -> dict[str, list[tuple[str, int]]]:
    """What the kernels of an unscheduled graph make, by kind."""
    view = view_unscheduled(graph)
    kinds = tensor_kinds(graph)
    found: dict[str, list[tuple[str, int]]] = {kind: [] for kind in TENSOR_KINDS}
    for v, tensor in enumerate(view.problem.tensors):
        if tensor.start is None:
            found[kinds[view.values[v]]].append((tensor.name, tensor.bytes))
    return found


# Kinds


def test_kinds_of_a_perceptron() -> None:
    found = made(graphs(prepare("gesture_mlp").module)[0])
    assert found["activations"] == [
        ("dot_add_tanh", 512),
        ("dot_add_maximum", 256),
        ("dot_add", 96),
        ("reduce_subtract_exponential_multiply.0", 16),
        ("reduce_subtract_exponential_multiply.1", 16),
    ]
    # The first is made together with the loss.
    assert found["gradients"] == [
        ("reduce_subtract_exponential_multiply.2", 96),
        ("dot_compare_select", 256),
        ("dot_subtract_multiply_add", 512),
    ]
    assert found["outputs"] == [("reduce_subtract_log_multiply", 4)]
    assert len(found["parameters"]) == 6
    assert not found["optimiser_state"] and not found["inputs"]


def test_kinds_of_a_convolutional_network() -> None:
    found = made(graphs(prepare("lenet5").module)[0])
    assert {name for name, _ in found["gradients"]} == {
        "scatter",
        "reduce_subtract_exponential_log.1",
        "dot_subtract_multiply_add",
        "dot",
        "conv",
        "select_and_scatter_subtract_multiply_add",
    }
    # Labels that were made into indices are no gradient, though only the backward pass reads them.
    assert ("compare_add_select", 4) in found["activations"]
    assert sum(bytes for _, bytes in found["parameters"]) == 246824


@pytest.mark.slow
def test_what_normalisation_saves_is_an_activation() -> None:
    found = made(graphs(prepare("dscnn", arrange=False).module)[0])
    saved = [name for name, _ in found["activations"] if name.startswith("reduce_divide")]
    # Nine normalisations; the last one's result is computed where it is read.
    assert len(saved) == 9 * 5 - 1
    assert sum(bytes == 32000 for _, bytes in found["gradients"]) == 1 + 9 + 8


@pytest.mark.slow
def test_what_attention_saves_is_an_activation() -> None:
    found = made(graphs(prepare("bert_micro", arrange=False).module)[0])
    softmax = "reduce_subtract_exponential_divide"
    assert {f"{softmax}.{i}" for i in range(3)} <= {name for name, _ in found["activations"]}
    assert not any(softmax in name for name, _ in found["gradients"])
    assert ("dot", 128000) in found["gradients"]  # of the embedding, which is also the last layer


def argument_kinds(graph: GraphOp) -> dict[str, str]:
    kinds = tensor_kinds(graph)
    return {graph.arg_name(i): kinds[value] for i, value in enumerate(graph.arguments)}


def test_momentum_is_optimiser_state() -> None:
    (graph,) = graphs(annotated(optimiser_steps.momentum()))
    assert argument_kinds(graph) == {
        **dict.fromkeys(("w1", "w2"), "parameters"),
        **dict.fromkeys(("m1", "m2"), "optimiser_state"),
        **dict.fromkeys(("x", "y"), "inputs"),
    }
    found = made(graph)
    assert [bytes for _, bytes in found["optimiser_state"]] == [128, 512]
    # Of the output and the hidden layer; those of the weights are never stored.
    assert [bytes for _, bytes in found["gradients"]] == [32, 256]


@pytest.mark.parametrize("clip", [False, True])
def test_adam(clip: bool) -> None:
    (graph,) = graphs(annotated(optimiser_steps.adam(clip)))
    kinds = argument_kinds(graph)
    assert all(kinds[name] == "optimiser_state" for name in ("m1", "m2", "v1", "v2", "t"))
    assert all(kinds[name] == "parameters" for name in ("w1", "w2"))
    found = made(graph)
    gradients = [bytes for _, bytes in found["gradients"]]
    assert sorted(gradients)[-4:] == [32, 128, 256, 512]  # output, weights, hidden, weights
    assert {bytes for bytes in gradients if bytes < 32} <= {4}  # the norm
    assert [bytes for _, bytes in found["activations"]] == [256, 32]
    # The correction of the bias is made of the number of the step alone.
    assert sorted(bytes for _, bytes in found["optimiser_state"]) == [4, 4, 128, 128, 512, 512]


STATE_ONLY = """\
func.func public @main(%w: tensor<4xf32> {tf.aliasing_output = 0 : i32},
    %m: tensor<4xf32> {tf.aliasing_output = 1 : i32}, %g: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = stablehlo.tanh %w : tensor<4xf32>
  %1 = stablehlo.reverse %0, dims = [0] : tensor<4xf32>
  %2 = stablehlo.add %1, %0 : tensor<4xf32>
  %3 = stablehlo.multiply %2, %g : tensor<4xf32>
  %4 = stablehlo.add %m, %3 : tensor<4xf32>
  %5 = stablehlo.subtract %w, %4 : tensor<4xf32>
  return %5, %4 : tensor<4xf32>, tensor<4xf32>
}
"""


def test_a_step_that_returns_no_loss() -> None:
    (graph,) = graphs(annotated(STATE_ONLY))
    kinds = argument_kinds(graph)
    assert kinds["m"] == "optimiser_state" and kinds["g"] == "inputs"


# The way back from a schedule


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "params"),
    [("gesture_mlp", "ram"), ("gesture_mlp", "storage"), *more(("dscnn", "ram"))],
)
def test_schedules_change_no_kind(name: str, params: str) -> None:
    """Recomputing and paging make new values, but no new tensors."""
    model = prepare(name)
    (before,) = graphs(model.module)
    expected = made(before)
    ram_bytes = model.least_ram_bytes() + STATIC_BYTES + DEFAULT_STACK_BYTES
    result, summary = compiled(model.module, options(ram_bytes, params=params, gap=0.01))
    assert summary.page_ins and (summary.recomputes or params == "storage")
    back = unscheduled(result.module)
    for kind, tensors in made(back).items():
        # The kernels may be in another order.
        assert sorted(tensors) == sorted(expected[kind])
    kinds = tensor_kinds(result.graph)
    first = [v for v in dict.fromkeys(origins(result.graph).values()) if v in kinds]
    assert sorted(kinds[v] for v in first) == sorted(tensor_kinds(back).values())


@pytest.mark.slow
@pytest.mark.parametrize("params", ["ram", "storage"])
def test_unscheduled_gives_the_same_problem(params: str) -> None:
    model = prepare("kws_conv")
    asked = replace(model.options(), params=params)
    expected = problem_view(graphs(model.module)[0], asked).problem
    result, _ = compiled(model.module, options(9000, params=params))
    found = problem_view(unscheduled(result.module), asked).problem
    assert in_no_order(found) == in_no_order(expected)
    bare = [replace(problem, operations=(), tensors=()) for problem in (found, expected)]
    assert bare[0] == bare[1]


def in_no_order(problem: Problem) -> list[tuple[object, ...]]:
    """The operations of a problem with their tensors: a schedule may have changed the order."""

    def described(tensors: tuple[int, ...]) -> list[str]:
        return sorted(str(replace(problem.tensors[v], replaces=None)) for v in tensors)

    return sorted(
        (o.name, o.time_ns, o.energy_nj, len(o.inplace), described(o.inputs), described(o.outputs))
        for o in problem.operations
    )


# The report


def check(summary: Summary, graph: GraphOp) -> None:
    """What holds for every report."""
    ram = summary.ram
    assert tuple(ram.at_peak) == tuple(ram.most) == KINDS
    assert sum(ram.at_peak.values()) == ram.peak.bytes == sum(t.bytes for t in ram.peak.tensors)
    assert all(ram.at_peak[kind] <= ram.most[kind] for kind in KINDS)
    for kind in KINDS:
        held = sum(tensor.bytes for tensor in ram.peak.tensors if tensor.kind == kind)
        assert held == ram.at_peak[kind]
    sizes = [tensor.bytes for tensor in ram.peak.tensors]
    assert sizes == sorted(sizes, reverse=True)
    assert ram.arena_bytes == ram.peak.bytes + ram.waste_bytes and ram.waste_bytes >= 0
    assert summary.params == ("storage" if graph.is_stored(0) else "ram")
    for least in ram.least:
        assert least.known_bytes is None or least.known_bytes >= least.bound_bytes
        if least.params == summary.params:
            assert ram.total_bytes >= least.bound_bytes
    assert summary.timeline is not None
    assert summary.time_ns in (None, summary.timeline.makespan_ns)
    assert json.loads(json.dumps(summary.to_json())) == summary.to_json() | {
        "ram": json.loads(json.dumps(summary.ram.to_json()))
    }


UNDER_WAY = """
poet.graph @main(%x: tensor<4xf32> {poet.offset = 0 : i64},
                 %w: !poet.page<tensor<6xf32>> {poet.role = "param", poet.offset = 1024 : i64})
    -> (tensor<4xf32>) attributes {
      ram = 72 : i64, arena_bytes = 72 : i64, storage_bytes = 2068 : i64,
      bank_bytes = 0 : i64, storage_unit = 512 : i64} {
  %out = poet.pageout_start %x offset 2048
    : tensor<4xf32> -> !poet.transfer<!poet.page<tensor<4xf32>>>
  %in = poet.pagein_start %w offset 16
    : !poet.page<tensor<6xf32>> -> !poet.transfer<tensor<6xf32>>
  %y = poet.compute "reads" (%a = %x : tensor<4xf32>) -> tensor<4xf32> offsets [40] {
    poet.yield %a : tensor<4xf32>
  }
  %z = poet.compute "goes_on" (%a = %y : tensor<4xf32>) -> tensor<4xf32> offsets [56] {
    poet.yield %a : tensor<4xf32>
  }
  poet.free %y : tensor<4xf32>
  %page = poet.wait %out
    : !poet.transfer<!poet.page<tensor<4xf32>>> -> !poet.page<tensor<4xf32>>
  poet.free %x : tensor<4xf32>
  %w_1 = poet.wait %in : !poet.transfer<tensor<6xf32>> -> tensor<6xf32>
  %r = poet.compute "ends" (%a = %z : tensor<4xf32>, %b = %w_1 : tensor<6xf32>)
      -> tensor<4xf32> offsets [0] {
    poet.yield %a : tensor<4xf32>
  }
  poet.free %z : tensor<4xf32>
  poet.free %w_1 : tensor<6xf32>
  poet.return %r : tensor<4xf32>
}"""


def test_tensors_that_are_there_to_be_moved() -> None:
    """%w while it is read; %x, which is being written, once "reads" has read it."""
    _, summary = compiled(parse_module(UNDER_WAY), options(None))
    ram = summary.ram
    assert ram.peak.bytes == 72 and ram.peak.kernel == "goes_on"
    assert ram.at_peak["transfer_buffers"] == ram.most["transfer_buffers"] == 16 + 24
    assert ram.at_peak["inputs"] == ram.at_peak["parameters"] == 0
    assert ram.most["inputs"] == 16 and ram.most["parameters"] == 24
    kinds = {tensor.name: tensor.kind for tensor in ram.peak.tensors}
    assert kinds["x"] == kinds["w"] == "transfer_buffers" and kinds["goes_on"] == "activations"
    assert summary.timeline is not None and summary.timeline.compute_ns == 0
    text = summary.to_text()
    assert "  transfer buffers" in text and "  bus in use" in text
    assert re.search(r"^  stalls .* most .* for the page-(in|out) of [wx]$", text, re.MULTILINE)


def test_floats_of_16_bits_take_half_of_the_ram() -> None:
    text = optimiser_steps.momentum()
    single, half = (
        compiled(parse_module(text.replace("f32", name), "step.mlir"), options())[1]
        for name in ("f32", "bf16")
    )
    assert single.ram.arena_bytes == single.ram.peak.bytes > 1000
    assert half.ram.arena_bytes == half.ram.peak.bytes
    # All but the loss, which takes four bytes anyway.
    assert 2 * half.ram.peak.bytes == single.ram.peak.bytes + 4
    for kind in ("parameters", "optimiser_state", "activations"):
        assert 2 * half.ram.most[kind] == single.ram.most[kind] > 0


@pytest.mark.slow
def test_report_of_a_tight_schedule() -> None:
    module = prepare("gesture_mlp").module
    result, summary = compiled(module, options(9600, gap=0.01))
    assert result.report is not None
    check(summary, result.graph)
    assert summary.ram.peak.bytes == result.report.use.peak_bytes == 8540
    assert summary.ram.at_peak["parameters"] == 7256
    assert summary.ram.most["inputs"] == 672 and summary.ram.at_peak["inputs"] == 0
    assert summary.recomputes == len(result.report.use.recomputes)
    assert summary.page_ins == result.report.use.page_ins
    assert summary.page_in_bytes == result.report.use.page_in_bytes
    in_ram, on_storage = summary.ram.least
    assert (in_ram.params, in_ram.known_bytes, in_ram.bound_bytes) == ("ram", 9400, 9400)
    assert in_ram.kernel == "dot_add_tanh" and in_ram.location is not None
    assert "gesture_mlp.mlir:" in in_ram.location
    assert on_storage.params == "storage" and on_storage.known_bytes == 6880
    text = summary.to_text()
    for line in (
        "Parameters",
        "in RAM",
        "activations",
        "gradients",
        "Least possible RAM",
        "(0.00%)",
    ):
        assert line in text
    again = summarize(replace(result, report=None), "step.mlir")
    assert again.ram == summary.ram and again.scheduled_before
    assert again.energy_nj == summary.energy_nj and again.gap == pytest.approx(summary.gap)
    assert "scheduled before" in again.to_text()


@pytest.mark.slow
def test_parameters_on_storage_count_while_they_are_in_ram() -> None:
    module = prepare("gesture_mlp").module
    result, summary = compiled(module, options(7168, params="auto", gap=0.01, stream="never"))
    check(summary, result.graph)
    assert summary.params == "storage"
    assert 4608 <= summary.ram.at_peak["parameters"] < 7256
    assert "on storage between steps" in summary.to_text()
    weight = next(t for t in summary.ram.peak.tensors if t.bytes == 4608)
    assert (weight.name, weight.kind) == ("[1]['l1']['w']", "parameters")


def test_workspace_is_the_kernels() -> None:
    text = """
    poet.graph @main(%x: tensor<4xf32> {poet.role = "input"}) -> (tensor<4xf32>) {
      %y = poet.compute "f" (%a = %x : tensor<4xf32>) -> tensor<4xf32>
          cost #poet.cost<energy_nj = 1, time_ns = 1, workspace = 24, flops = 0> {
        %0 = stablehlo.tanh %a : tensor<4xf32>
        poet.yield %0 : tensor<4xf32>
      }
      poet.free %x : tensor<4xf32>
      poet.return %y : tensor<4xf32>
    }"""
    result, summary = compiled(parse_module(text, "step.mlir"), options())
    check(summary, result.graph)
    assert summary.ram.at_peak["workspace"] == 24
    assert summary.ram.at_peak["outputs"] == summary.ram.at_peak["inputs"] == 16
    assert summary.ram.peak.tensors[0].name == "workspace"
    assert summary.ram.peak.at == 'kernel "f"'


@pytest.mark.slow
def test_device_without_storage() -> None:
    asked = replace(options(), device=replace(load_device(DEVICE), storage=None))
    _, summary = compiled(prepare("gesture_mlp").module, asked)
    assert [least.params for least in summary.ram.least] == ["ram"]


@pytest.mark.slow
def test_emit_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gesture = str(MODELS / "gesture_mlp.mlir")
    assert main([gesture, "--ram=9600", "--emit=report"]) == 0
    captured = capsys.readouterr()
    data = json.loads(captured.out)
    assert data["ram"]["total_bytes"] == 9596 and data["params"] == "ram"
    assert "RAM used            9,596 B" in captured.err
    target = tmp_path / "report.json"
    scheduled = tmp_path / "scheduled.mlir"
    assert main([gesture, "--ram=9600", "-q", "-o", str(scheduled)]) == 0
    assert main([str(scheduled), "--emit=report", "-q", "-o", str(target)]) == 0
    again = json.loads(target.read_text())
    assert again["scheduled_before"] and again["energy_nj"] == data["energy_nj"]
    assert again["ram"]["at_peak"] == data["ram"]["at_peak"]
    assert main([gesture, "--passes=stablehlo-simplify", "--emit=report"]) == 2


# To the byte


def budgets(model: Model) -> list[int | None]:
    """All of the RAM: unlimited, and (nearly) the least."""
    reserved = STATIC_BYTES + DEFAULT_STACK_BYTES
    _, report = model.schedule(None)
    least, most = model.least_ram_bytes(), report.use.peak_bytes
    # Searching at the very least takes long for what has more than a few dozen kernels.
    part = 0 if len(report.problem.operations) < 30 else 4
    return [None, (least + (most - least) * part // 12) // 4 * 4 + reserved]


def defines(header: Path) -> dict[str, str]:
    lines = (line.split() for line in header.read_text().splitlines())
    return {words[1]: words[2] for words in lines if words[:1] == ["#define"] and len(words) == 3}


def linked_bytes(directory: Path) -> int:
    """`.data` and `.bss` of the program without its example and page stores, linked by gcc."""
    names = ("model", "model_kernels", "poetc_math", "poetc_store", "poetc_image")
    sources = [f"{name}.c" for name in names if (directory / f"{name}.c").exists()]
    flags = ("-std=c99", "-O1", "-ffp-contract=off", "-r", "-nostdlib")
    subprocess.run(["gcc", *flags, *sources, "-o", "linked.o"], cwd=directory, check=True)
    sections = subprocess.run(
        ["size", "-A", "linked.o"], cwd=directory, capture_output=True, text=True, check=True
    )
    rows = (line.split() for line in sections.stdout.splitlines())
    return sum(int(r[1]) for r in rows if r and r[0].startswith((".data", ".bss", ".tdata")))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gesture_mlp", *more(*TRAINED[1:])])
def test_ram_is_that_of_the_program(name: str, tmp_path: Path) -> None:
    model = prepare(name)
    for at, ram_bytes in enumerate(budgets(model)):
        result, summary = compiled(model.module, options(ram_bytes, params="ram"))
        check(summary, result.graph)
        emit_and_compare(result, summary, tmp_path / str(at))
        assert ram_bytes is None or summary.ram.total_bytes <= ram_bytes
    result, summary = compiled(model.module, options(params="storage"))
    check(summary, result.graph)
    emit_and_compare(result, summary, tmp_path / "storage")
    stack = measure_stack(result.module, find_compiler("gcc"))
    assert stack.bytes <= DEFAULT_STACK_BYTES


def emit_and_compare(result: Compiled, summary: Summary, directory: Path) -> None:
    emit(result.module, directory, stack_bytes=result.options.stack_bytes)
    found = defines(directory / "model.h")
    total = linked_bytes(directory) + summary.ram.static_bytes + summary.ram.stack_bytes
    assert int(found["MODEL_RAM_BYTES"]) == summary.ram.total_bytes == total
    assert int(found["MODEL_STACK_BYTES"]) == summary.ram.stack_bytes
    assert int(found["MODEL_STATIC_BYTES"]) == summary.ram.static_bytes
    assert int(found["MODEL_STORAGE_BYTES"]) == summary.storage_bytes


@pytest.mark.slow
@pytest.mark.parametrize("stop", [(), ("--stop=work",)])
def test_a_search_that_the_clock_ended_is_told(
    stop: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By default it goes on until then, as another schedule may be found by another run."""
    limit_s = 2.0
    if stop:
        # A machine on which the work takes no time.
        monkeypatch.setattr(Clock, "seconds", 0.0)
    words = [str(MODELS / "dscnn.mlir"), "--ram=200KB", "--params=storage", "--gap=0%", *stop]
    words += ["--stream=never"]
    words += [f"--time-limit={limit_s}", "--emit=report", "-o", "-"]
    began_s = time.monotonic()
    assert main(words) == 0
    seconds = time.monotonic() - began_s
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    assert report["gap"] > 0 and report["status"] == "feasible"
    assert report["ended_by_clock"] == ("time limit ended the search" in printed.err) == (not stop)
    # A part is left to the search for an arena.
    assert stop or seconds >= 0.75 * limit_s


@pytest.mark.slow
def test_that_the_clock_cuts_work_short_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A machine that is too slow for --stop=work has a schedule of its own."""
    words = [str(MODELS / "lenet5.mlir"), "--ram=210KB", "--stream=never"]
    words += ["--stop=work", "--emit=report", "-o", "-"]
    for seconds, status in ((0.0, "optimal"), (60.0, "feasible")):
        monkeypatch.setattr(Clock, "seconds", seconds)
        assert main(words) == 0
        printed = capsys.readouterr()
        assert json.loads(printed.out)["status"] == status
        assert ("time limit ended the search" in printed.err) == (seconds > 0)
