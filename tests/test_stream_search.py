"""Kernels in tiles, which the search finds: the same bits in whatever RAM, and never more energy
where there is more of it."""

import itertools
import math
import re
import time
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import more
from hypothesis import given, settings
from hypothesis import strategies as st
from random_steps import Program, programs
from xdsl.dialects.func import FuncOp

from poetc.budget import Budget
from poetc.cli import main
from poetc.compilation import compile_step
from poetc.costmodel.cost import kernel_cost
from poetc.costmodel.device import load_device
from poetc.costmodel.slices import SliceCosts, slice_costs
from poetc.errors import UnscheduledError
from poetc.interpreter import run_graph
from poetc.ir.graph import graphs
from poetc.ir.poet import CostAttr, StreamOp, TileOp
from poetc.ir.text import make_context, parse_module
from poetc.kernels.access import tiles_of
from poetc.kernels.analysis import work
from poetc.kernels.arrange.tile_functions import lowered_kernels
from poetc.kernels.distribute import Nest
from poetc.kernels.slices import NotTileable
from poetc.kernels.tiles import tile
from poetc.options import Given
from poetc.passes.poet_stream import PoetStreamPass
from poetc.passes.poet_verify import verify_graph
from poetc.pipeline import front_passes, run_passes
from poetc.planning.memory import plan_graph_memory
from poetc.planning.problem import ScheduleOptions, problem_view
from poetc.planning.report import ScheduleReport
from poetc.planning.tile_code import TileCode
from poetc.planning.tile_search import (
    KernelTiles,
    TiledKernel,
    slice_places,
    tile_loop,
    written_over,
)
from poetc.request import options_of
from poetc.schedule.model.clock import PACE, Clock
from poetc.schedule.model.problem import Compute
from poetc.variants.nests import nest_model
from poetc.variants.tiling import NestSearch

GESTURE = str(Path(__file__).parent / "models" / "gesture_mlp.mlir")


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(programs(), st.floats(0.3, 1.0))
def test_random_steps_keep_their_bits(program: Program, share: float) -> None:
    module = parse_module(program.text, "random.mlir")
    device = load_device("nrf52840")
    passes = front_passes(module, "nrf52840", device, tiles=True)
    run_passes(make_context(), module, passes, lambda *_: None)
    random = np.random.default_rng(len(program.text))
    arguments = [random.normal(size=s).astype(np.float32) for s in program.shapes]
    expected = run_graph(module.clone(), arguments)
    ram_bytes = int(expected.peak_bytes * share) // 4 * 4
    try:
        PoetStreamPass(ram_bytes, block=64).apply(make_context(), module)
    except UnscheduledError:
        return
    (graph,) = graphs(module)
    plan_graph_memory(graph)
    module.verify()
    verify_graph(graph)
    found = run_graph(graph, arguments, ram_bytes, arena=True)
    assert [a.tobytes() for a in found.results] == [a.tobytes() for a in expected.results]


@pytest.mark.slow
def test_more_ram_never_takes_more_energy() -> None:
    """From the least in which kernels run in tiles to where they are whole again."""
    text, energies, streams = Path(GESTURE).read_text(), [], []
    for ram_bytes in (2400, 6880, 9400):
        options = options_of(Given.of({"ram": ram_bytes}), lambda _: None)
        compiled = compile_step(parse_module(text, GESTURE), GESTURE, options).compiled
        assert compiled.report is not None and compiled.ram_bytes <= ram_bytes
        energies.append(compiled.report.use.energy_nj)
        streams.append(sum(isinstance(op, StreamOp) for op in compiled.graph.block.ops))
    assert energies == sorted(energies, reverse=True) and energies[-1] < energies[0] / 10
    assert streams[0] > streams[-1] == 0


