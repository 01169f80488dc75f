"""Checks and simplifications before a kernel is printed."""

from __future__ import annotations

from xdsl.dialects import affine, arith, func, memref
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from poetc.errors import InputError
from poetc.kernels.dependences import yielded


def stored_arguments(function: func.FuncOp) -> frozenset[int]:
    """Positions of the memref arguments that the function writes."""
    arguments: dict[SSAValue, int] = {a: i for i, a in enumerate(function.body.block.args)}
    return frozenset(
        arguments[op.memref]
        for op in function.walk()
        if isinstance(op, affine.StoreOp | memref.StoreOp) and op.memref in arguments
    )


def check_order(region: Region, defined: set[SSAValue]) -> None:
    """Raises InputError for a value that is used before it is defined or outside of its scope."""
    for block in region.blocks:
        inside = {*defined, *block.args}
        for op in block.ops:
            for operand in op.operands:
                if operand not in inside:
                    name = f"%{operand.name_hint}" if operand.name_hint else "a value"
                    raise InputError(f"{op.name} uses {name} where it is not defined")
            for nested in op.regions:
                check_order(nested, inside)
            inside.update(op.results)


def inline_single_iterations(function: func.FuncOp) -> None:
    """Replaces each loop that runs exactly once by its body."""
    for op in list(function.walk()):
        if not isinstance(op, affine.ForOp) or op.lowerBoundOperands or op.upperBoundOperands:
            continue
        bounds = op.lowerBoundMap.data.eval([], []), op.upperBoundMap.data.eval([], [])
        if any(len(results) != 1 for results in bounds):
            continue
        (low,), (high,) = bounds
        if not low < high <= low + op.step.value.data:
            continue
        start = arith.ConstantOp.from_int_and_width(low, IndexType())
        # Where bounds of loops that depend on it may be known.
        Rewriter.insert_op(start, InsertPoint.at_start(function.body.block))
        body = op.body.block
        last = body.last_op
        results = yielded(body)
        if isinstance(last, affine.YieldOp):
            last.detach()
        Rewriter.inline_block(body, InsertPoint.before(op), [start.result, *op.inits])
        for result, value in zip(op.results, results, strict=True):
            result.replace_all_uses_with(value)
        if isinstance(last, affine.YieldOp):
            last.erase()
        Rewriter.erase_op(op)
