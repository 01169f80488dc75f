"""All that the commands write to standard output and standard error.

What people read goes to standard error, by `say`, which shows no control characters: names in a
model may hold any. Standard output gets data, as the formats of its files have them.
"""

from __future__ import annotations

import math
import os
import sys
import time
from typing import TYPE_CHECKING

from poetc.errors import InputError
from poetc.names import printable
from poetc.units import format_energy

if TYPE_CHECKING:
    from poetc.schedule.solve import Progress


def say(message: str) -> None:
    """Lines on standard error, with escapes for what is not printable."""
    _to_stderr(f"{printable(message)}\n")


def warn(message: str) -> None:
    """The same, as a warning."""
    say(f"poetc: warning: {message}")


def write_data(content: str | bytes) -> None:
    """All of the data on standard output. Raises InputError if it cannot be written, and
    BrokenPipeError if nobody reads it."""
    if sys.stdout is None:
        raise InputError("cannot write standard output: it is closed")
    try:
        if isinstance(content, str):
            sys.stdout.write(content)
        else:
            sys.stdout.buffer.write(content)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # Nothing more can be flushed at exit either.
        drop_output()
        raise InputError(f"cannot write standard output: {error.strerror}") from error


def drop_output() -> None:
    """Discards everything that is still to be written to standard output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def flush() -> None:
    """Flushes the streams that are open, before a process ends at once."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def read_input() -> bytes:
    """All of standard input; nothing if it is closed."""
    # Python leaves out a standard input that was closed.
    return sys.stdin.buffer.read() if sys.stdin is not None else b""


def is_terminal() -> bool:
    """Whether somebody may watch standard error."""
    return sys.stderr is not None and sys.stderr.isatty()


class ProgressLine:
    """One line on the terminal that follows the solver."""

    def __init__(self) -> None:
        self.shown = 0.0
        self.width = 0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self.shown < 0.1:
            return
        self.shown = now
        found = math.isfinite(progress.energy_nj)
        best = format_energy(progress.energy_nj) if found else "none yet"
        gap = f"  gap {progress.gap:.2%}" if found else ""
        bound = format_energy(progress.bound_nj)
        line = f"solving {progress.seconds:5.1f} s  schedule {best}  bound {bound}{gap}"
        _to_stderr(f"\r{line:<{self.width}}")
        self.width = len(line)

    def clear(self) -> None:
        """Remove the line."""
        if self.width:
            _to_stderr(f"\r{' ' * self.width}\r")


def _to_stderr(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()
