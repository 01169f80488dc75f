"""Pages in blocks, in C: functions that give one, transfer all of one, and run kernels in tiles.

Each kernel in tiles is a function of its own, so that their frames do not add up in that of the
step, and compilers have many small functions in place of one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdsl.ir import SSAValue

from poetc.backends.c.layout import arena_offset, block_offset
from poetc.backends.c.streams import RETURN, Shapes, StreamPrinter, shapes_lines
from poetc.backends.c.text import c_identifier, unique, wrapped
from poetc.errors import InputError
from poetc.ir.graph import tensor_bytes
from poetc.ir.poet import (
    AnyPageIn,
    AnyPageOut,
    PageInOp,
    PageOutOp,
    PageType,
    StreamOp,
)

if TYPE_CHECKING:
    from poetc.backends.c.scheduled import ScheduledProgram

_FIELDS = ("offset", "bytes", "tag")
"""The fields of a `poetc_block_page` that those of one program differ in."""


class BlockPages:
    """The functions that the step of a program needs for its pages in blocks."""

    def __init__(self, program: ScheduledProgram) -> None:
        self.program = program
        self.page = f"{program.name}_page"
        self.shapes: Shapes = {}
        self.streams: list[str] = []
        self.verbs: set[str] = set()
        self.taken: set[str] = set()

    def whole(self, op: AnyPageOut | AnyPageIn) -> tuple[str, list[str]]:
        """The function that transfers all of a page, and its arguments."""
        if not isinstance(op, PageOutOp | PageInOp):
            raise InputError(f"{op.name}: pages in blocks are transferred by one operation")
        verb = "out" if isinstance(op, PageOutOp) else "in"
        self.verbs.add(verb)
        place = self.program.at(arena_offset(op.tensor))
        fields = self._fields(op.page, "state.")
        return f"{self.page}_{verb}", [*self._instance(), "store", *fields, place]

    def stream(self, op: StreamOp) -> tuple[str, list[str]]:
        """The function that runs a kernel in tiles, and its arguments."""
        program = self.program
        functions = {symbol: k.signature.name for symbol, k in program.by_symbol.items()}

        def page(value: SSAValue, start: str) -> list[str]:
            return self._page(start, self._fields(value, "state->"))

        printer = StreamPrinter(
            op, functions, page, program.callers, program.at, RETURN, self.shapes, program.name
        )
        body = ["    poetc_status status = POETC_OK;", *printer.lines(), "    return status;"]
        own = {
            "const poetc_state *state": "&state",
            "uint32_t old_bank": "old_bank",
            "uint32_t new_bank": "new_bank",
            "poetc_transfer *transfer": "transfer",
        }
        given = [*program.first(), "poetc_store *store", *own, *program.pointers()]
        used = set(re.findall(r"\w+", "\n".join(body)))
        given = [each for each in given if re.split(r"\W", each)[-1] in used]
        arguments = [own.get(each, re.split(r"\W", each)[-1]) for each in given]
        name = unique(f"{program.name}_stream_{c_identifier(op.label.data)}", self.taken)
        self.streams += _apart("poetc_status", name, given, body)
        return name, arguments

    def definitions(self) -> list[str]:
        """The functions that were asked for, and what they need."""
        if not self.verbs and not self.streams:
            return []
        program = self.program
        first, given = program.first(), [f"uint32_t {each}" for each in _FIELDS]
        block = [f"{program.graph.block_bytes}u", program.at(block_offset(program.graph))]
        made = wrapped("    return (poetc_block_page){", [*_FIELDS, *block], "};")
        lines = _apart("poetc_block_page", self.page, [*first, *given], made)
        for verb, tensor in (("in", "void *tensor"), ("out", "const void *tensor")):
            if verb in self.verbs:
                transfer = f"    return poetc_blocks_{verb}(store, &page, tensor);"
                body = [*self._page("    const poetc_block_page page = ", _FIELDS), transfer]
                all_given = [*first, "poetc_store *store", *given, tensor]
                lines += _apart("poetc_status", f"{self.page}_{verb}", all_given, body)
        return [*lines, *shapes_lines(self.shapes), *self.streams]

    def _instance(self) -> list[str]:
        return ["instance"] if self.program.instances else []

    def _page(self, start: str, fields: Sequence[str]) -> list[str]:
        """The definition of a `poetc_block_page`, which begins with `start`."""
        return wrapped(f"{start}{self.page}(", [*self._instance(), *fields], ");")

    def _fields(self, page: SSAValue, state: str) -> list[str]:
        """The values of `_FIELDS`; tags are fields of `state`."""
        offset, tag = self.program.place_of(page, state)
        assert isinstance(page.type, PageType)
        return [offset, f"{tensor_bytes(page.type.tensor)}u", tag or "0"]


def _apart(result: str, name: str, given: Sequence[str], body: Sequence[str]) -> list[str]:
    """The definition of a function that compilers do not make part of others."""
    return [*wrapped(f"static POETC_APART {result} {name}(", given, ")"), "{", *body, "}", ""]
