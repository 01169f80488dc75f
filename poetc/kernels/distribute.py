"""Takes a kernel apart into nests that run one after the other, each with all loops to itself.

A nest has parallel loops, each in the one before, and in the innermost one a sum and what follows
from it, or stores alone. What one nest computes in a loop and a later one needs is in a small
buffer between them, with a dimension for each loop that was around; scalars that need no loop are
computed again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import affine, func, memref
from xdsl.dialects.builtin import AffineMapAttr, IndexType, MemRefType
from xdsl.ir import Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.ir.affine import AffineMap

from poetc.errors import InputError
from poetc.ir.index import Index, Var
from poetc.ir.locations import source_location
from poetc.ir.loops import loops_around
from poetc.kernels.access import STORES, Access, access_indices
from poetc.kernels.analysis import IN_ALL, SEQUENTIAL, buffers, extent
from poetc.kernels.functions import kernel_function, with_arguments


@dataclass(frozen=True)
class Nest:
    """A kernel with one nest. `buffers` says which buffer of the whole kernel each of its arguments
    is; those with numbers behind its own are what nests give each other."""

    function: func.FuncOp
    buffers: tuple[int, ...]


@dataclass(frozen=True)
class Distributed:
    """The nests of a kernel in their order, and the types of the buffers between them."""

    nests: tuple[Nest, ...]
    between: tuple[MemRefType, ...]


def distribute(function: func.FuncOp) -> Distributed:
    """The nests of a kernel, which is left as it is.

    Every element of a result is computed by the same operations in the same order. Raises
    InputError for what is no kernel, and where nests would give each other positions.
    """
    return _Distribution(function).run()


def splits(loop: affine.ForOp) -> bool:
    """Whether what is in a loop may run one after the other, each for all iterations of it: they
    are parallel, give each other no positions, and what one writes to a workspace for the next has
    a place for each iteration."""
    if loop.inits or SEQUENTIAL in loop.attributes or IN_ALL in loop.attributes:
        return False
    if any(is_whole(op) and IndexType() in op.result_types for op in loop.body.block.ops):
        return False
    variable: SSAValue = loop.body.block.args[0]
    known: dict[SSAValue, Index] = {variable: Index.of(Var(0, extent(loop)))}
    places: dict[SSAValue, set[int]] = {}
    accesses = [op for op in loop.walk() if isinstance(op, Access)]
    written = {op.memref for op in accesses if isinstance(op, STORES)}
    for op in accesses:
        if op.memref in written and _is_workspace(op.memref):
            indices = access_indices(op, known)
            own = {dim for dim, index in enumerate(indices) if index == known[variable]}
            places[op.memref] = places.get(op.memref, own) & own
    return all(places.values())


def _is_workspace(buffer: SSAValue) -> bool:
    if not isinstance(buffer, BlockArgument):
        return False
    function = buffer.block.parent_op()
    return isinstance(function, func.FuncOp) and buffer in buffers(function, "workspace")


def is_whole(op: Operation) -> bool:
    """Whether an operation stays in one nest with all that is in it: it has loops or stores."""
    return any(
        isinstance(inner, affine.ForOp | affine.StoreOp | memref.StoreOp) for inner in op.walk()
    )


@dataclass(eq=False)
class _Part:
    """The operations of one nest: a loop or guard, and stores behind it."""

    anchors: list[Operation] = field(default_factory=list)
    # Scalars that are computed in it, and values that earlier nests have left.
    scalars: set[Operation] = field(default_factory=set)
    given: dict[SSAValue, None] = field(default_factory=dict)


class _Distribution:
    def __init__(self, function: func.FuncOp) -> None:
        self.function = function
        self.parts: list[_Part] = []
        self.part_of: dict[Operation, _Part] = {}
        # Values that a later nest needs, by their number among what is between nests.
        self.kept: dict[SSAValue, int] = {}
        # The buffers of these in the nest that is made.
        self.between: Sequence[SSAValue] = ()

    def run(self) -> Distributed:
        self._collect(self.function.body.block)
        for part in self.parts:
            self._needs(part)
        for part in self.parts:
            for value in part.given:
                self.kept.setdefault(value, len(self.kept))
        between = tuple(map(self._type_between, self.kept))
        return Distributed(tuple(self._nest(part, between) for part in self.parts), between)

    def _collect(self, block: Block) -> None:
        part: _Part | None = None
        for op in block.ops:
            if not is_whole(op):
                continue
            if isinstance(op, affine.ForOp) and splits(op):
                self._collect(op.body.block)
                part = None
                continue
            if part is None or not isinstance(op, STORES):
                part = _Part()
                self.parts.append(part)
            part.anchors.append(op)
            self.part_of[op] = part

    def _needs(self, part: _Part) -> None:
        pending = [v for anchor in part.anchors for op in anchor.walk() for v in op.operands]
        inside = {op for anchor in part.anchors for op in anchor.walk()}
        while pending:
            value = pending.pop()
            if not isinstance(value, OpResult) or value.op in inside or value.op in part.scalars:
                continue
            if value.op in self.part_of:
                part.given[value] = None
                continue
            part.scalars.add(value.op)
            pending += [v for op in value.op.walk() for v in op.operands]

    def _type_between(self, value: SSAValue) -> MemRefType:
        assert isinstance(value, OpResult)
        if isinstance(value.type, IndexType):
            raise InputError(
                f"kernel @{self.function.sym_name.data}: a position is used outside of the nest "
                "that finds it",
                source_location(value.op),
            )
        return MemRefType(value.type, [extent(loop) for loop in loops_around(value.op)])

    def _nest(self, part: _Part, between: Sequence[MemRefType]) -> Nest:
        own = self.function.body.block.args
        block = Block(arg_types=[*(a.type for a in own), *between])
        values: dict[SSAValue, SSAValue] = dict(zip(own, block.args, strict=False))
        for argument, new in zip(own, block.args, strict=False):
            new.name_hint = argument.name_hint
        self.between = block.args[len(own) :]
        for number, new in enumerate(self.between):
            new.name_hint = f"kept{number}"
        path = {loop for anchor in part.anchors for loop in loops_around(anchor)}
        self._copy(self.function.body.block, block, part, path, values)
        workspaces = {argument.index for argument in buffers(self.function, "workspace")}
        numbers = range(len(block.args))
        scratch = {n for n in numbers if n >= len(own) or n in workspaces}
        return nest_of(self.function.sym_name.data, block, numbers, scratch)

    def _copy(
        self,
        source: Block,
        into: Block,
        part: _Part,
        path: set[affine.ForOp],
        values: dict[SSAValue, SSAValue],
    ) -> None:
        for op in source.ops:
            if op in path:
                assert isinstance(op, affine.ForOp)
                inner = Block(arg_types=[IndexType()])
                inner.args[0].name_hint = op.body.block.args[0].name_hint
                values[op.body.block.args[0]] = inner.args[0]
                loop = affine.ForOp.from_region([], [], [], [], 0, extent(op), Region(inner))
                into.add_op(loop)
                self._copy(op.body.block, inner, part, path, values)
            elif op in part.anchors or op in part.scalars or op is source.last_op:
                into.add_op(op.clone(values))
                if op in part.anchors:
                    self._keep(op, into, values)
            elif op in self.part_of:
                for value in op.results:
                    if value in part.given:
                        into.add_op(load := affine.LoadOp(*self._place(value, values)))
                        values[value] = load.result

    def _keep(self, op: Operation, into: Block, values: dict[SSAValue, SSAValue]) -> None:
        for value in op.results:
            if value in self.kept:
                into.add_op(affine.StoreOp(values[value], *self._place(value, values)))

    def _place(
        self, value: SSAValue, values: dict[SSAValue, SSAValue]
    ) -> tuple[SSAValue, list[SSAValue], AffineMapAttr]:
        """The buffer and the indices of a value between nests."""
        assert isinstance(value, OpResult)
        loops = loops_around(value.op)
        variables = [values[loop.body.block.args[0]] for loop in loops]
        return (
            self.between[self.kept[value]],
            variables,
            AffineMapAttr(AffineMap.identity(len(loops))),
        )


def nest_of(name: str, block: Block, numbers: Sequence[int], scratch: Collection[int]) -> Nest:
    """The nest called `name` that a block is, whose arguments are the buffers of these `numbers`.

    Those that nothing uses are left out; the others are, in this order, those that it only reads,
    those that it writes, and those in `scratch`: workspaces, and what nests give each other.
    """
    kinds: list[list[int]] = [[], [], []]
    for argument, number in zip(block.args, numbers, strict=True):
        users = [use.operation for use in argument.uses]
        if not users:
            continue
        kind = 2 if number in scratch else int(any(isinstance(op, STORES) for op in users))
        kinds[kind].append(argument.index)
    order = [place for kind in kinds for place in kind]
    body = with_arguments(block, [block.args[place] for place in order])
    function = kernel_function(name, body, *map(len, kinds))
    return Nest(function, tuple(numbers[place] for place in order))
