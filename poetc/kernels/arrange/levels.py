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
from poetc.kernels.lanes import SIDE
from poetc.kernels.pieces import pieces

Loops = frozenset[int]
"""Loops by their numbers in the kernel."""

KEPT_FREE = 4
"""Registers for what is under way between loads and sums, where loads are brought together."""

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
class Accesses:
    """Loads or stores of one buffer that are at fixed distances from each other: the loops whose
    variables move them, what by, and those distances, in elements. None: it is not known."""

    loops: tuple[int, ...]
    steps: tuple[int, ...] | None
    distances: tuple[int, ...]
    apart: int = 1
    """Lanes whose numbers are not side by side: each is loaded by itself, or rows of squares."""

    def count(self, copies: Sequence[int]) -> int:
        """The accesses that remain of copies, as one address is accessed once."""
        return self.places(copies, 1)[0]

    def places(self, copies: Sequence[int], together: int) -> tuple[int, int]:
        """The accesses of `count`, and the instructions that they take if each does so many of
        them."""
        if self.steps is None:
            count = count_of(self.loops, copies) * len(self.distances)
            return count, count * _by_itself(self.apart)
        counts = tuple([copies[loop] for loop in self.loops])
        return _places(self.distances, self.steps, counts, together, self.apart)

    @cached_property
    def side(self) -> Loops:
        """The loops from one iteration of which to the next accesses are side by side."""
        steps = zip(self.loops, self.steps or (), strict=False)
        return frozenset(loop for loop, step in steps if abs(step) == 1)

    def share(self, places: int, copies: Sequence[int], loops: Loops, together: int) -> int:
        """The accesses to so many places that are done for one of the copies of some loops, with
        those that one instruction does, up to `together`, for others of them."""
        share = places
        for loop in self.loops:
            if loop in loops and (count := copies[loop]) > 1:
                share //= count
                if loop in self.side:
                    share *= min(count, together)
        return min(share, places)

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
    distances: tuple[int, ...],
    steps: tuple[int, ...],
    copies: tuple[int, ...],
    together: int,
    apart: int,
) -> tuple[int, int]:
    """How many addresses copies of loads at these distances have, and the instructions that load
    from them, of which each loads so many floats and, where it is one of several, has its address
    from another."""
    places = set(distances)
    for step, count in zip(steps, copies, strict=True):
        if count > 1:
            places = {place + step * i for place in places for i in range(count)}
    if apart > 1:
        found = pieces(sorted(places), SIDE)
        each = {SIDE: _in_square(apart)}
        return len(places), sum(each.get(n, n * _by_itself(apart)) for _, n in found)
    if together == 1 or len(places) == 1:
        return len(places), len(places)
    found = pieces(sorted(places), together)
    return len(places), len(found) + max(sum(count > 1 for _, count in found) - 1, 0)


def _by_itself(apart: int) -> int:
    """Instructions of a load of so many numbers that are not side by side: each is loaded, and put
    to the others."""
    return 2 * apart - 1


def _in_square(apart: int) -> int:
    """Instructions of `SIDE` such loads together: rows are loaded, put together and transposed."""
    return apart + (apart - SIDE) + 2 * SIDE


@dataclass(frozen=True)
class Level:
    """The content of a loop without the loops inside: instructions by the loops that they depend
    on, loads and stores, and values that the loop carries."""

    instructions: tuple[tuple[Loops, int], ...]
    loads: tuple[Accesses, ...]
    stores: tuple[Accesses, ...]
    carried: tuple[Loops, ...]
    begun: tuple[Loops, ...]
    """Of what it carries, what the loop around does not carry already."""
    is_guarded: bool
    """Whether a guard is all there is in it, which becomes its bounds."""

    @cached_property
    def loops(self) -> tuple[int, ...]:
        """The loops whose copies make a difference."""
        by_loads = (each.loops for each in (*self.loads, *self.stores))
        by_others = (*(loops for loops, _ in self.instructions), *self.carried)
        return tuple({loop for each in (*by_others, *by_loads) for loop in each})

    @cached_property
    def known(self) -> dict[tuple[int, ...], tuple[float, float]]:
        """Instructions of an iteration and of entering the loop, by copies of `loops`."""
        return {}

    def once(
        self,
        machine: Machine,
        copies: Sequence[int],
        unrolled: Sequence[int],
        unroll: int,
        is_loop: bool,
    ) -> tuple[float, float]:
        """Instructions of an iteration, and of entering the loop, if it is one: it is none where
        all iterations are done at a time. Of what it loads there are copies as `unrolled` says,
        where it has `unroll` iterations one after the other."""
        body = float(sum(each * count_of(loops, copies) for loops, each in self.instructions))
        carried = sum(count_of(loops, copies) for loops in self.carried)
        body += self._loading(machine, copies, unrolled, carried) / unroll
        accesses = (*self.loads, *self.stores)
        pointers = sum(each.pointers(unrolled, machine.reach) for each in accesses)
        if not is_loop:
            return body + pointers / unroll, 0.0
        body += (machine.loop_instructions + pointers) / unroll
        if self.carried:
            body = max(body, float(machine.latency_instructions))
        begun = sum(count_of(loops, copies) for loops in self.begun)
        return body, machine.entry_instructions + 2 * pointers + begun

    def _loading(
        self, machine: Machine, copies: Sequence[int], unrolled: Sequence[int], carried: int
    ) -> float:
        """Instructions that load and store, of copies of what is in a loop that carries so many
        floats."""
        most = machine.load_floats
        stores = [store.places(unrolled, most) for store in self.stores]
        taken = sum(count for _, count in stores)
        free = machine.registers - KEPT_FREE - carried
        # What one instruction stores waits in registers of its own.
        free -= max((min(most, places) for places, count in stores if count < places), default=0)
        together = most
        while True:
            loads = [load.places(unrolled, together) for load in self.loads]
            places = [count for count, _ in loads]
            taken_by_loads = sum(count for _, count in loads)
            if self._waiting(unrolled, places, together) <= free or (
                most > 1 and self._in_terms(copies, unrolled, places, together) + carried <= free
            ):
                return taken + taken_by_loads
            if together == 1:
                break
            together //= 2
        # Compilers load ahead of what needs it, and keep what there is no register for in memory,
        # where an operation on vectors does not take it from.
        spilled = max(sum(places) - free, 0) if machine.lanes == 1 else 0
        return taken + spilled + taken_by_loads

    def _waiting(self, copies: Sequence[int], places: Sequence[int], together: int) -> int:
        """How many loaded floats wait for their use at a time, of so many for each of the loads, of
        which one instruction does up to `together`: of those that are the most only what one sum
        needs, if there are sums, that are done in turn."""
        if not self.carried or self.stores:
            return sum(places)
        spared = (
            count - load.share(count, copies, self._jammed, together)
            for load, count in zip(self.loads, places, strict=True)
        )
        return sum(places) - max(spared, default=0)

    def _in_terms(
        self,
        copies: Sequence[int],
        unrolled: Sequence[int],
        places: Sequence[int],
        together: int,
    ) -> int:
        """The same if terms of all sums are done in turn, for which each sum has a product under
        way, too."""
        if not self.carried or self.stores:
            return sum(places)
        terms = frozenset(
            loop for load in self.loads for loop in load.loops if unrolled[loop] != copies[loop]
        )
        return sum(
            load.share(count, unrolled, terms, together)
            for load, count in zip(self.loads, places, strict=True)
        )

    @cached_property
    def _jammed(self) -> Loops:
        """The loops whose copies have sums of their own."""
        return frozenset[int]().union(*self.carried)


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
