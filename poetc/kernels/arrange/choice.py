"""Chooses how many iterations of which loops of a kernel run at a time, by a count of instructions.

What is loaded serves all copies that need it, so that more copies need fewer loads for each
operation, until what is under way does not fit into registers any more; each copy is code, which
has its price in instructions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from math import ceil, prod

from xdsl.dialects import affine, arith, func, memref
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Block, Operation, SSAValue

from poetc.ir import mathlib
from poetc.kernels.access import linear_indices
from poetc.kernels.addresses import IN_ALL, extent
from poetc.kernels.arrange.legality import may_jam
from poetc.kernels.arrange.peel import peelings
from poetc.kernels.dependences import dependences
from poetc.kernels.guards import only_guard

Loop = affine.ForOp
_Loops = frozenset[Loop]


@dataclass(frozen=True)
class Machine:
    """What kernels are arranged for: registers for floats, what takes how many instructions, and
    how much code may be added."""

    registers: int = 32
    flop_instructions: int = 1
    """Of an addition, multiplication or comparison."""
    loop_instructions: int = 2
    """Of a loop, for each iteration, beside one for each pointer that moves."""
    entry_instructions: int = 2
    """Of a loop, each time that it is begun, beside two for each pointer."""
    reach: int = 256
    """Elements that a load reaches from a pointer."""
    growth: float = 0.75
    """Operations of code that may be added, as a share of those of the step with loops as they are
    lowered. What is added takes less flash for each than what was there: firmware for a Cortex-M4
    takes half more."""
    runtime_operations: int = 520
    """Of that, what is not in kernels."""
    least_worth: float = 2e-5
    """The share of the step's instructions that each operation of more code saves at least."""


_FACTORS = (2, 3, 4, 5, 6, 7, 8)
_MOST_COPIES = 16
_UNROLLED = (1, 2, 3, 4, 5, 8)
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
_KEPT_FREE = 3
"""Registers for what is under way between loads and sums."""
_MOST_WAITING = 8
"""Loads that wait for their use at a time."""


_LEAST_PEELED = 500
"""What a kernel takes at least that borders are peeled off, as instructions for each that an
operation of code costs."""


@dataclass(frozen=True)
class _Load:
    """Loads of one buffer that are at fixed distances from each other: what a loop variable moves
    them by, and those distances, in elements. None: it is not known."""

    buffer: SSAValue
    steps: Mapping[Loop, int] | None
    loops: _Loops
    distances: tuple[int, ...]


@dataclass(frozen=True)
class _Level:
    """What is in a loop but not in loops inside: instructions by the loops that they depend on,
    loads, and what the loop carries."""

    instructions: tuple[tuple[_Loops, int], ...]
    loads: tuple[_Load, ...]
    carried: tuple[_Loops, ...]
    is_guarded: bool
    """Whether a guard is all there is in it, which becomes its bounds."""

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """Those whose copies make a difference."""
        by_loads = (load.loops if load.steps is None else load.steps for load in self.loads)
        by_others = (*(loops for loops, _ in self.instructions), *self.carried)
        return tuple(dict.fromkeys(loop for each in (*by_others, *by_loads) for loop in each))


@dataclass(frozen=True)
class Arrangement:
    """How many iterations of each loop run at a time; loops that are not in it run as they are.
    What that takes: instructions of a run, and operations of code."""

    copies: Mapping[Loop, int]
    instructions: float
    code: float


@dataclass(frozen=True)
class _Candidate:
    copies: Mapping[Loop, int]
    instructions: float
    more: float


