"""The lit tests of a few folders within this process, where a mutation tester sees what they run.

Not part of the suite, which runs them with lit (`test_lit.py`): pytest finds it only by its name.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from pathlib import Path

import pytest
from filecheck.matcher import Matcher
from filecheck.options import parse_argv_options
from xdsl.xdsl_opt_main import xDSLOptMain

LIT = Path(__file__).parent.parent / "lit_tests"
FOLDERS = ("caller-io", "poet-plan-memory", "poet-plan-transfers", "poet-verify")
RUN = re.compile(r"// RUN: xdsl-opt (%s [^|]*) \| filecheck (%s.*)")
RUNS = [
    pytest.param(path, *run.groups(), id=f"{path.parent.name}/{path.stem}-{number}")
    for folder in FOLDERS
    for path in sorted((LIT / folder).glob("*.mlir"))
    for number, run in enumerate(RUN.finditer(path.read_text()))
]


@pytest.mark.parametrize(("path", "options", "checks"), RUNS)
def test_lit(path: Path, options: str, checks: str, tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    with printed.open("w") as file, contextlib.redirect_stdout(file):
        xDSLOptMain(args=shlex.split(options.replace("%s", str(path)))).run()
    words = shlex.split(checks.replace("%s", str(path)))
    asked = parse_argv_options(["filecheck", *words, "--input-file", str(printed)])
    assert Matcher.from_opts(asked).run() == 0
