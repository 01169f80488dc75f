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
from itertools import accumulate, combinations, product
from math import prod

from xdsl.dialects import affine, func
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from poetc.kernels.access import LOADS, Access, Linear, linear_addresses
from poetc.kernels.addresses import IN_ALL, extent
from poetc.kernels.arrange.blocks import BLOCKS
from poetc.kernels.arrange.code import Code, Unrolled
from poetc.kernels.arrange.legality import may_jam
from poetc.kernels.arrange.levels import Accesses, Level, Loops, count_of, instructions_of
from poetc.kernels.arrange.machine import Machine
from poetc.kernels.arrange.peel import peelings
from poetc.kernels.dependences import dependences
from poetc.kernels.guards import only_guard
from poetc.kernels.lanes import lanes_of

Loop = affine.ForOp
_Steps = tuple[tuple[int, ...], tuple[int, ...] | None, set[int]]
"""Loops whose variables move accesses, what by, and their distances."""


_FACTORS = (2, 3, 4, 5, 6, 7, 8)
_MOST_COPIES = 16
_UNROLLED = (1, 2, 3, 4, 5, 8)
_MOST_WHOLE = 8
"""Iterations of several loops, one in the other, that are all one after the other."""
_KEPT_FREE = 3
"""Registers for what is under way between loads and sums."""


_SHARED_COPIES = (2, 4)
"""The numbers of copies of a loop around several that are tried before the loops in it are looked
at one by one."""
_LEAST_SHARED = 500
"""Copies of several loops at a time are tried for kernels that take more instructions than this,
times the price of an operation of code."""
_LEAST_PEELED = 500
"""Borders are peeled off kernels that take more instructions than this, times the price of an
operation of code."""


@dataclass(frozen=True)
class Arrangement:
    """How many iterations of each loop run at a time; loops that are not in it run as they are.
    What that takes: instructions of a run, and operations of code."""

    copies: Mapping[Loop, int]
    instructions: float
    code: float


@dataclass(frozen=True)
class _Candidate:
    """Copies of loops by their numbers, and operations of code that are more for them."""

    copies: Mapping[int, int]
    instructions: float
    more: float


