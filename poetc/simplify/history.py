"""What is known of a loop before it is run: its number of steps, and what constants decide."""

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
"""What is known of a value from outside of the loop."""


@dataclass(frozen=True)
class History:
    """What is known of the steps of a loop before they are run."""

    trips: int
    known: dict[SSAValue, list[Array | None]]
    """In each step, of arguments of the body and of starts of windows."""
    last: Sequence[Array | None]
    """Of the results."""

    def array(self, value: SSAValue) -> Array | None:
        """What a value is in all steps."""
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
    """What is known of the steps of a loop that begins with `state`; no more of them than one more
    than the limit. None if their number is not known."""
    block = op.body.block
    starts = (s for each in block.ops if isinstance(each, Window) for s in each.start_indices)
    watched = list(dict.fromkeys([*block.args, *starts]))
    constants: dict[SSAValue, Array | None] = {}
    known: dict[SSAValue, list[Array | None]] = {value: [] for value in watched}
    trips = 0
    while trips <= limit:
        (goes_on, *_) = _run(op.cond.block, state, (), constants, outside)
        if goes_on is None:
            return None
        if not goes_on:
            break
        found = _run(block, state, watched, constants, outside)
        state = found[: len(state)]
        for value, array in zip(watched, found[len(state) :], strict=True):
            known[value].append(array)
        trips += 1
    return History(trips, known, state)


def _run(
    block: Block,
    arguments: Sequence[Array | None],
    watched: Sequence[SSAValue],
    constants: dict[SSAValue, Array | None],
    outside: Known,
) -> list[Array | None]:
    """What is known of the results of a block, and then of some of its values."""
    found: dict[SSAValue, Array | None] = dict(zip(block.args, arguments, strict=True))

    def known(value: SSAValue) -> Array | None:
        return found[value] if value in found else outside(value)

    end = block.last_op
    assert end is not None
    for op in block.ops:
        if isinstance(op, hlo.ConstantOp):
            if op.result not in constants:
                constants[op.result] = evaluated(op, ())
            found[op.result] = constants[op.result]
        elif isinstance(op, hlo.StablehloOp):
            found[op.result] = evaluated(op, [known(value) for value in op.operands])
        else:
            found.update(dict.fromkeys(op.results))
    return [known(value) for value in (*end.operands, *watched)]


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
