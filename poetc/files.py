"""Output that appears complete or not at all."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from pathlib import Path

from poetc.errors import InputError

TEMPORARY_PREFIX = ".poetc."
"""Begins the names of temporary files and directories."""


def umask() -> int:
    """The mask that new files get; temporary files are made without it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_whole(target: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file under a temporary name and rename it, so that no reader sees a part of it.

    A symbolic link stays; the file that it names is written. What is not a regular file (a FIFO, a
    device, /dev/stdout wherever that leads) is opened and written. Raises InputError if writing
    fails, for a directory, and for names that can only be a directory's: empty or with a slash at
    the end.
    """
    name = os.fspath(target)
    if not name:
        raise InputError("cannot write to a file without a name")
    data = content.encode() if isinstance(content, str) else content
    try:
        existing = _status(name)
        if name.endswith("/") or (existing is not None and stat.S_ISDIR(existing.st_mode)):
            raise InputError(f"cannot write {name}: it is a directory, not a file")
        stream = None if existing is None else _standard_stream(existing)
        if stream is not None:
            # At its position, which opening it by name would lose.
            with os.fdopen(os.dup(stream), "wb") as file:
                file.write(data)
        elif existing is not None and not stat.S_ISREG(existing.st_mode):
            with Path(name).open("wb") as file:
                file.write(data)
        else:
            mode = 0o666 & ~umask() if existing is None else stat.S_IMODE(existing.st_mode)
            _replace(Path(os.path.realpath(name)), data, mode)
    except OSError as error:
        raise InputError(f"cannot write {name}: {error.strerror}") from error


def _status(name: str) -> os.stat_result | None:
    try:
        return Path(name).stat()
    except FileNotFoundError:
        return None


def _standard_stream(file: os.stat_result) -> int | None:
    """The descriptor, standard output or error, that is open on the file."""
    for descriptor, buffer in ((1, sys.stdout), (2, sys.stderr)):
        try:
            found = os.path.samestat(file, os.fstat(descriptor))
        except OSError:  # closed
            continue
        if found:
            buffer.flush()
            return descriptor
    return None


def _replace(target: Path, data: bytes, mode: int) -> None:
    fresh: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=target.parent, prefix=TEMPORARY_PREFIX, delete=False
        ) as file:
            fresh = Path(file.name)
            file.write(data)
        fresh.chmod(mode)
        fresh.replace(target)
    except BaseException:
        if fresh is not None:
            fresh.unlink(missing_ok=True)
        raise
