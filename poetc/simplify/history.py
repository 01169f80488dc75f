"""Facts about a loop before it is run: its number of steps, and values that constants decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Block, SSAValue

from poetc.interpreter.functions import evaluate
from poetc.ir import stablehlo as hlo
from poetc.ir.stablehlo.base import Array
from poetc.ir.types import is_float
from poetc.simplify.facts import MAX_FOLDED_ELEMENTS

Window = hlo.DynamicSliceOp | hlo.DynamicUpdateSliceOp

Known = Callable[[SSAValue], Array | None]
"""The elements of a value from outside of the loop, where they are known."""


@dataclass(frozen=True)
class History:
    """Facts about the steps of a loop before they are run."""

    trips: int
    known: dict[SSAValue, list[Array | None]]
    """In each step, of arguments of the body and of starts of windows."""
    last: Sequence[Array | None]
    """The values of the results."""

    def array(self, value: SSAValue) -> Array | None:
        """The elements of a value, if they are the same in all steps; else None."""
        first, *others = self.known[value]
        if first is None or any(a is None or a.tobytes() != first.tobytes() for a in others):
            return None
        return first

    def place(self, value: SSAValue, limit: int | None = None) -> tuple[int, int] | None:
        """(first, step) of an integer that is `first + step * i` in step `i`, brought into
        0 to `limit` first."""
        found = self.known[value]
        numbers = [int(a) for a in found if a is not None and a.ndim == 0 and a.dtype.kind in "iu"]
        if len(numbers) < len(found):
            return None
        if limit is not None:
            numbers = [min(max(number, 0), limit) for number in numbers]
        first, step = numbers[0], numbers[1] - numbers[0] if len(numbers) > 1 else 0
        limits = np.iinfo(np.int32)
        linear = all(number == first + step * i for i, number in enumerate(numbers))
        fits = limits.min <= min(numbers) and max(numbers) <= limits.max
        return (first, step) if linear and fits else None


def history_of(
    op: hlo.WhileOp, state: Sequence[Array | None], limit: int, outside: Known
) -> History | None:
    """Facts about the steps of a loop that begins with `state`, for at most one step more than the
    limit. None if their number is not known."""
    block = op.body.block
    starts = (s for each in block.ops if isinstance(each, Window) for s in each.start_indices)
    watched = list(dict.fromkeys([*block.args, *starts]))
    condition, step = _KnownPart(op.cond.block, outside), _KnownPart(block, outside, watched)
    known: dict[SSAValue, list[Array | None]] = {value: [] for value in watched}
    trips = 0
    while trips <= limit:
        (goes_on,) = condition.run(state)
        if goes_on is None:
            return None
        if not goes_on:
            break
        found = step.run(state)
        state = found[: len(state)]
        for value, array in zip(watched, found[len(state) :], strict=True):
            known[value].append(array)
        trips += 1
    return History(trips, known, state)


class _KnownPart:
    """A block of which only what is known is run."""

    def __init__(self, block: Block, outside: Known, watched: Sequence[SSAValue] = ()) -> None:
        last = block.last_op
        assert last is not None
        self.arguments, self.outside = block.args, outside
        self.wanted = [*last.operands, *watched]
        self.ops = [op for op in block.ops if isinstance(op, hlo.StablehloOp)]
        self.inside = {value for op in block.ops for value in op.results} | {*block.args}
        self.constants: dict[SSAValue, Array] = {}

    def run(self, arguments: Sequence[Array | None]) -> list[Array | None]:
        """The elements of the results of the block, and then of the values that are watched, where
        they are known."""
        found: dict[SSAValue, Array | None] = dict(zip(self.arguments, arguments, strict=True))
        found |= self.constants
        for op in self.ops:
            found[op.result] = evaluated(op, [self._value(v, found) for v in op.operands])
            if isinstance(op, hlo.ConstantOp) and (array := found[op.result]) is not None:
                self.constants[op.result] = array
        # A value that is not known the first time need not be known later.
        self.ops = [
            op
            for op in self.ops
            if found[op.result] is not None and op.result not in self.constants
        ]
        return [self._value(value, found) for value in self.wanted]

    def _value(self, value: SSAValue, found: dict[SSAValue, Array | None]) -> Array | None:
        return found.get(value) if value in self.inside else self.outside(value)


def evaluated(op: hlo.StablehloOp, operands: Sequence[Array | None]) -> Array | None:
    """The result of an operation whose operands are known, if it is small. What a NaN is differs
    between processors, and CHLO is rounded otherwise once it is expanded."""
    arrays = [array for array in operands if array is not None]
    if len(arrays) != len(operands):
        return None
    if hlo.element_count(op.result) > MAX_FOLDED_ELEMENTS or op.name.startswith("chlo."):
        return None
    result = evaluate(op, arrays)
    is_nan = is_float(result.dtype) and bool(np.isnan(result).any())
    return None if is_nan else result
