"""Places for buffers that may move between two uses, by local search.

A *segment* is a part of a buffer's life between two possible cuts. A sweep goes through time and
places each segment that begins where that costs least: in a hole, or else where buffers lie that
can move away just then. A buffer that must move is placed anew at its next use. Among places of
equal cost a preference of the segment decides: the bottom, the top, or near some place. The local
search changes preferences, and cuts that are made in any case, and keeps what makes the sweep
cheaper; at first also what makes it a little dearer. A sweep takes a few milliseconds.

Deterministic: the seed is fixed, and rounds are counted.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

LOW, HIGH = -1, -2
"""Preferences for the bottom and the top of the arena; others are an offset."""

TEMPERATURE = 0.1
"""How much dearer, relatively, a sweep may be that is kept in the first rounds."""

NEAR = 180
"""Time around a cut in which other cuts are tried."""

MOMENTS = 4
"""Moments between two states that are kept."""

TRIES = 60
"""Segments that are placed at one moment before a sweep gives up: they may push each other out."""


@dataclass(frozen=True)
class Segment:
    """`bytes` needed from time `first` to `last`, both included, at a multiple of `align`. `cut` is
    the index of the cut before it, `price` what that costs; None where a buffer begins. The buffer
    lives until `end`. Segments of a buffer follow each other."""

    first: int
    last: int
    bytes: int
    align: int
    cut: int | None
    price: float
    end: int


@dataclass(frozen=True)
class Found:
    """The cost of all cuts, the cuts, and the place of each segment."""

    price: float
    cuts: frozenset[int]
    offsets: tuple[int, ...]


@dataclass
class _State:
    """A sweep on its way: the next moment, segments that are alive and their places, segments that
    will be and where their buffers lie until then, sizes (of the buffer, where its cut was not
    made), segments whose cut was made, what that costs, the place of each segment."""

    moment: int
    lying: dict[int, int]
    held: dict[int, int]
    size: list[int]
    made: list[int]
    price: float
    offsets: list[int]

    def copy(self) -> _State:
        """One that goes its own way."""
        return _State(
            self.moment,
            dict(self.lying),
            dict(self.held),
            list(self.size),
            list(self.made),
            self.price,
            list(self.offsets),
        )


@dataclass(frozen=True)
class _Plan:
    """The input of a sweep: the preference of each segment, and segments whose cut is made in any
    case; its outcome, and states on the way."""

    preferences: tuple[int, ...]
    forced: frozenset[int]
    end: _State
    states: tuple[_State, ...]

    @property
    def price(self) -> float:
        """The cost of its cuts."""
        return self.end.price

    @property
    def made(self) -> list[int]:
        """The segments whose cut is made."""
        return self.end.made


class Sweeps:
    """Local search for places below `height`; `best` is the cheapest that was found."""

    def __init__(self, segments: Sequence[Segment], height: int, stop: Callable[[], bool]) -> None:
        self.segments, self.height, self.stop = segments, height, stop
        self.rng = random.Random(0)
        self.best: Found | None = None
        self.now: _Plan | None = None
        n = len(segments)
        self.following = [
            i + 1 if i + 1 < n and segments[i + 1].cut is not None else None for i in range(n)
        ]
        self.cuttable = [i for i in range(n) if segments[i].cut is not None]
        self.moments = self._moments()
        # The moments at which a segment is placed, and at which its cut would begin.
        self.places, self.begins = [0] * n, [0] * n
        for at, (ends, begins) in enumerate(self.moments):
            for i in begins:
                self.places[i] = at
            for i in ends:
                if (after := self.following[i]) is not None:
                    self.begins[after] = at

    def _moments(self) -> list[tuple[list[int], list[int]]]:
        """Segments that end, and those that begin before others end, in order of time."""
        events = [(s.first, 0, i) for i, s in enumerate(self.segments)]
        events += [(s.last, 1, i) for i, s in enumerate(self.segments)]
        moments: list[tuple[list[int], list[int]]] = [([], [])]
        for _, ends, i in sorted(events):
            if not ends:
                moments[-1][1].append(i)
                continue
            if moments[-1][1]:
                moments.append(([], []))
            moments[-1][0].append(i)
        return moments

    def run(self, rounds: int) -> None:
        """Looks for something cheaper."""
        if self.now is None:
            self._begin()
        rng = self.rng
        for round_ in range(rounds):
            if (self.best is not None and self.best.price == 0) or self.stop():
                return
            now, limit = self.now, math.inf
            if now is None:
                preferences = tuple(rng.choice((LOW, HIGH)) for _ in self.segments)
                forced: frozenset[int] = frozenset()
            else:
                preferences, forced = self._other_preferences(now), self._other_cuts(now)
                warmth = TEMPERATURE * (1 - round_ / rounds) ** 2
                limit = now.price * (1 - warmth * math.log(1 - rng.random()))
            plan = self._sweep(preferences, forced, limit)
            if plan is not None:
                self._take(plan)

    def _take(self, plan: _Plan) -> None:
        self.now = plan
        if self.best is None or plan.price < self.best.price:
            cuts = (self.segments[i].cut for i in plan.made)
            made = frozenset(cut for cut in cuts if cut is not None)
            self.best = Found(plan.price, made, tuple(plan.end.offsets))

    def _begin(self) -> None:
        """Places long-lived buffers at one side and short-lived ones at the other, by several
        measures of long."""
        segments = self.segments
        lives = sorted(s.end - s.first for s in segments)
        cheapest: _Plan | None = None
        for tenths in range(2, 9):
            if cheapest is not None and self.stop():
                break
            long = lives[len(lives) * tenths // 10]
            for sides in ((LOW, HIGH), (HIGH, LOW)):
                preferences = tuple(sides[s.end - s.first <= long] for s in segments)
                plan = self._sweep(preferences, frozenset(), math.inf)
                if plan and (cheapest is None or plan.price < cheapest.price):
                    cheapest = plan
        if cheapest is None:
            cheapest = self._stripped()
        if cheapest is not None:
            self._take(cheapest)

    def _stripped(self) -> _Plan | None:
        """All cuts, and then without as many of the dearest as can be."""
        preferences = (LOW,) * len(self.segments)
        plan = self._sweep(preferences, frozenset(self.cuttable), math.inf)
        for i in sorted(self.cuttable, key=lambda i: (-self.segments[i].price, i)):
            if plan is None or self.stop():
                break
            if i in plan.made:
                plan = self._sweep(preferences, frozenset(plan.made) - {i}, plan.price) or plan
        return plan

    def _other_preferences(self, now: _Plan) -> tuple[int, ...]:
        rng, segments = self.rng, self.segments
        preferences = list(now.preferences)
        pool: Sequence[int] = range(len(segments))
        if now.made and rng.random() < 0.7:
            time = segments[rng.choice(now.made)].first
            reach = 3 * rng.choice((6, 20, 60, 150))
            pool = [i for i, s in enumerate(segments) if abs(s.first - time) <= reach]
        for i in rng.sample(pool, min(len(pool), rng.choice((1, 2, 4, 8)))):
            kind = rng.random()
            near = max(0, rng.choice(now.end.offsets))
            preferences[i] = LOW if kind < 0.4 else HIGH if kind < 0.8 else near
        return tuple(preferences)

    def _other_cuts(self, now: _Plan) -> frozenset[int]:
        rng, segments = self.rng, self.segments
        forced = now.forced & set(now.made)
        if not self.cuttable or rng.random() >= 0.4:
            return forced
        if forced and rng.random() < 0.4:
            return forced - {rng.choice(sorted(forced))}
        if now.made and rng.random() < 0.3:
            return forced | {rng.choice(now.made)}
        time = segments[rng.choice(now.made or self.cuttable)].first
        near = [i for i in self.cuttable if abs(segments[i].first - time) <= NEAR]
        some = rng.sample(near, min(len(near), rng.choice((1, 2, 4))))
        return forced | {min(some, key=lambda i: segments[i].price)}

    def _sweep(
        self, preferences: tuple[int, ...], forced: frozenset[int], limit: float
    ) -> _Plan | None:
        """Places all segments; None where one finds no place, at a price above `limit`, or when it
        is to stop. The first ones, which take little time, do not: without any there is no result.

        Goes on from the last state of the present plan that is the same in the new one.
        """
        now, segments = self.now, self.segments
        state = _State(0, {}, {}, [s.bytes for s in segments], [], 0.0, [0] * len(segments))
        states: list[_State] = []
        if now is not None:
            changed = [self.begins[i] for i in now.forced ^ forced]
            changed += [
                self.places[i]
                for i, (old, new) in enumerate(zip(now.preferences, preferences, strict=True))
                if old != new
            ]
            first = min(changed, default=0)
            states = [old for old in now.states if old.moment <= first]
            if states:
                state = states[-1].copy()
        while state.moment < len(self.moments):
            last = states[-1].moment if states else 0
            if state.moment % MOMENTS == 0 and state.moment > last:
                states.append(state.copy())
            if not self._moment(state, preferences, forced, limit):
                return None
            if now is not None and self.stop():
                return None
            state.moment += 1
        return _Plan(preferences, forced, state, tuple(states))

    def _moment(
        self, state: _State, preferences: Sequence[int], forced: frozenset[int], limit: float
    ) -> bool:
        """Goes on by one moment; False where that is not possible."""
        segments = self.segments
        lying, held, size, made = state.lying, state.held, state.size, state.made
        ends, begins = self.moments[state.moment]
        for i in ends:
            at, after = lying.pop(i), self.following[i]
            if after is None:
                continue
            if after in forced:
                state.price += segments[after].price
                made.append(after)
            else:
                held[after] = at
                size[after] = size[i]
        stays: set[int] = set()  # lies where it lay before
        waiting: list[int] = []
        for i in begins:
            if i in held:
                lying[i] = held.pop(i)
                stays.add(i)
            else:
                waiting.append(i)
        waiting.sort(key=lambda i: (-size[i], i))
        tries = TRIES
        while waiting:
            i = waiting.pop(0)
            place = self._place(
                size[i], segments[i].align, preferences[i], size, lying, held, stays
            )
            tries -= 1
            if place is None or not tries:
                return False
            lying[i], pushed = place
            for j in pushed:
                state.price += segments[j].price
                made.append(j)
                size[j] = segments[j].bytes
                if j in held:
                    del held[j]
                else:
                    del lying[j]
                    stays.remove(j)
                    waiting.append(j)
            if pushed:
                waiting.sort(key=lambda i: (-size[i], i))
            if state.price > limit:
                return False
        for i in begins:
            state.offsets[i] = lying[i]
        return True

    def _place(
        self,
        bytes: int,
        align: int,
        preference: int,
        size: Sequence[int],
        lying: dict[int, int],
        held: dict[int, int],
        stays: set[int],
    ) -> tuple[int, list[int]] | None:
        """The cheapest place for `bytes`, and what has to leave it."""
        segments, height = self.segments, self.height
        taken = [
            (at, at + size[j], segments[j].price if j in stays else -1.0, j)
            for j, at in lying.items()
            if size[j]
        ]
        taken += [(at, at + size[j], segments[j].price, j) for j, at in held.items() if size[j]]
        taken.sort()
        places = {0, (height - bytes) // align * align}
        places.update(-(-end // align) * align for _, end, _, _ in taken)
        places.update((begin - bytes) // align * align for begin, _, _, _ in taken)
        best: tuple[float, int, int] | None = None
        for at in places:
            top = at + bytes
            if at < 0 or top > height:
                continue
            price = 0.0
            for begin, end, leaving, _ in taken:
                if begin >= top:
                    break
                if end > at:
                    if leaving < 0:
                        price = -1.0
                        break
                    price += leaving
            if price < 0:
                continue
            liking = (
                at if preference == LOW else -at if preference == HIGH else abs(at - preference)
            )
            if best is None or (price, liking, at) < best:
                best = price, liking, at
        if best is None:
            return None
        at = best[2]
        pushed = [j for begin, end, _, j in taken if begin < at + bytes and end > at]
        return at, pushed
