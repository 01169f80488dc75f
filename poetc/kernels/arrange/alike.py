"""Kernels that are alike but for sizes, and so share code while their loops are as they are.

They are different to `kernels.structure`, whose key has all that a kernel is: each size, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from xdsl.dialects import affine, func
from xdsl.ir import Operation, SSAValue

COLD_SHARE = 0.05
"""Of the time of a step. The kernels that take least, as long as they take no more together, may
get slower where time and size count the same: those that are alike share code."""


def cold(times: Sequence[float]) -> list[bool]:
    """For each kernel, from its time in a step, whether it may become slower."""
    left = COLD_SHARE * sum(times)
    found = [False] * len(times)
    for k in sorted(range(len(times)), key=lambda k: times[k]):
        left -= times[k]
        found[k] = left >= 0
    return found


def shared_code(functions: Sequence[func.FuncOp], times: Sequence[float]) -> list[object]:
    """For each of the kernels of a step, that take so much time, what is the same for those that
    share code, and None for one that does not."""
    keys = [
        _structure(function) if is_cold else None
        for function, is_cold in zip(functions, cold(times), strict=True)
    ]
    counts = Counter(keys)
    return [key if counts[key] > 1 else None for key in keys]


def _structure(function: func.FuncOp) -> object:
    """The operations of a kernel without sizes: the same for kernels that share code."""
    numbers: dict[SSAValue, int] = {}

    def of(op: Operation) -> object:
        for region in op.regions:
            for block in region.blocks:
                for argument in block.args:
                    numbers[argument] = len(numbers)
        inside = tuple(of(each) for region in op.regions for each in region.ops)
        # Positions are sizes, too.
        is_place = isinstance(op, affine.LoadOp | affine.StoreOp | affine.IfOp | affine.ForOp)
        described = () if is_place else tuple(map(str, op.properties.values()))
        used = () if isinstance(op, affine.ApplyOp) else op.operands
        key = (op.name, described, tuple(numbers.get(value, -1) for value in used), inside)
        for result in op.results:
            numbers[result] = len(numbers)
        return key

    block = function.body.block
    for argument in block.args:
        numbers[argument] = len(numbers)
    return tuple(of(op) for op in block.ops)
