"""Computes that read a parameter together: its update, and what else reads it last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from xdsl.ir import SSAValue

from poetc.ir.graph import tensor_bytes
from poetc.ir.poet import ComputeOp, GraphOp, YieldOp

_BESIDE = 2
"""All other tensors of both kernels together take at most this part of the RAM: with more, too
little is left for slices of the parameter."""

_EACH = 4
"""Or each of these tensors takes at most this part of the RAM, ..."""

_LARGE_BYTES = 1 << 16
"""... where the RAM has at least this many bytes: then slices of these tensors are long enough,
too."""


def pays(ram_bytes: int, parameter_bytes: int, beside_bytes: Sequence[int]) -> bool:
    """Whether two kernels had better read a parameter together: it does not fit beside the other
    tensors that they read and write, which leave room for slices of it."""
    all_bytes = sum(beside_bytes)
    if parameter_bytes + all_bytes <= ram_bytes:
        return False
    is_large = ram_bytes >= _LARGE_BYTES and max(beside_bytes, default=0) * _EACH <= ram_bytes
    return is_large or all_bytes * _BESIDE <= ram_bytes


Chosen = Callable[[int, Sequence[int]], bool]
"""Whether two kernels are to be joined, from the bytes of the parameter that both read, and of each
other tensor that they read and write."""


def join_pairs(graph: GraphOp, ram_bytes: int) -> None:
    """Joins the computes of a graph whose kernels are not lowered where that `pays`."""
    for reader, update in pairs(graph, partial(pays, ram_bytes)):
        join(reader, update)


def pairs(graph: GraphOp, chosen: Chosen) -> Iterator[tuple[ComputeOp, ComputeOp]]:
    """For each parameter the last compute that reads it and does not update it, and the one that
    does, where the latter can run in the place of the former. They may be joined meanwhile."""
    for number, parameter in enumerate(graph.arguments):
        result = graph.updates(number)
        if result is None:
            continue
        new = graph.return_op.operands[result]
        update = new.owner
        readers = [op for op in graph.computes if parameter in op.operands and op is not update]
        if not isinstance(update, ComputeOp) or not readers:
            continue
        reader = readers[-1]
        touched = {*reader.operands, *reader.results, *update.operands, *update.results}
        beside = [tensor_bytes(value.type) for value in touched - {parameter, new}]
        if chosen(tensor_bytes(parameter.type), beside) and _may_join(reader, update):
            yield reader, update


def _may_join(reader: ComputeOp, update: ComputeOp) -> bool:
    """Whether the update can run where the reader does: what it needs is there, and nothing behind
    the reader reads what it writes over."""
    block = reader.parent_block()
    assert block is not None
    ops = list(block.ops)
    at, then = ops.index(reader), ops.index(update)
    known = {result for op in ops[:at] for result in op.results} | set(block.args)
    between = {operand for op in ops[at + 1 : then] for operand in op.operands}
    return (
        at < then
        and known.issuperset(update.operands)
        and not _replaced(reader) & set(update.operands)
        and not _replaced(update) & between
    )


def _replaced(compute: ComputeOp) -> set[SSAValue]:
    """The operands that a compute writes over."""
    return {compute.operands[operand] for _, operand in compute.inplace_pairs}


def join(reader: ComputeOp, update: ComputeOp) -> None:
    """Puts one compute in the place of `reader` that does what both do."""
    operands = list(dict.fromkeys((*reader.operands, *update.operands)))
    types = [*reader.result_types, *update.result_types]
    joined = ComputeOp(f"{reader.label.data}_{update.label.data}", operands, types)
    arguments: dict[SSAValue, SSAValue] = dict(zip(operands, joined.block.args, strict=True))
    results: list[SSAValue] = []
    inplace: list[tuple[int, int]] = []
    for compute in (reader, update):
        own = zip(compute.block.args, compute.operands, strict=True)
        values: dict[SSAValue, SSAValue] = {a: arguments[value] for a, value in own}
        joined.block.add_ops(
            op.clone(values) for op in compute.block.ops if not isinstance(op, YieldOp)
        )
        inplace += [
            (len(results) + result, operands.index(compute.operands[operand]))
            for result, operand in compute.inplace_pairs
        ]
        results += [values[value] for value in compute.yield_op.operands]
    joined.block.add_op(YieldOp(*results))
    joined.inplace_pairs = inplace
    block = reader.parent_block()
    assert block is not None
    block.insert_op_before(joined, reader)
    for old, new in zip((*reader.results, *update.results), joined.results, strict=True):
        new.name_hint = old.name_hint
        old.replace_all_uses_with(new)
    for compute in (reader, update):
        compute.detach()
        compute.erase()
