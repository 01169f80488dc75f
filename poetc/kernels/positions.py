"""Rows that are looked up in a table: a nest of its own finds their positions first.

The positions are in a list when the nest that reads the rows begins. So the table may be on
storage, and a slice of it has just the rows that a tile reads.

    for each token: rows[token] = clamp(indices[token])
    for each token: for each column: out[token, column] = table[rows[token], column]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from xdsl.dialects import affine, arith, func, memref
from xdsl.dialects.builtin import AffineMapAttr, IndexType, MemRefType, i32
from xdsl.ir import Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.ir.affine import AffineMap

from poetc.ir.index import ZERO, Index
from poetc.ir.loops import loops_around, parents
from poetc.kernels.access import LOADS, STORES, access_indices, index_value
from poetc.kernels.analysis import IN_ALL, buffers, extent, workspace_numbers
from poetc.kernels.dependences import drop_dead
from poetc.kernels.distribute import Distributed, Nest, nest_of


def with_positions(distributed: Distributed, streamed: frozenset[int], count: int) -> Distributed:
    """The same nests, with lists of the positions at which the `streamed` buffers are read.

    A load from a streamed buffer may take its position from memory. A nest that runs before finds
    the position then, and fills a list between nests with it. Elements that a sum looks up are put
    into a list themselves. A position that is computed under a guard, or from a buffer that the
    nest writes, has no list. `count` is the number of buffers of the kernel.
    """
    between = list(distributed.between)

    def split(nest: Nest) -> list[Nest]:
        function = nest.function.clone()
        numbers = list(nest.buffers)
        values = _picked(function, numbers, streamed) or _positions(function, numbers, streamed)
        if not values:
            return [nest]
        scratch = {numbers[a.index] for a in buffers(function, "workspace")}
        found: list[Nest] = []
        for value in values:
            loops, ops = _computed(value)
            type_ = i32 if isinstance(value.type, IndexType) else value.type
            list_ = MemRefType(type_, [extent(loop) for loop in loops])
            numbers.append(count + len(between))
            between.append(list_)
            scratch.add(numbers[-1])
            found += split(_finds(function, value, loops, ops, list_, numbers, scratch))
            _take(function, value, loops, list_)
        drop_dead(function.body.block)
        rest = nest_of(function.sym_name.data, function.body.block, numbers, scratch)
        return [*found, *split(rest)]

    nests = [part for nest in distributed.nests for part in split(nest)]
    return Distributed(tuple(nests), tuple(between))


def position_load(value: SSAValue) -> affine.LoadOp | None:
    """The load of a position from a list that an earlier nest has filled; None for other values."""
    cast = value.owner
    load = cast.input.owner if isinstance(cast, arith.IndexCastOp) else None
    if not isinstance(load, affine.LoadOp) or not isinstance(load.memref, BlockArgument):
        return None
    function = load.memref.block.parent_op()
    if not isinstance(function, func.FuncOp):
        return None
    if load.memref.index not in workspace_numbers(function):
        return None
    written = any(isinstance(use.operation, STORES) for use in load.memref.uses)
    inside = any(IN_ALL in loop.attributes for loop in loops_around(load))
    return None if written or inside else load


def place_in_list(load: affine.LoadOp, known: Mapping[SSAValue, Index]) -> Index:
    """The row-major index of such a load in its list, in terms of the `known` variables."""
    assert isinstance(load.memref.type, MemRefType)
    place = ZERO
    for index, size in zip(access_indices(load, known), load.memref.type.get_shape(), strict=True):
        assert index is not None
        place = place * size + index
    return place


def looked_up(nest: Nest) -> frozenset[int]:
    """The buffers of a kernel that a nest reads at positions from memory."""
    loads = _lookups(nest.function)
    return frozenset(nest.buffers[buffer.index] for _, buffer in loads)


def _lookups(function: func.FuncOp) -> Iterator[tuple[memref.LoadOp, BlockArgument]]:
    """Loads at positions from memory, and what they read."""
    for op in function.walk():
        if not isinstance(op, memref.LoadOp) or not isinstance(op.memref, BlockArgument):
            continue
        if not all(map(_is_affine, op.indices)):
            yield op, op.memref


def _looked_up(
    function: func.FuncOp, numbers: Sequence[int], streamed: frozenset[int]
) -> Iterator[memref.LoadOp]:
    """Those of them that read `streamed` buffers."""
    return (op for op, buffer in _lookups(function) if numbers[buffer.index] in streamed)


def _picked(
    function: func.FuncOp, numbers: Sequence[int], streamed: frozenset[int]
) -> list[SSAValue]:
    """Elements that sums look up. They get a list of elements, not of positions: a tile of a sum
    reads many rows, and one element of each."""
    return [
        op.res
        for op in _looked_up(function, numbers, streamed)
        if any(loop.inits for loop in _computed(op.res)[0]) and can_be_found(op.res)
    ]


def _positions(
    function: func.FuncOp, numbers: Sequence[int], streamed: frozenset[int]
) -> list[SSAValue]:
    """The positions of reads from the `streamed` buffers that an earlier nest can find."""
    found: dict[SSAValue, None] = {}
    for op in _looked_up(function, numbers, streamed):
        for value in op.indices:
            listed = _is_affine(value) or position_load(value) is not None
            if not listed and can_be_found(value):
                found[value] = None
    return list(found)


def _is_affine(value: SSAValue) -> bool:
    """Whether a position is made of loop variables and constants alone."""
    if isinstance(value.owner, affine.ApplyOp):
        return all(map(_is_affine, value.owner.operands))
    return isinstance(value, BlockArgument) or index_value(value, {}) is not None


def can_be_found(value: SSAValue) -> bool:
    """Whether an earlier nest can compute a value: it is under no guard, and reads no buffer that
    the nest writes."""
    ops, arguments = _slice(value)
    for op in ops:
        if op.regions or any(not isinstance(parent, affine.ForOp) for parent in parents(op)):
            return False
        if isinstance(op, LOADS) and any(isinstance(u.operation, STORES) for u in op.memref.uses):
            return False
    return all(map(_is_known_before, arguments))


def _is_known_before(argument: BlockArgument) -> bool:
    """Whether an argument is a buffer, or the variable of a loop from 0 to a constant."""
    around = argument.block.parent_op()
    if isinstance(around, affine.ForOp):
        return argument.index == 0 and IN_ALL not in around.attributes
    return isinstance(around, func.FuncOp)


def _slice(value: SSAValue) -> tuple[list[Operation], list[BlockArgument]]:
    """The operations that compute a value, in no order, and the block arguments that they read."""
    ops: dict[Operation, None] = {}
    arguments: dict[BlockArgument, None] = {}
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, BlockArgument):
            arguments[value] = None
        elif isinstance(value, OpResult) and value.op not in ops:
            ops[value.op] = None
            pending += [v for op in value.op.walk() for v in op.operands]
    return list(ops), list(arguments)


def _computed(value: SSAValue) -> tuple[list[affine.ForOp], list[Operation]]:
    """The loops that a value depends on, outermost first, and the operations that compute it, in
    order."""
    assert isinstance(value, OpResult)
    ops, arguments = _slice(value)
    used = {argument.block.parent_op() for argument in arguments}
    around = loops_around(value.op)
    function = (around[0] if around else value.op).parent_op()
    assert function is not None
    kept = set(ops)
    return [loop for loop in around if loop in used], [op for op in function.walk() if op in kept]


def _finds(
    function: func.FuncOp,
    value: SSAValue,
    loops: Sequence[affine.ForOp],
    ops: Sequence[Operation],
    list_: MemRefType,
    numbers: Sequence[int],
    scratch: set[int],
) -> Nest:
    """The nest that fills the list of a value, the last of the buffers in `numbers`."""
    own = function.body.block.args
    block = Block(arg_types=[*(argument.type for argument in own), list_])
    values: dict[SSAValue, SSAValue] = dict(zip(own, block.args, strict=False))
    for argument, new in zip(own, block.args, strict=False):
        new.name_hint = argument.name_hint
    block.args[-1].name_hint = "list"
    blocks = [block]
    for loop in loops:
        inner = Block(arg_types=[IndexType()])
        values[loop.body.block.args[0]] = inner.args[0]
        inner.args[0].name_hint = loop.body.block.args[0].name_hint
        blocks.append(inner)
    for op in ops:
        around = loops_around(op)
        blocks[sum(loop in around for loop in loops)].add_op(op.clone(values))
    result = values[value]
    if isinstance(result.type, IndexType):
        blocks[-1].add_op(cast := arith.IndexCastOp(result, i32))
        result = cast.result
    variables = [inner.args[0] for inner in blocks[1:]]
    place = AffineMapAttr(AffineMap.identity(len(loops)))
    blocks[-1].add_op(affine.StoreOp(result, block.args[-1], variables, place))
    for loop, inner, outer in reversed(list(zip(loops, blocks[1:], blocks[:-1], strict=True))):
        inner.add_op(affine.YieldOp.get())
        outer.add_op(affine.ForOp.from_region([], [], [], [], 0, extent(loop), Region(inner)))
    block.add_op(func.ReturnOp())
    return nest_of(function.sym_name.data, block, numbers, scratch)


def _take(
    function: func.FuncOp, value: SSAValue, loops: Sequence[affine.ForOp], list_: MemRefType
) -> None:
    """Puts a load from the value's list, a new last argument, in place of the value: of a position
    in the loads that use it, of an element everywhere."""
    assert isinstance(value, OpResult)
    block = function.body.block
    argument = block.insert_arg(list_, len(block.args))
    argument.name_hint = "positions" if isinstance(value.type, IndexType) else "picked"
    variables = [loop.body.block.args[0] for loop in loops]
    place = AffineMapAttr(AffineMap.identity(len(loops)))
    load = affine.LoadOp(argument, variables, place)
    here = value.op.parent_block()
    assert here is not None
    here.insert_op_after(load, value.op)
    if not isinstance(value.type, IndexType):
        value.replace_all_uses_with(load.result)
        return
    cast = arith.IndexCastOp(load.result, IndexType())
    here.insert_op_after(cast, load)
    for use in list(value.uses):
        if isinstance(use.operation, memref.LoadOp):
            use.operation.operands[use.index] = cast.result
