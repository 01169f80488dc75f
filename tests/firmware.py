"""Helpers of tests that build firmware for a board and run it in QEMU."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from conftest import MODELS, load_arrays

from poetc.cli import main
from poetc.tensors import read_tensors

QUICK = ("--time-limit=20", "--gap=50%", "--stream=never", "-q")
"""For quick tests any schedule that fits will do; the search for tiles takes longest."""

WARNINGS = "-Werror -Wshadow -Wundef -Wdouble-promotion -Wmissing-prototypes -Wstrict-prototypes"


@dataclass(frozen=True)
class Run:
    """What firmware says about itself at its end, in bytes."""

    ram: int
    stack_used: int
    stack: int


def make(directory: Path, *words: str, flags: str = "-O2") -> subprocess.CompletedProcess[str]:
    """Run make in a generated directory; warnings of the compiler are errors."""
    return subprocess.run(
        ["make", "-s", "-C", directory, f"CFLAGS={flags} {WARNINGS}", *words],
        capture_output=True,
        text=True,
        timeout=200,
    )


def make_well(directory: Path, *words: str, flags: str = "-O2") -> str:
    """The same; it must succeed. What was printed."""
    done = make(directory, *words, flags=flags)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def compile_board(model: str, output: Path, board: str, *options: str) -> Path:
    """A model of tests/models as firmware, with its arguments in data/."""
    words = [str(MODELS / f"{model}.mlir"), f"--board={board}", "--emit=c", "-o", str(output)]
    assert main([*words, *QUICK, *options]) == 0
    write_data(model, output)
    return output


def write_data(model: str, directory: Path) -> None:
    """Arguments in data/, and the storage if the program keeps parameters there."""
    data = directory / "data"
    data.mkdir(exist_ok=True)
    arrays = MODELS / f"{model}.npz"
    for i, array in enumerate(load_arrays(arrays)[0]):
        (data / f"arg{i}.bin").write_bytes(np.ascontiguousarray(array).tobytes())
    if (directory / "model_image.json").exists():
        image = data / "storage.bin"
        assert main(["pack", "-q", str(directory), str(arrays), "-o", str(image)]) == 0


def run(directory: Path, steps: int, *words: str, flags: str = "-O2") -> Run:
    """Build and run; what is said of RAM must be so."""
    printed = make_well(directory, "run", f"STEPS={steps}", *words, flags=flags)
    found = re.search(
        rf"steps: {steps}, RAM: (\d+) bytes, storage: \d+ bytes, stack: (\d+) of (\d+) bytes, "
        "status: ok",
        printed,
    )
    assert found and "missing" not in printed, printed
    return Run(*map(int, found.groups()))


def defines(directory: Path) -> dict[str, int]:
    """The numbers in model.h."""
    text = (directory / "model.h").read_text()
    return {name: int(value) for name, value in re.findall(r"#define (\w+) +(\d+)$", text, re.M)}


def sections(directory: Path) -> dict[str, int]:
    """Sizes of the sections of the firmware in RAM."""
    (elf,) = directory.glob("build/*/model.elf")
    done = subprocess.run(
        ["arm-none-eabi-size", "-A", elf], capture_output=True, text=True, check=True
    )
    sizes = dict(re.findall(r"^(\.\w+) +(\d+)", done.stdout, re.M))
    return {name: int(sizes.get(name, 0)) for name in (".stack", ".data", ".bss")}


@cache
def host_results(model: str, steps: int, directory: Path) -> dict[int, bytes]:
    """What the host computes with unlimited RAM: results by number."""
    output = directory / f"host_{model}_{steps}"
    words = [str(MODELS / f"{model}.mlir"), "--emit=c", "-o", str(output)]
    assert main([*words, *QUICK]) == 0
    write_data(model, output)
    subprocess.run(["make", "-s", "-C", output, "CC=gcc"], check=True)
    program = [output / "model_example", output / "data", str(steps)]
    subprocess.run(program, check=True, capture_output=True)
    return outputs(output)


def outputs(directory: Path) -> dict[int, bytes]:
    """The results in data/ by number."""
    return {int(p.stem[3:]): p.read_bytes() for p in (directory / "data").glob("out*.bin")}


def updated(directory: Path) -> dict[int, int]:
    """For each result that is the new value of an argument, the number of that argument."""
    results = enumerate(read_tensors(directory).results)
    return {k: place.updates for k, place in results if place.updates is not None}


def all_results(directory: Path) -> dict[int, bytes]:
    """Results, and new values of parameters as `poetc unpack` finds them on the storage."""
    results = outputs(directory)
    if (directory / "model_image.json").exists():
        file, image = directory / "trained.npz", directory / "data" / "storage.bin"
        assert main(["unpack", "-q", str(directory), str(image), "-o", str(file)]) == 0
        with np.load(file) as arrays:
            for result, argument in updated(directory).items():
                results[result] = np.ascontiguousarray(arrays[f"arg{argument}"]).tobytes()
    return results
