"""Inputs and results in buffers of the caller."""

from __future__ import annotations

import ctypes
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from c_support import COMPILERS, load_library
from compiled import SANITIZE, Model, build, prepare, run
from conftest import MODELS, more
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from outcomes import must_reach, reached
from random_graphs import RandomGraph, random_graphs
from xdsl.dialects.builtin import ModuleOp, StringAttr

from poetc.backends.c.emit import emit
from poetc.budget import Budget
from poetc.cli import main
from poetc.costmodel.device import load_device
from poetc.errors import UnscheduledError
from poetc.interpreter import InterpreterError, run_graph
from poetc.ir.graph import graphs, view_unscheduled
from poetc.ir.poet import GraphOp
from poetc.ir.text import parse_module
from poetc.passes.poet_verify import verify_graph
from poetc.passes.poet_verify.messages import VerificationError
from poetc.planning.plan import schedule_and_plan
from poetc.planning.problem import ScheduleOptions

pytestmark = pytest.mark.usefixtures("whole")

GESTURE = str(MODELS / "gesture_mlp.mlir")


def callers(model: Model) -> Model:
    """The same model with its inputs and results in buffers of the caller."""
    module = model.module.clone()
    graphs(module)[0].attributes["io"] = StringAttr("caller")
    return replace(model, module=module)


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return [x.tobytes() for x in a] == [x.tobytes() for x in b]


def check_planned(graph: GraphOp) -> None:
    """No byte of the arena belongs to the caller's tensors, and nothing ends them."""
    verify_graph(graph)
    for argument in graph.arguments:
        if graph.role(argument.index) == "input":
            assert graph.offset(argument.index) is None
            names = {use.operation.name for use in argument.uses}
            assert names <= {"poet.compute"}
    for compute in graph.computes:
        for at, result in enumerate(compute.results):
            offsets = compute.result_offsets
            assert offsets is not None
            assert (offsets[at] < 0) == (result in graph.caller_values())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gesture_mlp", *more("kws_conv", "lenet5", "dscnn", "mlp_mnist")])
