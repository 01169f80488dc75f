"""Errors that a user can cause, each with the exit code the driver returns for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from xdsl.utils.exceptions import DiagnosticException

if TYPE_CHECKING:
    from poetc.diagnosis import Diagnosis


@dataclass(frozen=True)
class SourceLocation:
    """A place in an input file; lines and columns count from 1. `source` is the place in the
    program that the file was made from, if the file has it."""

    file: str
    line: int
    column: int
    source: str | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}"
        return place if self.source is None else f"{place} ({self.source})"


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


class StepError(PoetcError):
    """A step of a program in this process ended with another `status` than OK, one of those of
    `poetc_status` without `POETC_`, such as "CORRUPT"."""

    def __init__(self, message: str, status: str) -> None:
        super().__init__(message)
        self.status = status


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


class UnscheduledError(PoetcError):
    """There is no schedule within the RAM budget and the deadline, or none was found; the
    `diagnosis` says why."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.text())
        self.diagnosis = diagnosis

    @staticmethod
    def of(diagnosis: Diagnosis) -> UnscheduledError:
        """The error for a diagnosis, by what is proven."""
        return (InfeasibleError if diagnosis.proven else TimeLimitError)(diagnosis)


class InfeasibleError(UnscheduledError):
    """Proven: no schedule meets the RAM budget or the deadline, whatever the user left open."""

    exit_code = 3


class TimeLimitError(UnscheduledError):
    """The search ended without a schedule, and without a proof that there is none. What it says of
    some schedules, such as those in one order or with some parameters split, may be proven."""

    exit_code = 4
