"""The storage image: parameters on auxiliary storage, and the record that says which are current.

    0                     record 0, a write unit of its own
    unit                  record 1, likewise
    2 * unit              pages of parameters that the step reads but does not update
    bank (a unit begins)  bank 0: a page for each parameter that the step updates
    bank + bank_bytes     bank 1: the same
    bank + 2 * bank_bytes pages of the step itself, which nobody needs after it

A record is four little-endian 32-bit numbers: the layout's identity, a sequence number s, the tag
of the step that wrote it, and the CRC-32 of the three. Sequence s is in record s mod 2, and its
values are in bank s mod 2.
A page is the bytes of a tensor and their CRC-32, or a sequence of blocks that are (poetc/page.py);
in a bank, that CRC is exclusive-ored with the tag. The newest valid record is the state
(docs/storage.md; backends/c/runtime/poetc_image.c does the same).
"""

from __future__ import annotations

import json
import math
import re
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from poetc.errors import InputError
from poetc.ir.dense import dtype_of
from poetc.ir.graph import tensor_bytes
from poetc.ir.poet import GraphOp, PageType, is_banked
from poetc.ir.types import ELEMENT_TYPES, rounded
from poetc.page import LEAST_BLOCK_BYTES, page_bytes, page_content, page_payload
from poetc.schedule.arena.pack import round_up

RECORD_BYTES = 16
RECORD_TAG_OFFSET = 8
"""The offset of the tag in a record. The bytes before it are the same in all programs."""
_FIELDS = struct.Struct("<3I")
_FORMAT = "poetc storage image 2"
_FORMAT_1 = 0x50545243
"""The first word of a record of format 1, in which steps have no tags."""
_MAX_BYTES = 2**31 - 1
_DTYPES = tuple(str(type.dtype) for type in ELEMENT_TYPES.values())
"""Element types of tensors, by NumPy's names; a bool is one byte."""


@dataclass(frozen=True)
class State:
    """The mark of the current values: `sequence` counts steps modulo 2**32, `tag` tells apart steps
    that began with the same values."""

    sequence: int
    tag: int


