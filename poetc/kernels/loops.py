"""Chooses the parallel loops around the results of a body.

First each result is walked without emitting anything, to see which elements it asks for. From that
follow: which dimensions of different results run in step, in which order loops let reductions
depend on outer loops only, and which results can share loops. The outcome is a tree of loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

from xdsl.ir import BlockArgument, Operation, SSAValue

from poetc.ir import stablehlo
from poetc.ir.dataflow import computed_from
from poetc.ir.index import ZERO, Index, Var
from poetc.ir.stablehlo import shape_of
from poetc.ir.stablehlo.indexing import Gather
from poetc.ir.stablehlo.windows import SelectAndScatter
from poetc.kernels.plan import Plan
from poetc.kernels.values import is_costly

At = tuple[Index, ...]


@dataclass
class Result:
    """A result of the body and the elements that it asks for."""

    number: int
    value: SSAValue
    at: At
    vars: list[Var]
    # Elements of block arguments, reductions, kept values and earlier results.
    asks: list[tuple[SSAValue, At]] = field(default_factory=list)
    # Sets of variables that should be the outer loops, most important first.
    outer: list[frozenset[Var]] = field(default_factory=list)


@dataclass
class Loop:
    """A loop of the tree (the root has no variable) with stores and loops inside, in order."""

    var: Var | None
    items: list[Loop | Result] = field(default_factory=list)

    def results(self) -> Iterator[Result]:
        """The results stored in this loop."""
        for item in self.items:
            if isinstance(item, Loop):
                yield from item.results()
            else:
                yield item


@dataclass
class LoopTree:
    """The loops around all results. Variables that run in step have one representative."""

    root: Loop
    results: list[Result]
    representative: dict[Var, Var]

    def class_of(self, var: Var) -> Var:
        """The variable that stands for all that run in step with `var`."""
        return self.representative.get(var, var)

    def canonical(self, at: Sequence[Index]) -> At:
        """The indices in terms of representatives."""
        representatives = {var: Index.of(other) for var, other in self.representative.items()}
        return tuple(index.substitute(representatives) for index in at)

    def reduction_places(self) -> dict[SSAValue, set[At]]:
        """Where each reduction is asked for, in terms of representatives."""
        places: dict[SSAValue, set[At]] = {}
        for result in self.results:
            for value, at in result.asks:
                if isinstance(value.owner, stablehlo.ReduceOp):
                    places.setdefault(value, set()).add(self.canonical(at))
        return places


class _Walk:
    """Finds what one result asks for."""

    def __init__(self, result: Result, earlier: set[SSAValue], plan: Plan) -> None:
        self.result = result
        self.earlier = earlier
        self.plan = plan
        self.seen: set[tuple[SSAValue, At]] = set()
        self.sets: dict[frozenset[Var], bool] = {}  # to whether a reduction wants it
        self.fresh = len(result.vars)
        # Visited from a stack: bodies may be deep.
        self.stack: list[tuple[SSAValue, Sequence[Index]]] = [(result.value, result.at)]
        top = True
        while self.stack:
            self._visit(*self.stack.pop(), top)
            top = False
        own = frozenset(result.vars)
        # The smaller set goes outside; what reductions want comes before what saves divisions.
        result.outer = sorted(
            (s for s in self.sets if s < own and s),
            key=lambda s: (not self.sets[s], len(s), sorted(var.number for var in s)),
        )

    def _var(self, extent: int) -> Index:
        if extent == 1:
            return ZERO
        self.fresh += 1
        return Index.of(Var(-self.fresh, extent))

    def _want(self, indices: Iterable[Index], reduction: bool) -> None:
        own = set(self.result.vars)
        used = frozenset(var for index in indices for var in index.vars() if var in own)
        self.sets[used] = self.sets.get(used, False) or reduction

    def _element(self, value: SSAValue, at: Sequence[Index]) -> None:
        self.stack.append((value, at))

    def _visit(self, value: SSAValue, at: Sequence[Index], top: bool) -> None:
        at = tuple(ZERO if n == 1 else i for i, n in zip(at, shape_of(value), strict=True))
        if (value, at) in self.seen:
            return
        self.seen.add((value, at))
        if isinstance(value, BlockArgument):
            self.result.asks.append((value, at))
            return
        op = value.owner
        assert isinstance(op, Operation)
        if value in self.earlier and is_costly(value):
            self.result.asks.append((value, at))
            self._want(at, True)
            return
        if value in self.plan.kept and not top:
            fixed = self.plan.kept[value]
            self.result.asks.append((value, at))
            self._want((at[dim] for dim in fixed), True)
            shape = shape_of(value)
            at = tuple(at[d] if d in fixed else self._var(n) for d, n in enumerate(shape))
        if isinstance(op, stablehlo.ReductionOp):
            self._reduction(op, at)
        elif isinstance(op, stablehlo.GatherOp):
            self._gather(op, at)
        elif isinstance(op, stablehlo.MovementOp):
            for move in op.moves(at):
                self._element(move.source, move.indices)
        elif isinstance(op, stablehlo.PositionOp):
            self._element(op.iteration, ())
        elif not isinstance(op, stablehlo.ConstantOp | stablehlo.IotaOp):
            assert isinstance(op, stablehlo.ElementwiseOp)
            if op.IS_SLOW or op.function():
                self._want(at, False)
            for operand in op.operands:
                self._element(operand, op.operand_at(operand, at))

    def _reduction(self, op: stablehlo.ReductionOp, at: At) -> None:
        description = op.reduction(at)
        if not is_trivial(op):
            self.result.asks.append((op.results[0], at))
            self._want(at, True)
        positions = [self._var(axis.extent) for axis in description.axes]
        if isinstance(description, SelectAndScatter):
            # The choice of a window is made once for all elements in it.
            source = [description.source_index(i, t) for i, t in enumerate(positions)]
            if all(t == ZERO for t in positions):
                self._want(source, True)
        for operand, read in description.reads(positions):
            self._element(operand, read)

    def _gather(self, op: stablehlo.GatherOp, at: At) -> None:
        gather = Gather(op, at)
        indices = list(gather.base)
        for dim, limit, (operand, read) in gather.starts():
            self._element(operand, read)
            indices[dim] = indices[dim] + self._var(limit + 1)
        self._element(op.operand, indices)


def is_trivial(op: stablehlo.ReductionOp) -> bool:
    """Whether a reduction combines just one element."""
    at = [ZERO] * len(shape_of(op.results[0]))
    description = op.reduction(at)
    extents = [axis.extent for axis in description.axes]
    if isinstance(description, SelectAndScatter):
        extents += description.op.window
    return prod(extents) == 1


def build_loops(values: Sequence[SSAValue], plan: Plan) -> LoopTree:
    """The loop tree for the results `values` of a body."""
    results = _walk_all(values, plan)
    tree = LoopTree(Loop(None), results, _unify(results))
    for result in results:
        _insert(tree, result)
    return tree


def axis_key(result: int, dim: int) -> tuple:
    """The key in `Plan.splits` of the loop over a dimension of a result."""
    return ("result", result, dim)


def _walk_all(values: Sequence[SSAValue], plan: Plan) -> list[Result]:
    """The results in the order in which they are evaluated: after those they depend on, and those
    that need a certain loop order first, so that others follow it."""
    ancestors = {value: computed_from([value]) for value in values}
    pending = list(enumerate(values))
    done: list[Result] = []
    earlier: set[SSAValue] = set()
    walked: dict[int, Result] = {}
    while pending:
        waiting = {value for _, value in pending}
        ready: list[Result] = []
        for number, value in pending:
            if ancestors[value] & waiting - {value}:
                continue
            if number not in walked:
                walked[number] = _result(number, value, plan)
                _Walk(walked[number], earlier, plan)
            ready.append(walked[number])
        chosen = next((r for r in ready if r.outer), ready[0])
        pending.remove((chosen.number, chosen.value))
        earlier.add(chosen.value)
        done.append(chosen)
    return done


def _result(number: int, value: SSAValue, plan: Plan) -> Result:
    at: list[Index] = []
    vars: list[Var] = []
    for dim, size in enumerate(shape_of(value)):
        factors = plan.splits.get(axis_key(number, dim), (size,))
        index = ZERO
        for part, factor in enumerate(factors):
            if factor != 1:
                var = Var(len(vars) + 1, factor, axis_key(number, dim), part)
                vars.append(var)
                index = index + Index.of(var) * prod(factors[part + 1 :])
        at.append(index)
    return Result(number, value, tuple(at), vars)


def _unify(results: Sequence[Result]) -> dict[Var, Var]:
    """The variables of different results that run in step, as they index a value in the same way;
    each with the one that stands for it."""
    owner = {var: result.number for result in results for var in result.vars}
    members: dict[Var, list[Var]] = {var: [var] for var in owner}

    def join(a: Var, b: Var) -> None:
        left, right = members[a], members[b]
        if left is right or a.extent != b.extent:
            return
        if {owner[var] for var in left} & {owner[var] for var in right}:
            return
        left += right
        for var in right:
            members[var] = left

    def join_indices(first: At, second: At) -> None:
        for a, b in zip(first, second, strict=True):
            if [c for _, c in a.terms] != [c for _, c in b.terms] or a.const != b.const:
                continue
            for (x, _), (y, _) in zip(a.terms, b.terms, strict=True):
                if isinstance(x, Var) and isinstance(y, Var) and x in owner and y in owner:
                    join(x, y)

    asked: dict[SSAValue, list[At]] = {}
    for result in results:
        # Reductions and results say more about what belongs together than operands do.
        for value, at in sorted(result.asks, key=lambda ask: isinstance(ask[0], BlockArgument)):
            for other in asked.get(value, ()):
                join_indices(other, at)
        for value, at in [(result.value, result.at), *result.asks]:
            asked.setdefault(value, []).append(at)
    for i, first in enumerate(results):
        for second in results[i + 1 :]:
            if shape_of(first.value) == shape_of(second.value):
                join_indices(first.at, second.at)
    return {var: group[0] for var, group in members.items()}


def _insert(tree: LoopTree, result: Result) -> None:
    """Put the store of `result` into the tree, in existing loops as far as they fit."""
    loop = tree.root
    left = list(result.vars)
    while left:
        wanted = next((s for s in result.outer if s & set(left)), frozenset(left))
        candidates = [var for var in left if var in wanted]
        found = _fitting_child(tree, loop, result, candidates)
        if found is None:
            var = candidates[0]
            child = Loop(tree.class_of(var))
            loop.items.append(child)
        else:
            child, var = found
        left.remove(var)
        loop = child
    loop.items.append(result)


def _fitting_child(
    tree: LoopTree, loop: Loop, result: Result, candidates: Sequence[Var]
) -> tuple[Loop, Var] | None:
    asked = {value for value, _ in result.asks}
    for item in reversed(loop.items):
        stored = [item] if isinstance(item, Result) else list(item.results())
        if isinstance(item, Loop):
            assert item.var is not None
            for var in candidates:
                if tree.class_of(var) is item.var and all(
                    _in_step(tree, other, result, item.var)
                    for other in stored
                    if other.value in asked
                ):
                    return item, var
        # A value that this result needs must be stored before the loop that it enters.
        if any(other.value in asked for other in stored):
            return None
    return None


def _in_step(tree: LoopTree, earlier: Result, result: Result, var: Var) -> bool:
    """Whether `result` asks for those elements of `earlier` only that the same iteration of the
    loop over `var` stores."""
    stored = tree.canonical(earlier.at)
    for value, at in result.asks:
        if value is not earlier.value:
            continue
        for mine, theirs in zip(tree.canonical(at), stored, strict=True):
            if var in theirs.vars() and mine != theirs:
                return False
    return True


def dimensions_in_step(tree: LoopTree, axis: object) -> set[tuple]:
    """Keys of all dimensions of results that run in step with that of `axis`."""
    classes = {
        tree.class_of(var) for result in tree.results for var in result.vars if var.axis == axis
    }
    keys: set[tuple] = set()
    for result in tree.results:
        for var in result.vars:
            if tree.class_of(var) in classes and isinstance(var.axis, tuple):
                keys.add(var.axis)
    return keys
