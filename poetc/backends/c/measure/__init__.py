"""The program that measures kernels and transfers on a board or on this machine.

It has the kernels of a model, one entry for each that calls it on data like those of a step, and
measure.c, which times the entries and some transfers and prints what they took. `generate` writes
it; `emulate.py` runs it where instructions can be counted; `poetc/profile.py` reads what it prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from xdsl.dialects.func import FuncOp

from poetc.backends.c.boards import (
    HOST,
    LINKER_SCRIPT,
    Board,
    Firmware,
    board_sources,
    linker_script,
    makefile,
)
from poetc.backends.c.build_id import with_build_id
from poetc.backends.c.expressions import called_functions
from poetc.backends.c.libraries import indexed
from poetc.backends.c.libraries.library import MARK
from poetc.backends.c.printer import (
    Signature,
    print_function,
    print_prototype,
    print_table,
    tables_of,
)
from poetc.backends.c.runtime_files import RUNTIME, math_sources
from poetc.backends.c.text import c_comment, guarded
from poetc.backends.c.together import together_header
from poetc.description import header_name
from poetc.errors import InputError
from poetc.ir.graph import round_up
from poetc.kernels.analysis import buffer_bytes, buffers

HERE = Path(__file__).parent

_NAME = "measure"
"""The program's: begins names of files."""

STACK_BYTES = 1024
"""For what runs below main; board_print and the page store need most of it."""

LEAST_ARENA_BYTES = 2048
"""The largest page that measure.c moves, and its trailer."""

STORAGE_BYTES = 16384
"""Bytes of the store that measure.c uses, with records of 512 bytes."""

MEASURE_BYTES = 128
"""Static data of measure.c."""

UNIT_BYTES = 512
"""Between the records of an image, at least."""

_RUNTIME = (
    *(f"poetc_{part}" for part in ("image.c", "image.h", "scalar.h", "store.c", "store.h")),
    "poetc_version.h",
)

SAMPLES = 64
"""Values that a buffer is filled from. Smaller buffers hold what they hold in a step."""


@dataclass(frozen=True)
class Entry:
    """A kernel to measure: its hash, its function, and samples of what its operands hold.

    `inplace` are the pairs (result, operand) that share a buffer.
    """

    key: str
    label: str
    function: FuncOp
    samples: tuple[np.ndarray, ...]
    inplace: tuple[tuple[int, int], ...] = ()


def generate(entries: Sequence[Entry], board: Board | None, cpu: str, model: str) -> dict[str, str]:
    """The files of the program by name. Without a board it is for this machine, without a Makefile.

    Raises InputError if the buffers of a kernel are more than the board has.
    """
    places = [_Places(entry) for entry in entries]
    arena_bytes = max([LEAST_ARENA_BYTES, *(place.bytes for place in places)])
    if board is not None and board.ram_bytes is not None:
        available = board.ram_bytes - board.static_bytes - STACK_BYTES - MEASURE_BYTES
        most = max(places, key=lambda place: place.bytes, default=None)
        if most is not None and most.bytes > available:
            raise InputError(
                f'kernel "{most.entry.label}" has {most.bytes:,} bytes of operands and results, '
                f"more than the {available:,} that {board.name} has for them"
            )
    used = {symbol for entry in entries for symbol in called_functions(entry.function)}
    files = {
        header_name(_NAME): "",
        "measured.h": _measured_header(board, cpu, arena_bytes),
        "measured.c": _measured_source(places, model),
        "kernels.h": _kernels_header(entries),
        "kernels.c": _kernels_source(entries, bool(used)),
        "poetc_together.h": f"{c_comment(MARK)}\n{together_header()}",
    }
    if used:
        for file, text in zip(("poetc_math.h", "poetc_math.c"), math_sources(used), strict=True):
            files[file] = f"{c_comment(MARK)}\n{text}"
    runtime = [RUNTIME / name for name in _RUNTIME]
    own = [HERE / "measure.c", HERE / "measure.h"]
    if board is None:
        runtime += [RUNTIME / "store_memory.c", RUNTIME / "store_memory.h"]
        own += [HERE / "board_host.c", HERE.parent / "boards" / "common" / "board.h"]
    elif board.qemu:
        own.append(HERE / "clock_none.c")
    copied = {path.name: path.read_text(encoding="utf-8") for path in (*runtime, *own)}
    if board is not None:
        copied |= board_sources(board)
        del copied["firmware.c"]
    files |= {name: f"{c_comment(MARK)}\n{text}" for name, text in copied.items()}
    if board is not None:
        first = replace(board, cpus=(cpu, *(other for other in board.cpus if other != cpu)))
        firmware = Firmware(
            first,
            _NAME,
            tuple(file for file in files if file.endswith(".c")),
            tuple(file for file in files if file.endswith(".h")),
            STACK_BYTES,
            board.ram_bytes or arena_bytes + board.static_bytes + STACK_BYTES + MEASURE_BYTES,
            STORAGE_BYTES,
        )
        files[LINKER_SCRIPT] = linker_script(firmware)
        files["Makefile"] = makefile(firmware)
        files = indexed("Makefile", files)
    return with_build_id(files, _NAME, None if board is None else "Makefile")


