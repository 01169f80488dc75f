"""Tiles of parallel loops: iterations that run together, and what depends on which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from xdsl.dialects import affine
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Attribute
from xdsl.utils.hints import isa

from poetc.ir.index import Index, Variable


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
"""The number of the copy of each tiled loop that an operation is emitted for."""


def elements_of(type_: Attribute) -> int:
    """Elements of a memref."""
    assert isa(type_, MemRefType)
    return int(np.prod(type_.get_shape(), dtype=np.int64))
