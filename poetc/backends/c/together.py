"""Loads and stores that one instruction may do (`kernels/together.py`) as C: macros of
`poetc_scalar.h`, to which registers are given that follow each other, as the instruction wants
them."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import affine, func
from xdsl.dialects.builtin import Float32Type
from xdsl.ir import Block, Operation

from poetc.kernels.together import Group, accesses_together

_MOST = 8
"""The most loads or stores that there is a macro for."""

_REGISTERS = 32
_KEPT_FREE = 3
"""Registers for what is under way between loads and sums."""
_LEAST = 2 * _MOST
"""Registers that are given in turn, however many values a loop carries."""


class Registers:
    """The loads and stores of a function that are done together. `groups` has them with the names
    of their registers, by the first of them; `printed` has the others."""

    def __init__(self, groups: Sequence[Group] = ()) -> None:
        """`groups` are such accesses, of one block those that come first before others."""
        self.groups: dict[Operation, tuple[Group, Sequence[str]]] = {}
        self.printed: set[Operation] = set()
        blocks: dict[Block, list[Group]] = {}
        for group in groups:
            # Of what is not needed some may be gone.
            if len(group) <= _MOST and all(op.parent is not None for op in group):
                assert group[0].parent is not None
                blocks.setdefault(group[0].parent, []).append(group)
        for block, of_block in blocks.items():
            self._assign(block, of_block)

    def _assign(self, block: Block, groups: Sequence[Group]) -> None:
        """Registers for a block, one after the other: a compiler moves what is still needed from
        those that are given again. Those that the loop carries values in are left to it."""
        last = block.last_op
        handed_on = () if last is None else last.operands
        carried = sum(isinstance(value.type, Float32Type) for value in handed_on)
        count = max(_REGISTERS - _KEPT_FREE - carried, _LEAST)
        position = {op: at for at, op in enumerate(block.ops)}
        taken: dict[int, int] = {}
        first = 0
        for group in groups:
            size = len(group)
            taken = {register: end for register, end in taken.items() if end > position[group[0]]}
            starts = [s for s in (*range(first, count), *range(first)) if s + size <= count]
            start = next(
                (s for s in starts if taken.keys().isdisjoint(range(s, s + size))), starts[0]
            )
            first = start + size
            self.groups[group[0]] = group, [f"s{start + i}" for i in range(size)]
            self.printed.update(group[1:])
            for i, op in enumerate(group):
                uses = [use for result in op.results for use in result.uses]
                ends = (position.get(use.operation, len(position)) for use in uses)
                taken[start + i] = max(ends, default=0)


def together_in(function: func.FuncOp) -> list[Group]:
    """The loads and stores of a function that are done together."""
    loops = (op for op in function.walk() if isinstance(op, affine.ForOp))
    return [group for loop in loops for group in accesses_together(loop)]
