"""Firmware in the emulator: what it takes of RAM, stack and flash, and whether bits are the host's.

    python -m benchmarks.boards

Prints the table of docs/boards.md. Needs QEMU and arm-none-eabi-gcc.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks import document
from poetc.backends.c.boards import load_board
from poetc.cli import main as poetc
from poetc.tensors import read_tensors

MODELS = Path(__file__).parent.parent / "tests" / "models"


@dataclass(frozen=True)
class Case:
    """A model on a core of a board; `options` are those of poetc."""

    model: str
    board: str
    cpu: str
    steps: int
    options: tuple[str, ...]


STORAGE = "--params=storage"
CASES = (
    Case("gesture_mlp", "microbit", "cortex-m0", 20, ("--ram=32KB",)),
    Case("gesture_mlp", "microbit", "cortex-m0", 20, ("--ram=5122", "--stack=measure")),
    Case("kws_conv", "microbit", "cortex-m0", 20, ("--ram=32KB",)),
    Case("kws_conv", "microbit", "cortex-m0", 20, ("--ram=5230", "--stack=measure")),
    *(
        Case(model, "lm3s6965", cpu, 20, ("--ram=8KB", "--stack=640", STORAGE))
        for model in ("gesture_mlp", "kws_conv")
        for cpu in ("cortex-m0", "cortex-m3", "cortex-m4")
    ),
    Case("lenet5", "microbit", "cortex-m0", 1, ("--ram=32KB",)),
    Case("mlp_mnist", "microbit", "cortex-m0", 1, ("--ram=32KB",)),
    Case("lenet5", "mps2-an386", "cortex-m4", 1, ("--ram=256KB",)),
    Case("dscnn", "mps2-an386", "cortex-m4", 1, ("--ram=256KB",)),
    Case("resnet8", "mps2-an386", "cortex-m4", 1, ("--ram=256KB", STORAGE, "--strategy=capuchin")),
)


def main(words: list[str]) -> None:
    """Prints the table."""
    document.chosen(words, ())
    print(
        "| model | board, core | options | arena | static | stack, used of | RAM | flash | steps "
        "| bits |\n|---|---|---|--:|--:|--:|--:|--:|--:|---|"
    )
    with tempfile.TemporaryDirectory(prefix="poetc-boards-") as name:
        for number, case in enumerate(document.progress(CASES)):
            print(_row(case, Path(name) / str(number), Path(name)), flush=True)


def _row(case: Case, directory: Path, everything: Path) -> str:
    compile_model(case.model, directory, (f"--board={case.board}", *case.options))
    printed = _make(directory, "run", f"CPU={case.cpu}", f"STEPS={case.steps}")
    used = re.search(r"stack: (\d+) of (\d+) bytes, status: ok", printed)
    assert used is not None, printed
    sizes = _make(directory, "size", f"CPU={case.cpu}")
    section = {k: int(v) for k, v in re.findall(r"^(\.[\w.]+) +(\d+)", sizes, re.M)}
    known = read_tensors(directory)
    board = load_board(case.board)
    assert board is not None
    ram = section[".stack"] + section[".data"] + section[".bss"]
    flash = section[".text"] + section[".data"]
    host = _host(case.model, case.steps, everything)
    assert results(directory) == host, f"{case}: other bits than the host's"
    cells = (
        case.model,
        f"{case.board}, {case.cpu}",
        f"`{' '.join(case.options)}`",
        f"{known.arena_bytes:,}",
        f"{known.static_bytes:,}",
        f"{int(used[1]):,} of {int(used[2]):,}",
        f"{ram:,}",
        f"{flash:,}",
        str(case.steps),
        "the host's",
    )
    return f"| {' | '.join(cells)} |"


def compile_model(model: str, directory: Path, options: tuple[str, ...]) -> None:
    """A model of tests/models as a program in `directory`, with its data."""
    words = [str(MODELS / f"{model}.mlir"), "--emit=c", "-q", "-o", str(directory), *options]
    if poetc(words) != 0:
        sys.exit(1)
    write_data(model, directory)


def write_data(model: str, directory: Path) -> None:
    """Arguments in data/, and the storage if the program keeps parameters there."""
    data, arrays = directory / "data", MODELS / f"{model}.npz"
    data.mkdir()
    with np.load(arrays) as file:
        for name in file:
            if name.startswith("arg"):
                (data / f"{name}.bin").write_bytes(np.ascontiguousarray(file[name]).tobytes())
    if (directory / "model_image.json").exists():
        image = str(data / "storage.bin")
        assert poetc(["pack", "-q", str(directory), str(arrays), "-o", image]) == 0


def _make(directory: Path, *words: str) -> str:
    command = ["make", "-s", "-C", directory, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    return done.stdout + done.stderr


def results(directory: Path) -> dict[int, bytes]:
    """Results by number, new values of parameters on storage included."""
    results = {int(p.stem[3:]): p.read_bytes() for p in (directory / "data").glob("out*.bin")}
    if (directory / "model_image.json").exists():
        image, file = directory / "data" / "storage.bin", directory / "trained.npz"
        assert poetc(["unpack", "-q", str(directory), str(image), "-o", str(file)]) == 0
        with np.load(file) as arrays:
            for k, place in enumerate(read_tensors(directory).results):
                if place.where == "storage":
                    results[k] = np.ascontiguousarray(arrays[f"arg{place.updates}"]).tobytes()
    return results


@cache
def _host(model: str, steps: int, everything: Path) -> dict[int, bytes]:
    directory = everything / f"host-{model}-{steps}"
    compile_model(model, directory, ())
    _make(directory, "CC=gcc")
    program = [directory / "model_example", directory / "data", str(steps)]
    subprocess.run(program, check=True, capture_output=True)
    return results(directory)


if __name__ == "__main__":
    document.run(main)
