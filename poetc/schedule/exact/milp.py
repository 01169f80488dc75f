"""Our model: a sequence of optional runs, and what is kept in RAM between the uses of each tensor.

The model is given *slots*: places in a fixed sequence where an operation may run. The slot (t, t)
is the first run of operation t and is obligatory; a slot (t, k), k < t, is an optional recompute of
k on the way to t. `all_slots` gives every recompute in every stage (the whole problem); a solver
may offer fewer. A last, empty slot reads what must be in RAM at the end.

Binary columns:

- `run[s]`      the optional slot s is used;
- `load[v, s]`  tensor v is paged in just before slot s, which reads it. A page-in at any other
                moment can be delayed to there: it costs the same and occupies RAM for a shorter
                time;
- `keep[v, e]`  v stays in RAM from its e-th event (start, slot that makes or reads it) to the next;
- `write[v]`    v is written to storage, once, when it is first in RAM, where that needs no RAM;
- `share[s, p]` the in-place pair p is used in slot s.

Rows, with `before` for the keep column that ends at an event and `after` for the one that begins
there:

    run[s] <= before + load                      slot s reads v
    after  <= before + load                      slot s reads v
    after  <= before + run[s],  before + run[s] <= 1      slot s makes v
    load[v, s] <= write[v]                       unless v starts on storage
    share <= run[s],  share + after[input] <= 1, a tensor is in one pair at a time
    memory of slot s: keeps across s + inputs + outputs + workspace − shared <= ram

Memory is a knapsack over binaries, written out for each slot. In an obligatory slot inputs and
outputs are constants, so that the row says what may be kept beside them (the keep cuts), and a
tensor bigger than that room is not kept at all.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from poetc.schedule.exact.highs import INF, LinearProgram
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Place
from poetc.schedule.model.rebuild import Event, Load, Run, prune, stages

NONE = -1
# The objective is scaled so that the energy that no schedule can avoid is this much.
SCALE = 1e4


@dataclass(frozen=True)
class Slot:
    """A place where an operation may run: the first run of `stage` itself, or a recompute before
    it."""

    stage: int
    operation: int

    @property
    def optional(self) -> bool:
        return self.operation != self.stage


@dataclass(frozen=True)
class _Gap:
    """The slots between two obligatory uses of a tensor (None: the start or the end): the uses
    there and at the end, the columns of its page-ins among them, and the first runs between. With
    `writes` it may be written there."""

    tensor: int
    begin: _Event | None
    inside: tuple[_Event, ...]
    loads: tuple[int, ...]
    slots: tuple[int, ...]
    writes: bool


def all_slots(instance: Instance) -> list[Slot]:
    """Every recompute that is possible and can be of use, in every stage."""
    return slots_where(instance, lambda stage, operation: True)


def slots_where(instance: Instance, allowed) -> list[Slot]:
    """The slots (stage, operation) that `allowed` lets through, and all obligatory ones."""
    last, n = instance.last_recompute, instance.n
    return [
        Slot(t, k)
        for t in range(n + 1)
        for k in range(min(t + 1, n))
        if k == t or (last[k] >= t and allowed(t, k))
    ]


@dataclass
class _Event:
    """One use of a tensor: `slot` makes it or reads it (slot −1: it is in RAM at the start)."""

    slot: int
    makes: bool
    load: int = NONE
    keep: int = NONE  # the keep column that begins here


class SlotModel:
    """The MILP over `slots`. Columns are looked up in `run`, `events`, `write`, `share`.

    `minimise` is "energy" (nJ), "time" (ns) or "ram" (bytes); with "ram" the limit is the variable.
    Page-ins that cost more than `overhead` nJ (the page-out included, where it is not due anyway)
    are left out: a schedule that spends less than that beyond the least energy has none.

    With DMA the deadline bounds computing and transfers each, a relaxation. With `overlap` it also
    bounds their sum less what of the transfers overlaps first runs, for which there must be room in
    RAM: still a relaxation. With `serial` it bounds the sum of computing and that share of the
    transfers: neither safe nor a relaxation, but for all of them it is safe.

    With `relaxation` memory is counted in obligatory slots only, and the LP is as good in
    practice. Then nothing is gained by dropping a tensor on the way to an obligatory slot: there is
    one page-in of it at most in each stage, and one keep column from its last use in a stage to the
    next stage that has one, which makes the model much smaller.

    The rows of the programme are labelled with the slot they are about, -1 where there is none.
    """

    def __init__(
        self,
        instance: Instance,
        slots: Sequence[Slot],
        *,
        minimise: str = "energy",
        overhead: float = INF,
        serial: float = 0.0,
        relaxation: bool = False,
        overlap: bool = False,
    ) -> None:
        self.instance = instance
        self.minimise, self.overhead = minimise, overhead
        self.serial, self.relaxation = serial, relaxation
        self.lp = LinearProgram()
        # Columns that rows bound from below: column -> those rows.
        self.derived: dict[int, list[int]] = {}
        n = instance.n
        self.slots = [*slots, Slot(n, n)]
        problem = instance.problem
        if minimise == "energy":
            base = instance.base_energy
            self.costs = instance.run_energy, instance.in_energy, instance.out_energy
        elif minimise == "time":
            base = float(instance.base_time_ns)
            self.costs = (
                [o.time_ns for o in problem.operations],
                [t.pagein_time_ns for t in problem.tensors],
                [t.pageout_time_ns for t in problem.tensors],
            )
        else:
            base = 0.0
            self.costs = [0] * n, [0] * len(problem.tensors), [0] * len(problem.tensors)
        # Cost of one unit of the objective; the offset is in units as well.
        self.scale = (base or 1.0) / SCALE
        self._columns()
        # early[s, v], late[s, v]: v is in RAM during the first run in slot s only because it has to
        # come before it is read, or is still being written.
        self.early: dict[tuple[int, int], int] = {}
        self.late: dict[tuple[int, int], int] = {}
        pairs = self._early() if overlap and problem.dma else []
        self._memory()
        self.lp.label = NONE
        self._share_rows()
        self.hidden = self._hidden(pairs)
        self._limits()

    def value(self, objective: float) -> float:
        """What an objective value of the model means in nJ, ns or bytes."""
        return objective * self.scale

    # Columns and the rows that tie them together.

    def operation_tensors(self, k: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        outputs = self.instance.operations[k].outputs if k < self.instance.n else ()
        return self.instance.inputs[k], outputs

    def _columns(self) -> None:
        instance, lp = self.instance, self.lp
        tensors, overhead = instance.tensors, self.overhead
        run_cost, in_cost, out_cost = self.costs
        events: list[list[_Event]] = [
            [_Event(-1, True)] if tensor.start is Place.RAM else [] for tensor in tensors
        ]
        for s, slot in enumerate(self.slots):
            inputs, outputs = self.operation_tensors(slot.operation)
            for v in inputs:
                events[v].append(_Event(s, False))
            for v in outputs:
                events[v].append(_Event(s, True))
        for uses in events:
            while uses and uses[-1].makes and len(uses) > 1:
                uses.pop()
        self.events = events

        self.run = [
            lp.column(run_cost[slot.operation] / self.scale) if slot.optional else NONE
            for slot in self.slots
        ]
        lp.offset += sum(run_cost) / self.scale
        self.write: dict[int, int] = {}
        for v in range(len(tensors)):
            if instance.stored_at_start[v] or not instance.pageable[v]:
                continue
            due = instance.must_store[v]
            if not due and instance.in_energy[v] + instance.out_energy[v] > overhead:
                continue
            self.write[v] = lp.column(out_cost[v] / self.scale)
            if due:
                lp.fix(self.write[v], 1.0)
        add = self._tensor_relaxed if self.relaxation else self._tensor
        for v, uses in enumerate(events):
            add(v, uses, in_cost[v] / self.scale)

    def _tensor(self, v: int, uses: list[_Event], load_cost: float) -> None:
        lp, run = self.lp, self.run
        before = NONE
        previous = None
        for index, use in enumerate(uses):
            last = index + 1 == len(uses)
            lp.label = use.slot
            use.keep = NONE if last else lp.column()
            after = use.keep
            obligatory = self._obligatory(use.slot)
            column = NONE if obligatory else run[use.slot]
            if use.makes:
                if before != NONE:
                    lp.row((before, column), (1, 1), upper=1)
                if after != NONE and not obligatory:
                    self._at_most(after, (before, column))
            else:
                # No slot lies between this event and the one before, which does not overwrite v: v
                # could as well be kept, or be paged in there.
                adjacent = (
                    previous is not None
                    and previous.slot + 1 == use.slot
                    and (not previous.makes or self._obligatory(previous.slot))
                    and not self._may_overwrite(previous.slot, v)
                )
                if self._may_load(v) and not adjacent:
                    use.load = lp.column(load_cost)
                    if v in self.write:
                        self._at_most(use.load, (self.write[v],))
                sources = (before, use.load)
                if obligatory:
                    present = [c for c in sources if c != NONE]
                    lp.row(present, [1] * len(present), lower=1)
                else:
                    self._at_most(column, sources)
                if after != NONE:
                    self._at_most(after, sources)
            before, previous = after, use

    def _tensor_relaxed(self, v: int, uses: list[_Event], load_cost: float) -> None:
        lp, before = self.lp, NONE
        for stage, group in itertools.groupby(uses, lambda use: self._stage(use.slot)):
            present = list(group)
            last = present[-1]
            # In RAM at some time in the stage: kept from before, paged in, or made.
            sources = [before] if before != NONE else []
            reads = [use for use in present if not use.makes]
            lp.label = last.slot
            if reads and stage >= 0 and self._may_load(v):
                reads[0].load = lp.column(load_cost)
                sources.append(reads[0].load)
                if v in self.write:
                    self._at_most(reads[0].load, (self.write[v],))
            certain = False
            for use in present:
                lp.label = use.slot
                obligatory = self._obligatory(use.slot)
                if use.makes:
                    certain = certain or obligatory
                    if not obligatory:
                        sources.append(self.run[use.slot])
                elif certain:
                    continue
                elif obligatory:
                    lp.row(sources, [1] * len(sources), lower=1)
                else:
                    self._at_most(self.run[use.slot], sources)
            before = NONE
            if last is not uses[-1]:
                before = last.keep = lp.column()
                if not certain:
                    self._at_most(before, sources)

    # What overlaps.

    def _early(self) -> list[_Gap]:
        """Columns for what is in RAM for a transfer: before the use that it is paged in for, or
        after the last one, while it is written."""
        problem, n = self.instance.problem, self.instance.n
        first_runs = [
            s
            for s, slot in enumerate(self.slots)
            if slot.operation < n
            and not slot.optional
            and problem.operations[slot.operation].time_ns
        ]
        gaps: list[_Gap] = []
        for v, uses in enumerate(self.events):
            writes = v in self.write and problem.tensors[v].pageout_time_ns > 0
            reads = self._may_load(v) and problem.tensors[v].pagein_time_ns > 0
            if not uses or not (writes or reads):
                continue
            obligatory = [use for use in uses if self._obligatory(use.slot)]
            edges = [None, *obligatory, None]
            for begin, end in itertools.pairwise(edges):
                after = -1 if begin is None else begin.slot
                before = len(self.slots) if end is None else end.slot
                inside = [use for use in uses if after < use.slot <= before]
                loads = [use.load for use in inside if use.load != NONE] if reads else []
                if begin is None and v in self.write and uses[0].slot >= 0:
                    # It is made in the end of this gap at the earliest.
                    continue
                if not writes and not loads:
                    continue
                slots = [s for s in first_runs if after < s < before]
                for s in slots:
                    if loads:
                        self.early[s, v] = self.lp.column()
                    if writes:
                        self.late[s, v] = self.lp.column()
                gap = _Gap(v, begin, tuple(inside), tuple(loads), tuple(slots), writes)
                self._contiguous(gap)
                gaps.append(gap)
        return gaps

    def _contiguous(self, gap: _Gap) -> None:
        """What is early stays until it is read; what is late has been there since it was."""
        v = gap.tensor
        for s, following in itertools.pairwise(gap.slots):
            runs = [self.run[use.slot] for use in gap.inside if s < use.slot < following]
            keep, kept = self._kept_at(gap, s), self._kept_at(gap, following)
            if gap.loads:
                self._at_most(self.early[s, v], (self.early[following, v], kept, *runs))
            if gap.writes:
                self._at_most(self.late[following, v], (self.late[s, v], keep, *runs))

    def _kept_at(self, gap: _Gap, s: int) -> int:
        """The column that says whether the tensor of `gap` is kept at slot `s`."""
        lives = [use for use in (gap.begin, *gap.inside) if use is not None and use.slot < s]
        return lives[-1].keep if lives else NONE

    def _hidden(self, gaps: list[_Gap]) -> dict[int, float]:
        """Columns, with what they count in ns, that add up to the time in which transfers overlap
        computing."""
        if not gaps:
            return {}
        instance, lp = self.instance, self.lp
        problem = instance.problem
        self.tick = (problem.deadline_ns or instance.base_time_ns or 1) / 1e3
        during: dict[int, list[int]] = {}
        written: dict[int, list[int]] = {}

        def column(s: int, presence: Sequence[int]) -> int:
            """Time for which a transfer overlaps the run in slot `s`: none where no column of
            `presence` says that its tensor is there."""
            time = problem.operations[self.slots[s].operation].time_ns / self.tick
            found = lp.column(0.0, 0.0, time, integer=False)
            lp.row((found, *presence), (1, *[-time] * len(presence)), upper=0)
            during.setdefault(s, []).append(found)
            return found

        for gap in gaps:
            v, tensor = gap.tensor, problem.tensors[gap.tensor]
            if gap.writes:
                written.setdefault(v, [])
            arriving = []
            for s in gap.slots:
                keep = self._kept_at(gap, s)
                kept = [keep] if keep != NONE else []
                early = [self.early[s, v]] if gap.loads else []
                if gap.loads:
                    # What the run before the gap had in RAM has arrived.
                    begun = gap.begin is not None and keep == gap.begin.keep
                    arriving.append(column(s, early if begun else early + kept))
                if gap.writes:
                    written[v].append(column(s, [self.late[s, v], *early, *kept]))
            if gap.loads and arriving:
                time = tensor.pagein_time_ns / self.tick
                index = (*arriving, *gap.loads)
                lp.row(index, (*[1] * len(arriving), *[-time] * len(gap.loads)), upper=0)
        self._read_while_written(written, during)
        for v, columns in written.items():
            time = problem.tensors[v].pageout_time_ns / self.tick
            lp.row((*columns, self.write[v]), (*[1] * len(columns), -time), upper=0)
        for s, columns in during.items():
            time = problem.operations[self.slots[s].operation].time_ns / self.tick
            if len(columns) > 1:
                lp.row(columns, [1] * len(columns), upper=time)
        hidden = {c: self.tick for columns in during.values() for c in columns}
        # Recomputes may overlap with anything.
        for s, run in enumerate(self.run):
            if run != NONE:
                hidden[run] = float(problem.operations[self.slots[s].operation].time_ns)
        return hidden

    def _read_while_written(
        self, written: dict[int, list[int]], during: dict[int, list[int]]
    ) -> None:
        """A tensor may be written while a first run reads it, unless that takes over its buffer."""
        problem, lp = self.instance.problem, self.lp
        for v in written:
            for use in self.events[v]:
                if use.makes or not self._obligatory(use.slot):
                    continue
                k = self.slots[use.slot].operation
                if k == self.instance.n or self.instance.replacer.get(v) == k:
                    continue
                time = problem.operations[k].time_ns / self.tick
                if not time:
                    continue
                column = lp.column(0.0, 0.0, time, integer=False)
                taken = [c for (s, (_, i)), c in self.share.items() if s == use.slot and i == v]
                if taken:
                    lp.row((column, *taken), (1, *[time] * len(taken)), upper=time)
                written[v].append(column)
                during.setdefault(use.slot, []).append(column)

    def _stage(self, slot: int) -> int:
        return self.slots[slot].stage if slot >= 0 else NONE

    def _obligatory(self, slot: int) -> bool:
        return slot < 0 or self.run[slot] == NONE

    def _may_load(self, v: int) -> bool:
        return v in self.write or self.instance.stored_at_start[v]

    def _may_overwrite(self, slot: int, v: int) -> bool:
        """May an output of the slot's operation take over the buffer of `v`?"""
        if slot < 0:
            return False
        pairs = self.instance.operations[self.slots[slot].operation].inplace
        return any(i == v for _, i in pairs)

    def _at_most(self, column: int, others: Iterable[int]) -> None:
        """column <= sum of others."""
        present = [c for c in others if c != NONE]
        self.lp.row((column, *present), (1, *[-1] * len(present)), upper=0)

    def _memory(self) -> None:
        """One knapsack a slot."""
        instance, lp = self.instance, self.lp
        limit = instance.problem.ram_bytes
        self.share: dict[tuple[int, tuple[int, int]], int] = {}
        self.ram = NONE
        if self.minimise == "ram":
            self.ram = lp.column(1.0, 0.0, INF)
            self.scale = float(instance.unit)
        elif limit is None:
            return
        size = [instance.units(t.bytes) for t in instance.tensors]
        # (tensor, column) of what is in each slot only for a transfer.
        self.passing: dict[int, list[tuple[int, int]]] = {}
        for columns in (self.early, self.late):
            for (s, v), there in columns.items():
                self.passing.setdefault(s, []).append((v, there))
        position = [0] * len(size)  # index of the next event of each tensor
        active: dict[int, int] = {}  # keep column -> tensor, for what is between two events
        for v, uses in enumerate(self.events):
            if uses and uses[0].slot < 0:
                position[v] = 1
                if uses[0].keep != NONE:
                    active[uses[0].keep] = v
        for s, slot in enumerate(self.slots):
            inputs, outputs = self.operation_tensors(slot.operation)
            touched: list[tuple[int, _Event, int]] = []
            for v in (*inputs, *outputs):
                at = position[v]
                if at >= len(self.events[v]):
                    continue
                use = self.events[v][at]
                before = self.events[v][at - 1].keep if at else NONE
                active.pop(before, None)
                touched.append((v, use, before))
                position[v] = at + 1
            if not (slot.optional and self.relaxation):
                lp.label = s
                self._memory_row(s, size, active, touched)
            for v, use, _ in touched:
                if use.keep != NONE:
                    active[use.keep] = v

    def _memory_row(self, s, size, active, touched) -> None:
        instance, lp = self.instance, self.lp
        slot = self.slots[s]
        k, column = slot.operation, self.run[s]
        operation = instance.operations[k] if k < instance.n else None
        workspace = operation.workspace_bytes if operation else 0
        index, value = list(active), [size[v] for v in active.values()]
        for v, there in self.passing.get(s, ()):
            index.append(there)
            value.append(size[v])
        shared, share_value, forced = self._share_columns(s, size, touched)
        limit = instance.problem.ram_bytes
        # Tensors are whole units: what is left beside the workspace is rounded down.
        if self.minimise == "ram":
            room, penalty = 0, -instance.units(-workspace)
        else:
            assert limit is not None
            room = instance.units(limit)
            penalty = room - instance.units(limit - workspace)
        inputs, outputs = self.operation_tensors(k)
        if column == NONE:
            room -= penalty + sum(size[v] for v in (*inputs, *outputs)) - forced
            if self.minimise != "ram":
                best = room + sum(share_value)
                for c, weight in zip(index, value, strict=True):
                    if weight > best:
                        lp.fix(c, 0.0)
        else:
            weight = penalty + sum(size[v] for v in outputs)
            if weight:
                index.append(column)
                value.append(weight)
            for v, use, before in touched:
                index += [c for c in (before, use.load) if c != NONE]
                value += [size[v]] * sum(c != NONE for c in (before, use.load))
        if self.minimise == "ram":
            weights = (*value, *(-w for w in share_value))
            self._floor(self.ram, (*index, *shared), weights, -room)
        elif sum(value) > room:
            lp.row((*index, *shared), (*value, *(-w for w in share_value)), upper=room)

    def _share_columns(self, s, size, touched) -> tuple[list[int], list[int], int]:
        """Columns and sizes of the in-place pairs of a slot, and the units that must be shared."""
        k = self.slots[s].operation
        if k == self.instance.n:
            return [], [], 0
        after = {v: use.keep for v, use, _ in touched}
        columns, sizes, forced = [], [], 0
        pairs = dict.fromkeys(self.instance.operations[k].inplace)
        replaced = {v for o, i in pairs if self.instance.tensors[o].replaces == i for v in (o, i)}
        for o, i in pairs:
            if self.instance.tensors[o].replaces == i:
                forced += size[o]
            elif size[o] and o not in replaced and i not in replaced:
                column = self.lp.column(integer=False)
                self.share[s, (o, i)] = column
                columns.append(column)
                sizes.append(size[o])
                if self.run[s] != NONE:
                    self._at_most(column, (self.run[s],))
                if after.get(i, NONE) != NONE:
                    self.lp.row((column, after[i]), (1, 1), upper=1)
        return columns, sizes, forced

    def _share_rows(self) -> None:
        """A tensor is in one in-place pair of a slot at a time."""
        groups: dict[tuple[int, int, int], list[int]] = {}
        for (s, (o, i)), column in self.share.items():
            groups.setdefault((s, 0, o), []).append(column)
            groups.setdefault((s, 1, i), []).append(column)
        for columns in groups.values():
            if len(columns) > 1:
                self.lp.row(columns, [1] * len(columns), upper=1)

    def _limits(self) -> None:
        """Deadline, storage, and with DMA the energy of idling."""
        instance, lp, problem = self.instance, self.lp, self.instance.problem
        if problem.storage_bytes is not None and self.write:
            self._storage(problem.storage_bytes)
        idle = problem.dma and problem.idle_power_nw > 0 and self.minimise == "energy"
        if (
            problem.deadline_ns is None
            and not idle
            and not (problem.dma and self.minimise == "time")
        ):
            return
        runs: dict[int, float] = {
            c: problem.operations[self.slots[s].operation].time_ns
            for s, c in enumerate(self.run)
            if c != NONE
        }
        transfers: dict[int, float] = {
            c: problem.tensors[v].pageout_time_ns for v, c in self.write.items()
        }
        for v, uses in enumerate(self.events):
            for use in uses:
                if use.load != NONE:
                    transfers[use.load] = problem.tensors[v].pagein_time_ns
        once = sum(o.time_ns for o in problem.operations)
        # Time in thousandths of the deadline, or of the least time there is.
        tick = (problem.deadline_ns or instance.base_time_ns or 1) / 1e3
        apart = problem.dma and not self.serial
        share = self.serial if problem.dma else 1.0
        added = {c: share * time for c, time in transfers.items()}
        sums = [(runs, once), (transfers, 0)] if apart else [(runs | added, once)]
        makespan = NONE
        if problem.dma and self.minimise in ("energy", "time"):
            per_tick = problem.idle_power_nw * 1e-9 * tick if self.minimise == "energy" else tick
            upper = 1e3 if problem.deadline_ns is not None else INF
            makespan = lp.column(per_tick / self.scale, 0.0, upper, integer=False)
        if apart and self.hidden:
            # What does not overlap takes time of its own.
            net = runs | transfers
            for c, time in self.hidden.items():
                net[c] = net.get(c, 0.0) - time
            sums.append((net, once))
        for columns, constant in sums:
            index = [c for c, time in columns.items() if time]
            value = [columns[c] / tick for c in index]
            if makespan != NONE:
                # Neither computing nor the bus can be done before the end.
                self._floor(makespan, index, value, constant / tick)
            elif problem.deadline_ns is not None:
                lp.row(index, value, upper=(problem.deadline_ns - constant) / tick)
        if makespan != NONE and self.minimise == "time":
            self._drop_costs(makespan)

    def _floor(self, column: int, index, value, constant: float) -> None:
        """sum value·x[index] + constant <= column."""
        self.derived.setdefault(column, []).append(self.lp.rows)
        self.lp.row((*index, column), (*value, -1), upper=-constant)

    def _drop_costs(self, makespan: int) -> None:
        """With DMA time does not add up: the makespan alone is the objective."""
        for column in range(self.lp.columns):
            if column != makespan:
                self.lp.cost[column] = 0.0
        self.lp.offset = 0.0

    def _storage(self, limit: int) -> None:
        """What is written fits beside what is there at the start."""
        instance = self.instance
        room = limit - sum(
            instance.tensors[v].bytes for v, there in enumerate(instance.stored_at_start) if there
        )
        unit = instance.unit
        value = [instance.tensors[v].bytes // unit for v in self.write]
        self.lp.row(list(self.write.values()), value, upper=room // unit)

    # Between points of the model and sequences of events.

    def sequence(self, x: np.ndarray) -> list[Event]:
        """The runs and page-ins of a point, rounded."""
        loads: list[list[int]] = [[] for _ in self.slots]
        for v, uses in enumerate(self.events):
            before = -1
            for use in uses:
                if use.load != NONE and x[use.load] > 0.5:
                    loads[self._issued(v, before, use.slot, x)].append(v)
                before = use.slot
        result: list[Event] = []
        for s, slot in enumerate(self.slots):
            result += [Load(v) for v in loads[s]]
            used = self._obligatory(s) or x[self.run[s]] > 0.5
            if used and slot.operation < self.instance.n:
                result.append(Run(slot.operation))
        return result

    def _issued(self, v: int, before: int, slot: int, x: np.ndarray) -> int:
        """The slot before which `v` is paged in for `slot`: as many first runs earlier as it is in
        RAM for that, but after the slot `before`."""
        issued = slot
        for s in range(slot - 1, before, -1):
            if (s, v) in self.early:
                if x[self.early[s, v]] <= 0.5:
                    break
                issued = s
        return issued

    def point(self, sequence: Sequence[Event]) -> np.ndarray | None:
        """The point of a sequence, or None where the slots cannot express it or a row is broken.

        Recomputes take the slot of the stage they fall in, whatever their order in it.
        """
        instance = self.instance
        kept, _ = prune(instance, sequence)
        where = {(slot.stage, slot.operation): s for s, slot in enumerate(self.slots)}
        x = np.zeros(self.lp.columns)
        used = {-1}
        waiting: list[int] = []
        loads: set[tuple[int, int]] = set()
        for event, stage in zip(kept, stages(instance.n, kept), strict=True):
            if isinstance(event, Load):
                waiting.append(event.tensor)
                continue
            s = where.get((stage, event.operation))
            if s is None or s in used:
                return None
            used.add(s)
            read = [v for v in waiting if v in instance.inputs[event.operation]]
            waiting = [v for v in waiting if v not in read]
            loads |= {(v, s) for v in read}
        end = len(self.slots) - 1
        used.add(end)
        loads |= {(v, end) for v in waiting}
        for s in used:
            if self.run[s] != NONE:
                x[self.run[s]] = 1.0
        for v, uses in enumerate(self.events):
            # Backwards: is v wanted in RAM after this event, and is it to come by a page-in?
            wanted = loading = False
            for use in reversed(uses):
                if use.keep != NONE:
                    x[use.keep] = float(wanted)
                if use.slot in used:
                    wanted, loading = not use.makes, (v, use.slot) in loads
                if wanted and loading and use.load != NONE:
                    x[use.load] = 1.0
                    wanted = loading = False
            if wanted:
                return None
            if v in self.write and (instance.must_store[v] or any((v, s) in loads for s in used)):
                x[self.write[v]] = 1.0
        self._complete(x, used)
        return x if violation(self.lp, x) <= 1e-6 else None

    def _complete(self, x: np.ndarray, used: set[int]) -> None:
        """Fills in the columns that follow from the others."""
        lp = self.lp
        taken: set[tuple[int, int]] = set()
        after = {
            (v, use.slot): use.keep
            for v, uses in enumerate(self.events)
            for use in uses
            if use.keep != NONE
        }
        by_size = sorted(
            self.share.items(), key=lambda item: -self.instance.tensors[item[0][1][0]].bytes
        )
        for (s, (o, i)), column in by_size:
            kept = (i, s) in after and x[after[i, s]] > 0.5
            if s in used and not kept and not {(s, o), (s, ~i)} & taken:
                taken |= {(s, o), (s, ~i)}
                x[column] = 1.0
        for column, rows in self.derived.items():
            for row in rows:
                begin, end = lp.starts[row], lp.starts[row + 1] - 1
                terms = zip(lp.index[begin:end], lp.value[begin:end], strict=True)
                rest = sum(weight * x[j] for j, weight in terms) - lp.row_upper[row]
                x[column] = max(x[column], rest)


def violation(lp: LinearProgram, x: np.ndarray) -> float:
    """The most by which `x` breaks a row or a bound."""
    worst = max(
        float(np.max(np.array(lp.lower) - x, initial=0.0)),
        float(np.max(x - np.array(lp.upper), initial=0.0)),
    )
    starts = np.array(lp.starts)
    terms = np.append(np.array(lp.value) * x[np.array(lp.index, dtype=int)], 0.0)
    sums = np.add.reduceat(terms, starts[:-1]) if lp.rows else np.zeros(0)
    sums[np.diff(starts) == 0] = 0.0
    worst = max(worst, float(np.max(np.array(lp.row_lower) - sums, initial=0.0)))
    return max(worst, float(np.max(sums - np.array(lp.row_upper), initial=0.0)))
