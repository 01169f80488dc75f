"""Counts the instructions of firmware in QEMU, with the plugin count_instructions.c.

The plugin is compiled when it is needed, with the C compiler of this machine.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from poetc.backends.c.boards import CROSS_COMPILER
from poetc.errors import InputError

PLUGIN = Path(__file__).parent / "count_instructions.c"
QEMU = "qemu-system-arm"
CROSS = CROSS_COMPILER.removesuffix("gcc")


@dataclass(frozen=True)
class Counted:
    """A run: what the firmware printed, and for each time that it came to a mark (a number), the
    instructions executed before. `total` are all instructions."""

    printed: str
    marks: tuple[tuple[int, int], ...]
    total: int


@dataclass(frozen=True)
class StepCount:
    """Instructions of one step, call of `model_step` and return included, and those of each call
    that it makes, in order, with the name of the function; of those in turn what functions of
    mathematics take that they call."""

    instructions: int
    calls: tuple[tuple[str, int], ...]
    mathematics: tuple[int, ...]


def run_tool(command: Sequence[str | Path], purpose: str) -> subprocess.CompletedProcess[str]:
    """Runs a program. Raises InputError if it is not there or fails."""
    if shutil.which(str(command[0])) is None:
        raise InputError(f"{purpose} needs {command[0]}, which is not installed")
    done = subprocess.run(list(command), capture_output=True, text=True, errors="replace")
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        reason = next((line for line in lines if "rror" in line or "failed" in line), None)
        shown = reason or (lines[-1] if lines else f"exit status {done.returncode}")
        raise InputError(f"{purpose}: {command[0]} failed: {shown.strip()}")
    return done


def host_compiler(purpose: str) -> str:
    """The C compiler of this machine. Raises InputError if there is none."""
    compiler = next((name for name in ("gcc", "cc", "clang") if shutil.which(name)), None)
    if compiler is None:
        raise InputError(f"{purpose} needs a C compiler for this machine: gcc or cc")
    return compiler


@contextmanager
def counter() -> Iterator[Path]:
    """The compiled plugin, in a directory of its own."""
    compiler = host_compiler("counting instructions")
    with tempfile.TemporaryDirectory(prefix="poetc-count-") as name:
        library = Path(name) / "count_instructions.so"
        options = ("-std=c99", "-O2", "-shared", "-fPIC")
        run_tool((compiler, *options, "-o", library, PLUGIN), "counting instructions")
        yield library


def count(
    directory: Path, cpu: str, marks: Sequence[int], plugin: Path, words: Sequence[str] = ()
) -> Counted:
    """Builds and runs the firmware in `directory`, with `words` for make.

    Raises InputError if it cannot be built, or does not end well.
    """
    result = plugin.parent / "count.txt"
    options = ",".join([str(plugin), f"out={result}", *(f"mark={mark:#x}" for mark in marks)])
    qemu = f"QEMU={QEMU} -plugin {options}"
    if shutil.which(QEMU) is None:
        raise InputError(f"counting instructions needs {QEMU}, which is not installed")
    command = ("make", "-s", "-C", directory, "run", f"CPU={cpu}", qemu, *words)
    done = run_tool(command, "counting instructions")
    lines = result.read_text().splitlines()
    if not lines or not lines[-1].startswith("end "):
        raise InputError("counting instructions: the emulator ended before the plugin did")
    found = tuple((int(mark), int(at)) for mark, at in map(str.split, lines[:-1]))
    return Counted(done.stdout + done.stderr, found, int(lines[-1].split()[1]))


def build(directory: Path, cpu: str, words: Sequence[str] = ()) -> None:
    """Builds the firmware in `directory`."""
    if shutil.which(CROSS_COMPILER) is None:
        raise InputError(f"firmware needs {CROSS_COMPILER}, which is not installed")
    run_tool(("make", "-s", "-C", directory, f"CPU={cpu}", *words), "building firmware")


def symbols(program: Path) -> dict[str, int]:
    """Addresses of functions, without the bit that says that they are Thumb code."""
    listing = run_tool((f"{CROSS}nm", program), "reading the firmware").stdout
    found = re.findall(r"^([0-9a-f]+) [Tt] (\w+)$", listing, re.M)
    return {name: int(address, 16) & ~1 for address, name in found}


def count_steps(
    directory: Path,
    cpu: str,
    plugin: Path,
    steps: int = 1,
    words: Sequence[str] = (),
    name: str = "model",
) -> tuple[StepCount, ...]:
    """The instructions of each step of generated firmware, which is run unchanged."""
    build(directory, cpu, words)
    program = directory / "build" / cpu / f"{name}.elf"
    listing = run_tool(
        (f"{CROSS}objdump", "-d", "--no-show-raw-insn", program), "reading the firmware"
    ).stdout
    calls: dict[int, tuple[int, str]] = {}
    function = ""
    lines = re.findall(r"^(?: +([0-9a-f]+):\s+(.*)|[0-9a-f]+ <(\w+)>:)$", listing, re.M)
    for (address, text, start), (after, *_) in zip(lines, [*lines[1:], ("", "", "")], strict=True):
        function = start or function
        called = re.match(r"bl\s+[0-9a-f]+ <(\w+)>", text)
        if called and (
            f"{name}_step" in (function, called[1])
            or (called[1].startswith("poetc_") and function.startswith(f"{name}_"))
        ):
            calls[int(address, 16)] = (int(after, 16), called[1])
    marks = sorted({*calls, *(after for after, _ in calls.values())})
    counted = count(directory, cpu, marks, plugin, (f"STEPS={steps}", *words))
    found: list[StepCount] = []
    inside: list[tuple[str, int]] = []
    mathematics = [0]
    # Calls that have not returned: where they return to, what is called, the count before.
    waiting: list[tuple[int, str, int]] = []
    for mark, executed in counted.marks:
        address = marks[mark]
        if waiting and address == waiting[-1][0]:
            _, called, before = waiting.pop()
            if called == f"{name}_step":
                found.append(StepCount(executed - before, tuple(inside), tuple(mathematics[:-1])))
                inside, mathematics = [], [0]
            elif len(waiting) == 1:
                inside.append((called, executed - before))
                mathematics.append(0)
            elif waiting:
                mathematics[-1] += executed - before
        if address in calls:
            waiting.append((*calls[address], executed))
    assert len(found) == steps, counted.printed
    return tuple(found)
