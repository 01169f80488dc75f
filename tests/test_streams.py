"""Steps whose kernels run in tiles: the bits of the step that is not scheduled, in little RAM; and
streams that are wrong, which are refused."""

from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from compiled import prepare
from conftest import more
from hypothesis import example, given
from hypothesis import strategies as st
from kernel_harness import same_bits
from test_kernels_bodies import random_case
from xdsl.dialects import affine
from xdsl.dialects.builtin import IndexType, MemRefType, ModuleOp, StringAttr, TensorType, f32
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from poetc.costmodel.device import load_device
from poetc.errors import InputError, UnscheduledError
from poetc.interpreter import InterpreterError, run_graph
from poetc.ir.graph import graphs
from poetc.ir.poet import (
    ComputeOp,
    GraphOp,
    PageType,
    ReturnOp,
    SliceOutOp,
    StreamOp,
    TileBufferOp,
    TileOp,
    YieldOp,
)
from poetc.ir.text import make_context, module_text, parse_module
from poetc.page import BLOCK_BYTES
from poetc.passes.poet_annotate import annotate
from poetc.passes.poet_lower_kernels import lower_kernels
from poetc.passes.poet_stream import PoetStreamPass
from poetc.passes.poet_verify import verify_graph
from poetc.passes.poet_verify.messages import VerificationError
from poetc.passes.poet_verify.streams import counted_once, covers
from poetc.planning.memory import plan_graph_memory

LIT_TESTS = Path(__file__).parents[1] / "lit_tests"


def in_little_ram(module: ModuleOp, ram_bytes: int) -> None:
    """Schedules the graph of a module in so much RAM, with places."""
    PoetStreamPass(ram_bytes).apply(make_context(), module)
    plan_graph_memory(graphs(module)[0])


def streamed_bits(module: ModuleOp, arguments: list[np.ndarray], ram_bytes: int) -> int:
    """How many kernels run in tiles; the results are those of the module before."""
    expected = run_graph(module.clone(), arguments)
    in_little_ram(module, ram_bytes)
    # Numbers in maps of arranged loops are added up where they are read.
    text = module_text(parse_module(module_text(module)))
    module = parse_module(text)
    assert module_text(module) == text
    (graph,) = graphs(module)
    verify_graph(graph)
    assert graph.arena_bytes is not None and graph.arena_bytes <= ram_bytes
    run = run_graph(graph, arguments, ram_bytes, arena=True)
    assert expected.peak_bytes > ram_bytes >= run.peak_bytes
    for result, other in zip(run.results, expected.results, strict=True):
        assert same_bits(result, other)
    assert same_bits(run_graph(graph, arguments).results[0], expected.results[0])
    return sum(isinstance(op, StreamOp) for op in graph.block.ops)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, ram_bytes, streams",
    [
        ("gesture_mlp", 1500, 5),
        *more(("lenet5", 8192, 14)),
    ],
)
def test_models_in_little_ram(name: str, ram_bytes: int, streams: int):
    """Larger ones are run in C (`test_stream_c.py`)."""
    model = prepare(name, tiles=True)
    assert streamed_bits(model.module, model.arguments, ram_bytes) >= streams


def graph_of(block: Block) -> ModuleOp:
    """A step that is one kernel, whose operands are parameters."""
    types = [argument.type for argument in block.args]
    end = block.last_op
    assert isinstance(end, YieldOp)
    results = [operand.type for operand in end.operands]
    params: list[dict[str, Attribute]] = [{"poet.role": StringAttr("param")} for _ in types]
    graph = GraphOp("main", (types, results), arg_attrs=params)
    compute = ComputeOp("kernel", graph.arguments, results)
    values: dict[SSAValue, SSAValue] = dict(zip(block.args, compute.block.args, strict=True))
    for op in block.ops:
        compute.block.add_op(op.clone(values))
    graph.block.add_ops([compute, ReturnOp(*compute.results)])
    module = ModuleOp([graph])
    lower_kernels(module)
    return module


