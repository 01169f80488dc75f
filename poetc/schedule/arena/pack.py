"""Packs buffers with known lifetimes into one arena (dynamic storage allocation, made static).

A buffer is a rectangle: bytes high, and as long as the steps it lives. Two buffers that live at a
common step must not overlap in the arena. Finding the lowest arena is NP-hard; the most bytes
alive at one step are a lower bound that real training steps nearly always reach. Therefore:

1. Decompose, without losing the optimum. A buffer that is alive whenever any other one is can lie
   at the bottom; groups of buffers that never meet in time are packed apart, on the same base.
2. Pack what remains with several orders and two placement rules; stop when the bound is reached.
3. Otherwise search, in rounds of growing effort (`arena/search.py`): for the height that is
   wanted, for the bound, then for heights in between. With few buffers the search ends by itself
   and proves the optimum.

Everything is deterministic: ties are broken by index, effort is counted and not timed.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from poetc.schedule.arena.search import Fit

EFFORT = 20_000_000
"""Elementary steps of the search, if not said otherwise."""

STEPS_PER_NODE = 100
"""Elementary steps of effort for a node of the search."""

FIRST_ROUND_NODES = 2_000
"""Nodes of the first round of the search for the height that is wanted; each later round has twice
as many."""

OTHER_HEIGHTS = 16
"""Each height between has one part in so many of a round."""


def round_up(bytes: int, align: int) -> int:
    """The least multiple of `align` that is at least `bytes`."""
    return -(-bytes // align) * align


def is_power_of_two(number: int) -> bool:
    """Whether `number` is 1, 2, 4, 8, ..."""
    return number > 0 and not number & (number - 1)


@dataclass(frozen=True)
class Buffer:
    """`bytes` that are needed during the steps `first` to `last`, both included.

    A buffer begins at a multiple of `align`, a power of two, and takes whole multiples of it: what
    it is rounded up by belongs to no other buffer.
    """

    bytes: int
    first: int
    last: int
    align: int = 1

    def __post_init__(self) -> None:
        if self.bytes < 0 or self.first > self.last or not is_power_of_two(self.align):
            raise ValueError(f"not a buffer: {self}")


@dataclass(frozen=True)
class Packing:
    """The offset of each buffer (bytes from the start of the arena), in the order they were
    given."""

    offsets: tuple[int, ...]
    arena_bytes: int
    bound_bytes: int
    """No packing is smaller: the most bytes alive at one step, or the proven optimum."""

    @property
    def optimal(self) -> bool:
        return self.arena_bytes == self.bound_bytes


def never() -> bool:
    """Does not stop a search."""
    return False


def pack(
    buffers: Sequence[Buffer],
    align: int = 4,
    effort: int = EFFORT,
    stop: Callable[[], bool] = never,
    target_bytes: int = 0,
) -> Packing:
    """A low arena for `buffers`; every offset and size is a multiple of `align` bytes, and of the
    buffer's own alignment.

    Any arena of at most `target_bytes` is as good as the lowest: the first one ends the search,
    which looks for just that height before it looks for others. `effort` bounds the search beyond
    the first heuristics, in elementary steps (roughly 2 to 5 million of them a second); 0 runs only
    the heuristics. More effort never gives a higher arena. The search ends early when `stop` says
    so.
    """
    if not is_power_of_two(align):
        raise ValueError(f"alignment must be a power of two, not {align}")
    buffers = [replace(b, align=max(b.align, align)) for b in buffers]
    sizes = _sizes(buffers)
    offsets = [0] * len(buffers)
    groups = _decompose(buffers, sizes, offsets)
    bound = _peak(buffers, sizes, range(len(buffers)))
    goal = max(bound, target_bytes)
    packers: list[_Packer] = []
    # The group that is highest by its own bound goes first: others need only stay below it.
    for group in sorted(groups, key=lambda g: (-g.base - g.bound, g.members[0])):
        packer = _Packer(group, [buffers[i] for i in group.members])
        packer.place_in_order(goal, stop)
        goal = max(goal, packer.height)
        packers.append(packer)
    goal = max(bound, target_bytes)
    nodes = effort // STEPS_PER_NODE
    while nodes > 0 and packers and not stop():
        highest = max(packers, key=lambda p: p.height)
        goal = max(goal, highest.bound)
        if highest.height <= goal:
            break
        nodes -= highest.search(goal, nodes, stop)
    for packer in packers:
        for i, offset in zip(packer.group.members, packer.offsets, strict=True):
            offsets[i] = packer.group.base + offset
    height = max((packer.height for packer in packers), default=bound)
    return Packing(
        tuple(offsets), max(bound, height), max([bound, *(packer.bound for packer in packers)])
    )


def most_alive(buffers: Sequence[Buffer]) -> int:
    """The most bytes alive at one step, sizes rounded up to alignments: no arena is smaller."""
    return _peak(buffers, _sizes(buffers), range(len(buffers)))


def _sizes(buffers: Sequence[Buffer]) -> list[int]:
    return [round_up(b.bytes, b.align) for b in buffers]


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
    straddles, so sliding it to the bottom changes the height of no packing: if its size is a
    multiple of all alignments, so that what was below it stays aligned.
    """
    groups: list[_Group] = []
    pending = [([i for i in range(len(buffers)) if sizes[i]], 0)]
    while pending:
        members, base = pending.pop()
        for part in _meeting(buffers, members):
            begin = max(buffers[i].first for i in part)
            end = min(buffers[i].last for i in part)
            # Meeting all others: alive when the earliest one ends and when the latest one begins.
            align = max(buffers[i].align for i in part)
            bottom = [
                i
                for i in part
                if buffers[i].first <= end and buffers[i].last >= begin and not sizes[i] % align
            ]
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
    """Packs one group that does not decompose.

    `offsets` is the best packing so far, from the group's base up, and `height` where that ends.
    The group cannot end below `bound`. Both count from the bottom of the arena.
    """

    def __init__(self, group: _Group, buffers: Sequence[Buffer]) -> None:
        self.group = group
        self.bound = group.base + group.bound
        self.buffers = buffers
        self.sizes = sizes = _sizes(buffers)
        self.count = len(buffers)
        # Where all sizes are multiples of an alignment, buffers that touch have it by themselves.
        self.unit = math.gcd(*sizes)
        self.aligns = [b.align if self.unit % b.align else 1 for b in buffers]
        self.unit = math.gcd(self.unit, *(a for a in self.aligns if a > 1))
        self.meets: list[list[int]] = [[] for _ in buffers]
        active: list[int] = []
        for i in sorted(range(self.count), key=lambda i: (buffers[i].first, i)):
            active = [j for j in active if buffers[j].last >= buffers[i].first]
            for j in active:
                self.meets[i].append(j)
                self.meets[j].append(i)
            active.append(i)
        self.offsets: list[int] = []
        self.height = -1
        self.rounds = 0
        self.fits: dict[int, Fit] = {}

    def place_in_order(self, goal: int, stop: Callable[[], bool]) -> None:
        """Packs by heuristics, until the height is at most `goal` or, after the first, `stop`."""
        for order in self._orders():
            for rule in (_first_fit, _best_fit):
                self._take(self._place(order, rule))
                if self.height <= goal or stop():
                    return

    def search(self, goal: int, most: int, stop: Callable[[], bool]) -> int:
        """A round of the search, with twice the effort of the last one; returns the nodes it took,
        at most `most`.

        First the height `goal`, and the least possible: without room to spare, less has to be
        decided. Then heights between what failed and the best packing.
        """
        share = FIRST_ROUND_NODES << self.rounds
        self.rounds += 1
        low = goal - (goal - self.group.base) % self.unit
        spent = self._fit(low, min(share, most), stop)
        if self.bound < low < self.height:
            spent += self._fit(self.bound, min(share, most - spent), stop)
        while low + self.unit < self.height and spent < most and not stop():
            height = (low + self.height) // 2
            height -= (height - self.group.base) % self.unit
            spent += self._fit(height, min(share // OTHER_HEIGHTS, most - spent), stop)
            if height < self.height:
                low = height
        return spent

    def _fit(self, height: int, effort: int, stop: Callable[[], bool]) -> int:
        """Goes on with the search for `height`; returns the nodes it took."""
        fit = self.fits.get(height)
        if fit is None:
            spans = [(b.first, b.last) for b in self.buffers]
            fit = Fit(spans, self.sizes, self.aligns, height - self.group.base)
            self.fits[height] = fit
        spent = fit.run(effort, stop)
        if fit.offsets is not None:
            self._take(fit.offsets)
            self.fits = {h: f for h, f in self.fits.items() if h < self.height}
        if fit.impossible:
            self.bound = max(self.bound, height + self.unit)
        return spent

    def _take(self, offsets: list[int]) -> None:
        """Keeps `offsets` if they are the lowest so far."""
        top = max(o + s for o, s in zip(offsets, self.sizes, strict=True))
        if self.height < 0 or self.group.base + top < self.height:
            self.offsets, self.height = offsets, self.group.base + top

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
        self, order: Sequence[int], rule: Callable[[list[tuple[int, int]], int, int], int]
    ) -> list[int]:
        """Offsets when the buffers are placed one after another, each where `rule` says."""
        offsets = [-1] * self.count
        sizes = self.sizes
        for i in order:
            taken = [(offsets[j], offsets[j] + sizes[j]) for j in self.meets[i] if offsets[j] >= 0]
            taken.sort()
            offsets[i] = rule(taken, sizes[i], self.aligns[i])
        return offsets


def _first_fit(taken: list[tuple[int, int]], size: int, align: int) -> int:
    """The lowest hole of at least `size` between the sorted intervals `taken`."""
    floor = 0
    for begin, end in taken:
        if begin - floor >= size:
            return floor
        if end > floor:
            floor = round_up(end, align)
    return floor


def _best_fit(taken: list[tuple[int, int]], size: int, align: int) -> int:
    """The smallest hole of at least `size`; above everything if there is none."""
    floor = 0
    chosen, hole = -1, 0
    for begin, end in taken:
        gap = begin - floor
        if gap >= size and (chosen < 0 or gap < hole):
            chosen, hole = floor, gap
        if end > floor:
            floor = round_up(end, align)
    return chosen if chosen >= 0 else floor
