"""Parameters in shards: the same bits on every path, one parameter to the user, less RAM."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import optimiser_steps
import pytest
from compiled import SANITIZE, build
from conftest import ALL, MODELS, load_arrays, more, read_model
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import DenseArrayBase, ModuleOp

from poetc.backends.c.emit import generate
from poetc.cli import main
from poetc.costmodel.device import load_device
from poetc.diagnosis import Diagnosis, Reason
from poetc.driver import compile_module
from poetc.errors import InfeasibleError, InputError, PoetcError, TimeLimitError, UnscheduledError
from poetc.image import ImageLayout, layout_of, pack, unpack
from poetc.interpreter import run_func, run_graph
from poetc.ir.aliasing import updates_of
from poetc.ir.dense import dtype_of
from poetc.ir.graph import graphs
from poetc.ir.poet import SHARD, Shard
from poetc.ir.stablehlo import element_type_of, shape_of
from poetc.ir.text import make_context, parse_module
from poetc.passes.stablehlo_simplify import StableHLOSimplifyPass
from poetc.passes.stablehlo_split import main_of, split_parameters, splittable
from poetc.pipeline import front_passes, run_passes
from poetc.planning import attempts
from poetc.planning.plan import schedule_and_plan
from poetc.planning.problem import ScheduleOptions
from poetc.request import Options
from poetc.splits import parse_splits
from poetc.tensors import read_tensors

pytestmark = pytest.mark.usefixtures("whole")

GESTURE = str(MODELS / "gesture_mlp.mlir")


def simplified(module: ModuleOp) -> ModuleOp:
    StableHLOSimplifyPass().apply(make_context(), module)
    return module


# The pass, seen by the interpreter


def parts_of(module: ModuleOp) -> list[Shard | None]:
    """Which part each argument of @main is."""
    attributes = main_of(module).arg_attrs
    assert attributes is not None
    found = [each.data.get(SHARD) for each in attributes]
    return [
        Shard(*each.get_values()) if isinstance(each, DenseArrayBase) else None for each in found
    ]


def in_parts(module: ModuleOp, arguments: list[np.ndarray]) -> list[np.ndarray]:
    """What a split module takes."""
    given: list[np.ndarray] = []
    for part, value in zip(parts_of(module), main_of(module).body.block.args, strict=True):
        if part is None:
            given.append(arguments[value.index])
        else:
            end = part.start + shape_of(value)[part.axis]
            given.append(arguments[part.argument].take(range(part.start, end), part.axis))
    return given


def run_split(module: ModuleOp, arguments: list[np.ndarray]) -> list[np.ndarray]:
    """Results of a split module, for whole arguments and with parts of results joined."""
    main_func, parts = main_of(module), parts_of(module)
    results = run_func(module, in_parts(module, arguments))
    updates = updates_of(main_func)
    joined = list(results)
    for i, part in enumerate(parts):
        if part is not None and part.argument == i:
            mine = [k for k, p in enumerate(parts) if p is not None and p.argument == i]
            joined[updates[i]] = np.concatenate([results[updates[k]] for k in mine], part.axis)
    extra = sum(p is not None and p.argument != i for i, p in enumerate(parts))
    return joined[: len(joined) - extra]


def assert_same_bits(got: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert [(a.dtype, a.shape) for a in got] == [(a.dtype, a.shape) for a in expected]
    assert [a.tobytes() for a in got] == [a.tobytes() for a in expected]


@cache
def reference(name: str) -> tuple[ModuleOp, list[np.ndarray], list[np.ndarray]]:
    """A model after stablehlo-simplify, its arguments and results."""
    module = simplified(read_model(name))
    arguments, _ = load_arrays(MODELS / f"{name}.npz")
    return module, arguments, run_func(module, arguments)


def everything_along(module: ModuleOp, turn: int) -> str:
    """Each parameter in shards along one of its axes, which one depends on `turn`."""
    splits: list[str] = []
    for index, (stands, _) in splittable(module).items():
        shape = shape_of(main_of(module).body.block.args[index])
        axes = [axis for axis, size in enumerate(shape) if size > 1]
        if stands == index and axes:
            axis = axes[(turn + index) % len(axes)]
            splits.append(f"{index}@{axis}:{min(shape[axis], 2 + (turn + index) % 3)}")
    return ",".join(splits)


@pytest.mark.parametrize("turn", range(3))
@pytest.mark.parametrize(
    "name", ["gesture_mlp", "kws_conv", "lenet5", *more("dscnn", "resnet8", "bert_micro")]
)
def test_models_keep_their_bits(name: str, turn: int) -> None:
    """All parameters in shards at once, along one axis and another."""
    module, arguments, expected = reference(name)
    split = module.clone()
    split_parameters(split, parse_splits(everything_along(module, turn)))
    split.verify()
    assert sum(part is not None for part in parts_of(split)) > 2
    assert_same_bits(run_split(split, arguments), expected)


@dataclass(frozen=True)
class Program:
    """A random training step, and how it is split."""

    text: str
    shapes: tuple[tuple[int, ...], ...]
    splits: str


def type_of(shape: tuple[int, ...]) -> str:
    return f"tensor<{'x'.join(map(str, (*shape, 'f32')))}>"


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Chains of contractions, element-wise and moving operations on parameters and an input."""
    batch, width = draw(st.integers(1, 3)), draw(st.integers(2, 5))
    shapes: list[tuple[int, ...]] = [(batch, width)]
    lines: list[str] = []
    value, shape = "%a0", (batch, width)
    kept: list[tuple[str, tuple[int, ...]]] = [(value, shape)]

    def dot(name: str, lhs: str, rhs: str, over: str, *types: tuple[int, ...]) -> None:
        left, right, result = map(type_of, types)
        lines.append(
            f"{name} = stablehlo.dot_general {lhs}, {rhs}, contracting_dims = {over} : "
            f"({left}, {right}) -> {result}"
        )

    for layer in range(draw(st.integers(1, 3))):
        out = draw(st.integers(2, 5))
        transposed = draw(st.booleans())
        weight = (out, shape[1]) if transposed else (shape[1], out)
        index = len(shapes)
        shapes.append(weight)
        w = f"%a{index}"
        if draw(st.booleans()):
            # A copy of the parameter, turned around or squared, is what is read.
            w = f"%r{layer}"
            lines.append(f"{w} = stablehlo.reverse %a{index}, dims = [0, 1] : {type_of(weight)}")
        if draw(st.booleans()):
            lines.append(f"%q{layer} = stablehlo.multiply {w}, %a{index} : {type_of(weight)}")
            w = f"%q{layer}"
        over = "[1] x [1]" if transposed else "[1] x [0]"
        dot(f"%d{layer}", value, w, over, shape, weight, (batch, out))
        value, shape = f"%d{layer}", (batch, out)
        if draw(st.booleans()):
            lines.append(f"%t{layer} = stablehlo.tanh {value} : {type_of(shape)}")
            value = f"%t{layer}"
        if draw(st.booleans()):
            lines.append(f"%p{layer} = stablehlo.add {value}, %d{layer} : {type_of(shape)}")
            value = f"%p{layer}"
        kept.append((value, shape))
    results: list[tuple[str, tuple[int, ...]]] = [kept[-1]]
    for layer, index in enumerate(range(1, len(shapes))):
        (before, low), (after, high) = kept[layer], kept[layer + 1]
        weight = shapes[index]
        first, second = (after, before) if weight == (high[1], low[1]) else (before, after)
        left, right = (high, low) if weight == (high[1], low[1]) else (low, high)
        dot(f"%g{index}", first, second, "[0] x [0]", left, right, weight)
        gradient = f"%g{index}"
        if draw(st.booleans()):
            lines.append(f"%s{index} = stablehlo.multiply %g{index}, %a{index} : {type_of(weight)}")
            gradient = f"%s{index}"
        lines.append(f"%n{index} = stablehlo.subtract %a{index}, {gradient} : {type_of(weight)}")
        results.append((f"%n{index}", weight))
        if draw(st.booleans()):
            # The gradient is a result, too: then it is computed whole.
            results.append((gradient, weight))
    where = {name: i for i, (name, _) in enumerate(results)}
    arguments = ["%a0: " + type_of(shapes[0])] + [
        f"%a{i}: {type_of(shapes[i])} {{tf.aliasing_output = {where[f'%n{i}']} : i32}}"
        for i in range(1, len(shapes))
    ]
    types = ", ".join(type_of(each) for _, each in results)
    body = "\n  ".join(lines)
    text = (
        f"func.func public @main({', '.join(arguments)}) -> ({types}) {{\n  {body}\n"
        f"  return {', '.join(name for name, _ in results)} : {types}\n}}\n"
    )
    splits: list[str] = []
    for i in range(1, len(shapes)):
        axis = draw(st.integers(0, 1))
        parts = draw(st.integers(1 if splits else 2, shapes[i][axis]))
        if parts > 1:
            splits.append(f"{i}@{axis}:{parts}")
    return Program(text, tuple(shapes), ",".join(splits))


