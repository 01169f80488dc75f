"""Tile functions: random kernels in random tiles give the bits of the operations that they were
lowered from, on slices alone, and write each element of a result once."""

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from compiled import prepare
from conftest import more
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_harness import Case, compile_functions, interpret, same_bits
from test_interpreter_kernels import arguments_for, buffers_for, poisoned
from test_kernels_bodies import random_case
from test_kernels_ops import floats
from xdsl.dialects import affine, func, memref
from xdsl.dialects.builtin import ModuleOp, StringAttr, TensorType, i32
from xdsl.dialects.memref import GlobalOp
from xdsl.ir import Block

from poetc.interpreter.kernels import run_kernel, tables_of
from poetc.ir import stablehlo as hlo
from poetc.ir.graph import graphs
from poetc.ir.index import Index, Quotient, Var
from poetc.ir.symbols import named_in
from poetc.ir.text import make_context, parse_module
from poetc.kernels.analysis import buffers as buffers_of
from poetc.kernels.analysis import may_alias, work
from poetc.kernels.arrange import Machine
from poetc.kernels.arrange.tile_functions import arranged_tile
from poetc.kernels.distribute import distribute
from poetc.kernels.lower import lower_kernel
from poetc.kernels.positions import with_positions
from poetc.kernels.slices import NotTileable, Slice
from poetc.kernels.tiles import Tiled, nest_loops, tile
from poetc.passes.poet_fuse import PoetFusePass
from poetc.passes.stablehlo_to_poet import StableHLOToPoetPass
from poetc.pipeline import run_passes

Rng = np.random.Generator


def value(index: Index, at: dict[Var, int]) -> int:
    total = index.const
    for atom, coefficient in index.terms:
        if isinstance(atom, Quotient):
            inner = value(atom.of, at)
            number = inner % atom.divisor if atom.remainder else inner // atom.divisor
        else:
            assert isinstance(atom, Var)
            number = at[atom]
        total += coefficient * number
    return total


def box(starts: Sequence[int], shape: Sequence[int], whole: Sequence[int]):
    """What of a slice is in its buffer: there, and in the slice."""
    outside: list[slice] = []
    inside: list[slice] = []
    for start, size, extent in zip(starts, shape, whole, strict=True):
        low = min(max(start, 0), extent)
        high = max(low, min(start + size, extent))
        outside.append(slice(low, high))
        inside.append(slice(low - start, high - start))
    return tuple(outside), tuple(inside)


def run_tiled(tiled: Tiled, whole: list[np.ndarray], tables: dict[str, np.ndarray]) -> None:
    """All tiles in their order; a slice that has not been moved is no numbers."""
    taken = [whole[b] if isinstance(b, int) else poisoned(b.type) for b in tiled.buffers]
    written: dict[int, np.ndarray] = {}

    def move(number: int, part: Slice, at: dict[Var, int], out: bool) -> None:
        buffer = whole[part.argument]
        starts = [value(index, at) for index in part.starts]
        extents = list(buffer.shape)
        if part.rows is not None:
            dim, rows = part.rows
            extents[dim] = whole[rows].size
            outside, inside = box(starts, part.type.get_shape(), extents)
            places = (*outside[:dim], whole[rows].reshape(-1)[outside[dim]], *outside[dim + 1 :])
            taken[number] = poisoned(part.type)
            taken[number][inside] = buffer[places]
            return
        outside, inside = box(starts, part.type.get_shape(), extents)
        if out:
            buffer[outside] = taken[number][inside]
            written.setdefault(part.argument, np.zeros(buffer.shape, int))[outside] += 1
        else:
            taken[number] = poisoned(part.type)
            taken[number][inside] = buffer[outside]

    def loop(depth: int, at: dict[Var, int]) -> None:
        here = [
            (n, b)
            for n, b in enumerate(tiled.buffers)
            if not isinstance(b, int) and b.depth == depth
        ]
        for number, part in here:
            taken[number] = poisoned(part.type)
            if isinstance(part, Slice) and part.read:
                move(number, part, at, False)
        if depth < len(tiled.variables):
            variable = tiled.variables[depth]
            for start in range(0, variable.extent, tiled.tiles[depth]):
                loop(depth + 1, at | {variable: start})
        else:
            positions = [at[variable] for variable in tiled.variables]
            run_kernel(tiled.function, taken, positions, tables)
        for number, part in here:
            if isinstance(part, Slice) and part.written:
                move(number, part, at, True)

    loop(0, {})
    assert all((times == 1).all() for times in written.values())


