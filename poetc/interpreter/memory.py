"""Where the bytes of values are while a graph is interpreted: each alone, or all by offset."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, SSAValue

from poetc.interpreter.functions import InterpreterError, tensor_of
from poetc.ir import poet
from poetc.ir.stablehlo.base import Array
from poetc.page import page_bytes, page_trailer

_ALIGN_BYTES = 4  # Every buffer of the arena occupies whole words.
POISON = 0xFF  # NaN as float32, -1 as integer: neither passes for a value of a training step.


class Memory(Protocol):
    """Where the bytes of values are."""

    def reserve(self, what: str, offset: int | None, size: int) -> None:
        """Makes the content of `size` bytes undefined before they are written."""
        ...

    def write(self, value: SSAValue, array: Array, offset: int | None) -> None: ...

    def read(self, value: SSAValue) -> Array: ...

    def erase(self, value: SSAValue) -> None:
        """Makes the content of the value undefined."""
        ...

    def place(self, what: str, offset: int | None, size: int) -> Array:
        """The bytes there, to be written."""
        ...

    def bytes(self, value: SSAValue) -> Array:
        """The bytes of a value, to be read, or written in place."""
        ...


class Separate:
    """One array for each value."""

    def __init__(self) -> None:
        self.arrays: dict[SSAValue, Array] = {}

    def reserve(self, what: str, offset: int | None, size: int) -> None:
        pass

    def write(self, value: SSAValue, array: Array, offset: int | None) -> None:
        self.arrays[value] = array

    def read(self, value: SSAValue) -> Array:
        return self.arrays[value]

    def erase(self, value: SSAValue) -> None:
        del self.arrays[value]

    def place(self, what: str, offset: int | None, size: int) -> Array:
        return np.full(size, POISON, np.uint8)

    def bytes(self, value: SSAValue) -> Array:
        return np.ascontiguousarray(self.arrays[value]).reshape(-1).view(np.uint8).copy()


class Bytes:
    """One array of bytes, all values at their offsets: those that overlap corrupt each other."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.buffer = np.full(size, POISON, dtype=np.uint8)
        self.views: dict[SSAValue, Array] = {}

    def _part(self, what: str, offset: int | None, size: int) -> Array:
        if offset is None:
            raise InterpreterError(f"{what} has no offset in the {self.name}")
        if offset + size > self.buffer.size:
            raise InterpreterError(
                f"{what}: {size} bytes at offset {offset} end outside the {self.name} "
                f"of {self.buffer.size} bytes"
            )
        return self.buffer[offset : offset + size]

    def reserve(self, what: str, offset: int | None, size: int) -> None:
        if size:
            self._part(what, offset, size)[:] = POISON

    def write(self, value: SSAValue, array: Array, offset: int | None) -> None:
        shape, dtype = content_of(value.type)
        part = self._part(name_of(value), offset, array.nbytes)
        part[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        # Booleans are read by value, as C does, so that poison does not make an invalid bool.
        self.views[value] = part.view(np.uint8 if dtype == np.bool_ else dtype).reshape(shape)

    def read(self, value: SSAValue) -> Array:
        view = self.views[value]
        return view.astype(np.bool_) if content_of(value.type)[1] == np.bool_ else view.copy()

    def erase(self, value: SSAValue) -> None:
        self.views.pop(value).reshape(-1).view(np.uint8)[...] = POISON

    def place(self, what: str, offset: int | None, size: int) -> Array:
        return self._part(what, offset, size)

    def bytes(self, value: SSAValue) -> Array:
        return self.views[value].reshape(-1).view(np.uint8)


class Pages(Bytes):
    """Pages in storage: behind each value its CRC, which is checked when it is read."""

    def __init__(self, name: str, size: int) -> None:
        super().__init__(name, size)
        self.trailers: dict[SSAValue, Array] = {}

    def reserve(self, what: str, offset: int | None, size: int) -> None:
        super().reserve(what, offset, page_bytes(size))

    def write(self, value: SSAValue, array: Array, offset: int | None) -> None:
        super().write(value, array, offset)
        trailer = page_trailer(self._payload(value))
        part = self._part(name_of(value), offset, page_bytes(array.nbytes))[array.nbytes :]
        part[: len(trailer)] = np.frombuffer(trailer, np.uint8)
        self.trailers[value] = part[: len(trailer)]

    def read(self, value: SSAValue) -> Array:
        if page_trailer(self._payload(value)) != self.trailers[value].tobytes():
            raise InterpreterError(f"the page {name_of(value)} in the storage is damaged")
        return super().read(value)

    def _payload(self, value: SSAValue) -> bytes:
        return self.views[value].tobytes()


def stored_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """How elements are in buffers of kernels: a boolean takes a byte, integers have a sign."""
    if dtype == np.bool_:
        return np.dtype(np.uint8)
    return np.dtype(f"i{dtype.itemsize}") if dtype.kind == "u" else dtype


def content_of(type_: Attribute) -> tuple[tuple[int, ...], np.dtype[Any]]:
    return tensor_of(type_.tensor if isinstance(type_, poet.PageType) else type_)


def bytes_of(type_: Attribute) -> int:
    """Bytes of the elements."""
    shape, dtype = content_of(type_)
    return math.prod(shape) * dtype.itemsize


def poisoned(value: SSAValue) -> Array:
    """The values of a tensor whose bytes are undefined."""
    shape, dtype = content_of(value.type)
    if dtype == np.bool_:
        return np.ones(shape, dtype)
    return np.full(bytes_of(value.type), POISON, np.uint8).view(dtype).reshape(shape)


def padded(size: int) -> int:
    """RAM that a buffer of `size` bytes occupies."""
    return -(-size // _ALIGN_BYTES) * _ALIGN_BYTES


def name_of(value: SSAValue) -> str:
    if value.name_hint:
        return f"%{value.name_hint}"
    match value.owner:
        case poet.PageOutOp() | poet.PageInOp() | poet.WaitOp():
            transfer = poet.transfer_of(value)
            assert transfer is not None
            if isinstance(transfer, poet.AnyPageOut):
                return f"the page of {name_of(transfer.tensor)}"
            return f"{name_of(transfer.page)} paged in"
        case poet.RunOp() as op if isinstance(value, OpResult):
            return f"result {value.index} of {describe(op)}"
        case _:
            assert isinstance(value, BlockArgument)
            return f"argument {value.index}"


def describe(op: Operation) -> str:
    return op.where if isinstance(op, poet.RunOp) else op.name


def offset_in(attr: IntegerAttr[Any] | None) -> int | None:
    return None if attr is None else attr.value.data
