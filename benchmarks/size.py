"""Flash and instructions of firmware whose kernels share code: --optimise=time, balanced and size.

    python -m benchmarks.size [MODEL ...]

Prints a table of docs/kernels.md. Results must be the same bits. Needs QEMU and arm-none-eabi-gcc.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks import document
from benchmarks.bare_kernels import firmware
from poetc.backends.c.share import Optimise

MODELS = ("gesture_mlp", "kws_conv", "lenet5", "dscnn", "resnet8", "bert_micro")
BOARD, CPU, FLAGS = "mps2-an386", "cortex-m4", "-O2"


def main(words: list[str]) -> None:
    """Prints the table."""
    models = document.chosen(words, MODELS)
    print("| model | flash: time | balanced | size | instructions: balanced | size |")
    print("|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory(prefix="poetc-size-") as name:
        for model in document.progress(models):
            made = {
                o: firmware(model, BOARD, CPU, Path(name) / f"{model}-{o.value}", FLAGS, None, o)
                for o in Optimise
            }
            assert len({one.results for one in made.values()}) == 1, f"{model}: other bits"
            fast = made[Optimise.TIME]
            cells = [model, *(f"{made[o].flash:,}" for o in Optimise)]
            cells += [
                f"{made[o].instructions / fast.instructions - 1:+.1%}"
                for o in (Optimise.BALANCED, Optimise.SIZE)
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    document.run(main)
