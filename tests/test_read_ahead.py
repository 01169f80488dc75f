"""Slices that are read while tiles run: the bits of the step that is not scheduled, whatever does
the transfers; what is damaged is found; and the time of it, against a simulation tile by tile."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from compiled import SANITIZE, build, run
from kernel_harness import same_bits
from power import OK, Fault, Machine, parameters
from test_stream_c import expected_after, streamed
from xdsl.dialects import affine
from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.dialects.func import FuncOp
from xdsl.utils.exceptions import VerifyException

from poetc.costmodel.cost import kernel_cost
from poetc.costmodel.device import load_device
from poetc.costmodel.slices import slice_costs
from poetc.errors import InputError
from poetc.image import pack
from poetc.interpreter import run_graph
from poetc.ir.graph import graphs
from poetc.ir.poet import SliceInOp, StreamOp, TileOp
from poetc.ir.text import module_text, parse_module
from poetc.kernels.analysis import work
from poetc.passes.poet_verify import verify_graph
from poetc.planning.read_ahead import read_graph_ahead

DEVICE = load_device("nrf52840")


def ahead(name: str, ram_bytes: int, block_bytes: int, more_bytes: int):
    """The model in little RAM, and the same reading ahead with some more, read back from text."""
    model, module = streamed(name, ram_bytes, block_bytes)
    before = module.clone()
    (graph,) = graphs(module)
    graph.attributes["ram"] = IntegerAttr(ram_bytes + more_bytes, i64)
    read_graph_ahead(graph, DEVICE, 4)
    module = parse_module(module_text(module))
    verify_graph(graphs(module)[0])
    return model, before, module


def read_ahead(stream: StreamOp) -> list[SliceInOp]:
    return [op for op in stream.tiles.walk() if isinstance(op, SliceInOp) and op.ahead is not None]


def streams(module) -> list[StreamOp]:
    return [op for op in graphs(module)[0].block.ops if isinstance(op, StreamOp)]


@pytest.fixture(scope="module")
def small():
    return ahead("gesture_mlp", 1900, 64, 2000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        SANITIZE,
        (*SANITIZE, "-DPOETC_STORE_THREAD", "-pthread"),
        ("-fsanitize=thread", "-DPOETC_STORE_THREAD", "-pthread"),
    ],
    ids=["synchronous", "threads", "races"],
)
def test_the_bits_stay(small, flags: tuple[str, ...], tmp_path: Path) -> None:
    model, _, module = small
    assert sum(len(read_ahead(stream)) for stream in streams(module)) >= 2
    found = run(build(module, tmp_path, *flags), model.arguments, model.expected, 3)
    for result, other in zip(found, expected_after(model.module, model.arguments, 3), strict=True):
        assert same_bits(result, other)


@pytest.mark.slow
def test_the_bits_of_convolutions_stay(tmp_path: Path) -> None:
    model, _, module = ahead("lenet5", 8192, 512, 4096)
    assert sum(len(read_ahead(stream)) for stream in streams(module)) >= 3
    flags = (*SANITIZE, "-DPOETC_STORE_THREAD", "-pthread")
    found = run(build(module, tmp_path, *flags), model.arguments, model.expected, 2)
    for result, other in zip(found, expected_after(model.module, model.arguments, 2), strict=True):
        assert same_bits(result, other)


@pytest.mark.slow
def test_the_same_is_moved(small) -> None:
    """In the interpreter, where blocks of the next slice arrive at any time."""
    model, before, module = small
    one, other = (run_graph(graphs(m)[0], model.arguments, arena=True) for m in (before, module))
    assert all(same_bits(a, b) for a, b in zip(one.results, other.results, strict=True))
    assert (one.page_in_bytes, one.page_out_bytes) == (other.page_in_bytes, other.page_out_bytes)
    assert other.peak_bytes <= 1900 + 2000


@pytest.mark.slow
def test_damaged_blocks(small, tmp_path: Path) -> None:
    """A transfer that fails, or in which a bit flips, ends the step: the parameters are whole, and
    it can be repeated."""
    model, _, module = small
    inputs = {i: a for i, a in enumerate(model.arguments) if graphs(module)[0].role(i) == "input"}
    device = Machine(module, tmp_path / "out", inputs)
    image = pack(device.layout, parameters(device.layout, model.arguments))
    device.power_on(image)
    assert device.step() == OK
    count, old = device.transfers, device.state(image)
    new = device.state(device.image)
    found = 0
    for transfer in np.random.default_rng(3).choice(count, 60, replace=False).tolist():
        for fault in (Fault.FLIP, Fault.ERROR):
            device.power_on(image)
            device.fault(transfer, fault)
            if device.step() == OK:
                continue
            found += 1
            assert device.state(device.image) == old
            assert device.step() == OK
            assert device.state(device.image) == new
    assert found > 60


@pytest.mark.parametrize(
    ("pattern", "other", "said"),
    [
        (r" ahead \d+ ", " ahead 0 ", "for what is read ahead, overlaps poet"),
        (r"( ahead \d+) blocks \d+ ", r"\1 blocks 1000 ", "is not in the workspace"),
        (r" ahead \d+ ", " ahead 2 ", "at a multiple of 4"),
    ],
)
def test_what_is_not_read_ahead(small, pattern: str, other: str, said: str) -> None:
    _, _, module = small
    text = re.sub(pattern, other, module_text(module), count=1)
    with pytest.raises((InputError, VerifyException), match=said):
        parsed = parse_module(text)
        parsed.verify()
        verify_graph(graphs(parsed)[0])


@pytest.mark.slow
def test_how_long_it_takes() -> None:
    """Each read begins when the tile before it does, and is waited for when that is over."""
    _, before, module = ahead("lenet5", 8192, 512, 16384)
    costs, checked = slice_costs(DEVICE), 0
    for old, new in zip(streams(before), streams(module), strict=True):
        chosen = read_ahead(new)
        if len(chosen) != 1 or not isinstance(chosen[0].next_op, TileOp | affine.ForOp):
            continue
        (slice_,) = chosen
        assert old.cost is not None and new.cost is not None and slice_.ahead_blocks is not None
        reads, around = 1, slice_.parent_op()
        assert around is not None
        (tile,) = (op for op in around.walk() if isinstance(op, TileOp))
        name = tile.function.string_value()
        functions = (op for op in module.ops if isinstance(op, FuncOp))
        (function,) = (op for op in functions if op.sym_name.data == name)
        while isinstance(around, affine.ForOp):
            high = around.upperBoundMap.data.eval([], [])[0]
            reads *= -(-high // around.step.value.data)
            around = around.parent_op()
        tile_ns = kernel_cost(work(function), DEVICE).time_ns / reads
        whole = -(-slice_.bytes // 508)
        blocks = min(slice_.ahead_blocks.value.data, whole)
        block_ns = 512 * costs.read.byte_ns
        clock = arrives = costs.read.run_ns + blocks * block_ns
        for n in range(reads):
            clock = max(clock, arrives)
            if blocks < whole:
                clock += costs.read.run_ns + (whole - blocks) * block_ns
            if n + 1 < reads:
                arrives = clock + costs.read.run_ns + blocks * block_ns
            clock += tile_ns
        one_by_one = reads * (costs.read.run_ns + whole * block_ns + tile_ns)
        saved_ns = old.cost.time_ns - new.cost.time_ns
        assert saved_ns == pytest.approx(one_by_one - clock, rel=0.02)
        assert saved_ns == old.cost.read_ns - new.cost.read_ns > 0
        checked += 1
    assert checked >= 3
