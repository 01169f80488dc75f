"""The user's C compiler, run on generated sources to measure them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from poetc.backends.c.libraries.library import OPTIONS
from poetc.errors import InputError

FLAGS = ("-std=c99", "-O2", *OPTIONS)
"""With these sources are compiled, as the generated Makefile does. Options of the user's command
follow, and another -O among them counts."""

HOSTED = re.compile(r"#include <(?:pthread|stdio|stdlib|unistd)\.h>")
"""In sources that need an operating system, which stores for hosts are."""


def find_compiler(
    command: str | None, what: str = "--stack=measure", option: str = "--cc"
) -> tuple[str, ...]:
    """The C compiler as a command with options: `command`, or gcc or cc on the PATH.

    Raises InputError where there is none, saying `what` needs it, and which `option` names it.
    """
    try:
        words = tuple(shlex.split(command)) if command is not None else ()
    except ValueError as error:
        raise InputError(f"{option}={command}: not a command: {error}") from error
    candidates = words[:1] if command is not None else ("gcc", "cc")
    for name in candidates:
        if shutil.which(name) is not None:
            return (name, *words[1:])
    if command is None:
        raise InputError(f"{what} needs a C compiler, and neither gcc nor cc is here; {option}")
    raise InputError(f"{option}={command}: there is no such compiler")


@dataclass(frozen=True)
class Workshop:
    """A directory with sources and the command that compiles them there, for the option `what`."""

    directory: Path
    compiler: tuple[str, ...]
    what: str

    def run(self, *words: str) -> str | None:
        """Runs the compiler with `FLAGS` and `words`: None, or what it complains of."""
        name, *options = self.compiler
        command = [name, *FLAGS, *options, *words]
        done = subprocess.run(
            command, cwd=self.directory, capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return None
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        return next((line for line in lines if "error" in line), lines[-1])

    def compile(self, unit: str, *flags: str) -> None:
        """Compiles `unit` to an object file beside it. Raises InputError with the complaint."""
        message = self.run(*flags, "-c", "-idirafter", "library", unit)
        if message is not None:
            shown = shlex.join(self.compiler)
            raise InputError(f"{self.what}: {shown} does not compile {unit}: {message}")


@contextmanager
def workshop(files: Mapping[str, str], compiler: tuple[str, ...], what: str) -> Iterator[Workshop]:
    """`files` in a directory that is gone afterwards, where `compiler` may be run."""
    with tempfile.TemporaryDirectory(prefix="poetc-measure-") as name:
        directory = Path(name)
        for file, text in files.items():
            (directory / file).parent.mkdir(parents=True, exist_ok=True)
            (directory / file).write_text(text, encoding="utf-8")
        # For compilers that come without a C library.
        library = directory / "library"
        library.mkdir()
        (library / "string.h").write_text(
            "#include <stddef.h>\nvoid *memcpy(void *, const void *, size_t);\n"
        )
        yield Workshop(directory, compiler, what)
