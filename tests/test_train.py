"""Training some parameters: what is trained gets the bits of the whole step, the rest stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import MODELS, load_arrays, more

from poetc.cli import main
from poetc.errors import InputError
from poetc.frontends.jax import export
from poetc.interpreter import run_func
from poetc.ir.aliasing import updates_of
from poetc.ir.text import make_context, parse_module
from poetc.passes.stablehlo_to_poet import argument_names
from poetc.passes.stablehlo_train import StableHLOTrainPass, main_of
from poetc.patterns import chosen
from poetc.pipeline import simplify_passes

jax = pytest.importorskip("jax")

pytestmark = pytest.mark.usefixtures("whole")
jnp = jax.numpy


def results(
    path: Path, only: str | None
) -> tuple[list[Any], list[np.ndarray], dict[int, int], int]:
    """Names, results, which result updates which argument, and how many operations are left."""
    module = parse_module(path.read_text(), path.name)
    for step in simplify_passes(only):
        step.apply(make_context(), module)
    module.verify()
    function = main_of(module)
    outputs = run_func(module, load_arrays(path.with_suffix(".npz"))[0])
    count = len(list(function.body.block.ops))
    names = [name or f"arg{i}" for i, name in enumerate(argument_names(function))]
    return names, outputs, updates_of(function), count


@pytest.mark.parametrize(
    ("model", "only"),
    [
        ("gesture_mlp", "[1]['l3']"),
        ("gesture_mlp", "*['b']"),
        ("gesture_mlp", "[1]['l1']['w']@1:3:11,[1]['l2']['w']@0:0:5,[1]['l3']['b']@0:2:3"),
        ("kws_conv", "*['c2']@3:0:3,*['w']@0:0:1"),
        *more(("lenet5", "*['b']"), ("lenet5", "*['c2']@3:4:9")),
    ],
)
def test_what_is_trained_has_the_bits_of_the_whole_step(model: str, only: str) -> None:
    path = MODELS / f"{model}.mlir"
    arguments, _ = load_arrays(path.with_suffix(".npz"))
    names, whole, updates, before = results(path, None)
    _, partly, _, after = results(path, only)
    trained: dict[int, tuple[slice, ...]] = {}
    for word in only.split(","):
        name, _, part = word.partition("@")
        for i in chosen(names, name):
            where = [slice(None)] * arguments[i].ndim
            if part:
                axis, start, stop = map(int, part.split(":"))
                where[axis] = slice(start, stop)
            trained[i] = tuple(where)
    assert trained and ("@" in only or after < before)
    for i, k in updates.items():
        expected = arguments[i].copy()
        if i in trained:
            expected[trained[i]] = whole[k][trained[i]]
            assert not np.array_equal(expected, arguments[i])
        assert expected.tobytes() == partly[k].tobytes(), names[i]
    for k in set(range(len(whole))) - set(updates.values()):
        assert whole[k].tobytes() == partly[k].tobytes()


def adam(state: Any, x: Any, y: Any) -> Any:
    """A step of Adam with running statistics of the input, which no weight depends on."""

    def loss_of(params: Any) -> Any:
        hidden = jnp.tanh((x - x.mean(0)) @ params["a"])
        return jnp.mean((hidden @ params["b"] - y) ** 2)

    params, step = state["params"], state["step"] + 1
    loss, gradients = jax.value_and_grad(loss_of)(params)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["m"], gradients)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, state["v"], gradients)
    scale = jnp.sqrt(1 - 0.99 ** step.astype(jnp.float32))
    new = jax.tree.map(
        lambda p, m, v: p - 0.01 * scale * m / (jnp.sqrt(v) + 1e-8), params, first, second
    )
    mean = 0.9 * state["mean"] + 0.1 * x.mean(0)
    return {"params": new, "m": first, "v": second, "step": step, "mean": mean}, loss


@pytest.fixture(scope="module")
def with_adam(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    weights = {"a": rng.normal(size=(6, 8)), "b": rng.normal(size=(8, 3))}
    weights = {name: w.astype(np.float32) for name, w in weights.items()}
    state = {
        "params": weights,
        "m": {name: 0.1 * w for name, w in weights.items()},
        "v": {name: w * w for name, w in weights.items()},
        "step": np.int32(4),
        "mean": np.ones(6, np.float32),
    }
    x, y = (rng.normal(size=(5, n)).astype(np.float32) for n in (6, 3))
    return export(adam, (state, x, y), tmp_path_factory.mktemp("adam") / "adam").mlir


@pytest.mark.parametrize("only", ["state.params.b", "state.params.b@1:1:2"])
def test_state_of_what_is_not_trained_stays_and_other_state_goes_on(
    with_adam: Path, only: str
) -> None:
    arguments, _ = load_arrays(with_adam.with_suffix(".npz"))
    names, whole, updates, _ = results(with_adam, None)
    _, partly, _, _ = results(with_adam, only)
    part = np.s_[:, 1:2] if "@" in only else np.s_[...]
    changed = set()
    for i, k in updates.items():
        expected = whole[k]
        if names[i].endswith((".a", ".b")):
            expected = arguments[i].copy()
        if names[i].endswith(".b"):
            expected[part] = whole[k][part]
        assert expected.tobytes() == partly[k].tobytes(), names[i]
        if expected.tobytes() != arguments[i].tobytes():
            changed.add(names[i].split(".", 1)[1])
    assert changed == {"params.b", "m.b", "v.b", "step", "mean"}


@pytest.mark.parametrize(
    ("only", "said"),
    [
        ("state.m.a,state.params.c", "no parameter 'state.m.a'"),
        ("state.m.a,state.params.c", "no parameter 'state.params.c'; there are state.params.a, "),
        ("state.params.a@2:0:1", "no index 0 along axis 2"),
        ("state.params.a@1:0:9", "of shape [6, 8] has no index 8 along axis 1"),
        ("state.params.a@1:3:3", "nothing from 3 to 3"),
    ],
)
def test_faults(with_adam: Path, only: str, said: str) -> None:
    module = parse_module(with_adam.read_text(), "adam.mlir")
    for step in simplify_passes():
        step.apply(make_context(), module)
    with pytest.raises(InputError) as fault:
        StableHLOTrainPass(only).apply(make_context(), module)
    assert said in str(fault.value)


@pytest.mark.slow
def test_biases_take_less_ram_than_all(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """And a budget that all would not fit into."""
    path = str(MODELS / "gesture_mlp.mlir")
    command = [path, "--ram=2500B", "--emit=c", "-o", str(tmp_path / "out")]
    assert main([*command, "--params=ram", "--train=*['b']"]) == 0, capsys.readouterr().err
    assert main([*command, "--params=ram"]) == 3
    assert main([*command, "--time-limit=5", "--train=*['w']"]) in (0, 3, 4)
