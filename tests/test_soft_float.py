"""Soft floats of boards without a floating-point unit, against the floating-point unit here."""

from __future__ import annotations

import subprocess
from pathlib import Path

from c_support import compile_c

from poetc.backends.c import boards

SOURCE = Path(boards.__file__).parent / "common" / "soft_float.c"
NAMES = {"fmul": "soft_mul", "fadd": "soft_add", "fsub": "soft_sub", "frsub": "soft_rsub"}
PAIRS = 10_000_000


def test_all_operands_give_the_bits_of_the_processor(tmp_path: Path) -> None:
    renamed = [f"-D__aeabi_{name}={ours}" for name, ours in NAMES.items()]
    # Shifts and casts that C leaves undefined are found, too.
    flags = ("-O2", "-D__ARM_ARCH_6M__", "-fsanitize=undefined", "-fno-sanitize-recover=all")
    sources = [SOURCE, Path(__file__).parent / "soft_float.c"]
    program = compile_c(sources, tmp_path / "program", flags=(*flags, *renamed))
    done = subprocess.run([program, str(PAIRS)], capture_output=True, text=True, check=False)
    assert done.stdout == f"{PAIRS} pairs\n", done.stdout + done.stderr
    assert done.returncode == 0


def test_a_wrong_bit_is_found(tmp_path: Path) -> None:
    wrong = tmp_path / "soft_float.c"
    text = SOURCE.read_text()
    assert "ea - 33u >= 221u" in text
    wrong.write_text(text.replace("ea - 33u >= 221u", "ea - 3u >= 251u"))
    renamed = [f"-D__aeabi_{name}={ours}" for name, ours in NAMES.items()]
    sources = [wrong, Path(__file__).parent / "soft_float.c"]
    flags = ("-O2", "-D__ARM_ARCH_6M__", *renamed)
    program = compile_c(sources, tmp_path / "program", flags=flags)
    assert subprocess.run([program, str(PAIRS)], capture_output=True, check=False).returncode == 1
