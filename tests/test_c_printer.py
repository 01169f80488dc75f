"""Printed kernels compile without warnings and compute what the MLIR says."""

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from c_support import COMPILERS, load_library
from xdsl.context import Context
from xdsl.dialects import affine, arith, func, math, memref
from xdsl.dialects.builtin import Builtin
from xdsl.parser import Parser

from poetc.backends.c.expressions import called_functions, float_literal
from poetc.backends.c.prepare import stored_arguments
from poetc.backends.c.printer import (
    Signature,
    print_function,
    print_prototype,
    print_table,
    tables_of,
)
from poetc.backends.c.runtime_files import RUNTIME, math_sources
from poetc.backends.c.text import c_comment, c_identifier
from poetc.backends.c.together import together_header
from poetc.errors import InputError
from poetc.ir.text import parse_module


def parse(text: str, *, verify: bool = True) -> func.FuncOp:
    context = Context()
    for dialect in (
        Builtin,
        func.Func,
        arith.Arith,
        affine.Affine,
        memref.MemRef,
        math.Math,
    ):
        context.load_dialect(dialect)
    module = Parser(context, text).parse_module()
    if verify:
        module.verify()
    (function,) = module.ops
    assert isinstance(function, func.FuncOp)
    return function


def run(
    text: str,
    buffers: Sequence[np.ndarray],
    tmp_path: Path,
    *,
    overlapping: Sequence[int] = (),
    compiler: str = "gcc",
) -> None:
    """Prints the function, compiles it strictly and calls it on the buffers."""
    function = parse(text)
    signature = Signature("kernel", overlapping=overlapping)
    source = tmp_path / f"{compiler}.c"
    called = called_functions(function)
    files = [source]
    includes = '#include "poetc_scalar.h"\n' + together_header()
    if called:
        header, body = math_sources(called)
        (tmp_path / "poetc_math.h").write_text(header)
        (tmp_path / "poetc_math.c").write_text(body)
        files.append(tmp_path / "poetc_math.c")
        includes += '#include "poetc_math.h"\n'
    source.write_text(
        includes + print_prototype(function, signature) + print_function(function, signature)
    )
    library = load_library(files, tmp_path / f"{compiler}.so", compiler, ("-O2", f"-I{RUNTIME}"))
    library.kernel(*(ctypes.c_void_p(buffer.ctypes.data) for buffer in buffers))


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


SOFTMAX = """
func.func private @softmax(%x: memref<3x5xf32>, %out: memref<3x5xf32>) {
  %low = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  affine.for %i = 0 to 3 {
    %max = affine.for %j = 0 to 5 iter_args(%m = %low) -> (f32) {
      %v = affine.load %x[%i, %j] : memref<3x5xf32>
      %n = arith.maximumf %m, %v : f32
      affine.yield %n : f32
    }
    %sum = affine.for %j = 0 to 5 iter_args(%s = %zero) -> (f32) {
      %v = affine.load %x[%i, %j] : memref<3x5xf32>
      %d = arith.subf %v, %max : f32
      %e = math.exp %d : f32
      %n = arith.addf %s, %e : f32
      affine.yield %n : f32
    }
    affine.for %j = 0 to 5 {
      %v = affine.load %x[%i, %j] : memref<3x5xf32>
      %d = arith.subf %v, %max : f32
      %e = math.exp %d : f32
      %q = arith.divf %e, %sum : f32
      affine.store %q, %out[%i, %j] : memref<3x5xf32>
    }
  }
  func.return
}
"""


@pytest.mark.parametrize("compiler", COMPILERS)
def test_softmax_in_place(compiler: str, tmp_path: Path) -> None:
    x = rng().normal(size=(3, 5)).astype(np.float32)
    exp = np.exp(x - x.max(1, keepdims=True))
    expected = exp / exp.sum(1, keepdims=True)
    run(SOFTMAX, [x, x], tmp_path, overlapping=(0, 1), compiler=compiler)
    np.testing.assert_allclose(x, expected, rtol=1e-6)


def test_restrict_unless_overlapping() -> None:
    function = parse(SOFTMAX)
    assert stored_arguments(function) == {1}
    apart = print_prototype(function, Signature("softmax"))
    assert "const float *restrict x /* 3x5 */, float *restrict out /* 3x5 */" in apart
    assert "restrict" not in print_prototype(function, Signature("softmax", overlapping=(0, 1)))
    assert called_functions(function) == {"poetc_expf"}


