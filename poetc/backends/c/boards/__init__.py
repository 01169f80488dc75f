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

from poetc.backends.c.libraries.library import OPTIONS
from poetc.backends.c.libraries.step import StepFiles
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
    """What the files of a board depend on: the program, and its RAM. Sizes are in bytes.

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


def linker_script(firmware: Firmware, mark: str) -> str:
    """The memory map. The stack is at the bottom of RAM: one that overflows faults."""
    board = firmware.board
    stack = (firmware.stack_bytes + board.firmware_stack_bytes) & ~3
    flash, plan = "FLASH_BYTES", ""
    if firmware.plan_bytes:
        flash = f"FLASH_BYTES - {firmware.plan_bytes}"
        plan = f"""
/* A plan that is sent to the device goes here. */
plan_start = FLASH_ORIGIN + {flash};
plan_end = FLASH_ORIGIN + FLASH_BYTES;
"""
    return f"""\
/* {mark} Memory of {board.name}. The Makefile gives origins and sizes: everything is inside. */
MEMORY
{{
    FLASH (rx) : ORIGIN = FLASH_ORIGIN, LENGTH = {flash}
    RAM (rwx) : ORIGIN = RAM_ORIGIN, LENGTH = RAM_BYTES
}}

ENTRY(reset)
{plan}
SECTIONS
{{
    .text :
    {{
        KEEP(*(.vectors))
        *(.text .text.*)
        *(.rodata .rodata.*)
        . = ALIGN(4);
    }} > FLASH

    .ARM.exidx :
    {{
        *(.ARM.exidx*)
    }} > FLASH

    /* {firmware.stack_bytes} bytes for a step, {board.firmware_stack_bytes} for what calls it. */
    .stack (NOLOAD) :
    {{
        stack_low = .;
        . += {stack};
        stack_high = stack_low + {stack & ~7};
    }} > RAM

    .data :
    {{
        . = ALIGN(4);
        data_start = .;
        *(.data .data.*)
        . = ALIGN(4);
        data_end = .;
    }} > RAM AT > FLASH
    data_load = LOADADDR(.data);

    .bss (NOLOAD) :
    {{
        . = ALIGN(4);
        bss_start = .;
        /* Kept even if unused: it is counted, and what does not fit must not link. */
        KEEP(*(.bss .bss.* COMMON))
        . = ALIGN(4);
        bss_end = .;
    }} > RAM
}}
"""


def makefile(firmware: Firmware, mark: str) -> str:
    """Builds `NAME.elf` in build/CPU, and runs it in the emulator if the board has one."""
    board, name = firmware.board, firmware.name
    sources = [f for f in firmware.sources if f != template_name(board)]
    cpus = "\n".join(f"FLAGS_{cpu} = {' '.join(CPU_FLAGS[cpu])}" for cpu in board.cpus)
    template, board_source = "", ""
    if board.template is not None:
        template = (
            f"TEMPLATE = {template_name(board)}\n"
            "# The template is to be copied to board.c, and filled in.\n"
            "BOARD_SOURCE = $(firstword $(wildcard board.c) $(TEMPLATE))\n"
        )
        board_source = " $(BOARD_SOURCE)"
    run = _run_rule(firmware) if board.qemu else ""
    assembly = "".join(f" $(BUILD)/{Path(file).with_suffix('.o')}" for file in firmware.assembly)
    assemble = ""
    if assembly:
        assemble = (
            "\n$(BUILD)/%.o: %.s Makefile\n\t@mkdir -p $(BUILD)\n"
            "\t$(CROSS)gcc $(FLAGS_$(CPU)) -c -o $@ $<\n"
        )
    compare = f" {name}_compare" if firmware.step is not None else ""
    return f"""\
# {mark} Builds firmware for {board.name}{" and runs it in QEMU" if board.qemu else ""}.
# May be given: CPU ({", ".join(board.cpus)}), CFLAGS, CROSS, and
# where memory is and how much there is of it.
CROSS ?= arm-none-eabi-
CPU ?= {board.cpus[0]}
CFLAGS ?= -O2

# All of the RAM: stack, data, arena. What does not fit does not link.
RAM_BYTES ?= {firmware.ram_bytes}
RAM_ORIGIN ?= 0x{board.ram_origin:08x}
FLASH_BYTES ?= {board.flash_bytes}
FLASH_ORIGIN ?= 0x{board.flash_origin:08x}
MEMORY = $(foreach name,RAM_BYTES RAM_ORIGIN FLASH_BYTES FLASH_ORIGIN,\
    -Wl,--defsym=$(name)=$($(name)))

{cpus}
$(if $(FLAGS_$(CPU)),,$(error CPU=$(CPU): this firmware is for {" or ".join(board.cpus)}))

