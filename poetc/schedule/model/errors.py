"""The errors that `solve` raises when there is no schedule to return."""

from __future__ import annotations

from poetc.schedule.model.problem import Schedule


class ScheduleError(Exception):
    """A schedule that breaks a rule. Names the step, the operation or the tensor."""

    def __init__(self, message: str, step: int | None = None) -> None:
        super().__init__(message if step is None else f"step {step}: {message}")
        self.step = step


class SolveError(Exception):
    """No schedule is returned."""


class InfeasibleProblem(SolveError):  # noqa: N818
    """Proven: no schedule keeps to the limits. With `any_order` that holds for every schedule there
    is; without, for those of the strategy, which for `auto` and `milp` are those that keep to the
    stage rules in the given order of the operations. `auto` has tried other orders as well.

    One of two cases, or neither, for what a strategy's own model excludes. RAM: `least_ram_bytes`
    is the least RAM for which a schedule is known (None when the search found none),
    `ram_bound_bytes` is proven necessary, and `operation` is the index of the operation that needs
    it (None: what must be in RAM at the start or the end). Deadline: `fastest_ns` is the shortest
    makespan known, `time_bound_ns` is proven necessary. Bounds are proven for what the refusal is
    proven for.
    """

    def __init__(
        self,
        message: str,
        *,
        least_ram_bytes: int | None = None,
        ram_bound_bytes: int | None = None,
        operation: int | None = None,
        fastest_ns: int | None = None,
        time_bound_ns: int | None = None,
        any_order: bool = True,
    ) -> None:
        super().__init__(message)
        self.least_ram_bytes = least_ram_bytes
        self.ram_bound_bytes = ram_bound_bytes
        self.operation = operation
        self.fastest_ns = fastest_ns
        self.time_bound_ns = time_bound_ns
        self.any_order = any_order


class SolverTimeLimit(SolveError):  # noqa: N818
    """The search ended, at the time limit or before, without a schedule and without a proof that
    there is none.

    What is known all the same: with `least_ram_bytes` there is a schedule if the deadline is left
    aside (None: none was found), less than `ram_bound_bytes` is not enough in any order (None: no
    limit of RAM was given), no schedule takes less than `time_bound_ns` or uses less than
    `bound_nj`.
    """

    def __init__(
        self,
        message: str,
        *,
        least_ram_bytes: int | None = None,
        ram_bound_bytes: int | None = None,
        time_bound_ns: int = 0,
        bound_nj: int = 0,
    ) -> None:
        super().__init__(message)
        self.least_ram_bytes = least_ram_bytes
        self.ram_bound_bytes = ram_bound_bytes
        self.time_bound_ns = time_bound_ns
        self.bound_nj = bound_nj


class StrategyUndefinedError(SolveError):
    """The strategy is not defined for a problem of this form; the message says why."""


class NoScheduleError(SolveError):
    """The strategy has nothing that keeps to the limits. That says nothing about other ones."""


class SolverInterrupted(KeyboardInterrupt):
    """Ctrl-C while solving. `schedule` is the best found so far, checked, or None."""

    def __init__(self, schedule: Schedule | None) -> None:
        super().__init__("interrupted")
        self.schedule = schedule