@dataclass(frozen=True)
class ImageTensor:
    """A parameter on storage: `argument` is its index in the graph, `offset` the place of its page
    in bytes, in bank 0 if the step updates it.

    `block_bytes` are those of the blocks that the page consists of, None if it is in one piece.
    """

    name: str
    argument: int
    dtype: str
    shape: tuple[int, ...]
    offset: int
    updated: bool
    block_bytes: int | None = None

    @cached_property
    def bytes(self) -> int:
        """Of the values, without the CRC."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def end(self) -> int:
        """Where the next page may begin."""
        return self.offset + page_bytes(self.bytes, block_bytes=self.block_bytes)

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"parameter {self.name}"

    def to_json(self) -> dict[str, Any]:
        """As plain data; only pages in blocks say of which size."""
        data = asdict(self) | {"shape": list(self.shape)}
        if self.block_bytes is None:
            del data["block_bytes"]
        return data


@dataclass(frozen=True)
class ImageLayout:
    """The places of everything in the image. `unit_bytes` is the write unit of the storage: a write
    that loses power damages units that it touches, and no others."""

    tensors: tuple[ImageTensor, ...]
    unit_bytes: int
    bank_bytes: int
    storage_bytes: int

    def __post_init__(self) -> None:
        _check(self)

    @cached_property
    def identity(self) -> int:
        """A number that differs between layouts: the CRC-32 of all that this says about parameters.

        Pages of the step are left out: the same parameters serve a program for another budget.
        """
        lines = [_FORMAT, f"unit {self.unit_bytes}, bank {self.bank_bytes}"]
        lines += [
            f"{t.argument} {t.dtype} {'x'.join(map(str, t.shape))} at {t.offset} "
            f"{'updated' if t.updated else 'constant'} {t.name}"
            + ("" if t.block_bytes is None else f" in blocks of {t.block_bytes}")
            for t in self.tensors
        ]
        return zlib.crc32("\n".join(lines).encode())

    @cached_property
    def pages_start(self) -> int:
        """Where pages of the step may begin: behind all write units of parameters."""
        return round_up(self.parameters_end, self.unit_bytes)

    @cached_property
    def parameters_end(self) -> int:
        """The least bytes of an image: up to the pages of the step."""
        ends = [2 * self.unit_bytes]
        ends += [t.end + (self.bank_bytes if t.updated else 0) for t in self.tensors]
        return max(ends)

    def to_json(self) -> dict[str, Any]:
        """The layout as plain data."""
        tensors = [tensor.to_json() for tensor in self.tensors]
        about = {"format": _FORMAT, "layout_id": self.identity}
        return about | asdict(self) | {"tensors": tensors}

    @staticmethod
    def from_json(data: Any) -> ImageLayout:
        """The layout that `to_json` gave. Raises InputError for anything else."""
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise InputError(f"not a description of a {_FORMAT!r}")
        try:
            layout = ImageLayout(
                tuple(
                    ImageTensor(
                        _typed(t["name"], str),
                        _typed(t["argument"], int),
                        _typed(t["dtype"], str),
                        tuple(_typed(extent, int) for extent in _typed(t["shape"], list)),
                        _typed(t["offset"], int),
                        _typed(t["updated"], bool),
                        None if "block_bytes" not in t else _typed(t["block_bytes"], int),
                    )
                    for t in _typed(data["tensors"], list)
                ),
                _typed(data["unit_bytes"], int),
                _typed(data["bank_bytes"], int),
                _typed(data["storage_bytes"], int),
            )
        except KeyError as error:
            raise InputError(f"a description of a {_FORMAT!r} that lacks {error}") from error
        except TypeError as error:
            raise InputError(f"a description of a {_FORMAT!r} with {error}") from error
        if data.get("layout_id") != layout.identity:
            raise InputError("the layout is not the one that its layout_id belongs to")
        return layout


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r} in place of {kind.__name__}")
    return value


def _check(layout: ImageLayout) -> None:
    """Everything within its region, nothing over another: what a safe update rests on."""

    def need(holds: bool, what: str) -> None:
        if not holds:
            raise InputError(f"storage image: {what}")

    unit, bank = layout.unit_bytes, layout.bank_bytes
    need(unit >= RECORD_BYTES and unit % 4 == 0, f"a write unit cannot have {unit} bytes")
    need(bank >= 0 and bank % unit == 0, f"a bank of {bank} bytes is not whole write units")
    need(0 < layout.storage_bytes <= _MAX_BYTES, f"it cannot have {layout.storage_bytes:,} bytes")
    arguments = [t.argument for t in layout.tensors]
    need(min(arguments, default=0) >= 0, "an argument with a negative index")
    for t in layout.tensors:
        need(t.dtype in _DTYPES, f"{t.label} of {t.dtype}")
        need(min(t.shape, default=0) >= 0, f"{t.label} has a negative extent")
        need(t.offset % 4 == 0, f"{t.label} at {t.offset} is not aligned")
        block = LEAST_BLOCK_BYTES if t.block_bytes is None else t.block_bytes
        need(block >= LEAST_BLOCK_BYTES and block % 4 == 0, f"{t.label} in blocks of {block} bytes")
    need(len(set(arguments)) == len(arguments), "an argument has two places")
    updated = [t for t in layout.tensors if t.updated]
    constant_end = max((t.end for t in layout.tensors if not t.updated), default=2 * unit)
    start = min((t.offset for t in updated), default=constant_end) // unit * unit
    if updated:
        need(constant_end <= start, "constants reach into the write units of bank 0")
        need(max(t.end for t in updated) <= start + bank, "bank 0 reaches into bank 1")
    end = 2 * unit
    for t in sorted(layout.tensors, key=lambda t: t.offset):
        need(t.offset >= end, f"{t.label} at {t.offset} overlaps what ends at {end}")
        end = t.end
    need(layout.parameters_end <= layout.storage_bytes, "parameters reach beyond the end")


def layout_of(graph: GraphOp) -> ImageLayout | None:
    """The image of a planned graph, None if it has no parameters on storage.

    Raises InputError if memory is not planned, or planned so that an update would not be safe.
    """
    tensors: list[ImageTensor] = []
    for i, argument in enumerate(graph.arguments):
        if not isinstance(argument.type, PageType):
            continue
        type_, offset = argument.type.tensor, graph.offset(i)
        if offset is None:
            name = graph.arg_name(i)
            raise InputError(f"parameter {name} has no place in storage; run poet-plan-memory")
        dtype = str(dtype_of(type_.element_type))
        updated = is_banked(graph, i)
        name, shape = graph.arg_name(i), type_.get_shape()
        tensor = ImageTensor(name, i, dtype, shape, offset, updated, graph.block_bytes)
        if dtype in _DTYPES:
            assert tensor.bytes == tensor_bytes(type_)
        tensors.append(tensor)
    if not tensors:
        return None
    return ImageLayout(
        tuple(tensors),
        _planned(graph, "storage_unit"),
        _planned(graph, "bank_bytes"),
        _planned(graph, "storage_bytes"),
    )


def _planned(graph: GraphOp, name: str) -> int:
    value = getattr(graph, name)
    if value is None:
        raise InputError(f"graph @{graph.sym_name.data} has no {name}; run poet-plan-memory")
    return value


def pack(
    layout: ImageLayout, arrays: Sequence[np.ndarray] | Mapping[str, np.ndarray], sequence: int = 0
) -> bytes:
    """An image with these values and that sequence number; its tag is made of both.

    `arrays` are those of `layout.tensors` in order, or named: `arg<i>` or the parameter's name,
    others being ignored. Those of float32 are rounded for parameters in 16 bits. Raises InputError
    for what is missing, given twice or for several parameters, or has another shape or type.
    """
    image = bytearray(layout.storage_bytes)
    contents: list[tuple[ImageTensor, bytes]] = []
    for tensor, values in zip(layout.tensors, arrays_of(layout.tensors, arrays), strict=True):
        contents.append((tensor, values_bytes(tensor, values)))
    number = zlib.crc32(_FIELDS.pack(layout.identity, sequence, 0))
    for tensor, data in contents:
        number = zlib.crc32(data, number) if tensor.updated else number
    state = State(sequence, number)
    for tensor, data in contents:
        offset, tag = page_of(layout, tensor, state)
        page = page_content(data, tag, tensor.block_bytes)
        image[offset : offset + len(page)] = page
    place = record_offset(sequence, layout.unit_bytes)
    image[place : place + RECORD_BYTES] = record_of(layout.identity, state)
    return bytes(image)


def arrays_of(
    parameters: Sequence[ImageTensor], arrays: Sequence[np.ndarray] | Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    """The values of parameters, of their types and shapes, given as to `pack`."""
    if isinstance(arrays, Mapping):
        arrays = [_named(arrays, parameter, parameters) for parameter in parameters]
    if len(arrays) != len(parameters):
        raise InputError(f"{len(parameters)} parameters are needed, not {len(arrays)}")
    found: list[np.ndarray] = []
    for parameter, given in zip(parameters, arrays, strict=True):
        array = rounded(given, np.dtype(parameter.dtype))
        if array.shape != parameter.shape or array.dtype != np.dtype(parameter.dtype):
            raise InputError(
                f"parameter {parameter.name} is {_type(parameter.dtype, parameter.shape)}, "
                f"not {_type(str(array.dtype), array.shape)}"
            )
        found.append(array)
    return found


def values_bytes(tensor: ImageTensor, values: np.ndarray) -> bytes:
    """The values of a tensor as its page has them."""
    return np.ascontiguousarray(values).astype(_little(tensor)).tobytes()


def values_of(tensor: ImageTensor, data: bytes) -> np.ndarray:
    """The values of a tensor whose page has these bytes."""
    return np.frombuffer(data, _little(tensor)).reshape(tensor.shape).astype(tensor.dtype)


def record_offset(sequence: int, unit_bytes: int) -> int:
    """Where the record of the state with that sequence number is in an image."""
    return (sequence & 1) * unit_bytes


def record_of(layout_id: int, state: State) -> bytes:
    """The record that makes that state of an image the current one."""
    fields = _FIELDS.pack(layout_id, state.sequence, state.tag)
    return fields + zlib.crc32(fields).to_bytes(4, "little")


def read_record(record: bytes, slot: int) -> tuple[int, State] | None:
    """The layout and the state that record `slot` of an image says; None if it is not valid."""
    fields, crc = record[: _FIELDS.size], record[_FIELDS.size :]
    if len(record) != RECORD_BYTES or crc != zlib.crc32(fields).to_bytes(4, "little"):
        return None
    layout_id, sequence, tag = _FIELDS.unpack(fields)
    return (layout_id, State(sequence, tag)) if sequence & 1 == slot else None


def newest_state(states: Iterable[State]) -> State | None:
    """The newest of the states that the two records say, None if neither is valid."""
    newest: State | None = None
    for state in states:
        # Sequences wrap: the newer of two is less than half of all numbers ahead.
        if newest is None or (state.sequence - newest.sequence) % 2**32 < 2**31:
            newest = state
    return newest


def unpack(layout: ImageLayout, image: bytes | bytearray) -> tuple[int, list[np.ndarray]]:
    """The sequence number of the newest state in `image`, and the values of `layout.tensors`.

    `image` may be longer than the layout says, or end where the parameters do. Raises InputError if
    it is shorter, holds no state of this layout, or a page is damaged.
    """
    if len(image) < layout.parameters_end:
        raise InputError(
            f"the image has {len(image):,} bytes, its parameters take {layout.parameters_end:,}"
        )
    state = current_state(layout, image)
    return state.sequence, [_values(layout, tensor, image, state) for tensor in layout.tensors]


def _values(
    layout: ImageLayout, tensor: ImageTensor, image: bytes | bytearray, state: State
) -> np.ndarray:
    """The content of a tensor's page. Raises InputError if it is damaged."""
    offset, tag = page_of(layout, tensor, state)
    page = bytes(image[offset : tensor.end - tensor.offset + offset])
    data = page_payload(page, tensor.bytes, tag, tensor.block_bytes)
    if data is None:
        raise InputError(f"{tensor.label} is damaged: the CRC of its page at {offset} is wrong")
    return values_of(tensor, data)


