"""Loads of floats at addresses that follow each other are brought together, and so are stores, for
cores on which one instruction does several.

Where there are not registers enough for all that is loaded then, operations are first put in the
order of the sums that need them, so that what one sum needs is loaded when it is its turn; else
fewer are brought together. Stores are where the last of them was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from xdsl.dialects import affine, arith, func, memref
from xdsl.dialects.builtin import DenseArrayBase, Float32Type, i64
from xdsl.ir import Block, BlockArgument, Operation, SSAValue
from xdsl.rewriter import Rewriter

from poetc.ir import mathlib
from poetc.kernels.access import linear_addresses
from poetc.kernels.arrange.levels import KEPT_FREE
from poetc.kernels.arrange.machine import Machine
from poetc.kernels.pieces import pieces
from poetc.kernels.together import TOGETHER, Group, block_in

Loads = Sequence[Sequence[affine.LoadOp]]
Places = Mapping[Operation, tuple[object, int]]
"""Where accesses to floats in arguments are: the same for all that are at fixed distances from each
other, and the distance."""
Access = TypeVar("Access", affine.LoadOp, affine.StoreOp)


def bring_together(function: func.FuncOp, machine: Machine) -> None:
    """Brings loads and stores of a kernel together, as many as one instruction does and there are
    registers for. Each sum keeps its order."""
    for loop in [op for op in function.walk() if isinstance(op, affine.ForOp)]:
        block = block_in(loop)
        if any(mathlib.symbol_of(op) for op in block.ops):
            continue
        places = _places(block)
        order: list[Operation] = []
        groups: list[Group] = []
        parts = _parts(block, places)
        for part in parts:
            part = _load_once(part, places)
            is_whole = len(parts) == 1
            live = loop.body.block.args if is_whole else _live(loop, block, order)
            free = machine.registers - KEPT_FREE - sum(map(_is_float, live))
            for loads, ordered in _ways(part, places, machine.load_floats, is_whole):
                if _most_loaded(ordered) <= free:
                    groups += loads
                    part = ordered
                    break
            stores = _groups(_stores(part, places), machine.load_floats)
            groups += stores
            order += _at_the_last(part, stores)
        _put(block, order)
        if groups:
            loop.attributes[TOGETHER] = DenseArrayBase.from_list(i64, _counts(order, groups))


def _parts(block: Block, places: Places) -> list[list[Operation]]:
    """The operations of a block in parts that loops and guards divide, each of which is a part.
    What is loaded, and computed from that, is in the part that needs it first, as far as nothing is
    stored before that."""
    parts: list[list[Operation]] = [[]]
    for op in block.ops:
        if op.regions:
            parts += [[op], []]
        else:
            parts[-1].append(op)
    needed: dict[Operation, int] = {}
    last = len(parts) - 1
    for at in range(last, -1, -1):
        inside = (each for op in parts[at] for each in op.walk())
        if any(isinstance(each, affine.StoreOp | memref.StoreOp) for each in inside):
            last = at
        for op in reversed(parts[at]):
            needed[op] = at
            if (
                at % 2 == 0
                and op.results
                and (op in places or not isinstance(op, affine.LoadOp | memref.LoadOp))
            ):
                uses = (use.operation for result in op.results for use in result.uses)
                users = (block.find_ancestor_op_in_block(use) for use in uses)
                first = min((needed[user] for user in users if user is not None), default=at)
                # Every other part is what divides them.
                needed[op] = min(first - first % 2, last)
    moved = [[op for part in parts for op in part if needed[op] == at] for at in range(len(parts))]
    return [part for part in moved if part]


def _live(loop: affine.ForOp, block: Block, before: Sequence[Operation]) -> set[SSAValue]:
    """The values of a loop that are known when these first operations of its block are done, and
    needed later; but constants."""
    done = set(before)
    return {
        value
        for op in block.ops
        if op not in done
        for each in op.walk()
        for value in each.operands
        if value.owner is loop.body.block
        or (value.owner in done and not isinstance(value.owner, arith.ConstantOp))
    }


def _put(block: Block, order: Sequence[Operation]) -> None:
    for op in order:
        op.detach()
    block.add_ops(order)


def _ways(
    ops: Sequence[Operation], known: Places, most: int, is_whole: bool
) -> Iterator[tuple[Loads, list[Operation]]]:
    """Loads to bring together, and the operations, of a part of a block or of a whole one, in the
    order that this makes: those ways first that save most."""
    places = [{at: loads[0] for at, loads in of.items()} for of in _loads(ops, known)]
    are_sums = is_whole and not any(isinstance(op, affine.StoreOp) for op in ops)
    for count in range(most, 1, -1):
        groups = _groups(places, count)
        if not groups:
            return
        of: dict[Operation, Sequence[affine.LoadOp]] = {
            load: group for group in groups for load in group
        }
        yield groups, _in_order(ops, of)
        if are_sums:
            for sums in _orders(ops[-1], places):
                yield groups, _by_sums(ops, sums, of)


def _groups(places: Iterable[Mapping[int, Access]], most: int) -> list[Sequence[Access]]:
    """The groups of accesses that one instruction does, from accesses by their places."""
    return [
        [accesses[first + i] for i in range(length)]
        for accesses in places
        for first, length in pieces(sorted(accesses), most)
        if length > 1
    ]


def _load_once(ops: Sequence[Operation], places: Places) -> list[Operation]:
    """The operations with what is at one address loaded once, if nothing is stored in between."""
    for accesses in _loads(ops, places):
        for first, *others in accesses.values():
            for other in others:
                Rewriter.replace_op(other, [], [first.result])
    return [op for op in ops if op.parent is not None]


def _loads(ops: Iterable[Operation], places: Places) -> list[Mapping[int, Sequence[affine.LoadOp]]]:
    """Loads of floats from arguments, between which nothing is stored, that are at fixed distances
    from each other, by where they are."""
    found: dict[object, dict[int, list[affine.LoadOp]]] = {}
    part = 0
    for op in ops:
        if not op.results:
            part += 1
        elif isinstance(op, affine.LoadOp) and (place := places.get(op)) is not None:
            key, at = place
            found.setdefault((part, key), {}).setdefault(at, []).append(op)
    return list(found.values())


def _stores(ops: Iterable[Operation], places: Places) -> list[Mapping[int, affine.StoreOp]]:
    """Stores of floats to arguments, between which nothing is loaded from there, that are at fixed
    distances from each other, by where they are."""
    found: dict[object, dict[int, affine.StoreOp]] = {}
    read: Counter[SSAValue] = Counter()
    for op in ops:
        if isinstance(op, affine.LoadOp):
            read[op.memref] += 1
        elif isinstance(op, affine.StoreOp) and (place := places.get(op)) is not None:
            key, at = place
            found.setdefault((read[op.memref], key), {})[at] = op
    return list(found.values())


def _places(block: Block) -> Places:
    accesses = (
        op
        for op in block.ops
        if isinstance(op, affine.LoadOp | affine.StoreOp)
        and isinstance(op.memref, BlockArgument)
        and _is_float(op.result if isinstance(op, affine.LoadOp) else op.value)
    )
    return {
        op: ((op.operands[not op.results], frozenset(address.terms.items())), address.const)
        for op, address in linear_addresses(accesses).items()
        if address is not None
    }


def _in_order(
    ops: Iterable[Operation], of: Mapping[Operation, Sequence[affine.LoadOp]]
) -> list[Operation]:
    """Operations as they are, with each group where the first of its loads was."""
    order: dict[Operation, None] = {}
    for op in ops:
        order.update(dict.fromkeys(of.get(op, (op,))))
    return list(order)


def _at_the_last(
    ops: Iterable[Operation], groups: Sequence[Sequence[Operation]]
) -> list[Operation]:
    """Operations as they are, with each group where the last of it was."""
    of = {op: group for group in groups for op in group}
    backwards: dict[Operation, None] = {}
    for op in reversed([*ops]):
        backwards.update(dict.fromkeys(reversed(of.get(op, (op,)))))
    return [*backwards][::-1]


def _orders(
    last: Operation, places: Iterable[Mapping[int, affine.LoadOp]]
) -> Iterator[Sequence[SSAValue]]:
    """The values that are handed on, as they are, and such that those which need one of some loads
    are one behind the other."""
    yield last.operands
    needed = {value: set(_needed(value, last.parent)) for value in last.operands}
    for accesses in places:
        first = {
            value: next((at for at in sorted(accesses) if accesses[at] in needed[value]), 0)
            for value in last.operands
        }
        yield sorted(last.operands, key=first.__getitem__)


def _needed(
    value: SSAValue, block: Block | None, known: Container[Operation] = ()
) -> list[Operation]:
    """The operations of a block that a value is computed by, but those that are known, in order."""
    order: dict[Operation, None] = {}

    def need(value: SSAValue) -> None:
        op = value.owner
        if not isinstance(op, Operation) or op.parent is not block:
            return
        if op not in order and op not in known:
            for operand in op.operands:
                need(operand)
            order[op] = None

    need(value)
    return [*order]


def _by_sums(
    ops: Sequence[Operation],
    sums: Iterable[SSAValue],
    of: Mapping[Operation, Sequence[affine.LoadOp]],
) -> list[Operation]:
    """The operations in the order of the values that are handed on, each when it is needed."""
    order: dict[Operation, None] = {}
    for value in sums:
        for op in _needed(value, ops[-1].parent, order):
            order.update(dict.fromkeys(of.get(op, (op,))))
    rest = [op for op in ops if op not in order]
    return _in_order([*rest[:-1], *order, *rest[-1:]], {})


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


def _counts(ops: Iterable[Operation], groups: Sequence[Group]) -> list[int]:
    """How many accesses one instruction does, for all loads and stores in order."""
    sizes: dict[Operation, int] = {group[0]: len(group) for group in groups}
    inner = {access for group in groups for access in group[1:]}
    accesses = (op for op in ops if isinstance(op, affine.LoadOp | affine.StoreOp))
    counts = [sizes.get(op, 1) for op in accesses if op not in inner]
    while counts[-1] == 1:
        counts.pop()
    return counts


def _is_float(value: SSAValue) -> bool:
    return isinstance(value.type, Float32Type)
