"""poet-fuse: merge one-op computes into kernels, so that as few tensors as can be are stored.

The pass sees the graph as one flat DAG of StableHLO ops and answers two questions.

1. *Which values are stored?* Everything else is evaluated where it is read ("inlined"):

   - constants, iota and data movement (broadcast, reshape, transpose, reverse, slice, pad,
     concatenate) are never stored, unless they are results of the graph;
   - element-wise arithmetic is inlined into its consumer, except where that would evaluate it more
     than `MAX_READS` times per element (the operand of a convolution is read hundreds of times),
     and is cloned into several consumers where that is cheap (`MAX_CLONE_FLOPS`) and keeps no
     tensor alive longer than it lives anyway;
   - a contraction, window or scatter op (an *anchor*) or a `reduce` is inlined into the one
     element-wise consumer that reads each of its elements once: bias, activation, the parameter
     update. A kernel has at most one anchor.

2. *Which stored values share a kernel?* Softmax, layer norm and batch norm: reductions over
   the same axes of one space, with the element-wise results between and after, become one kernel
   whose outer loops run over the rows. Element-wise updates of several parameters from the same
   gradient (Adam) become one kernel with several results. Merging never makes a cycle.

Reads of a parameter stay ahead of its update in place; an anchor that reads the parameter itself is
never merged with the update of that parameter. Where a kernel updates a parameter that another of
its values reads, or reads what it has just updated, the kernel is lowered to see whether its loop
nests allow that; if they do not, the two are kept in kernels of their own. Where only a copy of the
new value can tell the readers of the old one from the update, the copy is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from poetc.errors import InputError, PoetcError
from poetc.ir import stablehlo as hlo
from poetc.ir.poet import ComputeOp, GraphOp, ReturnOp, YieldOp
from poetc.ir.types import element_bytes
from poetc.kernels.analysis import may_alias
from poetc.kernels.lower import lower

MAX_READS = 2.0
"""An element-wise op is inlined only where each of its elements is read at most this often."""

MAX_CLONE_FLOPS = 64
"""An element-wise op with several consumers is cloned into them up to this cost per element."""

CHEAP_FLOPS = 8
"""Up to this cost per element, cloning wins where storing would take as much memory."""

VIEWS = (
    hlo.BroadcastInDimOp,
    hlo.ReshapeOp,
    hlo.TransposeOp,
    hlo.ReverseOp,
    hlo.SliceOp,
    hlo.PadOp,
    hlo.ConcatenateOp,
)
LEAVES = (hlo.ConstantOp, hlo.IotaOp)
ANCHORS = (
    hlo.DotBase,
    hlo.ConvolutionBase,
    hlo.ReduceWindowOp,
    hlo.SelectAndScatterOp,
    hlo.ScatterOp,
)
RESUMED = (hlo.DotFromOp, hlo.ConvolutionFromOp)
"""Anchors that work in place of the sums that they go on with. They are stored, and what would be
evaluated with them works in place of them: both at once would need more RAM."""

EXPENSIVE = (
    hlo.ExponentialOp,
    hlo.LogOp,
    hlo.TanhOp,
    hlo.RsqrtOp,
    hlo.SqrtOp,
    hlo.PowerOp,
)
EXPENSIVE_FLOPS = 16
"""Rough cost of one of our own math functions, in floating-point operations."""

UNIT, OPAQUE = -1, -2
"""Tags of a dimension that are not an axis: of size one, and not a plain axis."""


def _shape(value: SSAValue) -> tuple[int, ...]:
    assert isinstance(value.type, TensorType)
    return value.type.get_shape()


def _elements(value: SSAValue) -> int:
    return math.prod(_shape(value))


def _bytes(value: SSAValue) -> int:
    assert isinstance(value.type, TensorType)
    return _elements(value) * element_bytes(value.type.element_type)


def _flops(op: Operation) -> int:
    if isinstance(op, VIEWS + LEAVES):
        return 0
    if isinstance(op, hlo.GatherOp):
        # Not arithmetic, but cloning it would keep the whole table around.
        return MAX_CLONE_FLOPS
    return EXPENSIVE_FLOPS if isinstance(op, EXPENSIVE) else 1


def _reads(op: Operation, index: int) -> float:
    """How often a kernel for `op` reads each element of operand `index`, on average."""
    result, operand = op.results[0], op.operands[index]
    size = max(1, _elements(operand))
    match op:
        case hlo.DotFromOp() | hlo.ConvolutionFromOp() if index == 0:
            return 1.0
        case hlo.DotBase():
            depth = math.prod(_shape(op.lhs)[d] for d in op.lhs_contract)
            return _elements(result) * depth / size
        case hlo.ConvolutionBase():
            kernel = _shape(op.rhs)
            depth = math.prod(kernel[d] for d in op.dims.kernel_spatial)
            return _elements(result) * depth * kernel[op.dims.kernel_input_feature] / size
        case hlo.ReduceWindowOp():
            return _elements(result) * math.prod(op.window) / size
        case hlo.SelectAndScatterOp() | hlo.ScatterOp():
            return 1.0 if isinstance(op, hlo.ScatterOp) and index == 0 else math.inf
        case _:
            return _elements(result) / size


def _operand_tags(op: Operation, index: int, tags: Sequence[int]) -> tuple[int, ...]:
    """Which loop axis indexes each dimension of operand `index`, given the result's axes."""
    operand = op.operands[index]
    shape = _shape(operand)
    match op:
        case hlo.BroadcastInDimOp():
            found = [tags[d] for d in op.dims]
        case hlo.TransposeOp():
            found = [OPAQUE] * len(shape)
            for tag, d in zip(tags, op.permutation, strict=True):
                found[d] = tag
        case hlo.ReshapeOp():
            kept = [t for t, n in zip(tags, _shape(op.results[0]), strict=True) if n != 1]
            wide = [n for n in _shape(op.results[0]) if n != 1]
            if wide != [n for n in shape if n != 1]:
                return (OPAQUE,) * len(shape)
            rest = iter(kept)
            found = [UNIT if n == 1 else next(rest) for n in shape]
        case hlo.ScatterOp() if index == 0:
            found = list(tags)
        case hlo.ReduceOp() if index == 0:
            rest = iter(tags)
            found = [d if d in op.dims else next(rest) for d in range(len(shape))]
        case _ if _is_elementwise(op) and shape == _shape(op.results[0]):
            found = list(tags)
        case _:
            return (OPAQUE,) * len(shape)
    return tuple(UNIT if n == 1 else t for t, n in zip(found, shape, strict=True))


