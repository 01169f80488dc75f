"""Data for one run of a generated program, and the program that compares its results.

What is in them is said in libraries/step.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from poetc.backends.c.libraries.library import MARK
from poetc.backends.c.libraries.step import COMPARE, DIRECTORY, IMAGE, StepFiles
from poetc.backends.c.program import Program
from poetc.backends.c.text import c_comment, defines, guarded
from poetc.compare import floor, rounding_of, scale, tolerance
from poetc.image import (
    RECORD_TAG_OFFSET,
    ImageLayout,
    State,
    pack,
    page_offset,
    record_of,
    record_offset,
)
from poetc.ir.types import BFLOAT16, FLOAT16, FLOAT32
from poetc.page import PAGE_TRAILER_BYTES, block_ranges
from poetc.step_data import StepData

_SOURCE = Path(__file__).parent / "comparison" / COMPARE
_SEQUENCE = 1
"""The sequence number of the state after one step on a packed image."""


def step_files(program: Program, step: StepData) -> StepFiles:
    """The files for a program that takes and gives these."""
    image = program.image
    rounding = rounding_of(program.graph)
    data = {
        f"{DIRECTORY}/arg{i}.bin": _bytes(array)
        for i, (place, array) in enumerate(zip(program.arguments, step.arguments, strict=True))
        if not place.on_storage and i not in program.frozen
    }
    if image is not None:
        arguments = [step.arguments[tensor.argument] for tensor in image.tensors]
        data[f"{DIRECTORY}/{IMAGE}"] = pack(image, arguments)
    sources: dict[str, str] = {}
    if step.results:
        at_least = floor(step.results.values(), rounding)
        pieces = [
            piece
            for k in step.results
            if not program.results[k].frozen
            for piece in _pieces(program, step, k, at_least)
        ]
        # A step that updates no page leaves the record as it is.
        changed = image if image is not None and image.bank_bytes else None
        sources, data[f"{DIRECTORY}/expected.bin"] = _comparison(pieces, changed)
    return StepFiles(data, sources, image is not None, tolerance(rounding))


def compare_sources(
    expected: Sequence[tuple[int, np.ndarray]], at_least: float
) -> tuple[dict[str, str], bytes]:
    """The program that compares results by number, and the content of expected.bin; `at_least` is
    the floor of the step (poetc/compare.py)."""
    return _comparison([_Piece(k, array, scale(array, at_least)) for k, array in expected], None)


def _comparison(pieces: list[_Piece], image: ImageLayout | None) -> tuple[dict[str, str], bytes]:
    text = f"{c_comment(MARK)}\n{_SOURCE.read_text(encoding='utf-8')}"
    expected = b"".join(_bytes(piece.expected) for piece in pieces)
    return {COMPARE: text, "compare_pieces.h": _header(pieces, image)}, expected


_NUMBERS = {FLOAT32.dtype: "FLOAT32", BFLOAT16.dtype: "BFLOAT16", FLOAT16.dtype: "FLOAT16"}
"""The names of floats in `compare.c`; other numbers have to be equal."""


@dataclass(frozen=True)
class _Piece:
    """A result, or a part of it that is a page, or a block of one; `page` is the offset of that in
    the storage."""

    result: int
    expected: np.ndarray
    scale: float
    page: int | None = None

    def text(self) -> str:
        """The initialiser in `compare.c`."""
        numbers = _NUMBERS.get(self.expected.dtype, "EXACT")
        stored = "false" if self.page is None else "true"
        fields = (self.result, numbers, repr(self.scale), f"{self.expected.nbytes}ul", stored)
        return f"{{{', '.join(map(str, fields))}, {self.page or 0}}}"


def _pieces(program: Program, step: StepData, k: int, at_least: float) -> Iterator[_Piece]:
    place, expected = program.results[k], step.results[k]
    if not place.on_storage:
        yield _Piece(k, expected, scale(expected, at_least))
        return
    assert program.image is not None
    (tensor,) = (t for t in program.image.tensors if t.argument == place.updates)
    if not tensor.updated:
        # With --train the file may have what the whole step makes of it.
        expected = step.arguments[tensor.argument]
    relative_to = scale(expected, at_least)
    page = page_offset(program.image, tensor, _SEQUENCE)
    content = np.ascontiguousarray(expected).reshape(-1).view(np.uint8)
    for number, (begin, end) in enumerate(block_ranges(tensor.bytes, tensor.block_bytes)):
        block = content[begin:end]
        # An element that is in two blocks is a whole number, of which all bytes are to be so.
        whole = begin % expected.itemsize == end % expected.itemsize == 0
        yield _Piece(
            k,
            block.view(expected.dtype) if whole else block,
            relative_to,
            page + begin + number * PAGE_TRAILER_BYTES,
        )


def _header(pieces: list[_Piece], image: ImageLayout | None) -> str:
    lines = ["#define COMPARE_PIECES {", *(f"    {piece.text()}," for piece in pieces)]
    body = " \\\n".join(lines) + " \\\n}\n"
    about = "Result, what kind of numbers it has, what differences are relative to, bytes, page."
    if image is not None:
        offset = record_offset(_SEQUENCE, image.unit_bytes)
        record = record_of(image.identity, State(_SEQUENCE, 0))[:RECORD_TAG_OFFSET]
        state = "{" + ", ".join(map(str, record)) + "}"
        body += defines([("COMPARE_STATE", state), ("COMPARE_STATE_OFFSET", offset)])
        about += " The beginning of the record after one step."
    return guarded("COMPARE_PIECES_H", f"{MARK} {about}", [], [body])


def _bytes(array: np.ndarray) -> bytes:
    """The bytes of an array as a program reads and writes them."""
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
