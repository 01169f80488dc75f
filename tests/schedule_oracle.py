"""Brute force: the cheapest schedule of a tiny problem, by Dijkstra over everything that can
happen.

A state is (stage, last operation run again in it, set in RAM, set on storage). In stage t
operations before t may run again, each at most once and in index order, then t runs for the first
time. Between runs anything may be freed, paged in or paged out. Knows nothing of `poetc.schedule`
but the problem.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count

from poetc.schedule.model.problem import Place, Problem, Variant

State = tuple[int, int, int, int]


def cheapest(problem: Problem, *, remat: bool = True, paging: bool = True) -> int | None:
    """Least energy (nJ), idle power included, or None if there is no schedule. Without DMA."""
    assert not problem.dma
    return _Oracle(problem, remat, paging).search()


@dataclass(frozen=True)
class _Run:
    """A way to run an operation, with sets of tensors as masks: what has to be in RAM and what must
    not, the same for storage, and what is made in both. `ends`: for each choice of buffers that are
    shared the bytes that are needed more, and what is gone from RAM after it."""

    energy_nj: int
    time_ns: int
    read: int
    unread: int
    read_stored: int
    made: int
    made_stored: int
    ends: tuple[tuple[int, int], ...]


class _Oracle:
    def __init__(self, problem: Problem, remat: bool, paging: bool) -> None:
        self.problem = problem
        self.remat = remat
        tensors = problem.tensors
        self.n = len(problem.operations)
        self.size = [t.bytes for t in tensors]
        self.movable = [
            t.pageable and (paging or Place.STORAGE in (t.start, t.end)) for t in tensors
        ]
        # Stage after which a replaced tensor is gone.
        self.gone_after = {
            t.replaces: k
            for k, o in enumerate(problem.operations)
            for t in (tensors[v] for v in o.outputs)
            if t.replaces is not None
        }
        self.ends = {
            place: sum(1 << v for v, t in enumerate(tensors) if t.end is place) for place in Place
        }

        # Of each operation the ways to run it; what is streamed has to be movable.
        self.ways: list[list[Variant]] = [
            [
                Variant(frozenset(), o.workspace_bytes, o.time_ns, 0, o.energy_nj),
                *(w for w in o.variants if all(self.movable[v] for v in w.streamed)),
            ]
            for o in problem.operations
        ]
        self.bytes_of = cache(self._bytes_of)
        self.storage_fits = cache(self._storage_fits)
        # Of each operation the last stage in which all that it reads is there.
        self.until = [
            min((self.gone_after.get(v, self.n) for v in o.inputs), default=self.n)
            for o in problem.operations
        ]
        self.runs = [[self._run(k, way) for way in ways] for k, ways in enumerate(self.ways)]
        self.least_energy = [min(way.energy_nj for way in ways) for ways in self.ways]
        self.least_time = [min(way.time_ns for way in ways) for ways in self.ways]

    def _bytes_of(self, mask: int) -> int:
        return sum(size for v, size in enumerate(self.size) if mask >> v & 1)

    def fits(self, used: int) -> bool:
        return self.problem.ram_bytes is None or used <= self.problem.ram_bytes

    def search(self) -> int | None:
        tensors = self.problem.tensors
        starts = {
            place: sum(1 << v for v, t in enumerate(tensors) if t.start is place) for place in Place
        }
        if not self.fits(self.bytes_of(starts[Place.RAM])):
            return None
        if not self.storage_fits(starts[Place.STORAGE]):
            return None
        start: State = (0, -1, starts[Place.RAM], starts[Place.STORAGE])
        # The least that every first run costs is counted in advance, so that the search is guided
        # by what is spent beyond.
        energy, time = sum(self.least_energy), sum(self.least_time)
        order = count()
        queue: list[tuple[float, int, int, int, State]] = []
        heapq.heappush(queue, (self.price(energy, time), next(order), energy, time, start))
        settled: dict[State, list[int]] = {}
        least: dict[State, float] = {}
        deadline_ns = self.problem.deadline_ns
        while queue:
            _, _, energy, time, state = heapq.heappop(queue)
            times = settled.setdefault(state, [])
            # Labels are popped by rising price: a later one is of use only if it is faster.
            if times and (deadline_ns is None or min(times) <= time):
                continue
            times.append(time)
            if state[0] == self.n and self.at_end(state):
                return energy - (-self.problem.idle_power_nw * time // 10**9)
            for more_energy, more_time, following in self.moves(state):
                e, t = energy + more_energy, time + more_time
                price = self.price(e, t)
                if deadline_ns is None:
                    if least.get(following, math.inf) <= price:
                        continue
                    least[following] = price
                elif t > deadline_ns or min(settled.get(following, ()), default=t + 1) <= t:
                    continue
                heapq.heappush(queue, (price, next(order), e, t, following))
        return None

    def price(self, energy: int, time: int) -> float:
        return energy + self.problem.idle_power_nw * time * 1e-9

    def at_end(self, state: State) -> bool:
        _, _, ram, stored = state
        needed, pages = self.ends[Place.RAM], self.ends[Place.STORAGE]
        return ram & needed == needed and stored & pages == pages

    def _storage_fits(self, stored: int) -> bool:
        limit = self.problem.storage_bytes
        tensors = self.problem.tensors
        used = sum(t.stored_bytes for v, t in enumerate(tensors) if stored >> v & 1)
        return limit is None or used <= limit

    def moves(self, state: State) -> Iterator[tuple[int, int, State]]:
        stage, last, ram, stored = state
        used = self.bytes_of(ram)
        for v, tensor in enumerate(self.problem.tensors):
            bit = 1 << v
            if ram & bit:
                yield 0, 0, (stage, last, ram & ~bit, stored)
                if self.movable[v] and not stored & bit and self.storage_fits(stored | bit):
                    yield (
                        tensor.pageout_energy_nj,
                        tensor.pageout_time_ns,
                        (stage, last, ram, stored | bit),
                    )
            elif (
                stored & bit
                and self.gone_after.get(v, self.n) >= stage
                and self.fits(used + tensor.bytes)
            ):
                yield (
                    tensor.pagein_energy_nj,
                    tensor.pagein_time_ns,
                    (stage, last, ram | bit, stored),
                )
        for k in range(last + 1, min(stage + 1, self.n)):
            first = k == stage
            if not first and not (self.remat and self.problem.operations[k].repeatable):
                continue
            if self.until[k] < stage:
                continue
            for run in self.runs[k]:
                if ram & run.read != run.read or ram & run.unread:
                    continue
                if stored & run.read_stored != run.read_stored or stored & run.made_stored:
                    continue
                pages = stored | run.made_stored
                if not self.storage_fits(pages):
                    continue
                for more_bytes, gone in run.ends:
                    if not self.fits(used + more_bytes):
                        continue
                    after = ram & ~gone | run.made
                    if first:
                        energy = run.energy_nj - self.least_energy[k]
                        time = run.time_ns - self.least_time[k]
                        yield energy, time, (stage + 1, -1, after, pages)
                    else:
                        yield run.energy_nj, run.time_ns, (stage, k, after, pages)

    def _run(self, k: int, way: Variant) -> _Run:
        """Operation `k` in that way."""
        operation, tensors = self.problem.operations[k], self.problem.tensors

        def bits(found: Iterable[int], streamed: bool) -> int:
            return sum(1 << v for v in set(found) if (v in way.streamed) is streamed)

        inputs, outputs = bits(operation.inputs, False), bits(operation.outputs, False)
        read, written = bits(operation.inputs, True), bits(operation.outputs, True)
        replaced = {v: old for v in operation.outputs if (old := tensors[v].replaces) is not None}
        forced = {(v, old) for v, old in replaced.items() if outputs >> v & 1}
        pairs = [
            (o, i)
            for o, i in dict.fromkeys(operation.inplace)
            if outputs >> o & 1 and inputs >> i & 1
        ]
        needed = self.bytes_of(outputs) + way.workspace_bytes
        ends: list[tuple[int, int]] = []
        for chosen in _matchings(tuple(pairs)):
            if forced <= set(chosen):
                # What a streamed output replaces is of no more use.
                gone = {i for _, i in chosen} | {*replaced.values()}
                shared = sum(self.size[o] for o, _ in chosen)
                ends.append((needed - shared, sum(1 << i for i in gone)))
        unread = outputs | written
        return _Run(way.energy_nj, way.time_ns, inputs, unread, read, outputs, written, tuple(ends))


def _matchings(pairs: tuple[tuple[int, int], ...]) -> Iterator[tuple[tuple[int, int], ...]]:
    if not pairs:
        yield ()
        return
    (o, i), rest = pairs[0], pairs[1:]
    yield from _matchings(rest)
    for others in _matchings(tuple(p for p in rest if p[0] != o and p[1] != i)):
        yield ((o, i), *others)


def cheapest_of_paper(problem: Problem) -> int | None:
    """Least energy (nJ) by the rules of the paper's model, for a problem that it knows: one result
    per operation, nothing starts or ends anywhere, no deadline.

    Page-outs happen at the start of a stage, page-ins at its end; what is in RAM at the start of a
    stage stays until its last reader in that stage, or through the stage if it has none there.
    """
    n = len(problem.operations)
    limit = problem.ram_bytes
    assert limit is not None
    size = [t.bytes for t in problem.tensors]
    inputs = [sum(1 << v for v in o.inputs) for o in problem.operations]
    best: dict[tuple[int, int], int] = {(0, 0): 0}
    for stage in range(n):
        following: dict[tuple[int, int], int] = {}
        for (ram, stored), energy in best.items():
            for recomputes in range(1 << stage):
                runs = recomputes | 1 << stage
                present = ram | runs
                if any(runs >> k & 1 and inputs[k] & ~present & ~0 for k in range(n)):
                    continue
                if any(runs >> k & 1 and _reads_late(inputs[k], ram, k) for k in range(n)):
                    continue
                spent = energy + sum(
                    o.energy_nj for k, o in enumerate(problem.operations) if runs >> k & 1
                )
                for out in _subsets(ram & ~stored):
                    paged = spent + sum(
                        t.pageout_energy_nj for v, t in enumerate(problem.tensors) if out >> v & 1
                    )
                    for kept in _subsets(present):
                        if not _fits(problem, size, inputs, limit, ram, runs, kept):
                            continue
                        for come in _subsets(stored & ~kept):
                            total = paged + sum(
                                t.pagein_energy_nj
                                for v, t in enumerate(problem.tensors)
                                if come >> v & 1
                            )
                            key = kept | come, stored | out
                            if total < following.get(key, total + 1):
                                following[key] = total
        best = {
            (ram, stored): energy
            for (ram, stored), energy in following.items()
            if sum(s for v, s in enumerate(size) if ram >> v & 1) <= limit
        }
    return min(best.values(), default=None)


def _reads_late(inputs: int, ram: int, k: int) -> bool:
    """Does operation `k` read something not in RAM that is only made after it?"""
    return bool(inputs & ~ram & ~((1 << k) - 1))


def _subsets(mask: int) -> Iterator[int]:
    subset = mask
    while True:
        yield subset
        if not subset:
            return
        subset = (subset - 1) & mask


def _fits(
    problem: Problem,
    size: list[int],
    inputs: list[int],
    limit: int,
    ram: int,
    runs: int,
    kept: int,
) -> bool:
    """Checkmate's U: what was there and what was made, less what had its last reader and is not
    kept. A tensor that is there and recomputed counts twice and is freed once."""
    used = sum(s for v, s in enumerate(size) if ram >> v & 1)
    if used > limit:
        return False
    order = [k for k in range(len(inputs)) if runs >> k & 1]
    for position, k in enumerate(order):
        used += size[k]
        if used > limit:
            return False
        later = [inputs[j] for j in order[position + 1 :]]
        for v in range(len(size)):
            read = inputs[k] >> v & 1 or v == k
            if read and not kept >> v & 1 and not any(mask >> v & 1 for mask in later):
                used -= size[v]
    return True
