"""Storage images and saved parameters as files: what `poetc pack` and `poetc unpack` do."""

from __future__ import annotations

import io
import json
import math
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from poetc.description import check_description
from poetc.errors import InputError
from poetc.files import write_whole
from poetc.image import ImageLayout, pack, unpack
from poetc.ir.types import BFLOAT16, computed_dtype
from poetc.lock import locked
from poetc.saved import SavedLayout, load, save, saved_layout
from poetc.tensors import SUFFIX as TENSORS
from poetc.tensors import read_tensors

SUFFIX = "_image.json"
"""Ends the name of the file that describes an image, beside the generated sources."""


_MOST_LAYOUT_BYTES = 1 << 26
_MOST_HEADER_BYTES = 1 << 16
"""Of an array in an `.npz` file, beside its elements."""
_SAVED_BFLOAT16 = np.dtype("V2")
"""The type of bf16 in a file of NumPy, which does not know it."""

_NOT_ARRAYS = (
    ValueError,
    TypeError,
    EOFError,
    OSError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    OverflowError,
)
"""Errors of NumPy and zipfile for files of other kinds (a .npy file is a TypeError), objects that
only pickle reads, and damage."""


@dataclass(frozen=True)
class PackedProgram:
    """A generated program, by `name`, the file that describes it, and how its parameters are kept:
    in a storage image, or, of one with parameters in RAM, saved."""

    name: str
    file: Path
    layout: ImageLayout | SavedLayout

    @property
    def bytes(self) -> int:
        """Of what is packed."""
        layout = self.layout
        return layout.bytes if isinstance(layout, SavedLayout) else layout.storage_bytes


def packed_program(path: str) -> PackedProgram:
    """The program in a generated directory, or described by the file `path`.

    Raises InputError if it is damaged, of another run of poetc than the sources beside it, or
    keeps no parameters.
    """
    file = layout_file(path)
    if not file.name.endswith(TENSORS):
        return PackedProgram(file.name.removesuffix(SUFFIX), file, read_layout(file))
    program = read_tensors(file.parent)
    layout = saved_layout(program)
    if layout is None:
        raise InputError(f"{path}: the program in it has no parameters")
    return PackedProgram(program.name, file, layout)


def layout_file(path: str) -> Path:
    """The file with the layout: `path`, or the one such file of a generated directory."""
    file = Path(path)
    if not file.is_dir():
        return file
    found = sorted(file.glob(f"*{SUFFIX}")) or sorted(file.glob(f"*{TENSORS}"))
    if not found:
        raise InputError(
            f"{path} has no *{SUFFIX} and no *{TENSORS}: it is not what --emit=c wrote"
        )
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
    """The layout in a file.

    Raises InputError if it is damaged, or of another run of poetc than the sources beside it.
    """
    try:
        text = _read(file, _MOST_LAYOUT_BYTES + 1)
        if len(text) > _MOST_LAYOUT_BYTES:
            raise InputError(f"{file} is too large to describe an image")
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not JSON") from error
    try:
        layout = ImageLayout.from_json(data)
        check_description(file, data)
        return layout
    except InputError as error:
        raise InputError(f"{file}: {error.message}") from error


class ArrayFile(Mapping[str, np.ndarray]):
    """The arrays in an `.npz` file by name, each read when it is asked for.

    Raises InputError for one that takes more than `most_bytes`, before it is read, and for damage.
    """

    def __init__(self, path: str, most_bytes: int) -> None:
        self.path, self.most_bytes = path, most_bytes
        _require_regular(Path(path))
        try:
            with zipfile.ZipFile(path) as file:
                self._members = {name.removesuffix(".npy"): name for name in file.namelist()}
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}") from error
        except _NOT_ARRAYS as error:
            raise self._damaged() from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, name: str) -> np.ndarray:
        member = self._members[name]
        most = self.most_bytes + _MOST_HEADER_BYTES
        try:
            with zipfile.ZipFile(self.path) as file, file.open(member) as stream:
                # The size in the directory of the archive need not be true.
                data = stream.read(most + 1)
            if len(data) > most:
                raise InputError(f"{self.path}: {name} has {self._excess()}")
            return self._array(name, data)
        except _NOT_ARRAYS as error:
            raise self._damaged() from error

    def _array(self, name: str, data: bytes) -> np.ndarray:
        stream = io.BytesIO(data)
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            header = np.lib.format.read_array_header_1_0(stream)
        else:
            header = np.lib.format.read_array_header_2_0(stream)
        shape, _, dtype = header
        if math.prod(shape) * dtype.itemsize > self.most_bytes:
            shape = "x".join(map(str, shape))
            raise InputError(f"{self.path}: {name} of shape {shape} has {self._excess()}")
        array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
        return array.view(BFLOAT16.dtype) if array.dtype == _SAVED_BFLOAT16 else array

    def _excess(self) -> str:
        return f"more than the {self.most_bytes:,} bytes that any array of the model has"

    def _damaged(self) -> InputError:
        return InputError(f"{self.path} is not an .npz file of arrays, or is damaged")


def packed(layout: ImageLayout | SavedLayout, arrays: str) -> bytes:
    """The image with the parameters in the `.npz` file `arrays`, or these as they are saved."""
    most_bytes = max(
        math.prod(p.shape) * computed_dtype(np.dtype(p.dtype)).itemsize for p in layout.tensors
    )
    file = ArrayFile(arrays, most_bytes)
    try:
        return save(layout, file) if isinstance(layout, SavedLayout) else pack(layout, file)
    except InputError as error:
        message = error.message.removeprefix(f"{arrays}: ")
        raise InputError(f"{arrays}: {message}") from error


def pack_file(layout: ImageLayout | SavedLayout, arrays: str, output: str) -> None:
    """Writes what `packed` makes."""
    image = packed(layout, arrays)
    # Whoever trains on the old image would go on with a file that has no name any more.
    with locked(output):
        write_whole(output, image)


def unpack_file(layout: ImageLayout | SavedLayout, image: str, output: str) -> int | None:
    """Writes the parameters in the file `image` as `.npz`, named `arg<i>`; returns the sequence, if
    it is an image."""
    sequence = None
    # Dumps of a whole storage may be much longer.
    most = layout.bytes if isinstance(layout, SavedLayout) else layout.storage_bytes
    with locked(image, shared=True):
        data = _read(Path(image), most)
    try:
        if isinstance(layout, SavedLayout):
            arrays = load(layout, data)
        else:
            sequence, arrays = unpack(layout, data)
    except InputError as error:
        raise InputError(f"{image}: {error.message}") from error
    buffer = io.BytesIO()
    named = {f"arg{p.argument}": a for p, a in zip(layout.tensors, arrays, strict=True)}
    np.savez(buffer, allow_pickle=False, **named)
    write_whole(output, buffer.getvalue())
    return sequence


def _require_regular(path: Path) -> None:
    """Raises InputError for what is there and neither file nor directory."""
    try:
        # Opening a FIFO waits for somebody to write to it.
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from error
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise InputError(f"cannot read {path}: not a regular file")


def _read(path: Path, most_bytes: int) -> bytes:
    """The beginning of a regular file."""
    _require_regular(path)
    try:
        with path.open("rb") as file:
            return file.read(most_bytes)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from error
