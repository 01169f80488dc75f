"""How a benchmark says what it has measured: all of it, or nothing.

A benchmark prints Markdown, and fails by an exception or an exit code other than 0: where a program
that it runs fails, where a result is wrong, where a promise is not kept. `run` shows what is
printed on standard error as it comes. Only when everything is there does it go to standard output,
or, with `--output FILE`, into a document, whose old content is there until then: a page in its
place, a table in that of the table with its head, where rows of what was not measured stay.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from tqdm import tqdm

from poetc.files import write_whole

OPTION = "--output"

_T = TypeVar("_T")


def run(main: Callable[[list[str]], int | None]) -> None:
    """Runs a benchmark on the words of the command line but `--output FILE`, and ends the process.

    The exit code is that of `main`, or that of what it raises; 1 where it has printed nothing.
    """
    words, output = _without_output(sys.argv[1:])
    if output is not None and not output.resolve().parent.is_dir():
        sys.exit(f"{OPTION} {output}: no such directory")
    shown = _Shown()
    with contextlib.redirect_stdout(shown):
        code = main(words) or 0
    text = shown.getvalue()
    if not code and not text.strip():
        sys.exit("nothing was measured")
    if code:
        print(f"failed with {code}: nothing is written", file=sys.stderr)
    elif output is None:
        sys.stdout.write(text)
    else:
        write_whole(output, text if text.startswith("#") else _in_place(output, text))
    sys.exit(code)


def _in_place(page: Path, text: str) -> str:
    """The page with the tables of a text; ends the process where it has none with such a head."""
    lines = page.read_text(encoding="utf-8").splitlines() if page.exists() else []
    for table in (part.splitlines() for part in text.strip().split("\n\n")):
        if table[0] not in lines:
            sys.exit(f"{page} has no table with the head {table[0]}")
        begin = lines.index(table[0]) + 2
        end = next((i for i in range(begin, len(lines)) if lines[i][:1] != "|"), len(lines))
        lines[begin:end] = _merged(lines[begin:end], table[2:])
    return "\n".join(lines) + "\n"


def _merged(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """The new rows, each subject where it was, and old ones of other subjects: of what their first
    cells say."""
    rows: dict[str, list[str]] = {}
    for row in new:
        rows.setdefault(row.split("|")[1], []).append(row)
    if rows.keys() >= {row.split("|")[1] for row in old}:
        return list(new)
    known = set(rows)
    kept = [rows.pop(name, []) if (name := r.split("|")[1]) in known else [r] for r in old]
    return [row for group in (*kept, *rows.values()) for row in group]


def progress(items: Iterable[_T]) -> Iterable[_T]:
    """The items, with a bar on standard error that shows the time left; none where that is no
    terminal."""
    return tqdm(list(items), disable=None, leave=False)


def chosen(words: Sequence[str], known: Collection[str]) -> list[str]:
    """The names on the command line; all where there are none. Ends the process for others."""
    if unknown := [word for word in words if word not in known]:
        there = f"there are {', '.join(dict.fromkeys(known))}" if known else "it takes no names"
        sys.exit(f"no {', '.join(unknown)}; {there}")
    return list(words or dict.fromkeys(known))


def _without_output(words: Sequence[str]) -> tuple[list[str], Path | None]:
    rest, output = list(words), None
    for at, word in enumerate(words):
        if word == OPTION:
            if at + 1 == len(words):
                sys.exit(f"{OPTION} needs a file")
            output, rest = Path(words[at + 1]), [*words[:at], *words[at + 2 :]]
        elif word.startswith(f"{OPTION}="):
            output, rest = Path(word.split("=", 1)[1]), [*words[:at], *words[at + 1 :]]
    return rest, output


class _Shown(io.StringIO):
    """Text that is shown on standard error, too, as far as nobody is to wait for it."""

    def write(self, text: str) -> int:
        sys.stderr.write(text)
        sys.stderr.flush()
        return super().write(text)
