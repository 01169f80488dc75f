"""Arguments and results of a generated program as data: `model_tensors.json` beside `model.h`.

The arguments and results of a step by number, where they are, and how much RAM the program takes:
what a program on another machine needs to feed the step and to read its results.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from poetc.description import check_description
from poetc.errors import InputError

SUFFIX = "_tensors.json"
"""Ends the name of the file, which begins with that of the model."""

_FORMAT = "poetc tensors 1"
_PLACES = ("arena", "storage", "caller", "frozen")


@dataclass(frozen=True)
class ProgramTensor:
    """An argument or a result. `dtype` is NumPy's name of its type. Its bytes are row-major and
    little-endian; a bool is one byte.

    `where` is "arena", "storage", "caller", or "frozen" for an argument that is part of the
    program, or a result that is a frozen argument. `offset` is in bytes from the start of the
    arena, or, of a page, from that of the store (in bank 0). It is None in buffers of the caller,
    and where a plan decides. `updates` is, for a result, the argument that it is the new value of.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    where: str
    offset: int | None = None
    parameter: bool = False
    updates: int | None = None


@dataclass(frozen=True)
class EntryTensors:
    """An entry point beside the step: the C `function`, its arguments and results, and what it
    takes of the arena in bytes, parameters of the step included. `parameters` says for each
    argument which argument of the step it is, None for an input."""

    function: str
    arguments: tuple[ProgramTensor, ...]
    results: tuple[ProgramTensor, ...]
    parameters: tuple[int | None, ...]
    arena_bytes: int


@dataclass(frozen=True)
class ProgramTensors:
    """A program: its arguments and results, and what it takes, in bytes. `image` is the file that
    describes its storage image, None where no parameters are on storage. `entries` are other entry
    points by name, for which arena and storage are large enough, too."""

    name: str
    arguments: tuple[ProgramTensor, ...]
    results: tuple[ProgramTensor, ...]
    arena_bytes: int
    static_bytes: int
    stack_bytes: int
    ram_bytes: int
    storage_bytes: int
    image: str | None = None
    entries: Mapping[str, EntryTensors] = field(default_factory=dict)

    def to_text(self, comment: str) -> str:
        """The file; `comment` stands at its beginning."""
        return json.dumps({"_": comment, "format": _FORMAT} | asdict(self), indent=1) + "\n"

    @staticmethod
    def from_json(data: Any) -> ProgramTensors:
        """Reads the text that `to_text` wrote. Raises InputError for anything else."""
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise InputError(f"not a description of {_FORMAT!r}")
        try:
            values: dict[str, Any] = {f.name: data[f.name] for f in fields(ProgramTensors)}
            for kind in ("arguments", "results"):
                values[kind] = tuple(map(read_tensor, values[kind]))
            values["entries"] = {n: _entry(e) for n, e in values["entries"].items()}
            numbers = [value for name, value in values.items() if name.endswith("_bytes")]
            good = isinstance(values["name"], str) and all(type(n) is int for n in numbers)
            if not good or not isinstance(values["image"], str | None):
                raise TypeError
            return ProgramTensors(**values)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"a damaged description of {_FORMAT!r}") from error


def _entry(data: Mapping[str, Any]) -> EntryTensors:
    values: dict[str, Any] = {f.name: data[f.name] for f in fields(EntryTensors)}
    for kind in ("arguments", "results"):
        values[kind] = tuple(map(read_tensor, values[kind]))
    values["parameters"] = tuple(values["parameters"])
    if not isinstance(values["function"], str) or type(values["arena_bytes"]) is not int:
        raise ValueError
    return EntryTensors(**values)


def read_tensor(data: Mapping[str, Any]) -> ProgramTensor:
    """The tensor that plain data describe. Raises KeyError, TypeError or ValueError for others."""
    values: dict[str, Any] = {f.name: data[f.name] for f in fields(ProgramTensor)}
    values["shape"] = tuple(values["shape"])
    tensor = ProgramTensor(**values)
    if tensor.where not in _PLACES:
        raise ValueError
    count = int(np.prod(tensor.shape, dtype=np.int64))
    if count * np.dtype(tensor.dtype).itemsize != tensor.bytes:
        raise ValueError
    return tensor


def read_tensors(directory: str | Path) -> ProgramTensors:
    """The description in a directory that `--emit=c` wrote.

    Raises InputError where there is none, or several, or a damaged one, or one of another run of
    poetc than the sources in the directory.
    """
    found = sorted(Path(directory).glob(f"*{SUFFIX}"))
    if len(found) != 1:
        what = "no" if not found else "more than one"
        raise InputError(f"{directory} has {what} *{SUFFIX}; it is not what --emit=c wrote")
    try:
        data = json.loads(found[0].read_text(encoding="utf-8"))
        described = ProgramTensors.from_json(data)
        check_description(found[0], data)
        return described
    except InputError as error:
        raise InputError(f"{found[0]}: {error.message}") from error
    except OSError as error:
        raise InputError(f"cannot read {found[0]}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{found[0]} is not JSON") from error