def current_state(layout: ImageLayout, image: bytes | bytearray) -> State:
    """The state of an image. Raises InputError if it has none of this layout."""
    records = [
        bytes(image[start : start + RECORD_BYTES])
        for start in (record_offset(slot, layout.unit_bytes) for slot in (0, 1))
    ]
    found = [r for slot in (0, 1) if (r := read_record(records[slot], slot)) is not None]
    newest = newest_state(state for identity, state in found if identity == layout.identity)
    if newest is not None:
        return newest
    if any(record.startswith(_FORMAT_1.to_bytes(4, "little")) for record in records):
        raise InputError(
            "the image is of format 1, and this poetc reads format 2: unpack it with the poetc "
            "that made its program, and pack the values anew"
        )
    if found:
        others = ", ".join(f"{identity:08x}" for identity in sorted({i for i, _ in found}))
        raise InputError(
            f"the image was made for another layout: {others}, not {layout.identity:08x}"
        )
    raise InputError("the image has no valid record: it is not one, or was never packed")


def page_offset(layout: ImageLayout, tensor: ImageTensor, sequence: int) -> int:
    """The offset of a tensor's page in the state with that sequence number."""
    return tensor.offset + ((sequence & 1) * layout.bank_bytes if tensor.updated else 0)


def page_of(layout: ImageLayout, tensor: ImageTensor, state: State) -> tuple[int, int]:
    """The offset of a tensor's page in that state, and its tag."""
    return page_offset(layout, tensor, state.sequence), state.tag if tensor.updated else 0


