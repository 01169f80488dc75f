"""A problem with the options of a solve applied and everything derived that the solvers share."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

from poetc.schedule.model.problem import Operation, Place, Problem, Variant
from poetc.schedule.params import DEFAULTS, SearchParams


@dataclass(frozen=True)
class Instance:
    """`problem` with rematerialization and paging allowed or not, and how it is searched.

    Without `paging` a tensor is moved only if it starts on storage or must end there. Without
    `remat` each operation runs once. Energies include the idle power of the time they take where
    time adds up (no DMA).
    """

    problem: Problem
    remat: bool = True
    paging: bool = True
    params: SearchParams = DEFAULTS
    _asked: SearchParams = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_asked", self.params)
        if self.has_variants:
            object.__setattr__(self, "params", self.params.for_variants())

    def without_variants(self) -> Instance:
        """The instance with operations that run as they are."""
        operations = tuple(replace(o, variants=()) for o in self.operations)
        problem = replace(self.problem, operations=operations)
        return replace(self, problem=problem, params=self._asked)

    @property
    def operations(self):
        return self.problem.operations

    @property
    def tensors(self):
        return self.problem.tensors

    @cached_property
    def n(self) -> int:
        """Number of operations."""
        return len(self.problem.operations)

    @cached_property
    def inputs(self) -> tuple[tuple[int, ...], ...]:
        """Tensors that each operation reads, each once; a last entry for what must be in RAM at the
        end."""
        end = tuple(v for v, t in enumerate(self.tensors) if t.end is Place.RAM)
        return (*(tuple(dict.fromkeys(o.inputs)) for o in self.operations), end)

    @cached_property
    def producer(self) -> tuple[int | None, ...]:
        return self.problem.producers()

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        return self.problem.readers()

    @cached_property
    def replacer(self) -> dict[int, int]:
        """Tensor that is replaced -> the operation that does so."""
        return self.problem.replacers()

    @cached_property
    def pageable(self) -> tuple[bool, ...]:
        """May the tensor be paged in at all."""
        return tuple(
            t.pageable and (self.paging or t.start is Place.STORAGE or t.end is Place.STORAGE)
            for t in self.tensors
        )

    @cached_property
    def ways(self) -> tuple[dict[int | None, Variant], ...]:
        """For each operation how it may run: as it is (None), and its variants, by their index,
        that stream only what may be paged. What needs more than all RAM is left out, and what takes
        so long that the others cannot meet the deadline, unless that is everything."""
        limit = self.problem.ram_bytes
        found: list[dict[int | None, Variant]] = []
        for operation in self.operations:
            ways: dict[int | None, Variant] = {None: operation.way(None)}
            for number, variant in enumerate(operation.variants):
                if all(self.pageable[v] for v in variant.streamed):
                    ways[number] = variant
            fitting = {
                number: way
                for number, way in ways.items()
                if limit is None or self._least_bytes(operation, way) <= limit
            }
            found.append(fitting or ways)
        if (deadline_ns := self.problem.deadline_ns) is None:
            return tuple(found)
        # All take the processor, also while they wait for the bus.
        least_ns = [min(way.time_ns for way in ways.values()) for ways in found]
        spare_ns = deadline_ns - sum(least_ns)
        return tuple(
            {n: way for n, way in ways.items() if way.time_ns <= least + spare_ns} or ways
            for ways, least in zip(found, least_ns, strict=True)
        )

    def _least_bytes(self, operation: Operation, way: Variant) -> int:
        """RAM without which an operation does not run in that way."""
        mine = {*operation.inputs, *operation.outputs} - way.streamed
        size = way.workspace_bytes + sum(self.tensors[v].bytes for v in mine)
        shared = {o for o, i in operation.inplace if o in mine and i in mine}
        return size - sum(self.tensors[o].bytes for o in shared)

    def runs_as_it_is(self, k: int) -> bool:
        """Whether an operation has no other way to run."""
        return self.ways[k].keys() == {None}

    @cached_property
    def has_variants(self) -> bool:
        """Whether an operation may run in another way than as it is. What does not hold then, or
        does not know of it, is not used."""
        return not all(map(self.runs_as_it_is, range(self.n)))

    @cached_property
    def may_stream(self) -> tuple[frozenset[int], ...]:
        """For each operation the inputs and outputs that some way to run it streams."""
        return tuple(
            frozenset(v for way in ways.values() for v in way.streamed) for ways in self.ways
        )

    @cached_property
    def last_recompute(self) -> tuple[int, ...]:
        """Last stage in which running an operation again is possible and can be of use; its own
        index where there is none. Running it again is of no use after the last operation that
        descends from it, and not possible once one of its inputs has been replaced."""
        n = self.n
        last = [0] * n
        for k in reversed(range(n)):
            operation = self.operations[k]
            useful = k
            for v in operation.outputs:
                if self.tensors[v].end is Place.RAM:
                    useful = n
                # A page can be had by that alone.
                if self.must_store[v] and v in self.may_stream[k]:
                    useful = n
                for j in self.readers[v]:
                    useful = max(useful, j, last[j])
            possible = min((self.replacer.get(v, n) for v in operation.inputs), default=n)
            replaces = any(self.tensors[v].replaces is not None for v in operation.outputs)
            if not operation.repeatable or not self.remat or replaces:
                possible = k
            last[k] = max(k, min(useful, possible))
        return tuple(last)

    @cached_property
    def recomputes(self) -> int:
        """Number of pairs (operation, later stage) in which running it again is possible and can be
        of use."""
        return sum(last - k for k, last in enumerate(self.last_recompute))

    @cached_property
    def depth(self) -> tuple[dict[int, int], ...]:
        """For each operation its ancestors, with the least number of edges to them; a last entry
        for what must be in RAM at the end."""
        result = []
        for k in range(self.n + 1):
            found: dict[int, int] = {}
            front, distance = {k}, 0
            while front:
                distance += 1
                makers = {self.producer[v] for j in front for v in self.inputs[j]}
                front = {j for j in makers if j is not None and j not in found}
                found.update(dict.fromkeys(front, distance))
            result.append(found)
        return tuple(result)

    @cached_property
    def stored_at_start(self) -> tuple[bool, ...]:
        return tuple(t.start is Place.STORAGE for t in self.tensors)

    @cached_property
    def must_store(self) -> tuple[bool, ...]:
        """Tensors that every schedule pages out."""
        return tuple(t.end is Place.STORAGE and t.start is not Place.STORAGE for t in self.tensors)

    def _with_idle(self, energy_nj: int, time_ns: int) -> float:
        if self.problem.dma:
            return float(energy_nj)
        return energy_nj + self.problem.idle_power_nw * time_ns * 1e-9

    @cached_property
    def run_energy(self) -> tuple[float, ...]:
        return tuple(self._with_idle(o.energy_nj, o.time_ns) for o in self.operations)

    def way_energy(self, way: Variant) -> float:
        """The energy of running an operation in that way."""
        return self._with_idle(way.energy_nj, way.time_ns)

    @cached_property
    def least_run_energy(self) -> tuple[float, ...]:
        """For each operation the energy of the cheapest way to run it."""
        return tuple(min(map(self.way_energy, ways.values())) for ways in self.ways)

    @cached_property
    def least_run_time_ns(self) -> tuple[int, ...]:
        """For each operation the time of the fastest way to run it."""
        return tuple(min(way.time_ns for way in ways.values()) for ways in self.ways)

    @cached_property
    def in_energy(self) -> tuple[float, ...]:
        return tuple(self._with_idle(t.pagein_energy_nj, t.pagein_time_ns) for t in self.tensors)

    @cached_property
    def out_energy(self) -> tuple[float, ...]:
        return tuple(self._with_idle(t.pageout_energy_nj, t.pageout_time_ns) for t in self.tensors)

    @cached_property
    def base_energy(self) -> float:
        """No schedule uses less: each operation once, and the transfers that every schedule
        makes."""
        return self._base(self.least_run_energy, self.in_energy, self.out_energy) + (
            self.problem.idle_power_nw * self.base_time_ns * 1e-9 if self.problem.dma else 0.0
        )

    @cached_property
    def least_energy_nj(self) -> int:
        """The least energy in whole nJ, like that of schedules; the sum may be rounded a little."""
        return math.ceil(self.base_energy - max(1e-3, self.base_energy * 1e-15))

    @cached_property
    def base_time_ns(self) -> int:
        """No schedule takes less time."""
        busy = sum(self.least_run_time_ns)
        bus = self._base(
            [0] * self.n,
            [t.pagein_time_ns for t in self.tensors],
            [t.pageout_time_ns for t in self.tensors],
        )
        return max(busy, int(bus)) if self.problem.dma else busy + int(bus)

    def _base(self, run, page_in, page_out):
        total = sum(run)
        for v, tensor in enumerate(self.tensors):
            in_ram = any(v not in self.may_stream[k] for k in self.readers[v])
            if self.stored_at_start[v] and (in_ram or tensor.end is Place.RAM):
                total += page_in[v]
            producer = self.producer[v]
            if self.must_store[v] and (producer is None or v not in self.may_stream[producer]):
                total += page_out[v]
        return total

    @cached_property
    def stored_bytes(self) -> tuple[int, ...]:
        """Bytes of each tensor on storage."""
        return tuple(t.stored_bytes for t in self.tensors)

    @cached_property
    def unit(self) -> int:
        """Greatest common divisor of the sizes of all tensors: the unit of memory in the models."""
        return math.gcd(*(t.bytes for t in self.tensors)) or 1

    def units(self, size: int) -> int:
        """Whole units in `size` bytes (rounded down; tensors are whole numbers of units)."""
        return size // self.unit

    def pages_of_end(self) -> int:
        """Bytes of storage that every schedule uses."""
        return sum(
            size
            for v, size in enumerate(self.stored_bytes)
            if self.stored_at_start[v] or self.must_store[v]
        )
