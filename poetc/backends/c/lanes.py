"""Loops in lanes (`kernels/lanes.py`) as C: vectors of gcc and clang, as wide as the loop says. On
a processor whose registers are narrower, compilers take several."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import affine, func
from xdsl.dialects.builtin import Float32Type
from xdsl.ir import Operation, SSAValue

from poetc.backends.c.expressions import place_type, vector_type
from poetc.kernels.addresses import extent
from poetc.kernels.dependences import dependences
from poetc.kernels.lanes import Parts, lanes_of, parts_of

_FLOAT_BYTES = 4


@dataclass(frozen=True)
class Lanes:
    """The vectors of a function: the parts of its loops, the loop in whose lanes each load and
    store is, and the values that are vectors, with their numbers of elements."""

    parts: dict[affine.ForOp, Parts]
    loops: dict[Operation, affine.ForOp]
    vectors: dict[SSAValue, int]

    def types(self, body: str) -> Sequence[str]:
        """The types that the C of a function uses, which it begins with."""
        found: dict[str, str] = {}
        for lanes in sorted({lanes_of(loop) for loop in self.parts}):
            size = f"vector_size({lanes * _FLOAT_BYTES})"
            found[vector_type(lanes)] = size
            found[place_type(lanes)] = f"{size}, aligned({_FLOAT_BYTES}), may_alias"
        return [
            f"typedef float {name} __attribute__(({about}));"
            for name, about in found.items()
            if re.search(rf"\b{name}\b", body)
        ]


def lanes_in(function: func.FuncOp) -> Lanes:
    """The vectors of a function; none without loops in lanes."""
    found = Lanes({}, {}, {})
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
            blocks = (block for region in op.regions for block in region.blocks)
            values = (*op.results, *(argument for block in blocks for argument in block.args))
            varying = [value for value in values if loop in depends.get(value, ())]
            if varying or isinstance(op, affine.StoreOp):
                found.loops[op] = loop
            for value in varying:
                if isinstance(value.type, Float32Type):
                    found.vectors[value] = lanes
    return found
