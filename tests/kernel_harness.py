"""Runs lowered kernels as C and compares them with the interpreter, bit for bit."""

import ctypes
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from xdsl.dialects import affine, func, memref
from xdsl.dialects.builtin import MemRefType, ModuleOp, TensorType
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue

import poetc.backends.c
from poetc.backends.c.printer import Signature, print_function, print_table
from poetc.backends.c.together import together_header
from poetc.interpreter.functions import run_block
from poetc.ir import mathlib, poet
from poetc.ir.dense import dtype_of
from poetc.ir.types import ELEMENT_TYPES, is_float
from poetc.kernels import analysis
from poetc.kernels.access import value_of
from poetc.kernels.addresses import extent_of
from poetc.kernels.lower import lower_kernel

_RUNTIME = Path(poetc.backends.c.__file__).parent / "runtime"

Array = np.ndarray[Any, Any]
ELEMENTS = {type.dtype: type.mlir for type in ELEMENT_TYPES.values()}
MARGIN = 64  # elements around each buffer that a kernel must neither read nor write


def body(build: Callable[..., Any], args: Sequence[Array]) -> Block:
    """A compute body: `build` gets the block arguments and returns one value or a list of them.

    Operations are added to the block in the order in which their results are needed.
    """
    block = Block(arg_types=[TensorType(ELEMENTS[a.dtype], a.shape) for a in args])
    built = build(*block.args)
    results = built if isinstance(built, list | tuple) else [built]
    values = [SSAValue.get(result) for result in results]
    seen: set[Operation] = set()

    def add(value: SSAValue) -> None:
        op = value.owner
        if isinstance(op, Operation) and op not in seen:
            seen.add(op)
            for operand in op.operands:
                add(operand)
            block.add_op(op)

    for value in values:
        add(value)
    block.add_op(poet.YieldOp(*values))
    for op in block.ops:
        op.verify()
    return block


def lower(block: Block) -> func.FuncOp:
    """The function of a body that reads no tables."""
    return lower_kernel(block).function


@dataclass(repr=False)
class Case:
    """A body and arguments for it."""

    block: Block
    args: list[Array]
    note: str = ""
    function: func.FuncOp | None = None
    tables: tuple[memref.GlobalOp, ...] = ()

    def __repr__(self) -> str:
        text = "; ".join(map(str, self.block.ops))
        return f"{self.note}: {text} on {self.args}"

    @staticmethod
    def of(build: Callable[..., Any], *args: Array, note: str = "") -> "Case":
        return Case(body(build, args), list(args), note)


def module_of(cases: Sequence[Case]) -> tuple[ModuleOp, list[Array]]:
    """One function that does all cases, and its arguments."""
    types = [argument.type for case in cases for argument in case.block.args]
    block = Block(arg_types=types)
    arguments = iter(block.args)
    results = []
    for case in cases:
        values: dict[SSAValue, SSAValue] = {a: next(arguments) for a in case.block.args}
        for op in case.block.ops:
            if op is case.block.last_op:
                results += [values[operand] for operand in op.operands]
            else:
                block.add_op(op.clone(values))
    block.add_op(func.ReturnOp(*results))
    main = func.FuncOp("main", (types, [result.type for result in results]), Region(block))
    return ModuleOp([main]), [arg for case in cases for arg in case.args]


