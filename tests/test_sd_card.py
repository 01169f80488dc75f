"""The driver of memory cards, on a simulated card with faults; the store on whole blocks."""

from __future__ import annotations

import ctypes
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from c_support import SANITIZED, compile_c, load_library
from test_c_runtime import CORRUPT, NO_STORE, OUT_OF_RANGE, READ_FAILED, WRITE_FAILED

from poetc.backends.c.boards import board_sources, load_board
from poetc.backends.c.emit import RUNTIME

OK = 0
BLOCKS, BLOCK = 16, 512
NO_FAULT, FLIP_REPLY, FLIP_COMMAND, BUS_DEAD, BUS_ONCE, MUTE, BUSY = range(7)
NO_CARD, FIRST_VERSION, STANDARD, HIGH = range(4)
KINDS = (FIRST_VERSION, STANDARD, HIGH)


SETTINGS = (
    *("kind", "start", "busy", "delay", "fault", "fault_byte", "fault_bit"),
    *("error_token", "response", "status", "bytes", "commands", "fast"),
)


class Settings(ctypes.Structure):
    """The variable `card` of sd_card_model.c."""

    _fields_ = [
        ("memory", ctypes.c_uint8 * BLOCK * BLOCKS),
        *((name, ctypes.c_uint32) for name in SETTINGS),
    ]


