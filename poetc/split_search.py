"""Which parameters to split, and into how many parts, so that a step fits into little RAM.

While a kernel runs, its operands and results are in RAM. The kernel that needs most of it bounds
what any schedule can do, and where a parameter is among its operands, splitting that parameter
(`stablehlo-split`) lowers the bound. This is done again and again, each time for the kernel that
needs most, with few parts, until the bound is within the RAM; whether a schedule exists then is for
the scheduler to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument

from poetc.ir.graph import tensor_bytes
from poetc.ir.poet import ComputeOp, GraphOp
from poetc.passes.stablehlo_split import Split
from poetc.schedule.problem import Place, Problem

if TYPE_CHECKING:
    from poetc.pipeline import Options

MOST_PARTS = 64
"""Of one parameter: each part has kernels of its own."""


@dataclass(frozen=True)
class Candidate:
    """A module with one graph, ready to be scheduled with `options`, whose parameters are split.

    `needed_bytes` is what it needs at least, of all of the RAM, and `kernel` the one that needs
    that (None: what is in RAM at the start or the end). `other_bytes` is the same for what no split
    can change: kernels without parameters, the start and the end. `base_time_ns` is what computing
    and transfers take at least.
    """

    splits: tuple[Split, ...]
    module: ModuleOp
    graph: GraphOp
    options: Options
    needed_bytes: int
    other_bytes: int
    kernel: ComputeOp | None
    base_time_ns: int


def other_bytes(problem: Problem) -> int:
    """What kernels without parameters on storage, the start and the end need at least."""
    tensors = problem.tensors
    sizes = [tensor.bytes for tensor in tensors]
    stored = {v for v, t in enumerate(tensors) if Place.STORAGE in (t.start, t.end)}
    start = sum(t.bytes for t in tensors if t.start is Place.RAM)
    most = max(start, sum(t.bytes for t in tensors if t.end is Place.RAM))
    for operation in problem.operations:
        inputs, outputs = set(operation.inputs), set(operation.outputs)
        if stored.isdisjoint(inputs | outputs):
            # An output may take over the buffer of an input.
            least = max(sum(sizes[v] for v in inputs), sum(sizes[v] for v in outputs))
            most = max(most, least + operation.workspace_bytes)
    return most


Build = Callable[[tuple[Split, ...]], Candidate | None]
"""Makes the candidate of some splits; None when the time is over."""


def candidates(
    build: Build,
    unsplit: Candidate,
    most_parts: Mapping[int, tuple[int, int]],
    ram_bytes: int,
) -> Iterator[Candidate]:
    """Ever finer splits of `unsplit` that may fit into `ram_bytes`, or if none may, the one that
    needs least; nothing if it is clear that none may.

    `most_parts` gives for each parameter the argument that stands for those split alike, and in how
    many parts these can be had. Iterating further means that the candidate before did not fit
    after all.
    """
    if unsplit.other_bytes > ram_bytes:
        return
    best = unsplit
    exhausted: set[int] = set()
    told = False
    while True:
        # What may fit but does not must become smaller; by how much, nobody knows.
        goal_bytes = min(ram_bytes, best.needed_bytes - 1)
        finer = _finer(build, best, most_parts, goal_bytes, exhausted)
        if finer is None:
            break
        best = finer
        told = best.needed_bytes <= ram_bytes
        if told:
            yield best
    if not told:
        yield best


def _finer(
    build: Build,
    given: Candidate,
    most_parts: Mapping[int, tuple[int, int]],
    goal_bytes: int,
    exhausted: set[int],
) -> Candidate | None:
    """A candidate in which a parameter of the kernel that needs most is in more parts, so that less
    is needed; None if there is none. What did not help enters `exhausted`."""
    for argument, part_bytes in _parameters(given):
        stands, most = most_parts[argument]
        now = next((s.parts for s in given.splits if s.parameter == stands), 1)
        if stands in exhausted:
            continue
        wanted = part_bytes - (given.needed_bytes - goal_bytes)
        least = -(-part_bytes * now // wanted) if wanted > 0 else 2 * now
        others = tuple(s for s in given.splits if s.parameter != stands)
        # Parts are not of equal size, and other tensors of the kernel may change with them.
        limit = min(most, MOST_PARTS)
        for parts in dict.fromkeys((min(least, limit), min(2 * least, limit))):
            if parts <= now:
                continue
            found = build((*others, Split(stands, parts)))
            if found is None:
                return None
            moved = argument not in dict(_parameters(found))
            if found.needed_bytes < given.needed_bytes or (
                found.needed_bytes == given.needed_bytes and moved
            ):
                return found
        exhausted.add(stands)
    return None


def _parameters(candidate: Candidate) -> list[tuple[int, int]]:
    """The parameters that the kernel which needs most reads or updates, largest first, with the
    bytes of the largest of their parts among its operands."""
    graph, kernel = candidate.graph, candidate.kernel
    found: dict[int, int] = {}
    for operand in kernel.operands if kernel is not None else ():
        if isinstance(operand, BlockArgument) and graph.updates(operand.index) is not None:
            part = graph.part(operand.index)
            argument = operand.index if part is None else part.argument
            found[argument] = max(found.get(argument, 0), tensor_bytes(operand.type))
    return sorted(found.items(), key=lambda item: -item[1])
