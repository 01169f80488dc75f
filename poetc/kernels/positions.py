"""Rows that are looked up: where they are is found by a nest of its own, before the one that reads
them, so that the table may be on storage and slices of it have the rows that a tile reads.

    for each token: rows[token] = clamp(indices[token])
    for each token: for each column: out[token, column] = table[rows[token], column]
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects import affine, arith, func, memref
from xdsl.dialects.builtin import AffineMapAttr, IndexType, MemRefType, i32
from xdsl.ir import Block, BlockArgument, Operation, OpResult, Region, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr, AffineExpr, AffineMap

from poetc.kernels.access import LOADS, STORES, index_value, loops_around, parents
from poetc.kernels.analysis import IN_ALL, buffers, extent, workspace_numbers
from poetc.kernels.distribute import Distributed, Nest, nest_of


def with_positions(distributed: Distributed, streamed: frozenset[int], count: int) -> Distributed:
    """The same nests, in which each position that a load from one of the `streamed` buffers takes
    from memory is in a buffer between nests, which a nest before fills. `count`: buffers of the
    kernel. Positions that are computed under a guard, or in what is written, stay as they are."""
    nests: list[Nest] = []
    between = list(distributed.between)
    for nest in distributed.nests:
        function = nest.function.clone()
        found: list[Nest] = []
        numbers = list(nest.buffers)
        scratch = {numbers[a.index] for a in buffers(function, "workspace")}
        for value in _positions(function, numbers, streamed):
            loops, ops = _computed(value)
            type_ = MemRefType(i32, [prod(map(extent, loops))])
            number = count + len(between)
            between.append(type_)
            scratch.add(number)
            found.append(_finds(function, value, loops, ops, numbers, number, scratch))
            numbers.append(number)
            _take(function, value, loops, type_)
        if found:
            drop_dead(function)
            nest = nest_of(function.sym_name.data, function.body.block, numbers, scratch)
        nests += [*found, nest]
    return Distributed(tuple(nests), tuple(between))


def position_load(value: SSAValue) -> affine.LoadOp | None:
    """The load of a position from a list that an earlier nest has filled, if a value is one."""
    cast = value.owner
    load = cast.input.owner if isinstance(cast, arith.IndexCastOp) else None
    if not isinstance(load, affine.LoadOp) or not isinstance(load.memref, BlockArgument):
        return None
    function = load.memref.block.parent_op()
    if not isinstance(function, func.FuncOp):
        return None
    if load.memref.index not in workspace_numbers(function):
        return None
    type_ = load.memref.type
    assert isinstance(type_, MemRefType)
    written = any(isinstance(use.operation, STORES) for use in load.memref.uses)
    inside = any(IN_ALL in loop.attributes for loop in loops_around(load))
    return None if written or inside or len(type_.get_shape()) != 1 else load


def _positions(
    function: func.FuncOp, numbers: Sequence[int], streamed: frozenset[int]
) -> list[SSAValue]:
    """Positions from memory at which the `streamed` buffers are read, and that can be found
    before."""
    found: dict[SSAValue, None] = {}
    for op in function.walk():
        if not isinstance(op, memref.LoadOp) or not isinstance(op.memref, BlockArgument):
            continue
        if numbers[op.memref.index] not in streamed:
            continue
        for value in op.indices:
            listed = _is_affine(value) or position_load(value) is not None
            if not listed and _can_be_found(value):
                found[value] = None
    return list(found)


def _is_affine(value: SSAValue) -> bool:
    """Whether a position is made of loop variables and constants alone."""
    if isinstance(value.owner, affine.ApplyOp):
        return all(map(_is_affine, value.owner.operands))
    return isinstance(value, BlockArgument) or index_value(value, {}) is not None


def _can_be_found(value: SSAValue) -> bool:
    ops, arguments = _slice(value)
    for op in ops:
        if op.regions or any(not isinstance(parent, affine.ForOp) for parent in parents(op)):
            return False
        if isinstance(op, LOADS) and any(isinstance(u.operation, STORES) for u in op.memref.uses):
            return False
    return all(map(_is_known_before, arguments))


def _is_known_before(argument: BlockArgument) -> bool:
    """Whether it is a buffer, or the variable of a loop that runs from 0 to a constant."""
    around = argument.block.parent_op()
    if isinstance(around, affine.ForOp):
        return argument.index == 0 and IN_ALL not in around.attributes
    return isinstance(around, func.FuncOp)


def _slice(value: SSAValue) -> tuple[list[Operation], list[BlockArgument]]:
    """What a value is computed by, in no order, and from which arguments of blocks."""
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
    """The loops that a position depends on, the outermost first, and what computes it, in order."""
    assert isinstance(value, OpResult)
    ops, arguments = _slice(value)
    used = {argument.block.parent_op() for argument in arguments}
    around = loops_around(value.op)
    function = (around[0] if around else value.op).parent_op()
    assert function is not None
    kept = set(ops)
    return [loop for loop in around if loop in used], [op for op in function.walk() if op in kept]


def _place(
    loops: Sequence[affine.ForOp], variables: Sequence[SSAValue]
) -> tuple[AffineMapAttr, Sequence[SSAValue]]:
    """Where in its list a position is: row-major in the loops."""
    at: AffineExpr = AffineConstantExpr(0)
    for dim, loop in enumerate(loops):
        at = at * extent(loop) + AffineDimExpr(dim) if dim else AffineDimExpr(0)
    return AffineMapAttr(AffineMap(len(loops), 0, (at,))), variables


def _finds(
    function: func.FuncOp,
    value: SSAValue,
    loops: Sequence[affine.ForOp],
    ops: Sequence[Operation],
    numbers: Sequence[int],
    number: int,
    scratch: set[int],
) -> Nest:
    """The nest that fills the list of a position, the buffer of that number."""
    own = function.body.block.args
    type_ = MemRefType(i32, [prod(map(extent, loops))])
    block = Block(arg_types=[*(argument.type for argument in own), type_])
    values: dict[SSAValue, SSAValue] = dict(zip(own, block.args, strict=False))
    for argument, new in zip(own, block.args, strict=False):
        new.name_hint = argument.name_hint
    block.args[-1].name_hint = "positions"
    blocks = [block]
    for loop in loops:
        inner = Block(arg_types=[IndexType()])
        values[loop.body.block.args[0]] = inner.args[0]
        inner.args[0].name_hint = loop.body.block.args[0].name_hint
        blocks.append(inner)
    for op in ops:
        around = loops_around(op)
        blocks[sum(loop in around for loop in loops)].add_op(op.clone(values))
    cast = arith.IndexCastOp(values[value], i32)
    place, variables = _place(loops, [inner.args[0] for inner in blocks[1:]])
    blocks[-1].add_ops([cast, affine.StoreOp(cast.result, block.args[-1], variables, place)])
    for loop, inner, outer in reversed(list(zip(loops, blocks[1:], blocks[:-1], strict=True))):
        inner.add_op(affine.YieldOp.get())
        outer.add_op(affine.ForOp.from_region([], [], [], [], 0, extent(loop), Region(inner)))
    block.add_op(func.ReturnOp())
    return nest_of(function.sym_name.data, block, [*numbers, number], scratch)


def _take(
    function: func.FuncOp, value: SSAValue, loops: Sequence[affine.ForOp], type_: MemRefType
) -> None:
    """Lets loads take a position from its list, the new last argument."""
    assert isinstance(value, OpResult)
    block = function.body.block
    positions = block.insert_arg(type_, len(block.args))
    positions.name_hint = "positions"
    place, variables = _place(loops, [loop.body.block.args[0] for loop in loops])
    load = affine.LoadOp(positions, variables, place)
    cast = arith.IndexCastOp(load.result, IndexType())
    here = value.op.parent_block()
    assert here is not None
    here.insert_ops_after([load, cast], value.op)
    for use in list(value.uses):
        if isinstance(use.operation, memref.LoadOp):
            use.operation.operands[use.index] = cast.result


def drop_dead(function: func.FuncOp) -> None:
    """Erases scalars that nothing uses any more."""
    for op in reversed(list(function.walk())):
        if op.results and not op.regions and not any(result.uses for result in op.results):
            op.detach()
            op.erase()


__all__ = ["drop_dead", "position_load", "with_positions"]
