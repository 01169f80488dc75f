"""Pieces of C text."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from poetc.names import printable

WIDTH = 100
"""Columns of a line."""

INDENT = "    "

# Words that are no identifiers in C99, C23 or POSIX headers that a port may include.
_WORDS = """
auto break case char const continue default do double else enum extern float for goto if inline
int long register restrict return short signed sizeof static struct switch typedef union
unsigned void volatile while bool true false asm typeof alignas alignof nullptr constexpr
thread_local static_assert memcpy memset
"""
KEYWORDS = frozenset(_WORDS.split())


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


def in_section(macro: str, kind: str) -> str:
    """The macro IN_SECTION, which puts a definition where the program wants that `kind`."""
    return f"""\
/* In a section of the program's choice. */
#ifdef {macro}_{kind}_SECTION
#define IN_SECTION __attribute__((section({macro}_{kind}_SECTION)))
#else
#define IN_SECTION
#endif
"""


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


def c_identifier(text: str) -> str:
    """`text` with everything that C does not allow in an identifier replaced by `_`."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII).lstrip("_") or "x"
    return f"x{name}" if name[0].isdigit() else name


def c_comment(text: str, width: int = WIDTH) -> str:
    """A C comment that says `text`, wrapped to `width` columns."""
    safe = printable(text).replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")
    lines = [
        wrapped
        for line in safe.splitlines()
        for wrapped in (textwrap.wrap(line, width - 6) or [""])
    ]
    if len(lines) <= 1:
        return f"/* {''.join(lines)} */"
    return "/* " + "\n * ".join(lines) + "\n */"


def broken(text: str, indent: str) -> list[str]:
    """A statement on as many lines as its length needs."""
    if len(indent) + len(text) <= WIDTH:
        return [indent + text]
    room = WIDTH - len(indent)
    target, equals, value = text.partition(" = ")
    if equals and len(INDENT) + len(value) <= room:
        return [f"{indent}{target} =", f"{indent}{INDENT}{value}"]
    # Before the last operator that fits, or behind a comma, of those in the fewest parentheses.
    places = [
        (text.count("(", 0, m.start()) - text.count(")", 0, m.start()), -m.start())
        for m in re.finditer(r" (?=[-+*/?:|&]{1,2} )|(?<=,) ", text)
        if m.start() <= room
    ]
    if not places:
        return [indent + text]
    at = -min(places)[1]
    rest = broken(text[at + 1 :], indent + INDENT)
    return [indent + text[:at], *rest]