class Card:
    """The simulated card and the driver on it."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.settings = Settings.in_dll(library, "card")
        self.handle = ctypes.create_string_buffer(64)
        for name in ("sd_card_open", "sd_card_read", "sd_card_write"):
            getattr(library, name).restype = ctypes.c_int

    def insert(self, kind: int, **settings: int) -> None:
        """A card of that kind, with random content, just switched on."""
        values = dict.fromkeys(SETTINGS, 0)
        values |= {"kind": kind, "start": 3, "busy": 5, "delay": 2, "response": 5} | settings
        for name, value in values.items():
            setattr(self.settings, name, value)
        generator = random.Random(1)
        for block in range(BLOCKS):
            self.settings.memory[block][:] = list(generator.randbytes(BLOCK))
        self.library.power_on()

    def block(self, number: int) -> bytes:
        return bytes(self.settings.memory[number])

    def open(self) -> int:
        return self.library.sd_card_open(self.handle)

    def read(self, number: int) -> tuple[int, bytes]:
        data = ctypes.create_string_buffer(BLOCK)
        return self.library.sd_card_read(self.handle, ctypes.c_uint32(number), data), data.raw

    def write(self, number: int, data: bytes) -> int:
        return self.library.sd_card_write(self.handle, ctypes.c_uint32(number), data)

    def fault_at(self, fault: int, byte: int, bit: int = 0) -> None:
        """From now on, when that many more bytes have been on the bus."""
        self.settings.fault, self.settings.fault_bit = fault, bit
        self.settings.fault_byte = self.settings.bytes + byte


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sources")
    board = load_board("generic")
    assert board is not None
    for name, text in board_sources(board).items():
        (directory / name).write_text(text)
    for name in ("poetc_store.h", "poetc_store.c", "poetc_version.h"):
        (directory / name).write_text((RUNTIME / name).read_text())
    for model in Path(__file__).parent.glob("sd_card_model.*"):
        (directory / model.name).write_text(model.read_text())
    return directory


@pytest.fixture(scope="module")
def card(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Card:
    files = [sources / name for name in ("sd_card.c", "sd_card_model.c")]
    flags = ("-O2", "-Wno-missing-prototypes")
    return Card(load_library(files, tmp_path_factory.mktemp("card") / "card.so", flags=flags))


DATA = random.Random(2).randbytes(BLOCK)


@pytest.mark.parametrize("kind", KINDS)
def test_blocks(card: Card, kind: int) -> None:
    card.insert(kind)
    assert card.open() == OK
    before = [card.block(i) for i in range(BLOCKS)]
    for number in (0, 7, BLOCKS - 1):
        assert card.read(number) == (OK, before[number])
    slow = card.settings.bytes - card.settings.fast
    assert card.write(7, DATA) == OK
    assert card.read(7) == (OK, DATA)
    assert [card.block(i) for i in range(BLOCKS) if i != 7] == before[:7] + before[8:]
    assert card.settings.fast > 2000 and slow == card.settings.bytes - card.settings.fast
    assert card.read(BLOCKS)[0] == OUT_OF_RANGE
    assert card.write(BLOCKS, DATA) == OUT_OF_RANGE
    if kind != HIGH:
        # Byte addresses would wrap around to block 0.
        assert card.read(2**23)[0] == OUT_OF_RANGE
        assert card.write(2**23, DATA) == OUT_OF_RANGE
        assert card.block(0) == before[0]
    assert card.open() == OK  # again, when it is at work already
    assert card.read(7) == (OK, DATA)


def test_no_card_and_one_that_does_not_start(card: Card) -> None:
    card.insert(NO_CARD)
    assert card.open() == NO_STORE
    card.insert(HIGH, start=2**31)
    assert card.open() == READ_FAILED
    assert card.settings.bytes < 200_000
    card.insert(STANDARD, start=500)
    assert card.open() == OK


def test_what_the_card_says(card: Card) -> None:
    card.insert(HIGH)
    assert card.open() == OK
    for token, status in ((4, CORRUPT), (8, OUT_OF_RANGE), (1, READ_FAILED), (2, READ_FAILED)):
        card.settings.error_token = token
        assert card.read(1)[0] == status
    card.settings.error_token = 0
    assert card.read(1)[0] == OK
    for response in (0x0D, 0x0B, 0x1F):
        card.settings.response = response
        assert card.write(1, DATA) == WRITE_FAILED
    card.settings.response = 5
    card.settings.status = 0x04
    assert card.write(1, DATA) == WRITE_FAILED
    card.settings.status = 0
    assert card.write(1, DATA) == OK


def bus_bytes(card: Card, do: Callable[[], object]) -> int:
    """How many bytes an undisturbed transfer has on the bus."""
    before = card.settings.bytes
    do()
    return card.settings.bytes - before


@pytest.mark.parametrize("kind", [STANDARD, HIGH])
@pytest.mark.parametrize("fault", [FLIP_REPLY, FLIP_COMMAND])
def test_flipped_bits(card: Card, kind: int, fault: int) -> None:
    """Any bit of a transfer: data are good whenever the driver says so, and often they are."""
    card.insert(kind)
    assert card.open() == OK
    before = card.block(3)
    other = [card.block(i) for i in range(BLOCKS) if i != 3]
    reads = bus_bytes(card, lambda: card.read(3))
    writes = bus_bytes(card, lambda: card.write(3, before))
    good = 0
    for byte in range(writes):
        for bit in (byte % 8, (byte + 3) % 8):
            if byte < reads:
                card.fault_at(fault, byte, bit)
                status, data = card.read(3)
                assert status != OK or data == before
                good += status == OK
            new = bytes([byte % 256]) + DATA[1:]
            card.fault_at(fault, byte, bit)
            status = card.write(3, new)
            assert status != OK or card.block(3) == new
            good += status == OK
            card.settings.fault = NO_FAULT
            assert card.write(3, before) == OK
    assert good > 1.9 * (reads + writes)
    assert [card.block(i) for i in range(BLOCKS) if i != 3] == other


@pytest.mark.parametrize("fault", [BUS_DEAD, BUS_ONCE, MUTE, BUSY])
def test_a_bus_that_stops(card: Card, fault: int) -> None:
    """At every byte: it ends, soon, and never with wrong data; the next transfer is good."""
    card.insert(HIGH)
    assert card.open() == OK
    before = card.block(3)
    reads = bus_bytes(card, lambda: card.read(3))
    writes = bus_bytes(card, lambda: card.write(3, before))
    for byte in range(writes):
        start = card.settings.bytes
        if byte < reads:
            card.fault_at(fault, byte)
            status, data = card.read(3)
            assert status != OK or data == before
        card.fault_at(fault, byte)
        status = card.write(3, DATA)
        assert status != OK or card.block(3) == DATA
        assert card.settings.bytes - start < 1_000_000
        card.settings.fault = NO_FAULT
        assert card.write(3, before) == OK


@pytest.mark.parametrize("fault", [FLIP_REPLY, FLIP_COMMAND, BUS_DEAD, BUS_ONCE, MUTE, BUSY])
def test_faults_while_it_starts(card: Card, fault: int) -> None:
    card.insert(HIGH)
    total = bus_bytes(card, card.open)
    for byte in range(total):
        card.insert(HIGH)
        card.fault_at(fault, byte, byte % 8)
        status = card.open()
        assert card.settings.bytes < 1_000_000
        if status == OK:
            card.settings.fault = NO_FAULT
            assert card.read(5) == (OK, card.block(5))
            assert card.write(5, DATA) == OK and card.block(5) == DATA
        card.settings.fault = NO_FAULT
        assert card.open() == OK


# The store on blocks

BLOCK_TEST = """\
#include <string.h>
#include "store_block.h"

