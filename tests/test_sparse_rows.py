"""Updates of tables in the rows alone that change: the same bits, and what they take."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import FLAGS, SANITIZE, bring, build
from compiled import run as run_program
from kernel_harness import Case, compile_functions, lower, run, same_bits
from test_interpreter_kernels import buffers_for
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from poetc.cli import main
from poetc.errors import InputError
from poetc.interpreter.kernels import run_kernel
from poetc.ir import stablehlo as hlo
from poetc.ir.graph import graphs
from poetc.ir.stablehlo_attributes import ScatterDims
from poetc.ir.symbols import named_in
from poetc.ir.text import module_text, parse_module
from poetc.kernels.addresses import COPIES
from poetc.kernels.analysis import may_alias, work
from poetc.kernels.arrange.sparse import in_rows
from poetc.planning.plan import schedule_and_plan

ROWS = ScatterDims((1,), (0,), (), (), (0,), 1)
TABLE = 2  # the number of the operand
Array = np.ndarray[Any, Any]
Build = Callable[..., Any]


def splat(number: float, like: Any) -> hlo.ConstantOp:
    return hlo.ConstantOp.splat(number, like.type)


def gradient(ids: Any, new: Any, table: Any, start: float = 0.0) -> hlo.ScatterOp:
    return hlo.ScatterOp(splat(start, table), ids, new, ROWS)


def descend(rate: float) -> Build:
    def build(ids: Any, new: Any, table: Any) -> Any:
        by = hlo.MultiplyOp(gradient(ids, new, table), splat(rate, table))
        return hlo.SubtractOp(table, by)

    return build


def expected(ids: Array, new: Array, table: Array, rate: float) -> Array:
    """Row by row, in the order of the updates; what falls outside is left out."""
    result, number = table.copy(), table.dtype.type
    with np.errstate(all="ignore"):
        for row in {int(row) for row in ids[:, 0]} & set(range(len(table))):
            total = np.zeros(table.shape[1], table.dtype)
            for at in np.flatnonzero(ids[:, 0] == row):
                total = total + new[at]
            result[row] = table[row] - total * number(rate)
    return result


def case(rng: np.random.Generator, rate: float) -> Case:
    """A large table, a few updates; in it are zeros of both signs, and what is no number."""
    count, width = int(rng.integers(8, 20)), int(rng.integers(1, 5))
    rows = int(rng.integers(1400, 70000))
    ends = np.array([-1, 0, rows - 1, rows])
    few = rng.choice([*ends, *rng.integers(0, rows, 4)], int(rng.integers(1, 4)))
    some = np.concatenate([ends, rng.integers(0, rows, count - len(ends))])
    kinds = (rng.permutation(some), rng.choice(few, count), np.full(count, few[0]))
    ids = kinds[rng.integers(3)].astype(np.int32)[:, None]
    dtype = np.float32 if rng.random() < 0.8 else np.int32
    new = (rng.normal(size=(count, width)) * 9).astype(dtype)
    table = (rng.normal(size=(rows, width)) * 9).astype(dtype)
    if dtype == np.float32:
        table[rng.random(table.shape) < 0.2] = -0.0
        table[rng.random(table.shape) < 0.1] = np.inf
        table[rng.random(table.shape) < 0.1] = np.nan
    return Case.of(descend(rate), ids, new, table, note=str(rate))


@pytest.mark.slow
def test_the_same_bits_in_place_and_not():
    rng = np.random.default_rng(5)
    rates = rng.choice([0.0, 0.25, 1.0, 3.0], 24)
    cases = [case(rng, rate) for rate in rates]
    assert {len(np.unique(c.args[0])) == 1 for c in cases} == {True, False}
    outside = [(c.args[0] < 0) | (c.args[0] >= len(c.args[TABLE])) for c in cases]
    assert {(bool(each.any()), bool(each.all())) for each in outside} >= {
        (True, False),
        (False, False),
    }
    assert {c.args[TABLE].dtype for c in cases} == {np.dtype("f4"), np.dtype("i4")}
    functions: list[FuncOp] = []
    for i, each in enumerate(cases):
        dense = lower(each.block)
        function = in_rows(dense, [(0, TABLE)])
        assert function is not dense
        function.verify()
        function.properties["sym_name"] = type(function.sym_name)(f"kernel{i}")
        functions.append(function)
    library = compile_functions(functions)
    for each, function, rate in zip(cases, functions, rates, strict=True):
        right = expected(each.args[0], each.args[1], each.args[2], rate)
        assert may_alias(function, 0, TABLE)
        for pairs in ([], [(0, TABLE)]):
            assert same_bits(run(library, function, each.args, pairs)[0], right), each
        buffers = buffers_for(function, each.args)
        run_kernel(function, buffers)
        assert same_bits(buffers[3], right), each


def kernel_of(build: Build, rows: int = 4096, dtype: Any = np.float32) -> FuncOp:
    floats = [np.ones((8, 16), dtype), np.ones((rows, 16), dtype)]
    return lower(Case.of(build, np.zeros((8, 1), np.int32), *floats).block)


def test_work_is_that_of_the_rows_that_change():
    """In place; a program that reads the kernel finds the same."""
    dense = kernel_of(descend(0.1))
    sparse = in_rows(dense, [(0, TABLE)])
    assert work(dense).stores >= 4096 * 16
    assert work(sparse).iterations < work(dense).iterations / 20
    assert work(sparse).loads < work(dense).loads / 20
    larger = in_rows(kernel_of(descend(0.1), rows=8192), [(0, TABLE)])
    assert work(larger).iterations <= work(sparse).iterations * 1.2
    (again,) = parse_module(module_text(ModuleOp([sparse.clone()])), "kernel").ops
    assert isinstance(again, FuncOp)
    assert work(again) == work(sparse)
    assert may_alias(again, 0, TABLE)


def memory_rate(ids: Any, new: Any, table: Any, rate: Any) -> Any:
    by = hlo.BroadcastInDimOp(rate, (), table.type.get_shape())
    return hlo.SubtractOp(table, hlo.MultiplyOp(gradient(ids, new, table), by))


def from_one(ids: Any, new: Any, table: Any) -> Any:
    return hlo.SubtractOp(table, gradient(ids, new, table, 1.0))


def added(ids: Any, new: Any, table: Any) -> Any:
    return hlo.AddOp(table, gradient(ids, new, table))


def with_decay(ids: Any, new: Any, table: Any) -> Any:
    old = hlo.MultiplyOp(table, splat(0.99, table))
    return hlo.SubtractOp(old, gradient(ids, new, table))


@pytest.mark.parametrize(
    "build",
    [*map(descend, (-0.1, -0.0, np.inf, np.nan)), from_one, added, with_decay],
)
def test_updates_of_all_rows_stay(build: Build):
    """Of `x - -0.0` and `x + 0.0` the sign of a zero may be another than that of x."""
    function = kernel_of(build)
    assert in_rows(function, [(0, TABLE)]) is function


def test_a_rate_from_memory_may_be_anything():
    args = [np.zeros((8, 1), np.int32), np.ones((8, 16), np.float32)]
    args += [np.ones((4096, 16), np.float32), np.ones((), np.float32)]
    function = lower(Case.of(memory_rate, *args).block)
    assert in_rows(function, [(0, TABLE)]) is function


def test_a_table_that_stays_as_it_was_is_not_updated_in_rows():
    function = kernel_of(descend(0.1))
    assert in_rows(function, []) is function


def test_integers_have_one_zero():
    for step in (added, descend(-3)):
        function = kernel_of(step, dtype=np.int32)
        assert in_rows(function, [(0, TABLE)]) is not function


def test_what_says_that_it_copies_copies():
    text = module_text(ModuleOp([in_rows(kernel_of(descend(0.1)), [(0, TABLE)]).clone()]))
    assert text.count(COPIES) == 1
    (function,) = parse_module(text, "kernel.mlir").ops
    assert isinstance(function, FuncOp)
    loop = next(op for op in function.walk() if COPIES in op.attributes)
    other = next(op for op in function.walk() if op.name == "affine.for" and op is not loop)
    other.attributes[COPIES] = loop.attributes[COPIES]
    with pytest.raises(InputError, match="copies each element to its place"):
        work(function)


def test_a_loop_that_copies_carries_nothing():
    text = """
