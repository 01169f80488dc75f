"""Loads of a buffer, brought together where one instruction does several."""

from __future__ import annotations

from collections.abc import Sequence


def pieces(addresses: Sequence[int], most: int) -> list[tuple[int, int]]:
    """How loads of one buffer at these addresses, which are in order, are brought together: where
    each begins that takes one instruction, and how many loads it is. An address that is not that of
    a pointer takes an instruction, too, so that two are only worth it where there are no others."""
    runs: list[list[int]] = []
    for address in addresses:
        if runs and address == sum(runs[-1]):
            runs[-1][1] += 1
        else:
            runs.append([address, 1])
    found: list[tuple[int, int]] = []
    for start, length in runs:
        for first in range(0, length, most):
            count = min(most, length - first)
            if count > 2 or (count == 2 and len(runs) == 1):
                found.append((start + first, count))
            else:
                found += [(start + first + i, 1) for i in range(count)]
    return found
