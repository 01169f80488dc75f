"""Writes the tables of docs/coverage.md: operations of StableHLO, optimisers, and operators of
PyTorch's Core ATen.

    python docs/coverage_table.py [--check] [TABLE ...]

With `--check`, the exit code is 1 where the document says something else; an operation is then
compiled for one element type, and read for the others. The tables are those of `TABLES`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import coverage_operations as operations
import coverage_optimisers as optimisers
import document_table

DOCUMENT = Path(__file__).parent / "coverage.md"
ATEN_HEAD = ("| operator | |", "|---|---|")


def aten_rows() -> list[str]:
    """A row for each operator; overloads that are alike share one."""
    import torch

    from poetc.frontends.aten import core_operators, lowering, refusal

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


TABLES: dict[str, tuple[Sequence[str], Callable[[bool], list[str]]]] = {
    "operations": (operations.HEAD, operations.rows),
    "missing": (operations.MISSING_HEAD, lambda is_quick: operations.missing_rows()),
    "torch": (optimisers.TORCH_HEAD, lambda is_quick: optimisers.torch_rows()),
    "optax": (optimisers.OPTAX_HEAD, lambda is_quick: optimisers.optax_rows()),
    "aten": (ATEN_HEAD, lambda is_quick: aten_rows()),
}
"""The head of each table, and what makes its rows, quickly or not."""


def main(words: list[str]) -> int:
    """Writes the document, or with `--check` compares; the exit code."""
    is_check = "--check" in words
    differs = 0
    for name in [word for word in words if word in TABLES] or TABLES:
        head, rows = TABLES[name]
        differs |= document_table.write(
            DOCUMENT, head, lambda there, rows=rows: rows(is_check), words
        )
    return differs


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