def random_tiles(rng: Rng, nest: func.FuncOp) -> list[tuple[int, int]]:
    """Tiles of some loops in some order, in which sums keep their order."""
    loops = nest_loops(nest)
    extents, first = loops.extents, len(loops.parallel)
    size = {n: int(rng.integers(1, extent)) for n, extent in enumerate(extents) if extent > 1}
    parallel = [n for n in range(first) if n in size and rng.random() < 0.6]
    rng.shuffle(parallel)
    sums: list[int] = []
    if first < len(extents) and rng.random() < 0.7:
        last = int(rng.integers(first, len(extents)))
        sums = [n for n in range(first, last + 1) if n in size]
        size |= dict.fromkeys(sums[:-1] if last in size else sums, 1)
    order: list[int] = []
    while parallel or sums:
        take = parallel if parallel and (not sums or rng.random() < 0.7) else sums
        order.append(take.pop(0))
    return [(n, size[n]) for n in order]


def random_tiled(rng: Rng, nest: func.FuncOp, streamable: set[int]) -> Tiled:
    """Random tiles with random buffers on storage; results that cannot be there are in RAM."""
    tiles = random_tiles(rng, nest)
    streamed = frozenset(n for n in streamable if rng.random() < 0.8)
    try:
        return tile(nest, "tile", tiles, streamed)
    except NotTileable:
        stored = {
            op.memref for op in nest.walk() if isinstance(op, affine.StoreOp | memref.StoreOp)
        }
        arguments = nest.body.block.args
        read = frozenset(n for n in streamed if arguments[n] not in stored)
        return tile(nest, "tile", tiles, read)


def in_order_of_core(tiled: Tiled) -> Tiled:
    """With its loops arranged; copies that have something in common do it once."""
    function = arranged_tile(tiled.function, Machine(), 0.0)
    function.verify()
    before, after = work(tiled.function), work(function)
    assert after.flops <= before.flops and after.stores == before.stores
    return replace(tiled, function=function)


def check_tiles(
    rng: Rng,
    function: func.FuncOp,
    block: Block,
    args: list[np.ndarray],
    tables: dict[str, np.ndarray],
    made: list[Tiled] | None = None,
) -> int:
    """How many buffers were on storage. `made` gets the tile functions."""
    pages = len(buffers_of(function, "inputs")) + len(buffers_of(function, "results"))
    listed = frozenset(n for n in range(pages) if rng.random() < 0.7)
    count = len(function.body.block.args)
    distributed = with_positions(distribute(function), listed, count)
    whole = [*buffers_for(function, args), *map(poisoned, distributed.between)]
    slices = 0
    for nest in distributed.nests:
        streamable = {n for n, buffer in enumerate(nest.buffers) if buffer < pages}
        tiled = random_tiled(rng, nest.function, streamable)
        tiled.function.verify()
        if made is not None:
            made.append(tiled)
        if rng.random() < 0.7:
            tiled = in_order_of_core(tiled)
        run_tiled(tiled, [whole[buffer] for buffer in nest.buffers], tables)
        slices += sum(isinstance(part, Slice) for part in tiled.buffers)
    expected = interpret(block, args)
    for result, other in zip(whole[len(args) :], expected, strict=False):
        found = result.astype(bool) if other.dtype == bool else result.view(other.dtype)
        assert same_bits(found, other), function
    return slices


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_random_kernels_in_random_tiles(seed: int):
    rng = np.random.default_rng(seed)
    case: Case = random_case(rng)
    kernel = lower_kernel(case.block, "kernel")
    check_tiles(rng, kernel.function, case.block, case.args, tables_of(kernel.globals))


