"""Two programs do a step on one storage image at once, with nothing that locks it.

Whatever the order of their reads and writes: the image then holds the values of whole steps, or is
reported as damaged.
"""

from __future__ import annotations

import ctypes
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from c_support import load_library
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_step import C, V, W, X, storage_module
from test_c_runtime import OK, PythonStore

from poetc.backends.c.emit import emit
from poetc.backends.tvm.stores import NEW, MemoryStore, PageError, Pager
from poetc.errors import InputError
from poetc.image import ImageLayout, layout_of, pack, unpack
from poetc.ir.graph import graphs

INPUTS = (X, X * np.float32(-3), X + np.float32(1))
"""Of the two writers, and of a program that goes on with what they leave."""


class Turns(PythonStore):
    """The store as one writer sees it: before each of its transfers it waits for its turn."""

    def __init__(self, content: bytearray) -> None:
        super().__init__(0)
        self.bytes = content
        self.waits = True
        self.turn, self.paused = threading.Semaphore(0), threading.Semaphore(0)

    def _read(self, *arguments: object) -> int:
        return self._in_turn(super()._read, *arguments)

    def _write(self, *arguments: object) -> int:
        return self._in_turn(super()._write, *arguments)

    def _in_turn(self, move: Callable[..., int], *arguments: object) -> int:
        if self.waits:
            self.paused.release()
            self.turn.acquire()
        return move(*arguments)


class Writer:
    """A copy of the program, with an arena of its own."""

    def __init__(self, library: Path, x: np.ndarray) -> None:
        self.library, self.x = load(library), x
        self.status, self.y = -1, b""

    def step(self, store: PythonStore) -> None:
        ctypes.memmove(self.library.model_argument(0), self.x.tobytes(), self.x.nbytes)
        self.status = self.library.model_step(store.address)
        self.y = ctypes.string_at(self.library.model_result(0), self.x.nbytes)


def load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.model_argument.restype = library.model_result.restype = ctypes.c_void_p
    return library


@pytest.fixture(scope="module")
def layout() -> ImageLayout:
    found = layout_of(graphs(storage_module())[0])
    assert found is not None
    return found


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    directory = tmp_path_factory.mktemp("writers")
    emit(storage_module(), directory / "out")
    sources = [p for p in (directory / "out").glob("*.c") if p.name != "main.c"]
    flags = ("-O2", f"-I{directory / 'out'}")
    load_library(sources, directory / "0.so", flags=flags)
    for i in (1, 2):
        shutil.copy(directory / "0.so", directory / f"{i}.so")
    return [directory / f"{i}.so" for i in range(3)]


def after(*steps: np.ndarray) -> tuple[bytes, bytes, bytes]:
    """The result, w and v after steps with these inputs."""
    y, w, v = W, W, V
    for x in steps:
        h = x + C
        w, v = w + h, v + h
        y = w + h
    return y.tobytes(), w.tobytes(), v.tobytes()


def interleaved(writers: Sequence[Writer], content: bytearray, order: Sequence[int]) -> None:
    """The steps of both: the next transfer is that of the writer that `order` names."""
    stores = [Turns(content) for _ in writers]

    def run(writer: Writer, store: Turns) -> None:
        try:
            writer.step(store)
        finally:
            store.waits = False
            store.paused.release()

    pairs = list(zip(writers, stores, strict=True))
    threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in pairs]
    for thread, store in zip(threads, stores, strict=True):
        thread.start()
        store.paused.acquire()
    for who in (*order, *([0] * 99), *([1] * 99)):
        if stores[who].waits:
            stores[who].turn.release()
            stores[who].paused.acquire()
    for thread in threads:
        thread.join()


