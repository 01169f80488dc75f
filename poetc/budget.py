"""The two limits of a step: how much RAM it may take, and how much time."""

from __future__ import annotations

from dataclasses import dataclass

from poetc.units import parse_duration_ns

SCOPES = ("all", "activations")
"""The scopes of a limit of RAM: everything, or all tensors but parameters and their gradients."""

BLOCK = "a block of a page"
"""The name in messages of the block that is in RAM where kernels run in tiles."""


@dataclass(frozen=True)
class Budget:
    """The RAM of a step: `total_bytes`, None for no limit, of which `static_bytes` (data of the
    generated code and runtime beside the arena), `stack_bytes`, and the `block_bytes` of one block
    of a page, where kernels may run in tiles, are no part of the arena.

    With the scope "activations" the limit is one of tensors only, and nothing is set aside from it.
    `names` are what messages call the first two.
    """

    total_bytes: int | None
    static_bytes: int = 0
    stack_bytes: int = 0
    scope: str = "all"
    names: tuple[str, str] = ("static data", "the stack")
    block_bytes: int = 0

    @property
    def beside_bytes(self) -> int:
        """The bytes of the program in RAM beside the arena."""
        return self.static_bytes + self.stack_bytes + self.block_bytes

    @property
    def reserved(self) -> tuple[tuple[str, int], ...]:
        """The parts of the limit that are set aside before anything is scheduled, with their
        bytes."""
        beside = self.static_bytes, self.stack_bytes, self.block_bytes
        sizes = zip((*self.names, BLOCK), beside, strict=True)
        return tuple(size for size in sizes if size[1] and self.scope == "all")

    @property
    def reserved_bytes(self) -> int:
        """All that is set aside from the limit."""
        return sum(bytes for _, bytes in self.reserved)

    @property
    def arena_bytes(self) -> int | None:
        """The bytes left for the arena; None for no limit, 0 or less where nothing is left."""
        return None if self.total_bytes is None else self.total_bytes - self.reserved_bytes

    def used_bytes(self, arena_bytes: int) -> int:
        """All of the RAM of a program with an arena of that size."""
        return arena_bytes + self.beside_bytes


@dataclass(frozen=True)
class Deadline:
    """The longest time of a step: `time_ns`, or `multiple` times the unlimited step's time."""

    time_ns: int = 0
    multiple: float | None = None

    @classmethod
    def parse(cls, text: str, option: str) -> Deadline:
        """The deadline that a user writes: `20ms`, or `1.5x`. Raises InputError naming the
        option."""
        found = parse_duration_ns(text, option)
        return cls(multiple=found) if isinstance(found, float) else cls(found)

    def within_ns(self, unlimited_ns: int) -> int:
        """The deadline in ns of a step that takes `unlimited_ns` with unlimited RAM."""
        if self.multiple is None:
            return self.time_ns
        # At least the shortest there is: a step that takes no time meets any.
        return max(1, round(self.multiple * unlimited_ns))
