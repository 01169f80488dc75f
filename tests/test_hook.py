"""A function of the program between kernels: it is called for each, and can cancel the step."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import MODELS

from poetc.cli import main
from poetc.image_files import read_layout, unpack_file

pytestmark = pytest.mark.usefixtures("whole")

HOOK = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "model.h"

int hook(uint32_t compute)
{
    const char *stop = getenv("STOP");
    fprintf(stderr, "%u/%u %s\n", (unsigned)compute, MODEL_COMPUTES, model_compute_name(compute));
    return stop != NULL && (uint32_t)atoi(stop) == compute;
}
"""
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wundef", "-Werror")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover")


def program(folder: Path, *options: str) -> Path:
    data = MODELS / "gesture_mlp.npz"
    model = str(MODELS / "gesture_mlp.mlir")
    assert main([model, "-q", "--emit=c", "-o", str(folder), f"--data={data}", *options]) == 0
    (folder / "hook.c").write_text(HOOK)
    sources = [str(path) for path in folder.glob("*.c") if path.name != "compare.c"]
    flags = ["-std=c99", "-O1", "-D_POSIX_C_SOURCE=200809L", "-DMODEL_HOOK=hook"]
    command = ["gcc", *flags, *WARNINGS, *SANITIZERS, *sources, "-o", "hooked", "-lpthread"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "hooked"


def parameters(storage: Path) -> list[bytes]:
    """The current parameters in an image."""
    layout = read_layout(storage.parent.parent / "model_image.json")
    output = storage.with_suffix(".npz")
    unpack_file(layout, str(storage), str(output))
    with np.load(output) as arrays:
        return [arrays[name].tobytes() for name in sorted(arrays)]


def run(hooked: Path, stop: int | None = None) -> tuple[int, list[str]]:
    """The exit code and what it said."""
    folder = hooked.parent
    done = subprocess.run(
        [
            hooked,
            "data",
            "1",
            *(["data/storage.bin"] if (folder / "data/storage.bin").exists() else []),
        ],
        cwd=folder,
        env={} if stop is None else {"STOP": str(stop)},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stderr.splitlines()


def test_names_and_section(tmp_path: Path) -> None:
    """Arguments have constants by their names in the source, and the arena is where it is put."""
    folder = tmp_path / "out"
    assert main([str(MODELS / "gesture_mlp.mlir"), "-q", "--emit=c", "-o", str(folder)]) == 0
    header = (folder / "model.h").read_text()
    assert re.search(r"#define MODEL_ARG_1_L1_W +1\n", header)
    section = '-DMODEL_ARENA_SECTION=".fast_ram"'
    command = ["gcc", "-std=c99", *WARNINGS, section, "-c", "model.c", "-o", "model.o"]
    subprocess.run(command, cwd=folder, check=True)
    listed = subprocess.run(
        ["objdump", "-t", "model.o"], cwd=folder, check=True, capture_output=True, text=True
    ).stdout
    assert re.search(r"\.fast_ram\s+0*([0-9a-f]+) arena", listed)


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--ram=10KB"], ["--ram=8KB"]])
def test_hook(tmp_path: Path, options: list[str]) -> None:
    """It is called in order; cancelled anywhere, parameters on storage are as before, and the step
    that is then done whole gives the same bits."""
    hooked = program(tmp_path / "out", *options)
    storage = tmp_path / "out" / "data" / "storage.bin"
    image = storage.with_name("image.bin")
    before = image.read_bytes() if image.exists() else None
    assert (before is None) == (options == ["--ram=10KB"])
    if before is not None:
        storage.write_bytes(before)
    code, said = run(hooked)
    count = len(said) - 1
    assert code == 0 and count > 10
    assert [line.split()[0] for line in said] == [f"{k}/{count}" for k in range(count + 1)]
    assert said[0].split()[1].startswith("dot")
    after = None if before is None else parameters(storage)
    for stop in (0, count // 2, count - 1, count):
        if before is not None:
            storage.write_bytes(before)
            old = parameters(storage)
        code, said = run(hooked, stop)
        assert code != 0 and said[-1] == "step 0: cancelled"
        assert len(said) == stop + 2
        if before is not None:
            assert parameters(storage) == old
    if before is not None:
        assert run(hooked)[0] == 0 and parameters(storage) == after != old
