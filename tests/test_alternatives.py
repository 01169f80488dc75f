"""What the user leaves open is compared: more RAM or time never costs more, and bounds cover all of
it."""

from __future__ import annotations

import json
import math
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import pytest
from conftest import MODELS, more, of_work
from hypothesis import given, settings
from hypothesis import strategies as st
from outcomes import must_reach, reached
from random_graphs import RandomGraph, random_graphs
from test_passes_schedule import device

from poetc.budget import Budget
from poetc.cli import main
from poetc.errors import UnscheduledError
from poetc.planning.plan import plan_graph
from poetc.planning.problem import ScheduleOptions
from poetc.planning.report import ScheduleReport

pytestmark = pytest.mark.usefixtures("whole")


def scheduled(
    random: RandomGraph, ram_bytes: int, params: str, dma: bool, seconds: float = 1.0
) -> ScheduleReport | None:
    _, graph = random.parse()
    options = ScheduleOptions(
        budget=Budget(ram_bytes),
        device=device(dma),
        params=params,
        gap=0.0,
        **of_work(seconds),
    )
    try:
        return plan_graph(graph, options)
    except UnscheduledError:
        return None


@pytest.mark.slow
@must_reach("ram", "storage")
@settings(max_examples=6, deadline=None)
@given(random_graphs(6), st.booleans())
def test_more_ram_never_costs_more(random: RandomGraph, dma: bool) -> None:
    _, graph = random.parse()
    most = plan_graph(graph, ScheduleOptions()).use.peak_bytes
    before = math.inf
    for sixths in (2, 4, 7):
        found = scheduled(random, max(1, most * sixths // 6), "auto", dma)
        energy_nj = math.inf if found is None else found.use.energy_nj
        assert energy_nj <= before, sixths
        before = energy_nj
        if found is not None:
            reached(found.params)


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(random_graphs(6), st.booleans(), st.floats(0.2, 1.1))
def test_auto_is_the_better_of_both(random: RandomGraph, dma: bool, share: float) -> None:
    _, graph = random.parse()
    most = plan_graph(graph, ScheduleOptions()).use.peak_bytes
    ram_bytes = max(1, round(share * most))
    auto, *both = (scheduled(random, ram_bytes, p, dma) for p in ("auto", "ram", "storage"))
    energies = [report.use.energy_nj for report in both if report is not None]
    assert (auto is None) == (not energies)
    if auto is None:
        return
    assert auto.use.energy_nj <= min(energies)
    # What is optimal is so over both places, and the bound says no more than each of them.
    assert auto.bound_nj <= min(energies)
    assert {tried.params for tried in auto.tried} <= {"ram", "storage"}
    for tried in auto.tried:
        if tried.bound_nj is not None:
            assert auto.bound_nj <= tried.bound_nj


# The command line

GESTURE = MODELS / "gesture_mlp.mlir"

ADAM = """
func.func public @main(
    %w: tensor<32x16xf32> {tf.aliasing_output = 1 : i32, poet.name = "w"},
    %m: tensor<32x16xf32> {tf.aliasing_output = 2 : i32, poet.name = "m"},
    %x: tensor<4x32xf32>) -> (tensor<4x16xf32>, tensor<32x16xf32>, tensor<32x16xf32>) {
  %b = stablehlo.constant dense<0.9> : tensor<32x16xf32>
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<4x32xf32>, tensor<32x16xf32>) -> tensor<4x16xf32>
  %t = stablehlo.tanh %y : tensor<4x16xf32>
  %g = stablehlo.dot_general %x, %t, contracting_dims = [0] x [0]
    : (tensor<4x32xf32>, tensor<4x16xf32>) -> tensor<32x16xf32>
  %s = stablehlo.multiply %g, %g : tensor<32x16xf32>
  %d = stablehlo.multiply %m, %b : tensor<32x16xf32>
  %m1 = stablehlo.add %d, %s : tensor<32x16xf32>
  %q = stablehlo.divide %g, %m1 : tensor<32x16xf32>
  %w1 = stablehlo.subtract %w, %q : tensor<32x16xf32>
  return %t, %w1, %m1 : tensor<4x16xf32>, tensor<32x16xf32>, tensor<32x16xf32>
}
"""
"""2,048 bytes of `w`, of `m` and of the gradient, which the update reads twice."""


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = main([*words, "-o", "/dev/null"])
    return status, capsys.readouterr().err


def energy_nj(tmp_path: Path, *words: str) -> float:
    """What `--json` says, inf where there is no schedule."""
    with redirect_stderr(StringIO()) as said:
        status = main([*words, "--json", "-o", str(tmp_path / "ir.mlir")])
    assert status in (0, 3, 4), said.getvalue()
    return math.inf if status else json.loads(said.getvalue())["energy_nj"]


@pytest.fixture
def adam(tmp_path: Path) -> str:
    file = tmp_path / "adam.mlir"
    file.write_text(ADAM)
    return str(file)


SMALL = "--static=4", "--stack=4"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ram", "deadline", "expected"),
    [
        ("5KB", "1.02x", 3),
        ("6KB", "1.05x", 3),
        ("9600B", "1.3x", 0),
        *more(("8KB", "1.06x", 3), ("8KB", "8x", 0)),
    ],
)
def test_budgets_and_deadlines(
    ram: str, deadline: str, expected: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A small problem is settled: by a schedule within both limits, or by a proof."""
    words = (f"--ram={ram}", f"--deadline={deadline}", "--time-limit=120", "--gap=0.5")
    words = (*words, "--stream=never")
    status, text = run(capsys, str(GESTURE), *words, "--json")
    assert status == expected, text
    if status:
        assert "least RAM known to work: " in text
    else:
        found = json.loads(text)
        assert found["timeline"]["makespan_ns"] <= found["deadline_ns"]
        assert found["ram"]["arena_bytes"] < found["ram"]["budget_bytes"]


@pytest.mark.slow
@pytest.mark.usefixtures("by_work")
def test_more_time_never_costs_more(adam: str, tmp_path: Path) -> None:
    words = ("--ram=3000B", *SMALL, "--stream=auto", "--stop=work", "--gap=0")
    energies = [energy_nj(tmp_path, adam, *words, f"--time-limit={limit}") for limit in (10, 60)]
    assert math.isfinite(energies[-1])
    assert energies == sorted(energies, reverse=True)
