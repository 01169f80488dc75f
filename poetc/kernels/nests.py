"""Loop nests over axes, and the values that are in memory while a body is lowered.

Loops are split and values kept in a workspace as the plan says. What a better plan would say is
noted: `split_requests`, `unfix_requests`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import SSAValue

from poetc.ir.index import ZERO, Condition, Index, Quotient, Var, constant
from poetc.ir.stablehlo import shape_of
from poetc.ir.stablehlo.index_maps import Axis, Indices
from poetc.ir.stablehlo.sums import Blocks
from poetc.kernels.builder import Builder, Val
from poetc.kernels.plan import AxisKey, Plan
from poetc.kernels.solving import solve
from poetc.kernels.values import is_costly


@dataclass(frozen=True)
class Written:
    """A buffer that holds a value, or the part of it that open loops select."""

    buffer: SSAValue
    at: tuple[Index, ...]


class Nests:
    """The loop nests of one attempt under a plan; what elements are, a subclass says."""

    def __init__(self, builder: Builder, plan: Plan, workspace: dict[SSAValue, SSAValue]) -> None:
        self.b = builder
        self.plan = plan
        self.workspace = workspace
        self.written: dict[SSAValue, Written] = {}
        self.split_requests: dict[AxisKey, tuple[int, ...]] = {}
        self.unfix_requests: set[SSAValue] = set()

    def element(self, value: SSAValue, at: Indices) -> Val:
        """The element of `value` at `at`, wherever it comes from."""
        raise NotImplementedError

    def compute(self, value: SSAValue, at: tuple[Index, ...]) -> Val:
        """The element, from the operation that defines it."""
        raise NotImplementedError

    # Values in memory

    def load(self, buffer: SSAValue, at: Indices, depth: int = 0) -> Val:
        """The element of a buffer, loaded no further out than `depth`."""
        self.request_splits(at)
        return self.b.load(buffer, at, depth)

    def reload(self, value: SSAValue, at: tuple[Index, ...]) -> Val | None:
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

    def kept(self, value: SSAValue, at: tuple[Index, ...]) -> Val:
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
        needed: Callable[[Sequence[Index]], Sequence[Condition]] = lambda _: (),
        blocks: Blocks | None = None,
        sums: Sequence[bool] = (),
    ) -> list[Val]:
        """Nested sequential loops over the axes, each guard as far out as its position is known.

        Positions contribute where the guards of their axes and the conditions `needed` hold. Loops
        run over what is left as candidates (solving.py). Accumulators that are `sums` are added in
        `blocks`.
        """
        nest, border = _in_blocks(axes, blocks)
        steps = [Var(self.b.number(), axis.extent, axis.key) for axis, _ in nest]
        positions = [ZERO] * len(axes)
        for step, (axis, (number, stride)) in zip(steps, nest, strict=True):
            if axis.extent != 1:
                positions[number] += Index.of(step) * stride
        conditions: Sequence[Condition] = [
            *(c for axis, at in zip(axes, positions, strict=True) for c in axis.conditions(at)),
            *(
                Condition(constant(axis.extent - 1) - at)
                for axis, at in zip(axes, positions, strict=True)
                if at.high >= axis.extent > 0
            ),
            *needed(positions),
        ]
        for i in reversed(range(len(nest))):
            step = steps[i]
            if step.extent != 1:
                found = solve(step, conditions, frozenset(steps[i + 1 :]))
                steps[i], conditions = found.step, found.conditions
                positions = [at.substitute({step: found.position}) for at in positions]
        levels = [i for i, step in enumerate(steps) if step.extent != 1]
        guards: dict[int | None, list[Condition]] = {}
        for condition in conditions:
            used = set(condition.index.vars())
            level = max((i for i in levels if steps[i] in used), default=None)
            guards.setdefault(level, []).append(condition)
        known: dict[Var, Index] = {}

        def guarded(level: int | None, depth: int, accs: Sequence[Val]) -> Sequence[Val]:
            here = [condition.substitute(known) for condition in guards.get(level, ())]
            self.request_splits(condition.index for condition in here)
            return self.b.guarded(here, lambda: run(depth, accs), lambda: accs)

        def run(depth: int, accs: Sequence[Val]) -> Sequence[Val]:
            if depth != first_inside:
                return loops(depth, accs)
            if not depth and (not levels or all(map(_is_zero, accs))):
                # One block, or one term, is all that is left.
                return loops(depth, accs)
            starts = [
                self.b.constant(-0.0, acc.type) if is_sum else acc
                for acc, is_sum in zip(accs, sums, strict=True)
            ]
            parts = loops(depth, starts)
            return [
                self.b.binary(arith.AddfOp, acc, part) if is_sum else part
                for acc, part, is_sum in zip(accs, parts, sums, strict=True)
            ]

        def loops(depth: int, accs: Sequence[Val]) -> Sequence[Val]:
            if depth == len(levels):
                return leaf(tuple(position.substitute(known) for position in positions), accs)
            level = levels[depth]
            step = steps[level]

            def inside(position: Index, accs: Sequence[Val]) -> Sequence[Val]:
                known[step] = position
                return guarded(level, depth + 1, accs)

            return self.loops(Axis(step.axis, step.extent, nest[level][0].name), accs, inside)

        first_inside = None if border is None else sum(level < border for level in levels)
        return list(guarded(None, 0, accs))

    def request_splits(self, indices: Iterable[Index]) -> None:
        """Ask for a loop to be split where its variable is divided by a factor of its extent."""
        for index in indices:
            for atom in index.atoms():
                if not isinstance(atom, Quotient):
                    continue
                # Alone in it, up to a factor: an offset is divided, too.
                inner = atom.of.terms[0][0] if len(atom.of.terms) == 1 else None
                if (
                    isinstance(inner, Var)
                    and inner.axis is not None
                    and inner.extent % atom.divisor == 0
                    and inner.extent > atom.divisor
                ):
                    factors = list(self.plan.splits.get(inner.axis, (inner.extent,)))
                    factors[inner.part : inner.part + 1] = [
                        inner.extent // atom.divisor,
                        atom.divisor,
                    ]
                    self.split_requests.setdefault(inner.axis, tuple(factors))


def _is_zero(number: Val) -> bool:
    op = number.ssa.owner
    value = op.value if isinstance(op, arith.ConstantOp) else None
    return isinstance(value, FloatAttr) and value.value.data == 0


def _in_blocks(
    axes: Sequence[Axis], blocks: Blocks | None
) -> tuple[list[tuple[Axis, tuple[int, int]]], int | None]:
    """The loops over the axes, that of blocks split in two: each with the number of its axis and
    the distance of its steps there. And which is the first inside a block."""
    nest = [(axis, (i, 1)) for i, axis in enumerate(axes)]
    if blocks is None:
        return nest, None
    axis, positions = axes[blocks.loop], blocks.positions
    if positions == 1:
        return nest, blocks.loop + 1
    outer = Axis((axis.key, "blocks"), -(-axis.extent // positions), f"{axis.name}b")
    inner = Axis((axis.key, "block"), min(positions, axis.extent), axis.name)
    split = [(outer, (blocks.loop, positions)), (inner, (blocks.loop, 1))]
    return [*nest[: blocks.loop], *split, *nest[blocks.loop + 1 :]], blocks.loop + 1
