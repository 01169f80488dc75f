"""What a strategy makes use of and takes into account, seen in schedules that it makes.

Nothing is taken from what papers say of themselves: each feature is a difference between schedules,
or a schedule that exists. The problems are small, so that all strategies are through in seconds.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from benchmarks.instances import Shape, Source, build, layered, peak_bytes
from benchmarks.runs import techniques
from poetc.schedule.model.checker import check
from poetc.schedule.model.errors import SolveError
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Problem, Schedule
from poetc.schedule.search.infeasibility import least_ram
from poetc.schedule.solve import solve

GAP = 1e-6
EFFORT_S = 10.0
CHAIN_SHARES, BRANCHING_SHARES = (0.2, 0.7), (0.5, 0.85)
"""RAM of the probes: from the least (0) to the unlimited peak (1)."""


@dataclass(frozen=True)
class Features:
    """One line of the table.

    `remat`, `paging`, `together`, `order`: of all schedules the share in which kernels run again,
    tensors are paged in, both, or first runs are in another order. `power`: another schedule where
    nothing but energies is different. `time`: keeps a deadline that its schedule without one
    misses. `optimal`: proves that no schedule of its kind is better, in all probes. `general`:
    saves RAM in a graph without any articulation point. `schedules` of `probes` were found.
    """

    strategy: str
    probes: int
    schedules: int
    remat: float
    paging: float
    together: float
    order: float
    power: bool
    time: bool
    optimal: bool
    general: bool


def features(strategy: str) -> Features:
    """Runs the strategy on all probes."""
    found = [attempt(strategy, problem) for problem in (*chains(), *branching())]
    seen = [schedule for schedule in found if schedule is not None]
    used = [techniques(schedule) for schedule in seen]
    proven = [schedule.gap <= GAP or _proves_its_own(schedule) for schedule in seen]

    def share(*names: str) -> float:
        return sum(all(use[name] for name in names) for use in used) / max(len(used), 1)

    return Features(
        strategy,
        len(found),
        len(seen),
        share("recomputes"),
        share("page_ins"),
        share("recomputes", "page_ins"),
        share("reordered"),
        any(_is_power_aware(strategy, problem) for problem in (*chains(), *branching())),
        any(_is_time_aware(strategy, problem) for problem in (*chains(), *branching())),
        bool(proven) and all(proven),
        any(attempt(strategy, problem) is not None for problem in branching()),
    )


@cache
def chains() -> tuple[Problem, ...]:
    """The smallest released graph, a chain of layers and back; paging as dear as it is on an m4,
    and a hundredth of that."""
    dear = _with_transfers(build(Source("poet", "linear", "m4")))
    tensors = tuple(
        dataclasses.replace(
            tensor,
            pagein_energy_nj=tensor.pagein_energy_nj // 100,
            pageout_energy_nj=tensor.pageout_energy_nj // 100,
        )
        for tensor in dear.tensors
    )
    cheap = dataclasses.replace(dear, tensors=tensors)
    return (*_limited(dear, CHAIN_SHARES), *_limited(cheap, CHAIN_SHARES))


@cache
def branching() -> tuple[Problem, ...]:
    """A random graph without articulation points: several tensors are wanted later at any time."""
    free = layered(14, Shape(4, 4, 0.4))
    tensors = tuple(
        dataclasses.replace(
            tensor,
            pageable=True,
            pageout_energy_nj=tensor.bytes // 3,
            pagein_energy_nj=tensor.bytes // 5,
        )
        for tensor in free.tensors
    )
    paged = _with_transfers(dataclasses.replace(free, tensors=tensors))
    return tuple(_limited(paged, BRANCHING_SHARES))


def _with_transfers(problem: Problem) -> Problem:
    mean = sum(tensor.bytes for tensor in problem.tensors) / len(problem.tensors)
    longest = max(operation.time_ns for operation in problem.operations)
    tensors = tuple(
        dataclasses.replace(
            tensor,
            pagein_time_ns=int(tensor.bytes / mean * longest / 2),
            pageout_time_ns=int(tensor.bytes / mean * longest / 2),
        )
        for tensor in problem.tensors
    )
    return dataclasses.replace(problem, tensors=tensors)


def _limited(problem: Problem, shares: tuple[float, ...]) -> Iterator[Problem]:
    least, peak = least_ram(Instance(problem)).known, peak_bytes(problem)
    assert least is not None
    for share in shares:
        yield dataclasses.replace(problem, ram_bytes=least + int(share * (peak - least)))


@cache
def attempt(strategy: str, problem: Problem) -> Schedule | None:
    """The schedule of a strategy, checked; None where it has none."""
    try:
        schedule = solve(problem, strategy=strategy, time_limit_s=600.0, gap=GAP, effort_s=EFFORT_S)
    except SolveError:
        return None
    check(problem, schedule)
    return schedule


def _proves_its_own(schedule: Schedule) -> bool:
    """`poet` has a bound for schedules of its model only, which is no `bound_nj`."""
    return any("poet model: Optimal" in line for line in schedule.log)


def _is_power_aware(strategy: str, problem: Problem) -> bool:
    """Whether another schedule comes out where nothing but energies is different."""
    base = attempt(strategy, problem)
    if base is None:
        return False
    others = (*_other_kernels(problem), *_other_pages(problem))
    changed = (attempt(strategy, other) for other in others)
    return any(schedule is not None and schedule.steps != base.steps for schedule in changed)


def _other_kernels(problem: Problem) -> Iterator[Problem]:
    """The same problem with other energies of kernels, up to 30 times or a 30th."""
    for seed in range(3):
        rng = random.Random(seed)
        operations = tuple(
            dataclasses.replace(operation, energy_nj=_other(operation.energy_nj, rng))
            for operation in problem.operations
        )
        yield dataclasses.replace(problem, operations=operations)


def _other_pages(problem: Problem) -> Iterator[Problem]:
    """The same problem with other energies of page-ins and page-outs."""
    for seed in range(3):
        rng = random.Random(seed)
        tensors = tuple(
            dataclasses.replace(
                tensor,
                pagein_energy_nj=_other(tensor.pagein_energy_nj, rng),
                pageout_energy_nj=_other(tensor.pageout_energy_nj, rng),
            )
            for tensor in problem.tensors
        )
        yield dataclasses.replace(problem, tensors=tensors)


def _other(energy_nj: int, rng: random.Random) -> int:
    return int(energy_nj * 30 ** rng.uniform(-1, 1))


def _is_time_aware(strategy: str, problem: Problem) -> bool:
    """Whether it finds a schedule for a deadline that its own schedule misses, where the energy of
    kernels is their time, and where it is not."""
    least_ns = sum(operation.time_ns for operation in problem.operations)
    for posed in (problem, *_other_kernels(problem)):
        base = attempt(strategy, posed)
        if base is None:
            continue
        spare_ns = base.makespan_ns - least_ns
        deadlines = {least_ns + int(spare_ns * share) for share in (0.95, 0.8, 0.5)}
        for deadline in sorted(deadlines - {base.makespan_ns}, reverse=True):
            hurried = dataclasses.replace(posed, deadline_ns=deadline)
            if attempt(strategy, hurried) is not None:
                return True
    return False