def blocked_case(rng: Rng) -> Case:
    """A product of matrices whose sums are sums of partial sums."""
    batch, terms, width = int(rng.integers(1, 4)), int(rng.integers(33, 100)), 5
    return Case.of(
        lambda x, w: hlo.TanhOp(hlo.DotGeneralOp(x, w, lhs_contract=(1,), rhs_contract=(0,))),
        floats(rng, batch, terms),
        floats(rng, terms, width),
    )


def within_blocks(tiled: Tiled) -> bool:
    """Whether sums are interrupted within a partial sum."""
    names = {start.ssa.name_hint for start in tiled.variables if start.ssa is not None}
    return names >= {"rb_start", "r_start"}


@pytest.mark.slow
def test_sums_that_are_interrupted_within_a_partial_sum():
    made: list[Tiled] = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        case = blocked_case(rng)
        kernel = lower_kernel(case.block, "kernel")
        check_tiles(rng, kernel.function, case.block, case.args, {}, made)
    assert sum(map(within_blocks, made)) > 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kws_conv", *more("lenet5", "bert_micro")])
def test_kernels_of_models_in_random_tiles(name: str):
    module = prepare(name).module
    tables = tables_of(named_in(module, GlobalOp).values())
    functions = {f.sym_name.data: f for f in module.ops if isinstance(f, func.FuncOp)}
    rng = np.random.default_rng(5)
    slices = 0
    for compute in graphs(module)[0].computes:
        assert compute.kernel is not None
        kernel = functions[compute.kernel.string_value()]
        # The slowest ones are no different from others here.
        if sum(poisoned(arg.type).size for arg in kernel.body.block.args) < 8_000:
            args = arguments_for(rng, kernel, len(compute.operands))
            slices += check_tiles(rng, kernel, compute.block, args, tables)
    assert slices > 30


@pytest.mark.slow
@pytest.mark.parametrize(
    "table, indices, slice_sizes, shape, numbers",
    [
        ("9x5", "4x1", "1, 5", "4x5", ("[1]", "[0]", "[0]")),
        ("9x5", "2x3x1", "1, 5", "2x3x5", ("[2]", "[0]", "[0]")),
        ("5x9", "4x1", "5, 1", "5x4", ("[0]", "[1]", "[1]")),
        ("9x5", "4x1", "2, 5", "4x2x5", ("[1, 2]", "[]", "[0]")),
        ("9x5", "4x2", "1, 1", "4", ("[]", "[0, 1]", "[0, 1]")),
    ],
)
def test_look_ups(
    table: str, indices: str, slice_sizes: str, shape: str, numbers: tuple[str, str, str]
):
    """Rows, columns, several rows and elements, at indices some of which are outside."""
    offset, collapsed, start_map = numbers
    vector = indices.count("x")
    text = f"""
    func.func @main(%t: tensor<{table}xf32>, %i: tensor<{indices}xi32>, %b: tensor<{shape}xf32>)
        -> tensor<{shape}xf32> {{
      %0 = "stablehlo.gather"(%t, %i) <{{dimension_numbers = #stablehlo.gather<
          offset_dims = {offset}, collapsed_slice_dims = {collapsed},
          start_index_map = {start_map}, index_vector_dim = {vector}>,
          indices_are_sorted = false, slice_sizes = array<i64: {slice_sizes}>}}>
          : (tensor<{table}xf32>, tensor<{indices}xi32>) -> tensor<{shape}xf32>
      %1 = stablehlo.add %0, %b : tensor<{shape}xf32>
      func.return %1 : tensor<{shape}xf32>
    }}"""
    # An element of which both positions are looked up stays in a table that is whole.
    assert (rows_in_random_tiles(text) > 5) == (start_map != "[0, 1]")


