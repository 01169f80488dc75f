"""The parameters of a program in this process, in its arena, in its storage, or in buffers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from poetc.errors import InputError
from poetc.image import pack, unpack

if TYPE_CHECKING:
    from poetc.backends.c.shared import SharedProgram


class State:
    """The values of the arguments that a program keeps from step to step, by number."""

    def __init__(self, shared: SharedProgram, numbers: frozenset[int]) -> None:
        self._shared = shared
        self._missing = set(numbers)
        self._numbers = numbers
        self._sequence = 0
        # Values of parameters on storage, until those of all are known and an image is made.
        self._waiting: dict[int, np.ndarray] = {}
        image = shared.image
        self._stored = frozenset(() if image is None else (p.argument for p in image.tensors))

    @property
    def missing(self) -> frozenset[int]:
        """The parameters without values: none were given, or a step that failed has lost them."""
        return frozenset(self._missing)

    def values(self) -> dict[int, np.ndarray]:
        """Copies of all that have values. Raises InputError for a damaged storage image."""
        here = self._numbers - self._missing - self._stored
        return {i: self._shared.argument(i).copy() for i in here} | self._on_storage()

    def set(self, values: Mapping[int, np.ndarray]) -> None:
        """Gives some of them new values, of their shapes and types."""
        for i in values.keys() - self._stored:
            self._shared.set_argument(i, values[i].copy())
            self._missing.discard(i)
        stored = {i: values[i] for i in values.keys() & self._stored}
        if stored:
            self._waiting = self._on_storage(but=frozenset(stored)) | stored
            self._missing -= self._waiting.keys()
            if self._waiting.keys() == self._stored:
                self._pack()

    def lose(self) -> None:
        """A step has failed, and may have changed some in the arena."""
        self._missing |= {i for i in self._numbers if self._shared.arguments[i].in_arena}

    def _on_storage(self, but: frozenset[int] = frozenset()) -> dict[int, np.ndarray]:
        """The values on storage; with `but` all there are, nothing is read."""
        if self._waiting or not self._stored or self._stored <= but:
            return self._waiting
        if self._missing & self._stored:
            return {}
        image = self._shared.image
        assert image is not None
        self._sequence, arrays = unpack(image, bytearray(self._shared.storage))
        return {p.argument: a for p, a in zip(image.tensors, arrays, strict=True)}

    def _pack(self) -> None:
        image = self._shared.image
        assert image is not None
        arrays = [self._waiting[p.argument] for p in image.tensors]
        made = np.frombuffer(pack(image, arrays, self._sequence), np.uint8)
        self._shared.storage[: made.size] = made
        self._waiting = {}


def check_known(missing: frozenset[int], names: tuple[str, ...]) -> None:
    """Raises InputError for parameters without values."""
    if missing:
        listed = ", ".join(names[i] for i in sorted(missing))
        raise InputError(f"no values are known of {listed}; assign them to Program.parameters")
