"""Chooses how many iterations of which loops of a kernel run at a time, by a count of instructions.

What is loaded serves all copies that need it, so that more copies need fewer loads for each
operation, until what is under way does not fit into registers any more; each copy is code. Where
the loops of a kernel take few instructions, they stay as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod

from xdsl.dialects import affine, arith, func, memref
from xdsl.ir import Block, Operation, SSAValue

from poetc.ir import mathlib
from poetc.kernels.addresses import IN_ALL, extent
from poetc.kernels.arrange.legality import may_jam
from poetc.kernels.dependences import dependences

Loop = affine.ForOp
_Loops = frozenset[Loop]


@dataclass(frozen=True)
class Machine:
    """What a kernel is arranged for: registers for floats, and what takes how many instructions."""

    registers: int = 32
    flop_instructions: int = 1
    """Of an addition, multiplication or comparison."""
    loop_instructions: float = 3.0
    """Of a loop, for each iteration."""
    entry_instructions: float = 6.0
    """Of a loop, each time that it is begun."""
    few_instructions: float = 8000.0
    """Innermost loops that take no more in all stay as they are."""
    worth: float = 0.0024
    """The share of a loop's instructions that each operation of more code must save: with this,
    firmware takes at most half more flash; half of it would save a tenth more instructions, for
    two thirds more flash (resnet8, lenet5, bert_micro on a Cortex-M4)."""


_FACTORS = (2, 3, 4, 5, 6, 7, 8)
_MOST_COPIES = 16
_UNROLLED = (2, 3, 4, 5, 8)
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
_KEPT_FREE = 3
"""Registers for what is under way between loads and sums."""


@dataclass(frozen=True)
class _Body:
    """What is in an innermost loop, by the loops that it depends on: instructions and, among them,
    loads; and what the loop carries."""

    instructions: tuple[tuple[_Loops, int], ...]
    loads: tuple[tuple[_Loops, int], ...]
    carried: tuple[_Loops, ...]


@dataclass(frozen=True)
class Arrangement:
    """How many iterations of each loop run at a time; loops that are not in it run as they are."""

    copies: Mapping[Loop, int]


class Kernel:
    """The loops of a kernel as the choice looks at them."""

    def __init__(self, function: func.FuncOp, machine: Machine) -> None:
        self.machine = machine
        self.depends = dependences(function)
        self.around: dict[Operation, tuple[Loop, ...]] = {}
        self.leaves: list[Loop] = []
        self.known: dict[Loop, int] = {}
        self._walk(function.body.block, ())
        self.chosen: dict[Loop, int] = {}
        self.bodies: dict[Loop, _Body] = {}
        self.sizes: dict[Loop, Counter[tuple[_Loops, _Loops]]] = {}

    def _walk(self, block: Block, loops: tuple[Loop, ...]) -> None:
        for op in block.ops:
            self.around[op] = loops
            for region in op.regions:
                for inner in region.blocks:
                    self._walk(inner, (*loops, op) if isinstance(op, Loop) else loops)
            if isinstance(op, Loop) and not any(isinstance(o, Loop) for o in _inside(op)):
                self.leaves.append(op)

    def _extent(self, loop: Loop) -> int:
        if loop not in self.known:
            self.known[loop] = extent(loop)
        return self.known[loop]

    def arrange(self) -> Arrangement:
        """The copies of each loop, the loops that take most chosen first."""
        for leaf in sorted(self.leaves, key=lambda leaf: -self._total(leaf, {}, 1)):
            self._choose(leaf)
        return Arrangement({loop: count for loop, count in self.chosen.items() if count > 1})

    def _choose(self, leaf: Loop) -> None:
        before = self._total(leaf, self.chosen, 1)
        if before <= self.machine.few_instructions:
            return
        around = [loop for loop in (*self.around[leaf], leaf) if not loop.inits]
        free = [loop for loop in around if loop not in self.chosen and self._may_jam(loop)]
        free = [loop for loop in free if self._extent(loop) > 1]

        def cost(copies: Mapping[Loop, int], unroll: int) -> float:
            more = self._code(leaf, copies, unroll) * max(before, 50_000.0) * self.machine.worth
            return self._total(leaf, copies, unroll) + more

        best, best_cost = self.chosen, before
        for count in (1, 2, 3):
            for loops in combinations(free, count):
                for factors in _tiles([self._extent(loop) for loop in loops]):
                    copies = self.chosen | dict(zip(loops, factors, strict=True))
                    if (new := cost(copies, 1)) < best_cost:
                        best, best_cost = copies, new
        unrolled = 1
        if leaf.inits and IN_ALL not in leaf.attributes:
            for unroll in _UNROLLED:
                if unroll <= self._extent(leaf) and (new := cost(best, unroll)) < best_cost:
                    unrolled, best_cost = unroll, new
        self.chosen = {**dict.fromkeys(around, 1), **best}
        if leaf.inits:
            self.chosen[leaf] = unrolled

    def _may_jam(self, loop: Loop) -> bool:
        """Whether iterations can run together, and all guards in the loop are alike for them."""
        guards = [op for op in loop.walk() if isinstance(op, affine.IfOp)]
        return may_jam(loop) and not any(
            loop in self.depends.get(value, ()) for guard in guards for value in guard.args
        )

    # Costs

    def _total(self, leaf: Loop, copies: Mapping[Loop, int], unroll: int) -> float:
        """Instructions of an innermost loop in all, with what remains of tiles."""
        around = self.around[leaf]
        jammed = [loop for loop in (*around, leaf) if not loop.inits and copies.get(loop, 1) > 1]
        always = prod(self._extent(loop) for loop in around if loop not in jammed)
        total = 0.0
        for parts in product((True, False), repeat=len(jammed)):
            times, iterations = always, self._extent(leaf)
            inner: dict[Loop, int] = {}
            for loop, whole in zip(jammed, parts, strict=True):
                tiles, rest = divmod(self._extent(loop), copies[loop])
                inner[loop] = copies[loop] if whole else 1
                if loop is leaf:
                    iterations = tiles if whole else rest
                else:
                    times *= tiles if whole else rest
            if times and iterations:
                total += times * self._leaf(leaf, inner, iterations, unroll)
        return total

    def _leaf(self, leaf: Loop, copies: Mapping[Loop, int], iterations: int, unroll: int) -> float:
        """Instructions of an innermost loop that is run once."""
        body = self._body(leaf)
        instructions = sum(each * _count(loops, copies) for loops, each in body.instructions)
        loads = sum(each * _count(loops, copies) for loops, each in body.loads)
        carried = sum(_count(loops, copies) for loops in body.carried)
        if carried + min(loads, 8) + _KEPT_FREE > self.machine.registers:
            return float("inf")
        entry = self.machine.entry_instructions + 2.0 * sum(each for _, each in body.loads)
        steps = iterations / unroll
        return instructions * iterations + self.machine.loop_instructions * steps + entry

    def _body(self, leaf: Loop) -> _Body:
        if leaf not in self.bodies:
            instructions: Counter[_Loops] = Counter()
            loads: Counter[_Loops] = Counter()
            for op in _inside(leaf):
                loops = self._loops_of(op.results or op.operands)
                instructions[loops] += self._instructions(op)
                loads[loops] += isinstance(op, affine.LoadOp | memref.LoadOp)
            carried = (self._loops_of([value]) for value in leaf.body.block.args[1:])
            self.bodies[leaf] = _Body(
                tuple(instructions.items()), tuple(loads.items()), tuple(carried)
            )
        return self.bodies[leaf]

    def _instructions(self, op: Operation) -> int:
        if isinstance(op, arith.ConstantOp | affine.YieldOp | affine.ApplyOp | affine.IfOp):
            return 0
        if mathlib.symbol_of(op) is not None:
            return _CALL_INSTRUCTIONS
        if isinstance(op, arith.DivfOp):
            return max(_DIVISION_INSTRUCTIONS, self.machine.flop_instructions)
        return self.machine.flop_instructions if isinstance(op, _FLOPS) else 1

    def _loops_of(self, values: Sequence[SSAValue]) -> _Loops:
        return frozenset[Loop]().union(*(self.depends.get(value, ()) for value in values))

    def _code(self, leaf: Loop, copies: Mapping[Loop, int], unroll: int) -> float:
        """Operations of code that there are more than without copies."""
        jammed = [loop for loop in (*self.around[leaf], leaf) if copies.get(loop, 1) > 1]
        jammed = [loop for loop in jammed if not loop.inits]
        more = 0.0
        for (around, loops), size in self._sizes(jammed[0] if jammed else leaf).items():
            parts = 1.0
            for loop in jammed:
                if loop in around:
                    varies = copies[loop] if loop in loops else 1
                    parts *= varies + bool(self._extent(loop) % copies[loop])
            if leaf in around and leaf.inits:
                parts *= unroll + bool(self._extent(leaf) % unroll)
            more += size * (parts - 1)
        return more

    def _sizes(self, loop: Loop) -> Counter[tuple[_Loops, _Loops]]:
        """Operations of code in a loop: those in the same loops, that depend on the same."""
        if loop not in self.sizes:
            found: Counter[tuple[_Loops, _Loops]] = Counter()
            for op in _inside(loop):
                if not isinstance(op, arith.ConstantOp | affine.YieldOp):
                    around = frozenset(self.around[op])
                    loops = self._loops_of((*op.results, *op.operands))
                    found[around, loops] += _size(op)
            self.sizes[loop] = found
        return self.sizes[loop]


def _size(op: Operation) -> int:
    """Instructions of code, each of which an operation takes once."""
    if isinstance(op, Loop):
        return 4 + len(op.inits)
    return 4 if mathlib.symbol_of(op) is not None else 1


def _count(loops: _Loops, copies: Mapping[Loop, int]) -> int:
    """Copies of what depends on these loops."""
    return prod(copies.get(loop, 1) for loop in loops)


def _tiles(extents: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Copies of each of these loops, not too many in all."""
    options = [[c for c in _FACTORS if c <= n] for n in extents]
    return (tile for tile in product(*options) if prod(tile) <= _MOST_COPIES)


def _inside(loop: Loop) -> Iterator[Operation]:
    walk = loop.walk()
    next(walk)
    return walk