@pytest.mark.slow
def test_random_kernels():
    """Whatever runs in tiles in some RAM gives the same bits; results stay in it."""
    streams = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        case = random_case(rng)
        module = graph_of(case.block)
        expected = run_graph(module.clone(), case.args)
        operands = sum(arg.nbytes for arg in case.args)
        ram_bytes = expected.peak_bytes - int(operands * rng.uniform(0.1, 0.9))
        annotate(module, load_device("nrf52840"))
        try:
            in_little_ram(module, ram_bytes)
        except UnscheduledError:
            continue
        module.verify()
        (graph,) = graphs(module)
        verify_graph(graph)
        run = run_graph(graph, case.args, ram_bytes, arena=True)
        for result, other in zip(run.results, expected.results, strict=True):
            assert same_bits(result, other)
        streams += sum(isinstance(op, StreamOp) for op in graph.block.ops)
    assert streams > 4


@cache
def text_of_dot() -> str:
    """A product in tiles, as the lit test has it."""
    return module_text(parse_module((LIT_TESTS / "poet" / "stream.mlir").read_text()))


@cache
def text_of_rows() -> str:
    """A look-up in a table on storage."""
    module = parse_module((LIT_TESTS / "poet-stream" / "rows.mlir").read_text())
    lower_kernels(module)
    annotate(module, load_device("nrf52840"))
    in_little_ram(module, 260)
    return module_text(module)


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("rows 0 of %2", "rows 2 of %2", "memref<1x8xf32> has no dimension 2"),
        ("rows 0 of %2", "of %2", "Expected 'buffer'"),
        (
            "rows 0 of %2 buffer 16 : !poet.page<tensor<40x8xf32>>, memref<4xi32> -> memref<1x8",
            "rows 1 of %2 buffer 16 : !poet.page<tensor<40x8xf32>>, memref<4xi32> -> memref<2x8",
            "rows in dimension 1 are not side by side in memref<2x8xf32>",
        ),
        (
            "rows 0 of %2 buffer 16 : !poet.page<tensor<40x8xf32>>, memref<4xi32>",
            "rows 0 of %in1 buffer 16 : !poet.page<tensor<40x8xf32>>, memref<4x1xi32>",
            "rows are a list of i32 in a poet.tile_buffer, got memref<4x1xi32>",
        ),
    ],
)
def test_rows_that_are_refused(old: str, new: str, message: str):
    text = text_of_rows()
    assert text.count(old) == 1, text
    with pytest.raises(InputError, match=message):
        parse_module(text.replace(old, new))


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("%in0[%i_1, 0] rows 0", "%in0[0, %i_1] rows 1", "its slice begins elsewhere"),
        ("0 : i64], unit]", "1 : i64], unit]", "its slice has not the rows of a list"),
        (", 0 : i64], unit]", "], unit]", "argument 0 is a whole buffer, not a slice"),
    ],
)
def test_rows_that_are_wrong(old: str, new: str, message: str):
    text = text_of_rows()
    assert text.count(old) == 1, text
    module = parse_module(text.replace(old, new))
    with pytest.raises(VerificationError, match=message):
        verify_graph(graphs(module)[0])


def test_rows_are_found_before_they_are_read():
    text = text_of_rows()
    line = next(line for line in text.splitlines() if "poet.tile @gather_tile(" in line) + "\n"
    end = text.index("    }\n    poet.free")
    module = parse_module(text[:end].replace(line, "") + line + text[end:])
    with pytest.raises(VerificationError, match="no tile before fills the list of rows"):
        verify_graph(graphs(module)[0])
    table, indices = np.ones((40, 8), np.float32), np.zeros((4, 1), np.int32)
    with pytest.raises(InterpreterError, match="a row from"):
        run_graph(module, [table, indices])


def update_of(batch: int) -> ModuleOp:
    """An update of a weight by a sum over a batch, lowered. All may be on storage."""
    text = (LIT_TESTS / "poet-stream" / "update.mlir").read_text().replace("input", "param")
    module = parse_module(text.replace("<4x12x", f"<{batch}x12x").replace("<4x8x", f"<{batch}x8x"))
    lower_kernels(module)
    annotate(module, load_device("nrf52840"))
    return module


