"""Output that appears complete or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from poetc.errors import InputError


def umask() -> int:
    """The mask that new files get; temporary files are made without it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_whole(target: Path, text: str) -> None:
    """Write a file under a temporary name and rename it. Raises InputError if that fails."""
    fresh: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", dir=target.absolute().parent, prefix=f".{target.name}.", delete=False
        ) as file:
            fresh = Path(file.name)
            file.write(text)
        fresh.chmod(0o666 & ~umask())
        fresh.replace(target)
    except BaseException as error:
        if fresh is not None:
            fresh.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InputError(f"cannot write {target}: {error.strerror}") from error
        raise
