"""The time that a step takes at least, whatever shards its parameters are in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from xdsl.ir import BlockArgument, Operation, SSAValue

from poetc.costmodel.cost import least_cost
from poetc.costmodel.device import Device
from poetc.ir import mathlib
from poetc.ir import stablehlo as hlo
from poetc.ir.graph import GraphView, Storage
from poetc.ir.poet import RunOp, YieldOp
from poetc.ir.stablehlo.base import Along
from poetc.kernels.analysis import math_flops
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Operation as Kernel
from poetc.schedule.model.problem import Place, Problem

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
    hlo.DotFromOp,
    hlo.ReduceOp,
)
"""Operations whose results depend on their operands everywhere, and on all of them. Of others, such
as a slice, shards may depend on less."""

PIECES = (hlo.SliceOp, hlo.ConcatenateOp)
"""Operations that compute nothing, either, and whose results are some or all of their operands."""

Pages = frozenset[int]
"""Pages of parameters or of their new values, by the index of their tensor. ~i is some page, no
matter which, of argument i, which may be in shards."""


def least_time_ns(
    view: GraphView, storage: Storage, device: Device, still_open: Collection[int] | None = None
) -> int:
    """Nanoseconds that no schedule takes less than, with the parameters of an unscheduled graph on
    storage, in whatever order, where those that are arguments `still_open` (None: all) may be in
    shards, or in more.

    Shards make transfers no less, and need the float operations of `least_flops`; what is beyond
    these may become less in shards, such as the sums of blocks. Where transfers go on beside
    computing, what depends on parameters is computed after these are paged in, and what new values
    depend on before these are paged out: for those that may be in shards, one byte of each.
    """
    problem = view.problem
    tensors = problem.tensors
    graph, index = view.graph, {value: v for v, value in enumerate(view.values)}
    may_split: set[int] = set()
    for argument in graph.arguments:
        at = graph.updates(argument.index)
        if graph.role(argument.index) == "param" and (
            still_open is None or argument.index in still_open
        ):
            may_split.add(index[argument])
            if at is not None:
                may_split.add(index[graph.return_op.arguments[at]])
    flops = least_flops(view)
    in_parts = _may_be_in_parts(view, [view.values[v] for v in may_split])
    instance = Instance(_in_any_shards(view, flops, device, in_parts))
    if not problem.dma:
        return instance.base_time_ns
    byte_in_ns, byte_out_ns = storage.pagein(1).time_ns, storage.pageout(1).time_ns
    page_in = [
        min(byte_in_ns, t.pagein_time_ns) if v in may_split else t.pagein_time_ns
        for v, t in enumerate(tensors)
    ]
    page_out = [
        min(byte_out_ns, t.pageout_time_ns) if v in may_split else t.pageout_time_ns
        for v, t in enumerate(tensors)
    ]
    needs, feeds = _needs(view), _feeds(view)
    read, updated = _parameters_of(view), _updates_of(view)

    def job(time_ns: int, pages: Pages, out: Pages) -> _Job:
        begin_ns, rest_ns = _some_ns(pages, page_in, read), _some_ns(out, page_out, updated)
        return _Job(begin_ns, time_ns, rest_ns, pages)

    def jobs(apart: bool) -> Iterator[_Job]:
        for compute, operation in zip(view.computes, instance.operations, strict=True):
            if compute in in_parts:
                yield from in_pieces(compute, operation.time_ns, apart)
            else:
                # One kernel in any case: it waits for all of its operands.
                pages = frozenset[int]().union(*(needs[value].all for value in compute.operands))
                out = frozenset[int]().union(*(feeds[value] for value in compute.results))
                yield job(operation.time_ns, pages, out)

    def in_pieces(compute: RunOp, time_ns: int, apart: bool) -> Iterator[_Job]:
        """A kernel may become several: its work, or with `apart` that of each operation, begins and
        ends as the operation that is least bound does."""
        ops = [op for op in compute.body.block.ops if flops.get(op)]
        bound = [(needs[op.results[0]].each, feeds[op.results[0]]) for op in ops]
        if apart:
            for op, (pages, out) in zip(ops, bound, strict=True):
                yield job(least_cost(flops[op], device).time_ns, pages, out)
        elif ops:
            pages, out = zip(*bound, strict=True)
            yield job(time_ns, frozenset.intersection(*pages), frozenset.intersection(*out))

    return max(
        instance.base_time_ns,
        *(_least_ns(list(jobs(apart)), view, page_in, may_split) for apart in (False, True)),
    )


def least_energy_nj(view: GraphView, device: Device) -> int:
    """Nanojoules that no schedule takes less than, with the parameters of an unscheduled graph on
    storage, whatever shards they are in."""
    flops = least_flops(view)
    return Instance(_in_any_shards(view, flops, device, view.computes)).least_energy_nj


def _in_any_shards(
    view: GraphView,
    flops: Mapping[Operation, int],
    device: Device,
    in_parts: Collection[RunOp],
) -> Problem:
    """The problem with what its kernels take at least if these may be in parts."""

    def least(compute: RunOp, whole: Kernel) -> Kernel:
        if compute not in in_parts:
            return whole
        cost = least_cost(sum(flops.get(op, 0) for op in compute.body.block.ops), device)
        return replace(whole, time_ns=cost.time_ns, energy_nj=cost.energy_nj)

    operations = map(least, view.computes, view.problem.operations)
    return replace(view.problem, operations=tuple(operations))


def _may_be_in_parts(view: GraphView, split: Collection[SSAValue]) -> frozenset[RunOp]:
    """The kernels that may change if these values are in shards: a dimension that is cut is cut in
    all that runs along it, be it read, made or summed over."""
    outside: dict[SSAValue, SSAValue] = {}
    links: defaultdict[tuple[SSAValue, int], set[tuple[SSAValue, int]]] = defaultdict(set)

    def dims(value: SSAValue) -> list[tuple[SSAValue, int]]:
        value = outside.get(value, value)
        return [(value, d) for d in range(len(hlo.shape_of(value)))]

    def link(one: tuple[SSAValue, int], other: tuple[SSAValue, int]) -> None:
        links[one].add(other)
        links[other].add(one)

    runs: defaultdict[RunOp, set[tuple[SSAValue, int]]] = defaultdict(set)
    for compute in view.computes:
        outside.update(zip(compute.body.block.args, compute.operands, strict=True))
        outside.update(zip(_yielded(compute), compute.results, strict=True))
        for op in compute.body.block.ops:
            if not isinstance(op, hlo.StablehloOp):
                continue
            operands = [dims(operand) for operand in op.operands]
            for result in op.results:
                for node in dims(result):
                    runs[compute].add(node)
                    walk = op.along(node[1])
                    for operand, step in zip(operands, walk or operands, strict=True):
                        if walk is None:
                            for other in operand:
                                link(node, other)
                        elif isinstance(step, Along):
                            link(node, operand[step.dim])
            if isinstance(op, hlo.ContractionOp):
                left, right = dims(op.lhs), dims(op.rhs)
                for d, e in op.summed:
                    link(left[d], right[e])
            runs[compute].update(*operands)
    reached = {node for value in split for node in dims(value)}
    pending = list(reached)
    while pending:
        fresh = links[pending.pop()] - reached
        reached |= fresh
        pending += fresh
    return frozenset(compute for compute in view.computes if runs[compute] & reached)


def _least_ns(
    jobs: Sequence[_Job], view: GraphView, page_in: Sequence[int], may_split: Collection[int]
) -> int:
    """When all jobs are over at the earliest, with page-ins one after the other."""
    transfers = [
        _Job(0, page_in[v], _one_machine([replace(j, begin_ns=0) for j in jobs if v in j.pages]))
        for v, t in enumerate(view.problem.tensors)
        if t.start is Place.STORAGE and v not in may_split
    ]
    return max(_one_machine(jobs), _one_machine(transfers))


def _some_ns(pages: Pages, times_ns: Sequence[int], of: Mapping[int, int]) -> int:
    """Nanoseconds to transfer these pages; where it is not known which part of a parameter is among
    them, of the part that takes least."""
    known = {of[v] for v in pages if v >= 0}
    unknown = [
        min(times_ns[v] for v, argument in of.items() if argument == ~some)
        for some in pages
        if some < 0 and ~some not in known
    ]
    return sum(times_ns[v] for v in pages if v >= 0) + sum(unknown)


@dataclass(frozen=True)
class _Job:
    """Work of one machine: its earliest begin, its time, the time of what follows elsewhere, and
    the pages that it waits for."""

    begin_ns: int
    time_ns: int
    rest_ns: int
    pages: Pages = frozenset()


def _one_machine(jobs: Sequence[_Job]) -> int:
    """When all jobs may be over at the earliest that one machine does, in any pieces."""
    return max(
        (
            begin + sum(j.time_ns for j in jobs if j.begin_ns >= begin and j.rest_ns >= rest) + rest
            for begin in {j.begin_ns for j in jobs}
            for rest in {j.rest_ns for j in jobs}
        ),
        default=0,
    )


@dataclass(frozen=True)
class _Reads:
    """The pages that each element of a value depends on, and for dimensions of it those that some
    element of each line along it does."""

    each: Pages = frozenset()
    lines: Mapping[int, Pages] = field(default_factory=dict)

    @property
    def all(self) -> Pages:
        """The pages that the value as a whole depends on."""
        return self.each.union(*self.lines.values())


def _parameters_of(view: GraphView) -> dict[int, int]:
    """The argument of each parameter or shard on storage, by the index of its tensor."""
    found: dict[int, int] = {}
    for v, (value, tensor) in enumerate(zip(view.values, view.problem.tensors, strict=True)):
        if tensor.start is Place.STORAGE and isinstance(value, BlockArgument):
            shard = view.graph.shard(value.index)
            found[v] = value.index if shard is None else shard.argument
    return found


def _updates_of(view: GraphView) -> dict[int, int]:
    """The argument of each new value that must be on storage, by the index of its tensor."""
    graph, index = view.graph, {value: v for v, value in enumerate(view.values)}
    found: dict[int, int] = {}
    for v, argument in _parameters_of(view).items():
        value = view.values[v]
        assert isinstance(value, BlockArgument)
        at = graph.updates(value.index)
        if at is not None:
            new = index[graph.return_op.arguments[at]]
            if view.problem.tensors[new].end is Place.STORAGE:
                found[new] = argument
    return found


def _needs(view: GraphView) -> Mapping[SSAValue, _Reads]:
    """The pages that values of a graph and in its kernels depend on."""
    reads: defaultdict[SSAValue, _Reads] = defaultdict(_Reads)
    for v, argument in _parameters_of(view).items():
        reads[view.values[v]] = _Reads(frozenset({v, ~argument}))
    for compute in view.computes:
        for argument, operand in zip(compute.body.block.args, compute.operands, strict=True):
            reads[argument] = reads[operand]
        for op in compute.body.block.ops:
            if not isinstance(op, YieldOp):
                made = _read_by(op, [reads[operand] for operand in op.operands])
                reads.update((result, made) for result in op.results)
        for result, value in zip(compute.results, _yielded(compute), strict=True):
            reads[result] = reads[value]
    return reads


def _read_by(op: Operation, given: Sequence[_Reads]) -> _Reads:
    """The pages that results of `op` depend on, from those of its operands; none where unknown."""
    if isinstance(op, hlo.ConcatenateOp):
        lines = {
            op.dim: frozenset[int]().union(*(r.each | r.lines.get(op.dim, r.each) for r in given))
        }
        return _Reads(frozenset.intersection(*(r.each for r in given)), lines)
    if not isinstance(op, hlo.StablehloOp) or not isinstance(op, (*EVERYWHERE, hlo.SliceOp)):
        return _Reads()
    each = frozenset[int]().union(*(r.each for r in given))
    lines: dict[int, Pages] = {}
    walked: set[tuple[int, int]] = set()
    for dim in range(len(hlo.shape_of(op.results[0]))):
        for operand, step in enumerate(op.along(dim) or ()):
            if step is not None:
                walked.add((operand, step.dim))
                pages = given[operand].lines.get(step.dim, frozenset())
                lines[dim] = lines.get(dim, frozenset()) | pages
    if not isinstance(op, (*MOVES, *PIECES)):
        # A result is computed from whole lines along other dimensions.
        for operand, r in enumerate(given):
            each = each.union(*(p for dim, p in r.lines.items() if (operand, dim) not in walked))
    return _Reads(each, lines)


def _feeds(view: GraphView) -> Mapping[SSAValue, Pages]:
    """For values of a graph and in its kernels the new values that must be on storage and depend on
    each of their elements."""
    feeds: defaultdict[SSAValue, Pages] = defaultdict(frozenset)
    slices: defaultdict[SSAValue, list[_Slice]] = defaultdict(list)
    for v, argument in _updates_of(view).items():
        feeds[view.values[v]] = frozenset({v, ~argument})
    for compute in reversed(view.computes):
        for result, value in zip(compute.results, _yielded(compute), strict=True):
            feeds[result] |= _covering(result, slices[result])
            feeds[value] |= feeds[result]
        for op in reversed(list(compute.body.block.ops)):
            for result in op.results:
                feeds[result] |= _covering(result, slices[result])
            if isinstance(op, (*EVERYWHERE, hlo.ConcatenateOp)):
                for operand in op.operands:
                    feeds[operand] |= feeds[op.results[0]]
            elif isinstance(op, hlo.SliceOp) and set(op.strides) == {1}:
                slices[op.operand].append(_Slice(op.starts, op.limits, feeds[op.result]))
        for argument, operand in zip(compute.body.block.args, compute.operands, strict=True):
            feeds[operand] |= feeds[argument]
            slices[operand] += slices[argument]
    return feeds


@dataclass(frozen=True)
class _Slice:
    """A part of a value, from `starts` up to `limits`, and the new values that depend on it."""

    starts: Sequence[int]
    limits: Sequence[int]
    feeds: Pages


def _covering(value: SSAValue, slices: Sequence[_Slice]) -> Pages:
    """The arguments of which some new value, a shard or not, depends on each element: those for
    which slices along one dimension leave no gap."""
    found: set[int] = set()
    if not slices:
        return frozenset()
    shape = hlo.shape_of(value)
    for some in {some for each in slices for some in each.feeds if some < 0}:
        for dim, size in enumerate(shape):
            end = 0
            for each in sorted(slices, key=lambda each: each.starts[dim]):
                whole = all(
                    (each.starts[d], each.limits[d]) == (0, n)
                    for d, n in enumerate(shape)
                    if d != dim
                )
                if whole and some in each.feeds and each.starts[dim] <= end:
                    end = max(end, each.limits[dim])
            if end == size:
                found.add(some)
    return frozenset(found)


def least_flops(view: GraphView) -> Mapping[Operation, int]:
    """Float operations that it takes at least, in whatever kernels and shards, to compute what each
    operation in the kernels of a graph does; those that take none are left out.

    An operation that several kernels repeat counts once: in shards its result may be stored. One
    that a part of a constant may make needless, as a multiplication by a mask, counts nothing.
    """
    found: dict[Operation, int] = {}
    # Equal operations on operands with equal numbers are repetitions, and have one number.
    numbers: dict[SSAValue, int] = {}
    known: dict[Hashable, int] = {}
    uneven: set[SSAValue] = set()

    def number(value: SSAValue, key: Hashable) -> bool:
        """Whether nothing had this key before."""
        numbers[value] = known.setdefault(key, len(known))
        return numbers[value] == len(known) - 1

    for compute in view.computes:
        for argument, operand in zip(compute.body.block.args, compute.operands, strict=True):
            if operand not in numbers:
                number(operand, operand)
            numbers[argument] = numbers[operand]
            if operand in uneven:
                uneven.add(argument)
        for op in compute.body.block.ops:
            sums = isinstance(op, hlo.ContractionOp)
            if _is_uneven(op) or (not sums and not uneven.isdisjoint(op.operands)):
                uneven.update(op.results)
            operands = tuple(numbers[value] for value in op.operands)
            attributes = frozenset((op.properties | op.attributes).items())
            for result in op.results:
                key = (type(op), operands, attributes, result.type, result.index)
                is_first = number(result, result if op.regions else key)
                flops = 0 if result in uneven else _least_flops(op)
                if is_first and flops:
                    found[op] = flops
        for result, value in zip(compute.results, _yielded(compute), strict=True):
            numbers[result] = numbers[value]
            if value in uneven:
                uneven.add(result)
    return found


def _is_uneven(op: Operation) -> bool:
    """Whether elements of a result are known and differ: in a part of it they may not."""
    if isinstance(op, hlo.ConstantOp):
        return not op.value.is_splat()
    return isinstance(op, hlo.IotaOp)


def _least_flops(op: Operation) -> int:
    """The least float operations of one operation, if none of its operands is known."""
    if (
        not isinstance(op, hlo.StablehloOp)
        or len(op.results) != 1
        or not hlo.is_float(op.results[0])
    ):
        return 0
    elements = hlo.element_count(op.results[0])
    match op:
        # A sum starts from +0.0, to which the first term is added, or goes on with another.
        case hlo.ContractionOp():
            return 2 * op.products
        case hlo.ReduceOp():
            return hlo.element_count(op.operand)
        case hlo.ElementwiseOp() if (symbol := op.function()) is not None:
            return elements * math_flops(mathlib.short_name(symbol))
        case hlo.AddOp() | hlo.SubtractOp() | hlo.MultiplyOp() | hlo.DivideOp():
            return elements
        case _:
            return 0


def _yielded(compute: RunOp) -> tuple[SSAValue, ...]:
    last = compute.body.block.last_op
    assert last is not None
    return tuple(last.operands)
