"""Turns a schedule into buffers with lifetimes, and packs them into the arena and the storage.

A *live range* is one presence of a tensor in RAM: from the step that makes it or pages it in, or
the start, to the step that frees it or takes its buffer over, or the end. Live ranges that follow
each other in place are one buffer, so a parameter and its new value have one offset. Workspace is a
buffer that lives for one step. A page lives from its page-out to its last page-in.

Where tensors start on storage, there is more than the pages of the step: an image that outlives it.

    0                      record 0                  one unit
    unit                   record 1                  one unit
    2 unit                 constants                 tensors that nothing replaces on storage
    bank                   bank 0                    old values (or new ones)
    bank + bank_bytes      bank 1                    new values (or old ones)
    bank + 2 bank_bytes    pages of the step

Old and new values change banks with each step. A record says which bank has the valid ones, so that
a step that does not get to its end changes nothing. Every part begins at a multiple of the unit,
the bytes that a write which is cut off may spoil together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from poetc.page import page_bytes
from poetc.schedule.arena.check import check_packing
from poetc.schedule.arena.pack import EFFORT, Buffer, Packing, most_alive, never, pack, round_up
from poetc.schedule.model.checker import replay
from poetc.schedule.model.problem import (
    Compute,
    Free,
    PageIn,
    PageOut,
    Place,
    Problem,
    Step,
    Tensor,
)


@dataclass(frozen=True)
class MemoryPlan:
    """Offsets in bytes, of tensors in the arena and of pages in storage.

    `start[v]` is the place of tensor v at the start, None if it is not in RAM then. `made[s]` has
    the place of each tensor that step s brings into RAM (the resident outputs of a compute in
    order, or what is paged in), `workspace[s]` that of its workspace, if any. `pages[s]` has the
    place of each page that step s writes (of the streamed outputs of a compute in order, or what is
    paged out), `start_pages[v]` that of the page of tensor v that is there at the start: both as if
    bank 0 had the old values and were to get the new ones.
    `bank_bytes` is the distance of the banks, None where nothing starts on storage.
    """

    start: tuple[int | None, ...]
    made: tuple[tuple[int, ...], ...]
    workspace: tuple[int | None, ...]
    pages: tuple[tuple[int, ...], ...]
    start_pages: tuple[int | None, ...]
    bank_bytes: int | None
    arena_bytes: int
    arena_bound_bytes: int
    storage_bytes: int


@dataclass(frozen=True)
class Layout:
    """The buffers that steps need in RAM: names, bytes, first and last step, and alignment of each.

    `start[v]` is the buffer of tensor v at the start, `made[s]` are those of what step s brings
    into RAM, `workspace[s]` is that of its workspace.
    """

    names: list[str]
    bytes: list[int]
    first: list[int]
    last: list[int]
    align: list[int]
    start: tuple[int | None, ...]
    made: tuple[tuple[int, ...], ...]
    workspace: tuple[int | None, ...]


def lay_out(problem: Problem, steps: Sequence[Step]) -> Layout:
    """The buffers of `steps`, which must be legal. The start is step −1, the end step n."""
    ram = _Buffers()
    start: list[int | None] = [None] * len(problem.tensors)
    stay: dict[int, int] = {}  # tensor in RAM -> its buffer
    for v, tensor in enumerate(problem.tensors):
        if tensor.start is Place.RAM:
            start[v] = stay[v] = ram.begin_tensor(tensor, -1)
    made: list[tuple[int, ...]] = []
    workspace: list[int | None] = []
    for s, step in enumerate(steps):
        new: list[int] = []
        scratch = None
        match step:
            case Compute(k, pairs, variant):
                operation = problem.operations[k]
                way = operation.way(variant)
                takes_over = dict(pairs)
                if way.workspace_bytes:
                    scratch = ram.begin(
                        f"workspace of {operation.name}",
                        way.workspace_bytes,
                        s,
                        operation.workspace_align,
                    )
                    ram.end(scratch, s)
                taken = {o: stay.pop(i) for o, i in takes_over.items()}
                for v in way.resident(operation.outputs):
                    stay[v] = taken[v] if v in taken else ram.begin_tensor(problem.tensors[v], s)
                    new.append(stay[v])
            case PageIn(v):
                stay[v] = ram.begin_tensor(problem.tensors[v], s)
                new.append(stay[v])
            case Free(v):
                ram.end(stay.pop(v), s)
            case PageOut(_):
                pass
        made.append(tuple(new))
        workspace.append(scratch)
    for buffer in stay.values():
        ram.end(buffer, len(steps))
    return Layout(
        ram.names,
        ram.bytes,
        ram.first,
        ram.last,
        ram.align,
        tuple(start),
        tuple(made),
        tuple(workspace),
    )


def plan_memory(
    problem: Problem,
    steps: Sequence[Step],
    align: int = 4,
    effort: int = EFFORT,
    unit_bytes: int = 512,
    stop: Callable[[], bool] = never,
    offsets: Sequence[int] | None = None,
    target_bytes: int = 0,
    block_bytes: int | None = None,
) -> MemoryPlan:
    """Places everything that `steps` keep in RAM and on storage.

    Raises ScheduleError when `steps` are not legal. `effort`, `stop` and `target_bytes` are
    those of `arena.pack`, `unit_bytes` is the unit of the storage image. With `offsets`, the
    buffers of `lay_out` lie there. Pages are in blocks of `block_bytes`, or each in one piece.
    """
    replay(problem, steps)
    layout = lay_out(problem, steps)
    sizes = [page_bytes(t.stored_bytes, align, block_bytes) for t in problem.tensors]
    image = _Image(problem, sizes, unit_bytes)
    storage = _Buffers()
    page: dict[int, int] = {}  # tensor -> its buffer
    written: list[list[int]] = []
    for s, step in enumerate(steps):
        out, read = pages_moved(problem, step)
        for v in out:
            if v not in image.places:
                page[v] = storage.begin(problem.tensors[v].name, sizes[v], s)
        for v in read:
            if v in page:
                storage.end(page[v], s)
        written.append(out)

    arena = _pack(layout, align, effort, stop, offsets, target_bytes)
    # Storage is not scarce: a search for its least size would take the time that the arena needs.
    store = _pack(storage, align, 0, stop)
    places = image.places | {v: image.end + store.offsets[b] for v, b in page.items()}
    return MemoryPlan(
        start=tuple(None if b is None else arena.offsets[b] for b in layout.start),
        made=tuple(tuple(arena.offsets[b] for b in new) for new in layout.made),
        workspace=tuple(None if b is None else arena.offsets[b] for b in layout.workspace),
        pages=tuple(tuple(places[v] for v in out) for out in written),
        start_pages=tuple(
            image.places[v] if tensor.start is Place.STORAGE else None
            for v, tensor in enumerate(problem.tensors)
        ),
        bank_bytes=image.bank_bytes,
        arena_bytes=arena.arena_bytes,
        arena_bound_bytes=arena.bound_bytes,
        storage_bytes=image.end + store.arena_bytes,
    )


def pages_moved(problem: Problem, step: Step) -> tuple[list[int], list[int]]:
    """The tensors whose pages a step writes, and those whose pages it reads."""
    match step:
        case Compute(k, _, variant):
            operation = problem.operations[k]
            way = operation.way(variant)
            return way.streams(operation.outputs), way.streams(operation.inputs)
        case PageOut(v):
            return [v], []
        case PageIn(v):
            return [], [v]
        case Free(_):
            return [], []


class _Image:
    """Places of the pages that outlive a step, of these `sizes`, and where they end."""

    def __init__(self, problem: Problem, sizes: Sequence[int], unit_bytes: int) -> None:
        tensors = problem.tensors
        there = [v for v, tensor in enumerate(tensors) if tensor.start is Place.STORAGE]
        # Old value -> the new one that is to be there for the next step.
        banked = {
            tensor.replaces: v
            for v, tensor in enumerate(tensors)
            if tensor.replaces in there and tensor.end is Place.STORAGE
        }
        places = place_image(
            [sizes[v] for v in there],
            [v in banked for v in there],
            unit_bytes,
        )
        self.places = dict(zip(there, places.offsets, strict=True))
        self.places |= {banked[v]: self.places[v] for v in there if v in banked}
        self.bank_bytes, self.end = places.bank_bytes, places.end


@dataclass(frozen=True)
class ImagePlaces:
    """Offsets of the pages of an image, of those that are replaced the ones in bank 0; where it
    ends, and how far its banks are apart, None where it has no pages."""

    offsets: tuple[int, ...]
    bank_bytes: int | None
    end: int


def place_image(pages: Sequence[int], banked: Sequence[bool], unit_bytes: int) -> ImagePlaces:
    """The image of pages of these bytes, some of which are replaced in each step."""
    if not pages:
        return ImagePlaces((), None, 0)
    offsets = [0] * len(pages)
    end = 2 * unit_bytes
    bank = end
    for replaced in (False, True):
        bank = end = round_up(end, unit_bytes)
        for n, size in enumerate(pages):
            if banked[n] is replaced:
                offsets[n], end = end, end + size
    bank_bytes = round_up(end - bank, unit_bytes)
    return ImagePlaces(tuple(offsets), bank_bytes, bank + 2 * bank_bytes)


class _Buffers:
    """Buffers in the order in which they begin."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.bytes: list[int] = []
        self.first: list[int] = []
        self.last: list[int] = []
        self.align: list[int] = []

    def begin(self, name: str, bytes: int, step: int, align: int = 1) -> int:
        self.names.append(name)
        self.bytes.append(bytes)
        self.first.append(step)
        self.last.append(step)
        self.align.append(align)
        return len(self.names) - 1

    def begin_tensor(self, tensor: Tensor, step: int) -> int:
        return self.begin(tensor.name, tensor.bytes, step, tensor.align)

    def end(self, buffer: int, step: int) -> None:
        self.last[buffer] = step


def _pack(
    buffers: Layout | _Buffers,
    align: int,
    effort: int,
    stop: Callable[[], bool],
    offsets: Sequence[int] | None = None,
    target_bytes: int = 0,
) -> Packing:
    """A packing that the validator has accepted."""
    lifetimes = list(zip(buffers.first, buffers.last, strict=True))
    boxes = [
        Buffer(b, *life, own)
        for b, life, own in zip(buffers.bytes, lifetimes, buffers.align, strict=True)
    ]
    if offsets is None:
        packing = pack(boxes, align, effort, stop, target_bytes)
    else:
        boxes = [replace(box, align=max(box.align, align)) for box in boxes]
        ends = (o + round_up(b.bytes, b.align) for o, b in zip(offsets, boxes, strict=True))
        packing = Packing(tuple(offsets), max(ends, default=0), most_alive(boxes))
    check_packing(
        buffers.bytes,
        lifetimes,
        packing.offsets,
        packing.arena_bytes,
        align,
        buffers.names,
        buffers.align,
    )
    return packing
