"""Joins buffers that lie side by side in every tight packing, so that there are fewer to place.

Where an arena has no room to spare at steps t and t + 1, the bytes that buffers leave after t are
those that others take at t + 1. If some that end have exactly the size of some that begin, and no
fewer of them do, they are taken to share one region: one that ends and one that begins become one
buffer that lives longer; several that end together with equal lifetimes, or begin so, become one
that is higher. With several such groups at one step that is a guess (two regions could lie on one
another and their borders not meet). So a search that fails on joined buffers proves nothing, and
the next one may doubt some of the guesses, at random.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from random import Random

MOST_AT_A_STEP = 12
"""Groups are looked for where at most this many buffers end and begin."""


@dataclass(frozen=True, slots=True)
class Block:
    """Buffers that move as one, alive at steps `first` to `last`, at a multiple of `align`.

    `parts` are (number of a buffer, bytes above the block's offset).
    """

    first: int
    last: int
    size: int
    align: int
    parts: tuple[tuple[int, int], ...]


def join(
    blocks: Sequence[Block], room: Sequence[int], doubt: float = 0.0, seed: int = 0
) -> list[Block]:
    """Fewer blocks for a packing without holes where `room` is 0.

    Each chance to join some is passed over with probability `doubt`.
    """
    rng = Random(seed)
    begin: list[set[Block]] = [set() for _ in room]
    end: list[set[Block]] = [set() for _ in room]

    changed = [False] * len(room)  # what ends at a step, or begins at the next (the last has none)

    def put(block: Block) -> None:
        begin[block.first].add(block)
        end[block.last].add(block)
        changed[block.first - 1] = changed[block.last] = True

    def take(old: Sequence[Block]) -> None:
        for block in old:
            begin[block.first].remove(block)
            end[block.last].remove(block)

    for block in blocks:
        put(block)
    tight = [t for t in range(len(room) - 1) if not room[t] and not room[t + 1]]
    while any(changed[t] for t in tight):
        for t in tight:
            while changed[t]:
                changed[t] = False
                if rng.random() < doubt:
                    continue
                for ends, begins in _groups(_sorted(end[t]), _sorted(begin[t + 1])):
                    new: list[Block] = []
                    if len(ends) == len(begins) == 1:
                        new = [_beside(ends[0], begins[0])]
                        take([*ends, *begins])
                    else:
                        if len(ends) > 1 and len({b.first for b in ends}) == 1:
                            new.append(_stack(ends))
                            take(ends)
                        if len(begins) > 1 and len({b.last for b in begins}) == 1:
                            new.append(_stack(begins))
                            take(begins)
                    for block in new:
                        put(block)
                        # Others of this step may go together now.
                        changed[t] = True
    return _sorted({block for group in begin for block in group})


def _sorted(blocks: set[Block]) -> list[Block]:
    return sorted(blocks, key=lambda b: b.parts)


def _beside(a: Block, b: Block) -> Block:
    return Block(a.first, b.last, a.size, max(a.align, b.align), a.parts + b.parts)


def _stack(blocks: Sequence[Block]) -> Block:
    parts: list[tuple[int, int]] = []
    height = 0
    # Sizes are multiples of alignments: with the strictest lowest, all are met.
    for block in sorted(blocks, key=lambda b: -b.align):
        parts += ((i, height + above) for i, above in block.parts)
        height += block.size
    align = max(block.align for block in blocks)
    return Block(blocks[0].first, blocks[0].last, height, align, tuple(parts))


def _groups(
    ends: Sequence[Block], begins: Sequence[Block]
) -> list[tuple[list[Block], list[Block]]]:
    """Smallest sets of `ends` and `begins` of equal sums, disjoint; none if they are ambiguous."""
    if not ends or not begins or max(len(ends), len(begins)) > MOST_AT_A_STEP:
        return []
    masks = _balanced(tuple(b.size for b in ends), tuple(b.size for b in begins))
    return [
        (
            [b for i, b in enumerate(ends) if m >> i & 1],
            [b for i, b in enumerate(begins) if o >> i & 1],
        )
        for m, o in masks
    ]


@lru_cache(maxsize=10_000)
def _balanced(ends: tuple[int, ...], begins: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """The smallest sets of equal sums, as masks; none if they are ambiguous."""
    upper, lower = _subsets(ends), _subsets(begins)
    smallest: list[tuple[int, int]] = []
    for number in range(2, len(ends) + len(begins) + 1):
        for k in range(1, number):
            others = lower.get(number - k, {})
            for total, masks in upper.get(k, {}).items():
                for mask, other in product(masks, others.get(total, ())):
                    if any(m & mask == m and o & other == o for m, o in smallest):
                        continue
                    if any(m & mask or o & other for m, o in smallest):
                        return ()
                    smallest.append((mask, other))
    return tuple(smallest)


def _subsets(sizes: Sequence[int]) -> dict[int, dict[int, list[int]]]:
    """Sets of sizes, as masks, by their number and by their sum."""
    sums = [0]
    for size in sizes:
        sums += [total + size for total in sums]
    found: dict[int, dict[int, list[int]]] = {}
    for mask, total in enumerate(sums):
        found.setdefault(mask.bit_count(), {}).setdefault(total, []).append(mask)
    return found


def regions(blocks: Sequence[Block], room: Sequence[int]) -> list[tuple[int, int]]:
    """For each block the regions in which it begins and ends; 0 if not known.

    Blocks of one region end at a step and begin at the next, and fill the same bytes.
    """
    begin: list[list[int]] = [[] for _ in room]
    end: list[list[int]] = [[] for _ in room]
    for i, block in enumerate(blocks):
        begin[block.first].append(i)
        end[block.last].append(i)
    found = [[0, 0] for _ in blocks]
    number = 0
    for t in range(len(room) - 1):
        if room[t] or room[t + 1]:
            continue
        index = {id(blocks[i]): i for i in (*end[t], *begin[t + 1])}
        for ends, begins in _groups([blocks[i] for i in end[t]], [blocks[i] for i in begin[t + 1]]):
            number += 1
            for block in ends:
                found[index[id(block)]][1] = number
            for block in begins:
                found[index[id(block)]][0] = number
    return [(a, b) for a, b in found]
