"""The least RAM of steps in tiles: what is proven necessary against all tilings of small steps, and
what is said to be enough by compiling for it."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outcomes import must_reach, reached
from random_steps import Program, programs
from test_alternatives import ADAM
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from poetc.budget import Budget
from poetc.cli import main
from poetc.compilation import compile_step
from poetc.costmodel.device import load_device
from poetc.costmodel.slices import slice_costs
from poetc.diagnosis import Diagnosis, Reason
from poetc.errors import InfeasibleError, TimeLimitError
from poetc.ir.graph import GraphView, graphs
from poetc.ir.poet import ComputeOp, GraphOp
from poetc.ir.text import make_context, parse_module
from poetc.kernels.analysis import buffers
from poetc.kernels.distribute import Nest, distribute
from poetc.kernels.positions import with_positions
from poetc.kernels.slices import NotTileable
from poetc.kernels.tiles import nest_loops, tile
from poetc.options import Given
from poetc.pipeline import front_passes, run_passes
from poetc.planning import problem
from poetc.planning.attempts import Attempts
from poetc.planning.plan import plan_graph
from poetc.planning.problem import ScheduleOptions, problem_view
from poetc.planning.report import ScheduleReport
from poetc.planning.tile_attempts import TileAttempts
from poetc.planning.tile_search import (
    KernelTiles,
    outside,
    padded_bytes,
    slice_places,
    tile_loop,
    written_over,
)
from poetc.planning.tiles import Step, least_ram_in_tiles
from poetc.request import options_of
from poetc.schedule.exact.bounds import ram_needed_in_any_order, time_needed
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Operation, Place, Problem, Variant
from poetc.schedule.model.rebuild import share
from poetc.variants.nests import nest_model
from poetc.variants.tiling import NestSearch

DEVICE = load_device("nrf52840")
BLOCK = 64
GESTURE = str(Path(__file__).parent / "models" / "gesture_mlp.mlir")


def lowered(text: str) -> GraphOp:
    module = parse_module(text, "step.mlir")
    passes = front_passes(module, "nrf52840", DEVICE, arrange=False)
    run_passes(make_context(), module, passes, lambda *_: None)
    return graphs(module)[0]


def options(arena_bytes: int | None) -> ScheduleOptions:
    total_bytes = None if arena_bytes is None else arena_bytes + BLOCK
    budget = Budget(total_bytes, block_bytes=BLOCK)
    return ScheduleOptions(budget=budget, device=DEVICE, params="storage", time_limit_s=20.0)


def tilings(nest: Nest) -> Iterator[list[tuple[int, int]]]:
    """Loops in tiles of one iteration, of half of them, or whole, in the given order."""
    extents = nest_loops(nest.function).extents
    for sizes in itertools.product(*(sorted({1, n // 2 or 1, n}) for n in extents)):
        yield [(at, n) for at, n in enumerate(sizes) if n < extents[at]]


def nest_bytes(nest: Nest, streamed: frozenset[int]) -> int | None:
    """The least that slices and sums take, by trying all tilings; None where none can be had."""
    here = frozenset(n for n, buffer in enumerate(nest.buffers) if buffer in streamed)
    found: list[int] = []
    for tiles in tilings(nest):
        try:
            tiled = tile(nest.function, "tile", tiles, here)
        except NotTileable:
            continue
        loop = tile_loop((nest,), (tiled,), (tuple(tiles),), written_over((nest,)))
        found.append(slice_places(loop, 0)[1])
    return min(found, default=None)


def operation_bytes(view: GraphView, k: int) -> int:
    """The least RAM in which operation `k` runs alone: as it is, or with any of its tensors
    streamed in any tiles."""
    problem, compute = view.problem, view.computes[k]
    operation = problem.operations[k]
    inputs, outputs = set(operation.inputs), set(operation.outputs)
    size = [tensor.bytes for tensor in problem.tensors]
    shared = sum(size[o] for o, _ in share(problem, k, inputs, outputs))
    whole = sum(size[v] for v in inputs | outputs) - shared + operation.workspace_bytes
    assert isinstance(compute, ComputeOp) and compute.kernel is not None
    module, name = view.graph.parent_op(), compute.kernel.string_value()
    assert isinstance(module, ModuleOp)
    functions = (op for op in module.ops if isinstance(op, FuncOp))
    kernel = next(op for op in functions if op.sym_name.data == name)
    numbers = dict(zip(dict.fromkeys(compute.operands), operation.inputs, strict=True))
    buffers = [*(numbers[v] for v in compute.operands), *operation.outputs]
    least, mine = whole, sorted(inputs | outputs)
    for count in range(1, len(mine) + 1):
        for streamed in itertools.combinations(mine, count):
            if any(problem.tensors[v].replaces in streamed for v in outputs - set(streamed)):
                # A new value replaces the old one where that is.
                continue
            at = frozenset(n for n, v in enumerate(buffers) if v in streamed)
            plain = distribute(kernel)
            for nests in (plain, with_positions(plain, at, len(buffers))):
                parts = [nest_bytes(nest, at) for nest in nests.nests]
                if None in parts:
                    continue
                resident = sum(size[v] for v in mine if v not in streamed)
                between = sum(map(padded_bytes, outside(kernel, nests)))
                least = min(least, resident + between + max(p or 0 for p in parts))
    return least


@pytest.mark.slow
@must_reach("possible", "refused")
@settings(max_examples=2, deadline=None)
@given(programs())
def test_what_is_proven_holds_for_all_tilings(program: Program) -> None:
    """Against all tilings of all kernels: everything else is on storage while one runs."""
    graph = lowered(program.text)
    view = problem_view(graph, options(None))
    if max(map(len, (o.inputs for o in view.problem.operations))) > 5:
        return
    tensors = view.problem.tensors
    start_bytes = sum(t.bytes for t in tensors if t.start is Place.RAM)
    end_bytes = sum(t.bytes for t in tensors if t.end is Place.RAM)
    each = [operation_bytes(view, k) for k in range(len(view.computes))]
    possible = max(start_bytes, end_bytes, *each)
    assert view.any_tiles is not None
    bound, _ = ram_needed_in_any_order(Instance(view.any_tiles))
    assert bound <= possible
    if bound > 4:
        with pytest.raises(InfeasibleError):
            plan_graph(lowered(program.text), options(bound - 4))
        reached("refused")
    if all(tensor.pageable for tensor in tensors):
        # There is a schedule: it may not be found, but no proof may say that there is none.
        reached("possible")
        with contextlib.suppress(TimeLimitError):
            plan_graph(graph, options(possible))


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(programs())
def test_what_is_known_is_enough(program: Program) -> None:
    least = least_ram_in_tiles(lowered(program.text), options(None))
    assert least.known_bytes is not None and least.bound_bytes <= least.known_bytes
    plan_graph(lowered(program.text), options(least.known_bytes - BLOCK))


@pytest.mark.slow
def test_each_kernel_has_a_way_when_the_time_for_ways_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kernel that does not fit as it is would be left without one, and the step without a
    schedule, however much time there is for that."""
    monkeypatch.setattr(problem, "VARIANTS_SHARE", 0.0)
    asked = options(2048)
    found = problem_view(lowered(Path(GESTURE).read_text()), asked)
    assert found.left_out
    streamed = 0
    for k, operation in enumerate(found.problem.operations):
        own = {*operation.inputs, *operation.outputs}
        ways = [(frozenset[int](), operation.workspace_bytes)]
        ways += [(way.streamed, way.workspace_bytes) for way in operation.variants]
        streamed += len(ways) - 1
        size = [tensor.bytes for tensor in found.problem.tensors]
        saved = share(found.problem, k, set(operation.inputs), set(operation.outputs))
        shared = sum(size[o] for o, _ in saved)
        each = [sum(size[v] for v in own - apart) + bytes for apart, bytes in ways]
        assert min(each[0] - shared, *each[1:], math.inf) <= 2048
    assert streamed
    report = plan_graph(lowered(Path(GESTURE).read_text()), asked)
    assert report.use.peak_bytes <= 2048


