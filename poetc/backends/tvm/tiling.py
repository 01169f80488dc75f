"""Chooses how the loops of a kernel run on a processor with vectors: by rule, without trying.

Iterations of a parallel loop are independent, so any of them may run together: some side by side
in the lanes of vectors, some one after the other within each operation, so that sums of several
elements are under way at once and what is loaded serves all of them. Sums themselves keep their
order.

Three choices are made, each for the lowest cost in a simple model of a processor:
1. Which loop runs along lanes. A load is cheap where lanes read consecutive elements, or all the
   same one; it is dear where each lane reads from elsewhere.
2. How many copies of which loops run together. More copies need fewer loads for each sum, and hide
   the time that an addition takes, until the sums do not fit into registers any more.
3. Whether the loop along lanes goes outside: if what only it reads is larger than a cache, it
   should be read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import prod

from xdsl.dialects import affine, arith, func
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.utils.hints import isa

from poetc.backends.tvm.nest import Loop, Nest, Vectors
from poetc.backends.tvm.tiles import Piece, Tiling, elements_of
from poetc.ir import mathlib
from poetc.ir.buffers import element_bytes
from poetc.ir.loops import nest_around
from poetc.kernels.analysis import is_sequential
from poetc.kernels.arrange import may_alias_too
from poetc.kernels.arrange.terms import terms_outside

# Costs are in cycles of a processor that starts two operations and one load in each.
_LOAD = 1.0
_BROADCAST = 0.5
"""The cost of one number in all lanes."""
_OPERATION = 0.5
_BOOKKEEPING = 1.0
"""The cost of an iteration of a loop beside its body."""
_LATENCY = 4.0
"""From the start of an addition to its result."""
_DIVISION = 5.0
_GATHER = 1.5
"""For each lane that is loaded or stored by itself."""
_TRANSPOSED = 5.0
"""For each vector of a square that is loaded and transposed."""

_PREDICATED = 0.5
"""More, for a load that a guard may forbid for some copies."""

_COPIES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
_MOST_COPIES = 64
_MOST_COPIES_WITH_CALLS = 4
"""The most copies of code with mathematical functions, which are long when they are written out."""
_MOST_COPIES_OF_STRIPS = 16
"""Where the loop is written out for as many iterations as there are lanes."""
_CACHE_BYTES = 256 * 1024


@dataclass(frozen=True)
class Choice:
    """How the loops of a kernel run, by their numbers in the order of the kernel, reductions among
    them: which run along lanes, and how many copies of each run together."""

    lanes: tuple[int, ...]
    copies: tuple[int, ...]


def _is_slow(op: Operation) -> bool:
    return isinstance(op, arith.DivfOp) or mathlib.symbol_of(op) is not None


def arrange(
    function: func.FuncOp, vectors: Vectors, choice: Choice | None = None
) -> tuple[func.FuncOp, Tiling]:
    """A copy of a kernel, its loops perhaps in another order, and how they run: by rule, or as
    somebody chose among `alternatives`. Where iterations run in order, all loops stay as they are.
    """
    if is_sequential(function):
        return function, {}
    kernel = _Kernel(_prepared(function), vectors)
    lanes, copies = kernel.chosen(kernel.rule() if choice is None else choice)
    tiling: dict[Loop, Sequence[Piece]] = {
        loop: pieces(
            kernel.extents[loop], copies.get(loop, 1), vectors.lanes if loop in lanes else 1
        )
        for loop in kernel.extents
        if loop in lanes or loop in copies
    }
    for loop in kernel.extents:
        if loop in lanes:
            kernel.move_out(loop, tiling)
    return kernel.function, tiling


def _prepared(function: func.FuncOp) -> func.FuncOp:
    """A copy, with sums outside of the loops over what they are sums of where that reads weights by
    row."""
    turned = terms_outside(function, _CACHE_BYTES)
    return turned if turned and may_alias_too(turned, function) else function.clone()


class Alternatives:
    """The choices for a kernel: `rule`, and for each loop by its number `lanes`, whether it may run
    along them, and `copies`, how many may run together."""

    def __init__(self, function: func.FuncOp, vectors: Vectors) -> None:
        self._is_sequential = is_sequential(function)
        self._kernel = _Kernel(_prepared(function), vectors)
        self.rule = self._kernel.rule()
        loops = [*self._kernel.extents]
        self.lanes = tuple(not one.inits and self._kernel.may_vectorise(one) for one in loops)
        self.copies = tuple(
            tuple(c for c in _COPIES if c <= max(1, extent)) if self._kernel.may_copy(one) else (1,)
            for one, extent in self._kernel.extents.items()
        )

    @property
    def any(self) -> bool:
        """Whether there is anything to choose for a sum."""
        if self._is_sequential:
            return False
        many = any(self.lanes) or any(len(copies) > 1 for copies in self.copies)
        return many and any(True for _ in self._kernel.sums())

    def cost(self, choice: Choice) -> float:
        """In cycles of the model; infinite for what cannot be done, or not within the registers."""
        if len(choice.copies) != len(self.copies):
            return float("inf")
        if any(c not in known for c, known in zip(choice.copies, self.copies, strict=True)):
            return float("inf")
        if not all(self.lanes[i] for i in choice.lanes):
            return float("inf")
        return self._kernel.total(choice)


def pieces(extent: int, copies: int, lanes: int) -> tuple[Piece, ...]:
    """An extent in tiles of `copies` vectors, and what remains in fewer, and in a shorter one."""
    whole, rest = divmod(extent, lanes)
    tiles, left = divmod(whole, copies)
    found: list[Piece] = []
    start = 0
    for piece in (
        Piece(0, tiles, copies, lanes),
        Piece(0, 1, left, lanes),
        Piece(0, 1, 1, rest),
    ):
        if piece.tiles and piece.iterations:
            found.append(replace(piece, start=start))
            start += piece.tiles * piece.iterations
    return tuple(found)


class _Kernel(Nest):
    """A kernel, and how its loops run best."""

    # Choices

    def rule(self) -> Choice:
        """The best choice in the model, as far as it is searched."""
        lanes = self.choose_lanes()
        copies = self.choose_copies(lanes)
        loops = [*self.extents]
        return Choice(
            tuple(i for i, loop in enumerate(loops) if loop in lanes),
            tuple(copies.get(loop, 1) for loop in loops),
        )

    def chosen(self, choice: Choice) -> tuple[set[Loop], dict[Loop, int]]:
        """The loops along lanes, and the copies of those that have more than one."""
        loops = [*self.extents]
        copies = dict(zip(loops, choice.copies, strict=True))
        return {loops[i] for i in choice.lanes}, {
            loop: count for loop, count in copies.items() if count > 1
        }

    def total(self, choice: Choice) -> float:
        """Cycles of all sums."""
        lanes, copies = self.chosen(choice)
        cycles = 0.0
        for op, loops in self.around.items():
            if sum(loop in lanes for loop in loops) + (op in lanes) > 1:
                return float("inf")
        for loop in self.sums():
            around = self.around[loop]
            own = {one: count for one, count in copies.items() if one in around}
            if prod(own.values()) > self._most_copies(loop, around[:1]):
                return float("inf")
            if any(count > self._vectors_of(one, lanes) for one, count in own.items()):
                return float("inf")
            along = next((one for one in around if one in lanes), None)
            each = self._score(loop, self._innermost(loop), along, own)
            width = 1 if along is None else min(self.vectors.lanes, self.extents[along])
            cycles += self._weight(loop) / width * each
        return cycles

    # Lanes

    def choose_lanes(self) -> set[Loop]:
        """The loops that run along lanes: at most one around each operation."""
        return self._best_lanes(self.function.body.block, 1.0)[1]

    def _best_lanes(self, block: Block, times: float) -> tuple[float, set[Loop]]:
        """The least cost of a block that runs so often, and the loops along lanes in it."""
        cost, chosen = 0.0, set[Loop]()
        for op in block.ops:
            if isinstance(op, affine.ForOp):
                best = self._best_lanes(op.body.block, times * self.extents[op])
                if self.may_vectorise(op):
                    vectors = sum(p.tiles for p in pieces(self.extents[op], 1, self.vectors.lanes))
                    along = self._cost(op.body.block, times * vectors, op)
                    if along < best[0]:
                        best = along, {op}
                cost += best[0]
                chosen |= best[1]
            elif isinstance(op, affine.IfOp):
                for region in op.regions:
                    if region.blocks:
                        inner = self._best_lanes(region.block, times)
                        cost += inner[0]
                        chosen |= inner[1]
            else:
                cost += times * self.cost(op, None)
        return cost, chosen

    def _cost(self, block: Block, times: float, along: Loop) -> float:
        """The cost of a block that is inside the loop along lanes."""
        cost = 0.0
        for op in block.ops:
            if isinstance(op, affine.ForOp):
                cost += self._cost(op.body.block, times * self.extents[op], along)
            elif isinstance(op, affine.IfOp):
                cost += sum(self._cost(r.block, times, along) for r in op.regions if r.blocks)
            else:
                cost += times * self.cost(op, along)
        return cost

    def cost(self, op: Operation, along: Loop | None) -> float:
        """The cost of one operation on vectors along a loop, or on scalars."""
        if (access := self.accesses.get(op)) is not None:
            if along is None or along not in access.loops:
                return _LOAD
            step = access.coefficient(self.variables[along])
            if step in (0, 1):
                return _LOAD if step == 1 else _BROADCAST
            if self._is_transposed(op, along):
                return _TRANSPOSED
            return _GATHER * self.vectors.lanes
        if isinstance(op, arith.ConstantOp | affine.YieldOp | affine.ApplyOp | func.ReturnOp):
            return 0.0
        if isinstance(op, arith.DivfOp):
            return _DIVISION
        symbol = mathlib.symbol_of(op)
        return _OPERATION if symbol is None else mathlib.cycles(symbol)

    # Copies

    def choose_copies(self, lanes: set[Loop]) -> dict[Loop, int]:
        """How many iterations (or vectors) of which loops run together, where that is not one.

        The sums that take most of the time choose first.
        """
        chosen: dict[Loop, int] = {}
        sums = sorted(self.sums(), key=lambda loop: -self._weight(loop))
        for loop in sums:
            free = [
                outer
                for outer in self.around[loop]
                if outer not in chosen and self.may_copy(outer) and self.extents[outer] > 1
            ]
            best = self._best_copies(loop, free, lanes, chosen)
            chosen |= {outer: best.get(outer, 1) for outer in self.around[loop] if not outer.inits}
        return {loop: copies for loop, copies in chosen.items() if copies > 1}

    def _best_copies(
        self, loop: Loop, free: Sequence[Loop], lanes: set[Loop], fixed: dict[Loop, int]
    ) -> dict[Loop, int]:
        innermost = self._innermost(loop)
        most = self._most_copies(loop, free[:1])
        along = next((outer for outer in self.around[loop] if outer in lanes), None)
        best, best_score = dict[Loop, int](), self._score(loop, innermost, along, fixed)
        for count in (1, 2, 3):
            for loops in combinations(free, count):
                options = [
                    [c for c in _COPIES[1:] if c <= self._vectors_of(one, lanes)] for one in loops
                ]
                for copies in product(*options):
                    if prod(copies) > most:
                        continue
                    choice = dict(zip(loops, copies, strict=True))
                    score = self._score(loop, innermost, along, fixed | choice)
                    # More code must be worth it.
                    if score < best_score * 0.99:
                        best, best_score = choice, score
        return best

    def _most_copies(self, loop: Loop, outer: Sequence[Loop]) -> int:
        """How often what is in a sum may be written out."""
        calls = any(_is_slow(op) for one in outer for op in one.walk())
        return _MOST_COPIES_WITH_CALLS if calls and not self._is_dense(loop) else _MOST_COPIES

    def _score(self, loop: Loop, inner: Loop, along: Loop | None, copies: dict[Loop, int]) -> float:
        """Cycles of the innermost loop for each iteration of the loops around, and lane."""

        def count(values: Sequence[SSAValue]) -> int:
            loops = set[Loop]().union(*(self.depends.get(value, ()) for value in values))
            return prod(copies.get(one, 1) for one in loops)

        carried = inner.body.block.args[1:]
        registers = sum(count([argument]) for argument in carried)
        loads = [op for op in inner.body.block.walk() if op in self.accesses]
        strips = along is not None and any(self._is_transposed(op, along) for op in loads)
        if strips and prod(copies.values()) > _MOST_COPIES_OF_STRIPS:
            return float("inf")
        live = max((count(op.results) for op in loads if self._is_vector(op, along)), default=0)
        if registers + min(live, 4) + 2 > self.vectors.registers:
            return float("inf")
        cycles = sum(
            self.cost(op, along) * count(op.results)
            for op in inner.body.block.walk()
            if not isinstance(op, affine.YieldOp)
        )
        guarded = self._guarded(inner)
        cycles += sum(
            _PREDICATED * count(op.results)
            for op in loads
            if any(copies.get(outer, 1) > 1 for outer in guarded & self._depends(op))
        )
        cycles = max(cycles + _BOOKKEEPING, self._chain(inner) * _LATENCY)
        useful = 1.0
        for outer, number in copies.items():
            if outer in self.around[loop]:
                extent = self._vectors_of(outer, {along} if along is not None else set())
                tiles = -(-extent // number)
                useful *= extent / tiles
        return cycles / useful

    # Order

    def move_out(self, loop: Loop, tiling: dict[Loop, Sequence[Piece]]) -> None:
        """Makes the loop the outermost of a perfect nest, if that saves reading much again."""
        around = nest_around(loop, lambda outer: not outer.inits and self.may_copy(outer))
        if not around:
            return
        with_loop = without = 0
        repeats = prod(
            len(p) and sum(q.tiles for q in p) for one, p in tiling.items() if one in around
        )
        repeats *= prod(self.extents[one] for one in around if one not in tiling)
        for op, access in self.accesses.items():
            if loop not in access.loops or not isinstance(op, affine.LoadOp):
                continue
            assert isa(op.memref.type, MemRefType)
            size = elements_of(op.memref.type) * element_bytes(op.memref.type.element_type)
            if access.coefficient(self.variables[loop]) == 0:
                without += size
            elif all(access.coefficient(self.variables[one]) == 0 for one in around):
                with_loop += size
        if repeats > 1 and with_loop > _CACHE_BYTES and with_loop > without:
            self._rotate([*around, loop], tiling)

    def _rotate(self, nest: list[Loop], tiling: dict[Loop, Sequence[Piece]]) -> None:
        """Gives the loops of a perfect nest the ranges of their neighbours: the last is first."""
        variables = [one.body.block.args[0] for one in nest]
        ranges = [
            (one.lowerBoundMap, one.upperBoundMap, v.name_hint)
            for one, v in zip(nest, variables, strict=True)
        ]
        plans = [tiling.pop(one, None) for one in nest]
        uses = [[(use.operation, use.index) for use in v.uses] for v in variables]
        order = [len(nest) - 1, *range(len(nest) - 1)]
        for position, source in enumerate(order):
            low, high, hint = ranges[source]
            one = nest[position]
            one.properties["lowerBoundMap"], one.properties["upperBoundMap"] = low, high
            variables[position].name_hint = hint
            plan = plans[source]
            if plan is not None:
                tiling[one] = plan
            for operation, index in uses[source]:
                operation.operands[index] = variables[position]
