"""Where in the input an operation came from."""

from xdsl.dialects.builtin import FileLineColLoc
from xdsl.ir import Operation

from poetc.errors import SourceLocation


def source_location(op: Operation) -> SourceLocation | None:
    """The place in the input file that `op` was parsed from, where it is known."""
    location = op.location
    if not isinstance(location, FileLineColLoc):
        return None
    return SourceLocation(location.filename.data, location.line.data, location.column.data)
