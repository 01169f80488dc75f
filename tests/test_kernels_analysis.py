"""Work and aliasing of lowered kernels, against counting and against running."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from conftest import read_model
from kernel_harness import Case, alias_pairs, lower
from test_kernels_bodies import random_case
from test_kernels_ops import (
    conv_case,
    dot_case,
    floats,
    limited,
    movement_case,
    pool_gradient_case,
    scalar,
)
from test_tiles import random_tiled
from xdsl.dialects import affine, arith, func, memref
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Region, SSAValue
from xdsl.ir.affine import AffineConstraintKind

from poetc.errors import InputError
from poetc.ir import stablehlo as hlo
from poetc.ir.buffers import element_bytes
from poetc.ir.stablehlo_attributes import ConvDims
from poetc.ir.text import make_context, module_text, parse_module
from poetc.kernels.access import Linear, tiles_of
from poetc.kernels.addresses import all_pinned
from poetc.kernels.analysis import Work, buffers, may_alias, work, workspace_bytes
from poetc.kernels.arrange import Machine
from poetc.kernels.arrange.tile_functions import arranged_tile
from poetc.kernels.distribute import distribute
from poetc.pipeline import front_passes, run_passes


def counted(function: func.FuncOp) -> Counter[str]:
    """Executed operations by name, and bytes, by iterating every loop, and all tiles."""
    total: Counter[str] = Counter()

    def run(block: Block, at: dict[SSAValue, int], chained: bool = False) -> None:
        for op in block.ops:
            total[op.name] += 1
            if op.name in ("arith.addf", "arith.subf", "arith.negf", "arith.mulf"):
                total["chained"] += chained
            if isinstance(op, affine.ForOp):
                (low,) = op.lowerBoundMap.data.eval([at[v] for v in op.lowerBoundOperands], ())
                high = min(op.upperBoundMap.data.eval([at[v] for v in op.upperBoundOperands], ()))
                for i in range(low, high):
                    total["iterations"] += 1
                    run(op.body.block, at | {op.body.block.args[0]: i}, bool(op.results))
            elif isinstance(op, affine.IfOp):
                dims = [at[operand] for operand in op.args]
                tests = []
                for c in op.condition.data.constraints:
                    number = c.lhs.eval(dims, ()) - c.rhs.eval(dims, ())
                    tests.append(number == 0 if c.kind is AffineConstraintKind.eq else number >= 0)
                region = op.then_region if all(tests) else op.else_region
                for inner in region.blocks:
                    run(inner, at, chained)
            elif isinstance(op, affine.LoadOp | memref.LoadOp):
                total["loads"] += 1
                total["load_bytes"] += element_bytes(op.results[0].type)
            elif isinstance(op, affine.StoreOp):
                total["store_bytes"] += element_bytes(op.value.type)

    tiles = tiles_of(function)
    starts = function.body.block.args[len(function.body.block.args) - len(tiles) :]
    for at in product(*(range(0, end, size) for end, size in tiles)):
        run(function.body.block, dict(zip(starts, at, strict=True)))
    return total


def assert_counts(function: func.FuncOp) -> None:
    done, exact = work(function), counted(function)
    assert done.iterations == exact["iterations"]
    assert (done.loops, done.guards) == (exact["affine.for"], exact["affine.if"])
    assert done.chained == exact["chained"]
    assert (done.loads, done.stores) == (exact["loads"], exact["affine.store"])
    assert done.load_bytes == exact["load_bytes"]
    assert done.store_bytes == exact["store_bytes"]
    assert done.adds == sum(exact[f"arith.{n}"] for n in ("addf", "subf", "negf"))
    assert done.muls == exact["arith.mulf"]
    assert done.divs == exact["arith.divf"]
    names = ("arith.cmpf", "arith.maximumf", "arith.minimumf", "math.absf")
    assert done.compares == sum(exact[n] for n in names)
    assert dict(done.math) == {
        name: exact[f"math.{name}"] for name in ("exp", "tanh") if exact[f"math.{name}"]
    }


@pytest.mark.parametrize("make", [conv_case, dot_case, movement_case, pool_gradient_case])
def test_work_is_exact(make):
    for case in limited(make, 21, 12, limit=300):
        assert_counts(lower(case.block))


def test_work_of_random_bodies_is_exact():
    rng = np.random.default_rng(22)
    for _ in range(15):
        assert_counts(lower(random_case(rng).block))


def test_work_of_tile_functions_is_exact():
    """Of all tiles, smaller ones among them; with loops as they are, and arranged."""
    rng = np.random.default_rng(23)
    starts = changed = 0
    while starts < 25 or changed < 8:
        for nest in distribute(lower(random_case(rng).block)).nests:
            tiled = random_tiled(rng, nest.function, set())
            assert_counts(tiled.function)
            arranged = arranged_tile(tiled.function, Machine(), 0.0)
            assert_counts(arranged)
            starts += len(tiled.variables)
            changed += bool(tiled.variables) and arranged is not tiled.function


def test_work_of_a_padded_convolution_skips_the_padding():
    rng = np.random.default_rng(0)
    case = Case.of(
        lambda x, w: hlo.ConvolutionOp(x, w, ConvDims.nhwc(), (1, 1), ((1, 1), (1, 1))),
        floats(rng, 1, 8, 8, 3),
        floats(rng, 3, 3, 3, 4),
    )
    # Along each dimension, 8 positions times 3 taps without the two that stick out.
    products = (8 * 3 - 2) ** 2 * 3 * 4
    done = work(lower(case.block))
    assert (done.adds, done.muls) == (products, products)
    assert done.load_bytes == 2 * 4 * products
    assert done.store_bytes == 8 * 8 * 4 * 4
    assert done.flops == 2 * products


def test_flops_contain_those_of_math_functions():
    assert Work(adds=1, math=(("exp", 2),)).flops > 1 + 2


# Aliasing


def softmax(x):
    rows, columns = hlo.shape_of(x)
    top = hlo.ReduceOp(x, scalar(-np.inf), [1], "maximum")
    shifted = hlo.SubtractOp(x, hlo.BroadcastInDimOp(top, (0,), (rows, columns)))
    exp = hlo.ExponentialOp(shifted)
    total = hlo.ReduceOp(exp, scalar(0), [1], "add")
    return hlo.DivideOp(exp, hlo.BroadcastInDimOp(total, (0,), (rows, columns)))


def aliases(build, *args) -> list[tuple[int, int]]:
    function = lower(Case.of(build, *args).block)
    return [pair for (pair,) in alias_pairs(function)]


X = np.ones((4, 6), np.float32)
ROW = np.ones(6, np.float32)
SQUARE = np.ones((4, 4), np.float32)


def test_elementwise_may_overwrite_each_operand():
    assert aliases(hlo.AddOp, X, X) == [(0, 0), (0, 1)]


def test_an_operand_of_another_type_is_never_overwritten():
    assert aliases(lambda x: hlo.ConvertOp(x, hlo.i32), X) == []


def test_softmax_may_overwrite_its_rows():
    assert aliases(softmax, X) == [(0, 0)]


def test_softmax_along_columns_may_overwrite_its_columns():
    def build(x):
        return hlo.TransposeOp(softmax(hlo.TransposeOp(x, (1, 0))), (1, 0))

    assert aliases(build, X) == [(0, 0)]


def test_transpose_and_reverse_may_not():
    assert aliases(lambda x: hlo.NegateOp(hlo.TransposeOp(x, (1, 0))), SQUARE) == []
    assert aliases(lambda x: hlo.NegateOp(hlo.ReverseOp(x, (1,))), X) == []


def test_an_operand_that_is_broadcast_may_not():
    def build(x):
        total = hlo.ReduceOp(x, scalar(0), [0], "add")
        return hlo.AddOp(x, hlo.BroadcastInDimOp(total, (1,), (4, 6)))

    # The column sums are outermost: each column is read whole before it is written.
    assert aliases(build, X) == [(0, 0)]

    def both(x):
        rows = hlo.ReduceOp(x, scalar(0), [1], "add")
        return hlo.AddOp(build(x), hlo.BroadcastInDimOp(rows, (0,), (4, 6)))

    # One of the two sums is finished before anything is written, the other is not.
    function = lower(Case.of(both, X).block)
    assert may_alias(function, 0, 0) == (workspace_bytes(function) > 0)


def test_weight_gradient_updates_the_weights_in_place():
    def build(x, g, w):
        gradient = hlo.DotGeneralOp(x, g, lhs_contract=(0,), rhs_contract=(0,))
        rate = hlo.BroadcastInDimOp(scalar(0.1), (), hlo.shape_of(w))
        return hlo.SubtractOp(w, hlo.MultiplyOp(gradient, rate))

    rng = np.random.default_rng(0)
    pairs = aliases(build, floats(rng, 2, 3), floats(rng, 2, 5), floats(rng, 3, 5))
    assert pairs == [(0, 2)]


def test_dot_may_not_overwrite_an_operand():
    build = lambda a, b: hlo.DotGeneralOp(a, b, lhs_contract=(1,), rhs_contract=(0,))  # noqa: E731
    assert aliases(build, SQUARE, SQUARE) == []


def test_momentum_updates_both_in_place():
    def build(w, m, g):
        new = hlo.AddOp(m, g)
        return [hlo.SubtractOp(w, new), new]

    pairs = aliases(build, X, X, X)
    assert {(0, 0), (1, 1)} <= set(pairs)


def test_a_later_nest_reads_the_stored_result():
    """The row sum is taken of the result, so that the operand is free to be overwritten."""

    def build(x):
        doubled = hlo.AddOp(x, x)
        return [doubled, hlo.ReduceOp(doubled, scalar(0), [0], "add")]

    assert aliases(build, X) == [(0, 0)]


def test_pool_gradient_reads_whole_windows_before_it_writes_them():
    """With the window split off, every element of a window is read before the first is stored."""

    def build(x, g):
        return hlo.SelectAndScatterOp(x, g, scalar(0), (2, 2), (2, 2), ((0, 0), (0, 0)), "GE")

    assert aliases(build, np.ones((4, 6), np.float32), np.ones((2, 3), np.float32)) == [(0, 0)]


def test_constants_do_not_count():
    case = Case.of(lambda x: hlo.AddOp(x, hlo.BroadcastInDimOp(scalar(2), (), (4, 6))), X)
    function = lower(case.block)
    assert any(isinstance(op, arith.ConstantOp) for op in function.walk())
    done = work(function)
    assert (done.adds, done.int_ops, done.load_bytes) == (24, 0, 96)


# Kernels read from text


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gesture_mlp", "kws_conv"])
def test_the_same_after_printing_and_parsing(model):
    module = read_model(model)
    passes = front_passes(module, "host")
    run_passes(make_context(), module, passes, lambda name, module, seconds: None)
    again = parse_module(module_text(module), model)
    kernels = [[op for op in m.ops if isinstance(op, func.FuncOp)] for m in (module, again)]
    proven = 0
    for kernel, parsed in zip(*kernels, strict=True):
        assert work(parsed) == work(kernel)
        for r in range(len(buffers(kernel, "results"))):
            for o in range(len(buffers(kernel, "inputs"))):
                assert may_alias(parsed, r, o) == may_alias(kernel, r, o)
                proven += may_alias(kernel, r, o)
    assert proven


def kernel(
    body: str,
    counts: str = "poet.inputs = 1 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64",
) -> func.FuncOp:
    """A kernel on two buffers of 8 floats, from text."""
    arguments = "%in0: memref<8xf32>, %out0: memref<8xf32>"
    text = f"func.func private @k({arguments}) attributes {{{counts}}} {{\n{body}\nfunc.return\n}}"
    (function,) = parse_module(text, "kernel.mlir").ops
    assert isinstance(function, func.FuncOp)
    return function


@pytest.mark.parametrize(
    ("load", "aliases"),
    [
        ("affine.load %in0[%i]", True),
        ("affine.load %in0[1 * %i + 0]", True),
        ("affine.load %in0[2 * %i - %i]", True),
        ("affine.load %in0[7 - %i]", False),
        ("affine.load %in0[%i floordiv 2]", False),
        ("affine.load %in0[%zero]", False),
        ("memref.load %in0[%i]", True),
        ("memref.load %in0[%same]", True),
        ("memref.load %in0[%back]", False),
    ],
)
def test_index_maps_in_any_form(load, aliases):
    function = kernel(f"""
      %zero = arith.constant 0 : index
      affine.for %i = 0 to 8 {{
        %same = affine.apply affine_map<()[s0] -> (s0)> ()[%i]
        %back = affine.apply affine_map<(d0)[s0] -> (s0 - d0)> (%i)[%zero]
        %0 = {load} : memref<8xf32>
        affine.store %0, %out0[%i] : memref<8xf32>
      }}""")
    assert may_alias(function, 0, 0) is aliases


def test_guards_on_symbols_count_as_those_on_dimensions():
    done = work(
        kernel("""
      affine.for %i = 0 to 8 {
        affine.for %j = 0 to 8 {
          "affine.if"(%i, %j) ({
            %0 = affine.load %in0[%i] : memref<8xf32>
            affine.store %0, %out0[%i] : memref<8xf32>
            affine.yield
          }, {}) {condition = affine_set<(d0)[s0] : (d0 - s0 >= 0)>} : (index, index) -> ()
        }
      }""")
    )
    assert done.load_bytes == done.store_bytes == 4 * (8 * 9 // 2)


def test_a_buffer_used_in_an_unknown_way_is_not_shared():
    function = kernel('"memref.copy"(%in0, %out0) : (memref<8xf32>, memref<8xf32>) -> ()')
    assert not may_alias(function, 0, 0)


@pytest.mark.parametrize(("place", "shared"), [("%i", True), ("%2", False)])
def test_a_store_at_a_position_from_memory_is_not_known_to_come_later(place: str, shared: bool):
    function = kernel(f"""
      affine.for %i = 0 to 8 {{
        %0 = affine.load %in0[%i] : memref<8xf32>
        %1 = arith.fptosi %0 : f32 to i32
        %2 = arith.index_cast %1 : i32 to index
        memref.store %0, %out0[{place}] : memref<8xf32>
      }}""")
    assert may_alias(function, 0, 0) == shared


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ("", "kernel @k: poet.inputs must be a number of arguments, got None"),
        ("poet.inputs = 3 : i2, poet.results = 1 : i64, poet.workspace = 0 : i64", "poet.inputs"),
        ("poet.inputs = 3 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64", "is 4, it has"),
        ('poet.inputs = 1 : i64, poet.results = "1", poet.workspace = 0 : i64', 'got "1"'),
    ],
)
def test_wrong_counts_of_arguments(counts, message):
    function = kernel("", counts)
    for use in (work, workspace_bytes, lambda function: may_alias(function, 0, 0)):
        with pytest.raises(InputError) as error:
            use(function)
        assert message in error.value.message
        assert str(error.value.location) == "kernel.mlir:1:1"


def test_no_such_buffer():
    for result, operand in ((0, 1), (1, 0), (0, -1)):
        with pytest.raises(InputError, match=r"kernel @k: no -?1 among its 1"):
            may_alias(kernel(""), result, operand)


@pytest.mark.parametrize("loop", ["1 to 8", "0 to 8 step 2", "0 to %n"])
def test_other_loops_are_rejected(loop):
    body = f"%n = arith.constant 8 : index\naffine.for %i = {loop} {{\n}}"
    with pytest.raises(InputError, match="loops of kernels") as error:
        work(kernel(body))
    assert str(error.value.location) == "kernel.mlir:3:1"


def test_variables_that_equal_addresses_pin_are_equal_there():
    """Against all iterations of small nests, also where only the leading digits of a number in a
    mixed radix are pinned."""
    rng = np.random.default_rng(8)
    kinds: Counter[str] = Counter()
    for _ in range(300):
        extents = [int(n) for n in rng.integers(2, 5, int(rng.integers(1, 4)))]
        weights = [int(w) for w in rng.choice([-9, -4, -2, 1, 2, 3, 4, 5, 8, 16], len(extents))]
        (apart,) = (int(n) for n in rng.integers(-4, 5, 1))
        body, variables = Block(), list[SSAValue]()
        for extent in extents:
            inner = Block(arg_types=[IndexType()])
            body.add_op(affine.ForOp.from_region([], [], [], [], 0, extent, Region(inner)))
            variables.append(inner.args[0])
            body = inner
        terms = dict(zip(variables, weights, strict=True))
        pinned = all_pinned([(Linear(apart, terms), Linear(0, terms))], variables, set())
        places = list(product(*map(range, extents)))
        address = {place: int(np.dot(place, weights)) for place in places}
        for stored, loaded in product(places, places):
            if address[stored] + apart == address[loaded]:
                for at, variable in enumerate(variables):
                    assert variable not in pinned or stored[at] == loaded[at]
        kinds["none" if not pinned else "all" if len(pinned) == len(extents) else "some"] += 1
    assert min(kinds[kind] for kind in ("none", "all", "some")) > 10
