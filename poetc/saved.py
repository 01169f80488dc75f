"""Parameters in RAM as bytes: what `model_save` writes and `model_load` reads.

    0          the layout's identity and a tag, two little-endian 32-bit numbers, and their CRC-32
    12 ...     for each parameter its page: the bytes, and their CRC-32 exclusive-ored with the tag

The identity is that of names, types and shapes, so the bytes serve every program for the same
parameters, whatever its budget. The tag is a hash of the values: pages of two savings, one of which
was cut off, are never taken for those of one. backends/c/save.py prints the same as C.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from poetc.errors import InputError
from poetc.image import ImageTensor, arrays_of, values_bytes, values_of
from poetc.page import PAGE_TRAILER_BYTES, page_trailer
from poetc.tensors import ProgramTensors

HEAD_BYTES = 12
_HEAD = struct.Struct("<2I")
_FORMAT = "poetc parameters 1"


@dataclass(frozen=True)
class SavedLayout:
    """The parameters of a program that are in RAM, with the offsets of their pages."""

    tensors: tuple[ImageTensor, ...]

    @cached_property
    def identity(self) -> int:
        """A number that differs between layouts."""
        lines = [
            f"{t.argument} {t.dtype} {'x'.join(map(str, t.shape))} {t.name}" for t in self.tensors
        ]
        return zlib.crc32("\n".join([_FORMAT, *lines]).encode())

    @cached_property
    def bytes(self) -> int:
        """The bytes of all that is saved."""
        return max((tensor.end for tensor in self.tensors), default=HEAD_BYTES)


def saved_layout(program: ProgramTensors) -> SavedLayout | None:
    """The parameters of a program that are in RAM; None if it has none there."""
    tensors: list[ImageTensor] = []
    offset = HEAD_BYTES
    for i, argument in enumerate(program.arguments):
        if argument.parameter and argument.where == "arena":
            tensor = ImageTensor(argument.name, i, argument.dtype, argument.shape, offset, True)
            tensors.append(tensor)
            offset = tensor.end
    return SavedLayout(tuple(tensors)) if tensors else None


def save(layout: SavedLayout, arrays: Mapping[str, np.ndarray] | Sequence[np.ndarray]) -> bytes:
    """The bytes that `model_save` would write for these values, named as for `poetc.image.pack`.

    Raises InputError as that does.
    """
    values = [
        values_bytes(tensor, array)
        for tensor, array in zip(layout.tensors, arrays_of(layout.tensors, arrays), strict=True)
    ]
    tag = zlib.crc32(b"".join(values))
    head = _HEAD.pack(layout.identity, tag)
    data = bytearray(layout.bytes)
    data[:HEAD_BYTES] = head + page_trailer(head, 0)
    for tensor, value in zip(layout.tensors, values, strict=True):
        page = value + page_trailer(value, tag)
        data[tensor.offset : tensor.offset + len(page)] = page
    return bytes(data)


def load(layout: SavedLayout, data: bytes) -> list[np.ndarray]:
    """The values of the parameters in `data`. Raises InputError for those of another layout, and
    for damage."""
    if len(data) < layout.bytes:
        raise InputError(f"{len(data):,} bytes, and the parameters take {layout.bytes:,}")
    head = data[: _HEAD.size]
    if data[_HEAD.size : HEAD_BYTES] != page_trailer(head, 0):
        raise InputError("these are no saved parameters, or their beginning is damaged")
    identity, tag = _HEAD.unpack(head)
    if identity != layout.identity:
        raise InputError(
            f"these are the parameters of another layout: {identity:08x}, not {layout.identity:08x}"
        )
    arrays: list[np.ndarray] = []
    for tensor in layout.tensors:
        end = tensor.offset + tensor.bytes
        value = data[tensor.offset : end]
        if data[end : end + PAGE_TRAILER_BYTES] != page_trailer(value, tag):
            raise InputError(f"{tensor.label} is damaged: the CRC at {end} is wrong")
        arrays.append(values_of(tensor, value))
    return arrays
