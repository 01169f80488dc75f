"""The time that a step takes at least, whatever shards its parameters are in."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from xdsl.dialects.builtin import AnyFloat, TensorType
from xdsl.ir import BlockArgument, Operation, SSAValue

from poetc.costmodel.device import Device
from poetc.ir import mathlib
from poetc.ir import stablehlo as hlo
from poetc.ir.graph import GraphView, Storage
from poetc.ir.poet import ComputeOp, YieldOp
from poetc.kernels.analysis import math_flops
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Place
from poetc.simplify.axes import along

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

    Shards make neither computing nor transfers less. Where transfers go on beside computing, what
    depends on parameters is computed after these are paged in, and what new values depend on before
    these are paged out: for those that may be in shards, one byte of each.
    """
    problem = view.problem
    instance = Instance(problem)
    if not problem.dma:
        return instance.base_time_ns
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
        for compute, operation in zip(view.computes, problem.operations, strict=True):
            values = (*compute.operands, *compute.results)
            if may_split.isdisjoint(index[value] for value in values):
                # One kernel in any case: it waits for all of its operands.
                pages = frozenset[int]().union(*(needs[value].all for value in compute.operands))
                out = frozenset[int]().union(*(feeds[value] for value in compute.results))
                yield job(operation.time_ns, pages, out)
            else:
                yield from in_pieces(compute, operation.time_ns, apart)

    def in_pieces(compute: ComputeOp, time_ns: int, apart: bool) -> Iterator[_Job]:
        """What a kernel computes may be in several: all of it, or with `apart` each operation,
        begins and ends as the one of its operations that is least bound to do so."""
        aside = (YieldOp, *MOVES, *PIECES)
        ops = [op for op in compute.body.block.ops if not isinstance(op, aside)]
        bound = [(needs[op.results[0]].each, feeds[op.results[0]]) for op in ops]
        if not apart and ops:
            pages, out = zip(*bound, strict=True)
            yield job(time_ns, frozenset.intersection(*pages), frozenset.intersection(*out))
            return
        for op, (pages, out) in zip(ops, bound, strict=True):
            part_ns = min(time_ns, int(_least_flops(op) * 1e9 / device.flops_per_s))
            time_ns -= part_ns
            yield job(part_ns, pages, out)
        yield _Job(0, time_ns, 0)

    return max(
        instance.base_time_ns,
        *(_least_ns(list(jobs(apart)), view, page_in, may_split) for apart in (False, True)),
    )


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
    """What it takes to transfer these pages, and of each parameter of which it is not known which
    part is among them the one that takes least."""
    known = {of[v] for v in pages if v >= 0}
    unknown = [
        min(times_ns[v] for v, argument in of.items() if argument == ~some)
        for some in pages
        if some < 0 and ~some not in known
    ]
    return sum(times_ns[v] for v in pages if v >= 0) + sum(unknown)


@dataclass(frozen=True)
class _Job:
    """What one machine does: when it may begin, what it takes, what follows elsewhere, and the
    pages that it waits for."""

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
    """The same for the new values that must be on storage."""
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
    """What values of a graph and in its kernels depend on."""
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
    """What results of `op` depend on, from that of its operands; nothing where it is not known."""
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
        for operand, step in enumerate(along(op, dim) or ()):
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


def _is_float(value: SSAValue) -> bool:
    return isinstance(value.type, TensorType) and isinstance(value.type.element_type, AnyFloat)


def _least_flops(op: Operation) -> int:
    """Float operations that it takes at least, in whatever kernel."""
    if not _is_float(op.results[0]):
        return 0
    if isinstance(op, hlo.DotBase):
        summed = math.prod(hlo.shape_of(op.lhs)[d] for d in op.lhs_contract)
        return 2 * summed * math.prod(hlo.shape_of(op.results[0]))
    if not isinstance(op, (hlo.ElementwiseOp, hlo.ReduceOp)):
        return 0
    if isinstance(op, hlo.ReduceOp):
        return math.prod(hlo.shape_of(op.operand))
    symbol = op.function()
    elements = math.prod(hlo.shape_of(op.results[0]))
    if symbol is not None:
        return elements * math_flops(mathlib.short_name(symbol))
    return (
        elements if isinstance(op, (hlo.AddOp, hlo.SubtractOp, hlo.MultiplyOp, hlo.DivideOp)) else 0
    )


def _yielded(compute: ComputeOp) -> tuple[SSAValue, ...]:
    last = compute.body.block.last_op
    assert last is not None
    return tuple(last.operands)
