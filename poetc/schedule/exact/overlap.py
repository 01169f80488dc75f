"""With DMA: what of the transfers overlaps computing.

A transfer overlaps the first run of an operation only where its tensor is in RAM meanwhile: kept,
read by it while being written, or there only for the transfer, for which there are columns here.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poetc.schedule.exact.slots import NONE, Use

if TYPE_CHECKING:
    from poetc.schedule.exact.milp import SlotModel


@dataclass(frozen=True)
class _Gap:
    """The slots between two obligatory uses of a tensor (None: the start or the end): the uses
    there and at the end, the columns of its page-ins among them, and the first runs between. With
    `writes` it may be written there."""

    tensor: int
    begin: Use | None
    inside: tuple[Use, ...]
    loads: tuple[int, ...]
    slots: tuple[int, ...]
    writes: bool


class Overlap:
    """The columns and rows of a model about what overlaps.

    `early[s, v]`, `late[s, v]`: v is in RAM during the first run in slot s only because it has to
    come before it is read, or is still being written. `tick` is the unit of time in rows, in ns.
    """

    def __init__(self, model: SlotModel) -> None:
        self.model = model
        problem = model.instance.problem
        self.tick = (problem.deadline_ns or model.instance.base_time_ns or 1) / 1e3
        self.early: dict[tuple[int, int], int] = {}
        self.late: dict[tuple[int, int], int] = {}
        self.gaps = self._gaps()

    def _gaps(self) -> list[_Gap]:
        """Columns for what is in RAM for a transfer: before the use that it is paged in for, or
        after the last one, while it is written."""
        model = self.model
        problem, n = model.instance.problem, model.instance.n
        first_runs = [
            s
            for s, slot in enumerate(model.slots)
            if slot.operation < n
            and not slot.optional
            and problem.operations[slot.operation].time_ns
        ]
        gaps: list[_Gap] = []
        for v, uses in enumerate(model.events):
            writes = v in model.write and problem.tensors[v].pageout_time_ns > 0
            reads = model.may_load(v) and problem.tensors[v].pagein_time_ns > 0
            if not uses or not (writes or reads):
                continue
            obligatory = [use for use in uses if model.obligatory(use.slot)]
            edges = [None, *obligatory, None]
            for begin, end in itertools.pairwise(edges):
                after = -1 if begin is None else begin.slot
                before = len(model.slots) if end is None else end.slot
                inside = [use for use in uses if after < use.slot <= before]
                loads = [use.load for use in inside if use.load != NONE] if reads else []
                if begin is None and v in model.write and uses[0].slot >= 0:
                    # It is made in the end of this gap at the earliest.
                    continue
                if not writes and not loads:
                    continue
                slots = [s for s in first_runs if after < s < before]
                for s in slots:
                    if loads:
                        self.early[s, v] = model.lp.column()
                    if writes:
                        self.late[s, v] = model.lp.column()
                gap = _Gap(v, begin, tuple(inside), tuple(loads), tuple(slots), writes)
                self._contiguous(gap)
                gaps.append(gap)
        return gaps

    def _contiguous(self, gap: _Gap) -> None:
        """An early tensor stays until it is read; a late one was there since its last read."""
        model = self.model
        v = gap.tensor
        for s, following in itertools.pairwise(gap.slots):
            runs = [model.run[use.slot] for use in gap.inside if s < use.slot < following]
            keep, kept = self._kept_at(gap, s), self._kept_at(gap, following)
            if gap.loads:
                model.lp.at_most(self.early[s, v], (self.early[following, v], kept, *runs))
            if gap.writes:
                model.lp.at_most(self.late[following, v], (self.late[s, v], keep, *runs))

    def _kept_at(self, gap: _Gap, s: int) -> int:
        """The column that says whether the tensor of `gap` is kept at slot `s`."""
        lives = [use for use in (gap.begin, *gap.inside) if use is not None and use.slot < s]
        return lives[-1].keep if lives else NONE

    def hidden(self) -> dict[int, float]:
        """Columns, with what they count in ns, that add up to the time in which transfers overlap
        computing."""
        model = self.model
        if not self.gaps:
            return {}
        problem, lp = model.instance.problem, model.lp
        during: dict[int, list[int]] = {}
        written: dict[int, list[int]] = {}

        def column(s: int, presence: Sequence[int]) -> int:
            """Time for which a transfer overlaps the run in slot `s`: none where no column of
            `presence` says that its tensor is there."""
            time = problem.operations[model.slots[s].operation].time_ns / self.tick
            found = lp.column(0.0, 0.0, time, integer=False)
            lp.row((found, *presence), (1, *[-time] * len(presence)), upper=0)
            during.setdefault(s, []).append(found)
            return found

        for gap in self.gaps:
            v, tensor = gap.tensor, problem.tensors[gap.tensor]
            if gap.writes:
                written.setdefault(v, [])
            arriving = []
            for s in gap.slots:
                keep = self._kept_at(gap, s)
                kept = [keep] if keep != NONE else []
                early = [self.early[s, v]] if gap.loads else []
                if gap.loads:
                    # The tensors that the run before the gap had in RAM have arrived.
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
            lp.row((*columns, model.write[v]), (*[1] * len(columns), -time), upper=0)
        for s, columns in during.items():
            time = problem.operations[model.slots[s].operation].time_ns / self.tick
            if len(columns) > 1:
                lp.row(columns, [1] * len(columns), upper=time)
        hidden = {c: self.tick for columns in during.values() for c in columns}
        # Recomputes may overlap with anything.
        for s, run in enumerate(model.run):
            if run != NONE:
                hidden[run] = float(problem.operations[model.slots[s].operation].time_ns)
        return hidden

    def _read_while_written(
        self, written: dict[int, list[int]], during: dict[int, list[int]]
    ) -> None:
        """A tensor may be written while a first run reads it, unless that takes over its buffer."""
        model = self.model
        problem, lp = model.instance.problem, model.lp
        for v in written:
            for use in model.events[v]:
                if use.makes or not model.obligatory(use.slot):
                    continue
                k = model.slots[use.slot].operation
                if k == model.instance.n or model.instance.replacer.get(v) == k:
                    continue
                time = problem.operations[k].time_ns / self.tick
                if not time:
                    continue
                column = lp.column(0.0, 0.0, time, integer=False)
                taken = [c for (s, (_, i)), c in model.share.items() if s == use.slot and i == v]
                if taken:
                    lp.row((column, *taken), (1, *[time] * len(taken)), upper=time)
                written[v].append(column)
                during.setdefault(use.slot, []).append(column)
