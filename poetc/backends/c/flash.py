"""How much flash a generated step takes, measured with the user's C compiler.

The sources are compiled and linked as firmware links them: what the entry points do not reach is
left out. What the compiler's own library adds, such as software floating point, is counted; the
few functions of the C library (`memcpy`), the page store of a port and the program around the
model are not.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from poetc.backends.c.compiler import HOSTED, Workshop, workshop
from poetc.errors import InputError

WHAT = "--flash=measure"
"""The purpose of the compiler, in messages."""

FLAGS = (
    *("-ffunction-sections", "-fdata-sections"),
    *("-fno-asynchronous-unwind-tables", "-fno-unwind-tables"),
)
"""With these the sources are compiled, beside those of `compiler`: the linker drops unused
functions, and hosts add no tables that boards do not have."""

LINK = (
    *("-nostdlib", "-static", "-Wl,--gc-sections", "-Wl,--unresolved-symbols=ignore-all"),
    "-Wl,--build-id=none",
)
"""With these they are linked: without a C library, from which little is called."""


@dataclass(frozen=True)
class FlashUse:
    """The flash of a program in bytes.

    `kernels_bytes` is the code of kernels, `step_bytes` the rest that is generated for the model,
    `runtime_bytes` the code that all models share, `library_bytes` what the compiler adds,
    `constants_bytes` are read-only data and the initial values of variables. `weights_bytes` are
    frozen weights, `device_bytes` what the device has; None: not known.
    """

    kernels_bytes: int
    step_bytes: int
    runtime_bytes: int
    library_bytes: int
    constants_bytes: int
    weights_bytes: int = 0
    device_bytes: int | None = None

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return (
            self.kernels_bytes
            + self.step_bytes
            + self.runtime_bytes
            + self.library_bytes
            + self.constants_bytes
            + self.weights_bytes
        )

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self) | {"total_bytes": self.total_bytes, "fits": self.fits}

    @property
    def fits(self) -> bool:
        """Whether the device has that much, as far as is known."""
        return self.device_bytes is None or self.total_bytes <= self.device_bytes


def measure_flash(
    files: Mapping[str, str], compiler: tuple[str, ...], name: str, entries: Sequence[str]
) -> FlashUse:
    """The flash of the generated `files` of the model `name`, from the functions `entries` on.

    Raises InputError if the compiler fails, or makes something else than ELF.
    """
    if mixing := [word for word in compiler if word.startswith("-flto")]:
        raise InputError(f"{WHAT} tells parts of the program apart; {mixing[0]} mixes them")
    sources = {f: t for f, t in files.items() if f.endswith((".c", ".h")) and not HOSTED.search(t)}
    units = [file for file in sources if file.endswith(".c")]
    with workshop(sources, compiler, WHAT) as place:
        for unit in units:
            place.compile(unit, *FLAGS)
        _link(place, [unit.removesuffix(".c") + ".o" for unit in units], entries)
        try:
            with (place.directory / "linked").open("rb") as file:
                return _read(file, name, entries)
        except ELFError as error:
            shown = shlex.join(compiler)
            raise InputError(f"{WHAT} reads ELF files, and {shown} makes others") from error


def _link(place: Workshop, objects: Sequence[str], entries: Sequence[str]) -> None:
    roots = [f"-Wl,--undefined={entry}" for entry in entries]
    options = (*LINK, f"-Wl,--entry={entries[0]}", *roots, "-o", "linked")
    message = place.run(*options, *objects, "-lgcc")
    if message is None and not (place.directory / "linked").exists():
        message = "it wrote nothing"
    if message is not None:
        raise InputError(f"{WHAT}: {shlex.join(place.compiler)} does not link: {message}")


def _read(file: BinaryIO, name: str, entries: Sequence[str]) -> FlashUse:
    """The flash that a linked program takes, by the names of functions."""
    elf = ELFFile(file)
    code, constants = 0, 0
    for section in elf.iter_sections():
        flags = section["sh_flags"]
        if not flags & SH_FLAGS.SHF_ALLOC or section["sh_type"] == "SHT_NOBITS":
            continue
        if flags & SH_FLAGS.SHF_EXECINSTR:
            code += section["sh_size"]
        else:
            constants += section["sh_size"]
    own = {"kernels": 0, "step": 0, "runtime": 0}
    for kind, size in _functions(elf, name, entries):
        own[kind] += size
    return FlashUse(
        kernels_bytes=own["kernels"],
        step_bytes=own["step"],
        runtime_bytes=own["runtime"],
        library_bytes=code - sum(own.values()),
        constants_bytes=constants,
    )


def _functions(elf: ELFFile, name: str, entries: Sequence[str]) -> Sequence[tuple[str, int]]:
    """The part of the program that each of our functions belongs to (`kernels`, `step` or
    `runtime`), and its bytes.

    Local symbols follow the name of their file; others begin with the model's name, or `poetc_`.
    """
    table: Any = elf.get_section_by_name(".symtab")
    assert isinstance(table, SymbolTableSection)
    found: dict[int, tuple[str, int]] = {}
    names: set[str] = set()
    file = ""
    for symbol in table.iter_symbols():
        kind, bound = symbol["st_info"]["type"], symbol["st_info"]["bind"]
        if kind == "STT_FILE":
            file = symbol.name
        names.add(symbol.name)
        if kind != "STT_FUNC" or not symbol["st_size"]:
            continue
        if bound == "STB_LOCAL":
            owner = _owner(file.removesuffix(".c"), name)
        else:
            owner = _owner(symbol.name, name)
        if owner is not None:
            found[symbol["st_value"]] = (owner, symbol["st_size"])
    # The linker leaves out what it does not know without a word.
    assert names.issuperset(entries), f"no {set(entries) - names} in the program"
    return list(found.values())


def _owner(symbol: str, name: str) -> str | None:
    """The part of the program that a function or file belongs to, by its name; None for a
    library."""
    if symbol.startswith(("poetc_", "store_")):
        return "runtime"
    if symbol != name and not symbol.startswith(f"{name}_"):
        return None
    return "kernels" if "_kernel" in symbol.removeprefix(name) else "step"
