"""Evaluates reductions as sequential loops, in the order that docs/kernels.md fixes.

Each evaluation is noted, so that the planner (lower.py) sees when a reduction is evaluated more
often than it has elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from poetc.errors import InputError
from poetc.ir import stablehlo
from poetc.ir.locations import source_location
from poetc.ir.stablehlo import element_type_of, shape_of
from poetc.ir.stablehlo.bodies import lower_body
from poetc.ir.stablehlo.conversion import converted
from poetc.ir.types import computed_type
from poetc.kernels import expressions
from poetc.kernels.builder import Builder, Val
from poetc.kernels.counting import Evaluation
from poetc.kernels.index import ZERO, Condition, Dynamic, Index, constant, within
from poetc.kernels.indexing import Indices, Reduction, Scatter, SelectAndScatter, reduction
from poetc.kernels.nests import Nests
from poetc.kernels.plan import Plan


class Reductions(Nests):
    """The evaluation of reductions, each with those that share its loops."""

    def __init__(
        self,
        builder: Builder,
        plan: Plan,
        workspace: dict[SSAValue, SSAValue],
        partners: Callable[[Operation, Sequence[Operation]], Iterable[Operation]],
    ) -> None:
        super().__init__(builder, plan, workspace)
        self.partners = partners
        self.evaluations: dict[SSAValue, list[Evaluation]] = {}
        # Reductions with one that shares their loops, and the number that this gives.
        self.fused: list[tuple[Operation, Operation, Val]] = []
        self._open: list[Operation] = []

    def reduced(self, op: Operation, at: tuple[Index, ...]) -> Val:
        """The element of a reduction, from the outermost loop where it is the same."""
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


def _position(window: Indices, shape: Sequence[int]) -> Index:
    total = ZERO
    for index, size in zip(window, shape, strict=True):
        total = total * size + index
    return total


def _splat_of(value: SSAValue) -> float | None:
    """The constant that a scalar is, if it is one."""
    op = value.owner
    while isinstance(op, stablehlo.BroadcastInDimOp | stablehlo.ReshapeOp):
        op = op.operands[0].owner
    if not isinstance(op, stablehlo.ConstantOp):
        return None
    return op.array().flat[0].item()
