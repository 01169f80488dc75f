"""Kernels compiled by TVM in programs of the C backend: --kernels=tvm."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from compiled import SANITIZE, build
from compiled import run as run_program
from conftest import MODELS, more
from firmware import (
    QUICK,
    all_results,
    compile_board,
    host_results,
    make_well,
    outputs,
    run,
    write_data,
)
from kernel_harness import same_bits
from test_stream_c import expected_after, streamed
from xdsl.dialects.func import FuncOp

from benchmarks.step_counts import count_steps
from poetc.backends.c.measure.emulate import counter
from poetc.backends.tvm import HOST
from poetc.backends.tvm.bare import TVMKernels
from poetc.cli import main
from poetc.ir.symbols import named_in
from poetc.kernels.access import tiles_of
from poetc.kernels.arrange.tile_functions import is_cut

pytestmark = pytest.mark.usefixtures("whole")

pytest.importorskip("tvm", reason="TVM is optional: pip install 'poetc[tvm]'")

KERNELS = "--kernels=tvm"


def compile_host(model: str, output: Path, *options: str) -> Path:
    words = [str(MODELS / f"{model}.mlir"), "--emit=c", "-o", str(output), *QUICK, *options]
    assert main(words) == 0
    write_data(model, output)
    return output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("kws_conv", ("--ram=8KB", "--params=storage")),
        # With mathematical functions.
        ("gesture_mlp", ("--ram=9800", "--executor=plan")),
        # In tiles, with sums that are interrupted.
        ("gesture_mlp", ("--ram=3KB", "--params=storage", "--stream=auto")),
        # A kernel with two results, each in the buffer of the operand that the other one reads.
        *more(("bert_micro", ())),
    ],
)
def test_bits_on_the_host(model: str, options: tuple[str, ...], tmp_path: Path) -> None:
    """Those of the C, in programs with paging and with parameters on storage."""
    output = compile_host(model, tmp_path / "out", KERNELS, *options)
    assert "for (" not in (output / "model_kernels.c").read_text()
    in_tiles = re.findall(r"^\w+_tile\w*:", (output / "model_kernels_tvm.s").read_text(), re.M)
    assert bool(in_tiles) == ("--stream=auto" in options)
    program = [output / "model_example", output / "data", "2"]
    make_well(output, "CC=gcc")
    if (output / "model_image.json").exists():
        program.append(output / "data" / "storage.bin")
    subprocess.run(program, check=True, capture_output=True)
    assert all_results(output) == host_results(model, 2, tmp_path)


@pytest.mark.slow
def test_tiles_that_are_cut_off(tmp_path: Path) -> None:
    """Their loops end where those of the kernel do; those of other tiles are arranged."""
    model, module = streamed("kws_conv", 4096, 64)
    functions = named_in(module, FuncOp).values()
    assert any(is_cut(function) for function in functions)
    assert any(tiles_of(function) and not is_cut(function) for function in functions)
    program = build(module, tmp_path, *SANITIZE, kernels=TVMKernels(HOST))
    found = run_program(program, model.arguments, model.expected, 2)
    expected = expected_after(model.module, model.arguments, 2)
    assert all(map(same_bits, found, expected))


@pytest.mark.slow
def test_firmware_in_tiles(tmp_path: Path) -> None:
    """On a core with floating point, in less RAM than the largest kernel takes."""
    options = ("--ram=4KB", "--stack=1KB", "--params=storage", "--stream=auto", KERNELS)
    output = compile_board("gesture_mlp", tmp_path / "tvm", "mps2-an386", *options)
    assert "poetc_slice_in(" in (output / "model.c").read_text()
    used = run(output, 2)
    assert used.stack_used < used.stack
    assert all_results(output) == host_results("gesture_mlp", 2, tmp_path)


@pytest.mark.slow
def test_firmware(tmp_path: Path) -> None:
    """On a core with floating point: the bits of the host in fewer instructions than the C compiler
    makes of the same loops, which --optimise=size leaves as they are lowered, with parameters on an
    SD card."""
    options = ("--ram=8KB", "--stack=1KB", "--params=storage", KERNELS)
    output = compile_board("kws_conv", tmp_path / "tvm", "lm3s6965", *options)
    used = run(output, 2)
    assert used.stack_used < used.stack
    assert all_results(output) == host_results("kws_conv", 2, tmp_path)
    in_c = compile_board("kws_conv", tmp_path / "c", "lm3s6965", *options[:-1], "--optimise=size")
    with counter() as plugin:
        (compiled,) = count_steps(output, "cortex-m4", plugin)
        (printed,) = count_steps(in_c, "cortex-m4", plugin)
    kernels = [
        sum(n for name, n in step.calls if not name.startswith("poetc_"))
        for step in (compiled, printed)
    ]
    assert kernels[0] < kernels[1]


@pytest.mark.slow
def test_aarch64(tmp_path: Path) -> None:
    """Built with a cross compiler, and run by an emulator of that processor. The same each time."""
    output = compile_host("kws_conv", tmp_path / "out", KERNELS, "--target=cortex-a72")
    again = compile_host("kws_conv", tmp_path / "again", KERNELS, "--target=cortex-a72")
    text = (output / "model_kernels_tvm.s").read_text()
    assert text == (again / "model_kernels_tvm.s").read_text() and str(tmp_path) not in text
    make_well(output, "CC=aarch64-linux-gnu-gcc", "LDFLAGS=-static")
    program = ["qemu-aarch64", output / "model_example", output / "data", "2"]
    subprocess.run(program, check=True, capture_output=True)
    assert outputs(output) == host_results("kws_conv", 2, tmp_path)


@pytest.mark.slow
def test_kernels_with_tables_stay_in_c(tmp_path: Path) -> None:
    """They are where the tables are; all other kernels are assembly, with the same prototypes."""
    numbers = np.random.default_rng(1).standard_normal(40).astype(np.float32)
    table = ", ".join(f"{x:.9e}" for x in numbers)
    model = tmp_path / "model.mlir"
    model.write_text(f"""
        func.func public @main(%w: tensor<40xf32> {{tf.aliasing_output = 0 : i32}},
                               %x: tensor<3x40xf32>) -> (tensor<40xf32>, tensor<3xf32>) {{
          %t = stablehlo.constant dense<[{table}]> : tensor<40xf32>
          %a = stablehlo.dot_general %x, %t, contracting_dims = [1] x [0]
              : (tensor<3x40xf32>, tensor<40xf32>) -> tensor<3xf32>
          %b = stablehlo.dot_general %a, %x, contracting_dims = [0] x [0]
              : (tensor<3xf32>, tensor<3x40xf32>) -> tensor<40xf32>
          %c = stablehlo.add %w, %b : tensor<40xf32>
          func.return %c, %a : tensor<40xf32>, tensor<3xf32>
        }}""")
    found: list[dict[int, bytes]] = []
    for name, options in (("c", ()), ("tvm", (KERNELS,))):
        output = tmp_path / name
        assert main([str(model), "--emit=c", "-q", "-o", str(output), *options]) == 0
        data = output / "data"
        data.mkdir()
        numbers.tofile(data / "arg0.bin")
        np.outer([1, 2, 3], numbers).astype(np.float32).tofile(data / "arg1.bin")
        make_well(output, "CC=gcc")
        subprocess.run([output / "model_example", data], check=True, capture_output=True)
        found.append(outputs(output))
    assert found[0] == found[1]
    defined = re.findall(r"^(\w+):", (tmp_path / "tvm/model_kernels_tvm.s").read_text(), re.M)
    printed = re.findall(
        r"^void (\w+)\(.*\n\{", (tmp_path / "tvm/model_kernels.c").read_text(), re.M
    )
    declared = re.findall(r"^void (\w+)\(", (tmp_path / "tvm/model_kernels.h").read_text(), re.M)
    assert len(printed) == 1 and len(declared) == 2
    assert {*printed, *(name for name in defined if "kernel" in name)} == {*declared}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--emit=tvm",), "give --emit=c"),
        (("--emit=c", "--layout=cmake"), "cannot go with --layout=cmake"),
        (("--emit=c", "--stack=measure"), "cannot go with --stack=measure"),
        (("--emit=c", "--board=microbit"), "cortex-m0 computes floating-point numbers by software"),
        (("--emit=c", "--board=lm3s6965", "--target=cortex-m3"), "cortex-m3 computes"),
        (("--emit=c", "--board=lm3s6965", "--target=cortex-m7"), "lm3s6965 has cortex-m3"),
        (("--emit=c", "--target=cortex-m4"), "name a board that has it"),
        (("--emit=c", "--target=nothing"), "LLVM has no such target"),
        (("--emit=c", "--board=lm3s6965", "--stack=500"), "bytes of stack"),
        (("--passes=poet-order",), "cannot go with --passes"),
    ],
)
def test_refused(
    options: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    model = str(MODELS / "kws_conv.mlir")
    assert main([model, KERNELS, "-o", str(output), *options]) == 2
    assert message in capsys.readouterr().err
    assert not output.exists()


def test_without_tvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tvm", None)
    model = str(MODELS / "kws_conv.mlir")
    assert main([model, KERNELS, "--emit=c", "-o", str(tmp_path / "out")]) == 2
    assert "pip install 'poetc[tvm]'" in capsys.readouterr().err