def _little(tensor: ImageTensor) -> np.dtype:
    return np.dtype(tensor.dtype).newbyteorder("<")


def _named(
    arrays: Mapping[str, np.ndarray], tensor: ImageTensor, parameters: Sequence[ImageTensor]
) -> np.ndarray:
    keys = [f"arg{tensor.argument}"]
    if not re.fullmatch(r"arg\d+", tensor.name):
        keys.append(tensor.name)
    found = [key for key in keys if key in arrays]
    if not found:
        raise InputError(f"no array {' or '.join(keys)} for parameter {tensor.name}")
    if len(found) > 1:
        raise InputError(f"arrays {' and '.join(found)} are both for parameter {tensor.name}")
    same = [p.argument for p in parameters if p.name == tensor.name]
    if found[0] != keys[0] and len(same) > 1:
        names = ", ".join(f"arg{argument}" for argument in same)
        raise InputError(f"{len(same)} parameters are named {tensor.name}; name arrays {names}")
    return arrays[found[0]]


def _type(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype} {'x'.join(map(str, shape)) or 'scalar'}"


def image_file(name: str) -> str:
    """The name of the file that describes the storage image of a model."""
    return f"{name}_image.json"


def layout_text(layout: ImageLayout, comment: str) -> str:
    """The file that describes a layout; `comment` stands at its beginning."""
    return json.dumps({"_": comment} | layout.to_json(), indent=1) + "\n"
