"""`poet`: the model of the POET paper (Patil et al., ICML 2022, Algorithm 1), unchanged.

Stage t ends with the first run of operation t. Binaries per stage: R (run), S (in RAM at its
start), A (on storage), M_in (paged in during the stage, in RAM at the start of the next), M_out
(paged out). Memory is Checkmate's running sum U with FREE (Jain et al., MLSys 2020, equations 2 and
3).

The paper knows one result per operation and nothing about where tensors start and end. Carried over
to our problems: S, A and M are per tensor; a stage before the first lets tensors that start on
storage be paged in, one after the last lets tensors that must end there be paged out (neither
exists in the paper's own problems); an updated parameter takes its old value's buffer; other
in-place pairs are not used by the model.

The paper's deadline counts computing only, ours also counts transfers. The model is first solved as
it is; if the result misses our deadline it is solved again with the transfers in that row.
"""

from __future__ import annotations

import numpy as np

from poetc.schedule.exact.highs import LinearProgram, solve_mip
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Place
from poetc.schedule.model.rebuild import Event, Load, Run
from poetc.schedule.search.state import Search
from poetc.schedule.strategies import strategy

SCALE = 1e4


@strategy()
def poet(search: Search) -> bool:
    """Solves the model; True when it is proven to have no point.

    The bound of this model is no bound on what other schedules can do, so it only goes to the log.
    """
    if search.finished and search.steps is not None:
        return False
    counts = [False, True] if search.instance.problem.deadline_ns is not None else [False]
    infeasible = False
    for transfers in counts:
        model = _Model(search.instance, transfers)
        outcome = solve_mip(
            model.lp,
            search.part(),
            relative_gap=search.gap,
            on_point=lambda x, model=model: search.offer(model.sequence(x), "poet"),
        )
        search.note(
            f"poet model: {outcome.status}, its own bound {outcome.bound * model.scale:.6g} nJ"
        )
        infeasible = outcome.infeasible
        if outcome.x is not None:
            search.offer(model.sequence(outcome.x), "poet")
            if search.steps is not None:
                break
    return infeasible and search.steps is None


