"""Where in the input an operation came from."""

import re
from bisect import bisect_right

from xdsl.dialects.builtin import FileLineColLoc
from xdsl.ir import Operation

from poetc.errors import SourceLocation
from poetc.ir.poet import ComputeOp
from poetc.ir.stablehlo import (
    BroadcastInDimOp,
    ConstantOp,
    ConvertOp,
    IotaOp,
    ReshapeOp,
    ReverseOp,
    SliceOp,
    TransposeOp,
)

_MOVES_ONLY = (
    BroadcastInDimOp,
    ConstantOp,
    ConvertOp,
    IotaOp,
    ReshapeOp,
    ReverseOp,
    SliceOp,
    TransposeOp,
)


def source_location(op: Operation) -> SourceLocation | None:
    """The place in the input file that `op` was parsed from, where it is known."""
    location = op.location
    if not isinstance(location, FileLineColLoc):
        return None
    return SourceLocation(location.filename.data, location.line.data, location.column.data)


def kernel_location(compute: ComputeOp) -> SourceLocation | None:
    """Where in the input a kernel is from: the first of its operations that computes something."""
    found = [
        (isinstance(op, _MOVES_ONLY), at, location)
        for at, op in enumerate(compute.block.ops)
        if (location := source_location(op)) is not None
    ]
    return min(found, key=lambda entry: entry[:2])[2] if found else None


class Lines:
    """Line and column of offsets in a text."""

    def __init__(self, text: str, filename: str):
        self.filename = filename
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def at(self, offset: int) -> SourceLocation:
        """The place of an offset."""
        line = bisect_right(self._starts, offset)
        return SourceLocation(self.filename, line, offset - self._starts[line - 1] + 1)
