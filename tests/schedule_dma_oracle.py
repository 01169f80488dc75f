"""Brute force with DMA: the cheapest schedule of a tiny problem by the checker's timeline.

A state is (stage, last operation run again in it, set in RAM, set on storage, the time that
computing has reached, that at which the bus is free, and when the transfers of each tensor that are
not over yet will be). Dijkstra over all steps: operations run again as the stage rules allow, and
anything may be freed, paged in or paged out between runs. Knows nothing of `poetc.schedule` but the
problem.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator

from poetc.schedule.model.problem import Place, Problem

_State = tuple[int, int, int, int, int, int, tuple[tuple[int, int, int], ...]]


def cheapest(problem: Problem) -> int | None:
    """Least energy (nJ), idle power included, or None if there is no schedule."""
    assert problem.dma
    return _Oracle(problem).search()


class _Oracle:
    def __init__(self, problem: Problem) -> None:
        self.problem, self.n = problem, len(problem.operations)
        self.size = [t.bytes for t in problem.tensors]
        self.replaced = {
            t.replaces: v for v, t in enumerate(problem.tensors) if t.replaces is not None
        }
        producers = problem.producers()
        self.gone_after = {old: producers[new] or 0 for old, new in self.replaced.items()}

    def bytes_of(self, mask: int) -> int:
        return sum(size for v, size in enumerate(self.size) if mask >> v & 1)

    def pages_of(self, mask: int) -> int:
        tensors = self.problem.tensors
        return sum(t.stored_bytes for v, t in enumerate(tensors) if mask >> v & 1)

    def mask(self, at: str, place: Place) -> int:
        return sum(1 << v for v, t in enumerate(self.problem.tensors) if getattr(t, at) is place)

    def search(self) -> int | None:
        problem = self.problem
        ram, storage, deadline = problem.ram_bytes, problem.storage_bytes, problem.deadline_ns
        self.ram = 10**9 if ram is None else ram
        self.storage = 10**9 if storage is None else storage
        start: _State = (
            0,
            -1,
            self.mask("start", Place.RAM),
            self.mask("start", Place.STORAGE),
            0,
            0,
            (),
        )
        if self.bytes_of(start[2]) > self.ram or self.pages_of(start[3]) > self.storage:
            return None
        end_ram, end_storage = self.mask("end", Place.RAM), self.mask("end", Place.STORAGE)
        order = itertools.count()
        queue: list[tuple[int, int, int, _State]] = [(0, next(order), 0, start)]
        seen: set[_State] = set()
        while queue:
            price, _, energy, state = heapq.heappop(queue)
            key = self.key(state)
            if key in seen:
                continue
            seen.add(key)
            stage, _, in_ram, stored, clock, bus, _ = state
            if stage == self.n and in_ram == end_ram and stored & end_storage == end_storage:
                return -(-price // 10**9)
            for more, following in self.moves(state):
                clock, bus = following[4], following[5]
                if deadline is not None and max(clock, bus) > deadline:
                    continue
                if self.key(following) not in seen:
                    price = (energy + more) * 10**9 + problem.idle_power_nw * max(clock, bus)
                    heapq.heappush(queue, (price, next(order), energy + more, following))
        return None

    def key(self, state: _State) -> _State:
        """Without a deadline only how much later than computing transfers end is of interest."""
        if self.problem.deadline_ns is not None:
            return state
        stage, last, ram, stored, clock, bus, flying = state
        left = tuple((v, arrival - clock, end - clock) for v, arrival, end in flying)
        return stage, last, ram, stored, 0, bus - clock, left

    def moves(self, state: _State) -> Iterator[tuple[int, _State]]:
        stage, last, ram, stored, clock, bus, flying = state
        ends = {v: (arrival, end) for v, arrival, end in flying}

        def after(
            clock: int, bus: int, ends: dict[int, tuple[int, int]]
        ) -> tuple[int, int, tuple[tuple[int, int, int], ...]]:
            late = sorted((v, max(a, clock), e) for v, (a, e) in ends.items() if e > clock)
            # Without transfers under way only the clock counts.
            return clock, max(bus, clock), tuple(late)

        used = self.bytes_of(ram)
        for v, tensor in enumerate(self.problem.tensors):
            bit = 1 << v
            if ram & bit:
                waits = max(clock, ends.get(v, (0, 0))[1])
                yield 0, (stage, last, ram & ~bit, stored, *after(waits, bus, ends))
                new = stored | bit
                if tensor.pageable and new != stored and self.pages_of(new) <= self.storage:
                    done = max(clock, bus) + tensor.pageout_time_ns
                    arrival = ends.get(v, (clock, 0))[0]
                    others = {**ends, v: (arrival, done)}
                    yield (
                        tensor.pageout_energy_nj,
                        (stage, last, ram, new, *after(clock, done, others)),
                    )
            elif stored & bit and used + tensor.bytes <= self.ram:
                if self.gone_after.get(v, self.n) < stage and v in self.gone_after:
                    continue
                done = max(clock, bus) + tensor.pagein_time_ns
                others = {**ends, v: (done, max(done, ends.get(v, (0, 0))[1]))}
                yield (
                    tensor.pagein_energy_nj,
                    (stage, last, ram | bit, stored, *after(clock, done, others)),
                )
        for k in range(last + 1, min(stage + 1, self.n)):
            operation = self.problem.operations[k]
            if k < stage and not operation.repeatable:
                continue
            if any(self.gone_after.get(v, self.n) < stage for v in operation.inputs):
                continue
            for way in (None, *operation.variants):
                away = frozenset() if way is None else way.streamed
                cost = operation if way is None else way
                inputs = sum(1 << v for v in set(operation.inputs) - away)
                outputs = sum(1 << v for v in set(operation.outputs) - away)
                read = sum(1 << v for v in set(operation.inputs) & away)
                written = sum(1 << v for v in set(operation.outputs) & away)
                if ram & inputs != inputs or ram & (outputs | written):
                    continue
                if stored & read != read or stored & written:
                    continue
                if self.pages_of(stored | written) > self.storage:
                    continue
                needed = used + self.bytes_of(outputs) + cost.workspace_bytes
                for pairs in _matchings(tuple(dict.fromkeys(operation.inplace))):
                    if not away.isdisjoint(v for pair in pairs for v in pair):
                        continue
                    if any(
                        (v, self.problem.tensors[v].replaces) not in pairs
                        for v in set(operation.outputs) - away
                        if self.problem.tensors[v].replaces is not None
                    ):
                        continue
                    if needed - sum(self.size[o] for o, _ in pairs) > self.ram:
                        continue
                    begin = max(
                        clock,
                        *(ends.get(v, (0, 0))[0] for v in set(operation.inputs) - away),
                        *(ends.get(i, (0, 0))[1] for _, i in pairs),
                        bus if away else 0,
                        0,
                    )
                    following, ran = (stage + 1, -1) if k == stage else (stage, k)
                    left = ram & ~sum(1 << i for _, i in pairs) | outputs
                    end = begin + cost.time_ns
                    times = after(end, end if away else bus, ends)
                    yield cost.energy_nj, (following, ran, left, stored | written, *times)


def _matchings(pairs: tuple[tuple[int, int], ...]) -> Iterator[tuple[tuple[int, int], ...]]:
    for number in range(len(pairs) + 1):
        for chosen in itertools.combinations(pairs, number):
            if all(len(set(side)) == number for side in zip(*chosen, strict=True)):
                yield chosen
