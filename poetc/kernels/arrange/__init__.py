"""Arranges the loops of lowered kernels for a core: what they compute stays, to the bit."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from xdsl.dialects import affine, func

from poetc.kernels.access import tiles_of
from poetc.kernels.analysis import buffers, is_sequential, may_alias
from poetc.kernels.arrange.alike import shared_code
from poetc.kernels.arrange.choice import Choice, Kernel, price_of
from poetc.kernels.arrange.copies import jam, unroll
from poetc.kernels.arrange.machine import Machine
from poetc.kernels.arrange.terms import terms_outside
from poetc.kernels.arrange.together import bring_together
from poetc.kernels.arrange.vectors import in_lanes
from poetc.kernels.structure import structure


class Ways:
    """The ways to arrange the loops of a kernel for a core. The kernel stays as it is."""

    def __init__(self, function: func.FuncOp, machine: Machine) -> None:
        self.function = function
        self.choice = Choice(_in_lanes(function, machine), machine)
        self.made: dict[tuple[Kernel, tuple[int, ...]], func.FuncOp | None] = {}
        """By the copies of each loop; None where results may not take over buffers as before."""

    def best(self, price: float, keeps: bool = False) -> func.FuncOp:
        """The function of `arranged`, which belongs to this object."""
        if is_sequential(self.function):
            return self.function
        plain = self.choice.plain
        for way, arrangement in self.choice.arrange(price, keeps):
            is_plain = way is plain and not arrangement.copies
            if is_plain or arrangement.instructions > plain.instructions:
                break
            counts = tuple(arrangement.copies.get(loop, 1) for loop in way.loops)
            if (way, counts) not in self.made:
                self.made[way, counts] = self._made(way, counts)
            if (made := self.made[way, counts]) is not None:
                return made
        return self.choice.function

    def _made(self, way: Kernel, counts: Sequence[int]) -> func.FuncOp | None:
        copy = way.function.clone()
        loops = [op for op in copy.walk() if isinstance(op, affine.ForOp)]
        # Inner loops first.
        for loop, count in reversed(list(zip(loops, counts, strict=True))):
            if count > 1:
                (unroll if loop.inits else jam)(loop, count)
        if self.choice.machine.load_floats > 1:
            bring_together(copy, self.choice.machine)
        return copy if may_alias_too(copy, self.function) else None


class KnownWays:
    """The ways to arrange kernels, one for all with the same structure."""

    def __init__(self) -> None:
        self.known: dict[Hashable, Ways] = {}

    def of(self, function: func.FuncOp, machine: Machine) -> Ways:
        """The ways of a kernel, which keep a copy of it."""
        key = machine, structure(function)
        if key not in self.known:
            self.known[key] = Ways(function.clone(), machine)
        return self.known[key]


def arranged_step(
    calls: Sequence[tuple[func.FuncOp, int]], machine: Machine, known: KnownWays | None = None
) -> tuple[list[func.FuncOp], float]:
    """The kernels of a step with their loops arranged for a core, in order, and the instructions of
    a step that each operation of more code saves; kernels are given with the number of their calls.
    More code goes to the kernels in which it saves most. The ways that are `known` serve other
    steps, too."""
    known = known or KnownWays()
    ways = [(known.of(function, machine), count) for function, count in calls]
    times = [kernel.choice.plain.instructions * count for kernel, count in ways]
    shared = shared_code([function for function, _ in calls], times)
    choices = [
        (kernel.choice, count, alike) for (kernel, count), alike in zip(ways, shared, strict=True)
    ]
    price = price_of(choices, machine)
    functions: list[func.FuncOp] = []
    for (function, _), (kernel, count), alike in zip(calls, ways, shared, strict=True):
        best = kernel.best(price / count, alike is not None)
        if best is not kernel.function:
            function, name = best.clone(), function.sym_name
            function.properties["sym_name"] = name
        functions.append(function)
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
    return Ways(function, machine).best(price, keeps)


def _in_lanes(function: func.FuncOp, machine: Machine) -> func.FuncOp:
    """A kernel with loops in lanes, if it has some that may be, and the machine has vectors. Not
    what runs in tiles."""
    if machine.lanes == 1 or is_sequential(function) or tiles_of(function):
        return function
    turned = terms_outside(function, machine.cache_bytes) if machine.cache_bytes else None
    for form in (turned, function):
        if form is not None:
            new = in_lanes(form, machine.lanes, machine.cache_bytes)
            if new is not None and may_alias_too(new, function):
                return new
    return function


def may_alias_too(copy: func.FuncOp, function: func.FuncOp) -> bool:
    """Whether results may take over the buffers in a copy that they may in the function."""
    return all(
        may_alias(copy, result, operand)
        for result in range(len(buffers(function, "results")))
        for operand in range(len(buffers(function, "inputs")))
        if may_alias(function, result, operand)
    )


__all__ = ["KnownWays", "Machine", "arranged", "arranged_step", "may_alias_too"]