@pytest.mark.slow
def test_tiles_that_were_not_weighed_are_not_ruled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    text = Path(GESTURE).read_text()
    bound_bytes = least_ram_in_tiles(lowered(text), options(None)).bound_bytes - BLOCK
    monkeypatch.setattr(KernelTiles, "fastest", lambda *_: None)
    with pytest.raises(TimeLimitError):
        plan_graph(lowered(text), options(bound_bytes))
    with pytest.raises(InfeasibleError):
        plan_graph(lowered(text), options(bound_bytes - 4))


ATTENTION = """
func.func public @main(%q: tensor<51x9xf32> {tf.aliasing_output = 0 : i32},
    %v: tensor<51x9xf32> {tf.aliasing_output = 1 : i32}) -> (tensor<51x9xf32>, tensor<51x9xf32>) {
  %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.dot_general %q, %v, contracting_dims = [1] x [1]
    : (tensor<51x9xf32>, tensor<51x9xf32>) -> tensor<51x51xf32>
  %m = stablehlo.reduce(%s init: %least) applies stablehlo.maximum across dimensions = [1]
    : (tensor<51x51xf32>, tensor<f32>) -> tensor<51xf32>
  %ms = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<51xf32>) -> tensor<51x51xf32>
  %d = stablehlo.subtract %s, %ms : tensor<51x51xf32>
  %e = stablehlo.exponential %d : tensor<51x51xf32>
  %t = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<51x51xf32>, tensor<f32>) -> tensor<51xf32>
  %ts = stablehlo.broadcast_in_dim %t, dims = [0] : (tensor<51xf32>) -> tensor<51x51xf32>
  %a = stablehlo.divide %e, %ts : tensor<51x51xf32>
  %o = stablehlo.dot_general %a, %v, contracting_dims = [1] x [0]
    : (tensor<51x51xf32>, tensor<51x9xf32>) -> tensor<51x9xf32>
  %n = stablehlo.subtract %q, %o : tensor<51x9xf32>
  %w = stablehlo.multiply %v, %v : tensor<51x9xf32>
  return %n, %w : tensor<51x9xf32>, tensor<51x9xf32>
}
"""
"""The weights of attention, 10,404 bytes, are in no RAM that is tried here."""


