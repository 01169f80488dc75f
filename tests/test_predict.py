"""Prediction: a forward pass whose weights are on storage."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import SANITIZE
from conftest import MODELS, reported

from poetc.cli import main
from poetc.costmodel.device import load_device
from poetc.driver import SplitSource
from poetc.frontends.jax import export
from poetc.ir.text import make_context, read_module
from poetc.passes.stablehlo_simplify import StableHLOSimplifyPass
from poetc.passes.stablehlo_split import splittable
from poetc.planning.problem import NO_LIMIT, problem_view
from poetc.planning.split_source import split_candidate
from poetc.request import Options
from poetc.schedule.exact.bounds import time_needed
from poetc.schedule.model.instance import Instance
from poetc.splits import Split

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
    """With all weights on storage, the largest in shards; the numbers are JAX's."""
    training = reported(
        f"{MODELS / 'gesture_mlp'}.mlir",
        "--ram=8KB",
        "--split=off",
        "--stream=never",
        "-o",
        os.devnull,
    )
    out = tmp_path / "out"
    third = training["ram"]["total_bytes"] // 3
    report = compiled(forward, out, "--frozen=storage", f"--ram={third}B", "--stream=never")
    assert report["ram"]["total_bytes"] <= third
    # Weights are never written; a sum may be, while the block that a shard ends in is open.
    moved = report["timeline"]["transfers"]
    assert {each["tensor"] for each in moved if each["direction"] == "out"} <= {"dot"}
    assert report["frozen_on_storage_bytes"] == sum(a.nbytes for a in jax.tree.leaves(WEIGHTS))
    flags = ["make", "-s", "run", f"CFLAGS={' '.join(SANITIZE)}"]
    done = subprocess.run(flags, cwd=out, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    results = np.fromfile(out / "data" / "out0.bin", np.float32).reshape(4, 6)
    np.testing.assert_allclose(results, np.asarray(predict(WEIGHTS, X)), rtol=1e-6)


@pytest.mark.slow
def test_frozen_weights_are_split_as_asked(forward: Path, tmp_path: Path) -> None:
    report = compiled(forward, tmp_path / "out", "--frozen=storage", "--split=p.l1.w@1:4")
    assert report["shards"] == {"p.l1.w": 4}
    text = ["make", "-s", "run"]
    assert subprocess.run(text, cwd=tmp_path / "out", capture_output=True).returncode == 0


@pytest.mark.slow
def test_shards_of_frozen_weights_take_no_less_than_the_bound(forward: Path) -> None:
    """Of each weight, along each axis: no proof that a deadline is missed is wrong."""
    device = load_device("nrf52840")
    options = Options(
        device=device,
        device_name="nrf52840",
        ram_bytes=1 << 20,
        params="storage",
        frozen="storage",
    )
    module = read_module(Path(f"{forward}.mlir").read_bytes(), "forward")
    StableHLOSimplifyPass().apply(make_context(), module)
    assert sorted(splittable(module, "storage")) == list(range(6))
    assert not splittable(module)
    whole = split_candidate(SplitSource(make_context(), module, options), ())
    for parameter, axis, shards in product((1, 3, 5), (0, 1), (2, 6)):
        splits = (Split(parameter, shards, axis),)
        found = split_candidate(SplitSource(make_context(), module, options), splits)
        problem = problem_view(found.graph, replace(found.asked, budget=NO_LIMIT)).problem
        assert time_needed(Instance(problem)) >= whole.least_time_ns


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