def check(
    layout: ImageLayout, programs: Sequence[Path], inputs: Sequence[np.ndarray], order: list[int]
) -> bool:
    """Whether the image is whole after that order; it never holds a mixture."""
    content = bytearray(pack(layout, [W, C, V]))
    *writers, third = map(Writer, programs, inputs)
    interleaved(writers, content, order)
    orders = [steps for n in range(3) for steps in permutations(inputs[:2], n)]
    good = {after(*steps) for steps in orders}
    for writer in writers:
        if writer.status == OK:
            assert writer.y in {y for y, _, _ in good}, order
    try:
        sequence, arrays = unpack(layout, content)
    except InputError as error:
        assert "is damaged" in str(error)
        sequence, arrays = None, []
    store = PythonStore(0)
    store.bytes = content
    third.step(store)
    # The program itself sees what `unpack` sees.
    assert (third.status == OK) == (sequence is not None), order
    if sequence is None:
        return False
    w, c, v = (array.tobytes() for array in arrays)
    found = [steps for steps in orders if len(steps) == sequence and after(*steps)[1:] == (w, v)]
    assert found and c == C.tobytes(), order
    _, arrays = unpack(layout, content)
    again = tuple(array.tobytes() for array in (arrays[0], arrays[2]))
    assert again in {after(*steps, inputs[2])[1:] for steps in found}
    return True


def transfers(program: Path, layout: ImageLayout) -> int:
    store = PythonStore(0)
    store.bytes = bytearray(pack(layout, [W, C, V]))
    Writer(program, X).step(store)
    return len(store.calls)


@pytest.mark.parametrize("inputs", [INPUTS, (X, X, INPUTS[2])], ids=["apart", "alike"])
def test_one_stops_and_the_other_goes_on(
    layout: ImageLayout, programs: list[Path], inputs: tuple[np.ndarray, ...]
) -> None:
    """The first stops anywhere, the second does part of its step, or all, and the first goes on."""
    count = transfers(programs[0], layout)
    whole = [
        check(layout, programs, inputs, [0] * first + [1] * second)
        for first in range(count + 1)
        for second in range(count, 0, -5)
    ]
    # One after the other, nothing is damaged.
    assert whole[-5] and all(whole) == (inputs[0] is inputs[1])


@settings(max_examples=30, deadline=None)
@given(order=st.lists(st.integers(0, 1), max_size=60))
def test_any_order(layout: ImageLayout, programs: list[Path], order: list[int]) -> None:
    check(layout, programs, INPUTS, order)


@pytest.mark.parametrize("order", sorted(set(permutations("AAABBB"))), ids="".join)
def test_runners_in_python(layout: ImageLayout, order: Sequence[str]) -> None:
    """Two steps that write both parameters and commit, in every order; the store has no lock."""
    store = MemoryStore(pack(layout, [W, C, V]))
    values = {"A": [W * np.float32(2), V * np.float32(2)], "B": [W + np.float32(1), -V]}
    offsets = [tensor.offset for tensor in layout.tensors if tensor.updated]

    def step(name: str) -> Iterator[None]:
        pager = Pager(store)
        pager.inputs = ord(name)
        pager.image_open(layout.identity, layout.unit_bytes, layout.bank_bytes, 1)
        yield
        for offset, value in zip(offsets, values[name], strict=True):
            pager.page_out(offset, NEW, value.tobytes())
            yield
        with suppress(PageError):
            pager.image_commit()
        yield

    steps = {name: step(name) for name in "AB"}
    for name in steps:
        next(steps[name])
    for name in order:
        next(steps[name])
    whole = False
    with suppress(InputError):
        sequence, arrays = unpack(layout, store.data)
        whole = True
        assert sequence == 1
        found = [arrays[0].tobytes(), arrays[2].tobytes()]
        assert found in [[array.tobytes() for array in values[name]] for name in "AB"]
    # The first to commit wins, and has won something if both pages are its own.
    at = {name: [i for i, other in enumerate(order) if other == name] for name in "AB"}
    winner = min("AB", key=lambda name: at[name][2])
    assert whole == all(max("AB", key=lambda name: at[name][n]) == winner for n in (0, 1))
