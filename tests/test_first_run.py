"""A program with parameters on storage that is run before there are any says what makes them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import MODELS
from firmware import make

from poetc.cli import main

pytestmark = pytest.mark.usefixtures("whole")

MODEL = MODELS / "gesture_mlp"


def arguments(data: Path) -> None:
    data.mkdir()
    with np.load(f"{MODEL}.npz") as arrays:
        for i in (6, 7):
            arrays[f"arg{i}"].tofile(data / f"arg{i}.bin")


@pytest.mark.slow
@pytest.mark.parametrize("board", ["host", "lm3s6965", "mps2-an386"])
def test_no_image_yet(board: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [f"{MODEL}.mlir", "--ram=12KB", "--params=storage", f"--board={board}"]
    assert main([*words, "--emit=c", "-q", "-o", str(out)]) == 0
    arguments(out / "data")
    if board == "host":
        subprocess.run(["make", "-s", "-C", out], check=True)
        program = [out / "model_example", out / "data", "1", out / "data" / "storage.bin"]
        done = subprocess.run(program, capture_output=True, text=True, check=False)
    else:
        done = make(out, "run")
    assert done.returncode != 0
    assert "poetc pack" in done.stdout + done.stderr, done.stdout + done.stderr
    storage = str(out / "data" / "storage.bin")
    assert main(["pack", "-q", str(out), f"{MODEL}.npz", "-o", storage]) == 0
    if board == "host":
        subprocess.run(program, check=True, capture_output=True)
    else:
        assert make(out, "run").returncode == 0