def test_same_bits_as_in_the_arena(name: str, tmp_path: Path) -> None:
    model = prepare(name)
    expected = run(build(model.schedule(None)[0], tmp_path / "a"), model.arguments, model.expected)
    mine = callers(model)
    least = mine.least_ram_bytes()
    assert least <= model.least_ram_bytes()
    peak = mine.schedule(None)[1].use.peak_bytes
    for at, ram_bytes in enumerate((None, least, (least + peak) // 8 * 4)):
        module, report = mine.schedule(ram_bytes)
        (graph,) = graphs(module)
        check_planned(graph)
        interpreted = run_graph(graph, model.arguments, ram_bytes, arena=True)
        assert same(interpreted.results, expected)
        assert interpreted.peak_bytes == report.use.peak_bytes
        directory = tmp_path / str(at)
        got = run(build(module, directory, *SANITIZE), model.arguments, model.expected, 1)
        assert same(got, expected)
        shutil.rmtree(directory)


@pytest.mark.slow
def test_many_steps(tmp_path: Path) -> None:
    model = prepare("gesture_mlp")
    arena = build(model.schedule(None)[0], tmp_path / "arena")
    mine = callers(model)
    own = build(mine.schedule(mine.least_ram_bytes())[0], tmp_path / "own", *SANITIZE)
    expected = run(arena, model.arguments, model.expected, 5)
    assert same(run(own, model.arguments, model.expected, 5), expected)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
def test_buffers_of_the_caller(compiler: str, tmp_path: Path) -> None:
    """Inputs stay as they are; of a result, no byte around it is written."""
    model = callers(prepare("gesture_mlp"))
    module, _ = model.schedule(None)
    emit(module, tmp_path / "out")
    names = ("model", "model_kernels", "poetc_math", "poetc_store")
    library = load_library(
        [tmp_path / "out" / f"{name}.c" for name in names], tmp_path / "m.so", compiler
    )
    library.model_argument.restype = library.model_result.restype = ctypes.c_void_p
    inputs: list[np.ndarray] = []
    for i, array in enumerate(model.arguments):
        place = library.model_argument(i)
        assert library.model_argument_is_callers(i) & 1 == (place is None) == (i in (6, 7))
        assert library.model_argument_bytes(i) == array.nbytes
        if place is None:
            inputs.append(array.copy())
        else:
            ctypes.memmove(place, np.ascontiguousarray(array).tobytes(), array.nbytes)
    assert library.model_result_is_callers(0) & 1 and library.model_result(0) is None
    assert library.model_result(1) == library.model_argument(0)
    result = np.full(3, 7.0, np.float32)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in inputs]
    assert library.model_step(None, *pointers, ctypes.c_void_p(result.ctypes.data + 4)) == 0
    (loss,) = result[1:2]
    assert result[0] == result[2] == 7.0
    assert loss == pytest.approx(float(model.expected[0]), rel=3e-5)
    assert same(inputs, model.arguments[6:])


@pytest.mark.slow
@must_reach("planned")
@settings(max_examples=40, deadline=None)
@given(random_graphs(9), st.floats(0, 1), st.booleans(), st.sampled_from(["ram", "storage"]))
def test_random_graphs(random: RandomGraph, share: float, remat: bool, params: str) -> None:
    module, graph = random.parse()
    wanted = run_graph(module, random.arguments()).results
    graph.attributes["io"] = StringAttr("caller")
    assume(graph.unwritten_output() is None)
    tensors = view_unscheduled(graph).problem.tensors
    start = sum(t.bytes for t in tensors if t.start is not None)
    most = sum(t.bytes for t in tensors)
    assume(most > 0)
    ram = max(4, round(start + share * (most - start)))
    options = ScheduleOptions(
        budget=Budget(ram),
        device=load_device("nrf52840"),
        remat=remat,
        time_limit_s=1,
        params=params,
    )
    try:
        schedule_and_plan(graph, options)
    except UnscheduledError:
        return
    reached("planned")
    module.verify()
    check_planned(graph)
    text = str(module)
    again = parse_module(text, "again.mlir")
    for planned in (module, again):
        done = run_graph(planned, random.arguments(), ram, arena=True)
        assert same(done.results, wanted)


RETURNED_INPUT = """
poet.graph @main(%x: tensor<4xf32> {poet.role = "input"}) -> (tensor<4xf32>)
    attributes {io = "caller"} {
  poet.return %x : tensor<4xf32>
}
"""

TAKEN = """
poet.graph @main(%x: tensor<4xf32> {poet.role = "input"}) -> (tensor<4xf32>)
    attributes {io = "caller"} {
  %h = poet.compute "f" (%a = %x : tensor<4xf32>) -> tensor<4xf32> inplace [[0, 0]] {
    poet.yield %a : tensor<4xf32>
  }
  %y = poet.compute "g" (%a = %h : tensor<4xf32>) -> tensor<4xf32> {
    poet.yield %a : tensor<4xf32>
  }
  poet.return %y : tensor<4xf32>
}
"""


def test_the_interpreter_guards_buffers_of_the_caller() -> None:
    x = np.zeros(4, np.float32)
    module: ModuleOp = parse_module(TAKEN, "taken.mlir")
    with pytest.raises(InterpreterError, match="whose buffer is the caller's"):
        run_graph(module, [x])
    with pytest.raises(VerificationError, match="which is the caller's, is taken over"):
        verify_graph(graphs(module)[0])
    freed = TAKEN.replace("inplace [[0, 0]] ", "").replace(
        "  poet.return", "  poet.free %x : tensor<4xf32>\n  poet.return"
    )
    with pytest.raises(InterpreterError, match="whose buffer is the caller's"):
        run_graph(parse_module(freed, "freed.mlir"), [x])


@pytest.mark.slow
def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scheduled = str(tmp_path / "scheduled.mlir")
    assert main([GESTURE, "--ram=9500", "--io=caller", "-o", scheduled]) == 0
    assert "buffers of the caller: inputs 672 B, outputs 4 B" in capsys.readouterr().err
    assert main([scheduled, "--emit=c", "-o", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "model.h").read_text()
    assert "const float *argument6, const float *argument7, float *result0" in text
    capsys.readouterr()
    assert main([scheduled, "--io=arena"]) == 2
    assert "with io = caller" in capsys.readouterr().err
    (tmp_path / "returned.mlir").write_text(RETURNED_INPUT)
    assert main([str(tmp_path / "returned.mlir")]) == 2
    assert "an argument as it came" in capsys.readouterr().err
