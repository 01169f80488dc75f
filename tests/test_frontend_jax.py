"""Training steps of JAX, exported and compiled, against JAX itself."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax_models
import numpy as np
import pytest
from compiled import bring, build, run, worst_error
from conftest import load_arrays, more
from example_scripts import differences, follow
from jax_models import Training, jax, jnp

from poetc.errors import InputError
from poetc.frontends.jax import export, lower
from poetc.interpreter import run_func
from poetc.ir.graph import graphs
from poetc.ir.text import parse_module, read_module
from poetc.ir.types import ELEMENT_TYPES
from poetc.planning.plan import schedule_and_plan

STEPS = 2
TOLERANCE = 3e-5


def trained(training: Training, step: Any) -> list[np.ndarray]:
    """What the last of the steps returns, in flat order."""
    returned, args = (), training.args
    for _ in range(STEPS):
        returned = step(*args)
        args = (*returned[len(returned) - training.state :], *args[training.state :])
    return [np.asarray(leaf) for leaf in jax.tree.leaves(returned)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "lenet", *more("resnet8", "dscnn", "transformer")])
def test_training(name: str, tmp_path: Path) -> None:
    """Exported, scheduled for less RAM than all of it takes, and trained: what JAX gets without
    poetc. Nothing is known of the step but the function and its arguments."""
    training: Training = getattr(jax_models, name)()
    exported = export(training.step, training.args, tmp_path / name)
    state = len(jax.tree.leaves(training.args[: training.state]))
    # The loss, which is one, comes first.
    assert exported.updates == {i: i + 1 for i in range(state)}

    if name == "mlp":  # the others take long
        with jax.disable_jit():
            expected = trained(training, training.step)
    else:
        expected = trained(training, jax.jit(training.step))
    arguments, _ = load_arrays(exported.npz)
    model = bring(name, parse_module(exported.mlir.read_text()), arguments, expected)
    graph = graphs(model.module)[0]
    assert tuple(map(graph.arg_name, range(len(arguments)))) == exported.names
    peak = model.schedule(None)[1].use.peak_bytes
    budget = (model.least_ram_bytes() + 3 * peak) // 4
    scheduled = model.module.clone()
    # Any schedule that fits will do.
    report = schedule_and_plan(graphs(scheduled)[0], model.options(budget, gap=0.3))
    assert report.memory is not None and report.memory.arena_bytes <= budget < peak
    program = build(scheduled, tmp_path / "out")
    assert worst_error(run(program, arguments, expected, STEPS), expected) <= TOLERANCE


@pytest.mark.slow
def test_files(tmp_path: Path) -> None:
    """Arguments and, where they are asked for, results are JAX's, in flat order."""
    training = jax_models.mlp()
    exported = export(training.step, training.args, tmp_path / "mlp.mlir", results=True)
    assert exported.mlir == tmp_path / "mlp.mlir" and exported.npz == tmp_path / "mlp.npz"
    arguments, results = load_arrays(exported.npz)
    for array, leaf in zip(arguments, jax.tree.leaves(training.args), strict=True):
        np.testing.assert_array_equal(array, np.asarray(jnp.asarray(leaf)))
    with jax.disable_jit():
        expected = jax.tree.leaves(training.step(*training.args))
    assert worst_error(results, [np.asarray(leaf) for leaf in expected]) <= TOLERANCE


class State(NamedTuple):
    weights: Any
    count: Any


def updates(step: Any, args: tuple[Any, ...], path: Path, donate: Any = None) -> dict[int, int]:
    return export(step, args, path / "model", donate_argnums=donate).updates


