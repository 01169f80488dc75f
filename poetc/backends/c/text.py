"""Pieces of C text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from poetc.backends.c.printer import c_comment

WIDTH = 100
"""Columns of a line."""


def unique(name: str, taken: set[str]) -> str:
    """The name, with a number behind it if it is taken; it is taken from then on."""
    unique = name
    number = 1
    while unique in taken:
        number += 1
        unique = f"{name}_{number}"
    taken.add(unique)
    return unique


def indented(text: str) -> list[str]:
    """The lines of a text, as they stand in a function."""
    return [f"    {line}" for line in text.splitlines()]


def wrapped(start: str, items: Sequence[str], end: str) -> list[str]:
    """`start`, a list, `end`: on one line if it is short."""
    line = f"{start}{', '.join(items)}{end}"
    if len(line) <= WIDTH:
        return [line]
    indent = " " * (len(start) - len(start.lstrip()) + 4)
    body = textwrap.fill(
        ", ".join(items) + end,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [start, *body.splitlines()]


def defines(pairs: Sequence[tuple[str, int | str]]) -> str:
    """Macros, one below the other, with their values in a column."""
    width = max(len(name) for name, _ in pairs)
    return "".join(f"#define {name:{width}} {value}\n" for name, value in pairs)


def guarded(macro: str, about: str, includes: Sequence[str], body: Sequence[str]) -> str:
    """A header that begins with a comment."""
    parts = [f"{c_comment(about)}\n#ifndef {macro}\n#define {macro}\n"]
    if includes:
        parts.append("\n".join(includes) + "\n")
    return "\n".join([*parts, *body, "#endif\n"])


def local_table(type_: str, name: str, values: Sequence[str]) -> list[str]:
    """A constant array of a function, of at least one element."""
    values = values or ["0"]
    return wrapped(f"    static const {type_} {name}[{len(values)}] = {{", values, "};")