@pytest.mark.slow
@settings(max_examples=20 if ALL else 8, deadline=None)
@given(programs())
def test_random_steps_keep_their_bits(program: Program) -> None:
    """On StableHLO, and as the kernels of the graph."""
    module = simplified(parse_module(program.text, "random.mlir"))
    random = np.random.default_rng(len(program.text))
    arguments = [random.normal(size=s).astype(np.float32) for s in program.shapes]
    expected = run_func(module, arguments)
    split = module.clone()
    split_parameters(split, parse_splits(program.splits))
    split.verify()
    assert_same_bits(run_split(split, arguments), expected)
    copy = split.clone()
    run_passes(make_context(), copy, front_passes(split, "host")[1:], lambda *_: None)
    graph = graphs(copy)[0]
    given = in_parts(split, arguments)
    got = run_graph(graph, given).results
    assert [a.tobytes() for a in got] == [a.tobytes() for a in run_func(split, given)]


@pytest.mark.slow
@pytest.mark.parametrize("splits", ["0@0:3,1@1:2", *more("2@1:5", "1@0:16")])
@pytest.mark.parametrize(
    "text",
    [
        optimiser_steps.momentum(),
        optimiser_steps.momentum().replace("f32", "bf16"),
        optimiser_steps.adam(),
        optimiser_steps.adam(clip=True),
    ],
    ids=["momentum", "bf16", "adam", "clipped"],
)
def test_optimisers_keep_their_bits(text: str, splits: str) -> None:
    """Weights are split with their state, and updated with it in one kernel for each part."""
    module = simplified(parse_module(text, "step.mlir"))
    arguments = [
        np.random.default_rng(i).uniform(0.1, 1.0, shape_of(a)).astype(dtype_of(element_type_of(a)))
        for i, a in enumerate(main_of(module).body.block.args)
    ]
    expected = run_func(module, arguments)
    split = module.clone()
    split_parameters(split, parse_splits(splits))
    split.verify()
    assert_same_bits(run_split(split, arguments), expected)
    given = in_parts(split, arguments)
    found = run_func(split, given)
    run_passes(make_context(), split, front_passes(split, "host")[1:], lambda *_: None)
    (graph,) = graphs(split)
    assert [a.tobytes() for a in run_graph(graph, given).results] == [a.tobytes() for a in found]
    updated = [k for k in (graph.updates(i) for i in graph.shards(0)) if k is not None]
    weights = [graph.return_op.arguments[k] for k in updated]
    assert len({value.owner for value in weights}) == len(weights)


