"""The StableHLO dialect: real models, both printed forms, constants, constructors and accessors."""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import MODELS, more
from xdsl.dialects.builtin import (
    ModuleOp,
    TensorType,
    UnrealizedConversionCastOp,
    f32,
    i1,
    i32,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from poetc.ir import dense
from poetc.ir import stablehlo as hlo
from poetc.ir.stablehlo_attributes import ConvDims, GatherDims, ScatterDims
from poetc.ir.text import parse_module
from poetc.ir.types import ELEMENT_TYPES


def printed(op, generic: bool = False) -> str:
    stream = io.StringIO()
    Printer(stream, print_generic_format=generic).print_op(op)
    return stream.getvalue()


def values(*types: str):
    """Values of the types `2x3xf32` and so on, made from nothing."""
    elements = {"f32": f32, "i32": i32, "i1": i1}
    parsed = []
    for text in types:
        *shape, element = text.split("x")
        parsed.append(TensorType(elements[element], [int(n) for n in shape]))
    return UnrealizedConversionCastOp(operands=[[]], result_types=[parsed]).results


PATHS = sorted(MODELS.glob("*.mlir"), key=lambda path: path.stat().st_size)
"""The smallest first."""


@pytest.mark.slow
@pytest.mark.parametrize("path", [*PATHS[:5], *more(*PATHS[5:])], ids=lambda path: path.stem)
def test_model_round_trips(path):
    module = parse_module(path.read_text(), path.name)
    pretty = parse_module(printed(module))
    assert module.is_structurally_equivalent(pretty)
    # The large models have the operations of bert_tiny and resnet8.
    if path.stem not in ("bert_base", "resnet18"):
        generic = parse_module(printed(module, generic=True))
        assert module.is_structurally_equivalent(generic)


def test_jax_reads_what_we_print():
    mlir = pytest.importorskip("jax._src.interpreters.mlir")
    ir = pytest.importorskip("jaxlib.mlir.ir")
    text = (MODELS / "lenet5.mlir").read_text()
    module = parse_module(text)
    with mlir.make_ir_context():
        expected = str(ir.Module.parse(text))
        assert str(ir.Module.parse(printed(module))) == expected
        assert str(ir.Module.parse(printed(module, generic=True))) == expected


# --- constants ----------------------------------------------------------------------------------


def constant(text: str) -> hlo.ConstantOp:
    module = parse_module(f"builtin.module {{\n %0 = stablehlo.constant {text}\n}}")
    (op,) = module.ops
    assert isinstance(op, hlo.ConstantOp)
    for generic in (False, True):
        assert module.is_structurally_equivalent(parse_module(printed(module, generic)))
    return op


@pytest.mark.parametrize(
    "text, bits",
    [
        ("dense<0xFF800000> : tensor<f32>", [0xFF800000]),
        ('dense<"0x000080FF"> : tensor<f32>', [0xFF800000]),
        ('dense<"0x000080FF"> : tensor<3xf32>', [0xFF800000] * 3),
        ("dense<0x7FC00000> : tensor<f32>", [0x7FC00000]),
        ("dense<0xFFC12345> : tensor<f32>", [0xFFC12345]),
        ("dense<0x7F800001> : tensor<f32>", [0x7F800001]),
        ("dense<[0x7F800000, 1.0]> : tensor<2xf32>", [0x7F800000, 0x3F800000]),
        ("dense<[0.0, -0.0]> : tensor<2xf32>", [0, 0x80000000]),
        ("dense<-0.0> : tensor<2xf32>", [0x80000000] * 2),
        ("dense<0.00999999977> : tensor<f32>", [0x3C23D70A]),
        ("dense<123456792> : tensor<f32>", [0x4CEB79A3]),
        ("dense<1.0e10> : tensor<f32>", [0x501502F9]),
        ("dense<1.0e-45> : tensor<f32>", [1]),
        ("dense<1.0e39> : tensor<f32>", [0x7F800000]),
        ("dense<4286578688.0> : tensor<f32>", [0x4F7F8000]),
    ],
)
def test_float_constant_has_its_bits(text, bits):
    array = constant(text).array()
    assert array.dtype == np.float32
    assert array.view(np.uint32).ravel().tolist() == bits


@pytest.mark.parametrize(
    "text, expected",
    [
        ("dense<true> : tensor<i1>", True),
        ("dense<false> : tensor<2xi1>", [False, False]),
        ("dense<[true, false, true]> : tensor<3xi1>", [True, False, True]),
        ('dense<"0x01"> : tensor<i1>', True),
        ('dense<"0x010001"> : tensor<3xi1>', [True, False, True]),
        ('dense<"0xFF00FF"> : tensor<3xi1>', [True, False, True]),
        # Packed by eight, as MLIR printed until 2025.
        ('dense<"0x0502"> : tensor<10xi1>', [1, 0, 1, 0, 0, 0, 0, 0, 0, 1]),
    ],
)
def test_bool_constant(text, expected):
    array = constant(text).array()
    assert array.dtype == np.bool_
    assert array.tolist() == np.array(expected, np.bool_).tolist()
    # `true` is stored in one way only, whatever its spelling.
    assert set(constant(text).value.data.data) <= {0, 0xFF}


def test_equal_constants_are_equal_attributes():
    assert constant("dense<true> : tensor<2xi1>").value == dense.from_array(np.ones(2, bool), i1)
    assert constant("dense<1.0> : tensor<2xf32>").value == dense.from_array(
        np.ones(2, np.float32), f32
    )


@pytest.mark.parametrize("count", [1, 7, 100, 101, 300])
@pytest.mark.parametrize("type", ELEMENT_TYPES.values(), ids=lambda type: type.name)
def test_arrays_survive_print_and_parse(count, type):
    rng = np.random.default_rng(count)
    data = np.frombuffer(rng.bytes(count * type.dtype.itemsize), np.uint8)
    array = data % 2 == 1 if type.dtype == np.bool_ else data.view(type.dtype)
    module = ModuleOp([hlo.ConstantOp(array)])
    (op,) = parse_module(printed(module)).ops
    assert isinstance(op, hlo.ConstantOp)
    assert op.array().tobytes() == array.tobytes()


def test_splat():
    op = hlo.ConstantOp.splat(float("-inf"), TensorType(f32, [2, 2]))
    assert op.array().tolist() == [[-np.inf] * 2] * 2
    assert "dense<0xFF800000> : tensor<2x2xf32>" in printed(op)


# --- constructors and accessors -----------------------------------------------------------------


def reparsed(op: hlo.StablehloOp) -> Iterator[Any]:
    """The op, and what it is after printing and parsing, in both forms."""
    owners = [operand.owner for operand in op.operands if isinstance(operand.owner, Operation)]
    for owner in owners:
        if owner.parent is not None:
            owner.detach()
    module = ModuleOp([*dict.fromkeys(owners), op])
    module.verify()
    yield op
    for generic in (False, True):
        again = parse_module(printed(module, generic))
        assert module.is_structurally_equivalent(again)
        yield again.body.block.last_op
    op.detach()


def test_movement_accessors():
    (x, s) = values("2x3xf32", "f32")
    for op in reparsed(hlo.BroadcastInDimOp(x, (0, 2), (2, 5, 3))):
        assert (op.dims, hlo.shape_of(op)) == ((0, 2), (2, 5, 3))
    for op in reparsed(hlo.TransposeOp(x, (1, 0))):
        assert (op.permutation, hlo.shape_of(op)) == ((1, 0), (3, 2))
    for op in reparsed(hlo.ReverseOp(x, (1,))):
        assert op.dims == (1,)
    for op in reparsed(hlo.SliceOp(x, (0, 0), (1, 3), (1, 2))):
        assert (op.starts, op.limits, op.strides) == ((0, 0), (1, 3), (1, 2))
        assert hlo.shape_of(op) == (1, 2)
    for op in reparsed(hlo.PadOp(x, s, (1, 0), (0, -1), (2, 0))):
        assert (op.low, op.high, op.interior) == ((1, 0), (0, -1), (2, 0))
        assert hlo.shape_of(op) == (5, 2)
    for op in reparsed(hlo.ConcatenateOp([x, x, x], 1)):
        assert (op.dim, len(op.inputs), hlo.shape_of(op)) == (1, 3, (2, 9))
    for op in reparsed(hlo.IotaOp(TensorType(i32, (4, 2)), 1)):
        assert op.dim == 1


def test_compare_accessors():
    (x,) = values("4xi32")
    for op in reparsed(hlo.CompareOp(x, x, "LE", "SIGNED")):
        assert (op.direction, op.compare_type) == ("LE", "SIGNED")
    for op in reparsed(hlo.CompareOp(x, x, "NE")):
        assert (op.direction, op.compare_type) == ("NE", None)


def test_dot_general_accessors():
    a, b = values("2x5x3xf32", "2x3x4xf32")
    for op in reparsed(hlo.DotGeneralOp(a, b, (2,), (1,), (0,), (0,))):
        assert (op.lhs_batch, op.rhs_batch) == ((0,), (0,))
        assert (op.lhs_contract, op.rhs_contract) == ((2,), (1,))
        assert hlo.shape_of(op) == (2, 5, 4)


def test_convolution_accessors():
    x, k = values("1x6x5x2xf32", "3x3x1x4xf32")
    built = hlo.ConvolutionOp(
        x, k, ConvDims.nhwc(), (2, 1), ((1, 1), (0, -1)), (1, 2), (1, 2), feature_groups=2
    )
    for op in reparsed(built):
        assert op.dims == ConvDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
        assert (op.strides, op.padding) == ((2, 1), ((1, 1), (0, -1)))
        assert (op.lhs_dilation, op.rhs_dilation) == ((1, 2), (1, 2))
        assert (op.feature_groups, op.batch_groups) == (2, 1)
        assert hlo.shape_of(op) == (1, 3, 4, 4)


def test_convolution_defaults():
    text = (
        '%x, %k = "builtin.unrealized_conversion_cast"()'
        " : () -> (tensor<1x6x5x2xf32>, tensor<3x3x2x4xf32>)\n"
        "%0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],"
        " window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
        " : (tensor<1x6x5x2xf32>, tensor<3x3x2x4xf32>) -> tensor<1x4x3x4xf32>"
    )
    op = list(parse_module(text).ops)[-1]
    assert isinstance(op, hlo.ConvolutionOp)
    assert (op.strides, op.padding) == ((1, 1), ((0, 0), (0, 0)))
    assert (op.lhs_dilation, op.rhs_dilation) == ((1, 1), (1, 1))


@pytest.mark.parametrize("kind", list(hlo.REDUCERS))
def test_reduction_accessors(kind):
    element = str(hlo.REDUCERS[kind].ELEMENTS[-1])
    x, s = values(f"4x4x{element}", element)
    for op in reparsed(hlo.ReduceOp(x, s, (1,), kind)):
        assert (op.kind, op.dims, hlo.shape_of(op)) == (kind, (1,), (4,))
    window = hlo.ReduceWindowOp(x, s, (2, 2), kind, (2, 1), ((0, 0), (1, 0)), (1, 2), (1, 1))
    for op in reparsed(window):
        assert (op.kind, op.window, op.strides) == (kind, (2, 2), (2, 1))
        assert (op.padding, op.base_dilations) == (((0, 0), (1, 0)), (1, 2))
        assert (op.window_dilations, hlo.shape_of(op)) == ((1, 1), (2, 7))


def test_select_and_scatter_accessors():
    x, source, s = values("4x4xf32", "2x2xf32", "f32")
    for op in reparsed(hlo.SelectAndScatterOp(x, source, s, (2, 2), (2, 2))):
        assert (op.window, op.strides, op.padding) == ((2, 2), (2, 2), ((0, 0), (0, 0)))
        assert (op.select_direction, op.scatter_kind) == ("GE", "add")


def test_gather_and_scatter_accessors():
    x, i, u = values("30x8xf32", "4x1xi32", "4x8xf32")
    gather = GatherDims((1,), (0,), (), (), (0,), 1)
    for op in reparsed(hlo.GatherOp(x, i, gather, (1, 8))):
        assert (op.dnums, op.slice_sizes, hlo.shape_of(op)) == (gather, (1, 8), (4, 8))
    scatter = ScatterDims((1,), (0,), (), (), (0,), 1)
    for op in reparsed(hlo.ScatterOp(x, i, u, scatter)):
        assert (op.dnums, op.kind) == (scatter, "add")


def test_gather_with_batching_dims():
    x, i = values("5x9xf32", "5x1xi32")
    dnums = GatherDims((), (1,), (0,), (0,), (1,), 1)
    for op in reparsed(hlo.GatherOp(x, i, dnums, (1, 1))):
        assert hlo.shape_of(op) == (5,)


def test_reducer_kind_ignores_the_order_of_arguments():
    x, s = values("4xf32", "f32")
    op = hlo.ReduceOp(x, s, (0,), "maximum")
    a, b = op.body.block.args
    body = op.body.block.first_op
    assert body is not None
    body.operands = [b, a]
    assert op.kind == "maximum"
    # The short form has its arguments in order: this body is written out.
    assert "reducer" in printed(op) and "applies" not in printed(op)


# --- verification -------------------------------------------------------------------------------


def test_all_operations_are_pure_and_documented():
    for cls in hlo.OPERATIONS:
        assert cls.__doc__, cls
        assert cls.has_trait(Pure), cls


def test_scatter_by_what_is_no_arithmetic_is_rejected():
    x, i, u = values("30x8xf32", "4x1xi32", "4x8xf32")
    op = hlo.ScatterOp(x, i, u, ScatterDims((1,), (0,), (), (), (0,), 1), "maximum")
    op.verify()
    block = op.body.block
    end = block.last_op
    assert end is not None
    block.insert_op_before(hlo.ReshapeOp(block.args[0], ()), end)
    with pytest.raises(VerifyException, match=r"stablehlo.reshape in its body is not supported"):
        op.verify()


def test_generic_form_of_a_function():
    text = (MODELS / "gesture_mlp.mlir").read_text()
    module = parse_module(printed(parse_module(text), generic=True))
    (main, *_) = module.ops
    assert isinstance(main, FuncOp) and isinstance(main.body.block.last_op, ReturnOp)
