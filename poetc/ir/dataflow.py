"""The values from which a value is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from xdsl.ir import Operation, SSAValue


def reached(
    start: Iterable[SSAValue], following: Callable[[SSAValue], Iterable[SSAValue]]
) -> set[SSAValue]:
    """`start`, and everything that can be reached from it by going from a value to those that
    `following` gives."""
    found: set[SSAValue] = set()
    front = list(start)
    while front:
        value = front.pop()
        if value not in found:
            found.add(value)
            front += following(value)
    return found


def computed_from(values: Iterable[SSAValue]) -> set[SSAValue]:
    """The values, and all operands, direct and indirect, of the operations that compute them."""
    return reached(
        values, lambda value: value.owner.operands if isinstance(value.owner, Operation) else ()
    )
