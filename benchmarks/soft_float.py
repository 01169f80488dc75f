"""Floats in software: steps with soft_float.c and with the functions of the compiler's library.

    python -m benchmarks.soft_float [MODEL ...]

Prints the table of docs/kernels.md. Needs QEMU and arm-none-eabi-gcc.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks import document
from benchmarks.boards import compile_model, results
from benchmarks.step_counts import count_steps
from poetc.backends.c.measure.emulate import counter

CASES = (
    ("gesture_mlp", "microbit", "cortex-m0"),
    ("kws_conv", "microbit", "cortex-m0"),
    ("gesture_mlp", "lm3s6965", "cortex-m3"),
    ("kws_conv", "lm3s6965", "cortex-m3"),
)
NOTHING = "typedef int nothing;\n"


def main(models: list[str]) -> None:
    print("| model | board, core | the library | `soft_float.c` | |\n|---|---|--:|--:|--:|")
    names = document.chosen(models, [case[0] for case in CASES])
    with tempfile.TemporaryDirectory() as everything, counter() as plugin:
        for model, board, cpu in document.progress(c for c in CASES if c[0] in names):
            directory = Path(everything) / f"{model}-{cpu}"
            compile_model(model, directory, (f"--board={board}",))
            (ours,) = count_steps(directory, cpu, plugin)
            bits = results(directory)
            (directory / "soft_float.c").write_text(NOTHING)
            (library,) = count_steps(directory, cpu, plugin)
            assert results(directory) == bits, f"{model}, {cpu}: other bits"
            print(
                f"| {model} | {board}, {cpu} | {library.instructions:,} | {ours.instructions:,} "
                f"| {ours.instructions / library.instructions - 1:+.1%} |",
                flush=True,
            )


if __name__ == "__main__":
    document.run(main)
