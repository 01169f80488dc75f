"""The runtime: C that is the same for all models of one version of poetc, and is linked once.

All sources that say nothing of a model belong to it: the page store, images, plans, the
mathematical functions, boards. `poetc_version.h` has its version and a number of its text, which
every file of the runtime compares, and every model. `poetc_store.c` defines a constant whose name
is made of both, and which each model reads: a program with two versions does not link.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from poetc import __version__
from poetc.backends.c.libraries.library import MARK, RUNTIME_MARK, renamed
from poetc.backends.c.printer import Signature, print_function, print_prototype
from poetc.backends.c.text import c_comment, guarded
from poetc.backends.c.together import together_header
from poetc.costmodel.device import NO_CACHE_LINE_BYTES
from poetc.ir import mathlib

RUNTIME = Path(__file__).parent / "runtime"
"""The C sources that are copied into every generated directory."""

_SOURCES = tuple(Path(__file__).parent / name for name in ("runtime", "boards", "libraries"))
_VERSION = "poetc_version.h"
_HEAD = f"{c_comment(RUNTIME_MARK)}\n"


def marked(name: str, text: str, line_bytes: int = NO_CACHE_LINE_BYTES) -> str:
    """A C file of this package with the mark in front and, if it is part of the runtime, with the
    check of its version behind that; for a data cache with such lines."""
    if not _is_shared(text):
        return f"{c_comment(MARK)}\n{text}"
    if name == _VERSION:
        return _HEAD + _versioned(text, line_bytes)
    if name == "poetc_store.h":
        text = on_lines(text, line_bytes)
    return _HEAD + runtime_check("this file", line_bytes) + text


def is_runtime(text: str) -> bool:
    """Whether a generated file is part of the runtime."""
    return text.startswith((_HEAD, f"# {RUNTIME_MARK}"))


def runtime_check(what: str, line_bytes: int = NO_CACHE_LINE_BYTES) -> str:
    """Lines of C that refuse another runtime than this one."""
    return f"""\
#include "{_VERSION}"
#if POETC_RUNTIME_ID != {runtime_id(line_bytes)}u
#error "{what} needs the runtime of poetc {__version__} ({runtime_id(line_bytes)})"
#endif
"""


@cache
def runtime_id(line_bytes: int = NO_CACHE_LINE_BYTES) -> str:
    """The number of the runtime's text, in hexadecimal as C has it."""
    paths = (path for root in _SOURCES for path in sorted(root.rglob("*.[ch]")))
    texts = [text for path in paths if _is_shared(text := path.read_text(encoding="utf-8"))]
    number = zlib.crc32("\0".join((*texts, *printed_sources().values(), str(line_bytes))).encode())
    return f"0x{number:08x}"


def on_lines(header: str, line_bytes: int) -> str:
    """`poetc_store.h` for a cache with such lines."""
    return _defined(header, "POETC_CACHE_LINE_BYTES", str(line_bytes))


@cache
def printed_sources() -> dict[str, str]:
    """The files of the runtime that Python prints, by name."""
    header, source = math_sources(mathlib.symbols().values())
    return {"poetc_math.h": header, "poetc_math.c": source, "poetc_together.h": together_header()}


def math_sources(symbols: Iterable[str]) -> tuple[str, str]:
    """A header and a source with the given functions and those that they call."""
    functions = [(s, mathlib.function(s)) for s in mathlib.callees(*symbols)]
    prototypes: list[str] = []
    definitions: list[str] = []
    for symbol, function in functions:
        private = function.sym_visibility is not None and function.sym_visibility.data == "private"
        signature = Signature(symbol, static=private)
        definitions.append(print_function(function, signature))
        if not private:
            prototypes.append(print_prototype(function, signature))
    about = (
        "Mathematical functions, printed from poetc's ir/math:\n"
        "float32 only, the same bits on every target, within 2 ulp of the exact value."
    )
    header = guarded("POETC_MATH_H", about, [], ["".join(prototypes)])
    includes = ['#include "poetc_math.h"', '#include "poetc_scalar.h"']
    source = "\n".join([c_comment(about), "\n".join(includes), "", "\n".join(definitions)])
    return header, source


def _is_shared(text: str) -> bool:
    return renamed(text, "") == text


def _versioned(text: str, line_bytes: int) -> str:
    number = runtime_id(line_bytes)
    parts = re.findall(r"\d+", __version__)[:3]
    text = _defined(text, "POETC_VERSION", f'"{__version__}"')
    for name, part in zip(("MAJOR", "MINOR", "PATCH"), parts, strict=True):
        text = _defined(text, f"POETC_VERSION_{name}", part)
    text = _defined(text, "POETC_RUNTIME_ID", f"{number}u")
    return _defined(text, "POETC_RUNTIME", f"poetc_runtime_{'_'.join(parts)}_{number[2:]}")


def _defined(text: str, macro: str, value: str) -> str:
    """The text with another value of a macro."""
    changed, count = re.subn(rf"^#define {macro} .*$", f"#define {macro} {value}", text, flags=re.M)
    assert count == 1, macro
    return changed
