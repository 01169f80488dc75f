"""Writes what poetc/options.py says into the table of docs/options.md: how an option is written,
its default, and who else takes it. What an option means is left as it is there.

    python docs/options_table.py [--check]

With `--check`, the exit code is 1 where the document says something else.
"""

from __future__ import annotations

import sys
from pathlib import Path

import document_table

from poetc import emit
from poetc.options import OPTIONS, Option

DOCUMENT = Path(__file__).parent / "options.md"
HEAD = ["| option | default | also taken by | meaning |", "|---|---|---|---|"]


def rows(there: list[str]) -> list[str]:
    """The rows as they should be. Raises ValueError if an option is in none that is there."""
    meanings = dict(map(_flag_and_meaning, there))
    if missing := [o.flag for o in OPTIONS.values() if o.flag not in meanings]:
        raise ValueError(f"{DOCUMENT.name} does not say what {', '.join(missing)} mean")
    known = {option.flag: _cells(option) for option in OPTIONS.values()}
    written = "\\|".join(emit.names())
    known["--emit"] = (f"`--emit={written}`", f"`{emit.DEFAULT}`", "")
    return [
        f"| {' | '.join((*known.get(flag, (first, '', '')), meaning))} |"
        for flag, (first, meaning) in meanings.items()
    ]


def _flag_and_meaning(line: str) -> tuple[str, tuple[str, str]]:
    """The option of a row, with the first and the last cell."""
    cells = line.removeprefix("| ").removesuffix(" |").split(" | ")
    return cells[0].strip("`").split("=")[0], (cells[0], cells[-1])


def _cells(option: Option) -> tuple[str, str, str]:
    values = "\\|".join(option.choices or ()) or (option.metavar or option.name.upper())
    default = f"`{option.default}`" if option.default is not None else ""
    values = values.replace("|", "\\|") if option.choices is None else values
    takers = ", ".join(f"`{taker}`" for taker in option.takers)
    return f"`{option.flag}={values}`", default, takers


def main(words: list[str]) -> int:
    """Writes the document, or with `--check` compares; the exit code."""
    return document_table.write(DOCUMENT, HEAD, rows, words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
