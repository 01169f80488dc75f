"""Layouts: the generated C as a library for the build system of a larger program.

A layout takes the generated files of a model by name and puts them in the places where users of
that build system look for them, with the description that it reads and an example. `make` is
the directory as it comes: flat, with a Makefile for the example.

One of the files, the index, ends with the list of all of them (`indexed`), so that a later run
finds those which it does not write again, and removes them.
"""

from __future__ import annotations

import re
import textwrap
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from poetc.backends.c.layout import STATIC_BYTES
from poetc.backends.c.libraries import arduino, cmake, make, zephyr
from poetc.backends.c.libraries.library import Library
from poetc.errors import InputError
from poetc.options import default

DEFAULT_LAYOUT: str = default("layout")

INDEX_FILES = ("Makefile", "CMakeLists.txt", "library.properties")
"""The indexes of all layouts, and of firmware for boards."""

RUNS = ("make", "cmake")
"""Layouts with a program that runs on the machine that builds it."""

_LIST = "# Files: "
_DATA = "# Data: "


@dataclass(frozen=True)
class Layout:
    """How the files of a library are arranged.

    `static_bytes` is the handle of the page store that comes with it; `arrange` makes the files, by
    their paths; `index` is the one that lists them all. `check_name` raises InputError if the build
    system could not have a library of that name. With a `shared_runtime` the runtime of one model
    serves all that are built with it.
    """

    name: str
    static_bytes: int
    index: str
    arrange: Callable[[Library], dict[str, str]]
    shared_runtime: bool = False
    check_name: Callable[[str], None] = lambda name: None


_LAYOUTS = (
    Layout("make", STATIC_BYTES, "Makefile", make.arrange),
    Layout("cmake", STATIC_BYTES, "CMakeLists.txt", cmake.arrange, True, cmake.check_name),
    Layout(
        "arduino",
        arduino.STATIC_BYTES,
        "library.properties",
        arduino.arrange,
        check_name=arduino.check_name,
    ),
    Layout("zephyr", zephyr.STATIC_BYTES, "CMakeLists.txt", zephyr.arrange, True),
)


def known_layouts() -> tuple[str, ...]:
    """The names that `--layout` takes, the default first."""
    return tuple(layout.name for layout in _LAYOUTS)


def load_layout(name: str) -> Layout:
    """The layout of that name. Raises InputError for an unknown one."""
    for layout in _LAYOUTS:
        if layout.name == name:
            return layout
    raise InputError(f"unknown layout '{name}'; known layouts are {', '.join(known_layouts())}")


def indexed(
    index: str, files: Mapping[str, str], data: Mapping[str, bytes] | None = None
) -> dict[str, str]:
    """The files, with their list, and that of data files, at the end of `index`, in which `#`
    begins comments."""
    about = "\n# What poetc wrote. A later run removes what it does not write again.\n"
    data = data or {}
    sums = [(name, zlib.crc32(content)) for name, content in data.items()]
    return {**files, index: with_more_files(files[index] + about, [*files, *data], sums)}


def with_more_files(index: str, files: Iterable[str], data: Iterable[tuple[str, int]] = ()) -> str:
    """The text of an index that lists these files, too, and these CRC-32s of data files.

    What is no text has no mark: the sum tells whether it still is what was written.
    """
    lines = textwrap.wrap(
        " ".join(sorted(files)), 96 - len(_LIST), break_long_words=False, break_on_hyphens=False
    )
    text = index + "".join(f"{_LIST}{line}\n" for line in lines)
    return text + "".join(f"{_DATA}{crc:08x} {name}\n" for name, crc in sorted(data))


def indexed_data(text: str) -> Iterable[tuple[str, int]]:
    """The data files that an index lists, with their CRC-32s."""
    for crc, name in re.findall(rf"^{_DATA}([0-9a-f]{{8}}) (\S+)$", text, re.MULTILINE):
        yield name, int(crc, 16)


def indexed_files(text: str) -> Iterable[str]:
    """The files that an index lists, relative to its directory. Others are left out."""
    for line in re.findall(rf"^{_LIST}(.*)$", text, re.MULTILINE):
        for name in line.split():
            path = PurePosixPath(name)
            if not path.is_absolute() and ".." not in path.parts and Path(name) != Path():
                yield name