def test_the_least_tiles_are_among_those_that_are_weighed() -> None:
    """Those of the schedule that is said to be possible, or better ones."""
    graph = lowered(ATTENTION)
    smallest = problem_view(graph, options(None)).problem
    offered = problem_view(graph, options(2000)).problem
    for least, operation in zip(smallest.operations, offered.operations, strict=True):
        for variant in least.variants:
            assert any(
                other.streamed <= variant.streamed
                and needed_bytes(offered, operation, other)
                <= needed_bytes(smallest, least, variant)
                for other in operation.variants
            )


def needed_bytes(problem: Problem, operation: Operation, variant: Variant) -> int:
    resident = variant.resident({*operation.inputs, *operation.outputs})
    return variant.workspace_bytes + sum(problem.tensors[v].bytes for v in resident)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [[], ["--block=68"], ["--deadline=1.01x"]],
    ids=" ".join,
)
def test_what_messages_say_is_enough(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = tmp_path / "attention.mlir"
    step.write_text(ATTENTION)
    assert main([str(step), "--json", "--ram=1500", *words]) == 3
    found, _ = json.JSONDecoder().raw_decode(capsys.readouterr().err)
    known_bytes = found["diagnosis"]["least_ram"]["known_bytes"]
    # What is said leaves deadlines aside.
    words = [word for word in words if "deadline" not in word]
    output = str(tmp_path / "out.mlir")
    assert main([str(step), f"--ram={known_bytes}", *words, "-o", output]) == 0


def run(capsys: pytest.CaptureFixture[str], path: str, *words: str) -> tuple[int, Any]:
    code = main([path, "--stack=4", "--static=4", "--json", *words])
    found, _ = json.JSONDecoder().raw_decode(capsys.readouterr().err)
    return code, found.get("diagnosis", found)


@pytest.fixture
def adam(tmp_path: Path) -> str:
    """A step of which the largest tensors have 2 KB."""
    file = tmp_path / "adam.mlir"
    file.write_text(ADAM)
    return str(file)


@pytest.mark.slow
def test_messages_and_summaries_count_tiles(adam: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What a refusal says is enough is, and then it is said again."""
    code, found = run(capsys, adam, "--ram=300B")
    assert code == 3
    least = found["least_ram"]
    assert least["tiles"] and least["known_bytes"] == least["bound_bytes"]
    words = f"--ram={least['known_bytes']}B"
    code, never = run(capsys, adam, words, "--stream=never")
    assert code == 3
    assert f"in which {least['known_bytes']:,} B" in never["message"]
    code, found = run(capsys, adam, words)
    assert code == 0
    (told,) = found["ram"]["least"]
    assert told["tiles"] and told["known_bytes"] == least["known_bytes"]
    # It does not fit in larger blocks. What is proven of some is not said of all.
    code, found = run(capsys, adam, words, "--block=512")
    assert code == 3 and found["least_ram"]["bound_bytes"] > least["bound_bytes"]
    assert run(capsys, adam, f"--ram={least['bound_bytes'] - 4}B")[0] == 3


@pytest.mark.slow
def test_kernels_of_poet_ir_run_in_tiles_where_the_driver_arranges_them(
    adam: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is proven of loops that were arranged before, as fewer of these can run in tiles."""
    poet = str(tmp_path / "poet.mlir")
    assert main([adam, "--passes=stablehlo-simplify,stablehlo-to-poet", "-o", poet, "-q"]) == 0
    _, found = run(capsys, adam, "--ram=300B")
    words = f"--ram={found['least_ram']['known_bytes']}B"
    assert run(capsys, adam, words)[0] == run(capsys, poet, words)[0] == 0


@pytest.mark.slow
def test_sizes_of_blocks_that_there_was_no_time_for_prove_nothing(
    adam: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, found = run(capsys, adam, "--ram=300B")
    words = f"--ram={found['least_ram']['known_bytes']}B"
    in_blocks, over = TileAttempts._in_blocks, False

    def in_blocks_until_the_time_is_over(attempts: TileAttempts, step: Step, others: int) -> None:
        nonlocal over
        in_blocks(attempts, step, others)
        over = True

    monkeypatch.setattr(TileAttempts, "_in_blocks", in_blocks_until_the_time_is_over)
    monkeypatch.setattr(Attempts, "left_s", property(lambda _: 0.0 if over else 10.0))
    # Where the first size may not do, the one that does is tried before it.
    assert run(capsys, adam, words)[0] == 0
    over = False
    monkeypatch.setattr("poetc.planning.tile_attempts._is_tight", lambda *_: False)
    code, found = run(capsys, adam, words)
    assert code == 4 and "without a proof" in found["message"]
    assert "a longer --time-limit may help" in found["message"]
    assert found["least_ram"]["known_bytes"] == int(words[6:-1])
    # What is said to be included is what the RAM that is said to be enough has.
    assert ["a block of a page", 64] in found["reserved"]


def compiled(**given: str) -> ScheduleReport:
    options = options_of(Given.of({**given}), lambda _: None)
    step = parse_module(Path(GESTURE).read_text(), GESTURE)
    report = compile_step(step, GESTURE, options).compiled.report
    assert report is not None
    return report


@pytest.mark.slow
def test_blocks_of_both_sizes_are_tried() -> None:
    """Large ones leave too little RAM here, so that smaller ones take less energy."""
    large, small, either = (
        compiled(ram="2300", **block) for block in ({"block": "512"}, {"block": "64"}, {})
    )
    assert small.use.energy_nj < large.use.energy_nj / 2
    assert either.use.energy_nj == pytest.approx(small.use.energy_nj, rel=1e-6)
    (tiled,) = (tried for tried in either.tried if tried.tiles)
    assert tiled.energy_nj == either.use.energy_nj and either.bound_nj == tiled.bound_nj


@pytest.mark.slow
def test_blocks_without_a_proof_are_in_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said to be optimal is so for blocks of each size."""
    planned = Attempts.planned

    def planned_in_small_blocks(attempts: Attempts, step: Step) -> ScheduleReport | None:
        if step.asked.block_bytes == 512:
            raise TimeLimitError(Diagnosis(Reason.SEARCH))
        return planned(attempts, step)

    monkeypatch.setattr(Attempts, "planned", planned_in_small_blocks)
    found = compiled(ram="2300")
    computing_nj = sum(o.energy_nj for o in found.problem.operations)
    assert computing_nj <= found.bound_nj < found.use.energy_nj / 2
    assert found.status == "feasible"


def least_moved_ns(kernel: KernelTiles, tensor: frozenset[int]) -> float:
    """The least time in which a tensor is moved that is streamed alone, by trying all tilings."""
    count = len(kernel.kernel.body.block.args)
    plain, found = kernel.distributed, []
    for nests in (plain, with_positions(plain, tensor, count)):
        time_ns = 0.0
        for nest in nests.nests:
            here = frozenset(n for n, buffer in enumerate(nest.buffers) if buffer in tensor)
            model = nest_model(nest.function)
            if model is None or not here:
                continue
            others = frozenset(range(len(nest.buffers))) - here
            sizes = [sorted({1, loop.extent // 2 or 1, loop.extent}) for loop in model.loops]
            orders = [tuple(range(len(sizes)))]
            time_ns += min(
                tiled.transfer_ns
                for tiles in itertools.product(*sizes)
                for tiled in NestSearch(
                    model, kernel.costs, [(size,) for size in tiles], orders
                ).front(resident=others)
            )
        found.append(time_ns)
    return min(found)


@pytest.mark.slow
@must_reach("read", "written", "refused")
@settings(max_examples=3, deadline=None)
@given(programs(), st.floats(0.3, 0.8))
def test_the_time_that_is_proven_holds_for_all_tilings(program: Program, share: float) -> None:
    """Of each tensor that is moved, and of the schedules that are found."""
    graph = lowered(program.text)
    module = graph.parent_op()
    assert isinstance(module, ModuleOp)
    for function in (op for op in module.ops if isinstance(op, FuncOp)):
        kernel = KernelTiles(function, slice_costs(DEVICE))
        inputs = len(buffers(function, "inputs"))
        for buffer in sorted(kernel.streamable):
            alone = frozenset({buffer})
            bound_ns = kernel.least_moving_ns(alone, written=buffer >= inputs)
            assert bound_ns <= least_moved_ns(kernel, alone) + 1e-6
            if bound_ns:
                reached("written" if buffer >= inputs else "read")
    largest = max(tensor.bytes for tensor in problem_view(graph, options(None)).problem.tensors)
    least = least_ram_in_tiles(graph, options(None))
    asked = options(max(int(share * largest), (least.known_bytes or 0) - BLOCK))
    view = problem_view(graph, asked)
    assert view.any_tiles is not None
    bound_ns = time_needed(Instance(view.any_tiles))
    assert bound_ns <= plan_graph(graph, asked).use.makespan_ns
    with pytest.raises(InfeasibleError) as error:
        plan_graph(lowered(program.text), replace(asked, deadline_ns=bound_ns - 1))
    assert error.value.diagnosis.is_about_time
    reached("refused")


@pytest.mark.slow
def test_a_deadline_that_no_tiles_meet_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Computing alone takes less than half of it; the largest weight is moved three times."""
    code, found = run(capsys, GESTURE, "--ram=4KB", "--deadline=4ms")
    assert code == 3 and found["reason"] == "deadline"
    assert found["time_bound_ns"] > 4_000_000
    assert run(capsys, GESTURE, "--ram=4KB", "--deadline=13ms")[0] == 0


@pytest.mark.parametrize("words", [["--ram=5KB", "--block=65536"], ["--ram=75B", "--block=68"]])
def test_what_whole_kernels_need_is_said_of_these_alone(
    words: list[str], adam: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a block, of which there is one for tiles alone, is no part of it."""
    code, found = run(capsys, adam, *words)
    needed_bytes = found["needed_bytes"]
    assert code == 3
    assert f"with whole kernels at least {needed_bytes:,} B" in found["message"]
    # Unless the RAM that is said to be enough has one.
    has_block = any("block" in what for what, _ in found["reserved"])
    assert has_block == found["least_ram"]["tiles"]
    size = int(words[1].removeprefix("--block="))
    assert f"a block of a page, {size:,} B" in found["message"]
    # Neither does it count where kernels are whole.
    _, never = run(capsys, adam, *words, "--stream=never")
    assert never["needed_bytes"] == needed_bytes
