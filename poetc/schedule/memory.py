"""Turns a schedule into buffers with lifetimes, and packs them into the arena and the storage.

A *stay* is one presence of a tensor in RAM: from the step that makes it or pages it in, or the
start, to the step that frees it or takes its buffer over, or the end. Stays that follow each other
in place are one buffer, so a parameter and its new value have one offset. Workspace is a buffer
that lives for one step. A page lives from its page-out to its last page-in.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from poetc.schedule.arena import Buffer, Packing, pack, page_bytes
from poetc.schedule.arena_check import check_packing
from poetc.schedule.checker import replay
from poetc.schedule.problem import Compute, Free, PageIn, PageOut, Place, Problem, Step


@dataclass(frozen=True)
class MemoryPlan:
    """Offsets in bytes, of tensors in the arena and of pages in storage.

    `start[v]` is the place of tensor v at the start, None if it is not in RAM then. `made[s]` has
    the place of each tensor that step s brings into RAM (the outputs of a compute in order, or what
    is paged in), `workspace[s]` that of its workspace, if any. `pages[s]` is the place of the page
    that step s writes.
    """

    start: tuple[int | None, ...]
    made: tuple[tuple[int, ...], ...]
    workspace: tuple[int | None, ...]
    pages: tuple[int | None, ...]
    arena_bytes: int
    arena_bound_bytes: int
    storage_bytes: int


def plan_memory(
    problem: Problem, steps: Sequence[Step], align: int = 4, effort: int = 4_000_000
) -> MemoryPlan:
    """Places everything that `steps` keep in RAM and on storage.

    Raises ScheduleError when `steps` are not legal. `effort` is that of `arena.pack`.
    """
    replay(problem, steps)
    ram = _Buffers()
    start: list[int | None] = [None] * len(problem.tensors)
    stay: dict[int, int] = {}  # tensor in RAM -> its buffer
    for v, tensor in enumerate(problem.tensors):
        if tensor.start is Place.RAM:
            start[v] = stay[v] = ram.begin(tensor.name, tensor.bytes, -1)
    made: list[tuple[int, ...]] = []
    workspace: list[int | None] = []
    for s, step in enumerate(steps):
        new: list[int] = []
        scratch = None
        match step:
            case Compute(k, pairs):
                operation = problem.operations[k]
                takes_over = dict(pairs)
                if operation.workspace_bytes:
                    scratch = ram.begin(
                        f"workspace of {operation.name}", operation.workspace_bytes, s
                    )
                    ram.end(scratch, s)
                taken = {o: stay.pop(i) for o, i in takes_over.items()}
                for v in operation.outputs:
                    tensor = problem.tensors[v]
                    stay[v] = taken[v] if v in taken else ram.begin(tensor.name, tensor.bytes, s)
                    new.append(stay[v])
            case PageIn(v):
                stay[v] = ram.begin(problem.tensors[v].name, problem.tensors[v].bytes, s)
                new.append(stay[v])
            case Free(v):
                ram.end(stay.pop(v), s)
            case PageOut(_):
                pass
        made.append(tuple(new))
        workspace.append(scratch)
    for buffer in stay.values():
        ram.end(buffer, len(steps))

    storage = _Buffers()
    pages: list[int | None] = []
    page: dict[int, int] = {}
    for s, step in enumerate(steps):
        slot = None
        if isinstance(step, PageOut):
            tensor = problem.tensors[step.tensor]
            slot = page[step.tensor] = storage.begin(
                tensor.name, page_bytes(tensor.bytes, align), s
            )
        elif isinstance(step, PageIn):
            storage.end(page[step.tensor], s)
        pages.append(slot)

    arena, store = ram.pack(align, effort), storage.pack(align, effort)
    return MemoryPlan(
        start=tuple(None if b is None else arena.offsets[b] for b in start),
        made=tuple(tuple(arena.offsets[b] for b in new) for new in made),
        workspace=tuple(None if b is None else arena.offsets[b] for b in workspace),
        pages=tuple(None if b is None else store.offsets[b] for b in pages),
        arena_bytes=arena.arena_bytes,
        arena_bound_bytes=arena.bound_bytes,
        storage_bytes=store.arena_bytes,
    )


class _Buffers:
    """Buffers in the order in which they begin."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.bytes: list[int] = []
        self.first: list[int] = []
        self.last: list[int] = []

    def begin(self, name: str, bytes: int, step: int) -> int:
        self.names.append(name)
        self.bytes.append(bytes)
        self.first.append(step)
        self.last.append(step)
        return len(self.names) - 1

    def end(self, buffer: int, step: int) -> None:
        self.last[buffer] = step

    def pack(self, align: int, effort: int) -> Packing:
        """A packing that the validator has accepted."""
        lifetimes = list(zip(self.first, self.last, strict=True))
        buffers = [Buffer(b, *life) for b, life in zip(self.bytes, lifetimes, strict=True)]
        packing = pack(buffers, align, effort)
        check_packing(
            self.bytes, lifetimes, packing.offsets, packing.arena_bytes, align, self.names
        )
        return packing
