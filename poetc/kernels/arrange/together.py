"""Loads of floats at addresses that follow each other are brought together, for cores on which one
instruction does several.

Where there are not registers enough for all that is loaded then, operations are first put in the
order of the sums that need them, so that what one sum needs is loaded when it is its turn; else
fewer are brought together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from xdsl.dialects import affine, func
from xdsl.dialects.builtin import DenseArrayBase, Float32Type, i64
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from poetc.ir import mathlib
from poetc.kernels.access import linear_address
from poetc.kernels.arrange.machine import Machine
from poetc.kernels.arrange.pieces import pieces
from poetc.kernels.together import TOGETHER, block_in

_KEPT_FREE = 4
"""Registers for what is under way between loads and sums."""

Groups = Sequence[Sequence[affine.LoadOp]]


def load_together(function: func.FuncOp, machine: Machine) -> None:
    """Brings loads of a kernel together, as many as one instruction does and there are registers
    for. Each sum keeps its order."""
    for loop in [op for op in function.walk() if isinstance(op, affine.ForOp)]:
        block = block_in(loop)
        if any(op.regions or mathlib.symbol_of(op) for op in block.ops):
            continue
        free = machine.registers - _KEPT_FREE - sum(map(_is_float, loop.body.block.args))
        for groups, order in _ways(block, machine.load_floats):
            if _most_loaded(order) <= free:
                for op in order:
                    op.detach()
                block.add_ops(order)
                loop.attributes[TOGETHER] = DenseArrayBase.from_list(i64, _counts(order, groups))
                break


def _ways(block: Block, most: int) -> Iterator[tuple[Groups, list[Operation]]]:
    """Loads to bring together, and the operations of a block in the order that this makes: those
    ways first that save most."""
    places = _places(block)
    stores = any(isinstance(op, affine.StoreOp) for op in block.ops)
    for count in range(most, 1, -1):
        of: dict[Operation, Sequence[affine.LoadOp]] = {}
        groups: list[Sequence[affine.LoadOp]] = []
        for loads in places:
            for first, length in pieces(sorted(loads), count):
                if length > 1:
                    groups.append([loads[first + i] for i in range(length)])
                    of.update(dict.fromkeys(groups[-1], groups[-1]))
        if not groups:
            return
        yield groups, _in_order(block.ops, of)
        if not stores:
            yield groups, _by_sums(block, of)


def _places(block: Block) -> list[Mapping[int, affine.LoadOp]]:
    """Loads of floats from arguments, between which nothing is stored, that are at fixed distances
    from each other, by where they are."""
    found: dict[object, dict[int, affine.LoadOp]] = {}
    part = 0
    for op in block.ops:
        if not op.results:
            part += 1
        elif isinstance(op, affine.LoadOp) and _is_float(op.result):
            address = linear_address(op) if isinstance(op.memref, BlockArgument) else None
            if address is not None:
                key = (part, op.memref, frozenset(address.terms.items()))
                found.setdefault(key, {}).setdefault(address.const, op)
    return list(found.values())


def _in_order(
    ops: Iterable[Operation], of: Mapping[Operation, Sequence[affine.LoadOp]]
) -> list[Operation]:
    """Operations as they are, with each group where the first of its loads was."""
    order: dict[Operation, None] = {}
    for op in ops:
        order.update(dict.fromkeys(of.get(op, (op,))))
    return list(order)


def _by_sums(block: Block, of: Mapping[Operation, Sequence[affine.LoadOp]]) -> list[Operation]:
    """The operations in the order of the values that are handed on, each when it is needed."""
    order: dict[Operation, None] = {}

    def need(value: SSAValue) -> None:
        op = value.owner
        if isinstance(op, Operation) and op.parent is block and op not in order:
            for operand in op.operands:
                need(operand)
            order.update(dict.fromkeys(of.get(op, (op,))))

    last = block.last_op
    assert last is not None
    for value in last.operands:
        need(value)
    rest = [op for op in block.ops if op not in order]
    return _in_order([*(op for op in rest if op is not last), *order, last], {})


def _most_loaded(order: Sequence[Operation]) -> int:
    """How many loaded floats wait for their use at a time."""
    position = {op: at for at, op in enumerate(order)}
    ends: dict[int, int] = {}
    most = waiting = 0
    for at, op in enumerate(order):
        if isinstance(op, affine.LoadOp) and _is_float(op.result):
            uses = [position.get(use.operation, len(order)) for use in op.result.uses]
            end = max(uses, default=at)
            ends[end] = ends.get(end, 0) + 1
            waiting += 1
        most = max(most, waiting)
        waiting -= ends.get(at, 0)
    return most


def _counts(order: Sequence[Operation], groups: Groups) -> list[int]:
    """How many loads one instruction does, for all loads in order."""
    sizes = {group[0]: len(group) for group in groups}
    inner = {load for group in groups for load in group[1:]}
    loads = [op for op in order if isinstance(op, affine.LoadOp) and op not in inner]
    return [sizes.get(load, 1) for load in loads]


def _is_float(value: SSAValue) -> bool:
    return isinstance(value.type, Float32Type)
