"""Profiles: exact counts of instructions, predictions of steps, deadlines that are met."""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import MODELS, more
from firmware import make_well, write_data
from xdsl.dialects.builtin import StringAttr
from xdsl.dialects.func import FuncOp

from benchmarks.step_counts import StepCount, count_steps
from poetc.backends.c.measure import SAMPLES, sample
from poetc.backends.c.measure.emulate import build, count, counter
from poetc.cli import main
from poetc.costmodel.cost import pagein_cost, pageout_cost
from poetc.costmodel.device import device_of, load_device
from poetc.costmodel.profile import (
    BlockBuffer,
    Profile,
    Transfers,
    kernel_key,
    load_profile,
)
from poetc.ir.graph import graphs
from poetc.ir.text import make_context, parse_module
from poetc.pipeline import front_passes, run_passes

GESTURE = str(MODELS / "gesture_mlp.mlir")
MPS2 = ("mps2-an386", "cortex-m4")
LM3S = "lm3s6965"
CARD = ("--ram=8KB", "--stack=640", "--params=storage", "--stream=never")


@pytest.fixture(scope="session")
def plugin() -> Iterator[Path]:
    with counter() as library:
        yield library


@pytest.fixture(scope="session")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profiles")


def run(*words: str | Path) -> str:
    """A command that succeeds; what it says on standard error."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = main([str(word) for word in words])
    assert code == 0, said.getvalue()
    return said.getvalue()


def profile(model: str, board: str, cpu: str, directory: Path) -> Path:
    """The profile of a board and core, with all models that were asked for so far."""
    path = directory / f"{board}-{cpu}.toml"
    arrays = f"--data={MODELS / f'{model}.npz'}"
    words = (MODELS / f"{model}.mlir", f"--board={board}", f"--cpu={cpu}", arrays)
    run("profile", *words, "-o", path, "-q")
    return path


def compiled(model: str, board: str, path: Path, directory: Path, *options: str) -> dict[str, Any]:
    """Firmware that was scheduled with a profile, with data; the summary."""
    words = (MODELS / f"{model}.mlir", f"--board={board}", f"--profile={path}", "--emit=c")
    said = run(*words, "-o", directory, "--time-limit=20", "--json", *options)
    write_data(model, directory)
    return json.loads(said[said.index("{") : said.rindex("}") + 1])


def instructions(time_ns: float, board: str, cpu: str) -> float:
    device = load_device(f"{board}-{cpu}")
    return time_ns * 1e-9 * device.clock_hz / device.cycles_per_instruction


# Counting


def traced(directory: Path, cpu: str, begin: int) -> tuple[int, int]:
    """Instructions of all of a run, and of the first call at `begin`, in QEMU's own log of it."""
    qemu = "QEMU=qemu-system-arm -singlestep -d exec,nochain -D /dev/stdout"
    command = ["make", "-s", "-C", str(directory), "run", f"CPU={cpu}", qemu]
    total, entered, left = 0, 0, 0
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.startswith("Trace "):
                continue
            address = int(line.split("/", 2)[1], 16)
            if address == begin:
                entered = total
            elif address == begin + 4 and entered and not left:
                left = total
            total += 1
    return total, left - entered