class Kernel:
    """The loops of a kernel as the choice looks at them."""

    def __init__(self, function: func.FuncOp, machine: Machine) -> None:
        self.function = function
        self.machine = machine
        self.depends = dependences(function)
        self.around: dict[Operation, tuple[Loop, ...]] = {}
        self.leaves: list[Loop] = []
        self.inside: dict[Loop | None, list[Operation]] = {None: []}
        self._walk(function.body.block, ())
        self.extents = {loop: extent(loop) for loop in self.inside if loop is not None}
        self.sums = frozenset(loop for loop in self.extents if loop.inits)
        self.levels: dict[Loop, _Level] = {loop: self._level(loop) for loop in self.extents}
        self.sizes: dict[Loop, Counter[tuple[_Loops, _Loops]]] = {}
        self.found: dict[object, list[_Candidate]] = {}
        self.known: dict[object, tuple[float, float]] = {}
        self.code = sum(_size(op) for op in self.around)
        self.plain = {leaf: self._total(leaf, {}, 1) for leaf in self.leaves}
        self.leaves.sort(key=lambda leaf: -self.plain[leaf])
        self.instructions = sum(self.plain.values())

    def _walk(self, block: Block, loops: tuple[Loop, ...]) -> None:
        for op in block.ops:
            self.around[op] = loops
            self.inside[loops[-1] if loops else None].append(op)
            if isinstance(op, Loop):
                self.inside[op] = []
            for region in op.regions:
                for inner in region.blocks:
                    self._walk(inner, (*loops, op) if isinstance(op, Loop) else loops)
            if isinstance(op, Loop) and not any(isinstance(o, Loop) for o in _inside(op)):
                self.leaves.append(op)

    def arrange(self, price: float) -> Arrangement:
        """The copies of each loop where an operation of code costs `price` instructions of a run;
        the loops that take most are chosen first."""
        chosen: dict[Loop, int] = {}
        instructions, code = 0.0, float(self.code)
        for leaf in self.leaves:
            if self.plain[leaf] <= price:
                instructions += self.plain[leaf]
                continue
            best = min(
                self._candidates(leaf, chosen), key=lambda c: c.instructions + c.more * price
            )
            around = [loop for loop in (*self.around[leaf], leaf) if loop not in self.sums]
            chosen = {**dict.fromkeys(around, 1), **chosen, **best.copies}
            instructions += best.instructions
            code += best.more
        copies = {loop: count for loop, count in chosen.items() if count > 1}
        return Arrangement(copies, instructions, code)

    def _candidates(self, leaf: Loop, chosen: Mapping[Loop, int]) -> list[_Candidate]:
        """What can be chosen for a loop, first what is there without more copies."""
        around = [loop for loop in (*self.around[leaf], leaf) if loop not in self.sums]
        key = (leaf, *(chosen.get(loop) for loop in around))
        if key not in self.found:
            free = [loop for loop in around if loop not in chosen and self.extents[loop] > 1]
            free = [loop for loop in free if self._may_jam(loop)]
            given = {loop: chosen[loop] for loop in around if loop in chosen}
            tiles: list[Mapping[Loop, int]] = [given]
            for count in (1, 2, 3):
                for loops in combinations(free, count):
                    for factors in _tiles([self.extents[loop] for loop in loops]):
                        tiles.append(given | dict(zip(loops, factors, strict=True)))
            unrolled = [1]
            if (
                leaf in self.sums
                and IN_ALL not in leaf.attributes
                and not self.levels[leaf].is_guarded
            ):
                unrolled = [count for count in _UNROLLED if self.extents[leaf] % count == 0]
            self.found[key] = _best(
                _Candidate(
                    {**copies, leaf: unroll} if unroll > 1 else copies,
                    self._total(leaf, copies, unroll),
                    self._more(leaf, copies, unroll),
                )
                for copies in tiles
                if copies is given or self._fits(leaf, copies)
                for unroll in unrolled
            )
        return self.found[key]

    def _may_jam(self, loop: Loop) -> bool:
        """Whether iterations can run together, and all guards in the loop are alike for them."""
        guards = [op for op in loop.walk() if isinstance(op, affine.IfOp)]
        return may_jam(loop) and not any(
            loop in self.depends.get(value, ()) for guard in guards for value in guard.args
        )

    # Costs

    def _total(self, leaf: Loop, copies: Mapping[Loop, int], unroll: int) -> float:
        """Instructions of an innermost loop and of what is around it, with what remains of
        tiles."""
        path = (*self.around[leaf], leaf)

        def run(depth: int, inner: dict[Loop, int]) -> float:
            loop = path[depth]
            count = 1 if loop in self.sums else copies.get(loop, 1)
            tiles, rest = divmod(self.extents[loop], count)
            total = 0.0
            for times, factor in ((tiles, count), (rest, 1)):
                if times:
                    known = {**inner, loop: factor} if factor > 1 else inner
                    unrolled = unroll if loop is leaf else 1
                    each, entry = self._once(loop, known, unrolled)
                    if depth + 1 < len(path):
                        each += run(depth + 1, known)
                    total += times * each + entry
            return total

        return run(0, {})

    def _fits(self, leaf: Loop, copies: Mapping[Loop, int]) -> bool:
        """Whether there are registers for what a loop carries, beside what is loaded."""
        level = self.levels[leaf]
        carried = sum(_count(loops, copies) for loops in level.carried)
        loads = sum(_distinct(load, copies) for load in level.loads)
        return carried + min(loads, _MOST_WAITING) + _KEPT_FREE <= self.machine.registers

    def _once(self, loop: Loop, copies: Mapping[Loop, int], unroll: int) -> tuple[float, float]:
        """Instructions of an iteration of a loop without loops inside, and of entering it."""
        key = (loop, unroll, *(copies.get(other, 1) for other in self.levels[loop].loops))
        if key not in self.known:
            self.known[key] = self._count_once(loop, copies, unroll)
        return self.known[key]

    def _count_once(
        self, loop: Loop, copies: Mapping[Loop, int], unroll: int
    ) -> tuple[float, float]:
        level, machine = self.levels[loop], self.machine
        body = float(sum(each * _count(loops, copies) for loops, each in level.instructions))
        counts = {**copies, loop: unroll} if loop in self.sums and unroll > 1 else copies
        body += sum(_distinct(load, counts) for load in level.loads) / unroll
        pointers = sum(_pointers(load, counts, machine.reach) for load in level.loads)
        carried = sum(_count(loops, copies) for loops in level.carried)
        moving = machine.loop_instructions + pointers
        return body + moving / unroll, machine.entry_instructions + 2 * pointers + carried

    def _level(self, loop: Loop) -> _Level:
        instructions: Counter[_Loops] = Counter()
        loads: dict[tuple[SSAValue, object], tuple[Mapping[Loop, int] | None, _Loops, set[int]]]
        loads = {}
        guard = only_guard(loop)
        for op in self.inside[loop]:
            loops = self._loops_of(op.results or op.operands)
            if isinstance(op, affine.LoadOp | memref.LoadOp):
                steps, at = _address(op)
                key = tuple(steps.items()) if steps is not None else op
                known = loads.setdefault((op.memref, key), (steps, loops, set()))
                known[2].add(at)
            elif op is not guard:
                instructions[loops] += self._instructions(op)
        carried = (self._loops_of([value]) for value in loop.body.block.args[1:])
        return _Level(
            tuple(instructions.items()),
            tuple(
                _Load(buffer, steps, loops, tuple(sorted(distances)))
                for (buffer, _), (steps, loops, distances) in loads.items()
            ),
            tuple(carried),
            guard is not None,
        )

    def _instructions(self, op: Operation) -> int:
        if isinstance(op, arith.ConstantOp | affine.YieldOp | affine.ApplyOp | Loop):
            return 0
        if isinstance(op, affine.IfOp):
            return _GUARD_INSTRUCTIONS
        if mathlib.symbol_of(op) is not None:
            return _CALL_INSTRUCTIONS
        if isinstance(op, arith.DivfOp):
            return max(_DIVISION_INSTRUCTIONS, self.machine.flop_instructions)
        return self.machine.flop_instructions if isinstance(op, _FLOPS) else 1

    def _loops_of(self, values: Sequence[SSAValue]) -> _Loops:
        return frozenset[Loop]().union(*(self.depends.get(value, ()) for value in values))

    def _more(self, leaf: Loop, copies: Mapping[Loop, int], unroll: int) -> float:
        """Operations of code that there are more than without copies."""
        path = (*self.around[leaf], leaf)
        jammed = [loop for loop in path if copies.get(loop, 1) > 1 and loop not in self.sums]
        more = 0.0
        for (around, loops), size in self._sizes(jammed[0] if jammed else leaf).items():
            parts = 1.0
            for loop in jammed:
                if loop in around:
                    varies = copies[loop] if loop in loops else 1
                    parts *= varies + bool(self.extents[loop] % copies[loop])
            if leaf in around and leaf in self.sums:
                parts *= unroll + bool(self.extents[leaf] % unroll)
            more += size * (parts - 1)
        return more

    def _sizes(self, loop: Loop) -> Counter[tuple[_Loops, _Loops]]:
        """Operations of code in a loop: those in the same loops, that depend on the same."""
        if loop not in self.sizes:
            found: Counter[tuple[_Loops, _Loops]] = Counter()
            for op in _inside(loop):
                loops = self._loops_of((*op.results, *op.operands))
                around = frozenset(self.around[op])
                if isinstance(op, Loop):
                    found[around, frozenset()] += _size(op) - len(op.inits)
                    found[around, loops] += len(op.inits)
                else:
                    found[around, loops] += _size(op)
            self.sizes[loop] = found
        return self.sizes[loop]


