"""Profiles against the firmware they are for: counted steps, predicted times, deadlines, cycles.

    python -m benchmarks.profile steps        instructions of a step, and what the profile says
    python -m benchmarks.profile kernels      instructions of each kernel in a step
    python -m benchmarks.profile deadlines    up to three deadlines for each model
    python -m benchmarks.profile cycles       cycles per instruction, for the device files

Names of models after that restrict it to those. Prints the tables of docs/profile.md, for kernels
all of docs/instructions.md (`--output docs/instructions.md`). Needs QEMU and arm-none-eabi-gcc.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import document
from benchmarks.boards import MODELS, STORAGE, compile_model, write_data
from benchmarks.step_counts import StepCount, count_steps
from poetc.backends.c.measure.emulate import build, counter
from poetc.cli import main as poetc
from poetc.costmodel.device import load_device
from poetc.units import format_energy, format_time

MPS2 = ("mps2-an386", "cortex-m4")


@dataclass(frozen=True)
class Case:
    """A model on a core of a board; `options` are those of poetc."""

    model: str
    board: str
    cpu: str
    options: tuple[str, ...]


CORES = ("cortex-m0", "cortex-m3", "cortex-m4")
SMALL = ("gesture_mlp", "kws_conv")
LITTLE = ("--ram=8KB", "--stack=640", STORAGE)
CASES = (
    Case("gesture_mlp", "microbit", "cortex-m0", ("--ram=32KB",)),
    Case("gesture_mlp", "microbit", "cortex-m0", ("--ram=6400", "--stack=448")),
    Case("kws_conv", "microbit", "cortex-m0", ("--ram=32KB",)),
    Case("kws_conv", "microbit", "cortex-m0", ("--ram=5300", "--stack=448")),
    *(Case(model, "lm3s6965", cpu, LITTLE) for model in SMALL for cpu in CORES),
    *(Case(model, *MPS2, ("--ram=16KB",)) for model in SMALL),
    Case("lenet5", *MPS2, ("--ram=256KB",)),
    Case("dscnn", *MPS2, ("--ram=256KB",)),
    Case("resnet8", *MPS2, ("--ram=256KB", STORAGE, "--strategy=capuchin")),
    Case("mlp_mnist", *MPS2, ("--ram=1MB",)),
    Case("ae_mnist", *MPS2, ("--ram=1MB",)),
    Case("bert_micro", *MPS2, ("--ram=300KB",)),
)
"""Each model on all boards that have RAM enough, for measuring its kernels, too."""


@dataclass(frozen=True)
class Measured:
    """A program: what poetc says of it, and its first step as it was counted."""

    summary: dict[str, Any]
    step: StepCount
    predicted: float

    @property
    def error(self) -> float:
        """Of the prediction, relative to what was counted."""
        return self.predicted / self.step.instructions - 1


def measure(case: Case, directory: Path, profile: Path) -> Measured:
    """Compiles with the profile, and counts a step. The prediction is in instructions."""
    summary = compile_with(case, directory / "program", profile)
    with counter() as plugin:
        (step,) = count_steps(directory / "program", case.cpu, plugin)
    return Measured(summary, step, instructions(case, summary["predicted_time_ns"]))


def instructions(case: Case, time_ns: float) -> float:
    """What takes that time on the device of the board."""
    device = load_device(f"{case.board}-{case.cpu}")
    return time_ns * 1e-9 * device.clock_hz / device.cycles_per_instruction


def compile_with(case: Case, directory: Path, profile: Path) -> dict[str, Any]:
    """Firmware with its data; the summary."""
    said = io.StringIO()
    words = (f"--board={case.board}", f"--profile={profile}", "--emit=c", "--json", *case.options)
    with contextlib.redirect_stderr(said):
        code = poetc([str(MODELS / f"{case.model}.mlir"), *words, "-o", str(directory)])
    text = said.getvalue()
    if code != 0:
        sys.exit(text)
    write_data(case.model, directory)
    return json.loads(text[text.index("{") : text.rindex("}") + 1])


def profile_of(case: Case, everything: Path, data: bool = True) -> Path:
    """A profile of the kernels of a model, on values of a step or on random ones."""
    return _profile(case.model, case.board, case.cpu, everything, data)


@cache
def _profile(model: str, board: str, cpu: str, everything: Path, data: bool) -> Path:
    path = everything / f"{model}-{board}-{cpu}-{data}.toml"
    words = [str(MODELS / f"{model}.mlir"), f"--board={board}", f"--cpu={cpu}", "-q"]
    words += [f"--data={MODELS / f'{model}.npz'}"] if data else []
    if poetc(["profile", *words, "-o", str(path)]) != 0:
        sys.exit(1)
    return path


# Steps


def steps(everything: Path, models: Collection[str]) -> None:
    """What a step takes, and what the profile says that it takes.

    Random data make a difference where floating point is done in software.
    """
    print(
        "| model | board, core | options | instructions | transfers | largest kernels | predicted "
        "| error | error, random data |\n|---|---|---|--:|--:|---|--:|--:|--:|"
    )
    for number, case in enumerate(document.progress(c for c in CASES if c.model in models)):
        directory = everything / f"steps-{number}"
        directory.mkdir()
        found = measure(case, directory, profile_of(case, everything))
        total = found.step.instructions
        guess = ""
        if case.cpu != "cortex-m4":
            random = compile_with(case, directory / "random", profile_of(case, everything, False))
            guess = f"{instructions(case, random['predicted_time_ns']) / total - 1:+.2%}"
        moved = sum(n for name, n in found.step.calls if name.startswith("poetc_"))
        cells = (
            case.model,
            f"{case.board}, {case.cpu}",
            f"`{' '.join(case.options)}`",
            f"{total:,}",
            f"{moved / total:.1%}",
            _largest(found.step),
            f"{found.predicted:,.0f}",
            f"{found.error:+.2%}",
            guess,
        )
        print(f"| {' | '.join(cells)} |", flush=True)


def _largest(step: StepCount) -> str:
    """The kernels that take most, with their share and how often they run."""
    sums: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    for name, executed in step.calls:
        if "_kernel_" in name:
            short = name.split("_kernel_", 1)[1]
            sums[short] += executed
            runs[short] += 1
    return ", ".join(
        f"`{name}`{f' ×{runs[name]}' if runs[name] > 1 else ''} {executed / step.instructions:.0%}"
        for name, executed in sums.most_common(3)
    )


# Kernels

INSTRUCTIONS = """# Instructions of each kernel

