"""Finds an order of the operations in which few bytes are alive at once.

Minimising the peak over the orders of a graph is NP-hard. Several list schedules are made, each in
near-linear time, and their peaks computed exactly. A lower bound from minimum cuts
(`order_bound.py`) says how far the lowest is from the optimum, which on training steps it nearly
always is. Where it is not, an exact search (`order_search.py`) looks for a better order. The result
is never worse than the given order, and the same for the same problem.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from poetc.schedule.exact.order_bound import peak_bound
from poetc.schedule.exact.order_search import OrderSearch
from poetc.schedule.model.problem import Place, Problem, predecessors
from poetc.schedule.model.rebuild import share

LOOKAHEAD = 4
"""How many operations a chain may have that is judged as a whole."""

EFFORT = 20_000
"""States that the exact search visits at most: a few seconds on graphs of 500 operations."""


@dataclass(frozen=True)
class Footprint:
    """The RAM that an order needs without a limit, everything freed at its last use.

    `peak_bytes` is the most; `total_bytes` is the sum of the bytes alive during each operation,
    `during_bytes[k]` those during operation k.
    """

    peak_bytes: int
    total_bytes: int
    during_bytes: tuple[int, ...]


@dataclass(frozen=True)
class Order:
    """Operations in the order in which they run; no order has a lower peak than `bound_bytes`."""

    operations: tuple[int, ...]
    footprint: Footprint
    bound_bytes: int

    @property
    def optimal(self) -> bool:
        """Whether it is proven that no order has a lower peak."""
        return self.footprint.peak_bytes == self.bound_bytes


def footprint(problem: Problem, order: Sequence[int]) -> Footprint:
    """Bytes alive when the operations run in `order`, by the rule of `schedule/model/checker.py`.

    A tensor that starts on storage is in RAM only while an operation reads it, a new value that
    ends there until its last reader has run.
    """
    tensors, operations = problem.tensors, problem.operations
    left = _reader_counts(problem)
    live = sum(t.bytes for v, t in enumerate(tensors) if t.start is Place.RAM and left[v])
    peak = sum(t.bytes for t in tensors if t.start is Place.RAM)
    alive = [0] * len(operations)
    for k in order:
        operation = operations[k]
        inputs = set(operation.inputs)
        fetched = {v for v in inputs if tensors[v].start is Place.STORAGE}
        for v in inputs:
            left[v] -= 1
        dying = {v for v in inputs if not left[v]}
        during = live + operation.workspace_bytes
        during += sum(tensors[v].bytes for v in (*fetched, *operation.outputs))
        during -= sum(tensors[o].bytes for o, _ in share(problem, k, dying))
        alive[k] = during
        peak = max(peak, during)
        live += sum(tensors[v].bytes for v in operation.outputs if left[v])
        live -= sum(tensors[v].bytes for v in dying - fetched)
    return Footprint(peak, sum(alive), tuple(alive))


def find_order(problem: Problem, effort: int = EFFORT) -> Order:
    """The order with the lowest peak that was found; `range(n)` when nothing is better.

    `effort` bounds the exact search, which runs only where the best list schedule is not proven
    optimal, in states.
    """
    best, found = candidates(problem)[0]
    bound = peak_bound(problem, found.during_bytes)
    if found.peak_bytes > bound and effort:
        search = OrderSearch(problem, bound, found.peak_bytes)
        better = search.run(effort)
        if better is not None:
            best, found = better, footprint(problem, better)
        bound = max(bound, search.bound)
    return Order(best, found, bound)


def low_peak_order(problem: Problem) -> tuple[int, ...]:
    """The operations of `find_order`."""
    return find_order(problem).operations


def candidates(problem: Problem) -> list[tuple[tuple[int, ...], Footprint]]:
    """The given order and those of all list schedules, each once, best first.

    The lowest peak is best, then the lowest sum over time, then the one made first.
    """
    graph = _Graph(problem)
    makers: list[Callable[[], Sequence[int]]] = [
        lambda: range(len(problem.operations)),
        lambda: graph.forward(eager=True),
        lambda: graph.forward(eager=False),
        graph.on_demand,
        graph.backward,
    ]
    orders = dict.fromkeys(tuple(make()) for make in makers)
    measured = [(order, footprint(problem, order)) for order in orders]
    return sorted(measured, key=lambda entry: (entry[1].peak_bytes, entry[1].total_bytes))


def _reader_counts(problem: Problem) -> list[int]:
    """How many operations read each tensor; one more for what must be in RAM at the end."""
    return [
        len(readers) + (tensor.end is Place.RAM)
        for readers, tensor in zip(problem.readers(), problem.tensors, strict=True)
    ]


class _Graph:
    """The dependences of a problem, and the list schedules that follow them."""

    def __init__(self, problem: Problem) -> None:
        self.operations = problem.operations
        self.inputs = [tuple(dict.fromkeys(o.inputs)) for o in problem.operations]
        # A tensor on storage is fetched by each operation that reads it, in any order.
        self.bytes = [0 if t.start is Place.STORAGE else t.bytes for t in problem.tensors]
        self.counts = _reader_counts(problem)
        self.readers = problem.readers()
        self.before = [sorted(p) for p in predecessors(problem)]
        self.after: list[list[int]] = [[] for _ in self.before]
        for k, before in enumerate(self.before):
            for j in before:
                self.after[j].append(k)

    def forward(self, eager: bool) -> list[int]:
        """From the start: first what leaves fewer bytes alive, by what it needs for that.

        When nothing does: the next operation of the given order (`eager` false: the one that adds
        fewest bytes). An operation is judged with the chain that it makes ready, up to `LOOKAHEAD`
        operations: a gradient adds bytes, but the update that it leads to gives them back.
        """
        left = list(self.counts)
        waiting = [len(before) for before in self.before]

        def key(k: int) -> tuple[int, int, int, int]:
            change, rise = self._chain(k, left, waiting)
            if change < 0:
                return (0, rise, change, k)
            return (1, 0, 0, k) if eager else (1, change, rise, k)

        def run(k: int) -> Iterable[int]:
            touched: set[int] = set()
            for v in self.inputs[k]:
                left[v] -= 1
                if left[v] == 1:
                    touched.update(j for j in self.readers[v] if waiting[j] >= 0)
            for j in self.after[k]:
                waiting[j] -= 1
                touched.add(j)
            return self._with_heads(touched, waiting)

        return _least_first(waiting, key, run)

    def _with_heads(self, touched: Iterable[int], waiting: list[int]) -> Iterable[int]:
        """The ready ones of `touched`, and the ready ones whose chain `touched` may be part of."""
        ready: set[int] = set()
        pending = [(j, LOOKAHEAD) for j in touched]
        seen: set[int] = set()
        while pending:
            j, depth = pending.pop()
            if j in seen or waiting[j] < 0:
                continue
            seen.add(j)
            if not waiting[j]:
                ready.add(j)
            elif waiting[j] == 1 and depth > 1:
                pending += [(p, depth - 1) for p in self.before[j] if waiting[p] >= 0]
        return sorted(ready)

    def _chain(self, k: int, left: list[int], waiting: list[int]) -> tuple[int, int]:
        """(change, rise) of live bytes along the chain that starts with `k`.

        The chain ends where the bytes are below those at its start, or else where they are lowest;
        `rise` is the most that it needs on the way there.
        """
        live = rise = 0
        lowest: tuple[int, int] | None = None
        used: dict[int, int] = {}
        for _ in range(LOOKAHEAD):
            operation = self.operations[k]
            dying = set()
            for v in self.inputs[k]:
                used[v] = used.get(v, 0) + 1
                if used[v] == left[v]:
                    dying.add(v)
            during = live + operation.workspace_bytes
            during += sum(self.bytes[v] for v in operation.outputs)
            for output, operand in operation.inplace:
                during -= self.bytes[output] if operand in dying else 0
            rise = max(rise, during)
            live += sum(self.bytes[v] for v in operation.outputs if self.counts[v])
            live -= sum(self.bytes[v] for v in dying)
            if lowest is None or live < lowest[0]:
                lowest = live, rise
            following = [j for j in self.after[k] if waiting[j] == 1]
            if live < 0 or len(following) != 1:
                break
            k = following[0]
        assert lowest is not None
        return lowest

    def on_demand(self) -> list[int]:
        """Each operation just before its first reader, operands that cost most first.

        Roots are the operations that nothing follows, in the given order.
        """
        order: list[int] = []
        done = [False] * len(self.before)
        for root in range(len(self.before)):
            if self.after[root]:
                continue
            stack = [root]
            while stack:
                k = stack[-1]
                if done[k]:
                    stack.pop()
                    continue
                missing = [j for j in self.before[k] if not done[j]]
                if not missing:
                    done[k] = True
                    order.append(k)
                    stack.pop()
                else:
                    stack += missing[::-1]
        return order

    def backward(self) -> list[int]:
        """From the end, by the change of live bytes seen backwards, latest operation first.

        Running `k` as the last of those that remain ends the need for its results and begins the
        need for its operands.
        """
        needed = [0] * len(self.bytes)
        waiting = [len(after) for after in self.after]

        def key(k: int) -> tuple[int, int]:
            gain = sum(self.bytes[v] for v in self.inputs[k] if not needed[v])
            gain -= sum(self.bytes[v] for v in self.operations[k].outputs)
            return (gain, -k)

        def run(k: int) -> Iterable[int]:
            touched: set[int] = set()
            for v in self.inputs[k]:
                if not needed[v]:
                    touched.update(self.readers[v])
                needed[v] += 1
            for j in self.before[k]:
                waiting[j] -= 1
                touched.add(j)
            return sorted(touched)

        return _least_first(waiting, key, run)[::-1]


def _least_first(
    waiting: list[int], key: Callable[[int], tuple[int, ...]], run: Callable[[int], Iterable[int]]
) -> list[int]:
    """The operations by least key, each of those for which it is `waiting` before it.

    `run` notes that one has run, and returns those whose key may be another one now.
    """
    order: list[int] = []
    queue = [(key(k), k) for k, others in enumerate(waiting) if not others]
    current = {k: entry for entry, k in queue}
    heapq.heapify(queue)
    while queue:
        entry, k = heapq.heappop(queue)
        if current.get(k) != entry:
            continue
        del current[k]
        order.append(k)
        waiting[k] = -1
        for j in run(k):
            if waiting[j] == 0 and current.get(j) != (new := key(j)):
                current[j] = new
                heapq.heappush(queue, (new, j))
    return order
