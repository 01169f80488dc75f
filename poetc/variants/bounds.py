"""Lower bounds on the transfers of a nest between storage and RAM, for any tiles."""

from __future__ import annotations

from collections.abc import Set
from math import prod, sqrt

from poetc.variants.nests import Nest, Stream


def stream_bytes(nest: Nest, stream: Stream) -> int:
    """Bytes of a buffer all of which the tiles of a nest move, whatever they are; 0 where they may
    leave some out."""
    loops = [number for dim in stream.dims for number, _ in dim.terms]
    for dim in stream.dims:
        # Positions from the lowest one on, without any between that are left out.
        count = dim.high - dim.low + 1
        for coefficient, number in sorted((c, n) for n, c in dim.terms):
            if not 0 < coefficient <= count:
                return 0
            count += coefficient * (nest.loops[number].extent - 1)
        if dim.rows or dim.gaps or dim.low > 0 or dim.low + count < dim.extent:
            return 0
    # Tiles of a loop that is in several dimensions are the diagonal of these.
    if len(set(loops)) < len(loops):
        return 0
    return prod(dim.extent for dim in stream.dims) * stream.element_bytes


def product_bytes(nest: Nest, on_storage: Set[int], ram_bytes: int) -> float:
    """Bytes that a product of matrices, or a batch of them, moves at least in some RAM, with these
    buffers on storage; 0 for another nest, and where one of its matrices is in RAM.

    2mnk/√S - 2S elements for each product in RAM for S elements: Smith, Lowery, Langou and van de
    Geijn, A tight I/O lower bound for matrix multiplication, 2019.
    """
    extents = [loop.extent for loop in nest.loops]
    parallel = set(range(nest.parallel))
    sums = set(range(nest.parallel, len(extents)))
    factors = [s for s in nest.streams if not s.stored and sums & s.needed_in and _loops(s)]
    stored = [s for s in nest.streams if s.stored and not sums & s.needed_in]
    if len(factors) != 2 or not sums or not stored:
        return 0.0
    left, right = map(_loops, factors)
    matrices = (*factors, stored[0])
    if any(s.buffer not in on_storage for s in matrices):
        return 0.0
    # Each iteration of its loops touches an element of its own, and all are touched.
    if any(
        prod(extents[loop] for loop in _loops(s)) * s.element_bytes != stream_bytes(nest, s)
        for s in matrices
    ):
        return 0.0
    # Each loop is in two of the three matrices, or in all of them.
    if sums - (left & right) or parallel - (left | right) or _loops(stored[0]) != parallel:
        return 0.0
    batch = parallel & left & right
    size = prod(n for loop, n in enumerate(extents) if loop not in batch)
    element_bytes = min(s.element_bytes for s in matrices)
    elements = max(1, ram_bytes // element_bytes)
    times = prod(extents[loop] for loop in batch)
    return times * max(0.0, 2 * size / sqrt(elements) - 2 * elements) * element_bytes


def _loops(stream: Stream) -> set[int]:
    return {loop for dim in stream.dims for loop, _ in dim.terms}