What a step of firmware spends its instructions on, counted in the emulator: each kernel, moving
pages, the [storage image](storage.md), and the calls themselves. Boards and options are those of
the [profiles](profile.md#measured), which say what a kernel costs before it runs; the data are
those of `tests/models`. *In 2* means two runs in one step, percentages are shares of the step.

Made by `python -m benchmarks.profile kernels`."""


def kernels(everything: Path, models: Collection[str]) -> None:
    """Instructions of each kernel in one step, of all transfers, and of the rest; a column for each
    core that the model is run on."""
    by_model: dict[str, list[Case]] = {}
    for case in CASES:
        board = "lm3s6965" if case.model in SMALL else MPS2[0]
        if case.model in models and case.board == board:
            by_model.setdefault(case.model, []).append(case)
    print(INSTRUCTIONS)
    for model, cases in by_model.items():
        print(f"\n## {model}\n\n{cases[0].board}, `{' '.join(cases[0].options)}`\n")
        columns: dict[str, dict[str, str]] = {}
        for case in cases:
            directory = everything / f"kernels-{model}-{case.cpu}"
            directory.mkdir()
            found = measure(case, directory, profile_of(case, everything))
            columns[case.cpu] = _shares(found.step)
        print(f"| | {' | '.join(columns)} |\n|---|{'--:|' * len(columns)}")
        for row in dict.fromkeys(row for column in columns.values() for row in column):
            cells = (column.get(row, "") for column in columns.values())
            print(f"| {row} | {' | '.join(cells)} |", flush=True)


def _shares(step: StepCount) -> dict[str, str]:
    """What a step spends its instructions on: kernels by name, in the order of their first call."""
    counts: dict[str, list[int]] = {}
    for name, executed in step.calls:
        row = f"`{name.split('_kernel_', 1)[1]}`" if "_kernel_" in name else _transfer(name)
        counts.setdefault(row, []).append(executed)
    moved = sorted(row for row in counts if not row.startswith("`"))
    cells = {row: counts[row] for row in (*(r for r in counts if r not in moved), *moved)}
    cells["everything else"] = [step.instructions - sum(map(sum, counts.values()))]
    return {"the step": f"{step.instructions:,}"} | {
        row: f"{sum(found):,}{f' in {len(found)}' if len(found) > 1 else ''}"
        f" ({sum(found) / step.instructions:.1%})"
        for row, found in cells.items()
    }


def _transfer(function: str) -> str:
    """What a function of the runtime does."""
    if function.startswith("poetc_image"):
        return "storage image: open, commit"
    return "page-ins" if "_in" in function else "page-outs"


# Deadlines

DEADLINES = (
    (Case("gesture_mlp", *MPS2, ("--ram=9600", "--stack=448")), ("1.4x", "1.3x", "1.1x")),
    (Case("kws_conv", *MPS2, ("--ram=8920", "--stack=448")), ("38ms", "37.2ms", "33ms")),
    (Case("lenet5", *MPS2, ("--ram=240KB",)), ("1.9x", "1.65x", "1.5x")),
    (Case("dscnn", *MPS2, ("--ram=200KB",)), ("2.3x", "1.6x", "1.3x")),
    (Case("resnet8", *MPS2, ("--ram=256KB", STORAGE)), ("2x", "1.4x", "1.1x")),
    (Case("ae_mnist", *MPS2, ("--ram=897500", "--params=ram")), ("1.2x", "1.1x", "1.022x")),
    (Case("bert_micro", *MPS2, ("--ram=300KB",)), ("1.4x", "1.32x", "1.25x")),
)
"""With an x, a deadline is a multiple of the time of the step with unlimited RAM."""


def deadlines(everything: Path, models: Collection[str]) -> None:
    """Up to three deadlines for each model, those with schedules of their own: whether the counted
    steps meet them."""
    print(
        "| model | board, core | options | deadline | predicted | counted | met | energy "
        "| recomputed | page-ins, page-outs |\n|---|---|---|--:|--:|--:|---|--:|--:|--:|"
    )
    chosen = document.progress(d for d in DEADLINES if d[0].model in models)
    for number, (case, given) in enumerate(chosen):
        profile = profile_of(case, everything)
        programs: set[str] = set()
        for turn, deadline in enumerate(given):
            directory = everything / f"deadline-{number}-{turn}"
            directory.mkdir()
            late = replace(case, options=(*case.options, f"--deadline={deadline}"))
            found = measure(late, directory, profile)
            program = (directory / "program" / "model.c").read_text()
            if program in programs:
                continue
            programs.add(program)
            summary = found.summary
            counted_ns = round(found.step.instructions / instructions(case, 1.0))
            assert counted_ns <= summary["deadline_ns"], f"{late}: takes {counted_ns} ns"
            cells = (
                case.model,
                f"{case.board}, {case.cpu}",
                f"`{' '.join(case.options)}`",
                format_time(summary["deadline_ns"]),
                format_time(summary["predicted_time_ns"]),
                format_time(counted_ns),
                "yes",
                format_energy(summary["energy_nj"]),
                str(summary["recomputes"]),
                f"{summary['page_ins']}, {summary['page_outs']}",
            )
            print(f"| {' | '.join(cells)} |", flush=True)


# Cycles

REFILL = 2
"""Cycles for filling the pipeline after a branch that is taken: 1 to 3 on Cortex-M3 and M4."""

CYCLES = {
    "cortex-m0": (
        (r"(ldm|stm|push|pop)", lambda n: 1 + n),
        (r"(ldr|str)", lambda n: 2),
        (r"bl$", lambda n: 2),
        (r"(mrs|msr|dsb|isb|dmb)", lambda n: 4),
    ),
    "cortex-m3": (
        (r"(ldm|stm|push|pop)", lambda n: 1 + n),
        (r"(ldr|str)d", lambda n: 3),
        (r"(ldr|str)", lambda n: 2),
        (r"[su]div", lambda n: 7),
        (r"[su]mull", lambda n: 4),
        (r"[su]mlal", lambda n: 5),
        (r"ml[as]", lambda n: 2),
    ),
    "cortex-m4": (
        (r"(vldm|vstm|vpush|vpop|ldm|stm|push|pop)", lambda n: 1 + n),
        (r"(ldr|str)d", lambda n: 3),
        (r"(vldr|vstr|ldr|str)", lambda n: 2),
        (r"[su]div", lambda n: 7),
        (r"(vdiv|vsqrt)", lambda n: 14),
    ),
}
"""Cycles by mnemonic, given the number of registers in the list of the instruction; all others take
one. Arm's Technical Reference Manuals of the cores, tables of instruction cycles, without wait
states: Cortex-M0 (DDI 0432, 3.3; fast multiplier), M3 (DDI 0337, 18.2), M4 (DDI 0439, 3.3 and 7.2).
Divisions of integers take 2 to 12 cycles and long multiplications of the M3 3 to 5: the middle."""


def cycles(everything: Path, models: Collection[str]) -> None:
    """The average over the instructions of a step, as QEMU's own trace has them."""
    print(
        "| core | model | instructions | cycles | cycles per instruction |\n|---|---|--:|--:|--:|"
    )
    for board, cpu in (
        ("lm3s6965", "cortex-m0"),
        ("lm3s6965", "cortex-m3"),
        ("lm3s6965", "cortex-m4"),
    ):
        for model in sorted({"gesture_mlp", "kws_conv"}.intersection(models)):
            directory = everything / f"cycles-{cpu}-{model}"
            compile_model(model, directory, (f"--board={board}",))
            build(directory, cpu)
            executed, spent = step_cycles(directory, cpu)
            print(
                f"| {cpu} | {model} | {executed:,} | {spent:,} | {spent / executed:.3f} |",
                flush=True,
            )


def step_cycles(directory: Path, cpu: str) -> tuple[int, int]:
    """Instructions of a step of firmware that is built, and the cycles that they take."""
    program = directory / "build" / cpu / "model.elf"
    listing = subprocess.run(
        ["arm-none-eabi-objdump", "-d", "--no-show-raw-insn", program],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    lines = re.findall(r"^ +([0-9a-f]+):\s+(\S+)[ \t]*([^;@<\n]*)", listing, re.M)
    base = {int(address, 16): _base(cpu, name, rest) for address, name, rest in lines}
    addresses = sorted(base)
    following = dict(pairwise(addresses))
    call = re.search(r"^ +([0-9a-f]+):\s+bl\s+\S+ <model_step>", listing, re.M)
    assert call is not None
    begin = int(call[1], 16)
    executed = spent = 0
    inside = False
    before: int | None = None
    for address in _trace(directory, cpu):
        inside = inside or address == begin
        if not inside:
            continue
        if before is not None and following.get(before) != address:
            spent += REFILL
        if before is not None and address == begin + 4:
            return executed, spent
        executed += 1
        spent += base[address]
        before = address
    raise AssertionError("model_step does not return")


def _base(cpu: str, name: str, operands: str) -> int:
    """Cycles of an instruction, a branch not taken."""
    registers = re.search(r"\{(.*)\}", operands)
    number = 0
    for part in registers[1].split(",") if registers else ():
        ends = [int(n) for n in re.findall(r"\d+", part)]
        number += ends[1] - ends[0] + 1 if len(ends) == 2 else 1
    for pattern, cost in CYCLES[cpu]:
        if re.match(pattern, name):
            return cost(number)
    return 1


def _trace(directory: Path, cpu: str) -> Iterator[int]:
    """Addresses of the instructions that QEMU executes, one for each line of its log."""
    qemu = "QEMU=qemu-system-arm -singlestep -d exec,nochain -D /dev/stdout"
    command = ["make", "-s", "-C", directory, "run", f"CPU={cpu}", qemu]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("Trace "):
                yield int(line.split("/", 2)[1], 16)


def main(words: list[str]) -> None:
    """Prints the table that is asked for."""
    tables = {"steps": steps, "kernels": kernels, "deadlines": deadlines, "cycles": cycles}
    if not words or words[0] not in tables:
        sys.exit(f"usage: python -m benchmarks.profile {'|'.join(tables)} [MODEL...]")
    models = document.chosen(words[1:], [case.model for case in CASES])
    with tempfile.TemporaryDirectory(prefix="poetc-profile-") as name:
        tables[words[0]](Path(name), models)


if __name__ == "__main__":
    document.run(main)
