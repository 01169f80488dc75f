"""Steps in little RAM on emulated boards, whose RAM ends where it is said to.

    python -m benchmarks.streaming_boards [MODEL ...]

Prints a table of docs/streaming.md. Each model is scheduled for so little RAM and runs one step
as firmware in QEMU; the results must be the same bits as those of the host with unlimited RAM.
Needs QEMU and arm-none-eabi-gcc. ResNet-18 takes minutes.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks import document
from benchmarks.boards import results
from benchmarks.streaming import run_c, write_steps
from poetc.errors import UnscheduledError


@dataclass(frozen=True)
class Case:
    """A model on a core of a board, in so much RAM with everything, of which `stack_bytes` are kept
    for the stack."""

    model: str
    board: str
    cpu: str
    ram_kib: int
    stack_bytes: int = 1024


CASES = (
    Case("lenet5", "microbit", "cortex-m0", 8, 640),
    Case("dscnn", "microbit", "cortex-m0", 32),
    Case("resnet8", "microbit", "cortex-m0", 32),
    Case("bert_micro", "microbit", "cortex-m0", 32),
    Case("resnet18", "mps2-an386", "cortex-m4", 256),
)


def main(words: list[str]) -> None:
    """Prints the table."""
    models = document.chosen(words, [case.model for case in CASES])
    print(
        "| model | board, core | RAM for it | linked | stack, used of | flash | in tiles | bits |\n"
        "|---|---|--:|--:|--:|--:|--:|---|"
    )
    for case in document.progress([case for case in CASES if case.model in models]):
        with tempfile.TemporaryDirectory(prefix="poetc-streaming-boards-") as name:
            try:
                print(_row(case, Path(name)), flush=True)
            except UnscheduledError as error:
                sys.exit(f"{case.model} in {case.ram_kib} KB: {error.diagnosis.text()}")


def _row(case: Case, directory: Path) -> str:
    ram_bytes, stack = case.ram_kib * 1024, str(case.stack_bytes)
    streams = write_steps(case.model, ram_bytes, directory, stack, board=case.board)
    data, firmware = directory / "step.npz", directory / "firmware"
    options = (f"--board={case.board}", f"--ram={case.ram_kib}KB", f"--stack={stack}")
    printed = run_c(directory / "small.mlir", data, firmware, *options, make=[f"CPU={case.cpu}"])
    used = re.search(r"stack: (\d+) of (\d+) bytes, status: ok", printed)
    assert used is not None, printed
    run_c(directory / "step.mlir", data, directory / "unlimited")
    assert results(firmware) == results(directory / "unlimited"), f"{case}: other bits"
    (elf,) = firmware.glob("build/*/model.elf")
    sizes = subprocess.run(
        ["arm-none-eabi-size", "-A", elf], capture_output=True, text=True, check=True
    ).stdout
    section = {k: int(v) for k, v in re.findall(r"^(\.\w+) +(\d+)", sizes, re.M)}
    linked = section[".stack"] + section[".data"] + section[".bss"]
    assert linked <= case.ram_kib * 1024
    cells = (
        case.model,
        f"{case.board}, {case.cpu}",
        f"{case.ram_kib} KB",
        f"{linked:,} B",
        f"{int(used[1]):,} of {int(used[2]):,}",
        f"{section['.text'] + section['.data']:,}",
        f"{streams} kernels",
        "the host's",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    document.run(main)
