"""Compiling generated C in tests."""

import ctypes
import resource
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

STRICT = (
    "-std=c99",
    "-pedantic",
    "-ffp-contract=off",
    "-Werror",
    "-Wall",
    "-Wextra",
    "-Wcast-qual",
    "-Wconversion",
    "-Wdouble-promotion",
    "-Wmissing-prototypes",
    "-Wshadow",
    "-Wstrict-prototypes",
    "-Wundef",
)
"""Flags that generated C must compile with."""

SANITIZED = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
"""Flags under which any undefined behaviour ends the program."""

COMPILERS = ("gcc", "clang")


def compile_c(
    sources: Iterable[Path], output: Path, compiler: str = "gcc", flags: Sequence[str] = ("-O2",)
) -> Path:
    """Compiles and links `sources` to `output`; a warning fails the test."""
    command = [compiler, *STRICT, *flags, "-o", output, *sorted(sources)]
    run = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return output


def load_library(
    sources: Iterable[Path], output: Path, compiler: str = "gcc", flags: Sequence[str] = ("-O2",)
) -> ctypes.CDLL:
    """Compiles `sources` to a library and loads it."""
    shared = ("-shared", "-fPIC", *flags)
    return ctypes.CDLL(str(compile_c(sources, output, compiler, shared)))


def macros(header: Path) -> dict[str, str]:
    """The macros of a generated header and what they stand for, by the preprocessor."""
    command = ["gcc", "-E", "-dM", "-P", header]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    words = (line.split(maxsplit=2) for line in text.splitlines())
    return {found[1]: found[2] for found in words if len(found) == 3}


@contextmanager
def full_files() -> Iterator[None]:
    """No regular file takes another byte from this process, or from one that it starts with
    `restore_signals=False` (a signal would end that).

    Unlike /dev/full, which a store locks, each test has files of its own.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
