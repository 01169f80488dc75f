"""Packs buffers with known lifetimes into one arena (dynamic storage allocation, made static).

A buffer is a rectangle: bytes high, and as long as the steps it lives. Two buffers that live at a
common step must not overlap in the arena. Finding the lowest arena is NP-hard; the most bytes
alive at one step are a lower bound that real training steps nearly always reach. Therefore:

1. Decompose, without losing the optimum. A buffer that is alive whenever any other one is can lie
   at the bottom; groups of buffers that never meet in time are packed apart, on the same base.
2. Pack what remains with several orders and two placement rules; stop when the bound is reached.
3. Otherwise improve: exactly, by branch and bound, when there are few buffers; else by local search
   that places the buffers that stick out at the top earlier.

Everything is deterministic: ties are broken by index, effort is counted and not timed.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

PAGE_TRAILER_BYTES = 4
"""Bytes that follow the payload of every page in auxiliary storage: its CRC-32."""

EXACT_BUFFERS = 30
"""Branch and bound is tried on groups of at most this many buffers."""


def round_up(bytes: int, align: int) -> int:
    """The least multiple of `align` that is at least `bytes`."""
    return -(-bytes // align) * align


def page_bytes(payload_bytes: int, align: int = 4) -> int:
    """Bytes that a page of `payload_bytes` takes in storage, trailer and padding included."""
    return round_up(payload_bytes + PAGE_TRAILER_BYTES, align)


@dataclass(frozen=True)
class Buffer:
    """`bytes` that are needed during the steps `first` to `last`, both included."""

    bytes: int
    first: int
    last: int

    def __post_init__(self) -> None:
        if self.bytes < 0 or self.first > self.last:
            raise ValueError(f"not a buffer: {self}")


@dataclass(frozen=True)
class Packing:
    """Where each buffer lies (bytes from the start of the arena), in the order they were given."""

    offsets: tuple[int, ...]
    arena_bytes: int
    bound_bytes: int
    """No packing is smaller: the most bytes alive at one step, or the proven optimum."""

    @property
    def optimal(self) -> bool:
        return self.arena_bytes == self.bound_bytes


def pack(buffers: Sequence[Buffer], align: int = 4, effort: int = 4_000_000) -> Packing:
    """A low arena for `buffers`; every offset and size is a multiple of `align` bytes.

    `effort` bounds the search beyond the first heuristics, in elementary steps (roughly 5 to 10
    million of them a second); 0 runs only the heuristics.
    """
    if align < 1:
        raise ValueError(f"alignment must be at least 1, not {align}")
    sizes = [round_up(b.bytes, align) for b in buffers]
    offsets = [0] * len(buffers)
    groups = _decompose(buffers, sizes, offsets)
    bound = _peak(buffers, sizes, range(len(buffers)))
    # The group that is highest by its own bound goes first: others need only stay below it.
    groups.sort(key=lambda g: (-g.base - g.bound, g.members[0]))
    height = bound
    for group in groups:
        packer = _Packer([buffers[i] for i in group.members], [sizes[i] for i in group.members])
        found, top, proven = packer.run(height - group.base, group.bound, effort)
        for i, offset in zip(group.members, found, strict=True):
            offsets[i] = group.base + offset
        height = max(height, group.base + top)
        bound = max(bound, group.base + proven)
    return Packing(tuple(offsets), height, bound)


def _peak(buffers: Sequence[Buffer], sizes: Sequence[int], members: Iterable[int]) -> int:
    """The most bytes alive at one step."""
    change: dict[int, int] = {}
    for i in members:
        change[buffers[i].first] = change.get(buffers[i].first, 0) + sizes[i]
        change[buffers[i].last + 1] = change.get(buffers[i].last + 1, 0) - sizes[i]
    peak = live = 0
    for _, delta in sorted(change.items()):
        live += delta
        peak = max(peak, live)
    return peak


@dataclass(frozen=True)
class _Group:
    """Buffers to be packed together on top of `base`; `bound` is their own peak of live bytes."""

    members: tuple[int, ...]
    base: int
    bound: int


def _decompose(buffers: Sequence[Buffer], sizes: Sequence[int], offsets: list[int]) -> list[_Group]:
    """Splits by time and takes out buffers that all others meet, whose `offsets` it sets.

    Such a buffer cuts the arena into a part below and a part above it that no other buffer
    straddles, so sliding it to the bottom changes the height of no packing.
    """
    groups: list[_Group] = []
    pending = [([i for i in range(len(buffers)) if sizes[i]], 0)]
    while pending:
        members, base = pending.pop()
        for part in _meeting(buffers, members):
            begin = max(buffers[i].first for i in part)
            end = min(buffers[i].last for i in part)
            # Meeting all others: alive when the earliest one ends and when the latest one begins.
            bottom = [i for i in part if buffers[i].first <= end and buffers[i].last >= begin]
            if not bottom:
                groups.append(_Group(tuple(part), base, _peak(buffers, sizes, part)))
                continue
            top = base
            for i in bottom:
                offsets[i] = top
                top += sizes[i]
            taken = set(bottom)
            pending.append(([i for i in part if i not in taken], top))
    return groups


def _meeting(buffers: Sequence[Buffer], members: Sequence[int]) -> Iterable[list[int]]:
    """`members` split where the steps of some never meet the steps of the rest; indices ascend."""
    part: list[int] = []
    end = 0
    for i in sorted(members, key=lambda i: (buffers[i].first, i)):
        if part and buffers[i].first > end:
            yield sorted(part)
            part = []
        end = max(end, buffers[i].last) if part else buffers[i].last
        part.append(i)
    if part:
        yield sorted(part)


class _Packer:
    """Packs one group that does not decompose."""

    def __init__(self, buffers: Sequence[Buffer], sizes: Sequence[int]) -> None:
        self.buffers = buffers
        self.sizes = sizes
        self.count = len(buffers)
        self.meets: list[list[int]] = [[] for _ in buffers]
        active: list[int] = []
        for i in sorted(range(self.count), key=lambda i: (buffers[i].first, i)):
            active = [j for j in active if buffers[j].last >= buffers[i].first]
            for j in active:
                self.meets[i].append(j)
                self.meets[j].append(i)
            active.append(i)

    def run(self, goal: int, bound: int, effort: int) -> tuple[list[int], int, int]:
        """(offsets, height, lower bound); any height up to `goal` is as good as the least."""
        best: list[int] = []
        best_order: list[int] = []
        best_top = -1
        best_rule = _first_fit
        for order in self._orders():
            for rule in (_first_fit, _best_fit):
                offsets = self._place(order, rule)
                top = self._top(offsets)
                if best_top < 0 or top < best_top:
                    best, best_top, best_order, best_rule = offsets, top, order, rule
                if best_top <= goal:
                    return best, best_top, bound
        if effort and self.count <= EXACT_BUFFERS:
            search = _Exact(self.buffers, self.sizes, best, best_top, max(goal, bound), effort)
            best, best_top = search.best, search.top
            if search.complete:
                # Nothing lower than this exists, unless the search stopped early at the goal.
                return best, best_top, bound if best_top <= max(goal, bound) else best_top
            best_order = sorted(range(self.count), key=lambda i: (best[i], i))
            best_rule = _first_fit
        best, best_top = self._improve(best, best_top, best_order, best_rule, goal, effort)
        return best, best_top, bound

    def _top(self, offsets: Sequence[int]) -> int:
        return max(o + s for o, s in zip(offsets, self.sizes, strict=True))

    def _orders(self) -> Iterable[list[int]]:
        """Orders of placement that each do well on some programs."""
        buffers, sizes = self.buffers, self.sizes
        length = [b.last - b.first + 1 for b in buffers]
        keys: list[Callable[[int], tuple[int, ...]]] = [
            lambda i: (-sizes[i], -length[i]),
            lambda i: (-sizes[i] * length[i],),
            lambda i: (-length[i], -sizes[i]),
            lambda i: (buffers[i].first, -buffers[i].last, -sizes[i]),
            lambda i: (-buffers[i].last, buffers[i].first, -sizes[i]),
        ]
        for key in keys:
            yield sorted(range(self.count), key=lambda i: (*key(i), i))
        yield self._by_breadth()

    def _by_breadth(self) -> list[int]:
        """Buffers of the fullest step first, largest first (Pisarchyk and Lee, 2020)."""
        buffers, sizes = self.buffers, self.sizes
        breadth = [
            (
                sizes[i]
                + sum(sizes[j] for j in self.meets[i] if buffers[j].first <= buffers[i].first),
                i,
            )
            for i in range(self.count)
        ]
        order: dict[int, None] = {}
        for _, i in sorted(breadth, key=lambda entry: (-entry[0], entry[1])):
            step = buffers[i].first
            alive = [j for j in self.meets[i] if buffers[j].first <= step]
            for j in sorted([i, *alive], key=lambda j: (-sizes[j], j)):
                order.setdefault(j)
        return list(order)

    def _place(
        self, order: Sequence[int], rule: Callable[[list[tuple[int, int]], int], int]
    ) -> list[int]:
        """Offsets when the buffers are placed one after another, each where `rule` says."""
        offsets = [-1] * self.count
        sizes = self.sizes
        for i in order:
            taken = [(offsets[j], offsets[j] + sizes[j]) for j in self.meets[i] if offsets[j] >= 0]
            taken.sort()
            offsets[i] = rule(taken, sizes[i])
        return offsets

    def _improve(
        self,
        best: list[int],
        best_top: int,
        order: list[int],
        rule: Callable[[list[tuple[int, int]], int], int],
        goal: int,
        effort: int,
    ) -> tuple[list[int], int]:
        """Local search: what sticks out at the top is placed earlier than something it meets."""
        rng = random.Random(0)
        offsets, top = best, best_top
        cost = self.count + sum(len(m) for m in self.meets)
        for _ in range(min(2000, effort // cost)):
            if best_top <= goal:
                break
            highest = [i for i in range(self.count) if offsets[i] + self.sizes[i] == top]
            moved = rng.choice(highest)
            below = [j for j in self.meets[moved] if offsets[j] < offsets[moved]]
            before = rng.choice(below or self.meets[moved])
            trial = [i for i in order if i != moved]
            trial.insert(trial.index(before), moved)
            if rng.random() < 0.3:
                a, b = rng.sample(range(self.count), 2)
                trial[a], trial[b] = trial[b], trial[a]
            placed = self._place(trial, rule)
            height = self._top(placed)
            if height <= top or rng.random() < 0.02:
                order, offsets, top = trial, placed, height
                if top < best_top:
                    best, best_top = offsets, top
        return best, best_top


def _first_fit(taken: list[tuple[int, int]], size: int) -> int:
    """The lowest hole of at least `size` between the sorted intervals `taken`."""
    floor = 0
    for begin, end in taken:
        if begin - floor >= size:
            return floor
        if end > floor:
            floor = end
    return floor


def _best_fit(taken: list[tuple[int, int]], size: int) -> int:
    """The smallest hole of at least `size`; above everything if there is none."""
    floor = 0
    chosen, hole = -1, 0
    for begin, end in taken:
        gap = begin - floor
        if gap >= size and (chosen < 0 or gap < hole):
            chosen, hole = floor, gap
        if end > floor:
            floor = end
    return chosen if chosen >= 0 else floor


class _Exact:
    """Depth-first branch and bound over the orders in which a skyline can be built.

    Any packing, sorted by offset and let fall, is a skyline order, so nothing is lost. Pruned are
    orders that cannot stay below the best height; offsets that decrease (another order gives the
    same packing); and placements above a hole that an unplaced buffer fits into (it would have to
    be placed higher than it need be). The rules are minimalloc's.
    """

    def __init__(
        self,
        buffers: Sequence[Buffer],
        sizes: Sequence[int],
        best: list[int],
        top: int,
        goal: int,
        effort: int,
    ) -> None:
        self.sizes, self.best, self.top, self.goal = sizes, best, top, goal
        # Only steps at which a buffer begins matter: every other step has a subset alive.
        steps = sorted({b.first for b in buffers})
        self.span = [
            [k for k, step in enumerate(steps) if b.first <= step <= b.last] for b in buffers
        ]
        self.remaining = [0] * len(steps)
        for i, span in enumerate(self.span):
            for k in span:
                self.remaining[k] += sizes[i]
        self.skyline = [0] * len(steps)
        self.offsets = [0] * len(buffers)
        self.effort = effort
        self._search(list(range(len(buffers))), 0, -1)
        self.complete = self.effort > 0

    def _search(self, unplaced: list[int], floor: int, last: int) -> None:
        if not unplaced:
            self.best, self.top = list(self.offsets), max(self.skyline)
            return
        skyline, sizes = self.skyline, self.sizes
        self.effort -= sum(len(self.span[i]) for i in unplaced)
        at = {i: max(max(skyline[k] for k in self.span[i]), floor) for i in unplaced}
        ceiling = min(at[i] + sizes[i] for i in unplaced)
        for i in sorted(unplaced, key=lambda i: (at[i], -sizes[i], i)):
            offset = at[i]
            if offset >= ceiling:
                break
            if offset == floor and i < last:
                continue
            saved = [skyline[k] for k in self.span[i]]
            for k in self.span[i]:
                skyline[k] = offset + sizes[i]
                self.remaining[k] -= sizes[i]
            # What is still to come at a step lies above both its skyline and this offset.
            if all(
                max(s, offset if r else 0) + r < self.top
                for s, r in zip(skyline, self.remaining, strict=True)
            ):
                self.offsets[i] = offset
                self._search([j for j in unplaced if j != i], offset, i)
            for k, height in zip(self.span[i], saved, strict=True):
                skyline[k] = height
                self.remaining[k] += sizes[i]
            if self.top <= self.goal or self.effort <= 0:
                return