@cache
def text_of_update(batch: int, ram_bytes: int) -> str:
    module = update_of(batch)
    in_little_ram(module, ram_bytes)
    return module_text(module)


@pytest.mark.slow
@pytest.mark.parametrize("batch, ram_bytes", [(4, 480), (64, 1800)], ids=["at once", "in parts"])
def test_new_values_are_written_over_slices_of_the_old_ones(batch: int, ram_bytes: int):
    """Whether their sums are made at once or in parts."""
    rng = np.random.default_rng(1)
    shapes = (12, 8), (batch, 12), (batch, 8)
    values = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    assert streamed_bits(update_of(batch), values, ram_bytes) == 1
    module = parse_module(text_of_update(batch, ram_bytes))
    (tile,) = (op for op in module.walk() if isinstance(op, TileOp))
    assert tile.buffers[2] is tile.buffers[3]


STORE = "affine.store %6, %out0[%i_start * -1 + %i, %j]"
TILE, OUT = "poet.tile @dot_subtract_tile(", "poet.slice_out "


@pytest.mark.parametrize(
    "batch, ram_bytes, old, new, message",
    [
        (4, 480, STORE, f"{STORE[:-3]}7 - %j]", "argument 3: .* slice of which more is read"),
        (4, 480, TILE, "", "argument 3: a tile reads later what it is written over"),
        (4, 480, OUT, "", "argument 3: it writes to what is no result, and lost"),
        (64, 1800, "d0 + -1) >= 0", "d0 + 0) >= 0", "a slice that later tiles have, too"),
    ],
    ids=["other elements", "a later tile", "not written", "in each part"],
)
def test_slices_that_may_not_be_written_over(
    batch: int, ram_bytes: int, old: str, new: str, message: str
):
    text = text_of_update(batch, ram_bytes)
    assert text.count(old) == 1, text
    line = next(line for line in text.splitlines() if old in line)
    if old == TILE:
        text = text.replace(line, f"{line}\n{line}")
    elif old == OUT:
        text = text.replace(line, "")
    else:
        text = text.replace(old, new)
    with pytest.raises(VerificationError, match=message):
        verify_graph(graphs(parse_module(text))[0])


def blocked() -> ModuleOp:
    """A product whose sums are interrupted within a partial sum, lowered."""
    module = parse_module((LIT_TESTS / "poet-stream" / "block.mlir").read_text())
    lower_kernels(module)
    annotate(module, load_device("nrf52840"))
    return module


def test_a_partial_sum_waits_while_its_loops_run():
    """The buffer in which it does stands before the loop over its tiles."""
    rng = np.random.default_rng(3)
    values = [rng.standard_normal(shape).astype(np.float32) for shape in ((2, 64), (64, 16))]
    module = blocked()
    assert streamed_bits(module, values, 1000) == 1
    text = module_text(module)
    (line,) = (line for line in text.splitlines(True) if "poet.tile_buffer" in line)
    (loop,) = (line for line in text.splitlines(True) if "0 to 32 step 8" in line)
    moved = text.replace(line, "").replace(loop, loop + line)
    with pytest.raises(VerificationError, match="argument 3: sums go on in it that are lost"):
        verify_graph(graphs(parse_module(moved))[0])


def mutated(old: str, new: str) -> str:
    text = text_of_dot()
    assert text.count(old) == 1, old
    return text.replace(old, new)


RESULT = "poet.tile_buffer 48 : memref<2x4xf32>"


