"""Which stored values share a kernel: question 2 of the pass."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from poetc.ir import stablehlo as hlo
from poetc.passes.poet_fuse.facts import ANCHORS, LOOPS, OPAQUE, UNIT, operand_tags
from poetc.passes.poet_fuse.storing import Storing


@dataclass
class Group:
    """Stored values that one kernel computes, with the space its reductions run over."""

    members: list[SSAValue]
    space: tuple[int, ...] | None
    """Shape that the kernel's reductions read; the shape of its results if it has none."""
    reduced: tuple[int, ...] = ()
    mergeable: bool = True
    reads: dict[SSAValue, set[tuple[int, ...]]] = field(default_factory=dict)
    """Values read from outside, with the axes that index them (see `operand_tags`)."""


class Grouping:
    """Merges the stored values of a graph into groups, each of which is one kernel."""

    def __init__(self, storing: Storing, apart: Set[frozenset[SSAValue]]) -> None:
        """The pairs of stored values in `apart` do not share a kernel."""
        self.storing, self.flat, self.apart = storing, storing.flat, apart
        self._after: dict[int, list[Group]] | None = None
        self._refused: set[tuple[SSAValue, ...]] = set()

    def groups(self) -> list[Group]:
        order = [op.results[0] for op in self.flat.ops if op.results[0] in self.storing.stored]
        groups = [self._group_of(v) for v in order]
        home: dict[SSAValue, Group] = {member: g for g in groups for member in g.members}
        changed = True
        while changed:
            changed = False
            for value in order:
                changed |= self._merge_into(home[value], groups, home)
        return self._sort(groups)

    def _group_of(self, root: SSAValue) -> Group:
        ops, boundary = self.storing.closure(root)
        if isinstance(root.owner, LOOPS):
            reads = {value: {(OPAQUE,)} for value in boundary}
            return Group(list(root.owner.results), None, mergeable=False, reads=reads)
        reduces = [op for op in ops if isinstance(op, hlo.ReduceOp)]
        anchors = [op for op in ops if isinstance(op, (*ANCHORS, hlo.GatherOp))]
        if anchors or len(reduces) > 1:
            group = Group([root], None, mergeable=False)
        elif reduces:
            group = Group([root], hlo.shape_of(reduces[0].operands[0]), reduces[0].dims)
            if self._root_tags(group, root) is None:
                group = Group([root], None, mergeable=False)
        else:
            group = Group([root], hlo.shape_of(root), mergeable=root not in self.storing.sealed)
        group.reads = self._tagged_reads(group, root)
        for value in boundary:
            group.reads.setdefault(value, {(OPAQUE,)})
        parameter = self.flat.updates.get(root)
        own = self._root_tags(group, root)
        for axes in group.reads.get(parameter, ()) if parameter is not None else ():
            if axes != own:
                raise UnsafeError
        return group

    def _root_tags(self, group: Group, root: SSAValue) -> tuple[int, ...] | None:
        """Axes of the group's space that index `root`: all of them, or those of its rows."""
        if group.space is None:
            return tuple(UNIT if n == 1 else d for d, n in enumerate(hlo.shape_of(root)))
        wide = [d for d, n in enumerate(group.space) if n != 1]
        if hlo.shape_of(root) == group.space:
            return tuple(d if d in wide else UNIT for d in range(len(group.space)))
        rows = [d for d in wide if d not in group.reduced]
        if [n for n in hlo.shape_of(root) if n != 1] != [group.space[d] for d in rows]:
            return None
        rest = iter(rows)
        return tuple(UNIT if n == 1 else next(rest) for n in hlo.shape_of(root))

    def _tagged_reads(self, group: Group, root: SSAValue) -> dict[SSAValue, set[tuple[int, ...]]]:
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
            if not isinstance(op, Operation) or (
                value in self.storing.stored and value is not root
            ):
                found.setdefault(value, set()).add(axes)
                continue
            if OPAQUE in axes:
                # Below an index that is no axis nothing is known.
                inner = [(OPAQUE,) * len(hlo.shape_of(v)) for v in op.operands]
            else:
                inner = [operand_tags(op, i, axes) for i in range(len(op.operands))]
            stack.extend(zip(self.flat.operands(op), inner, strict=True))
        return found

    def _merge_into(self, group: Group, groups: list[Group], home: dict[SSAValue, Group]) -> bool:
        """Merge `group` with one that it reads, or that reduces the same tensor. True if done."""
        candidates: list[Group] = []
        for value in group.reads:
            if value in home:
                candidates.append(home[value])
            if group.reduced:
                for op, _ in self.flat.users.get(value, ()):
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

    def _try_merge(self, first: Group, second: Group) -> Group | None:
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
        merged = Group(members, base.space, base.reduced)
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

    def _successors(self, groups: list[Group]) -> dict[int, list[Group]]:
        """Groups that must run after each group: readers, and updates of what it reads."""
        producer = {v: g for g in groups for v in g.members}
        updater = {self.flat.updates[v]: g for v, g in producer.items() if v in self.flat.updates}
        after: dict[int, list[Group]] = {id(g): [] for g in groups}
        for group in groups:
            for value in group.reads:
                if value in producer and producer[value] is not group:
                    after[id(producer[value])].append(group)
                if value in updater and updater[value] is not group:
                    after[id(group)].append(updater[value])
        return after

    def _makes_cycle(self, first: Group, second: Group, groups: list[Group]) -> bool:
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

    def _sort(self, groups: list[Group]) -> list[Group]:
        """Topological order, as close to the program order as the merges allow."""
        after = self._successors(groups)
        waiting = {id(g): 0 for g in groups}
        for successors in after.values():
            for group in successors:
                waiting[id(group)] += 1
        place = {id(g): max(self.flat.position[v] for v in g.members) for g in groups}
        ready = sorted((g for g in groups if not waiting[id(g)]), key=lambda g: place[id(g)])
        order: list[Group] = []
        while ready:
            group = ready.pop(0)
            order.append(group)
            for successor in after[id(group)]:
                waiting[id(successor)] -= 1
                if not waiting[id(successor)]:
                    ready.append(successor)
            ready.sort(key=lambda g: place[id(g)])
        if len(order) < len(groups):
            raise UnsafeError
        return order


class UnsafeError(Exception):
    """Inlining made a reader of a parameter clash with the parameter's update in place."""


def _axes(tags: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(t for t in tags if t != UNIT)