enum { BLOCKS = 16 };
uint8_t memory[BLOCKS][POETC_BLOCK_BYTES];
uint8_t damaged[BLOCKS];
uint32_t reads, writes, fails;
poetc_block_store blocks;

static poetc_status read_block(void *device, uint32_t block, uint8_t *data)
{
    ++reads;
    if (device != memory || block >= BLOCKS) {
        return POETC_OUT_OF_RANGE;
    }
    if (fails != 0 && --fails == 0) {
        return POETC_READ_FAILED;
    }
    memcpy(data, memory[block], POETC_BLOCK_BYTES);
    return damaged[block] ? POETC_CORRUPT : POETC_OK;
}

static poetc_status write_block(void *device, uint32_t block, const uint8_t *data)
{
    ++writes;
    if (device != memory || block >= BLOCKS) {
        return POETC_OUT_OF_RANGE;
    }
    if (fails != 0 && --fails == 0) {
        return POETC_WRITE_FAILED;
    }
    memcpy(memory[block], data, POETC_BLOCK_BYTES);
    damaged[block] = 0;
    return POETC_OK;
}

static const poetc_block_operations operations = {
    .read_block = read_block,
    .write_block = write_block,
};

void start(void)
{
    poetc_block_store_init(&blocks, &operations, memory);
}
"""


class BlockStore:
    """A block store on memory, with a device that can fail."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.memory = (ctypes.c_uint8 * BLOCK * BLOCKS).in_dll(library, "memory")
        self.damaged = (ctypes.c_uint8 * BLOCKS).in_dll(library, "damaged")
        self.store = ctypes.byref(ctypes.c_uint8.in_dll(library, "blocks"))

    def count(self, name: str) -> ctypes.c_uint32:
        return ctypes.c_uint32.in_dll(self.library, name)

    def start(self) -> None:
        for block in range(BLOCKS):
            self.memory[block][:] = [block] * BLOCK
            self.damaged[block] = 0
        self.count("fails").value = 0
        self.library.start()

    def content(self) -> bytes:
        return b"".join(bytes(self.memory[block]) for block in range(BLOCKS))

    def read(self, offset: int, length: int) -> tuple[int, bytes]:
        data = ctypes.create_string_buffer(length)
        return self.library.poetc_read(self.store, offset, data, length), data.raw

    def write(self, offset: int, data: bytes) -> int:
        return self.library.poetc_write(self.store, offset, data, len(data))

    def sync(self) -> int:
        return self.library.poetc_sync(self.store)


@pytest.fixture(scope="module", params=["", "-DPOETC_VERIFY_WRITES"], ids=["plain", "verified"])
def blocks(
    request: pytest.FixtureRequest, sources: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BlockStore]:
    (sources / "block_test.c").write_text(BLOCK_TEST)
    files = [sources / n for n in ("store_block.c", "poetc_store.c", "block_test.c")]
    flags = ("-O2", "-Wno-missing-prototypes", *([request.param] if request.param else []))
    output = tmp_path_factory.mktemp("blocks") / "blocks.so"
    yield BlockStore(load_library(files, output, flags=flags))


def test_random_transfers(blocks: BlockStore) -> None:
    """As bytes of a long string; after a sync the device has them all."""
    generator = random.Random(3)
    blocks.start()
    expected = bytearray(blocks.content())
    for _ in range(3000):
        length = generator.choice((1, 4, 16, 100, 512, 700, 1536))
        offset = generator.randrange(BLOCKS * BLOCK - length)
        offset -= offset % generator.choice((1, 4, 512))
        if generator.random() < 0.5:
            data = generator.randbytes(length)
            expected[offset : offset + length] = data
            assert blocks.write(offset, data) == OK
        else:
            assert blocks.read(offset, length) == (OK, bytes(expected[offset : offset + length]))
        if generator.random() < 0.1:
            assert blocks.sync() == OK
            assert blocks.content() == expected