@pytest.mark.parametrize(
    "old, new, message",
    [
        (RESULT, "poet.tile_buffer 52 : memref<2x4xf32>", "at 80 with 32 bytes overlaps"),
        (RESULT, "poet.tile_buffer 50 : memref<2x4xf32>", "at 50 .* at a multiple of 4"),
        ("poet.tile_buffer 80 :", "poet.tile_buffer 84 :", "is not in the workspace of"),
        ("0 to 8 step 4", "1 to 8 step 4", "goes from 0 to a constant"),
        ("0 to 8 step 4", "0 to 8 step 9", "its step is a tile"),
        (
            "%out0[0, %i] : memref<2x4xf32> -> !poet.page<tensor<2x8xf32>>",
            "%in1[0, %i] : memref<2x4xf32> -> !poet.page<tensor<6x8xf32>>",
            'poet.slice_out to what is no result of poet.stream "dot"',
        ),
        ("%in0[0, %j]", "%in0[%j]", "needs a start in each dimension"),
        (
            "(%a = %0 : !poet.page<tensor<2x6xf32>>",
            "(%a = %x : tensor<2x6xf32>",
            "its tiles take",
        ),
        ("poet.tile @dot_tile", "poet.tile @dot_tale", "no function @dot_tale in the module"),
        (") [%i, %j]", ") [%i]", "@dot_tile takes"),
        ("-> memref<2x2xf32>", "-> memref<2x9xf32>", "is larger than"),
        (
            "poet.slice_out",
            "%c = arith.constant 1 : i32\n        poet.slice_out",
            "arith.constant is not allowed in its tiles",
        ),
    ],
)
def test_streams_that_are_refused(old: str, new: str, message: str):
    with pytest.raises(InputError, match=message):
        parse_module(mutated(old, new))


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("%in0[0, %j]", "%in0[0, %j + 1]", "argument 0: its slice begins elsewhere"),
        ("%out0[0, %i]", "%out0[0, %i + 1]", "argument 2: its slice begins elsewhere"),
        (") [%i, %j]", ") [%j, %i]", r"is for tiles \[\(8, 4\), \(6, 2\)\]"),
        ("0 to 6 step 2", "0 to 4 step 2", r"these are \[\(8, 4\), \(4, 2\)\]"),
        ("poet.starts = [", "poet.begins = [", "does not say in poet.starts"),
        ("affine_map<(d0, d1) -> (0, d0)>, unit]", "unit, unit]", "is a whole buffer, not a slice"),
        (
            "affine.load %in0[%i, %r_start * -1 + %r]",
            "affine.load %in0[%i, %r_start * -1 + %r + 1]",
            "affine.load from 1 to 2 in dimension 1 of memref<2x2xf32>",
        ),
    ],
)
def test_streams_whose_slices_are_wrong(old: str, new: str, message: str):
    module = parse_module(mutated(old, new))
    with pytest.raises(VerificationError, match=message):
        verify_graph(graphs(module)[0])


def test_results_are_not_read_before_they_are_written():
    """In whatever tile: a slice of the result takes the place of one of the operands'."""
    line = "poet.slice_in %in0[0, %j] buffer 0 : !poet.page<tensor<2x6xf32>>"
    module = parse_module(
        mutated(line, "poet.slice_in %out0[0, %j] buffer 0 : !poet.page<tensor<2x8xf32>>")
    )
    with pytest.raises(VerificationError, match="result 0 is read before all of it is written"):
        verify_graph(graphs(module)[0])


def test_results_that_are_not_written_once():
    text = text_of_dot()
    start = text.index("        poet.slice_out")
    line = text[start : text.index("\n", start) + 1]
    for lines, message in (("", "written at 0 places"), (line * 2, "written at 2 places")):
        module = parse_module(text.replace(line, lines))
        with pytest.raises(VerificationError, match=f"result 0 is {message}, not at one"):
            verify_graph(graphs(module)[0])
    # Inside of the loop over the sum it is written three times.
    tile = text.index("          poet.tile @")
    end = text.index("\n", tile) + 1
    module = parse_module(text[:end] + line + text[end:].replace(line, ""))
    with pytest.raises(VerificationError, match="written to storage never, or twice"):
        verify_graph(graphs(module)[0])
    with pytest.raises(
        InterpreterError, match=r"element \[0, 0\] of result 0 is written .* 3 times"
    ):
        run_graph(module, [np.ones((2, 6), np.float32), np.ones((6, 8), np.float32)])