def _is_elementwise(op: Operation) -> bool:
    return not isinstance(op, VIEWS + LEAVES + ANCHORS + (hlo.ReduceOp, hlo.GatherOp))


def _reads_once(view: Operation) -> bool:
    """Whether each element of the view's operand appears at most once in its result."""
    if isinstance(view, hlo.BroadcastInDimOp):
        return _elements(view.results[0]) == _elements(view.operands[0])
    return isinstance(view, (hlo.ReshapeOp, hlo.TransposeOp, hlo.ReverseOp, hlo.SliceOp))


@dataclass(frozen=True)
class _Use:
    """A consumer of a value that is no view, or the view at the end of a chain that is stored."""

    op: Operation
    operand: int
    ratio: float
    """Elements read through the views on the way, per element of the value."""
    once: bool
    """Each element is read at most once through those views."""


class _Flat:
    """The graph as one DAG of StableHLO ops; values are arguments or results of those ops."""

    def __init__(self, graph: GraphOp, keep_copies: bool = False) -> None:
        """With `keep_copies`, the copy that ends an update stays apart from what it copies."""
        self.graph = graph
        self.keep_copies = keep_copies
        self.ops: list[Operation] = []
        self.alias: dict[SSAValue, SSAValue] = {}
        self.updates: dict[SSAValue, SSAValue] = {}
        """New value of a parameter → the parameter whose buffer it takes over."""
        self.copies: set[SSAValue] = set()
        for compute in graph.computes:
            for inner, outer in zip(compute.block.args, compute.operands, strict=True):
                self.alias[inner] = self.resolve(outer)
            self.ops += [op for op in compute.block.ops if op is not compute.yield_op]
            for index, yielded in enumerate(compute.yield_op.operands):
                self._bind(compute, index, yielded)
        self.results = [self.resolve(v) for v in graph.return_op.operands]
        self.position: dict[SSAValue, int] = {op.results[0]: i for i, op in enumerate(self.ops)}

    def resolve(self, value: SSAValue) -> SSAValue:
        return self.alias.get(value, value)

    def _bind(self, compute: ComputeOp, index: int, yielded: SSAValue) -> None:
        """Make result `index` another name of what the body yields.

        A compute that yields an operand is a copy: an op of its own, unless it only moves a value
        that nobody else keeps into the buffer of a parameter, where that can be made directly.
        """
        pairs = dict(compute.inplace_pairs)
        parameter = self.resolve(compute.operands[pairs[index]]) if index in pairs else None
        value = self.resolve(yielded)
        if yielded in compute.block.args:
            source = compute.operands[compute.block.args.index(yielded)]
            direct = (
                not self.keep_copies
                and parameter is not None
                and isinstance(value.owner, Operation)
                and value not in self.updates
                and value not in self.copies
                and source not in self.graph.return_op.operands
            )
            if not direct:
                copy = hlo.ReshapeOp(value, _shape(value))
                self.ops.append(copy)
                value = copy.results[0]
                self.copies.add(value)
        if parameter is not None:
            self.updates[value] = parameter
        self.alias[compute.results[index]] = value

    def operands(self, op: Operation) -> list[SSAValue]:
        return [self.resolve(v) for v in op.operands]


