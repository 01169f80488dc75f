"""Question 2 of the pass: which stored values share a kernel."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from poetc.ir import stablehlo as hlo
from poetc.passes.poet_fuse.facts import ALONE, OPAQUE, UNIT, fuses, operand_tags
from poetc.passes.poet_fuse.storing import Storing
from poetc.passes.topological import ordered

Reads = dict[SSAValue, set[tuple[int, ...]]]
"""Values that are read, with the axes that index them (see `operand_tags`)."""


@dataclass(eq=False)
class Group:
    """Stored values that one kernel computes, with the space its reductions run over."""

    members: list[SSAValue]
    space: tuple[int, ...] | None
    """Shape that the kernel's reductions read; the shape of its results if it has none."""
    reduced: tuple[int, ...] = ()
    mergeable: bool = True
    reads: Reads = field(default_factory=dict)
    """Values read from outside."""


class Grouping:
    """Merges the stored values of a graph into groups, each of which is one kernel."""

    def __init__(self, storing: Storing, apart: Set[frozenset[SSAValue]]) -> None:
        """The pairs of stored values in `apart` do not share a kernel."""
        self.storing, self.flat, self.apart = storing, storing.flat, apart
        self._home: dict[SSAValue, Group] = {}
        self._readers: dict[SSAValue, list[Group]] = {}
        self._after: dict[Group, list[Group]] = {}
        self._line: list[Group | None] = []
        """A topological order, with gaps; empty where groups wait for each other."""
        self._rank: dict[Group, int] = {}
        self._updating = {parameter: new for new, parameter in self.flat.updates.items()}
        self._found: dict[tuple[SSAValue, tuple[int, ...]], Reads] = {}
        self._refused: set[tuple[SSAValue, ...]] = set()

    def groups(self) -> list[Group]:
        order = [op.results[0] for op in self.flat.ops if op.results[0] in self.storing.stored]
        groups = [self._group_of(v) for v in order]
        for group in groups:
            self._enter(group)
        line = self._ordered(groups)
        if len(line) == len(groups):
            self._line = [*line]
            self._rank = {group: rank for rank, group in enumerate(line)}
        changed = True
        while changed:
            changed = False
            for value in order:
                changed |= self._merge_into(self._home[value], groups)
        return self._sort(groups)

    def _enter(self, group: Group) -> None:
        for member in group.members:
            self._home[member] = group
        for value in group.reads:
            self._readers.setdefault(value, []).append(group)

    def _leave(self, group: Group) -> None:
        """Forgets a group, and of those that must run before it what runs after them."""
        before = [self._home[value] for value in group.reads if value in self._home]
        for value in group.members:
            before += self._readers.get(self.flat.updates.get(value, value), ())
        for other in (group, *before):
            self._after.pop(other, None)
        for value in group.reads:
            self._readers[value] = [g for g in self._readers[value] if g is not group]

    def _group_of(self, root: SSAValue) -> Group:
        ops, boundary = self.storing.closure(root)
        if isinstance(root.owner, hlo.RepeatOp):
            reads = {value: {(OPAQUE,)} for value in boundary}
            return Group(list(root.owner.results), None, mergeable=False, reads=reads)
        reduces = [op for op in ops if isinstance(op, hlo.ReduceOp)]
        anchors = [op for op in ops if fuses(op) in ALONE]
        if anchors or len(reduces) > 1:
            group = Group([root], None, mergeable=False)
        elif reduces:
            group = Group([root], hlo.shape_of(reduces[0].operands[0]), reduces[0].dims)
            if self._root_tags(group, root) is None:
                group = Group([root], None, mergeable=False)
        else:
            group = Group([root], hlo.shape_of(root))
        group.reads = dict(self._tagged_reads(group, root))
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

    def _tagged_reads(self, group: Group, root: SSAValue) -> Reads:
        """The values that the kernel of `root` reads, with the axes that index them."""
        tags = self._root_tags(group, root)
        if tags is None:
            return {}
        if (root, tags) not in self._found:
            self._found[root, tags] = self._read_along(root, tags)
        return self._found[root, tags]

    def _read_along(self, root: SSAValue, tags: tuple[int, ...]) -> Reads:
        found: Reads = {}
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

    def _merge_into(self, group: Group, groups: list[Group]) -> bool:
        """Merge `group` with one that it reads, or that reduces the same tensor. True if done."""
        home = self._home
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
            between = None if merged is None else self._between(other, group)
            if merged is None or between is None:
                self._refused.add(pair)
                continue
            self._join(other, group, merged, between)
            groups[groups.index(other)] = merged
            groups.remove(group)
            for gone in (other, group):
                self._leave(gone)
            self._enter(merged)
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

    def _successors(self, group: Group) -> list[Group]:
        """Groups that must run after a group: readers, and updates of what it reads."""
        if (known := self._after.get(group)) is not None:
            return known
        after = [g for value in group.members for g in self._readers.get(value, ())]
        for value in group.reads:
            new = self._updating.get(value)
            if new is not None and new in self._home:
                after.append(self._home[new])
        self._after[group] = after = [g for g in after if g is not group]
        return after

    def _between(self, first: Group, second: Group) -> set[Group] | None:
        """The groups that run after one of two groups and stand before the other one in the order;
        None if a path leads from one to the other through a third."""
        rank = self._rank
        pairs = [(first, second), (second, first)]
        if rank:
            # Paths lead to higher ranks only.
            pairs = [min(pairs, key=lambda pair: rank[pair[0]])]
        found: set[Group] = set()
        for start, goal in pairs:
            last = rank.get(goal, 0)
            seen = {start, goal}
            stack = [g for g in self._successors(start) if g is not goal]
            while stack:
                group = stack.pop()
                if group in seen or rank.get(group, 0) > last:
                    continue
                seen.add(group)
                after = self._successors(group)
                if goal in after:
                    return None
                stack.extend(after)
            found |= seen
        return found

    def _join(self, first: Group, second: Group, merged: Group, after: set[Group]) -> None:
        """Puts a merged group in the order in place of two: what runs `after` the earlier one, and
        stood before the later one, comes behind it."""
        if not self._line:
            return
        begin, end = sorted((self._rank.pop(first), self._rank.pop(second)))
        inside = [g for g in self._line[begin + 1 : end] if g is not None]
        before = [g for g in inside if g not in after]
        line = [*before, merged, *(g for g in inside if g in after)]
        for rank, group in enumerate(line, begin):
            self._line[rank] = group
            self._rank[group] = rank
        for rank in range(begin + len(line), end + 1):
            self._line[rank] = None

    def _sort(self, groups: list[Group]) -> list[Group]:
        """Topological order, as close to the program order as the merges allow."""
        order = self._ordered(groups)
        if len(order) < len(groups):
            raise UnsafeError
        return order

    def _ordered(self, groups: list[Group]) -> list[Group]:
        """The groups in topological order, without those that wait for each other."""
        position = self.flat.position

        def place(group: Group) -> int:
            return max(position[v] for v in group.members)

        return ordered(groups, self._successors, place)


class UnsafeError(Exception):
    """Inlining made a reader of a parameter clash with the parameter's update in place."""


def _axes(tags: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(t for t in tags if t != UNIT)
