"""Evaluates elements of the values of a compute body, on demand, into a loop nest.

`element(value, at)` emits whatever computes one element: data movement becomes index arithmetic,
element-wise operations scalar expressions, reductions sequential loops. Each reduction evaluated is
counted, so that the planner (lower.py) sees when one is evaluated more often than it has elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import MemRefType, StringAttr, UnitAttr
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from poetc.errors import InputError
from poetc.ir import stablehlo
from poetc.ir.dense import dtype_of, from_array
from poetc.ir.locations import source_location
from poetc.ir.stablehlo import element_type_of, shape_of
from poetc.ir.stablehlo.bodies import lower_body
from poetc.ir.stablehlo.conversion import converted
from poetc.ir.types import computed_type, type_in_kernel
from poetc.kernels import expressions
from poetc.kernels.builder import Builder, Val
from poetc.kernels.index import ZERO, Condition, Dynamic, Index, Quotient, Var, constant, within
from poetc.kernels.indexing import (
    REDUCTIONS,
    Axis,
    Gather,
    Indices,
    Move,
    Reduction,
    Scatter,
    SelectAndScatter,
    elements,
    elementwise_at,
    movement,
    reduction,
)

AxisKey = object


@dataclass(frozen=True)
class Plan:
    """What one attempt at lowering does differently from evaluating everything on demand."""

    # Intermediates kept in a workspace, each with the dimensions that surrounding loops fix.
    kept: dict[SSAValue, frozenset[int]] = field(default_factory=dict)
    # Loops that are split, each with the factors of its extent: saves divisions in index maps.
    splits: dict[AxisKey, tuple[int, ...]] = field(default_factory=dict)
    # Pairs of reductions that would share their loops, but must not.
    apart: frozenset[frozenset[Operation]] = frozenset()


@dataclass(frozen=True)
class Evaluation:
    """One place where a reduction is evaluated."""

    loops: tuple[Var, ...]  # around it
    conditions: tuple[Condition, ...]  # guards around it
    at: tuple[Index, ...]
    with_op: Operation | None = None  # the reduction whose loops it shares

    def count(self) -> int:
        """How often it is evaluated."""
        return count(self.loops, self.conditions)


@dataclass(frozen=True)
class Written:
    """A buffer that holds a value, or the part of it that open loops select."""

    buffer: SSAValue
    at: tuple[Index, ...]


class NeedsBuffer(Exception):  # noqa: N818
    """`value` has to be in memory for the body to be lowered."""

    def __init__(self, value: SSAValue) -> None:
        self.value = value


class Evaluator:
    """One attempt at lowering a body under a plan."""

    def __init__(
        self,
        block: Block,
        builder: Builder,
        plan: Plan,
        inputs: dict[SSAValue, SSAValue],
        workspace: dict[SSAValue, SSAValue],
        partners: Callable[[Operation, Sequence[Operation]], Iterable[Operation]],
        name: str,
        iteration: tuple[SSAValue, SSAValue] | None = None,
    ) -> None:
        """`iteration` is the number of the step of a loop around: as a tensor, and as an index."""
        self.b = builder
        self.iteration = iteration
        self.plan = plan
        self._order = {op: i for i, op in enumerate(block.ops)}
        self.inputs = inputs
        self.workspace = workspace
        self.partners = partners
        self.name = name
        self.written: dict[SSAValue, Written] = {}
        self.evaluations: dict[SSAValue, list[Evaluation]] = {}
        self.split_requests: dict[AxisKey, tuple[int, ...]] = {}
        self.unfix_requests: set[SSAValue] = set()
        self.fused: list[tuple[Operation, Operation, Val]] = []
        self.globals: list[memref.GlobalOp] = []
        self._tables: dict[Operation, SSAValue] = {}
        self._open: list[Operation] = []
        self._dynamics: dict[SSAValue, Dynamic] = {}

    # Elements

    def element(self, value: SSAValue, at: Indices) -> Val:
        """The element of `value` at `at`."""
        shape = shape_of(value)
        index = tuple(ZERO if n == 1 else i for i, n in zip(at, shape, strict=True))
        key = (value, index)
        if (found := self.b.recall(key)) is not None:
            return found
        return self.b.remember(key, self._element(value, index).of(element_type_of(value)))

    def _element(self, value: SSAValue, at: tuple[Index, ...]) -> Val:
        if isinstance(value, BlockArgument):
            return self.load(self.inputs[value], at)
        if (found := self._reload(value, at)) is not None:
            return found
        if value in self.plan.kept:
            return self._kept(value, at)
        return self.compute(value, at)

    def compute(self, value: SSAValue, at: tuple[Index, ...]) -> Val:
        """The element, from the operation that defines it."""
        op = value.owner
        assert isinstance(op, Operation)
        if isinstance(op, stablehlo.ElementwiseOp):
            self._chain(op, at)
            elements = [self.element(o, elementwise_at(o, at)) for o in op.operands]
            return op.lower(self.b, *elements)
        if isinstance(op, REDUCTIONS):
            return self._reduction(op, at)
        match op:
            case stablehlo.ConstantOp():
                return self._constant(op, at)
            case stablehlo.IotaOp():
                return expressions.from_index(self.b, at[op.dim], element_type_of(value))
            case stablehlo.PositionOp():
                return self._position(op)
            case stablehlo.GatherOp():
                return self._gather(op, at)
        moves = movement(op, at)
        if moves is None:
            raise InputError(f"{op.name} is not supported in kernels")

        def choose(i: int) -> Sequence[Val]:
            move = moves[i]
            return self.b.guarded(
                move.conditions,
                lambda: [self.element(move.source, move.indices)],
                lambda: choose(i + 1),
            )

        for move in moves:
            self._request_splits(condition.index for condition in move.conditions)
            guards = [condition.index for condition in move.conditions]
            if any(index.is_dynamic for index in guards) or any(map(_divides, move.indices)):
                # Guards and divisions are affine, they cannot depend on memory: gather from a
                # buffer instead.
                raise NeedsBuffer(value)
        if isinstance(op, stablehlo.ConcatenateOp) and len(moves) > 2:
            return self._search(moves, at[op.dim], op.dim)[0]
        return choose(0)[0]

    def _search(self, moves: Sequence[Move], position: Index, dim: int) -> Sequence[Val]:
        """The element of a concatenation of many tensors, by halves."""
        if len(moves) == 1:
            return [self.element(moves[0].source, moves[0].indices)]
        middle = len(moves) // 2
        # Where the right half begins: there its index is zero.
        start = position - moves[middle].indices[dim]
        return self.b.guarded(
            [Condition(start - 1 - position)],
            lambda: self._search(moves[:middle], position, dim),
            lambda: self._search(moves[middle:], position, dim),
            [Condition(position - start)],
        )

    def _chain(self, op: Operation, at: tuple[Index, ...]) -> None:
        """Evaluate the element-wise operations that `op` depends on from the first one on: chains
        of hundreds would otherwise go as deep as they are long."""
        chain: set[Operation] = set()
        stack = [op]
        while stack:
            for operand in stack.pop().operands:
                producer = operand.owner
                if (
                    isinstance(producer, Operation)
                    and producer not in chain
                    and isinstance(producer, stablehlo.ElementwiseOp)
                    and operand not in self.written
                    and operand not in self.plan.kept
                    and self.b.recall((operand, elementwise_at(operand, at))) is None
                ):
                    chain.add(producer)
                    stack.append(producer)
        for producer in sorted(chain, key=self._order.__getitem__):
            value = producer.results[0]
            self.element(value, elementwise_at(value, at))

    def load(self, buffer: SSAValue, at: Indices, depth: int = 0) -> Val:
        """The element of a buffer, loaded no further out than `depth`."""
        self._request_splits(at)
        return self.b.load(buffer, at, depth)

    def _request_splits(self, indices: Iterable[Index]) -> None:
        """Ask for a loop to be split where its variable is divided by a factor of its extent."""
        for index in indices:
            for atom in index.atoms():
                if not isinstance(atom, Quotient):
                    continue
                inner = atom.of.single()
                if (
                    isinstance(inner, Var)
                    and inner.axis is not None
                    and inner.extent % atom.divisor == 0
                ):
                    factors = list(self.plan.splits.get(inner.axis, (inner.extent,)))
                    factors[inner.part : inner.part + 1] = [
                        inner.extent // atom.divisor,
                        atom.divisor,
                    ]
                    self.split_requests.setdefault(inner.axis, tuple(factors))

    def _constant(self, op: stablehlo.ConstantOp, at: tuple[Index, ...]) -> Val:
        array = op.array()
        type = element_type_of(op.results[0])
        if not array.size:
            return self.b.constant(0, type)  # never read
        if _is_splat(array):
            return self.b.constant(array.flat[0].item(), type)
        if op not in self._tables:
            name = f"{self.name}_table{len(self.globals)}"
            code = type_in_kernel(type)
            buffer_type = MemRefType(code, shape_of(op.results[0]))
            bits = op.value if code == type else from_array(array.view(dtype_of(code)), code)
            self.globals.append(
                memref.GlobalOp.get(
                    StringAttr(name),
                    buffer_type,
                    bits,
                    sym_visibility=StringAttr("private"),
                    constant=UnitAttr(),
                )
            )
            get = memref.GetGlobalOp(name, buffer_type)
            self.b.scopes[0].block.add_op(get)
            self._tables[op] = get.memref
        return self.load(self._tables[op], at)

    def _position(self, op: stablehlo.PositionOp) -> Val:
        type = element_type_of(op.result)
        if self.iteration is not None and op.iteration is self.iteration[0]:
            step = Index.of(Var(0, op.trips, ssa=self.iteration[1]))
            return expressions.from_index(self.b, step * op.step + op.first, type)
        number = converted(self.b, self.element(op.iteration, ()), type)
        scaled = self.b.binary(arith.MuliOp, number, self.b.constant(op.step, type))
        return self.b.binary(arith.AddiOp, scaled, self.b.constant(op.first, type))

    def _gather(self, op: stablehlo.GatherOp, at: tuple[Index, ...]) -> Val:
        gather = Gather(op, at)
        indices = list(gather.base)
        for dim, limit, (operand, read) in gather.starts():
            number = self.element(operand, read)
            known = self.b.positions.get(number.ssa)
            if known is not None and known.low >= 0 and known.high <= limit:
                indices[dim] += known
                continue
            start = expressions.clamp(self.b, expressions.to_index(self.b, number), limit)
            atom = Dynamic(self.b.number(), limit, start.ssa, start.depth)
            # One atom for one value: so that equal elements are recognised.
            atom = self._dynamics.setdefault(start.ssa, atom)
            indices[dim] += Index.of(atom)
        return self.element(op.operand, indices)

    # Values in memory

    def _reload(self, value: SSAValue, at: tuple[Index, ...]) -> Val | None:
        """From a result that an earlier nest, or an earlier part of this one, has stored."""
        written = self.written.get(value)
        if written is None or not is_costly(value):
            return None
        depth = 0
        for index, stored in zip(at, written.at, strict=True):
            running = [var.depth for var in stored.vars() if var.open]
            if running:
                if index != stored:
                    return None
                depth = max(depth, *running)
        return self.load(written.buffer, at, depth)

    def _kept(self, value: SSAValue, at: tuple[Index, ...]) -> Val:
        """From the workspace, which is filled first where the fixed dimensions are known."""
        fixed = self.plan.kept[value]
        depth = 0
        for dim in fixed:
            var = at[dim].single()
            if isinstance(var, Var):
                depth = max(depth, var.depth)
            else:
                self.unfix_requests.add(value)
        shape = shape_of(value)
        outer = {dim: at[dim] for dim in fixed}
        key = ("kept", value, tuple(sorted(outer.items())))
        buffer = self.workspace[value]
        free = [dim for dim in range(len(shape)) if dim not in fixed]
        if self.b.recall(key) is None:
            with self.b.at(depth):
                axes = [Axis(("fill", value, dim), shape[dim], "f") for dim in free]

                def fill(positions: Sequence[Index], _: Sequence[Val]) -> Sequence[Val]:
                    inner = dict(zip(free, positions, strict=True))
                    full = tuple((inner | outer)[dim] for dim in range(len(shape)))
                    self.b.store(self.compute(value, full), buffer, positions)
                    return []

                self.fold(axes, [], fill)
                self.b.scopes[depth].memo[key] = Val(buffer, depth)
        return self.load(buffer, [at[dim] for dim in free], depth)

    # Loops

    def loops(
        self,
        axis: Axis,
        accs: Sequence[Val],
        body: Callable[[Index, Sequence[Val]], Sequence[Val]],
    ) -> list[Val]:
        """Loop over the axis: none for extent 1, several if the plan splits it."""
        factors = self.plan.splits.get(axis.key, (axis.extent,))

        def step(part: int, index: Index, accs: Sequence[Val]) -> Sequence[Val]:
            if part == len(factors):
                return body(index, accs)
            if factors[part] == 1:
                return step(part + 1, index, accs)
            stride = prod(factors[part + 1 :])
            return self.b.loop(
                factors[part],
                axis.name,
                accs,
                lambda var, inner: step(part + 1, index + Index.of(var) * stride, inner),
                axis=axis.key,
                part=part,
            )

        return list(step(0, ZERO, accs))

    def fold(
        self,
        axes: Sequence[Axis],
        accs: Sequence[Val],
        leaf: Callable[[Sequence[Index], Sequence[Val]], Sequence[Val]],
    ) -> list[Val]:
        """Nested sequential loops over the axes, each guard as far out as its position is known."""
        positions = [ZERO] * len(axes)

        def conditions(axis: Axis, position: Index) -> list[Condition]:
            found = axis.guard(position) if axis.guard else []
            self._request_splits(condition.index for condition in found)
            return found

        def step(i: int, accs: Sequence[Val]) -> Sequence[Val]:
            if i == len(axes):
                return leaf(tuple(positions), accs)
            axis = axes[i]
            if axis.extent == 1:
                return step(i + 1, accs)

            def inside(position: Index, accs: Sequence[Val]) -> Sequence[Val]:
                positions[i] = position
                return self.b.guarded(
                    conditions(axis, position), lambda: step(i + 1, accs), lambda: accs
                )

            return self.loops(axis, accs, inside)

        outer = [c for axis in axes if axis.extent == 1 for c in conditions(axis, ZERO)]
        return self.b.guarded(outer, lambda: step(0, accs), lambda: accs)

    # Reductions

    def _reduction(self, op: Operation, at: tuple[Index, ...]) -> Val:
        value = op.results[0]
        depth = self.b.sink(self.b.place(shape_of(value), at))
        with self.b.at(depth):
            self._count(value, at)
            if isinstance(op, stablehlo.ReduceOp):
                return self._reduce(op, at)
            description = reduction(op, at)
            if isinstance(op, stablehlo.FoldOp):
                return self._fold(op, description)
            if isinstance(description, SelectAndScatter):
                return self._select_and_scatter(description)
            if isinstance(description, Scatter):
                return self._scatter(description)
            type = element_type_of(value)
            if isinstance(op, stablehlo.ReduceWindowOp):
                kind, init = op.kind, self.element(op.init, ())
                self._check_init(op)
            elif description.start is not None:
                kind, init = "add", self.element(*description.start)
            else:
                kind, init = "add", self.b.constant(0, type)
            summed = computed_type(type)

            def leaf(positions: Indices, accs: Sequence[Val]) -> Sequence[Val]:
                terms = [
                    converted(self.b, self.element(operand, i), summed)
                    for operand, i in description.reads(positions)
                ]
                term = terms[0]
                if len(terms) == 2:
                    term = stablehlo.MultiplyOp.scalar(self.b, *terms)
                return [stablehlo.REDUCERS[kind].scalar(self.b, accs[0], term)]

            init = converted(self.b, init, summed)
            return converted(self.b, self.fold(description.axes, [init], leaf)[0], type)

    def _count(
        self, value: SSAValue, at: tuple[Index, ...], with_op: Operation | None = None
    ) -> None:
        scopes = self.b.scopes
        self.evaluations.setdefault(value, []).append(
            Evaluation(
                tuple(scope.var for scope in scopes if scope.var is not None),
                tuple(fact for scope in scopes for fact in scope.facts),
                at,
                with_op,
            )
        )

    def _reduce(self, op: stablehlo.ReduceOp, at: tuple[Index, ...]) -> Val:
        """A reduction, together with others over the same elements: one pass over memory."""
        group = [op]
        for partner in self.partners(op, self._open):
            assert isinstance(partner, stablehlo.ReduceOp)
            value = partner.results[0]
            elsewhere = value in self.plan.kept or value in self.written
            if not elsewhere and self.b.recall((value, at)) is None:
                self._count(value, at, op)
                group.append(partner)
        types = [element_type_of(member.results[0]) for member in group]
        inits = [
            converted(self.b, self.element(member.init, ()), computed_type(type))
            for member, type in zip(group, types, strict=True)
        ]
        descriptions = [reduction(member, at) for member in group]

        def leaf(positions: Indices, accs: Sequence[Val]) -> Sequence[Val]:
            result = []
            for member, description, acc in zip(group, descriptions, accs, strict=True):
                operand, index = description.reads(positions)[0]
                term = converted(self.b, self.element(operand, index), acc.type)
                result.append(stablehlo.REDUCERS[member.kind].scalar(self.b, acc, term))
            return result

        self._open += group
        sums = self.fold(descriptions[0].axes, inits, leaf)
        results = [converted(self.b, *pair) for pair in zip(sums, types, strict=True)]
        del self._open[-len(group) :]
        for member, result in zip(group[1:], results[1:], strict=True):
            self.b.remember((member.results[0], at), result)
            self.fused.append((op, member, result))
        return results[0]

    def _fold(self, op: stablehlo.FoldOp, description: Reduction) -> Val:
        inits = [self.element(init, ()) for init in op.inits]

        def leaf(positions: Indices, accs: Sequence[Val]) -> Sequence[Val]:
            elements = [self.element(*read) for read in description.reads(positions)]
            return lower_body(self.b, op.body.block, [*accs, *elements])

        return self.fold(description.axes, inits, leaf)[op.number]

    def _check_init(self, op: stablehlo.ReduceWindowOp) -> None:
        """Skipping the padding is right only if the initial value is the identity."""
        identity = stablehlo.identity(op.kind, element_type_of(op.init))
        if not op.starts_anywhere and _splat_of(op.init) != identity:
            raise InputError(
                f"{op.name} with padding or dilation must start from the identity of {op.kind}, "
                f"the constant {identity.item()}",
                source_location(op),
            )

    def _select_and_scatter(self, description: SelectAndScatter) -> Val:
        op, b = description.op, self.b
        stays = op.select_direction
        shape = op.window

        def choice(source: Indices) -> Val:
            """Row-major position in the window of the element that the window selects."""
            key = ("choice", op, tuple(source))
            if (found := b.recall(key)) is not None:
                return found
            with b.at(b.sink(b.place(shape_of(op.source), source))):
                return b.remember(key, scan_window(source))

        def scan_window(source: Indices) -> Val:
            axes = description.window_axes(source)
            padded = description.reaches_padding()
            start = b.index_value(constant(-1 if padded else 0))
            if padded:
                best = b.constant(0, element_type_of(op.operand))
            else:
                best = self.element(*description.window_read(source, [ZERO] * len(axes)))

            def scan(window: Indices, accs: Sequence[Val]) -> Sequence[Val]:
                best, place = accs
                new = self.element(*description.window_read(source, window))
                keep = stablehlo.compared(b, stays, best, new)
                if padded:
                    found = b.compare("sge", place, b.index_value(ZERO))
                    keep = b.binary(arith.AndIOp, found, keep)
                here = b.index_value(_position(window, shape))
                return [b.select(keep, best, new), b.select(keep, place, here)]

            return self.fold(axes, [best, start], scan)[1]

        def leaf(positions: Indices, accs: Sequence[Val]) -> Sequence[Val]:
            source = [description.source_index(i, t) for i, t in enumerate(positions)]
            offset = [description.offset(i, s) for i, s in enumerate(source)]
            mine = b.index_value(_position(offset, shape))
            hit = b.compare("eq", choice(source), mine)
            update = self.element(op.source, source)
            added = stablehlo.REDUCERS[op.scatter_kind].scalar(b, accs[0], update)
            return [b.select(hit, added, accs[0])]

        return self.fold(description.axes, [self.element(op.init, ())], leaf)[0]

    def _scatter(self, description: Scatter) -> Val:
        op, b = description.op, self.b
        shape, update_shape = shape_of(op.operand), shape_of(op.updates)
        dims = op.dnums.scatter_dims_to_operand_dims
        windows = description.window_dims()
        at = description.at
        # Dimensions that the start vector does not choose start at 0.
        outer: list[Condition] = []
        for dim in range(len(shape)):
            if dim in dims or dim in op.dnums.input_batching_dims:
                continue
            size = update_shape[windows[dim]] if dim in windows else 1
            outer += within(at[dim], size)

        def leaf(positions: Indices, accs: Sequence[Val]) -> Sequence[Val]:
            scatter = description.scatter_index(positions)
            window = {update: at[dim] for dim, update in windows.items() if dim not in dims}
            hits: list[Val] = []
            for component, dim in enumerate(dims):
                start = expressions.to_index(
                    b, self.element(*description.start_read(scatter, component))
                )
                here = b.index_value(at[dim])
                if dim not in windows or update_shape[windows[dim]] == 1:
                    hits.append(b.compare("eq", start, here))
                    if dim in windows:
                        window[windows[dim]] = ZERO
                    continue
                # A window counts only if all of it is inside.
                size = update_shape[windows[dim]]
                place = expressions.clamp(b, start, shape[dim] - size)
                offset = b.binary(arith.SubiOp, here, place)
                inside = expressions.clamp(b, offset, size - 1)
                hits += [b.compare("eq", place, start), b.compare("eq", inside, offset)]
                window[windows[dim]] = Index.of(
                    Dynamic(b.number(), size - 1, inside.ssa, inside.depth)
                )
            update = self.element(op.updates, description.update_index(scatter, window))
            (result,) = lower_body(b, op.body.block, [accs[0], update])
            if hits:
                hit = hits[0]
                for other in hits[1:]:
                    hit = b.binary(arith.AndIOp, hit, other)
                result = b.select(hit, result, accs[0])
            return [result]

        init = self.element(op.operand, at)
        return b.guarded(outer, lambda: self.fold(description.axes, [init], leaf), lambda: [init])[
            0
        ]


def _divides(index: Index) -> bool:
    """Whether a position that was read from memory is divided."""
    return any(isinstance(atom, Quotient) and atom.of.is_dynamic for atom in index.atoms())


def _position(window: Indices, shape: Sequence[int]) -> Index:
    total = ZERO
    for index, size in zip(window, shape, strict=True):
        total = total * size + index
    return total


def _is_splat(array: np.ndarray) -> bool:
    """Whether all elements have the same bits, of which there is one at least."""
    return array.size > 0 and array.tobytes() == array.flat[0].tobytes() * array.size


def _splat_of(value: SSAValue) -> float | None:
    """The constant that a scalar is, if it is one."""
    op = value.owner
    while isinstance(op, stablehlo.BroadcastInDimOp | stablehlo.ReshapeOp):
        op = op.operands[0].owner
    if not isinstance(op, stablehlo.ConstantOp):
        return None
    return op.array().flat[0].item()


def is_costly(value: SSAValue) -> bool:
    """Whether an element costs more than a load: it is not just moved, constant or counted."""
    op = value.owner
    while isinstance(op, Operation):
        if isinstance(op, stablehlo.ConstantOp | stablehlo.IotaOp | stablehlo.PositionOp):
            return False
        if not isinstance(op, stablehlo.MovementOp) or isinstance(
            op, stablehlo.PadOp | stablehlo.ConcatenateOp
        ):
            return True
        op = op.operands[0].owner
    return not isinstance(op, Block)


def count(loops: Sequence[Var], conditions: Sequence[Condition]) -> int:
    """Number of iterations of the loops that satisfy the conditions, without iterating: loops that
    share no condition are counted apart."""
    total = 1
    pending = list(conditions)
    left = list(loops)
    while left:
        group = [left.pop(0)]
        chosen: list[Condition] = []
        grown = True
        while grown:
            grown = False
            for condition in list(pending):
                used = set(condition.index.vars())
                if used & set(group):
                    pending.remove(condition)
                    chosen.append(condition)
                    joined = [var for var in left if var in used]
                    left = [var for var in left if var not in used]
                    group += joined
                    grown = True
        total *= _count_group(group, chosen)
    return total


def _count_group(group: Sequence[Var], conditions: Sequence[Condition]) -> int:
    size = prod(var.extent for var in group)
    if not conditions or size > 1 << 20:
        return size
    grids = np.meshgrid(*(np.arange(var.extent) for var in group), indexing="ij", sparse=True)
    positions: dict[Var, np.ndarray] = dict(zip(group, grids, strict=True))
    keep = np.ones([var.extent for var in group], dtype=bool)
    for condition in conditions:
        if condition.index.is_dynamic:
            continue
        number = _evaluate(condition.index, positions)
        keep &= (number == 0) if condition.equal else (number >= 0)
    return int(keep.sum())


def _evaluate(index: Index, positions: dict[Var, np.ndarray]) -> np.ndarray:
    total = np.asarray(index.const)
    for atom, c in index.terms:
        if isinstance(atom, Var):
            number = positions.get(atom, np.asarray(0))
        else:
            assert isinstance(atom, Quotient)
            inner = _evaluate(atom.of, positions)
            number = inner % atom.divisor if atom.remainder else inner // atom.divisor
        total = total + number * c
    return total


__all__ = ["Evaluator", "Plan", "elements", "is_costly"]