class _Model:
    """The columns by (stage, operation or tensor); stage −1 is before the first run, stage n after
    the last. What does not exist is 0."""

    def __init__(self, instance: Instance, transfers_count: bool) -> None:
        self.instance = instance
        self.lp = LinearProgram()
        self.n = instance.n
        self.scale = (instance.base_energy or 1.0) / SCALE
        self.one = self.lp.column(lower=1.0)
        self.R: dict[tuple[int, int], int] = {}
        self.S: dict[tuple[int, int], int] = {}
        self.A: dict[tuple[int, int], int] = {}
        self.M_in: dict[tuple[int, int], int] = {}
        self.M_out: dict[tuple[int, int], int] = {}
        self._columns()
        self._flow()
        self._memory()
        self._limits(transfers_count)

    def _columns(self) -> None:
        instance, n, lp = self.instance, self.n, self.lp
        for t in range(n):
            for k in range(t + 1):
                if k == t or instance.last_recompute[k] > k:
                    self.R[t, k] = lp.column(
                        instance.run_energy[k] / self.scale, lower=float(k == t)
                    )
        for v, tensor in enumerate(instance.tensors):
            producer = instance.producer[v]
            born = -1 if producer is None else producer
            gone = instance.replacer.get(v, n + 1)  # not in RAM at the start of a later stage
            for t in range(born + (producer is not None), n + 2):
                if producer is None and t == -1:
                    if tensor.start is Place.RAM:
                        self.S[-1, v] = self.one
                elif t <= gone and t > born:
                    required = t == n + 1 and tensor.end is Place.RAM
                    self.S[t, v] = lp.column(lower=float(required))
            if not instance.pageable[v]:
                continue
            for t in range(born + (producer is not None), n + 1):
                if t < gone:
                    self.M_in[t, v] = lp.column(instance.in_energy[v] / self.scale)
                if (t, v) in self.S and not instance.stored_at_start[v]:
                    self.M_out[t, v] = lp.column(instance.out_energy[v] / self.scale)
            for t in range(born, n + 2):
                if instance.stored_at_start[v]:
                    self.A[t, v] = self.one
                elif t > born:
                    required = t == n + 1 and tensor.end is Place.STORAGE
                    self.A[t, v] = lp.column(lower=float(required))

    def _at_most(self, column: int | None, *others: int | None) -> None:
        """column <= sum of others, where None is 0."""
        if column is None or (column == self.one and self.one in others):
            return
        present = [c for c in others if c is not None]
        self.lp.row((column, *present), (1, *[-1] * len(present)), upper=0)

    def _flow(self) -> None:
        instance, R, S, A, M_in, M_out = (
            self.instance,
            self.R,
            self.S,
            self.A,
            self.M_in,
            self.M_out,
        )
        for (t, k), column in R.items():
            for v in instance.inputs[k]:
                producer = instance.producer[v]
                made = R.get((t, producer)) if producer is not None else None
                self._at_most(column, S.get((t, v)), made)
        for (t, v), column in S.items():
            producer = instance.producer[v]
            if t > -1:
                made = R.get((t - 1, producer)) if producer is not None else None
                self._at_most(column, S.get((t - 1, v)), made, M_in.get((t - 1, v)))
        for (t, v), column in A.items():
            if column != self.one:
                self._at_most(column, A.get((t - 1, v)), M_out.get((t - 1, v)))
        for (t, v), column in M_in.items():
            self._at_most(column, A.get((t, v)))
        for (t, v), column in M_out.items():
            self._at_most(column, S.get((t, v)))

    def _memory(self) -> None:
        """U as a running sum: a column for each (stage, operation), equal to the one before it plus
        what is made less what was freed."""
        instance, lp = self.instance, self.lp
        limit = instance.problem.ram_bytes
        if limit is None:
            return
        size = [instance.units(t.bytes) for t in instance.tensors]
        room = instance.units(limit)
        for t in range(self.n + 2):
            # In RAM at the start of the stage.
            before = {column: float(size[v]) for (s, v), column in self.S.items() if s == t}
            lp.row(list(before), list(before.values()), upper=room)
            for k in range(min(t + 1, self.n)):
                column = self.R.get((t, k))
                if column is None:
                    continue
                operation = instance.operations[k]
                made = sum(size[v] for v in operation.outputs)
                shared = sum(
                    size[v] for v in operation.outputs if instance.tensors[v].replaces is not None
                )
                workspace = room - instance.units(limit - operation.workspace_bytes)
                total = lp.column(0.0, 0.0, float(room), integer=False)
                rows = {**before, column: before.get(column, 0.0) + made - shared, total: -1.0}
                lp.row(list(rows), list(rows.values()), lower=0, upper=0)
                if workspace:
                    lp.row((total, column), (1, workspace), upper=room)
                before = {total: 1.0}
                replaced = {instance.tensors[v].replaces for v in operation.outputs}
                for v in {*instance.inputs[k], *operation.outputs} - replaced:
                    free = self._free(t, v, k)
                    if size[v]:
                        before[free] = -float(size[v])

    def _free(self, t: int, v: int, k: int) -> int:
        """FREE[t, v, k]: k runs in stage t, nothing after it in the stage reads v, v is not
        kept."""
        free = self.lp.column()
        self._at_most(free, self.R[t, k])
        hazards = [self.S.get((t + 1, v))]
        hazards += [self.R.get((t, j)) for j in self.instance.readers[v] if k < j <= t]
        for hazard in hazards:
            if hazard is not None:
                self.lp.row((free, hazard), (1, 1), upper=1)
        return free

    def _limits(self, transfers_count: bool) -> None:
        instance, problem, lp = self.instance, self.instance.problem, self.lp
        if problem.deadline_ns is not None:
            tick = max(problem.deadline_ns, 1) / 1e3
            times = {c: problem.operations[k].time_ns for (_, k), c in self.R.items()}
            if transfers_count:
                times |= {c: problem.tensors[v].pagein_time_ns for (_, v), c in self.M_in.items()}
                times |= {c: problem.tensors[v].pageout_time_ns for (_, v), c in self.M_out.items()}
            lp.row(list(times), [time / tick for time in times.values()], upper=1e3)
        if problem.storage_bytes is not None:
            used = sum(
                instance.stored_bytes[v]
                for v, stored in enumerate(instance.stored_at_start)
                if stored
            )
            pages = {c: float(instance.stored_bytes[v]) for (_, v), c in self.M_out.items()}
            lp.row(list(pages), list(pages.values()), upper=problem.storage_bytes - used)

    def sequence(self, x: np.ndarray) -> list[Event]:
        """The runs and page-ins of a point, rounded."""
        result: list[Event] = []
        for t in range(-1, self.n + 1):
            result += [
                Run(k)
                for k in range(min(t + 1, self.n))
                if (column := self.R.get((t, k))) is not None and x[column] > 0.5
            ]
            result += [
                Load(v)
                for v in range(len(self.instance.tensors))
                if (column := self.M_in.get((t, v))) is not None and x[column] > 0.5
            ]
        return result
