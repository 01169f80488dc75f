"""Time of a training step, one thread: our backends, TVM's defaults, PyTorch and JAX.

    python -m benchmarks.backends [--seconds N] [MODEL ...] > docs/backends.md

All in one run, on one core, unlimited RAM, everything in memory: the least processor time of a step
over some seconds. PyTorch (eager, channels last) runs the same layers on the same shapes with plain
SGD (torch_models.py); JAX runs the very StableHLO. Each is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from poetc.backends.c.emit import emit
from poetc.costmodel.device import load_device
from poetc.ir.graph import graphs
from poetc.ir.text import make_context, parse_module
from poetc.passes.poet_schedule import ScheduleOptions, schedule_and_plan
from poetc.pipeline import front_passes, run_passes

MODELS = Path(__file__).parent.parent / "tests" / "models"
NAMES = ("lenet5", "dscnn", "resnet8", "bert_micro", "resnet18", "vgg16")
DEVICE = "host"
LIMIT = 1.5
"""The most that the TVM backend may take, as a multiple of PyTorch's time."""

C_FLAGS = ("-O3", "-march=native", "-std=c99", "-ffp-contract=off", "-fno-strict-aliasing")

Step = Callable[[], object]


def best(step: Step, seconds: float) -> float:
    """The least processor time of a step, after one to warm up, in so many seconds.

    Time of the processor, not of the clock: what else the machine does is no matter.
    """
    step()
    least, end = float("inf"), time.perf_counter() + seconds
    runs = 0
    while runs < 3 or time.perf_counter() < end:
        started = time.process_time()
        step()
        least = min(least, time.process_time() - started)
        runs += 1
    return least


def arguments_of(name: str, text: str) -> list[np.ndarray]:
    """Those beside the model, or random ones."""
    path = MODELS / f"{name}.npz"
    if path.exists():
        with np.load(path) as arrays:
            return [arrays[f"arg{i}"] for i in range(sum(k.startswith("arg") for k in arrays))]
    head = re.search(r"@main\((.*?)\) *->", text, re.DOTALL)
    assert head is not None
    rng = np.random.default_rng(0)
    found: list[np.ndarray] = []
    for type_ in re.findall(r"tensor<([^>]*)>", head[1]):
        *shape, dtype = type_.split("x")
        shape = tuple(map(int, shape))
        assert dtype == "f32", f"{name} has an argument of {dtype}"
        found.append((0.05 * rng.standard_normal(shape)).astype(np.float32))
    return found


def scheduled(text: str, name: str) -> ModuleOp:
    """The step with everything in RAM."""
    module = parse_module(text, name)
    run_passes(make_context(), module, front_passes(module, DEVICE), lambda *_: None)
    options = ScheduleOptions(ram_bytes=None, device=load_device(DEVICE), strategy="keep-all")
    schedule_and_plan(graphs(module)[0], options)
    return module


def c_step(module: ModuleOp, arguments: list[np.ndarray], directory: Path) -> Step:
    """The generated C, compiled for this machine."""
    emit(module, directory)
    sources = [str(p) for p in directory.glob("*.c") if p.name not in ("main.c", "store_thread.c")]
    library = directory / "model.so"
    command = ["gcc", *C_FLAGS, "-shared", "-fPIC", *sources, "-o", str(library)]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.model_argument.restype = ctypes.c_void_p
    for i, array in enumerate(arguments):
        data = np.ascontiguousarray(array)
        ctypes.memmove(loaded.model_argument(i), data.ctypes.data, data.nbytes)
    return lambda: loaded.model_step(None)


def tvm_steps(module: ModuleOp, arguments: list[np.ndarray]) -> tuple[Step, Step]:
    """Our backend, and the same kernels as they are written through TVM's default pipeline."""
    import tvm

    from poetc.backends.tvm.build import compile_graph, machine
    from poetc.backends.tvm.module import relax_module
    from poetc.backends.tvm.runner import Step as Program

    on = machine()
    ours = Program(compile_graph(module, on))
    plain = Program(tvm.compile(relax_module(module), on.target, relax_pipeline="default"))
    for program in (ours, plain):
        program.write_all(arguments)
    return ours.run, plain.run


def torch_step(name: str, arguments: list[np.ndarray]) -> Step:
    """The same layers in PyTorch."""
    import torch  # pyright: ignore[reportMissingImports]

    from benchmarks.torch_models import training_step

    torch.set_num_threads(1)
    return training_step(name, [array.shape for array in arguments])


def jax_step(text: str, arguments: list[np.ndarray]) -> Step:
    """The StableHLO, compiled by XLA."""
    import jax  # pyright: ignore[reportMissingImports]
    from jax._src.interpreters import mlir as jax_mlir  # pyright: ignore[reportMissingImports]
    from jax._src.lib import xla_client  # pyright: ignore[reportMissingImports]
    from jax._src.lib.mlir import ir  # pyright: ignore[reportMissingImports]

    # Arguments are used again: nothing is given away.
    text = re.sub(r" \{tf\.aliasing_output = \d+ : i32\}", "", text)
    client = jax.devices("cpu")[0].client
    with jax_mlir.make_ir_context():
        module = ir.Module.parse(text)
        devices = xla_client.DeviceList(tuple(jax.devices("cpu")[:1]))
        program = client.compile_and_load(module, devices, xla_client.CompileOptions())
    buffers = [jax.device_put(array) for array in arguments]

    def step() -> None:
        results = program.execute_sharded(buffers).disassemble_into_single_device_arrays()
        for shards in results:
            shards[0].block_until_ready()

    return step


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def measure(name: str, seconds: float) -> dict[str, float]:
    """Seconds of a step by backend."""
    text = (MODELS / f"{name}.mlir").read_text()
    arguments = arguments_of(name, text)
    module = scheduled(text, name)
    found: dict[str, float] = {}

    def add(title: str, step: Step) -> None:
        found[title] = best(step, seconds)
        print(f"{name}: {title}: {1e6 * found[title]:.0f} us", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as directory:
        add("C", c_step(module, arguments, Path(directory) / "c"))
    if installed("tvm"):
        ours, plain = tvm_steps(module, arguments)
        add("TVM", ours)
        add("TVM default", plain)
    if installed("torch"):
        add("PyTorch", torch_step(name, arguments))
    if installed("jax"):
        add("JAX", jax_step(text, arguments))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    # One core for everything, before any library counts them.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    titles = ("C", "TVM", "TVM default", "PyTorch", "JAX")
    print("# Step time of the backends\n\nMade by `python -m benchmarks.backends`.\n")
    print(f"One thread of {_processor()}; milliseconds of a step, batch 1, the least of many.\n")
    print(f"| model | {' | '.join(titles)} | TVM / PyTorch |")
    print("|---|" + "---|" * (len(titles) + 1))
    late = False
    for name in options.names:
        found = measure(name, options.seconds)
        cells = [f"{1e3 * found[t]:.3f}" if t in found else "" for t in titles]
        ratio = ""
        if "TVM" in found and "PyTorch" in found:
            share = found["TVM"] / found["PyTorch"]
            ratio, late = f"{share:.2f}", late or share > LIMIT
        print(f"| {name} | {' | '.join(cells)} | {ratio} |", flush=True)
    return 1 if late else 0


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "this machine"


if __name__ == "__main__":
    sys.exit(main())
