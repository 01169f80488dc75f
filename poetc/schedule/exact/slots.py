"""Slots: the places in a fixed sequence where an operation may run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from poetc.schedule.model.instance import Instance

NONE = -1
"""Stands for no column."""


@dataclass(frozen=True)
class Slot:
    """A place where an operation may run: the first run of `stage` itself, or a recompute before
    it."""

    stage: int
    operation: int

    @property
    def optional(self) -> bool:
        return self.operation != self.stage


def all_slots(instance: Instance) -> list[Slot]:
    """Every recompute that is possible and can be of use, in every stage."""
    return slots_where(instance, lambda stage, operation: True)


def slots_where(instance: Instance, allowed: Callable[[int, int], bool]) -> list[Slot]:
    """The slots (stage, operation) that `allowed` lets through, and all obligatory ones."""
    last, n = instance.last_recompute, instance.n
    return [
        Slot(t, k)
        for t in range(n + 1)
        for k in range(min(t + 1, n))
        if k == t or (last[k] >= t and allowed(t, k))
    ]


@dataclass
class Use:
    """One use of a tensor: `slot` makes it or reads it (slot −1: it is in RAM at the start)."""

    slot: int
    makes: bool
    load: int = NONE
    keep: int = NONE  # the keep column that begins here
