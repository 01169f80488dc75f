"""A first schedule in a fraction of a second: run the operations in order and, when RAM is short,
evict the tensor that is cheapest to get back for the bytes and the time that it makes free."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from poetc.schedule.model.clock import Effort
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Place
from poetc.schedule.model.rebuild import Event, Load, Run, share

# Work to price a tensor, and to bring the operands of a run into RAM.
PRICING, GATHERING = 4.5e-6, 4.5e-5


class _NoRoomError(Exception):
    """A tensor that is wanted cannot be brought into RAM from here."""


class _TooLateError(Exception):
    """The effort is at an end."""


@dataclass(frozen=True)
class Priority:
    """How the greedy chooses. `time_weight` adds energy (nJ) per ns, `distance` is the power of the
    distance to the next use in the score, `page` and `recompute` multiply the prices of the two
    ways."""

    time_weight: float = 0.0
    distance: float = 1.0
    page: float = 1.0
    recompute: float = 1.0


def priorities(instance: Instance) -> Iterator[Priority]:
    """A few different ones, the most usual first."""
    yield Priority()
    yield Priority(distance=0.0)
    yield Priority(recompute=100.0)
    yield Priority(page=100.0)
    yield Priority(distance=3.0)
    if instance.problem.deadline_ns is not None:
        time_ns = max(instance.base_time_ns, 1)
        for weight in (1.0, 10.0, 1000.0):
            yield Priority(time_weight=weight * instance.base_energy / time_ns)
            yield Priority(time_weight=weight * instance.base_energy / time_ns, recompute=100.0)


def greedy(
    instance: Instance,
    ram_bytes: float,
    priority: Priority,
    effort: Effort | None = None,
) -> list[Event] | None:
    """A sequence that fits in `ram_bytes`, or None where this priority leads to a dead end or
    it takes more than the effort."""
    try:
        return _Greedy(instance, ram_bytes, priority, effort or Effort()).sequence()
    except (_NoRoomError, _TooLateError, RecursionError):
        return None


@dataclass
class _State:
    ram: set[int] = field(default_factory=set)
    used: int = 0
    stored: set[int] = field(default_factory=set)
    storage: int = 0
    events: list[Event] = field(default_factory=list)

    def copy(self) -> _State:
        return _State(set(self.ram), self.used, set(self.stored), self.storage, list(self.events))


class _Greedy:
    def __init__(
        self, instance: Instance, ram_bytes: float, priority: Priority, effort: Effort
    ) -> None:
        self.instance, self.limit = instance, ram_bytes
        self.priority, self.effort = priority, effort
        problem = instance.problem
        self.size = [t.bytes for t in problem.tensors]
        ram = {v for v, t in enumerate(problem.tensors) if t.start is Place.RAM}
        stored = {v for v, there in enumerate(instance.stored_at_start) if there}
        # A tensor that must be written in the end has its place on storage from the beginning.
        stored_or_must = stored | {v for v, must in enumerate(instance.must_store) if must}
        self.state = _State(
            ram, sum(self.size[v] for v in ram), stored_or_must, instance.pages_of_end()
        )
        self.stage = 0
        weight = priority.time_weight
        self.run_price = [
            (energy + weight * o.time_ns) * priority.recompute
            for energy, o in zip(instance.run_energy, problem.operations, strict=True)
        ]
        self.in_price = [
            (energy + weight * t.pagein_time_ns) * priority.page
            for energy, t in zip(instance.in_energy, problem.tensors, strict=True)
        ]
        self.out_price = [
            (energy + weight * t.pageout_time_ns) * priority.page
            for energy, t in zip(instance.out_energy, problem.tensors, strict=True)
        ]
        self.uses = [list(r) for r in instance.readers]
        for v in instance.inputs[-1]:
            self.uses[v].append(instance.n)

    def sequence(self) -> list[Event]:
        instance = self.instance
        if self.state.used > self.limit:
            raise _NoRoomError
        for k in range(instance.n + 1):
            self.stage = k
            for v in [v for v in self.state.ram if self.next_use(v) is None]:
                self.drop(v)
            needed = set(instance.inputs[k])
            if k < instance.n:
                self.run(k, frozenset())
            else:
                self.gather(needed, frozenset())
        return self.state.events

    def next_use(self, v: int) -> int | None:
        """The stage that next reads `v`, the present one included."""
        uses = self.uses[v]
        while uses and uses[0] < self.stage:
            uses.pop(0)
        return uses[0] if uses else None

    # Prices

    def page_price(self, v: int) -> float:
        instance = self.instance
        if not instance.pageable[v]:
            return math.inf
        if v in self.state.stored:
            return self.in_price[v]
        limit = instance.problem.storage_bytes
        if limit is not None and self.state.storage + instance.stored_bytes[v] > limit:
            return math.inf
        return self.in_price[v] + self.out_price[v]

    def recompute_price(self, v: int, stage: int) -> float:
        """Price of making `v` again in `stage`, with what is in RAM now. What several operations on
        the way need is paid for by each of them."""
        return self._recompute_price(v, stage, {}, self.instance.params.greedy_chain)

    def _recompute_price(self, v: int, stage: int, known: dict[int, float], depth: int) -> float:
        if v in known:
            return known[v]
        self.effort.spend(PRICING)
        if self.effort.over:
            raise _TooLateError
        k = self.instance.producer[v]
        if k is None or depth == 0 or self.instance.last_recompute[k] < stage or k >= stage:
            return math.inf
        price = self.run_price[k]
        for i in self.instance.inputs[k]:
            if i not in self.state.ram:
                recompute = self._recompute_price(i, stage, known, depth - 1)
                price += min(self.page_price(i), recompute)
                if price == math.inf:
                    break
        known[v] = price
        return price

    def price(self, v: int, stage: int) -> float:
        return min(self.page_price(v), self.recompute_price(v, stage))

    # Actions

    def drop(self, v: int) -> None:
        self.state.ram.discard(v)
        self.state.used -= self.size[v]

    def make_room(self, size: int, pinned: frozenset[int]) -> None:
        """Puts tensors away until `size` more bytes fit."""
        scores: list[tuple[float, int]] | None = None
        while self.state.used + size > self.limit:
            if scores is None:
                scores = sorted(
                    (self.score(v), v)
                    for v in self.state.ram
                    if v not in pinned and self.size[v] > 0
                )
                scores = [entry for entry in scores if entry[0] < math.inf]
            if not scores:
                raise _NoRoomError
            missing = self.state.used + size - self.limit
            # The cheapest that is enough alone, when it is not dearer than the cheapest of all.
            total = {v: score * self.size[v] for score, v in scores}
            enough = [v for v in total if self.size[v] >= missing]
            first = scores[0][1]
            best = min(enough, key=lambda v: (total[v], v), default=first)
            victim = best if total[best] <= total[first] else first
            scores = [entry for entry in scores if entry[1] != victim]
            self.drop(victim)

    def score(self, v: int) -> float:
        use = self.next_use(v)
        if use is None:
            return 0.0
        price = self.price(v, use)
        distance = max(use - self.stage, 0) + 1
        return price / self.size[v] / distance**self.priority.distance

    def gather(self, needed: set[int], pinned: frozenset[int]) -> frozenset[int]:
        """Brings `needed` into RAM; what is recomputed comes first, as remaking takes room."""
        self.effort.spend(GATHERING)
        if self.effort.over:
            raise _TooLateError
        pinned = pinned | (needed & self.state.ram)
        missing = [v for v in sorted(needed) if v not in self.state.ram]
        missing.sort(key=lambda v: self.page_price(v) <= self.recompute_price(v, self.stage))
        for v in missing:
            if v not in self.state.ram:
                self.obtain(v, pinned)
            pinned = pinned | {v}
        return pinned

    def obtain(self, v: int, pinned: frozenset[int]) -> None:
        ways = sorted(
            way
            for way in (
                (self.page_price(v), 0),
                (self.recompute_price(v, self.stage), 1),
            )
            if way[0] < math.inf
        )
        for index, (_, way) in enumerate(ways):
            saved = self.state.copy() if index + 1 < len(ways) else None
            try:
                if way == 0:
                    self.load(v, pinned)
                else:
                    producer = self.instance.producer[v]
                    assert producer is not None
                    self.run(producer, pinned)
                return
            except _NoRoomError:
                if saved is None:
                    raise
                self.state = saved
        raise _NoRoomError

    def load(self, v: int, pinned: frozenset[int]) -> None:
        self.make_room(self.size[v], pinned)
        if v not in self.state.stored:
            self.state.stored.add(v)
            self.state.storage += self.instance.stored_bytes[v]
        self.state.ram.add(v)
        self.state.used += self.size[v]
        self.state.events.append(Load(v))

    def run(self, k: int, pinned: frozenset[int]) -> None:
        instance, state = self.instance, self.state
        operation = instance.operations[k]
        held = self.gather(set(instance.inputs[k]), pinned)
        state = self.state
        for v in operation.outputs:
            if v in state.ram:
                self.drop(v)
        first = k == self.stage
        dying = {
            v for v in operation.inputs if v not in pinned and self._use_after(v, first) is None
        }
        pairs = share(instance.problem, k, dying)
        shared = sum(self.size[o] for o, _ in pairs)
        outputs = sum(self.size[v] for v in operation.outputs)
        try:
            self.make_room(outputs + operation.workspace_bytes - shared, held)
        except _NoRoomError:
            # Let outputs take over the buffers of inputs that can be had again.
            ready = {v for v in operation.inputs if v not in pinned and self._again(v, first)}
            pairs = share(instance.problem, k, dying | ready)
            shared = sum(self.size[o] for o, _ in pairs)
            self.make_room(outputs + operation.workspace_bytes - shared, held)
        for _, i in pairs:
            self.drop(i)
        state.ram.update(operation.outputs)
        state.used += outputs
        state.events.append(Run(k))
        for v in dying:
            if v in state.ram:
                self.drop(v)
        for v in operation.outputs:
            if self.next_use(v) is None and v not in pinned and first:
                self.drop(v)

    def _use_after(self, v: int, first: bool) -> int | None:
        """The next stage that reads `v` once the operation at hand has run."""
        later = [
            use for use in self.uses[v] if use > self.stage or (use == self.stage and not first)
        ]
        return later[0] if later else None

    def _again(self, v: int, first: bool) -> bool:
        use = self._use_after(v, first)
        return use is None or self.price(v, use) < math.inf
