"""The arguments and results of a compiled program, as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from poetc.tensors import ProgramTensor, read_tensor

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
class Program:
    """All of them, and the sizes of arena and storage in bytes."""

    arguments: tuple[ProgramTensor, ...]
    results: tuple[ProgramTensor, ...]
    arena_bytes: int
    storage_bytes: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Program:
        tensors = {
            group: tuple(map(read_tensor, data[group])) for group in ("arguments", "results")
        }
        return Program(**{**data, **tensors})
