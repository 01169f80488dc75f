"""The page store: CRC, lengths, ranges; every failure comes back as a status.

Transfers in two halves are tested in `test_c_transfers.py`.
"""

import ctypes
import itertools
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from c_support import COMPILERS, STRICT, compile_c, full_files, load_library
from hypothesis import given
from hypothesis import strategies as st

from poetc.backends.c.emit import RUNTIME
from poetc.backends.c.layout import STATIC_BYTES
from poetc.backends.c.shared import statuses
from poetc.backends.c.stack import TRANSFER_BYTES
from poetc.page import PAGE_TRAILER_BYTES, page_bytes

SOURCES = [
    RUNTIME / f"{name}.c"
    for name in ("poetc_store", "poetc_image", "poetc_slice", "store_memory", "store_file")
]

(
    OK,
    READ_FAILED,
    WRITE_FAILED,
    SHORT_TRANSFER,
    CORRUPT,
    OUT_OF_RANGE,
    NO_STORE,
    BUSY,
    IDLE,
    NO_IMAGE,
    TIMED_OUT,
    *_OTHERS,
    IN_USE,
) = range(20)

_Store = ctypes.c_void_p
_Done = ctypes.POINTER(ctypes.c_uint32)
_Count = Any  # a pointer to uint32_t, as ctypes hands it to a callback
_Move = ctypes.CFUNCTYPE(
    ctypes.c_int, _Store, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32, _Done
)
_OnTransfer = ctypes.CFUNCTYPE(ctypes.c_int, _Store, ctypes.c_void_p)
_Sync = ctypes.CFUNCTYPE(ctypes.c_int, _Store)


class _Operations(ctypes.Structure):
    _fields_ = [
        ("read", _Move),
        ("write", _Move),
        ("start_read", _OnTransfer),
        ("start_write", _OnTransfer),
        ("wait", _OnTransfer),
        ("sync", _Sync),
    ]


class _Handle(ctypes.Structure):
    _fields_ = [("operations", ctypes.POINTER(_Operations))]


class Transfer(ctypes.Structure):
    """`poetc_transfer`."""

    _fields_ = [
        ("trailer", ctypes.c_uint8 * 4),
        ("offset", ctypes.c_uint32),
        ("length", ctypes.c_uint32),
        ("data", ctypes.c_void_p),
        ("direction", ctypes.c_uint8),
        ("verify", ctypes.c_bool),
        ("tag", ctypes.c_uint32),
        ("done", ctypes.c_uint32),
        ("status", ctypes.c_int),
        ("next", ctypes.c_void_p),
    ]


