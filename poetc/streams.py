"""Files that commands read and write; `-` is standard input or output."""

from __future__ import annotations

import os
from pathlib import Path

from poetc.errors import InputError
from poetc.files import check_parent, write_whole
from poetc.terminal import read_input, write_data

STDOUT = "-"
"""An output of that name is standard output."""


def read(path: str) -> tuple[str, bytes]:
    """The name of an input, for messages, and its content."""
    try:
        if path == "-":
            return "<stdin>", read_input()
        return path, Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from error


def check_writable(output: str | None) -> None:
    """Fail before the work is done, not after it."""
    if output is None:
        return
    target = Path(os.path.realpath(output))
    try:
        special = target.exists() and not target.is_file()
    except OSError as error:
        raise InputError(f"cannot write {output}: {error.strerror}") from error
    if special:
        # A directory that gets files, or a device that is written as it is.
        if not os.access(target, os.W_OK):
            raise InputError(f"cannot write {output}: permission denied")
        return
    parent = target.parent
    check_parent(output)
    if not os.access(parent, os.W_OK):
        raise InputError(f"cannot write {output}: {parent} is not writable")


def file_name(output: str | None) -> str | None:
    """The name of an output file, None for standard output."""
    return None if output == STDOUT else output


def write(output: str | None, content: str | bytes) -> None:
    """Write all of a file or nothing; without a name, standard output."""
    if output is not None:
        write_whole(output, content)
        return
    write_data(content)
