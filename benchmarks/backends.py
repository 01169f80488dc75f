"""Time of a training step, one thread: our backends, TVM's defaults, PyTorch and JAX.

    python -m benchmarks.backends [--seconds N] [MODEL ...] [--output docs/backends.md]

All in one run, on one core, unlimited RAM, everything in memory: the least processor time of a step
over some seconds. All do the same step: JAX runs the very StableHLO, compiled by XLA; PyTorch
(eager, channels last) the same model with SGD (torch_models.py); TVM's default pipeline that model,
with gradients and SGD by Relax (relax_models.py). Before its time is taken, each does one step on
the same arguments, and its loss and all of its new parameters are compared with JAX's; the
benchmark fails if one differs.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from benchmarks import document
from benchmarks.arguments import MODELS, arguments_of, parameter_names, update_error
from poetc.backends.c.emit import emit
from poetc.budget import Budget
from poetc.compare import floor
from poetc.costmodel.device import load_device
from poetc.costmodel.machine import machine_of
from poetc.ir.graph import graphs
from poetc.ir.text import make_context, parse_module
from poetc.pipeline import front_passes, run_passes
from poetc.planning.plan import schedule_and_plan
from poetc.planning.problem import ScheduleOptions

NAMES = ("lenet5", "dscnn", "resnet8", "bert_micro", "resnet18", "vgg16")
DEVICE = "host"
DEVICES = ("host-avx512", DEVICE)
"""Descriptions of machines like this one, the widest registers first."""
LIMIT = 1.5
"""The most that the TVM backend may take, as a multiple of PyTorch's time."""
RATIOS = (("C", "TVM"), ("C", "PyTorch"), ("TVM", "PyTorch"), ("TVM", "JAX"))
"""The columns that are compared."""

NOTES = """
All columns are of the same step: before its time is taken, each gives the loss and the new
parameters that JAX does, the changes within {tolerance:g} of the largest.

- *C* is what `--emit=c --device={device}` writes, the device with the widest registers that
  this processor has, by gcc -O3 -march=native; *TVM* is `--emit=tvm`; *as written* is that
  without loops being arranged.
- *PyTorch* is eager, channels last. *TVM default* is that model through `torch.export`, gradients
  and SGD by Relax, and TVM's default pipeline, with TVM's own kernels. Relax has no gradient of the
  gelu in bert_micro; batch norm and padding are written in operations that it has gradients of.
- *JAX* is XLA on the CPU.
"""

C_FLAGS = ("-O3", "-march=native", "-std=c99", "-ffp-contract=off", "-fno-strict-aliasing")

UPDATE_TOLERANCE = 1e-4
"""Of what a step adds to each parameter, relative to the largest change of it."""


class WrongResultsError(Exception):
    """A backend does another step than the others."""


@dataclass(frozen=True)
class Backend:
    """A program for a step. `results` are, after it, the loss and new parameters, in the order of
    the arguments; `refill` sets inputs that a step may have overwritten."""

    title: str
    step: Callable[[], object]
    results: Callable[[], Sequence[np.ndarray]]
    refill: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Model:
    """A step with its arguments; the names of its parameters by argument; and JAX's results."""

    name: str
    text: str
    names: Mapping[int, str]
    arguments: list[np.ndarray]
    expected: list[np.ndarray]

    @property
    def inputs(self) -> list[int]:
        return [i for i in range(len(self.arguments)) if i not in self.names]


def best(backend: Backend, seconds: float) -> float:
    """The least processor time of a step in so many seconds, after the step that is checked.

    Time of the processor, not of the clock: what else the machine does is no matter.
    """
    least, end = float("inf"), time.perf_counter() + seconds
    runs = 0
    while runs < 3 or time.perf_counter() < end:
        backend.refill()
        started = time.process_time()
        backend.step()
        least = min(least, time.process_time() - started)
        runs += 1
    return least


def check(model: Model, backend: Backend) -> None:
    """Does one step. Raises WrongResultsError for other results than JAX's."""
    backend.refill()
    backend.step()
    loss, *parameters = backend.results()
    wrong: list[str] = []
    at_least = floor(model.expected)
    if not np.allclose(loss, model.expected[0], rtol=1e-5):
        wrong.append(f"a loss of {float(loss)}, not {float(model.expected[0])}")
    for (argument, path), got, expected in zip(
        model.names.items(), parameters, model.expected[1:], strict=True
    ):
        error = update_error(model.arguments[argument], got, expected, at_least)
        if not error <= UPDATE_TOLERANCE:
            wrong.append(f"{path}: an update that is off by {error:.1e}")
    if wrong:
        raise WrongResultsError(f"{model.name} with {backend.title}: {', '.join(wrong)}")


def scheduled(text: str, name: str, arrange: bool = True, device: str = DEVICE) -> ModuleOp:
    """The step with everything in RAM, its loops arranged for a device; TVM is given loops that are
    not arranged."""
    module = parse_module(text, name)
    passes = front_passes(module, device, arrange=arrange)
    run_passes(make_context(), module, passes, lambda *_: None)
    options = ScheduleOptions(budget=Budget(None), device=load_device(DEVICE), strategy="keep-all")
    schedule_and_plan(graphs(module)[0], options)
    return module


