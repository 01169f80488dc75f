"""The order in which floating-point numbers are added: one rule for all sums.

A sum runs over loops, the last one innermost, and is added in blocks of 12 to 32 consecutive terms:

    sum = initial value
    for each block:
        part = -0.0                      which changes nothing
        for each term of the block:
            part = part + term
        sum = sum + part

A sum of at most 32 terms is one block, and its terms are added to the initial value itself. A block
takes the innermost loops as long as it has at most 32 terms. Of the next loop it takes as many
positions as come nearest to 24 terms (by the ratio): a divisor of its extent, if there is one that
gives 12 to 32 terms; else the last block in the loop is shorter.

So the error grows with the terms of a block plus the number of blocks, not with their product, and
between blocks a sum is one number, with which it can go on later. Loops and positions are those of
the operation, whatever loops it is lowered to: padding has a place in a block, but adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

NEAR = 24
"""Terms that a block is to have."""

MOST = 32
"""Terms that a block has at most."""


@dataclass(frozen=True)
class Blocks:
    """The blocks of a sum: all positions of the loops inside loop number `loop`, and `positions` of
    that one at a time."""

    loop: int
    positions: int

    def terms(self, extents: Sequence[int]) -> Iterator[int]:
        """How many terms each block has, in order."""
        inside = prod(extents[self.loop + 1 :])
        for _ in range(prod(extents[: self.loop])):
            for start in range(0, extents[self.loop], self.positions):
                yield min(self.positions, extents[self.loop] - start) * inside


def blocks_of(extents: Sequence[int]) -> Blocks | None:
    """The blocks of a sum over loops of these extents; None where one block has all terms."""
    if prod(extents) <= MOST:
        return None
    loop, terms = len(extents) - 1, 1
    while terms * extents[loop] <= MOST:
        terms *= extents[loop]
        loop -= 1
    extent = extents[loop]
    divisors = (n for n in range(1, extent) if extent % n == 0)
    even = [n for n in divisors if NEAR // 2 <= n * terms <= MOST]
    return Blocks(loop, min(even or range(1, MOST), key=lambda n: _distance(n * terms)))


def _distance(terms: int) -> Fraction:
    return max(Fraction(terms, NEAR), Fraction(NEAR, terms))