def test_printing_leaves_the_ir_alone() -> None:
    function = parse(SOFTMAX.replace("0 to 3", "0 to 1"))
    before = str(function)
    print_function(function, Signature("softmax"))
    assert str(function) == before


@pytest.mark.parametrize("compiler", COMPILERS)
def test_transposed_convolution(compiler: str, tmp_path: Path) -> None:
    """Holes of the dilated operand and padding are guards; i - k is negative for some."""
    text = """
    func.func private @k(%x: memref<4xf32>, %w: memref<3xf32>, %out: memref<9xf32>) {
      %zero = arith.constant 0.0 : f32
      affine.for %i = 0 to 9 {
        %sum = affine.for %k = 0 to 3 iter_args(%acc = %zero) -> (f32) {
          %r = "affine.if"(%i, %k) <{condition = affine_set<(d0, d1) :
              (d0 - d1 >= 0, 6 - d0 + d1 >= 0, (d0 - d1) mod 2 == 0)>}> ({
            %xv = affine.load %x[(%i - %k) floordiv 2] : memref<4xf32>
            %wv = affine.load %w[2 - %k] : memref<3xf32>
            %p = arith.mulf %xv, %wv : f32
            %n = arith.addf %acc, %p : f32
            affine.yield %n : f32
          }, {
            affine.yield %acc : f32
          }) : (index, index) -> f32
          affine.yield %r : f32
        }
        affine.store %sum, %out[%i] : memref<9xf32>
      }
      func.return
    }
    """
    x = rng().normal(size=4).astype(np.float32)
    w = rng().normal(size=3).astype(np.float32)
    out = np.full(9, np.nan, np.float32)
    run(text, [x, w, out], tmp_path, compiler=compiler)
    dilated = np.zeros(7, np.float32)
    dilated[::2] = x
    np.testing.assert_allclose(out, np.convolve(dilated, w[::-1]), rtol=1e-6)


def test_accumulators_that_cannot_share_a_variable(tmp_path: Path) -> None:
    """The value before the inner loop is read after it, in a sibling and in the same block."""
    text = """
    func.func private @k(%x: memref<4x3xf32>, %out: memref<2xf32>) {
      %zero = arith.constant 0.0 : f32
      %one = arith.constant 1.0 : f32
      %s, %t = affine.for %i = 0 to 4 iter_args(%a = %zero, %b = %one) -> (f32, f32) {
        %inner = affine.for %j = 0 to 3 iter_args(%c = %a) -> (f32) {
          %v = affine.load %x[%i, %j] : memref<4x3xf32>
          %n = arith.addf %c, %v : f32
          affine.yield %n : f32
        }
        %product = arith.mulf %a, %b : f32
        %next = arith.addf %product, %one : f32
        affine.yield %inner, %next : f32, f32
      }
      affine.store %s, %out[0] : memref<2xf32>
      affine.store %t, %out[1] : memref<2xf32>
      func.return
    }
    """
    x = rng().integers(-3, 4, (4, 3)).astype(np.float32)
    out = np.zeros(2, np.float32)
    run(text, [x, out], tmp_path)
    a, b = np.float32(0), np.float32(1)
    for row in x:
        a, b = a + row.sum(), a * b + 1
    np.testing.assert_array_equal(out, [a, b])


