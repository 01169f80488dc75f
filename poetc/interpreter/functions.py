"""Executes StableHLO operations, blocks and functions."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.dialects import builtin, func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from poetc.errors import InputError, PoetcError
from poetc.ir.dense import dtype_of
from poetc.ir.locations import source_location
from poetc.ir.stablehlo import ControlOp, StablehloOp
from poetc.ir.stablehlo.base import Array


class InterpreterError(PoetcError):
    """The interpreted program did something undefined, or the arguments do not fit it."""


def tensor_of(type_: Attribute) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and NumPy element type of a static tensor type."""
    if not isinstance(type_, builtin.TensorType) or -1 in type_.get_shape():
        raise InterpreterError(f"cannot interpret values of type {type_}")
    try:
        return type_.get_shape(), dtype_of(type_.element_type)
    except TypeError as error:
        raise InterpreterError(f"cannot interpret values of type {type_}") from error


def check_arguments(name: str, types: Sequence[Attribute], args: Sequence[Any]) -> list[Array]:
    """The arguments as arrays; InterpreterError unless they match the types exactly."""
    if len(args) != len(types):
        raise InterpreterError(f"@{name} takes {len(types)} arguments, got {len(args)}")
    arrays = [np.asarray(arg) for arg in args]
    for i, (array, type_) in enumerate(zip(arrays, types, strict=True)):
        if (array.shape, array.dtype) != tensor_of(type_):
            raise InterpreterError(
                f"argument {i} of @{name} must be {type_}, got {array.dtype} of shape {array.shape}"
            )
    return arrays


def evaluate(op: Operation, operands: Sequence[Array]) -> Array:
    """The result of one StableHLO operation; InterpreterError if it has no meaning here."""
    if not isinstance(op, StablehloOp):
        raise InterpreterError(f"cannot interpret {op.name}", source_location(op))
    try:
        with np.errstate(all="ignore"):
            result = np.asarray(op.evaluate(*operands))
    except InputError as error:
        raise InterpreterError(error.message, source_location(op)) from error
    shape, dtype = tensor_of(op.result.type)
    if result.shape != shape or result.dtype != dtype:
        raise InterpreterError(
            f"{op.name} gave {result.dtype} of shape {result.shape} for {op.results[0].type}",
            source_location(op),
        )
    return result


def run_block(
    block: Block,
    args: Sequence[Array],
    call: Callable[[str, list[Array]], list[Array]],
    outside: dict[SSAValue, Array] | None = None,
) -> list[Array]:
    """Executes a block of StableHLO operations; returns the operands of its terminator.

    `outside` has the values that the block sees around it; its own are added."""
    values = {} if outside is None else outside
    values.update(zip(block.args, args, strict=True))

    def execute(inner: Block, args: Sequence[Array]) -> list[Array]:
        return run_block(inner, args, call, values)

    last = block.last_op
    assert last is not None
    for op in block.ops:
        operands = [values[operand] for operand in op.operands]
        if op is last:
            return operands
        if isinstance(op, func.CallOp):
            results = call(op.callee.string_value(), operands)
        elif isinstance(op, ControlOp):
            results = op.run(operands, execute)
        else:
            results = [evaluate(op, operands)]
        values.update(zip(op.results, results, strict=True))
    raise AssertionError("unreachable: a block ends with its terminator")


def run_func(module: ModuleOp | func.FuncOp, args: Sequence[Any]) -> list[Array]:
    """Executes a function and those it calls.

    `module` is the function itself, or a module, of which @main or else the only public function
    is executed. Arguments must match its types exactly. Raises InterpreterError.
    """
    root = module
    while (parent := root.parent_op()) is not None:
        root = parent
    functions = {op.sym_name.data: op for op in root.walk() if isinstance(op, func.FuncOp)}
    if isinstance(module, func.FuncOp):
        entry = module
    else:
        public = [
            f for f in functions.values() if f.sym_visibility != builtin.StringAttr("private")
        ]
        entry = functions.get("main") or (public[0] if len(public) == 1 else None)
        if entry is None:
            raise InterpreterError("the module has neither @main nor exactly one public function")

    def call(name: str, operands: list[Array]) -> list[Array]:
        if name not in functions:
            raise InterpreterError(f"no function @{name}")
        return run_block(functions[name].body.block, operands, call)

    name = entry.sym_name.data
    arrays = check_arguments(name, entry.function_type.inputs.data, args)
    return run_block(entry.body.block, arrays, call)
