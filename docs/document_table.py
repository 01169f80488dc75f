"""A table of a document that is made from the code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path


def write(
    document: Path,
    head: Sequence[str],
    rows: Callable[[list[str]], list[str]],
    words: Sequence[str],
) -> int:
    """Writes the rows of the table that begins with the lines `head`; `rows` makes them from those
    that are there. With `--check` in `words` it only compares. Returns the exit code: 1 where the
    document would be another one."""
    old = document.read_text(encoding="utf-8")
    lines = old.splitlines()
    begin = lines.index(head[0])
    end = next((i for i in range(begin, len(lines)) if not lines[i].startswith("|")), len(lines))
    there = lines[begin + len(head) : end]
    new = "\n".join([*lines[:begin], *head, *rows(there), *lines[end:]]) + "\n"
    if "--check" in words:
        return int(old != new)
    document.write_text(new, encoding="utf-8")
    return 0
