"""`run_func`: real models against XLA's results, and operations through their IR."""

import math

import numpy as np
import pytest
from conftest import MODELS

from poetc.interpreter import InterpreterError, run_func
from poetc.ir import mathlib
from poetc.ir.text import parse_module

F32 = np.float32


def run(text: str, *args):
    return run_func(parse_module(text, "test.mlir"), args)


def run_op(op: str, operands: str, result: str, *args):
    """Runs one operation in a function, its operands %0, %1, ..."""
    types = [f"tensor<{t}>" for t in operands.split()]
    declared = ", ".join(f"%{i}: {t}" for i, t in enumerate(types))
    (value,) = run(
        f"func.func public @main({declared}) -> tensor<{result}> {{\n"
        f"  %r = {op}\n  func.return %r : tensor<{result}>\n}}",
        *args,
    )
    return value


@pytest.mark.parametrize("name", sorted(path.stem for path in MODELS.glob("*.npz")))
def test_model_agrees_with_xla(name):
    data = np.load(MODELS / f"{name}.npz")
    module = parse_module((MODELS / f"{name}.mlir").read_text(), f"{name}.mlir")
    count = sum(key.startswith("arg") for key in data)
    results = run_func(module, [data[f"arg{i}"] for i in range(count)])
    assert len(results) == len(data) - count
    for i, actual in enumerate(results):
        expected = data[f"out{i}"]
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        error = np.abs(actual.astype(np.float64) - expected).max()
        # Softmax makes the gradient of an attention key's bias zero: what is left is rounding only.
        assert error <= max(3e-5 * np.abs(expected).max(), 1e-12), f"result {i}"


def test_calls_and_several_results():
    text = """
    func.func public @main(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
      %0:2 = func.call @swap(%x, %x) : (tensor<2xf32>, tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)
      func.return %0#0, %0#1 : tensor<2xf32>, tensor<2xf32>
    }
    func.func private @swap(%a: tensor<2xf32>, %b: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
      %0 = stablehlo.negate %a : tensor<2xf32>
      func.return %b, %0 : tensor<2xf32>, tensor<2xf32>
    }
    """  # noqa: E501
    first, second = run(text, np.array([1, -2], F32))
    assert first.tolist() == [1, -2]
    assert second.tolist() == [-1, 2]


def test_arguments_must_match():
    text = "func.func public @f(%x: tensor<2xf32>) { func.return }"
    with pytest.raises(InterpreterError, match="@f takes 1 arguments, got 0"):
        run(text)
    with pytest.raises(
        InterpreterError, match=r"argument 0 of @f must be tensor<2xf32>, got float64"
    ):
        run(text, np.zeros(2))


def test_entry_function():
    two = "func.func public @f() { func.return }\nfunc.func public @g() { func.return }"
    with pytest.raises(InterpreterError, match="neither @main nor exactly one public"):
        run(two)


def test_unknown_operation_is_named():
    with pytest.raises(InterpreterError, match=r"cannot interpret arith.negf"):
        run_op("arith.negf %0 : tensor<f32>", "f32", "f32", np.array(0, F32))


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("exponential", "exp"),
        ("log", "log"),
        ("tanh", "tanh"),
        ("rsqrt", "rsqrt"),
        ("sqrt", "sqrt"),
    ],
)
def test_math_functions_have_the_bits_of_the_generated_code(op, name):
    x = np.array([0.5, 2.0, -1.0, 0.0, -0.0, np.inf, -np.inf, np.nan, 88.0, 1e-40], F32)
    actual = run_op(f"stablehlo.{op} %0 : tensor<10xf32>", "10xf32", "10xf32", x)
    np.testing.assert_array_equal(actual, mathlib.evaluate(name, x))


def test_power():
    x, y = np.array([2, 9, -8, 0], F32), np.array([10, 0.5, 3, 0], F32)
    actual = run_op("stablehlo.power %0, %1 : tensor<4xf32>", "4xf32 4xf32", "4xf32", x, y)
    assert actual.tolist() == [1024, 3, -512, 1]


def test_chlo():
    x = np.array([-3, -0.5, 0, 0.25, 2], F32)
    for op, function in (("erf", math.erf), ("erfc", math.erfc), ("square", lambda v: v * v)):
        actual = run_op(f"chlo.{op} %0 : tensor<5xf32> -> tensor<5xf32>", "5xf32", "5xf32", x)
        assert actual.tolist() == [F32(function(v)) for v in x.tolist()]


def test_integers_wrap_around():
    top, bottom = 2**31 - 1, -(2**31)
    x = np.array([top, bottom], np.int32)
    assert run_op("stablehlo.add %0, %0 : tensor<2xi32>", "2xi32", "2xi32", x).tolist() == [-2, 0]
    assert run_op("stablehlo.negate %0 : tensor<2xi32>", "2xi32", "2xi32", x).tolist() == [
        -top,
        bottom,
    ]
    assert run_op("stablehlo.multiply %0, %0 : tensor<i32>", "i32", "i32", x[0]).tolist() == 1