# Expressions that are changed, and multiplications and additions that are fused, give other bits.
# Bytes of the arena hold floats and integers by turns, which link-time optimisation must know.
REQUIRED = -std=c99 {" ".join(OPTIONS)} -ffreestanding \\
    -ffunction-sections -fdata-sections $(FLAGS_$(CPU))
WARNINGS = -Wall -Wextra -Wconversion

SOURCES = {" ".join(sorted(sources))}
HEADERS = {" ".join(sorted(firmware.headers))}
SCRIPT = {LINKER_SCRIPT}
{template}
BUILD = build/$(CPU)
FIRMWARE = $(BUILD)/{name}.elf
OBJECTS = $(patsubst %.c,$(BUILD)/%.o,$(SOURCES){board_source}){assembly}

$(FIRMWARE): $(OBJECTS) $(SCRIPT) Makefile
\t$(CROSS)gcc $(FLAGS_$(CPU)) -nostdlib -T $(SCRIPT) $(MEMORY) \\
\t    -Wl,--gc-sections -Wl,--fatal-warnings -o $@ $(OBJECTS) $(LDFLAGS) -lgcc

$(BUILD)/%.o: %.c $(HEADERS) Makefile
\t@mkdir -p $(BUILD)
\t$(CROSS)gcc $(CFLAGS) $(REQUIRED) $(WARNINGS) -c -o $@ $<
{assemble}
# Or it would call itself. Link-time optimisation leaves out what compilers call by themselves.
$(BUILD)/memory.o: REQUIRED += -fno-tree-loop-distribute-patterns -fno-lto

size: $(FIRMWARE)
\t$(CROSS)size -A $(FIRMWARE)
{run}
clean:
\trm -rf build{compare}

.PHONY: {"run " if run else ""}size clean
"""


def _run_rule(firmware: Firmware) -> str:
    board = firmware.board
    drive, options = "", board.qemu
    plan = ""
    if firmware.plan_bytes:
        plan = (
            "# A plan to run in place of that in the firmware; it is put into flash.\n"
            "PLAN ?=\n"
            f"PLAN_ORIGIN = $(shell echo $$(( $(FLASH_ORIGIN) + $(FLASH_BYTES) - "
            f"{firmware.plan_bytes} )))\n"
        )
        options += (
            " $(if $(PLAN),-device loader$(comma)file=$(abspath $(PLAN))$(comma)"
            "addr=$(PLAN_ORIGIN)$(comma)force-raw=on)"
        )
        plan += "comma := ,\n"
    if board.card and firmware.storage_bytes:
        size = max(_MIN_DRIVE_BYTES, 1 << (firmware.storage_bytes - 1).bit_length())
        drive = f"\ttruncate -s '>{size}' $(DATA)/storage.bin\n"
        options += " -drive if=sd,file=storage.bin,format=raw"
    copy = compare = compiled = built = ""
    if firmware.step is not None:
        copy, compare = firmware.step.make_copy(), firmware.step.make_compare(firmware.name)
        compiled = firmware.step.make_rule(firmware.name, f"$(HOSTCC) -O2 -std=c99 {OPTIONS[0]}")
    if compiled:
        built = f" {firmware.name}_compare"
        compiled = "# What compares results runs here.\nHOSTCC ?= cc\n" + compiled
    rounded = ""
    if "$(RAM_ROUNDED)" in options:
        rounded = "RAM_ROUNDED = $(shell expr '(' $(RAM_BYTES) + 1023 ')' / 1024 '*' 1024)\n"
    return f"""
# Data are in files of the directory DATA: argN.bin, outN.bin; the storage is storage.bin there.
QEMU ?= qemu-system-arm
DATA ?= data
STEPS ?= 1
{rounded}{plan}MACHINE = {options}
{compiled}
run: $(FIRMWARE){built}
\t@mkdir -p $(DATA)
{copy}{drive}\tcd $(DATA) && $(QEMU) $(MACHINE) -display none -serial none -monitor none \\
\t    -semihosting-config enable=on,target=native,arg=$(STEPS) \\
\t    -kernel $(CURDIR)/$(FIRMWARE) < /dev/null
{compare}"""


def template_name(board: Board) -> str | None:
    """The file that users copy and fill in, if there is one."""
    return None if board.template is None else Path(board.template).name


def check_ram(board: Board, ram_bytes: int) -> None:
    """Raises InputError if the board has less RAM than that."""
    if board.ram_bytes is not None and ram_bytes > board.ram_bytes:
        raise InputError(
            f"{board.name} has {board.ram_bytes:,} bytes of RAM, less than {ram_bytes:,}"
        )
