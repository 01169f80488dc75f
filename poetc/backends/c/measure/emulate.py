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