func.func private @carries(%a: memref<4xf32>, %o: memref<4xf32>)
    attributes {poet.inputs = 1 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
  %zero = arith.constant 0.0 : f32
  %last = affine.for %i = 0 to 4 iter_args(%before = %zero) -> (f32) {
    %each = affine.load %a[%i] : memref<4xf32>
    affine.store %each, %o[%i] : memref<4xf32>
    affine.yield %each : f32
  } {poet.copies}
  affine.store %last, %o[0] : memref<4xf32>
  func.return
}
"""
    (function,) = parse_module(text, "kernel.mlir").ops
    assert isinstance(function, FuncOp)
    with pytest.raises(InputError, match="copies each element to its place"):
        work(function)


STEP = """
func.func public @main(%ids: tensor<8x1xi32>, %g: tensor<8x4xf32>,
    %w: tensor<1500x4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<1500x4xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<1500x4xf32>
  %s = stablehlo.constant dense<0.5> : tensor<1500x4xf32>
  %d = "stablehlo.scatter"(%z, %ids, %g) <{scatter_dimension_numbers = #stablehlo.scatter<
      update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
      index_vector_dim = 1>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
    }) : (tensor<1500x4xf32>, tensor<8x1xi32>, tensor<8x4xf32>) -> tensor<1500x4xf32>
  %m = stablehlo.multiply %d, %s : tensor<1500x4xf32>
  %r = stablehlo.subtract %w, %m : tensor<1500x4xf32>
  return %r : tensor<1500x4xf32>
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("params", ["ram", "storage"])
def test_steps_in_c(params: str, tmp_path: Path):
    rng = np.random.default_rng(6)
    ids = np.array([[7], [1499], [7], [-1], [0], [1500], [7], [31]], np.int32)
    new, table = (rng.normal(size=(n, 4)).astype(np.float32) for n in (8, 1500))
    right = expected(ids, new, expected(ids, new, table, 0.5), 0.5)
    model = bring("step", parse_module(STEP, "step.mlir"), [ids, new, table], [right])
    (kernel,) = named_in(model.module, FuncOp).values()
    assert COPIES in str(kernel)
    module = model.module
    schedule_and_plan(graphs(module)[0], model.options(None, params=params))
    found = run_program(build(module, tmp_path, *SANITIZE), [ids, new, table], [right], 2)
    assert same_bits(found[0], right)


@pytest.mark.slow
def test_a_plan_whose_results_are_all_on_storage_has_no_unused_functions(tmp_path: Path):
    (tmp_path / "step.mlir").write_text(STEP)
    words = ["--ram=3000", "--executor=plan", "--emit=c", "-q", "-o", str(tmp_path / "out")]
    assert main([str(tmp_path / "step.mlir"), *words]) == 0
    command = ["gcc", *FLAGS, "-c", "model.c", "-o", "model.o"]
    subprocess.run(command, cwd=tmp_path / "out", check=True)
