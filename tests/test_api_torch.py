"""poetc from Python: modules of PyTorch, against PyTorch; and the firmware of a program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poetc

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("whole")
pytest.importorskip("jax")


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POETC_CACHE", str(tmp_path_factory.getbasetemp() / "poetc-cache"))


def training() -> tuple[Any, Any, Any, Any]:
    """A module with statistics of batches, an optimiser with momentum, inputs and targets."""
    torch.manual_seed(3)
    module = torch.nn.Sequential(
        torch.nn.Linear(10, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 4)
    )
    optimiser = torch.optim.SGD(module.parameters(), lr=torch.tensor(0.05), momentum=0.9)
    return module, optimiser, torch.randn(6, 10), torch.randint(0, 4, (6,))


LOSS = torch.nn.functional.cross_entropy


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"ram": 6 * 1024}, {"params": "storage"}])
def test_a_module_trains_as_in_pytorch(options: Any) -> None:
    module, optimiser, x, y = training()
    program = poetc.compile(module, (x, y), loss=LOSS, optimiser=optimiser, **options)
    assert program.inputs == ("inputs.0", "targets.0", "settings.lr")
    losses: list[float] = []
    for number in range(4):
        rate = 0.05 if number < 2 else 0.01
        optimiser.param_groups[0]["lr"].fill_(rate)
        settings = {"settings.lr": torch.tensor(rate)} if number == 2 else {}
        optimiser.zero_grad()
        loss = LOSS(module(x), y)
        loss.backward()
        optimiser.step()
        losses.append(float(program.step(x, y, **settings)))
        assert losses[-1] == pytest.approx(float(loss.detach()), rel=1e-5)
    trained = {n: torch.from_numpy(array) for n, array in program.tree("parameters").items()}
    buffers = {n: torch.from_numpy(array) for n, array in program.tree("buffers").items()}
    for name, tensor in module.state_dict().items():
        found = (trained | buffers)[name]
        assert found.dtype == tensor.dtype
        np.testing.assert_allclose(found, tensor, rtol=1e-4, atol=1e-6, err_msg=name)
    module.load_state_dict(trained | buffers)
    with pytest.raises(poetc.InputError, match=r"targets\.0 is int64 of shape \(6,\), not int32"):
        program.step(x, y.to(torch.int32))


def test_what_is_no_training_of_pytorch() -> None:
    module, optimiser, x, y = training()
    with pytest.raises(poetc.InputError, match=r"compiled with loss=\.\.\. and optimiser"):
        poetc.compile(module, (x, y))
    with pytest.raises(poetc.InputError, match="compiled with both"):
        poetc.compile(module, (x, y), loss=LOSS)
    with pytest.raises(poetc.InputError, match="two: inputs and targets"):
        poetc.compile(module, (x,), loss=LOSS, optimiser=optimiser)
    with pytest.raises(poetc.InputError, match="seed are for modules of PyTorch"):
        poetc.compile(lambda x: x, (1.0,), seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("params", ["ram", "storage"])
def test_firmware_does_the_next_step(params: str, tmp_path: Path) -> None:
    """The emulated board gets the bits that this process gets."""
    if shutil.which("qemu-system-arm") is None:
        pytest.skip("no emulator")
    module, optimiser, x, y = training()
    program = poetc.compile(module, (x, y), loss=LOSS, optimiser=optimiser, ram="48KB")
    program.step(x, y)
    before = program.parameters
    made = program.firmware("mps2-an386", tmp_path / "board", params=params)
    assert made.report.params == params and made.report.ram.total_bytes <= 48 * 1024
    done = subprocess.run(
        ["make", "-s", "-C", tmp_path / "board", "run"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    differences = [line for line in done.stdout.splitlines() if "difference" in line]
    assert differences and all(line.endswith(" 0.0e+00") for line in differences), differences
    for name, array in program.parameters.items():
        np.testing.assert_array_equal(array, before[name])
