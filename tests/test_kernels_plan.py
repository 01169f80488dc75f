"""Structure of lowered kernels: shared loops, reductions once, workspaces, tables; the pass."""

import numpy as np
import pytest
from kernel_harness import Array, Case, check, lower
from test_kernels_analysis import softmax
from test_kernels_ops import floats, scalar
from xdsl.context import Context
from xdsl.dialects import affine, memref
from xdsl.dialects.builtin import ModuleOp, TensorType, i32
from xdsl.dialects.func import FuncOp

from poetc.errors import InputError
from poetc.ir import stablehlo as hlo
from poetc.ir.stablehlo_attributes import GatherDims
from poetc.ir.text import parse_module
from poetc.kernels.analysis import work, workspace_bytes
from poetc.kernels.lower import lower_kernel, plan
from poetc.passes.poet_lower_kernels import PoetLowerKernelsPass

RNG = np.random.default_rng(0)


def wide(x, dims, shape):
    return hlo.BroadcastInDimOp(x, dims, shape)


def nests(function: FuncOp) -> list[affine.ForOp]:
    """The outermost loops."""
    return [op for op in function.body.block.ops if isinstance(op, affine.ForOp)]


def lowered(build, *args: Array) -> FuncOp:
    """The kernel, after checking that it computes the right bits."""
    case = Case.of(build, *args)
    check([case])
    return lower(case.block)


def test_softmax_is_one_nest():
    function = lowered(softmax, floats(RNG, 5, 7))
    (rows,) = nests(function)
    inner = [op for op in rows.body.block.ops if isinstance(op, affine.ForOp)]
    assert [len(op.results) for op in inner] == [1, 1, 0]
    done = work(function)
    assert dict(done.math) == {"exp": 2 * 5 * 7}
    assert workspace_bytes(function) == 0


def test_batch_norm_runs_over_channels_outside():
    shape = (2, 3, 4, 5)

    def build(x):
        total = hlo.ReduceOp(x, scalar(0), (0, 1, 2), "add")
        centred = hlo.SubtractOp(x, wide(total, (3,), shape))
        squares = hlo.ReduceOp(hlo.MultiplyOp(centred, centred), scalar(0), (0, 1, 2), "add")
        scale = hlo.RsqrtOp(squares)
        return [hlo.MultiplyOp(centred, wide(scale, (3,), shape)), total, squares]

    function = lowered(build, floats(RNG, *shape))
    (channels,) = nests(function)
    assert channels.upperBoundMap.data.eval((), ()) == (5,)
    assert dict(work(function).math) == {"rsqrt": 5}
    assert work(function).store_bytes == 4 * (2 * 3 * 4 * 5 + 5 + 5)


def test_sibling_reductions_share_one_pass():
    def build(x, y):
        first = hlo.ReduceOp(x, scalar(0), (0,), "add")
        return [first, hlo.ReduceOp(hlo.MultiplyOp(x, y), scalar(0), (0,), "add")]

    function = lowered(build, floats(RNG, 6, 4), floats(RNG, 6, 4))
    (columns,) = nests(function)
    (rows,) = [op for op in columns.body.block.ops if isinstance(op, affine.ForOp)]
    assert len(rows.results) == 2
    assert work(function).load_bytes == 2 * 4 * 6 * 4


def test_a_reduction_that_needs_another_does_not_share_its_pass():
    def build(x):
        total = hlo.ReduceOp(x, scalar(0), (1,), "add")
        centred = hlo.SubtractOp(x, wide(total, (0,), (6, 4)))
        return [total, hlo.ReduceOp(hlo.MultiplyOp(centred, centred), scalar(0), (1,), "add")]

    function = lowered(build, floats(RNG, 6, 4))
    assert work(function).load_bytes == 2 * 4 * 6 * 4


def test_a_later_nest_loads_what_an_earlier_one_stored():
    def build(x):
        rows = hlo.ReduceOp(hlo.ExponentialOp(x), scalar(0), (1,), "add")
        return [rows, hlo.ReduceOp(rows, scalar(0), (0,), "add")]

    function = lowered(build, floats(RNG, 6, 4))
    assert workspace_bytes(function) == 0
    assert dict(work(function).math) == {"exp": 24}


def test_a_reduction_needed_in_two_orders_goes_to_a_workspace():
    def build(x):
        rows = hlo.ReduceOp(x, scalar(0), (1,), "add")
        scaled = hlo.MultiplyOp(x, wide(rows, (0,), (6, 4)))
        return hlo.ReduceOp(scaled, scalar(0), (0,), "add")

    case = Case.of(build, floats(RNG, 6, 4))
    check([case])
    assert plan(case.block).kept
    function = lower(case.block)
    assert workspace_bytes(function) == 6 * 4
    assert work(function).adds == 6 * 4 + 6 * 4


def test_a_workspace_has_only_the_dimensions_that_outer_loops_do_not_fix():
    """Softmax of a product: one row of the product at a time is enough."""

    def build(a, b):
        return softmax(hlo.DotGeneralOp(a, b, lhs_contract=(1,), rhs_contract=(0,)))

    function = lowered(build, floats(RNG, 6, 3), floats(RNG, 3, 5))
    assert workspace_bytes(function) == 5 * 4
    assert work(function).muls == 6 * 3 * 5
    (rows,) = nests(function)
    assert rows.upperBoundMap.data.eval((), ()) == (6,)


