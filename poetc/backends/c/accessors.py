"""Prints functions that set inputs and get results by the names that they have in the source."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from poetc.backends.c.expressions import element_c_type
from poetc.backends.c.layout import TensorPlace
from poetc.backends.c.text import c_comment
from poetc.ir.types import FLOAT32

if TYPE_CHECKING:
    from poetc.backends.c.program import Program

_ABOUT = (
    "Inputs and results by name. POETC_WRONG_SIZE if `count` is not the number of elements; then "
    "nothing is copied."
)


def accessors(program: Program) -> str:
    """The functions, for `model.h`; none for parameters, and what is not in the arena."""
    setters = [
        _setter(program, i, name)
        for i, (place, name) in enumerate(_named(program.arguments, "arg"))
        if place.in_arena and not place.is_param and i not in program.parameters
    ]
    getters = [
        _getter(program, i, name)
        for i, (place, name) in enumerate(_named(_with_loss(program), "out"))
        if place.in_arena and place.updates is None
    ]
    taken = {f"{entry.function}(" for entry in program.entries}
    texts = [t for t in (*setters, *getters) if not any(f" {name}" in t for name in taken)]
    return "\n".join([f"{c_comment(_ABOUT)}", *texts]) + "\n" if texts else ""


def _with_loss(program: Program) -> Sequence[TensorPlace]:
    """The results; the only float of a step that has no name in the source is the loss."""
    if program.function != f"{program.model}_step":
        return program.results
    own = [p for p in program.results if p.updates is None]
    unnamed = [p for p in own if not _words(p.name)]
    if len(unnamed) != 1 or unnamed[0].shape or unnamed[0].type.element_type != FLOAT32.mlir:
        return program.results
    return [replace(p, name="loss") if p is unnamed[0] else p for p in program.results]


def _words(name: str) -> list[str]:
    """The words of a name, without the places in tuples that it begins with."""
    words = re.findall("[A-Za-z0-9]+", name)
    while words and (words[0].isdigit() or re.fullmatch(r"(arg|out)\d+", words[0])):
        words = words[1:]
    return words


def _named(places: Sequence[TensorPlace], kind: str) -> list[tuple[TensorPlace, str]]:
    names = ["_".join(_words(place.name)).lower() for place in places]
    return [
        (place, name if name and names.count(name) == 1 else f"{kind}{i}")
        for i, (place, name) in enumerate(zip(places, names, strict=True))
    ]


def _setter(program: Program, i: int, name: str) -> str:
    place = program.arguments[i]
    type_ = element_c_type(place.type.element_type)
    data = f"{program.name}_argument({program.instance}{i}u)"
    function = f"{program.name}_set_{name}"
    if not place.shape:
        return f"""\
static inline void {function}({_parameters(program, f"{type_} value")})
{{
    *({type_} *){data} = value;
}}
"""
    there = f"{type_} *const to = ({type_} *){data};"
    return _copying(program, function, f"const {type_} *", place, there, "to[k] = values[k];")


def _getter(program: Program, i: int, name: str) -> str:
    place = program.results[i]
    type_ = element_c_type(place.type.element_type)
    data = f"{program.name}_result({program.instance}{i}u)"
    function = f"{program.name}_get_{name}"
    if not place.shape:
        return f"""\
static inline {type_} {function}({_parameters(program) or "void"})
{{
    return *(const {type_} *){data};
}}
"""
    there = f"const {type_} *const from = (const {type_} *){data};"
    return _copying(program, function, f"{type_} *", place, there, "values[k] = from[k];")


def _copying(
    program: Program, function: str, pointer: str, place: TensorPlace, there: str, copy: str
) -> str:
    """A function that copies the elements of a tensor: `there` declares where it is in the arena,
    and `copy` does it for element k."""
    elements = math.prod(place.shape)
    return f"""\
static inline poetc_status {function}({_parameters(program, f"{pointer}values", "uint32_t count")})
{{
    {there}
    for (uint32_t k = 0; k < count && count == {elements}u; ++k) {{
        {copy}
    }}
    return count == {elements}u ? POETC_OK : POETC_WRONG_SIZE;
}}
"""


def _parameters(program: Program, *others: str) -> str:
    return ", ".join([*program.first(), *others])