def test_elements_that_a_sum_looks_up():
    """One of each row: the sum takes them from a list, which tiles of one element fill."""
    text = """
    func.func @main(%t: tensor<1x3x9xf32>, %i: tensor<3x1x1xi32>) -> tensor<f32> {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = "stablehlo.gather"(%t, %i) <{dimension_numbers = #stablehlo.gather<
          offset_dims = [0], collapsed_slice_dims = [2], operand_batching_dims = [1],
          start_indices_batching_dims = [0], start_index_map = [2], index_vector_dim = 2>,
          indices_are_sorted = false, slice_sizes = array<i64: 1, 1, 1>}>
          : (tensor<1x3x9xf32>, tensor<3x1x1xi32>) -> tensor<1x3x1xf32>
      %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0, 1, 2]
          : (tensor<1x3x1xf32>, tensor<f32>) -> tensor<f32>
      func.return %1 : tensor<f32>
    }"""
    assert rows_in_random_tiles(text) > 2


def rows_in_random_tiles(text: str) -> int:
    """How many slices by row there are in random tiles of a step that is one kernel."""
    module = parse_module(text)
    run_passes(make_context(), module, (StableHLOToPoetPass(), PoetFusePass()), lambda *_: None)
    (compute,) = graphs(module)[0].computes
    kernel = lower_kernel(compute.block, "kernel")
    rows = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        args = [
            rng.integers(-2, 12, a.type.get_shape()).astype(np.int32)
            if a.type.element_type == i32
            else rng.standard_normal(a.type.get_shape()).astype(np.float32)
            for a in compute.block.args
            if isinstance(a.type, TensorType)
        ]
        found: list[Tiled] = []
        check_tiles(rng, kernel.function, compute.block, args, {}, found)
        rows += sum(isinstance(b, Slice) and b.rows is not None for t in found for b in t.buffers)
    return rows


def test_results_still_take_over_operands():
    """What may be one buffer in a nest may be one in its tiles, whose loops are arranged."""
    pairs = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        for nest in distribute(lower_kernel(random_case(rng).block, "kernel").function).nests:
            tiled = random_tiled(rng, nest.function, set())
            inputs, results = (buffers_of(nest.function, kind) for kind in ("inputs", "results"))
            function = arranged_tile(tiled.function, Machine(), 0.0)
            for result, operand in product(range(len(results)), range(len(inputs))):
                if may_alias(nest.function, result, operand):
                    places = [tiled.buffers.index(n) for n in (operand, len(inputs) + result)]
                    first = len(buffers_of(function, "inputs"))
                    assert may_alias(function, places[1] - first, places[0])
                    pairs += function is not tiled.function
    assert pairs > 7


@pytest.mark.slow
def test_tile_functions_in_c():
    """They do to memory what the interpreter does, at each start, last tiles that are smaller among
    them."""
    rng = np.random.default_rng(7)
    tables: list[memref.GlobalOp] = []
    tiled: list[Tiled] = []
    for number in range(42):
        make = random_case if number < 30 else blocked_case
        kernel = lower_kernel(make(rng).block, f"kernel{number}")
        tables += kernel.globals
        for place, nest in enumerate(distribute(kernel.function).nests):
            streamable = set(range(len(buffers_of(nest.function, "inputs"))))
            found = random_tiled(rng, nest.function, streamable)
            if rng.random() < 0.7:
                found = in_order_of_core(found)
            found.function.sym_name = StringAttr(f"tile{number}_{place}")
            tiled += [found] if found.variables else []
    module = ModuleOp([*tables, *(found.function for found in tiled)])
    library = compile_functions([found.function for found in tiled], tables=tables)
    smaller = 0
    for found in tiled:
        extents = [variable.extent for variable in found.variables]
        smaller += any(n % t for n, t in zip(extents, found.tiles, strict=True))
        starts = [range(0, n, t) for n, t in zip(extents, found.tiles, strict=True)]
        for at in list(product(*starts))[-4:]:
            count = len(found.buffers)
            own = arguments_for(rng, found.function, count)
            other = [buffer.copy() for buffer in own]
            pointers = [ctypes.c_void_p(buffer.ctypes.data) for buffer in own]
            getattr(library, found.function.sym_name.data)(*pointers, *map(ctypes.c_int32, at))
            run_kernel(found.function, other, at, tables_of(named_in(module, GlobalOp).values()))
            for a, b in zip(own, other, strict=True):
                assert same_bits(a, b), found.function
    assert len(tiled) > 30 and smaller > 10 and sum(map(within_blocks, tiled)) > 1