def device_of_machine() -> str:
    """The device that describes this machine: one whose registers are as wide."""
    from poetc.backends.tvm.build import machine

    lanes = machine().vectors.lanes
    return next(name for name in DEVICES if machine_of(load_device(name)).lanes <= lanes)


def c_backend(model: Model, module: ModuleOp, directory: Path) -> Backend:
    """The generated C, compiled for this machine."""
    emit(module, directory)
    sources = [str(p) for p in directory.glob("*.c") if p.name not in ("main.c", "store_thread.c")]
    library = directory / "model.so"
    command = ["gcc", *C_FLAGS, "-shared", "-fPIC", *sources, "-o", str(library)]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(library))
    for function in (loaded.model_argument, loaded.model_result):
        function.restype = ctypes.c_void_p

    def fill(arguments: Iterable[int]) -> None:
        for i in arguments:
            data = np.ascontiguousarray(model.arguments[i])
            ctypes.memmove(loaded.model_argument(i), data.ctypes.data, data.nbytes)

    def results() -> list[np.ndarray]:
        found = [np.empty_like(array) for array in model.expected]
        for i, array in enumerate(found):
            ctypes.memmove(array.ctypes.data, loaded.model_result(i), array.nbytes)
        return found

    fill(model.names)
    return Backend("C", lambda: loaded.model_step(None), results, lambda: fill(model.inputs))


def tvm_backends(model: Model, module: ModuleOp) -> list[Backend]:
    """Our backend, and the same without loops being arranged."""
    from poetc.backends.tvm.build import compile_graph, compile_module, machine
    from poetc.backends.tvm.module import relax_module

    on = machine()
    return [
        _tvm_backend("TVM", compile_graph(module, on), model),
        _tvm_backend("as written", compile_module(relax_module(module), on), model),
    ]


def _tvm_backend(title: str, executable: object, model: Model) -> Backend:
    from poetc.backends.tvm.runner import Step

    program = Step(executable)
    program.write_all(model.arguments)

    def refill() -> None:
        for i in model.inputs:
            program.write(i, model.arguments[i])

    def results() -> list[np.ndarray]:
        return [program.read(i) for i in range(len(model.expected))]

    return Backend(title, program.run, results, refill)


def torch_backends(model: Model) -> list[Backend]:
    """The same model in PyTorch, and from there through TVM's default pipeline."""
    import torch

    from benchmarks.relax_models import UNSUPPORTED, relax_program
    from benchmarks.torch_models import Training
    from poetc.backends.tvm.build import machine

    torch.set_num_threads(1)
    training = Training(model.name, model.names, model.arguments)
    backends = [Backend("PyTorch", training.step, training.results)]
    if model.name not in UNSUPPORTED:
        backends.append(Backend("TVM default", *relax_program(training, machine().target)))
    return backends


def measure(name: str, seconds: float, device: str) -> dict[str, float]:
    """Seconds of a step by backend."""
    from tests.models.make_results import xla_program

    text = (MODELS / f"{name}.mlir").read_text()
    arguments = arguments_of(name, text)
    jax_step = xla_program(text)(arguments)
    expected = [np.asarray(result) for result in jax_step()]
    model = Model(name, text, parameter_names(text), arguments, expected)
    module = scheduled(text, name, device=device)
    unarranged = scheduled(text, name, arrange=False)
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as directory:
        backends = [
            c_backend(model, module, Path(directory) / "c"),
            *tvm_backends(model, unarranged),
        ]
        backends += torch_backends(model)
        backends.append(Backend("JAX", jax_step, lambda: expected))
        for backend in backends:
            check(model, backend)
            found[backend.title] = best(backend, seconds)
            microseconds = 1e6 * found[backend.title]
            print(f"{name}: {backend.title}: {microseconds:.0f} us", file=sys.stderr, flush=True)
    return found


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args(words)
    names = document.chosen(options.names, NAMES)
    # One core for everything, before any library counts them.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    titles = ("C", "as written", "TVM", "TVM default", "PyTorch", "JAX")
    device = device_of_machine()
    print("# Step time of the backends\n\nMade by `python -m benchmarks.backends`.\n")
    print(f"One thread of {_processor()}; milliseconds of a step, batch 1, the least of many.")
    print(NOTES.format(tolerance=UPDATE_TOLERANCE, device=device))
    print(f"| model | {' | '.join((*titles, *(f'{a} / {b}' for a, b in RATIOS)))} |")
    print("|---|" + "---|" * (len(titles) + len(RATIOS)))
    late = False
    for name in document.progress(names):
        found = measure(name, options.seconds, device)
        cells = [f"{1e3 * found[t]:.3f}" if t in found else "" for t in titles]
        cells += [f"{found[a] / found[b]:.2f}" for a, b in RATIOS]
        late = late or found["TVM"] > LIMIT * found["PyTorch"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return 1 if late else 0


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "this machine"


if __name__ == "__main__":
    document.run(main)
