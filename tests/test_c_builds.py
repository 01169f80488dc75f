"""One model, built in every way that users build: it gives the same bits, or it does not build, or
its check refuses to run. Nothing else is allowed, and each row says which."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import worst_error
from conftest import MODELS, load_arrays, more

from poetc.backends.c.boards import CPU_FLAGS
from poetc.backends.c.emit import RUNTIME
from poetc.backends.c.libraries.library import PRIVATE_HEADERS
from poetc.cli import main

TESTS = Path(__file__).parent
SAME = "same"
"""The outcome of a build that gives the bits of gcc -O0 on this machine."""


def statuses() -> dict[str, int]:
    """The numbers of `poetc_status` by name."""
    text = (RUNTIME / "poetc_store.h").read_text()
    found = re.search(r"typedef enum \{([^}]*)\} poetc_status;", text)
    assert found is not None
    names = re.findall(r"^\s*(POETC_\w+)", found[1], re.M)
    return {name.removeprefix("POETC_"): number for number, name in enumerate(names)}


@dataclass(frozen=True)
class Target:
    """A compiler for a target, and what runs its programs; none: they are only compiled. A target
    is `bare` if neither start files nor a C library are there."""

    compiler: tuple[str, ...]
    runner: tuple[str, ...] | None = ()
    bare: bool = True


def _clang(triple: str, *options: str) -> tuple[str, ...]:
    return (
        "clang",
        f"--target={triple}",
        *options,
        "-fuse-ld=lld-14",
        "-Wno-unused-command-line-argument",
    )


WARNINGS = (
    *("-Werror", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wundef", "-Wcast-align"),
    "-Wdouble-promotion",
)
"""None of them is given for anything that is generated."""

M4 = ("arm-none-eabi-gcc", *CPU_FLAGS["cortex-m4"])
TARGETS = {
    "gcc": Target(("gcc",), bare=False),
    "clang": Target(("clang",), bare=False),
    "gcc32": Target(("gcc", "-m32"), ("qemu-i386",)),
    "clang32": Target(("clang", "-m32"), ("qemu-i386",)),
    "aarch64": Target(("aarch64-linux-gnu-gcc",), ("qemu-aarch64",)),
    "m0": Target(("arm-none-eabi-gcc", *CPU_FLAGS["cortex-m0"]), ("qemu-arm",)),
    "m4": Target(M4, ("qemu-arm",)),
    "riscv64": Target(
        _clang("riscv64", "-march=rv64gc", "-mabi=lp64d", "-mno-relax"), ("qemu-riscv64",)
    ),
    "riscv32": Target(
        _clang("riscv32", "-march=rv32imafc", "-mabi=ilp32f", "-mno-relax"), ("qemu-riscv32",)
    ),
    "m4 big-endian": Target((*M4, "-mbig-endian"), None),
    "aarch64 big-endian": Target(("aarch64-linux-gnu-gcc", "-mbig-endian"), None),
    "powerpc": Target(("clang", "--target=powerpc-linux-gnu"), None),
    "s390x": Target(("clang", "--target=s390x-linux-gnu"), None),
    "mips": Target(("clang", "--target=mips-linux-gnu"), None),
}

FAST = "-ffast-math and -Ofast change results: compile with -fno-fast-math"
UNSAFE = "-funsafe-math-optimizations changes results: compile with -fno-fast-math"
FINITE = "-ffinite-math-only changes results: compile with -fno-fast-math"
EXCESS = "excess precision: on x86, compile with -msse2 -mfpmath=sse"
BIG = "the target is big-endian"
DENORMALS = "FLOAT_DENORMALS"
EXPRESSIONS = "FLOAT_EXPRESSIONS"

# Outcomes: SAME; the status that the check gives; or what the compiler says.
BUILDS: Sequence[tuple[str, str, str]] = (
    # Levels, standards, link-time optimisation, and what is the compiler's own choice.
    ("gcc", "-O0 -std=c11", SAME),
    ("gcc", "-O1 -std=c99", SAME),
    ("gcc", "-O2 -std=c11", SAME),
    ("gcc", "-O3 -std=gnu17 -march=native", SAME),
    ("gcc", "-Os -std=c99 -march=native", SAME),
    ("gcc", "-O2 -std=gnu99 -flto -march=native", SAME),
    ("gcc", "-O3 -funroll-loops -frounding-math -fno-trapping-math -march=native", SAME),
    ("clang", "-O0 -std=c99", SAME),
    ("clang", "-O1 -std=c11", SAME),
    ("clang", "-Os -std=c99 -flto -fuse-ld=lld-14", SAME),
    ("clang", "-O2 -std=c11", SAME),
    ("clang", "-O3 -std=gnu17 -march=native", SAME),
    ("clang", "-Oz -std=c99 -march=native", SAME),
    ("clang", "-O2 -flto -fuse-ld=lld-14 -march=native", SAME),
    # Contraction, against which the source itself speaks. clang does not listen to it.
    ("gcc", "-O2 -std=c99 -mfma -ffp-contract=fast", SAME),
    ("gcc", "-O2 -std=gnu11 -mfma -ffp-contract=fast", SAME),
    ("gcc", "-O2 -flto -mfma -ffp-contract=fast", SAME),
    ("clang", "-O2 -mfma -ffp-contract=on", SAME),
    ("clang", "-O2 -mfma -ffp-contract=fast", EXPRESSIONS),
    ("clang", "-O3 -march=native -ffp-contract=fast -flto -fuse-ld=lld-14", SAME),
    # Options that change expressions, and those that we say take them back.
    ("gcc", "-Ofast", FAST),
    ("gcc", "-O1 -ffast-math", FAST),
    ("gcc", "-O2 -ffast-math -fno-fast-math", SAME),
    ("gcc", "-Ofast -fno-fast-math", DENORMALS),  # of the linker: crtfastmath.o
    ("gcc", "-Ofast -flto -march=native -fno-fast-math", DENORMALS),
    ("gcc", "-O2 -funsafe-math-optimizations", UNSAFE),
    ("gcc", "-O2 -ffinite-math-only", FINITE),
    ("gcc", "-O2 -freciprocal-math", UNSAFE),
    ("gcc", "-O2 -fno-signed-zeros", UNSAFE),
    ("gcc", "-O2 -fassociative-math -fno-signed-zeros -fno-trapping-math", UNSAFE),
    ("clang", "-Ofast", FAST),
    ("clang", "-O1 -ffast-math", FAST),
    ("clang", "-O2 -ffast-math -fno-fast-math -Wno-overriding-t-option", SAME),
    ("clang", "-Ofast -fno-fast-math -Wno-overriding-t-option", DENORMALS),
    ("clang", "-O2 -ffinite-math-only", FINITE),
    ("clang", "-O2 -funsafe-math-optimizations", DENORMALS),
    ("clang", "-O2 -funsafe-math-optimizations -nostartfiles -DBARE", EXPRESSIONS),
    ("clang", "-O2 -freciprocal-math", EXPRESSIONS),
    ("clang", "-O2 -fno-signed-zeros", EXPRESSIONS),
    ("clang", "-O2 -fassociative-math -fno-signed-zeros", EXPRESSIONS),
    # Other targets.
    ("gcc", "-O2 -mfpmath=387", EXCESS),
    ("gcc32", "-O2", EXCESS),
    ("gcc32", "-O2 -msse2 -mfpmath=both", EXCESS),
    ("gcc32", "-O2 -msse2 -mfpmath=sse", SAME),
    ("gcc32", "-O3 -std=c99 -mfma -mfpmath=sse -ffp-contract=fast", SAME),
    ("clang32", "-O2", EXCESS),
    ("clang32", "-O2 -msse2", SAME),
    ("aarch64", "-O3 -std=gnu17", SAME),
    ("aarch64", "-O2 -std=c99 -ffp-contract=fast", SAME),
    ("aarch64", "-O2 -ffast-math", FAST),
    ("m0", "-Os -std=c99", SAME),
    ("m4", "-O2 -std=gnu11", SAME),
    ("m4", "-O2 -std=c99 -ffp-contract=fast", SAME),
    ("m4", "-O2 -DCONTROL=0x01000000u", DENORMALS),
    ("m4", "-O2 -DCONTROL=0x00c00000u", "FLOAT_ROUNDING"),
    ("riscv64", "-O2", SAME),
    ("riscv64", "-O2 -ffp-contract=fast", EXPRESSIONS),
    ("riscv32", "-O3", SAME),
    ("m4 big-endian", "-O2", BIG),
    ("aarch64 big-endian", "-O2", BIG),
    ("powerpc", "-O2", BIG),
    ("s390x", "-O2", BIG),
    ("mips", "-O2", BIG),
)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with its arguments, and no page store."""
    directory = tmp_path_factory.mktemp("builds") / "fw"
    model = MODELS / "gesture_mlp.mlir"
    assert main([str(model), "--emit=c", "-o", str(directory), "-q", "--time-limit=5"]) == 0
    lines = ["#include <stddef.h>", "#include <stdint.h>"]
    arguments, _ = load_arrays(MODELS / "gesture_mlp.npz")
    for i, array in enumerate(arguments):
        values = ", ".join(map(str, np.ascontiguousarray(array).tobytes()))
        lines.append(f"static const uint8_t argument{i}[] = {{{values}}};")
    names = ", ".join(f"argument{i}" for i in range(len(arguments)))
    lines.append(f"static const uint8_t *const argument[] = {{{names}}};\n")
    (directory / "arguments.h").write_text("\n".join(lines))
    return directory


