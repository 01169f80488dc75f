"""docs/tutorial.md, from top to bottom: every command runs, every output is what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import blocks, run_commands


def pattern(shown: str) -> str:
    """What is shown as an expression, in which `...` is anything, whole lines of it included."""
    lines = [
        r"(?:.*\n)*?" if line == "...\n" else re.escape(line).replace(r"\.\.\.", ".*")
        for line in shown.splitlines(keepends=True)
    ]
    return "".join(lines)


@pytest.mark.slow
def test_tutorial(tmp_path: Path) -> None:
    printed, commands, outputs = "", 0, 0
    for block in blocks("tutorial.md"):
        match block.kind:
            case "python":
                assert block.file, block.text
                (tmp_path / block.file).write_text(block.text)
            case "sh" if not block.skipped:
                printed, commands = run_commands(block.text, tmp_path), commands + 1
            case "":
                outputs += 1
                if not re.fullmatch(pattern(block.text), printed):
                    pytest.fail(f"shown:\n{block.text}\nprinted:\n{printed}", pytrace=False)
            case _:
                pass
    assert commands >= 8 and outputs >= 6