def test_swapped_accumulators_and_nested_guards(tmp_path: Path) -> None:
    text = """
    func.func private @k(%x: memref<6xf32>, %out: memref<2xf32>) {
      %zero = arith.constant 0.0 : f32
      %one = arith.constant 1.0 : f32
      %s, %t = affine.for %i = 0 to 6 iter_args(%a = %zero, %b = %one) -> (f32, f32) {
        %p, %q = "affine.if"(%i) <{condition = affine_set<(d0) : (d0 - 2 >= 0)>}> ({
          %v = affine.load %x[%i] : memref<6xf32>
          %m = arith.addf %b, %v : f32
          affine.yield %m, %a : f32, f32
        }, {
          %r = "affine.if"(%i) <{condition = affine_set<(d0) : (d0 == 0)>}> ({
            %w = arith.addf %a, %one : f32
            affine.yield %w : f32
          }, {
            affine.yield %b : f32
          }) : (index) -> f32
          affine.yield %b, %r : f32, f32
        }) : (index) -> (f32, f32)
        affine.yield %p, %q : f32, f32
      }
      affine.store %s, %out[0] : memref<2xf32>
      affine.store %t, %out[1] : memref<2xf32>
      func.return
    }
    """
    x = rng().integers(-3, 4, 6).astype(np.float32)
    out = np.zeros(2, np.float32)
    run(text, [x, out], tmp_path)
    a, b = 0.0, 1.0
    for i, v in enumerate(x):
        if i >= 2:
            a, b = b + v, a
        else:
            a, b = b, (a + 1 if i == 0 else b)
    np.testing.assert_array_equal(out, [a, b])


def test_carried_index(tmp_path: Path) -> None:
    """The choice of select_and_scatter: a loop carries the position of the maximum."""
    text = """
    func.func private @k(%x: memref<3x4xf32>, %out: memref<3xi32>) {
      %low = arith.constant 0xFF800000 : f32
      %c0 = arith.constant 0 : index
      affine.for %i = 0 to 3 {
        %m, %at = affine.for %j = 0 to 4 iter_args(%a = %low, %p = %c0) -> (f32, index) {
          %v = affine.load %x[%i, %j] : memref<3x4xf32>
          %keep = arith.cmpf oge, %a, %v : f32
          %n = arith.select %keep, %a, %v : f32
          %q = arith.select %keep, %p, %j : index
          affine.yield %n, %q : f32, index
        }
        %k = arith.index_cast %at : index to i32
        affine.store %k, %out[%i] : memref<3xi32>
      }
      func.return
    }
    """
    x = rng().integers(0, 3, (3, 4)).astype(np.float32)
    out = np.zeros(3, np.int32)
    run(text, [x, out], tmp_path)
    np.testing.assert_array_equal(out, x.argmax(1))


@pytest.mark.parametrize("compiler", COMPILERS)
def test_booleans_are_zero_or_one_bytes(compiler: str, tmp_path: Path) -> None:
    text = """
    func.func private @k(
        %a: memref<6xi1>, %x: memref<6xf32>, %out: memref<6xi1>, %f: memref<6xf32>) {
      %zero = arith.constant 0.0 : f32
      %true = arith.constant true
      affine.for %i = 0 to 6 {
        %p = affine.load %a[%i] : memref<6xi1>
        %v = affine.load %x[%i] : memref<6xf32>
        %q = arith.cmpf olt, %v, %zero : f32
        %not = arith.xori %p, %true : i1
        %and = arith.andi %not, %q : i1
        %or = arith.ori %and, %p : i1
        %n = arith.uitofp %or : i1 to f32
        affine.store %or, %out[%i] : memref<6xi1>
        affine.store %n, %f[%i] : memref<6xf32>
      }
      func.return
    }
    """
    a = np.array([0, 1, 7, 0, 255, 0], np.uint8)  # anything but 0 is true
    x = np.array([-1, -1, 1, 1, np.nan, -0.0], np.float32)
    out, f = np.full(6, 9, np.uint8), np.zeros(6, np.float32)
    run(text, [a, x, out, f], tmp_path, compiler=compiler)
    expected = [1, 1, 1, 0, 1, 0]
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(f, expected)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_integers_wrap_and_conversions_saturate(compiler: str, tmp_path: Path) -> None:
    text = """
    func.func private @k(%a: memref<5xi32>, %x: memref<5xf32>, %out: memref<3x5xi32>) {
      %big = arith.constant 2147483647 : i32
      affine.for %i = 0 to 5 {
        %v = affine.load %a[%i] : memref<5xi32>
        %sum = arith.addi %v, %big : i32
        %product = arith.muli %v, %big : i32
        %f = affine.load %x[%i] : memref<5xf32>
        %n = arith.fptosi %f : f32 to i32
        affine.store %sum, %out[0, %i] : memref<3x5xi32>
        affine.store %product, %out[1, %i] : memref<3x5xi32>
        affine.store %n, %out[2, %i] : memref<3x5xi32>
      }
      func.return
    }
    """
    a = np.array([1, -1, 2147483647, -2147483648, 12345], np.int32)
    x = np.array([np.nan, 3e9, -np.inf, -2.9, 2147483520.0], np.float32)
    out = np.zeros((3, 5), np.int32)
    run(text, [a, x, out], tmp_path, compiler=compiler)
    big = np.int32(2147483647)
    np.testing.assert_array_equal(out[0], a + big)
    np.testing.assert_array_equal(out[1], a * big)
    np.testing.assert_array_equal(out[2], [0, 2147483647, -2147483648, -2, 2147483520])


