"""Rules for operations that only move elements, and for contractions and reductions beside them."""

import dataclasses
import math
from collections.abc import Sequence

from xdsl.ir import SSAValue

from poetc.ir import stablehlo as hlo
from poetc.simplify.driver import Rewriter


def _not_one(shape: Sequence[int]) -> list[int]:
    """The dimensions that have more than one index, or none."""
    return [d for d, size in enumerate(shape) if size != 1]


def identity(op: hlo.ReshapeOp, rewriter: Rewriter) -> SSAValue | None:
    """A reshape to the operand's own type -> the operand."""
    return op.operand if op.operand.type == op.result.type else None


def reshape_reshape(op: hlo.ReshapeOp, rewriter: Rewriter) -> SSAValue | None:
    """reshape(reshape(x)) -> reshape(x): the row-major order never changes."""
    inner = op.operand.owner
    if not isinstance(inner, hlo.ReshapeOp):
        return None
    return rewriter.emit(hlo.ReshapeOp(inner.operand, hlo.shape_of(op.result)))


def broadcast_to_reshape(op: hlo.BroadcastInDimOp, rewriter: Rewriter) -> SSAValue | None:
    """A broadcast that repeats nothing and keeps the order of dimensions -> reshape."""
    source = hlo.shape_of(op.operand)
    targets = [op.dims[d] for d in _not_one(source)]
    if hlo.element_count(op.operand) != hlo.element_count(op.result) or targets != sorted(targets):
        return None
    if 0 in source:
        return None
    return rewriter.emit(hlo.ReshapeOp(op.operand, hlo.shape_of(op.result)))


def broadcast_broadcast(op: hlo.BroadcastInDimOp, rewriter: Rewriter) -> SSAValue | None:
    """broadcast(broadcast(x)) -> broadcast(x): a dimension goes where its image goes."""
    inner = op.operand.owner
    if not isinstance(inner, hlo.BroadcastInDimOp):
        return None
    dims = [op.dims[d] for d in inner.dims]
    return rewriter.emit(hlo.BroadcastInDimOp(inner.operand, dims, hlo.shape_of(op.result)))


def broadcast_reshape(op: hlo.BroadcastInDimOp, rewriter: Rewriter) -> SSAValue | None:
    """broadcast(reshape(x)) -> broadcast(x) where the reshape only adds dimensions of size 1."""
    inner = op.operand.owner
    if not isinstance(inner, hlo.ReshapeOp):
        return None
    source, middle = hlo.shape_of(inner.operand), hlo.shape_of(inner.result)
    kept: list[int] = []
    for d, size in enumerate(middle):
        if len(kept) < len(source) and size == source[len(kept)]:
            kept.append(d)
        elif size != 1:
            return None
    if len(kept) != len(source):
        return None
    dims = [op.dims[d] for d in kept]
    return rewriter.emit(hlo.BroadcastInDimOp(inner.operand, dims, hlo.shape_of(op.result)))


def transpose_to_reshape(op: hlo.TransposeOp, rewriter: Rewriter) -> SSAValue | None:
    """A transpose that keeps the order of all dimensions but those of size 1 -> reshape."""
    shape = hlo.shape_of(op.operand)
    moved = [d for d in op.permutation if shape[d] != 1]
    if moved != sorted(moved):
        return None
    return rewriter.emit(hlo.ReshapeOp(op.operand, hlo.shape_of(op.result)))


def transpose_transpose(op: hlo.TransposeOp, rewriter: Rewriter) -> SSAValue | None:
    """transpose(transpose(x)) -> transpose(x) by the composed permutation."""
    inner = op.operand.owner
    if not isinstance(inner, hlo.TransposeOp):
        return None
    permutation = [inner.permutation[d] for d in op.permutation]
    return rewriter.emit(hlo.TransposeOp(inner.operand, permutation))


def transpose_broadcast(op: hlo.TransposeOp, rewriter: Rewriter) -> SSAValue | None:
    """transpose(broadcast(x)) -> broadcast(x): a dimension goes where the transpose takes it."""
    inner = op.operand.owner
    if not isinstance(inner, hlo.BroadcastInDimOp):
        return None
    dims = [op.permutation.index(d) for d in inner.dims]
    return rewriter.emit(hlo.BroadcastInDimOp(inner.operand, dims, hlo.shape_of(op.result)))


def reverse_ones(op: hlo.ReverseOp, rewriter: Rewriter) -> SSAValue | None:
    """Reversing a dimension of size 1 does nothing."""
    shape = hlo.shape_of(op.operand)
    dims = [d for d in op.dims if shape[d] > 1]
    if not dims:
        return op.operand
    if len(dims) == len(op.dims):
        return None
    return rewriter.emit(hlo.ReverseOp(op.operand, dims))


