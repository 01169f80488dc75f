"""C of steps whose kernels run in tiles: the bits of the step that is not scheduled, in the RAM
that is planned, step after step; and blocks of pages that are damaged."""

import io
import json
import re
import subprocess
from contextlib import redirect_stderr
from functools import cache
from pathlib import Path

import numpy as np
import optimiser_steps
import pytest
from compiled import SANITIZE, Model, bring, build, prepare, run
from conftest import MODELS, more
from kernel_harness import same_bits
from power import OK, Fault, Loss, Machine, parameters
from test_c_runtime import CORRUPT
from test_power_loss import Trial
from test_stack import COMPILED, painted

import poetc
from poetc.backends.c.compiler import find_compiler
from poetc.backends.c.layout import static_ram_bytes
from poetc.backends.c.stack import measure_stack
from poetc.backends.plan.source import PlanExecutor
from poetc.cli import main
from poetc.errors import InputError
from poetc.image import pack, unpack
from poetc.interpreter import run_graph
from poetc.ir.graph import graphs, round_up, view_scheduled
from poetc.ir.poet import StreamOp
from poetc.ir.stream_use import moved_in
from poetc.ir.text import make_context, module_text, parse_module
from poetc.passes.poet_stream import PoetStreamPass
from poetc.passes.poet_verify import verify_graph
from poetc.planning.memory import plan_graph_memory
from poetc.schedule.model.checker import replay


def cli(arguments: list[str]) -> tuple[int, str]:
    """The exit code, and what is said."""
    with redirect_stderr(io.StringIO()) as said:
        return main(arguments), said.getvalue()


def expected_after(module, arguments: list[np.ndarray], steps: int) -> list[np.ndarray]:
    """Results of the last of several steps of a graph that is not scheduled."""
    (graph,) = graphs(module)
    results: list[np.ndarray] = []
    for _ in range(steps):
        results = list(run_graph(module.clone(), arguments).results)
        new = {i: graph.updates(i) for i in range(len(arguments))}
        arguments = [a if (k := new[i]) is None else results[k] for i, a in enumerate(arguments)]
    return results


def streamed(name: str, ram_bytes: int, block_bytes: int):
    """The model, and its graph in little RAM, read back from text."""
    return prepare(name, tiles=True), parse_module(streamed_text(name, ram_bytes, block_bytes))


@cache
def streamed_text(name: str, ram_bytes: int, block_bytes: int) -> str:
    return module_text(streamed_model(prepare(name, tiles=True), ram_bytes, block_bytes)[1])


def streamed_model(model: Model, ram_bytes: int, block_bytes: int):
    """The same of a model that was brought to the input of the scheduler."""
    module = model.module.clone()
    PoetStreamPass(ram_bytes, block=block_bytes).apply(make_context(), module)
    plan_graph_memory(graphs(module)[0])
    module = parse_module(module_text(module))
    verify_graph(graphs(module)[0])
    return model, module


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, ram_bytes, block_bytes, streams, steps",
    [
        ("gesture_mlp", 1500, 512, 5, 3),
        ("kws_conv", 4096, 64, 5, 2),
        *more(
            ("lenet5", 8192, 512, 14, 2),
            ("bert_micro", 31200, 512, 30, 2),
            ("resnet8", 24 * 1024, 512, 40, 2),
        ),
    ],
)
def test_models_in_little_ram(
    name: str, ram_bytes: int, block_bytes: int, streams: int, steps: int, tmp_path: Path
):
    model, module = streamed(name, ram_bytes, block_bytes)
    (graph,) = graphs(module)
    assert sum(isinstance(op, StreamOp) for op in graph.block.ops) >= streams
    program = build(module, tmp_path, *SANITIZE)
    found = run(program, model.arguments, model.expected, steps)
    for result, other in zip(
        found, expected_after(model.module, model.arguments, steps), strict=True
    ):
        assert same_bits(result, other)
    size = re.search(r"MODEL_ARENA_BYTES +(\d+)", (tmp_path / "model.h").read_text())
    assert size is not None and graph.arena_bytes is not None
    assert int(size[1]) == static_ram_bytes(graph)
    assert int(size[1]) == round_up(graph.arena_bytes, 4) + block_bytes <= ram_bytes + block_bytes


