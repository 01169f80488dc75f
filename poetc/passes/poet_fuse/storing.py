"""Question 1 of the pass: which values are stored."""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from poetc.ir import stablehlo as hlo
from poetc.ir.graph import tensor_bytes
from poetc.ir.stablehlo.base import Fuses
from poetc.passes.poet_fuse.facts import (
    ALONE,
    CHEAP_FLOPS,
    MAX_CLONE_FLOPS,
    MOVES,
    SUMS,
    flops_of,
    fuses,
    is_elementwise,
    passes_once,
    reads_once,
)
from poetc.passes.poet_fuse.flat import Flat

MAX_READS = 2.0
"""An element-wise op is inlined only where each of its elements is read at most this often."""


@dataclass(frozen=True)
class Use:
    """A consumer of a value that is no view, or the view at the end of a chain that is stored."""

    op: Operation
    operand: int
    ratio: float
    """Elements read through the views on the way, per element of the value."""
    once: bool
    """Each element is read at most once through those views."""


class Storing:
    """The values of a graph that are stored. All others are evaluated where they are read."""

    def __init__(self, flat: Flat, forced: Set[SSAValue] = frozenset()) -> None:
        """The values in `forced` are stored in any case."""
        self.flat = flat
        self.results = set(flat.results)
        self.stored = {v for v in self.results if isinstance(v.owner, Operation)}
        self.stored |= forced | flat.copies
        for op in flat.live:
            if fuses(op) is Fuses.LOOP:
                self.stored |= {*op.results, *(v for v in flat.operands(op) if self._varies(v))}
        self.decoded = self._decoded()
        """Values computed from parameters or frozen arguments that are smaller, such as weights of
        8 bits times their scale: evaluated where they are read, however often that is."""
        self._decide()

    def _varies(self, value: SSAValue) -> bool:
        """Whether an operand of a loop is computed, not moved from constants."""
        op = value.owner
        if isinstance(op, hlo.MovementOp):
            return any(map(self._varies, self.flat.operands(op)))
        return isinstance(op, Operation) and not isinstance(op, (hlo.ConstantOp, hlo.IotaOp))

    def _decoded(self) -> set[SSAValue]:
        flat = self.flat
        found: dict[SSAValue, int] = {}  # their cost per element
        kept = {a for a in flat.graph.arguments if flat.graph.role(a.index) != "input"}
        for op in flat.ops if kept else ():
            if fuses(op) is Fuses.LEAF:
                found[op.results[0]] = 0
            elif is_elementwise(op) or fuses(op) is Fuses.VIEW:
                operands = flat.operands(op)
                cost = flops_of(op) + max((found.get(v, 0) for v in operands), default=0)
                if cost <= CHEAP_FLOPS and all(v in found or v in kept for v in operands):
                    found[op.results[0]] = cost

        def read(value: SSAValue) -> set[SSAValue]:
            return {v for v in self.closure(value)[1] if v in kept}

        return {
            value
            for value, cost in found.items()
            if cost
            and 0 < sum(tensor_bytes(v.type) for v in read(value)) < tensor_bytes(value.type)
        }

    def _uses(self, value: SSAValue) -> list[Use]:
        """Consumers of a value, looking through views that are not stored."""
        found: list[Use] = []
        stack = [(value, 1.0, True)]
        while stack:
            current, ratio, once = stack.pop()
            for op, index in self.flat.users.get(current, ()):
                if op not in self.flat.live:
                    continue
                if fuses(op) is Fuses.VIEW and op.results[0] not in self.stored:
                    grow = hlo.element_count(op.results[0]) / max(1, hlo.element_count(current))
                    stack.append((op.results[0], ratio * grow, once and reads_once(op)))
                else:
                    found.append(Use(op, index, ratio, once and passes_once(op, index)))
        return found

    def _decide(self) -> None:
        flat = self.flat
        uses: dict[SSAValue, list[Use]] = {
            value: self._uses(value)
            for op in flat.ops
            if op in self.flat.live
            for value in op.results
        }
        # Backward: values that would be evaluated too often if they were not stored.
        reads: dict[SSAValue, float] = {}
        for op in reversed(flat.ops):
            value = op.results[0]
            if op not in self.flat.live or fuses(op) in {*MOVES, Fuses.LOOP}:
                continue
            total = 0.0
            for use in uses[value]:
                if isinstance(use.op, hlo.GatherOp) and use.operand == 0:
                    total = math.inf
                elif fuses(use.op) in SUMS and isinstance(use.op, hlo.StablehloOp):
                    total += use.op.reads_each(use.operand) * use.ratio
                else:
                    target = use.op.results[0]
                    stop = target in self.stored or fuses(use.op) is Fuses.VIEW
                    total = max(total, use.ratio * (1.0 if stop else reads[target]))
            reads[value] = total
            if total > MAX_READS and value not in self.decoded:
                self.stored.add(value)
        # Forward: reductions and anchors find their epilogue, the rest is cloned or stored.
        last = self._last_uses(uses)
        cost: dict[SSAValue, int] = {}
        leaves: dict[SSAValue, set[SSAValue]] = {}
        anchor: dict[SSAValue, Operation | None] = {}

        def place(op: Operation) -> int:
            return flat.position[op.results[0]]

        for op in flat.ops:
            if op not in self.flat.live or fuses(op) is Fuses.LOOP:
                continue
            value = op.results[0]
            ins = [v for v in flat.operands(op) if fuses(v.owner) is not Fuses.LEAF]
            inner = [v for v in ins if isinstance(v.owner, Operation) and v not in self.stored]
            cost[value] = flops_of(op) + sum(cost[v] for v in inner)
            leaves[value] = {v for v in ins if v not in inner}.union(*(leaves[v] for v in inner))
            held = [v for v in inner if anchor.get(v) is not None]
            inside = [h for v in held if (h := anchor[v]) is not None]
            anchor[value] = max(inside, key=place, default=None)
            if fuses(op) is Fuses.LEAF:
                continue
            if fuses(op) is Fuses.VIEW and value not in self.stored:
                continue
            if fuses(op) in SUMS:
                # What such an op reads was stored, or is element-wise without an anchor inside,
                # or (reduce of a reduce) is read once.
                if self._epilogue(op, uses[value]) is None:
                    self.stored.add(value)
                else:
                    anchor[value] = op
                continue
            parameter = flat.updates.get(value)
            holders = sorted(set(inside), key=place)
            for holder in holders:
                reads_own = parameter is not None and parameter in leaves[holder.results[0]]
                if holder is holders[-1] and not reads_own:
                    continue
                # One anchor per kernel, and none that reads the parameter updated here.
                through = [v for v in held if anchor[v] is holder]
                self.stored.add(through[0] if len(through) == 1 else holder.results[0])
                cost[value], leaves[value] = self._inlined(value)
                if holder is anchor[value]:
                    anchor[value] = None
            if value in self.stored:
                continue
            if self._must_store(value, uses[value], cost, leaves, anchor, last):
                self.stored.add(value)

    def _inlined(self, value: SSAValue) -> tuple[int, set[SSAValue]]:
        """Cost per element of what a kernel for `value` evaluates, and the values it reads."""
        ops, boundary = self.closure(value)
        read = {v for v in boundary if fuses(v.owner) is not Fuses.LEAF}
        return sum(flops_of(op) for op in ops), read

    def _last_uses(self, uses: dict[SSAValue, list[Use]]) -> dict[SSAValue, float]:
        end = len(self.flat.ops)
        last: dict[SSAValue, float] = {}
        for value, found in uses.items():
            spots = [self.flat.position[u.op.results[0]] for u in found]
            last[value] = end if value in self.results else max(spots, default=-1)
        updated = set(self.flat.updates.values())
        for argument in self.flat.graph.body.block.args:
            spots = [self.flat.position[u.op.results[0]] for u in self._uses(argument)]
            last[argument] = end if argument in updated else max(spots, default=-1)
        return last

    def _epilogue(self, op: Operation, uses: list[Use]) -> Operation | None:
        """The consumer that may evaluate this anchor or reduction itself, if there is one."""
        value = op.results[0]
        if value not in self.stored and self._joins(value):
            return uses[0].op
        if value in self.stored or len(uses) != 1 or not uses[0].once:
            return None
        consumer = uses[0].op
        if fuses(consumer) is Fuses.REDUCTION:
            return consumer if fuses(op) is Fuses.REDUCTION else None
        if fuses(consumer) in ALONE:
            return None
        # The consumer runs once per element only if it is stored or has one such consumer itself.
        return consumer

    def _must_store(
        self,
        value: SSAValue,
        uses: list[Use],
        cost: dict[SSAValue, int],
        leaves: dict[SSAValue, set[SSAValue]],
        anchor: dict[SSAValue, Operation | None],
        last: dict[SSAValue, float],
    ) -> bool:
        if value in self.decoded or self._joins(value):
            return False
        if anchor[value] is not None:
            # An anchor inside may run only once per element.
            if len(uses) != 1 or not uses[0].once:
                return True
            inside_reduce = isinstance(anchor[value], hlo.ReduceOp)
            if fuses(uses[0].op) is Fuses.REDUCTION:
                return not inside_reduce
            return fuses(uses[0].op) in ALONE
        if len({u.op for u in uses}) <= 1:
            return False
        if cost[value] > MAX_CLONE_FLOPS:
            return True
        kept_longer = sum(
            tensor_bytes(leaf.type)
            for leaf in leaves[value]
            if 4 * hlo.element_count(leaf) > hlo.element_count(value)
            and last.get(leaf, -1) < last[value]
        )
        if kept_longer == tensor_bytes(value.type):
            return cost[value] > CHEAP_FLOPS
        return kept_longer > tensor_bytes(value.type)

    def _joins(self, value: SSAValue) -> bool:
        """Whether all uses meet again in one element-wise value before anything else reads them.

        Then `value` is evaluated once per element in the kernel of that value, however many ops in
        between use it (`g * y + g`).
        """
        position = self.flat.position
        open_uses: dict[SSAValue, int] = {}

        def add(v: SSAValue) -> list[Operation]:
            users = [op for op, _ in self.flat.users.get(v, ()) if op in self.flat.live]
            open_uses[v] = len(users)
            return users

        pending = set(add(value))
        while pending:
            op = min(pending, key=lambda o: position[o.results[0]])
            pending.remove(op)
            result = op.results[0]
            if not is_elementwise(op) or hlo.shape_of(result) != hlo.shape_of(value):
                return False
            for operand in self.flat.operands(op):
                if operand in open_uses:
                    open_uses[operand] -= 1
                    if not open_uses[operand]:
                        del open_uses[operand]
            if not open_uses:
                return True
            if result in self.stored:
                return False
            pending.update(add(result))
        return False

    def closure(self, root: SSAValue) -> tuple[list[Operation], list[SSAValue]]:
        """Ops that a kernel for `root` evaluates, in program order, and the values it reads."""
        ops: set[Operation] = set()
        boundary: dict[SSAValue, None] = {}
        stack = [root]
        while stack:
            value = stack.pop()
            op = value.owner
            if not isinstance(op, Operation) or (value in self.stored and value is not root):
                boundary[value] = None
            elif op not in ops:
                ops.add(op)
                stack.extend(self.flat.operands(op))
        ordered = sorted(ops, key=lambda op: self.flat.position[op.results[0]])
        return ordered, list(boundary)

    # Question 2: which stored values share a kernel.