@given(st.lists(st.integers(-6, 12), max_size=6), st.integers(1, 6), st.integers(0, 10))
@example([0, 4], 4, 8)
@example([4, -2, 1], 3, 7)
def test_slices_cover_a_dimension_once(starts: list[int], size: int, extent: int):
    """Whatever they do outside of it."""
    times = [sum(start <= at < start + size for start in starts) for at in range(extent)]
    begins = np.array(starts, np.int64)
    once = all(n == 1 for n in times)
    assert covers(begins, size, extent) == once
    assert counted_once([begins], [len(starts)], [size], [extent]) == once


@given(st.data())
def test_slices_cover_a_tensor_once(data: st.DataObject):
    """With starts that depend on several loops."""
    counts = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    shape = data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=2))
    size = data.draw(st.lists(st.integers(1, 3), min_size=2, max_size=2))
    number = st.integers(-1, 3)
    terms = [[data.draw(number) for _ in counts] for _ in shape]
    grid = np.meshgrid(*map(np.arange, counts), indexing="ij", sparse=True)
    starts = [np.asarray(sum(c * at for c, at in zip(each, grid, strict=True))) for each in terms]
    times = np.zeros(shape, int)
    for tile in np.ndindex(*counts):
        at = [sum(c * i for c, i in zip(each, tile, strict=True)) for each in terms]
        for element in np.ndindex(*shape):
            times[element] += all(b <= e < b + n for b, e, n in zip(at, element, size, strict=True))
    assert counted_once(starts, counts, size, shape) == bool((times == 1).all())


@given(st.data())
def test_slices_that_go_from_the_first_to_the_last_byte(data: st.DataObject):
    """Those whose elements have the numbers from 0 on, in turn, in any order of the loops."""
    shape = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    sizes = [data.draw(st.integers(1, extent)) for extent in shape]
    parted = [dim for dim, size in enumerate(sizes) if size < shape[dim]]
    outer = block = Block(arg_types=[PageType(TensorType(f32, shape))])
    order = data.draw(st.permutations(parted))
    positions: list[SSAValue] = []
    for dim in order:
        inner = Block(arg_types=[IndexType()])
        block.add_op(
            affine.ForOp.from_region([], [], [], [], 0, shape[dim], Region(inner), sizes[dim])
        )
        positions.append(inner.args[0])
        block = inner
    starts = [
        AffineExpr.dimension(order.index(dim)) if dim in parted else AffineExpr.constant(0)
        for dim in range(len(shape))
    ]
    buffer = TileBufferOp(MemRefType(f32, sizes), 0)
    map = AffineMap(len(order), 0, tuple(starts))
    block.add_ops([buffer, out := SliceOutOp(buffer.buffer, outer.args[0], map, positions)])
    numbers = np.arange(np.prod(shape)).reshape(shape)
    written: list[int] = []
    for tile in product(*(range(0, shape[dim], sizes[dim]) for dim in order)):
        at = dict(zip(order, tile, strict=True))
        here = (slice(at.get(d, 0), at.get(d, 0) + sizes[d]) for d in range(len(shape)))
        written += numbers[tuple(here)].ravel().tolist()
    assert out.is_in_order == (written == list(range(numbers.size)))


@pytest.mark.slow
def test_too_little_ram_is_told_in_the_bytes_that_were_given():
    """Not in those of a later attempt with less, and nothing is changed."""
    refused = 0
    for ram_bytes in (200, 800):
        module = prepare("gesture_mlp", arrange=False).module
        text = module_text(module)
        try:
            PoetStreamPass(ram_bytes).apply(make_context(), module)
        except UnscheduledError as error:
            refused += 1
            assert error.diagnosis.ram_bytes == ram_bytes + BLOCK_BYTES
            assert module_text(module) == text
    assert refused > 0
    with pytest.raises(InputError, match="align must be a power of two and at least 4, not 3"):
        PoetStreamPass(1500, align=3).apply(make_context(), prepare("gesture_mlp").module)
