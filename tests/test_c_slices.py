"""Pages in blocks, in C: what is damaged, missing, or at another place is found."""

from __future__ import annotations

import ctypes
import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from c_support import load_library
from test_c_runtime import CORRUPT, OK, SOURCES, PythonStore, Transfer, page

from poetc.page import page_bytes, page_content, page_payload

BLOCK, TAG = 64, 7
PAYLOAD = bytes(range(1, 121))  # of two blocks, with 4 bytes of CRC each


class _Page(ctypes.Structure):
    """`poetc_block_page`."""

    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("offset", "bytes", "tag", "block_bytes")),
        ("block", ctypes.c_char_p),
    ]


class _Slice(ctypes.Structure):
    """`poetc_slice`."""

    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("element_bytes", "dimensions")),
        *((name, ctypes.c_int32 * 8) for name in ("extent", "size")),
    ]


class Pages:
    """A tensor of 120 bytes in a store."""

    def __init__(self, library: ctypes.CDLL, asynchronous: bool = False) -> None:
        self.library, self.store = library, PythonStore(2 * BLOCK, asynchronous)
        self.block = page(bytes(BLOCK))
        block = ctypes.cast(self.block, ctypes.c_char_p)
        self.page = _Page(0, len(PAYLOAD), TAG, BLOCK, block)

    def write(self) -> int:
        """All of it."""
        return self._call("blocks_out", page(PAYLOAD))

    def read(self) -> int:
        """The status; what is read must be right."""
        back = page(bytes(len(PAYLOAD)))
        status = self._call("blocks_in", back)
        assert status != OK or back.raw == PAYLOAD
        return status

    def ahead(self, begin: int, end: int, blocks: int) -> tuple[Transfer, ctypes.Array, int]:
        """Starts to read blocks of these bytes: the transfer, the blocks, and the status."""
        transfer, raw = Transfer(), page(bytes(BLOCK * blocks))
        return transfer, raw, self._ahead("slice_ahead", begin, end, transfer, raw)

    def take(self, begin: int, end: int, transfer: Transfer, raw: ctypes.Array) -> int:
        """Ends what `ahead` has begun; what is read must be right."""
        back = page(bytes(end - begin))
        status = self._ahead("slice_in_ahead", begin, end, transfer, raw, back)
        assert status != OK or back.raw == PAYLOAD[begin:end]
        return status

    def _ahead(
        self, name: str, begin: int, end: int, transfer: Transfer, raw: ctypes.Array, *to: object
    ) -> int:
        shape = ctypes.byref(_Slice(1, 1, (len(PAYLOAD),), (end - begin,)))
        start, blocks = (ctypes.c_int32 * 1)(begin), ctypes.c_uint32(len(raw) // BLOCK)
        return self._call(name, shape, start, ctypes.byref(transfer), raw, blocks, *to)

    def clear(self, begin: int, end: int) -> int:
        return self._slice("clear", begin, page(bytes(end - begin)))

    def write_slice(self, begin: int, end: int) -> int:
        return self._slice("out", begin, page(PAYLOAD[begin:end]))

    def append(self, begin: int, end: int) -> int:
        return self._slice("append", begin, page(PAYLOAD[begin:end]))

    def read_slice(self, begin: int, end: int) -> int:
        back = page(bytes(end - begin))
        status = self._slice("in", begin, back)
        assert status != OK or back.raw == PAYLOAD[begin:end]
        return status

    def _slice(self, direction: str, begin: int, data: ctypes.Array[ctypes.c_char]) -> int:
        shape = _Slice(1, 1, (len(PAYLOAD),), (len(data),))
        start = (ctypes.c_int32 * 1)(begin)
        buffer = () if direction == "clear" else (data,)
        return self._call(f"slice_{direction}", ctypes.byref(shape), start, *buffer)

    def _call(self, name: str, *arguments: object) -> int:
        function = getattr(self.library, f"poetc_{name}")
        return function(self.store.address, ctypes.byref(self.page), *arguments)


def pages(directory: Path, flags: Sequence[str] = (), asynchronous: bool = False) -> Pages:
    library = load_library(SOURCES, directory / "slices.so", flags=("-O2", *flags))
    return Pages(library, asynchronous)


@pytest.fixture
def tensor(tmp_path: Path) -> Pages:
    return pages(tmp_path)


def test_blocks_at_another_place(tensor: Pages) -> None:
    """Or of a step before."""
    assert tensor.write() == OK and tensor.read() == OK
    assert tensor.store.bytes == page_content(PAYLOAD, TAG, BLOCK)
    content = bytes(tensor.store.bytes)
    tensor.store.bytes[:] = content[BLOCK:] + content[:BLOCK]
    assert tensor.read() == tensor.read_slice(3, 9) == tensor.read_slice(70, 90) == CORRUPT
    tensor.store.bytes[:] = content[:BLOCK] * 2
    assert tensor.read_slice(3, 9) == OK and tensor.read_slice(70, 90) == CORRUPT
    tensor.store.bytes[:] = page_content(PAYLOAD, TAG - 1, BLOCK)
    assert tensor.read() == tensor.read_slice(3, 9) == tensor.write_slice(3, 9) == CORRUPT


def test_no_block_of_another_tag_is_one_that_is_incomplete(tensor: Pages) -> None:
    """Tags of one step differ little, and the difference is no number of bytes that remain."""
    for difference in range(1, 60):
        tensor.store.bytes[:] = page_content(PAYLOAD, TAG ^ difference, BLOCK)
        assert tensor.write_slice(0, difference) == tensor.read() == CORRUPT


def test_what_has_not_been_written(tensor: Pages) -> None:
    """No part of a block is read before all of it is there, and none is written twice."""
    assert tensor.clear(0, 25) == tensor.clear(25, 100) == tensor.clear(100, 120) == OK
    assert tensor.read_slice(0, 1) == CORRUPT
    assert tensor.write_slice(0, 25) == tensor.write_slice(100, 120) == OK
    assert tensor.read_slice(0, 25) == tensor.read_slice(100, 120) == CORRUPT
    before = bytes(tensor.store.bytes)
    assert tensor.write_slice(25, 100) == OK and tensor.read() == OK
    assert tensor.read_slice(55, 65) == OK
    assert tensor.write_slice(30, 31) == CORRUPT and tensor.read() == OK
    # A write that was lost.
    tensor.store.bytes[:BLOCK] = before[:BLOCK]
    assert tensor.read() == tensor.read_slice(0, 1) == CORRUPT and tensor.read_slice(60, 120) == OK


def test_only_blocks_in_parts_are_written_empty(tensor: Pages) -> None:
    """Each once, wherever slices end and in whatever order they are written."""
    rng = random.Random(1)
    for _ in range(200):
        ends = [0, *sorted(rng.sample(range(1, 120), rng.randrange(6))), 120]
        slices = list(itertools.pairwise(ends))
        tensor.store.bytes[:] = rng.randbytes(2 * BLOCK)
        tensor.store.calls.clear()
        rng.shuffle(slices)
        assert all(tensor.clear(*each) == OK for each in slices)
        parts = [n for n in (0, 1) if any(60 * n < end < 60 * n + 60 for end in ends)]
        assert sorted(tensor.store.calls) == [f"write {BLOCK * n} {BLOCK}" for n in parts]
        rng.shuffle(slices)
        assert all(tensor.write_slice(*each) == OK for each in slices)
        assert tensor.store.bytes == page_content(PAYLOAD, TAG, BLOCK)


def test_slices_in_order_are_written_over_what_was_there(tensor: Pages) -> None:
    """Whatever that is, a block is read only where a slice begins within it."""
    rng = random.Random(4)
    for _ in range(100):
        ends = [0, *sorted(rng.sample(range(1, 120), rng.randrange(6))), 120]
        tensor.store.bytes[:] = rng.choice(
            (rng.randbytes(2 * BLOCK), page_content(PAYLOAD, TAG, BLOCK))
        )
        tensor.store.calls.clear()
        assert all(tensor.append(*each) == OK for each in itertools.pairwise(ends))
        within = [f"read {BLOCK * (end // 60)} {BLOCK}" for end in ends[1:-1] if end % 60]
        assert [call for call in tensor.store.calls if "read" in call] == within
        assert tensor.store.bytes == page_content(PAYLOAD, TAG, BLOCK)


def test_slices_in_order_that_do_not_follow_each_other(tensor: Pages) -> None:
    """None is left out or written twice, and a write that was lost is found."""
    for steps in ([(0, 20), (21, 60)], [(0, 20), (10, 60)], [(10, 60)], [(0, 60), (50, 60)]):
        tensor.store.bytes[:] = bytes(2 * BLOCK)
        *before, last = steps
        assert all(tensor.append(*step) == OK for step in before)
        assert tensor.append(*last) == CORRUPT
    assert tensor.append(0, 20) == OK
    before = bytes(tensor.store.bytes)
    assert tensor.append(20, 40) == OK
    tensor.store.bytes[:] = before
    assert tensor.append(40, 70) == CORRUPT
    # The same bytes of a step before.
    tensor.store.bytes[:] = page_content(PAYLOAD, TAG - 1, BLOCK)
    assert tensor.append(20, 60) == CORRUPT


@pytest.mark.parametrize("asynchronous", [False, True])
def test_blocks_that_are_read_ahead(asynchronous: bool, tmp_path: Path) -> None:
    """Whatever part of a slice they are; a bit that is wrong is found in any of its blocks, and
    nothing is read before it is waited for where the store has DMA."""
    tensor = pages(tmp_path, asynchronous=asynchronous)
    assert tensor.write() == OK
    rng = random.Random(2)
    for _ in range(100):
        begin, end = sorted(rng.sample(range(121), 2))
        blocks, touched = rng.choice((1, 2, 3)), range(begin // 60, (end - 1) // 60 + 1)
        tensor.store.calls.clear()
        transfer, raw, status = tensor.ahead(begin, end, blocks)
        count = min(blocks, len(touched))
        whole = [f"read {BLOCK * touched[0]} {BLOCK * count - 4}"]
        assert status == OK and tensor.store.calls[:1] == (
            ["start read"] if asynchronous else whole
        )
        assert (raw.raw == bytes(len(raw))) == asynchronous
        assert tensor.take(begin, end, transfer, raw) == OK
        rest = [f"read {BLOCK * n} {BLOCK}" for n in touched[count:]]
        assert [c for c in tensor.store.calls if c.startswith("read")][2:] == rest
        assert whole[0] in tensor.store.calls
        damaged = rng.randrange(2 * BLOCK)
        tensor.store.bytes[damaged] ^= 1 << rng.randrange(8)
        transfer, raw, status = tensor.ahead(begin, end, blocks)
        found = tensor.take(begin, end, transfer, raw)
        assert status == OK and (found == CORRUPT) == (damaged // BLOCK in touched)
        tensor.store.bytes[:] = page_content(PAYLOAD, TAG, BLOCK)


@pytest.mark.parametrize("verified", [False, True])
def test_writes_are_verified(verified: bool, tmp_path: Path) -> None:
    """A store that says that it has written, and has not."""
    tensor = pages(tmp_path, ("-DPOETC_VERIFY_WRITES",) if verified else ())
    assert tensor.clear(0, 30) == tensor.clear(30, 90) == OK
    write = tensor.store.bytes
    tensor.store.bytes = Forgetful(write)
    assert (tensor.write_slice(0, 60) == CORRUPT) == verified
    assert (tensor.write() == CORRUPT) == verified


class Forgetful(bytearray):
    """Keeps what it has."""

    def __setitem__(self, *_: object) -> None:
        pass


def test_a_tensor_without_elements_has_no_blocks() -> None:
    """As C has it, which moves block by block."""
    assert page_bytes(0, block_bytes=64) == len(page_content(b"", 7, 64)) == 0
    assert page_payload(b"", 0, 7, 64) == b""
    assert page_bytes(0) == len(page_content(b"", 7)) == 4
