"""Operations in pieces: along a dimension of the result, or of what a contraction sums over.

`along` says which dimensions of its operands an operation walks along one dimension of its result,
and `piece` makes the operation that computes a range of that dimension from the same ranges of its
operands. `summed` says the same of the outermost loop of a contraction, and `summand` makes the
operation that goes on with its sums over a range of it.

Element for element the pieces do what the whole does, in the same order, so that the bits are those
of the whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from xdsl.dialects.builtin import DenseArrayBase, TensorType, i64
from xdsl.ir import Attribute, SSAValue

from poetc.ir import stablehlo as hlo
from poetc.ir.types import computed_type


@dataclass(frozen=True)
class Along:
    """A dimension of an operand that runs with the result's, from its end if `mirrored`."""

    dim: int
    mirrored: bool = False


Walk = tuple[Along | None, ...]
"""For each operand how it is walked; None: all of it is read for each piece."""


def along(op: hlo.StablehloOp, dim: int) -> Walk | None:
    """How the operands are walked along dimension `dim` of the result; None where the result cannot
    be computed in pieces along it."""
    match op:
        case hlo.ElementwiseOp():
            # An operand of rank 0 stands for all elements.
            return tuple(Along(dim) if hlo.shape_of(x) else None for x in op.operands)
        case hlo.BroadcastInDimOp():
            if dim not in op.dims:
                return (None,)
            source = op.dims.index(dim)
            repeated = hlo.shape_of(op.operand)[source] != hlo.shape_of(op.result)[dim]
            return (None,) if repeated else (Along(source),)
        case hlo.TransposeOp():
            return (Along(op.permutation[dim]),)
        case hlo.ReshapeOp():
            source = _same_dim(hlo.shape_of(op.result), dim, hlo.shape_of(op.operand))
            return None if source is None else (Along(source),)
        case hlo.ReverseOp():
            return (Along(dim, dim in op.dims),)
        case hlo.SliceOp():
            whole = hlo.shape_of(op.operand)[dim] == hlo.shape_of(op.result)[dim]
            return (Along(dim),) if whole else None
        case hlo.PadOp():
            padded = op.low[dim] or op.high[dim] or op.interior[dim]
            return None if padded else (Along(dim), None)
        case hlo.ConcatenateOp():
            return None if dim == op.dim else (Along(dim),) * len(op.operands)
        case hlo.IotaOp():
            return None if dim == op.dim else ()
        case hlo.DotFromOp() | hlo.ConvolutionFromOp():
            return None
        case hlo.DotBase():
            return _along_dot(op, dim)
        case hlo.ConvolutionBase():
            return _along_convolution(op, dim)
        case hlo.ReduceOp():
            kept = [d for d in range(len(hlo.shape_of(op.operand))) if d not in op.dims]
            return Along(kept[dim]), None
        case hlo.FoldOp():
            kept = [d for d in range(len(hlo.shape_of(op.inputs[0]))) if d not in op.dims]
            return (Along(kept[dim]),) * len(op.inputs) + (None,) * len(op.inits)
        case hlo.ReduceWindowOp():
            plain = op.window[dim] == op.strides[dim] == op.base_dilations[dim] == 1
            return (Along(dim), None) if plain and not any(op.padding[dim]) else None
        case hlo.SelectAndScatterOp():
            plain = op.window[dim] == op.strides[dim] == 1 and not any(op.padding[dim])
            return (Along(dim), Along(dim), None) if plain else None
        case hlo.GatherOp():
            return _along_gather(op, dim)
        case hlo.ScatterOp():
            return _along_scatter(op, dim)
    return None


def _same_dim(shape: Sequence[int], dim: int, other: Sequence[int]) -> int | None:
    """The dimension of `other` that is `dim` of `shape`: as long, with as many elements before."""
    before = math.prod(shape[:dim])
    for d, size in enumerate(other):
        if size == shape[dim] and math.prod(other[:d]) == before:
            return d
    return None


def _along_dot(op: hlo.DotBase, dim: int) -> Walk:
    batch = len(op.lhs_batch)
    if dim < batch:
        return Along(op.lhs_batch[dim]), Along(op.rhs_batch[dim])
    left, right = (
        [d for d in range(len(hlo.shape_of(operand))) if d not in used]
        for operand, used in (
            (op.lhs, op.lhs_batch + op.lhs_contract),
            (op.rhs, op.rhs_batch + op.rhs_contract),
        )
    )
    place = dim - batch
    if place < len(left):
        return Along(left[place]), None
    return None, Along(right[place - len(left)])


def _along_convolution(op: hlo.ConvolutionBase, dim: int) -> Walk | None:
    if dim in op.dims.output_spatial:
        # Windows are where they are: the piece has another padding.
        return None, None
    if op.feature_groups != 1 or op.batch_groups != 1:
        return None
    if dim == op.dims.output_feature:
        return None, Along(op.dims.kernel_output_feature)
    if dim == op.dims.output_batch:
        return Along(op.dims.input_batch), None
    return None


def _along_gather(op: hlo.GatherOp, dim: int) -> Walk | None:
    dnums, shape = op.dnums, hlo.shape_of(op.operand)
    if dim not in dnums.offset_dims:
        return None
    dropped = dnums.collapsed_slice_dims + dnums.operand_batching_dims
    kept = [d for d in range(len(shape)) if d not in dropped]
    source = kept[dnums.offset_dims.index(dim)]
    return (Along(source), None) if op.slice_sizes[source] == shape[source] else None


def _along_scatter(op: hlo.ScatterOp, dim: int) -> Walk | None:
    dnums, shape = op.dnums, hlo.shape_of(op.operand)
    dropped = dnums.inserted_window_dims + dnums.input_batching_dims
    kept = [d for d in range(len(shape)) if d not in dropped]
    if dim not in kept or dim in dnums.scatter_dims_to_operand_dims:
        return None
    update = dnums.update_window_dims[kept.index(dim)]
    if hlo.shape_of(op.updates)[update] != shape[dim]:
        return None
    return Along(dim), None, Along(update)


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
            walk = _along_gather(op, dim)
            assert walk is not None and walk[0] is not None
            sizes = _resized(op.slice_sizes, walk[0].dim, size)
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


def border(op: hlo.DotBase | hlo.ConvolutionBase) -> int | None:
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
    op: hlo.DotBase | hlo.ConvolutionBase,
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
