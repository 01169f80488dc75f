"""Pages of the documentation that are followed: their files and commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent

_BLOCK = re.compile(
    r"(?:^ *`(?P<file>[\w./-]+)`:\n\n)?"
    r"(?P<skipped>^ *<!-- not run -->\n)?"
    r"^(?P<indent> *)```(?P<kind>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A block of code: the file that it is, if the line above names one; whether the page says that
    it is `<!-- not run -->`."""

    kind: str
    text: str
    file: str | None
    skipped: bool


def blocks(page: str) -> Iterator[Block]:
    """The blocks of a page, from top to bottom."""
    for found in _BLOCK.finditer((ROOT / "docs" / page).read_text()):
        text = textwrap.dedent(found["text"])
        yield Block(found["kind"], text, found["file"], found["skipped"] is not None)


def run_commands(text: str, directory: Path, **variables: str) -> str:
    """Commands as a user types them in a directory, `poetc` and `python` those of the tests; what
    they print."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment |= {"PYTHONPATH": str(ROOT)} | variables
    done = subprocess.run(
        ["bash", "-euc", text],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, f"{text}{done.stdout}"
    return done.stdout
