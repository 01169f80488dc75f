"""Orders of the operations that exceed a given RAM as little as possible.

`order.py` looks for a low peak. Where the peak cannot come below the RAM, what counts is how much
lies above it and for how long: that is what has to be evicted. A stretch of the order is replaced
by another order of the same operations, again and again, and kept where it is not worse.
"""

from __future__ import annotations

import dataclasses
import math
import random
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from poetc.schedule.heuristics.order import candidates
from poetc.schedule.heuristics.repair import fit, thin
from poetc.schedule.heuristics.timeline import Timeline
from poetc.schedule.model.clock import Effort
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import (
    Compute,
    Operation,
    Place,
    Problem,
    Step,
    Tensor,
    predecessors,
)
from poetc.schedule.model.rebuild import Event, Run, prune, share
from poetc.schedule.params import SearchParams

# Work for a round that changes an order, for each position, and for each operation of the stretch;
# for each run of a sequence whose order is changed together with its recomputes.
ROUND, POSITION, MOVE, UNROLL = 2e-5, 5e-8, 4e-6, 4e-5


def permuted(problem: Problem, order: Sequence[int]) -> Problem:
    """`problem` with its operations in another order; tensors keep their index."""
    return dataclasses.replace(problem, operations=tuple(problem.operations[k] for k in order))


def renamed(step: Step, order: Sequence[int]) -> Step:
    """A step of the problem in another order, as a step of the problem."""
    if isinstance(step, Compute):
        return dataclasses.replace(step, operation=order[step.operation])
    return step


def orders(instance: Instance, effort: Effort, count: int = 2) -> list[tuple[int, ...]]:
    """Up to `count` other orders, those that exceed the RAM of the problem least first."""
    problem = instance.problem
    limit = problem.ram_bytes
    if limit is None or not count:
        return []
    given = tuple(range(len(problem.operations)))
    found: dict[tuple[int, ...], float] = {}
    for index, (order, footprint) in enumerate(candidates(problem)[: count + 1]):
        if effort.over:
            break
        search = _Reorder(problem, limit, order, random.Random(index), instance.params)
        if footprint.peak_bytes > limit:
            search.run(effort)
        found[tuple(search.order)] = search.excess()
        if search.excess() == 0:
            break
    ranked = sorted((excess, order) for order, excess in found.items() if order != given)
    return [order for _, order in ranked[:count]]


