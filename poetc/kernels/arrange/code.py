"""Operations of code that loops of a kernel are, by how many copies of them there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto

from xdsl.dialects import affine, arith
from xdsl.ir import Operation

from poetc.ir import mathlib
from poetc.kernels.arrange.levels import Loops

Unrolled = Mapping[int, int]
"""How many iterations of loops, by their numbers, are one after the other in each."""


class Code:
    """The operations of code of a kernel."""

    def __init__(
        self,
        operations: Iterable[tuple[Operation, tuple[int, ...], Loops]],
        numbers: Mapping[affine.ForOp, int],
        extents: Sequence[int],
    ) -> None:
        """`operations` have the loops around each, and those that it depends on; loops are given by
        their `numbers`, and have `extents`."""
        self._extents = extents
        self._all: Counter[tuple[tuple[int, ...], Loops, int | None]] = Counter()
        """Sizes of operations in the same loops that depend on the same, and of loops."""
        self._of_path: dict[tuple[int, ...], Sequence[_Size]] = {}
        for op, around, loops in operations:
            own = numbers[op] if isinstance(op, affine.ForOp) else None
            carried = len(op.inits) if isinstance(op, affine.ForOp) else 0
            if carried:
                self._all[around, Loops(), own] += _size(op) - carried
            self._all[around, loops, own] += carried or _size(op)
        self.size = sum(self._all.values())

    def more(
        self, path: tuple[int, ...], copies: Sequence[int], unrolled: Sequence[Unrolled]
    ) -> list[float]:
        """Operations that there are more than without copies, of the loops around one and itself,
        for each of some numbers of iterations that loops have one after the other."""
        jammed = [
            (at, copies[loop], bool(self._extents[loop] % copies[loop]))
            for at, loop in enumerate(path)
            if copies[loop] > 1
        ]
        in_line = [
            [(at, counts[loop]) for at, loop in enumerate(path) if loop in counts]
            for counts in unrolled
        ]
        more = [0.0] * len(unrolled)
        for places, own, size in self._sizes(path):
            parts = 1
            for at, count, rest in jammed:
                if (place := places[at]) is not _Place.OUTSIDE:
                    parts *= (count if place is _Place.VARIES else 1) + rest
            for i, counts in enumerate(in_line):
                times = parts
                for at, count in counts:
                    if own == at and count == self._extents[path[at]]:
                        times = 0
                    elif places[at] is not _Place.OUTSIDE:
                        times *= count
                more[i] += size * (times - 1)
        return more

    def _sizes(self, path: tuple[int, ...]) -> Sequence[_Size]:
        """Sizes, by where operations are as to these loops, and which of them they are, if any."""
        if path not in self._of_path:
            found: Counter[tuple[tuple[_Place, ...], int | None]] = Counter()
            for (around, loops, own), size in self._all.items():
                places = tuple(_place(loop, around, loops) for loop in path)
                found[places, path.index(own) if own in path else None] += size
            self._of_path[path] = tuple((*key, size) for key, size in found.items())
        return self._of_path[path]


class _Place(Enum):
    """Where an operation is as to a loop."""

    OUTSIDE = auto()
    FIXED = auto()
    """In it, the same in all iterations."""
    VARIES = auto()


_Size = tuple[tuple[_Place, ...], int | None, int]
"""The places of operations as to some loops, which of these they are (None: no loop), and their
instructions of code."""


def _place(loop: int, around: tuple[int, ...], loops: Loops) -> _Place:
    if loop not in around:
        return _Place.OUTSIDE
    return _Place.VARIES if loop in loops else _Place.FIXED


def _size(op: Operation) -> int:
    """Instructions of code, each of which an operation takes once."""
    if isinstance(op, (arith.ConstantOp, affine.YieldOp)):
        return 0
    if isinstance(op, affine.ForOp):
        return 4 + len(op.inits)
    return 4 if mathlib.symbol_of(op) is not None else 1