@dataclass
class _Group:
    """Stored values that one kernel computes, with the space its reductions run over."""

    members: list[SSAValue]
    space: tuple[int, ...] | None
    """Shape that the kernel's reductions read; the shape of its results if it has none."""
    reduced: tuple[int, ...] = ()
    mergeable: bool = True
    reads: dict[SSAValue, set[tuple[int, ...]]] = field(default_factory=dict)
    """Values read from outside, with the axes that index them (see `_operand_tags`)."""


class _Fuser:
    def __init__(self, flat: _Flat) -> None:
        self.flat = flat
        self.users: dict[SSAValue, list[tuple[Operation, int]]] = {}
        for op in flat.ops:
            for i, value in enumerate(flat.operands(op)):
                self.users.setdefault(value, []).append((op, i))
        self.results = set(flat.results)
        self.live = self._live()
        self.stored: set[SSAValue] = set()
        self.sealed: set[SSAValue] = set()
        """Values that would be evaluated with a resumed anchor: kernels of their own."""
        self.forced: set[SSAValue] = set()
        self.apart: set[frozenset[SSAValue]] = set()
        """Pairs of stored values that may not share a kernel."""
        self._after: dict[int, list[_Group]] | None = None
        self._refused: set[tuple[SSAValue, ...]] = set()

    # Question 1: which values are stored.

    def _live(self) -> set[Operation]:
        live: set[Operation] = set()
        stack = [v.owner for v in self.flat.results]
        while stack:
            op = stack.pop()
            if isinstance(op, Operation) and op not in live:
                live.add(op)
                stack.extend(v.owner for v in self.flat.operands(op))
        return live

    def _uses(self, value: SSAValue) -> list[_Use]:
        """Consumers of a value, looking through views that are not stored."""
        found: list[_Use] = []
        stack = [(value, 1.0, True)]
        while stack:
            current, ratio, once = stack.pop()
            for op, index in self.users.get(current, ()):
                if op not in self.live:
                    continue
                if isinstance(op, VIEWS) and op.results[0] not in self.stored:
                    grow = _elements(op.results[0]) / max(1, _elements(current))
                    stack.append((op.results[0], ratio * grow, once and _reads_once(op)))
                else:
                    found.append(_Use(op, index, ratio, once and _passes_once(op, index)))
        return found

    def decide_stored(self) -> None:
        flat = self.flat
        self.stored = {v for v in self.results if isinstance(v.owner, Operation)}
        self.stored |= self.forced | flat.copies
        uses: dict[SSAValue, list[_Use]] = {
            op.results[0]: self._uses(op.results[0]) for op in flat.ops if op in self.live
        }
        # Backward: values that would be evaluated too often if they were not stored.
        reads: dict[SSAValue, float] = {}
        for op in reversed(flat.ops):
            value = op.results[0]
            if op not in self.live or isinstance(op, VIEWS + LEAVES):
                continue
            total = 0.0
            for use in uses[value]:
                if isinstance(use.op, hlo.GatherOp) and use.operand == 0:
                    total = math.inf
                elif isinstance(use.op, (*ANCHORS, hlo.ReduceOp)):
                    total += _reads(use.op, use.operand) * use.ratio
                else:
                    target = use.op.results[0]
                    stop = target in self.stored or isinstance(use.op, VIEWS)
                    total = max(total, use.ratio * (1.0 if stop else reads[target]))
            reads[value] = total
            if total > MAX_READS:
                self.stored.add(value)
        # Forward: reductions and anchors find their epilogue, the rest is cloned or stored.
        last = self._last_uses(uses)
        cost: dict[SSAValue, int] = {}
        leaves: dict[SSAValue, set[SSAValue]] = {}
        anchor: dict[SSAValue, Operation | None] = {}

        def place(op: Operation) -> int:
            return flat.position[op.results[0]]

        for op in flat.ops:
            if op not in self.live:
                continue
            value = op.results[0]
            ins = [v for v in flat.operands(op) if not isinstance(v.owner, LEAVES)]
            inner = [v for v in ins if isinstance(v.owner, Operation) and v not in self.stored]
            cost[value] = _flops(op) + sum(cost[v] for v in inner)
            leaves[value] = {v for v in ins if v not in inner}.union(*(leaves[v] for v in inner))
            held = [v for v in inner if anchor.get(v) is not None]
            inside = [h for v in held if (h := anchor[v]) is not None]
            anchor[value] = max(inside, key=place, default=None)
            if isinstance(op, LEAVES):
                continue
            if isinstance(op, VIEWS) and value not in self.stored:
                continue
            if isinstance(op, (*ANCHORS, hlo.ReduceOp)):
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
        resumed = {op.results[0] for op in self.live if isinstance(op, RESUMED)}
        self.sealed = {v for v in self.stored - resumed if isinstance(anchor.get(v), RESUMED)}
        self.stored |= resumed

    def _inlined(self, value: SSAValue) -> tuple[int, set[SSAValue]]:
        """Cost per element of what a kernel for `value` evaluates, and the values it reads."""
        ops, boundary = self._closure(value)
        read = {v for v in boundary if not isinstance(v.owner, LEAVES)}
        return sum(_flops(op) for op in ops), read

    def _last_uses(self, uses: dict[SSAValue, list[_Use]]) -> dict[SSAValue, float]:
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

    def _epilogue(self, op: Operation, uses: list[_Use]) -> Operation | None:
        """The consumer that may evaluate this anchor or reduction itself, if there is one."""
        value = op.results[0]
        if value not in self.stored and self._joins(value):
            return uses[0].op
        if value in self.stored or len(uses) != 1 or not uses[0].once:
            return None
        consumer = uses[0].op
        if isinstance(consumer, hlo.ReduceOp):
            return consumer if isinstance(op, hlo.ReduceOp) else None
        if isinstance(consumer, (*ANCHORS, hlo.GatherOp)):
            return None
        # The consumer runs once per element only if it is stored or has one such consumer itself.
        return consumer

    def _must_store(
        self,
        value: SSAValue,
        uses: list[_Use],
        cost: dict[SSAValue, int],
        leaves: dict[SSAValue, set[SSAValue]],
        anchor: dict[SSAValue, Operation | None],
        last: dict[SSAValue, float],
    ) -> bool:
        if self._joins(value):
            return False
        if anchor[value] is not None:
            # An anchor inside may run only once per element.
            if len(uses) != 1 or not uses[0].once:
                return True
            inside_reduce = isinstance(anchor[value], hlo.ReduceOp)
            if isinstance(uses[0].op, hlo.ReduceOp):
                return not inside_reduce
            return isinstance(uses[0].op, (*ANCHORS, hlo.GatherOp))
        if len({u.op for u in uses}) <= 1:
            return False
        if cost[value] > MAX_CLONE_FLOPS:
            return True
        kept_longer = sum(
            _bytes(leaf)
            for leaf in leaves[value]
            if 4 * _elements(leaf) > _elements(value) and last.get(leaf, -1) < last[value]
        )
        if kept_longer == _bytes(value):
            return cost[value] > CHEAP_FLOPS
        return kept_longer > _bytes(value)

    def _joins(self, value: SSAValue) -> bool:
        """Whether all uses meet again in one element-wise value before anything else reads them.

        Then `value` is evaluated once per element in the kernel of that value, however many ops in
        between use it (`g * y + g`).
        """
        position = self.flat.position
        open_uses: dict[SSAValue, int] = {}

        def add(v: SSAValue) -> list[Operation]:
            users = [op for op, _ in self.users.get(v, ()) if op in self.live]
            open_uses[v] = len(users)
            return users

        pending = set(add(value))
        while pending:
            op = min(pending, key=lambda o: position[o.results[0]])
            pending.remove(op)
            result = op.results[0]
            if not _is_elementwise(op) or _shape(result) != _shape(value):
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

    def _closure(self, root: SSAValue) -> tuple[list[Operation], list[SSAValue]]:
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

    def groups(self) -> list[_Group]:
        order = [op.results[0] for op in self.flat.ops if op.results[0] in self.stored]
        groups = [self._group_of(v) for v in order]
        home: dict[SSAValue, _Group] = {g.members[0]: g for g in groups}
        self._after = None
        self._refused.clear()
        changed = True
        while changed:
            changed = False
            for value in order:
                changed |= self._merge_into(home[value], groups, home)
        return self._sort(groups)

    def _group_of(self, root: SSAValue) -> _Group:
        ops, boundary = self._closure(root)
        reduces = [op for op in ops if isinstance(op, hlo.ReduceOp)]
        anchors = [op for op in ops if isinstance(op, (*ANCHORS, hlo.GatherOp))]
        if anchors or len(reduces) > 1:
            group = _Group([root], None, mergeable=False)
        elif reduces:
            group = _Group([root], _shape(reduces[0].operands[0]), reduces[0].dims)
            if self._root_tags(group, root) is None:
                group = _Group([root], None, mergeable=False)
        else:
            group = _Group([root], _shape(root), mergeable=root not in self.sealed)
        group.reads = self._tagged_reads(group, root)
        for value in boundary:
            group.reads.setdefault(value, {(OPAQUE,)})
        parameter = self.flat.updates.get(root)
        own = self._root_tags(group, root)
        for axes in group.reads.get(parameter, ()) if parameter is not None else ():
            if axes != own:
                raise _UnsafeError
        return group

    def _root_tags(self, group: _Group, root: SSAValue) -> tuple[int, ...] | None:
        """Axes of the group's space that index `root`: all of them, or those of its rows."""
        if group.space is None:
            return tuple(UNIT if n == 1 else d for d, n in enumerate(_shape(root)))
        wide = [d for d, n in enumerate(group.space) if n != 1]
        if _shape(root) == group.space:
            return tuple(d if d in wide else UNIT for d in range(len(group.space)))
        rows = [d for d in wide if d not in group.reduced]
        if [n for n in _shape(root) if n != 1] != [group.space[d] for d in rows]:
            return None
        rest = iter(rows)
        return tuple(UNIT if n == 1 else next(rest) for n in _shape(root))

    def _tagged_reads(self, group: _Group, root: SSAValue) -> dict[SSAValue, set[tuple[int, ...]]]:
        """What the kernel of `root` reads, with the axes that index it."""
        tags = self._root_tags(group, root)
        found: dict[SSAValue, set[tuple[int, ...]]] = {}
        if tags is None:
            return found
        seen: set[tuple[SSAValue, tuple[int, ...]]] = set()
        stack = [(root, tags)]
        while stack:
            item = stack.pop()
            if item in seen:
                continue
            seen.add(item)
            value, axes = item
            op = value.owner
            if not isinstance(op, Operation) or (value in self.stored and value is not root):
                found.setdefault(value, set()).add(axes)
                continue
            if OPAQUE in axes:
                # Below an index that is no axis nothing is known.
                inner = [(OPAQUE,) * len(_shape(v)) for v in op.operands]
            else:
                inner = [_operand_tags(op, i, axes) for i in range(len(op.operands))]
            stack.extend(zip(self.flat.operands(op), inner, strict=True))
        return found

    def _merge_into(
        self, group: _Group, groups: list[_Group], home: dict[SSAValue, _Group]
    ) -> bool:
        """Merge `group` with one that it reads, or that reduces the same tensor. True if done."""
        candidates: list[_Group] = []
        for value in group.reads:
            if value in home:
                candidates.append(home[value])
            if group.reduced:
                for op, _ in self.users.get(value, ()):
                    other = home.get(op.results[0])
                    if other is not None and other.reduced:
                        candidates.append(other)
        for other in candidates:
            if other is group or not (other.mergeable and group.mergeable):
                continue
            pair = (*other.members, *group.members)
            if pair in self._refused:
                continue
            merged = self._try_merge(other, group)
            # A path between two groups through others stays one whatever those merge with.
            if merged is None or self._makes_cycle(other, group, groups):
                self._refused.add(pair)
                continue
            self._after = None
            groups[groups.index(other)] = merged
            groups.remove(group)
            for value in merged.members:
                home[value] = merged
            return True
        return False

    def _try_merge(self, first: _Group, second: _Group) -> _Group | None:
        if any(frozenset((a, b)) in self.apart for a in first.members for b in second.members):
            return None
        base = first if first.reduced else second
        if first.reduced and second.reduced:
            if (first.space, first.reduced) != (second.space, second.reduced):
                return None
        elif not base.reduced:
            both_update = all(
                any(v in self.flat.updates for v in g.members) for g in (first, second)
            )
            if first.space != second.space or not both_update:
                return None
        members = first.members + second.members
        members.sort(key=lambda v: self.flat.position[v])
        merged = _Group(members, base.space, base.reduced)
        expected: dict[SSAValue, tuple[int, ...]] = {}
        for value in members:
            tags = self._root_tags(merged, value)
            if tags is None:
                return None
            expected[value] = tags
        for value in members:
            for source, axes in self._tagged_reads(merged, value).items():
                if source in expected:
                    if any(_axes(a) != _axes(expected[source]) for a in axes):
                        return None
                elif source in merged.reads:
                    merged.reads[source] |= axes
                else:
                    merged.reads[source] = set(axes)
            parameter = self.flat.updates.get(value)
            if parameter is not None:
                expected.setdefault(parameter, expected[value])
        # In place: nothing in the kernel may read the parameter at another element.
        for value in members:
            parameter = self.flat.updates.get(value)
            for axes in merged.reads.get(parameter, ()) if parameter is not None else ():
                if axes != expected[value]:
                    return None
        return merged

    def _successors(self, groups: list[_Group]) -> dict[int, list[_Group]]:
        """Groups that must run after each group: readers, and updates of what it reads."""
        producer = {v: g for g in groups for v in g.members}
        updater = {self.flat.updates[v]: g for v, g in producer.items() if v in self.flat.updates}
        after: dict[int, list[_Group]] = {id(g): [] for g in groups}
        for group in groups:
            for value in group.reads:
                if value in producer and producer[value] is not group:
                    after[id(producer[value])].append(group)
                if value in updater and updater[value] is not group:
                    after[id(group)].append(updater[value])
        return after

    def _makes_cycle(self, first: _Group, second: _Group, groups: list[_Group]) -> bool:
        """Whether a path leads from one of the two to the other through a third."""
        if self._after is None:
            self._after = self._successors(groups)
        after = self._after
        for start, goal in ((first, second), (second, first)):
            seen = {id(start), id(goal)}
            stack = [g for g in after[id(start)] if g is not goal]
            while stack:
                group = stack.pop()
                if id(group) in seen:
                    continue
                seen.add(id(group))
                if any(g is goal for g in after[id(group)]):
                    return True
                stack.extend(after[id(group)])
        return False

    def _sort(self, groups: list[_Group]) -> list[_Group]:
        """Topological order, as close to the program order as the merges allow."""
        after = self._successors(groups)
        waiting = {id(g): 0 for g in groups}
        for successors in after.values():
            for group in successors:
                waiting[id(group)] += 1
        place = {id(g): max(self.flat.position[v] for v in g.members) for g in groups}
        ready = sorted((g for g in groups if not waiting[id(g)]), key=lambda g: place[id(g)])
        order: list[_Group] = []
        while ready:
            group = ready.pop(0)
            order.append(group)
            for successor in after[id(group)]:
                waiting[id(successor)] -= 1
                if not waiting[id(successor)]:
                    ready.append(successor)
            ready.sort(key=lambda g: place[id(g)])
        if len(order) < len(groups):
            raise _UnsafeError
        return order


