"""Lowers the body of a compute to a function of loop nests on memrefs.

The function takes the operands, the results and the workspaces of the body as memrefs. Every result
element is computed by one evaluation of its expression and stored once. See docs/kernels.md.

Lowering evaluates the results on demand (evaluate.py) inside a tree of loops (loops.py). If that
shows that a reduction would be evaluated more often than it has elements, or that an index map
needs divisions that splitting a loop would save, lowering starts again with a better `Plan`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from xdsl.dialects import arith, func, memref
from xdsl.dialects.builtin import (
    IndexType,
    MemRefType,
    UnitAttr,
)
from xdsl.ir import Block, Operation, SSAValue

from poetc.errors import PoetcError
from poetc.ir import stablehlo
from poetc.ir.buffers import buffer_type, type_in_kernel
from poetc.ir.dataflow import computed_from
from poetc.ir.index import Index, Var
from poetc.ir.stablehlo import element_count, element_type_of, shape_of, tensor_type
from poetc.kernels.analysis import ITERATION
from poetc.kernels.builder import Builder, Val
from poetc.kernels.dependences import drop_dead
from poetc.kernels.evaluate import Evaluator, NeedsBuffer
from poetc.kernels.functions import kernel_function
from poetc.kernels.loops import (
    Loop,
    LoopTree,
    Result,
    build_loops,
    dimensions_in_step,
    is_trivial,
)
from poetc.kernels.nests import Written
from poetc.kernels.plan import Plan
from poetc.kernels.rows import ByRows

_MAX_ATTEMPTS = 64
_LOOP_NAMES = "ijklmn"


@dataclass(frozen=True)
class Kernel:
    """A lowered body: the function, and the tables of constants that it reads."""

    function: func.FuncOp
    globals: tuple[memref.GlobalOp, ...] = ()


def lower_kernel(block: Block, name: str = "kernel", iteration: SSAValue | None = None) -> Kernel:
    """The body as a function named `name`, with attributes `poet.inputs`, `poet.results` and
    `poet.workspace` (numbers of arguments), and its constant tables. InputError where an operation
    is not supported.

    In the body of a loop, `iteration` is the argument that is the number of its step: the function
    then takes that as an index, too, as its last argument, and has the attribute `poet.iteration`.
    """
    return _plan(block, name, iteration)[1]


def plan(block: Block) -> Plan:
    """How the body is lowered; `Plan.kept` has the intermediates that need a workspace."""
    return _plan(block, "kernel")[0]


def _plan(block: Block, name: str, iteration: SSAValue | None = None) -> tuple[Plan, Kernel]:
    current = Plan()
    for _ in range(_MAX_ATTEMPTS):
        attempt = _Attempt(block, current, name, iteration)
        better = attempt.improved()
        if better == current:
            return current, attempt.kernel()
        current = better
    raise PoetcError(f"lowering of kernel {name} does not come to an end")


class _Attempt:
    """The body lowered under one plan."""

    def __init__(self, block: Block, plan: Plan, name: str, iteration: SSAValue | None) -> None:
        self.block = block
        self.plan = plan
        self.name = name
        terminator = block.last_op
        assert terminator is not None
        self.outputs: Sequence[SSAValue] = tuple(terminator.operands)
        self.kept = list(plan.kept)
        by_rows = [(op, ByRows(op).types) for op in plan.by_rows]
        types = [
            *(buffer_type(tensor_type(value)) for value in (*block.args, *self.outputs)),
            *(_workspace_type(value, plan.kept[value]) for value in self.kept),
            *(type for _, own in by_rows for type in own),
            *([IndexType()] if iteration is not None else []),
        ]
        self.entry = Block(arg_types=types)
        args = self.entry.args
        inputs, results = len(block.args), len(self.outputs)
        self.workspaces = len(self.kept) + sum(len(own) for _, own in by_rows)
        spaces = args[inputs + results : inputs + results + self.workspaces]
        for group, hint in (
            (args[:inputs], "in"),
            (args[inputs : inputs + results], "out"),
            (spaces, "ws"),
        ):
            for i, arg in enumerate(group):
                arg.name_hint = f"{hint}{i}"
        self.iterates = iteration is not None
        self.result_buffers = args[inputs : inputs + results]
        self.missing: SSAValue | None = None
        sorted_ = iter(spaces[len(self.kept) :])
        self.tree: LoopTree = build_loops(self.outputs, plan)
        self.evaluator = Evaluator(
            block,
            Builder(self.entry),
            plan,
            dict(zip(block.args, args[:inputs], strict=True)),
            dict(zip(self.kept, spaces, strict=False)),
            {op: [next(sorted_) for _ in own] for op, own in by_rows},
            self._partners,
            name,
            (iteration, args[-1]) if iteration is not None else None,
        )
        self._places = self.tree.reduction_places()
        try:
            self._emit(self.tree.root, {}, 0)
        except NeedsBuffer as needed:
            self.missing = needed.value
        self.entry.add_op(func.ReturnOp())
        drop_dead(self.entry)  # some scalars are known to be needless only once they exist

    def kernel(self) -> Kernel:
        """The finished function."""
        function = kernel_function(
            self.name, self.entry, len(self.block.args), len(self.outputs), self.workspaces
        )
        if self.iterates:
            function.attributes[ITERATION] = UnitAttr()
        return Kernel(function, tuple(self.evaluator.globals))

    def _emit(self, loop: Loop, bound: dict[Var, Index], level: int) -> None:
        stores: list[Result] = []
        for item in loop.items:
            if isinstance(item, Result):
                stores.append(item)
                continue
            self._store(stores, bound)
            stores = []
            self._emit_loop(item, bound, level)
        self._store(stores, bound)

    def _emit_loop(self, loop: Loop, bound: dict[Var, Index], level: int) -> None:
        assert loop.var is not None
        key = loop.var

        def body(var: Var, _: list[Val]) -> Sequence[Val]:
            self._emit(loop, bound | {key: Index.of(var)}, level + 1)
            return []

        name = _LOOP_NAMES[level] if level < len(_LOOP_NAMES) else "i"
        self.evaluator.b.loop(key.extent, name, [], body, axis=key.axis, part=key.part)

    def _store(self, stores: Sequence[Result], bound: dict[Var, Index]) -> None:
        """First all values, then all stores: a result may be in the place of an operand."""
        ev = self.evaluator
        values: list[tuple[Result, tuple[Index, ...], Val]] = []
        for result in stores:
            at = tuple(self._bind(index, bound) for index in result.at)
            values.append((result, at, ev.element(result.value, at)))
        for result, at, value in values:
            buffer = self.result_buffers[result.number]
            ev.b.store(value, buffer, at)
            ev.written.setdefault(result.value, Written(buffer, at))

    def _bind(self, index: Index, bound: dict[Var, Index]) -> Index:
        total = Index(index.const)
        for atom, c in index.terms:
            assert isinstance(atom, Var)
            total = total + bound[self.tree.class_of(atom)] * c
        return total

    def _partners(self, op: Operation, within: Sequence[Operation]) -> Iterable[Operation]:
        """Reductions over the same elements, wanted in the same place, that `op` can be evaluated
        with: none depends on another, nor on those that `op` is evaluated for, `within`."""
        assert isinstance(op, stablehlo.ReduceOp)
        group = [op]
        places = self._places.get(op.results[0], set())
        for value, others in self._places.items():
            other = value.owner
            assert isinstance(other, stablehlo.ReduceOp)
            if (
                other is not op
                and places & others
                and other.dims == op.dims
                and shape_of(other.operand) == shape_of(op.operand)
                and all(_independent(member, other) for member in group)
                and not any(_depends(other, outer) for outer in within)
                and not any(frozenset((member, other)) in self.plan.apart for member in group)
            ):
                group.append(other)
        return group[1:]

    # A better plan

    def improved(self) -> Plan:
        """The plan, changed where this attempt shows that it should be; else the same plan."""
        plan, ev = self.plan, self.evaluator
        if self.missing is not None:
            return replace(plan, kept=plan.kept | {self.missing: frozenset()})
        unused = [pair for *pair, value in ev.fused if not _is_used(value)]
        if unused:
            return replace(plan, apart=plan.apart | {frozenset(pair) for pair in unused})
        if ev.row_requests:
            return replace(plan, by_rows=(*plan.by_rows, *ev.row_requests))
        if ev.unfix_requests:
            return replace(
                plan, kept=plan.kept | {value: frozenset() for value in ev.unfix_requests}
            )
        if ev.split_requests:
            return replace(plan, splits=plan.splits | self._splits())
        return self._keep_reruns()

    def _splits(self) -> dict[object, tuple[int, ...]]:
        splits: dict[object, tuple[int, ...]] = {}
        for axis, factors in self.evaluator.split_requests.items():
            for key in {axis} | dimensions_in_step(self.tree, axis):
                if prod(factors) == prod(self.plan.splits.get(key, factors)):
                    splits[key] = factors
        return splits

    def _keep_reruns(self) -> Plan:
        """Keep the last reduction that is evaluated more often than it has elements: what it
        depends on may then be in order too."""
        plan = self.plan
        for op in reversed(list(self.block.ops)):
            if not isinstance(op, stablehlo.ReductionOp):
                continue
            value = op.result
            places = self.evaluator.evaluations.get(value, ())
            if not places:
                continue
            if is_trivial(op) or sum(place.count() for place in places) <= element_count(value):
                continue
            shared = {frozenset((op, place.with_op)) for place in places if place.with_op}
            if shared:
                return replace(plan, apart=plan.apart | shared)
            fixed = frozenset() if value in plan.kept else self._fixed(value)
            return replace(plan, kept=plan.kept | {value: fixed})
        return plan

    def _fixed(self, value: SSAValue) -> frozenset[int]:
        """The dimensions whose index is a loop that surrounds all evaluations of the value, so that
        a buffer for the others is enough."""
        places = self.evaluator.evaluations[value]
        fixed: set[int] = set()
        for loops in zip(*(place.loops for place in places), strict=False):
            var = loops[0]
            if any(other is not var for other in loops):
                break
            dims = [
                {dim for dim, index in enumerate(place.at) if index.single() is var}
                for place in places
            ]
            common = set.intersection(*dims)
            if not common:
                break
            fixed.add(min(common))
        return frozenset(fixed)


def _is_used(value: Val) -> bool:
    """Whether anything uses a number, be it as it is in memory."""
    owner = value.ssa.owner
    packed = owner.operands[0].uses.get_length() if isinstance(owner, arith.ExtFOp) else 1
    return value.ssa.uses.get_length() > 0 or packed > 1


def _independent(first: Operation, second: Operation) -> bool:
    """Neither operation needs the result of the other."""
    return not (_depends(first, second) or _depends(second, first))


def _depends(op: Operation, on: Operation) -> bool:
    return not computed_from(op.operands).isdisjoint(on.results)


def _workspace_type(value: SSAValue, fixed: frozenset[int]) -> MemRefType:
    shape = [size for dim, size in enumerate(shape_of(value)) if dim not in fixed]
    return MemRefType(type_in_kernel(element_type_of(value)), shape)