class Kernel:
    """The loops of a kernel as the choice looks at them, each by its number."""

    def __init__(self, function: func.FuncOp, machine: Machine) -> None:
        self.function = function
        self.machine = machine
        self.loops: list[Loop] = []
        self.paths: list[tuple[int, ...]] = []
        """For each loop, the loops around it and itself."""
        self.inside: list[list[Operation]] = []
        self.around: list[tuple[Operation, tuple[int, ...]]] = []
        """Operations with the loops around them."""
        self.leaves: list[int] = []
        self._walk(function.body.block, ())
        self.lanes = [lanes_of(loop) for loop in self.loops]
        self.extents = [
            extent(loop) // lanes for loop, lanes in zip(self.loops, self.lanes, strict=True)
        ]
        self.sums = [bool(loop.inits) for loop in self.loops]
        numbers = {loop: number for number, loop in enumerate(self.loops)}
        self.depends = {
            value: frozenset(numbers[loop] for loop in loops)
            for value, loops in dependences(function).items()
            if loops
        }
        self.numbers: dict[SSAValue, int] = {
            loop.body.block.args[0]: number for loop, number in numbers.items()
        }
        self.levels = [self._level(number) for number in range(len(self.loops))]
        self.ones = [1] * len(self.loops)
        self.guarded = Loops().union(
            *(self._loops_of(op.args) for op, _ in self.around if isinstance(op, affine.IfOp))
        )
        """Loops that guards depend on."""
        self.jams: dict[int, bool] = {}
        self.found: dict[object, list[_Candidate]] = {}
        self.code_of = Code(
            (
                (op, around, self._loops_of((*op.results, *op.operands)))
                for op, around in self.around
            ),
            numbers,
            self.extents,
        )
        self.code = self.code_of.size
        self.plain = {leaf: self._totals(leaf, self.ones, [{}])[0] for leaf in self.leaves}
        self.leaves.sort(key=lambda leaf: -self.plain[leaf])
        self.instructions = sum(self.plain.values())

    def _walk(self, block: Block, loops: tuple[int, ...]) -> None:
        for op in block.ops:
            self.around.append((op, loops))
            if loops:
                self.inside[loops[-1]].append(op)
            inner = loops
            if is_loop := isinstance(op, Loop):
                inner = (*loops, len(self.loops))
                self.loops.append(op)
                self.paths.append(inner)
                self.inside.append([])
            before = len(self.loops)
            for region in op.regions:
                for each in region.blocks:
                    self._walk(each, inner)
            if is_loop and len(self.loops) == before:
                self.leaves.append(inner[-1])

    def arrange(self, price: float) -> Arrangement:
        """The copies of each loop where an operation of code costs `price` instructions of a run;
        the loops that take most are chosen first, or such that are around several of them."""
        starts: list[Mapping[int, int]] = [{}]
        if self.instructions > _LEAST_SHARED * price:
            starts += [{loop: count} for loop in self._shared for count in _SHARED_COPIES]
        made = [self._arrange(start, price) for start in starts]
        return min(made, key=lambda one: one.instructions + price * one.code)

    @cached_property
    def _shared(self) -> list[int]:
        """Parallel loops around several loops without others inside."""
        around = Counter(loop for leaf in self.leaves for loop in self.paths[leaf])
        return [loop for loop, count in around.items() if count > 1 and self._is_free(loop)]

    def _is_free(self, loop: int) -> bool:
        """Whether there may be copies of a parallel loop."""
        if self.sums[loop] or BLOCKS in self.loops[loop].attributes:
            return False
        return self.extents[loop] > 1 and self._may_jam(loop)

    def _arrange(self, start: Mapping[int, int], price: float) -> Arrangement:
        """The copies of each loop, where there are already those in `start`."""
        chosen = dict(start)
        instructions = 0.0
        code = self.code + max((self._given(leaf, start)[1] for leaf in self.leaves), default=0.0)
        for leaf in self.leaves:
            if self.plain[leaf] <= price and not start:
                instructions += self.plain[leaf]
                continue
            given = self._given(leaf, chosen)[1]
            best = min(
                self._candidates(leaf, chosen), key=lambda c: c.instructions + c.more * price
            )
            around = [loop for loop in self.paths[leaf] if not self.sums[loop]]
            chosen = {**dict.fromkeys(around, 1), **chosen, **best.copies}
            instructions += best.instructions
            code += best.more - given
        copies = {self.loops[loop]: count for loop, count in chosen.items() if count > 1}
        return Arrangement(copies, instructions, code)

    def _given(self, leaf: int, chosen: Mapping[int, int]) -> tuple[Mapping[int, int], float]:
        """The copies that are chosen already of loops around one, and the operations of code that
        are more for them."""
        given = {
            loop: chosen[loop]
            for loop in self.paths[leaf]
            if loop in chosen and not self.sums[loop]
        }
        if all(count == 1 for count in given.values()):
            return given, 0.0
        counts = [given.get(loop, 1) for loop in range(len(self.loops))]
        return given, self.code_of.more(self.paths[leaf], counts, [{}])[0]

    def _candidates(self, leaf: int, chosen: Mapping[int, int]) -> list[_Candidate]:
        """The candidates for a loop, first the one that needs no more copies."""
        around = [loop for loop in self.paths[leaf] if not self.sums[loop]]
        key = (leaf, *(chosen.get(loop) for loop in around))
        if key not in self.found:
            free = [loop for loop in around if loop not in chosen and self._is_free(loop)]
            given, _ = self._given(leaf, chosen)
            tiles: list[Mapping[int, int]] = [given]
            for count in (1, 2, 3):
                for loops in combinations(free, count):
                    for factors in _tiles([self.extents[loop] for loop in loops]):
                        tiles.append({**given, **dict(zip(loops, factors, strict=True))})
            unrolled = self._unrolled(leaf)
            candidates: list[_Candidate] = []
            for copies in tiles:
                counts = [copies.get(loop, 1) for loop in range(len(self.loops))]
                if copies is not given and not self._fits(leaf, counts):
                    continue
                totals = self._totals(leaf, counts, unrolled)
                more = self.code_of.more(self.paths[leaf], counts, unrolled)
                for unroll, *costs in zip(unrolled, totals, more, strict=True):
                    candidates.append(_Candidate({**copies, **unroll}, *costs))
            self.found[key] = _best(candidates)
        return self.found[key]

    def _unrolled(self, leaf: int) -> list[Unrolled]:
        """Iterations that an innermost loop may have one after the other, and such loops around it
        that all of their iterations are."""
        found: list[Unrolled] = [{}]
        if not self._may_unroll(leaf):
            return found
        extent = self.extents[leaf]
        found += [{leaf: count} for count in _UNROLLED if extent % count == 0]
        whole = {leaf: extent}
        for loop in self.paths[leaf][-2::-1]:
            whole = {loop: self.extents[loop], **whole}
            has_one = sum(loop in self.paths[other] for other in self.leaves) == 1
            if not has_one or not self._may_unroll(loop) or prod(whole.values()) > _MOST_WHOLE:
                break
            found.append(whole)
        return found

    def _may_unroll(self, loop: int) -> bool:
        """Whether iterations of a loop may be one after the other in another."""
        ranged = IN_ALL in self.loops[loop].attributes
        return self.sums[loop] and not ranged and not self.levels[loop].is_guarded

    def _may_jam(self, number: int) -> bool:
        """Whether iterations can run together, and all guards in the loop are alike for them."""
        if number not in self.jams:
            self.jams[number] = number not in self.guarded and may_jam(self.loops[number])
        return self.jams[number]

    # Costs

    def _totals(
        self, leaf: int, copies: Sequence[int], unrolled: Sequence[Unrolled]
    ) -> list[float]:
        """Instructions of an innermost loop and of what is around it, with what remains of tiles,
        for each of some numbers of iterations that loops have one after the other."""
        path = self.paths[leaf]
        counts = [*self.ones]
        factors = {loop: [unroll.get(loop, 1) for unroll in unrolled] for loop in path}

        def run(depth: int) -> list[float]:
            loop = path[depth]
            count = 1 if self.sums[loop] else copies[loop]
            tiles, rest = divmod(self.extents[loop], count)
            totals = [0.0] * len(unrolled)
            for times, factor in ((tiles, count), (rest, 1)):
                if times:
                    counts[loop] = factor
                    inside = [0.0] * len(unrolled) if loop == leaf else run(depth + 1)
                    of = {n: self._once(loop, counts, n, times) for n in {*factors[loop]}}
                    for i, n in enumerate(factors[loop]):
                        each, entry = of[n]
                        totals[i] += times * (each + inside[i]) + entry
            counts[loop] = 1
            return totals

        return run(0)

    def _fits(self, leaf: int, copies: Sequence[int]) -> bool:
        """Whether there are registers for what a loop carries, beside what is loaded."""
        level = self.levels[leaf]
        carried = sum(count_of(loops, copies) for loops in level.carried)
        loads = sum(load.count(copies) for load in level.loads)
        return carried + min(loads, self.machine.waiting) + _KEPT_FREE <= self.machine.registers

    def _once(
        self, loop: int, copies: Sequence[int], unroll: int, times: int
    ) -> tuple[float, float]:
        """Instructions of an iteration of a loop without loops inside, of which there are so many,
        and of entering it."""
        level = self.levels[loop]
        is_loop = times > unroll
        key = (unroll, is_loop, *[copies[other] for other in level.loops])
        if key not in level.known:
            counts = copies
            if self.sums[loop] and unroll > 1:
                counts = [*copies]
                counts[loop] = unroll
            level.known[key] = level.once(self.machine, copies, counts, unroll, is_loop)
        return level.known[key]

    def _level(self, number: int) -> Level:
        instructions: Counter[Loops] = Counter()
        loads: dict[object, _Steps] = {}
        stores: dict[object, _Steps] = {}
        guard = only_guard(self.loops[number])
        inside = self.inside[number]
        addresses = linear_addresses(op for op in inside if isinstance(op, Access))
        for op in inside:
            loops = self._loops_of(op.results or op.operands)
            if isinstance(op, Access):
                found = loads if isinstance(op, LOADS) else stores
                steps, at, tile = self._steps(addresses[op])
                if steps is None:
                    found[op] = tuple(loops), None, {at}
                else:
                    key = (op.memref, *steps.items(), *tile.items())
                    made = tuple(steps), tuple(steps.values()), set[int]()
                    found.setdefault(key, made)[2].add(at)
            elif op is not guard:
                instructions[loops] += instructions_of(op, self.machine)
        loop = self.loops[number]
        carried = [self._loops_of([value]) for value in loop.body.block.args[1:]]
        begun = [
            loops
            for loops, init in zip(carried, loop.inits, strict=True)
            if not isinstance(init, BlockArgument)
        ]

        def accesses(found: Mapping[object, _Steps]) -> tuple[Accesses, ...]:
            return tuple(
                Accesses(moved, by, tuple(sorted(at)), self._one_by_one(number, moved, by))
                for moved, by, at in found.values()
            )

        return Level(
            tuple(instructions.items()),
            accesses(loads),
            accesses(stores),
            tuple(carried),
            tuple(begun),
            guard is not None,
        )

    def _one_by_one(self, loop: int, moved_by: Sequence[int], steps: Sequence[int] | None) -> int:
        """The accesses that one in a loop is in all, where lanes are not side by side."""
        apart = dict(zip(moved_by, steps or (), strict=False))
        return prod(
            self.lanes[around] for around in self.paths[loop] if apart.get(around, 0) not in (0, 1)
        )

    def _steps(
        self, address: Linear | None
    ) -> tuple[Mapping[int, int] | None, int, Mapping[SSAValue, int]]:
        """The steps of an access in elements for each loop variable, its address when all of them
        are 0, and its steps for the starts of a tile. The first is None if the address is not
        linear."""
        if address is None:
            return None, 0, {}
        steps: dict[int, int] = {}
        tile: dict[SSAValue, int] = {}
        for variable, step in address.terms.items():
            if (loop := self.numbers.get(variable)) is not None:
                steps[loop] = step
            elif step:
                tile[variable] = step
        return steps, address.const, tile

    def _loops_of(self, values: Sequence[SSAValue]) -> Loops:
        return Loops().union(*(self.depends.get(value, ()) for value in values))


