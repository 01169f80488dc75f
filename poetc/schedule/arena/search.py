"""Fits buffers under a given height, by filling the skyline's valleys.

Only the steps at which a buffer begins matter, numbered from 0. The skyline is the top of what has
been placed at each of them. A *valley* is a run of steps of equal height between higher walls; the
ends of the arena and steps at which nothing is left to place are walls of the full height. In a
packing where every buffer has fallen as far as it can, the left corner of a valley is either

- under a buffer that begins at its first step, ends within it and may lie at that height: any
  other would lie on a wall; or
- a hole, up to the lowest height on which a buffer can come to rest there, or to which one that
  must be aligned is lifted.

The same holds for the right corner. Holes are limited: at each step the height minus the bytes
alive there. So every valley has a short list of moves. The search takes the valley corner with the
fewest (or, where there is room, the lowest valley that has several) and gives up where one has
none; where the arena is tight, most moves are forced. Sets of buffers that have failed are
remembered.

A dead end has a reason: what was placed around the valley. The search jumps back to the last move
that is part of it. Depth-first search is at the mercy of its first decisions all the same, so it is
restarted with other preferences and more patience, from fixed seeds. A search that ends by itself
proves that there is no packing, unless it relied on the guesses of `arena/join.py`.
"""

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from poetc.schedule.arena.join import Block, join, regions

_Segment = tuple[int, int, int]
"""First and last step of a run of equal height, and the height."""

_Move = tuple[int, int, int]
"""Buffer to place at the floor of a valley, its corner, 0; or `_HOLE`, the step, its bytes."""

_HOLE = -1

_STEPS_PER_NODE = 64
"""Steps of valleys that are looked at for the price of a node."""

_NODES_PER_LOOK = 256
"""Nodes after which a search says how many it took, so that it can be stopped."""

_PATIENCE = 1.3
"""Nodes of the shortest search, for each buffer and possible hole: with luck it needs no more."""


_DOUBTS = (0.0, 0.1, 0.3, 0.1)
"""Shares of the guesses that the restarts do without, in turn."""


def _luby(attempt: int) -> int:
    """1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 ...: how patient a restart is (Luby, Sinclair, Zuckerman)."""
    length = (attempt + 1).bit_length()
    if attempt + 2 == 1 << length:
        return 1 << length - 1
    return _luby(attempt + 1 - (1 << length - 1))


