"""How a benchmark says what it has measured: all of it, or nothing.

A benchmark prints Markdown, and fails by an exception or an exit code other than 0: where a program
that it runs fails, where a result is wrong, where a promise is not kept. `run` shows what is
printed on standard error as it comes. Only when everything is there does it go to standard output,
or, with `--output FILE`, into a document, whose old content is there until then.
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
        write_whole(output, text)
    sys.exit(code)


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