@pytest.mark.slow
def test_the_plugin_counts_what_qemu_logs(plugin: Path, tmp_path: Path) -> None:
    """One line of the log for each instruction; the same in several runs."""
    directory = tmp_path / "fw"
    run(GESTURE, "--board=mps2-an386", "--emit=c", "-o", directory, "-q")
    write_data("gesture_mlp", directory)
    build(directory, "cortex-m4")
    listing = subprocess.run(
        ["arm-none-eabi-objdump", "-d", directory / "build/cortex-m4/model.elf"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    call = re.search(r"^ +([0-9a-f]+):.*\tbl\t.* <model_step>", listing, re.M)
    assert call is not None
    total, inside = traced(directory, "cortex-m4", int(call[1], 16))
    for _ in range(2):
        assert count(directory, "cortex-m4", [], plugin).total == total
        (step,) = count_steps(directory, "cortex-m4", plugin)
        assert step.instructions == inside > 50_000


# The measuring program


@pytest.mark.slow
def test_a_profile_of_each_kernel(plugin: Path, profiles: Path, tmp_path: Path) -> None:
    """Each call of a step costs what the profile has for its kernel."""
    board, cpu = MPS2
    path = profile("gesture_mlp", board, cpu, profiles)
    known = load_profile(str(path))
    directory = tmp_path / "fw"
    compiled("gesture_mlp", board, path, directory, "--optimise=time")
    (step,) = count_steps(directory, cpu, plugin)
    by_label: dict[str, list[float]] = {}
    for key, cost in known.kernels.items():
        by_label.setdefault(known.labels[key], []).append(cost)
    kernels = [(name, n) for name, n in step.calls if name.startswith("model_kernel_")]
    calls = [(re.sub(r"^model_kernel_|_\d+$", "", name), n) for name, n in kernels]
    assert len(calls) == 13
    for label, executed in calls:
        # Data decide branches, in kernels that select.
        assert any(abs(cost - executed) <= 8 + 0.02 * executed for cost in by_label[label])


@pytest.mark.slow
def test_only_what_is_missing_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "p.toml"
    words = ["profile", GESTURE, "--board=mps2-an386", "-o", str(path)]
    assert main(words) == 0
    first = path.read_text()
    assert "13 kernels measured, 13 in all" in capsys.readouterr().err
    assert main(words) == 0
    assert f"mps2-an386, cortex-m4: all kernels are in {path}" in capsys.readouterr().err
    assert path.read_text() == first
    lines = first.splitlines()
    gone = next(line for line in lines if line.endswith("# dot_add_tanh"))
    path.write_text(first.replace(gone + "\n", ""))
    assert main([GESTURE, f"--profile={path}", "-q"]) == 2
    said = capsys.readouterr().err
    assert f'lacks 1 kernel of this model: "dot_add_tanh" ({gone.split()[0]}); ' in said
    assert f"poetc profile MODEL --board=mps2-an386 --cpu=cortex-m4 -o {path} adds" in said
    assert main(words) == 0
    assert "1 kernels measured, 13 in all" in capsys.readouterr().err
    assert sorted(path.read_text().splitlines()) == sorted(lines)


# Predictions


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "board", "cpu", "options"),
    [
        ("gesture_mlp", "microbit", "cortex-m0", ("--ram=32KB",)),
        ("kws_conv", LM3S, "cortex-m4", CARD),
        *more(
            ("gesture_mlp", LM3S, "cortex-m3", CARD),
            ("kws_conv", "microbit", "cortex-m0", ("--ram=5300", "--stack=448")),
            ("gesture_mlp", LM3S, "cortex-m0", CARD),
            ("gesture_mlp", LM3S, "cortex-m4", CARD),
            ("kws_conv", LM3S, "cortex-m0", CARD),
            ("lenet5", *MPS2, ("--ram=256KB",)),
        ),
    ],
)
def test_prediction(
    model: str,
    board: str,
    cpu: str,
    options: tuple[str, ...],
    plugin: Path,
    profiles: Path,
    tmp_path: Path,
) -> None:
    """The time of a step by the profile is within 5% of what is counted; in fact, within 2%,
    where data decide what a float takes."""
    path = profile(model, board, cpu, profiles)
    summary = compiled(model, board, path, tmp_path / "fw", "--gap=10%", *options)
    steps = count_steps(tmp_path / "fw", cpu, plugin, steps=2 if model != "lenet5" else 1)
    predicted = instructions(summary["predicted_time_ns"], board, cpu)
    for step in steps:
        assert predicted == pytest.approx(step.instructions, rel=0.02)
    # The timeline knows nothing of where pages are, which matters where the storage has blocks.
    timeline = summary["timeline"]
    assert timeline["makespan_ns"] == summary["time_ns"]
    scheduled = instructions(timeline["makespan_ns"], board, cpu)
    assert scheduled == pytest.approx(steps[0].instructions, rel=0.1 if board == LM3S else 0.01)
    moving = sum(n for name, n in steps[0].calls if name.startswith(("poetc_page", "poetc_param")))
    on_bus = instructions(timeline["bus_ns"], board, cpu)
    assert on_bus == pytest.approx(moving, rel=0.25 if board == LM3S else 0.001)


