"""How long poetc takes to start, to bring large models to fused, annotated poet IR, and to compile
a step from StableHLO to C.

    python -m benchmarks.compile_time [--runs N] [--output docs/compile_time.md]

Each line is whole processes: the median processor time over the runs, and the largest peak memory.
mobilenet_v2 is that of torchvision, on one image of 96 x 96 pixels, with SGD, as `frontends.torch`
exports it; the small steps are those of tests/cases, one run each. The second table is of steps of
BERT with more and more layers, each pass by itself in one process.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import log
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from benchmarks import document
from poetc.ir.garbage import collect_less
from poetc.ir.text import make_context, parse_module
from poetc.passes.poet_plan_memory import PoetPlanMemoryPass
from poetc.passes.poet_plan_transfers import PoetPlanTransfersPass
from poetc.passes.poet_schedule import PoetSchedulePass
from poetc.passes.poet_verify import PoetVerifyPass
from poetc.pipeline import front_passes, run_passes

ROOT = Path(__file__).parent.parent
MODELS, STEPS = ROOT / "tests" / "models", ROOT / "tests" / "cases"
FRONT = (
    "stablehlo-simplify,stablehlo-to-poet,poet-fuse,poet-lower-kernels,"
    "poet-annotate{device=nrf52840}"
)


@dataclass(frozen=True)
class Line:
    """A line of the table: commands, each without `poetc`, and how many seconds the median of them
    may take."""

    title: str
    commands: list[list[str]]
    limit_s: float | None = None


def front(name: str, limit_s: float | None = None) -> Line:
    """Only the passes up to the search, for a model of the tests."""
    title = f"{name} to fused, annotated poet IR"
    return Line(title, [[str(MODELS / name), "--passes", FRONT]], limit_s)


def to_c(source: Path, directory: Path) -> list[str]:
    """A whole compilation without a budget."""
    return [str(source), "--emit=c", "-o", str(directory / f"{source.stem}-c"), "-q"]


def export_mobilenet(directory: Path) -> None:
    """Writes the step of mobilenet_v2 as StableHLO."""
    import torch
    from torch.nn import functional

    from poetc.frontends.torch import export

    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "steps")]
    importlib.import_module("in_torchvision").load()
    from torchvision.models import mobilenet_v2

    torch.manual_seed(0)
    module = mobilenet_v2(num_classes=10, dropout=0.0)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.01)
    x, labels = torch.randn(1, 3, 96, 96), torch.tensor([3])
    export(module, functional.cross_entropy, optimiser, x, labels, str(directory / "mobilenet_v2"))


def lines(directory: Path) -> list[Line]:
    """All that is measured."""
    # In a process of its own: the peak of one that PyTorch is in would be that of all it starts.
    exporter = get_context("spawn").Process(target=export_mobilenet, args=(directory,))
    exporter.start()
    exporter.join()
    if exporter.exitcode:
        raise SystemExit("mobilenet_v2 was not exported")
    mobilenet = to_c(directory / "mobilenet_v2.mlir", directory)
    steps = [to_c(path, directory) for path in sorted(STEPS.glob("*.mlir"))]
    return [
        Line("poetc --version", [["--version"]], 0.3),
        Line("poetc --help", [["--help"]]),
        front("bert_base.mlir", 20.0),
        front("resnet18.mlir", 8.0),
        front("vgg16.mlir"),
        Line("mobilenet_v2 to C", [mobilenet], 10.0),
        Line(f"{len(steps)} small steps of JAX to C, median", steps, 1.0),
    ]


LAYERS = (2, 4, 8, 12, 24)
GROWTH_DEVICE = "mps2-an386-cortex-m4"


def bert(layers: int) -> str:
    """A training step of so many layers of width 128 on 32 words, with SGD, as StableHLO."""
    import jax
    import jax.numpy as jnp

    width, hidden, words, vocabulary, heads = 128, 512, 32, 1000, 2

    def norm(p: Any, x: Any) -> Any:
        off = x - x.mean(-1, keepdims=True)
        return off * jax.lax.rsqrt((off**2).mean(-1, keepdims=True) + 1e-5) * p[0] + p[1]

    def layer(p: Any, x: Any) -> Any:
        q, k, v = (
            t.reshape(words, heads, -1).swapaxes(0, 1) for t in jnp.split(x @ p["qkv"], 3, -1)
        )
        seen = jax.nn.softmax(q @ k.swapaxes(1, 2) / 8.0) @ v
        x = norm(p["n1"], x + seen.swapaxes(0, 1).reshape(words, width) @ p["out"])
        return norm(p["n2"], x + jax.nn.gelu(x @ p["up"] + p["bias"]) @ p["down"])

    def step(params: Any, x: Any, labels: Any) -> Any:
        def loss(params: Any) -> Any:
            state = params["words"][x]
            for p in params["layers"]:
                state = layer(p, state)
            scores = jax.nn.log_softmax(state @ params["scores"])
            return -jnp.take_along_axis(scores, labels[:, None], -1).mean()

        value, gradients = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, gradients), value

    def floats(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    one = {
        "qkv": floats(width, 3 * width),
        "out": floats(width, width),
        "n1": (floats(width), floats(width)),
        "n2": (floats(width), floats(width)),
        "up": floats(width, hidden),
        "bias": floats(hidden),
        "down": floats(hidden, width),
    }
    ends = {"words": floats(vocabulary, width), "scores": floats(width, vocabulary)}
    numbers = jax.ShapeDtypeStruct((words,), jnp.int32)
    lowered = jax.jit(step, donate_argnums=0).lower(
        {**ends, "layers": [one] * layers}, numbers, numbers
    )
    return lowered.as_text()


def stages(text: str) -> dict[str, float]:
    """Processor seconds of each pass over a step with unlimited RAM, and of reading it."""
    spent: dict[str, float] = {}

    def timed(what: str, do: Callable[[], Any]) -> Any:
        started = time.process_time()
        result = do()
        spent[what] = time.process_time() - started
        return result

    context = make_context()
    module: ModuleOp = timed("reading", lambda: parse_module(text, "bert"))
    passes: tuple[ModulePass, ...] = (
        *front_passes(module, GROWTH_DEVICE),
        PoetSchedulePass(device=GROWTH_DEVICE, strategy="keep-all"),
        PoetPlanTransfersPass(GROWTH_DEVICE),
        PoetPlanMemoryPass(),
        PoetVerifyPass(),
    )
    for each in passes:
        timed(
            each.name,
            lambda each=each: run_passes(context, module, (each,), lambda *_: None),
        )
    timed("xDSL's verification", module.verify)
    return spent


def growth() -> None:
    """Prints how the time of each pass grows with the layers."""
    collect_less()
    found = [stages(bert(layers)) for layers in (LAYERS[0], *LAYERS)][1:]  # the first warms up
    print("\n## Growth\n")
    print(
        "Processor seconds of each pass for BERT with more and more layers. *Power* is the exponent"
    )
    print(f"with which they grow from {LAYERS[1]} to {LAYERS[-1]} layers: 1 is proportional.\n")
    print(f"| | {' | '.join(f'{n} layers' for n in LAYERS)} | power |")
    print(f"|---|{'--:|' * (len(LAYERS) + 1)}")
    for what in found[0]:
        times = [one[what] for one in found]
        power = log(times[-1] / times[1]) / log(LAYERS[-1] / LAYERS[1])
        print(f"| {what} | {' | '.join(f'{t:.2f}' for t in times)} | {power:.2f} |")


def measure(command: list[str]) -> tuple[float, int]:
    """Seconds of the processor and peak resident bytes of one run."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{command} failed with {process.returncode}:\n{said.decode()}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args(words).runs
    print("# Compile time\n\nMade by `python -m benchmarks.compile_time`.\n")
    print("| what | processor seconds (median) | limit | peak memory |")
    print("|---|---|---|---|")
    late = False
    poetc = str(Path(sys.executable).with_name("poetc"))
    with tempfile.TemporaryDirectory() as directory:
        for line in lines(Path(directory)):
            times = 1 if len(line.commands) > 1 else runs
            results = [measure([poetc, *words]) for words in line.commands * times]
            seconds = statistics.median(r[0] for r in results)
            peak = max(r[1] for r in results)
            late |= line.limit_s is not None and seconds > line.limit_s
            shown = "" if line.limit_s is None else f"{line.limit_s:g}"
            print(f"| {line.title} | {seconds:.2f} | {shown} | {peak / 2**20:.0f} MiB |")
    growth()
    return 1 if late else 0


if __name__ == "__main__":
    document.run(main)
