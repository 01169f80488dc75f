"""Executes StableHLO operations, blocks and functions."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.dialects import builtin, func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from poetc.errors import PoetcError
from poetc.interpreter import semantics
from poetc.interpreter.semantics import Array
from poetc.ir import stablehlo as hlo
from poetc.ir.dense import dtype_of
from poetc.ir.locations import source_location
from poetc.kernels import mathlib


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


def _math(name: str) -> Callable[[Any, Array], Array]:
    return lambda op, *operands: mathlib.evaluate(name, *operands)


def _result(op: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    return tensor_of(op.results[0].type)


def _slice(op: hlo.SliceOp, x: Array) -> Array:
    return x[tuple(slice(*range_) for range_ in zip(op.starts, op.limits, op.strides, strict=True))]


def _dot_general(op: hlo.DotBase, *operands: Array) -> Array:
    *init, lhs, rhs = operands
    return semantics.dot_general(
        lhs, rhs, op.lhs_batch, op.rhs_batch, op.lhs_contract, op.rhs_contract, *init
    )


def _convolution(op: hlo.ConvolutionBase, *operands: Array) -> Array:
    *init, lhs, rhs = operands
    return semantics.convolution(
        lhs,
        rhs,
        op.dims,
        op.strides,
        op.padding,
        op.lhs_dilation,
        op.rhs_dilation,
        op.feature_groups,
        op.batch_groups,
        _result(op)[0],
        *init,
    )


def _reduce_window(op: hlo.ReduceWindowOp, x: Array, init: Array) -> Array:
    if not op.starts_anywhere and init != hlo.identity(op.kind, hlo.element_type_of(op.init)):
        raise InterpreterError(
            f"reduce_window with padding must start from the identity of {op.kind}",
            source_location(op),
        )
    return semantics.reduce_window(
        x,
        init,
        op.window,
        op.strides,
        op.base_dilations,
        op.window_dilations,
        op.padding,
        op.kind,
        _result(op)[0],
    )


def _select_and_scatter(op: hlo.SelectAndScatterOp, x: Array, source: Array, init: Array) -> Array:
    return semantics.select_and_scatter(
        x, source, init, op.window, op.strides, op.padding, op.select_direction
    )


# The operation and its operands to its one result.
_MEANING: dict[type[Operation], Callable[..., Any]] = {
    hlo.AddOp: lambda op, a, b: np.add(a, b),
    hlo.SubtractOp: lambda op, a, b: np.subtract(a, b),
    hlo.MultiplyOp: lambda op, a, b: np.multiply(a, b),
    hlo.DivideOp: lambda op, a, b: np.divide(a, b),
    hlo.MaximumOp: lambda op, a, b: semantics.maximum(a, b),
    hlo.MinimumOp: lambda op, a, b: semantics.minimum(a, b),
    hlo.AndOp: lambda op, a, b: np.bitwise_and(a, b),
    hlo.OrOp: lambda op, a, b: np.bitwise_or(a, b),
    hlo.XorOp: lambda op, a, b: np.bitwise_xor(a, b),
    hlo.PowerOp: _math("pow"),
    hlo.NegateOp: lambda op, x: np.negative(x),
    hlo.AbsOp: lambda op, x: np.abs(x),
    hlo.SignOp: lambda op, x: semantics.sign(x),
    hlo.NotOp: lambda op, x: np.invert(x),
    hlo.IsFiniteOp: lambda op, x: np.isfinite(x),
    hlo.ExponentialOp: _math("exp"),
    hlo.LogOp: _math("log"),
    hlo.RsqrtOp: _math("rsqrt"),
    hlo.SqrtOp: _math("sqrt"),
    hlo.TanhOp: _math("tanh"),
    hlo.ConvertOp: lambda op, x: semantics.convert(x, _result(op)[1]),
    hlo.CompareOp: lambda op, a, b: semantics.COMPARISONS[op.direction](a, b),
    hlo.SelectOp: lambda op, pred, a, b: np.where(pred, a, b),
    hlo.ConstantOp: lambda op: op.array(),
    hlo.IotaOp: lambda op: semantics.iota(_result(op)[0], op.dim, _result(op)[1]),
    hlo.BroadcastInDimOp: lambda op, x: semantics.broadcast_in_dim(x, _result(op)[0], op.dims),
    hlo.ReshapeOp: lambda op, x: x.reshape(_result(op)[0]),
    hlo.TransposeOp: lambda op, x: x.transpose(op.permutation),
    hlo.ReverseOp: lambda op, x: np.flip(x, op.dims),
    hlo.SliceOp: _slice,
    hlo.PadOp: lambda op, x, value: semantics.pad(x, value, op.low, op.high, op.interior),
    hlo.ConcatenateOp: lambda op, *inputs: np.concatenate(inputs, op.dim),
    hlo.DotGeneralOp: _dot_general,
    hlo.DotFromOp: _dot_general,
    hlo.ConvolutionOp: _convolution,
    hlo.ConvolutionFromOp: _convolution,
    hlo.ReduceOp: lambda op, x, init: semantics.reduce(x, init, op.dims, op.kind),
    hlo.ReduceWindowOp: _reduce_window,
    hlo.SelectAndScatterOp: _select_and_scatter,
    hlo.GatherOp: lambda op, x, indices: semantics.gather(x, indices, op.dnums, op.slice_sizes),
    # Exact but for one rounding; stablehlo-simplify replaces erf and erfc by what the C computes.
    hlo.SquareOp: lambda op, x: np.multiply(x, x),
    hlo.ErfOp: lambda op, x: semantics.rounded(math.erf, x),
    hlo.ErfcOp: lambda op, x: semantics.rounded(math.erfc, x),
    hlo.ScatterOp: lambda op, x, indices, updates: semantics.scatter_add(
        x, indices, updates, op.dnums
    ),
}


def evaluate(op: Operation, operands: Sequence[Array]) -> Array:
    """The result of one StableHLO operation; InterpreterError if it has no meaning here."""
    meaning = _MEANING.get(type(op))
    if meaning is None:
        raise InterpreterError(f"cannot interpret {op.name}", source_location(op))
    with np.errstate(all="ignore"):
        result = np.asarray(meaning(op, *operands))
    shape, dtype = _result(op)
    if result.shape != shape or result.dtype != dtype:
        raise InterpreterError(
            f"{op.name} gave {result.dtype} of shape {result.shape} for {op.results[0].type}",
            source_location(op),
        )
    return result


def run_block(
    block: Block, args: Sequence[Array], call: Callable[[str, list[Array]], list[Array]]
) -> list[Array]:
    """Executes a block of StableHLO operations; returns the operands of its terminator."""
    values: dict[SSAValue, Array] = dict(zip(block.args, args, strict=True))
    last = block.last_op
    assert last is not None
    for op in block.ops:
        operands = [values[operand] for operand in op.operands]
        if op is last:
            return operands
        if isinstance(op, func.CallOp):
            results = call(op.callee.string_value(), operands)
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
