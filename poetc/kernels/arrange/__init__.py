"""Arranges the loops of a lowered kernel for a core: what it computes stays, to the bit."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects import affine, func

from poetc.kernels.analysis import TILES, buffers, is_sequential, may_alias
from poetc.kernels.arrange.choice import Kernel, Machine
from poetc.kernels.arrange.copies import jam, unroll


def arranged(function: func.FuncOp, machine: Machine) -> func.FuncOp:
    """A kernel that computes the same bits with its loops arranged for a core, or the kernel itself
    where there is nothing to gain.

    Each element is made by the same operations in the same order. A result that may take over the
    buffer of an operand may still do so.
    """
    if is_sequential(function) or TILES in function.attributes:
        return function
    copy = function.clone()
    copies = Kernel(copy, machine).arrange().copies
    if not copies:
        return function
    for loop in _from_inside(copy, copies):
        (unroll if loop.inits else jam)(loop, copies[loop])
    kept = all(
        may_alias(copy, result, operand)
        for result in range(len(buffers(function, "results")))
        for operand in range(len(buffers(function, "inputs")))
        if may_alias(function, result, operand)
    )
    return copy if kept else function


def _from_inside(function: func.FuncOp, copies: Mapping[affine.ForOp, int]) -> list[affine.ForOp]:
    """The loops of which there are copies, inner ones first."""
    return [op for op in function.walk() if isinstance(op, affine.ForOp) and op in copies][::-1]


__all__ = ["Machine", "arranged"]