def neighbours(problem: Problem, order: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Orders in which one operation runs as early or as late as it can, or one place later."""
    before = predecessors(problem)
    place = {k: at for at, k in enumerate(order)}
    earliest = [max((place[j] + 1 for j in before[k]), default=0) for k in order]
    latest = [len(order) - 1] * len(order)
    for at, k in enumerate(order):
        for j in before[k]:
            latest[place[j]] = min(latest[place[j]], at - 1)
    for at, k in enumerate(order):
        for to in dict.fromkeys((earliest[at], latest[at], min(at + 1, latest[at]))):
            if to != at:
                rest = [*order[:at], *order[at + 1 :]]
                yield (*rest[:to], k, *rest[to:])


class Frontier:
    """Orders to try: those of `order.py`, then the neighbours of what has been tried, nearest to
    the given order and to those that were worth it first. Each order comes once."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        given = tuple(range(len(problem.operations)))
        self.seen = {given}
        self.centres: deque[Sequence[int]] = deque([given])

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        for order, _ in candidates(self.problem):
            if order not in self.seen:
                self.seen.add(order)
                self.centres.append(order)
                yield order
        while self.centres:
            for order in neighbours(self.problem, self.centres.popleft()):
                if order not in self.seen:
                    self.seen.add(order)
                    self.centres.append(order)
                    yield order

    def prefer(self, order: Sequence[int]) -> None:
        """The neighbours of `order` come next after those of the present one."""
        if order in self.centres:
            self.centres.remove(order)
            self.centres.appendleft(order)


class _Reorder:
    """Local search over the orders of a problem."""

    def __init__(
        self,
        problem: Problem,
        limit: int,
        order: Sequence[int],
        rng: random.Random,
        params: SearchParams,
    ) -> None:
        self.problem, self.limit, self.rng, self.params = problem, limit, rng, params
        self.order = list(order)
        tensors = problem.tensors
        self.size = [t.bytes for t in tensors]
        self.inputs = [tuple(dict.fromkeys(o.inputs)) for o in problem.operations]
        self.outputs = [o.outputs for o in problem.operations]
        self.made = [
            sum(self.size[v] for v in o.outputs) + o.workspace_bytes for o in problem.operations
        ]
        self.before = [sorted(p) for p in predecessors(problem)]
        self.after: list[list[int]] = [[] for _ in self.before]
        for k, earlier in enumerate(self.before):
            for j in earlier:
                self.after[j].append(k)
        self.readers = problem.readers()
        self.kept = [t.end is Place.RAM for t in tensors]
        self.stored = [t.start is Place.STORAGE for t in tensors]
        n = len(order)
        self.place = [0] * n
        self.during = [0] * n  # bytes at each position
        self.live = [0] * (n + 1)  # bytes that lie in RAM before each position
        # For each tensor the positions of its readers, in order.
        self.uses: list[list[int]] = [[] for _ in tensors]
        for at, k in enumerate(self.order):
            self.place[k] = at
        for v, reading in enumerate(self.readers):
            self.uses[v] = sorted(self.place[k] for k in reading)
        self.live[0] = sum(
            t.bytes
            for v, t in enumerate(tensors)
            if t.start is Place.RAM and (self.readers[v] or self.kept[v])
        )
        for at, (during, live) in enumerate(self._simulate(self.order, 0)):
            self.during[at], self.live[at + 1] = during, live

    def excess(self) -> int:
        """Sum over the positions of the bytes above the limit."""
        return sum(b - self.limit for b in self.during if b > self.limit)

    def run(self, effort: Effort, patience: int | None = None) -> None:
        """Improves the order until nothing more is found for a while, or out of effort."""
        n, rng, limit = len(self.order), self.rng, self.limit
        patience = self.params.reorder_patience * n if patience is None else patience
        idle = 0
        excess = self.excess()
        while idle < patience and excess and not effort.over:
            idle += 1
            over = [at for at, used in enumerate(self.during) if used > limit]
            centre = rng.choice(over)
            length = rng.choice(self.params.stretches)
            effort.spend(ROUND + POSITION * n + MOVE * length)
            first = max(0, min(centre - rng.randrange(length), n - length))
            last = min(n, first + length)
            new = self._another(first, last)
            if new == self.order[first:last]:
                continue
            states = self._simulate(new, first)
            old = self.during[first:last]
            was = sum(b - limit for b in old if b > limit)
            now = sum(b - limit for b, _ in states if b > limit)
            if now > was:
                continue
            # Among orders that exceed it alike, fewer bytes over time leave more room.
            if now == was and sum(b for b, _ in states) > sum(old):
                continue
            if now < was:
                idle = 0
                excess += now - was
            self._accept(new, first, states)

    def _simulate(self, stretch: Sequence[int], first: int) -> list[tuple[int, int]]:
        """(bytes during, bytes after) each operation of a stretch that begins at `first`."""
        last = first + len(stretch)
        left: dict[int, int] = {}
        live = self.live[first]
        states = []
        size, operations = self.size, self.problem.operations
        for k in stretch:
            during = live + self.made[k]
            gone = 0
            dying = []
            for v in self.inputs[k]:
                if self.stored[v]:
                    during += size[v]
                    continue
                count = left.get(v)
                if count is None:
                    uses = self.uses[v]
                    count = bisect_left(uses, last) - bisect_left(uses, first)
                    # Something after the stretch needs it too.
                    count += (uses[-1] >= last) or self.kept[v]
                left[v] = count - 1
                if count == 1:
                    dying.append(v)
                    gone += size[v]
            if operations[k].inplace:
                allowed = set(dying) | {v for v in self.inputs[k] if self.stored[v]}
                during -= sum(size[o] for o, _ in share(self.problem, k, allowed))
            live -= gone
            live += sum(size[v] for v in self.outputs[k] if self.readers[v] or self.kept[v])
            states.append((during, live))
        return states

    def _another(self, first: int, last: int) -> list[int]:
        """Another order of the operations at positions `first` to `last` − 1."""
        rng = self.rng
        stretch = self.order[first:last]
        if rng.random() < 0.5:
            return self._moved(stretch, first)
        inside = set(stretch)
        waiting = {k: sum(j in inside for j in self.before[k]) for k in stretch}
        ready = [k for k in stretch if not waiting[k]]
        left: dict[int, int] = {}
        size = self.size
        wild = rng.choice((0.0, 0.1, 0.3))
        result: list[int] = []

        def adds(k: int) -> int:
            change = sum(size[v] for v in self.outputs[k])
            for v in self.inputs[k]:
                if v not in left:
                    uses = self.uses[v]
                    left[v] = len(uses) - bisect_left(uses, first) + self.kept[v]
                if left[v] == 1 and not self.stored[v]:
                    change -= size[v]
            return change

        while ready:
            k = rng.choice(ready) if rng.random() < wild else min(ready, key=adds)
            ready.remove(k)
            result.append(k)
            for v in self.inputs[k]:
                if v in left:
                    left[v] -= 1
                else:
                    uses = self.uses[v]
                    left[v] = len(uses) - bisect_left(uses, first) + self.kept[v] - 1
            for j in self.after[k]:
                if j in inside:
                    waiting[j] -= 1
                    if not waiting[j]:
                        ready.append(j)
        return result

    def _moved(self, stretch: list[int], first: int) -> list[int]:
        """One operation moved, as far as the others allow, earlier or later."""
        rng = self.rng
        result = list(stretch)
        index = rng.randrange(len(result))
        k = result.pop(index)
        low = max((self.place[j] - first + 1 for j in self.before[k]), default=0)
        high = min((self.place[j] - first - 1 for j in self.after[k]), default=len(result))
        low, high = max(low, 0), min(high, len(result))
        result.insert(rng.randint(low, high) if rng.random() < 0.5 else rng.choice((low, high)), k)
        return result

    def _accept(self, stretch: list[int], first: int, states: list[tuple[int, int]]) -> None:
        self.order[first : first + len(stretch)] = stretch
        touched = set()
        for at, (k, (during, live)) in enumerate(zip(stretch, states, strict=True), first):
            self.place[k] = at
            self.during[at], self.live[at + 1] = during, live
            touched.update(self.inputs[k])
        for v in touched:
            self.uses[v] = sorted(self.place[k] for k in self.readers[v])


def polish(
    instance: Instance,
    order: Sequence[int],
    events: Sequence[Event],
    found: Callable[[tuple[int, ...], list[Event]], object],
    effort: Effort,
    seed: int = 0,
) -> None:
    """Looks for cheaper sequences by changing order and recomputes together.

    `events` are a sequence of `instance` with its operations in `order`, without page-ins. Some
    recomputes are taken out; the order of all runs, recomputes included, is changed so that less
    exceeds the RAM; what still does is repaired. `found` is called with each order that leads to a
    cheaper sequence and that sequence, in the numbering of the order.
    """
    limit = instance.problem.ram_bytes
    assert limit is not None
    rng = random.Random(seed)
    kept, _ = prune(_instance(instance, order), events)
    present = [order[event.operation] for event in kept if isinstance(event, Run)]
    price = best = _price(instance, present)
    idle = 0
    while idle < instance.params.polish_patience and price > 0 and not effort.over:
        idle += 1
        effort.spend(UNROLL * len(present))
        runs = _without_some(present, rng)
        problem = unrolled(instance.problem, runs)
        search = _Reorder(problem, limit, range(len(runs)), rng, instance.params)
        search.run(effort, instance.params.polish_rounds)
        runs = [runs[at] for at in search.order]
        order = tuple(dict.fromkeys(runs))
        inner = _instance(instance, order)
        line = Timeline(inner, limit)
        line.add(_repairs(runs, order))
        ceiling = price * (1.02 if rng.random() < 0.1 else 1.0)
        if not fit(line, rng, 0.5, effort, price * 1.05):
            continue
        thin(line, effort)
        if line.total_excess() > 0 or line.price > ceiling + 1e-9 or line.paged:
            continue
        price = line.price
        sequence = line.events()
        present = [order[event.operation] for event in sequence if isinstance(event, Run)]
        if price < best * (1 - 1e-9):
            best = price
            idle = 0
            found(order, sequence)


def _instance(instance: Instance, order: Sequence[int]) -> Instance:
    return dataclasses.replace(instance, problem=permuted(instance.problem, order))


def _price(instance: Instance, runs: Sequence[int]) -> float:
    """Energy of the recomputes among `runs`."""
    return math.fsum(instance.run_energy[k] for k in runs) - math.fsum(instance.run_energy)


def _without_some(runs: Sequence[int], rng: random.Random) -> list[int]:
    """`runs` without some of the recomputes, a few in a row or anywhere."""
    seen: set[int] = set()
    again = []
    for at, k in enumerate(runs):
        if k in seen:
            again.append(at)
        seen.add(k)
    if not again:
        return list(runs)
    count = min(len(again), rng.choice((1, 1, 1, 2, 3, 5, 8)))
    if rng.random() < 0.5:
        first = rng.randrange(len(again) - count + 1)
        gone = set(again[first : first + count])
    else:
        gone = set(rng.sample(again, count))
    return [k for at, k in enumerate(runs) if at not in gone]


def _repairs(runs: Sequence[int], order: Sequence[int]) -> list[tuple[int, int, int]]:
    """The recomputes among `runs` as repairs of the timeline of `order`."""
    place = {k: at for at, k in enumerate(order)}
    repairs = []
    seen: set[int] = set()
    waiting: list[int] = []
    for k in runs:
        if k in seen:
            waiting.append(place[k])
            continue
        seen.add(k)
        repairs += [(place[k], j, -1) for j in waiting]
        waiting = []
    return repairs + [(len(order), j, -1) for j in waiting]


def unrolled(problem: Problem, runs: Sequence[int]) -> Problem:
    """The problem in which each of `runs` is an operation of its own. What a recompute makes is a
    tensor of its own, which is read from then on."""
    tensors: list[Tensor] = list(problem.tensors)
    version = list(range(len(tensors)))
    operations: list[Operation] = []
    seen: set[int] = set()
    for k in runs:
        operation = problem.operations[k]
        inputs = tuple(version[v] for v in operation.inputs)
        if k in seen:
            for v in operation.outputs:
                old = version[v]
                version[v] = len(tensors)
                tensors.append(tensors[old])
                tensors[old] = dataclasses.replace(tensors[old], end=None)
        seen.add(k)
        outputs = tuple(version[v] for v in operation.outputs)
        renamed = dict(
            zip((*operation.inputs, *operation.outputs), (*inputs, *outputs), strict=True)
        )
        pairs = tuple((renamed[o], renamed[i]) for o, i in operation.inplace)
        operations.append(
            dataclasses.replace(operation, inputs=inputs, outputs=outputs, inplace=pairs)
        )
    return dataclasses.replace(problem, operations=tuple(operations), tensors=tuple(tensors))
