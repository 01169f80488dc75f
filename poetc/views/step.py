"""The events of a compiled step, with their times: live ranges, kernels, transfers.

A kernel in tiles is one run: its tiles are not told apart, nor the slices that they move.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from xdsl.ir import SSAValue

from poetc.backends.c.layout import block_offset, static_ram_bytes
from poetc.costmodel.slices import slice_costs
from poetc.driver import Compiled
from poetc.errors import InputError
from poetc.ir.graph import view_scheduled
from poetc.ir.kinds import TENSOR_KINDS, tensor_kinds
from poetc.ir.poet import (
    AnyPageIn,
    AnyPageOut,
    CostAttr,
    RunOp,
    SliceInOp,
    StreamOp,
    TileBufferOp,
    content,
    offset_of,
)
from poetc.ir.stream_use import loops_of, slices_of
from poetc.ir.timeline import moments, simulate
from poetc.ir.unschedule import origins
from poetc.planning.problem import alignment_of, storage_of
from poetc.report_ram import source_of, tensor_names
from poetc.schedule.model.problem import Compute, Free, PageIn, Place

LIFE_KINDS: tuple[str, ...] = (*TENSOR_KINDS, "workspace", "transfer_buffers")
"""Kinds of what is in the arena."""


_BLOCK = -1
"""In place of the number of a tensor."""


@dataclass(frozen=True)
class Tensor:
    """A tensor, however often it is computed or paged in. `source` is the place in the input of the
    kernel that computes it."""

    name: str
    kind: str
    type: str
    source: str | None


@dataclass(frozen=True)
class Life:
    """A live range: a tensor (index) occupies `bytes` of the arena from `offset` on. `begins` says
    what puts it there: the start of the step, a kernel, or a page-in.

    `begin` and `end` count steps of the schedule: kernels and transfers.
    """

    tensor: int
    begins: str
    bytes: int
    offset: int
    begin_ns: int
    end_ns: int
    begin: int
    end: int


@dataclass(frozen=True)
class Slices:
    """The slices of a tensor (index) that a kernel in tiles moves, "in" from storage or "out" to
    it: their number, and the `bytes` that they have together."""

    tensor: int
    direction: str
    count: int
    bytes: int


@dataclass(frozen=True)
class Tiles:
    """How a kernel runs in tiles. Of each nest in turn `loops` has (iterations, in a tile), from
    the outermost loop on. Of the time of the kernel, slices are read for `read_ns` and written for
    `write_ns`, which takes `slices_nj` of its energy."""

    loops: tuple[tuple[tuple[int, int], ...], ...]
    slices: tuple[Slices, ...]
    read_ns: int
    write_ns: int
    slices_nj: int

    @property
    def text(self) -> str:
        """The loops in words, such as "32 by 8, 4 by 2"."""
        nests = (", ".join(f"{n} by {tile}" for n, tile in loops) for loops in self.loops)
        return "; ".join(nest or "one tile" for nest in nests)


@dataclass(frozen=True)
class Run:
    """A run of a kernel, whole or in `tiles`. `reads` and `writes` are tensors (indices); `step`
    counts steps of the schedule."""

    kernel: str
    source: str | None
    recomputes: bool
    begin_ns: int
    end_ns: int
    energy_nj: int
    step: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    tiles: Tiles | None = None


@dataclass(frozen=True)
class Move:
    """A transfer of a tensor (index), "in" from storage or "out" to it, which has the bus from
    `begin_ns` to `end_ns`. Computing waits `stall_ns` for it. `step` counts steps of the schedule.
    """

    tensor: int
    direction: str
    bytes: int
    begin_ns: int
    end_ns: int
    energy_nj: int
    stall_ns: int
    step: int


@dataclass(frozen=True)
class Stall:
    """Computing waits for a transfer."""

    tensor: int
    direction: str
    begin_ns: int
    end_ns: int


@dataclass(frozen=True)
class StepView:
    """A step from 0 to `makespan_ns`, with `steps` steps. `lives` are in the order of their begin;
    what takes no bytes, or is in a buffer of the caller, is left out."""

    tensors: tuple[Tensor, ...]
    lives: tuple[Life, ...]
    runs: tuple[Run, ...]
    moves: tuple[Move, ...]
    stalls: tuple[Stall, ...]
    makespan_ns: int
    steps: int
    arena_bytes: int


def step_view(compiled: Compiled) -> StepView:
    """The events of a compiled step.

    Raises InputError for a step that was scheduled for a device with storage, if the one that it is
    compiled for has none.
    """
    return _Reader(compiled).view()


class _Reader:
    def __init__(self, compiled: Compiled) -> None:
        self.graph = compiled.graph
        device = compiled.options.device
        self.storage = storage_of(device, self.graph.block_bytes)
        self.align = alignment_of(device)
        self.power_w = 0.0 if self.storage is None else slice_costs(device).power_w
        if self.storage is None and any(
            isinstance(op, AnyPageIn | AnyPageOut | StreamOp) for op in self.graph.block.ops
        ):
            raise InputError(
                f"the step has transfers, and device {device.title} no storage; name the device "
                "that it was scheduled for with --device, and its storage with --storage"
            )
        self.scheduled = view_scheduled(self.graph, storage=self.storage, align=self.align)
        self.origin = origins(self.graph)
        self.tensors: list[Tensor] = []
        self.index: dict[SSAValue, int] = {}
        self._name_tensors()
        self.open: dict[int, Life] = {}
        self.lives: list[Life] = []

    def _name_tensors(self) -> None:
        names, kinds = tensor_names(self.scheduled), tensor_kinds(self.graph)
        for v, value in enumerate(self.scheduled.values):
            if self.origin[value] is not value:
                continue
            owner = value.owner
            source = source_of(owner) if isinstance(owner, RunOp) else None
            self.index[value] = len(self.tensors)
            type = content(value.type)
            self.tensors.append(Tensor(names[v], kinds[value], str(type), source))

    def tensor(self, value: SSAValue) -> int:
        """The index of the tensor that a value holds."""
        return self.index[self.origin[value]]

    def view(self) -> StepView:
        """The result of `step_view`."""
        scheduled, problem = self.scheduled, self.scheduled.problem
        steps = dict(zip(scheduled.ops, scheduled.steps, strict=True))
        runs: list[Run] = []
        moving: list[tuple[int, int]] = []
        stalls: list[Stall] = []
        at = end_ns = 0
        if self.graph.block_bytes is not None:
            self._block(self.graph.block_bytes)
        for v, tensor in enumerate(problem.tensors):
            if tensor.start is Place.RAM:
                self._begin(v, scheduled.values[v], "the start of the step", 0, 0)
        for op, begin_ns, end_ns in moments(self.graph, self.storage, self.align):
            step = steps.get(op)
            match step:
                case Compute(k, pairs, variant):
                    assert isinstance(op, RunOp)
                    operation, name = problem.operations[k], op.label.data
                    way = operation.way(variant)
                    for _, taken in pairs:
                        self._end(taken, begin_ns, at)
                    for v in way.resident(operation.outputs):
                        self._begin(v, scheduled.values[v], f'kernel "{name}"', begin_ns, at)
                    if way.workspace_bytes and op.workspace_offset is not None:
                        self._workspace(op, way.workspace_bytes, begin_ns, end_ns, at)
                    runs.append(self._run(op, begin_ns, end_ns, at))
                case PageIn(v):
                    assert isinstance(op, AnyPageIn)
                    self._begin(v, op.tensor, "a page-in", begin_ns, at)
                case Free(v):
                    self._end(v, end_ns, at)
                case _:
                    pass
            if isinstance(op, AnyPageIn | AnyPageOut):
                moving.append((self.tensor(op.tensor), at))
            if end_ns > begin_ns and not isinstance(op, RunOp):
                waited = op.operands[0].owner if step is None else op
                assert isinstance(waited, AnyPageIn | AnyPageOut)
                direction = "in" if isinstance(waited, AnyPageIn) else "out"
                stalls.append(Stall(self.tensor(waited.tensor), direction, begin_ns, end_ns))
            if isinstance(op, RunOp | AnyPageIn | AnyPageOut):
                at += 1
        for v in list(self.open):
            self._end(v, end_ns, at)
        return StepView(
            tuple(self.tensors),
            tuple(sorted(self.lives, key=lambda life: (life.begin, -life.end, life.offset))),
            tuple(runs),
            tuple(self._moves(moving)),
            tuple(stalls),
            end_ns,
            at,
            static_ram_bytes(self.graph),
        )

    def _block(self, bytes: int) -> None:
        """The block of a page that is behind the tensors in the arena, all the time."""
        tensor = Tensor("block of a page", "transfer_buffers", "bytes", None)
        offset = block_offset(self.graph)
        self.open[_BLOCK] = Life(
            len(self.tensors), "the start of the step", bytes, offset, 0, 0, 0, 0
        )
        self.tensors.append(tensor)

    def _begin(self, v: int, value: SSAValue, begins: str, time_ns: int, at: int) -> None:
        bytes, offset = self.scheduled.problem.tensors[v].bytes, offset_of(value)
        if bytes and offset is not None:
            tensor = self.tensor(self.scheduled.values[v])
            self.open[v] = Life(tensor, begins, bytes, offset, time_ns, time_ns, at, at)

    def _end(self, v: int, time_ns: int, at: int) -> None:
        life = self.open.pop(v, None)
        if life is not None:
            self.lives.append(replace(life, end_ns=time_ns, end=at))

    def _workspace(self, op: RunOp, bytes: int, begin_ns: int, end_ns: int, at: int) -> None:
        assert op.workspace_offset is not None
        name = op.label.data
        offset = op.workspace_offset.value.data
        life = Life(
            len(self.tensors), f'kernel "{name}"', bytes, offset, begin_ns, end_ns, at, at + 1
        )
        self.lives.append(life)
        type = _buffers_of(op) if isinstance(op, StreamOp) else "bytes"
        self.tensors.append(Tensor(f"workspace of {name}", "workspace", type, source_of(op)))

    def _run(self, op: RunOp, begin_ns: int, end_ns: int, at: int) -> Run:
        return Run(
            kernel=op.label.data,
            source=source_of(op),
            recomputes=any(self.origin[result] is not result for result in op.results),
            begin_ns=begin_ns,
            end_ns=end_ns,
            energy_nj=op.cost.energy_nj if op.cost is not None else 0,
            step=at,
            reads=tuple(dict.fromkeys(map(self.tensor, op.operands))),
            writes=tuple(dict.fromkeys(map(self.tensor, op.results))),
            tiles=self._tiles(op) if isinstance(op, StreamOp) else None,
        )

    def _tiles(self, op: StreamOp) -> Tiles:
        results = set(op.results)
        slices = (
            Slices(self.tensor(v), "out" if v in results else "in", each.count, each.bytes)
            for v, each in slices_of(op).items()
        )
        cost = op.cost or CostAttr(0)
        return Tiles(
            loops=tuple(map(tuple, loops_of(op))),
            slices=tuple(slices),
            read_ns=cost.read_ns,
            write_ns=cost.write_ns,
            slices_nj=round(cost.slices_ns * self.power_w),
        )

    def _moves(self, moving: list[tuple[int, int]]) -> Iterator[Move]:
        transfers = simulate(self.graph, self.storage, self.align).transfers
        for (tensor, at), moved in zip(moving, transfers, strict=True):
            assert self.storage is not None
            reads = moved.direction == "in"
            cost = (self.storage.pagein if reads else self.storage.pageout)(moved.bytes)
            yield Move(
                tensor,
                moved.direction,
                moved.bytes,
                moved.start_ns,
                moved.end_ns,
                cost.energy_nj,
                moved.stall_ns,
                at,
            )


def slice_times(run: Run) -> Iterator[tuple[str, int, int]]:
    """Direction and times in ns of what a kernel in tiles moves, as pictures show it: as if it read
    all slices, computed, and wrote all slices."""
    if run.tiles is not None and run.tiles.read_ns:
        yield "in", run.begin_ns, run.begin_ns + run.tiles.read_ns
    if run.tiles is not None and run.tiles.write_ns:
        yield "out", run.end_ns - run.tiles.write_ns, run.end_ns


def _buffers_of(stream: StreamOp) -> str:
    """The buffers that the tiles of a kernel have in its workspace, in words."""
    found = (
        f"{op.buffer.type} at {op.offset.value.data:,}"
        for op in stream.tiles.walk()
        if isinstance(op, SliceInOp | TileBufferOp)
    )
    return ", ".join(dict.fromkeys(found))


def live_bytes(view: StepView) -> list[tuple[int, dict[str, int]]]:
    """Times in ns at which live bytes change, and the live bytes of each kind from then on. The
    first is the beginning of the step and the last its end, with what is live until then."""
    changes: dict[int, Counter[str]] = {0: Counter(), view.makespan_ns: Counter()}
    for life in view.lives:
        kind = view.tensors[life.tensor].kind
        changes.setdefault(life.begin_ns, Counter())[kind] += life.bytes
        if life.end_ns < view.makespan_ns:
            changes.setdefault(life.end_ns, Counter())[kind] -= life.bytes
    now = dict.fromkeys(LIFE_KINDS, 0)
    found: list[tuple[int, dict[str, int]]] = []
    for time_ns in sorted(changes):
        for kind, bytes in changes[time_ns].items():
            now[kind] += bytes
        found.append((time_ns, dict(now)))
    return found


@dataclass(frozen=True)
class Block:
    """Part of a live range (index) in a stack of all that is live: `bottom` bytes are below it."""

    life: int
    bottom: int
    begin_ns: int
    end_ns: int
    begin: int
    end: int


def stacked(lives: Iterable[Life]) -> list[Block]:
    """The live ranges, which are in the order of their begin, stacked without gaps.

    Those that begin first are at the bottom, and what is computed in place takes the place of its
    operand. A block ends where what is below it changes.
    """
    lives = list(lives)
    begins: dict[tuple[int, int], list[int]] = {}
    for index, life in enumerate(lives):
        if (life.end, life.end_ns) > (life.begin, life.begin_ns):
            begins.setdefault((life.begin, life.begin_ns), []).append(index)
    found: list[Block] = []
    stack: list[Block] = []
    for at, time_ns in sorted({*begins, *((life.end, life.end_ns) for life in lives)}):
        starting = {lives[index].offset: index for index in begins.get((at, time_ns), ())}
        order: list[tuple[int, Block | None]] = []
        for block in stack:
            life = lives[block.life]
            if (life.end, life.end_ns) > (at, time_ns):
                order.append((block.life, block))
                continue
            found.append(replace(block, end=at, end_ns=time_ns))
            if (heir := starting.pop(life.offset, None)) is not None:
                order.append((heir, None))
        order += [(index, None) for index in starting.values()]
        stack, bottom = [], 0
        for index, block in order:
            if block is not None and block.bottom != bottom:
                found.append(replace(block, end=at, end_ns=time_ns))
                block = None
            stack.append(block or Block(index, bottom, time_ns, time_ns, at, at))
            bottom += lives[index].bytes
    return found
