"""Training steps as users of the libraries write them, unlimited and at half of the RAM, against
the framework."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from compiled import results_in
from conftest import ALL, more
from example_scripts import differences, follow
from firmware import compile_board, write_data
from firmware import run as run_firmware
from harness import COUNTS, check, half_ram, prepare, run_in_c
from registry import STEPS

for _library in (
    *("jax", "jax_layers", "optax", "linen", "nnx", "equinox", "haiku"),
    *("torch", "torchvision", "transformers", "timm"),
):
    importlib.import_module(f"in_{_library}")


LARGE = ("torchvision/squeezenet", "transformers/gpt2", "timm/convmixer")
"""Of the libraries of large networks, which take longest, one of the smaller ones each."""


def _chosen() -> list[str]:
    """All steps with POETC_ALL_STEPS=1; else `LARGE`, every 40th one of the other libraries that
    have many, every 12th one of the rest."""
    if ALL:
        return [*STEPS]
    chosen = [*LARGE]
    for library in dict.fromkeys(name.split("/")[0] for name in STEPS):
        names = [name for name in STEPS if name.startswith(f"{library}/")]
        if not any(name in LARGE for name in names):
            chosen += names[:: 40 if len(names) > 40 else 12]
    return chosen


def test_there_are_many() -> None:
    assert len(STEPS) >= 250
    assert len(_chosen()) >= 12


@pytest.mark.slow
@pytest.mark.parametrize("name", _chosen())
def test_in_c(name: str, tmp_path: Path) -> None:
    """What is scheduled for less RAM has the same bits."""
    made = STEPS[name].build()
    exported = made.export(tmp_path / "step")
    expected = made.results(COUNTS)
    prepared = prepare(exported)
    unlimited = prepared.compile()
    like = expected[1]
    found = run_in_c(unlimited, prepared, like, tmp_path / "unlimited")
    for count, results in found.items():
        check(results, expected[count], prepared.rounding, count)
    half = prepared.compile(half_ram(unlimited))
    again = run_in_c(half, prepared, like, tmp_path / "half")
    for count, results in again.items():
        assert [a.tobytes() for a in results] == [a.tobytes() for a in found[count]]


COMPILED = (
    "jax/scan_over_layers",
    "equinox/convolutions",
    "torch/quantiles",
    *more(
        "jax/causal_attention",
        "jax/lora",
        "optax/adam",
        "linen/perceptron",
        "nnx/lora",
        "haiku/layers_in_a_stack",
        "torch/squeeze_and_excitation",
    ),
)
"""Of different kinds, which TVM compiles, too."""

EMBEDDED = (
    ("jax/int8_weights_frozen", "microbit"),
    ("haiku/lstm", "lm3s6965"),
    ("torch/gru", "mps2-an386"),
    *more(
        ("jax/scan_over_layers", "microbit"),
        ("jax/dropout", "microbit"),
        ("jax/graph_network", "lm3s6965"),
        ("optax/multi_steps", "microbit"),
        ("linen/convolutions", "mps2-an386"),
        ("nnx/lora", "microbit"),
        ("transformers/llama", "mps2-an386"),
    ),
)
"""Others, each on an emulated board."""


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_in_tvm(name: str, tmp_path: Path) -> None:
    """At half of the RAM."""
    support = pytest.importorskip("tvm_support", reason="needs TVM: pip install 'poetc[tvm]'")
    made = STEPS[name].build()
    exported = made.export(tmp_path / "step")
    expected = made.results(COUNTS)
    prepared = prepare(exported)
    module = prepared.compile(half_ram(prepared.compile())).module
    executable = support.compiled(module, plain=True)
    for count in COUNTS:
        program = support.Run(module, executable, prepared.arguments)
        for _ in range(count):
            results = program.run()
        check(results, expected[count], prepared.rounding, count)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "board"), EMBEDDED)
def test_on_a_board(name: str, board: str, tmp_path: Path) -> None:
    made = STEPS[name].build()
    exported = made.export(tmp_path / "step")
    model = str(exported.mlir.with_suffix(""))
    data = f"--data={exported.npz}"
    directory = compile_board(model, tmp_path / "firmware", board, data)
    prepared = prepare(exported)
    for count, expected in made.results(COUNTS).items():
        write_data(model, directory)
        run_firmware(directory, count)
        storage = directory / "data" / "storage.bin"
        found = results_in(directory, prepared.arguments, expected, storage)
        check(found, expected, prepared.rounding, count)


@pytest.mark.slow
def test_examples(tmp_path: Path) -> None:
    """A step of the script, with the commands in it as they are written there; others are much like
    those of `test_in_c`."""
    found = differences(follow("jax_libraries.py", tmp_path, "nnx"))
    assert len(found) > 5 and max(found) <= 3e-5