@pytest.fixture(scope="module")
def small():
    return streamed("gesture_mlp", 1500, 64)


@pytest.fixture(scope="module", params=[None, PlanExecutor()], ids=["code", "plan"])
def machine(request: pytest.FixtureRequest, small, tmp_path_factory: pytest.TempPathFactory):
    """A step in tiles on a store that loses power, and what is in its image at the start."""
    return machine_of(small, tmp_path_factory.mktemp("tiles") / "out", request.param)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_stacks_of_kernels_in_tiles_do_not_add_up(compiler: str, small, tmp_path: Path):
    """Each has a function, and so a frame, of its own, of which one is in use at a time."""
    model, module = small
    used = painted(model, module, tmp_path, compiler)
    for source in ("model.c", "poetc_slice.c", "poetc_store.c", "store_memory.c"):
        subprocess.run([compiler, *COMPILED, "-c", source], cwd=tmp_path, check=True)
    frames = {
        line.split("\t")[0].rsplit(":", 1)[1]: int(line.split("\t")[1])
        for path in tmp_path.glob("*.su")
        for line in path.read_text().splitlines()
    }
    streams = {name for name in frames if name.startswith("model_stream_")}
    assert len(streams) == sum(isinstance(op, StreamOp) for op in graphs(module)[0].block.ops) > 4
    measured = measure_stack(module, find_compiler(compiler))
    assert 0 < used <= measured.bytes
    assert measured.chain[0] == "model_step" and len(streams.intersection(measured.chain)) == 1


def machine_of(step, directory: Path, executor: PlanExecutor | None):
    model, module = step
    inputs = {i: a for i, a in enumerate(model.arguments) if graphs(module)[0].role(i) == "input"}
    found = Machine(module, directory, inputs, executor=executor)
    return found, pack(found.layout, parameters(found.layout, model.arguments))


@pytest.mark.slow
def test_a_plan_moves_what_code_moves(small, tmp_path: Path):
    """Each write of a step has the same bytes, and there are as many transfers."""
    moved: list[tuple[list[int], int]] = []
    for executor in (None, PlanExecutor()):
        device, image = machine_of(small, tmp_path / str(executor is None), executor)
        device.power_on(image)
        assert device.step() == OK
        moved.append((device.events, device.transfers))
    assert moved[0] == moved[1]


