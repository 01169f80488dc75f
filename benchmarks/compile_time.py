"""How long poetc takes to start, and to bring large models to fused, annotated poet IR.

    python -m benchmarks.compile_time [--runs N] [--output docs/compile_time.md]

Each line is whole processes: the median wall time over the runs and the largest peak memory.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import document

MODELS = Path(__file__).parent.parent / "tests" / "models"
FRONT = (
    "stablehlo-simplify,stablehlo-to-poet,poet-fuse,poet-lower-kernels,"
    "poet-annotate{device=nrf52840}"
)
CASES = [
    ("poetc --version", ["--version"], 0.3),
    ("poetc --help", ["--help"], None),
    ("bert_base.mlir to fused, annotated poet IR", [MODELS / "bert_base.mlir"], 20.0),
    ("resnet18.mlir to fused, annotated poet IR", [MODELS / "resnet18.mlir"], 8.0),
    ("vgg16.mlir to fused, annotated poet IR", [MODELS / "vgg16.mlir"], None),
]


def measure(command: list[str]) -> tuple[float, int]:
    """Wall seconds and peak resident bytes of one run."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{command} failed with {process.returncode}")
    return time.perf_counter() - started, usage.ru_maxrss * 1024


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args(words).runs
    print("# Compile time\n\nMade by `python -m benchmarks.compile_time`.\n")
    print("| what | seconds (median) | limit | peak memory |")
    print("|---|---|---|---|")
    late = False
    for title, arguments, limit in CASES:
        command = [str(Path(sys.executable).with_name("poetc")), *map(str, arguments)]
        if not title.startswith("poetc"):
            command += ["--passes", FRONT]
        results = [measure(command) for _ in range(runs)]
        seconds = statistics.median(r[0] for r in results)
        peak = max(r[1] for r in results)
        late |= limit is not None and seconds > limit
        shown = "" if limit is None else f"{limit:g}"
        print(f"| {title} | {seconds:.2f} | {shown} | {peak / 2**20:.0f} MiB |")
    return 1 if late else 0


if __name__ == "__main__":
    document.run(main)
