"""The training steps compiled with TVM, at four budgets, and for two aarch64 processors.

    python -m benchmarks.tvm_models [--no-aarch64] [MODEL ...] [--output docs/tvm_models.md]

Fails if a promise is broken: results and updates as XLA's, the same bits at every budget and on
every processor, the arena and the pages that were planned. Needs JAX; for aarch64 a cross compiler
and qemu-user.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from benchmarks import document  # noqa: E402
from poetc.ir.graph import graphs  # noqa: E402
from tests.compiled import Model  # noqa: E402
from tests.tvm_aarch64 import build_calls, run_calls  # noqa: E402
from tests.tvm_support import (  # noqa: E402
    Run,
    bits,
    broken_promises,
    budgets,
    compiled,
    largest_error,
    largest_update_error,
    training_step,
    within,
)

NAMES = ("lenet5", "dscnn", "resnet8", "bert_micro", "resnet18", "vgg16")
CPUS = ("cortex-a72", "cortex-a57")

TOLERANCE, LARGE_TOLERANCE = 3e-5, 2e-4
"""Of results against XLA's; the second for the models with most layers."""
LARGE = ("resnet18", "vgg16")
UPDATE_TOLERANCE = 1e-4

HEAD = """# Models through TVM

Made by `python -m benchmarks.tvm_models`, which fails if a promise is broken.

- *RAM*: bytes for the arena; *least* is what the step needs at least.
- *arena*, *pages*: as planned and as measured, which is the same: up to the last byte that the step
  wrote into memory full of a pattern, and the traffic of a fresh store.
- *error*: against XLA, relative to the largest element of each tensor; *of updates*: the same of
  what is added to parameters, relative to the largest change of each, rounding of the parameter
  left aside.
- *s*: seconds to schedule, compile and run.
"""


class Promises:
    """What was found to be broken."""

    def __init__(self) -> None:
        self.broken = 0

    def expect(self, holds: bool, what: str) -> None:
        if not holds:
            self.broken += 1
            print(f"broken: {what}", file=sys.stderr, flush=True)


def at_budgets(step: Model, promises: Promises) -> list[bytes]:
    """A table row for each budget; the bits of the results."""
    first: list[bytes] = []
    unlimited = within(step.name, None)
    for budget, ram_bytes in {"unlimited": None, **budgets(step, unlimited)}.items():
        started = time.monotonic()
        module = unlimited if ram_bytes is None else within(step.name, ram_bytes)
        executable = compiled(module)
        program = Run(module, executable, step.arguments)
        results = program.run()
        note = f"{step.name} at {budget}"
        for what in broken_promises(module, executable, program, ram_bytes):
            promises.expect(False, f"{note}: {what}")
        error = largest_error(step, results)
        updates = largest_update_error(step, results, program.step.program)
        limit = LARGE_TOLERANCE if step.name in LARGE else TOLERANCE
        promises.expect(error <= limit, f"{note}: error {error:.1e}")
        promises.expect(updates <= UPDATE_TOLERANCE, f"{note}: error of updates {updates:.1e}")
        first = first or bits(results)
        promises.expect(bits(results) == first, f"{note}: other bits than with unlimited RAM")
        graph = graphs(module)[0]
        stored = any(place.where == "storage" for place in program.step.program.arguments)
        moved = program.step.pager.traffic
        print(
            f"| {step.name} | {budget} | {'' if ram_bytes is None else f'{ram_bytes:,}'} "
            f"| {graph.arena_bytes:,} | {'storage' if stored else 'RAM'} "
            f"| {len(graph.computes)} | {moved.pages_in} | {moved.pages_out} "
            f"| {moved.bytes_in + moved.bytes_out:,} | {error:.1e} | {updates:.1e} "
            f"| {time.monotonic() - started:.0f} |",
            flush=True,
        )
    return first


def on_aarch64(step: Model, expected: list[bytes], promises: Promises) -> None:
    """A table row for each processor."""
    module = within(step.name, None)
    for cpu in CPUS:
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as directory:
            program = build_calls(module, cpu, Path(directory))
            size = program.stat().st_size
            built = time.monotonic()
            results = run_calls(program, cpu, step.arguments, step.expected)
        same = bits(results) == expected
        promises.expect(same, f"{step.name} on {cpu}: other bits than on this machine")
        print(
            f"| {step.name} | {cpu} | {size:,} | {'yes' if same else 'no'} "
            f"| {built - started:.0f} | {time.monotonic() - built:.0f} |",
            flush=True,
        )


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--no-aarch64", action="store_true")
    options = parser.parse_args(words)
    promises = Promises()
    print(HEAD)
    print("## On this machine\n")
    print(
        "| model | budget | RAM | arena | parameters | kernel runs | pages in | pages out "
        "| bytes moved | error | of updates | s |"
    )
    print("|---" * 12 + "|")
    steps = {name: training_step(name) for name in document.chosen(options.names, NAMES)}
    expected = {name: at_budgets(step, promises) for name, step in steps.items()}
    if not options.no_aarch64:
        print(
            "\n## On aarch64\n\nKernels arranged for the processor, linked statically with a "
            "program that calls them in the order of\nthe graph (unlimited RAM), run by "
            "qemu-user.\n"
        )
        print("| model | processor | bytes of program | bits as above | s to build | s to run |")
        print("|---" * 6 + "|")
        for name, step in steps.items():
            on_aarch64(step, expected[name], promises)
    return 1 if promises.broken else 0


if __name__ == "__main__":
    document.run(main)
