"""Real training steps, all the way: the generated C against XLA, and bits at every budget."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from compiled import SANITIZE, Model, build, prepare, run, worst_error
from conftest import TRAINED, more

from poetc.interpreter import run_graph
from poetc.ir.graph import graphs

XLA_TOLERANCE = 3e-5
"""Of results: differences as `poetc.compare` defines them."""

SMALL = ("gesture_mlp", "kws_conv")

BUDGETS = {"resnet8": 1, "bert_micro": 1}
"""Of models of which one takes long; of others 2."""


def budgets(model: Model, peak_bytes: int) -> list[int]:
    """Evenly spaced arena budgets from the least feasible one up to below the unlimited peak."""
    least, count = model.least_ram_bytes(), BUDGETS.get(model.name, 2)
    return sorted({(least + (peak_bytes - least) * k // count) // 4 * 4 for k in range(count)})


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *SMALL,
        *more(*(n for n in TRAINED if n not in SMALL)),
    ],
)
def test_every_budget_gives_the_same_bits_and_xlas_numbers(name: str, tmp_path: Path) -> None:
    model = prepare(name)
    module, report = model.schedule(None)
    program = build(module, tmp_path / "unlimited")
    unlimited = run(program, model.arguments, model.expected)
    assert worst_error(unlimited, model.expected) <= XLA_TOLERANCE
    by_clang = build(module, tmp_path / "clang", "-O2", compiler="clang")
    results = run(by_clang, model.arguments, model.expected)
    assert [a.tobytes() for a in results] == [a.tobytes() for a in unlimited]
    # The interpreter orders every operation as the generated code does.
    reference = run_graph(graphs(module)[0], model.arguments, arena=True)
    assert [a.tobytes() for a in reference.results] == [a.tobytes() for a in unlimited]

    peak = report.use.peak_bytes
    for ram_bytes in budgets(model, peak):
        module, report = model.schedule(ram_bytes)
        assert report.memory is not None and report.memory.arena_bytes <= ram_bytes
        interpreted = run_graph(graphs(module)[0], model.arguments, ram_bytes, arena=True)
        assert interpreted.peak_bytes == report.use.peak_bytes
        directory = tmp_path / str(ram_bytes)
        got = run(build(module, directory, *SANITIZE), model.arguments, model.expected)
        assert [a.tobytes() for a in got] == [a.tobytes() for a in unlimited]
        shutil.rmtree(directory)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gesture_mlp", *more("kws_conv")])
def test_many_steps_train_within_the_arena(name: str, tmp_path: Path) -> None:
    """Parameters live in the arena from step to step; paging does not disturb them."""
    model = prepare(name)
    steps = 20
    full = build(model.schedule(None)[0], tmp_path / "full")
    tight = build(model.schedule(model.least_ram_bytes())[0], tmp_path / "tight", *SANITIZE)
    expected = run(full, model.arguments, model.expected, steps)
    got = run(tight, model.arguments, model.expected, steps)
    assert [a.tobytes() for a in got] == [a.tobytes() for a in expected]
    assert expected[0] < model.expected[0]  # the loss after 20 steps against that of the first
