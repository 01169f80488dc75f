"""Runs compiled programs in Python: owns the arena, and has the functions that move pages.

step = Step.load("model.so", FileStore("pages.bin"))
step.write(0, weights)            # parameters: once
step.write(6, batch)              # inputs: before each step
step.run()
loss = step.read(0)
"""

# TVM's annotations are narrower than what it takes.
# pyright: reportArgumentType=false, reportReturnType=false
from __future__ import annotations

import json
import os
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from poetc.backends.tvm.program import (
    DESCRIBE,
    IMAGE_COMMIT,
    IMAGE_OPEN,
    PAGE_IN,
    PAGE_OUT,
    STEP,
    Program,
)
from poetc.backends.tvm.stores import MemoryStore, PageError, Pager, Store
from poetc.errors import InputError
from poetc.tensors import ProgramTensor

ALIGNMENT_BYTES = 64
"""Tensors that are given to TVM begin at multiples of this."""


def aligned(bytes: int) -> np.ndarray:
    """Zeros where TVM takes them as they are."""
    memory = np.zeros(bytes + ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT_BYTES
    return memory[start : start + bytes]


class Step:
    """A training step with its arena.

    Inputs and results in buffers of the caller are arrays of this object, too, so that all programs
    are used alike; they are not counted in `program.arena_bytes`.
    """

    def __init__(
        self,
        executable: Any,
        store: Store | None = None,
        arena: np.ndarray | None = None,
    ) -> None:
        """`executable` is compiled or loaded; `arena` is memory from `aligned`. Without a store,
        pages are in memory. Raises InputError for what is no program of poetc."""
        _register()
        machine = relax.VirtualMachine(executable, tvm.cpu())
        self.program = _program(machine)
        self.pager = Pager(MemoryStore(self.program.storage_bytes) if store is None else store)
        self.arena = aligned(self.program.arena_bytes) if arena is None else arena
        self._step = machine[STEP]
        self._arguments = [self._array(place) for place in self.program.arguments]
        self._results = [
            self._arguments[place.updates]
            if place.where == "frozen" and place.updates is not None
            else self._array(place)
            for place in self.program.results
        ]
        memory = [
            array
            for places, arrays in (
                (self.program.arguments, self._arguments),
                (self.program.results, self._results),
            )
            for place, array in zip(places, arrays, strict=True)
            if place.where == "caller" and array is not None
        ]
        self._parameters = [
            tvm.runtime.from_dlpack(self.arena),
            self.pager,
            *(tvm.runtime.from_dlpack(_as_stored(array)) for array in memory),
        ]

    @staticmethod
    def load(
        path: str | os.PathLike[str], store: Store | None = None, arena: np.ndarray | None = None
    ) -> Step:
        """A program from the library that `poetc --emit=tvm` wrote."""
        try:
            return Step(tvm.runtime.load_module(os.fspath(path)), store, arena)
        except (RuntimeError, ValueError, AttributeError) as error:
            raise InputError(f"cannot load {os.fspath(path)}: {error}") from error

    def write(self, argument: int, array: np.ndarray) -> None:
        """Sets an argument: parameters once, inputs before each step.

        Raises InputError for another shape or type, and for a parameter on storage.
        """
        place, target = self.program.arguments[argument], self._arguments[argument]
        if target is None:
            raise InputError(f"parameter {place.name} is on storage: see poetc pack")
        if array.shape != place.shape or array.dtype != np.dtype(place.dtype):
            raise InputError(
                f"argument {place.name} is {place.dtype} {place.shape}, "
                f"not {array.dtype} {array.shape}"
            )
        target[...] = array

    def write_all(self, arrays: Sequence[np.ndarray]) -> None:
        """Sets all arguments that are not on storage."""
        for i, (target, array) in enumerate(zip(self._arguments, arrays, strict=True)):
            if target is not None:
                self.write(i, array)

    def run(self) -> None:
        """One step. Raises PageError for a page that is not what it should be; then the arena is to
        be filled anew, parameters included."""
        self.pager.inputs = 0
        for array in self._arguments:
            if array is not None:
                self.pager.inputs = zlib.crc32(array.tobytes(), self.pager.inputs)
        self._step(*self._parameters)

    def read(self, result: int) -> np.ndarray:
        """A copy of a result, from the end of a step to the start of the next."""
        source = self._results[result]
        if source is None:
            name = self.program.results[result].name
            raise InputError(f"parameter {name} is on storage: see poetc unpack")
        return source.copy()

    def _array(self, place: ProgramTensor) -> np.ndarray | None:
        """The memory of an argument or result; None on storage."""
        if place.where == "storage":
            return None
        memory, start = self.arena, place.offset
        if place.where == "caller":
            memory, start = aligned(place.bytes), 0
        assert start is not None
        return memory[start : start + place.bytes].view(place.dtype).reshape(place.shape)


def _as_stored(array: np.ndarray) -> np.ndarray:
    """Flat, booleans as bytes and unsigned numbers as signed ones: as programs take them."""
    flat = array.reshape(-1)
    return flat.view({"b": np.int8, "u": np.int32}.get(flat.dtype.kind, flat.dtype))


def _program(machine: relax.VirtualMachine) -> Program:
    try:
        text = str(machine[DESCRIBE]())
    except (AttributeError, ValueError) as error:
        raise InputError("not a program of poetc: it has no function 'describe'") from error
    try:
        return Program.from_json(json.loads(text))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError("a program of another version of poetc: compile it again") from error


def _page_out(pager: Any, offset: int, kind: int, tensor: tvm.runtime.Tensor) -> None:
    pager.page_out(offset, kind, tensor.numpy().tobytes())


def _page_in(pager: Any, offset: int, kind: int, tensor: tvm.runtime.Tensor) -> None:
    dtype = np.dtype(str(tensor.dtype))
    (elements,) = tensor.shape
    data = pager.page_in(offset, kind, elements * dtype.itemsize)
    tensor.copyfrom(np.frombuffer(data, dtype))


def _image_open(
    pager: Any, layout_id: int, unit_bytes: int, bank_bytes: int, program_id: int
) -> None:
    pager.image_open(layout_id, unit_bytes, bank_bytes, program_id)


def _image_commit(pager: Any) -> None:
    pager.image_commit()


def _register() -> None:
    """Gives TVM the functions that programs call."""
    functions = {
        PAGE_OUT: _page_out,
        PAGE_IN: _page_in,
        IMAGE_OPEN: _image_open,
        IMAGE_COMMIT: _image_commit,
    }
    tvm_ffi.register_error("PageError", PageError)
    for name, function in functions.items():
        tvm.register_global_func(name, function, override=True)