# All the way: auto, C, the image

DEVICE = "nrf52840"
LITTLE = {"gesture_mlp": 4_500, "kws_conv": 5_500, "lenet5": 50_000}
"""Bytes of RAM in all, less than some kernel needs without parts."""

FORCED = {"dscnn": "2:2,5:3,8:2,11@3:4", "resnet8": "24:3,14@2:2,25@3:3,1:4"}
"""Splits of models that need most of their RAM for activations."""


def options(ram_bytes: int | None, **changes) -> Options:
    settings = {"static_bytes": 32, "stack_bytes": 1024, "time_limit_s": 20.0, "gap": 0.5}
    settings |= {"stream": "never"}
    return Options(load_device(DEVICE), DEVICE, ram_bytes=ram_bytes, **(settings | changes))


def run_image(
    program: Path, layout: ImageLayout, arguments: list[np.ndarray], steps: int
) -> dict[int, np.ndarray]:
    """Runs steps of a program with all parameters on storage; their new values by argument."""
    stored = {parameter.argument for parameter in layout.parameters}
    data = program.parent / "data"
    data.mkdir(exist_ok=True)
    for i, array in enumerate(arguments):
        if i not in stored:
            (data / f"arg{i}.bin").write_bytes(np.ascontiguousarray(array).tobytes())
    image = program.parent / "image.bin"
    image.write_bytes(pack(layout, [arguments[p.argument] for p in layout.parameters]))
    done = subprocess.run([program, data, str(steps), image], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    sequence, arrays = unpack(layout, image.read_bytes())
    assert sequence == steps
    return {p.argument: a for p, a in zip(layout.parameters, arrays, strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gesture_mlp", *more("kws_conv", "lenet5", *FORCED)])
def test_programs_keep_their_bits(name: str, tmp_path: Path) -> None:
    """C under sanitizers, two steps, with parameters that were split because of the RAM, or because
    that was asked for."""
    module, arguments, expected = reference(name)
    asked = options(LITTLE.get(name))
    if name in FORCED:
        asked = replace(asked, split=parse_splits(FORCED[name]))
    else:
        with pytest.raises(PoetcError, match="parameters were not split"):
            compile_module(make_context(), module.clone(), replace(asked, split="off"))
    compiled = compile_module(make_context(), module.clone(), asked)
    layout = layout_of(compiled.graph)
    assert layout is not None
    assert any(len(parameter.tensors) > 1 for parameter in layout.parameters)
    program = build(compiled.module, tmp_path, *SANITIZE)
    tensors = read_tensors(tmp_path)
    assert tensors.ram_bytes <= LITTLE.get(name, 2**31)
    assert len(tensors.arguments) == len(arguments) and len(tensors.results) == len(expected)
    updates = updates_of(main_of(module))
    again = [expected[updates[i]] if i in updates else a for i, a in enumerate(arguments)]
    final = run_func(module, again)
    got = run_image(program, layout, arguments, 2)
    assert got.keys() == updates.keys()
    for i, result in updates.items():
        assert got[i].tobytes() == final[result].tobytes(), i
    for k, array in enumerate(final):
        if k not in updates.values():
            assert (tmp_path / "data" / f"out{k}.bin").read_bytes() == array.tobytes()


# The search, and the command line

DENSE = """
func.func public @main(%x: tensor<1x64xf32>,
                       %w: tensor<64x8xf32> {tf.aliasing_output = 1 : i32},
                       %v: tensor<64xf32> {tf.aliasing_output = 2 : i32})
    -> (tensor<1x8xf32>, tensor<64x8xf32> {jax.result_info = "result['w']"}, tensor<64xf32>) {
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<1x64xf32>, tensor<64x8xf32>) -> tensor<1x8xf32>
  %g = stablehlo.dot_general %x, %y, contracting_dims = [0] x [0]
    : (tensor<1x64xf32>, tensor<1x8xf32>) -> tensor<64x8xf32>
  %n = stablehlo.subtract %w, %g : tensor<64x8xf32>
  %r = stablehlo.reshape %x : (tensor<1x64xf32>) -> tensor<64xf32>
  %u = stablehlo.add %v, %r : tensor<64xf32>
  return %y, %n, %u : tensor<1x8xf32>, tensor<64x8xf32>, tensor<64xf32>
}
"""
"""2,048 bytes of `w`, 256 each of `v` and `x`, 32 of the result."""


@pytest.mark.parametrize(
    ("ram", "parts"), [(2_400, 1), (2_330, 2), (1_330, 2), (1_300, 3), (600, 8)]
)
def test_fewest_parts_that_fit(ram: int, parts: int) -> None:
    module = parse_module(DENSE, "dense.mlir")
    asked = options(ram, static_bytes=0, stack_bytes=0)
    graph = compile_module(make_context(), module, asked).graph
    assert len(graph.shards(1)) == parts
    assert [graph.shard(2), len(graph.arguments)] == [None, 2 + parts]


@pytest.fixture
def dense(tmp_path: Path) -> str:
    file = tmp_path / "dense.mlir"
    file.write_text(DENSE)
    return str(file)


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = main(words)
    return status, capsys.readouterr().err


@pytest.mark.slow
def test_what_is_told_where_nothing_fits(
    dense: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    least = "--ram=2300", "--stack=4", "--static=4", "--stream=never"
    status, text = refused([dense, *least, "--split=off"], capsys)
    assert status == 3 and "parameters were not split (--split=off)" in text
    status, text = refused([dense, *least, "--params=ram"], capsys)
    assert status == 3 and "parameters were not split (--params=ram)" in text
    graph = tmp_path / "graph.mlir"
    assert main([dense, "--passes=stablehlo-to-poet", "-o", str(graph)]) == 0
    status, text = refused([str(graph), *least], capsys)
    assert status == 3 and "parameters were not split (the input is poet IR)" in text
    monkeypatch.setattr("poetc.planning.split_candidates.MOST_SHARDS", 4)
    status, text = refused([dense, "--ram=600", *least[1:]], capsys)
    # What is proven of these parts says nothing of others.
    assert status == 4 and "at least 808 B are needed" in text and "with --split=1:4" in text
    assert "of others nothing is proven; least RAM known to work: 808 B" in text
    assert "proven: 264 B" in text and "--params" not in text
    Path(dense).write_text(
        "func.func public @main(%x: tensor<64xf32>, %w: tensor<4xf32> {tf.aliasing_output = 1 : "
        "i32}) -> (tensor<64xf32>, tensor<4xf32>) {\n"
        "  %y = stablehlo.exponential %x : tensor<64xf32>\n"
        "  %n = stablehlo.negate %w : tensor<4xf32>\n"
        "  return %y, %n : tensor<64xf32>, tensor<4xf32>\n}\n"
    )
    status, text = refused([dense, "--ram=200", "--stack=4", "--static=4"], capsys)
    assert status == 3 and "splitting parameters does not help" in text
    # The vector at the start or its exponential at the end; and what --stack and --static say.
    assert "what is in RAM before and after the step takes 264 B" in text
    assert "least RAM known to work: 264 B; proven: 264 B" in text


@pytest.mark.slow
def test_input_that_is_in_parts_already(
    dense: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It keeps its parts, and the search for others leaves them alone. They prove nothing."""
    split = str(tmp_path / "split.mlir")
    assert (
        main([dense, '--passes=stablehlo-simplify,stablehlo-split{params="1:2"}', "-o", split]) == 0
    )
    small = "--ram=600", "--stack=4", "--static=4", "--stream=never"
    status, text = refused([split, *small], capsys)
    assert status == 4 and "at least 1,320 B" in text
    assert "no parameters in shards that may do were found; of others nothing is proven" in text
    for words, message in [
        (["--split=1:2"], "argument 1 is split already"),
        (["--params=ram"], "parameters in shards are on storage"),
        (
            ["--ram-scope=activations", "--ram=8KB"],
            "parameters in shards are on storage; they cannot go with",
        ),
    ]:
        status, text = refused([split, *words], capsys)
        assert status == 2 and message in text
    output = tmp_path / "out"
    assert main([split, "--split=2:3", "--emit=c", "-q", "-o", str(output)]) == 0
    described = json.loads((output / "model_image.json").read_text())
    places = sorted((t["argument"], t["start"]) for t in described["tensors"])
    assert [argument for argument, _ in places] == [1, 1, 2, 2, 2]


def too_slow(fastest_ns: int) -> UnscheduledError:
    """The error that a schedule misses the deadline, as the scheduler raises it."""
    return InfeasibleError(
        Diagnosis(Reason.DEADLINE, proven=True, fastest_ns=fastest_ns, time_bound_ns=fastest_ns - 1)
    )


IN_VAIN = TimeLimitError(Diagnosis(Reason.SEARCH, searched_s=7000.0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("errors", "told"),
    [
        # A proof for some splits is none for others.
        (
            [too_slow(90), IN_VAIN, too_slow(80), IN_VAIN],
            ("the search ended after", "that is with"),
        ),
        ([too_slow(90), too_slow(70), too_slow(80)], ("takes 70 ns", "that is with --split=1:2, ")),
        ([too_slow(60), too_slow(70)], ("takes 60 ns", "parameters in shards do no better")),
    ],
)
def test_what_is_told_of_a_deadline(
    errors: list[UnscheduledError],
    told: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    left = iter(errors)

    def schedule(*_: object) -> None:
        raise next(left, errors[-1])

    monkeypatch.setattr(attempts, "plan_graph", schedule)
    words = ["--params=storage", "--stream=never", "--ram=9600", "--deadline=1s"]
    monkeypatch.setattr("poetc.planning.split_candidates.MOST_SHARDS", 4)
    status, text = refused([GESTURE, *words], capsys)
    assert status == 4
    assert all(words in text for words in (*told, "of others nothing is proven"))
    # How long is said of all attempts together.
    assert "7000" not in text


@pytest.mark.slow
def test_no_parts_make_computing_faster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--params=storage", "--stream=never", "--ram=9600", "--deadline=5ms"]
    status, text = refused([GESTURE, *words], capsys)
    assert status == 3
    assert "meets the deadline of 5.000 ms" in text
    # All computing is between the first page-in, of 0.220 ms or more, and the last page-out, of
    # 0.228 ms or more, and a schedule is known.
    least = re.search(r"with parameters in shards it takes at least (\d\.\d+) ms", text)
    known = re.search(r"the fastest schedule known takes (\d+\.\d+) ms", text)
    assert least is not None and known is not None
    assert 5 < float(least[1]) <= float(known[1])
    # Shards that are too late for it take less RAM.
    frugal = re.search(
        r"without a deadline, least RAM known to work: ([\d,]+) B.*?--split=(\S+);", text
    )
    assert frugal is not None
    words = [f"--ram={frugal[1].replace(',', '')}", f"--split={frugal[2]}", "--stream=never"]
    assert int(words[0][6:]) < 6880
    assert main([GESTURE, *words, "-o", str(tmp_path / "out.mlir")]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--split=w"], "'w' is no split: NAME:SHARDS or NAME@AXIS:SHARDS"),
        (["--split="], "--split is given without a value"),
        (["--split=1:1"], "'1:1' is no split"),
        (["--split=1:2", "--params=ram"], "parameters in shards are on storage, not in RAM"),
        (["--split=1:2", "--device=host-nothing"], "host-nothing"),
        (["--split=0:2"], "argument 0 is no parameter that the step updates"),
        (["--split=1:65"], "no dimension of [64, 8] has that many"),
        (["--split=1:2", "--passes=stablehlo-simplify"], "--split cannot go with --passes"),
    ],
)
def test_splits_that_cannot_be(
    words: list[str], message: str, dense: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, text = refused([dense, *words], capsys)
    assert status == 2 and message in text
    assert "Traceback" not in text


def test_one_parameter_to_the_user(dense: str, tmp_path: Path) -> None:
    """By name, on the command line: arguments, header, image, pack and unpack."""
    output = tmp_path / "out"
    assert main([dense, "--split=['w']@1:3", "--emit=c", "-o", str(output), "--json"]) == 0
    header = (output / "model.h").read_text()
    assert "Argument 1: ['w'], float 64x8, parameter, on storage, in 3 shards" in header
    assert "new value of argument 1, on storage, in 3 shards" in header
    assert "MODEL_ARG1_SHARD2_PAGE_OFFSET" in header and "MODEL_ARG1_PAGE_OFFSET" not in header
    assert re.search(r"MODEL_ARG1_BYTES +2048\b", header)
    assert re.search(r"MODEL_ARGUMENTS +3\b", header)
    described = json.loads((output / "model_image.json").read_text())
    places = [(t["argument"], t.get("axis"), t.get("start")) for t in described["tensors"]]
    assert sorted(places, key=str) == [(1, 1, 0), (1, 1, 2), (1, 1, 5), (2, None, None)]
    random = np.random.default_rng(0)
    w, v = (random.normal(size=s).astype(np.float32) for s in ((64, 8), (64,)))
    np.savez(tmp_path / "given.npz", arg1=w, arg2=v)
    image, found = str(tmp_path / "image.bin"), tmp_path / "found.npz"
    assert main(["pack", "-q", str(output), str(tmp_path / "given.npz"), "-o", image]) == 0
    assert main(["unpack", "-q", str(output), image, "-o", str(found)]) == 0
    with np.load(found) as arrays:
        assert sorted(arrays) == ["arg1", "arg2"]
        assert_same_bits([arrays["arg1"], arrays["arg2"]], [w, v])


def test_the_summary_tells_what_is_in_parts(dense: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([dense, "--ram=1330", "--stack=4", "--static=4", "-o", "/dev/null"]) == 0
    assert re.search(r"in shards +\['w'\]: 2\n", capsys.readouterr().err)


def test_parts_in_ram_are_refused(dense: str, tmp_path: Path) -> None:
    """Passes can make such a program; C is not generated for it."""
    module = parse_module(DENSE, "dense.mlir")
    run_passes(
        make_context(),
        module,
        front_passes(module, DEVICE, splits=parse_splits("1:2")),
        lambda *_: None,
    )
    (graph,) = graphs(module)
    with pytest.raises(InputError, match="parameters in shards are on storage"):
        schedule_and_plan(graph, ScheduleOptions())
    parts = {i: graph.arg_attr(i, SHARD) for i in range(len(graph.arguments))}
    graph.set_arg_attrs(SHARD, dict.fromkeys(parts))
    schedule_and_plan(graph, ScheduleOptions())
    graph.set_arg_attrs(SHARD, parts)
    with pytest.raises(
        InputError, match=r"parameter \['w'\] is in shards, so it must be on storage"
    ):
        generate(module)
