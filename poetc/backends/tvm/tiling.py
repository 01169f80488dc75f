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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import prod

from xdsl.dialects import affine, arith, func, memref
from xdsl.dialects.builtin import AffineMapAttr, IndexType, MemRefType
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineConstraintKind, AffineExpr, AffineMap
from xdsl.utils.hints import isa

from poetc.backends.c.indexing import NO_FACTS, Index, Remainder, Variable, from_affine
from poetc.backends.tvm.primfunc import (
    Piece,
    Tiling,
    dependences,
    elements_of,
    loop_bounds,
)
from poetc.ir import mathlib
from poetc.ir.types import element_bytes
from poetc.kernels.analysis import is_sequential

Loop = affine.ForOp


@dataclass(frozen=True)
class Vectors:
    """The vector registers of a processor: float32 elements of each, and how many there are."""

    lanes: int
    registers: int


# Costs are in cycles of a processor that starts two operations and one load in each.
_LOAD = 1.0
_BROADCAST = 0.5
"""Of one number to all lanes."""
_OPERATION = 0.5
_BOOKKEEPING = 1.0
"""Of a loop, for each iteration."""
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
"""Of code with mathematical functions, which are long when they are written out."""
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
    """A copy in which loops have their numbers."""
    function = function.clone()
    split_by_divisors(function)
    return function


class Alternatives:
    """What may be chosen for a kernel: `rule`, and for each loop by its number `lanes`, whether it
    may run along them, and `copies`, how many may run together."""

    def __init__(self, function: func.FuncOp, vectors: Vectors) -> None:
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
        if is_sequential(self._kernel.function):
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