def reverse_reverse(op: hlo.ReverseOp, rewriter: Rewriter) -> SSAValue | None:
    """reverse(reverse(x)) -> reverse of the dimensions that only one of them reverses."""
    inner = op.operand.owner
    if not isinstance(inner, hlo.ReverseOp):
        return None
    dims = sorted(set(op.dims) ^ set(inner.dims))
    return rewriter.emit(hlo.ReverseOp(inner.operand, dims)) if dims else inner.operand


def slice_all(op: hlo.SliceOp, rewriter: Rewriter) -> SSAValue | None:
    """A slice of everything -> the operand."""
    return op.operand if op.operand.type == op.result.type else None


def slice_slice(op: hlo.SliceOp, rewriter: Rewriter) -> SSAValue | None:
    """slice(slice(x)) -> slice(x): index i is start + stride * (inner start + inner stride * i)."""
    inner = op.operand.owner
    if not isinstance(inner, hlo.SliceOp) or hlo.element_count(op.result) == 0:
        return None
    strides = [a * b for a, b in zip(op.strides, inner.strides, strict=True)]
    starts = [
        outer_start + start * stride
        for start, outer_start, stride in zip(op.starts, inner.starts, inner.strides, strict=True)
    ]
    limits = [
        start + (size - 1) * stride + 1
        for start, size, stride in zip(starts, hlo.shape_of(op.result), strides, strict=True)
    ]
    return rewriter.emit(hlo.SliceOp(inner.operand, starts, limits, strides))


def pad_nothing(op: hlo.PadOp, rewriter: Rewriter) -> SSAValue | None:
    """A pad by nothing -> the operand: no element is added or removed."""
    gaps = any(g and n > 1 for g, n in zip(op.interior, hlo.shape_of(op.operand), strict=True))
    return None if gaps or any(op.low) or any(op.high) else op.operand


def pad_to_slice(op: hlo.PadOp, rewriter: Rewriter) -> SSAValue | None:
    """A pad that only removes elements at the ends -> slice."""
    if any(op.interior) or max((*op.low, *op.high), default=0) > 0:
        return None
    starts = [-low for low in op.low]
    limits = [n + high for n, high in zip(hlo.shape_of(op.operand), op.high, strict=True)]
    if any(start > limit for start, limit in zip(starts, limits, strict=True)):
        return None
    return rewriter.emit(hlo.SliceOp(op.operand, starts, limits))


def concatenate_one(op: hlo.ConcatenateOp, rewriter: Rewriter) -> SSAValue | None:
    """The concatenation of one tensor -> that tensor."""
    return op.inputs[0] if len(op.inputs) == 1 else None


def reduce_of_one(op: hlo.ReduceOp, rewriter: Rewriter) -> SSAValue | None:
    """A reduction of one element each -> one step, f(init, x), which is all that it does.

    The rules for f go on from there: max(x, -inf) is x, but x + +0.0 is x only where x is not -0.0.
    """
    if math.prod(hlo.shape_of(op.operand)[d] for d in op.dims) != 1:
        return None
    shape = hlo.shape_of(op.result)
    reshaped = rewriter.emit(hlo.ReshapeOp(op.operand, shape))
    init = rewriter.emit(hlo.BroadcastInDimOp(op.init, (), shape))
    return rewriter.emit(hlo.REDUCERS[op.kind](reshaped, init))


def window_of_one(op: hlo.ReduceWindowOp, rewriter: Rewriter) -> SSAValue | None:
    """A reduce_window over windows of one element, stride 1, no padding -> f(init, x)."""
    ones = (op.window, op.strides, op.base_dilations)
    if any(value != 1 for values in ones for value in values) or any(map(any, op.padding)):
        return None
    init = rewriter.emit(hlo.BroadcastInDimOp(op.init, (), hlo.shape_of(op.result)))
    return rewriter.emit(hlo.REDUCERS[op.kind](op.operand, init))


def dot_of_transpose(op: hlo.DotGeneralOp, rewriter: Rewriter) -> SSAValue | None:
    """dot(transpose(a), b) -> dot(a, b) with renamed dimensions.

    Contracting dimensions keep their order, so the same products are summed in the same order. The
    free dimensions of a must keep theirs, since the result has them in a's order.
    """
    lhs, rhs = op.lhs.owner, op.rhs.owner
    if isinstance(lhs, hlo.TransposeOp):
        batch, contract = _renamed(lhs, op.lhs_batch, op.lhs_contract)
        if _free(op.lhs, op.lhs_batch, op.lhs_contract, lhs.permutation) is not None:
            return rewriter.emit(
                hlo.DotGeneralOp(
                    lhs.operand,
                    op.rhs,
                    contract,
                    op.rhs_contract,
                    batch,
                    op.rhs_batch,
                    hlo.element_type_of(op.result),
                )
            )
    if isinstance(rhs, hlo.TransposeOp):
        batch, contract = _renamed(rhs, op.rhs_batch, op.rhs_contract)
        if _free(op.rhs, op.rhs_batch, op.rhs_contract, rhs.permutation) is not None:
            return rewriter.emit(
                hlo.DotGeneralOp(
                    op.lhs,
                    rhs.operand,
                    op.lhs_contract,
                    contract,
                    op.lhs_batch,
                    batch,
                    hlo.element_type_of(op.result),
                )
            )
    return None