class PythonStore:
    """A store written in Python, with faults: `lose` bytes of each transfer, or fail with a status.

    With `asynchronous`, a started transfer happens when it, or one after it, is waited for.
    """

    def __init__(self, size: int, asynchronous: bool = False) -> None:
        self.bytes = bytearray(size)
        self.lose = 0
        self.read_status = OK
        self.write_status = OK
        self.calls: list[str] = []
        self.queue: list[tuple[int, Callable[..., int]]] = []
        self.start_status = OK
        self._operations = _Operations(
            _Move(self._read),
            _Move(self._write),
            _OnTransfer(self._start_read) if asynchronous else _OnTransfer(),
            _OnTransfer(self._start_write) if asynchronous else _OnTransfer(),
            _OnTransfer(self._wait) if asynchronous else _OnTransfer(),
            _Sync(),
        )
        self.handle = _Handle(ctypes.pointer(self._operations))

    @property
    def address(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(ctypes.addressof(self.handle))

    def _read(self, _: int, offset: int, data: int, length: int, done: _Count) -> int:
        self.calls.append(f"read {offset} {length}")
        moved = max(length - self.lose, 0)
        ctypes.memmove(data, bytes(self.bytes[offset : offset + moved]), moved)
        done[0] = moved
        return self.read_status

    def _write(self, _: int, offset: int, data: int, length: int, done: _Count) -> int:
        self.calls.append(f"write {offset} {length}")
        moved = max(length - self.lose, 0)
        self.bytes[offset : offset + moved] = ctypes.string_at(data, moved)
        done[0] = moved
        return self.write_status

    def _start_read(self, _: int, transfer: int) -> int:
        self.calls.append("start read")
        if self.start_status == OK:
            self.queue.append((transfer, self._read))
        return self.start_status

    def _start_write(self, _: int, transfer: int) -> int:
        self.calls.append("start write")
        if self.start_status == OK:
            self.queue.append((transfer, self._write))
        return self.start_status

    def _wait(self, _: int, transfer: int) -> int:
        self.calls.append("wait")
        while any(queued == transfer for queued, _ in self.queue):
            address, move = self.queue.pop(0)
            self._do(Transfer.from_address(address), move)
        return Transfer.from_address(transfer).status

    def _do(self, transfer: Transfer, move: Callable[..., int]) -> None:
        done = ctypes.c_uint32()
        behind = transfer.offset + transfer.length
        trailer = ctypes.addressof(transfer) + Transfer.trailer.offset
        first = move(0, transfer.offset, transfer.data, transfer.length, ctypes.pointer(done))
        transfer.status, transfer.done = first, done.value
        if transfer.status == OK and transfer.done == transfer.length:
            transfer.status = move(0, behind, trailer, 4, ctypes.pointer(done))
            transfer.done += done.value


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = load_library(SOURCES, tmp_path_factory.mktemp("store") / "store.so")
    library.poetc_crc32.restype = ctypes.c_uint32
    library.poetc_status_text.restype = ctypes.c_char_p
    return library


def page(values: bytes) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(values, len(values))


@pytest.mark.parametrize("compiler", COMPILERS)
def test_sources_compile_without_warnings(compiler: str, tmp_path: Path) -> None:
    for source in SOURCES:
        compile_c([source], tmp_path / f"{source.stem}.o", compiler, ("-O2", "-c"))


def test_the_core_needs_no_header_of_a_c_library(tmp_path: Path) -> None:
    """Not even string.h: a freestanding compiler comes without it."""
    core = sorted(RUNTIME.glob("poetc_*"))
    assert len(core) > 9
    for path in core:
        headers = {
            line.split()[1]
            for line in path.read_text().splitlines()
            if line.startswith("#include <")
        }
        assert headers <= {"<float.h>", "<stdint.h>", "<stddef.h>", "<stdbool.h>"}, path.name
    flags = ("-O2", "-c", "-ffreestanding")
    for name in ("store", "slice"):
        compile_c([RUNTIME / f"poetc_{name}.c"], tmp_path / f"{name}.o", "gcc", flags)


def test_handles_fit_the_static_data_reported(tmp_path: Path) -> None:
    source = tmp_path / "sizes.c"
    pages = " && ".join(f"POETC_PAGE_BYTES({n}u) == {page_bytes(n)}u" for n in range(20))
    source.write_text(
        f"""
#include "store_file.h"
#include "store_memory.h"
typedef char file_fits[sizeof(poetc_file_store) <= {STATIC_BYTES} ? 1 : -1];
typedef char memory_fits[sizeof(poetc_memory_store) <= {STATIC_BYTES} ? 1 : -1];
typedef char transfer_fits[sizeof(poetc_transfer) <= {TRANSFER_BYTES} ? 1 : -1];
typedef char trailer_is[POETC_TRAILER_BYTES == {PAGE_TRAILER_BYTES} ? 1 : -1];
typedef char pages_are[{pages} ? 1 : -1];
extern file_fits *a;
extern memory_fits *b;
extern trailer_is *c;
extern transfer_fits *d;
extern pages_are *e;
"""
    )
    assert "-Werror" in STRICT
    compile_c([source], tmp_path / "sizes.o", flags=("-c", f"-I{RUNTIME}"))


@given(st.binary(max_size=40), st.integers(0, 3))
def test_crc(library: ctypes.CDLL, data: bytes, start: int) -> None:
    """Of any length, from any address."""
    at = ctypes.create_string_buffer(b"abc"[:start] + data)
    address = ctypes.c_void_p(ctypes.addressof(at) + start)
    assert library.poetc_crc32(address, len(data)) == zlib.crc32(data)


def test_crc_of_small_code(tmp_path: Path) -> None:
    small = load_library(SOURCES, tmp_path / "small.so", flags=(f"-I{RUNTIME}", "-Os"))
    small.poetc_crc32.restype = ctypes.c_uint32
    for length in (0, 1, 3, 4, 7, 256, 1001):
        data = np.random.default_rng(length).bytes(length)
        assert small.poetc_crc32(data, length) == zlib.crc32(data)


def test_a_program_may_have_its_own_crc(tmp_path: Path) -> None:
    source = tmp_path / "own.c"
    source.write_text(
        """
#include "poetc_store.h"
uint32_t poetc_crc32(const void *data, uint32_t length)
{
    (void)data;
    return length + 17u;
}
"""
    )
    flags = ("-DPOETC_OWN_CRC32", f"-I{RUNTIME}", "-O2")
    library = load_library([*SOURCES, source], tmp_path / "own.so", flags=flags)
    store = PythonStore(64)
    assert library.poetc_page_out(store.address, 8, page(b"abcd"), 4) == OK
    assert store.bytes[8:16] == b"abcd" + (4 + 17).to_bytes(4, "little")


def test_status_texts(library: ctypes.CDLL) -> None:
    texts = [library.poetc_status_text(status) for status in range(len(statuses()))]
    assert len(set(texts)) == len(statuses()) and b"unknown status" not in texts
    assert texts[OK] == b"ok"
    assert library.poetc_status_text(99) == b"unknown status"


def test_page_is_data_and_crc(library: ctypes.CDLL) -> None:
    store = PythonStore(64)
    data = page(b"twenty bytes of data")
    assert library.poetc_page_out(store.address, 8, data, 20) == OK
    trailer = zlib.crc32(b"twenty bytes of data").to_bytes(4, "little")
    assert store.bytes[8:32] == b"twenty bytes of data" + trailer
    assert store.bytes[:8] == bytes(8) and store.bytes[32:] == bytes(32)
    back = page(bytes(20))
    assert library.poetc_page_in(store.address, 8, back, 20) == OK
    assert back.raw == data.raw


@pytest.mark.parametrize("position", range(12))
def test_any_flipped_bit_is_found(library: ctypes.CDLL, position: int) -> None:
    store = PythonStore(64)
    assert library.poetc_page_out(store.address, 4, page(b"8 bytes!"), 8) == OK
    store.bytes[4 + position] ^= 1 << (position % 8)
    assert library.poetc_page_in(store.address, 4, page(bytes(8)), 8) == CORRUPT


def test_short_transfers_are_found(library: ctypes.CDLL) -> None:
    store = PythonStore(64)
    assert library.poetc_page_out(store.address, 0, page(b"12345678"), 8) == OK
    store.lose = 1
    assert library.poetc_page_in(store.address, 0, page(bytes(8)), 8) == SHORT_TRANSFER
    assert library.poetc_page_out(store.address, 0, page(bytes(8)), 8) == SHORT_TRANSFER


def test_failures_are_returned(library: ctypes.CDLL) -> None:
    store = PythonStore(64)
    store.write_status = WRITE_FAILED
    assert library.poetc_page_out(store.address, 0, page(bytes(8)), 8) == WRITE_FAILED
    assert store.calls == ["write 0 8"]  # no trailer for a page that is not there
    store.read_status = READ_FAILED
    assert library.poetc_page_in(store.address, 0, page(bytes(8)), 8) == READ_FAILED


def test_no_store(library: ctypes.CDLL) -> None:
    transfer = Transfer()
    for function in (library.poetc_page_out, library.poetc_page_in):
        assert function(None, 0, page(bytes(8)), 8) == NO_STORE
    for function in (library.poetc_page_out_start, library.poetc_page_in_start):
        assert function(None, ctypes.byref(transfer), 0, page(bytes(8)), 8, 0) == NO_STORE
    assert library.poetc_page_wait(None, ctypes.byref(transfer)) == NO_STORE


def test_memory_store(library: ctypes.CDLL) -> None:
    content = np.zeros(40, np.uint8)
    handle = ctypes.create_string_buffer(STATIC_BYTES)
    library.poetc_memory_store_init(handle, ctypes.c_void_p(content.ctypes.data), 40)
    data = page(b"16 bytes of data")
    assert library.poetc_page_out(handle, 20, data, 16) == OK
    back = page(bytes(16))
    assert library.poetc_page_in(handle, 20, back, 16) == OK
    assert back.raw == data.raw
    assert library.poetc_page_out(handle, 21, data, 16) == OUT_OF_RANGE  # the CRC does not fit
    assert library.poetc_page_out(handle, 41, data, 16) == OUT_OF_RANGE
    assert library.poetc_page_in(handle, 2**32 - 8, back, 16) == OUT_OF_RANGE


def test_file_store(library: ctypes.CDLL, tmp_path: Path) -> None:
    path = tmp_path / "pages.bin"
    handle = ctypes.create_string_buffer(STATIC_BYTES)
    assert library.poetc_file_store_open(handle, str(path).encode()) == OK
    first, second = page(b"the first page.."), page(b"page two")
    back = page(bytes(16))
    assert library.poetc_page_out(handle, 100, first, 16) == OK
    assert library.poetc_page_out(handle, 0, second, 8) == OK
    assert library.poetc_page_in(handle, 100, back, 16) == OK
    assert back.raw == first.raw
    assert library.poetc_page_in(handle, 0, back, 8) == OK
    assert back.raw[:8] == second.raw
    with path.open("r+b") as file:
        file.seek(103)
        file.write(b"!")
    assert library.poetc_page_in(handle, 100, back, 16) == CORRUPT
    assert library.poetc_page_in(handle, 110, back, 16) == SHORT_TRANSFER
    assert library.poetc_page_in(handle, 100, back, 16) == CORRUPT
    assert library.poetc_file_store_close(handle) == OK
    assert path.stat().st_size == 120


def test_file_store_that_keeps_its_file(library: ctypes.CDLL, tmp_path: Path) -> None:
    path = tmp_path / "image.bin"
    handle = ctypes.create_string_buffer(STATIC_BYTES)
    assert library.poetc_file_store_open_image(handle, str(path).encode()) == WRITE_FAILED
    assert not path.exists()
    path.write_bytes(b"content")
    assert library.poetc_file_store_open_image(handle, str(path).encode()) == OK
    assert library.poetc_write(handle, 3, page(b"T"), 1) == OK
    assert library.poetc_sync(handle) == OK
    assert path.read_bytes() == b"conTent"
    assert library.poetc_file_store_close(handle) == OK
    assert library.poetc_file_store_open(handle, str(path).encode()) == OK
    assert path.read_bytes() == b""
    assert library.poetc_file_store_close(handle) == OK


@pytest.mark.parametrize("how", ["open", "open_image"])
def test_a_file_in_use_is_refused(library: ctypes.CDLL, tmp_path: Path, how: str) -> None:
    path = tmp_path / "image.bin"
    path.write_bytes(b"content")
    first, second = (ctypes.create_string_buffer(STATIC_BYTES) for _ in range(2))
    assert library.poetc_file_store_open_image(first, str(path).encode()) == OK
    open_file = getattr(library, f"poetc_file_store_{how}")
    assert open_file(second, str(path).encode()) == IN_USE
    assert path.read_bytes() == b"content"  # not emptied either
    assert library.poetc_file_store_close(first) == OK
    assert open_file(second, str(path).encode()) == OK
    assert library.poetc_file_store_close(second) == OK


def test_without_locks(tmp_path: Path) -> None:
    flags = ("-O2", "-DPOETC_NO_FILE_LOCK")
    library = load_library(SOURCES, tmp_path / "unlocked.so", flags=flags)
    handles = [ctypes.create_string_buffer(STATIC_BYTES) for _ in range(2)]
    path = str(tmp_path / "pages.bin").encode()
    assert [library.poetc_file_store_open(handle, path) for handle in handles] == [OK, OK]
    assert [library.poetc_file_store_close(handle) for handle in handles] == [OK, OK]


def test_tags(library: ctypes.CDLL) -> None:
    """A page is only good for the tag that it was written with; the tag takes no bytes."""
    store = PythonStore(64)
    data, back = page(b"12345678"), page(bytes(8))
    tag = ctypes.c_uint32(2**32 - 1)
    assert library.poetc_page_out_tagged(store.address, 0, data, 8, tag) == OK
    assert store.calls == ["write 0 8", "write 8 4"]
    assert library.poetc_page_in_tagged(store.address, 0, back, 8, tag) == OK
    assert library.poetc_page_in_tagged(store.address, 0, back, 8, 1) == CORRUPT
    assert library.poetc_page_in(store.address, 0, back, 8) == CORRUPT
    assert library.poetc_page_out(store.address, 0, data, 8) == OK
    assert library.poetc_page_in_tagged(store.address, 0, back, 8, 0) == OK


class State(ctypes.Structure):
    """`poetc_state`."""

    _fields_: ClassVar = [(name, ctypes.c_uint32) for name in ("sequence", "old_tag", "new_tag")]


def state(sequence: int, old_tag: int, new_tag: int) -> Any:
    """Of a step from that sequence number on."""
    return ctypes.byref(State(sequence % 2**32, old_tag % 2**32, new_tag))


def image_of(*sequences: int, layout_id: int = 77, unit: int = 32) -> bytearray:
    content = bytearray(2 * unit)
    for sequence in sequences:
        fields = b"".join(
            (n % 2**32).to_bytes(4, "little") for n in (layout_id, sequence, sequence + 900)
        )
        record = fields + zlib.crc32(fields).to_bytes(4, "little")
        place = unit * (sequence & 1)
        content[place : place + 16] = record
    return content


@pytest.mark.parametrize(
    ("sequences", "newest"),
    [
        ((0,), 0),
        ((1,), 1),
        ((4, 5), 5),
        ((6, 5), 6),
        ((2**31 - 1, 2**31), 2**31),
        ((2**32 - 1, 0), 0),
        ((2**32 - 1, 2**32 - 2), 2**32 - 1),
    ],
)
def test_newest_record(library: ctypes.CDLL, sequences: tuple[int, ...], newest: int) -> None:
    store = PythonStore(64)
    store.bytes = image_of(*sequences)
    found = State(99)
    opened = (store.address, 77, 32, ctypes.byref(found))
    assert library.poetc_image_open(*opened) == OK
    assert (found.sequence, found.old_tag) == (newest, (newest + 900) % 2**32)
    step = state(newest, newest + 900, 7)
    assert library.poetc_image_commit(store.address, 77, 32, step) == OK
    assert library.poetc_image_open(*opened) == OK
    assert (found.sequence, found.old_tag) == ((newest + 1) % 2**32, 7)


def test_a_step_that_somebody_else_has_done(library: ctypes.CDLL) -> None:
    """Two programs that began with the same state: the second commits nothing."""
    store, found = PythonStore(128), State()
    store.bytes = image_of(4, 5)
    opened = (store.address, 77, 32, ctypes.byref(found))
    assert library.poetc_image_open(*opened) == OK and found.sequence == 5
    # The same sequence number, in an image that somebody else has made.
    assert library.poetc_image_commit(store.address, 77, 32, state(5, 1, 2)) == IN_USE
    assert library.poetc_image_commit(store.address, 77, 32, state(5, 905, 1)) == OK
    after = bytes(store.bytes)
    assert library.poetc_image_commit(store.address, 77, 32, state(5, 905, 2)) == IN_USE
    assert bytes(store.bytes) == after
    # Nor after it has fallen behind by more.
    assert library.poetc_image_commit(store.address, 77, 32, state(6, 1, 3)) == OK
    assert library.poetc_image_commit(store.address, 77, 32, state(5, 905, 2)) == IN_USE
    assert library.poetc_image_open(*opened) == OK and found.sequence == 7


def test_a_record_that_another_program_writes_over(library: ctypes.CDLL) -> None:
    """Between the record and the look at it: the state is the other's, and stays."""
    theirs = image_of(6)

    class Shared(PythonStore):
        def _write(self, *arguments: Any) -> int:
            status = super()._write(*arguments)
            self.bytes[:32] = theirs[:32]
            return status

    store = Shared(64)
    store.bytes = image_of(4, 5)
    assert library.poetc_image_commit(store.address, 77, 32, state(5, 905, 1)) == IN_USE
    assert store.bytes == theirs[:32] + image_of(5)[32:]


def test_tags_of_arguments(library: ctypes.CDLL) -> None:
    """Floats that differ in signs, by one bit, in order, or in the bytes behind whole words."""
    library.poetc_tag_bytes.restype = ctypes.c_uint32
    rng = np.random.default_rng(0)
    values = rng.normal(size=6).astype(np.float32)
    orders = list(itertools.permutations(range(6)))
    variants = [values * np.array(s, np.float32) for s in itertools.product((1, -1), repeat=6)]
    variants += [values[list(order)] for order in orders[1:]]
    contents = [array.tobytes() + b"ab" for array in variants]
    first = contents[0]
    for bit in range(8 * len(first)):
        if bit >= 192 or bit % 32 != 31:  # not a sign
            changed = int.from_bytes(first, "little") ^ 1 << bit
            contents.append(changed.to_bytes(len(first), "little"))
    for sequence in (0, 1, 2**32 - 1):
        start = ctypes.c_uint32(sequence)
        tags = {library.poetc_tag_bytes(start, page(c), len(c)) for c in contents}
        assert len(tags) == len(set(contents)) == len(contents)


def test_records_that_do_not_count(library: ctypes.CDLL) -> None:
    store = PythonStore(64)
    found = State(99)
    opened = (store.address, 77, 32, ctypes.byref(found))
    for content in (bytearray(64), bytearray(b"\xff" * 64), image_of(4, 5, layout_id=78)):
        store.bytes = content
        assert library.poetc_image_open(*opened) == NO_IMAGE
    exchanged = image_of(4, 5)
    store.bytes = exchanged[32:] + exchanged[:32]
    assert library.poetc_image_open(*opened) == NO_IMAGE
    store.bytes = image_of(4, 5)
    store.bytes[32 + 13] ^= 1
    assert library.poetc_image_open(*opened) == OK and found.sequence == 4
    assert library.poetc_image_open(None, 77, 32, ctypes.byref(found)) == NO_STORE
    assert library.poetc_image_commit(None, 77, 32, state(0, 0, 0)) == NO_STORE


def test_unreadable_records(library: ctypes.CDLL) -> None:
    """A record that the storage cannot read is not valid; a store that fails is no such thing."""

    class Unreadable(PythonStore):
        status = CORRUPT

        def _read(self, *arguments: Any) -> int:
            return self.status if arguments[1] == 32 else super()._read(*arguments)

    store = Unreadable(64)
    store.bytes = image_of(4, 5)
    found = State(99)
    opened = (store.address, 77, 32, ctypes.byref(found))
    assert library.poetc_image_open(*opened) == OK and found.sequence == 4
    store.status = READ_FAILED
    assert library.poetc_image_open(*opened) == READ_FAILED


def test_a_record_that_cannot_be_written_is_erased(library: ctypes.CDLL) -> None:
    store = PythonStore(64)
    store.bytes = image_of(4, 5)
    store.write_status = WRITE_FAILED  # though the bytes are there
    assert library.poetc_image_commit(store.address, 77, 32, state(5, 905, 1)) == WRITE_FAILED
    assert store.bytes == bytearray(32) + image_of(4, 5)[32:]


def test_file_store_that_cannot_write(library: ctypes.CDLL, tmp_path: Path) -> None:
    handle = ctypes.create_string_buffer(STATIC_BYTES)
    missing = str(tmp_path / "missing" / "pages.bin").encode()
    assert library.poetc_file_store_open(handle, missing) == WRITE_FAILED
    name = str(tmp_path / "pages.bin").encode()
    with full_files():
        assert library.poetc_file_store_open(handle, name) == OK
        assert library.poetc_page_out(handle, 0, page(bytes(16)), 16) == WRITE_FAILED
