"""The places in the input that operations came from."""

import re
from bisect import bisect_right

from xdsl.dialects.builtin import FileLineColLoc, NameLoc
from xdsl.ir import Operation

from poetc.errors import SourceLocation
from poetc.ir.poet import RunOp
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
    location, source = op.location, None
    if isinstance(location, NameLoc):
        location, source = location.location, location.desc.data
    if not isinstance(location, FileLineColLoc):
        return None
    place = location.filename.data, location.line.data, location.column.data
    return SourceLocation(*place, source)


def kernel_location(compute: RunOp) -> SourceLocation | None:
    """The place in the input that a kernel is from: that of the first of its operations that
    computes something."""
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


class SourceLines:
    """The lines of the program that a text was made from, which its locations name: JAX writes
    them with `as_text(debug_info=True)`."""

    _DEFINITION = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
    _LINE = re.compile(r'"((?:[^"\\\n]|\\.)*)":(\d+):\d+')
    _REFERENCE = re.compile(r"#loc\d*")

    def __init__(self, text: str):
        self._text = text
        self._definitions = dict(self._DEFINITION.findall(text))

    def of(self, begin: int, end: int) -> str | None:
        """`file:line` for what is between two offsets: where its last location is, or, of calls in
        each other, the innermost."""
        start = self._text.rfind("loc(#loc", begin, end) if self._definitions else -1
        if start < 0:
            return None
        match = self._REFERENCE.match(self._text, start + len("loc("))
        for _ in range(len(self._definitions)):
            found = "" if match is None else self._definitions.get(match[0], "")
            if (line := self._LINE.search(found)) is not None:
                return f"{line[1]}:{line[2]}"
            match = self._REFERENCE.search(found)
        return None