@pytest.mark.parametrize("limit", [None, "0.0", "-0.0", "1.5", "0x7F800000", "0xFF800000"])
def test_maximum_and_minimum(limit: str | None, tmp_path: Path) -> None:
    """NaN is propagated, -0 is less than +0; with a variable and with a constant operand."""
    values = np.array([0.0, -0.0, 1.5, -3, np.inf, -np.inf, np.nan], np.float32)
    x, y = (grid.ravel() for grid in np.meshgrid(values, values))
    x = np.ascontiguousarray(x)
    operand = "%y" if limit is None else "%limit"
    constant = "" if limit is None else f"%limit = arith.constant {limit} : f32"
    text = f"""
    func.func private @k(%a: memref<49xf32>, %b: memref<49xf32>, %out: memref<2x49xf32>) {{
      {constant}
      affine.for %i = 0 to 49 {{
        %x = affine.load %a[%i] : memref<49xf32>
        %y = affine.load %b[%i] : memref<49xf32>
        %max = arith.maximumf %x, {operand} : f32
        %min = arith.minimumf {operand}, %x : f32
        affine.store %max, %out[0, %i] : memref<2x49xf32>
        affine.store %min, %out[1, %i] : memref<2x49xf32>
      }}
      func.return
    }}
    """
    out = np.zeros((2, 49), np.float32)
    run(text, [x, np.ascontiguousarray(y), out], tmp_path)
    if limit is not None:
        exact = float(limit) if "x" not in limit else np.inf if limit[2] == "7" else -np.inf
        y = np.full(49, exact, np.float32)

    def key(value: np.float32) -> tuple[float, bool]:
        return float(value), not np.signbit(value)

    for i, (a, b) in enumerate(zip(x, y, strict=True)):
        if np.isnan(a) or np.isnan(b):
            assert np.isnan(out[:, i]).all()
            continue
        expected = np.array([max(a, b, key=key), min(a, b, key=key)], np.float32)
        assert out[:, i].tobytes() == expected.tobytes()


def test_all_comparisons_of_floats(tmp_path: Path) -> None:
    relations = {
        "oeq": lambda a, b: a == b,
        "ogt": lambda a, b: a > b,
        "oge": lambda a, b: a >= b,
        "olt": lambda a, b: a < b,
        "ole": lambda a, b: a <= b,
        "one": lambda a, b: (a < b) | (a > b),
        "ord": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
        "ueq": lambda a, b: ~((a < b) | (a > b)),
        "ugt": lambda a, b: ~(a <= b),
        "uge": lambda a, b: ~(a < b),
        "ult": lambda a, b: ~(a >= b),
        "ule": lambda a, b: ~(a > b),
        "une": lambda a, b: a != b,
        "uno": lambda a, b: np.isnan(a) | np.isnan(b),
    }
    body = "".join(
        f"%c{i} = arith.cmpf {name}, %x, %y : f32\n"
        f"affine.store %c{i}, %out[{i}, %i] : memref<14x9xi1>\n"
        for i, name in enumerate(relations)
    )
    text = f"""
    func.func private @k(%a: memref<9xf32>, %b: memref<9xf32>, %out: memref<14x9xi1>) {{
      affine.for %i = 0 to 9 {{
        %x = affine.load %a[%i] : memref<9xf32>
        %y = affine.load %b[%i] : memref<9xf32>
        {body}
      }}
      func.return
    }}
    """
    a, b = (
        np.ascontiguousarray(grid.ravel())
        for grid in np.meshgrid(
            np.array([1, 2, np.nan], np.float32), np.array([1, 2, np.nan], np.float32)
        )
    )
    out = np.zeros((14, 9), np.uint8)
    run(text, [a, b, out], tmp_path)
    for row, relation in zip(out, relations.values(), strict=True):
        np.testing.assert_array_equal(row, relation(a, b))


