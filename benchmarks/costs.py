"""How far off the cost model is: kernels as the device compiles and runs them, and as predicted.

    python -m benchmarks.costs check [CORE ...] [--output docs/predictions.md]
    python -m benchmarks.costs fit [CORE ...]

Kernels of each model are arranged for the device, compiled by gcc -O2 and measured: instructions in
QEMU times the cycles per instruction of the core (docs/profile.md), and processor time on this
machine. `fit` prints the table [cycles] of a core's file, from some models; `check` predicts these
and the others. Needs QEMU and arm-none-eabi-gcc.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from benchmarks import document
from poetc.backends.c.boards import HOST
from poetc.costmodel.cost import cycles_of, work_counts
from poetc.costmodel.device import Cycles, Device, load_device
from poetc.ir.text import make_context, parse_module
from poetc.kernels.analysis import Work, buffer_bytes, buffers, work
from poetc.profile import entries_of, least_squares, measure, profile_of

MODELS = Path(__file__).parent.parent / "tests" / "models"

MOBILENET = "mobilenet"
"""MobileNet v1 of width 0.25, 96 x 96 pixels (benchmarks/mobilenet.py)."""

WITHIN = 0.25
"""The most that the time of a step may be off."""

FLAGS = "-O2"
"""As in the generated Makefiles."""

PULL = 0.05
"""How much a number that the kernels do not tell stays near that of `STARTS`."""


@dataclass(frozen=True)
class Core:
    """A core, where its instructions are counted, and the device that its kernels are for.

    `start` are roughly the cycles of each thing, by its instructions; a fit finds no less than a
    tenth of them.
    """

    name: str
    board: str
    cpu: str
    device: str
    start: Cycles
    fitted: tuple[str, ...] = ("gesture_mlp", "lenet5", "dscnn", "bert_micro", "mlp_mnist")
    unseen: tuple[str, ...] = ("kws_conv", "ae_mnist", "resnet8", MOBILENET)


LITTLE_RAM = (("gesture_mlp", "lenet5"), ("kws_conv",))
"""Models that a board with a core without floats has RAM for, but for the kernels of lenet5 with
more than `MOST_BYTES` in their operands and results."""

MOST_BYTES = 48 * 1024

M4F = Cycles(
    load=2.0,
    store=2.0,
    flop=1.5,
    chained=1.5,
    compare=4.5,
    divide=20.0,
    call=30.0,
    integer=2.0,
    guard=3.0,
    iteration=4.5,
    loop=9.0,
)
CORES = (
    Core("cortex-m4f", "mps2-an386", "cortex-m4", "mps2-an386-cortex-m4", M4F),
    Core(
        "cortex-m3",
        "lm3s6965",
        "cortex-m3",
        "lm3s6965-cortex-m3",
        Cycles(
            load=4.5,
            store=2.5,
            flop=40.0,
            chained=40.0,
            compare=25.0,
            divide=190.0,
            call=40.0,
            integer=2.0,
            guard=2.5,
            iteration=4.0,
            loop=8.0,
        ),
        *LITTLE_RAM,
    ),
    Core(
        "cortex-m0",
        "lm3s6965",
        "cortex-m0",
        "lm3s6965-cortex-m0",
        Cycles(
            load=8.5,
            store=4.5,
            flop=100.0,
            chained=100.0,
            compare=55.0,
            divide=430.0,
            call=55.0,
            integer=3.0,
            guard=4.5,
            iteration=6.0,
            loop=11.0,
        ),
        *LITTLE_RAM,
    ),
    Core(
        "x86-64",
        HOST,
        HOST,
        "host",
        Cycles(
            load=0.5,
            store=0.5,
            flop=0.25,
            chained=0.25,
            compare=0.5,
            divide=4.0,
            call=8.0,
            integer=0.5,
            guard=0.5,
            iteration=0.5,
            loop=2.0,
        ),
    ),
)


@dataclass(frozen=True)
class Kernel:
    """What a kernel does, and the cycles that it takes."""

    label: str
    work: Work
    cycles: float


def kernels_of(core: Core, model: str) -> list[Kernel]:
    """The kernels of a model, each once, as they are measured."""
    device = load_device(core.device)
    data = MODELS / f"{model}.npz"
    entries = entries_of(
        make_context(),
        module_of(model),
        data=str(data) if data.exists() else None,
        device_name=core.device,
    )
    if (core.fitted, core.unseen) == LITTLE_RAM:
        entries = [entry for entry in entries if _bytes_of(entry.function) <= MOST_BYTES]
    measured = profile_of(measure(entries, core.board, core.cpu, FLAGS, model), {}, model)
    each = device.clock_hz * 1e-9 if measured.unit == "ns" else device.cycles_per_instruction
    return [
        Kernel(entry.label, work(entry.function), measured.kernels[entry.key] * each)
        for entry in entries
    ]


def _bytes_of(function: FuncOp) -> int:
    """Bytes of what a kernel reads, writes and works with."""
    kinds = ("inputs", "results", "workspace")
    return sum(buffer_bytes(buffer) for kind in kinds for buffer in buffers(function, kind))


def module_of(model: str) -> ModuleOp:
    """A model of the tests, or the MobileNet."""
    if model != MOBILENET:
        return parse_module((MODELS / f"{model}.mlir").read_text(), model)
    import jax

    from benchmarks.mobilenet import step_and_arguments

    step, arguments = step_and_arguments()
    text = jax.jit(step, donate_argnums=0).lower(*arguments).as_text()
    return parse_module(text, model)


# Fit


def fitted(core: Core, models: Sequence[Sequence[Kernel]]) -> Cycles:
    """Cycles by least squares of relative errors, a kernel weighed by its share of its model."""
    start = np.array(list(vars(core.start).values()))
    least = start / 10
    rows: list[np.ndarray] = []
    targets: list[float] = []
    for kernels in models:
        total = sum(kernel.cycles for kernel in kernels)
        for kernel in kernels:
            row = np.array(list(work_counts(kernel.work).values())) / total
            rows.append(row)
            targets.append(kernel.cycles / total - float(row @ least))
    pull = np.diag(PULL / start)
    matrix = np.vstack([np.array(rows), pull])
    found = least_squares(matrix, np.array([*targets, *(pull @ (start - least))])) + least
    return Cycles(**dict(zip(vars(core.start), (float(f"{x:.3g}") for x in found), strict=True)))


def fit(cores: Sequence[Core]) -> None:
    """Prints the tables of cores."""
    for core in document.progress(cores):
        models = [kernels_of(core, model) for model in core.fitted]
        found = fitted(core, models)
        total = sum(kernel.cycles for kernels in models for kernel in kernels)
        flops = sum(kernel.work.flops for kernels in models for kernel in kernels)
        print(f"{core.name}\n\ncycles_per_flop = {total / flops:.3g}\n\n[cycles]")
        print("\n".join(f"{name} = {value:g}" for name, value in vars(found).items()) + "\n")


# Check

INTRODUCTION = f"""# Predicted and measured time

