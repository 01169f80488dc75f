"""Writes a directory of generated files: all of them or none, and over nothing of the user's.

The new directory is made beside the old one and takes its place in one step. Files that are not
generated are in both: as links to the same data, which stay where they are. Where that cannot be
(the file system exchanges no names or has no links, the directory is a mount point, the one that
the process stands in, or in one that nobody may write to), files are replaced one by one.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import zlib
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PurePath

from poetc.backends.c.libraries import (
    INDEX_FILES,
    indexed_data,
    indexed_files,
    with_more_files,
)
from poetc.backends.c.libraries.library import MARK
from poetc.errors import InputError
from poetc.files import TEMPORARY_PREFIX, check_parent, exchange, temporary_beside, umask


class _CannotExchangeError(Exception):
    """The directory cannot be replaced as a whole."""


def write_generated(files: Mapping[str, str | bytes], directory: str | Path) -> None:
    """Writes generated files as `emit` does: all or none, and over none that are not generated."""
    if not os.fspath(directory):
        raise InputError("cannot write to a directory without a name")
    check_parent(directory)
    target = Path(os.path.realpath(directory))
    try:
        try:
            _write(files, target)
        except _CannotExchangeError:
            with temporary_beside(target / "files") as fresh:
                _fill(fresh, files)
                _put_into(files, fresh, target)
    except OSError as error:
        raise InputError(f"cannot write {directory}: {error.strerror}") from error


def _write(files: Mapping[str, str | bytes], target: Path) -> None:
    """Makes the whole directory, and exchanges it with one that is there.

    Raises _CannotExchangeError before anything is changed.
    """
    if not target.exists():
        with temporary_beside(target) as fresh:
            if not target.exists():
                _fill(fresh, files)
                fresh.chmod(0o777 & ~umask())
                fresh.rename(target)
                return
    if not target.is_dir():
        raise InputError(f"cannot write {target}: it is not a directory")
    if _stands_in(target):
        raise _CannotExchangeError
    try:
        with temporary_beside(target) as fresh:
            _exchange(files, fresh, target)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        raise _CannotExchangeError from error


def _exchange(files: Mapping[str, str | bytes], fresh: Path, target: Path) -> None:
    """Puts the new directory in the place of the old one."""
    _refuse_foreign(files, target)
    stale = _stale_files(files, target)
    _fill(fresh, files)
    _link_foreign(target, fresh, stale)
    _copy_owner(target.stat(), fresh)
    shutil.copystat(target, fresh)
    exchange(fresh, target)
    # Files that came in the meantime.
    with suppress(OSError):
        _link_foreign(fresh, target, {*stale, *files})


def _stands_in(directory: Path) -> bool:
    """Whether the process is in the directory: it would be in the old one still."""
    try:
        return Path.cwd().is_relative_to(directory)
    except FileNotFoundError:
        return False


def _fill(fresh: Path, files: Mapping[str, str | bytes]) -> None:
    for directory in _directories(files):
        (fresh / directory).mkdir()
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        (fresh / name).write_bytes(data)


def _copy_owner(of: os.stat_result, path: Path) -> None:
    made = path.stat()
    if (made.st_uid, made.st_gid) != (of.st_uid, of.st_gid):
        os.chown(path, of.st_uid, of.st_gid)


def _link_foreign(source: Path, made: Path, generated: Collection[str]) -> None:
    """Links all files of `source`, but not those of `generated` and those that are there already.

    Directories that are empty without these are not made.
    """
    emptied = set(_directories(generated))

    def link(directory: str) -> None:
        for entry in os.scandir(source / directory):
            if entry.name.startswith(TEMPORARY_PREFIX) and not directory:
                continue
            name = f"{directory}/{entry.name}" if directory else entry.name
            if entry.is_dir(follow_symlinks=False):
                exists = (made / name).exists()
                if not exists and name not in emptied:
                    (made / name).mkdir()
                link(name)
                if (made / name).exists() and not exists:
                    shutil.copystat(source / name, made / name)
                    _copy_owner(entry.stat(), made / name)
            elif name not in generated and not os.path.lexists(made / name):
                (made / name).parent.mkdir(parents=True, exist_ok=True)
                os.link(source / name, made / name, follow_symlinks=False)

    link("")


def _refuse_foreign(files: Iterable[str], target: Path) -> list[str]:
    """The generated files that are there. Raises InputError if others are in the way."""
    there = [name for name in files if os.path.lexists(target / name)]
    data = _earlier_data(target)
    foreign = [name for name in there if not _is_ours(target, name, data)]
    foreign += [
        d for d in _directories(files) if os.path.lexists(target / d) and not (target / d).is_dir()
    ]
    if foreign:
        raise InputError(
            f"cannot write {target}: not generated by poetc, and would be overwritten: "
            + ", ".join(foreign)
        )
    return there


def _stale_files(files: Iterable[str], target: Path) -> set[str]:
    """Generated files of an earlier run that are not among the new ones."""
    stale = _earlier_files(target) - set(files)
    data = _earlier_data(target)
    return {name for name in stale if _is_ours(target, name, data)}


def _put_into(files: Mapping[str, str | bytes], fresh: Path, target: Path) -> None:
    """Moves files from `fresh` to `target`, or leaves that as it was unless the process is killed.

    Files of an earlier run that are not among them go, and directories that are empty without them.
    Raises InputError, before anything is changed, if a file that is not generated is in the way.
    """
    directories = _directories(files)
    there = _refuse_foreign(files, target)
    stale = _stale_files(files, target)
    backup = Path(tempfile.mkdtemp(dir=fresh))
    for name in (*there, *stale):
        (backup / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(target / name, backup / name)
    index = next((name for name in INDEX_FILES if name in files), None)
    placed: list[str] = []
    made: list[Path] = []
    try:
        for directory in directories:
            if not (target / directory).exists():
                (target / directory).mkdir()
                made.append(target / directory)
        if index is not None:
            # Killed from here on, it leaves a list of all that is to go or to be replaced.
            text = files[index]
            assert isinstance(text, str)
            text = with_more_files(text, stale, _earlier_data(target))
            (fresh / "index").write_text(text, encoding="utf-8")
            placed.append(index)
            (fresh / "index").replace(target / index)
        for name in sorted(files, key=lambda name: name == index):
            placed.append(name)
            (fresh / name).replace(target / name)
        for name in sorted(stale, key=lambda name: name in INDEX_FILES):
            (target / name).unlink()
        for directory in reversed(_directories(stale)):
            if not any((target / directory).iterdir()):
                (target / directory).rmdir()
    except BaseException:
        for name in placed:
            if name not in there:
                (target / name).unlink(missing_ok=True)
        for name in (*there, *stale):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (backup / name).replace(target / name)
        for directory in reversed(made):
            directory.rmdir()
        raise


def _directories(files: Iterable[str]) -> list[str]:
    """The directories that the files are in, outer ones first; not the one of all."""
    parents = {str(parent) for name in files for parent in PurePath(name).parents}
    return sorted(parents - {"."})


def _earlier_files(directory: Path) -> set[str]:
    """The files that the index of an earlier run lists.

    The mark alone does not tell what an earlier run wrote: the user may have copied a file.
    """
    return {name for text in _indexes(directory) for name in indexed_files(text)}


def _earlier_data(directory: Path) -> set[tuple[str, int]]:
    """The data files of an earlier run, with their CRC-32s."""
    return {entry for text in _indexes(directory) for entry in indexed_data(text)}


def _indexes(directory: Path) -> list[str]:
    paths = [directory / name for name in INDEX_FILES]
    return [path.read_text(errors="replace") for path in paths if _is_generated(path)]


def _is_ours(directory: Path, name: str, data: Collection[tuple[str, int]]) -> bool:
    """Whether a file is generated; of `data` files it is the CRC-32 that tells."""
    path = directory / name
    if _is_generated(path):
        return True
    is_file = path.is_file() and not path.is_symlink()
    known = any(name == listed for listed, _ in data)
    return is_file and known and (name, zlib.crc32(path.read_bytes())) in data


def _is_generated(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return MARK.encode() in file.read(len(MARK) + 16)
