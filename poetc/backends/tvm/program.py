"""The arguments and results of a compiled program, as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

STEP = "step"
"""The function that does a step."""
DESCRIBE = "describe"
"""The function that returns a `Program` as JSON."""

PAGE_OUT = "poetc.page_out"
PAGE_IN = "poetc.page_in"
IMAGE_OPEN = "poetc.image_open"
IMAGE_COMMIT = "poetc.image_commit"
"""The functions of the runner that a step calls; see stores.py and runtime/poetc_tvm.h."""


@dataclass(frozen=True)
class Place:
    """An argument or result. `where` is "arena", "storage", "caller", or "frozen" for a result that
    is an argument as it was; `offset` is in bytes from the start of the arena or storage. `updates`
    is, of a result, the argument that it replaces."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    where: str
    offset: int
    is_param: bool = False
    updates: int | None = None

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Program:
    """All of them, and the sizes of arena and storage in bytes."""

    arguments: tuple[Place, ...]
    results: tuple[Place, ...]
    arena_bytes: int
    storage_bytes: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Program:
        places = [
            tuple(Place(**(place | {"shape": tuple(place["shape"])})) for place in data[group])
            for group in ("arguments", "results")
        ]
        return Program(places[0], places[1], data["arena_bytes"], data["storage_bytes"])
