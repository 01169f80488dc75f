"""Brute force without stages: the cheapest schedule of a tiny problem by the checker's rules alone.

A state is (operations done, set in RAM, set on storage). In any state any operation whose inputs
are in RAM may run, for the first time or again, as often as one likes, and any tensor may be freed,
paged out or paged in. `Rules` takes some of that freedom away, to see what it is worth. Knows
nothing of `poetc.schedule` but the problem and the steps, so that the checker can replay what is
found.

Two reductions. Nothing is freed before its room is needed: a tensor in RAM never hurts. And a
tensor that is written at all may be written as soon as it is made, so the search pays for that when
it first reads the page.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from poetc.schedule.model.problem import (
    Compute,
    Free,
    Operation,
    PageIn,
    PageOut,
    Place,
    Problem,
    Step,
    Tensor,
)


class Recomputes(Enum):
    """What may run again between two first runs (and after the last one)."""

    ANY = "any number of times, in any order"
    ONCE = "each operation at most once, in any order"
    ASCENDING = "each operation at most once, in the order of the problem"


@dataclass(frozen=True)
class Rules:
    """`ordered`: operations run for the first time in the order of the problem."""

    ordered: bool = False
    recomputes: Recomputes = Recomputes.ANY


FREE = Rules()
FREE_ONCE = Rules(recomputes=Recomputes.ONCE)
ORDERED = Rules(ordered=True)
ORDERED_ONCE = Rules(ordered=True, recomputes=Recomputes.ONCE)
STAGES = Rules(ordered=True, recomputes=Recomputes.ASCENDING)
"""The stage rules of `docs/schedule.md`."""


@dataclass(frozen=True)
class Found:
    """A schedule of least energy."""

    energy_nj: int
    steps: tuple[Step, ...]


def cheapest(problem: Problem, rules: Rules = FREE) -> Found | None:
    """A schedule of least energy (idle power included), or None if there is none. Without DMA."""
    assert not problem.dma
    assert rules.ordered or rules.recomputes is not Recomputes.ASCENDING
    # The long searches are those that end without a schedule; they are short where nothing costs
    # anything.
    if _Search(_for_nothing(problem), rules).run() is None:
        return None
    return _Search(problem, rules).run()


def least_ram(problem: Problem, rules: Rules = FREE) -> int | None:
    """The least RAM with which there is a schedule, whatever the deadline; None if there is none.

    Bisection: what fits in some RAM fits in more.
    """
    free = _for_nothing(problem)
    low, high = 0, sum(t.bytes for t in problem.tensors)
    high += max((o.workspace_bytes for o in problem.operations), default=0)
    if _Search(replace(free, ram_bytes=high), rules).run() is None:
        return None
    while low < high:
        middle = (low + high) // 2
        if _Search(replace(free, ram_bytes=middle), rules).run() is None:
            low = middle + 1
        else:
            high = middle
    return high


def _for_nothing(problem: Problem) -> Problem:
    """The same problem without deadline and costs."""
    paging = {
        "pagein_time_ns": 0,
        "pagein_energy_nj": 0,
        "pageout_time_ns": 0,
        "pageout_energy_nj": 0,
    }
    return replace(
        problem,
        operations=tuple(replace(o, energy_nj=0, time_ns=0) for o in problem.operations),
        tensors=tuple(replace(t, **paging) for t in problem.tensors),
        deadline_ns=None,
        idle_power_nw=0,
    )


def orders(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Every order in which the operations can run for the first time."""
    producers, readers, replacers = problem.producers(), problem.readers(), problem.replacers()
    before = [{p for v in o.inputs if (p := producers[v]) is not None} for o in problem.operations]
    for old, k in replacers.items():
        before[k] |= set(readers[old]) - {k}

    def extend(order: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(order) == len(before):
            yield order
        for k, needed in enumerate(before):
            if k not in order and needed <= set(order):
                yield from extend((*order, k))

    return extend(())


def permuted(problem: Problem, order: tuple[int, ...]) -> Problem:
    """The same problem with its operations in another order; tensors keep their indices."""
    return replace(problem, operations=tuple(problem.operations[k] for k in order))


# Operations done, tensors in RAM, tensors on storage, operations run again since the last first run
# (as far as the rules ask for them): sets of bits.
_State = tuple[int, int, int, int]
# Energy and time beyond the first runs, the steps, and the state that they lead to.
_Move = tuple[int, int, tuple[Step, ...], _State]


class _Search:
    def __init__(self, problem: Problem, rules: Rules) -> None:
        self.problem, self.rules = problem, rules
        tensors = problem.tensors
        self.all = (1 << len(problem.operations)) - 1
        self.inputs = [_bits(o.inputs) for o in problem.operations]
        self.outputs = [_bits(o.outputs) for o in problem.operations]
        self.sharing = [tuple(_sharing(tensors, o)) for o in problem.operations]
        self.replaced = [
            _bits(old for v in o.outputs if (old := tensors[v].replaces) is not None)
            for o in problem.operations
        ]
        self.made_by = [0] * len(tensors)
        for k, operation in enumerate(problem.operations):
            for v in operation.outputs:
                self.made_by[v] = 1 << k
        self.bytes, self.pages = [0], [0]
        for tensor in tensors:
            self.bytes += [used + tensor.bytes for used in self.bytes]
            self.pages += [used + tensor.stored_bytes for used in self.pages]
        limit = problem.ram_bytes
        self.ram = self.bytes[-1] + 10**9 if limit is None else limit
        self.maximal: dict[tuple[int, int], list[int]] = {}

    def run(self) -> Found | None:
        problem, tensors = self.problem, self.problem.tensors
        start, end = (
            {p: _bits(v for v, t in enumerate(tensors) if getattr(t, at) is p) for p in Place}
            for at in ("start", "end")
        )
        stored = start[Place.STORAGE] | end[Place.STORAGE]
        if problem.storage_bytes is None:
            # What costs nothing to write is written.
            stored |= _bits(
                v
                for v, t in enumerate(tensors)
                if t.pageable and not t.pageout_energy_nj and not t.pageout_time_ns
            )
        if self.bytes[start[Place.RAM]] > self.ram or not self.storage_fits(stored):
            return None
        # First runs and what must be written cost the same on every path: counted in advance, so
        # that the search is guided by what is spent beyond.
        written = [t for v, t in enumerate(tensors) if (stored & ~start[Place.STORAGE]) >> v & 1]
        energy = sum(o.energy_nj for o in problem.operations)
        energy += sum(t.pageout_energy_nj for t in written)
        time = sum(o.time_ns for o in problem.operations)
        time += sum(t.pageout_time_ns for t in written)
        first: _State = (0, start[Place.RAM], stored, 0)
        labels: list[tuple[int, tuple[Step, ...]]] = [(-1, ())]
        queue: list[tuple[int, int, int, int, _State]] = []
        heapq.heappush(queue, (self.price(energy, time), 0, energy, time, first))
        settled: dict[_State, int] = {}
        while queue:
            _, label, energy, time, state = heapq.heappop(queue)
            # Labels are popped by rising price: a later one is of use only if it is faster.
            if state in settled and (problem.deadline_ns is None or settled[state] <= time):
                continue
            settled[state] = time
            done, ram, stored, _ = state
            if done == self.all and ram & end[Place.RAM] == end[Place.RAM]:
                steps = (*_path(labels, label), *_frees(ram & ~end[Place.RAM]))
                steps = self.with_page_outs(steps, start[Place.RAM], stored & ~start[Place.STORAGE])
                return Found(-(-self.price(energy, time) // 10**9), steps)
            for more_energy, more_time, steps, following in self.moves(state):
                e, t = energy + more_energy, time + more_time
                if following in settled and problem.deadline_ns is None:
                    continue
                if problem.deadline_ns is None or t <= problem.deadline_ns:
                    labels.append((label, steps))
                    heapq.heappush(queue, (self.price(e, t), len(labels) - 1, e, t, following))
        return None

    def price(self, energy_nj: int, time_ns: int) -> int:
        """Energy in 1e-9 nJ, exactly."""
        return energy_nj * 10**9 + self.problem.idle_power_nw * time_ns

    def storage_fits(self, stored: int) -> bool:
        return self.problem.storage_bytes is None or (
            self.pages[stored] <= self.problem.storage_bytes
        )

    def with_page_outs(self, steps: tuple[Step, ...], ram: int, write: int) -> tuple[Step, ...]:
        """`steps` with the page-outs of `write`, each as early as can be."""
        result: list[Step] = [PageOut(v) for v in _indices(write & ram)]
        write &= ~ram
        for step in steps:
            result.append(step)
            if isinstance(step, Compute):
                made = write & self.outputs[step.operation]
                result += [PageOut(v) for v in _indices(made)]
                write &= ~made
        assert not write
        return tuple(result)

    def moves(self, state: _State) -> Iterator[_Move]:
        done, ram, stored, again = state
        gone = 0
        for k, operation in enumerate(self.problem.operations):
            bit = 1 << k
            if done & bit:
                gone |= self.replaced[k]
                if operation.repeatable and self.may_run_again(k, again):
                    following = self.recomputes_after(k, again)
                    for steps, after in self.runs(k, ram):
                        result = (done, after, stored, following)
                        yield operation.energy_nj, operation.time_ns, steps, result
            elif not self.rules.ordered or done == bit - 1:
                for steps, after in self.runs(k, ram):
                    yield 0, 0, steps, (done | bit, after, stored, 0)
        for v, tensor in enumerate(self.problem.tensors):
            bit = 1 << v
            there = done & self.made_by[v] == self.made_by[v]
            if not tensor.pageable or (ram | gone) & bit or not there:
                continue
            if not self.storage_fits(stored | bit):
                continue
            energy, time = tensor.pagein_energy_nj, tensor.pagein_time_ns
            if not stored & bit:
                energy += tensor.pageout_energy_nj
                time += tensor.pageout_time_ns
            for kept in self.keep(ram, self.ram - tensor.bytes):
                steps = (*_frees(ram & ~kept), PageIn(v))
                yield energy, time, steps, (done, kept | bit, stored | bit, again)

    def may_run_again(self, k: int, again: int) -> bool:
        if self.rules.recomputes is Recomputes.ASCENDING:
            return again >> k == 0
        return not again >> k & 1

    def recomputes_after(self, k: int, again: int) -> int:
        if self.rules.recomputes is Recomputes.ANY:
            return 0
        return 1 << k if self.rules.recomputes is Recomputes.ASCENDING else again | 1 << k

    def runs(self, k: int, ram: int) -> Iterator[tuple[tuple[Step, ...], int]]:
        """The steps with which operation `k` may run, and what is in RAM after them."""
        inputs, outputs = self.inputs[k], self.outputs[k]
        if ram & inputs != inputs or (outputs and ram & outputs == outputs):
            return
        others = ram & ~inputs & ~outputs
        needed = self.bytes[inputs | outputs] + self.problem.operations[k].workspace_bytes
        for pairs, taken, shared in self.sharing[k]:
            for kept in self.keep(others, self.ram - needed + shared):
                frees = _frees((others & ~kept) | (ram & outputs))
                yield (*frees, Compute(k, pairs)), kept | outputs | inputs & ~taken

    def keep(self, tensors: int, room: int) -> list[int]:
        """The largest subsets of `tensors` that fit in `room`: of two sets of which one holds the
        other the larger is at least as good."""
        if room < 0:
            return []
        if self.bytes[tensors] <= room:
            return [tensors]
        key = (tensors, room)
        if key not in self.maximal:
            singles = [1 << v for v in _indices(tensors)]
            self.maximal[key] = [
                subset
                for subset in _subsets(tensors)
                if self.bytes[subset] <= room
                and all(self.bytes[subset | v] > room for v in singles if not subset & v)
            ]
        return self.maximal[key]


def _sharing(
    tensors: tuple[Tensor, ...], operation: Operation
) -> Iterator[tuple[tuple[tuple[int, int], ...], int, int]]:
    """Sets of in-place pairs that an operation may use, the inputs that they take, and the bytes
    that they save."""
    pairs = tuple(dict.fromkeys(operation.inplace))
    forced = {(v, old) for v in operation.outputs if (old := tensors[v].replaces) is not None}
    for number in range(len(pairs) + 1):
        for chosen in itertools.combinations(pairs, number):
            distinct = all(len(set(side)) == number for side in zip(*chosen, strict=True))
            if distinct and forced <= set(chosen):
                yield chosen, _bits(i for _, i in chosen), sum(tensors[o].bytes for o, _ in chosen)


def _bits(indices: Iterable[int]) -> int:
    return sum(1 << v for v in set(indices))


def _indices(mask: int) -> list[int]:
    return [v for v in range(mask.bit_length()) if mask >> v & 1]


def _subsets(mask: int) -> Iterator[int]:
    subset = mask
    while subset:
        yield subset
        subset = (subset - 1) & mask
    yield 0


def _frees(mask: int) -> tuple[Step, ...]:
    return tuple(Free(v) for v in _indices(mask))


def _path(labels: list[tuple[int, tuple[Step, ...]]], label: int) -> tuple[Step, ...]:
    parts = []
    while label >= 0:
        label, steps = labels[label]
        parts.append(steps)
    return tuple(itertools.chain.from_iterable(reversed(parts)))
