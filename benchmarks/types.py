"""What floats of 16 bits save and cost: RAM, and instructions of a step.

    python -m benchmarks.types

A perceptron of three layers in each type: the arena that its step takes, and its time on emulated
boards relative to f32, from instructions that were counted (`poetc profile`). docs/types.md has
these figures.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import document
from poetc.frontends.jax import export

TYPES = {"f32": jnp.float32, "bf16": jnp.bfloat16, "f16": jnp.float16}
INPUTS, CLASSES, BATCH = 32, 10, 16
BOARDS = {"mps2-an386": ("Cortex-M4F", 64), "microbit": ("Cortex-M0", 32)}
"""Boards, what their processor is, and the hidden units of a network that fits."""


def write(path: Path, dtype: Any, hidden: int) -> Path:
    """The files of a step of SGD."""
    sizes = (INPUTS, hidden, hidden, CLASSES)
    keys = jax.random.split(jax.random.key(0), 5)
    weights = [
        (jax.random.normal(key, (a, b)) / a**0.5).astype(dtype)
        for key, a, b in zip(keys, sizes[:-1], sizes[1:], strict=False)
    ]
    biases = [jnp.zeros(n, dtype) for n in sizes[1:]]
    x = jax.random.normal(keys[3], (BATCH, INPUTS)).astype(dtype)
    y = jax.nn.one_hot(jnp.arange(BATCH) % CLASSES, CLASSES, dtype=dtype)

    def step(params: Any, x: Any, y: Any) -> Any:
        def loss(params: Any) -> Any:
            h, (weights, biases) = x, params
            for w, b in zip(weights[:-1], biases[:-1], strict=True):
                h = jnp.tanh(h @ w + b)
            return -jnp.mean(jnp.sum(jax.nn.log_softmax(h @ weights[-1] + biases[-1]) * y, -1))

        value, gradients = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - jnp.asarray(0.1, dtype) * g, params, gradients), value

    return export(step, ((weights, biases), x, y), path).mlir


def command(*words: str | Path) -> str:
    """Runs a command of poetc; what it prints on standard error."""
    line = [str(Path(sys.executable).with_name("poetc")), *map(str, words)]
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=True)
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{' '.join(line)}: {error.stderr}") from error
    return done.stderr


def predicted_ns(mlir: Path, board: str) -> int:
    """The time of one step, from the instructions of its kernels."""
    profile = mlir.with_suffix(".toml")
    data = f"--data={mlir.with_suffix('.npz')}"
    command("profile", mlir, f"--board={board}", data, "-o", profile)
    report = json.loads(
        command(mlir, f"--board={board}", f"--profile={profile}", "--params=ram", "--json")
    )
    return int(report["predicted_time_ns"])


def main(words: list[str]) -> None:
    document.chosen(words, ())
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        print(
            "| | " + " | ".join(f"`{name}`" for name in TYPES) + " |\n|---|" + "---|" * len(TYPES)
        )
        arenas = []
        for name, dtype in TYPES.items():
            mlir = write(folder / name, dtype, 64)
            report = json.loads(command(mlir, "--json", "-o", folder / "ir.mlir"))
            arenas.append(f"{report['ram']['arena_bytes']:,}")
        print(f"| arena, bytes | {' | '.join(arenas)} |")
        for board, (processor, hidden) in BOARDS.items():
            times_ns = [
                predicted_ns(write(folder / f"{name}{board}", dtype, hidden), board)
                for name, dtype in TYPES.items()
            ]
            relative = [f"{time_ns / times_ns[0]:.2f}" for time_ns in times_ns]
            print(f"| time on {board}, {processor}, {hidden} units | {' | '.join(relative)} |")


if __name__ == "__main__":
    document.run(main)
