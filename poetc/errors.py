"""Errors that a user can cause, each with the exit code the driver returns for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.utils.exceptions import DiagnosticException


@dataclass(frozen=True)
class SourceLocation:
    """A place in an input file; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class PoetcError(DiagnosticException):
    """Base of all errors reported to the user as one message, without a traceback.

    An xDSL diagnostic, so that `xdsl-opt --verify-diagnostics` prints it too.
    """

    exit_code: ClassVar[int] = 5

    def __init__(self, message: str, location: SourceLocation | None = None) -> None:
        self.message = message
        self.location = location
        super().__init__(f"{location}: {message}" if location else message)


class InputError(PoetcError):
    """Bad usage or an input that poetc cannot compile."""

    exit_code = 2


def collected(faults: Sequence[InputError]) -> InputError:
    """One error for all of the faults (at least one), each listed once, sorted by place."""

    def place(fault: InputError) -> tuple[int, int]:
        at = fault.location
        return (0, 0) if at is None else (at.line, at.column)

    found = {str(fault): fault for fault in sorted(faults, key=place)}
    first = next(iter(found.values()))
    if len(found) == 1:
        return InputError(first.message, first.location)
    lines = (f"  {text}" for text in found)
    return InputError("\n".join((f"{len(found)} faults:", *lines)), first.location)


class InfeasibleError(PoetcError):
    """Proven: no schedule meets the RAM budget or the deadline. Where that is proven for the order
    of the operations at hand only, and none was found in others, the message says so."""

    exit_code = 3


class TimeLimitError(PoetcError):
    """The search ended without a schedule, and without a proof that there is none."""

    exit_code = 4
