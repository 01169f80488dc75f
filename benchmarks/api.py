"""What a step from Python costs beside the same step of the C program itself.

    python -m benchmarks.api [MODEL...]

Prints the table of docs/api.md. Times are those of the processor for one step, the least of many,
as other work on the machine only adds to them: `model_step` in the C program that its Makefile
builds, the function of the library in this process, and `Program.step`, in turns.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import poetc
from benchmarks import document
from benchmarks.arguments import MODELS, arguments_of

NAMES = ("gesture_mlp", "lenet5", "resnet8", "resnet18")
RUN_S, REPEATS = 1.0, 5
MOST_STEPS = 2000
TIMED = Path(__file__).with_name("timed_step.c")

HEAD = """\
| model | C program | C in this process | `Program.step` | beside the program | beside C here |
|---|--:|--:|--:|--:|--:|"""


def least_ns(step: Callable[[], object], count: int) -> int:
    """The least time of so many calls."""
    taken = []
    for _ in range(count):
        before = time.process_time_ns()
        step()
        taken.append(time.process_time_ns() - before)
    return min(taken)


def built(directory: Path) -> Path:
    """The C program of a directory, which tells the least time of its steps when it ends."""
    flags = f"-Wl,--wrap=model_step -I. -D_POSIX_C_SOURCE=199309L {TIMED}"
    command = ["make", "-s", "-C", str(directory), "model_example", f"LDFLAGS={flags}"]
    subprocess.run(command, check=True)
    return directory / "model_example"


def row(name: str) -> str:
    """One row of the table."""
    path = MODELS / f"{name}.mlir"
    arguments = arguments_of(name, path.read_text())
    program = poetc.compile(path, arguments, time_limit=10)
    inputs = dict(zip(program.inputs, arguments[-len(program.inputs) :], strict=True))

    def whole() -> None:
        program.step(**inputs)

    def bare() -> None:
        shared = program._shared
        shared._step(shared._argument_buffers, shared._result_buffers)

    with tempfile.TemporaryDirectory() as folder:
        whole()
        program.save(folder, data=True)
        own = built(Path(folder))
        steps = min(MOST_STEPS, max(2, round(1e9 * RUN_S / least_ns(whole, 1))))
        runs = []
        for _ in range(REPEATS):
            command = [str(own), f"{folder}/data", str(steps)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            runs.append((int(done.stderr), least_ns(bare, steps), least_ns(whole, steps)))
    c_ns, here_ns, step_ns = (min(column) for column in zip(*runs, strict=True))
    times = " | ".join(f"{time_ns / 1e6:,.4g} ms" for time_ns in (c_ns, here_ns, step_ns))
    return f"| {name} | {times} | {step_ns / c_ns - 1:+.1%} | {step_ns / here_ns - 1:+.1%} |"


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=NAMES, metavar="MODEL")
    print(HEAD)
    for name in parser.parse_args(words).models:
        print(row(name), flush=True)


if __name__ == "__main__":
    document.run(main)
