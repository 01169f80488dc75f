"""How much faster two workers answer the questions of a sweep than one.

    python -m benchmarks.sweep

`poetc pareto` on resnet8, 12 budgets and four strategies. Fails where two workers are not at least
1.7 times as fast; the machine needs two idle cores.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from benchmarks import document

ROOT = Path(__file__).parent.parent
WORDS = ("--budgets=12", "--strategies=auto,dtr,capuchin,pofo", "--time-limit=2", "-q")
LEAST = 1.7


def seconds(workers: int) -> float:
    """What the sweep takes, in seconds by the clock."""
    poetc = str(Path(sys.executable).with_name("poetc"))
    model = str(ROOT / "tests" / "models" / "resnet8.mlir")
    begin_s = time.monotonic()
    command = [poetc, "pareto", model, *WORDS, f"--workers={workers}", "-o", "/dev/null"]
    subprocess.run(command, check=True)
    return time.monotonic() - begin_s


def main(words: list[str]) -> int:
    """Prints both and their ratio; the exit code."""
    document.chosen(words, ())
    one, two = (seconds(workers) for workers in document.progress((1, 2)))
    print(f"one worker {one:.0f} s, two workers {two:.0f} s: {one / two:.2f} times as fast")
    return 0 if one / two >= LEAST else 1


if __name__ == "__main__":
    document.run(main)
