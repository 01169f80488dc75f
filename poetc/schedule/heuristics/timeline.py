"""A sequence that keeps everything, its repairs, and the RAM of each stage.

A `Timeline` has every operation once, in order, and *repairs*: a recompute in a stage, or a page-in
just before a run. RAM is known for each stage and follows each repair in time that does not depend
on the number of stages in Python.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable

import numpy as np

from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Place
from poetc.schedule.model.rebuild import Event, Load, Run, share

MAKE, READ, LOAD = 0, 1, 2

Repair = tuple[int, int, int]
"""(stage, operation, −1): the operation runs again in the stage. (stage, operation, tensor): the
tensor is paged in just before that run."""


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
                self.storage -= self.instance.stored_bytes[v]
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
                self.storage += self.instance.stored_bytes[v]
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

    def worst(self) -> tuple[int, int]:
        """The stage with the greatest excess, and the key of the run in it that needs most."""
        t = int(np.argmax(self.peak))
        k = max(self._uses(t))[1]
        return t, t * self.width + k
