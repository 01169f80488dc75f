"""Pages of the documentation that are followed: their files and commands."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from poetc.cli import main

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
    they print. All must succeed."""
    variables = {"PYTHONPATH": str(ROOT)} | variables
    lines = text.replace("\\\n", "").splitlines()
    if any(re.match(r"\s*(cd|export|for|if|while) ", line) or "<<" in line for line in lines):
        lines = [text]
    printed = ""
    for line in filter(str.strip, lines):
        if words := _words(line):
            code, said = run_here(words, directory, **variables)
        else:
            code, said = _in_shell(line, directory, variables)
        printed += said
        assert code == 0, f"{line}\n{printed}"
    return printed


def _words(line: str) -> list[str] | None:
    """The words of a command that runs poetc or a script and needs no shell, else None."""
    if not re.match(r"\s*(poetc|python) (?!-)", line) or re.search(r"[$*?~`]", line):
        return None
    words = [*shlex.shlex(line, posix=True, punctuation_chars=True)]
    return None if any(set(word) <= set("();<>|&") for word in words) else words


def _in_shell(line: str, directory: Path, variables: Mapping[str, str]) -> tuple[int, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", line],
        cwd=directory,
        env=os.environ | {"PATH": path, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
    )
    return done.returncode, done.stdout


def run_here(words: Sequence[str], directory: Path, **variables: str) -> tuple[int, str]:
    """The exit code of `poetc ...` or `python SCRIPT ...` in a directory, and what it and processes
    that it starts print. It runs in this process: another one would take seconds to load the
    libraries."""
    loaded = set(sys.modules)
    outer = os.dup(1), os.dup(2)
    with tempfile.TemporaryFile("w+", buffering=1) as said, pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        for name, value in variables.items():
            patch.setenv(name, value)
        try:
            for number in (1, 2):
                os.dup2(said.fileno(), number)
            with redirect_stdout(said), redirect_stderr(said):
                code = _run(words, patch)
        finally:
            for number, old in zip((1, 2), outer, strict=True):
                os.dup2(old, number)
                os.close(old)
        for name in set(sys.modules) - loaded:
            if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(directory):
                del sys.modules[name]  # another script may have one of this name
        said.seek(0)
        return code, said.read()


def _run(words: Sequence[str], patch: pytest.MonkeyPatch) -> int:
    program, *rest = words
    if program == "poetc":
        return main(rest)
    patch.setattr(sys, "argv", rest)
    patch.syspath_prepend(str(Path(rest[0]).parent.absolute()))
    try:
        runpy.run_path(rest[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    return 0
