"""The measured flash of a program: against firmware that is linked, and against its own parts."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from conftest import MODELS

from poetc.backends.c.compiler import find_compiler
from poetc.backends.c.flash import measure_flash
from poetc.cli import main
from poetc.costmodel import device as devices
from poetc.frontends.jax import export

pytestmark = pytest.mark.usefixtures("whole")

GESTURE = str(MODELS / "gesture_mlp.mlir")


def flash(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    """The part of the summary about flash, and what was printed before it."""
    capsys.readouterr()
    assert main([*words, "--flash=measure", "--json"]) == 0
    said, _, summary = capsys.readouterr().err.partition("{")
    return json.loads("{" + summary)["flash"], said


@pytest.mark.slow
@pytest.mark.parametrize("params", ["ram", "storage"])
def test_firmware_has_that_code(
    params: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kernels and step are those that the linker leaves in the firmware of a board, to the byte."""
    out = tmp_path / "out"
    words = [GESTURE, "--board=lm3s6965", f"--params={params}", "--emit=c", "-o", str(out)]
    found, said = flash(words, capsys)
    assert not said
    make = ["make", "-s", "-C", str(out)]
    subprocess.run([*make, "size"], check=True, capture_output=True)
    (linked,) = out.rglob("*.elf")
    tool = ["arm-none-eabi-nm", "--print-size", str(linked)]
    listed = subprocess.run(tool, check=True, capture_output=True, text=True).stdout
    sizes = {
        name: int(size, 16) for size, name in re.findall(r"^\S+ (\S+) [tT] (\w+)$", listed, re.M)
    }
    kernels = sum(size for name, size in sizes.items() if name.startswith("model_kernel"))
    assert kernels == found["kernels_bytes"] > 1000
    assert sizes["model_step"] <= found["step_bytes"]
    assert 0 < found["library_bytes"] < 5000  # software floating point of a core without it
    names = ("kernels", "step", "runtime", "library", "constants", "weights")
    assert found["total_bytes"] == sum(found[f"{name}_bytes"] for name in names)


@pytest.mark.slow
def test_options_of_the_compiler_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [GESTURE, "-o", str(tmp_path / "out.mlir")]
    core = "arm-none-eabi-gcc -mthumb -mcpu=cortex-m4 -mfloat-abi=hard -mfpu=fpv4-sp-d16"
    fast, _ = flash([*words, f"--cc={core} -O3"], capsys)
    small, _ = flash([*words, f"--cc={core} -Os"], capsys)
    assert small["kernels_bytes"] < fast["kernels_bytes"]
    # The hardware computes.
    assert small["library_bytes"] < 200


@pytest.mark.slow
def test_more_than_the_device_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Frozen weights are in flash, too; what does not fit is said."""
    text = (Path(devices.__file__).parent / "devices" / "nrf52840.toml").read_text()
    device = tmp_path / "small.toml"
    device.write_text(re.sub(r"(?m)^flash_bytes = \S+", "flash_bytes = 4096", text))
    words = [GESTURE, f"--device={device}", "-o", str(tmp_path / "out.mlir")]
    whole, said = flash(words, capsys)
    assert not whole["fits"]
    assert "of flash, and nRF52840" in said or "of flash, and nrf52840" in said
    frozen, _ = flash([*words, "--train=*['l3']*"], capsys)
    with np.load(MODELS / "gesture_mlp.npz") as arrays:
        assert whole["weights_bytes"] == 0 < frozen["weights_bytes"]
        assert frozen["weights_bytes"] <= sum(arrays[f].nbytes for f in arrays if "arg" in f)
    assert main([*words, "--flash=measure"]) == 0
    assert "does not fit" in capsys.readouterr().err


def test_other_entry_points_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def step(p: Any, x: Any) -> Any:
        return p - 0.1 * jnp.sum(x * p), jnp.sum(p)

    def predict(p: Any, x: Any) -> Any:
        return jnp.tanh(x * p) @ jnp.ones((8, 4))

    weights = np.ones(8, np.float32)
    export(step, (weights, weights), tmp_path / "alone", donate_argnums=(0,))
    export(
        step,
        (weights, weights),
        tmp_path / "both",
        donate_argnums=(0,),
        predict=(predict, (weights, weights)),
    )
    out = ["--emit=report", "-o", str(tmp_path / "report.json")]
    alone, _ = flash([str(tmp_path / "alone.mlir"), *out], capsys)
    both, _ = flash([str(tmp_path / "both.mlir"), *out], capsys)
    assert both["kernels_bytes"] > alone["kernels_bytes"]


def test_a_compiler_that_does_not_link(tmp_path: Path) -> None:
    """The message names the option, the compiler and what is wrong."""
    broken = tmp_path / "cc"
    script = "case \"$*\" in *linked*) echo 'error: no linker' >&2; exit 1;; esac"
    broken.write_text(f"#!/bin/sh\n{script}\n")
    broken.chmod(0o755)
    with pytest.raises(Exception, match=r"--flash=measure: .*cc does not link: error: no linker"):
        measure_flash({"model.c": ""}, find_compiler(str(broken)), "model", ["model_step"])
    assert main([GESTURE, "--flash=measure", f"--cc={tmp_path}/none"]) == 2
    assert main([GESTURE, "--flash=always"]) == 2
    assert main([GESTURE, "--flash=measure", "--emit=tvm", "-o", str(tmp_path / "a.so")]) == 2


@pytest.mark.parametrize(
    ("command", "said"), [("true", "it wrote nothing"), ("gcc -flto", "-flto mixes them")]
)
def test_compilers_that_show_no_parts(
    command: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([GESTURE, "--flash=measure", f"--cc={command}"]) == 2
    assert said in capsys.readouterr().err
