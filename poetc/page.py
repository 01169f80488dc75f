"""A page: how a tensor is kept on auxiliary storage.

    the bytes of the tensor
    the trailer: their CRC-32, exclusive-ored with the tag of the step that wrote the page, least
        significant byte first
    padding to a multiple of 4

Where kernels run in tiles, pages are read and written in slices, and so are in blocks: a page is a
sequence of them, each with so many bytes of the tensor and a trailer of its own. The tag of a block
depends on its number, so that none is taken for another one.

Everything that places, reads or writes pages takes its sizes from here; `poetc_store.h` and
`poetc_slice.h` say the same in C.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator

from poetc.errors import InputError

PAGE_TRAILER_BYTES = 4
"""Bytes that follow those of the tensor."""

PAGE_ALIGN_BYTES = 4
"""Pages begin at multiples of this, and take multiples of it."""


_TAG_OF_BLOCK = 0x9E3779B1
"""Times the number of a block, what is added to its tag."""

LEAST_BLOCK_BYTES, MOST_BLOCK_BYTES = 64, 1 << 16
"""The sizes of a block of a page with its trailer; it is a multiple of `PAGE_ALIGN_BYTES`."""

BLOCK_BYTES = 512
"""The same where nothing is said of it: what a transfer starts with costs little beside so many."""

MOST_SLICE_DIMENSIONS = 8
"""The most dimensions of a tensor that is moved in slices: `POETC_SLICE_DIMENSIONS` in C."""


def check_block_bytes(size: int, option: str) -> int:
    """`size`, if blocks can have it; raises InputError naming the option if not."""
    if size % PAGE_ALIGN_BYTES or not LEAST_BLOCK_BYTES <= size <= MOST_BLOCK_BYTES:
        raise InputError(
            f"{option} is a multiple of {PAGE_ALIGN_BYTES} from {LEAST_BLOCK_BYTES} to "
            f"{MOST_BLOCK_BYTES:,} bytes, not {size:,}"
        )
    return size


def page_bytes(
    payload_bytes: int, align: int = PAGE_ALIGN_BYTES, block_bytes: int | None = None
) -> int:
    """Bytes that the page of a tensor of `payload_bytes` takes, rounded up to `align`: in blocks of
    `block_bytes`, by default in one piece."""
    count = 1 if block_bytes is None else -(-payload_bytes // (block_bytes - PAGE_TRAILER_BYTES))
    return -(-(payload_bytes + count * PAGE_TRAILER_BYTES) // align) * align


def page_content(payload: bytes, tag: int = 0, block_bytes: int | None = None) -> bytes:
    """A page that a step with that tag wrote, without its padding."""
    return b"".join(
        payload[begin:end] + page_trailer(payload[begin:end], tag + number * _TAG_OF_BLOCK)
        for number, (begin, end) in enumerate(block_ranges(len(payload), block_bytes))
    )


def page_payload(
    page: bytes, payload_bytes: int, tag: int = 0, block_bytes: int | None = None
) -> bytes | None:
    """The content of a page, which begins `page`; None if it is damaged."""
    payload = b"".join(
        page[begin + at : end + at]
        for at, (begin, end) in zip(
            itertools.count(0, PAGE_TRAILER_BYTES), block_ranges(payload_bytes, block_bytes)
        )
    )
    content = page_content(payload, tag, block_bytes)
    return payload if page[: len(content)] == content else None


def block_ranges(payload_bytes: int, block_bytes: int | None) -> Iterator[tuple[int, int]]:
    """The bytes of the tensor at which each block of a page begins and ends; a page in one piece is
    one block. A tensor without elements has no blocks."""
    if block_bytes is None:
        yield 0, payload_bytes
        return
    size = block_bytes - PAGE_TRAILER_BYTES
    for begin in range(0, payload_bytes, size):
        yield begin, min(begin + size, payload_bytes)


def page_trailer(payload: bytes | memoryview, tag: int = 0) -> bytes:
    """The trailer of a page: a page that was written with another tag does not have it."""
    return (zlib.crc32(payload) ^ (tag % 2**32)).to_bytes(PAGE_TRAILER_BYTES, "little")
