"""Page stores of the Python runner: the layout of pages and images is that of the C runtime.

A page is the bytes of a tensor and their CRC-32. The image of parameters on storage is described in
poetc/image.py: a record says which bank has the current values, and a step writes new ones to the
other bank before it writes the other record.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from poetc.errors import InputError
from poetc.image import (
    RECORD_BYTES,
    State,
    newest_state,
    read_record,
    record_of,
    record_offset,
)
from poetc.lock import lock
from poetc.page import PAGE_TRAILER_BYTES, page_trailer

PAGE = 0
"""A parameter that no step changes, or a page of a step without parameters on storage."""
OLD = 1
"""The current value of a parameter, in the bank that the newest record names."""
NEW = 2
"""Its new value, in the other bank."""
OWN = 3
"""The first page of a step that has parameters on storage; its others are 4, 5, ..."""


_IN_USE = "another program has done a step on the store meanwhile"


class PageError(Exception):
    """A page could not be moved, or is not what was written."""


class Store(Protocol):
    """Bytes that survive what happens in RAM. Offsets are in bytes."""

    def read(self, offset: int, length: int) -> bytes:
        """The bytes; fewer, if the store ends before."""
        ...

    def write(self, offset: int, data: bytes) -> None: ...

    def sync(self) -> None:
        """Returns when everything that was written would survive a loss of power."""
        ...


class MemoryStore:
    """A store in memory, of a fixed size or with the given content."""

    def __init__(self, content: int | bytes) -> None:
        self.data = bytearray(content)

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self.data[offset : offset + length])

    def write(self, offset: int, data: bytes) -> None:
        if offset + len(data) > len(self.data):
            raise PageError(f"{offset + len(data)} is beyond the end of the store")
        self.data[offset : offset + len(data)] = data

    def sync(self) -> None:
        """Nothing: memory is not meant to survive."""


class FileStore:
    """A store in a file, which is made if there is none and keeps its content otherwise.

    The file is locked until it is closed. Raises InputError where it is already, or cannot be
    opened.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        try:
            self.descriptor = os.open(self.path, flags, 0o666)
        except OSError as error:
            raise InputError(f"cannot open {self.path}: {error.strerror}") from error
        try:
            lock(self.descriptor, self.path)
        except InputError:
            self.close()
            raise

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self.descriptor, length, offset)

    def write(self, offset: int, data: bytes) -> None:
        while data:
            done = os.pwrite(self.descriptor, data, offset)
            offset, data = offset + done, data[done:]

    def sync(self) -> None:
        os.fsync(self.descriptor)

    def close(self) -> None:
        os.close(self.descriptor)


@dataclass
class Traffic:
    """The transfers of a step: pages, and the bytes of their tensors."""

    pages_in: int = 0
    pages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


class Pager:
    """Moves checked pages between tensors and a store; the methods are what programs call."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.traffic = Traffic()
        self.layout_id = self.unit_bytes = self.bank_bytes = 0
        self.old = self.new = State(0, 0)
        self.inputs = 0
        """A hash of all arguments in RAM, which the runner sets before each step."""

    def page_out(self, offset: int, kind: int, data: bytes) -> None:
        """Writes a page."""
        offset, tag = self._place(offset, kind)
        self.store.write(offset, data + page_trailer(data, tag))
        self.traffic.pages_out += 1
        self.traffic.bytes_out += len(data)

    def page_in(self, offset: int, kind: int, length: int) -> bytes:
        """Reads the page of a tensor of `length` bytes. Raises PageError for a damaged one."""
        offset, tag = self._place(offset, kind)
        page = self.store.read(offset, length + PAGE_TRAILER_BYTES)
        data, trailer = page[:length], page[length:]
        if trailer != page_trailer(data, tag):
            raise PageError(f"the page at {offset} is damaged, or was never written")
        self.traffic.pages_in += 1
        self.traffic.bytes_in += length
        return data

    def image_open(self, layout_id: int, unit_bytes: int, bank_bytes: int, program_id: int) -> None:
        """Finds the current values of parameters. Raises PageError if the store has none."""
        self.layout_id, self.unit_bytes, self.bank_bytes = layout_id, unit_bytes, bank_bytes
        self.old = self._newest()
        following = (self.old.sequence + 1) % 2**32
        words = (program_id, self.inputs, following)
        tag = zlib.crc32(b"".join(word.to_bytes(4, "little") for word in words))
        self.new = State(following, tag)

    def image_commit(self) -> None:
        """Makes the new values the current ones."""
        self.store.sync()
        if self._newest() != self.old:
            raise PageError(_IN_USE)
        offset = record_offset(self.new.sequence, self.unit_bytes)
        self.store.write(offset, record_of(self.layout_id, self.new))
        self.store.sync()
        written = self._record(self.new.sequence & 1)
        if written is None:
            raise PageError("the record of new parameters was not written")
        if written != self.new:
            raise PageError(_IN_USE)

    def _newest(self) -> State:
        newest = newest_state(s for slot in (0, 1) if (s := self._record(slot)) is not None)
        if newest is None:
            raise PageError(f"the store has no image with the layout {self.layout_id:08x}")
        return newest

    def _place(self, offset: int, kind: int) -> tuple[int, int]:
        """The offset of a page, and its tag."""
        if kind == PAGE:
            return offset, 0
        if kind >= OWN:
            return offset, (self.new.tag + kind) % 2**32
        state = self.new if kind == NEW else self.old
        return offset + (state.sequence & 1) * self.bank_bytes, state.tag

    def _record(self, slot: int) -> State | None:
        """The state that a record says, None if it is not a valid one of this layout."""
        record = self.store.read(record_offset(slot, self.unit_bytes), RECORD_BYTES)
        found = read_record(record, slot)
        return found[1] if found is not None and found[0] == self.layout_id else None
