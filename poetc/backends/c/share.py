"""Kernels that differ only in numbers share one function, which takes the numbers.

Two printed functions are alike if their texts are, but for integers: bounds of loops, strides and
offsets. One function is printed for all that are alike, with a parameter for each number that is
not the same in all of them (and one for numbers that go together), and each kernel calls it. Bits
are the same, and so is the order of everything. A compiler knows less about a loop whose bounds
are parameters, so this costs time, which `Optimise` weighs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from poetc.backends.c.text import INDENT, unique, wrapped
from poetc.kernels.arrange.alike import cold

MOST_NUMBERS = 16
"""Parameters of a shared function beside its buffers; each call passes them on the stack."""

_NUMBER = re.compile(r"(?<![\w.])([0-9]+)(?![\w.])")
# Numbers whose value the text around depends on: sizes of arrays, and divisors, by which
# compilers divide without a division.
_FIXED = re.compile(r"\w+ \w+\[[0-9]+\]|[/%] [0-9]+(?![\w.])")
_COMMENT = re.compile(r" */\*.*?\*/")
_INT32_END = 1 << 31


class Optimise(Enum):
    """The aim of the program, size or time: which kernels may be slower and share code."""

    TIME = "time"
    BALANCED = "balanced"
    SIZE = "size"

    def shares(self, times_ns: Sequence[int]) -> list[bool]:
        """For each kernel, from its time in a step, whether it may become slower."""
        if self is not Optimise.BALANCED:
            return [self is Optimise.SIZE] * len(times_ns)
        return cold(times_ns)


@dataclass(frozen=True)
class _Printed:
    """A function: its parameters, and its body in pieces between numbers."""

    name: str
    head: str
    parameters: tuple[str, ...]
    pieces: tuple[str, ...]
    numbers: tuple[int, ...]

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of its parameters."""
        return tuple(re.split(r"\W+", parameter)[-1] for parameter in self.parameters)


def share(definitions: Sequence[tuple[str, str]], may_share: Sequence[bool]) -> list[str]:
    """The definitions of functions, given with their names, with what they share before the first
    of them. Those that may not get slower share only what has the same numbers."""
    printed = [_parse(name, text) for name, text in definitions]
    groups: dict[object, list[int]] = {}
    for k, function in enumerate(printed):
        key = (function.parameters, function.pieces)
        numbers = None if may_share[k] else function.numbers
        groups.setdefault((key, numbers), []).append(k)
    texts = [text for _, text in definitions]
    names = {name for name, _ in definitions}
    for group in groups.values():
        functions = [printed[k] for k in group]
        places = _differing(functions)
        if len(group) == 1 or len(set(places.values())) > MOST_NUMBERS:
            continue
        shared = unique(f"{functions[0].name}_sized", names)
        first = group[0]
        for k in group:
            texts[k] = _call(printed[k], shared, places)
        texts[first] = f"{_shared(functions[0], shared, places)}\n{texts[first]}"
    return texts


def _parse(name: str, text: str) -> _Printed:
    head, _, body = text.partition("\n{\n")
    listed = _COMMENT.sub("", head[head.index("(") + 1 : head.rindex(")")])
    parameters = tuple(" ".join(parameter.split()) for parameter in listed.split(","))
    fixed = [found.span() for found in _FIXED.finditer(body)]
    pieces: list[str] = []
    numbers: list[int] = []
    end = 0
    for found in _NUMBER.finditer(body):
        inside = any(start <= found.start() < stop for start, stop in fixed)
        if inside or int(found[1]) >= _INT32_END:
            continue
        pieces.append(body[end : found.start()])
        numbers.append(int(found[1]))
        end = found.end()
    return _Printed(name, head, parameters, (*pieces, body[end:]), tuple(numbers))


def _differing(functions: Sequence[_Printed]) -> dict[int, tuple[int, ...]]:
    """The places of numbers that are not the same in all functions, with their values there."""
    columns = enumerate(zip(*(function.numbers for function in functions), strict=True))
    return {place: values for place, values in columns if len(set(values)) > 1}


def _numbered(places: dict[int, tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """The values of each parameter, in the order of the text."""
    return tuple(dict.fromkeys(places.values()))


def _shared(function: _Printed, name: str, places: dict[int, tuple[int, ...]]) -> str:
    taken = set(re.findall(r"\w+", "".join((*function.parameters, *function.pieces))))
    # Numbers that have the same values in all functions share a parameter.
    names = {values: unique(f"n{i}", taken) for i, values in enumerate(_numbered(places))}
    lines = [f"{parameter}," for parameter in function.parameters]
    lines += wrapped("", [f"int32_t\xa0{n}" for n in names.values()], "") if names else []
    listed = "\n".join(f"{INDENT}{line.strip()}" for line in lines).replace("\xa0", " ")
    head = f"static POETC_APART void {name}(\n{listed.rstrip(',')})"

    def texts() -> Iterator[str]:
        for place, (piece, number) in enumerate(
            zip(function.pieces, function.numbers, strict=False)
        ):
            yield piece
            yield names[places[place]] if place in places else str(number)
        yield function.pieces[-1]

    return f"{head}\n{{\n{''.join(texts())}"


def _call(function: _Printed, shared: str, places: dict[int, tuple[int, ...]]) -> str:
    own = {places[place]: function.numbers[place] for place in places}
    items = [*function.arguments, *(str(own[values]) for values in _numbered(places))]
    call = "\n".join(wrapped(f"{INDENT}{shared}(", items, ");"))
    return f"{function.head}\n{{\n{call}\n}}\n"