def _best(candidates: Iterable[_Candidate]) -> list[_Candidate]:
    """Those that take fewer instructions than all with no more code, least code first."""
    found: list[_Candidate] = []
    for one in sorted(candidates, key=lambda c: (c.more, c.instructions)):
        if not found or one.instructions < found[-1].instructions:
            found.append(one)
    return found


def _address(op: affine.LoadOp | memref.LoadOp) -> tuple[Mapping[Loop, int] | None, int]:
    """What loop variables move a load by, and where it is when all of them are 0, in elements."""
    assert isinstance(op.memref.type, MemRefType)
    stride, at = 1, 0
    steps: dict[Loop, int] = {}
    for index, size in zip(linear_indices(op)[::-1], op.memref.type.get_shape()[::-1], strict=True):
        if index is None:
            return None, 0
        at += index.const * stride
        for variable, factor in index.terms.items():
            loop = variable.owner.parent_op() if isinstance(variable.owner, Block) else None
            assert isinstance(loop, Loop)
            steps[loop] = steps.get(loop, 0) + factor * stride
        stride *= size
    return steps, at


def _distinct(load: _Load, copies: Mapping[Loop, int]) -> int:
    """Loads that remain of copies of one, as what is at one address is loaded once."""
    if load.steps is None:
        return _count(load.loops, copies) * len(load.distances)
    places = set(load.distances)
    for loop, step in load.steps.items():
        if (count := copies.get(loop, 1)) > 1:
            places = {place + step * i for place in places for i in range(count)}
    return len(places)