def test_blocks_that_fail(blocks: BlockStore) -> None:
    """What failed can be done again; nothing else is lost."""
    generator = random.Random(4)
    blocks.start()
    expected = bytearray(blocks.content())
    for _ in range(2000):
        length = generator.choice((4, 16, 512, 700))
        offset = generator.randrange(0, BLOCKS * BLOCK - length, 4)
        data = generator.randbytes(length)
        blocks.count("fails").value = generator.choice((0, 1, 2, 3))
        expected[offset : offset + length] = data
        if blocks.write(offset, data) != OK:
            blocks.count("fails").value = 0
            assert blocks.write(offset, data) == OK
        blocks.count("fails").value = generator.choice((0, 1))
        if blocks.sync() != OK:
            assert blocks.sync() == OK
        blocks.count("fails").value = 0
        assert blocks.content() == expected


def test_damaged_blocks(blocks: BlockStore) -> None:
    """They cannot be read, but be overwritten: the rest of such a block is empty, and the next sync
    says that something may be lost."""
    blocks.start()
    blocks.damaged[2] = 1
    assert blocks.read(2 * BLOCK + 8, 16)[0] == CORRUPT
    assert blocks.read(2 * BLOCK, BLOCK)[0] == CORRUPT
    assert blocks.write(2 * BLOCK + 8, b"abcd") == OK
    assert blocks.sync() == CORRUPT
    assert blocks.sync() == OK
    assert bytes(blocks.memory[2]) == bytes(8) + b"abcd" + bytes(500)
    assert blocks.read(BLOCKS * BLOCK, 4)[0] == OUT_OF_RANGE
    assert blocks.write(BLOCKS * BLOCK - 4, bytes(8)) == OUT_OF_RANGE


def test_a_block_is_written_once(blocks: BlockStore) -> None:
    """What pages and CRCs share stays in RAM between them, unless writes are verified."""
    blocks.start()
    blocks.count("reads").value = blocks.count("writes").value = 0
    for page in range(4):
        assert blocks.library.poetc_page_out(blocks.store, 100 * page, bytes(96), 96) == OK
    assert blocks.sync() == OK
    assert blocks.count("writes").value == blocks.count("reads").value
    assert blocks.count("writes").value in (1, 8)


# memory.c

MEMORY_TEST = """\
#include <stdio.h>
#include <string.h>

#define memcpy own_memcpy
#define memmove own_memmove
#define memset own_memset
#define memcmp own_memcmp
#include "memory.c"
#undef memcpy
#undef memmove
#undef memset
#undef memcmp

int main(void)
{
    unsigned char a[64], b[64];
    for (size_t length = 0; length < 24; ++length) {
        for (size_t to = 0; to < 9; ++to) {
            for (size_t from = 0; from < 9; ++from) {
                for (size_t i = 0; i < 64; ++i) {
                    a[i] = b[i] = (unsigned char)(i * 7u);
                }
                own_memcpy(a + 32 + to, a + from, length);
                memcpy(b + 32 + to, b + from, length);
                own_memmove(a + to, a + from, length);
                memmove(b + to, b + from, length);
                own_memset(a + 40 + to, 0x1a5, length / 2);
                memset(b + 40 + to, 0x1a5, length / 2);
                if (memcmp(a, b, sizeof a) != 0) {
                    return 1;
                }
                const int own = own_memcmp(a + to, a + from, length);
                const int libc = memcmp(a + to, a + from, length);
                if ((own < 0) != (libc < 0) || (own > 0) != (libc > 0)) {
                    return 2;
                }
            }
        }
    }
    return 0;
}
"""


@pytest.mark.parametrize("flags", [("-O2",), SANITIZED], ids=["plain", "sanitized"])
def test_memory_functions(sources: Path, tmp_path: Path, flags: tuple[str, ...]) -> None:
    test = tmp_path / "test.c"
    test.write_text(MEMORY_TEST)
    flags = (*flags, f"-I{sources}", "-fno-tree-loop-distribute-patterns")
    program = compile_c([test], tmp_path / "test", flags=flags)
    assert subprocess.run([program]).returncode == 0
