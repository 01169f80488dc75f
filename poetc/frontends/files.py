"""The two files of a training step, and their possible content, which the frontends share.

`NAME.mlir` is the step in StableHLO. Attributes of an argument say that the step updates it
(`tf.aliasing_output`, the number of the result that is its new value) and what the source calls it
(`poet.name`). `NAME.npz` has the arguments, `arg0`, `arg1`, ... in the order of `@main`, and the
expected results, `out0`, ..., if they were asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from poetc.errors import InputError
from poetc.files import write_whole
from poetc.ir.types import ELEMENT_TYPES

_NAMES = tuple(str(type.dtype) for type in ELEMENT_TYPES.values())
"""Element types of tensors, by NumPy's names."""


@dataclass(frozen=True)
class Exported:
    """The files of a step. `names` are those of the arguments in flat order; `updates` tells for
    each that the step updates the number of the result that is its new value."""

    mlir: Path
    npz: Path
    names: tuple[str, ...]
    updates: dict[int, int]


@dataclass(frozen=True)
class Lowered:
    """A training step in StableHLO, and its arguments.

    `names` are those of the arguments in flat order, `updates` tells for each that the step updates
    the number of the result that is its new value. `results` are those that are known, in flat
    order. `tops` are the names of the arguments of the function itself, `structure` and
    `result_structure` the pytrees (`PyTreeDef`) of all of them and of what it returns. `entries`
    are other entry points, which are in the text, too.
    """

    text: str
    names: tuple[str, ...]
    updates: dict[int, int]
    arguments: tuple[np.ndarray, ...]
    results: tuple[np.ndarray, ...]
    tops: tuple[str, ...]
    structure: Any
    result_structure: Any
    entries: Mapping[str, Lowered] = field(default_factory=dict)

    def write(self, path: str | os.PathLike[str]) -> Exported:
        """Write the two files of the step. Raises InputError if one cannot be written."""
        mlir, npz = write_model(path, self.text, self.arguments, self.results)
        return Exported(mlir, npz, self.names, self.updates)


def require(package: str, what: str, extra: str = "") -> ModuleType:
    """The package; InputError, which says how to install it, without.

    `what` is the function that needs it, `extra` the extra of poetc that has it, by default called
    like the package.
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise InputError(
            f"{what} needs {package} ({error}); install it with: "
            f"pip install 'poetc[{extra or package}]'"
        ) from error


def check_types(tensors: Iterable[tuple[str, str]]) -> None:
    """Raises an InputError that lists all tensors, given as name and element type, whose type
    poetc does not have."""
    found = [f"  {name}: {type}" for name, type in tensors if type not in _NAMES]
    if found:
        lines = "\n".join(found)
        raise InputError(f"types that poetc does not have (it has {', '.join(_NAMES)}):\n{lines}")


def model_paths(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """`NAME.mlir` and `NAME.npz` for a path `NAME` or `NAME.mlir`. InputError if it has no name."""
    name = os.fspath(path).removesuffix(".mlir")
    if not name or name.endswith("/"):
        raise InputError(f"the path {os.fspath(path)!r} does not end with a name for the files")
    return Path(f"{name}.mlir"), Path(f"{name}.npz")


def write_model(
    path: str | os.PathLike[str],
    text: str,
    arguments: Sequence[np.ndarray],
    results: Sequence[np.ndarray] = (),
) -> tuple[Path, Path]:
    """Write the two files, each as a whole or not at all, and return their paths.

    Raises InputError if one cannot be written.
    """
    mlir, npz = model_paths(path)
    if mlir.is_dir():  # before the other file is there
        raise InputError(f"cannot write {mlir}: it is a directory, not a file")
    arrays = {f"arg{i}": array for i, array in enumerate(arguments)}
    arrays |= {f"out{i}": array for i, array in enumerate(results)}
    data = BytesIO()
    np.savez(data, **arrays)  # pyright: ignore[reportArgumentType]
    write_whole(npz, data.getvalue())
    write_whole(mlir, text)
    return mlir, npz
