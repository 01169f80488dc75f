"""Regions that compute scalars from scalars: the bodies of folds, sorts and scatters.

All operations in them are element-wise, or constants, so that a body can also be run on arrays,
once for all elements, and be built into a loop of a kernel.
"""

import math
from collections.abc import Hashable, Sequence

import numpy as np
from xdsl.ir import Attribute, Block, Region, SSAValue

from poetc.ir.stablehlo.base import Array, Scalar, ScalarBuilder, check, element_type_of, shape_of
from poetc.ir.stablehlo.constants import ConstantOp
from poetc.ir.stablehlo.control import ReturnOp, check_region
from poetc.ir.stablehlo.elementwise import ElementwiseOp
from poetc.ir.stablehlo_attributes import Dims


def check_body(
    region: Region, arguments: Sequence[Attribute], results: Sequence[Attribute]
) -> None:
    """Takes and returns values of these types, by means of element-wise operations alone."""
    check_region("the body", region, arguments, results)
    known: set[SSAValue] = set(region.block.args)
    for op in region.block.ops:
        check(
            isinstance(op, ElementwiseOp | ConstantOp | ReturnOp),
            f"{op.name} in its body is not supported, only element-wise operations and constants "
            "are",
        )
        check(known.issuperset(op.operands), "its body uses a value from outside")
        check(
            all(shape_of(value) == () for value in op.results),
            f"{op.name} in its body has a result that is not a scalar",
        )
        known.update(op.results)


def run_body(block: Block, arrays: Sequence[Array]) -> list[Array]:
    """The results of a body for the elements in each place of the arrays."""
    values: dict[SSAValue, Array] = dict(zip(block.args, arrays, strict=True))
    for op in block.ops:
        operands = [values[operand] for operand in op.operands]
        if isinstance(op, ReturnOp):
            return operands
        assert isinstance(op, ElementwiseOp | ConstantOp)
        values[op.result] = np.asarray(op.evaluate(*operands))
    raise AssertionError("unreachable: a body ends with its return")


def fold(block: Block, arrays: Sequence[Array], inits: Sequence[Array], dims: Dims) -> list[Array]:
    """The values that a loop over dimensions of the arrays, in row-major order, carries at its end.
    In each step the body makes them of the values carried and an element of each array."""
    folded = sorted(dims)
    kept = [d for d in range(arrays[0].ndim) if d not in folded]
    shape = [arrays[0].shape[d] for d in kept]
    steps = math.prod(arrays[0].shape[d] for d in folded)
    rows = [array.transpose(folded + kept).reshape([steps, *shape]) for array in arrays]
    values = [np.full(shape, init) for init in inits]
    for step in range(steps):
        found = run_body(block, [*values, *(row[step] for row in rows)])
        values = [np.broadcast_to(value, shape) for value in found]
    return values


def lower_body(b: ScalarBuilder, block: Block, scalars: Sequence[Scalar]) -> list[Scalar]:
    """Builds a body on scalars; what it returns."""
    values: dict[SSAValue, Scalar] = dict(zip(block.args, scalars, strict=True))
    for op in block.ops:
        operands = [values[operand] for operand in op.operands]
        if isinstance(op, ReturnOp):
            return operands
        if isinstance(op, ConstantOp):
            values[op.result] = b.constant(op.array().item(), element_type_of(op.result))
        else:
            assert isinstance(op, ElementwiseOp)
            values[op.result] = op.lower(b, *operands)
    raise AssertionError("unreachable: a body ends with its return")


def body_key(block: Block) -> Hashable:
    """Equal for bodies that do the same operations in the same order, whatever their values are
    called."""
    numbers: dict[SSAValue, int] = {arg: number for number, arg in enumerate(block.args)}
    found: list[Hashable] = [tuple(block.arg_types)]
    for op in block.ops:
        operands = tuple(numbers[operand] for operand in op.operands)
        inside = tuple(body_key(inner) for region in op.regions for inner in region.blocks)
        properties = frozenset(op.properties.items())
        found.append((op.name, operands, tuple(op.result_types), properties, inside))
        for value in op.results:
            numbers[value] = len(numbers)
    return tuple(found)