def test_names_that_c_does_not_allow(tmp_path: Path) -> None:
    text = """
    func.func private @k(%float: memref<3xf32>, %int: memref<3xf32>) {
      affine.for %for = 0 to 3 {
        %double = affine.load %float[%for] : memref<3xf32>
        %if.x$1 = arith.addf %double, %double : f32
        %return = arith.mulf %if.x$1, %double : f32
        %2 = arith.addf %if.x$1, %return : f32
        affine.store %2, %int[%for] : memref<3xf32>
      }
      func.return
    }
    """
    x, out = np.array([1, 2, 3], np.float32), np.zeros(3, np.float32)
    run(text, [x, out], tmp_path)
    np.testing.assert_array_equal(out, 2 * x + 2 * x * x)


def test_long_expressions_are_broken() -> None:
    loads = "".join(f"%v{i} = affine.load %x[%i, {i}] : memref<99x40xf32>\n" for i in range(40))
    sums = "%s0 = arith.mulf %v0, %v0 : f32\n" + "".join(
        f"%s{i} = arith.addf %s{i - 1}, %v{i} : f32\n" for i in range(1, 40)
    )
    function = parse(f"""
    func.func private @k(%x: memref<99x40xf32>, %out: memref<99xf32>) {{
      affine.for %i = 0 to 99 {{
        {loads}{sums}
        affine.store %s39, %out[%i] : memref<99xf32>
      }}
      func.return
    }}
    """)
    lines = print_function(function, Signature("kernel")).splitlines()
    assert max(map(len, lines)) <= 100


def test_tables_of_constants(tmp_path: Path) -> None:
    """In flash; infinities and NaN are bits there, as C has no constant expression for them."""
    module = parse_module(
        """
        "memref.global"() <{sym_name = "steps", type = memref<4xf32>, sym_visibility = "private",
          initial_value = dense<[0.1, -2.5, 1.0e-45, 3.0e38]> : tensor<4xf32>, constant}> : () -> ()
        "memref.global"() <{sym_name = "limits", type = memref<4xf32>, sym_visibility = "private",
          initial_value = dense<[0x7F800000, 0xFF800000, 0x7FC00000, -0.0]> : tensor<4xf32>,
          constant}> : () -> ()
        "memref.global"() <{sym_name = "mask", type = memref<2x2xi1>, sym_visibility = "private",
          initial_value = dense<[[true, false], [true, true]]> : tensor<2x2xi1>, constant}>
          : () -> ()
        "memref.global"() <{sym_name = "sevens", type = memref<4xi32>, sym_visibility = "private",
          initial_value = dense<7> : tensor<4xi32>, constant}> : () -> ()
        func.func @k(%a: memref<4xf32>, %b: memref<4xf32>, %c: memref<2x2xi1>, %d: memref<4xi32>) {
          %steps = memref.get_global @steps : memref<4xf32>
          %limits = memref.get_global @limits : memref<4xf32>
          %mask = memref.get_global @mask : memref<2x2xi1>
          %sevens = memref.get_global @sevens : memref<4xi32>
          affine.for %i = 0 to 4 {
            %v = affine.load %steps[%i] : memref<4xf32>
            affine.store %v, %a[%i] : memref<4xf32>
            %l = affine.load %limits[%i] : memref<4xf32>
            affine.store %l, %b[%i] : memref<4xf32>
            %m = affine.load %mask[%i floordiv 2, %i mod 2] : memref<2x2xi1>
            affine.store %m, %c[%i floordiv 2, %i mod 2] : memref<2x2xi1>
            %s = affine.load %sevens[%i] : memref<4xi32>
            affine.store %s, %d[%i] : memref<4xi32>
          }
          func.return
        }
        """
    )
    (function,) = (op for op in module.ops if isinstance(op, func.FuncOp))
    signature = Signature("kernel")
    source = tmp_path / "tables.c"
    source.write_text(
        '#include "poetc_scalar.h"\n'
        + "".join(map(print_table, tables_of(function)))
        + print_prototype(function, signature)
        + print_function(function, signature)
    )
    flags = ("-O2", f"-I{RUNTIME}", "-DIN_SECTION=")
    library = load_library([source], tmp_path / "tables.so", flags=flags)
    a, b = np.zeros(4, np.float32), np.zeros(4, np.float32)
    c, d = np.zeros(4, np.uint8), np.zeros(4, np.int32)
    library.kernel(*(ctypes.c_void_p(buffer.ctypes.data) for buffer in (a, b, c, d)))
    assert a.tobytes() == np.array([0.1, -2.5, 1e-45, 3e38], np.float32).tobytes()
    assert b.tobytes() == np.array([np.inf, -np.inf, np.nan, -0.0], np.float32).tobytes()
    assert c.tolist() == [1, 0, 1, 1] and d.tolist() == [7] * 4


