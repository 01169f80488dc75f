"""docs/tutorial.md, from top to bottom: every command runs, every output is what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(
    r"(?:`(?P<file>[\w.]+)`:\n\n)?(?P<skipped><!-- not run -->\n)?"
    r"```(?P<kind>\w*)\n(?P<text>.*?)```",
    re.DOTALL,
)


def pattern(shown: str) -> str:
    """What is shown as an expression, in which `...` is anything, whole lines of it included."""
    lines = [
        r"(?:.*\n)*?" if line == "...\n" else re.escape(line).replace(r"\.\.\.", ".*")
        for line in shown.splitlines(keepends=True)
    ]
    return "".join(lines)


@pytest.mark.slow
def test_tutorial(tmp_path: Path) -> None:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment["PYTHONPATH"] = str(ROOT)
    printed, commands, outputs = "", 0, 0
    for block in BLOCK.finditer((ROOT / "docs" / "tutorial.md").read_text()):
        text = block["text"]
        match block["kind"]:
            case "python":
                assert block["file"], text
                (tmp_path / block["file"]).write_text(text)
            case "sh" if not block["skipped"]:
                done = subprocess.run(
                    ["bash", "-euc", text],
                    cwd=tmp_path,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
                printed, commands = done.stdout, commands + 1
                assert done.returncode == 0, f"{text}{printed}"
            case "":
                outputs += 1
                if not re.fullmatch(pattern(text), printed):
                    pytest.fail(f"shown:\n{text}\nprinted:\n{printed}", pytrace=False)
            case _:
                pass
    assert commands >= 8 and outputs >= 6
