"""poet-fuse: merge one-op computes into kernels, so that as few tensors as can be are stored.

The pass sees the graph as one flat DAG of StableHLO ops and answers two questions.

1. *Which values are stored?* Everything else is evaluated where it is read ("inlined"):

   - constants, iota and data movement (broadcast, reshape, transpose, reverse, slice, pad,
     concatenate) are never stored, unless they are results of the graph;
   - element-wise arithmetic is inlined into its consumer, except where that would evaluate it more
     than `MAX_READS` times per element (the operand of a convolution is read hundreds of times),
     and is cloned into several consumers where that is cheap (`MAX_CLONE_FLOPS`) and keeps no
     tensor alive longer than it lives anyway;
   - a contraction, window or scatter op (an *anchor*) or a `reduce` is inlined into the one
     element-wise consumer that reads each of its elements once: bias, activation, the parameter
     update. A kernel has at most one anchor.

2. *Which stored values share a kernel?* Softmax, layer norm and batch norm: reductions over
   the same axes of one space, with the element-wise results between and after, become one kernel
   whose outer loops run over the rows. Element-wise updates of several parameters from the same
   gradient (Adam) become one kernel with several results. Merging never makes a cycle.

Reads of a parameter stay ahead of its update in place; an anchor that reads the parameter itself is
never merged with the update of that parameter. Where a kernel updates a parameter that another of
its values reads, or reads what it has just updated, the kernel is lowered to see whether its loop
nests allow that; if they do not, the two are kept in kernels of their own. Where only a copy of the
new value can tell the readers of the old one from the update, the copy is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from poetc.errors import InputError, PoetcError
from poetc.ir.poet import ComputeOp, GraphOp, ReturnOp, YieldOp
from poetc.ir.stablehlo.base import Fuses
from poetc.kernels.analysis import may_alias
from poetc.kernels.known import KnownKernels, known_kernels
from poetc.passes.poet_fuse.facts import ALONE, MOVES, SUMS, fuses, is_elementwise
from poetc.passes.poet_fuse.flat import Flat
from poetc.passes.poet_fuse.grouping import Group, Grouping, UnsafeError
from poetc.passes.poet_fuse.storing import Storing


@dataclass(frozen=True)
class PoetFusePass(ModulePass):
    """Merge computes into kernels; see the module's documentation."""

    name = "poet-fuse"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for graph in [g for g in op.walk() if isinstance(g, GraphOp)]:
            fuse_graph(graph, known_kernels(ctx))


def fuse_graph(graph: GraphOp, known: KnownKernels) -> None:
    """Rewrite an unscheduled graph in place so that each compute is one kernel. Kernels that are
    lowered for it are `known` from then on."""
    for op in graph.block.ops:
        if not isinstance(op, ComputeOp | ReturnOp):
            raise InputError(f"poet-fuse runs before poet-schedule, but found {op.name}")
    flat = Flat(graph)
    try:
        computes = _legal_kernels(Storing(flat), known)
    except UnsafeError:
        # Parameters whose updates read each other, or that are read other than element by element,
        # or beside their new value: what reads one is stored, in program order, and copies stay
        # as they are.
        flat = Flat(graph, keep_copies=True)
        updated = set(flat.updates.values())
        forced = {
            op.results[0]
            for op in flat.ops
            if op in flat.live and updated.intersection(flat.operands(op))
        }
        computes = _legal_kernels(Storing(flat, forced), known)
    block = graph.body.block
    value_of: dict[SSAValue, SSAValue] = {a: a for a in block.args}
    for compute, values in computes.items():
        value_of.update(zip(values, compute.results, strict=True))
    terminator = ReturnOp(*(value_of[v] for v in flat.results))
    old = list(block.ops)
    for op in reversed(old):
        op.detach()
    block.add_ops([*computes, terminator])
    for op in reversed(old):
        op.drop_all_references()


def _legal_kernels(storing: Storing, known: KnownKernels) -> dict[ComputeOp, list[SSAValue]]:
    """Kernels whose updates in place are legal, in order, with the stored values they yield.

    Raises `UnsafeError` where no way to share kernels is legal.
    """
    apart: set[frozenset[SSAValue]] = set()
    while True:
        groups = Grouping(storing, apart).groups()
        computes = _computes(storing, groups)
        clashes: set[frozenset[SSAValue]] = set()
        for group, (compute, results) in zip(groups, computes.items(), strict=True):
            clashes |= _clashes(storing, group, compute, results, known)
        if not clashes:
            return computes
        for compute in reversed(computes):
            compute.erase()
        # No group has two values that are apart already, so this comes to an end.
        apart |= clashes


