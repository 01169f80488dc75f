"""Schedules of large problems in seconds: the sequence that keeps everything is repaired wherever
it exceeds the RAM, and the repairs are improved by taking some out and repairing again.

A `Timeline` has every operation once, in order, and *repairs*: a recompute in a stage, or a page-in
just before a run. RAM is known for each stage and follows each repair in time that does not depend
on the number of stages in Python. Where RAM is exceeded most, the tensors that lie idle there are
candidates: one is evicted until its next reader, for which it is paged in or recomputed (with a
chain of its ancestors, where its operands are not there and cannot be kept). The one that costs
least for the excess that it takes away, in all stages, is chosen.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Place
from poetc.schedule.model.rebuild import Event, Load, Run, share

# A tensor is not recomputed by a longer chain of recomputes than this.
LONGEST = 6
# Plans that are tried, cheapest first, and how many before the present excess counts as hopeless.
FEW, TRIES = 3, 100

# Rounds without a better sequence before the search ends, and attempts at a first one.
PATIENCE = 40
ATTEMPTS = 20

MAKE, READ, LOAD = 0, 1, 2

Repair = tuple[int, int, int]
"""(stage, operation, −1): the operation runs again in the stage. (stage, operation, tensor): the
tensor is paged in just before that run."""


@dataclass(frozen=True)
class Plan:
    """Repairs that belong together; what they cost, and the excess (bytes × stages) they cause."""

    price: float
    harm: float
    repairs: tuple[Repair, ...]


class Timeline:
    """Every operation once and the repairs so far, with the RAM of each stage.

    A run is identified by a key that orders it: `stage · (n + 1) + operation`. Each tensor has the
    sorted keys that make, read or page it in; it is in RAM from one that makes or pages it in to
    the last that reads it before the next of those.
    """

    def __init__(self, instance: Instance, limit: float, time_weight: float = 0.0) -> None:
        self.instance, self.limit = instance, limit
        problem = instance.problem
        n = self.n = instance.n
        self.width = n + 1
        self.size = [t.bytes for t in problem.tensors]
        self.outputs = [tuple(o.outputs) for o in problem.operations] + [()]
        self.output_bytes = [sum(self.size[v] for v in made) for made in self.outputs]
        self.workspace = [o.workspace_bytes for o in problem.operations] + [0]
        self.run_price = [
            energy + time_weight * o.time_ns
            for energy, o in zip(instance.run_energy, problem.operations, strict=True)
        ]
        self.in_price = [
            energy + time_weight * t.pagein_time_ns
            for energy, t in zip(instance.in_energy, problem.tensors, strict=True)
        ]
        self.out_price = [
            energy + time_weight * t.pageout_time_ns
            for energy, t in zip(instance.out_energy, problem.tensors, strict=True)
        ]
        # Tensors whose page every schedule has.
        self.stored = [
            a or b for a, b in zip(instance.stored_at_start, instance.must_store, strict=True)
        ]
        room = problem.storage_bytes
        self.storage = math.inf if room is None else room - instance.pages_of_end()
        self.loads = [0] * len(self.size)  # how often each tensor is paged in
        self.price = 0.0
        self.recomputes: list[list[int]] = [[] for _ in range(n + 1)]
        self.keys: list[list[int]] = [[] for _ in self.size]
        self.kinds: list[list[int]] = [[] for _ in self.size]
        self.base = np.zeros(n + 1, dtype=np.int64)
        self.peak = np.zeros(n + 1, dtype=np.int64)
        self._dirty: set[int] = set()
        self.journal: list[tuple[bool, Repair]] = []
        for v, tensor in enumerate(problem.tensors):
            if tensor.start is Place.RAM:
                self.keys[v].append(-1)
                self.kinds[v].append(MAKE)
        for k in range(n + 1):
            key = k * self.width + k
            for v in instance.inputs[k]:
                first = not self.keys[v] and instance.stored_at_start[v]
                self.loads[v] += first
                self.keys[v].append(key)
                self.kinds[v].append(LOAD if first else READ)
            for v in self.outputs[k]:
                self.keys[v].append(key)
                self.kinds[v].append(MAKE)
        for v in range(len(self.size)):
            for start, end in self._live_ranges(v):
                self.base[start // self.width + 1 : end // self.width + 1] += self.size[v]
        for t in range(n + 1):
            self.peak[t] = max(self._uses(t), default=(0, 0))[0]

    # State

    @property
    def excess(self) -> np.ndarray:
        """Bytes above the limit in each stage; negative where there is room."""
        return self.peak - self.limit

    def total_excess(self) -> float:
        """Sum over the stages of the bytes above the limit."""
        return float(np.maximum(self.excess, 0).sum())

    @property
    def paged(self) -> bool:
        """Is anything paged in?"""
        return any(self.loads)

    def repairs(self) -> list[Repair]:
        """Everything that may be taken out again."""
        result = [(t, k, -1) for t, again in enumerate(self.recomputes) for k in again]
        for v, count in enumerate(self.loads):
            if count > self.instance.stored_at_start[v]:
                result += [
                    (key // self.width, key % self.width, v)
                    for index, key in enumerate(self.keys[v])
                    if self.kinds[v][index] == LOAD
                    and not (index == 0 and self.instance.stored_at_start[v])
                ]
        return result

    def events(self) -> list[Event]:
        """The sequence of runs and page-ins."""
        loads: dict[int, list[int]] = {}
        for v, count in enumerate(self.loads):
            if count:
                for key, kind in zip(self.keys[v], self.kinds[v], strict=True):
                    if kind == LOAD:
                        loads.setdefault(key, []).append(v)
        result: list[Event] = []
        for t in range(self.n + 1):
            for k in (*self.recomputes[t], t):
                result += [Load(v) for v in loads.get(t * self.width + k, ())]
                if k < self.n:
                    result.append(Run(k))
        return result

    def _live_ranges(self, v: int) -> list[tuple[int, int]]:
        """The keys between which `v` is in RAM."""
        ranges: list[tuple[int, int]] = []
        start = end = 0
        for index, (key, kind) in enumerate(zip(self.keys[v], self.kinds[v], strict=True)):
            if kind != READ:
                if index:
                    ranges.append((start, end))
                start = key
            end = key
        if self.keys[v]:
            ranges.append((start, end))
        return ranges

    def _uses(self, t: int) -> Iterable[tuple[int, int]]:
        """(bytes in use, operation) of each run in stage `t`."""
        used = int(self.base[t])
        instance, size, keys, kinds = self.instance, self.size, self.keys, self.kinds
        for k in (*self.recomputes[t], t):
            key = t * self.width + k
            dying = []
            for v in instance.inputs[k]:
                times = keys[v]
                index = bisect_left(times, key)
                if kinds[v][index] == LOAD:
                    used += size[v]
                if index + 1 == len(times) or kinds[v][index + 1] != READ:
                    dying.append(v)
            if k == self.n:
                yield used, k
                return
            used += self.output_bytes[k]
            shared = 0
            if dying and instance.operations[k].inplace:
                pairs = share(instance.problem, k, set(dying))
                shared = sum(size[o] for o, _ in pairs)
            yield used + self.workspace[k] - shared, k
            for v in self.outputs[k]:
                index = bisect_left(keys[v], key)
                if index + 1 == len(keys[v]) or kinds[v][index + 1] != READ:
                    used -= size[v]
            used -= sum(size[v] for v in dying)

    # Changes

    def _touch(self, v: int, key: int, kind: int | None) -> None:
        """Puts a use of `v` at `key`, changes its kind, or takes it away (None)."""
        before = self._live_ranges(v)
        keys, kinds = self.keys[v], self.kinds[v]
        index = bisect_left(keys, key)
        there = index < len(keys) and keys[index] == key
        if kind is None:
            del keys[index], kinds[index]
        elif there:
            kinds[index] = kind
        else:
            keys.insert(index, key)
            kinds.insert(index, kind)
        after = self._live_ranges(v)
        width, size = self.width, self.size[v]
        self._dirty.add(key // width)
        for ranges, others, sign in ((before, after, -size), (after, before, size)):
            for live in ranges:
                if live not in others:
                    first, last = live[0] // width, live[1] // width
                    self._dirty.update((first, last))
                    if first < last:
                        self.base[first + 1 : last + 1] += sign
                        self.peak[first + 1 : last + 1] += sign

    def _settle(self) -> None:
        """The RAM of the stages in which something begins or ends."""
        self._dirty.discard(-1)
        for t in self._dirty:
            self.peak[t] = max(self._uses(t))[0]
        self._dirty.clear()

    def _put(self, repair: Repair) -> None:
        t, k, v = repair
        key = t * self.width + k
        if v >= 0:
            self._touch(v, key, LOAD)
            self.price += self.in_price[v]
            if not self.loads[v] and not self.stored[v]:
                self.price += self.out_price[v]
                self.storage -= self.size[v]
            self.loads[v] += 1
            return
        again = self.recomputes[t]
        again.insert(bisect_left(again, k), k)
        self.price += self.run_price[k]
        for i in self.instance.inputs[k]:
            self._touch(i, key, READ)
        for o in self.outputs[k]:
            self._touch(o, key, MAKE)

    def _take(self, repair: Repair) -> None:
        t, k, v = repair
        key = t * self.width + k
        if v >= 0:
            self._touch(v, key, READ)
            self.loads[v] -= 1
            self.price -= self.in_price[v]
            if not self.loads[v] and not self.stored[v]:
                self.price -= self.out_price[v]
                self.storage += self.size[v]
            return
        self.recomputes[t].remove(k)
        self.price -= self.run_price[k]
        for i in self.instance.inputs[k]:
            self._touch(i, key, None)
        for o in self.outputs[k]:
            self._touch(o, key, None)

    def add(self, repairs: Iterable[Repair]) -> None:
        """Makes these repairs, but for those that there are already."""
        # A page-in belongs to a run, which has to be there first.
        for repair in sorted(repairs, key=lambda m: m[2] >= 0):
            if not self._there(repair):
                self._put(repair)
                self.journal.append((True, repair))
        self._settle()

    def remove(self, repairs: Iterable[Repair]) -> None:
        """Takes these repairs out, and all that only they needed."""
        pending = list(repairs)
        while pending:
            repair = pending.pop()
            t, k, v = repair
            key = t * self.width + k
            if not self._there(repair):
                continue
            if v < 0:
                loaded = [i for i in self.instance.inputs[k] if self._kind(i, key) == LOAD]
                for i in loaded:
                    self._take((t, k, i))
                    self.journal.append((False, (t, k, i)))
            self._take(repair)
            self.journal.append((False, repair))
            if v < 0:
                pending += [m for i in self.instance.inputs[k] for m in self._useless(i, key)]
            else:
                pending += self._useless(v, key)
        self._settle()

    def _kind(self, v: int, key: int) -> int | None:
        index = bisect_left(self.keys[v], key)
        there = index < len(self.keys[v]) and self.keys[v][index] == key
        return self.kinds[v][index] if there else None

    def _there(self, repair: Repair) -> bool:
        t, k, v = repair
        if v >= 0:
            return self._kind(v, t * self.width + k) == LOAD
        return k in self.recomputes[t]

    def _useless(self, v: int, key: int) -> list[Repair]:
        """The recompute that made `v` for `key`, if nothing reads what it makes any more."""
        index = bisect_left(self.keys[v], key) - 1
        while index >= 0 and self.kinds[v][index] == READ:
            index -= 1
        if index < 0 or self.kinds[v][index] == LOAD:
            return []
        t, k = divmod(self.keys[v][index], self.width)
        if t < 0 or k == t:
            return []
        made = t * self.width + k
        for o in self.outputs[k]:
            after = bisect_left(self.keys[o], made) + 1
            if after < len(self.keys[o]) and self.kinds[o][after] == READ:
                return []
        return [(t, k, -1)]

    def undo(self, mark: int) -> None:
        """Back to when the journal had `mark` entries."""
        while len(self.journal) > mark:
            added, repair = self.journal.pop()
            if added:
                self._take(repair)
            else:
                self._put(repair)
        self._settle()

    # Plans

    def worst(self) -> tuple[int, int]:
        """The stage with the greatest excess, and the key of the run in it that needs most."""
        t = int(np.argmax(self.peak))
        k = max(self._uses(t))[1]
        return t, t * self.width + k

    def idle(self, key: int) -> list[tuple[int, int, int]]:
        """(tensor, keys of its uses before and after) of what only lies in RAM at `key`."""
        found = []
        for v, keys in enumerate(self.keys):
            if not keys or keys[0] >= key or keys[-1] <= key or not self.size[v]:
                continue
            index = bisect_left(keys, key)
            if keys[index] != key and self.kinds[v][index] == READ:
                found.append((v, keys[index - 1], keys[index]))
        return found

    def relief(self, v: int, before: int, after: int, excess: np.ndarray) -> float:
        """Excess that goes when `v` is away between two uses."""
        first, last = before // self.width + 1, after // self.width
        # In the last stage it is away only until it is brought back.
        inside = excess[first : max(last, first + 1)]
        return float(np.minimum(inside[inside > 0], self.size[v]).sum())

    def harm(self, size: int, first: int, last: int, excess: np.ndarray) -> float:
        """Excess that `size` more bytes in the stages `first` to `last` make."""
        if first > last:
            return 0.0
        inside = excess[first : last + 1]
        more = inside + size
        if more.max() <= 0:
            return 0.0
        return float((np.maximum(more, 0) - np.maximum(inside, 0)).sum())

    def page_price(self, v: int) -> float:
        """Price of paging `v` in once more."""
        if not self.instance.pageable[v]:
            return math.inf
        if self.loads[v] or self.stored[v]:
            return self.in_price[v]
        return self.in_price[v] + self.out_price[v] if self.size[v] <= self.storage else math.inf

    def plans(
        self, v: int, before: int, after: int, rate: float, excess: np.ndarray, most: float
    ) -> list[Plan]:
        """Ways to have `v` again at `after` when it is evicted until then. `rate` is what an
        excess of one byte is worth; plans that are dearer than `most` need not be found."""
        t, k = divmod(after, self.width)
        found = []
        page = self.page_price(v)
        if page < math.inf:
            found.append(Plan(page, 0.0, ((t, k, v),)))
        maker = self.instance.producer[v]
        if maker is not None and before >= 0:
            plan = _Stage(self, t, rate, excess).recompute(maker, most, LONGEST)
            if plan is not None:
                found.append(plan)
        return found


class _Stage:
    """Finds out how operations can run again in one stage."""

    def __init__(self, line: Timeline, t: int, rate: float, excess: np.ndarray) -> None:
        self.line, self.t, self.rate, self.excess = line, t, rate, excess
        self.known: dict[int, Plan] = {}
        self.dearer: dict[int, float] = {}  # operations whose plan is known to cost at least this
        self.keep: dict[int, float] = {}

    def value(self, plan: Plan) -> float:
        return plan.price + self.rate * plan.harm

    def recompute(self, k: int, most: float, depth: int) -> Plan | None:
        """How to run `k` again, or None where that is impossible or worth more than `most`. What
        two operands need is paid for twice."""
        line, t = self.line, self.t
        if k in self.known:
            return self.known[k] if self.value(self.known[k]) < most else None
        price = line.run_price[k]
        if max(price, self.dearer.get(k, 0.0)) >= most:
            return None
        if depth == 0 or k >= t or line.instance.last_recompute[k] < t or k in line.recomputes[t]:
            return None
        key = t * line.width + k
        value, harm = price, 0.0
        repairs: dict[Repair, None] = {}
        for i in line.instance.inputs[k]:
            keys = line.keys[i]
            index = bisect_left(keys, key)
            if 0 < index < len(keys) and line.kinds[i][index] == READ:
                continue
            best: Plan | None = None
            if index:
                best = Plan(0.0, self._kept(i, keys[index - 1]), ())
            page = line.page_price(i)
            if page < math.inf and (best is None or page < self.value(best)):
                best = Plan(page, 0.0, ((t, k, i),))
            maker = line.instance.producer[i]
            if maker is not None:
                room = most - value if best is None else min(most - value, self.value(best))
                best = self.recompute(maker, room, depth - 1) or best
            if best is None:
                self.dearer[k] = max(self.dearer.get(k, 0.0), most)
                return None
            value += self.value(best)
            if value >= most:
                self.dearer[k] = max(self.dearer.get(k, 0.0), most)
                return None
            price += best.price
            harm += best.harm
            repairs |= dict.fromkeys(best.repairs)
        repairs[t, k, -1] = None
        plan = self.known[k] = Plan(price, harm, tuple(repairs))
        return plan

    def _kept(self, v: int, last: int) -> float:
        """Harm of keeping `v` until this stage from its last use on."""
        harm = self.keep.get(v)
        if harm is None:
            line = self.line
            harm = line.harm(line.size[v], last // line.width + 1, self.t, self.excess)
            self.keep[v] = harm
        return harm


def fit(
    line: Timeline, rng: random.Random, noise: float, stop: Callable[[], bool], ceiling: float
) -> bool:
    """Repairs until nothing exceeds the RAM. False when it is stuck, told to stop, or dearer than
    `ceiling`. `noise` is the spread of the random factors on the prices."""
    rate = 0.0
    enough = FEW
    while not stop():
        total = line.total_excess()
        if total <= 0:
            return True
        if line.price >= ceiling:
            return False
        t, key = line.worst()
        excess = line.excess
        candidates = []
        for v, before, after in line.idle(key):
            relief = line.relief(v, before, after, excess)
            if relief <= 0:
                # The run in excess and the next use are in one stage.
                relief = float(min(line.size[v], excess[t]))
            maker = line.instance.producer[v]
            least = min(line.page_price(v), math.inf if maker is None else line.run_price[maker])
            if least < math.inf:
                factor = 1.0 + noise * rng.random()
                candidates.append((least * factor / relief, v, before, after, relief, factor))
        candidates.sort()
        chosen: list[tuple[float, Plan]] = []
        for least, v, before, after, relief, factor in candidates:
            # No plan for the rest is cheaper than those there are already.
            if len(chosen) >= enough and least >= chosen[enough - 1][0]:
                break
            most = chosen[enough - 1][0] * relief / factor if len(chosen) >= enough else math.inf
            for plan in line.plans(v, before, after, 2 * rate or least, excess, most):
                gain = relief - plan.harm
                score = plan.price * factor / gain if gain > 0 else math.inf
                chosen.append((score, plan))
            chosen.sort(key=lambda entry: entry[0])
        done = False
        for score, plan in chosen[:enough]:
            mark = len(line.journal)
            line.add(plan.repairs)
            if line.total_excess() < total and line.storage >= 0:
                rate = score if score < math.inf else rate
                done = True
                break
            line.undo(mark)
        if not done and enough == TRIES:
            return False
        enough = FEW if done else TRIES
    return False


def thin(line: Timeline, stop: Callable[[], bool]) -> None:
    """Takes out the repairs, dearest first, that nothing needs any more."""
    found = line.repairs()

    def price(repair: Repair) -> float:
        return line.run_price[repair[1]] if repair[2] < 0 else line.in_price[repair[2]]

    for repair in sorted(found, key=lambda m: (-price(m), m)):
        if stop():
            return
        mark, before = len(line.journal), line.price
        line.remove([repair])
        if line.total_excess() > 0 or line.price >= before:
            line.undo(mark)


def squeeze(
    instance: Instance,
    least: int,
    found: Callable[[list[Event]], object],
    stop: Callable[[], bool],
    seed: int = 0,
) -> None:
    """Looks for sequences with less and less RAM, whatever they cost, down to `least` bytes."""
    line = Timeline(instance, math.inf)
    _descend(line, random.Random(seed), least, lambda: found(line.events()), stop)


def _descend(
    line: Timeline,
    rng: random.Random,
    least: float,
    found: Callable[[], object],
    stop: Callable[[], bool],
) -> bool:
    """Repairs for less and less RAM, down to `least` bytes, and calls `found` at each step. False
    where it does not get there; the repairs are then anything."""
    best = int(line.peak.max())
    # At first all the way; what is left of that is where the search by steps begins.
    step, failures = 1.0, 0
    while best > least and failures < ATTEMPTS and not stop():
        line.limit = max(least, min(best - 1, int(best - (best - least) * step)))
        mark = len(line.journal)
        enough = fit(line, rng, float(failures > 0), stop, math.inf)
        peak = int(line.peak.max())
        if peak < best:
            best = peak
            found()
            step, failures = min(1.0, step * 1.5) if enough else min(0.1, step / 2), 0
        else:
            line.undo(mark)
            step, failures = min(0.1, step / 2), failures + 1
            _ruin(line, rng)
    return best <= least


def _at_once(line: Timeline, rng: random.Random, stop: Callable[[], bool]) -> bool:
    """Repairs for the limit of the line. False where that does not succeed."""
    for attempt in range(ATTEMPTS):
        if fit(line, rng, float(attempt > 0), stop, math.inf):
            return True
        if stop():
            return False
        _ruin(line, rng)
    return False


def repair(
    instance: Instance,
    limit: float,
    found: Callable[[list[Event]], object],
    stop: Callable[[], bool],
    *,
    patience: int = PATIENCE,
    time_weight: float = 0.0,
    gradually: bool = False,
    seed: int = 0,
) -> None:
    """Looks for cheap sequences within `limit` bytes of RAM; calls `found` with each better one.

    Ends after `patience` rounds in a row without a better one, or when `stop` says so.
    `time_weight` is added to the energy (nJ) for each ns. The first sequence is repaired for the
    whole excess at once, or `gradually` for less and less RAM: that is dearer and takes longer, but
    gets to limits that are out of reach at once.
    """
    rng = random.Random(seed)
    line = Timeline(instance, limit, time_weight)
    if gradually:
        enough = _descend(line, rng, limit, lambda: None, stop)
        line.limit = limit
    else:
        enough = _at_once(line, rng, stop)
    if not enough:
        return
    thin(line, stop)
    best = present = line.price
    found(line.events())
    idle = 0
    while idle < patience and present > 0 and not stop():
        idle += 1
        line.journal.clear()
        _ruin(line, rng)
        # A little dearer is taken now and then, to get out of dead ends.
        ceiling = present + (best * 0.02 * rng.random() ** 3 if rng.random() < 0.3 else 0.0)
        if fit(line, rng, 0.5, stop, ceiling * 1.05 + 1e-9):
            thin(line, stop)
        if line.total_excess() > 0 or line.price > ceiling:
            line.undo(0)
            continue
        present = line.price
        if present < best * (1 - 1e-9):
            best = present
            idle = 0
            found(line.events())


def _ruin(line: Timeline, rng: random.Random) -> None:
    """Takes out some of the repairs: in a few stages in a row, or anywhere."""
    repairs = line.repairs()
    if not repairs:
        return
    if rng.random() < 0.7:
        centre = rng.choice(repairs)[0]
        reach = rng.choice((2, 5, 10, 20, 40))
        share = rng.choice((0.3, 0.6, 1.0))
        chosen = [m for m in repairs if abs(m[0] - centre) <= reach and rng.random() < share]
    else:
        chosen = rng.sample(repairs, max(1, int(len(repairs) * 0.1 * rng.random())))
    line.remove(chosen)
