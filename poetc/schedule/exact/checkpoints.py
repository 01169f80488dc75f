"""A lower bound for problems too large for the slots of `milp.py`: it looks at RAM in a few stages.

Chosen are *checkpoints*, stages in which keeping everything exceeds the RAM most. For each a binary
says what lies in RAM while its operation runs for the first time, and for each span from one
checkpoint to the next binaries say which operations run again and which tensors are paged in:

    in[j, v]    <= in[j − 1, v] + again[j, maker of v] + load[j, v]
    1           <= the same                 an operation that runs first in the span reads v
    again[j, k] <= the same                 k reads v
    load[j, v]  <= write[v]
    what lies in RAM at a checkpoint + what its operation needs <= ram

for what exists at the checkpoint where the span begins; what is made later in the span is there for
nothing. Any schedule gives a point of the same or less energy, so the optimum is a bound. Further
away from what is alive than `DEPTH` edges, tensors count as there for nothing as well.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from poetc.schedule.exact.highs import LinearProgram, Outcome, solve_lp, solve_mip
from poetc.schedule.heuristics.timeline import Timeline
from poetc.schedule.model.clock import Effort
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Place
from poetc.schedule.model.rebuild import share

# The objective is scaled so that the energy that no schedule can avoid is this much.
SCALE = 1e4
# Work to build the model, for each entry of its matrix.
BUILD = 5e-6


def choose(instance: Instance, ram_bytes: int, most: int) -> list[int]:
    """At most `most` stages in which the schedule that keeps everything exceeds the RAM, by the
    excess, and apart from each other as far as that allows."""
    excess = Timeline(instance, ram_bytes).excess[: instance.n].astype(float)
    over = int((excess > 0).sum())
    apart = max(1, over // (2 * most) if most else 1)
    chosen: list[int] = []
    while len(chosen) < most and excess.size and excess.max() > 0:
        t = int(np.argmax(excess))
        chosen.append(t)
        excess[max(0, t - apart + 1) : t + apart] = 0
    return sorted(chosen)


class Checkpoints:
    """The model. Energies above `overhead` nJ are left out for one recompute or page-in, as a
    schedule that spends less than that beyond the least energy has none."""

    def __init__(
        self, instance: Instance, stages: list[int], overhead: float, depth: int | None = None
    ) -> None:
        self.instance, self.overhead = instance, overhead
        self.depth = instance.params.checkpoint_depth if depth is None else depth
        self.lp = LinearProgram()
        self.scale = (instance.base_energy or 1.0) / SCALE
        self.lp.offset = instance.base_energy / self.scale
        self.size = [instance.units(t.bytes) for t in instance.tensors]
        self.write: dict[int, int] = {}
        self.made = [-1 if k is None else k for k in instance.producer]
        before: dict[int, int] = {}
        start = -1
        for stage in [*stages, instance.n]:
            before = self._span(start, stage, before)
            start = stage

    def value(self, objective: float) -> float:
        """An objective value in nJ."""
        return objective * self.scale

    def _span(self, start: int, stage: int, before: dict[int, int]) -> dict[int, int]:
        """Adds the span of the stages after `start` to `stage` and the checkpoint at its end.
        `before` are the columns of what may lie in RAM at `start`; returns those at `stage`."""
        instance, lp = self.instance, self.lp
        n, tensors = instance.n, instance.tensors
        at_start = set(self._held(start))
        wanted = [
            v
            for t in range(start + 1, stage + 1)
            for v in instance.inputs[t]
            if self._exists(v, start)
        ]
        later = [
            v
            for v in range(len(tensors))
            if self._exists(v, start)
            and (any(r > stage for r in instance.readers[v]) or tensors[v].end is Place.RAM)
        ]
        # Tensors whose presence is followed, with how far they are from what must be there.
        near = dict.fromkeys((*wanted, *later), 0)
        front = list(near)
        for distance in range(1, self.depth + 1):
            makers = dict.fromkeys(self.made[v] for v in front)
            front = [
                i
                for k in makers
                if k >= 0 and self._again(k, start)
                for i in instance.inputs[k]
                if self._exists(i, start) and i not in near
            ]
            near |= dict.fromkeys(front, distance)

        again: dict[int, int] = {}
        load: dict[int, int] = {}
        for v, distance in near.items():
            k = self.made[v]
            if k >= 0 and k not in again and distance < self.depth and self._again(k, start):
                again[k] = lp.column(instance.run_energy[k] / self.scale)
            if instance.pageable[v]:
                self._load(v, load)

        def sources(v: int) -> list[int]:
            found = [before[v]] if v in before else []
            found += [again[self.made[v]]] if self.made[v] in again else []
            return found + ([load[v]] if v in load else [])

        def there(v: int) -> bool:
            """Is `v` there in any case?"""
            if v in at_start or not self._exists(v, start) or v not in near:
                return True
            # Too far away to be followed.
            return near[v] == self.depth and v not in before

        for v in dict.fromkeys(wanted):
            if not there(v):
                columns = sources(v)
                lp.row(columns, [1] * len(columns), lower=1)
        for k, column in again.items():
            for i in instance.inputs[k]:
                if not there(i):
                    columns = sources(i)
                    lp.row((column, *columns), (1, *[-1] * len(columns)), upper=0)
        if stage == n:
            return {}
        held = set(self._held(stage))
        after: dict[int, int] = {}
        operation = instance.operations[stage]
        for v in range(len(tensors)):
            new = self.made[v] > start and self.made[v] < stage
            if v in held or not (new or v in near) or not self._of_use(v, stage):
                continue
            after[v] = lp.column()
            if not new and not there(v):
                columns = sources(v)
                lp.row((after[v], *columns), (1, *[-1] * len(columns)), upper=0)
        ram_bytes = instance.problem.ram_bytes
        if ram_bytes is not None:
            pairs = share(instance.problem, stage, set(operation.inputs))
            needed = sum(tensors[v].bytes for v in held) + operation.workspace_bytes
            room = instance.units(ram_bytes - needed + sum(tensors[o].bytes for o, _ in pairs))
            for v, column in after.items():
                if self.size[v] > room:
                    lp.fix(column, 0.0)
            lp.row(list(after.values()), [self.size[v] for v in after], upper=room)
        return after

    def _held(self, stage: int) -> tuple[int, ...]:
        """The tensors surely in RAM while the operation of `stage` runs for the first time."""
        if stage < 0:
            return tuple(v for v, t in enumerate(self.instance.tensors) if t.start is Place.RAM)
        operation = self.instance.operations[stage]
        return tuple(dict.fromkeys((*operation.inputs, *operation.outputs)))

    def _exists(self, v: int, stage: int) -> bool:
        return self.made[v] <= stage

    def _again(self, k: int, start: int) -> bool:
        """May `k`, which has run by `start`, run again later, for no more than the overhead?"""
        instance = self.instance
        possible = k <= start and instance.last_recompute[k] > start
        return possible and instance.run_energy[k] <= self.overhead

    def _of_use(self, v: int, stage: int) -> bool:
        """May anything read `v` after `stage`?"""
        instance = self.instance
        if instance.tensors[v].end is Place.RAM:
            return True
        return any(r > stage or self._again(r, stage) for r in instance.readers[v])

    def _load(self, v: int, load: dict[int, int]) -> None:
        instance, lp = self.instance, self.lp
        due = instance.must_store[v] or instance.stored_at_start[v]
        price = instance.in_energy[v] + (0.0 if due else instance.out_energy[v])
        # The first page-in of what starts on storage is in the energy that no schedule avoids.
        if instance.stored_at_start[v]:
            load[v] = lp.column(0.0)
            return
        if price > self.overhead:
            return
        load[v] = lp.column(instance.in_energy[v] / self.scale)
        if not due:
            if v not in self.write:
                self.write[v] = lp.column(instance.out_energy[v] / self.scale)
            lp.row((load[v], self.write[v]), (1, -1), upper=0)


def relax(model: Checkpoints, effort: Effort) -> Outcome:
    """The LP relaxation of the model."""
    return solve_lp(model.lp, effort)


def bound(
    model: Checkpoints,
    effort: Effort,
    gap: float,
    enough_nj: float,
    on_bound: Callable[[float], object],
) -> Outcome:
    """Branch and bound on the model, up to a bound of `enough_nj`; `on_bound` is told energies in
    nJ."""
    return solve_mip(
        model.lp,
        effort,
        relative_gap=gap,
        enough=enough_nj / model.scale,
        on_bound=lambda objective: on_bound(model.value(objective)),
    )
