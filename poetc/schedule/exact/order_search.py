"""Exact search for the order with the lowest peak of live bytes.

A state is the set of operations that have run; what is alive depends on nothing else. States are
visited in the order of the peak on the way to them (Dijkstra with maxima instead of sums), those
that are furthest first among equals, so the first complete one is optimal.

The number of states is exponential; two rules keep it small and lose nothing:

- Nothing below the lower bound matters: all peaks up to it count as equal.
- *Safe moves.* If one or two operations can run within the peak that the state has cost already,
  leave no more bytes alive than before, and no part of them alone does, they run now. Live bytes
  are a submodular function of the set S: live(S ∪ T) + live(S ∩ T) <= live(S) + live(T). So moving
  them to the front of any order that completes the state raises no peak on it.
"""

import heapq

from poetc.schedule.exact.bounds import members
from poetc.schedule.model.problem import Place, Problem, predecessors
from poetc.schedule.model.rebuild import share


class OrderSearch:
    """Looks for an order of `problem` with a peak below `limit` bytes, at best of `bound` bytes.

    `run` raises `bound` to what it has proven: every order has at least that peak.
    """

    def __init__(self, problem: Problem, bound: int, limit: int) -> None:
        self.problem, self.bound, self.limit = problem, bound, limit
        operations, tensors = problem.operations, problem.tensors
        self.count = len(operations)
        before = predecessors(problem)
        self.before = [sum(1 << j for j in earlier) for earlier in before]
        self.after: list[list[int]] = [[] for _ in operations]
        for k, earlier in enumerate(before):
            for j in sorted(earlier):
                self.after[j].append(k)
        stays = 1 << self.count  # a reader that never runs
        self.readers = [
            sum(1 << k for k in readers) | (stays if tensor.end is Place.RAM else 0)
            for readers, tensor in zip(problem.readers(), tensors, strict=True)
        ]
        stored = {v for v, t in enumerate(tensors) if t.start is Place.STORAGE}
        self.inputs = [tuple(set(o.inputs) - stored) for o in operations]
        self.fetched = [tuple(set(o.inputs) & stored) for o in operations]
        self.bytes = [t.bytes for t in tensors]
        self.made = [sum(self.bytes[v] for v in o.outputs) for o in operations]
        self.kept = [sum(self.bytes[v] for v in o.outputs if self.readers[v]) for o in operations]
        self.fixed = [
            made + operation.workspace_bytes + sum(self.bytes[v] for v in fetched)
            for made, operation, fetched in zip(self.made, operations, self.fetched, strict=True)
        ]
        self.related = [self._related(k) for k in range(self.count)]

    def _related(self, k: int) -> int:
        """Operations that `k` may make ready or whose operands it may let die."""
        mask = 0
        for j in self.after[k]:
            mask |= 1 << j
        for v in self.inputs[k]:
            mask |= self.readers[v]
        return mask & ((1 << self.count) - 1) & ~(1 << k)

    def run(self, effort: int) -> tuple[int, ...] | None:
        """The best order below `limit`, None if none was found within `effort` states."""
        tensors = self.problem.tensors
        live = sum(
            t.bytes for v, t in enumerate(tensors) if t.start is Place.RAM and self.readers[v]
        )
        ready = sum(1 << k for k, earlier in enumerate(self.before) if not earlier)
        everything = (1 << self.count) - 1
        origin: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
        queue = [(self.bound, 0, live, 0, ready)]
        level_of = {0: self.bound}
        done: set[int] = set()
        while queue and effort > 0:
            peak, _, live, state, ready = heapq.heappop(queue)
            if state in done:
                continue
            done.add(state)
            effort -= 1
            if state == everything:
                self.bound = peak
                return self._path(origin)
            for path, during, change in self._moves(state, ready, live, peak):
                reached, now_ready = state, ready
                for k in path:
                    reached |= 1 << k
                    now_ready = self._ready(reached, now_ready, k)
                level = max(peak, during)
                if level >= self.limit or reached in done:
                    continue
                if level_of.get(reached, level + 1) > level:
                    level_of[reached] = level
                    origin[reached] = state, path
                    entry = (level, -reached.bit_count(), live + change, reached, now_ready)
                    heapq.heappush(queue, entry)
        # States come with rising peaks: what is left costs at least as much as the next one.
        self.bound = min(queue[0][0], self.limit) if queue else self.limit
        return None

    def _path(self, origin: dict[int, tuple[int, tuple[int, ...]]]) -> tuple[int, ...]:
        order: list[int] = []
        state = (1 << self.count) - 1
        while state:
            state, path = origin[state]
            order += path[::-1]
        return tuple(order[::-1])

    def _ready(self, state: int, ready: int, k: int) -> int:
        ready &= ~(1 << k)
        for j in self.after[k]:
            if not self.before[j] & ~state:
                ready |= 1 << j
        return ready

    def _run(self, state: int, live: int, k: int) -> tuple[int, int]:
        """(bytes alive while `k` runs after `state`, change of the live bytes after it)."""
        after = state | 1 << k
        dying = [v for v in self.inputs[k] if not self.readers[v] & ~after]
        during = live + self.fixed[k]
        if self.problem.operations[k].inplace and (dying or self.fetched[k]):
            gone = {*dying, *(v for v in self.fetched[k] if not self.readers[v] & ~after)}
            during -= sum(self.bytes[o] for o, _ in share(self.problem, k, gone))
        return during, self.kept[k] - sum(self.bytes[v] for v in dying)

    def _moves(
        self, state: int, ready: int, live: int, peak: int
    ) -> list[tuple[tuple[int, ...], int, int]]:
        """(operations, bytes while they run, change of live bytes): a safe move, or all moves."""
        moves: list[tuple[tuple[int, ...], int, int]] = []
        for k in members(ready):
            during, change = self._run(state, live, k)
            if during <= peak and change <= 0:
                return [((k,), during, change)]
            moves.append(((k,), during, change))
        for (k,), during, change in moves:
            if during > peak:
                continue
            reached = state | 1 << k
            for j in members(self._ready(reached, ready, k) & self.related[k]):
                second, more = self._run(reached, live + change, j)
                if second <= peak and change + more <= 0:
                    return [((k, j), max(during, second), change + more)]
        return moves
