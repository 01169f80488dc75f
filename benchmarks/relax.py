"""Memory and time of Relax training functions, by TVM alone and scheduled by poetc.tvm.

    python -m benchmarks.relax

Memory is measured beside the arguments of a call: the bytes that it asks TVM's allocator for,
which is what a budget is for, and the most heap that it has before or after a call of a kernel.
Budgets are fractions of that heap of TVM alone. Time is the least processor time of a call, on this
machine. All results are compared: the benchmark fails where a bit differs, or where more than the
budget is allocated. The table is in docs/relax.md.
"""

# TVM's annotations are narrower than what it takes.
# pyright: reportArgumentType=false
from __future__ import annotations

import time
from typing import Any

import tvm
from tvm import relax

from benchmarks import document
from poetc.errors import InfeasibleError, TimeLimitError
from poetc.tvm import PoetSchedule
from tests.relax_functions import Training, convnet, mlp, only, run, transformer

TRAININGS: dict[str, Training] = {
    "three hidden layers, batch 256": mlp(),
    "residual block with batch norm": convnet(),
    "transformer block": transformer(),
}
SHARES = (1.0, 0.7, 0.5, 0.4)
"""Budgets, of what the function takes by TVM alone."""

LIMIT_S = 10.0
"""Of the search for a schedule."""

SECONDS = 1.0
"""How long a function is called."""


def milliseconds(module: tvm.IRModule, training: Training, pipeline: str) -> float:
    """The least processor time of a call."""
    executable = tvm.compile(module, tvm.target.Target("llvm"), relax_pipeline=pipeline)
    function = relax.VirtualMachine(executable, tvm.cpu())[training.function]
    least, end = float("inf"), time.monotonic() + SECONDS
    while time.monotonic() < end:
        start = time.process_time()
        function(*training.arguments)
        least = min(least, time.process_time() - start)
    return least * 1e3


def rows(name: str, training: Training) -> list[tuple[Any, ...]]:
    module = only(training.module, training.function)
    alone = run(module, training.function, training.arguments, "default")
    alone_ms = milliseconds(module, training, "default")
    kernels = len(alone.kernels)
    found: list[tuple[Any, ...]] = [
        (f"{name}: TVM alone", kernels, "", "", alone.heap_bytes, "", "", "", f"{alone_ms:.1f}")
    ]
    for share in SHARES:
        ram = int(alone.heap_bytes * share)
        try:
            scheduled = PoetSchedule(ram, gap=0.05, time_limit=LIMIT_S)(module)
        except (InfeasibleError, TimeLimitError) as error:
            why = "impossible" if isinstance(error, InfeasibleError) else "none found"
            found.append((f"{share:.0%}", "", ram, why, "", "", "", "", ""))
            continue
        done = run(scheduled, training.function, training.arguments)
        assert done.bits == alone.bits, f"{name}: other results at {ram} bytes"
        assert done.allocated_bytes <= ram, f"{name}: {done.allocated_bytes} of {ram} bytes"
        numbers = scheduled[training.function].attrs["poetc"]
        more = numbers["energy_nj"] / numbers["unlimited_energy_nj"] - 1
        again, pages = int(numbers["recomputes"]), f"{numbers['page_outs']}/{numbers['page_ins']}"
        took = f"{milliseconds(scheduled, training, 'poetc'):.1f}"
        measured = done.allocated_bytes, done.heap_bytes
        runs = len(done.kernels)
        found.append((f"{share:.0%}", runs, ram, *measured, again, pages, f"{more:.1%}", took))
    return found


def main(words: list[str]) -> None:
    document.chosen(words, ())
    print("| | kernels run | budget, B | allocated, B | heap, B | again | out/in | energy | ms |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name, training in document.progress(TRAININGS.items()):
        for row in rows(name, training):
            cells = (f"{cell:,}" if isinstance(cell, int) else cell for cell in row)
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    document.run(main)