def build(generated: Path, target: Target, flags: str, program: Path) -> str:
    """Compiles and links; what the compiler says of errors, or nothing."""
    units = ("model.c", "model_kernels.c", "model_save.c", "poetc_math.c", "poetc_store.c")
    units = (*units, "poetc_image.c")
    sources = [generated / unit for unit in units] + [TESTS / "build_driver.c"]
    command = [*target.compiler, *WARNINGS, f"-I{generated}", f"-I{TESTS}"]
    command += flags.split()
    if target.bare:
        memory = RUNTIME.parent / "boards" / "common" / "memory.c"
        sources.append(memory)
        command += ["-DBARE", "-ffreestanding", "-fno-stack-protector", "-nostdlib", "-static"]
        command += [] if "clang" in command[0] else ["-fno-tree-loop-distribute-patterns"]
    if target.runner is None:
        assert len(sources) > 1
        command += ["-fsyntax-only"]
    else:
        command += ["-o", str(program)]
    command += [str(source) for source in sources]
    command += ["-lgcc"] if target.bare and "gcc" in command[0] and "-m32" not in command else []
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode == 0) is not ("error" in done.stderr), done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def reference(generated: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Results of gcc -O0 for the oldest processor, which are those of XLA but for rounding."""
    program = tmp_path_factory.mktemp("reference") / "program"
    assert build(generated, TARGETS["gcc"], "-O0 -std=c99", program) == ""
    done = subprocess.run([program], capture_output=True)
    assert done.returncode == 0
    _, expected = load_arrays(MODELS / "gesture_mlp.npz")
    ends = np.cumsum([array.size for array in expected])
    got = np.split(np.frombuffer(done.stdout, np.float32), ends[:-1])
    same_shapes = [a.reshape(b.shape) for a, b in zip(got, expected, strict=True)]
    assert worst_error(same_shapes, expected) <= 3e-5
    return done.stdout


QUICK = (
    ("gcc", "-O1 -std=c99"),
    ("clang", "-O2 -std=c11"),
    ("gcc", "-Ofast"),
    ("m4", "-O2 -std=gnu11"),
)
"""Builds that `./test.sh --fast` tries."""

LIKE = (
    ("gcc", "-O0 -std=c11"),
    ("gcc", "-O2 -std=c11"),
    ("gcc", "-O2 -std=gnu99 -flto -march=native"),
    ("gcc", "-Os -std=c99 -march=native"),
    ("gcc", "-O3 -funroll-loops -frounding-math -fno-trapping-math -march=native"),
    ("gcc", "-O2 -std=gnu11 -mfma -ffp-contract=fast"),
    ("gcc", "-Ofast -flto -march=native -fno-fast-math"),
    ("clang", "-O0 -std=c99"),
    ("clang", "-O1 -std=c11"),
    ("clang", "-Os -std=c99 -flto -fuse-ld=lld-14"),
    ("clang", "-O3 -std=gnu17 -march=native"),
    ("clang", "-Oz -std=c99 -march=native"),
    ("clang", "-O2 -flto -fuse-ld=lld-14 -march=native"),
    ("gcc32", "-O3 -std=c99 -mfma -mfpmath=sse -ffp-contract=fast"),
    ("aarch64", "-O2 -std=c99 -ffp-contract=fast"),
    ("clang", "-O2 -fno-signed-zeros"),
    ("clang", "-O2 -fassociative-math -fno-signed-zeros"),
    ("m4", "-O2 -std=c99 -ffp-contract=fast"),
    ("riscv32", "-O3"),
)
"""Builds of programs that are much like others, which POETC_ALL_STEPS=1 tries."""


def chosen() -> list[Any]:
    """Builds, and when they are tried."""
    rest = [b for b in BUILDS if b[:2] not in (*QUICK, *LIKE)]
    return [
        *(b for b in BUILDS if b[:2] in QUICK),
        *(pytest.param(*b, marks=pytest.mark.slow) for b in rest),
        *more(*(b for b in BUILDS if b[:2] in LIKE)),
    ]


@pytest.mark.parametrize(("target", "flags", "outcome"), chosen())
def test_build(
    target: str, flags: str, outcome: str, generated: Path, reference: bytes, tmp_path: Path
) -> None:
    """The same bits, or no program, or one whose check refuses: as the table says."""
    where = TARGETS[target]
    said = build(generated, where, flags, tmp_path / "program")
    if said:
        assert outcome in said, said
        return
    assert where.runner is not None
    done = subprocess.run([*where.runner, tmp_path / "program"], capture_output=True)
    if outcome == SAME:
        assert done.returncode == 0
        assert done.stdout == reference
    else:
        assert done.returncode == statuses()[outcome]
        assert done.stdout == b""


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_headers_in_cpp(compiler: str, generated: Path, tmp_path: Path) -> None:
    """Those for programs, with their inline functions, without a warning."""
    private = (*PRIVATE_HEADERS, "arguments.h")
    headers = sorted(p.name for p in generated.glob("*.h") if not p.name.endswith(private))
    assert {"model.h", "poetc_store.h", "poetc_image.h", "store_thread.h"} <= {*headers}
    lines = [f'#include "{name}"' for name in headers]
    (tmp_path / "all.cpp").write_text("\n".join([*lines, "int main() { return 0; }", ""]))
    command = [compiler, "-std=c++17", *WARNINGS, f"-I{generated}", "-fsyntax-only"]
    subprocess.run([*command, tmp_path / "all.cpp"], check=True)


CONTROLS = {
    0x8000: DENORMALS,  # those that are results
    0x0040: DENORMALS,  # those that are operands
    0x2000: "FLOAT_ROUNDING",  # down
    0x4000: "FLOAT_ROUNDING",  # up
    0x6000: "FLOAT_ROUNDING",  # towards zero
    0x0000: "OK",
}
"""States of the processor, and what the check of a step says of them."""


@pytest.mark.parametrize(("compiler", "flags"), [("gcc", "-O3 -flto"), ("clang", "-O3")])
def test_state_of_the_processor(compiler: str, flags: str, generated: Path, tmp_path: Path) -> None:
    """What other code of the program has set. The compiler must not compute the check itself."""
    program = tmp_path / "program"
    assert build(generated, TARGETS[compiler], flags, program) == ""
    for control, status in CONTROLS.items():
        done = subprocess.run([program, hex(control)], capture_output=True)
        assert done.returncode == statuses()[status], hex(control)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_functions_are_checked_too(compiler: str, generated: Path, tmp_path: Path) -> None:
    """The mathematical functions alone are fused, against what the source says: in a copy."""
    scalar = (generated / "poetc_scalar.h").read_text()
    for name in ("poetc_math.c", "poetc_math.h", "poetc_version.h"):
        (tmp_path / name).write_text((generated / name).read_text())
    (tmp_path / "poetc_scalar.h").write_text(re.sub("^#pragma.*", "", scalar, flags=re.M))
    fuse = ("-O2", "-std=gnu11", "-mfma", "-ffp-contract=fast")
    math = tmp_path / "math.o"
    subprocess.run([compiler, *fuse, "-c", tmp_path / "poetc_math.c", "-o", math], check=True)
    units = [generated / unit for unit in ("model.c", "model_kernels.c", "poetc_store.c")]
    driver = (f"-I{generated}", f"-I{TESTS}", TESTS / "build_driver.c")
    program = tmp_path / "program"
    subprocess.run([compiler, "-O2", *units, math, *driver, "-o", program], check=True)
    assert subprocess.run([program]).returncode == statuses()[EXPRESSIONS]