def split_by_divisors(function: func.FuncOp) -> None:
    """Makes two loops of each parallel loop whose variable is divided in guards: by the divisor,
    and for the remainder outside.

    For all iterations of the inner loop such a guard is then the same. Guards like this come from
    convolutions with holes: the gradient of one with strides.
    """
    for loop in [op for op in function.walk() if isinstance(op, affine.ForOp) and not op.inits]:
        first, end = loop_bounds(loop)
        divisors = {
            d for op in loop.walk() if isinstance(op, affine.IfOp) for d in _divisors(op, loop)
        }
        if len(divisors) == 1 and first == 0 and end % (divisor := divisors.pop()) == 0:
            _split(loop, divisor, end // divisor)


def _divisors(op: affine.IfOp, loop: Loop) -> Iterator[int]:
    """The divisors of remainders that must be zero and that the variable of the loop is part of."""
    probe = Variable("probe")
    own = loop.body.block.args[0]
    if own not in op.args:
        return
    others = [Index.of(Variable(f"other{i}")) for i in range(len(op.args))]
    indices = [
        Index.of(probe) if a is own else other for a, other in zip(op.args, others, strict=True)
    ]
    conditions = op.condition.data
    dims, symbols = indices[: conditions.num_dims], indices[conditions.num_dims :]
    for constraint in conditions.constraints:
        if constraint.kind is not AffineConstraintKind.eq:
            continue
        left = from_affine(constraint.lhs, dims, symbols, NO_FACTS)
        for term, _ in left.terms:
            if isinstance(term, Remainder) and abs(dict(term.dividend.terms).get(probe, 0)) == 1:
                yield term.divisor


def _split(loop: Loop, divisor: int, count: int) -> None:
    variable = loop.body.block.args[0]
    inner_block = Block(arg_types=[IndexType()])
    inner_block.args[0].name_hint = variable.name_hint
    for op in list(loop.body.block.ops):
        op.detach()
        inner_block.add_op(op)
    inner = affine.ForOp.from_region([], [], [], [], 0, count, Region(inner_block))
    place = inner_block
    while (
        len(ops := list(place.ops)) == 2 and isinstance(ops[0], affine.ForOp) and not ops[0].inits
    ):
        place = ops[0].body.block
    position = AffineExpr.dimension(0) * divisor + AffineExpr.dimension(1)
    whole = affine.ApplyOp(
        [inner_block.args[0], variable], AffineMapAttr(AffineMap(2, 0, (position,)))
    )
    variable.replace_uses_with_if(whole.result, lambda use: use.operation is not whole)
    assert place.first_op is not None
    place.insert_op_before(whole, place.first_op)
    loop.body.block.add_ops([inner, affine.YieldOp.get()])
    loop.properties["upperBoundMap"] = AffineMapAttr(AffineMap.constant_map(divisor))
    variable.name_hint = "remainder"


@dataclass(frozen=True)
class _Access:
    """A load or store, and the loops around it."""

    op: Operation
    loops: tuple[Loop, ...]
    flat: Index | None
    """None for a place that is read from memory."""

    def coefficient(self, variable: Variable) -> int | None:
        """By how many elements an iteration moves it; None where that is not constant."""
        if self.flat is None:
            return None
        total = 0
        for term, coefficient in self.flat.terms:
            if term == variable:
                total = coefficient
            elif not isinstance(term, Variable) and variable.name in term.dividend.variables:
                return None
        return total


class _Kernel:
    """What the choices rest on."""

    def __init__(self, function: func.FuncOp, vectors: Vectors) -> None:
        self.function, self.vectors = function, vectors
        self.depends = dependences(function)
        self.extents: dict[Loop, int] = {}
        self.variables: dict[Loop, Variable] = {}
        self.around: dict[Operation, tuple[Loop, ...]] = {}
        self.accesses: dict[Operation, _Access] = {}
        self.indices: dict[SSAValue, Index] = {}
        self._walk(function.body.block, ())

    def _walk(self, block: Block, loops: tuple[Loop, ...]) -> None:
        for op in block.ops:
            self.around[op] = loops
            match op:
                case affine.ForOp():
                    first, end = loop_bounds(op)
                    self.extents[op] = end - first
                    name = f"loop{len(self.variables)}"
                    self.variables[op] = Variable(name, first, max(first, end - 1))
                    self.indices[op.body.block.args[0]] = Index.of(self.variables[op])
                    self._walk(op.body.block, (*loops, op))
                case affine.IfOp():
                    for region in op.regions:
                        if region.blocks:
                            self._walk(region.block, loops)
                case affine.LoadOp() | affine.StoreOp():
                    flat = self._flat(op)
                    self.accesses[op] = _Access(op, loops, flat)
                case memref.LoadOp() | memref.StoreOp():
                    self.accesses[op] = _Access(op, loops, None)
                case arith.ConstantOp() if isinstance(op.result.type, IndexType):
                    value = op.value
                    assert hasattr(value, "value")
                    self.indices[op.result] = Index((), value.value.data)  # pyright: ignore
                case affine.ApplyOp() if all(o in self.indices for o in op.operands):
                    self.indices[op.result] = self._map(op.map.data, op.operands)[0]
                case _:
                    pass

    def _map(self, map_, operands: Sequence[SSAValue]) -> list[Index]:
        indices = [self.indices[operand] for operand in operands]
        dims, symbols = indices[: map_.num_dims], indices[map_.num_dims :]
        return [from_affine(e, dims, symbols, NO_FACTS) for e in map_.results]

    def _flat(self, op: affine.LoadOp | affine.StoreOp) -> Index | None:
        if any(operand not in self.indices for operand in op.indices):
            return None
        flat = Index()
        assert isa(op.memref.type, MemRefType)
        indices = self._map(op.map.data, op.indices)
        for size, index in zip(op.memref.type.get_shape(), indices, strict=True):
            flat = flat * size + index
        return flat

    # Choices

    def rule(self) -> Choice:
        """What is best in the model, as far as it is searched."""
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
        """Of one operation on vectors along a loop, or on scalars."""
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

    def _varies(self, op: Operation, along: Loop) -> bool:
        return any(along in self.depends.get(result, ()) for result in op.results)

    def _depends(self, op: Operation) -> frozenset[Loop]:
        return frozenset[Loop]().union(*(self.depends.get(r, ()) for r in op.results))

    def _guarded(self, op: Operation | None) -> frozenset[Loop]:
        """The loops that guards around an operation depend on."""
        found = frozenset[Loop]()
        while op is not None:
            if isinstance(op, affine.IfOp):
                found = found.union(*(self.depends.get(value, ()) for value in op.args))
            op = op.parent_op()
        return found

    def _is_transposed(self, op: Operation, along: Loop) -> bool:
        """Whether lanes load from rows of a matrix, along which the innermost loop runs."""
        access = self.accesses[op]
        if not isinstance(op, affine.LoadOp) or along not in access.loops:
            return False
        step = access.coefficient(self.variables[along])
        return step not in (0, 1, None) and self._in_rows(access)

    def _in_rows(self, access: _Access) -> bool:
        """Whether the innermost loop is a sum along consecutive elements."""
        inner = access.loops[-1]
        long_enough = self.extents[inner] >= self.vectors.lanes
        consecutive = access.coefficient(self.variables[inner]) == 1
        return bool(inner.inits) and long_enough and consecutive

    def may_vectorise(self, loop: Loop) -> bool:
        """Whether iterations can be lanes: independent, and alike in all guards."""
        if not self.may_copy(loop) or self.extents[loop] < 2:
            return False
        variable = loop.body.block.args[0]
        return not any(
            isinstance(op, affine.IfOp)
            and any(loop in self.depends.get(operand, ()) for operand in op.args)
            for op in loop.walk()
        ) and bool(variable.uses.get_length())

    def may_copy(self, loop: Loop) -> bool:
        """Whether iterations can run together: what each stores is its own.

        A workspace may be shared by the iterations of a loop around it.
        """
        if loop.inits:
            return False
        return all(
            access.coefficient(self.variables[loop]) != 0
            for op, access in self.accesses.items()
            if loop in access.loops and isinstance(op, affine.StoreOp | memref.StoreOp)
        )

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

    def sums(self) -> Iterator[Loop]:
        """The reductions that are in no other one."""
        for op, loops in self.around.items():
            if isinstance(op, affine.ForOp) and op.inits and not any(one.inits for one in loops):
                yield op

    def _weight(self, loop: Loop) -> float:
        inner = max(
            prod(self.extents[one] for one in self.around[op]) for op in loop.body.block.ops
        )
        for op in loop.walk():
            inner = max(inner, prod(self.extents[one] for one in self.around.get(op, ())))
        return inner

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

    def _is_dense(self, loop: Loop) -> bool:
        """Whether the sum takes far longer than what is done with it."""
        return self._weight(loop) >= 32 * prod(self.extents[one] for one in self.around[loop])

    def _vectors_of(self, loop: Loop, lanes: set[Loop]) -> int:
        # Fewer elements than lanes are one vector as well.
        return max(self.extents[loop] // (self.vectors.lanes if loop in lanes else 1), 1)

    def _innermost(self, loop: Loop) -> Loop:
        """The loop inside a sum that runs most often."""
        inner = [op for op in loop.walk() if isinstance(op, affine.ForOp)]
        return max(inner, key=lambda one: prod(self.extents[o] for o in (*self.around[one], one)))

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

    def _is_vector(self, op: Operation, along: Loop | None) -> bool:
        return along is not None and self._varies(op, along)

    def _chain(self, inner: Loop) -> int:
        """Operations from what a loop carries to what it hands on."""
        longest = 1
        depth: dict[SSAValue, int] = dict.fromkeys(inner.body.block.args[1:], 0)
        for op in inner.body.block.ops:
            found = [depth[operand] for operand in op.operands if operand in depth]
            if found and op.results and not op.regions:
                for result in op.results:
                    depth[result] = max(found) + 1
                longest = max(longest, max(found) + 1)
        return longest

    # Order

    def move_out(self, loop: Loop, tiling: dict[Loop, Sequence[Piece]]) -> None:
        """Makes the loop the outermost of a perfect nest, if that saves reading much again."""
        nest: list[Loop] = [loop]
        while isinstance(outer := nest[0].parent_op(), affine.ForOp) and not outer.inits:
            if [*outer.body.block.ops][:-1] != [nest[0]] or not self.may_copy(outer):
                break
            nest.insert(0, outer)
        if len(nest) == 1:
            return
        with_loop = without = 0
        repeats = prod(
            len(p) and sum(q.tiles for q in p) for one, p in tiling.items() if one in nest[:-1]
        )
        repeats *= prod(self.extents[one] for one in nest[:-1] if one not in tiling)
        for op, access in self.accesses.items():
            if loop not in access.loops or not isinstance(op, affine.LoadOp):
                continue
            assert isa(op.memref.type, MemRefType)
            size = elements_of(op.memref.type) * element_bytes(op.memref.type.element_type)
            if access.coefficient(self.variables[loop]) == 0:
                without += size
            elif all(access.coefficient(self.variables[one]) == 0 for one in nest[:-1]):
                with_loop += size
        if repeats > 1 and with_loop > _CACHE_BYTES and with_loop > without:
            self._rotate(nest, tiling)

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
