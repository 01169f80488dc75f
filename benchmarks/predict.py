"""What predicting takes beside the step, and by itself.

    python -m benchmarks.predict

Prints the figures of docs/predict.md: the end of the summary of gesture_mlp with two entry points
beside its step, in 9,600 bytes, and RAM of training and of predicting with parameters on storage.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax  # pyright: ignore[reportMissingImports]
import jax.numpy as jnp  # pyright: ignore[reportMissingImports]
import numpy as np

from benchmarks import document
from poetc.frontends.jax import export

MODEL = Path(__file__).parent.parent / "examples" / "gesture_mlp"


def predict(params: Any, x: Any) -> Any:
    h = jnp.tanh(x @ params["l1"]["w"] + params["l1"]["b"])
    h = jax.nn.relu(h @ params["l2"]["w"] + params["l2"]["b"])
    return jax.nn.log_softmax(h @ params["l3"]["w"] + params["l3"]["b"])


def loss_of(params: Any, x: Any, y: Any) -> Any:
    return -jnp.mean(jnp.sum(predict(params, x) * y, -1))


def step(params: Any, x: Any, y: Any) -> Any:
    loss, gradient = jax.value_and_grad(loss_of)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.01 * g, params, gradient), loss


def evaluate(params: Any, x: Any, y: Any) -> Any:
    return jnp.mean((predict(params, x).argmax(-1) == y.argmax(-1)).astype(jnp.float32))


def main(words: list[str]) -> None:
    """Prints the figures."""
    argparse.ArgumentParser(description=__doc__).parse_args(words)
    arrays = np.load(f"{MODEL}.npz")
    params = {
        f"l{k + 1}": {"b": arrays[f"arg{2 * k}"], "w": arrays[f"arg{2 * k + 1}"]} for k in range(3)
    }
    x, y = arrays["arg6"], arrays["arg7"]
    with tempfile.TemporaryDirectory() as name:
        both, alone = Path(name, "both"), Path(name, "alone")
        entries = {"predict": (predict, (params, x)), "evaluate": (evaluate, (params, x, y))}
        export(step, (params, x, y), both, **entries)
        export(predict, (params, x), alone, donate_argnums=(), frozen="params")
        text = _poetc(both, "--ram=9600")
        print(text[text.index("Entry points") :])
        whole = ("--ram=8KB", "--stream=never")
        train = json.loads(_poetc(MODEL, *whole, "--json"))
        third = train["ram"]["total_bytes"] // 3
        found = json.loads(_poetc(alone, "--frozen=storage", f"--ram={third}B", "--json"))
    print(f"training, whole kernels:     {train['ram']['total_bytes']:,} B")
    print(f"predicting, some in tiles:   {found['ram']['total_bytes']:,} B")


def _poetc(model: Path, *options: str) -> str:
    """The summary of a compilation."""
    command = [sys.executable, "-m", "poetc.cli", f"{model}.mlir", "--emit=report", "-o"]
    done = subprocess.run(
        [*command, "/dev/null", *options], capture_output=True, text=True, check=True
    )
    return done.stderr


if __name__ == "__main__":
    document.run(main)