@pytest.mark.slow
def test_tiles_where_whole_kernels_take_more_energy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole kernels fit, but leave too little RAM for what else it pays to keep there."""
    path = GESTURE.replace("gesture_mlp", "lenet5")
    found: dict[str, tuple[int, int]] = {}
    for stream in ("never", "auto"):
        given = {"ram": "220KB", "stream": stream}
        report = by_work(monkeypatch, 30, path, **given)
        assert report is not None
        streams = sum(isinstance(s, Compute) and s.variant is not None for s in report.steps)
        found[stream] = report.use.energy_nj, streams
        bounds = [tried.bound_nj for tried in report.tried if tried.bound_nj is not None]
        assert report.bound_nj == min(bounds)
    assert found["never"][1] == 0 < found["auto"][1]
    assert found["auto"][0] < 0.99 * found["never"][0]


GRADIENT = """
func.func public @main(%w: tensor<2x2x12x6xf32>, %g: tensor<1x2x2x6xf32>) -> tensor<1x4x4x12xf32> {
  %0 = stablehlo.convolution(%g, %w) dim_numbers = [b, 0, 1, f]x[0, 1, o, i]->[b, 0, 1, f],
    window = {pad = [[1, 1], [1, 1]], lhs_dilate = [2, 2]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x2x2x6xf32>, tensor<2x2x12x6xf32>) -> tensor<1x4x4x12xf32>
  return %0 : tensor<1x4x4x12xf32>
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("limit_bytes", [200, 400, 700])
def test_the_fastest_tiles_of_a_result_whose_rows_are_numbers_of_digits(limit_bytes: int) -> None:
    """Against all tiles of no or one iteration, or a half, that can be had, in the given order."""
    module = parse_module(GRADIENT, "gradient.mlir")
    device = load_device("nrf52840")
    passes = front_passes(module, "nrf52840", device, arrange=False)
    run_passes(make_context(), module, passes, lambda *_: None)
    (kernel,) = (op for op in module.ops if isinstance(op, FuncOp))
    every, costs = frozenset({0, 1, 2}), slice_costs(device)
    found = KernelTiles(kernel, costs).fastest(every, limit_bytes)
    model, nest = nest_model(kernel), Nest(kernel, (0, 1, 2))
    assert model is not None and found is not None
    loops = tuple(range(len(model.loops)))
    extents = [loop.extent for loop in model.loops]
    times: list[float] = []
    for tiles in itertools.product(*(sorted({1, n // 2 or 1, n}) for n in extents)):
        parted = [(at, n) for at, n in enumerate(tiles) if n < extents[at]]
        try:
            tiled = tile(kernel, "tile", parted, every)
        except NotTileable:
            continue
        loop = tile_loop((nest,), (tiled,), (tuple(parted),), written_over((nest,)))
        if slice_places(loop, 0)[1] <= limit_bytes:
            sizes = [tuple(sorted({n, extent})) for n, extent in zip(tiles, extents, strict=True)]
            times.append(NestSearch(model, costs, sizes, [loops]).weigh(tiles).transfer_ns)
    assert times and found.transfer_ns <= 1.1 * min(times)


ROWS = """
func.func public @main(%x: tensor<1x28x28x1xf32>, %w: tensor<5x5x1x6xf32>)
    -> tensor<1x28x28x6xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {pad = [[2, 2], [2, 2]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x28x28x1xf32>, tensor<5x5x1x6xf32>) -> tensor<1x28x28x6xf32>
  return %0 : tensor<1x28x28x6xf32>
}
"""


@pytest.mark.slow
def test_tiles_of_rows_take_no_more_energy_than_any_number_of_rows() -> None:
    """With their code as it is arranged: that of a tile that is cut off takes longer."""
    module, device = parse_module(ROWS, "rows.mlir"), load_device("nrf52840")
    passes = front_passes(module, "nrf52840", device, tiles=True)
    run_passes(make_context(), module, passes, lambda *_: None)
    (compute,) = graphs(module)[0].computes
    assert compute.kernel is not None and compute.cost is not None
    kernel, price = lowered_kernels(module.ops)[compute.kernel.string_value()]
    costs, every = slice_costs(device), frozenset({1})  # the image
    code = TileCode.of(kernel, compute.cost, device, price)
    tiles = KernelTiles(kernel, costs, code.rest_ns(kernel))
    nest, model = Nest(kernel, (0, 1, 2)), nest_model(kernel)
    assert model is not None
    extents = [loop.extent for loop in model.loops]
    ways: list[tuple[int, int]] = []
    for rows in (4, 7, 14, 16, 20):
        tiled = tile(kernel, "tile", [(0, rows)], every)
        loop = tile_loop((nest,), (tiled,), (((0, rows),),), written_over((nest,)))
        search = NestSearch(model, costs, [(rows,), *((n,) for n in extents[1:])])
        (weighed,) = search.front(resident=frozenset({0, 2}))
        loop = replace(loop, transfer_ns=weighed.transfer_ns)
        way = TiledKernel(kernel, tiles.distributed, (loop,), every, slice_places(loop, 0)[1])
        code.settle(way)
        ways.append((way.workspace_bytes, code.cost(way, costs).energy_nj))
    for limit_bytes, _ in ways:
        found = tiles.fastest(every, limit_bytes)
        assert found is not None
        code.settle(found)
        best_nj = min(nj for ram_bytes, nj in ways if ram_bytes <= limit_bytes)
        assert code.cost(found, costs).energy_nj <= 1.01 * best_nj


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--stream=never"], "--stream=never"),
        (["--emit=tvm"], "--emit=tvm has none; --emit=c has"),
        (["--paging=off"], "--paging=off"),
    ],
)
def test_why_kernels_do_not_run_in_tiles(
    words: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.so"
    assert main([GESTURE, "--ram=5KB", *words, "-o", str(out)]) == 3
    said = capsys.readouterr().err
    assert f"kernels were not run in tiles ({why})" in said
    # What is enough in tiles is said where the option is all that is in the way.
    enough = re.search(r"\), in which ([\d,]+) B", said)
    assert (enough is None) == ("--paging=off" in words)
    if enough is not None and "--emit=tvm" in words:
        ram = enough[1].replace(",", "")
        assert main([GESTURE, f"--ram={ram}", "--emit=report", "-o", str(out), "-q"]) == 0


ADDED = """
func.func public @main(%x: tensor<8x8xf32>, %w: tensor<8x8xf32>, %y: tensor<8x8xf32>)
    -> tensor<8x8xf32> {
  %0 = stablehlo.exponential %x : tensor<8x8xf32>
  %1 = stablehlo.dot_general %w, %y, contracting_dims = [1] x [0]
    : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = stablehlo.add %0, %1 : tensor<8x8xf32>
  return %2 : tensor<8x8xf32>
}
"""


def test_results_in_place_leave_room_for_tiles() -> None:
    """Two tensors of four and slices of a third are enough where the fourth is in place of one."""
    module = parse_module(ADDED, "added.mlir")
    device = load_device("nrf52840")
    passes = front_passes(module, "nrf52840", device, arrange=False)
    run_passes(make_context(), module, passes, lambda *_: None)
    budget = Budget(800 + 64, block_bytes=64)
    options = ScheduleOptions(budget=budget, device=device, params="storage")
    problem = problem_view(graphs(module)[0], options).problem
    (operation,) = (o for o in problem.operations if len(o.inputs) == 3)
    ((result, taken),) = operation.inplace
    others = set(operation.inputs) - {taken}
    assert all(problem.tensors[v].bytes == 256 for v in (*operation.inputs, result))
    alone = {frozenset({v}) for v in others}
    assert alone & {variant.streamed for variant in operation.variants}


@pytest.mark.slow
def test_what_is_chosen_has_its_cost_and_is_as_good_as_if_all_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a storage so fast that computing counts: tiles of which nothing was known yet cost what
    their functions do, and no others would have been better by more than the gap."""
    given = {"ram": "3KB", "device": "esp32s3", "block": "64"}
    options = options_of(Given.of(given), lambda _: None)
    device = options.device

    def energy_nj() -> int:
        text = Path(GESTURE).read_text()
        compiled = compile_step(parse_module(text, GESTURE), GESTURE, options).compiled
        functions = {op.sym_name.data: op for op in compiled.module.ops if isinstance(op, FuncOp)}
        more = 0
        for stream in (op for op in compiled.graph.block.ops if isinstance(op, StreamOp)):
            time_ns = 0
            for tile_op in (op for op in stream.walk() if isinstance(op, TileOp)):
                function = functions[tile_op.function.string_value()]
                calls = prod(-(-end // size) for end, size in tiles_of(function))
                done = work(function)
                iterations, loops = done.iterations + calls, done.loops + calls
                done = replace(done, iterations=iterations, loops=loops)
                time_ns += kernel_cost(done, device).time_ns
            assert stream.cost is not None
            computing_ns = stream.cost.time_ns - stream.cost.read_ns - stream.cost.write_ns
            assert computing_ns >= time_ns
            more += computing_ns == time_ns
        assert more
        assert compiled.report is not None and compiled.report.status == "optimal"
        return compiled.report.use.energy_nj

    chosen_nj = energy_nj()
    cost = TileCode.cost

    def settled(code: TileCode, way: TiledKernel, costs: SliceCosts) -> CostAttr:
        code.settle(way)
        return cost(code, way, costs)

    monkeypatch.setattr(TileCode, "cost", settled)
    assert chosen_nj <= energy_nj() * 1.0101


def by_work(
    monkeypatch: pytest.MonkeyPatch, seconds: float, path: str, **given: str
) -> ScheduleReport | None:
    """What a search finds in the work of a time limit, which it keeps to."""
    clocks: list[Clock] = []

    def new_clock(asked: ScheduleOptions) -> Clock:
        clocks.append(Clock(asked.time_limit_s, PACE / 100))
        return clocks[-1]

    monkeypatch.setattr(ScheduleOptions, "new_clock", new_clock)
    given |= {"stop": "work", "time_limit": str(100 * seconds)}
    options = options_of(Given.of({"device": "nrf52840", **given}), lambda _: None)
    module = parse_module(Path(path).read_text(), path)
    try:
        return compile_step(module, path, options).compiled.report
    except UnscheduledError:
        return None
    finally:
        assert clocks[0].used_s / 100 <= seconds + 1


def by_work_nj(monkeypatch: pytest.MonkeyPatch, seconds: float, **given: str) -> float:
    """The energy of that for a small step."""
    report = by_work(monkeypatch, seconds, GESTURE, **given)
    return math.inf if report is None else report.use.energy_nj


@pytest.mark.slow
def test_tiles_are_work_that_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search ends when its work is done, with the same result on a slow machine."""
    given = {"ram": "3KB"}
    found_nj = by_work_nj(monkeypatch, 1, **given)
    fastest = KernelTiles.fastest

    def slowly(*words: Any) -> TiledKernel | None:
        time.sleep(0.01)
        return fastest(*words)

    monkeypatch.setattr(KernelTiles, "fastest", slowly)
    assert found_nj == by_work_nj(monkeypatch, 1, **given)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [2, *more(5)])
def test_what_is_tried_beside_costs_nothing(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same time kernels whole and in tiles together find what whole ones find alone."""
    both_nj = by_work_nj(monkeypatch, seconds, ram="8KB")
    whole_nj = by_work_nj(monkeypatch, seconds, ram="8KB", stream="never")
    assert both_nj <= 1.01 * whole_nj < math.inf


def test_kernels_without_elements_do_not_run_in_tiles() -> None:
    text = (
        "func.func @main(%w: tensor<0x4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<0x4xf32> {"
    )
    text += " %0 = stablehlo.add %w, %w : tensor<0x4xf32> return %0 : tensor<0x4xf32> }"
    module = parse_module(text, "empty.mlir")
    passes = front_passes(module, "nrf52840", load_device("nrf52840"), tiles=True)
    run_passes(make_context(), module, passes, lambda *_: None)
    PoetStreamPass(2048).apply(make_context(), module)
    (graph,) = graphs(module)
    plan_graph_memory(graph)
    verify_graph(graph)
    assert not any(isinstance(op, StreamOp) for op in graph.block.ops)


@pytest.mark.slow
@pytest.mark.parametrize(("dims", "code"), [(8, 0), (9, 3)])
def test_tensors_of_more_dimensions_than_slices_have_are_whole(
    tmp_path: Path, dims: int, code: int
) -> None:
    """C moves slices of eight dimensions: tiles that it has no code for are not chosen."""
    shape = "x".join(["2"] * (dims - 1) + ["16" if dims == 8 else "8"])
    source, out = tmp_path / "m.mlir", tmp_path / "out"
    source.write_text(
        f"func.func public @main(%w: tensor<{shape}xf32> {{tf.aliasing_output = 0 : i32}})"
        f" -> tensor<{shape}xf32> {{\n"
        f"  %0 = stablehlo.tanh %w : tensor<{shape}xf32>\n"
        f"  return %0 : tensor<{shape}xf32>\n}}\n"
    )
    words = [str(source), "--ram=2500", "--emit=c", "-q", "-o", str(out), "--time-limit=5"]
    assert main(words) == code
    assert out.exists() == (code == 0)
