"""Profiles: what kernels and transfers cost, measured instead of computed.

A profile is a TOML file that `poetc profile` writes:

    format = 1
    board = "microbit"
    cpu = "cortex-m0"
    compiler = "12.2.1 20221205"       # and its options
    flags = "-O2"
    unit = "instructions"              # of all numbers here; or "ns"

    [transfers]                        # the fields of `Transfers`
    ...

    [kernels]
    5f1d0c0ab9c5b1a7 = 1168325         # dot_add_tanh

Kernels are known by a hash of what they do (`kernel_key`), so that a kernel that two models have in
common is measured once. A profile in instructions is turned into time by the clock and the cycles
per instruction of the device.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from xdsl.dialects import memref
from xdsl.dialects.builtin import StringAttr, SymbolRefAttr

from poetc.costmodel.toml_file import TomlFile
from poetc.errors import InputError
from poetc.ir.symbols import named_in
from poetc.names import one_line
from poetc.page import PAGE_TRAILER_BYTES

if TYPE_CHECKING:
    from xdsl.dialects.func import FuncOp

FORMAT = 1
UNITS = ("instructions", "ns")
KEY_DIGITS = 16
"""Hexadecimal digits of the hash that a kernel is known by."""

_KEY = re.compile(rf"[0-9a-f]{{{KEY_DIGITS}}}")
_WORD_BYTES = 4


def kernel_key(function: "FuncOp") -> str:
    """The hash of a kernel: equal for kernels that are equal but for names.

    It is the start of the SHA-256 of the function's text, with a fixed name for the function, none
    for its values, and the content of tables of constants in place of their names.
    """
    tables = named_in(function, memref.GlobalOp)
    copy = function.clone()
    copy.properties["sym_name"] = StringAttr("kernel")
    for op in copy.walk():
        for value in (*op.results, *(a for r in op.regions for b in r.blocks for a in b.args)):
            value.name_hint = None
        if isinstance(op, memref.GetGlobalOp):
            table = tables.get(op.name_.root_reference.data)
            if table is not None:
                content = f"{table.type} {table.initial_value}"
                digest = hashlib.sha256(content.encode()).hexdigest()
                op.properties["name"] = SymbolRefAttr(f"table_{digest}")
    return hashlib.sha256(str(copy).encode()).hexdigest()[:KEY_DIGITS]


def content_bytes(page_bytes: int) -> int:
    """Bytes of the content of a page, which ends with its CRC."""
    return max(0, page_bytes - PAGE_TRAILER_BYTES)


@dataclass
class BlockBuffer:
    """A store that moves whole blocks and has one of them in RAM, as `store_block.c` has it.

    `reads` and `writes` count blocks, `copied` the bytes that go through the buffer, `parts` the
    pieces that transfers were cut into.
    """

    block_bytes: int
    block: int | None = None
    dirty: bool = False
    reads: int = 0
    writes: int = 0
    copied: int = 0
    parts: int = 0

    def read(self, offset: int, length: int) -> None:
        """Bytes from the store."""
        for block, part in self._parts(offset, length):
            if part == self.block_bytes and block != self.block:
                self.reads += 1
            else:
                self._fetch(block)
                self.copied += part

    def write(self, offset: int, length: int) -> None:
        """Bytes to the store."""
        for block, part in self._parts(offset, length):
            if part == self.block_bytes:
                if block == self.block:
                    self.block, self.dirty = None, False
                self.writes += 1
            else:
                self._fetch(block)
                self.copied += part
                self.dirty = True

    def sync(self) -> None:
        """The block in RAM is written, if it was changed, and forgotten."""
        self.writes += self.dirty
        self.block, self.dirty = None, False

    def move_page(self, out: bool, offset: int, length: int) -> tuple[int, int, int, int]:
        """A page with `length` bytes of content, and its CRC: parts, reads, writes, copied bytes
        that this takes."""
        before = (self.parts, self.reads, self.writes, self.copied)
        move = self.write if out else self.read
        move(offset, length)
        move(offset + length, PAGE_TRAILER_BYTES)
        after = (self.parts, self.reads, self.writes, self.copied)
        parts, reads, writes, copied = (b - a for a, b in zip(before, after, strict=True))
        return parts, reads, writes, copied

    def _parts(self, offset: int, length: int) -> Iterable[tuple[int, int]]:
        end = offset + length
        while offset < end:
            room = self.block_bytes - offset % self.block_bytes
            part = min(room, end - offset)
            self.parts += 1
            yield offset // self.block_bytes, part
            offset += part

    def _fetch(self, block: int) -> None:
        if self.block != block:
            self.sync()
            self.block = block
            self.reads += 1


@dataclass(frozen=True)
class Transfers:
    """Costs of page-ins, page-outs and the image, in the unit of the profile.

    A transfer of `bytes` costs `in_fixed + in_per_byte * bytes` (or `out_`). Where the store moves
    blocks of `block_bytes` (0: it does not), each piece of it, each block that is read or written,
    and each byte copied from or to the block in RAM cost more. `open` and `commit` are spent once
    in each step of a program with parameters on storage. `error` is the greatest deviation of a
    measured transfer from these numbers, relative to it.
    """

    in_fixed: float
    in_per_byte: float
    out_fixed: float
    out_per_byte: float
    open: float
    commit: float
    block_bytes: int = 0
    per_part: float = 0.0
    block_read: float = 0.0
    block_write: float = 0.0
    copy_per_byte: float = 0.0
    error: float = 0.0

    def buffer(self) -> BlockBuffer | None:
        """The block in RAM, empty, of a store that has one."""
        return BlockBuffer(self.block_bytes) if self.block_bytes else None

    def cost(self, out: bool, offset: int, length: int, buffer: BlockBuffer | None) -> float:
        """Cost of the transfer of a page with `length` bytes of content at `offset`."""
        fixed, per_byte = (
            (self.out_fixed, self.out_per_byte) if out else (self.in_fixed, self.in_per_byte)
        )
        cost = fixed + per_byte * length
        if buffer is None:
            return cost
        parts, reads, writes, copied = buffer.move_page(out, offset, length)
        return (
            cost
            + self.per_part * parts
            + self.block_read * reads
            + self.block_write * writes
            + self.copy_per_byte * copied
        )

    def expected(self, out: bool, length: int) -> float:
        """Cost of a page with `length` bytes, on the average over where it may lie in blocks.

        Nothing of it is in the buffer before; what it leaves there is written.
        """
        return _expected(self, out, length)


@lru_cache(maxsize=1 << 14)
def _expected(transfers: Transfers, out: bool, length: int) -> float:
    block = transfers.block_bytes
    if not block:
        return transfers.cost(out, 0, length, None)
    # All but the ends of a long page are whole blocks, each of which costs the same.
    whole = max(0, length // block - 2)
    places = range(0, block, _WORD_BYTES)
    total = 0.0
    for place in places:
        buffer = BlockBuffer(block)
        total += transfers.cost(out, place, length - whole * block, buffer)
        total += transfers.block_write * buffer.dirty
    per_byte = transfers.out_per_byte if out else transfers.in_per_byte
    per_block = transfers.per_part + (transfers.block_write if out else transfers.block_read)
    return total / len(places) + whole * (per_block + block * per_byte)


def device_name(board: str, cpu: str) -> str:
    """The device that describes a core of a board."""
    return board if cpu == board else f"{board}-{cpu}"


@dataclass(frozen=True)
class Profile:
    """A profile; `path` is the file it is from, for messages. Numbers are in `unit`.

    `labels` has a name for each kernel, that of the first model with it.
    """

    path: Path
    board: str
    cpu: str
    compiler: str
    flags: str
    unit: str
    transfers: Transfers
    kernels: Mapping[str, float]
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def device_name(self) -> str:
        """The device that describes what it was measured on."""
        return device_name(self.board, self.cpu)

    @property
    def origin(self) -> str:
        """The board of the measurement, and its core."""
        return f"{self.board}, {self.cpu}" if self.cpu != self.board else self.board

    def kernel(self, key: str) -> float:
        """The cost of a kernel; the caller has seen to it that it is known."""
        return self.kernels[key]

    def missing(self, kernels: Mapping[str, str], made: str = "") -> InputError | None:
        """An error that says which of these kernels (labels by key) are unknown, if any is.

        They are those of a model that was compiled with the options `made`.
        """
        unknown = [
            f'"{label}" ({key})' for key, label in kernels.items() if key not in self.kernels
        ]
        if not unknown:
            return None
        shown = ", ".join(unknown[:4]) + (f" and {len(unknown) - 4} more" if unknown[4:] else "")
        count = f"{len(unknown)} kernel{'s' if len(unknown) > 1 else ''}"
        cpu = f" --cpu={self.cpu}" if self.cpu != self.board else ""
        flags = "" if self.flags == "-O2" else f" --cflags='{self.flags}'"
        made = f" {made}" if made else ""
        return InputError(
            f"profile {self.path} lacks {count} of this model: {shown}; "
            f"poetc profile MODEL --board={self.board}{cpu}{flags}{made} -o {self.path} adds them"
        )

    def to_toml(self) -> str:
        """The text of the file."""
        lines = [
            "# Measured by poetc profile.",
            f"format = {FORMAT}",
            *(
                f"{key} = {_quoted(getattr(self, key))}"
                for key in ("board", "cpu", "compiler", "flags", "unit")
            ),
            "",
            "[transfers]",
            *(f"{f.name} = {_number(getattr(self.transfers, f.name))}" for f in fields(Transfers)),
            "",
            "[kernels]",
        ]
        for key, cost in self.kernels.items():
            label = self.labels.get(key)
            lines.append(f"{key} = {_number(cost)}" + (f"  # {one_line(label)}" if label else ""))
        return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A TOML string; what comes from compilers and users may hold anything."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'


def _number(value: float) -> str:
    return str(round(value)) if value == round(value) else f"{value:.6g}"


def load_profile(path: str) -> Profile:
    """The profile in a file. Raises InputError, with the line, for what is not one."""
    file = TomlFile.read(Path(path), "profile")
    kernels = file.table.get("kernels")
    if file.table.get("format") != FORMAT or not isinstance(kernels, dict):
        raise InputError(f"{path} is not a profile of format {FORMAT}; poetc profile makes them")
    others = ("format", "transfers", "kernels")
    head = file.values(Profile, file.table, others=others)
    if head["unit"] not in UNITS:
        raise file.error("unit", None, f"must be {' or '.join(UNITS)}, not '{head['unit']}'")
    for key in kernels:
        if not _KEY.fullmatch(key):
            message = f"not a kernel's hash of {KEY_DIGITS} hexadecimal digits"
            raise file.error(key, "kernels", message)
    return Profile(
        file.path,
        **head,
        transfers=_transfers(file),
        kernels={
            key: file.value(key, float, cost, "kernels", measured=True)
            for key, cost in kernels.items()
        },
        labels=dict(re.findall(r"^([0-9a-f]+) = \S+  # (.*)$", file.text, re.M)),
    )


def _transfers(file: TomlFile) -> Transfers:
    table = file.table.get("transfers")
    if not isinstance(table, dict):
        raise file.error("transfers", None, "must be a table")
    transfers = Transfers(**file.values(Transfers, table, "transfers", measured=True))
    block = transfers.block_bytes
    if block & (block - 1) or block > 1 << 20:
        message = f"must be 0 or a power of two up to 1 MB, not {block}"
        raise file.error("block_bytes", "transfers", message)
    return transfers
