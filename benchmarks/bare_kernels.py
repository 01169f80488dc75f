"""Kernels compiled by TVM (--kernels=tvm) against those that a C compiler makes of our C.

    python -m benchmarks.bare_kernels boards [MODEL ...]   instructions of a step in the emulator
    python -m benchmarks.bare_kernels products [MODEL ...] kernels whose products take the most
    python -m benchmarks.bare_kernels cycles [MODEL ...]   cycles of small steps, by Arm's tables
    python -m benchmarks.bare_kernels host [MODEL ...]     time of a step on this machine

Prints the tables of docs/kernels.md. Results must be the same bits. All but the last need QEMU
and arm-none-eabi-gcc. Cores without floating point, for which the driver refuses --kernels=tvm, are
here to show why.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tvm  # pyright: ignore[reportMissingImports]
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from benchmarks import document
from benchmarks.backends import scheduled
from benchmarks.boards import MODELS, compile_model, write_data
from benchmarks.profile import step_cycles
from benchmarks.step_counts import count_steps
from poetc.backends.c.boards import load_board
from poetc.backends.c.emit import KernelCompiler, emit
from poetc.backends.c.measure.emulate import build, counter
from poetc.backends.c.program import Kernel
from poetc.backends.c.share import Optimise
from poetc.backends.tvm.bare import TVMKernels
from poetc.backends.tvm.nest import Vectors
from poetc.backends.tvm.plain import CORES, Processor, assembly
from poetc.ir.graph import graphs
from poetc.kernels.analysis import work

CASES = (
    ("gesture_mlp", "lm3s6965", "cortex-m0"),
    ("kws_conv", "lm3s6965", "cortex-m0"),
    ("gesture_mlp", "lm3s6965", "cortex-m3"),
    ("kws_conv", "lm3s6965", "cortex-m3"),
    ("gesture_mlp", "lm3s6965", "cortex-m4"),
    ("kws_conv", "lm3s6965", "cortex-m4"),
    ("lenet5", "mps2-an386", "cortex-m4"),
    ("mlp_mnist", "mps2-an386", "cortex-m4"),
    ("dscnn", "mps2-an386", "cortex-m4"),
    ("resnet8", "mps2-an386", "cortex-m4"),
    ("bert_micro", "mps2-an386", "cortex-m4"),
)
HOST_MODELS = ("lenet5", "dscnn", "resnet8", "bert_micro")
STACK_BYTES = 2048
SECONDS = 3.0

Step = Callable[[], object]

SOFT = {"cortex-m0": "thumbv6m-none-eabi", "cortex-m3": "thumbv7m-none-eabi"}
"""Cores without floating point, and how LLVM calls them."""

AEABI = {
    **{f"__{name}sf3": f"__aeabi_f{name}" for name in ("add", "sub", "mul", "div")},
    "__floatsisf": "__aeabi_i2f",
    "__fixsfsi": "__aeabi_f2iz",
    "__unordsf2": "__aeabi_fcmpun",
}
"""What LLVM calls for floating point here, and what the library of gcc has."""

MAXIMUM = """\
float fmaximumf(float a, float b);
float fmaximumf(float a, float b) { return a != a || a > b ? a : b; }
"""
"""What it does not have, for what the models need."""


@dataclass(frozen=True)
class SoftKernels:
    """Kernels by TVM for a core without floating point."""

    cpu: str

    def assembly(self, kernels: Sequence[Kernel], stack_bytes: int | None) -> str:
        del stack_bytes
        target = {"mtriple": SOFT[self.cpu], "mcpu": self.cpu, "mfloat-abi": "soft"}
        on = tvm.target.Target({"kind": "llvm", "vector-width": 32, **target})
        text = assembly(kernels, Processor(on, Vectors(1, 8), True))
        return re.sub("|".join(AEABI), lambda match: AEABI[match[0]], text)


@dataclass(frozen=True)
class Firmware:
    """What a firmware takes: instructions of a step, bytes of flash, bytes of stack."""

    instructions: int
    flash: int
    stack: int
    results: tuple[bytes, ...]
    products: int
    """Multiplications of floats that its kernels do in a step."""


def firmware(
    model: str,
    board: str,
    cpu: str,
    directory: Path,
    flags: str,
    compiler: KernelCompiler | None,
    optimise: Optimise = Optimise.BALANCED,
) -> Firmware:
    """Builds and runs a step with unlimited RAM."""
    described = load_board(board)
    assert described is not None
    described = replace(described, cpus=(cpu,))
    arrange = compiler is None and optimise is not Optimise.SIZE
    text = (MODELS / f"{model}.mlir").read_text()
    module = scheduled(text, model, arrange, f"{board}-{cpu}")
    emit(
        module,
        directory,
        board=described,
        compiler=compiler,
        stack_bytes=STACK_BYTES,
        optimise=optimise,
    )
    write_data(model, directory)
    words = [f"CFLAGS={flags}"]
    if isinstance(compiler, SoftKernels):
        (directory / "maximum.c").write_text(MAXIMUM)
        words.append("LDFLAGS=maximum.c")
    with counter() as plugin:
        (step,) = count_steps(directory, cpu, plugin, words=words)
    elf = directory / "build" / cpu / "model.elf"
    sizes = subprocess.run(
        ["arm-none-eabi-size", elf], check=True, capture_output=True, text=True
    ).stdout.split()
    said = subprocess.run(
        ["make", "-s", "-C", directory, "run", *words], check=True, capture_output=True, text=True
    )
    stack = re.search(r"stack: (\d+) of", said.stdout + said.stderr)
    assert stack is not None, said.stdout + said.stderr
    return Firmware(
        step.instructions, int(sizes[6]), int(stack[1]), results_of(directory), _products(module)
    )


def _functions(module: ModuleOp) -> dict[str, FuncOp]:
    return {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}


def _products(module: ModuleOp) -> int:
    functions = _functions(module)
    return sum(
        work(functions[compute.kernel.string_value()]).muls
        for graph in graphs(module)
        for compute in graph.computes
        if compute.kernel is not None
    )


def results_of(directory: Path) -> tuple[bytes, ...]:
    """The results that a step has written."""
    files = sorted((directory / "data").glob("out*.bin"), key=lambda p: int(p.stem[3:]))
    return tuple(path.read_bytes() for path in files)


def boards(everything: Path, models: Collection[str]) -> None:
    """A step of firmware by all three, with unlimited RAM."""
    print(
        "| model | core | C `-O2` | C `-O3` | TVM | C `-O2` / TVM | C `-O2` for each product "
        "| flash: C `-O2`, `-O3`, TVM | stack |\n|---|---|--:|--:|--:|--:|--:|---|---|"
    )
    for model, board, cpu in document.progress(CASES):
        if model not in models:
            continue
        compiler = TVMKernels(cpu) if cpu in CORES else SoftKernels(cpu)
        variants = (("-O2", None), ("-O3", None), ("-O2", compiler))
        made = [
            firmware(model, board, cpu, everything / f"{model}-{cpu}-{i}", flags, kernels)
            for i, (flags, kernels) in enumerate(variants)
        ]
        assert len({one.results for one in made}) == 1, f"{model} on {cpu}: other bits"
        cells = (
            model,
            cpu,
            *(f"{one.instructions:,}" for one in made),
            f"{made[0].instructions / made[2].instructions:.2f}",
            f"{made[0].instructions / made[0].products:.2f}",
            ", ".join(f"{one.flash:,}" for one in made),
            ", ".join(str(one.stack) for one in made),
        )
        print(f"| {' | '.join(cells)} |", flush=True)


_CHOICE_INSTRUCTIONS = 4
"""Instructions of a comparison of floats, and of the choice by it: the flags have to be moved."""
_MOST_FOR_EACH = 4


def products(everything: Path, models: Collection[str]) -> None:
    """Kernels of products on a Cortex-M4 that take more than four instructions for each, what is
    left of these without functions of mathematics, and what the operations on floats alone take,
    each one instruction."""
    print(
        "| model | kernel | products | of the step | for each product | without functions "
        "| operations alone |\n|---|---|--:|--:|--:|--:|--:|"
    )
    for model, board, cpu in document.progress(CASES):
        described = load_board(board)
        if model not in models or cpu not in CORES:
            continue
        assert described is not None
        module = scheduled((MODELS / f"{model}.mlir").read_text(), model, True, f"{board}-{cpu}")
        directory = everything / f"products-{model}"
        emit(module, directory, board=replace(described, cpus=(cpu,)), stack_bytes=STACK_BYTES)
        write_data(model, directory)
        with counter() as plugin:
            (step,) = count_steps(directory, cpu, plugin, words=("CFLAGS=-O2",))
        functions = {f"model_kernel_{name}": op for name, op in _functions(module).items()}
        of = dict(zip(step.calls, step.mathematics, strict=True))
        for (name, taken), mathematics in sorted(of.items(), key=lambda one: -one[0][1]):
            kernel = name.removeprefix("model_kernel_")
            if name not in functions or not kernel.startswith(("dot", "conv")):
                continue
            done = work(functions[name])
            if taken <= _MOST_FOR_EACH * done.muls:
                continue
            alone = done.adds + done.muls + done.divs + _CHOICE_INSTRUCTIONS * done.compares
            cells = (
                model,
                f"`{kernel}`",
                f"{done.muls:,}",
                f"{step.calls.count((name, taken)) * taken / step.instructions:.2%}",
                *(f"{n / done.muls:.2f}" for n in (taken, taken - mathematics, alone)),
            )
            print(f"| {' | '.join(cells)} |", flush=True)


def cycles(everything: Path, models: Collection[str]) -> None:
    """Cycles of a step on a Cortex-M4, from a trace of all instructions."""
    print(
        "| model | C `-O2` | C `-O3` | TVM | C `-O2` / TVM | C `-O3` / TVM |\n"
        "|---|--:|--:|--:|--:|--:|"
    )
    cpu = "cortex-m4"
    for model in (name for name in ("gesture_mlp", "kws_conv") if name in models):
        spent: list[int] = []
        for options, flags in ((), "-O2"), ((), "-O3"), (("--kernels=tvm",), "-O2"):
            directory = everything / f"cycles-{model}-{len(spent)}"
            compile_model(model, directory, ("--board=lm3s6965", *options))
            build(directory, cpu, (f"CFLAGS={flags}",))
            spent.append(step_cycles(directory, cpu)[1])
        ratios = [f"{spent[i] / spent[2]:.2f}" for i in (0, 1)]
        print(f"| {model} | {' | '.join([*(f'{n:,}' for n in spent), *ratios])} |", flush=True)


def host_step(
    model: str, directory: Path, flags: str, compiler: KernelCompiler | None
) -> tuple[Step, Step]:
    """A step of the generated program, and what returns its results."""
    text = (MODELS / f"{model}.mlir").read_text()
    emit(scheduled(text, model, compiler is None), directory, compiler=compiler)
    left_out = ("main.c", "store_thread.c", "store_file.c")
    sources = [
        p for p in directory.iterdir() if p.suffix in (".c", ".s") and p.name not in left_out
    ]
    library = directory / "model.so"
    fixed = ("-std=c99", "-ffp-contract=off", "-fno-strict-aliasing", "-shared", "-fPIC")
    subprocess.run(["gcc", *flags.split(), *fixed, *sources, "-o", library], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.model_argument.restype = loaded.model_result.restype = ctypes.c_void_p
    with np.load(MODELS / f"{model}.npz") as arrays:
        for i in range(sum(name.startswith("arg") for name in arrays)):
            data = np.ascontiguousarray(arrays[f"arg{i}"])
            ctypes.memmove(loaded.model_argument(i), data.ctypes.data, data.nbytes)
        count = sum(name.startswith("out") for name in arrays)

    def results() -> list[bytes]:
        return [
            ctypes.string_at(loaded.model_result(i), loaded.model_result_bytes(i))
            for i in range(count)
        ]

    return lambda: loaded.model_step(None), results


def best_ms(step: Step) -> float:
    """The least processor time of a step in some seconds."""
    least, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        started = time.process_time_ns()
        step()
        least = min(least, time.process_time_ns() - started)
    return least / 1e6


def host(everything: Path, models: Collection[str]) -> None:
    """Milliseconds of a step on this machine, one thread."""
    print(
        "| model | C `-O2` | C `-O3 -march=native` | TVM | C `-O2` / TVM |\n|---|--:|--:|--:|--:|"
    )
    variants = (("-O2", None), ("-O3 -march=native", None), ("-O2", TVMKernels("host")))
    for model in (name for name in HOST_MODELS if name in models):
        made = [
            host_step(model, everything / f"{model}-{i}", flags, kernels)
            for i, (flags, kernels) in enumerate(variants)
        ]
        found = []
        for step, results in made:
            step()
            found.append(results())
        assert found[0] == found[1] == found[2], f"{model}: other bits"
        times = [best_ms(step) for step, _ in made]
        cells = (model, *(f"{ms:.3f}" for ms in times), f"{times[0] / times[2]:.1f}")
        print(f"| {' | '.join(cells)} |", flush=True)


def main(words: list[str]) -> None:
    tables = {"boards": boards, "products": products, "cycles": cycles, "host": host}
    if not words or words[0] not in tables:
        sys.exit(__doc__)
    known = {
        "boards": [model for model, _, _ in CASES],
        "products": [model for model, _, cpu in CASES if cpu in CORES],
        "cycles": ["gesture_mlp", "kws_conv"],
        "host": HOST_MODELS,
    }
    models = document.chosen(words[1:], known[words[0]])
    with tempfile.TemporaryDirectory(prefix="poetc-kernels-") as name:
        tables[words[0]](Path(name), models)


if __name__ == "__main__":
    document.run(main)
