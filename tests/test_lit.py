"""Runs the lit tests, one pytest test per folder of `lit_tests`."""

import subprocess
import sys
from pathlib import Path

import pytest

LIT = Path(__file__).parent.parent / "lit_tests"
FOLDERS = sorted(p.name for p in LIT.iterdir() if p.is_dir() and any(p.rglob("*.mlir")))


@pytest.mark.parametrize("folder", FOLDERS)
def test_lit(folder: str) -> None:
    lit = Path(sys.executable).with_name("lit")
    run = subprocess.run([lit, "-q", "-j2", str(LIT / folder)], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