Made by `python -m benchmarks.costs check`.

The time of a step of kernels by the [cost model](cost-model.md), from their loops as they are
arranged for the device, and the time that they take, compiled by gcc {FLAGS}: instructions in QEMU
times the cycles per instruction of the core, and on this machine ({{machine}}) processor time. Each
kernel of a model is measured, and counts, once. The cycles in the files of cores are *fitted*
(`python -m benchmarks.costs fit`) to some of the models and have not seen the others.

*Kernels* is how far off kernels are, in proportion to the time that they take; the others are the
same for kernels with a convolution, a matrix product, and all others."""


def check(cores: Sequence[Core]) -> int:
    """Prints what is predicted and what was measured; the exit code is 1 where that is far off."""
    print(INTRODUCTION.format(machine=_processor()))
    late = 0
    for core in cores:
        device = load_device(core.device)
        head = ("model", "", "predicted", "measured", "error", "kernels", "conv", "dot", "others")
        print(f"\n## {core.name}\n\n| {' | '.join(head)} |\n|---|---|{'--:|' * 7}")
        for model in document.progress((*core.fitted, *core.unseen)):
            kernels = kernels_of(core, model)
            row, error = _row(kernels, device)
            seen = "fitted" if model in core.fitted else "unseen"
            print(f"| {model} | {seen} | {row} |", flush=True)
            late |= error > WITHIN
    return late


def _row(kernels: Sequence[Kernel], device: Device) -> tuple[str, float]:
    assert device.cycles is not None
    of_kind: dict[str, list[tuple[float, float]]] = {"": [], "conv": [], "dot": [], "others": []}
    for kernel in kernels:
        kind = next((kind for kind in ("conv", "dot") if kind in kernel.label), "others")
        pair = (cycles_of(kernel.work, device.cycles), kernel.cycles)
        of_kind[""].append(pair)
        of_kind[kind].append(pair)
    ours, real = map(sum, zip(*of_kind[""], strict=True))
    off = [
        f"{sum(abs(a - b) for a, b in pairs) / sum(b for _, b in pairs):.0%}" if pairs else ""
        for pairs in of_kind.values()
    ]
    times = [f"{1e3 * cycles / device.clock_hz:,.3f} ms" for cycles in (ours, real)]
    return " | ".join((*times, f"{ours / real - 1:+.1%}", *off)), abs(ours / real - 1)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "its processor is not known"


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("fit", "check"))
    parser.add_argument("cores", nargs="*")
    options = parser.parse_args(words)
    known = {core.name: core for core in CORES}
    cores = [known[name] for name in document.chosen(options.cores, tuple(known))]
    if options.what == "fit":
        fit(cores)
        return 0
    return check(cores)


if __name__ == "__main__":
    document.run(main)
