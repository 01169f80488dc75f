"""The interpreter's kernels: the same bits as the operations that they were lowered from."""

import numpy as np
import pytest
from compiled import prepare
from kernel_harness import interpret, same_bits
from test_kernels_bodies import random_case
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.memref import GlobalOp
from xdsl.ir import Block

from poetc.interpreter import InterpreterError
from poetc.interpreter.kernels import memory_dtype, run_kernel, tables_of
from poetc.ir.graph import graphs
from poetc.ir.symbols import named_in
from poetc.ir.text import parse_module
from poetc.kernels.lower import lower_kernel


def poisoned(type_) -> np.ndarray:
    """A buffer with bytes that pass for no number."""
    dtype = memory_dtype(type_.element_type)
    size = int(np.prod(type_.get_shape(), dtype=int)) * dtype.itemsize
    return np.full(size, 0xFF, np.uint8).view(dtype).reshape(type_.get_shape())


def buffers_for(function: func.FuncOp, args: list[np.ndarray]) -> list[np.ndarray]:
    """Arguments, and results and workspaces."""
    buffers = [poisoned(argument.type) for argument in function.body.block.args]
    for buffer, array in zip(buffers, args, strict=False):
        buffer[...] = array if array.dtype == bool else array.view(buffer.dtype)
    return buffers


def arguments_for(rng: np.random.Generator, function: func.FuncOp, count: int) -> list[np.ndarray]:
    """Random operands; integers are small and not negative."""
    args = [poisoned(argument.type) for argument in function.body.block.args[:count]]
    for arg in args:
        numbers = rng.normal(size=arg.shape)
        arg[...] = numbers if arg.dtype.kind == "f" else abs(numbers) * 3
    return args


def check(function: func.FuncOp, block: Block, args: list[np.ndarray], tables) -> None:
    buffers = buffers_for(function, args)
    run_kernel(function, buffers, tables=tables)
    for result, other in zip(buffers[len(args) :], interpret(block, args), strict=False):
        found = result.astype(bool) if other.dtype == bool else result.view(other.dtype)
        assert same_bits(found, other), function


@pytest.mark.parametrize("seed", range(2))
def test_random_bodies(seed: int):
    rng = np.random.default_rng(100 + seed)
    for _ in range(40):
        case = random_case(rng)
        kernel = lower_kernel(case.block, "kernel")
        check(kernel.function, case.block, case.args, tables_of(kernel.globals))


@pytest.mark.slow
def test_kernels_of_a_model():
    module = prepare("lenet5").module
    tables = tables_of(named_in(module, GlobalOp).values())
    functions = {f.sym_name.data: f for f in module.ops if isinstance(f, func.FuncOp)}
    rng = np.random.default_rng(1)
    for compute in graphs(module)[0].computes:
        assert compute.kernel is not None
        function = functions[compute.kernel.string_value()]
        check(function, compute.block, arguments_for(rng, function, len(compute.operands)), tables)


def kernel_of(body: str) -> func.FuncOp:
    text = f"""func.func private @k(%in0: memref<4xf32>, %out0: memref<4xf32>)
        attributes {{poet.inputs = 1 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64}} {{
      affine.for %i = 0 to 4 {{
        {body}
      }}
      func.return
    }}"""
    module = parse_module(text)
    assert isinstance(module, ModuleOp)
    function = module.body.block.first_op
    assert isinstance(function, func.FuncOp)
    return function


@pytest.mark.parametrize(
    "body, message",
    [
        (
            "%0 = affine.load %in0[%i + 1] : memref<4xf32>\n"
            "affine.store %0, %out0[%i] : memref<4xf32>",
            "affine.load at 4 in dimension 0 of %in0",
        ),
        (
            "%0 = affine.load %in0[%i] : memref<4xf32>\n"
            "affine.store %0, %out0[%i - 1] : memref<4xf32>",
            "affine.store at -1 in dimension 0 of %out0",
        ),
        (
            "%0 = affine.load %in0[%i] : memref<4xf32>\n"
            "%1 = math.fma %0, %0, %0 : f32\n"
            "affine.store %1, %out0[%i] : memref<4xf32>",
            "cannot interpret math.fma in a kernel",
        ),
    ],
)
def test_what_a_kernel_may_not_do(body: str, message: str):
    function = kernel_of(body)
    with pytest.raises(InterpreterError, match=message):
        run_kernel(function, buffers_for(function, [np.ones(4, np.float32)]))