@pytest.mark.filterwarnings("error")
def test_floats_overflow_silently():
    x = np.array([3e38, 0, -1], F32)
    y = np.array([1e-10, 0, 0], F32)
    quotient = run_op("stablehlo.divide %0, %1 : tensor<3xf32>", "3xf32 3xf32", "3xf32", x, y)
    np.testing.assert_array_equal(quotient, np.array([np.inf, np.nan, -np.inf], F32))
    whole = run_op("stablehlo.convert %0 : (tensor<3xf32>) -> tensor<3xi32>", "3xf32", "3xi32", x)
    assert whole.tolist() == [2**31 - 1, 0, -1]


@pytest.mark.parametrize(
    ("direction", "expected"),
    [
        ("EQ", [False, True, False, True]),
        ("NE", [True, False, True, False]),
        ("LT", [True, False, False, False]),
        ("LE", [True, True, False, True]),
        ("GT", [False, False, False, False]),
        ("GE", [False, True, False, True]),
    ],
)
def test_comparisons_with_nan_and_zeros(direction, expected):
    a, b = np.array([1, 2, np.nan, 0.0], F32), np.array([2, 2, np.nan, -0.0], F32)
    op = f"stablehlo.compare {direction}, %0, %1, FLOAT : "
    types = "(tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>"
    assert run_op(op + types, "4xf32 4xf32", "4xi1", a, b).tolist() == expected


def test_booleans():
    a, b = np.array([True, True, False]), np.array([True, False, False])
    results = [
        run_op(f"stablehlo.{op} %0, %1 : tensor<3xi1>", "3xi1 3xi1", "3xi1", a, b).tolist()
        for op in ("and", "or", "xor")
    ]
    assert results == [[True, False, False], [True, True, False], [False, True, False]]
    assert run_op("stablehlo.not %0 : tensor<3xi1>", "3xi1", "3xi1", a).tolist() == [
        False,
        False,
        True,
    ]


def test_select_with_scalar_predicate():
    select = "stablehlo.select %0, %1, %2 : tensor<i1>, tensor<2xf32>"
    a, b = np.array([1, 2], F32), np.array([3, 4], F32)
    for pred, expected in ((True, a), (False, b)):
        actual = run_op(select, "i1 2xf32 2xf32", "2xf32", np.array(pred), a, b)
        assert actual.tolist() == expected.tolist()


def test_constants_keep_their_bits():
    values = run(
        """func.func public @main() -> (tensor<f32>, tensor<2xf32>, tensor<2xi1>) {
          %0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
          %1 = stablehlo.constant dense<[0x7FC00000, -0.0]> : tensor<2xf32>
          %2 = stablehlo.constant dense<[true, false]> : tensor<2xi1>
          func.return %0, %1, %2 : tensor<f32>, tensor<2xf32>, tensor<2xi1>
        }"""
    )
    assert values[0] == -np.inf
    assert np.isnan(values[1][0])
    assert np.signbit(values[1][1])
    assert values[2].tolist() == [True, False]


def test_convolution_with_negative_padding():
    # The gradient of a 1x1 kernel under stride 2, as JAX writes it.
    op = (
        "stablehlo.convolution(%0, %1) dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f], "
        "window = {stride = [1, 1], pad = [[0, -1], [0, -1]], lhs_dilate = [1, 1], "
        "rhs_dilate = [2, 2], reverse = [false, false]} "
        "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} : "
        "(tensor<1x4x4x1xf32>, tensor<1x2x2x1xf32>) -> tensor<1x1x1x1xf32>"
    )
    x, y = np.arange(16, dtype=F32).reshape(1, 4, 4, 1), np.ones((1, 2, 2, 1), F32)
    actual = run_op(op, "1x4x4x1xf32 1x2x2x1xf32", "1x1x1x1xf32", x, y)
    assert actual.item() == 0 + 2 + 8 + 10


def test_reduce_window_needs_an_identity_only_in_padding():
    def pool(low):
        extent = 4 + low
        return (
            '"stablehlo.reduce_window"(%0, %1) '
            f"<{{padding = dense<[[{low}, 0]]> : tensor<1x2xi64>, "
            "window_dimensions = array<i64: 2>, window_strides = array<i64: 1>}> ({\n"
            "^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
            "  %s = stablehlo.add %a, %b : tensor<f32>\n"
            "  stablehlo.return %s : tensor<f32>\n"
            f"}}) : (tensor<4xf32>, tensor<f32>) -> tensor<{extent - 1}xf32>"
        )

    x = np.array([1, 2, 3, 4], F32)
    one, zero = np.array(1, F32), np.array(0, F32)
    assert run_op(pool(0), "4xf32 f32", "3xf32", x, one).tolist() == [4, 6, 8]
    assert run_op(pool(1), "4xf32 f32", "4xf32", x, zero).tolist() == [1, 3, 5, 7]
    with pytest.raises(InterpreterError, match="must start from the identity of add"):
        run_op(pool(1), "4xf32 f32", "4xf32", x, one)
