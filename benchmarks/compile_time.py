"""How long poetc takes to start, to bring large models to fused, annotated poet IR, and to compile
a step from StableHLO to C.

    python -m benchmarks.compile_time [--runs N] [--output docs/compile_time.md]

Each line is whole processes: the median processor time over the runs, and the largest peak memory.
mobilenet_v2 is that of torchvision, on one image of 96 x 96 pixels, with SGD, as `frontends.torch`
exports it; the small steps are those of tests/cases, one run each.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from benchmarks import document

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
    return 1 if late else 0


if __name__ == "__main__":
    document.run(main)
