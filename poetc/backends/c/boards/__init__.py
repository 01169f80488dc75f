"""Boards: what turns generated C into firmware.

A board is a directory here with a `board.toml`, whose keys are the fields of `Board`, and C sources
of its own; `common/` has what boards share. `host` is the program without a board: main.c.

Beside the files of a model, firmware has the sources of its board, a linker script with the RAM
that was asked for, and a Makefile that builds it and runs it in the emulator.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from poetc.backends.c.libraries.step import StepFiles
from poetc.backends.c.libraries.templates import render
from poetc.errors import InputError

HOST = "host"
LINKER_SCRIPT = "link.ld"

_BOARDS = Path(__file__).parent
_MIN_DRIVE_BYTES = 1 << 20
"""The least size of an emulated card. It is a power of two."""

CPU_FLAGS = {
    "cortex-m0": ("-mcpu=cortex-m0", "-mthumb"),
    "cortex-m3": ("-mcpu=cortex-m3", "-mthumb"),
    "cortex-m4": ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
    "cortex-m7": ("-mcpu=cortex-m7", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"),
}
"""Compiler options for the cores of boards, with their single-precision floating-point units."""


CROSS_COMPILER = "arm-none-eabi-gcc"


@dataclass(frozen=True)
class Board:
    """A board. Sizes and addresses are in bytes.

    `cpus` are the cores to compile for, the default one first. `ram_bytes` is what the board has;
    None: not known. `static_bytes` is what firmware keeps in RAM beside the arena and the stack of
    a step: `.data` and `.bss` of the board's sources (handle and buffers of the page store), and
    `firmware_stack_bytes`, the stack above `model_step`. `files` are the sources, relative to
    boards/; `template` is one more that the user copies to board.c. `qemu` are the options of the
    emulator; empty: it cannot be run here. `card`: the storage is an emulated memory card. `dma`:
    the page store may transfer beside the processor.
    """

    name: str
    description: str
    cpus: tuple[str, ...]
    flash_origin: int
    flash_bytes: int
    ram_origin: int
    ram_bytes: int | None
    static_bytes: int
    firmware_stack_bytes: int
    files: tuple[str, ...]
    qemu: str = ""
    card: bool = False
    dma: bool = False
    template: str | None = None

    @property
    def compiler(self) -> str:
        """The C compiler for the default core, with its options."""
        return " ".join((CROSS_COMPILER, "-ffreestanding", *CPU_FLAGS[self.cpus[0]]))

    @property
    def has_float_registers(self) -> bool:
        """Whether some of its cores compute floats themselves."""
        return any("-mfloat-abi=hard" in CPU_FLAGS[cpu] for cpu in self.cpus)


def arranges(board: Board | None) -> bool:
    """Whether loops of kernels are arranged for a board; None is this machine.

    Without float registers there is little to gain, and code grows.
    """
    return board is None or board.has_float_registers


def known_boards() -> tuple[str, ...]:
    """The names that `--board` takes, sorted; `host` is the program without a board."""
    return tuple(sorted([HOST, *(path.parent.name for path in _BOARDS.glob("*/board.toml"))]))


def board_list() -> tuple[tuple[str, str], ...]:
    """Names and descriptions."""
    boards = [(name, load_board(name)) for name in known_boards()]
    return tuple((name, board.description if board else "this machine") for name, board in boards)


def load_board(name: str | None) -> Board | None:
    """The board of that name; None for None and `host`. Raises InputError for an unknown name."""
    if name is None or name == HOST:
        return None
    if name not in known_boards():
        raise InputError(f"unknown board '{name}'; known boards are {', '.join(known_boards())}")
    table = tomllib.loads((_BOARDS / name / "board.toml").read_text(encoding="utf-8"))
    unknown = table.keys() - {field.name for field in fields(Board)}
    assert not unknown, f"board {name}: unknown keys {unknown}"
    values: dict[str, Any] = {"name": name, "ram_bytes": None} | table
    values |= {key: tuple(table[key]) for key in ("cpus", "files")}
    return Board(**values)


@dataclass(frozen=True)
class Firmware:
    """A program for a board, as the templates of its files see it. Sizes are in bytes.

    `name` begins the model's symbols; `sources` and `headers` are the files of the model;
    `stack_bytes` is the stack of a step, `ram_bytes` all of the RAM. `plan_bytes` at the end of
    flash are for a plan that is sent to the device; 0: it runs none. `assembly` are files for the
    assembler, `step` what one run needs, if that is known.
    """

    board: Board
    name: str
    sources: tuple[str, ...]
    headers: tuple[str, ...]
    stack_bytes: int
    ram_bytes: int
    storage_bytes: int
    plan_bytes: int = 0
    assembly: tuple[str, ...] = ()
    step: StepFiles | None = None


def board_sources(board: Board) -> dict[str, str]:
    """The board's C files by name, as they are here."""
    paths = [*board.files, *([board.template] if board.template is not None else [])]
    return {Path(p).name: (_BOARDS / p).read_text(encoding="utf-8") for p in paths}


def linker_script(firmware: Firmware) -> str:
    """The memory map. The stack is at the bottom of RAM: one that overflows faults."""
    board = firmware.board
    return render(
        "boards/link.ld",
        board=board,
        stack_bytes=firmware.stack_bytes,
        whole_stack_bytes=(firmware.stack_bytes + board.firmware_stack_bytes) & ~3,
        plan_bytes=firmware.plan_bytes,
    )


def makefile(firmware: Firmware) -> str:
    """Builds `NAME.elf` in build/CPU, and runs it in the emulator if the board has one."""
    board, storage_bytes = firmware.board, firmware.storage_bytes
    drive_bytes = 0
    if board.card and storage_bytes:
        drive_bytes = max(_MIN_DRIVE_BYTES, 1 << (storage_bytes - 1).bit_length())
    return render(
        "boards/Makefile",
        name=firmware.name,
        board=board,
        cpu_flags=CPU_FLAGS,
        sources=sorted(f for f in firmware.sources if f != template_name(board)),
        headers=sorted(firmware.headers),
        assembled=[str(Path(file).with_suffix(".o")) for file in firmware.assembly],
        script=LINKER_SCRIPT,
        template=template_name(board),
        ram_bytes=firmware.ram_bytes,
        plan_bytes=firmware.plan_bytes,
        drive_bytes=drive_bytes,
        step=firmware.step,
    )


def template_name(board: Board) -> str | None:
    """The file that users copy and fill in, if there is one."""
    return None if board.template is None else Path(board.template).name


def check_ram(board: Board, ram_bytes: int) -> None:
    """Raises InputError if the board has less RAM than that."""
    if board.ram_bytes is not None and ram_bytes > board.ram_bytes:
        raise InputError(
            f"{board.name} has {board.ram_bytes:,} bytes of RAM, less than {ram_bytes:,}"
        )
