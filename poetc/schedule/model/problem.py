"""Scheduling problems and schedules, without MLIR.

A `Problem` is a list of operations in a fixed topological order, the tensors they read and make,
and the limits (RAM, deadline, storage). A `Schedule` is a list of steps. Tensors and operations are
referred to by their index. Bytes, nanoseconds (`_ns`), nanojoules (`_nj`) and nanowatts (`_nw`) are
integers everywhere. `docs/schedule.md` states the rules that the steps obey.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum


class ProblemError(ValueError):
    """A `Problem` that contradicts itself; the message names the operation or tensor."""


class Place(Enum):
    """The place of a tensor before the first step or after the last one."""

    RAM = "ram"
    STORAGE = "storage"


@dataclass(frozen=True)
class Tensor:
    """One tensor: made by an operation, or there from the start.

    `start` is None for a tensor that an operation makes. `end` is None when nobody needs the tensor
    after the last step. `pageable` says that it may be moved between RAM and storage, at the costs
    given. `replaces` is the index of the tensor whose buffer this one takes over: the new value of
    a parameter. Once it is made, the old value can be had no more. On storage each has a page of
    its own: the only good copy is never overwritten.

    In RAM it takes `bytes`, at a multiple of `align` (a power of two); on storage
    `payload_bytes`, where that is less.
    """

    name: str
    bytes: int
    start: Place | None = None
    end: Place | None = None
    pageable: bool = True
    pagein_time_ns: int = 0
    pagein_energy_nj: int = 0
    pageout_time_ns: int = 0
    pageout_energy_nj: int = 0
    replaces: int | None = None
    align: int = 1
    payload_bytes: int | None = None

    @property
    def stored_bytes(self) -> int:
        """Bytes that are moved when it is paged."""
        return self.bytes if self.payload_bytes is None else self.payload_bytes


@dataclass(frozen=True)
class Variant:
    """A way to run an operation.

    The tensors that are `streamed`, of its inputs and outputs, are read from and written to their
    pages slice by slice; the others are resident: whole in RAM. `workspace_bytes` is the RAM beside
    these: slices, sums, workspace. `time_ns` is the processor's, with the transfers that it waits
    for, `bus_ns` the part of it in which the bus is busy. `read_bytes` and `written_bytes` are
    moved.
    """

    streamed: frozenset[int]
    workspace_bytes: int
    time_ns: int
    bus_ns: int
    energy_nj: int
    read_bytes: int = 0
    written_bytes: int = 0

    def resident(self, tensors: Iterable[int]) -> list[int]:
        """The `tensors`, inputs or outputs, that it has in RAM, in order."""
        return [v for v in tensors if v not in self.streamed]

    def streams(self, tensors: Iterable[int]) -> list[int]:
        """The `tensors`, inputs or outputs, that it streams, in order."""
        return [v for v in tensors if v in self.streamed]


@dataclass(frozen=True)
class Operation:
    """One kernel: reads `inputs`, makes `outputs` (tensor indices).

    `inplace` lists the pairs (output, input) that may share a buffer when the input dies here; a
    pair whose output `replaces` the input shares it whenever the output is in RAM. An operation
    that is not `repeatable` runs once. Its workspace begins at a multiple of `workspace_align`, a
    power of two. `variants` are other ways to run it than as it is, with everything resident.
    """

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    time_ns: int
    energy_nj: int
    workspace_bytes: int = 0
    repeatable: bool = True
    inplace: tuple[tuple[int, int], ...] = ()
    workspace_align: int = 1
    variants: tuple[Variant, ...] = ()

    def way(self, variant: int | None) -> Variant:
        """One of the variants, or (None) how it runs as it is."""
        if variant is not None:
            return self.variants[variant]
        return Variant(frozenset(), self.workspace_bytes, self.time_ns, 0, self.energy_nj)


@dataclass(frozen=True)
class Problem:
    """Operations in an order in which they can run, and the limits (None = no limit).

    Each operation runs at least once; the first runs may be in another order. `dma` says that
    transfers overlap computing (one transfer at a time). Raises `ProblemError` when it contradicts
    itself.
    """

    operations: tuple[Operation, ...]
    tensors: tuple[Tensor, ...]
    ram_bytes: int | None = None
    deadline_ns: int | None = None
    storage_bytes: int | None = None
    dma: bool = False
    idle_power_nw: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "operations", tuple(self.operations))
        object.__setattr__(self, "tensors", tuple(self.tensors))
        _validate(self)

    def producers(self) -> tuple[int | None, ...]:
        """For each tensor the operation that makes it, None where it is there from the start."""
        producer: list[int | None] = [None] * len(self.tensors)
        for k, operation in enumerate(self.operations):
            for v in operation.outputs:
                producer[v] = k
        return tuple(producer)

    def readers(self) -> tuple[tuple[int, ...], ...]:
        """For each tensor the operations that read it, in order."""
        readers: list[list[int]] = [[] for _ in self.tensors]
        for k, operation in enumerate(self.operations):
            for v in dict.fromkeys(operation.inputs):
                readers[v].append(k)
        return tuple(map(tuple, readers))

    def replacers(self) -> dict[int, int]:
        """For each replaced tensor the operation that replaces it."""
        producer = self.producers()
        return {
            tensor.replaces: k
            for v, tensor in enumerate(self.tensors)
            if tensor.replaces is not None and (k := producer[v]) is not None
        }


@dataclass(frozen=True)
class Compute:
    """Runs an operation. `inplace` are the pairs (output, input) that share a buffer this time; the
    input of such a pair leaves RAM here, without a `Free`. `variant` is an index into its
    variants; None: it runs as it is."""

    operation: int
    inplace: tuple[tuple[int, int], ...] = ()
    variant: int | None = None


@dataclass(frozen=True)
class PageOut:
    """Writes a tensor from RAM to storage; it stays in RAM until it is freed."""

    tensor: int


@dataclass(frozen=True)
class PageIn:
    """Reads a tensor from storage into RAM; the page stays on storage."""

    tensor: int


@dataclass(frozen=True)
class Free:
    """Ends a tensor's live range."""

    tensor: int


