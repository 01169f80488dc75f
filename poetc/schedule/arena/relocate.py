"""Makes the buffers of a schedule fit into an arena by moving some of them on the way.

The bytes alive at once may be within the RAM, and yet no packing be: a buffer keeps its place as
long as it lives, and what must lie beside it changes. A tensor that leaves RAM between two uses and
is paged in again gets another place. That costs transfers and no bytes. With enough such *cuts* a
packing always exists, as each operation then finds its operands wherever it likes; few are needed.

Which ones, and where everything lies, local search decides (`relocate_sweep.py`). It may show that
no cut is needed at all.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from poetc.schedule.arena.memory import Layout, lay_out, pages_moved
from poetc.schedule.arena.pack import Buffer, pack, round_up
from poetc.schedule.arena.relocate_sweep import Found, Segment, Sweeps
from poetc.schedule.model.checker import replay
from poetc.schedule.model.errors import ScheduleError
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Compute, Free, PageIn, PageOut, Place, Step

ROUNDS = 1500
"""Rounds of the local search."""

EFFORT = 200_000
"""Effort of `arena.pack` for each attempt to do without one of the cuts."""


@dataclass(frozen=True)
class Cut:
    """Tensor `tensor`, in RAM as part of `buffer`, leaves it after step `after` and is paged in
    before step `before`. Steps are those of the schedule without cuts; −1 is the start. `price` is
    what it costs, in nJ."""

    tensor: int
    after: int
    before: int
    buffer: int
    price: float


@dataclass(frozen=True)
class Relocated:
    """Steps with cuts, and a place for each buffer of `memory.lay_out` of them."""

    steps: tuple[Step, ...]
    offsets: tuple[int, ...]


def relocate(
    instance: Instance,
    steps: Sequence[Step],
    arena_bytes: int,
    align: int,
    stop: Callable[[], bool],
    rounds: int = ROUNDS,
    most_nj: float = math.inf,
) -> Relocated | None:
    """`steps` with page-outs and page-ins added so that an arena of `arena_bytes` will do.

    None where that is not found, costs more than `most_nj`, or breaks a limit of the problem. Ends
    early, with what there is, when `stop` says so.
    """
    steps = tuple(steps)
    arena_bytes -= arena_bytes % align
    layout = lay_out(instance.problem, steps)
    cuts = _possible(instance, steps, layout)
    segments = _segments(instance, layout, cuts, align)
    sweeps = Sweeps(segments, arena_bytes, stop)
    sweeps.run(rounds)
    found = sweeps.best
    if found is None:
        return None
    found = _fewer(segments, found, arena_bytes, align, stop)
    if found.price > most_nj:
        return None
    result = _applied(instance, steps, [cuts[i] for i in sorted(found.cuts)])
    try:
        replay(instance.problem, result)
    except ScheduleError:
        return None
    return Relocated(result, _offsets(segments, cuts, found))


def _possible(instance: Instance, steps: Sequence[Step], layout: Layout) -> list[Cut]:
    """All cuts: between two uses of a tensor that it lies in RAM for."""
    tensors = instance.tensors
    written = _written(instance, steps)
    cuts: list[Cut] = []
    used: dict[int, int] = {}  # tensor in RAM -> its last use
    buffer: dict[int, int] = {}
    for v, at in enumerate(layout.start):
        if at is not None:
            used[v], buffer[v] = -1, at

    def use(v: int, s: int) -> None:
        last = used[v]
        # A tensor that has just been paged in need not leave again.
        if instance.pageable[v] and not (last >= 0 and isinstance(steps[last], PageIn)):
            there = instance.stored_at_start[v] or v in written
            price = instance.in_energy[v] + (0.0 if there else instance.out_energy[v])
            cuts.append(Cut(v, last, s, buffer[v], price))
        used[v] = s

    for s, step in enumerate(steps):
        if isinstance(step, Free):
            del used[step.tensor]
            continue
        if isinstance(step, Compute):
            operation = instance.operations[step.operation]
            way = operation.way(step.variant)
            for v in dict.fromkeys(way.resident(operation.inputs)):
                use(v, s)
            for _, i in step.inplace:
                del used[i]
            made = tuple(way.resident(operation.outputs))
        else:
            used[step.tensor] = s
            made = (step.tensor,) if isinstance(step, PageIn) else ()
        for v, at in zip(made, layout.made[s], strict=True):
            used[v], buffer[v] = s, at
    for v in list(used):
        if tensors[v].end is Place.RAM:
            use(v, len(steps))
    return cuts


def _written(instance: Instance, steps: Sequence[Step]) -> dict[int, int]:
    """The tensors that steps write to storage, and at which step."""
    problem = instance.problem
    return {v: s for s, step in enumerate(steps) for v in pages_moved(problem, step)[0]}


def _split(cuts: Sequence[Cut]) -> dict[int, list[Cut]]:
    """The cuts of each buffer, in order."""
    split: dict[int, list[Cut]] = {}
    for cut in sorted(cuts, key=lambda c: c.after):
        split.setdefault(cut.buffer, []).append(cut)
    return split


def _segments(instance: Instance, layout: Layout, cuts: Sequence[Cut], align: int) -> list[Segment]:
    """All buffers with all cuts. Time is that of the steps, three units each: there is room for
    frees after a step and for page-ins before it."""
    index = {cut: i for i, cut in enumerate(cuts)}
    split = _split(cuts)
    segments: list[Segment] = []
    for at, (size, own) in enumerate(zip(layout.bytes, layout.align, strict=True)):
        first, cut = 3 * layout.first[at], None
        for following in (*split.get(at, ()), None):
            moved = None if cut is None else instance.tensors[cut.tensor]
            multiple = max(align, own if moved is None else moved.align)
            last = 3 * layout.last[at] if following is None else 3 * following.after + 1
            segments.append(
                Segment(
                    first=first,
                    last=last,
                    bytes=round_up(size if moved is None else moved.bytes, multiple),
                    align=multiple,
                    cut=None if cut is None else index[cut],
                    price=0.0 if cut is None else cut.price,
                    end=3 * layout.last[at],
                )
            )
            if following is not None:
                first = 3 * following.before - 1
            cut = following
    return segments


def _fewer(
    segments: Sequence[Segment],
    found: Found,
    arena_bytes: int,
    align: int,
    stop: Callable[[], bool],
) -> Found:
    """`found` without cuts that are not needed when everything is packed at once."""
    priced = [s for s in segments if s.cut in found.cuts]
    for needless in sorted(priced, key=lambda s: (-s.price, s.cut)):
        if stop():
            break
        cuts = found.cuts - {needless.cut}
        buffers: list[Buffer] = []
        part: list[int] = []  # of each segment
        for segment in segments:
            if segment.cut is None or segment.cut in cuts:
                buffers.append(Buffer(segment.bytes, segment.first, segment.last, segment.align))
            else:
                buffers[-1] = replace(buffers[-1], last=segment.last)
            part.append(len(buffers) - 1)
        packing = pack(buffers, align, EFFORT, stop, arena_bytes)
        if packing.arena_bytes <= arena_bytes:
            offsets = tuple(packing.offsets[at] for at in part)
            found = Found(found.price - needless.price, cuts, offsets)
    return found


def _offsets(segments: Sequence[Segment], cuts: Sequence[Cut], found: Found) -> tuple[int, ...]:
    """Places in the order in which the buffers begin when the cuts have been made."""
    parts = [
        (segment.first, i if segment.cut is None else cuts[segment.cut].tensor, found.offsets[i])
        for i, segment in enumerate(segments)
        if segment.cut is None or segment.cut in found.cuts
    ]
    return tuple(offset for _, _, offset in sorted(parts))


def _applied(instance: Instance, steps: Sequence[Step], cuts: Sequence[Cut]) -> tuple[Step, ...]:
    """The steps with `cuts`: a tensor is written to storage as soon as it is made."""
    problem = instance.problem
    stored = instance.stored_at_start
    written = _written(instance, steps)
    early = {
        c.tensor
        for c in cuts
        if not stored[c.tensor] and written.get(c.tensor, len(steps)) > c.after
    }
    frees: dict[int, list[int]] = {}
    loads: dict[int, list[int]] = {}
    for cut in sorted(cuts, key=lambda c: c.tensor):
        frees.setdefault(cut.after, []).append(cut.tensor)
        loads.setdefault(cut.before, []).append(cut.tensor)
    new: list[Step] = []
    waiting = set(early)

    def write(made: Sequence[int]) -> None:
        new.extend(PageOut(v) for v in made if v in waiting)
        waiting.difference_update(made)

    write([v for v, tensor in enumerate(problem.tensors) if tensor.start is Place.RAM])
    new += [Free(v) for v in frees.get(-1, ())]
    for s, step in enumerate(steps):
        new += [PageIn(v) for v in loads.get(s, ())]
        if isinstance(step, Compute):
            new.append(step)
            write(problem.operations[step.operation].outputs)
        elif not (isinstance(step, PageOut) and step.tensor in early):
            new.append(step)
        new += [Free(v) for v in frees.get(s, ())]
    new += [PageIn(v) for v in loads.get(len(steps), ())]
    return tuple(new)
