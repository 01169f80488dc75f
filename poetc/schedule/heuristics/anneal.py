"""Simulated annealing of a schedule whose transfers run beside computing.

Where transfers overlap computing, the order of operations, the places of transfers and the choice
of evictions depend on each other. The other heuristics decide them in turn, and miss schedules that
meet a tight deadline. Annealing changes all of them together, one change at a time (Kirkpatrick,
Gelatt, Vecchi: Optimization by simulated annealing, 1983): a step moves, a tensor is evicted and
paged in again, or an eviction is taken back. Each operation runs once, in the variant that it has.

A schedule on the way may exceed the RAM and miss the deadline, at a price. The schedule that is
returned does neither.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Sequence
from typing import NamedTuple

from poetc.schedule.model.checker import replay
from poetc.schedule.model.clock import Effort
from poetc.schedule.model.errors import ScheduleError
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.keep_all import paging_all
from poetc.schedule.model.problem import Compute, Free, PageIn, PageOut, Place, Step
from poetc.schedule.model.rebuild import rebuild

EVALUATE = 7e-7
"""Work of evaluating one step of a schedule."""

MOST_STEPS = 400
"""The longest schedule that is annealed."""

BYTE_NS = 2e3
"""The price of a byte above the RAM, in nanoseconds past the deadline."""

ENERGY = 0.05
"""The price of the energy that no schedule avoids, as a part of the time that none avoids."""

HOT_NS, COLD_NS = 1e5, 2e3
"""The temperature at the beginning and at the end, for a step that takes `SCALE_NS`."""

SCALE_NS = 1e7

COMPUTE, IN, OUT, FREE = range(4)

_Item = tuple[int, int]
"""The kind of a step, and its operation or tensor."""


class _Cost(NamedTuple):
    makespan_ns: int
    excess_bytes: int
    energy_nj: int


def annealed(instance: Instance, effort: Effort, seed: int = 0) -> tuple[Step, ...] | None:
    """The schedule of least energy within all limits that annealing finds; without a deadline, the
    one of least makespan. None where it finds none.

    The search begins with the schedule that pages every operand in for each operation.
    """
    steps = rebuild(instance, paging_all(instance))
    if len(steps) > MOST_STEPS:
        return None
    found = _Annealing(instance, seed).run(_items(instance, steps), effort)
    if found is None:
        return None
    try:
        replay(instance.problem, found)
    except ScheduleError:
        return None
    return found


def _items(instance: Instance, steps: Sequence[Step]) -> list[_Item]:
    """The steps, with a free behind each operation for the operands that its results take over; the
    old value of a parameter has none."""
    items: list[_Item] = []
    for step in steps:
        match step:
            case Compute(k, pairs):
                items.append((COMPUTE, k))
                items += [(FREE, i) for o, i in pairs if instance.tensors[o].replaces != i]
            case PageIn(v):
                items.append((IN, v))
            case PageOut(v):
                items.append((OUT, v))
            case Free(v):
                items.append((FREE, v))
    return items


def _mask(tensors: Sequence[int]) -> int:
    return sum(1 << v for v in set(tensors))


class _Annealing:
    def __init__(self, instance: Instance, seed: int) -> None:
        problem, tensors = instance.problem, instance.tensors
        self.instance, self.problem = instance, problem
        self.random = random.Random(seed)
        self.bytes = [t.bytes for t in tensors]
        self.inputs = [tuple(dict.fromkeys(o.inputs)) for o in problem.operations]
        self.reads = [_mask(o.inputs) for o in problem.operations]
        self.made = [_mask(o.outputs) for o in problem.operations]
        self.made_bytes = [sum(self.bytes[v] for v in o.outputs) for o in problem.operations]
        self.replaced = [
            [old for v in o.outputs if (old := tensors[v].replaces) is not None]
            for o in problem.operations
        ]
        self.pairs = [
            [(o, i) for o, i in operation.inplace if tensors[o].replaces != i]
            for operation in problem.operations
        ]
        self.in_ram = _mask([v for v, t in enumerate(tensors) if t.start is Place.RAM])
        self.stored = _mask([v for v, t in enumerate(tensors) if t.start is Place.STORAGE])
        self.end_ram = _mask([v for v, t in enumerate(tensors) if t.end is Place.RAM])
        self.end_stored = _mask([v for v, t in enumerate(tensors) if t.end is Place.STORAGE])
        self.pageable = [v for v, may in enumerate(instance.pageable) if may]
        self.used_bytes = sum(t.bytes for t in tensors if t.start is Place.RAM)
        self.stored_bytes = [t.stored_bytes for t in tensors]
        self.pages_bytes = sum(t.stored_bytes for t in tensors if t.start is Place.STORAGE)
        self.busy_nj = sum(o.energy_nj for o in problem.operations)
        # Prices, in ns.
        base_ns = max(instance.base_time_ns, 1)
        self.energy_price = ENERGY * base_ns / max(instance.base_energy, 1.0)
        self.scale = base_ns / SCALE_NS

    def run(self, items: list[_Item], effort: Effort) -> tuple[Step, ...] | None:
        """The best steps within the limits; None where none are found."""
        cost = self._evaluate(items)
        if cost is None:
            return None
        price, all_work = self._price(cost), max(effort.left, 1e-9)
        best: list[_Item] | None = None
        least = (math.inf, math.inf)
        while True:
            if cost.excess_bytes == 0 and self._late_ns(cost) <= 0 and self._rank(cost) < least:
                best, least = items, self._rank(cost)
            if effort.over:
                break
            part = effort.left / all_work
            heat = self.scale * (HOT_NS * part * part + COLD_NS)
            effort.spend(EVALUATE * len(items))
            trial = self._moved(items)
            found = self._evaluate(trial) if trial is not None else None
            if trial is None or found is None:
                continue
            paid = self._price(found)
            if paid <= price or self.random.random() < math.exp((price - paid) / heat):
                items, cost, price = trial, found, paid
        return None if best is None else self._steps(best)

    def _late_ns(self, cost: _Cost) -> int:
        deadline_ns = self.problem.deadline_ns
        return 0 if deadline_ns is None else cost.makespan_ns - deadline_ns

    def _rank(self, cost: _Cost) -> tuple[float, float]:
        timed = self.problem.deadline_ns is not None
        first, second = (cost.energy_nj, cost.makespan_ns)
        return (first, second) if timed else (second, first)

    def _price(self, cost: _Cost) -> float:
        late_ns = max(self._late_ns(cost), 0)
        if self.problem.deadline_ns is None:
            late_ns = cost.makespan_ns
        return (
            late_ns + BYTE_NS * self.scale * cost.excess_bytes + self.energy_price * cost.energy_nj
        )

    # Moves

    def _moved(self, items: list[_Item]) -> list[_Item] | None:
        """The steps after a random move; the move may be impossible (None), the steps invalid."""
        turn = self.random.random()
        if turn < 0.75:
            return self._shifted(items)
        if turn < 0.85:
            return self._evicted(items)
        if turn < 0.92:
            return self._kept(items)
        return self._freed_early(items)

    def _shifted(self, items: list[_Item]) -> list[_Item]:
        """Moves a step, near more often than far."""
        trial = items[:]
        at = self.random.randrange(len(trial))
        item = trial.pop(at)
        far = 3 if self.random.random() < 0.5 else 20
        trial.insert(max(0, at + self.random.randint(-far, far)), item)
        return trial

    def _evicted(self, items: list[_Item]) -> list[_Item] | None:
        """Evicts a tensor and pages it in again later; pages it out before if it has no page."""
        if not self.pageable:
            return None
        v = self.random.choice(self.pageable)
        first, second = sorted(self.random.randrange(len(items) + 1) for _ in range(2))
        leave = [(FREE, v)]
        if not self.stored >> v & 1 and (OUT, v) not in items[:first]:
            leave = [(OUT, v), (FREE, v)]
        between = [item for item in items[first:] if item != (OUT, v)] if len(leave) > 1 else None
        if between is None:
            return [*items[:first], *leave, *items[first:second], (IN, v), *items[second:]]
        second = min(second - first, len(between))
        return [*items[:first], *leave, *between[:second], (IN, v), *between[second:]]

    def _kept(self, items: list[_Item]) -> list[_Item] | None:
        """Takes an eviction back, or a page-out that the end of the step does not need."""
        at = self.random.randrange(len(items))
        kind, v = items[at]
        if kind == FREE and (IN, v) in items[at:]:
            back = items.index((IN, v), at)
            return [*items[:at], *items[at + 1 : back], *items[back + 1 :]]
        if kind == OUT and not self.end_stored >> v & 1:
            return [*items[:at], *items[at + 1 :]]
        return None

    def _freed_early(self, items: list[_Item]) -> list[_Item] | None:
        """Frees a tensor right after its last use; drops a page-in that nothing uses."""
        at = self.random.randrange(len(items))
        kind, v = items[at]
        if kind != FREE:
            return None
        use = at - 1
        while use >= 0 and not self._uses(items[use], v):
            use -= 1
        if use >= 0 and items[use] == (IN, v):
            return [*items[:use], *items[use + 1 : at], *items[at + 1 :]]
        return [*items[: use + 1], (FREE, v), *items[use + 1 : at], *items[at + 1 :]]

    def _uses(self, item: _Item, v: int) -> bool:
        kind, k = item
        if kind != COMPUTE:
            return k == v
        return bool(self.reads[k] >> v & 1) or v in self.problem.operations[k].outputs

    # The machine, by the rules of the checker

    def _pairs_at(self, items: list[_Item], at: int) -> list[tuple[int, int]]:
        """The pairs in place of operation `at`, for the operands that are freed right behind it."""
        pairs = self.pairs[items[at][1]]
        if not pairs:
            return pairs
        freed: set[int] = set()
        behind = at + 1
        while behind < len(items) and items[behind][0] == FREE:
            freed.add(items[behind][1])
            behind += 1
        taken: list[tuple[int, int]] = []
        for o, i in pairs:
            if i in freed and all(o != a and i != b for a, b in taken):
                taken.append((o, i))
        return taken

    def _evaluate(self, items: list[_Item]) -> _Cost | None:
        """Makespan, bytes above the RAM summed over the steps, energy; None for invalid steps."""
        problem, tensors, size = self.problem, self.problem.tensors, self.bytes
        ram, stored, gone, taken = self.in_ram, self.stored, 0, 0
        used, pages = self.used_bytes, self.pages_bytes
        limit = sys.maxsize if problem.ram_bytes is None else problem.ram_bytes
        most_pages = math.inf if problem.storage_bytes is None else problem.storage_bytes
        arrives: dict[int, int] = {}
        leaves: dict[int, int] = {}
        clock = bus = excess = 0
        energy = self.busy_nj
        if used > limit:
            return None
        for at, (kind, k) in enumerate(items):
            if kind == COMPUTE:
                made = self.made[k]
                if self.reads[k] & ~ram or ram & made:
                    return None
                operation = problem.operations[k]
                for v in self.inputs[k]:
                    if v in arrives and arrives[v] > clock:
                        clock = arrives[v]
                now = used + operation.workspace_bytes + self.made_bytes[k]
                old = self.replaced[k]
                pairs = self._pairs_at(items, at)
                for i in (*old, *[i for _, i in pairs]):
                    if i in leaves and leaves[i] > clock:
                        clock = leaves[i]
                    ram &= ~(1 << i)
                    used -= size[i]
                for i in old:
                    gone |= 1 << i
                    now -= size[i]
                for o, i in pairs:
                    now -= min(size[o], size[i])
                    taken |= 1 << i
                if now > limit:
                    excess += now - limit
                ram |= made
                used += self.made_bytes[k]
                clock += operation.time_ns
            elif kind == IN:
                if ram >> k & 1 or not stored >> k & 1 or gone >> k & 1:
                    return None
                ram |= 1 << k
                used += size[k]
                if used > limit:
                    excess += used - limit
                bus = max(clock, bus) + tensors[k].pagein_time_ns
                arrives[k] = bus
                energy += tensors[k].pagein_energy_nj
            elif kind == OUT:
                if not ram >> k & 1 or stored >> k & 1:
                    return None
                stored |= 1 << k
                pages += self.stored_bytes[k]
                if pages > most_pages:
                    return None
                bus = max(clock, bus) + tensors[k].pageout_time_ns
                leaves[k] = bus
                energy += tensors[k].pageout_energy_nj
            elif taken >> k & 1:
                taken &= ~(1 << k)
            elif ram >> k & 1:
                clock = max(clock, arrives.get(k, 0), leaves.get(k, 0))
                ram &= ~(1 << k)
                used -= size[k]
            else:
                return None
        if ram != self.end_ram or self.end_stored & ~stored:
            return None
        makespan = max(clock, bus)
        energy += -(-problem.idle_power_nw * makespan // 10**9)
        return _Cost(makespan, excess, energy)

    def _steps(self, items: list[_Item]) -> tuple[Step, ...]:
        """The items as steps of a schedule."""
        steps: list[Step] = []
        taken: set[int] = set()
        tensors = self.problem.tensors
        for at, (kind, k) in enumerate(items):
            if kind == COMPUTE:
                pairs = self._pairs_at(items, at)
                taken |= {i for _, i in pairs}
                new = [
                    (v, old)
                    for v in self.problem.operations[k].outputs
                    if (old := tensors[v].replaces) is not None
                ]
                steps.append(Compute(k, (*new, *pairs)))
            elif kind == FREE and k in taken:
                taken.remove(k)
            else:
                steps.append({IN: PageIn, OUT: PageOut, FREE: Free}[kind](k))
        return tuple(steps)
