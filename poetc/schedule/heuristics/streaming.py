"""Schedules of problems whose operations have variants, in seconds: every operation runs once, in
the way that is cheapest by itself, and then tensors stay in RAM wherever that pays.

A tensor is kept from one use to the next or not. Where it is kept, the operations beside it have
less room, so that some of them run in ways that need less; where it is not, it is paged in for an
operation that has it resident, or streamed. A move keeps or evicts a tensor between two uses and
chooses the ways of the operations that this concerns again. Moves that save energy are made, each
tried in the order of what it may save for each byte and operation; then some tensors are evicted at
random and the moves tried again.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator

from poetc.schedule.model.clock import Effort
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Place, Variant
from poetc.schedule.model.rebuild import Event, Load, Run, share

# Work for the cost of a tensor in one way to run an operation, and for a move.
WEIGH, MOVE = 5e-6, 5e-5

_SMALL = 1e-6
"""A move has to save this part of the energy."""

Span = tuple[int, int]
"""A tensor and the number of one of its uses: the time from there to its next use."""


class Ways:
    """How each operation runs and which tensors are kept between their uses.

    Slot k is operation k; slot n reads what must be in RAM at the end. `uses[v]` are the slots in
    which tensor v is made or read, −1 where it is in RAM at the start; `keep[v][i]` says that it
    stays from use i to the next.
    """

    def __init__(self, instance: Instance, limit: float, time_weight: float = 0.0) -> None:
        self.instance, self.limit = instance, limit
        problem, n = instance.problem, instance.n
        tensors = problem.tensors
        self.size = [t.bytes for t in tensors]
        self.in_price = [
            energy + time_weight * t.pagein_time_ns if instance.pageable[v] else math.inf
            for v, (energy, t) in enumerate(zip(instance.in_energy, tensors, strict=True))
        ]
        self.out_price = [
            energy + time_weight * t.pageout_time_ns if instance.pageable[v] else math.inf
            for v, (energy, t) in enumerate(zip(instance.out_energy, tensors, strict=True))
        ]
        self.outputs = [frozenset(o.outputs) for o in problem.operations] + [frozenset()]
        self.touched = [
            tuple(dict.fromkeys((*instance.inputs[k], *self.outputs[k]))) for k in range(n + 1)
        ]
        self.uses: list[list[int]] = [[-1] if t.start is Place.RAM else [] for t in tensors]
        for k in range(n + 1):
            for v in self.touched[k]:
                self.uses[v].append(k)
        self.place = [{k: i for i, k in enumerate(uses)} for uses in self.uses]
        end = {None: Variant(frozenset(), 0, 0, 0, 0)}
        self.ways: list[list[tuple[int | None, Variant, float]]] = [
            [
                (number, way, instance.way_energy(way) + time_weight * way.time_ns)
                for number, way in ways.items()
            ]
            for ways in (*instance.ways, end)
        ]
        for ways in self.ways:
            ways.sort(key=lambda way: way[2])
        self.choice = [0] * (n + 1)
        self.away: list[frozenset[int]] = [frozenset()] * (n + 1)
        self.keep = [
            [not instance.pageable[v] and i + 1 < len(uses) for i in range(len(uses))]
            for v, uses in enumerate(self.uses)
        ]
        # Bytes kept across each slot by tensors that it does not touch.
        self.across = [0] * (n + 1)
        self.crossing: list[set[Span]] = [set() for _ in range(n + 1)]
        for v, keep in enumerate(self.keep):
            for i, kept in enumerate(keep):
                if kept:
                    self._cross((v, i), 1)
        self.price = [0.0] * len(tensors)
        self.journal: list[tuple[int, int, bool | int]] = []
        self.work = 0.0

    # State

    @property
    def total(self) -> float:
        """The cost of the schedule."""
        runs = sum(ways[c][2] for ways, c in zip(self.ways, self.choice, strict=True))
        return runs + sum(self.price)

    def events(self) -> list[Event]:
        """The sequence of runs and page-ins."""
        result: list[Event] = []
        for k in range(self.instance.n + 1):
            for v in self.instance.inputs[k]:
                if v not in self.away[k] and not self._before(v, k):
                    result.append(Load(v))
            if k < self.instance.n:
                result.append(Run(k, self.ways[k][self.choice[k]][0]))
        return result

    def _before(self, v: int, k: int) -> bool:
        """Is `v` in RAM when slot `k`, which reads or makes it, begins?"""
        i = self.place[v][k]
        return i > 0 and self.keep[v][i - 1]

    def _cross(self, span: Span, sign: int) -> None:
        v, i = span
        first, last = self.uses[v][i] + 1, self.uses[v][i + 1]
        size = sign * self.size[v]
        for k in range(first, last):
            self.across[k] += size
            if sign > 0:
                self.crossing[k].add(span)
            else:
                self.crossing[k].discard(span)

    def _tensor_price(self, v: int) -> float:
        """The cost of moving `v`, but for its slices."""
        keep, outputs, away = self.keep[v], self.outputs, self.away
        price = 0.0
        paged = streamed = here = False
        for i, k in enumerate(self.uses[v]):
            if k < 0:
                here = keep[i]
                continue
            if v in away[k]:
                if v in outputs[k]:
                    streamed = True
                else:
                    paged = True
                here = here and keep[i]
                continue
            if not here and v not in outputs[k]:
                price += self.in_price[v]
                paged = True
            here = keep[i]
        instance = self.instance
        if (paged or instance.must_store[v]) and not streamed and not instance.stored_at_start[v]:
            price += self.out_price[v]
        return price

    def _used(self, k: int) -> int:
        """RAM in use in slot `k`."""
        way, size = self.ways[k][self.choice[k]][1], self.size
        used = self.across[k] + way.workspace_bytes
        dying = set[int]()
        for v in self.touched[k]:
            i = self.place[v][k]
            made = v in self.outputs[k]
            if v not in way.streamed:
                used += size[v]
                if not made and not self.keep[v][i]:
                    dying.add(v)
            elif not made and i > 0 and self.keep[v][i - 1]:
                used += size[v]
        if dying and k < self.instance.n and self.instance.operations[k].inplace:
            made = set(self.outputs[k] - way.streamed)
            used -= sum(size[o] for o, _ in share(self.instance.problem, k, dying, made))
        return used

    # Changes

    def _choose(self, k: int, choice: int) -> None:
        self.journal.append((k, -1, self.choice[k]))
        self._set_choice(k, choice)

    def _set_choice(self, k: int, choice: int) -> None:
        self.choice[k] = choice
        self.away[k] = self.ways[k][choice][1].streamed

    def _hold(self, span: Span, kept: bool) -> None:
        v, i = span
        if self.keep[v][i] != kept:
            self.journal.append((v, i, not kept))
            self._set_keep(span, kept)

    def _set_keep(self, span: Span, kept: bool) -> None:
        v, i = span
        self.keep[v][i] = kept
        self._cross(span, 1 if kept else -1)

    def undo(self, mark: int) -> None:
        """Back to when the journal had `mark` entries."""
        while len(self.journal) > mark:
            a, b, old = self.journal.pop()
            if b < 0:
                self._set_choice(a, int(old))
                for v in self.touched[a]:
                    self.price[v] = self._tensor_price(v)
            else:
                self._set_keep((a, b), bool(old))
                self.price[a] = self._tensor_price(a)

    def _settle(self, v: int) -> None:
        """Drops what is kept of `v` from where it is not in RAM, and counts what it costs."""
        here = False
        for i, k in enumerate(self.uses[v]):
            here = k < 0 or v not in self.away[k] or (here and v not in self.outputs[k])
            if self.keep[v][i] and not here:
                self._hold((v, i), False)
            here = self.keep[v][i]
        self.price[v] = self._tensor_price(v)

    def choose(self, k: int, resident: int | None = None) -> bool:
        """Runs slot `k` in the way that costs least within the RAM, with the tensor `resident` in
        RAM. False, changing nothing, where there is none."""
        before = self.choice[k]
        touched = self.touched[k]
        best, best_price = -1, math.inf
        for number, (_, way, energy) in enumerate(self.ways[k]):
            if energy >= best_price:
                break
            if resident is not None and resident in way.streamed:
                continue
            self._set_choice(k, number)
            if self._used(k) > self.limit:
                continue
            price = energy
            for v in touched:
                price += self._tensor_price(v)
            self.work += WEIGH * len(touched)
            if price < best_price:
                best, best_price = number, price
        self._set_choice(k, before)
        if best < 0:
            return False
        if best != before:
            self._choose(k, best)
        for v in touched:
            self._settle(v)
        return True

    def evict(self, span: Span) -> None:
        """Keeps a tensor no longer from a use to the next."""
        self._hold(span, False)
        self._settle(span[0])

    def hold(self, span: Span) -> bool:
        """Keeps a tensor from a use to the next; False where that finds no room."""
        v, i = span
        first, last = self.uses[v][i], self.uses[v][i + 1]
        there = first < 0 or v not in self.away[first]
        if not there and not (i > 0 and self.keep[v][i - 1] and v not in self.outputs[first]):
            # So that there is something to keep.
            self._hold(span, True)
            if not self.choose(first, v):
                return False
        self._hold(span, True)
        self.price[v] = self._tensor_price(v)
        for k in range(max(first, 0), last + 1):
            if (k in (first, last) or self._used(k) > self.limit) and not self._fit(k, v):
                return False
        return True

    def _fit(self, k: int, v: int) -> bool:
        """Makes slot `k` fit, by another way to run it or by evicting other tensors than `v`."""
        while True:
            i = self.place[v].get(k)
            kept = i is not None and self.keep[v][i] and not self._before(v, k)
            if self.choose(k, v if kept else None):
                return True
            others = [s for s in self.crossing[k] if s[0] != v and self.instance.pageable[s[0]]]
            if not others:
                return False
            self.evict(min(others, key=lambda s: (self.in_price[s[0]] / self.size[s[0]], s)))

    def again(self, slots: Iterable[int]) -> None:
        """Chooses the ways of these slots again."""
        for k in slots:
            self.choose(k)

    def spans(self) -> Iterator[Span]:
        """All that can be kept."""
        for v, uses in enumerate(self.uses):
            if self.instance.pageable[v] and 0 < self.size[v] <= self.limit:
                for i in range(len(uses) - 1):
                    yield v, i


def stream(
    instance: Instance,
    limit: float,
    offer: Callable[[list[Event]], object],
    effort: Effort,
    time_weight: float = 0.0,
    patience: int = 30,
    seed: int = 0,
) -> bool:
    """Offers sequences of runs, in the ways that fit into `limit` bytes of RAM, and page-ins, each
    better than the one before, until so many changes at random in a row, `patience`, have saved
    nothing. Without any effort it is the one in which nothing is kept that need not be. False where
    it finds none."""
    state = Ways(instance, limit, time_weight)
    for v in range(len(state.size)):
        state.price[v] = state._tensor_price(v)
    for k in range(instance.n + 1):
        if not state.choose(k):
            return False
    state.again(range(instance.n + 1))
    offer(state.events())
    search = _Improving(state, effort)
    search.fill(search.by_worth())
    search.settle()
    offer(state.events())
    rng = random.Random(seed)
    idle = 0
    while not effort.over and idle < patience:
        if search.shake(rng):
            idle = 0
            offer(state.events())
        else:
            idle += 1
    return True


class _Improving:
    """Moves that save something."""

    def __init__(self, state: Ways, effort: Effort) -> None:
        self.state, self.effort = state, effort

    def _spent(self) -> None:
        self.effort.spend(self.state.work + MOVE)
        self.state.work = 0.0

    def by_worth(self) -> list[Span]:
        """The spans that can be kept, by the savings for the bytes and slots that each crosses."""
        state = self.state

        def worth(span: Span) -> float:
            v, i = span
            slots = state.uses[v][i + 1] - state.uses[v][i]
            return -(state.in_price[v] + state.out_price[v] / 2) / (state.size[v] * slots)

        return sorted(state.spans(), key=worth)

    def fill(self, spans: Iterable[Span]) -> bool:
        """Keeps what saves something; whether anything did."""
        state, better = self.state, False
        for span in spans:
            if self.effort.over:
                break
            v, i = span
            if state.keep[v][i]:
                continue
            mark, before = len(state.journal), state.total
            if state.hold(span) and state.total < before * (1 - _SMALL):
                better = True
            else:
                state.undo(mark)
            self._spent()
        return better

    def clear(self) -> bool:
        """Evicts what saves something; whether anything did."""
        state, better = self.state, False
        for span in list(state.spans()):
            v, i = span
            if self.effort.over or not state.keep[v][i]:
                continue
            mark, before = len(state.journal), state.total
            state.evict(span)
            state.again(range(max(state.uses[v][i], 0), state.uses[v][i + 1] + 1))
            if state.total < before * (1 - _SMALL):
                better = True
            else:
                state.undo(mark)
            self._spent()
        return better

    def settle(self) -> None:
        """Makes moves until none saves anything."""
        spans = self.by_worth()
        while not self.effort.over:
            if not (self.clear() | self.fill(spans)):
                return

    def shake(self, rng: random.Random) -> bool:
        """Evicts at random what is kept across some slots, and keeps something else; whether that
        saves something. Else all is as it was."""
        state = self.state
        mark, before = len(state.journal), state.total
        width = rng.choice((2, 5, 12))
        first = rng.randrange(max(1, state.instance.n - width))
        slots = range(first, min(first + width, state.instance.n + 1))
        kept = {span for k in slots for span in state.crossing[k]}
        kept |= {
            (v, i) for k in slots for v in state.touched[k] if state.keep[v][i := state.place[v][k]]
        }
        for span in sorted(kept):
            if state.instance.pageable[span[0]] and rng.random() < 0.5:
                state.evict(span)
        low = min((state.uses[v][i] for v, i in kept), default=first)
        high = max((state.uses[v][i + 1] for v, i in kept), default=first)
        state.again(range(max(low, 0), high + 1))
        near = [
            (v, i)
            for v, i in state.spans()
            if state.uses[v][i] <= slots[-1] and state.uses[v][i + 1] >= first
        ]
        rng.shuffle(near)
        near.sort(
            key=lambda s: (state.uses[s[0]][s[1] + 1] - state.uses[s[0]][s[1]]) * rng.random()
        )
        self.fill(near)
        if state.total < before * (1 - _SMALL):
            return True
        state.undo(mark)
        return False
