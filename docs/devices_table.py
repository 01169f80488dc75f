"""Writes the files of devices and kinds of storage into the tables of docs/devices.md.

    python docs/devices_table.py [--check]

With `--check`, the exit code is 1 where the document says something else.
"""

from __future__ import annotations

import sys
from pathlib import Path

import document_table

from poetc.costmodel.listing import DEVICE_HEAD, STORAGE_HEAD, device_rows, storage_rows

DOCUMENT = Path(__file__).parent / "devices.md"


def main(words: list[str]) -> int:
    """Writes the document, or with `--check` compares; the exit code."""
    status = 0
    for head, rows in ((DEVICE_HEAD, device_rows()), (STORAGE_HEAD, storage_rows())):
        lines = [_line(f"`{name}`", *cells) for name, *cells in rows]
        table = [_line(*head), "|---" * len(head) + "|"]
        status |= document_table.write(DOCUMENT, table, lambda _, new=lines: new, words)
    return status


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
