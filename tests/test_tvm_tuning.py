"""Kernels tuned with MetaSchedule: opt-in, from files, and with the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_tvm_kernels import VECTORS, build, convolution, run
from tvm_support import bits
from xdsl.dialects.func import FuncOp

from poetc.backends.tvm import tuning
from poetc.backends.tvm.build import machine
from poetc.backends.tvm.primfunc import prim_func
from poetc.backends.tvm.runner import Step
from poetc.backends.tvm.tiling import Alternatives, Choice, arrange
from poetc.cli import main
from poetc.errors import InputError
from poetc.kernels.lower import lower_kernel

DENSE = """
func.func public @main(%x: tensor<4x24xf32>,
                       %w: tensor<24x40xf32> {tf.aliasing_output = 0 : i32})
    -> tensor<24x40xf32> {
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<4x24xf32>, tensor<24x40xf32>) -> tensor<4x40xf32>
  %g = stablehlo.dot_general %x, %y, contracting_dims = [0] x [0]
    : (tensor<4x24xf32>, tensor<4x40xf32>) -> tensor<24x40xf32>
  %n = stablehlo.subtract %w, %g : tensor<24x40xf32>
  return %n : tensor<24x40xf32>
}
"""


@pytest.fixture
def dense(tmp_path: Path) -> str:
    path = tmp_path / "dense.mlir"
    path.write_text(DENSE)
    return str(path)


def command(dense: str, *words: str) -> int:
    return main([dense, "--emit=tvm", *words])


def results(library: Path) -> list[bytes]:
    rng = np.random.default_rng(0)
    step = Step.load(library)
    step.write_all([rng.standard_normal(p.shape, np.float32) for p in step.program.arguments])
    step.run()
    return bits([step.read(0)])


@pytest.mark.slow
def test_tuned_kernels_have_the_same_bits(
    dense: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """What was tried last counts as the fastest, so that kernels are not as they are by rule."""
    runs: list[float] = []

    def seconds(records: tuning.Tuning, function: FuncOp, choice: Choice) -> float:
        found = measured(records, function, choice)
        assert 0 < found < 1
        runs.append(found)
        return 1 / len(runs)

    measured = tuning.Tuning._seconds
    monkeypatch.setattr(tuning, "MEASURED_S", 0.001)
    monkeypatch.setattr(tuning.Tuning, "_seconds", seconds)
    records = str(tmp_path / "records")
    ruled, first, second = (tmp_path / f"{name}.so" for name in ("ruled", "first", "second"))
    assert command(dense, "-q", "-o", str(ruled)) == 0
    tuned = f"--tuning={records}"
    assert command(dense, tuned, "--tune=3", "-o", str(first)) == 0
    assert f"{first}: 2 of 2 hot kernels run as measured ({records})" in capsys.readouterr().err
    assert len(runs) == 2 * 3
    assert command(dense, tuned, "-q", "-o", str(second)) == 0
    assert len(runs) == 2 * 3, "nothing is measured unless that is asked for"
    assert results(first) == results(second) == results(ruled)
    objects = [tmp_path / f"{name}.tar" for name in ("ruled", "first", "second")]
    for path in objects:
        words = [] if path is objects[0] else [tuned]
        assert command(dense, "-q", *words, "-o", str(path)) == 0
    assert objects[0].read_bytes() != objects[1].read_bytes() == objects[2].read_bytes()
    assert command(dense, tuned, "--target=cortex-a72", "-q", "-o", str(tmp_path / "a.tar")) == 2
    assert "has no kernel of this step for cortex-a72" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tune=4", "-o", "m.so"], "--tune adds to measurements; --tuning=DIRECTORY"),
        (["--tuning=none", "-o", "m.so"], "--tuning=none: no measurements there; --tune=TRIALS"),
        (["--tuning=none", "--tune=4"], "--tuning says how kernels run; -o FILE writes them"),
        (["--tuning=none", "--tune=0", "-o", "m.so"], "--tune=0: not a positive number"),
        (
            ["--tuning=none", "--tune=4", "-o", "m.so", "--target=aarch64"],
            "--tune measures on this machine; that says nothing of aarch64",
        ),
    ],
)
def test_bad_options(dense: str, words: list[str], message: str, capsys) -> None:
    assert command(dense, *words) == 2
    assert message in capsys.readouterr().err
    assert main([dense, "--emit=report", "--tuning=d"]) == 2
    assert "--tuning says what TVM code is for" in capsys.readouterr().err


def test_damaged_records(tmp_path: Path) -> None:
    for name in ("workload", "tuning_record"):
        (tmp_path / f"database_{name}.json").write_text("{")
    with pytest.raises(InputError, match="not records of MetaSchedule"):
        tuning.Tuning(str(tmp_path), machine())


@pytest.mark.slow
def test_every_choice_gives_the_same_bits() -> None:
    """A random sample of what tuning may choose for a convolution."""
    case = convolution((1, 1), (1, 1))
    function = lower_kernel(case.block, "conv").function
    found = Alternatives(function, VECTORS)
    assert found.any and found.cost(found.rule) < float("inf")
    rng = np.random.default_rng(0)
    chosen = [found.rule]
    while len(chosen) < 6:
        lanes = tuple(i for i, may in enumerate(found.lanes) if may and rng.integers(2))
        copies = tuple(int(rng.choice(numbers)) for numbers in found.copies)
        if found.cost(choice := Choice(lanes, copies)) < float("inf"):
            chosen.append(choice)
    made = []
    for i, choice in enumerate(chosen):
        arranged, tiling = arrange(function, VECTORS, choice)
        made.append(prim_func(arranged, f"conv{i}", tiling=tiling))
    library = build(made, [f"conv{i}" for i in range(len(made))])
    expected = bits(run(library, "conv0", function, case.args))
    for i in range(1, len(made)):
        assert bits(run(library, f"conv{i}", function, case.args)) == expected, chosen[i]
    copies = (1,) * len(found.copies)
    assert found.cost(Choice((), copies[1:])) == float("inf")
    assert found.cost(Choice((0, 3), copies)) == float("inf")
    assert found.cost(Choice((1,), copies)) == float("inf")