def test_which_result_updates_which_argument(tmp_path: Path) -> None:
    """Structure decides, where `jax.jit` gives a buffer to the first result of the same shape."""
    tree = {"w": jnp.ones((2, 3)), "v": [jnp.ones(3), jnp.ones(())]}
    other = {"m": jnp.ones((2, 3)), "n": [jnp.ones(3), jnp.ones(())]}
    array = jnp.ones((2, 3))

    swapped = updates(lambda a, b: (b, a), (tree, other), tmp_path)
    assert swapped == {0: 3, 1: 4, 2: 5, 3: 0, 4: 1, 5: 2}
    # Anywhere in the results; an array that looks like a result is none of the step's.
    nested = partial(updates, lambda a, x: {"new": (x, a), "loss": a["v"][1]}, (tree, array))
    assert nested(tmp_path) == {0: 2, 1: 3, 2: 4}
    assert nested(tmp_path, donate=(0, 1)) == {0: 2, 1: 3, 2: 4, 3: 1}
    assert nested(tmp_path, donate=1) == {3: 1}
    assert nested(tmp_path, donate=()) == {}
    # Of the same structure: in order, or as the caller says.
    same = partial(updates, lambda a, b: (b, a), (tree, tree))
    assert same(tmp_path) == {i: i for i in range(6)}
    assert same(tmp_path, donate={0: 1, 1: 0}) == swapped
    # A named tuple is one result.
    state = State(jnp.ones(2), 0)
    step = partial(updates, lambda s, x: State(s.weights + x, s.count + 1), (state, 2.0))
    assert step(tmp_path) == {0: 0, 1: 1}


def test_arguments_keep_their_places(tmp_path: Path) -> None:
    """Also those that the step does not read, and numbers of Python have JAX's types."""

    def step(state: Any, unused: Any, rate: Any, *more: Any) -> Any:
        return {"w": state["w"] - rate * more[0]}, more[1][0]

    args = ({"w": np.ones(3)}, {"x": 7}, 0.5, 2, [True, False])
    exported = export(step, args, tmp_path / "model")
    assert exported.names == ("state.w", "unused.x", "rate", "arg3", "arg4.0", "arg4.1")
    arguments, results = load_arrays(exported.npz)
    types = ["float32", "int32", "float32", "int32", "bool", "bool"]
    assert [str(array.dtype) for array in arguments] == types and results == []
    graph = graphs(bring("a", parse_module(exported.mlir.read_text()), arguments, []).module)[0]
    roles = [graph.role(i) for i in range(len(arguments))]
    assert roles == ["param"] + ["input"] * 5


def test_a_random_key_is_an_argument(tmp_path: Path) -> None:
    """A typed one: its data are the argument, and the key of the next step a result."""

    def step(state: Any, x: Any) -> Any:
        following, key = jax.random.split(state["key"])
        keep = jax.random.bernoulli(key, 0.5, x.shape)
        return {"key": following, "w": state["w"] - 0.1 * jnp.where(keep, x, 0.0).sum(0)}

    state = {"key": jax.random.key(3), "w": jnp.ones(4)}
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    exported = export(step, (state, x), tmp_path / "model", results=True)
    assert exported.names == ("state.key", "state.w", "x")
    arguments, expected = load_arrays(exported.npz)
    assert arguments[0].dtype == np.uint32 and not np.array_equal(expected[0], arguments[0])
    module = parse_module(exported.mlir.read_text())
    key, weights = run_func(module, arguments)
    assert key.tobytes() == expected[0].tobytes()
    np.testing.assert_allclose(weights, expected[1], rtol=1e-6)