Step = Compute | PageOut | PageIn | Free


@dataclass(frozen=True)
class Schedule:
    """Steps in the order in which they are started, with what is known about them.

    `energy_nj`, `makespan_ns` and `peak_bytes` are the checker's. `bound_nj`: no schedule that
    keeps to the problem's limits and to the stage rules (`docs/schedule.md`) uses less energy, with
    the first runs in the order of the problem or in that of this schedule.
    `status` is "optimal" when the gap is within the tolerance that was asked for, else "feasible".
    `log` holds what the solver did, a line each.
    """

    steps: tuple[Step, ...]
    energy_nj: int
    bound_nj: int
    makespan_ns: int
    peak_bytes: int
    strategy: str = ""
    status: str = "feasible"
    log: tuple[str, ...] = ()

    @property
    def gap(self) -> float:
        """(energy − bound) / energy, 0 when both are 0."""
        return (self.energy_nj - self.bound_nj) / self.energy_nj if self.energy_nj > 0 else 0.0

    @property
    def computes(self) -> tuple[Compute, ...]:
        """The compute steps in order."""
        return tuple(step for step in self.steps if isinstance(step, Compute))


def predecessors(problem: Problem) -> list[set[int]]:
    """For each operation those that must run before it.

    They make what it reads, or read what it replaces.
    """
    producers, readers, replacers = problem.producers(), problem.readers(), problem.replacers()
    before: list[set[int]] = []
    for operation in problem.operations:
        made = {producers[v] for v in operation.inputs}
        before.append({k for k in made if k is not None})
    for old, k in replacers.items():
        before[k].update(j for j in readers[old] if j != k)
    return before