@pytest.mark.slow
def test_random_data_will_do(plugin: Path, tmp_path: Path) -> None:
    """Without --data, even where time depends on values: floating point in software."""
    path = tmp_path / "p.toml"
    run("profile", GESTURE, "--board=microbit", "-o", path)
    summary = compiled("gesture_mlp", "microbit", path, tmp_path / "fw")
    (step,) = count_steps(tmp_path / "fw", "cortex-m0", plugin)
    predicted = instructions(summary["predicted_time_ns"], "microbit", "cortex-m0")
    assert predicted == pytest.approx(step.instructions, rel=0.05)


# Deadlines


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "ram", "shorter", "deadlines"),
    [("gesture_mlp", 9600, 0.995, 3), *more(("kws_conv", 8920, 0.999, 2))],
)
def test_deadlines(
    model: str,
    ram: int,
    shorter: float,
    deadlines: int,
    plugin: Path,
    profiles: Path,
    tmp_path: Path,
) -> None:
    """Each deadline has another schedule; the counted steps meet them."""
    board, cpu = MPS2
    path = profile(model, board, cpu, profiles)
    options = (f"--ram={ram}", "--stack=448")
    found: list[StepCount] = []
    programs: set[str] = set()
    energies: list[float] = []
    limit_ns = 10**9
    for number in range(deadlines):
        directory = tmp_path / str(number)
        deadline = f"--deadline={limit_ns}ns"
        summary = compiled(model, board, path, directory, *options, deadline)
        (step,) = count_steps(directory, cpu, plugin)
        found.append(step)
        assert summary["deadline_ns"] == limit_ns >= summary["predicted_time_ns"]
        # The check of floating point at the start of a step is not in the profile.
        checking = sum(n for name, n in step.calls if name == "model_check")
        assert step.instructions - checking <= instructions(limit_ns, board, cpu)
        programs.add((directory / "model.c").read_text())
        energies.append(summary["energy_nj"])
        limit_ns = int(summary["predicted_time_ns"] * shorter)
    assert len(programs) == deadlines
    counts = [step.instructions for step in found]
    assert counts == sorted(set(counts), reverse=True)
    assert energies == sorted(energies)