def test_refused_arguments(tmp_path: Path) -> None:
    """Everything at once, by name, and nothing is written."""

    def step(params: Any, extra: Any) -> Any:
        return {"w": params["w"].T, "b": params["b"]}, extra

    params = {"w": jnp.ones((2, 3)), "b": jnp.ones(3)}

    def message(*args: Any, **options: Any) -> str:
        with pytest.raises(InputError) as caught:
            export(step, args, tmp_path / "model", **options)
        return caught.value.message

    assert message(params, 1.0, donate_argnums=(0, 1, 2)) == (
        "donated arguments without a new value:\n"
        "  params.w: float32[2,3], in result 0.w: float32[3,2]\n"
        "  argument 2: the step has 2 arguments and 2 results"
    )
    assert message(params, [1.0], donate_argnums={1: 0}) == (
        "donated arguments without a new value:\n"
        "  argument 1: no result that is left has its structure"
    )
    assert "donate_argnums=() if that is meant" in message(params, 1.0)
    coarse = {"w": jnp.ones((2, 3), jnp.float8_e5m2), "b": jnp.ones(3)}
    types = [str(type.dtype) for type in ELEMENT_TYPES.values()]
    assert message(coarse, (jnp.uint4(1), jax.random.key(1))) == (
        f"types that poetc does not have (it has {', '.join(types)}):\n"
        "  params.w: float8_e5m2\n  extra.0: uint4\n"
        "  result 0.w: float8_e5m2\n  result 1.0: uint4"
    )
    with jax.enable_x64(True):
        assert message({"w": np.ones((2, 3)), "b": np.ones(3, np.int64)}, 1.0).endswith(
            "  params.w: float64\n  extra: float64\n  result 0.w: float64\n  result 1: float64"
        )
    shape = jax.ShapeDtypeStruct((2, 3), jnp.float32)
    wide = {"w": np.array([1 << 40]), "b": np.int64(-(1 << 31)), "u": np.uint64(1 << 32)}
    assert message({"w": jnp.ones(1), "b": jnp.ones(3)}, wide) == (
        "integers of more than 32 bits, which JAX has with jax_enable_x64:\n  extra.u\n  extra.w"
    )
    with pytest.raises(InputError, match="are a tuple, one entry for each, not dict"):
        export(step, params, tmp_path / "model")  # pyright: ignore[reportArgumentType]
    assert "params.w: ShapeDtypeStruct, which has no values" in message({"w": shape, "b": shape}, 1)
    assert list(tmp_path.iterdir()) == []


def test_effects_are_refused(tmp_path: Path) -> None:
    def step(params: Any) -> Any:
        jax.debug.print("loss {}", params[0], ordered=True)
        return [params[0] + 1]

    with pytest.raises(InputError, match="side effects"):
        export(step, ([jnp.ones(2)],), tmp_path / "model")


def test_refused_paths(tmp_path: Path) -> None:
    """Neither file is written where one cannot be."""
    args = ([jnp.ones(2)],)
    for path in ("", f"{tmp_path}/", f"{tmp_path}/.mlir"):
        with pytest.raises(InputError, match="does not end with a name"):
            export(lambda p: p, args, path)
    with pytest.raises(InputError, match="there is no directory"):
        export(lambda p: p, args, tmp_path / "none" / "model")
    (tmp_path / "model.mlir").mkdir()
    with pytest.raises(InputError, match=r"model\.mlir: it is a directory"):
        export(lambda p: p, args, tmp_path / "model")
    assert list(tmp_path.iterdir()) == [tmp_path / "model.mlir"]


def test_without_jax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(InputError, match=r"needs jax .*pip install 'poetc\[jax\]'"):
        export(lambda p: p, ([1.0],), tmp_path / "model")


def test_importing_costs_nothing() -> None:
    code = "import sys, poetc.frontends.jax; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_example(tmp_path: Path) -> None:
    """The script, and the commands in it, as they are written there."""
    found = differences(follow("jax_step.py", tmp_path / "out"))
    assert len(found) == 9 and max(found) <= TOLERANCE


def test_a_single_array_is_named_where_nothing_is_updated(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="donate_argnums=1 if argument 1 is"):
        export(lambda x, w: (w - x.sum(), 1.0), (jnp.ones(2), jnp.ones(3)), tmp_path / "m")


def test_what_is_no_array_is_named(tmp_path: Path) -> None:
    model = {"w": jnp.ones(3), "activation": jnp.tanh}
    with pytest.raises(InputError, match=r"not:\n  model.activation: .*\n.*equinox.partition"):
        export(lambda model, x: (model, x), (model, 1.0), tmp_path / "m")


def test_objects_of_nnx_are_explained(tmp_path: Path) -> None:
    nnx = pytest.importorskip("flax.nnx")
    layer = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
    with pytest.raises(InputError, match=r"nnx.state\(...\) of them"):
        export(lambda layer, x: layer(x).sum(), (layer, jnp.ones((1, 2))), tmp_path / "m")


def test_random_numbers_with_the_lines_of_python() -> None:
    """Arguments of private functions have locations of calls."""

    def step(params: Any, key: Any) -> Any:
        noise = jax.random.normal(key, (3,))
        return {"w": params["w"] - noise}, noise.sum()

    lowered = lower(step, ({"w": jnp.ones(3)}, jax.random.key(0)), lines=True)
    read_module(lowered.text.encode(), "step")
