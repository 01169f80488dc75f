"""The lit tests: each file within this process, without the second that xdsl-opt takes to start;
and one folder as lit runs it."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
import traceback
from functools import cache
from pathlib import Path

import pytest
from filecheck.matcher import Matcher
from filecheck.options import parse_argv_options
from xdsl.universe import Universe
from xdsl.xdsl_opt_main import xDSLOptMain

LIT = Path(__file__).parent.parent / "lit_tests"
FILES = sorted(LIT.rglob("*.mlir"))
MULTIVERSE = staticmethod(cache(Universe.get_multiverse))
"""Looked for once: xdsl-opt reads what all packages say of themselves, four times."""

RUN = re.compile(r"// RUN: ((?:.*\\\n// RUN: )*.*)")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(LIT)))
def test_lit(path: Path, tmp_path: Path) -> None:
    lines = RUN.findall(path.read_text())
    assert lines
    for line in lines:
        run_line(line.replace("\\\n// RUN: ", ""), path, tmp_path / "printed")


def run_line(line: str, path: Path, printed: Path) -> None:
    """Does what a RUN line says: runs of xdsl-opt, each of which reads what the one before printed,
    and filecheck at the end."""
    words = [word.replace("%s", str(path)).replace("%p", str(path.parent)) for word in split(line)]
    *runs, check = commands(words)
    text = ""
    for run in runs:
        fails, both = run[0] == "not", run[-1] == "2>&1"
        name, *options = run[fails : len(run) - both]
        assert name == "xdsl-opt", line
        code, text, errors = xdsl_opt(options, text)
        assert bool(code) is fails, errors or text
        text += errors if both else ""
    printed.write_text(text)
    assert check[0] == "filecheck", line
    asked = parse_argv_options([*check, "--input-file", str(printed)])
    assert Matcher.from_opts(asked).run() == 0, line


def split(line: str) -> list[str]:
    """The words of a shell command. A pipe is one if nothing quotes it."""
    return shlex.split(re.sub(r" \| ", " '\0' ", line))


def commands(words: list[str]) -> list[list[str]]:
    """The commands between the pipes."""
    found: list[list[str]] = [[]]
    for word in words:
        if word == "\0":
            found.append([])
        else:
            found[-1].append(word)
    return found


def xdsl_opt(options: list[str], text: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of xdsl-opt, which reads `text`."""
    code, out, err = 0, io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setattr(Universe, "get_multiverse", MULTIVERSE)
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        with contextlib.redirect_stderr(err):
            try:
                xDSLOptMain(args=options).run()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
            except Exception:
                traceback.print_exc()
                code = 1
    return code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize("folder", ["plan"])
def test_as_lit_runs_them(folder: str) -> None:
    lit = Path(sys.executable).with_name("lit")
    run = subprocess.run([lit, "-q", "-j2", str(LIT / folder)], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
