"""HiGHS with a limit that is obeyed: linear programmes in NumPy arrays, solved in a thread.

HiGHS is stopped when it has done the work that it may do. Where the clock or the user ends it, it
does not always notice at once; the waiting side then returns with the best points and bound
reported so far, whatever HiGHS is doing.
"""

from __future__ import annotations

import atexit
import math
import queue
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from poetc.schedule.model.clock import Effort

INF = math.inf
# How long HiGHS may take to notice that it should stop, seconds.
GRACE_S = 0.3
# Seconds after which the waiting side looks at what there is.
LOOK_S = 0.01
# Seconds that the end of the process waits for a HiGHS that was left behind.
EXIT_S = 10.0
# Work of a linear programme: for each entry of the matrix, for an iteration of the simplex method,
# and for each row in it.
ENTRY, ITERATION, ROW = 5e-7, 2.2e-5, 4.5e-9
# Work of a MILP: to begin, for each entry, and for each look that HiGHS takes at its limits, for
# each row, at the root and in the tree. Where there are few of either it is less: at so many, half.
# Measured up to 130,000 entries.
BEGIN, FEW_ENTRIES = 7.5e-6, 8_000
ROOT_LOOK, TREE_LOOK, FEW_ROWS = 1.4e-5, 4e-6, 1_500

_at_work: set[threading.Thread] = set()
_exiting = threading.Event()


def settle(seconds: float) -> bool:
    """Stops every HiGHS; whether all have stopped after so long."""
    _exiting.set()
    until = time.monotonic() + seconds
    for thread in list(_at_work):
        thread.join(max(until - time.monotonic(), 0.0))
    return not any(thread.is_alive() for thread in _at_work)


# One that calls back after Python has ended aborts the process.
atexit.register(settle, EXIT_S)


class LinearProgram:
    """Columns and rows as they are added; minimise `cost · x + offset`."""

    def __init__(self) -> None:
        self.cost, self.lower, self.upper = array("d"), array("d"), array("d")
        self.integer = array("b")
        self.row_lower, self.row_upper = array("d"), array("d")
        self.starts, self.index, self.value = array("i", [0]), array("i"), array("d")
        self.offset = 0.0
        # The label of each row; rows are added under the present `label`.
        self.label, self.labels = -1, array("i")

    @property
    def columns(self) -> int:
        return len(self.cost)

    @property
    def rows(self) -> int:
        return len(self.row_lower)

    def column(
        self, cost: float = 0.0, lower: float = 0.0, upper: float = 1.0, integer: bool = True
    ) -> int:
        """Adds a column (binary unless told otherwise) and returns its index."""
        self.cost.append(cost)
        self.lower.append(lower)
        self.upper.append(upper)
        self.integer.append(integer)
        return len(self.cost) - 1

    def row(
        self,
        index: Sequence[int],
        value: Sequence[float],
        lower: float = -INF,
        upper: float = INF,
    ) -> None:
        """Adds lower <= sum value·x[index] <= upper. Indices are distinct."""
        self.index.extend(index)
        self.value.extend(value)
        self.starts.append(len(self.index))
        self.row_lower.append(lower)
        self.row_upper.append(upper)
        self.labels.append(self.label)

    def at_most(self, column: int, others: Iterable[int]) -> None:
        """Adds column <= sum of others, of which those below 0 are none."""
        present = [c for c in others if c >= 0]
        self.row((column, *present), (1, *[-1] * len(present)), upper=0)

    def fix(self, column: int, value: float) -> None:
        """Fixes a column at a value."""
        self.lower[column] = self.upper[column] = value


@dataclass(frozen=True)
class Row:
    """sum value·x[index] <= upper. The label says what it belongs to; `whole` that it says
    something about whole values even where no optimum of the relaxation reaches it."""

    index: tuple[int, ...]
    value: tuple[float, ...]
    upper: float
    label: int = -1
    whole: bool = False

    def broken(self, x: np.ndarray) -> float:
        """The amount by which `x` breaks it; negative where there is room."""
        return float(x[list(self.index)] @ np.array(self.value)) - self.upper


@dataclass
class Outcome:
    """The outcome of a solve. `bound` is proven (-inf when nothing is), `infeasible` as well.

    `x` is the best point or None, `objective` its value; `finished` says that HiGHS stopped by
    itself with an optimum (for the gap asked) or an infeasibility proof; `duals` are the reduced
    costs and `prices` the duals of the rows of an LP.
    """

    infeasible: bool = False
    finished: bool = False
    bound: float = -INF
    objective: float = INF
    x: np.ndarray | None = None
    duals: np.ndarray | None = None
    prices: np.ndarray | None = None
    status: str = ""
    log: list[str] = field(default_factory=list)


