"""Candidates of parameters to split, with their numbers of shards, for a step that is to fit into
little RAM.

While a kernel runs, its operands and results are in RAM. The kernel that needs most of it bounds
what any schedule can do, and where a parameter is among its operands, splitting that parameter
(`stablehlo-split`) lowers the bound. This is done again and again, each time for the kernel that
needs most, with few shards, until the bound is within the RAM; whether a schedule exists then is
for the scheduler to say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import BlockArgument

from poetc.ir.graph import Storage, tensor_bytes
from poetc.ir.poet import ComputeOp, GraphOp, RunOp
from poetc.planning.problem import ScheduleOptions
from poetc.schedule.model.problem import Place, Problem
from poetc.splits import Split

MOST_SHARDS = 64
"""The most shards of one parameter: each has kernels of its own."""


@dataclass(frozen=True)
class Candidate:
    """A module with one graph, to be scheduled as `asked`, whose parameters are split.

    `needed_bytes` is what it needs at least, of all of the RAM, and `kernel` the one that needs
    that (None: what is in RAM at the start or the end). `ends_bytes` is the same for what no split
    can change: the start and the end. `least_nj` and `least_time_ns` are what these and all finer
    shards take at least, with parameters on storage; `least_with_open_ns` is the time if only some
    arguments may be in finer shards.
    """

    splits: tuple[Split, ...]
    module: ModuleOp
    graph: GraphOp
    asked: ScheduleOptions
    needed_bytes: int
    ends_bytes: int
    kernel: RunOp | None
    least_time_ns: int
    least_nj: int
    least_with_open_ns: Callable[[Collection[int]], int]


def ends_bytes(problem: Problem) -> int:
    """Bytes in RAM at the start or at the end, whichever are more."""
    tensors = problem.tensors
    start = sum(t.bytes for t in tensors if t.start is Place.RAM)
    return max(start, sum(t.bytes for t in tensors if t.end is Place.RAM))


Build = Callable[[tuple[Split, ...]], Candidate | None]
"""Makes the candidate of some splits; None when the time is over."""


@dataclass(frozen=True)
class InTime:
    """The splits left after bounds on time and RAM: only `candidates`, and maybe `others`, keep to
    the limits. Splits that miss the deadline take `least_time_ns` at least."""

    candidates: tuple[Candidate, ...]
    others: bool
    least_time_ns: int


def in_time(
    build: Build,
    unsplit: Candidate,
    groups: Mapping[int, Collection[int]],
    storage: Storage,
    ram_bytes: int,
    deadline_ns: int,
) -> InTime:
    """The splits of `unsplit` that may keep to both limits, the fastest first, by a search over the
    splits of one parameter after the other, in the order in which they are read.

    `groups` are the parameters that are split alike, by the argument that stands for them. What the
    transfers take, and then a bound for whatever becomes of the parameters that are still open,
    leave few. If `build` ends, others may be left, too.
    """
    graph = unsplit.graph
    first = {
        a: k for k, c in reversed(list(enumerate(graph.computes))) for a in _arguments(graph, c)
    }
    order = sorted(groups, key=lambda a: (first[a], -tensor_bytes(graph.arguments[a].type), a))
    choices: list[list[tuple[int, Split | None]]] = []
    for stands in order:
        costs = [
            (sum(_transfer_ns(graph, a, split, storage) for a in groups[stands]), split)
            for split in (None, *_all_splits(graph, stands))
        ]
        choices.append(sorted(costs, key=lambda cost: cost[0]))
    least_rest_ns = [0]
    for costs in reversed(choices):
        least_rest_ns.append(least_rest_ns[-1] + costs[0][0])
    least_rest_ns.reverse()
    found: list[Candidate] = []
    least_ns = NEVER_NS
    others = _within(choices, deadline_ns, MOST_SPLITS) >= MOST_SPLITS
    if others:
        return InTime((), others, unsplit.least_time_ns)

    def decide(at: int, splits: tuple[Split, ...], given: Candidate, transfers_ns: int) -> None:
        """Goes through the splits of the parameters from `at` on, the others being as they are in
        `given`."""
        nonlocal least_ns, others
        if at == len(order):
            if given.needed_bytes <= ram_bytes:
                found.append(given)
            return
        for cost_ns, split in choices[at]:
            total_ns = transfers_ns + cost_ns + least_rest_ns[at + 1]
            if total_ns > deadline_ns:
                least_ns = min(least_ns, total_ns)
                break
            chosen, candidate = splits, given
            if split is not None:
                chosen = (*splits, split)
                made = build(chosen)
                if made is None:
                    others = True
                    return
                candidate = made
            still_open = {a for stands in order[at + 1 :] for a in groups[stands]}
            time_ns = candidate.least_with_open_ns(still_open)
            if time_ns > deadline_ns:
                least_ns = min(least_ns, time_ns)
            else:
                decide(at + 1, chosen, candidate, transfers_ns + cost_ns)
            if others:
                return

    least_ns = min(least_ns, unsplit.least_time_ns)
    if unsplit.least_time_ns <= deadline_ns:
        least_ns = NEVER_NS
        decide(0, (), unsplit, 0)
    found.sort(key=lambda c: (c.least_with_open_ns(()), c.needed_bytes))
    return InTime(tuple(found), others, least_ns)


NEVER_NS = 1 << 62
"""A time that nothing takes."""

MOST_SPLITS = 2_000
"""Beyond so many splits whose transfers are in time, no proof is tried."""


def _within(choices: Sequence[Sequence[tuple[int, Split | None]]], limit_ns: int, most: int) -> int:
    """In how many ways the times chosen, one of each, sorted, keep to a limit: `most` at most."""
    if not choices:
        return 1
    rest_ns = sum(costs[0][0] for costs in choices[1:])
    count = 0
    for cost_ns, _ in choices[0]:
        if count >= most or cost_ns + rest_ns > limit_ns:
            break
        count += _within(choices[1:], limit_ns - cost_ns, most - count)
    return count


def _all_splits(graph: GraphOp, argument: int) -> Iterator[Split]:
    type_ = graph.arguments[argument].type
    assert isinstance(type_, TensorType)
    for axis, size in enumerate(type_.get_shape()):
        yield from (Split(argument, shards, axis) for shards in range(2, size + 1))


def _transfer_ns(graph: GraphOp, argument: int, split: Split | None, storage: Storage) -> int:
    """Nanoseconds to page all of a parameter in, and its new value out if it has one, once."""
    type_ = graph.arguments[argument].type
    assert isinstance(type_, TensorType)
    whole = tensor_bytes(type_)
    sizes = [whole]
    if split is not None:
        assert split.axis is not None
        length = type_.get_shape()[split.axis]
        bounds = [length * k // split.shards for k in range(split.shards + 1)]
        sizes = [whole * (end - start) // length for start, end in pairwise(bounds)]
    out_ns = (
        sum(storage.pageout(size).time_ns for size in sizes) if _changes(graph, argument) else 0
    )
    return out_ns + sum(storage.pagein(size).time_ns for size in sizes)


def _changes(graph: GraphOp, argument: int) -> bool:
    """Whether the step gives a parameter a new value."""
    result = graph.updates(argument)
    if result is None:
        return False
    return graph.return_op.arguments[result] is not graph.arguments[argument]


def candidates(
    build: Build,
    unsplit: Candidate,
    most_shards: Mapping[int, tuple[int, int]],
    ram_bytes: int,
) -> Iterator[Candidate]:
    """Ever finer splits of `unsplit` that may fit into `ram_bytes`, or if none may, the one that
    needs least; nothing if it is clear that none may.

    `most_shards` gives for each parameter that can be in shards the argument that stands for those
    split alike, and in how many these can be had. Iterating further means that the candidate
    before did not fit after all.
    """
    if unsplit.ends_bytes > ram_bytes:
        return
    best = unsplit
    exhausted: set[int] = set()
    told = False
    while True:
        # A step that may fit but does not must become smaller; by how much, nobody knows.
        goal_bytes = min(ram_bytes, best.needed_bytes - 1)
        finer = _finer(build, best, most_shards, goal_bytes, exhausted)
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
    most_shards: Mapping[int, tuple[int, int]],
    goal_bytes: int,
    exhausted: set[int],
) -> Candidate | None:
    """A candidate in which a parameter of the kernel that needs most RAM is in more shards, so that
    less is needed; None if there is none. What did not help enters `exhausted`."""
    for argument, shard_bytes in _parameters(given):
        if argument not in most_shards:
            continue  # In shards already.
        stands, most = most_shards[argument]
        now = next((s.shards for s in given.splits if s.parameter == stands), 1)
        if stands in exhausted:
            continue
        wanted = shard_bytes - (given.needed_bytes - goal_bytes)
        least = -(-shard_bytes * now // wanted) if wanted > 0 else 2 * now
        others = tuple(s for s in given.splits if s.parameter != stands)
        # Shards are not of equal size, and other tensors of the kernel may change with them.
        limit = min(most, MOST_SHARDS)
        for shards in dict.fromkeys((min(least, limit), min(2 * least, limit))):
            if shards <= now:
                continue
            found = build((*others, Split(stands, shards)))
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
    """The parameters whose shards may make the kernel smaller that needs most RAM, with the bytes
    of its largest tensor that would be in shards.

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


def _arguments(graph: GraphOp, kernel: RunOp) -> dict[int, int]:
    """The parameters that a kernel reads or updates, with the bytes of the largest of their shards
    among its operands."""
    found: dict[int, int] = {}
    for operand in kernel.operands:
        if isinstance(operand, BlockArgument) and graph.role(operand.index) == "param":
            shard = graph.shard(operand.index)
            argument = operand.index if shard is None else shard.argument
            found[argument] = max(found.get(argument, 0), tensor_bytes(operand.type))
    return found