class _UnsafeError(Exception):
    """Inlining made a reader of a parameter clash with the parameter's update in place."""


def _axes(tags: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(t for t in tags if t != UNIT)


def _passes_once(op: Operation, index: int) -> bool:
    """Whether consumer `op` reads each element of that operand at most once."""
    return (
        (_is_elementwise(op) and _elements(op.operands[index]) == _elements(op.results[0]))
        or isinstance(op, VIEWS)
        or (isinstance(op, hlo.ReduceOp) and index == 0)
    )


@dataclass(frozen=True)
class PoetFusePass(ModulePass):
    """Merge computes into kernels; see the module's documentation."""

    name = "poet-fuse"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for graph in [g for g in op.walk() if isinstance(g, GraphOp)]:
            fuse_graph(graph)


def fuse_graph(graph: GraphOp) -> None:
    """Rewrite an unscheduled graph in place so that each compute is one kernel."""
    for op in graph.block.ops:
        if not isinstance(op, ComputeOp | ReturnOp):
            raise InputError(f"poet-fuse runs before poet-schedule, but found {op.name}")
    fuser = _Fuser(_Flat(graph))
    fuser.decide_stored()
    try:
        computes = _legal_kernels(fuser)
    except _UnsafeError:
        # Parameters whose updates read each other, or that are read other than element by element,
        # or beside their new value: what reads one is stored, in program order, and copies stay
        # as they are.
        flat = _Flat(graph, keep_copies=True)
        fuser = _Fuser(flat)
        updated = set(flat.updates.values())
        fuser.forced = {
            op.results[0]
            for op in flat.ops
            if op in fuser.live and updated.intersection(flat.operands(op))
        }
        fuser.decide_stored()
        computes = _legal_kernels(fuser)
    block = graph.body.block
    value_of: dict[SSAValue, SSAValue] = {a: a for a in block.args}
    for compute, values in computes.items():
        value_of.update(zip(values, compute.results, strict=True))
    terminator = ReturnOp(*(value_of[v] for v in fuser.flat.results))
    old = list(block.ops)
    for op in reversed(old):
        op.detach()
    block.add_ops([*computes, terminator])
    for op in reversed(old):
        op.drop_all_references()


def _legal_kernels(fuser: _Fuser) -> dict[ComputeOp, list[SSAValue]]:
    """Kernels whose updates in place are legal, in order, with the stored values they yield.

    Raises `_UnsafeError` where no way to share kernels is legal.
    """
    while True:
        groups = fuser.groups()
        computes = _computes(fuser, groups)
        clashes: set[frozenset[SSAValue]] = set()
        for group, (compute, results) in zip(groups, computes.items(), strict=True):
            clashes |= _clashes(fuser, group, compute, results)
        if not clashes:
            return computes
        for compute in reversed(computes):
            compute.erase()
        # No group has two values that are apart already, so this comes to an end.
        fuser.apart |= clashes


def _clashes(
    fuser: _Fuser, group: _Group, compute: ComputeOp, results: list[SSAValue]
) -> set[frozenset[SSAValue]]:
    """Pairs of an update and another value that cannot both be in the kernel of `group`."""
    reads = {member: set(fuser._closure(member)[1]) for member in group.members}
    # A parameter that only its own update reads is read right before each store.
    doubtful: list[tuple[int, int]] = []
    for result, operand in compute.inplace_pairs:
        update = results[result]
        shared = {update, fuser.flat.updates[update]}
        if any(shared & found for member, found in reads.items() if member is not update):
            doubtful.append((result, operand))
    if not doubtful:
        return set()
    try:
        kernel = lower(compute)
    except PoetcError:
        # Not supported, whatever it is merged with: poet-lower-kernels says what and where.
        return set()
    clashes: set[frozenset[SSAValue]] = set()
    for result, operand in doubtful:
        if may_alias(kernel, result, operand):
            continue
        update = results[result]
        others = [member for member in group.members if member is not update]
        readers = [member for member in others if fuser.flat.updates[update] in reads[member]]
        clashes |= {frozenset((update, member)) for member in readers or others}
    return clashes


def _computes(fuser: _Fuser, groups: list[_Group]) -> dict[ComputeOp, list[SSAValue]]:
    """The kernels of `groups`, not in any block yet, with the stored values they yield."""
    flat = fuser.flat
    value_of: dict[SSAValue, SSAValue] = {a: a for a in flat.graph.body.block.args}
    needed = _needed_outside(fuser, groups)
    computes: dict[ComputeOp, list[SSAValue]] = {}
    for group in groups:
        members = set(group.members)
        results = [v for v in group.members if v in needed]
        ops: dict[Operation, None] = {}
        reads: dict[SSAValue, None] = {}
        for member in group.members:
            inner, boundary = fuser._closure(member)
            ops.update(dict.fromkeys(inner))
            reads.update((v, None) for v in boundary if v not in members)
        for value in results:
            if value in flat.updates:
                reads.setdefault(flat.updates[value])
        operands = list(reads)
        pairs = [
            (i, operands.index(flat.updates[v])) for i, v in enumerate(results) if v in flat.updates
        ]
        compute = ComputeOp(
            _label([op for op in ops if op.results[0] not in flat.copies]),
            [value_of[v] for v in operands],
            [v.type for v in results],
            inplace=pairs,
        )
        body = compute.block
        local: dict[SSAValue, SSAValue] = dict(zip(operands, body.args, strict=True))
        for op in sorted(ops, key=lambda o: flat.position[o.results[0]]):
            if op.results[0] in flat.copies:
                local[op.results[0]] = local[flat.resolve(op.operands[0])]
                continue
            clone = op.clone({v: local[flat.resolve(v)] for v in op.operands})
            clone.results[0].name_hint = op.results[0].name_hint
            local[op.results[0]] = clone.results[0]
            body.add_op(clone)
        body.add_op(YieldOp(*(local[v] for v in results)))
        for value, result in zip(results, compute.results, strict=True):
            result.name_hint = value.name_hint
            value_of[value] = result
        computes[compute] = results
    return computes


def _needed_outside(fuser: _Fuser, groups: list[_Group]) -> set[SSAValue]:
    needed = set(fuser.flat.results)
    for group in groups:
        needed.update(v for v in group.reads if v not in group.members)
    return needed


_SHORT = {"dot_general": "dot", "convolution": "conv", "reduce_window": "pool"}


def _label(ops: Sequence[Operation]) -> str:
    """A name from what the kernel does: its anchors and reductions, then its arithmetic."""

    def words(chosen: Iterator[Operation]) -> list[str]:
        names = (op.name.split(".")[1] for op in chosen)
        return list(dict.fromkeys(_SHORT.get(n, n) for n in names))

    heavy = words(op for op in ops if isinstance(op, (*ANCHORS, hlo.ReduceOp, hlo.GatherOp)))
    light = words(op for op in ops if _is_elementwise(op))
    moves = words(op for op in ops if isinstance(op, VIEWS + LEAVES))
    return "_".join((heavy + light)[:4] or moves[:1] or ["copy"])
