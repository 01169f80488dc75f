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
from xdsl.ir import BlockArgument, SSAValue

from poetc.ir import stablehlo as hlo
from poetc.ir.graph import GraphView, Storage, tensor_bytes
from poetc.ir.poet import ComputeOp, GraphOp, YieldOp
from poetc.passes.stablehlo_split import Split
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Place, Problem

if TYPE_CHECKING:
    from poetc.pipeline import Options

MOST_PARTS = 64
"""Of one parameter: each part has kernels of its own."""


@dataclass(frozen=True)
class Candidate:
    """A module with one graph, ready to be scheduled with `options`, whose parameters are split.

    `needed_bytes` is what it needs at least, of all of the RAM, and `kernel` the one that needs
    that (None: what is in RAM at the start or the end). `ends_bytes` is the same for what no split
    can change: the start and the end. `least_nj` is what kernels and transfers take at least, with
    parameters on storage; `least_time_ns` the same for these and all finer parts.
    """

    splits: tuple[Split, ...]
    module: ModuleOp
    graph: GraphOp
    options: Options
    needed_bytes: int
    ends_bytes: int
    kernel: ComputeOp | None
    least_time_ns: int
    least_nj: int


def ends_bytes(problem: Problem) -> int:
    """What is in RAM at the start or at the end, whichever is more."""
    tensors = problem.tensors
    start = sum(t.bytes for t in tensors if t.start is Place.RAM)
    return max(start, sum(t.bytes for t in tensors if t.end is Place.RAM))


MOVES = (
    hlo.ConstantOp,
    hlo.IotaOp,
    hlo.BroadcastInDimOp,
    hlo.ReshapeOp,
    hlo.TransposeOp,
)
"""Operations that compute nothing: a kernel takes no less time without them."""

EVERYWHERE = (
    *MOVES,
    hlo.ElementwiseOp,
    hlo.DotGeneralOp,
    hlo.ReduceOp,
)
"""Operations whose results depend on their operands everywhere, and on all of them. Of others, such
as a slice, parts may depend on less."""


def least_time_ns(view: GraphView, storage: Storage) -> int:
    """Nanoseconds that no schedule takes less than, with the parameters of an unscheduled graph on
    storage, in whatever parts and order.

    Parts make neither computing nor transfers less. Where transfers go on beside computing, what
    depends on parameters is computed after the first page-in, and what new values depend on before
    the last page-out, and neither takes less than that of one byte.
    """
    problem = view.problem
    instance = Instance(problem)
    if not problem.dma:
        return instance.base_time_ns
    between = [
        operation.time_ns
        for operation, firm in zip(problem.operations, _between(view), strict=True)
        if firm
    ]
    if not between:
        return instance.base_time_ns
    ends_ns = storage.pagein(1).time_ns + storage.pageout(1).time_ns
    return max(instance.base_time_ns, ends_ns + sum(between))


def _between(view: GraphView) -> list[bool]:
    """For each kernel, does all that it computes depend on parameters that are on storage, and do
    new values that must be there depend on all of it?"""
    stored = dict(zip(view.values, view.problem.tensors, strict=True))
    depends = {value for value, tensor in stored.items() if tensor.start is Place.STORAGE}
    wanted = {value for value, tensor in stored.items() if tensor.end is Place.STORAGE}
    firm = [True] * len(view.computes)
    for k, compute in enumerate(view.computes):
        inner = zip(compute.body.block.args, compute.operands, strict=True)
        depends.update(argument for argument, operand in inner if operand in depends)
        for op in compute.body.block.ops:
            if isinstance(op, EVERYWHERE) and any(operand in depends for operand in op.operands):
                depends.update(op.results)
            elif not isinstance(op, (YieldOp, *MOVES)):
                firm[k] = False
        made = zip(compute.results, _yielded(compute), strict=True)
        depends.update(result for result, value in made if value in depends)
    for k, compute in reversed(list(enumerate(view.computes))):
        made = zip(compute.results, _yielded(compute), strict=True)
        wanted.update(value for result, value in made if result in wanted)
        for op in reversed(list(compute.body.block.ops)):
            if isinstance(op, EVERYWHERE) and any(result in wanted for result in op.results):
                wanted.update(op.operands)
            elif not isinstance(op, (YieldOp, *MOVES)):
                firm[k] = False
        inner = zip(compute.body.block.args, compute.operands, strict=True)
        wanted.update(operand for argument, operand in inner if argument in wanted)
    return firm


def _yielded(compute: ComputeOp) -> tuple[SSAValue, ...]:
    last = compute.body.block.last_op
    assert last is not None
    return tuple(last.operands)


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
    if unsplit.ends_bytes > ram_bytes:
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
    """The parameters whose parts may make the kernel smaller that needs most, with the bytes of its
    largest tensor that would be in parts.

    First those that it reads or updates, largest first; then those that are read or updated beside
    its results and operands, such as what a gradient that is stored is for.
    """
    kernel = candidate.kernel
    if kernel is None:
        return []
    own = _arguments(candidate.graph, kernel)
    beside: dict[int, int] = {}
    for value in (*kernel.results, *kernel.operands):
        others = [use.operation for use in value.uses]
        if isinstance(value.owner, ComputeOp):
            others.append(value.owner)
        for other in others:
            if isinstance(other, ComputeOp) and other is not kernel:
                for argument in _arguments(candidate.graph, other).keys() - own.keys():
                    size = tensor_bytes(value.type)
                    beside[argument] = max(beside.get(argument, 0), size)
    return [
        item
        for found in (own, beside)
        for item in sorted(found.items(), key=lambda item: (-item[1], item[0]))
    ]


def _arguments(graph: GraphOp, kernel: ComputeOp) -> dict[int, int]:
    """The parameters that a kernel reads or updates, with the bytes of the largest of their parts
    among its operands."""
    found: dict[int, int] = {}
    for operand in kernel.operands:
        if isinstance(operand, BlockArgument) and graph.updates(operand.index) is not None:
            part = graph.part(operand.index)
            argument = operand.index if part is None else part.argument
            found[argument] = max(found.get(argument, 0), tensor_bytes(operand.type))
    return found
