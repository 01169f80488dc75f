"""Compiling generated C in tests."""

import ctypes
import re
import resource
import subprocess
import tempfile
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

SANITIZED = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
"""Flags under which any undefined behaviour ends the program."""

COMPILERS = ("gcc", "clang")


def compile_c(
    sources: Iterable[Path], output: Path, compiler: str = "gcc", flags: Sequence[str] = ("-O2",)
) -> Path:
    """Compiles and links `sources` to `output`; a warning fails the test."""
    return build_c((compiler, *STRICT, *flags), sorted(sources), output)


def build_c(command: Sequence[str], sources: Sequence[Path], output: Path, *link: str) -> Path:
    """Compiles `sources` with a command and its options, and links them to `output`.

    Each is compiled by itself, from its own folder, so that ccache has the objects that an earlier
    program of the same run shares with this one; those of the runtime are kept here. With -O0 to
    compile takes no longer than to look there. Objects among the sources are linked as they are.
    `link` goes to the linker alone.
    """
    if "-c" in command:
        (source,) = sources
        _succeed([*command, source.name, "-o", output.absolute()], source.parent)
        return output
    link = (*filter(_is_for_linker, command), *link)
    compiling = [word for word in command if not _is_for_linker(word)]
    with tempfile.TemporaryDirectory(prefix="poetc-objects-") as folder:
        objects = [Path(folder, f"{i}_{source.stem}.o") for i, source in enumerate(sources)]
        for source, made in zip(sources, objects, strict=True):
            if source.name.startswith(RUNTIME):
                _runtime_object(compiling, source, made)
            elif source.suffix == ".o" or "-O0" in command:
                objects[objects.index(made)] = source.absolute()
            else:
                _succeed([*compiling, "-c", source.name, "-o", made], source.parent)
        _succeed([*compiling, *objects, *link, "-o", output.absolute()], Path(folder))
    return output


RUNTIME = ("poetc_", "store_")
"""How files of the runtime are called; none of them has to do with the model."""

BUILD_ID = re.compile(rb"#define MODEL_BUILD_ID (\w+)")
"""What tells files of different programs apart, and is in no object."""

INCLUDED = re.compile(rb'^#include "(.+)"', re.MULTILINE)

_OBJECTS: dict[tuple[object, ...], bytes] = {}


def _runtime_object(compiling: Sequence[str], source: Path, made: Path) -> None:
    """The object of a file of the runtime, which is compiled once: most programs have the same."""
    files = [source]
    for file in files:
        names = INCLUDED.findall(file.read_bytes())
        beside = [source.parent / name.decode() for name in names]
        files += [header for header in beside if header.is_file() and header not in files]
    texts = [path.read_bytes() for path in files]
    if found := BUILD_ID.search(b"".join(texts)):
        texts = [text.replace(found[1], b"") for text in texts]
    key = (*compiling, source.name, *texts)
    if key not in _OBJECTS:
        _succeed([*compiling, "-c", source.name, "-o", made], source.parent)
        _OBJECTS[key] = made.read_bytes()
    made.write_bytes(_OBJECTS[key])


def _is_for_linker(word: str) -> bool:
    return word == "-shared" or word.startswith(("-l", "-Wl,", "-fuse-ld="))


def _succeed(command: Sequence[str | Path], folder: Path) -> None:
    run = subprocess.run(
        [str(part) for part in command], cwd=folder, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr


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