class Fit:
    """A search for offsets below `height`, which goes on where it was when it is run again.

    After `run`, `offsets` has a packing, or is None; then `impossible` says that there is none.
    """

    def __init__(
        self,
        spans: Sequence[tuple[int, int]],
        sizes: Sequence[int],
        aligns: Sequence[int],
        height: int,
    ) -> None:
        self.offsets: list[int] | None = None
        self.impossible = False
        self.work = self._work(Valleys(spans, sizes, aligns, height))

    def run(self, effort: int, stop: Callable[[], bool]) -> int:
        """Searches for some `effort` nodes, of 20,000 a second; returns how many it took.

        Ends early when `stop` says so.
        """
        spent = 0
        while spent < effort and not stop():
            nodes = next(self.work, None)
            if nodes is None:
                break
            spent += nodes
        return spent

    def _work(self, plain: "Valleys") -> Iterator[int]:
        """Nodes taken since it was asked last; ends when there is an answer."""
        blocks = singles(plain)
        joined = blocks if plain.impossible else join(blocks, plain.room)
        guess = regions(joined, plain.room)
        guessing = any(a or b for a, b in guess) or len(joined) < len(blocks)
        whole = _valleys(joined, plain.height, guess)
        holes = sum(room > 0 for room in plain.room)
        attempt = 0
        while not plain.impossible:
            searches = [(plain, blocks, attempt)]
            if guessing:
                doubt = _DOUBTS[attempt % len(_DOUBTS)]
                some = join(blocks, plain.room, doubt, attempt)
                yield len(blocks)  # what that takes
                searches = [
                    (whole, joined, attempt),
                    (_valleys(some, plain.height), some, attempt),
                    # Seldom found, but the only one that proves anything.
                    *([(plain, blocks, attempt // 3)] if attempt % 3 == 0 else []),
                ]
            for search, parts, number in searches:
                if search.impossible:
                    continue
                moves = len(parts) + 8 * holes
                patience = int(_PATIENCE * moves * _luby(number)) + 1
                yield from search.run(number, patience)
                if search.offsets is not None:
                    self.offsets = place(parts, search.offsets)
                    return
            attempt += 1
        self.impossible = True


def _valleys(
    blocks: Sequence[Block], height: int, guess: Sequence[tuple[int, int]] | None = None
) -> "Valleys":
    """A search for places of `blocks`."""
    return Valleys(
        [(block.first, block.last) for block in blocks],
        [block.size for block in blocks],
        [block.align for block in blocks],
        height,
        guess,
    )


def singles(search: "Valleys") -> list[Block]:
    """A block for each buffer of `search`."""
    buffers = zip(search.first, search.last, search.sizes, search.aligns, strict=True)
    return [Block(a, b, size, align, ((i, 0),)) for i, (a, b, size, align) in enumerate(buffers)]


def place(blocks: Sequence[Block], offsets: Sequence[int]) -> list[int]:
    """Offsets of the buffers in `blocks`, in the order of their numbers."""
    parts = sorted(
        (i, offset + above)
        for block, offset in zip(blocks, offsets, strict=True)
        for i, above in block.parts
    )
    return [offset for _, offset in parts]


@dataclass(slots=True)
class _Level:
    """A node of the search: the skyline, the moves of its segments (None: no valley), the valley
    chosen, its moves that are untried, the reason why those before failed, the buffers placed."""

    segments: list[_Segment]
    moves: list[list[_Move] | None]
    at: int
    untried: list[_Move]
    reason: int
    mask: int
    move: _Move | None = None


class Valleys:
    """The search for offsets of buffers `spans[i]` (first and last step) of `sizes[i]` > 0 bytes
    below `height` bytes, multiples of `aligns[i]`. `regions` are those of `arena_join.regions`.

    After `run`, `offsets` has a packing, or is None; then `impossible` says that there is none.
    """

    def __init__(
        self,
        spans: Sequence[tuple[int, int]],
        sizes: Sequence[int],
        aligns: Sequence[int],
        height: int,
        regions: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        self.sizes, self.aligns, self.height = sizes, aligns, height
        begins = sorted({first for first, _ in spans})
        place = {step: k for k, step in enumerate(begins)}
        self.first = [place[first] for first, _ in spans]
        self.last = [bisect_right(begins, last) - 1 for _, last in spans]
        self.steps = len(begins)
        self.begin: list[list[int]] = [[] for _ in begins]
        self.end: list[list[int]] = [[] for _ in begins]
        self.room = [height] * self.steps
        self.left = [0] * self.steps
        for i, (a, b) in enumerate(zip(self.first, self.last, strict=True)):
            self.begin[a].append(i)
            self.end[b].append(i)
            for t in range(a, b + 1):
                self.room[t] -= sizes[i]
                self.left[t] += 1
        self.regions = regions or [(0, 0)] * len(spans)
        self.looked = 0
        self.offsets: list[int] | None = None
        self.impossible = min(self.room, default=0) < 0

    def run(self, attempt: int, patience: int) -> Iterator[int]:
        """One depth-first search of at most `patience` nodes; yields how many it took since it was
        asked last, ever so often. `attempt` numbers the preferences among moves.

        A dead end has a reason: the moves that shaped the valley and its walls, which are those
        over its steps and their neighbours. Moves that are no part of it are taken back at once,
        without trying their alternatives (conflict-directed backjumping). Reasons are sets of
        moves: bit i is the placing of buffer i, bit `count` + t any hole at step t.
        """
        count = len(self.sizes)
        self._prefer(attempt)
        self.placed = [False] * count
        self.now_room, self.now_left = list(self.room), list(self.left)
        self.cover = [0] * self.steps
        self.columns: list[list[int]] = [[] for _ in range(self.steps)]
        offsets = self.placing = [0] * count
        failed: dict[object, int] = {}
        segments: list[_Segment] = [(0, self.steps - 1, 0)]
        moves = [self._moves(segments, 0)]
        at, untried, reason = self._choose(segments, moves)
        if at < 0:
            self.impossible = True
            yield self._told(1)
            return
        stack = [_Level(segments, moves, at, untried, reason, 0)]
        nodes = told = 0
        while nodes < patience:
            level = stack[-1]
            if level.move is not None:
                self._take_back(level.move)
                level.move = None
            if not level.untried:
                reason = level.reason
                stack.pop()
                failed[self._key(level)] = reason
                while stack:
                    level = stack[-1]
                    assert level.move is not None
                    bit = self._bit(level.move)
                    if reason & bit:
                        level.reason |= reason & ~bit
                        break
                    self._take_back(level.move)
                    stack.pop()
                else:
                    self.impossible = True
                    yield self._told(nodes - told)
                    return
                continue
            if nodes - told == _NODES_PER_LOOK:
                yield self._told(nodes - told)
                told = nodes
            nodes += 1
            move = level.move = level.untried.pop()
            item, t, amount = move
            _, _, h = level.segments[level.at]
            mask = level.mask
            if item == _HOLE:
                lower = upper = t
                top = h + amount
                self.now_room[t] -= amount
                self.cover[t] |= 1 << count + t
            else:
                lower, upper, top = self.first[item], self.last[item], h + self.sizes[item]
                mask |= 1 << item
                self.placed[item] = True
                offsets[item] = h
                bit = 1 << item
                for step in range(lower, upper + 1):
                    self.now_left[step] -= 1
                    self.cover[step] |= bit
                    self.columns[step].append(item)
                if len(stack) >= count and mask.bit_count() == count:
                    self.offsets = offsets
                    yield self._told(nodes - told)
                    return
            segments, moves = self._replace(level, lower, upper, top)
            at, untried, reason = self._choose(segments, moves)
            new = _Level(segments, moves, at, untried, reason, mask)
            if at >= 0:
                known = failed.get(self._key(new))
                if known is None:
                    stack.append(new)
                    continue
                reason = known
            level.reason |= reason & ~self._bit(move)
        yield self._told(nodes - told)

    def _told(self, nodes: int) -> int:
        """`nodes`, and what looking at wide valleys has cost beyond them."""
        more, self.looked = divmod(self.looked, _STEPS_PER_NODE)
        return nodes + more

    def _key(self, level: "_Level") -> object:
        if self.now_room == self.room:
            # Without holes, what is placed says how high each step is.
            return level.mask
        return level.mask, tuple(level.segments)

    def _bit(self, move: _Move) -> int:
        item, t, _ = move
        return 1 << (len(self.sizes) + t if item == _HOLE else item)

    def _take_back(self, move: _Move) -> None:
        item, t, amount = move
        if item == _HOLE:
            self.now_room[t] += amount
            if self.now_room[t] == self.room[t]:
                self.cover[t] &= ~self._bit(move)
            return
        self.placed[item] = False
        bit = ~(1 << item)
        for step in range(self.first[item], self.last[item] + 1):
            self.now_left[step] += 1
            self.cover[step] &= bit
            self.columns[step].pop()

    def _replace(
        self,
        level: "_Level",
        lower: int,
        upper: int,
        top: int,
    ) -> tuple[list[_Segment], list[list[_Move] | None]]:
        """Skyline and moves after steps `lower` to `upper` of the valley have risen to `top`."""
        segments, moves, at, left = level.segments, level.moves, level.at, self.now_left
        a, b, h = segments[at]
        parts: list[_Segment] = []
        if a < lower:
            parts.append((a, lower - 1, h))
        t = lower
        while t <= upper:
            # Where nothing is left to place, the step is a wall.
            begin, open_ = t, left[t] > 0
            while t <= upper and (left[t] > 0) == open_:
                t += 1
            parts.append((begin, t - 1, top if open_ else self.height))
        if upper < b:
            parts.append((upper + 1, b, h))
        begin, end = at, at + 1
        if at and segments[at - 1][2] == parts[0][2]:
            parts[0] = (segments[at - 1][0], parts[0][1], parts[0][2])
            begin -= 1
        if end < len(segments) and segments[end][2] == parts[-1][2]:
            parts[-1] = (parts[-1][0], segments[end][1], parts[-1][2])
            end += 1
        new = segments[:begin] + parts + segments[end:]
        new_moves = moves[:begin] + [None] * len(parts) + moves[end:]
        for i in range(max(0, begin - 1), min(len(new), begin + len(parts) + 1)):
            new_moves[i] = self._moves(new, i)
        return new, new_moves

    def _moves(self, segments: list[_Segment], at: int) -> list[_Move] | None:
        """The moves at the better corner of segment `at`; None where it is no valley."""
        a, b, h = segments[at]
        height = self.height
        left_wall = segments[at - 1][2] if at else height
        right_wall = segments[at + 1][2] if at + 1 < len(segments) else height
        if h >= left_wall or h >= right_wall:
            return None
        self.looked += b - a + 1
        depth = min(left_wall, right_wall) - h
        placed, first, last, sizes = self.placed, self.first, self.last, self.sizes
        aligns = self.aligns
        room = self.now_room
        change = [0] * (b - a + 2)
        least = depth
        for t in range(a, b + 1):
            for i in self.begin[t]:
                if last[i] <= b and not placed[i]:
                    size = sizes[i]
                    change[t - a] += size
                    change[last[i] + 1 - a] -= size
                    if size < least:
                        least = size
                    if (lift := -h % aligns[i]) and lift < least:
                        least = lift
        inside = 0
        for t in range(a, b + 1):
            inside += change[t - a]
            # A buffer that reaches over a wall lies above it; those inside, or holes, are below.
            if inside + room[t] < depth:
                return []
        best: list[_Move] | None = None
        best_wall = 0
        for side, t, corner, wall in (
            (0, a, self.begin[a], left_wall),
            (1, b, self.end[b], right_wall),
        ):
            region = self._region(t + 1 if side else t - 1, h, 1 - side)
            seen: set[tuple[int, int, int, int]] = set()
            moves: list[_Move] = []
            for i in corner:
                if placed[i] or first[i] < a or last[i] > b or h % aligns[i]:
                    continue
                if region and self.regions[i][side] not in (region, 0):
                    continue
                same = first[i], last[i], sizes[i], aligns[i]
                if same not in seen:
                    seen.add(same)
                    moves.append((i, t, 0))
            if room[t] >= least:
                moves.append((_HOLE, t, least))
            if best is None or len(moves) < len(best):
                best = moves
                best_wall = wall
        assert best is not None
        if len(best) > 1:
            best.sort(key=lambda move: self._liking(move, segments[at], best_wall))
        return best

    def _prefer(self, attempt: int) -> None:
        """Sets the order of moves: long lifetimes first, or big areas, with some randomness."""
        rng = random.Random(attempt)
        self.snug = attempt % 3 == 0
        self.frugal = attempt % 2 == 0
        self.weight = [
            (last - first + 1) * (size if attempt % 3 == 1 else 1) * (0.5 + rng.random())
            for first, last, size in zip(self.first, self.last, self.sizes, strict=True)
        ]

    def _liking(self, move: _Move, valley: _Segment, wall: int) -> tuple[int, float]:
        """The order of moves, in which the first to be tried is last: if `snug` those that fill the
        valley's width or end level with the wall; holes come first."""
        item = move[0]
        if item == _HOLE:
            return -1, 0.0
        a, b, h = valley
        fits = 0
        if self.snug:
            fits = (self.first[item] == a and self.last[item] == b) + (h + self.sizes[item] == wall)
        return fits, self.weight[item]

    def _region(self, t: int, h: int, side: int) -> int:
        """The region, at its end (`side` 1) or begin, of the buffer at step `t` and height `h`."""
        if 0 <= t < self.steps:
            for i in reversed(self.columns[t]):
                if self.placing[i] <= h:
                    if h < self.placing[i] + self.sizes[i]:
                        return self.regions[i][side]
                    break
        return 0

    def _choose(
        self, segments: list[_Segment], moves: list[list[_Move] | None]
    ) -> tuple[int, list[_Move], int]:
        """The next valley, -1 if one has no moves; its moves; the reason why it has no others."""
        best, fewest, lowest = -1, 1 << 30, 0
        for i, known in enumerate(moves):
            if known is None:
                continue
            # Where there is much room, filling from the bottom wastes less of it.
            number = len(known) if self.frugal else min(len(known), 2)
            if number < fewest or (number == fewest and segments[i][2] < lowest):
                best, fewest, lowest = i, number, segments[i][2]
                if not fewest:
                    break
        a, b, _ = segments[best]
        reason = 0
        for t in range(max(0, a - 1), min(self.steps, b + 2)):
            reason |= self.cover[t]
        return (best if fewest else -1), list(moves[best] or ()), reason
