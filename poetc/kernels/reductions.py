"""Evaluates reductions as sequential loops, in the order that docs/kernels.md fixes.

Each evaluation is noted, so that the planner (lower.py) sees when a reduction is evaluated more
often than it has elements.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence

import numpy as np
from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from poetc.errors import InputError
from poetc.ir import stablehlo
from poetc.ir.dense import dtype_of
from poetc.ir.index import ZERO, Condition, Dynamic, Index, constant, within
from poetc.ir.locations import source_location
from poetc.ir.stablehlo import element_type_of, shape_of
from poetc.ir.stablehlo.bodies import lower_body
from poetc.ir.stablehlo.contraction import Contraction
from poetc.ir.stablehlo.conversion import converted
from poetc.ir.stablehlo.index_maps import Indices, Read, Reduction
from poetc.ir.stablehlo.indexing import Scatter
from poetc.ir.stablehlo.windows import SelectAndScatter
from poetc.ir.types import computed_type, is_float
from poetc.kernels import expressions
from poetc.kernels.builder import Builder, Val
from poetc.kernels.counting import Evaluation
from poetc.kernels.nests import Nests
from poetc.kernels.plan import Plan
from poetc.kernels.rows import ByRows
from poetc.kernels.values import counted


class Reductions(Nests):
    """The evaluation of reductions, each with those that share its loops."""

    def __init__(
        self,
        builder: Builder,
        plan: Plan,
        workspace: dict[SSAValue, SSAValue],
        by_rows: dict[stablehlo.ScatterOp, list[SSAValue]],
        partners: Callable[[Operation, Sequence[Operation]], Iterable[Operation]],
    ) -> None:
        super().__init__(builder, plan, workspace)
        self.partners = partners
        self.by_rows = by_rows
        self.row_requests: dict[stablehlo.ScatterOp, None] = {}
        self._sorted: set[stablehlo.ScatterOp] = set()
        self.evaluations: dict[SSAValue, list[Evaluation]] = {}
        # Reductions with one that shares their loops, and the number that this gives.
        self.fused: list[tuple[Operation, Operation, Val]] = []
        self._open: list[Operation] = []

    def reduced(self, op: stablehlo.ReductionOp, at: tuple[Index, ...]) -> Val:
        """The element of a reduction, from the outermost loop where it is the same."""
        value = op.results[0]
        depth = self.b.sink(self.b.place(shape_of(value), at))
        with self.b.at(depth):
            self._count(value, at)
            match op:
                case stablehlo.ReduceOp():
                    return self._reduce(op, at)
                case stablehlo.FoldOp():
                    return self._fold(op, op.reduction(at))
                case stablehlo.SelectAndScatterOp():
                    return self._select_and_scatter(op.reduction(at))
                case stablehlo.ScatterOp():
                    return self._scatter(op.reduction(at))
                case stablehlo.ReduceWindowOp():
                    self._check_init(op)
                    return self._reduce_window(op, op.reduction(at))
                case stablehlo.ContractionOp():
                    return self._contract(op, op.reduction(at))
            raise AssertionError(f"unreachable: {op.name}")

    def _contract(self, op: stablehlo.ContractionOp, description: Contraction) -> Val:
        """A sum of products, in the type that sums are made in."""
        type = element_type_of(op.result)
        summed = computed_type(type)

        def leaf(positions: Indices, accs: Sequence[Val]) -> Sequence[Val]:
            factors = [
                converted(self.b, self.element(operand, i), summed)
                for operand, i in description.reads(positions)
            ]
            term = stablehlo.MultiplyOp.scalar(self.b, *factors)
            return [stablehlo.AddOp.scalar(self.b, accs[0], term)]

        init = self.b.constant(0, summed)
        total = self.fold(description.axes, [init], leaf, blocks=op.blocks, sums=[True])
        return converted(self.b, total[0], type)

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
        self._open += group
        sums = self._combined(group, [member.reduction(at) for member in group], inits)
        results = [converted(self.b, *pair) for pair in zip(sums, types, strict=True)]
        del self._open[-len(group) :]
        for member, result in zip(group[1:], results[1:], strict=True):
            self.b.remember((member.results[0], at), result)
            self.fused.append((op, member, result))
        return results[0]

    def _reduce_window(self, op: stablehlo.ReduceWindowOp, description: Reduction) -> Val:
        type = element_type_of(op.results[0])
        init = converted(self.b, self.element(op.init, ()), computed_type(type))
        return converted(self.b, self._combined([op], [description], [init])[0], type)

    def _combined(
        self,
        group: Sequence[stablehlo.ReduceOp | stablehlo.ReduceWindowOp],
        descriptions: Sequence[Reduction],
        inits: Sequence[Val],
    ) -> list[Val]:
        """One pass over memory for reductions of one operand each, over the same elements. It goes
        past padding that all of them leave as they are."""
        stored = {*self.written, *self.plan.kept}

        def reads(positions: Indices) -> tuple[list[Condition], list[Read]]:
            found = [
                _without_padding(op, description.reads(positions)[0], stored)
                for op, description in zip(group, descriptions, strict=True)
            ]
            if any(conditions != found[0][0] for conditions, _ in found):
                return [], [description.reads(positions)[0] for description in descriptions]
            return found[0][0], [read for _, read in found]

        def leaf(positions: Indices, accs: Sequence[Val]) -> Sequence[Val]:
            result = []
            of_all = zip(group, reads(positions)[1], accs, inits, strict=True)
            for op, read, acc, init in of_all:
                term = converted(self.b, self.element(*read), acc.type)
                if acc.ssa is not init.ssa or not _starts_from_nothing(op):
                    term = stablehlo.REDUCERS[op.kind].scalar(self.b, acc, term)
                result.append(term)
            return result

        sums = [op.blocks is not None for op in group]
        blocks = next((op.blocks for op in group if op.blocks is not None), None)
        axes = descriptions[0].axes
        return self.fold(axes, inits, leaf, lambda at: reads(at)[0], blocks, sums)

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
        by_rows = ByRows(op)
        if not any(index.is_dynamic for index in description.at) and by_rows.pays():
            if op in self.by_rows:
                spaces = self.by_rows[op]
                if op not in self._sorted:
                    self._sorted.add(op)
                    with b.at(0):
                        by_rows.sort(b, self.element, spaces)
                return by_rows.combined(b, self.element, spaces, description.at)
            self.row_requests[op] = None
        shape, update_shape = shape_of(op.operand), shape_of(op.updates)
        dims = op.dnums.scatter_dims_to_operand_dims
        windows = op.window_dims
        at = description.at
        # Dimensions that the start vector does not choose start at 0.
        outer: list[Condition] = []
        for dim in range(len(shape)):
            if dim in dims or dim in op.dnums.input_batching_dims:
                continue
            size = update_shape[windows[dim]] if dim in windows else 1
            outer += within(at[dim], size)

        def starts(positions: Indices) -> dict[int, Index]:
            """Where windows start in the dimensions for which that is not read from memory."""
            scatter = description.scatter_index(positions)
            found: dict[int, Index] = {}
            for component, dim in enumerate(dims):
                start = counted(*description.start_read(scatter, component))
                if start is not None and not (start - at[dim]).is_dynamic:
                    found[dim] = start
            return found

        def needed(positions: Indices) -> list[Condition]:
            conditions: list[Condition] = []
            for dim, start in starts(positions).items():
                size = update_shape[windows[dim]] if dim in windows else 1
                if size == 1:
                    conditions.append(Condition(at[dim] - start, equal=True))
                else:
                    conditions += within(start, shape[dim] - size + 1)
                    conditions += within(at[dim] - start, size)
            return conditions

        def leaf(positions: Indices, accs: Sequence[Val]) -> Sequence[Val]:
            scatter = description.scatter_index(positions)
            known = starts(positions)
            window = {update: at[dim] for dim, update in windows.items() if dim not in dims}
            window |= {windows[d]: at[d] - start for d, start in known.items() if d in windows}
            hits: list[Val] = []
            for component, dim in enumerate(dims):
                if dim in known:
                    continue
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
        return b.guarded(
            outer, lambda: self.fold(description.axes, [init], leaf, needed), lambda: [init]
        )[0]


def _position(window: Indices, shape: Sequence[int]) -> Index:
    total = ZERO
    for index, size in zip(window, shape, strict=True):
        total = total * size + index
    return total


def _without_padding(
    op: stablehlo.ReduceOp | stablehlo.ReduceWindowOp, read: Read, stored: Container[SSAValue]
) -> tuple[list[Condition], Read]:
    """The element that is read behind paddings that change nothing, and the conditions under which
    there is one."""
    (value, at), conditions = read, []
    while isinstance(owner := value.owner, Operation):
        if not isinstance(owner, stablehlo.MovementOp) or value in stored:
            break
        moves = owner.moves(at)
        if isinstance(owner, stablehlo.PadOp):
            if not _changes_nothing(owner.padding_value, op):
                break
            conditions += moves[0].conditions
        elif len(moves) > 1:
            break
        value, at = moves[0].source, moves[0].indices
    if not conditions or any(condition.index.is_dynamic for condition in conditions):
        return [], read
    return conditions, (value, at)


def _starts_from_nothing(op: stablehlo.ReduceOp | stablehlo.ReduceWindowOp) -> bool:
    """Whether integers are reduced from the identity: compilers warn of `0 > x` without a sign."""
    type = element_type_of(op.init)
    return not is_float(dtype_of(type)) and _splat_of(op.init) == stablehlo.identity(op.kind, type)


def _changes_nothing(padding: SSAValue, op: stablehlo.ReduceOp | stablehlo.ReduceWindowOp) -> bool:
    """Whether combining with this constant leaves all that the reduction can come to as it is."""
    number, start = _splat_of(padding), _splat_of(op.init)
    type = element_type_of(padding)
    if number is None or number != stablehlo.identity(op.kind, type):
        return False
    if op.kind != "add" or not is_float(dtype_of(type)):
        return True
    # +0.0 changes -0.0, but a sum is never that unless it starts so.
    negative_start = start is None or (start == 0 and np.signbit(start))
    return bool(np.signbit(number)) or not negative_start


def _splat_of(value: SSAValue) -> float | None:
    """The constant that a scalar is, if it is one."""
    op = value.owner
    while isinstance(op, stablehlo.BroadcastInDimOp | stablehlo.ReshapeOp):
        op = op.operands[0].owner
    if not isinstance(op, stablehlo.ConstantOp):
        return None
    return op.array().flat[0].item()