def solve_lp(lp: LinearProgram, effort: Effort) -> Outcome:
    """Solves the relaxation of `lp` (integrality dropped)."""
    return _Job(lp, True, {"solver": "simplex"}).run(effort)


class Relaxation:
    """The relaxation of `lp`, kept so that rows can be added and it can be solved on from there.

    After an outcome that is not `finished` it is of no more use.
    """

    def __init__(self, lp: LinearProgram) -> None:
        self.job = _Job(lp, True, {"solver": "simplex"})

    def solve(self, effort: Effort) -> Outcome:
        """Solves it from where it is."""
        outcome = self.job.run(effort)
        # From now on there is a basis to start from.
        if outcome.finished:
            self.job.highs.setOptionValue("presolve", "off")
        return outcome

    def add(self, rows: Sequence[Row]) -> None:
        """Adds rows."""
        starts = np.cumsum([0, *(len(row.index) for row in rows)], dtype=np.int32)
        index = np.concatenate([row.index for row in rows]).astype(np.int32)
        value = np.concatenate([row.value for row in rows]).astype(float)
        lower, upper = np.full(len(rows), -INF), np.array([float(row.upper) for row in rows])
        self.job.highs.addRows(len(rows), lower, upper, len(index), starts[:-1], index, value)

    def bounds(self, columns: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> None:
        """Changes the bounds of columns."""
        for column, low, high in zip(columns, lower, upper, strict=True):
            self.job.highs.changeColBounds(int(column), float(low), float(high))


def solve_mip(
    lp: LinearProgram,
    effort: Effort,
    *,
    relative_gap: float = 0.0,
    absolute_gap: float = 1e-6,
    start: np.ndarray | None = None,
    cutoff: float = INF,
    enough: float = INF,
    on_point: Callable[[np.ndarray], object] | None = None,
    on_bound: Callable[[float], object] | None = None,
    options: dict | None = None,
) -> Outcome:
    """Solves `lp` as a MILP. `on_point` and `on_bound` are called in the caller's thread. Points
    from the objective `cutoff` on are of no interest: `infeasible`, or a bound beyond it, says no
    more than that there is nothing better. A bound of `enough` ends the search."""
    chosen = {"mip_rel_gap": relative_gap, "mip_abs_gap": absolute_gap, **(options or {})}
    if cutoff < INF:
        # HiGHS may be wrong by this much.
        chosen["objective_bound"] = cutoff + 1e-6 * max(1.0, abs(cutoff))
    outcome = _Job(lp, False, chosen, start).run(effort, on_point, on_bound, enough)
    # HiGHS 1.16 can prove an optimum and hand back the start instead of the point that reaches it.
    if start is not None and outcome.finished and outcome.x is not None:
        found = float(outcome.x @ np.array(lp.cost)) + lp.offset
        if found > outcome.objective + 1e-6 * max(1.0, abs(found)):
            outcome = _Job(lp, False, chosen).run(effort, on_point, on_bound, enough)
    return outcome


class _Job:
    """One HiGHS, whose runs are in a thread of their own."""

    def __init__(
        self, lp: LinearProgram, relax: bool, options: dict, start: np.ndarray | None = None
    ) -> None:
        # Imported here so that importing poetc does not load HiGHS.
        import highspy

        self.relax = relax
        entries = len(lp.index)
        rows = lp.rows**2 / (lp.rows + FEW_ROWS)
        begin = BEGIN * entries**2 / (entries + FEW_ENTRIES)
        self.price = ENTRY * entries if relax else begin
        self.iteration = ITERATION + ROW * lp.rows
        self.looks = ROOT_LOOK * rows, TREE_LOOK * rows
        self.points: queue.SimpleQueue[np.ndarray] = queue.SimpleQueue()

        class Quiet(highspy.Highs):
            # The constructor enables the callbacks, which prints a banner on the standard output.
            def enableCallbacks(self) -> None:
                self.silent()
                super().enableCallbacks()

        self.highs = highs = Quiet()
        # One thread: the same input gives the same schedule, and the other core stays free.
        for name, value in {"threads": 1, "random_seed": 0, **options}.items():
            highs.setOptionValue(name, value)
        if highs.passModel(self._model(lp, highspy)) == highspy.HighsStatus.kError:
            raise ValueError("HiGHS refuses the linear programme: is an index twice in a row?")
        if start is not None:
            solution = highspy.HighsSolution()
            solution.col_value = list(start)
            solution.value_valid = True
            highs.setSolution(solution)
        highs.cbMipInterrupt += self._interrupt
        highs.cbSimplexInterrupt += self._interrupt_lp
        highs.cbIpmInterrupt += self._interrupt_lp
        if not relax:
            highs.cbMipImprovingSolution += self._improving

    def _model(self, lp: LinearProgram, highspy):
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = lp.columns, lp.rows
        model.col_cost_ = np.array(lp.cost)
        model.col_lower_, model.col_upper_ = np.array(lp.lower), np.array(lp.upper)
        model.row_lower_, model.row_upper_ = np.array(lp.row_lower), np.array(lp.row_upper)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.array(lp.starts)
        model.a_matrix_.index_ = np.array(lp.index)
        model.a_matrix_.value_ = np.array(lp.value)
        model.offset_ = lp.offset
        if not self.relax:
            kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            model.integrality_ = [kinds[i] for i in lp.integer]
        return model

    # The three callbacks run in the solver's thread.

    def _interrupt(self, event) -> None:
        self.bound = max(self.bound, event.data_out.mip_dual_bound)
        self.work += self.looks[event.data_out.mip_node_count > 0]
        if self.enough < INF and self.bound >= self.enough:
            event.interrupt()
        self._stop(event)

    def _interrupt_lp(self, event) -> None:
        self.work += self.iteration
        self._stop(event)

    def _stop(self, event) -> None:
        if self.work >= self.most or self.cancel or _exiting.is_set():
            event.interrupt()

    def _improving(self, event) -> None:
        self.points.put(np.array(event.data_out.mip_solution))

    def _solve(self) -> None:
        try:
            self.highs.run()
        except BaseException as error:
            self.failure = error
        finally:
            self.done.set()
            _at_work.discard(threading.current_thread())

    def run(
        self,
        effort: Effort,
        on_point: Callable[[np.ndarray], object] | None = None,
        on_bound: Callable[[float], object] | None = None,
        enough: float = INF,
    ) -> Outcome:
        """Solves from where it is; only after a run that ended by itself."""
        self.most, self.enough = effort.left, enough
        self.work = self.price
        self.cancel = False
        self.done = threading.Event()
        self.bound = told = -INF
        self.outcome = Outcome()
        self.failure: BaseException | None = None
        if self.work > self.most:
            # Even to begin takes more.
            self.outcome.status = "no effort left"
            effort.spend(self.most)
            return self.outcome
        thread = threading.Thread(target=self._solve, daemon=True)
        _at_work.add(thread)
        thread.start()
        try:
            while not self.done.wait(LOOK_S):
                told = self._report(told, on_point, on_bound)
                if effort.ended():
                    self._end()
                    break
        except BaseException:
            # Ctrl-C, or an error in what the caller does with a point.
            self._end()
            raise
        if self.failure is not None:
            raise self.failure
        if self.done.is_set():
            self._collect()
        else:
            self.outcome.status = "HiGHS did not stop when told to"
        self._report(told, on_point, on_bound)
        self.outcome.bound = max(self.outcome.bound, self.bound)
        effort.spend(self.work)
        return self.outcome

    def _end(self) -> None:
        """Makes HiGHS stop. It looks at its time limit in more places than it calls back from."""
        self.cancel = True
        self.highs.setOptionValue("time_limit", 0.0)
        self.done.wait(GRACE_S)

    def _report(self, told: float, on_point, on_bound) -> float:
        while not self.points.empty():
            point = self.points.get()
            if not self.done.is_set():
                self.outcome.x = point
            if on_point is not None:
                on_point(point)
        if on_bound is not None and self.bound > told:
            told = self.bound
            on_bound(told)
        return told

    def _collect(self) -> None:
        import highspy

        highs, outcome = self.highs, self.outcome
        status = highs.getModelStatus()
        outcome.status = highs.modelStatusToString(status)
        info = highs.getInfo()
        optimal = status == highspy.HighsModelStatus.kOptimal
        outcome.infeasible = status == highspy.HighsModelStatus.kInfeasible
        outcome.finished = optimal or outcome.infeasible
        if status == highspy.HighsModelStatus.kModelEmpty:
            # Nothing to decide: there is one point.
            outcome.finished = True
            outcome.x = outcome.duals = outcome.prices = np.zeros(0)
            outcome.objective = outcome.bound = highs.getLp().offset_
            return
        if self.relax:
            if optimal:
                solution = highs.getSolution()
                outcome.x = np.array(solution.col_value)
                outcome.duals = np.array(solution.col_dual)
                outcome.prices = np.array(solution.row_dual)
                outcome.objective = outcome.bound = info.objective_function_value
            return
        if info.primal_solution_status == 2:  # feasible
            outcome.x = np.array(highs.getSolution().col_value)
            outcome.objective = info.objective_function_value
        outcome.bound = info.mip_dual_bound
