"""Output that appears complete or not at all, whatever ends the process and whoever else writes.

What is being written is in a temporary directory beside the target, and takes its place in one
step. The lock of the directory that both are in lets one process write at a time. What processes
left that were killed is removed by the next that writes to the same target.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import signal
import stat
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
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
    check_parent(name)
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


def check_parent(target: str | os.PathLike[str]) -> None:
    """Raises InputError, with the first directory that is missing, if a target cannot be there."""
    name = os.fspath(target)
    for path in (Path(name), Path(os.path.realpath(name))):
        for parent in reversed(path.parents):
            try:
                is_directory = stat.S_ISDIR(parent.stat().st_mode)
            except FileNotFoundError:
                raise InputError(f"cannot write {name}: there is no directory {parent}") from None
            except OSError as error:
                raise InputError(f"cannot write {name}: {parent}: {error.strerror}") from error
            if not is_directory:
                raise InputError(f"cannot write {name}: {parent} is not a directory")


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
    with temporary_beside(target) as directory:
        fresh = directory / "file"
        fresh.write_bytes(data)
        fresh.chmod(mode)
        fresh.replace(target)


@contextmanager
def temporary_beside(target: Path) -> Iterator[Path]:
    """A fresh directory in the same directory as the target, to which nobody else writes meanwhile.

    In the end it is removed if it is still there. SIGTERM waits for that.
    """
    prefix = f"{TEMPORARY_PREFIX}{zlib.crc32(os.fsencode(target.name)):08x}."
    with _locked(target.parent) as locked, _sigterm_waits():
        if locked:
            # Who made them would hold the lock.
            for path in [p for p in target.parent.iterdir() if p.name.startswith(prefix)]:
                _remove(path)
        path = Path(tempfile.mkdtemp(dir=target.parent, prefix=prefix))
        try:
            yield path
        finally:
            _remove(path)


@contextmanager
def _locked(directory: Path) -> Iterator[bool]:
    """Holds the lock of a directory, for which it waits; False if there are no locks here."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError:
        # It may be that one may write to it, but not read it.
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            locked = True
        except OSError:
            locked = False
        yield locked
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _sigterm_waits() -> Iterator[None]:
    """Within, SIGTERM waits until the end, unless the program handles it in a way of its own."""
    usable = threading.current_thread() is threading.main_thread()
    if not usable or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    # Python forgets a signal that comes while its handler is changed; the pipe does not.
    arrived, tell = os.pipe()
    os.set_blocking(arrived, False)
    os.set_blocking(tell, False)
    before = signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.set_wakeup_fd(before)
        try:
            came = signal.SIGTERM in os.read(arrived, 1 << 16)
        except BlockingIOError:
            came = False
        os.close(arrived)
        os.close(tell)
        if came:
            os.kill(os.getpid(), signal.SIGTERM)


_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def exchange(one: Path, other: Path) -> None:
    """Each gets the name of the other, in one step. Raises OSError where the system or the file
    system cannot do that."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(one))
    names = os.fsencode(one), os.fsencode(other)
    flags = ctypes.c_uint(_RENAME_EXCHANGE)
    if function(_AT_FDCWD, names[0], _AT_FDCWD, names[1], flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one), None, str(other))