def _problems(problem: Problem) -> Iterator[str]:
    """Every contradiction in `problem`, as a sentence."""
    tensors, operations = problem.tensors, problem.operations
    for name in ("ram_bytes", "deadline_ns", "storage_bytes"):
        limit = getattr(problem, name)
        if limit is not None and limit < 0:
            yield f"{name} is negative ({limit})"
    if problem.idle_power_nw < 0:
        yield f"idle_power_nw is negative ({problem.idle_power_nw})"
    costs = ("bytes", "pagein_time_ns", "pagein_energy_nj", "pageout_time_ns", "pageout_energy_nj")
    for tensor in tensors:
        for name in costs:
            if getattr(tensor, name) < 0:
                yield f"tensor {tensor.name}: {name} is negative"
        if not tensor.pageable and tensor.start is Place.STORAGE:
            yield f"tensor {tensor.name} starts on storage but may not be paged"
        if not tensor.pageable and tensor.end is Place.STORAGE:
            yield f"tensor {tensor.name} must end on storage but may not be paged"

    made: dict[int, int] = {}
    for k, operation in enumerate(operations):
        for name in ("time_ns", "energy_nj", "workspace_bytes"):
            if getattr(operation, name) < 0:
                yield f"operation {operation.name}: {name} is negative"
        outside = [v for v in (*operation.inputs, *operation.outputs) if not 0 <= v < len(tensors)]
        if outside:
            yield f"operation {operation.name} names tensor {outside[0]}, which does not exist"
            return
        for v in operation.inputs:
            if tensors[v].start is None and v not in made:
                yield f"operation {operation.name} reads {tensors[v].name} before it is made"
        for v in operation.outputs:
            if tensors[v].start is not None:
                yield f"operation {operation.name} makes {tensors[v].name}, there from the start"
            if v in made:
                yield f"tensor {tensors[v].name} is made twice (at last by {operation.name})"
            made[v] = k
        yield from _contradictions(operation, tensors)
        for o, i in operation.inplace:
            if o not in operation.outputs or i not in operation.inputs:
                yield f"operation {operation.name}: in-place pair ({o}, {i}) is not (output, input)"
            elif tensors[o].bytes > tensors[i].bytes:
                yield (
                    f"operation {operation.name}: {tensors[o].name} is bigger than "
                    f"{tensors[i].name}, whose buffer it would take"
                )
    for v, tensor in enumerate(tensors):
        if tensor.start is None and v not in made:
            yield f"tensor {tensor.name} is made by no operation and does not start anywhere"

    readers = problem.readers()
    replaced: set[int] = set()
    for v, tensor in enumerate(tensors):
        old = tensor.replaces
        if old is None:
            continue
        if v not in made or not 0 <= old < len(tensors):
            yield f"tensor {tensor.name} replaces tensor {old} but no operation makes it from that"
            continue
        k, name = made[v], tensors[old].name
        if (v, old) not in operations[k].inplace:
            yield f"operation {operations[k].name}: {tensor.name} replaces {name} but not in place"
        if tensor.bytes != tensors[old].bytes:
            yield f"tensor {tensor.name} replaces {name}, which has another size"
        if tensors[old].end is not None:
            yield f"tensor {name} is replaced by {tensor.name} and so cannot be there at the end"
        if old in replaced:
            yield f"tensor {name} is replaced twice"
        replaced.add(old)
        late = [j for j in readers[old] if j > k]
        if late:
            reader = operations[late[0]].name
            yield f"operation {reader} reads {name} after {tensor.name} replaced it"


def _contradictions(operation: Operation, tensors: tuple[Tensor, ...]) -> Iterator[str]:
    """The faults of the variants of an operation, a sentence each."""
    for number, variant in enumerate(operation.variants):
        what = f"operation {operation.name}, variant {number}"
        for name in ("workspace_bytes", "bus_ns", "energy_nj", "read_bytes", "written_bytes"):
            if getattr(variant, name) < 0:
                yield f"{what}: {name} is negative"
        if variant.bus_ns > variant.time_ns:
            yield f"{what}: bus_ns is more than time_ns"
        for v in sorted(variant.streamed):
            if v not in operation.inputs and v not in operation.outputs:
                yield f"{what} streams tensor {v}, neither input nor output"
            elif not tensors[v].pageable:
                yield f"{what} streams {tensors[v].name}, which may not be paged"
        for v in operation.outputs:
            old = tensors[v].replaces
            if old in variant.streamed and v not in variant.streamed:
                yield f"{what} makes {tensors[v].name} in place of a tensor that it streams"


def _validate(problem: Problem) -> None:
    for message in _problems(problem):
        raise ProblemError(message)
