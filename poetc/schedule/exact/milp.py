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
- `share[s, p]` the in-place pair p is used in slot s;
- a column for each way in which the operation of a slot with variants may run (`choices.py`). Their
  sum is the run, and the rows below hold for those that have v resident. For those that stream v
  in: way <= write[v] + earlier ways that stream it out, of which there is one at most.

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

from poetc.schedule.exact.choices import Choices
from poetc.schedule.exact.highs import INF, LinearProgram
from poetc.schedule.exact.knapsacks import Knapsacks
from poetc.schedule.exact.limits import limit_rows
from poetc.schedule.exact.overlap import Overlap
from poetc.schedule.exact.slots import NONE, Slot, Use
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Place

# The objective is scaled so that the energy that no schedule can avoid is this much.
SCALE = 1e4


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
        # Of an operation with variants those of the cheapest way.
        if minimise == "energy":
            base = instance.base_energy
            self.costs = instance.least_run_energy, instance.in_energy, instance.out_energy
        elif minimise == "time":
            base = float(instance.base_time_ns)
            self.costs = (
                instance.least_run_time_ns,
                [t.pagein_time_ns for t in problem.tensors],
                [t.pageout_time_ns for t in problem.tensors],
            )
        else:
            base = float(instance.unit) * SCALE
            self.costs = [0] * n, [0] * len(problem.tensors), [0] * len(problem.tensors)
        # Cost of one unit of the objective; the offset is in units as well.
        self.scale = (base or 1.0) / SCALE
        self._columns()
        # The model of overlap, None where it is not counted.
        overlap = overlap and problem.dma and instance.params.overlap
        self.overlap = Overlap(self) if overlap else None
        memory = Knapsacks(self)
        self.share, self.ram = memory.share, memory.ram
        self.lp.label = NONE
        self.hidden = {} if self.overlap is None else self.overlap.hidden()
        limit_rows(self)

    def value(self, objective: float) -> float:
        """An objective value of the model in nJ, ns or bytes."""
        return objective * self.scale

    # Columns and the rows that tie them together.

    def operation_tensors(self, k: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        outputs = self.instance.operations[k].outputs if k < self.instance.n else ()
        return self.instance.inputs[k], outputs

    def _columns(self) -> None:
        instance, lp = self.instance, self.lp
        tensors, overhead = instance.tensors, self.overhead
        run_cost, in_cost, out_cost = self.costs
        events: list[list[Use]] = [
            [Use(-1, True)] if tensor.start is Place.RAM else [] for tensor in tensors
        ]
        for s, slot in enumerate(self.slots):
            inputs, outputs = self.operation_tensors(slot.operation)
            for v in inputs:
                events[v].append(Use(s, False))
            for v in outputs:
                events[v].append(Use(s, True))
        for uses in events:
            while uses and uses[-1].makes and len(uses) > 1:
                uses.pop()
        self.events = events

        self.run = [
            lp.column(run_cost[slot.operation] / self.scale) if slot.optional else NONE
            for slot in self.slots
        ]
        lp.offset += sum(run_cost) / self.scale
        self.choices = Choices(self)
        self.write: dict[int, int] = {}
        for v in range(len(tensors)):
            if instance.stored_at_start[v] or not instance.pageable[v]:
                continue
            due = instance.must_store[v]
            least = instance.out_energy[v]
            if not any(v in instance.may_stream[k] for k in instance.readers[v]):
                least += instance.in_energy[v]
            if not due and least > overhead:
                continue
            self.write[v] = lp.column(out_cost[v] / self.scale)
            if due and v not in self.choices.supplies:
                lp.fix(self.write[v], 1.0)
        self.choices.written_once()
        add = self._tensor_relaxed if self.relaxation else self._tensor
        for v, uses in enumerate(events):
            add(v, uses, in_cost[v] / self.scale)

    def _paged(self, columns: Sequence[int], v: int, slot: int) -> None:
        """The row: what columns say of `v`, at most one of them, needs its page before a slot."""
        pages = self.choices.pages(v, slot)
        if pages is not None:
            self.lp.row((*columns, *pages), (*[1] * len(columns), *[-1] * len(pages)), upper=0)

    def _wanted(self, columns: Sequence[int] | None, sources: Iterable[int]) -> None:
        """The row: what columns say, at most one of them, or what is certain (None), needs one of
        the sources, of which those below 0 are none."""
        present = [c for c in sources if c != NONE]
        if columns is None:
            self.lp.row(present, [1] * len(present), lower=1)
        else:
            values = (*[1] * len(columns), *[-1] * len(present))
            self.lp.row((*columns, *present), values, upper=0)

    def _tensor(self, v: int, uses: list[Use], load_cost: float) -> None:
        lp, run, choices = self.lp, self.run, self.choices
        before = NONE
        previous = None
        for index, use in enumerate(uses):
            last = index + 1 == len(uses)
            lp.label = use.slot
            use.keep = NONE if last else lp.column()
            after = use.keep
            obligatory = self.obligatory(use.slot)
            column = NONE if obligatory else run[use.slot]
            if use.makes:
                if before != NONE:
                    lp.row((before, column), (1, 1), upper=1)
                made = choices.resident(use.slot, v)
                if after != NONE and made is not None:
                    self.lp.at_most(after, (before, *made))
            else:
                # No slot lies between this event and the one before, which does not overwrite v: v
                # could as well be kept, or be paged in there.
                adjacent = (
                    previous is not None
                    and previous.slot + 1 == use.slot
                    and (not previous.makes or self.obligatory(previous.slot))
                    and not self._may_overwrite(previous.slot, v)
                    and not choices.movable(previous.slot, v)
                )
                if self.may_load(v) and not adjacent:
                    use.load = lp.column(load_cost)
                    self._paged((use.load,), v, use.slot)
                sources = (before, use.load)
                self._wanted(choices.resident(use.slot, v), sources)
                streaming = choices.streaming(use.slot, v)
                if streaming:
                    self._paged(streaming, v, use.slot)
                if after != NONE:
                    self.lp.at_most(after, sources)
            before, previous = after, use

    def _tensor_relaxed(self, v: int, uses: list[Use], load_cost: float) -> None:
        lp, before, choices = self.lp, NONE, self.choices
        for stage, group in itertools.groupby(uses, lambda use: self._stage(use.slot)):
            present = list(group)
            last = present[-1]
            # In RAM at some time in the stage: kept from before, paged in, or made.
            sources = [before] if before != NONE else []
            reads = [use for use in present if not use.makes]
            lp.label = last.slot
            if reads and stage >= 0 and self.may_load(v):
                reads[0].load = lp.column(load_cost)
                sources.append(reads[0].load)
                self._paged((reads[0].load,), v, reads[-1].slot)
            certain = False
            for use in present:
                lp.label = use.slot
                resident = choices.resident(use.slot, v)
                if use.makes:
                    certain = certain or resident is None
                    sources += resident or []
                    continue
                streaming = choices.streaming(use.slot, v)
                if streaming:
                    self._paged(streaming, v, use.slot)
                if certain:
                    continue
                pages = choices.pages(v, use.slot) if choices.open(use.slot, v) else []
                if pages is not None:
                    # A recompute that makes it may stream it out.
                    self._wanted(resident, dict.fromkeys((*sources, *pages)))
            before = NONE
            if last is not uses[-1]:
                before = last.keep = lp.column()
                if not certain:
                    self.lp.at_most(before, sources)

    def _stage(self, slot: int) -> int:
        return self.slots[slot].stage if slot >= 0 else NONE

    def obligatory(self, slot: int) -> bool:
        return slot < 0 or self.run[slot] == NONE

    def may_load(self, v: int) -> bool:
        stored = v in self.write or v in self.choices.supplies
        return stored or self.instance.stored_at_start[v]

    def _may_overwrite(self, slot: int, v: int) -> bool:
        """May an output of the slot's operation take over the buffer of `v`?"""
        if slot < 0:
            return False
        pairs = self.instance.operations[self.slots[slot].operation].inplace
        return any(i == v for _, i in pairs)

    def floor(
        self, column: int, index: Sequence[int], value: Sequence[float], constant: float
    ) -> None:
        """sum value·x[index] + constant <= column."""
        self.derived.setdefault(column, []).append(self.lp.rows)
        self.lp.row((*index, column), (*value, -1), upper=-constant)
