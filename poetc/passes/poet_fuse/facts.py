"""The facts about operations that fusing needs: kind, cost, and how they read their operands."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, Operation

from poetc.ir import stablehlo as hlo
from poetc.ir.stablehlo.base import Fuses

MAX_CLONE_FLOPS = 64
"""An element-wise op with several consumers is cloned into them up to this cost per element."""

CHEAP_FLOPS = 8
"""Up to this cost per element, cloning wins where storing would take as much memory."""

SUMS = {Fuses.ANCHOR, Fuses.REDUCTION}
ALONE = {Fuses.ANCHOR, Fuses.LOOKUP}
"""Operations that evaluate no anchor or reduction themselves."""

MOVES = {Fuses.VIEW, Fuses.LEAF}

EXPENSIVE_FLOPS = 16
"""Rough cost of one of our own math functions, in floating-point operations."""

UNIT, OPAQUE = -1, -2
"""Tags of a dimension that are not an axis: of size one, and not a plain axis."""


def fuses(owner: Operation | Block) -> Fuses | None:
    """How the operation that makes a value fuses; None for an argument."""
    return getattr(owner, "FUSES", None)


def flops_of(op: Operation) -> int:
    if fuses(op) in MOVES:
        return 0
    if fuses(op) is Fuses.LOOKUP:
        # Not arithmetic, but cloning it would keep the whole table around.
        return MAX_CLONE_FLOPS
    return EXPENSIVE_FLOPS if isinstance(op, hlo.ElementwiseOp) and op.function() else 1


def operand_tags(op: Operation, index: int, tags: Sequence[int]) -> tuple[int, ...]:
    """The loop axis that indexes each dimension of operand `index`, given the result's axes."""
    operand = op.operands[index]
    shape = hlo.shape_of(operand)
    match op:
        case hlo.BroadcastInDimOp():
            found = [tags[d] for d in op.dims]
        case hlo.TransposeOp():
            found = [OPAQUE] * len(shape)
            for tag, d in zip(tags, op.permutation, strict=True):
                found[d] = tag
        case hlo.ReshapeOp():
            kept = [t for t, n in zip(tags, hlo.shape_of(op.results[0]), strict=True) if n != 1]
            wide = [n for n in hlo.shape_of(op.results[0]) if n != 1]
            if wide != [n for n in shape if n != 1]:
                return (OPAQUE,) * len(shape)
            rest = iter(kept)
            found = [UNIT if n == 1 else next(rest) for n in shape]
        case hlo.ScatterOp() if index == 0:
            found = list(tags)
        case hlo.ReduceOp() if index == 0:
            rest = iter(tags)
            found = [d if d in op.dims else next(rest) for d in range(len(shape))]
        case _ if is_elementwise(op) and shape == hlo.shape_of(op.results[0]):
            found = list(tags)
        case _:
            return (OPAQUE,) * len(shape)
    return tuple(UNIT if n == 1 else t for t, n in zip(found, shape, strict=True))


def is_elementwise(op: Operation) -> bool:
    return fuses(op) is Fuses.POINT


def reads_once(view: Operation) -> bool:
    """Whether each element of the view's operand appears at most once in its result."""
    if isinstance(view, hlo.BroadcastInDimOp):
        return hlo.element_count(view.results[0]) == hlo.element_count(view.operands[0])
    return isinstance(view, (hlo.ReshapeOp, hlo.TransposeOp, hlo.ReverseOp, hlo.SliceOp))


def passes_once(op: Operation, index: int) -> bool:
    """Whether consumer `op` reads each element of that operand at most once."""
    return (
        (
            is_elementwise(op)
            and hlo.element_count(op.operands[index]) == hlo.element_count(op.results[0])
        )
        or fuses(op) is Fuses.VIEW
        or (fuses(op) is Fuses.REDUCTION and index == 0)
    )