def test_a_product_that_is_a_result_too_needs_no_workspace():
    def build(a, b):
        product = hlo.DotGeneralOp(a, b, lhs_contract=(1,), rhs_contract=(0,))
        return [softmax(product), product]

    function = lowered(build, floats(RNG, 6, 3), floats(RNG, 3, 5))
    assert workspace_bytes(function) == 0
    assert work(function).muls == 6 * 3 * 5
    assert len(nests(function)) == 1


def test_splitting_a_loop_saves_divisions():
    def build(x):
        heads = hlo.TransposeOp(x, (1, 0, 2))
        return hlo.NegateOp(hlo.ReshapeOp(heads, (4, 6)))

    text = str(lowered(build, floats(RNG, 2, 4, 3)))
    assert "floordiv" not in text and "mod" not in text


def test_unit_dimensions_have_no_loops():
    function = lowered(
        lambda x: hlo.NegateOp(hlo.ReshapeOp(x, (1, 4, 1, 3, 1))), floats(RNG, 1, 4, 3)
    )
    (outer,) = nests(function)
    assert str(function).count("affine.for") == 2
    assert outer.upperBoundMap.data.eval((), ()) == (4,)


def test_a_long_chain_of_operations():
    def build(x):
        for _ in range(400):
            x = hlo.NegateOp(hlo.AddOp(x, x))
        return x

    function = lower(Case.of(build, floats(RNG, 3)).block)
    assert work(function).adds == 3 * 800


def test_one_element_needs_no_loop():
    function = lowered(lambda x, y: hlo.AddOp(x, y), floats(RNG, 1, 1), floats(RNG, 1, 1))
    assert not nests(function)


def test_empty_tensors():
    function = lowered(
        lambda x: [hlo.NegateOp(x), hlo.ReduceOp(x, scalar(2), (0,), "add")], floats(RNG, 0, 3)
    )
    assert work(function).store_bytes == 3 * 4


def test_a_table_of_constants_becomes_a_global():
    table = np.array([1, 2, 3], np.float32)
    case = Case.of(lambda x: hlo.AddOp(x, hlo.ConstantOp(table)), table)
    kernel = lower_kernel(case.block, "scale")
    (buffer,) = kernel.globals
    assert buffer.sym_name.data == "scale_table0"
    assert any(isinstance(op, memref.GetGlobalOp) for op in kernel.function.walk())
    kernel.function.verify()


def test_reduce_window_must_start_from_the_identity():
    x = floats(RNG, 4)
    for init, message in ((0.0, None), (1.0, "identity of add")):
        case = Case.of(
            lambda v, i=init: hlo.ReduceWindowOp(v, scalar(i), (2,), "add", (1,), ((1, 0),)), x
        )
        if message is None:
            check([case])
        else:
            with pytest.raises(InputError, match=message):
                lower(case.block)


def test_a_guard_never_depends_on_memory():
    """What is gathered from a padded, joined or refolded tensor is put in a buffer first."""
    dnums = GatherDims((1,), (0,), (), (), (0,), 1)
    x, rows = floats(RNG, 4, 6), np.array([[0], [5], [-3], [9]], np.int32)
    builds = [
        lambda x: hlo.PadOp(x, scalar(7), (1, 0), (1, 0), (0, 0)),
        lambda x: hlo.ConcatenateOp([x, hlo.NegateOp(x)], 0),
        lambda x: hlo.ReshapeOp(hlo.NegateOp(x), (8, 3)),
    ]
    cases = [
        Case.of(lambda x, i, b=b: hlo.GatherOp(b(x), i, dnums, (1, 3)), x, rows) for b in builds
    ]
    check(cases)
    for case in cases:
        assert workspace_bytes(lower(case.block)) > 0


def test_rows_that_are_counted_are_not_gathered():
    dnums = GatherDims((1,), (0,), (), (), (0,), 1)

    def build(x):
        return hlo.GatherOp(x, hlo.IotaOp(TensorType(i32, (4, 1)), 0), dnums, (1, 3))

    function = lowered(build, floats(RNG, 5, 3))
    assert not any(isinstance(op, memref.LoadOp) for op in function.walk())
    assert work(function).int_ops == 0


# The pass


def apply(text: str) -> ModuleOp:
    module = parse_module(text, "test.mlir")
    PoetLowerKernelsPass().apply(Context(), module)
    module.verify()
    return module


GRAPH = """
poet.graph @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
  %a = poet.compute "neg" (%p = %x : tensor<4xf32>) -> tensor<4xf32> {{
    %0 = stablehlo.negate %p : tensor<4xf32>
    poet.yield %0 : tensor<4xf32>
  }}
  %b = poet.compute "neg" (%q = %a : tensor<4xf32>) -> tensor<4xf32> {inplace} {{
    %1 = stablehlo.{op} %q : tensor<4xf32>
    poet.yield %1 : tensor<4xf32>
  }}
  poet.return %b : tensor<4xf32>
}}
"""


def kernels(module: ModuleOp) -> list[str]:
    return [op.sym_name.data for op in module.ops if isinstance(op, FuncOp)]


def test_equal_bodies_share_a_kernel():
    assert kernels(apply(GRAPH.format(op="negate", inplace=""))) == ["neg"]


def test_in_place_kernels_are_apart():
    assert kernels(apply(GRAPH.format(op="negate", inplace="inplace [[0, 0]]"))) == [
        "neg",
        "neg_1",
    ]


def test_different_bodies_with_one_label_get_a_number():
    assert kernels(apply(GRAPH.format(op="abs", inplace=""))) == ["neg", "neg_1"]


def test_the_pass_keeps_kernels_that_exist():
    module = apply(GRAPH.format(op="abs", inplace=""))
    before = str(module)
    PoetLowerKernelsPass().apply(Context(), module)
    assert str(module) == before
