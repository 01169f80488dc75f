"""Instances of arena packing whose perfect packing is known: a rectangle cut into buffers.

The rectangle has time as its width and bytes as its height. It is cut into pieces without a rest,
so that the bytes alive are the capacity at every step and the least arena is the capacity. The
places of the pieces are then forgotten and their order shuffled.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

from poetc.schedule.arena.pack import Buffer

CAPACITY_BYTES = 1 << 20


@dataclass(frozen=True)
class Piece:
    """Steps `begin` to `end` (without `end`), bytes `low` to `high` (without `high`)."""

    begin: int
    end: int
    low: int
    high: int


def perfect(
    seed: int,
    count: int,
    *,
    steps: int = 100,
    unit_bytes: int = 4,
    spirals: float = 0.0,
    slack: float = 0.0,
    most: int = 2,
    even: bool = False,
    capacity_bytes: int = CAPACITY_BYTES,
) -> list[Buffer]:
    """`count` buffers (or a few more) that fit into `capacity_bytes` without a hole.

    Cuts lie at multiples of `unit_bytes` and at whole steps of `steps`. With probability `spirals`
    a piece is cut into five around a middle one, which no sequence of straight cuts can do.
    Other cuts make two to `most` parts. With `even`, big and small pieces are as likely to be cut,
    which leaves a few very long and very large ones, as in real programs. Afterwards each buffer is
    left out with probability `slack`, which leaves holes.
    """
    rng = random.Random(seed)
    pieces = [Piece(0, steps, 0, capacity_bytes // unit_bytes)]
    stuck = 0
    while len(pieces) < count and stuck < 1000:
        # Otherwise bigger pieces first, so that sizes do not differ too much.
        at = max(
            rng.sample(range(len(pieces)), 1 if even else min(3, len(pieces))),
            key=lambda i: _area(pieces[i]),
        )
        parts = _cut(rng, pieces[at], spirals, most)
        stuck = 0 if len(parts) > 1 else stuck + 1
        pieces[at : at + 1] = parts
    rng.shuffle(pieces)
    return [
        Buffer((p.high - p.low) * unit_bytes, p.begin, p.end - 1)
        for p in pieces
        if rng.random() >= slack
    ]


def _area(piece: Piece) -> int:
    return (piece.end - piece.begin) * (piece.high - piece.low)


def _cut(rng: random.Random, piece: Piece, spirals: float, most: int) -> list[Piece]:
    begin, end, low, high = piece.begin, piece.end, piece.low, piece.high
    if rng.random() < spirals and end - begin >= 3 and high - low >= 3:
        t1, t2 = sorted(rng.sample(range(begin + 1, end), 2))
        y1, y2 = sorted(rng.sample(range(low + 1, high), 2))
        return [
            Piece(begin, t2, low, y1),
            Piece(t2, end, low, y2),
            Piece(t1, end, y2, high),
            Piece(begin, t1, y1, high),
            Piece(t1, t2, y1, y2),
        ]
    across = rng.random() < 0.5
    number = rng.randint(2, most) if most > 2 else 2
    if across and end - begin >= number:
        times = [begin, *sorted(rng.sample(range(begin + 1, end), number - 1)), end]
        return [Piece(a, b, low, high) for a, b in pairwise(times)]
    if not across and high - low >= number:
        heights = [low, *sorted(rng.sample(range(low + 1, high), number - 1)), high]
        return [Piece(begin, end, a, b) for a, b in pairwise(heights)]
    return [piece]
