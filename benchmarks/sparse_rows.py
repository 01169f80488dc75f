"""What a step takes whose update of a table runs over the rows alone that change.

    python -m benchmarks.sparse_rows

A classifier of 8 texts of 4 words: the mean of rows of a table of 16 columns, and one layer. The
time of a step on an emulated Cortex-M4F is from instructions that were counted (`poetc profile`),
with SGD that goes down, and up: of `table + 0.0 * rate` the sign of a zero may be another, so that
up the update runs over all rows. docs/kernels.md has these figures.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import document
from benchmarks.types import predicted_ns
from poetc.frontends.jax import export

BOARD = "mps2-an386"
ROWS = (1024, 4096, 16384)
COLUMNS, CLASSES, TEXTS, WORDS = 16, 4, 8, 4


def write(path: Path, rows: int, rate: float) -> Path:
    """The files of a step of SGD."""
    rng = np.random.default_rng(0)
    table, layer = (
        rng.normal(size=shape).astype(np.float32) for shape in ((rows, COLUMNS), (COLUMNS, CLASSES))
    )
    words = rng.integers(0, rows, (TEXTS, WORDS)).astype(np.int32)
    labels = jax.nn.one_hot(jnp.arange(TEXTS) % CLASSES, CLASSES)

    def step(params: Any, words: Any, labels: Any) -> Any:
        def loss(params: Any) -> Any:
            table, layer = params
            logits = table[words].mean(1) @ layer
            return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * labels, -1))

        value, gradients = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - rate * g, params, gradients), value

    return export(step, ((table, layer), words, labels), path).mlir


def main(words: list[str]) -> None:
    document.chosen(words, ())
    print("| rows of the table | all rows, ms | rows that change, ms | ratio |\n|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as scratch:
        for rows in ROWS:
            every, few = (
                predicted_ns(write(Path(scratch, f"{name}{rows}"), rows, rate), BOARD) / 1e6
                for name, rate in (("up", -0.1), ("down", 0.1))
            )
            print(f"| {rows:,} | {every:.2f} | {few:.2f} | {every / few:.1f} |")


if __name__ == "__main__":
    document.run(main)
