"""Prediction: a forward pass whose weights are on storage."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import SANITIZE
from conftest import MODELS, reported

from poetc.cli import main
from poetc.frontends.jax import export

jax = pytest.importorskip("jax")

pytestmark = pytest.mark.usefixtures("whole")
jnp = jax.numpy

GESTURE = np.load(MODELS / "gesture_mlp.npz")
WEIGHTS = {
    f"l{k + 1}": {"b": GESTURE[f"arg{2 * k}"], "w": GESTURE[f"arg{2 * k + 1}"]} for k in range(3)
}
X = GESTURE["arg6"]


def predict(p: Any, x: Any) -> Any:
    """The forward pass of gesture_mlp."""
    h = jnp.tanh(x @ p["l1"]["w"] + p["l1"]["b"])
    h = jax.nn.relu(h @ p["l2"]["w"] + p["l2"]["b"])
    return jax.nn.log_softmax(h @ p["l3"]["w"] + p["l3"]["b"])


@pytest.fixture(scope="module")
def forward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("predict") / "forward"
    export(predict, (WEIGHTS, X), path, donate_argnums=(), frozen="p", results=True)
    return path


def compiled(path: Path, out: Path, *options: str) -> dict[str, Any]:
    """The report of a program with its data in `out`."""
    data = f"--data={path}.npz"
    return reported(f"{path}.mlir", "--emit=c", data, *options, "-o", str(out))


@pytest.mark.slow
def test_prediction_takes_a_third_of_the_ram_of_training(forward: Path, tmp_path: Path) -> None:
    """With all weights on storage, and kernels in tiles; the numbers are JAX's."""
    training = reported(
        f"{MODELS / 'gesture_mlp'}.mlir",
        "--ram=8KB",
        "--stream=never",
        "-o",
        os.devnull,
    )
    out = tmp_path / "out"
    third = training["ram"]["total_bytes"] // 3
    report = compiled(forward, out, "--frozen=storage", f"--ram={third}B", "--stream=auto")
    assert report["ram"]["total_bytes"] <= third
    moved = report["timeline"]["transfers"]
    weights = {each["direction"] for each in moved if each["tensor"].startswith("p.")}
    assert weights == {"in"}
    assert report["frozen_on_storage_bytes"] == sum(a.nbytes for a in jax.tree.leaves(WEIGHTS))
    flags = ["make", "-s", "run", f"CFLAGS={' '.join(SANITIZE)}"]
    done = subprocess.run(flags, cwd=out, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    results = np.fromfile(out / "data" / "out0.bin", np.float32).reshape(4, 6)
    np.testing.assert_allclose(results, np.asarray(predict(WEIGHTS, X)), rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "go there with --frozen=storage (p.l1.b, p.l1.w, "),
        (["--frozen=off"], "with --frozen=storage,NAME,...; there are p.l1.b, p.l1.w, "),
    ],
)
def test_storage_for_no_parameters_is_refused(
    forward: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert main([f"{forward}.mlir", "--params=storage", *options, "-q"]) == 2
    assert said in capsys.readouterr().err
