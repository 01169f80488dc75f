"""Keys that equal functions share."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from xdsl.dialects import func
from xdsl.ir import Block, SSAValue


def structure(function: func.FuncOp) -> Hashable:
    """Equal for functions that are equal but for their own names."""
    numbers: dict[SSAValue, int] = {}

    def numbered(values: Sequence[SSAValue]) -> Hashable:
        for value in values:
            numbers[value] = len(numbers)
        return tuple((value.type, value.name_hint) for value in values)

    def walk(block: Block) -> Hashable:
        return numbered(block.args), tuple(
            (
                op.name,
                tuple(numbers[operand] for operand in op.operands),
                frozenset(op.properties.items()),
                frozenset(op.attributes.items()),
                tuple(walk(inner) for region in op.regions for inner in region.blocks),
                numbered(op.results),
            )
            for op in block.ops
        )

    return frozenset(function.attributes.items()), walk(function.body.block)
