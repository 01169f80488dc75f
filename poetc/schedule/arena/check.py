"""Checks a packing without any of the code that made it."""

from collections.abc import Sequence


class ArenaError(Exception):
    """A packing that is not one; the message names the buffers."""


def check_packing(
    bytes: Sequence[int],
    lifetimes: Sequence[tuple[int, int]],
    offsets: Sequence[int],
    arena_bytes: int,
    align: int,
    names: Sequence[str] | None = None,
    own_align: Sequence[int] | None = None,
) -> None:
    """Raises ArenaError unless every buffer is aligned, inside the arena and free of others.

    Buffer i has `bytes[i]` at `offsets[i]` and is needed during the steps `lifetimes[i]`, both ends
    included. Bytes are exact: padding between aligned buffers may be used by nobody or anybody.
    Not so where a buffer has an alignment of its own, `own_align[i]`: it takes whole multiples.
    """
    names = names or [f"buffer {i}" for i in range(len(bytes))]
    own_align = own_align or [1] * len(bytes)
    if not len(bytes) == len(lifetimes) == len(offsets) == len(names) == len(own_align):
        raise ArenaError("sizes, lifetimes, offsets, names and alignments differ in number")
    bytes = [-(-size // own) * own for size, own in zip(bytes, own_align, strict=True)]
    for name, size, offset, own in zip(names, bytes, offsets, own_align, strict=True):
        for multiple in (align, own):
            if offset < 0 or offset % multiple:
                raise ArenaError(f"{name} is at {offset}, which is not a multiple of {multiple}")
        if offset + size > arena_bytes:
            raise ArenaError(f"{name} ends at {offset + size}, outside {arena_bytes} bytes")
    # A sweep from the bottom of the arena to its top; ends come before begins at equal heights.
    events = [(offset, 1, i) for i, offset in enumerate(offsets) if bytes[i]]
    events += [(offset + bytes[i], 0, i) for i, offset in enumerate(offsets) if bytes[i]]
    crossing: set[int] = set()
    for _, begins, i in sorted(events):
        if not begins:
            crossing.remove(i)
            continue
        first, last = lifetimes[i]
        for j in crossing:
            if not (lifetimes[j][1] < first or last < lifetimes[j][0]):
                raise ArenaError(
                    f"{names[j]} ({bytes[j]} bytes at {offsets[j]}) and {names[i]} ({bytes[i]} "
                    f"bytes at {offsets[i]}) overlap while both are alive"
                )
        crossing.add(i)
