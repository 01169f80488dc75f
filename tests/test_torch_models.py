"""The models that the table of backends compares with do the same step in PyTorch."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import MODELS, load_arrays, more

pytest.importorskip("torch", reason="PyTorch is optional")

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.arguments import parameter_names, update_error
from benchmarks.torch_models import Training
from poetc.compare import floor


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lenet5", *more("dscnn", "resnet8", "bert_micro")])
def test_loss_and_updates_are_those_of_xla(name: str) -> None:
    names = parameter_names((MODELS / f"{name}.mlir").read_text())
    arguments, expected = load_arrays(MODELS / f"{name}.npz")
    training = Training(name, names, arguments)
    training.step()
    loss, *parameters = training.results()
    assert np.allclose(loss, expected[0], rtol=1e-5)
    at_least = floor(expected)
    for argument, got, new in zip(names, parameters, expected[1:], strict=True):
        assert update_error(arguments[argument], got, new, at_least) <= 1e-4, names[argument]
    wrong = [array + np.float32(1e-3) for array in expected[1:]]
    triples = zip(names, wrong, expected[1:], strict=True)
    assert max(update_error(arguments[a], got, new, at_least) for a, got, new in triples) > 1e-4
