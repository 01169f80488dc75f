"""A page: how a tensor is kept on auxiliary storage.

    the bytes of the tensor
    the trailer: their CRC-32, exclusive-ored with the tag of the step that wrote the page, least
        significant byte first
    padding to a multiple of 4

Everything that places, reads or writes pages takes its sizes from here; `poetc_store.h` says the
same in C.
"""

from __future__ import annotations

import zlib

PAGE_TRAILER_BYTES = 4
"""Bytes that follow those of the tensor."""

PAGE_ALIGN_BYTES = 4
"""Pages begin at multiples of this, and take multiples of it."""


def page_bytes(payload_bytes: int, align: int = PAGE_ALIGN_BYTES) -> int:
    """Bytes that the page of a tensor of `payload_bytes` takes, rounded up to `align`."""
    return -(-(payload_bytes + PAGE_TRAILER_BYTES) // align) * align


def page_trailer(payload: bytes | memoryview, tag: int = 0) -> bytes:
    """The trailer of a page: a page that was written with another tag does not have it."""
    return (zlib.crc32(payload) ^ tag).to_bytes(PAGE_TRAILER_BYTES, "little")