class _Places:
    """The places of the buffers of an entry in the arena: one behind the other."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.offsets: list[int] = []
        self.bytes = 0
        shared = dict(entry.inplace)
        operands = buffers(entry.function, "inputs")
        for kind in ("inputs", "results", "workspace"):
            for i, buffer in enumerate(buffers(entry.function, kind)):
                if kind == "results" and i in shared:
                    self.offsets.append(self.offsets[shared[i]])
                    continue
                self.offsets.append(self.bytes)
                self.bytes += round_up(buffer_bytes(buffer), 8)
        assert len(entry.samples) == len(operands)


def _kernel_name(number: int) -> str:
    return f"kernel_{number}"


def _measured_header(board: Board | None, cpu: str, arena_bytes: int) -> str:
    block_bytes = "0"
    includes: list[str] = []
    if board is not None and any(file.endswith("store_block.h") for file in board.files):
        includes = ['#include "store_block.h"']
        block_bytes = "POETC_BLOCK_BYTES"
    body = f"""\
#define MEASURED_ON "{HOST if board is None else board.name} {cpu}"

/* Of the arena and the store; blocks that the store moves, if it does. */
#define MEASURED_ARENA_BYTES {arena_bytes}
#define MEASURED_STORAGE_BYTES {STORAGE_BYTES}
#define MEASURED_BLOCK_BYTES {block_bytes}
#if MEASURED_BLOCK_BYTES > {UNIT_BYTES}
#define MEASURED_UNIT_BYTES MEASURED_BLOCK_BYTES
#else
#define MEASURED_UNIT_BYTES {UNIT_BYTES}u
#endif
"""
    return guarded("POETC_MEASURED_H", MARK, includes, [body])


def _measured_source(places: Sequence[_Places], model: str) -> str:
    tables: dict[tuple[str, bytes], str] = {}
    body: list[str] = []
    for number, place in enumerate(places):
        entry = place.entry
        body += [
            "",
            f"    {c_comment(entry.label)}",
            f'    measure_kernel("{entry.key}");',
            "    do {",
        ]
        for offset, samples, operand in zip(
            place.offsets, entry.samples, buffers(entry.function, "inputs"), strict=False
        ):
            raw = np.ascontiguousarray(samples)
            if not raw.size:
                continue
            key = (raw.dtype.str, raw.tobytes())
            name = tables.setdefault(key, f"samples_{len(tables)}")
            elements = buffer_bytes(operand) // raw.dtype.itemsize
            body.append(
                f"        measure_fill(at({offset}), {elements}, {raw.dtype.itemsize}, {name}, "
                f"{raw.size});"
            )
        arguments = ", ".join(f"at({offset})" for offset in place.offsets)
        body += [
            "        measure_begin();",
            f"        {_kernel_name(number)}({arguments});",
            "        measure_end();",
            "    } while (measure_again());",
        ]
    definitions = [_table(name, np.frombuffer(raw, dtype)) for (dtype, raw), name in tables.items()]
    about = f"{MARK} The kernels of {model}, each on values like those that it gets in a step."
    newline = "\n"
    return f"""\
{c_comment(about)}
#include "measured.h"

#include "kernels.h"
#include "measure.h"

static union {{
    uint64_t alignment;
    uint8_t bytes[MEASURED_ARENA_BYTES];
}} arena;

static void *at(uint32_t offset)
{{
    return &arena.bytes[offset];
}}

void *measured_buffer(void)
{{
    return arena.bytes;
}}

{newline.join(definitions)}
void measured_kernels(void)
{{{newline.join(body)}
}}
"""


def _table(name: str, values: np.ndarray) -> str:
    """Samples as bits, whatever they are."""
    bits = values.view(f"<u{values.dtype.itemsize}")
    items = [f"{int(value):#x}u" for value in bits]
    lines = [", ".join(items[at : at + 8]) for at in range(0, len(items), 8)]
    joined = ",\n    ".join(lines)
    return (
        f"static const uint{values.dtype.itemsize * 8}_t {name}[{len(items)}] = {{\n"
        f"    {joined}}};\n"
    )


def _kernels_header(entries: Sequence[Entry]) -> str:
    prototypes = [
        print_prototype(entry.function, _signature(number, entry))
        for number, entry in enumerate(entries)
    ]
    return guarded("POETC_KERNELS_H", MARK, ["#include <stdint.h>"], ["\n".join(prototypes)])


def _signature(number: int, entry: Entry) -> Signature:
    inputs = len(buffers(entry.function, "inputs"))
    overlapping = {at for result, operand in entry.inplace for at in (inputs + result, operand)}
    return Signature(_kernel_name(number), False, frozenset(overlapping))


def _kernels_source(entries: Sequence[Entry], uses_math: bool) -> str:
    parts = [c_comment(MARK), '#include "kernels.h"', ""]
    parts += ['#include "poetc_math.h"'] if uses_math else []
    parts += ['#include "poetc_scalar.h"', '#include "poetc_together.h"', ""]
    tables = dict.fromkeys(t for entry in entries for t in tables_of(entry.function))
    parts += [print_table(table) for table in tables]
    parts += [
        f"{c_comment(entry.label)}\n{print_function(entry.function, _signature(number, entry))}"
        for number, entry in enumerate(entries)
    ]
    return "\n".join(parts)


def sample(array: np.ndarray) -> np.ndarray:
    """At most `SAMPLES` elements that are distributed like all of them.

    All of a small array in order; of a larger one, quantiles, so that shares of zeros, signs and
    magnitudes are as they are in it.
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype == np.bool_:
        flat = flat.astype(np.uint8)
    if flat.size <= SAMPLES:
        return flat
    at = (np.arange(SAMPLES) * 2 + 1) * flat.size // (2 * SAMPLES)
    return np.sort(flat)[at]
