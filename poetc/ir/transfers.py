"""Transfers in two halves: a start where a page-out or page-in is, a wait where it must be over.

`split_transfers` and `join_transfers` rewrite a scheduled graph from one form to the other. Neither
moves a step of the schedule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise

from xdsl.ir import Operation

from poetc.ir.graph import ALIGN_BYTES, Storage, reorder_block
from poetc.ir.poet import (
    ComputeOp,
    FreeOp,
    GraphOp,
    PageInOp,
    PageInStartOp,
    PageOutOp,
    PageOutStartOp,
    ReturnOp,
    WaitOp,
)
from poetc.ir.timeline import Event, Timeline, simulate_events

FEW = 4
"""The most transfers that are under way at once, unless a deadline asks for more."""


def split_transfers(
    graph: GraphOp, storage: Storage, align: int = ALIGN_BYTES, deadline_ns: int | None = None
) -> Timeline:
    """Splits the page-outs and page-ins of a scheduled graph that can run beside something.

    Each wait is just before the first operation that needs the transfer to be over: one that uses
    the tensor paged in, that ends the stay of the tensor paged out, or the end of the graph. As
    there is one bus, transfers that began before are over then, too, and are waited for first. What
    would be waited for at once stays whole.

    A transfer under way takes some RAM for itself. Where more than `FEW` would be, the next one
    starts after the wait for the first of them, if the step meets the deadline so: computing may
    have to wait longer. Returns the timeline.
    """
    join_transfers(graph)
    ops = list(graph.block.ops)
    most = FEW
    while True:
        events = _events(ops, most)
        timeline = simulate_events(graph, events, storage, align)
        if deadline_ns is None or timeline.makespan_ns <= deadline_ns or most >= len(ops):
            break
        most *= 2
    _rewrite(graph, events)
    return timeline


def most_under_way(graph: GraphOp) -> int:
    """How many transfers are under way at once at most. A whole one is not."""
    most = now = 0
    for op in graph.block.ops:
        now += isinstance(op, PageOutStartOp | PageInStartOp)
        now -= isinstance(op, WaitOp)
        most = max(most, now)
    return most


def transfer_slots(graph: GraphOp) -> dict[PageOutStartOp | PageInStartOp, int]:
    """A number for each transfer that is split, such that those under way at once have different
    ones: the least possible, from 0 on."""
    starts = [op for op in graph.block.ops if isinstance(op, PageOutStartOp | PageInStartOp)]
    most = most_under_way(graph)
    return {start: number % most for number, start in enumerate(starts)}


def _events(ops: Sequence[Operation], most: int) -> list[Event]:
    """The events when each transfer is waited for as late as possible, with `most` under way."""
    over_by = _ends(ops)
    events: list[Event] = []
    under_way: deque[PageOutOp | PageInOp] = deque()
    held: deque[PageOutOp | PageInOp] = deque()  # until there is room

    def start() -> None:
        under_way.append(held.popleft())
        events.append(Event("start", under_way[-1]))

    for i, op in enumerate(ops):
        while under_way and over_by[under_way[0]] <= i:
            events.append(Event("wait", under_way.popleft()))
            if held:
                start()
        if not isinstance(op, PageOutOp | PageInOp):
            events.append(Event("run", op))
            continue
        held.append(op)
        if len(under_way) < most:
            start()
    return events


def _ends(ops: Sequence[Operation]) -> dict[PageOutOp | PageInOp, int]:
    """For each transfer the index of the operation before which it must be over."""
    index = {op: i for i, op in enumerate(ops)}
    ends: dict[PageOutOp | PageInOp, int] = {}
    latest = len(ops) - 1
    for i, op in reversed(list(enumerate(ops))):
        if isinstance(op, PageOutOp | PageInOp):
            ends[op] = latest = min([latest, *(index[other] for other in _needing(op))])
            if latest == i + 1:
                # It is waited for at once. What began before is waited for before it begins.
                latest = i
    return ends


def _rewrite(graph: GraphOp, events: Sequence[Event]) -> None:
    """Makes `events` those of the graph, whose transfers are whole. They stay so where nothing is
    between start and wait."""
    whole = {a.op for a, b in pairwise(events) if a.kind == "start" and b == Event("wait", a.op)}
    waits: dict[Operation, WaitOp] = {}
    new: list[Operation] = []
    for kind, op in events:
        if not isinstance(op, PageOutOp | PageInOp) or (op in whole and kind == "start"):
            new.append(op)
        elif op not in whole and kind == "start":
            waits[op] = _split(op)
            new.append(waits[op].start)
        elif op not in whole:
            new.append(waits[op])
    reorder_block(graph, new)


def split_at_once(graph: GraphOp) -> None:
    """Splits every transfer into a start and the wait behind it."""
    new: list[Operation] = []
    for op in graph.block.ops:
        if isinstance(op, PageOutOp | PageInOp):
            wait = _split(op)
            new += [wait.start, wait]
        else:
            new.append(op)
    reorder_block(graph, new)


def join_transfers(graph: GraphOp) -> None:
    """Makes every transfer that is split into start and wait whole again, where it starts."""
    new: list[Operation] = []
    for op in graph.block.ops:
        match op:
            case PageOutStartOp() | PageInStartOp():
                new.append(_joined(op))
            case WaitOp():
                pass
            case _:
                new.append(op)
    reorder_block(graph, new)


def _needing(op: PageOutOp | PageInOp) -> Iterator[Operation]:
    """The operations before which a transfer must be over."""
    yield from (use.operation for use in op.results[0].uses)
    if isinstance(op, PageOutOp):
        for use in op.tensor.uses:
            other = use.operation
            match other:
                case FreeOp() | ReturnOp():
                    yield other
                case ComputeOp() if use.index in {o for _, o in other.inplace_pairs}:
                    yield other
                case _:
                    pass


def _split(op: PageOutOp | PageInOp) -> WaitOp:
    """The wait of a new pair of start and wait that is used in place of `op`."""
    offset = None if op.offset is None else op.offset.value.data
    if isinstance(op, PageOutOp):
        start, result = PageOutStartOp(op.tensor, offset), op.page
    else:
        start, result = PageInStartOp(op.page, offset), op.tensor
    start.attributes, start.location = dict(op.attributes), op.location
    wait = WaitOp(start.transfer)
    start.transfer.name_hint = result.name_hint and f"{result.name_hint}_transfer"
    wait.result.name_hint = result.name_hint
    result.replace_all_uses_with(wait.result)
    return wait


def _joined(start: PageOutStartOp | PageInStartOp) -> PageOutOp | PageInOp:
    """A transfer that is used in place of `start` and its wait."""
    offset = None if start.offset is None else start.offset.value.data
    if isinstance(start, PageOutStartOp):
        op = PageOutOp(start.tensor, offset)
    else:
        op = PageInOp(start.page, offset)
    op.attributes, op.location = dict(start.attributes), start.location
    op.results[0].name_hint = start.wait.result.name_hint
    start.wait.result.replace_all_uses_with(op.results[0])
    return op