def compile_functions(
    functions: Sequence[func.FuncOp],
    flags: Sequence[str] = (),
    tables: Sequence[memref.GlobalOp] = (),
) -> ctypes.CDLL:
    """The functions, with the tables they read, as a shared library. Buffers may overlap."""
    text = ['#include "poetc_scalar.h"', together_header(), "#define IN_SECTION"]
    text += map(print_table, tables)
    text += [print_function(f, Signature(name)) for name, f in mathlib.functions().items()]
    for function in functions:
        everything = frozenset(range(len(function.body.block.args)))
        text.append(
            print_function(function, Signature(function.sym_name.data, overlapping=everything))
        )
    source = "\n".join(text)
    command = ["gcc", "-std=c99", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-shared"]
    with tempfile.TemporaryDirectory(prefix="poetc-kernels-") as directory:
        c_file, library = Path(directory, "kernels.c"), Path(directory, "kernels.so")
        c_file.write_text(source)
        subprocess.run(
            [*command, "-fPIC", f"-I{_RUNTIME}", *flags, "-o", str(library), str(c_file)],
            check=True,
        )
        # Loaded, it needs its file no longer.
        return ctypes.CDLL(str(library))


def _buffer(array: Array) -> tuple[Array, Array]:
    """A copy of the array inside a larger one that is filled with a pattern."""
    storage = array.astype(np.uint8) if array.dtype == bool else array
    padded = np.empty(storage.size + 2 * MARGIN, storage.dtype)
    padded.view(np.uint8)[:] = 0xEB
    padded[MARGIN : MARGIN + storage.size] = storage.reshape(-1)
    return padded, padded[MARGIN : MARGIN + storage.size]


def run(
    library: ctypes.CDLL,
    function: func.FuncOp,
    args: Sequence[Array],
    inplace: Sequence[tuple[int, int]] = (),
) -> list[Array]:
    """Results of one run, with the given (result, operand) pairs in one buffer."""
    buffers = [_buffer(arg) for arg in args]
    count = len(args)
    shared = dict(inplace)
    for number, argument in enumerate(function.body.block.args[count:]):
        assert isinstance(argument.type, MemRefType)
        if number in shared:
            buffers.append(buffers[shared[number]])
        else:
            empty = np.empty(argument.type.get_shape(), dtype_of(argument.type.element_type))
            buffers.append(_buffer(empty))
            buffers[-1][1].view(np.uint8)[:] = 0xEB
    pointers = [ctypes.c_void_p(inner.ctypes.data) for _, inner in buffers]
    getattr(library, function.sym_name.data)(*pointers)
    for padded, inner in buffers:
        edge = np.concatenate([padded[:MARGIN], padded[MARGIN + inner.size :]])
        assert (edge.view(np.uint8) == 0xEB).all(), "written outside a buffer"
    results: list[Array] = []
    for argument, (_, inner) in zip(
        analysis.buffers(function, "results"), buffers[count:], strict=False
    ):
        assert isinstance(argument.type, MemRefType)
        element = dtype_of(argument.type.element_type)
        results.append(inner.reshape(argument.type.get_shape()).astype(element))
    return results


def same_bits(a: Array, b: Array) -> bool:
    """Equal bit for bit, any NaN being equal to any other."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not is_float(a.dtype):
        return bool((a == b).all())
    equal = a.view(f"i{a.itemsize}") == b.view(f"i{b.itemsize}")
    return bool((equal | (np.isnan(a) & np.isnan(b))).all())


def interpret(block: Block, args: Sequence[Array]) -> list[Array]:
    """What the interpreter says."""

    def no_call(name: str, operands: list[Array]) -> list[Array]:
        raise AssertionError(name)

    return run_block(block, list(args), no_call)


def check(cases: Sequence[Case]) -> None:
    """Lowers all cases and compares with the interpreter; results that `may_alias` allows to share
    a buffer with an operand are also run so."""
    for i, case in enumerate(cases):
        kernel = lower_kernel(case.block, f"kernel{i}")
        case.function, case.tables = kernel.function, kernel.globals
        case.function.verify()
        check_in_bounds(case.function)
    functions = [case.function for case in cases if case.function is not None]
    library = compile_functions(functions, tables=[t for case in cases for t in case.tables])
    for case, function in zip(cases, functions, strict=True):
        expected = interpret(case.block, case.args)
        for pairs in [(), *alias_pairs(function)]:
            results = run(library, function, case.args, pairs)
            for number, (a, b) in enumerate(zip(results, expected, strict=True)):
                # In kernels unsigned numbers have the signed type.
                a = a.view(b.dtype) if b.dtype.kind == "u" else a
                assert same_bits(a, b), (
                    f"{case.note} result {number} in place {pairs}: {a} expected {b}\n"
                    f"{function}\n{case.block}"
                )


def alias_pairs(function: func.FuncOp) -> list[tuple[tuple[int, int], ...]]:
    """Every pair of one result and one operand for which `may_alias` is true."""
    inputs = len(analysis.buffers(function, "inputs"))
    results = len(analysis.buffers(function, "results"))
    return [
        ((r, o),)
        for r in range(results)
        for o in range(inputs)
        if analysis.may_alias(function, r, o)
    ]


def elements_touched(
    access: affine.LoadOp | affine.StoreOp,
    ranges: Mapping[BlockArgument, tuple[int, int]] | None = None,
) -> Array:
    """The indices that an access is at, a row for each dimension of its buffer, while the loops
    given run over these ranges and all others around it from end to end."""
    loops: list[BlockArgument] = []
    guards: list[analysis._Guard] = []
    inner: Operation = access
    while (parent := inner.parent_op()) is not None and not isinstance(parent, func.FuncOp):
        if isinstance(parent, affine.ForOp):
            loops.append(parent.body.block.args[0])
        if isinstance(parent, affine.IfOp):
            holds = inner.parent_region() is parent.then_region
            guards.append(analysis._Guard(parent.condition.data, tuple(parent.args), holds))
        inner = parent
    spans = [np.arange(*(ranges or {}).get(v, (0, extent_of(v)))) for v in loops]
    shape = [len(span) for span in spans]
    grids = np.meshgrid(*spans, indexing="ij", sparse=True)
    positions: dict[SSAValue, Array] = dict(zip(loops, grids, strict=True))
    runs = np.ones(shape, bool)
    for guard in guards:
        runs &= guard.passes(positions)
    map, operands = access.map.data, [positions[index] for index in access.indices]
    found = np.empty((len(map.results), np.count_nonzero(runs)), np.int64)
    for row, expr in zip(found, map.results, strict=True):
        row[:] = np.broadcast_to(value_of(expr, operands, map.num_dims), shape)[runs]
    return found


def check_in_bounds(function: func.FuncOp) -> None:
    """Enumerates the iterations of every affine load and store: no index may be out of range."""
    for op in function.walk():
        if not isinstance(op, affine.LoadOp | affine.StoreOp):
            continue
        assert isinstance(op.memref.type, MemRefType)
        for index, size in zip(elements_touched(op), op.memref.type.get_shape(), strict=True):
            wrong = (index < 0) | (index >= size)
            assert not wrong.any(), f"{op} out of bounds in\n{function}"


__all__ = [
    "BlockArgument",
    "Case",
    "body",
    "check",
    "check_in_bounds",
    "interpret",
    "module_of",
    "same_bits",
]