@pytest.mark.parametrize(
    "value",
    [0.0, -0.0, 1.0, 0.1, -3.25e-9, 1e30, 123456.0, 16777216.0, 1e-45, -1.1e-38, 3.4028235e38],
)
def test_float_literals_are_exact(value: float) -> None:
    text = float_literal(value).text
    assert text.endswith("f")
    parsed = float.fromhex(text[:-1]) if "0x" in text else float(text[:-1])
    assert np.float32(parsed).tobytes() == np.float32(value).tobytes()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.inf, "poetc_float(0x7f800000u)"),
        (-np.inf, "poetc_float(0xff800000u)"),
        (np.nan, "poetc_float(0x7fc00000u)"),
    ],
)
def test_literals_that_are_no_numbers(value: float, text: str) -> None:
    assert float_literal(value).text == text


def test_identifiers_and_comments() -> None:
    assert c_identifier("conv.1-x") == "conv_1_x"
    assert c_identifier("_1") == "x1"
    assert c_comment("ends */ here") == "/* ends * / here */"
    assert all(len(line) <= 100 for line in c_comment("word " * 100).splitlines())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "func.func @k(%x: f64) -> f64 { func.return %x : f64 }",
            "no type for f64",
        ),
        (
            "func.func @k(%x: f32) -> f32 { %y = math.erf %x : f32\nfunc.return %y : f32 }",
            "math.erf",
        ),
        (
            "func.func @k(%x: f32) -> (f32, f32) { func.return %x, %x : f32, f32 }",
            "several values",
        ),
        (
            """func.func @k(%x: memref<4xf32>, %n: memref<1xi32>) {
                 %v = affine.load %n[0] : memref<1xi32>
                 %i = arith.index_cast %v : i32 to index
                 %y = affine.load %x[%i floordiv 2] : memref<4xf32>
                 affine.store %y, %x[0] : memref<4xf32>
                 func.return
               }""",
            "sign of the dividend",
        ),
        (
            """func.func @k(%out: memref<f32>) {
                 %r = affine.for %i = 0 to 4 iter_args(%a = %r) -> (f32) {
                   affine.yield %a : f32
                 }
                 affine.store %r, %out[] : memref<f32>
                 func.return
               }""",
            "affine.for uses %r where it is not defined",
        ),
        (
            """func.func @k(%x: f32, %out: memref<f32>) {
                 affine.store %y, %out[] : memref<f32>
                 %y = arith.negf %x : f32
                 func.return
               }""",
            "affine.store uses %y where it is not defined",
        ),
        (
            """func.func @k(%x: f32) {
                 %t = memref.get_global @t : memref<f32>
                 affine.store %x, %t[] : memref<f32>
                 func.return
               }""",
            "stores to what is not one of its arguments",
        ),
        (
            """func.func @k(%x: memref<4xf32>) {
                 affine.for %i = 0 to 65536 {
                   %v = affine.load %x[%i * 65536] : memref<4xf32>
                   affine.store %v, %x[0] : memref<4xf32>
                 }
                 func.return
               }""",
            "does not fit in 32 bits",
        ),
        (
            """func.func @k(%x: memref<4xf32>) {
                 affine.for %i = 0 to 2147483648 {
                   %v = affine.load %x[0] : memref<4xf32>
                   affine.store %v, %x[0] : memref<4xf32>
                 }
                 func.return
               }""",
            "does not fit in 32 bits",
        ),
    ],
)
def test_what_cannot_be_printed(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        print_function(parse(text, verify=False), Signature("kernel"))
