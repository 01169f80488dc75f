"""A lower bound on the peak of live bytes over all orders, from minimum cuts.

While operation k runs, the operations that have run are a set S closed under "must run before",
with k and what depends on k outside it. The tensors alive then are those made in S of which
something outside S is still a reader: the arcs that leave S. The S with the fewest bytes alive is a
minimum cut. No order needs less while it runs k, so the greatest of these cuts bounds every peak.
"""

from collections import deque
from collections.abc import Sequence

from poetc.schedule.model.problem import Place, Problem, predecessors

_SOURCE, _SINK = 0, 1


def peak_bound(problem: Problem, at_most: Sequence[int] | None = None) -> int:
    """Bytes that every order of `problem` has alive at some point, in place where it can be.

    `at_most` are the bytes alive during each operation (by its index) in some order; the bound is
    then found with few cuts, since no cut of an operation is above them.
    """
    start = sum(t.bytes for t in problem.tensors if t.start is Place.RAM)
    cuts = _Cuts(problem)
    limits = at_most or [cuts.most] * len(problem.operations)
    bound = start
    for k in sorted(range(len(limits)), key=lambda k: (-limits[k], k)):
        if limits[k] <= bound:
            break
        bound = max(bound, cuts.least_during(k))
    return bound


class _Cuts:
    """Minimum cuts of the graph of one problem.

    Nodes are operations and tensors with several readers. An arc of capacity c from a to b costs c
    where a has run and b has not; one without limit says that a cannot have run before b.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.before = predecessors(problem)
        self.producers, self.readers = problem.producers(), problem.readers()
        self.after: list[list[int]] = [[] for _ in self.before]
        for k, before in enumerate(self.before):
            for j in before:
                self.after[j].append(k)
        self.most = sum(t.bytes for t in problem.tensors)
        self.most += sum(o.workspace_bytes for o in problem.operations)

    def least_during(self, k: int) -> int:
        """The fewest bytes alive while operation `k` runs, over all sets that can have run."""
        problem, tensors = self.problem, self.problem.tensors
        operation = problem.operations[k]
        past, future = self._reach(k, self.before), self._reach(k, self.after)
        fixed = operation.workspace_bytes + sum(tensors[v].bytes for v in operation.outputs)
        partners: dict[int, list[int]] = {}
        for output, operand in operation.inplace:
            partners.setdefault(output, []).append(operand)
        saved: dict[int, int] = {}  # operand -> bytes that are saved if nothing else needs it
        for output, operands in partners.items():
            if len(operands) == 1 and operands[0] not in saved:
                saved[operands[0]] = tensors[output].bytes
            else:
                # One of several: taken as saved, whichever it is.
                fixed -= tensors[output].bytes

        def node(j: int) -> int:
            if j == k or j in future:
                return _SINK
            return _SOURCE if j in past else 2 + j

        flow = _Flow(2 + len(problem.operations))
        for j, before in enumerate(self.before):
            for i in before:
                flow.arc(node(j), node(i), None)
        own = set(operation.outputs)
        for v, tensor in enumerate(tensors):
            reads = k in self.readers[v]
            if v in own or not tensor.bytes or (tensor.start is Place.STORAGE and not reads):
                continue
            producer = self.producers[v]
            made = _SOURCE if producer is None else node(producer)
            others = {node(j) for j in self.readers[v] if j != k}
            if tensor.end is Place.RAM:
                others.add(_SINK)
            if made == _SINK:
                continue
            if reads:
                less = min(saved.get(v, 0), tensor.bytes)
                fixed += tensor.bytes - less
                flow.fan(_SOURCE, others, less)
            else:
                flow.fan(made, others, tensor.bytes)
        return fixed + flow.maximum()

    def _reach(self, k: int, arcs: Sequence[set[int]] | Sequence[list[int]]) -> set[int]:
        found: set[int] = set()
        pending = list(arcs[k])
        while pending:
            j = pending.pop()
            if j not in found:
                found.add(j)
                pending += arcs[j]
        return found


class _Flow:
    """A maximum flow from node 0 to node 1 (Dinic)."""

    def __init__(self, nodes: int) -> None:
        self.arcs: list[list[int]] = [[] for _ in range(nodes)]
        self.head: list[int] = []
        self.room: list[int] = []
        self.fixed = 0
        self.infinite = 1 << 60

    def arc(self, tail: int, head: int, capacity: int | None) -> None:
        """An arc; None is no limit. Those into the source or out of the sink mean nothing."""
        if tail in (head, _SINK) or head == _SOURCE:
            return
        if tail == _SOURCE and head == _SINK:
            assert capacity is not None
            self.fixed += capacity
            return
        for end, other, room in (
            (tail, head, self.infinite if capacity is None else capacity),
            (head, tail, 0),
        ):
            self.arcs[end].append(len(self.head))
            self.head.append(other)
            self.room.append(room)

    def fan(self, tail: int, heads: set[int], capacity: int) -> None:
        """Costs `capacity` once if `tail` has run and one of `heads` has not."""
        heads = heads - {_SOURCE, tail}
        if not heads or not capacity:
            return
        if _SINK in heads or len(heads) == 1:
            self.arc(tail, _SINK if _SINK in heads else next(iter(heads)), capacity)
            return
        self.arcs.append([])
        middle = len(self.arcs) - 1
        self.arc(tail, middle, capacity)
        for head in sorted(heads):
            self.arc(middle, head, None)

    def maximum(self) -> int:
        total = self.fixed
        while (level := self._levels())[_SINK] >= 0:
            at = [0] * len(self.arcs)
            while pushed := self._push(level, at):
                total += pushed
        return total

    def _levels(self) -> list[int]:
        level = [-1] * len(self.arcs)
        level[_SOURCE] = 0
        queue = deque([_SOURCE])
        while queue:
            tail = queue.popleft()
            for a in self.arcs[tail]:
                if self.room[a] and level[self.head[a]] < 0:
                    level[self.head[a]] = level[tail] + 1
                    queue.append(self.head[a])
        return level

    def _push(self, level: list[int], at: list[int]) -> int:
        """One augmenting path along the levels; 0 if there is none left."""
        path: list[int] = []
        tail = _SOURCE
        while tail != _SINK:
            arcs = self.arcs[tail]
            while at[tail] < len(arcs):
                a = arcs[at[tail]]
                if self.room[a] and level[self.head[a]] == level[tail] + 1:
                    break
                at[tail] += 1
            else:
                if not path:
                    return 0
                tail = self.head[path.pop() ^ 1]
                at[tail] += 1
                continue
            path.append(arcs[at[tail]])
            tail = self.head[path[-1]]
        pushed = min(self.room[a] for a in path)
        for a in path:
            self.room[a] -= pushed
            self.room[a ^ 1] += pushed
        return pushed
