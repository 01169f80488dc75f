"""Least RAM, time and energy of every schedule, without solving anything."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Place, Problem, predecessors
from poetc.schedule.model.rebuild import share


def ram_needed(instance: Instance) -> tuple[int, int | None]:
    """Bytes of RAM below which there is no schedule in the given order, and the operation that
    needs them (None: what is in RAM at the start or the end).

    While an operation runs for the first time its inputs, outputs and workspace are in RAM, less
    what may be shared in place (or what is resident in its variant that takes least), and so is
    every tensor that is still wanted and can be had in no other way.
    """
    tensors = instance.tensors
    size = [t.bytes for t in tensors]
    start = sum(t.bytes for t in tensors if t.start is Place.RAM)
    end = sum(t.bytes for t in tensors if t.end is Place.RAM)
    best: tuple[int, int | None] = (max(start, end), None)
    held = [_held(instance, v) for v in range(len(tensors))]
    change = np.zeros(instance.n + 2, dtype=np.int64)
    for v, stages in enumerate(held):
        if stages:
            change[stages.start] += size[v]
            change[stages.stop] -= size[v]
    beside = np.cumsum(change)
    for k, operation in enumerate(instance.operations):
        dying = {v for v in operation.inputs if k not in held[v]}
        needed = int(beside[k]) + _taken(instance, k, dying, set(operation.outputs))
        if needed > best[0]:
            best = (needed, k)
    return best


def _taken(instance: Instance, k: int, dying: set[int], made: set[int]) -> int:
    """Bytes that an operation takes in the way that needs least, beside what stays in RAM: of its
    inputs that die there and what it makes."""
    size = [t.bytes for t in instance.tensors]
    least = []
    for way in instance.ways[k].values():
        inputs, outputs = dying - way.streamed, made - way.streamed
        shared = sum(size[o] for o, _ in share(instance.problem, k, inputs, outputs))
        taken = sum(size[v] for v in inputs | outputs)
        least.append(taken + way.workspace_bytes - shared)
    return min(least)


def _held(instance: Instance, v: int) -> range:
    """The operations during whose first run `v` is surely in RAM, beside those that read it last or
    make it: what is wanted later and can be had in no other way."""
    last = instance.n if instance.tensors[v].end is Place.RAM else -1
    last = max((last, *instance.readers[v]))
    producer = instance.producer[v]
    if instance.pageable[v]:
        return range(0)
    if producer is None:
        return range(max(last, 0)) if instance.tensors[v].start is Place.RAM else range(0)
    first = max(producer + 1, instance.last_recompute[producer])
    return range(first, max(last, first))


def ram_needed_in_any_order(instance: Instance) -> tuple[int, int | None]:
    """The same for every order of the operations, and whatever the stage rules forbid.

    What is surely in RAM while an operation runs is what has been made by one that comes before it
    in every order, is read by one that comes after it in every order, and can be had in no other
    way. A parameter that is in RAM at the start and whose last new value must be there at the end
    is one buffer, which is never given up.
    """
    tensors = instance.tensors
    size = [t.bytes for t in tensors]
    earlier, later = _relatives(instance.problem)
    fixed = _fixed(instance)
    always = sum(t.bytes for v, t in enumerate(tensors) if v in fixed and t.start is Place.RAM)
    held = {
        v: _held_in_any_order(instance, v, earlier, later)
        for v in range(len(tensors))
        if v not in fixed and not instance.pageable[v]
    }
    start = sum(t.bytes for t in tensors if t.start is Place.RAM)
    end = sum(t.bytes for t in tensors if t.end is Place.RAM)
    best: tuple[int, int | None] = (max(start, end), None)
    beside = [always] * instance.n
    for v, operations in held.items():
        for k in members(operations):
            beside[k] += size[v]
    for k, operation in enumerate(instance.operations):
        mine = {*operation.inputs, *operation.outputs} - fixed
        staying = {v for v in mine if held.get(v, 0) >> k & 1}
        dying = {v for v in operation.inputs if v in mine and v not in staying}
        made = {v for v in operation.outputs if v in mine and v not in staying}
        needed = beside[k] + _taken(instance, k, dying, made)
        if needed > best[0]:
            best = (needed, k)
    return best


def time_needed(instance: Instance) -> int:
    """Nanoseconds that no schedule takes less than, in whatever order.

    Transfers beside computing begin with page-ins that an operation without predecessors waits for,
    and end with page-outs of what one without successors makes; between the two lies all computing.
    Likewise for each operation: before it all that comes before it in every order, and what that
    reads from storage; after it what comes after it, or the page-outs of what that makes.

    Computing that nothing on storage depends on may go on beside the last page-out, and computing
    that depends on nothing from there beside the first page-in. All other computing lies between
    the least page-in that an operation waits for, and the least page-out that follows one.
    """
    problem = instance.problem
    needed = instance.base_time_ns
    if not problem.dma or instance.has_variants:
        return needed
    tensors, operations = instance.tensors, instance.operations
    page_in = {v: t.pagein_time_ns for v, t in enumerate(tensors) if instance.stored_at_start[v]}
    page_out = {v: t.pageout_time_ns for v, t in enumerate(tensors) if instance.must_store[v]}
    if not any(page_in.values()) and not any(page_out.values()):
        return needed
    earlier, later = _relatives(problem)
    head = [sum(page_in.get(v, 0) for v in instance.inputs[k]) for k in range(instance.n)]
    tail = [sum(page_out.get(v, 0) for v in o.outputs) for o in operations]
    storing = [any(tail[j] for j in (k, *members(later[k]))) for k in range(instance.n)]
    waiting = [any(head[j] for j in (k, *members(earlier[k]))) for k in range(instance.n)]
    for k, operation in enumerate(operations):
        before, after = list(members(earlier[k])), list(members(later[k]))
        read = {v for j in (*before, k) for v in instance.inputs[j]}
        first = min((head[j] for j in before if not earlier[j]), default=head[k])
        start = max(
            sum(page_in.get(v, 0) for v in read), first + sum(operations[j].time_ns for j in before)
        )
        last = min((tail[j] for j in after if not later[j]), default=tail[k])
        stored = [tail[j] for j in (*after, k) if tail[j]]
        before_last = sum(operations[j].time_ns for j in after if storing[j])
        rest = max(
            sum(stored),
            sum(operations[j].time_ns for j in after) + last,
            before_last + min(stored, default=0),
        )
        needed = max(needed, start + operation.time_ns + rest)
    computing = sum(o.time_ns for o in operations)
    first = min((h for h, before in zip(head, earlier, strict=True) if not before), default=0)
    last = min((t for t, after in zip(tail, later, strict=True) if not after), default=0)
    between = sum(
        o.time_ns for o, a, b in zip(operations, waiting, storing, strict=True) if a and b
    )
    ends = sum(min((time_ns for time_ns in each if time_ns), default=0) for each in (head, tail))
    return max(needed, first + computing + last, ends + between)


def _fixed(instance: Instance) -> set[int]:
    """Tensors of the buffers that are in RAM from the start to the end in every schedule."""
    replaced = {t.replaces: v for v, t in enumerate(instance.tensors) if t.replaces is not None}
    fixed: set[int] = set()
    for v, tensor in enumerate(instance.tensors):
        chain = [v]
        while chain[-1] in replaced:
            chain.append(replaced[chain[-1]])
        ends = instance.tensors[chain[-1]].end is Place.RAM
        if tensor.start is Place.RAM and ends and not any(instance.pageable[v] for v in chain):
            fixed.update(chain)
    return fixed


def _held_in_any_order(instance: Instance, v: int, earlier: list[int], later: list[int]) -> int:
    """The operations, as a set of bits, during which `v`, which is not pageable, is surely in RAM
    although they need not be the last to read it, nor make it."""
    everything = (1 << instance.n) - 1
    tensor, producer = instance.tensors[v], instance.producer[v]
    if tensor.end is Place.RAM:
        wanted = everything
    else:
        wanted = 0
        for k in instance.readers[v]:
            wanted |= earlier[k]
    if producer is None:
        return wanted if tensor.start is Place.RAM else 0
    operation = instance.operations[producer]
    if not instance.remat or not operation.repeatable or tensor.replaces is not None:
        return wanted & later[producer]
    # Once an input of its producer is replaced it cannot be recomputed.
    gone = 0
    for i in operation.inputs:
        if (replacer := instance.replacer.get(i)) is not None:
            gone |= later[replacer] | 1 << replacer
    return wanted & later[producer] & gone


def _relatives(problem: Problem) -> tuple[list[int], list[int]]:
    """For each operation those that run before and after it in every order, as sets of bits."""
    before = predecessors(problem)
    earlier, later = [0] * len(before), [0] * len(before)
    for k, direct in enumerate(before):
        for j in direct:
            earlier[k] |= earlier[j] | 1 << j
    for k in reversed(range(len(before))):
        for j in before[k]:
            later[j] |= later[k] | 1 << k
    return earlier, later


def members(mask: int) -> Iterator[int]:
    """The numbers in a set of bits, from the lowest on."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
