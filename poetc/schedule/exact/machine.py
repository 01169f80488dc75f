"""Small problems with transfers beside computing, in any order: all states of the machine.

A state is what is in RAM and on storage, which operations have run, and when the processor, the bus
and the transfers under way are done. States are gone through step by step. Left out are only those
that another one dominates (the same sets, all times no later) and those whose bound on the makespan
exceeds the deadline, so a search that comes to its end is a proof.

Nothing leaves RAM before its room is needed. In a *relaxation* the smaller tensors take no room,
which leaves few states: where it has no schedule in time, neither has the problem.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations
from typing import NamedTuple

from poetc.schedule.exact.bounds import members
from poetc.schedule.model.clock import Effort
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import (
    Compute,
    Free,
    PageIn,
    PageOut,
    Place,
    Problem,
    Step,
    predecessors,
)

MOST_OPERATIONS = 20
"""In a problem that is tried."""

FOLLOWING = 8e-5
"""Work for a state that follows another one."""

_Times = tuple[tuple[int, int, int], ...]
"""For each tensor that is being transferred: the tensor, the time when it is there, and the time
when its transfers are over; 0 where that is past."""


class _State(NamedTuple):
    done: int
    in_ram: int
    stored: int
    owed: int
    """Tensors that were paged out and must be paged in again."""
    may_store: int
    """Tensors that may be paged out next: those just made, and any after another transfer. To page
    out earlier is no later for anybody."""
    clock_ns: int
    bus_ns: int
    times: _Times
    used_bytes: int
    before: _State | None
    steps: tuple[Step, ...]

    def all_steps(self, end_ram: int) -> tuple[Step, ...]:
        """The steps from the start, and frees of all but what must be in RAM at the end."""
        found: list[tuple[Step, ...]] = []
        state: _State | None = self
        while state is not None:
            found.append(state.steps)
            state = state.before
        frees = map(Free, members(self.in_ram & ~end_ram))
        return (*(step for steps in reversed(found) for step in steps), *frees)


class Outcome(NamedTuple):
    """The outcome of a search: the steps of a schedule in time, and whether it is `proven` that
    there is none in less than it takes, or than the deadline."""

    steps: tuple[Step, ...] | None
    proven: bool


def in_time(instance: Instance, effort: Effort) -> Outcome:
    """The fastest schedule that meets the deadline and the RAM of a problem with DMA, in any order
    and without the stage rules. What is on storage counts as room there is.

    Relaxations come first, from the coarsest on: most problems without a schedule are refused by
    one of them.
    """
    problem = instance.problem
    assert problem.dma and problem.deadline_ns is not None
    if instance.n > MOST_OPERATIONS:
        return Outcome(None, False)
    sizes = sorted({t.bytes for t in problem.tensors})
    for size in reversed(sizes[: len(sizes) // 2]):
        outcome = _Machine(_relaxed(instance, size)).search(effort)
        if outcome.steps is None:
            return outcome
    return _Machine(instance).search(effort)


def _relaxed(instance: Instance, most_bytes: int) -> Instance:
    """The problem in which tensors of up to so many bytes take no room and stay in RAM, but
    for those that start or end on storage and buffers that are taken over."""
    problem = instance.problem
    kept = {v for t in problem.tensors if (v := t.replaces) is not None}
    tensors = tuple(
        dataclasses.replace(t, bytes=0, pageable=False)
        if t.bytes <= most_bytes
        and Place.STORAGE not in (t.start, t.end)
        and t.replaces is None
        and v not in kept
        else t
        for v, t in enumerate(problem.tensors)
    )
    operations = tuple(
        dataclasses.replace(
            o,
            inplace=tuple((a, b) for a, b in o.inplace if tensors[a].bytes <= tensors[b].bytes),
        )
        for o in problem.operations
    )
    changed = dataclasses.replace(problem, tensors=tensors, operations=operations)
    return dataclasses.replace(instance, problem=changed)


def _mask(numbers: Sequence[int] | set[int]) -> int:
    return sum(1 << v for v in numbers)


class _Facts(NamedTuple):
    """Of the operations that are left: their time, those that may be first, and the shortest
    page-out after one that may be last; what is still needed in RAM (`live`), or to run an
    operation again (`useful`), and what was replaced."""

    time_ns: int
    first: tuple[int, ...]
    tail_ns: int
    live: int
    useful: int
    replaced: int


class _Machine:
    """The states of one problem, and what follows each of them."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.problem: Problem = instance.problem
        tensors, operations = self.problem.tensors, self.problem.operations
        self.tensors, self.operations, self.n = tensors, operations, len(operations)
        self.limit = self.problem.ram_bytes
        self.in_ns = [t.pagein_time_ns for t in tensors]
        self.out_ns = [t.pageout_time_ns for t in tensors]
        self.pageable = _mask({v for v, may in enumerate(instance.pageable) if may})
        before = predecessors(self.problem)
        self.before = [_mask(each) for each in before]
        self.after = [
            _mask({j for j in range(self.n) if self.before[j] >> k & 1}) for k in range(self.n)
        ]
        self.inputs = [_mask(set(o.inputs)) for o in operations]
        self.outputs = [_mask(o.outputs) for o in operations]
        self.replaces = [
            _mask({old for v in o.outputs if (old := tensors[v].replaces) is not None})
            for o in operations
        ]
        self.end_ram = _mask({v for v, t in enumerate(tensors) if t.end is Place.RAM})
        self.end_stored = _mask({v for v, t in enumerate(tensors) if t.end is Place.STORAGE})
        assert self.problem.deadline_ns is not None
        slack_ns = self.problem.deadline_ns - sum(o.time_ns for o in operations)
        self.may_rerun = [
            instance.remat and o.repeatable and not self.replaces[k] and o.time_ns <= slack_ns
            for k, o in enumerate(operations)
        ]
        self.all = (1 << self.n) - 1
        ends = [
            max((self.out_ns[v] for v in members(self.outputs[k] & self.end_stored)), default=0)
            for k in range(self.n)
        ]
        self.tail_ns = ends
        # The longest chain of operations from each on, with the page-out that ends it.
        self.chain_ns = [0] * self.n
        for k in reversed(range(self.n)):
            following = [self.chain_ns[j] for j in members(self.after[k])]
            self.chain_ns[k] = operations[k].time_ns + max((*following, ends[k]))
        self._known = cache(self._facts)

    def bytes_of(self, mask: int) -> int:
        return sum(self.tensors[v].bytes for v in members(mask))

    def facts(self, state: _State) -> _Facts:
        return self._known(state.done, self.end_stored & ~state.stored)

    def _facts(self, done: int, unstored: int) -> _Facts:
        rest = [k for k in range(self.n) if not done >> k & 1]
        left = self.all & ~done
        read = 0
        for k in rest:
            read |= self.inputs[k]
        replaced = 0
        for k in members(done):
            replaced |= self.replaces[k]
        useful = read | self.end_ram | unstored
        for k in reversed(range(self.n)):
            if done >> k & 1 and self.may_rerun[k] and self.outputs[k] & useful:
                useful |= self.inputs[k]
        return _Facts(
            sum(self.operations[k].time_ns for k in rest),
            tuple(k for k in rest if not self.before[k] & left),
            min((self.tail_ns[k] for k in rest if not self.after[k] & left), default=0),
            read | self.end_ram,
            useful,
            replaced,
        )

    def search(self, effort: Effort) -> Outcome:
        """Goes through the states, those of equally many steps together, best bound first."""
        tensors = self.problem.tensors
        assert self.problem.deadline_ns is not None
        in_ram = _mask({v for v, t in enumerate(tensors) if t.start is Place.RAM})
        stored = _mask({v for v, t in enumerate(tensors) if t.start is Place.STORAGE})
        start = _State(0, in_ram, stored, 0, in_ram, 0, 0, (), self.bytes_of(in_ram), None, ())
        if self.limit is not None and start.used_bytes > self.limit:
            return Outcome(None, True)
        best: _State | None = None
        # The first makespan that is of no interest.
        limit_ns = self.problem.deadline_ns + 1
        seen: dict[tuple[int, ...], list[_State]] = {}
        level = [start]
        while level:
            found: dict[int, tuple[int, _State]] = {}
            for state in level:
                if effort.over:
                    return Outcome(None if best is None else best.all_steps(self.end_ram), False)
                for following in self.following(state):
                    effort.spend(FOLLOWING)
                    bound_ns = self.bound_ns(following)
                    if bound_ns >= limit_ns or following.owed & ~self.facts(following).useful:
                        continue
                    if self.is_end(following):
                        best, limit_ns = following, bound_ns
                        continue
                    others = seen.setdefault(following[:5], [])
                    if any(_dominates(other, following) for other in others):
                        continue
                    for other in others:
                        if _dominates(following, other):
                            found.pop(id(other), None)
                    others[:] = [o for o in others if not _dominates(following, o)]
                    others.append(following)
                    found[id(following)] = bound_ns, following
            # Sorting is stable: the same order in each run.
            level = [
                state
                for bound_ns, state in sorted(found.values(), key=lambda item: item[0])
                if bound_ns < limit_ns
            ]
        return Outcome(None if best is None else best.all_steps(self.end_ram), True)

    def is_end(self, state: _State) -> bool:
        return (
            state.done == self.all
            and not self.end_stored & ~state.stored
            and not self.end_ram & ~state.in_ram
        )

    def bound_ns(self, state: _State) -> int:
        """Every schedule that goes on from the state takes as long."""
        facts = self.facts(state)
        bus_from_ns = max(state.clock_ns, state.bus_ns)
        back = facts.live & ~state.in_ram & state.stored | state.owed & state.in_ram
        transfers_ns = sum(self.in_ns[v] for v in members(back))
        transfers_ns += sum(self.out_ns[v] for v in members(self.end_stored & ~state.stored))
        found = [state.bus_ns, state.clock_ns + facts.time_ns]
        if transfers_ns:
            found.append(bus_from_ns + transfers_ns)
        there = {v: at_ns for v, at_ns, _ in state.times}
        starts: list[int] = []
        for k in facts.first:
            start_ns, queue_ns = state.clock_ns, bus_from_ns
            for v in members(self.inputs[k]):
                if state.in_ram >> v & 1:
                    start_ns = max(start_ns, there.get(v, 0))
                elif state.stored >> v & 1:
                    queue_ns += self.in_ns[v]
                    start_ns = max(start_ns, queue_ns)
            starts.append(start_ns)
            found.append(start_ns + self.chain_ns[k])
        if starts:
            found.append(min(starts) + facts.time_ns + facts.tail_ns)
        return max(found)

    def following(self, state: _State) -> Iterator[_State]:
        """The states after one more step, with the frees that it needs."""
        yield from self._computed(state)
        facts = self.facts(state)
        times = {v: (a, b) for v, a, b in state.times}
        for v in members(facts.useful & state.stored & ~state.in_ram & self.pageable):
            for freed, clock_ns in self._rooms(state, self.tensors[v].bytes, 0):
                over_ns = max(clock_ns, state.bus_ns) + self.in_ns[v]
                yield self._made(
                    state,
                    (*map(Free, members(freed)), PageIn(v)),
                    {**times, v: (over_ns, over_ns)},
                    in_ram=state.in_ram & ~freed | 1 << v,
                    owed=state.owed & ~(1 << v),
                    may_store=state.in_ram,
                    clock_ns=clock_ns,
                    bus_ns=over_ns,
                )
        for v in members(state.in_ram & ~state.stored & state.may_store & self.pageable):
            must = self.end_stored >> v & 1
            if not must and not facts.useful >> v & 1:
                continue
            over_ns = max(state.clock_ns, state.bus_ns) + self.out_ns[v]
            yield self._made(
                state,
                (PageOut(v),),
                {**times, v: (times.get(v, (0, 0))[0], over_ns)},
                stored=state.stored | 1 << v,
                owed=state.owed | (0 if must else 1 << v),
                may_store=state.in_ram,
                bus_ns=over_ns,
            )

    def _computed(self, state: _State) -> Iterator[_State]:
        facts = self.facts(state)
        times = {v: (a, b) for v, a, b in state.times}
        for k, operation in enumerate(self.operations):
            if state.done >> k & 1:
                lost = self.outputs[k] & facts.useful & ~state.in_ram & ~state.stored
                if not lost or self.inputs[k] & facts.replaced or not self.may_rerun[k]:
                    continue
            elif self.before[k] & ~state.done:
                continue
            if self.inputs[k] & ~state.in_ram:
                continue
            done = state.done | 1 << k
            # Tensors that are still there are freed first.
            again = self.outputs[k] & state.in_ram
            made_bytes = self.bytes_of(self.outputs[k]) + operation.workspace_bytes
            made_bytes -= self.bytes_of(again)
            for pairs in self._inplace(state, k, done):
                ended = _mask({i for _, i in pairs})
                shared = sum(self.tensors[o].bytes for o, _ in pairs)
                for freed, clock_ns in self._rooms(
                    state, made_bytes - shared, self.inputs[k] | again
                ):
                    waits = [times.get(v, (0, 0))[0] for v in members(self.inputs[k])]
                    waits += [max(times.get(v, (0, 0))) for v in members(ended | again)]
                    yield self._made(
                        state,
                        (*map(Free, members(freed | again)), Compute(k, pairs)),
                        {v: at for v, at in times.items() if not again >> v & 1},
                        done=done,
                        in_ram=(state.in_ram & ~freed | self.outputs[k]) & ~ended,
                        may_store=self.outputs[k],
                        clock_ns=max((clock_ns, *waits)) + operation.time_ns,
                    )

    def _inplace(self, state: _State, k: int, done: int) -> Iterator[tuple[tuple[int, int], ...]]:
        """The choices of (result, input) pairs in place. Each has all inputs that are free to go,
        and any of those that are needed again or whose transfers would have to be waited for."""
        facts = self.facts(state._replace(done=done))
        over_ns = {v: max(a, b) for v, a, b in state.times}
        sure: list[tuple[int, int]] = []
        late: list[tuple[int, int]] = []
        for o, i in self.operations[k].inplace:
            if self.tensors[o].replaces == i:
                sure.insert(0, (o, i))
            elif self._may_leave(state, i, facts.live):
                free = not facts.useful >> i & 1 and over_ns.get(i, 0) <= state.clock_ns
                (sure if free else late).append((o, i))
        for count in range(len(late) + 1):
            for more in combinations(late, count):
                taken: list[tuple[int, int]] = []
                for o, i in (*sure, *more):
                    if all(o != a and i != b for a, b in taken):
                        taken.append((o, i))
                yield tuple(taken)

    def _may_leave(self, state: _State, v: int, live: int) -> bool:
        if state.stored >> v & 1:
            return True
        needed = (live | self.end_stored) >> v & 1
        producer = self.instance.producer[v]
        return not needed or (producer is not None and self.may_rerun[producer])

    def _rooms(self, state: _State, wanted: int, keep: int) -> Iterator[tuple[int, int]]:
        """Tensors that may leave RAM for `wanted` bytes, no more than needed, and the time."""
        if self.limit is None or wanted <= self.limit - state.used_bytes:
            yield 0, state.clock_ns
            return
        short = wanted - (self.limit - state.used_bytes)
        live = self.facts(state).live
        over_ns = {v: max(a, b) for v, a, b in state.times}
        sizes = [
            (self.tensors[v].bytes, v)
            for v in members(state.in_ram & ~keep)
            if self.tensors[v].bytes and self._may_leave(state, v, live)
        ]

        def choices(at: int, got: int, chosen: int) -> Iterator[int]:
            if got >= short:
                if all(got - self.tensors[v].bytes < short for v in members(chosen)):
                    yield chosen
                return
            if at < len(sizes):
                size, v = sizes[at]
                yield from choices(at + 1, got + size, chosen | 1 << v)
                yield from choices(at + 1, got, chosen)

        if sum(size for size, _ in sizes) >= short:
            for chosen in choices(0, 0, 0):
                yield chosen, max((state.clock_ns, *(over_ns.get(v, 0) for v in members(chosen))))

    def _made(
        self,
        state: _State,
        steps: tuple[Step, ...],
        times: dict[int, tuple[int, int]],
        **changes: int,
    ) -> _State:
        """The state after some steps, without what nobody needs any more."""
        before, state = state, state._replace(**changes)
        in_ram = state.in_ram
        for v in members(in_ram & ~self.facts(state).useful):
            if max(times.get(v, (0, 0))) <= state.clock_ns:
                in_ram &= ~(1 << v)
                steps = (*steps, Free(v))
        now_ns = state.clock_ns
        return state._replace(
            in_ram=in_ram,
            may_store=state.may_store & in_ram & ~state.stored,
            times=tuple(
                (v, a if a > now_ns else 0, b if b > now_ns else 0)
                for v, (a, b) in sorted(times.items())
                if in_ram >> v & 1 and max(a, b) > now_ns
            ),
            used_bytes=self.bytes_of(in_ram),
            before=before,
            steps=steps,
        )


def _dominates(one: _State, other: _State) -> bool:
    """Whether everything is over no later in `one` of two states with the same sets."""
    if one.clock_ns > other.clock_ns or one.bus_ns > other.bus_ns:
        return False
    theirs = {v: (a, b) for v, a, b in other.times}
    now_ns = other.clock_ns
    return all(
        max(a, now_ns) <= max(theirs.get(v, (0, 0))[0], now_ns)
        and max(b, now_ns) <= max(theirs.get(v, (0, 0))[1], now_ns)
        for v, a, b in one.times
    )
