"""Kernels that share code: the same bits, fewer bytes, and only what may be shared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from c_support import COMPILERS, compile_c
from compiled import prepare, run
from conftest import more

from poetc.backends.c.compiler import find_compiler
from poetc.backends.c.emit import emit, generate
from poetc.backends.c.flash import measure_flash
from poetc.backends.c.share import Optimise, share
from poetc.cli import main

pytestmark = pytest.mark.usefixtures("whole")

HEAD = "void {}(\n    const float *restrict in0 /* {} */,\n    float *restrict out0)\n{{\n"
BODY = (
    "    for (int32_t i = 0; i < {0}; ++i) {{\n        out0[i] = in0[{1} * i + {0}];\n    }}\n}}\n"
)


def kernel(name: str, *numbers: int, body: str = BODY) -> tuple[str, str]:
    return name, HEAD.format(name, numbers[0]) + body.format(*numbers)


def test_numbers_that_differ_are_parameters() -> None:
    """Those that go together are one, those that are the same are none."""
    kernels = [kernel("k", 4, 3), kernel("k_1", 8, 5), kernel("k_2", 8, 3)]
    first, second, third = share(kernels, [True] * 3)
    assert first.startswith("static POETC_APART void k_sized(")
    assert "int32_t n0, int32_t n1)" in first and "i < n0" in first
    assert "in0[n1 * i + n0]" in first
    assert first.endswith("{\n    k_sized(in0, out0, 4, 3);\n}\n")
    assert second.endswith("{\n    k_sized(in0, out0, 8, 5);\n}\n")
    assert third.endswith("{\n    k_sized(in0, out0, 8, 3);\n}\n")
    # Only these two have all numbers the same but one.
    first, second, third = share(kernels, [True, False, True])
    assert "in0[3 * i + n0]" in first and "k_sized" not in second and "k_sized" in third


def test_a_kernel_that_may_not_get_slower_shares_what_is_the_same() -> None:
    kernels = [kernel("k", 4, 3), kernel("k_1", 4, 3), kernel("k_2", 8, 3)]
    first, second, third = share(kernels, [False] * 3)
    assert "i < 4" in first and "k_sized(in0, out0);" in second and "k_sized" not in third


@pytest.mark.parametrize(
    "body",
    [
        "    out0[0] = in0[n / {0}];\n}}\n",
        "    out0[0] = in0[n % {0}];\n}}\n",
        "    float t[{0}];\n}}\n",
        "    out0[0] = {0}.5f;\n}}\n",
        "    out0[0] = {0}e3f;\n}}\n",
        "    out0[0] = poetc_f{0}(in0[0]);\n}}\n",
        "    out0[{0}000000000] = 0.0f;\n}}\n",
    ],
)
def test_what_stays_as_it_is(body: str) -> None:
    """Divisors, sizes of arrays, floats, names, and what an int32_t does not hold."""
    kernels = [kernel("k", 4, body=body), kernel("k_1", 8, body=body)]
    assert share(kernels, [True, True]) == [text for _, text in kernels]


def test_names_that_are_taken() -> None:
    body = "    int32_t n0 = {0};\n    out0[n0] = in0[{1}];\n}}\n"
    kernels = [kernel("k", 4, 3, body=body), kernel("k_sized", 8, 5, body=body)]
    first, second = share(kernels, [True, True])
    assert "void k_sized_2(" in first and "k_sized_2(in0, out0, 8, 5)" in second
    assert "int32_t n0 = n0_2;" in first


def test_balanced_shares_what_takes_little() -> None:
    times_ns = [1000, 30, 20, 40, 900]
    assert Optimise.BALANCED.shares(times_ns) == [False, True, True, True, False]
    assert Optimise.SIZE.shares(times_ns) == [True] * 5
    assert not any(Optimise.TIME.shares(times_ns))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lenet5", *more("resnet8")])
def test_models_keep_their_bits(name: str, tmp_path: Path) -> None:
    """And get smaller: with the sizes as parameters of course more so than without."""
    model = prepare(name)
    module, _ = model.schedule(None)
    arm = find_compiler("arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb -mfloat-abi=hard")
    sizes: dict[Optimise, int] = {}
    found: dict[Optimise, list[np.ndarray]] = {}
    for optimise in Optimise:
        out = tmp_path / optimise.value
        emit(module, out, optimise=optimise)
        assert max(map(len, (out / "model_kernels.c").read_text().splitlines())) <= 100
        for compiler in COMPILERS:
            compile_c([out / "model_kernels.c"], tmp_path / "kernels.o", compiler, ("-O2", "-c"))
        program = compile_c(out.glob("*.c"), out / "program")
        found[optimise] = run(program, model.arguments, model.expected)
        files = generate(module, optimise=optimise)
        sizes[optimise] = measure_flash(files, arm, "model", ["model_step"]).kernels_bytes
    for results in found.values():
        assert [a.tobytes() for a in results] == [a.tobytes() for a in found[Optimise.TIME]]
    assert sizes[Optimise.SIZE] <= sizes[Optimise.BALANCED] <= sizes[Optimise.TIME]
    assert sizes[Optimise.SIZE] < sizes[Optimise.TIME] or name == "lenet5"


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(Path(__file__).parent / "models" / "gesture_mlp.mlir")
    words = [source, "--emit=c", "-q", "-o", str(tmp_path / "out"), "--ram=16KB"]
    assert main([*words, "--optimise=size"]) == 0
    assert "POETC_APART" in (tmp_path / "out" / "model_kernels.c").read_text()
    assert main([source, "--optimise=size", "-o", str(tmp_path / "out.mlir")]) == 2
    assert "--emit=c" in capsys.readouterr().err
