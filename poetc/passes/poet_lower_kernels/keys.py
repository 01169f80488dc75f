"""Keys that equal bodies share."""

from collections.abc import Hashable

from xdsl.ir import Block, SSAValue


def body_key(block: Block) -> Hashable:
    """Equal for blocks that compute the same by the same operations in the same order."""
    numbers: dict[SSAValue, int] = {arg: i for i, arg in enumerate(block.args)}
    parts: list[Hashable] = [tuple(block.arg_types)]
    for op in block.ops:
        parts.append(
            (
                op.name,
                tuple(numbers[operand] for operand in op.operands),
                tuple(op.result_types),
                tuple(sorted(op.properties.items(), key=lambda item: item[0])),
                tuple(body_key(inner) for region in op.regions for inner in region.blocks),
            )
        )
        for result in op.results:
            numbers[result] = len(numbers)
    return tuple(parts)