@pytest.mark.slow
def test_power_goes(machine: tuple[Machine, bytes]):
    """Wherever it goes, parameters are all old or all new, and the step can be repeated."""
    device, image = machine
    before, after = device.run(image, 2)[1:]
    trial = Trial(device, before, after, repeats=2)
    rng = np.random.default_rng(1)
    count = len(trial.events)
    for event in {*rng.choice(count, 40).tolist(), *range(count - 4, count)}:
        length = trial.events[event]
        trial.lose(event, length // 2, spoil=True)
        trial.lose(event, max(length - 1, 0))
        trial.lose_unsynced(event, Loss.RANDOM, int(event) + 1)
    assert trial.lost and trial.kept


@pytest.mark.slow
def test_power_goes_in_a_step_with_momentum(tmp_path: Path):
    """At each write and sync: of weights and velocities either all are old or all are new, and
    steps end with the bits of those of the graph that is not scheduled."""
    rng = np.random.default_rng(4)
    shapes = (optimiser_steps.W1, optimiser_steps.W2)
    shapes = (*shapes, *shapes, optimiser_steps.X, optimiser_steps.Y)
    arguments = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    model = bring("momentum", parse_module(optimiser_steps.momentum()), arguments, [], tiles=True)
    step = streamed_model(model, 800, 64)
    assert sum(isinstance(op, StreamOp) for op in step[1].walk()) > 2
    device, image = machine_of(step, tmp_path / "out", None)
    images = device.run(image, 2)
    expected = expected_after(model.module, arguments, 2)
    (graph,) = graphs(model.module)
    for parameter, bits in zip(device.layout.tensors, device.state(images[2])[1], strict=True):
        result = graph.updates(parameter.argument)
        assert result is not None and bits == expected[result].tobytes()
    trial = Trial(device, *images[1:], repeats=1)
    for event, length in enumerate(trial.events):
        trial.lose(event, length // 2, spoil=True)
        trial.lose_unsynced(event, Loss.RANDOM, event + 1)
    assert trial.lost > len(trial.events) and trial.kept


def test_damaged_blocks(machine: tuple[Machine, bytes]):
    """A bit that flips in any transfer is found; the parameters are whole, and the step can be
    repeated."""
    device, image = machine
    before, after = device.run(image, 2)[1:]
    device.power_on(before)
    assert device.step() == OK
    count, outputs = device.transfers, device.outputs()
    old, new = device.state(before), device.state(after)
    found = 0
    for transfer in np.random.default_rng(2).choice(count, 150, replace=False).tolist():
        device.power_on(before)
        device.fault(transfer, Fault.FLIP)
        status = device.step()
        if status == OK:
            # It is in what the next step reads, or was written over.
            assert device.outputs() == outputs
            with pytest.raises(InputError, match="is damaged"):
                assert device.state(device.image) == new
                raise InputError("what is damaged is gone")
            continue
        found += 1
        assert device.state(device.image) == old
        assert device.step() == OK
        assert device.state(device.image) == new
    assert found > 75


def test_each_parameter_is_checked(machine: tuple[Machine, bytes]):
    """A bit of the image that is wrong, wherever it is in a parameter."""
    device, image = machine
    rng = np.random.default_rng(3)
    for tensor in device.layout.tensors:
        for at in rng.integers(0, tensor.bytes, 4).tolist():
            damaged = bytearray(image)
            damaged[tensor.offset + at] ^= 1 << int(rng.integers(8))
            device.power_on(bytes(damaged))
            assert device.step() == CORRUPT, (tensor.name, at)
            with pytest.raises(InputError, match="is damaged"):
                unpack(device.layout, bytes(damaged))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ram_bytes", "block_bytes"), [("kws_conv", 4096, 64), *more(("lenet5", 8192, 512))]
)
def test_what_is_moved_is_counted(name: str, ram_bytes: int, block_bytes: int):
    """As the interpreter does."""
    model, module = streamed(name, ram_bytes, block_bytes)
    (graph,) = graphs(module)
    run = run_graph(graph, model.arguments, ram_bytes, arena=True)
    moved = moved_in(graph)
    assert moved.page_ins and moved.page_outs
    assert (moved.page_ins, moved.page_in_bytes) == (run.page_ins, run.page_in_bytes)
    assert (moved.page_outs, moved.page_out_bytes) == (run.page_outs, run.page_out_bytes)
    view = view_scheduled(graph)
    assert replay(view.problem, view.steps).peak_bytes == run.peak_bytes


@pytest.mark.slow
def test_from_the_command_line(tmp_path: Path):
    """What poet-stream made is input of poetc; other backends say that they do not have it."""
    _, module = streamed("gesture_mlp", 1500, 64)
    source = tmp_path / "tiles.mlir"
    source.write_text(module_text(module))
    code, said = cli([str(source), "--emit=c", "--json", "-o", str(tmp_path / "out")])
    assert code == 0, said
    assert json.loads(said)["ram"]["arena_bytes"] == static_ram_bytes(graphs(module)[0])
    code, said = cli([str(source), "--emit=c", "--executor=plan", "-o", str(tmp_path / "plan")])
    assert code == 0, said
    code, said = cli([str(source), "--emit=plan", "-o", str(tmp_path / "new.plan")])
    assert code == 0, said
    own = (tmp_path / "plan" / "model.c").read_text()
    plan = (tmp_path / "new.plan").read_bytes()
    assert re.findall(r"0x(..),", own) == [f"{byte:02x}" for byte in plan]
    code, said = cli([str(source), "--emit=tvm", "-o", str(tmp_path / "other.so")])
    assert code == 2 and "kernels that run in tiles (poet.stream) do not go with" in said


@pytest.mark.slow
def test_a_program_in_this_process(tmp_path: Path):
    """`poetc.compile` takes what poet-stream made; parameters can be read and set in between."""
    model, module = streamed("gesture_mlp", 1500, 64)
    source = tmp_path / "tiles.mlir"
    source.write_text(module_text(module))
    programs = [
        poetc.compile(path, model.arguments) for path in (source, str(MODELS / "gesture_mlp.mlir"))
    ]
    graph = graphs(model.module)[0]
    inputs = [a for i, a in enumerate(model.arguments) if graph.role(i) == "input"]
    for _ in range(2):
        losses = [program.step(*inputs) for program in programs]
        assert same_bits(*losses)
        for name, value in programs[1].parameters.items():
            assert same_bits(programs[0].parameters[name], value)
            for program in programs:
                program.parameters[name] = value * np.float32(1.5)
    assert programs[0].ram_bytes < programs[1].ram_bytes / 2
    programs[0].draw("trace", tmp_path / "trace.json")
    assert '"tiles"' in (tmp_path / "trace.json").read_text()


@pytest.mark.slow
def test_the_program_of_a_step_on_data_compares_blocks(tmp_path: Path):
    """With XLA's results, also those that are pages in several blocks; one wrong byte is seen."""
    _, module = streamed("gesture_mlp", 1500, 512)
    source, out = tmp_path / "step.mlir", tmp_path / "out"
    source.write_text(module_text(module))
    data = MODELS / "gesture_mlp.npz"
    code, said = cli([str(source), "--emit=c", "-q", "-o", str(out), f"--data={data}"])
    assert code == 0, said
    make = ["make", "-s", "-C", str(out), "run"]
    ran = subprocess.run(make, capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout.count("relative difference") == 7, ran.stdout
    expected = out / "data" / "expected.bin"
    content = bytearray(expected.read_bytes())
    content[4003] ^= 0xFF  # in the eighth block of a weight
    expected.write_bytes(content)
    ran = subprocess.run(make, capture_output=True, text=True)
    assert ran.returncode != 0 and "too much" in ran.stdout


@pytest.mark.slow
def test_what_is_said_of_steps_in_tiles(tmp_path: Path):
    """A block is a buffer of transfers, no waste; a trace has the kernels in tiles; blocks that
    nobody could mean are refused, and kernels that there are none of, with what there is instead.
    """
    _, module = streamed("gesture_mlp", 1500, 64)
    source, report, trace = (tmp_path / name for name in ("step.mlir", "report.json", "trace.json"))
    source.write_text(module_text(module))
    words = ["--emit=report", "-q", "-o", str(report), f"--trace={trace}"]
    code, said = cli([str(source), *words])
    assert code == 0, said
    ram = json.loads(report.read_text())["ram"]
    assert ram["at_peak"]["transfer_buffers"] == 64
    assert ram["peak_live_bytes"] == sum(ram["at_peak"].values()) == ram["arena_bytes"]
    events = json.loads(trace.read_text())["traceEvents"]
    in_tiles = [event["name"] for event in events if "tiles" in event["args"]]
    streams = [op for op in graphs(module)[0].block.ops if isinstance(op, StreamOp)]
    assert in_tiles == [op.label.data for op in streams]
    code, said = cli([str(source), "--emit=tvm", "-o", str(tmp_path / "out.so"), "-q"])
    assert code == 2
    assert "do not go with --emit=tvm; --emit=c does" in said
    whole = prepare("gesture_mlp").module
    for block in (60, 66, 1 << 17):
        with pytest.raises(InputError, match="block is a multiple of 4 from 64 to 65,536 bytes"):
            PoetStreamPass(1500, block=block).apply(make_context(), whole)


REPLACED = """
func.func public @main(%w: tensor<600xf32> {tf.aliasing_output = 0 : i32}, %x: tensor<600xf32>)
    -> tensor<600xf32> {
  %0 = stablehlo.reverse %x, dims = [0] : tensor<600xf32>
  return %0 : tensor<600xf32>
}
"""


def test_a_value_that_is_replaced_unread(tmp_path: Path):
    """Its page is an operand of the stream, which no tile reads: the C compiles without a warning,
    and has the new value after each step."""
    arguments = [np.zeros(600, np.float32), np.arange(600, dtype=np.float32)]
    model = bring(
        "replaced", parse_module(REPLACED), arguments, [arguments[1][::-1]], arrange=False
    )
    PoetStreamPass(2912, block=64).apply(make_context(), model.module)
    plan_graph_memory(graphs(model.module)[0])
    (found,) = run(build(model.module, tmp_path, *SANITIZE), arguments, model.expected, steps=2)
    assert np.array_equal(found, arguments[1][::-1])