def _pointers(load: _Load, copies: Mapping[Loop, int], reach: int) -> int:
    """Pointers for copies of a load."""
    if load.steps is None:
        return _count(load.loops, copies)
    low, high = load.distances[0], load.distances[-1]
    span = (
        high - low + sum(abs(step) * (copies.get(loop, 1) - 1) for loop, step in load.steps.items())
    )
    return min(ceil((span + 1) / reach), _distinct(load, copies))


def _size(op: Operation) -> int:
    """Instructions of code, each of which an operation takes once."""
    if isinstance(op, arith.ConstantOp | affine.YieldOp):
        return 0
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


class Choice:
    """The ways to arrange a kernel: its loops as they are, or with borders peeled off."""

    def __init__(self, function: func.FuncOp, machine: Machine) -> None:
        self.plain = Kernel(function.clone(), machine)
        self.function = function
        self.peeled: list[Kernel] | None = None

    def arrange(self, price: float) -> list[tuple[Kernel, Arrangement]]:
        """The ways, and how to arrange each where an operation of code costs `price` instructions
        of a run; the best first."""
        kernels = [self.plain]
        if self.plain.instructions > _LEAST_PEELED * price:
            if self.peeled is None:
                machine = self.plain.machine
                self.peeled = [Kernel(one, machine) for one in peelings(self.function)]
            kernels += self.peeled
        made = [(kernel, kernel.arrange(price)) for kernel in kernels]
        return sorted(made, key=lambda one: one[1].instructions + price * one[1].code)


def price_of(kernels: Sequence[tuple[Choice, int]], machine: Machine) -> float:
    """The instructions of a step that an operation of code costs, so that the code of all kernels,
    each with the number of its calls, grows by what it may and goes where it saves most."""
    step = sum(kernel.plain.instructions * calls for kernel, calls in kernels)
    most = machine.growth * machine.runtime_operations
    most += (1 + machine.growth) * sum(kernel.plain.code for kernel, _ in kernels)

    def fits(price: float) -> bool:
        return sum(kernel.arrange(price / calls)[0][1].code for kernel, calls in kernels) <= most

    low = machine.least_worth * step
    if fits(low):
        return low
    high = step
    while high > 1.02 * low:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
