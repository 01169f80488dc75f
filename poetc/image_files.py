"""Storage images as files: what `poetc pack` and `poetc unpack` do."""

from __future__ import annotations

import io
import json
import stat
import zipfile
import zlib
from pathlib import Path

import numpy as np

from poetc.errors import InputError
from poetc.files import write_whole
from poetc.image import ImageLayout, pack, unpack
from poetc.lock import locked

SUFFIX = "_image.json"
"""Ends the name of the file that describes an image, beside the generated sources."""


_NOT_ARRAYS = (
    ValueError,
    TypeError,
    EOFError,
    OSError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What NumPy and zipfile raise for files of other kinds (a .npy file is a TypeError), objects that
only pickle reads, and damage."""


def layout_file(path: str) -> Path:
    """The file with the layout: `path`, or the one such file of a generated directory."""
    file = Path(path)
    if not file.is_dir():
        return file
    found = sorted(file.glob(f"*{SUFFIX}"))
    if not found:
        raise InputError(f"{path} has no *{SUFFIX}: the program in it has no parameters on storage")
    if len(found) > 1:
        names = ", ".join(f.name for f in found)
        raise InputError(f"{path} has several: {names}; name one of them")
    return found[0]


def refuse_overwriting(output: str, *inputs: str | Path) -> None:
    """Raises InputError if `output` is one of the files that are read."""
    for name in inputs:
        try:
            same = Path(output).samefile(name)
        except (OSError, ValueError):
            # One of them is not there, or has no proper name.
            continue
        if same:
            raise InputError(f"cannot write {output}: it is the same file as the input {name}")


def read_layout(file: Path) -> ImageLayout:
    """The layout in a file."""
    try:
        data = json.loads(_read(file))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not JSON") from error
    try:
        return ImageLayout.from_json(data)
    except InputError as error:
        raise InputError(f"{file}: {error.message}") from error


def read_arrays(path: str) -> dict[str, np.ndarray]:
    """The arrays in an `.npz` file by name."""
    data = _read(Path(path))
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            return dict(file)
    except _NOT_ARRAYS as error:
        raise InputError(f"{path} is not an .npz file of arrays, or is damaged") from error


def pack_file(layout: ImageLayout, arrays: str, output: str) -> None:
    """Writes the image with the parameters in the `.npz` file `arrays`."""
    data = _read(Path(arrays))
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            image = pack(layout, file)
    except InputError as error:
        raise InputError(f"{arrays}: {error.message}") from error
    except _NOT_ARRAYS as error:
        raise InputError(f"{arrays} is not an .npz file of arrays, or is damaged") from error
    # Whoever trains on the old image would go on with a file that has no name any more.
    with locked(output):
        write_whole(output, image)


def unpack_file(layout: ImageLayout, image: str, output: str) -> int:
    """Writes the parameters in the file `image` as `.npz`, named `arg<i>`; returns the sequence."""
    # Dumps of a whole storage may be much longer.
    with locked(image, shared=True):
        data = _read(Path(image), layout.storage_bytes)
    try:
        sequence, arrays = unpack(layout, data)
    except InputError as error:
        raise InputError(f"{image}: {error.message}") from error
    buffer = io.BytesIO()
    named = {f"arg{p.argument}": a for p, a in zip(layout.parameters, arrays, strict=True)}
    np.savez(buffer, allow_pickle=False, **named)
    write_whole(output, buffer.getvalue())
    return sequence


def _read(path: Path, most_bytes: int = -1) -> bytes:
    """The beginning of a regular file, or all of it."""
    try:
        # Opening a FIFO waits for somebody to write to it.
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise InputError(f"cannot read {path}: not a regular file")
        with path.open("rb") as file:
            return file.read(most_bytes)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from error
