"""Writes into docs/coverage.md what becomes of each operator of PyTorch's Core ATen.

    python docs/coverage_table.py [--check]

With `--check`, the exit code is 1 where the document says something else.
"""

from __future__ import annotations

import sys
from pathlib import Path

import document_table
import torch

from poetc.frontends.aten import core_operators, lowering, refusal

DOCUMENT = Path(__file__).parent / "coverage.md"
HEAD = ("| operator | |", "|---|---|")


def rows() -> list[str]:
    """A row for each operator; overloads that are alike share one."""
    said: dict[tuple[str, str], list[str]] = {}
    for operator in core_operators():
        why = refusal(operator)
        how = "lowered" if lowering(operator) else "made of others by PyTorch"
        packet, _, overload = str(operator).removeprefix("aten.").partition(".")
        if torch.Tag.nondeterministic_seeded in operator.tags:
            how, why = "from the seed that `export` is given", None
        key = (packet, f"refused: {why}" if why else how)
        said.setdefault(key, []).append(overload)
    return [
        f"| `{name}`{_overloads(overloads)} | {what} |" for (name, what), overloads in said.items()
    ]


def _overloads(names: list[str]) -> str:
    return "" if names == ["default"] else f" ({', '.join(names)})"


def main(words: list[str]) -> int:
    """Writes the document, or with `--check` compares; the exit code."""
    return document_table.write(DOCUMENT, HEAD, lambda there: rows(), words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
