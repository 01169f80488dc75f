"""Soft floats of boards without a floating-point unit, against that of this machine and, for
instructions of the core, against the library of its compiler."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from c_support import compile_c

from poetc.backends.c import boards

SOURCE = Path(boards.__file__).parent / "common" / "soft_float.c"
COMPARE = Path(__file__).parent / "soft_float.c"
NAMES = ("fmul", "fadd", "fsub", "frsub", "fdiv", "ui2f", "i2f", "ul2f", "l2f")
RENAMED = tuple(f"-D__aeabi_{name}=soft_{name}" for name in NAMES)
PAIRS = 10_000_000
EMULATED_PAIRS = 1_000_000


def compared(source: Path, program: Path, flags: Sequence[str], pairs: int) -> str:
    """What the comparison prints: the number of pairs, or the operands with other bits."""
    compile_c([source, COMPARE], program, flags=("-O2", *flags, *RENAMED))
    done = subprocess.run([program, str(pairs)], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def emulated(source: Path, program: Path, pairs: int) -> int:
    """The same by the instructions of a Cortex-M3: the status, one if bits are others."""
    target = ("-mcpu=cortex-m3", "-mthumb", "-O2", "-ffreestanding", "-nostdlib", "-static")
    command = ("arm-none-eabi-gcc", *target, f"-DBARE={pairs}", *RENAMED, source, COMPARE)
    subprocess.run((*command, "-lgcc", "-o", program), check=True)
    return subprocess.run(("qemu-arm", program), check=False).returncode


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["6M", "7M"])
def test_all_operands_give_the_bits_of_the_processor(architecture: str, tmp_path: Path) -> None:
    # Shifts and casts that C leaves undefined are found, too.
    flags = (f"-D__ARM_ARCH_{architecture}__", "-fsanitize=undefined", "-fno-sanitize-recover=all")
    assert compared(SOURCE, tmp_path / "program", flags, PAIRS) == f"{PAIRS} pairs\n"


@pytest.mark.slow
def test_all_operands_give_the_bits_of_the_library(tmp_path: Path) -> None:
    assert emulated(SOURCE, tmp_path / "program", EMULATED_PAIRS) == 0


@pytest.mark.parametrize("core", ["cortex-m0", "cortex-m3"])
def test_clang_compiles_it(core: str, tmp_path: Path) -> None:
    target = ("--target=arm-none-eabi", f"-mcpu={core}", "-mthumb", "-O2", "-ffreestanding")
    warnings = ("-Wall", "-Wextra", "-Wconversion", "-Werror")
    command = ("clang", *target, *warnings, "-c", SOURCE, "-o", tmp_path / "soft_float.o")
    subprocess.run(command, check=True)


def changed(tmp_path: Path, right: str, wrong: str) -> Path:
    text = SOURCE.read_text()
    assert right in text
    source = tmp_path / "soft_float.c"
    source.write_text(text.replace(right, wrong))
    return source


def test_a_wrong_bit_is_found(tmp_path: Path) -> None:
    wrong = changed(tmp_path, "ea - 33u >= 221u", "ea - 3u >= 251u")
    assert "not" in compared(wrong, tmp_path / "program", ("-D__ARM_ARCH_6M__",), PAIRS)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('"cbnz  r3, 3f', '"cbz   r3, 3f'),  # ties of products
        ('"bics  r2, r2, ip', '"nop'),  # products that overflow
        ('"cmp   r2, #254', '"cmp   r2, #255'),  # sums that overflow
        ('"bcs   8f', '"nop'),  # differences that are denormal
    ],
)
def test_a_wrong_instruction_is_found(right: str, wrong: str, tmp_path: Path) -> None:
    assert emulated(changed(tmp_path, right, wrong), tmp_path / "program", EMULATED_PAIRS) == 1
