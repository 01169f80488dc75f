"""Writes what poetc/options.py says into the table of docs/options.md: how an option is written,
its default, and who else takes it. What an option means is left as it is there.

    python docs/options_table.py [--check]

With `--check`, the exit code is 1 where the document says something else.
"""

from __future__ import annotations

import sys
from pathlib import Path

from poetc.cli import emit
from poetc.options import OPTIONS, Option

DOCUMENT = Path(__file__).parent / "options.md"
HEAD = ["| option | default | also taken by | meaning |", "|---|---|---|---|"]


def rewritten(text: str) -> str:
    """The document as it should be. Raises ValueError if an option is not in its table."""
    lines = text.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("| option "))
    end = next(i for i in range(begin, len(lines)) if not lines[i].startswith("|"))
    meanings = dict(_flag_and_meaning(line) for line in lines[begin + 2 : end])
    if missing := [o.flag for o in OPTIONS.values() if o.flag not in meanings]:
        raise ValueError(f"{DOCUMENT.name} does not say what {', '.join(missing)} mean")
    known = {option.flag: _cells(option) for option in OPTIONS.values()}
    written = "\\|".join(emit.names())
    known["--emit"] = (f"`--emit={written}`", f"`{emit.DEFAULT}`", "")
    rows: list[str] = []
    for flag, (first, meaning) in meanings.items():
        cells = (*known.get(flag, (first, "", "")), meaning)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines[:begin], *HEAD, *rows, *lines[end:]]) + "\n"


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
    old = DOCUMENT.read_text(encoding="utf-8")
    new = rewritten(old)
    if words == ["--check"]:
        return int(old != new)
    DOCUMENT.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
