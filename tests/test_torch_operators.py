"""Every operator of PyTorch's Core ATen: equal to PyTorch with its gradient, or refused."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest
from aten_calls import CALLS, NO_GRADIENT, name_of, operator_of, tensors
from torch_modules import torch

from poetc.compare import difference, floor
from poetc.frontends.aten import core_operators, refusal
from poetc.frontends.jax import export as export_jax
from poetc.frontends.torch.graph import array_of, run, wide_integers
from poetc.frontends.torch.trace import trace
from poetc.interpreter.functions import run_func
from poetc.ir.text import parse_module

TOLERANCE = 3e-5
CORE = {name_of(operator): operator for operator in core_operators()}
NAMES = list(CALLS)
BATCHES = [NAMES[i : i + 24] for i in range(0, len(NAMES), 24)]


def results(name: str, given: dict[str, Any]) -> list[Any]:
    """What the calls of an operator return, and the gradients of that by all tensors."""
    operator = operator_of(name)
    leaves = {k: v.detach().clone() for k, v in given.items()}
    if name not in NO_GRADIENT:
        for tensor in leaves.values():
            tensor.requires_grad_(tensor.is_floating_point())
    with torch.enable_grad():
        values = CALLS[name](operator, SimpleNamespace(**leaves))
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        smooth = [value for value in tensors if value.requires_grad]
        gradients: Sequence[Any] = ()
        if smooth:
            weights = [torch.linspace(0.5, 1.5, v.numel()).reshape(v.shape) for v in smooth]
            wanted = [leaf for leaf in leaves.values() if leaf.requires_grad]
            gradients = torch.autograd.grad(smooth, wanted, weights, allow_unused=True)
    return [t.detach() for t in (*tensors, *gradients) if t is not None]


@pytest.mark.slow
@pytest.mark.parametrize("names", BATCHES, ids=lambda names: names[0])
def test_operators(names: list[str], tmp_path: Path) -> None:
    """All calls of some operators as one program, through StableHLO to poetc's interpreter."""
    given = tensors()
    expected = {name: [array_of(r) for r in results(name, given)] for name in names}
    assert all(expected.values())

    def step(*values: Any) -> list[Any]:
        arguments = dict(zip(given, values, strict=True))
        return [tensor for name in names for tensor in results(name, arguments)]

    graph = trace(step, list(given.values()))
    arrays = [array_of(tensor) for tensor in given.values()]
    with wide_integers():
        exported = export_jax(
            lambda *arrays: run(graph, arrays),
            [jax.numpy.asarray(array, array.dtype) for array in arrays],
            tmp_path / "step",
            donate_argnums=(),
        )
    got = iter(run_func(parse_module(exported.mlir.read_text()), arrays))
    for name, wanted in expected.items():
        for i, like in enumerate(wanted):
            array = next(got)
            assert array.shape == like.shape, (name, i)
            error = difference(array, like, floor([like]))
            assert error <= TOLERANCE, (name, i, error, array, like)


def test_each_is_lowered_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is PyTorch's; docs/coverage.md says the same."""
    assert len(CORE) > 180
    reasons = {name: refusal(operator) for name, operator in CORE.items()}
    assert {name for name, why in reasons.items() if why is None} == CORE.keys() & CALLS.keys()
    assert all(refusal(operator_of(name)) is None for name in CALLS)
    refused = {name for name, why in reasons.items() if why is not None}
    random = {name for name in refused if torch.Tag.nondeterministic_seeded in CORE[name].tags}
    assert random == {"native_dropout", "rand", "randn", "randperm"}  # `test_random_numbers`
    assert len(refused) < 15 and all(reasons[name] for name in refused)
    check_table(monkeypatch, "aten")


def check_table(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """The tables of docs/coverage.md say what the compiler says."""
    table = Path(__file__).parents[1] / "docs" / "coverage_table.py"
    monkeypatch.syspath_prepend(table.parent)
    assert runpy.run_path(str(table))["main"](["--check", *names]) == 0


@pytest.mark.slow
def test_operations_are_compiled_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_table(monkeypatch, "operations", "missing")


@pytest.mark.slow
def test_optimisers_are_compiled_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optax")
    check_table(monkeypatch, "torch", "optax")
