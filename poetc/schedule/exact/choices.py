"""How the operation of a slot runs: one binary for each way, in a model of slots.

An operation without variants has no such column: its run is the only way. In a relaxation,
recomputes have none either: they cost what the cheapest way does, and what any way streams may be
in RAM or on storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from poetc.schedule.exact.slots import NONE
from poetc.schedule.model.problem import Variant

if TYPE_CHECKING:
    from poetc.schedule.exact.milp import SlotModel


class Choices:
    """The columns of the ways, `columns[s]` by the number of the variant (None: as it is), and what
    they mean for the tensors that the operation of the slot makes or reads."""

    def __init__(self, model: SlotModel) -> None:
        self.model = model
        self.columns: dict[int, dict[int | None, int]] = {}
        # For each tensor the columns of what streams it out, with their slots, in order.
        self.supplies: dict[int, list[tuple[int, int]]] = {}
        instance, lp = model.instance, model.lp
        for s, slot in enumerate(model.slots):
            k, run = slot.operation, model.run[s]
            if k == instance.n or instance.runs_as_it_is(k):
                continue
            outputs = dict.fromkeys(instance.operations[k].outputs)
            if model.relaxation and run != NONE:
                for v in outputs:
                    if v in instance.may_stream[k]:
                        self.supplies.setdefault(v, []).append((s, run))
                continue
            costs = {number: self._cost(way) for number, way in instance.ways[k].items()}
            least = min(costs.values())
            most = model.overhead - (least if run != NONE else 0.0)
            columns: dict[int | None, int] = {}
            for number, way in instance.ways[k].items():
                more = costs[number] - least
                column = columns[number] = lp.column(more / model.scale)
                if model.minimise == "energy" and more > most:
                    lp.fix(column, 0.0)
                for v in outputs:
                    if v in way.streamed:
                        self.supplies.setdefault(v, []).append((s, column))
            self.columns[s] = columns
            lp.label = s
            chosen = list(columns.values())
            if run == NONE:
                lp.row(chosen, [1] * len(chosen), lower=1, upper=1)
            else:
                lp.row((*chosen, run), (*[1] * len(chosen), -1), lower=0, upper=0)
        lp.label = NONE

    def _cost(self, way: Variant) -> float:
        minimise = self.model.minimise
        if minimise == "energy":
            return self.model.instance.way_energy(way)
        return float(way.time_ns) if minimise == "time" else 0.0

    def ways(self, s: int) -> list[tuple[int, Variant]]:
        """The columns of slot `s` and what they stand for."""
        ways = self.model.instance.ways[self.model.slots[s].operation]
        return [(column, ways[number]) for number, column in self.columns[s].items()]

    def resident(self, s: int, v: int) -> list[int] | None:
        """The columns of which at most one says that slot `s` runs with `v` in RAM; None where that
        is certain."""
        if s in self.columns and v in self._movable(s):
            return [column for column, way in self.ways(s) if v not in way.streamed]
        run = NONE if s < 0 else self.model.run[s]
        return None if run == NONE else [run]

    def streaming(self, s: int, v: int) -> list[int]:
        """The columns that say that slot `s` streams `v`."""
        if s not in self.columns:
            return []
        return [column for column, way in self.ways(s) if v in way.streamed]

    def open(self, s: int, v: int) -> bool:
        """Whether the model leaves it open if `v` is in RAM or streamed in slot `s`."""
        return s >= 0 and s not in self.columns and v in self._movable(s)

    def _movable(self, s: int) -> frozenset[int]:
        k = self.model.slots[s].operation
        instance = self.model.instance
        return instance.may_stream[k] if k < instance.n else frozenset()

    def movable(self, s: int, v: int) -> bool:
        """May slot `s` stream `v`?"""
        return s >= 0 and v in self._movable(s)

    def pages(self, v: int, s: int) -> list[int] | None:
        """The columns of which one is there if `v` has a page before slot `s`; None where it has
        one from the start."""
        model = self.model
        if model.instance.stored_at_start[v]:
            return None
        write = [model.write[v]] if v in model.write else []
        return write + [column for slot, column in self.supplies.get(v, ()) if slot < s]

    def written_once(self) -> None:
        """Rows: a tensor is paged out, or streamed out by one run."""
        model = self.model
        for v, supplies in self.supplies.items():
            write = [model.write[v]] if v in model.write else []
            exact = [column for slot, column in supplies if slot in self.columns]
            if len(write) + len(exact) > 1:
                columns = [*write, *exact]
                model.lp.row(columns, [1] * len(columns), upper=1)
            if model.instance.must_store[v]:
                columns = [*write, *(column for _, column in supplies)]
                model.lp.row(columns, [1] * len(columns), lower=1)