def _best(candidates: Iterable[_Candidate]) -> list[_Candidate]:
    """The candidates that take fewer instructions than all with no more code, least code first."""
    found: list[_Candidate] = []
    for one in sorted(candidates, key=lambda c: (c.more, c.instructions)):
        if not found or one.instructions < found[-1].instructions:
            found.append(one)
    return found


def _tiles(extents: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Copies of each of these loops, not too many in all."""
    options = [[c for c in _FACTORS if c <= n] for n in extents]
    return (tile for tile in product(*options) if prod(tile) <= _MOST_COPIES)


class Choice:
    """The ways to arrange a kernel: its loops as they are, or with borders peeled off."""

    def __init__(self, function: func.FuncOp, machine: Machine) -> None:
        self.plain = Kernel(function, machine)
        self.function = function
        self.machine = machine
        self.peeled: list[Kernel] | None = None

    def arrange(self, price: float, keeps: bool = False) -> list[tuple[Kernel, Arrangement]]:
        """The ways, and how to arrange each where an operation of code costs `price` instructions
        of a run; the best first. The code of its loops as they are is free if one `keeps` it for
        others."""
        kernels = [self.plain]
        if self.plain.instructions > _LEAST_PEELED * price:
            if self.peeled is None:
                machine = self.plain.machine
                self.peeled = [Kernel(one, machine) for one in peelings(self.function)]
            kernels += self.peeled
        made = [(kernel, kernel.arrange(price)) for kernel in kernels]
        if keeps:
            made.append((self.plain, Arrangement({}, self.plain.instructions, 0.0)))
        return sorted(made, key=lambda one: one[1].instructions + price * one[1].code)


def price_of(kernels: Sequence[tuple[Choice, int, object]], machine: Machine) -> float:
    """The instructions of a step that an operation of code costs, so that the code of all kernels,
    each with the number of its calls, grows by what it may and goes where it saves most. The third
    is the same for kernels that share code while their loops are as they are, else None."""
    step = sum(kernel.plain.instructions * calls for kernel, calls, _ in kernels)
    most = machine.growth * machine.runtime_operations
    most += sum(kernel.plain.code for kernel, _, shared in kernels if shared is None)
    once = {
        shared or number: kernel.plain.code for number, (kernel, _, shared) in enumerate(kernels)
    }
    most += machine.growth * sum(once.values())

    def fits(price: float) -> bool:
        best = (
            kernel.arrange(price / calls, shared is not None)[0]
            for kernel, calls, shared in kernels
        )
        # With what is too much already, the kernels that are left are not looked at.
        return all(code <= most for code in accumulate(way.code for _, way in best))

    low = machine.least_worth * step
    if fits(low):
        return low
    high = step
    while high > 1.02 * low:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