def _clashes(
    storing: Storing,
    group: Group,
    compute: ComputeOp,
    results: list[SSAValue],
    known: KnownKernels,
) -> set[frozenset[SSAValue]]:
    """Pairs of an update and another value that cannot both be in the kernel of `group`."""
    if fuses(group.members[0].owner) is Fuses.LOOP:
        # `Flat` has seen to it that one may be updated.
        return set()
    reads = {member: set(storing.closure(member)[1]) for member in group.members}
    # A parameter that only its own update reads is read right before each store.
    doubtful: list[tuple[int, int]] = []
    for result, operand in compute.inplace_pairs:
        update = results[result]
        shared = {update, storing.flat.updates[update]}
        if any(shared & found for member, found in reads.items() if member is not update):
            doubtful.append((result, operand))
    if not doubtful:
        return set()
    try:
        function = known.of(compute.block).function
    except PoetcError:
        # Not supported, whatever it is merged with: poet-lower-kernels says what and where.
        return set()
    clashes: set[frozenset[SSAValue]] = set()
    for result, operand in doubtful:
        if may_alias(function, result, operand):
            continue
        update = results[result]
        others = [member for member in group.members if member is not update]
        readers = [member for member in others if storing.flat.updates[update] in reads[member]]
        clashes |= {frozenset((update, member)) for member in readers or others}
    return clashes


def _computes(storing: Storing, groups: list[Group]) -> dict[ComputeOp, list[SSAValue]]:
    """The kernels of `groups`, not in any block yet, with the stored values they yield."""
    flat = storing.flat
    value_of: dict[SSAValue, SSAValue] = {a: a for a in flat.graph.body.block.args}
    needed = _needed_outside(flat, groups)
    computes: dict[ComputeOp, list[SSAValue]] = {}
    for group in groups:
        members = set(group.members)
        results = [v for v in group.members if v in needed]
        ops: dict[Operation, None] = {}
        reads: dict[SSAValue, None] = {}
        for member in group.members:
            inner, boundary = storing.closure(member)
            ops.update(dict.fromkeys(inner))
            reads.update((v, None) for v in boundary if v not in members)
        for value in results:
            if value in flat.updates:
                reads.setdefault(flat.updates[value])
        operands = list(reads)
        pairs = [
            (i, operands.index(flat.updates[v])) for i, v in enumerate(results) if v in flat.updates
        ]
        compute = ComputeOp(
            _label([op for op in ops if op.results[0] not in flat.copies]),
            [value_of[v] for v in operands],
            [v.type for v in results],
            inplace=pairs,
        )
        body = compute.block
        local: dict[SSAValue, SSAValue] = dict(zip(operands, body.args, strict=True))
        for op in sorted(ops, key=lambda o: flat.position[o.results[0]]):
            if op.results[0] in flat.copies:
                local[op.results[0]] = local[flat.resolve(op.operands[0])]
                continue
            clone = op.clone({v: local[flat.resolve(v)] for v in op.operands})
            for old, new in zip(op.results, clone.results, strict=True):
                new.name_hint = old.name_hint
                local[old] = new
            body.add_op(clone)
        body.add_op(YieldOp(*(local[v] for v in results)))
        for value, result in zip(results, compute.results, strict=True):
            result.name_hint = value.name_hint
            value_of[value] = result
        computes[compute] = results
    return computes


def _needed_outside(flat: Flat, groups: list[Group]) -> set[SSAValue]:
    needed = set(flat.results)
    for group in groups:
        needed.update(v for v in group.reads if v not in group.members)
    return needed


_SHORT = {"dot_general": "dot", "convolution": "conv", "reduce_window": "pool"}


def _label(ops: Sequence[Operation]) -> str:
    """A name from what the kernel does: its anchors and reductions, then its arithmetic."""

    def words(chosen: Iterator[Operation]) -> list[str]:
        names = (op.name.split(".")[1] for op in chosen)
        return list(dict.fromkeys(_SHORT.get(n, n) for n in names))

    for op in ops:
        if fuses(op) is Fuses.LOOP:
            return f"loop_{_label(list(op.regions[0].block.ops)[:-1])}"
    heavy = words(op for op in ops if fuses(op) in SUMS | ALONE)
    light = words(op for op in ops if is_elementwise(op))
    moves = words(op for op in ops if fuses(op) in MOVES)
    return "_".join((heavy + light)[:4] or moves[:1] or ["copy"])