def _renamed(
    transpose: hlo.TransposeOp, batch: Sequence[int], contract: Sequence[int]
) -> tuple[list[int], list[int]]:
    names = transpose.permutation
    return [names[d] for d in batch], [names[d] for d in contract]


def _free(
    value: SSAValue, batch: Sequence[int], contract: Sequence[int], permutation: Sequence[int]
) -> list[int] | None:
    """Free dimensions before the transpose, if it keeps their order."""
    used = {*batch, *contract}
    free = [permutation[d] for d in range(len(hlo.shape_of(value))) if d not in used]
    return free if free == sorted(free) else None


def transpose_of_dot(op: hlo.TransposeOp, rewriter: Rewriter) -> SSAValue | None:
    """transpose(dot(a, b)) -> dot(b, a) where it swaps the free dimensions of a and b.

    Products commute and are summed in the same order. Where the product has other uses it would be
    computed twice.
    """
    dot = op.operand.owner
    if not isinstance(dot, hlo.DotGeneralOp) or not op.operand.has_one_use():
        return None
    batch = len(dot.lhs_batch)
    left = batch + len(hlo.shape_of(dot.lhs)) - batch - len(dot.lhs_contract)
    rank = len(op.permutation)
    if op.permutation != (*range(batch), *range(left, rank), *range(batch, left)):
        return None
    return rewriter.emit(
        hlo.DotGeneralOp(
            dot.rhs,
            dot.lhs,
            dot.rhs_contract,
            dot.lhs_contract,
            dot.rhs_batch,
            dot.lhs_batch,
            hlo.element_type_of(dot.result),
        )
    )


def convolution_of_transpose(op: hlo.ConvolutionOp, rewriter: Rewriter) -> SSAValue | None:
    """conv(transpose(x), transpose(k)) -> conv(x, k) with renamed dimensions.

    Window positions and features are visited in the same order: only their place in memory differs.
    """
    lhs, rhs, dims = op.lhs, op.rhs, op.dims
    if isinstance(lhs.owner, hlo.TransposeOp):
        names = lhs.owner.permutation
        dims = dataclasses.replace(
            dims,
            input_batch=names[dims.input_batch],
            input_feature=names[dims.input_feature],
            input_spatial=tuple(names[d] for d in dims.input_spatial),
        )
        lhs = lhs.owner.operand
    if isinstance(rhs.owner, hlo.TransposeOp):
        names = rhs.owner.permutation
        dims = dataclasses.replace(
            dims,
            kernel_input_feature=names[dims.kernel_input_feature],
            kernel_output_feature=names[dims.kernel_output_feature],
            kernel_spatial=tuple(names[d] for d in dims.kernel_spatial),
        )
        rhs = rhs.owner.operand
    return None if dims == op.dims else rewriter.emit(_with_dims(op, lhs, rhs, dims))


def transpose_of_convolution(op: hlo.TransposeOp, rewriter: Rewriter) -> SSAValue | None:
    """transpose(conv(x, k)) -> conv(x, k) with renamed result dimensions, as above."""
    conv = op.operand.owner
    if not isinstance(conv, hlo.ConvolutionOp) or not op.operand.has_one_use():
        return None
    place = op.permutation.index
    dims = dataclasses.replace(
        conv.dims,
        output_batch=place(conv.dims.output_batch),
        output_feature=place(conv.dims.output_feature),
        output_spatial=tuple(place(d) for d in conv.dims.output_spatial),
    )
    return rewriter.emit(_with_dims(conv, conv.lhs, conv.rhs, dims))


def _with_dims(
    op: hlo.ConvolutionOp, lhs: SSAValue, rhs: SSAValue, dims: hlo.ConvDims
) -> hlo.ConvolutionOp:
    return hlo.ConvolutionOp(
        lhs,
        rhs,
        dims,
        op.strides,
        op.padding,
        op.lhs_dilation,
        op.rhs_dilation,
        op.feature_groups,
        op.batch_groups,
        op.reversal,
        hlo.element_type_of(op.result),
    )