@pytest.mark.slow
def test_the_fastest_of_both_is_told(
    profiles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With parameters in RAM or on storage: there is none, and the message is about the former."""
    path = profile("kws_conv", *MPS2, profiles)
    words = [str(MODELS / "kws_conv.mlir"), f"--profile={path}", f"--board={MPS2[0]}"]
    words += ["--ram=8920", "--stack=448", "-o", str(tmp_path / "out"), "-q"]
    assert main([*words, "--deadline=1ms"]) == 3
    fastest = re.search(r"fastest schedule known takes ([\d.]+) ms", capsys.readouterr().err)
    assert fastest is not None
    # A proof for one order of the kernels is none for all.
    assert main([*words, f"--deadline={float(fastest[1]) - 0.01:.3f}ms"]) == 4
    message = capsys.readouterr().err
    assert f"at least {fastest[1]} ms" in message
    assert f"schedule known takes {fastest[1]} ms" in message


@pytest.mark.slow
def test_a_deadline_with_pages_in_blocks(plugin: Path, profiles: Path, tmp_path: Path) -> None:
    """On a memory card a step takes longer or shorter by where its pages are in blocks."""
    path = profile("kws_conv", LM3S, "cortex-m4", profiles)
    options = ("--ram=8200", "--stack=448")
    free = compiled("kws_conv", LM3S, path, tmp_path / "0", *options)
    assert free["predicted_time_ns"] != free["time_ns"]
    limit_ns = free["predicted_time_ns"] * 996 // 1000
    late = compiled("kws_conv", LM3S, path, tmp_path / "1", *options, f"--deadline={limit_ns}ns")
    assert late["predicted_time_ns"] <= limit_ns
    (step,) = count_steps(tmp_path / "1", "cortex-m4", plugin)
    # What is predicted is a sum of what was measured, to some hundreds of instructions; the check
    # of floating point and the tag of the step's inputs are not in it.
    start = ("model_check", "poetc_tag_word", "poetc_tag_bytes")
    others = sum(n for name, n in step.calls if name in start)
    predicted = instructions(late["predicted_time_ns"], LM3S, "cortex-m4")
    assert abs(step.instructions - others - predicted) <= 0.0005 * predicted


# Costs


TRANSFERS = Transfers(
    in_fixed=100.0,
    in_per_byte=2.0,
    out_fixed=50.0,
    out_per_byte=3.0,
    open=10.0,
    commit=20.0,
    block_bytes=512,
    per_part=5.0,
    block_read=1000.0,
    block_write=2000.0,
    copy_per_byte=1.0,
)


def test_blocks_by_hand() -> None:
    """Reads and writes of a store with one block in RAM."""
    buffer = BlockBuffer(512)
    # Two bytes at the end of block 0 and two at the start of block 1; the CRC is in block 1.
    assert buffer.move_page(False, 510, 4) == (3, 2, 0, 8)
    # It is there already.
    assert buffer.move_page(False, 516, 4) == (2, 0, 0, 8)
    # All of block 2 directly; the CRC goes to block 3, which is read first.
    assert buffer.move_page(True, 1024, 512) == (2, 1, 1, 4)
    # Block 3 was changed and is written before block 0 is read.
    assert buffer.move_page(False, 0, 4) == (2, 1, 1, 8)


@pytest.mark.parametrize("out", [False, True])
@pytest.mark.parametrize("length", [0, 4, 508, 512, 1020, 2044, 5000, 65536])
def test_expected_transfers(out: bool, length: int) -> None:
    """The average over all places, each followed block by block."""
    total = 0.0
    for place in range(0, 512, 4):
        buffer = BlockBuffer(512)
        total += TRANSFERS.cost(out, place, length, buffer)
        total += TRANSFERS.block_write * buffer.dirty
    assert TRANSFERS.expected(out, length) == pytest.approx(total / 128, rel=1e-12)


def some_profile(**changes) -> Profile:
    values = {
        "path": Path("p.toml"),
        "board": "microbit",
        "cpu": "cortex-m0",
        "compiler": 'a "compiler" \\ 1.0',
        "flags": "-O2",
        "unit": "instructions",
        "transfers": replace(TRANSFERS, block_bytes=0),
        "kernels": {"00112233445566aa": 1234.0},
        "labels": {"00112233445566aa": "dot"},
    }
    return Profile(**(values | changes))


def test_time_and_energy(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(some_profile().to_toml())
    device = device_of(None, str(path), "host")
    described = load_device("microbit-cortex-m0")
    assert device.name == "microbit-cortex-m0, measured on microbit, cortex-m0"
    assert not device.dma
    ns = described.cycles_per_instruction / described.clock_hz * 1e9
    # A page of 104 bytes is 100 bytes and their CRC.
    into, out = pagein_cost(104, device), pageout_cost(104, device)
    assert into.time_ns == pytest.approx(300 * ns, abs=1)
    assert out.time_ns == pytest.approx(350 * ns, abs=1)
    assert described.storage is not None
    power_w = described.active_power_w + described.storage.power_w
    assert into.energy_nj == pytest.approx(300 * ns * power_w, abs=1)
    path.write_text(some_profile(unit="ns").to_toml())
    into = pagein_cost(104, device_of("nrf52840", str(path), "host"))
    assert into.time_ns == pytest.approx(300, abs=1)


def test_the_file_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    written = some_profile(path=path, kernels={"00112233445566aa": 0.5, "ff" * 8: 3e15})
    path.write_text(written.to_toml())
    assert load_profile(str(path)) == written
    assert load_profile(str(path)).to_toml() == written.to_toml()


KERNEL = """\
"memref.global"() <{{sym_name = "{table}", sym_visibility = "private", constant,
    type = memref<2xf32>, initial_value = dense<[{value}, 2.0]> : tensor<2xf32>}}> : () -> ()
func.func private @{name}(%{x}: memref<2xf32>, %r: memref<2xf32>)
    attributes {{poet.inputs = 1 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64}} {{
  %t = memref.get_global @{table} : memref<2xf32>
  affine.for %i = 0 to 2 {{
    %a = affine.load %{x}[%i] : memref<2xf32>
    %b = affine.load %t[%i] : memref<2xf32>
    %c = arith.{op} %a, %b : f32
    affine.store %c, %r[%i] : memref<2xf32>
  }}
  func.return
}}
"""


def key_of(**changes: str) -> str:
    names = {"table": "t0", "value": "1.0", "name": "f", "x": "x", "op": "addf"} | changes
    module = parse_module(KERNEL.format(**names), "kernel.mlir")
    (function,) = (op for op in module.ops if isinstance(op, FuncOp))
    return kernel_key(function)


def test_what_a_kernel_is_known_by() -> None:
    """Names are nothing; operations and constants are."""
    assert key_of() == key_of(name="g", x="y", table="t9")
    assert len({key_of(), key_of(op="mulf"), key_of(value="3.0")}) == 3


@pytest.mark.slow
def test_kernels_in_common() -> None:
    """Two copies of a model, in one of which a kernel has another shape."""
    text = (MODELS / "gesture_mlp.mlir").read_text()

    def keys(text: str) -> set[str]:
        module = parse_module(text, "m.mlir")
        run_passes(make_context(), module, front_passes(module, "host")[:4], lambda *_: None)
        return {kernel_key(op) for op in module.ops if isinstance(op, FuncOp)}

    assert keys(text) == keys(text)
    assert len(keys(text) & keys(text.replace("x18x", "x19x"))) > 0


def test_samples() -> None:
    """All of what is small; shares of zeros, signs and magnitudes of what is large."""
    small = np.arange(SAMPLES, dtype=np.float32)[::-1]
    assert np.array_equal(sample(small), small)
    random = np.random.default_rng(1)
    large = random.standard_normal(10_000).astype(np.float32)
    large[: 10_000 // 4] = 0
    picked = sample(large)
    assert len(picked) == SAMPLES
    assert np.mean(picked == 0) == pytest.approx(0.25, abs=1 / SAMPLES)
    assert np.mean(picked > 0) == pytest.approx(0.375, abs=2 / SAMPLES)
    assert sample(np.array([[True, False]])).dtype == np.uint8


# A board of one's own

BOARD = """\
#include <stddef.h>

#include "board.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))

static uint8_t *const memory = (uint8_t *)0x20200000u;
static poetc_store store;

static poetc_status read_memory(poetc_store *s, uint32_t offset, void *data, uint32_t length,
                                uint32_t *done)
{
    (void)s;
    for (*done = 0; *done < length; ++*done) {
        ((uint8_t *)data)[*done] = memory[offset + *done];
    }
    return POETC_OK;
}

static poetc_status write_memory(poetc_store *s, uint32_t offset, const void *data,
                                 uint32_t length, uint32_t *done)
{
    (void)s;
    for (*done = 0; *done < length; ++*done) {
        memory[offset + *done] = ((const uint8_t *)data)[*done];
    }
    return POETC_OK;
}

static const poetc_store_operations operations = {
    .read = read_memory,
    .write = write_memory,
};

/* Serial port and timer 0, which counts down at 25 MHz. */
void board_init(void)
{
    REGISTER(0x40004010u) = 16;
    REGISTER(0x40004008u) = 1;
    REGISTER(0x40000004u) = UINT32_MAX;
    REGISTER(0x40000008u) = UINT32_MAX;
    REGISTER(0x40000000u) = 1;
}

uint32_t board_ticks(void)
{
    return UINT32_MAX - REGISTER(0x40000004u);
}

uint32_t board_ticks_per_second(void)
{
    return TICKS_PER_SECOND;
}

void board_print(const char *text)
{
    for (; *text != 0; ++text) {
        while ((REGISTER(0x40004004u) & 1u) != 0) {
        }
        REGISTER(0x40004000u) = (uint8_t)*text;
    }
}

poetc_status board_open_store(poetc_store **opened, bool keep)
{
    (void)keep;
    store.operations = &operations;
    *opened = &store;
    return POETC_OK;
}

poetc_status board_close_store(void)
{
    return POETC_OK;
}

void board_exit(int status)
{
    const uint32_t parameters[2] = {0x20026, (uint32_t)status};
    register uint32_t r0 __asm__("r0") = 0x20;
    register const void *r1 __asm__("r1") = parameters;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}
"""
"""For another machine than those that poetc knows: a serial port, and a clock."""


def log_of(directory: Path, ticks_per_second: int = 25_000_000) -> str:
    """What the measuring program prints over the serial port, at 32 ns for each instruction."""
    (directory / "board.c").write_text(BOARD)
    flags = f"-O2 -DTICKS_PER_SECOND={ticks_per_second}u"
    make_well(directory, "-B", "CPU=cortex-m4", flags=flags)
    done = subprocess.run(
        [
            *("qemu-system-arm", "-machine", "mps2-an386", "-display", "none", "-monitor", "none"),
            *("-serial", "stdio", "-semihosting-config", "enable=on,target=native"),
            *("-icount", "shift=5", "-kernel", directory / "build" / "cortex-m4" / "measure.elf"),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_real_board(profiles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The user builds and runs the program, and poetc reads what it prints.

    The clock of the board is QEMU's, which gives each instruction the same time: another way to
    count them.
    """
    directory = tmp_path / "fw"
    arrays = f"--data={MODELS / 'gesture_mlp.npz'}"
    run("profile", GESTURE, arrays, "--board=generic", "--cpu=cortex-m4", "--program", directory)
    (tmp_path / "log.txt").write_text("boot\r\n" + log_of(directory).replace("\n", "\r\n"))
    path = tmp_path / "p.toml"
    run("profile", GESTURE, "--from", tmp_path / "log.txt", "-o", path)
    timed = load_profile(str(path))
    assert (timed.board, timed.cpu, timed.unit) == ("generic", "cortex-m4", "ns")
    counted = load_profile(str(profile("gesture_mlp", *MPS2, profiles)))
    assert timed.labels.items() <= counted.labels.items() and len(timed.kernels) == 13
    for key, ns in timed.kernels.items():
        # A tick is 40 ns.
        assert ns == pytest.approx(32 * counted.kernels[key], abs=120, rel=1e-3)
    # Not the same store, but the same CRC.
    assert timed.transfers.in_per_byte > 32 * counted.transfers.in_per_byte
    # Of which device, poetc cannot know.
    assert main([GESTURE, f"--profile={path}", "-q"]) == 2
    said = capsys.readouterr().err
    assert "from generic, cortex-m4, of which no device is known: --device=FILE.toml" in said
    run(GESTURE, f"--profile={path}", "--device=nrf52840", "--ram=32KB", "-o", tmp_path / "out")
    assert 'device = "nrf52840, measured on generic, cortex-m4"' in (tmp_path / "out").read_text()
    (tmp_path / "log.txt").write_text(log_of(directory, 0))
    assert main(["profile", "--from", str(tmp_path / "log.txt")]) == 2
    assert "no time was measured: board_ticks_per_second() is 0" in capsys.readouterr().err


@pytest.mark.slow
def test_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    assert "host: 13 kernels measured, 13 in all, in ns" in run("profile", GESTURE, "-o", path)
    found = load_profile(str(path))
    # What calling nothing takes is left out, and a clock may not see the smallest kernels.
    assert all(cost >= 0 for cost in found.kernels.values()) and max(found.kernels.values()) > 0
    run(GESTURE, f"--profile={path}", "--ram=8KB", "--stream=never", "-o", tmp_path / "out")
    assert 'device = "host, measured on host"' in (tmp_path / "out").read_text()


# Errors

LOG = """\
poetc-measure 1 generic cortex-m4 1000000 0 12.2
nothing 1
kernel 00112233445566aa 100
out 0 4 20
in 0 4 10
commit 5
open 6
end
"""


def refusal(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line with which the command `words` is refused as bad input."""
    capsys.readouterr()
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("poetc-measure", "hello"),
            "log.txt: no measurement in it; it begins with 'poetc-",
        ),
        (("measure 1 ", "measure 2 "), "log.txt:1:1: not a measurement of format 1: "),
        ((" 12.2\n", "\n"), "log.txt:1:1: not a measurement of format 1: "),
        (("aa 100", "aa 1x0"), "log.txt:3:1: not a line of a measurement: 'kernel 00112233"),
        (("aa 100", "a 100"), "log.txt:3:1: not a line of a measurement"),
        (
            ("out 0 4 20", "failed: a page is corrupt"),
            "log.txt:4:1: not a line of a measurement",
        ),
        (("end\n", ""), "log.txt: the measurement has no end; the program did not finish"),
        (("open 6\n", ""), "log.txt: nothing was measured of: open"),
    ],
)
def test_bad_logs(
    change: tuple[str, str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log.txt").write_text(LOG)
    assert main(["profile", "--from=log.txt", "-o", "good.toml"]) == 0
    assert load_profile("good.toml").kernels == {"00112233445566aa": 99_000.0}
    assert LOG.count(change[0]) == 1
    Path("log.txt").write_text(LOG.replace(*change))
    assert message in refusal(["profile", "--from=log.txt", "-o", "p.toml"], capsys)
    assert not Path("p.toml").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("format = 1", "format = 2"), "p.toml is not a profile of format 1; poetc profile makes"),
        (('board = "microbit"\n', ""), "p.toml: missing board"),
        (('"microbit"', "3"), "p.toml:3:1: board: must be a string, got 3"),
        (('"instructions"', '"cycles"'), "unit: must be instructions or ns, not 'cycles'"),
        (("00112233445566aa", "00112233445566ag"), "not a kernel's hash of 16 hexadecimal digits"),
        (("= 1234", "= -1"), "p.toml:24:1: kernels.00112233445566aa: must be not negative, got -1"),
        (("= 1234", "= nan"), "00112233445566aa: must be finite, got nan"),
        (("= 1234", '= "1"'), "00112233445566aa: must be a number"),
        (("= 1234", "="), "p.toml:24:21: not valid TOML: Invalid value"),
        (
            ("in_fixed", "in_fixe"),
            "p.toml:10:1: transfers.in_fixe: unknown key; known are ",
        ),
        (("in_fixed = 100\n", ""), "p.toml: missing in_fixed in [transfers]"),
        (("block_bytes = 0", "block_bytes = 3"), "block_bytes: must be 0 or a power of two"),
        (("[transfers]", "[transfer]"), "transfer: unknown key; known are board, "),
    ],
)
def test_bad_profiles(
    change: tuple[str, str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    text = some_profile().to_toml()
    assert text.count(change[0]) == 1
    Path("p.toml").write_text(text.replace(*change))
    assert message in refusal([GESTURE, "--profile=p.toml", "-q"], capsys)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([GESTURE, "--board=x"], "unknown board 'x'; known boards are generic, host, lm3s6965, "),
        (
            [GESTURE, "--board=microbit", "--cpu=cortex-m4"],
            "cpu=cortex-m4: microbit has cortex-m0",
        ),
        ([GESTURE, "--board=generic"], "generic is not emulated: --program=DIRECTORY writes the"),
        ([], "no input file; see poetc profile --help"),
        (
            [GESTURE, "--program=d", "-o", "p.toml"],
            "--program only writes a program; --output",
        ),
        ([GESTURE, "--from=log.txt"], "log.txt: kernel 00112233445566aa is none of this model's"),
        (["--from=log.txt", "--board=microbit"], "--board=microbit, but log.txt is from generic"),
        (
            [GESTURE, "--board=mps2-an386", "-o", "other.toml"],
            "measured with board 'microbit', this",
        ),
        (["--from=gone.txt"], "cannot read gone.txt: No such file or directory"),
        (
            ["--from=log.txt", "-o", "other.toml"],
            "other.toml was measured with board 'microbit'",
        ),
        ([GESTURE, "--data=log.txt"], "log.txt is not an .npz file of arrays, or is damaged"),
        ([GESTURE, "--data=few.npz"], "few.npz has no arg1; the model takes 8"),
        (
            [GESTURE, "--data=wrong.npz"],
            "wrong.npz: arg0 must be float32 of shape (32,), not",
        ),
        ([GESTURE, "--board=mps2-an386", "--cflags=-O9x"], "building firmware: make failed: "),
        ([GESTURE, "-o", GESTURE], "it is the same file as the input"),
    ],
)
def test_refused(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log.txt").write_text(LOG)
    Path("other.toml").write_text(some_profile().to_toml())
    np.savez("few.npz", arg0=np.zeros(32, np.float32))
    np.savez("wrong.npz", arg0=np.zeros(32))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert message in refusal(["profile", *words], capsys)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_device_without_a_clock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.toml"
    path.write_text(some_profile().to_toml())
    assert main([GESTURE, f"--profile={path}", "--device=rpi4b"]) == 2
    assert (
        "device rpi4b does not say clock_hz and cycles_per_instruction" in capsys.readouterr().err
    )


@pytest.mark.slow
def test_profiles_are_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not with another board, nor with costs or a schedule that were made without the profile."""
    path = tmp_path / "p.toml"
    path.write_text(some_profile().to_toml())
    asked = f"--profile={path}"
    assert main([GESTURE, asked, f"--board={LM3S}", "--emit=c", "-o", str(tmp_path / "out")]) == 2
    assert f"is of board microbit, not of --board={LM3S}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    scheduled = str(tmp_path / "scheduled.mlir")
    assert main([GESTURE, "-q", "-o", scheduled]) == 0
    assert main([scheduled, asked]) == 2
    said = capsys.readouterr().err
    assert f"scheduled already, for device nrf52840, but {asked} is asked for" in said
    # The name of the device is the same with every profile of the board.
    device = device_of(None, str(path), "host")
    module = parse_module(Path(GESTURE).read_text(), GESTURE)
    run_passes(make_context(), module, front_passes(module, "host"), lambda *_: None)
    graphs(module)[0].attributes["device"] = StringAttr(device.name)
    again = [step.name for step in front_passes(module, "microbit-cortex-m0", device)]
    assert again == ["poet-annotate", "poet-order"]


def test_kernels_that_a_board_cannot_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(MODELS / "lenet5.mlir"), "--board=microbit"]) == 2
    assert re.search(
        r'kernel "\w+" has [\d,]+ bytes of operands and results, more than the 31,512 that micro',
        capsys.readouterr().err,
    )


@pytest.mark.parametrize("data", [b"", bytes(64 << 20)])
def test_data_are_bounded_before_they_are_read(
    data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = io.BytesIO()
    np.lib.format.write_array_header_2_0(
        stream, {"descr": "<f4", "fortran_order": False, "shape": (32,) if data else (10**30,)}
    )
    with zipfile.ZipFile(tmp_path / "in.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("arg0.npy", stream.getvalue() + data)
    command = ["profile", GESTURE, f"--data={tmp_path / 'in.npz'}", f"--program={tmp_path / 'out'}"]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "more than the" in error and error.count("\n") == 1
