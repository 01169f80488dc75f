"""Locks of files that programs use for a long time, so that no second one does.

The locks are those of `store_file.c`: advisory, of whole files, gone when the process ends. Systems
without flock have none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from poetc.errors import InputError

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None


def lock(descriptor: int, path: str | os.PathLike[str], *, shared: bool = False) -> None:
    """Locks the open file that was found at `path` until it is closed, without waiting.

    Those who only read it share the lock. Raises InputError where somebody else has locked it, or
    put another file in its place.
    """
    if fcntl is None:
        return
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    in_use = InputError(
        f"{os.fspath(path)} is in use by another program: try again when that has ended"
    )
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), Path(path).stat()):
            raise in_use
    except BlockingIOError as error:
        raise in_use from error
    except OSError as error:
        raise InputError(f"cannot lock {os.fspath(path)}: {error.strerror}") from error


@contextmanager
def locked(path: str | os.PathLike[str], *, shared: bool = False) -> Iterator[None]:
    """Holds the lock of a regular file; where there is none, does nothing."""
    # Whoever opens a FIFO waits for the other end.
    if not Path(path).is_file():
        yield
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        raise InputError(f"cannot read {os.fspath(path)}: {error.strerror}") from error
    try:
        lock(descriptor, path, shared=shared)
        yield
    finally:
        os.close(descriptor)
