"""Tiles of parallel loops: iterations that run together, and what depends on which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from xdsl.dialects import affine, func
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute, Block, SSAValue
from xdsl.utils.hints import isa

from poetc.backends.c.indexing import Index, Variable
from poetc.backends.c.prepare import yielded
from poetc.errors import InputError


@dataclass(frozen=True)
class Piece:
    """Iterations `start`, ... of a loop, in `tiles` tiles of `copies * lanes` iterations each."""

    start: int
    tiles: int
    copies: int = 1
    lanes: int = 1

    @property
    def iterations(self) -> int:
        return self.copies * self.lanes


Tiling = Mapping[affine.ForOp, Sequence[Piece]]
"""How parallel loops run; the pieces of each cover all of its iterations, in order."""


class Axis(NamedTuple):
    """A tiled loop around what is being emitted."""

    base: Index
    piece: Piece
    lane: Variable | None


At = Mapping[affine.ForOp, int]
"""Which of the copies of each tiled loop an operation is emitted for."""


def elements_of(type_: Attribute) -> int:
    """Elements of a memref."""
    assert isa(type_, MemRefType)
    return int(np.prod(type_.get_shape(), dtype=np.int64))


def dependences(function: func.FuncOp) -> dict[SSAValue, frozenset[affine.ForOp]]:
    """The parallel loops whose variable each value depends on, by data or through guards.

    What is in memory counts as independent: a load depends on what its index does.
    """
    found: dict[SSAValue, frozenset[affine.ForOp]] = {}
    none: frozenset[affine.ForOp] = frozenset()

    def of(values: Sequence[SSAValue]) -> frozenset[affine.ForOp]:
        return none.union(*(found.get(value, none) for value in values))

    def visit(block: Block) -> None:
        for op in block.ops:
            match op:
                case affine.ForOp():
                    body = op.body.block
                    variable, *carried = body.args
                    found[variable] = none if op.inits else frozenset({op})
                    for argument, init in zip(carried, op.inits, strict=True):
                        found[argument] = of([init])
                    while True:
                        visit(body)
                        grown = False
                        for argument, value in zip(carried, yielded(body), strict=True):
                            more = found[argument] | of([value])
                            grown |= more != found[argument]
                            found[argument] = more
                        if not grown:
                            break
                    for result, argument in zip(op.results, carried, strict=True):
                        found[result] = found[argument]
                case affine.IfOp():
                    guard = of(op.args)
                    branches = [region.block for region in op.regions if region.blocks]
                    for branch in branches:
                        visit(branch)
                    for i, result in enumerate(op.results):
                        found[result] = guard.union(*(of([yielded(b)[i]]) for b in branches))
                case _:
                    for result in op.results:
                        found[result] = of(op.operands)

    visit(function.body.block)
    return found


def loop_bounds(op: affine.ForOp) -> tuple[int, int]:
    """The first iteration of a loop, and the one behind its last."""
    if op.lowerBoundOperands or op.upperBoundOperands or op.step.value.data != 1:
        raise InputError("affine.for needs constant bounds and a step of 1")
    (low,), (high,) = op.lowerBoundMap.data.eval([], []), op.upperBoundMap.data.eval([], [])
    return low, max(low, high)
