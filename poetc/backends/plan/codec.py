"""Plans as bytes, and back."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from poetc.backends.plan.check import check
from poetc.backends.plan.plan import (
    Page,
    PageIn,
    PageOut,
    Plan,
    PlanError,
    Run,
    Step,
    Wait,
    image_pages,
)
from poetc.backends.plan.table import WORD_BYTES, Table

MAGIC = b"PTP\x01"
_HEADER = struct.Struct("<4sIIIIHH")
_CRC = struct.Struct("<I")
_KIND_BITS = 2
_COUNT_BITS, _IDENTITY_BITS = 16, 32
_RUN, _PAGE_IN, _PAGE_OUT, _WAIT = range(4)


def encode(plan: Plan, table: Table) -> bytes:
    """The byte string. The plan must have passed `check`."""
    listed = _listed(plan, table)
    widths = _Widths(table, plan.arena_bytes, plan.storage_bytes, len(plan.pages), len(listed))
    bits = _BitWriter()
    if table.block_bytes is not None:
        bits.put(len(listed), _COUNT_BITS)
        for operation in listed:
            bits.put(table.identities[operation], _IDENTITY_BITS)
    for place in plan.arguments:
        bits.put(place // WORD_BYTES, widths.place)
    for page in plan.pages:
        bits.put(page.tensor, widths.tensor)
        bits.put(page.place // WORD_BYTES, widths.storage)
    for step in plan.steps:
        match step:
            case Run(operation, places, workspace):
                bits.put(_RUN, _KIND_BITS)
                bits.put(listed.index(operation), widths.operation)
                for place in (*places, *(() if workspace is None else (workspace,))):
                    bits.put(place // WORD_BYTES, widths.place)
            case PageIn(page, place):
                bits.put(_PAGE_IN, _KIND_BITS)
                bits.put(page, widths.page)
                bits.put(place // WORD_BYTES, widths.place)
            case PageOut(page):
                bits.put(_PAGE_OUT, _KIND_BITS)
                bits.put(page, widths.page)
            case Wait():
                bits.put(_WAIT, _KIND_BITS)
    body = bits.bytes()
    length = _HEADER.size + len(body) + _CRC.size
    sizes = (length, plan.arena_bytes, plan.storage_bytes, len(plan.steps), len(plan.pages))
    data = _HEADER.pack(MAGIC, plan.identity, *sizes) + body
    return data + _CRC.pack(zlib.crc32(data))


def _listed(plan: Plan, table: Table) -> Sequence[int]:
    """The operations that a plan can name: those that it runs, where they have identities."""
    if table.block_bytes is None:
        return range(len(table.operations))
    return list(dict.fromkeys(step.operation for step in plan.steps if isinstance(step, Run)))


def identity_of(data: bytes) -> int:
    """The table that an encoded plan is for."""
    return _HEADER.unpack_from(data)[1]


def decode(data: bytes, table: Table) -> Plan:
    """The plan in `data`, which may be longer. Raises PlanError unless it may run."""
    if len(data) < _HEADER.size + _CRC.size:
        raise PlanError(f"a plan has at least {_HEADER.size + _CRC.size} bytes, not {len(data)}")
    magic, identity, length, arena_bytes, storage_bytes, steps, pages = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise PlanError("not a plan of this version")
    if not _HEADER.size + _CRC.size <= length <= len(data):
        raise PlanError(f"the plan has {length} bytes, {len(data)} are there")
    body_end = length - _CRC.size
    if _CRC.unpack_from(data, body_end)[0] != zlib.crc32(data[:body_end]):
        raise PlanError("the plan is damaged: its CRC is wrong")
    if identity != table.identity:
        raise PlanError(f"the plan is for {identity:08x}, this model is {table.identity:08x}")
    bits = _BitReader(data[_HEADER.size : body_end])
    listed = _decode_list(bits, table)
    widths = _Widths(table, arena_bytes, storage_bytes, pages, len(listed))
    plan = Plan(
        identity,
        arena_bytes,
        storage_bytes,
        tuple(bits.place(widths.place) for a in table.arguments if a.page_offset is None),
        tuple(Page(bits.take(widths.tensor), bits.place(widths.storage)) for _ in range(pages)),
        tuple(_decode_step(bits, widths, table, listed) for _ in range(steps)),
    )
    bits.finish()
    check(plan, table)
    return plan


def _decode_list(bits: _BitReader, table: Table) -> Sequence[int]:
    if table.block_bytes is None:
        return range(len(table.operations))
    known = {identity: number for number, identity in enumerate(table.identities)}
    listed: list[int] = []
    for _ in range(bits.take(_COUNT_BITS)):
        identity = bits.take(_IDENTITY_BITS)
        if identity not in known:
            raise PlanError(f"the plan is for a kernel that this program lacks: {identity:08x}")
        listed.append(known[identity])
    return listed


def _decode_step(bits: _BitReader, widths: _Widths, table: Table, listed: Sequence[int]) -> Step:
    match bits.take(_KIND_BITS):
        case 0:
            number = bits.take(widths.operation)
            if number >= len(listed):
                raise PlanError(f"there is no operation {number}")
            kernel = table.kernels[table.operations[listed[number]].kernel]
            places = tuple(bits.place(widths.place) for _ in range(kernel.placed))
            needs = kernel.workspace_bytes
            return Run(listed[number], places, bits.place(widths.place) if needs else None)
        case 1:
            return PageIn(bits.take(widths.page), bits.place(widths.place))
        case 2:
            return PageOut(bits.take(widths.page))
        case _:
            return Wait()


class _Widths:
    """The bits of each field."""

    def __init__(
        self, table: Table, arena_bytes: int, storage_bytes: int, pages: int, operations: int
    ) -> None:
        self.place = (arena_bytes // WORD_BYTES).bit_length()
        self.storage = (storage_bytes // WORD_BYTES).bit_length()
        self.tensor = _width(len(table.tensor_bytes))
        self.operation = _width(operations)
        self.page = _width(image_pages(table) + pages)


def _width(count: int) -> int:
    """Bits for numbers less than `count`."""
    return max(count - 1, 0).bit_length()


class _BitWriter:
    def __init__(self) -> None:
        self.value = self.bits = 0

    def put(self, value: int, width: int) -> None:
        assert 0 <= value < 1 << width
        self.value |= value << self.bits
        self.bits += width

    def bytes(self) -> bytes:
        return self.value.to_bytes(-(-self.bits // 8), "little")


class _BitReader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.end = int.from_bytes(data, "little"), 0, 8 * len(data)

    def take(self, width: int) -> int:
        if self.at + width > self.end:
            raise PlanError("the plan ends in the middle of a step")
        value = self.data >> self.at & (1 << width) - 1
        self.at += width
        return value

    def place(self, width: int) -> int:
        return self.take(width) * WORD_BYTES

    def finish(self) -> None:
        if self.end - self.at >= 8 or self.data >> self.at:
            raise PlanError("the plan goes on after its last step")
