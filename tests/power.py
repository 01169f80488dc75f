"""A compiled step with its parameters on a store that can lose power, for tests."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path

import numpy as np
from c_support import load_library
from xdsl.dialects.builtin import ModuleOp

from poetc.backends.c.emit import Executor, emit
from poetc.backends.c.layout import arena_offset
from poetc.image import ImageLayout, layout_of, unpack
from poetc.ir.graph import graphs
from poetc.tensors import read_tensors

SOURCE = Path(__file__).parent / "power_store.c"
OK = 0
GARBAGE = 0xA5


class Loss(IntEnum):
    """What a loss of power does to writes since the last sync (power_store.c)."""

    NONE = 0
    MASK = 1
    RANDOM = 2


class Fault(IntEnum):
    """How one transfer fails (power_store.c)."""

    ERROR = 0
    LATE_ERROR = 1
    SHORT = 2
    FLIP = 3
    DEAD = 4
    TIME_OUT = 5


class Machine:
    """A device with a program and a store. Its RAM is filled with garbage at each start.

    `inputs` are written before each step: at least one. With an `executor` the schedule is a plan.
    """

    def __init__(
        self,
        module: ModuleOp,
        directory: Path,
        inputs: dict[int, np.ndarray],
        *flags: str,
        executor: Executor | None = None,
    ) -> None:
        layout = layout_of(graphs(module)[0])
        assert layout is not None
        self.layout: ImageLayout = layout
        self.directory, self.inputs = directory, inputs
        emit(module, directory, executor=executor)
        sources = [p for p in directory.glob("*.c") if p.name != "main.c"]
        flags = ("-O2", f"-I{directory}", *flags)
        library = load_library([*sources, SOURCE], directory / "model.so", flags=flags)
        library.model_argument.restype = library.model_result.restype = ctypes.c_void_p
        library.power_new.restype = library.power_media.restype = ctypes.c_void_p
        self.library = library
        self.tensors = read_tensors(directory)
        self.store = ctypes.c_void_p(library.power_new(layout.storage_bytes, layout.unit_bytes))
        self.results = len(self.tensors.results)
        # A plan has each argument where the graph has it.
        self.planned = {}
        if executor is not None:
            self.planned = {i: arena_offset(graphs(module)[0].arguments[i]) for i in inputs}

    def _arena(self) -> int:
        for i, offset in self.planned.items():
            return self.library.model_argument(i) - offset
        for where, places in (
            (self.library.model_argument, self.tensors.arguments),
            (self.library.model_result, self.tensors.results),
        ):
            for i, place in enumerate(places):
                if place.where == "arena" and place.offset is not None:
                    return where(i) - place.offset
        raise AssertionError("nothing is in the arena")

    def power_on(self, image: bytes) -> None:
        """Starts with this content of the store and nothing in RAM."""
        self.library.power_on(self.store, image)
        ctypes.memset(self._arena(), GARBAGE, self.tensors.arena_bytes)

    def cut(self, event: int, torn: int = 0, spoil: bool = False) -> None:
        """The power will go at that write or sync."""
        self.library.power_cut(self.store, event, torn, spoil)

    def loss(self, loss: Loss, seed: int) -> None:
        self.library.power_loss(self.store, loss, seed)

    def fault(self, transfer: int, fault: Fault) -> None:
        self.library.power_fault(self.store, transfer, fault)

    def step(self) -> int:
        """Writes the inputs and runs a step."""
        for i, array in self.inputs.items():
            ctypes.memmove(self.library.model_argument(i), array.tobytes(), array.nbytes)
        return self.library.model_step(self.store)

    @property
    def image(self) -> bytes:
        """What would survive now."""
        return ctypes.string_at(self.library.power_media(self.store), self.layout.storage_bytes)

    @property
    def events(self) -> list[int]:
        """The writes and syncs since the start: bytes, 0 for a sync."""
        count = self.library.power_events(self.store)
        return [self.library.power_length(self.store, i) for i in range(count)]

    @property
    def transfers(self) -> int:
        return self.library.power_transfers(self.store)

    def outputs(self) -> list[bytes]:
        """The results in RAM."""
        found: list[bytes] = []
        for i in range(self.results):
            place = self.library.model_result(i)
            if place:
                found.append(ctypes.string_at(place, self.library.model_result_bytes(i)))
        return found

    def state(self, image: bytes) -> tuple[int, list[bytes]]:
        """Sequence and bits of all parameters."""
        sequence, arrays = unpack(self.layout, image)
        return sequence, [array.tobytes() for array in arrays]

    def run(self, image: bytes, steps: int) -> list[bytes]:
        """The images before, and after each of some undisturbed steps."""
        images = [image]
        self.power_on(image)
        for _ in range(steps):
            assert self.step() == OK
            images.append(self.image)
        return images


def parameters(layout: ImageLayout, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Those of the arguments that are on storage."""
    return [arguments[parameter.argument] for parameter in layout.tensors]
