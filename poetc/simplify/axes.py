"""Operations in pieces: along a dimension of the result, or of what a contraction sums over.

An operation says which dimensions of its operands it walks along one dimension of its result
(`along`), and `piece` makes the operation that computes a range of that dimension from the same
ranges of its operands. `summed` says the same of the outermost loop of a contraction, and `summand`
makes the operation that goes on with its sums over a range of it.

Element for element the pieces do what the whole does, in the same order, so that the bits are those
of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from xdsl.dialects.builtin import DenseArrayBase, TensorType, i64
from xdsl.ir import Attribute, SSAValue

from poetc.ir import stablehlo as hlo
from poetc.ir.stablehlo.base import Along, Walk
from poetc.ir.types import computed_type


def piece(
    op: hlo.StablehloOp, dim: int, operands: Sequence[SSAValue], start: int, size: int
) -> hlo.StablehloOp:
    """`op` for `size` indices along `dim` of its result, from `start` on, on `operands` cut as
    `along` says."""
    assert isinstance(op.result.type, TensorType)
    shape = list(op.result.type.get_shape())
    shape[dim] = size
    properties = dict(op.properties)
    match op:
        case hlo.SliceOp():
            return hlo.SliceOp(operands[0], op.starts, _resized(op.limits, dim, size), op.strides)
        case hlo.GatherOp():
            sizes = _resized(op.slice_sizes, op.offsets[dim], size)
            return hlo.GatherOp(operands[0], operands[1], op.dnums, sizes)
        case hlo.ConvolutionBase() if dim in op.dims.output_spatial:
            at = op.dims.output_spatial.index(dim)
            low = op.padding[at][0] - start * op.strides[at]
            window = hlo.dilated(
                hlo.shape_of(op.rhs)[op.dims.kernel_spatial[at]], op.rhs_dilation[at]
            )
            image = hlo.dilated(
                hlo.shape_of(op.lhs)[op.dims.input_spatial[at]], op.lhs_dilation[at]
            )
            high = (size - 1) * op.strides[at] + window - low - image
            properties["padding"] = _padding(op, at, low, high)
    return type(op).create(
        operands=operands,
        result_types=[TensorType(op.result.type.element_type, shape)],
        properties=properties,
        attributes=op.attributes,
        regions=[region.clone() for region in op.regions],
    )


def _resized(sizes: Sequence[int], dim: int, size: int) -> list[int]:
    return [size if d == dim else n for d, n in enumerate(sizes)]


def border(op: hlo.ContractionOp) -> int | None:
    """Blocks of sums begin where the position in the outermost loop is a multiple of this, and some
    perhaps elsewhere; None where a sum is one block."""
    if op.blocks is None:
        return None
    outermost = next(i for i, extent in enumerate(op.loops) if extent > 1)
    return op.blocks.positions if op.blocks.loop == outermost else 1


def in_blocks(ranges: Iterable[tuple[int, int]], every: int | None) -> Iterator[tuple[int, int]]:
    """Start and size of the ranges, in pieces of whole blocks of so many positions, or of a part of
    one."""
    for start, size in ranges:
        end = start + size
        step = every or 1
        borders = {-(-start // step) * step, end // step * step}
        inside = sorted({start, end, *(b for b in borders if start < b < end)})
        yield from ((a, b - a) for a, b in pairwise(inside))


def summed(op: hlo.StablehloOp, operand: int, dim: int) -> Walk | None:
    """How the operands are walked along the outermost loop of a contraction, if that is over
    dimension `dim` of that operand; None if it is not."""
    match op:
        case hlo.DotGeneralOp():
            shape = hlo.shape_of(op.operands[operand])
            contract = (op.lhs_contract, op.rhs_contract)[operand]
            if dim not in contract:
                return None
            place = contract.index(dim)
            if any(shape[d] != 1 for d in contract[:place]):
                return None
            return Along(op.lhs_contract[place]), Along(op.rhs_contract[place])
        case hlo.ConvolutionOp():
            kernel = hlo.shape_of(op.rhs)
            order = (*op.dims.kernel_spatial, op.dims.kernel_input_feature)
            if operand != 1 or dim not in order or any(op.reversal):
                return None
            if any(kernel[d] != 1 for d in order[: order.index(dim)]):
                return None
            if dim != op.dims.kernel_input_feature:
                # All of the image is read: the piece has another padding.
                return None, Along(dim)
            return (Along(op.dims.input_feature), Along(dim)) if op.feature_groups == 1 else None
    return None


def summand(
    op: hlo.ContractionOp,
    walk: Walk,
    operands: Sequence[SSAValue],
    start: int,
    init: SSAValue | None,
    whole: bool = False,
) -> hlo.StablehloOp:
    """The sums of `op` over a range of its outermost loop, which begins at `start`, on `operands`
    cut as `summed` says; from `init` on, or from zero. They are not rounded to fewer digits than
    sums have. `whole`: they go on with an `init` in the blocks of the whole sum."""
    shape = hlo.shape_of(op.result)
    properties = dict(op.properties)
    kind: type[hlo.StablehloOp] = type(op) if init is None else hlo.DotFromOp
    if isinstance(op, hlo.ConvolutionBase):
        kind = type(op) if init is None else hlo.ConvolutionFromOp
        step = walk[1]
        if step is not None and step.dim in op.dims.kernel_spatial:
            at, size = op.dims.kernel_spatial.index(step.dim), hlo.shape_of(operands[1])[step.dim]
            left = hlo.shape_of(op.rhs)[step.dim] - start - size
            dilation, (low, high) = op.rhs_dilation[at], op.padding[at]
            low, high = low - start * dilation, high - left * dilation
            properties["padding"] = _padding(op, at, low, high)
    if whole:
        properties["whole"] = DenseArrayBase.from_list(i64, op.loops)
    return kind.create(
        operands=operands if init is None else [init, *operands],
        result_types=[TensorType(computed_type(hlo.element_type_of(op.result)), shape)],
        properties=properties,
        attributes=op.attributes,
    )


def _padding(op: hlo.ConvolutionBase, at: int, low: int, high: int) -> Attribute:
    """The padding of `op`, another one in spatial dimension `at`."""
    return hlo.padding_attr([(low, high) if i == at else p for i, p in enumerate(op.padding)])
