"""Arranges the loops of lowered kernels for a core: what they compute stays, to the bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects import affine, func

from poetc.kernels.access import tiles_of
from poetc.kernels.analysis import buffers, is_sequential, may_alias
from poetc.kernels.arrange.choice import Choice, price_of
from poetc.kernels.arrange.copies import jam, unroll
from poetc.kernels.arrange.machine import Machine
from poetc.kernels.arrange.together import load_together
from poetc.kernels.arrange.vectors import in_lanes


def arranged_step(
    calls: Sequence[tuple[func.FuncOp, int]], machine: Machine
) -> tuple[list[func.FuncOp], float]:
    """The kernels of a step with their loops arranged for a core, in order, and the instructions of
    a step that each operation of more code saves; kernels are given with the number of their calls.
    More code goes to the kernels in which it saves most."""
    kernels = [(Choice(_in_lanes(function, machine), machine), count) for function, count in calls]
    price = price_of(kernels, machine)
    functions = [
        _arranged(function, kernel, price / count)
        for (function, _), (kernel, count) in zip(calls, kernels, strict=True)
    ]
    return functions, price


def arranged(
    function: func.FuncOp, machine: Machine, price: float = 0.0, keeps: bool = False
) -> func.FuncOp:
    """A kernel that computes the same bits with its loops arranged for a core, or the kernel itself
    where there is nothing to gain; each operation of more code is to save `price` instructions,
    which are those of the kernel as it is, too, if one `keeps` it beside.

    Each element is made by the same operations in the same order. A result that may take over the
    buffer of an operand may still do so.
    """
    return _arranged(function, Choice(_in_lanes(function, machine), machine), price, keeps)


def _in_lanes(function: func.FuncOp, machine: Machine) -> func.FuncOp:
    """A kernel with loops in lanes, if it has some that may be, and the machine has vectors. Not
    what runs in tiles."""
    if machine.lanes == 1 or is_sequential(function) or tiles_of(function):
        return function
    new = in_lanes(function, machine.lanes)
    return new if new is not None and _may_alias_too(new, function) else function


def _arranged(
    function: func.FuncOp, kernel: Choice, price: float, keeps: bool = False
) -> func.FuncOp:
    if is_sequential(function):
        return function
    plain = kernel.plain
    worth = plain.instructions - (price * plain.code if keeps else 0.0)
    for way, arrangement in kernel.arrange(price):
        if (way is plain and not arrangement.copies) or arrangement.instructions > worth:
            break
        copy, copies = way.function, arrangement.copies
        for loop in _from_inside(copy, copies):
            (unroll if loop.inits else jam)(loop, copies[loop])
        if kernel.machine.load_floats > 1:
            load_together(copy, kernel.machine)
        if _may_alias_too(copy, function):
            return copy
    return kernel.function


def _may_alias_too(copy: func.FuncOp, function: func.FuncOp) -> bool:
    """Whether results may take over the buffers in a copy that they may in the function."""
    return all(
        may_alias(copy, result, operand)
        for result in range(len(buffers(function, "results")))
        for operand in range(len(buffers(function, "inputs")))
        if may_alias(function, result, operand)
    )


def _from_inside(function: func.FuncOp, copies: Mapping[affine.ForOp, int]) -> list[affine.ForOp]:
    """The loops of which there are copies, inner ones first."""
    return [op for op in function.walk() if isinstance(op, affine.ForOp) and op in copies][::-1]


__all__ = ["Machine", "arranged", "arranged_step"]
