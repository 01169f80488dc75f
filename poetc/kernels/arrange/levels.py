"""The cost of a loop without the loops inside, by the number of copies of each loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import ceil, prod

from xdsl.dialects import affine, arith
from xdsl.ir import Operation

from poetc.ir import mathlib
from poetc.kernels.arrange.machine import Machine
from poetc.kernels.arrange.pieces import pieces

Loops = frozenset[int]
"""Loops by their numbers in the kernel."""

_FLOPS = (
    arith.AddfOp,
    arith.SubfOp,
    arith.MulfOp,
    arith.CmpfOp,
    arith.MaximumfOp,
    arith.MinimumfOp,
)
_CALL_INSTRUCTIONS = 40
_DIVISION_INSTRUCTIONS = 14
_GUARD_INSTRUCTIONS = 3


@dataclass(frozen=True)
class Load:
    """Loads of one buffer that are at fixed distances from each other: the loops whose variables
    move them, what by, and those distances, in elements. None: it is not known."""

    loops: tuple[int, ...]
    steps: tuple[int, ...] | None
    distances: tuple[int, ...]
    instructions: int = 1
    """Of each load."""

    def count(self, copies: Sequence[int]) -> int:
        """Loads that remain of copies, as what is at one address is loaded once."""
        return self.places(copies, 1)[0]

    def places(self, copies: Sequence[int], together: int) -> tuple[int, int]:
        """The loads of `count`, and the instructions that they take if each loads so many
        floats."""
        if self.steps is None:
            count = count_of(self.loops, copies) * len(self.distances)
            return count, count
        counts = tuple([copies[loop] for loop in self.loops])
        return _places(self.distances, self.steps, counts, together)

    def pointers(self, copies: Sequence[int], reach: int) -> int:
        """Pointers for copies."""
        if self.steps is None:
            return count_of(self.loops, copies)
        moved = sum(
            abs(step) * (copies[loop] - 1)
            for loop, step in zip(self.loops, self.steps, strict=True)
        )
        span = self.distances[-1] - self.distances[0] + moved
        return 1 if span < reach else min(ceil((span + 1) / reach), self.count(copies))


@cache
def _places(
    distances: tuple[int, ...], steps: tuple[int, ...], copies: tuple[int, ...], together: int
) -> tuple[int, int]:
    """How many addresses copies of loads at these distances have, and the instructions that load
    from them, of which each loads so many floats and, where it is one of several, has its address
    from another."""
    places = set(distances)
    for step, count in zip(steps, copies, strict=True):
        if count > 1:
            places = {place + step * i for place in places for i in range(count)}
    if together == 1 or len(places) == 1:
        return len(places), len(places)
    found = pieces(sorted(places), together)
    return len(places), len(found) + max(sum(count > 1 for _, count in found) - 1, 0)


@dataclass(frozen=True)
class Level:
    """The content of a loop without the loops inside: instructions by the loops that they depend
    on, loads, and values that the loop carries."""

    instructions: tuple[tuple[Loops, int], ...]
    loads: tuple[Load, ...]
    carried: tuple[Loops, ...]
    is_guarded: bool
    """Whether a guard is all there is in it, which becomes its bounds."""

    @cached_property
    def loops(self) -> tuple[int, ...]:
        """The loops whose copies make a difference."""
        by_loads = (load.loops for load in self.loads)
        by_others = (*(loops for loops, _ in self.instructions), *self.carried)
        return tuple({loop for each in (*by_others, *by_loads) for loop in each})

    @cached_property
    def known(self) -> dict[tuple[int, ...], tuple[float, float]]:
        """Instructions of an iteration and of entering the loop, by copies of `loops`."""
        return {}

    def once(
        self, machine: Machine, copies: Sequence[int], unrolled: Sequence[int], unroll: int
    ) -> tuple[float, float]:
        """Instructions of an iteration, and of entering the loop. Of what it loads there are
        copies as `unrolled` says, where it has `unroll` iterations one after the other."""
        body = float(sum(each * count_of(loops, copies) for loops, each in self.instructions))
        carried = sum(count_of(loops, copies) for loops in self.carried)
        body += self._loading(machine, unrolled, carried) / unroll
        pointers = sum(load.pointers(unrolled, machine.reach) for load in self.loads)
        moving = machine.loop_instructions + pointers
        return body + moving / unroll, machine.entry_instructions + 2 * pointers + carried

    def _loading(self, machine: Machine, copies: Sequence[int], carried: int) -> float:
        """Instructions that load, of copies of what is in a loop that carries so many floats."""
        loads = [load.places(copies, machine.load_floats) for load in self.loads]
        if sum(places for places, _ in loads) + carried > machine.registers:
            loads = [(places, places) for places, _ in loads]
        return sum(
            load.instructions * count for load, (_, count) in zip(self.loads, loads, strict=True)
        )


def instructions_of(op: Operation, machine: Machine) -> int:
    """Instructions that an operation takes, without what is in it."""
    if isinstance(op, (arith.ConstantOp, affine.YieldOp, affine.ApplyOp, affine.ForOp)):
        return 0
    if isinstance(op, affine.IfOp):
        return _GUARD_INSTRUCTIONS
    if mathlib.symbol_of(op) is not None:
        return _CALL_INSTRUCTIONS
    if isinstance(op, arith.DivfOp):
        return max(_DIVISION_INSTRUCTIONS, machine.flop_instructions)
    return machine.flop_instructions if isinstance(op, _FLOPS) else 1


def count_of(loops: Iterable[int], copies: Sequence[int]) -> int:
    """Copies of what depends on these loops."""
    return prod([copies[loop] for loop in loops])
