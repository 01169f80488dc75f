"""Loops in lanes (`kernels/lanes.py`) as C: vectors of gcc and clang, as wide as the loop says. On
a processor whose registers are narrower, compilers take several."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.dialects import affine, func
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Operation, SSAValue

from poetc.backends.c.bindings import Bindings
from poetc.backends.c.expressions import (
    Expression,
    Level,
    integers_type,
    place_type,
    vector_type,
    words_type,
)
from poetc.ir.index import Index
from poetc.kernels.addresses import extent
from poetc.kernels.dependences import dependences
from poetc.kernels.lanes import SIDE, Parts, lanes_of, parts_of, squares, step_of

_FLOAT_BYTES = 4


@dataclass(frozen=True)
class Lanes:
    """The vectors of a function: the parts of its loops, the loop in whose lanes each load and
    store is, and the values that are vectors, with their numbers of elements."""

    parts: dict[affine.ForOp, Parts]
    loops: dict[Operation, affine.ForOp]
    vectors: dict[SSAValue, int]
    squares: dict[Operation, Sequence[affine.LoadOp]]
    """Loads that are done together, as columns, by each of them."""

    @cached_property
    def types(self) -> Mapping[str, str]:
        """Definitions of types of vectors, by their names."""
        found: dict[str, str] = {}
        widths = {lanes_of(loop) for loop in self.parts}
        # Squares are put together of smaller ones.
        for lanes in sorted({width >> i for width in widths for i in range(4)}):
            if lanes < SIDE:
                continue
            size = f"vector_size({lanes * _FLOAT_BYTES})"
            for name, element, about in (
                (vector_type(lanes), "float", size),
                (place_type(lanes), "float", f"{size}, aligned({_FLOAT_BYTES}), may_alias"),
                (integers_type(lanes), "int32_t", size),
                (words_type(lanes), "uint32_t", size),
            ):
                found[name] = f"typedef {element} {name} __attribute__(({about}));"
        return found

    def used(self, body: str) -> Sequence[str]:
        """The definitions that the C of a function uses, which it begins with."""
        return [text for name, text in self.types.items() if re.search(rf"\b{name}\b", body)]


def lanes_in(function: func.FuncOp) -> Lanes:
    """The vectors of a function; none without loops in lanes."""
    found = Lanes({}, {}, {}, {})
    chosen = [op for op in function.walk() if isinstance(op, affine.ForOp) and lanes_of(op) > 1]
    if not chosen:
        return found
    depends = dependences(function)
    for loop in chosen:
        lanes = lanes_of(loop)
        parts = parts_of(loop, depends)
        if parts is None or extent(loop) % lanes:
            continue
        found.parts[loop] = parts
        for op in (each for part in parts.vectors for each in part.walk()):
            blocks = [block for region in op.regions for block in region.blocks]
            for block in blocks:
                for loads in squares(block, loop):
                    found.squares.update(dict.fromkeys(loads, loads))
            values = (*op.results, *(argument for block in blocks for argument in block.args))
            varying = [value for value in values if loop in depends.get(value, ())]
            if varying or isinstance(op, affine.StoreOp):
                found.loops[op] = loop
            for value in varying:
                if not isinstance(value.type, IndexType):
                    found.vectors[value] = lanes
    return found


def load_vector(
    bindings: Bindings,
    in_lanes: Lanes,
    op: affine.LoadOp,
    element: Callable[[SSAValue, Sequence[Index], int], str],
    is_bits: bool,
) -> None:
    """Prints a load by all lanes of a loop: of what is side by side, with others as a square, or
    number by number, as in a table of bits. `element` is where a number is, so many behind."""
    if op.result in bindings.values:
        return
    loop = in_lanes.loops[op]
    lanes, step = lanes_of(loop), step_of(op, loop)
    assert step is not None
    loads = () if is_bits else in_lanes.squares.get(op, ())
    first = loads[0] if loads else op
    indices = bindings.map(first.map.data, first.indices)
    places = [element(op.memref, indices, step * lane) for lane in range(lanes)]
    reads = frozenset({bindings.values[op.memref].text}) | bindings.changing(*indices)
    if loads:
        _load_square(bindings, loads, places)
    elif step == 1 and not is_bits:
        text = f"*(const {place_type(lanes)} *)&{places[0]}"
        bindings.define(op.result, Expression(text, Level.UNARY, reads))
    else:
        if not is_bits:
            start = bindings.fresh("first")
            bindings.line(f"const float *const {start} = &{places[0]};")
            places = [f"{start}[{step * lane}]" for lane in range(lanes)]
        text = f"({vector_type(lanes)}){{{', '.join(places)}}}"
        bindings.define(op.result, Expression(text, Level.UNARY, reads))


def _load_square(bindings: Bindings, loads: Sequence[affine.LoadOp], rows: Sequence[str]) -> None:
    """Prints the loads of a square (`kernels/lanes.py`): rows, which are at these places, are
    loaded, and transposed to columns."""
    lanes = len(rows)
    parts = [f"*(const {place_type(SIDE)} *)&{row}" for row in rows]

    def named(width: int, text: str) -> str:
        name = bindings.fresh("square")
        bindings.line(f"const {vector_type(width)} {name} = {text};")
        return name

    # Rows of a vector: those that are SIDE apart.
    found: list[str] = []
    for first in range(SIDE):
        some = [named(SIDE, text) for text in parts[first::SIDE]]
        width = SIDE
        while len(some) > 1:
            width *= 2
            some = [
                named(width, f"POETC_JOIN_{width}({vector_type(width)}, {a}, {b})")
                for a, b in zip(some[::2], some[1::2], strict=True)
            ]
        found += some

    def picked(a: str, b: str, places: Sequence[int]) -> str:
        """Of each four numbers of two vectors, those at the places, of which the second has the
        last four."""
        at = [
            base + place if place < SIDE else base + place - SIDE + lanes
            for base in range(0, lanes, SIDE)
            for place in places
        ]
        numbers = ", ".join(map(str, at))
        return f"POETC_PICK({a}, {b}, {numbers})"

    low, high = (0, 4, 1, 5), (2, 6, 3, 7)
    pairs = [
        named(lanes, picked(found[i], found[i + 1], places))
        for places in (low, high)
        for i in (0, 2)
    ]
    texts = [
        picked(pairs[i], pairs[i + 1], places)
        for i in (0, 2)
        for places in ((0, 1, 4, 5), (2, 3, 6, 7))
    ]
    for load, text in zip(loads, texts, strict=True):
        name = bindings.name(load.result, "t")
        bindings.line(f"const {vector_type(lanes)} {name} = {text};")
        bindings.bind(load.result, name, changing=False)
