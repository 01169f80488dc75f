"""Predicted times of kernels against what they take: in the emulator, and on this machine."""

from __future__ import annotations

import pytest
from conftest import MODELS

from poetc.costmodel.cost import kernel_cost
from poetc.costmodel.device import load_device
from poetc.ir.text import make_context, parse_module
from poetc.kernels.analysis import work
from poetc.profile import entries_of, measure, profile_of


def times_ns(model: str, board: str, cpu: str, device_name: str) -> list[tuple[float, float]]:
    """Predicted and measured times of the kernels of a model, as the device has them."""
    device = load_device(device_name)
    path = MODELS / f"{model}.mlir"
    module = parse_module(path.read_text(), model)
    data = str(path.with_suffix(".npz"))
    entries = entries_of(make_context(), module, data=data, device_name=device_name)
    found = profile_of(measure(entries, board, cpu, "-O2", model), {}, model)
    unit_ns = 1.0
    if found.unit == "instructions":
        unit_ns = 1e9 * device.cycles_per_instruction / device.clock_hz
    return [
        (kernel_cost(work(e.function), device).time_ns, found.kernels[e.key] * unit_ns)
        for e in entries
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("board", "cpu"), [("mps2-an386", "cortex-m4"), ("lm3s6965", "cortex-m0")])
def test_counted_kernels_take_what_is_predicted(board: str, cpu: str) -> None:
    """kws_conv has no part in the cycles of the cores."""
    times = times_ns("kws_conv", board, cpu, f"{board}-{cpu}")
    predicted, counted = (sum(column) for column in zip(*times, strict=True))
    assert predicted == pytest.approx(counted, rel=0.25)
    large = [(ours, real) for ours, real in times if real > 0.05 * counted]
    assert len(large) >= 4
    for ours, real in large:
        assert ours == pytest.approx(real, rel=0.4)


@pytest.mark.slow
def test_this_machine_takes_the_order_of_what_is_predicted() -> None:
    """Whichever machine: benchmarks.costs has how close it is on one."""
    predicted, taken = map(sum, zip(*times_ns("lenet5", "host", "host", "host"), strict=True))
    assert taken / 6 < predicted < taken * 6
