"""The timeline of a step: when each transfer runs, and for which of them computing waits.

Kernels run one after the other, in the order of the graph. Transfers run one after the other, too,
in the order of their starts, on the one bus of the device. With DMA they run beside the kernels: a
`poet.pageout_start` or `poet.pagein_start` takes computing no time, a `poet.wait` all that is left
of the transfer. Without DMA the processor moves the bytes itself, at once. A `poet.pageout` or
`poet.pagein` is a start and a wait.

A kernel in tiles moves its slices itself, between its tiles. All times are in nanoseconds, from the
start of the step. Costs of kernels are those in the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

from poetc.errors import InputError
from poetc.ir.graph import ALIGN_BYTES, Storage, round_up, tensor_bytes
from poetc.ir.poet import (
    AnyPageIn,
    AnyPageOut,
    GraphOp,
    PageInOp,
    PageInStartOp,
    PageOutOp,
    PageOutStartOp,
    RunOp,
    WaitOp,
    transfer_of,
)


@dataclass
class Transfer:
    """One transfer: `bytes` of a tensor, read from storage ("in") or written to it ("out").

    It is started at `queued_ns`, has the bus from `start_ns` to `end_ns`, and computing waits
    `stall_ns` for it.
    """

    tensor: str
    direction: Literal["in", "out"]
    bytes: int
    queued_ns: int
    start_ns: int
    end_ns: int
    stall_ns: int = 0


@dataclass(frozen=True)
class Timeline:
    """How long a step takes: `makespan_ns` is `compute_ns` in kernels, `slices_ns` moving slices of
    those in tiles, and `stall_ns` waiting for transfers, which are in the order of their starts."""

    makespan_ns: int
    compute_ns: int
    slices_ns: int
    transfers: tuple[Transfer, ...]

    @property
    def stall_ns(self) -> int:
        return sum(transfer.stall_ns for transfer in self.transfers)

    @property
    def bus_ns(self) -> int:
        """How long the bus is in use."""
        whole_ns = sum(transfer.end_ns - transfer.start_ns for transfer in self.transfers)
        return self.slices_ns + whole_ns

    @property
    def bus_use(self) -> float:
        """The share of the time that the bus is in use."""
        return self.bus_ns / max(1, self.makespan_ns)

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        names = ("makespan_ns", "compute_ns", "slices_ns", "stall_ns", "bus_ns", "bus_use")
        sums = {name: getattr(self, name) for name in names}
        return sums | {"transfers": [asdict(transfer) for transfer in self.transfers]}


def simulate(graph: GraphOp, storage: Storage | None, align: int = ALIGN_BYTES) -> Timeline:
    """The timeline of a scheduled graph on a device with that storage.

    A tensor is padded to a multiple of `align` bytes. Kernels without a cost take no time. Raises
    InputError where the graph has transfers and the device no storage.
    """
    return simulate_events(graph, events_of(graph), storage, align)


def moments(
    graph: GraphOp, storage: Storage | None, align: int = ALIGN_BYTES
) -> Iterator[tuple[Operation, int, int]]:
    """Each operation of a scheduled graph in order, with the times between which it occupies the
    processor: a kernel runs, a wait stalls, all others take no time. Raises like `simulate`."""
    machine = _Machine(graph, storage, align)
    for op in graph.block.ops:
        begin_ns = machine.clock_ns
        for event in _events(op):
            machine.take(event)
        yield op, begin_ns, machine.clock_ns


class Event(NamedTuple):
    """A transfer starts, or is waited for, or anything else is done. `op` of a transfer is the
    start of it, or all of it."""

    kind: Literal["start", "wait", "run"]
    op: Operation


def events_of(graph: GraphOp) -> Iterator[Event]:
    """The events of a graph, in order."""
    for op in graph.block.ops:
        yield from _events(op)


def _events(op: Operation) -> Iterator[Event]:
    match op:
        case PageOutStartOp() | PageInStartOp():
            yield Event("start", op)
        case WaitOp():
            yield Event("wait", op.start)
        case PageOutOp() | PageInOp():
            yield Event("start", op)
            yield Event("wait", op)
        case _:
            yield Event("run", op)


def simulate_events(
    graph: GraphOp, events: Iterable[Event], storage: Storage | None, align: int
) -> Timeline:
    """The timeline of `graph` with its operations in another order: like `simulate`."""
    machine = _Machine(graph, storage, align)
    for event in events:
        machine.take(event)
    transfers = tuple(machine.transfers.values())
    return Timeline(machine.clock_ns, machine.compute_ns, machine.slices_ns, transfers)


@dataclass
class _Machine:
    """A processor and a bus."""

    graph: GraphOp
    storage: Storage | None
    align: int
    clock_ns: int = 0
    compute_ns: int = 0
    slices_ns: int = 0
    bus_free_ns: int = 0
    transfers: dict[AnyPageOut | AnyPageIn, Transfer] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        match event.op:
            case RunOp() as op:
                self.compute(op)
            case PageOutOp() | PageInOp() | PageOutStartOp() | PageInStartOp() as op:
                (self.start if event.kind == "start" else self.wait)(op)
            case _:
                pass

    def compute(self, op: RunOp) -> None:
        time_ns, slices_ns = (0, 0) if op.cost is None else (op.cost.time_ns, op.cost.slices_ns)
        self.clock_ns += time_ns
        self.compute_ns += time_ns - slices_ns
        self.slices_ns += slices_ns

    def start(self, op: AnyPageOut | AnyPageIn) -> None:
        if self.storage is None:
            raise InputError(f"{op.name} on a device without storage")
        reads = isinstance(op, AnyPageIn)
        size = round_up(tensor_bytes(op.tensor.type), self.align)
        cost = self.storage.pagein(size) if reads else self.storage.pageout(size)
        start_ns = max(self.clock_ns, self.bus_free_ns)
        self.bus_free_ns = start_ns + cost.time_ns
        self.transfers[op] = Transfer(
            tensor_name(self.graph, op.tensor),
            "in" if reads else "out",
            size,
            self.clock_ns,
            start_ns,
            self.bus_free_ns,
        )
        if not self.storage.dma:
            self.wait(op)

    def wait(self, op: AnyPageOut | AnyPageIn) -> None:
        transfer = self.transfers[op]
        stall_ns = max(0, transfer.end_ns - self.clock_ns)
        transfer.stall_ns += stall_ns
        self.clock_ns += stall_ns


def tensor_name(graph: GraphOp, value: SSAValue) -> str:
    """The argument that a tensor is, or is the new value of, or the kernel that makes it."""
    value = _made(value)
    if isinstance(value, BlockArgument):
        return graph.arg_name(value.index)
    for i in range(len(graph.arguments)):
        result = graph.updates(i)
        if result is not None and _made(graph.return_op.arguments[result]) is value:
            return graph.arg_name(i)
    owner = value.owner
    assert isinstance(owner, RunOp) and isinstance(value, OpResult)
    return owner.label.data if len(owner.results) == 1 else f"{owner.label.data}.{value.index}"


def _made(value: SSAValue) -> SSAValue:
    """The value that a tensor is before any transfers, which do not change it."""
    while (transfer := transfer_of(value)) is not None:
        value = transfer.operands[0]
    return value
