"""What each technique of the search gains: all of them, and then one after another switched off.

    nice python -m benchmarks.ablation [--only REGEX] [--results FILE] [--table]
        [--output docs/ablation.md]

Each instance gets the same effort with and without a technique, a few seconds of work, so that what
is said depends on no machine, and the results are those of the search and not of the clock. What
was measured is added to the results (docs/ablation.csv), where a run that was interrupted goes on;
`--table` measures nothing. A technique that the search did not come to is not switched off. Takes
about 25 minutes on one core.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import math
import random
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from functools import cache
from pathlib import Path

from benchmarks import document
from benchmarks.instances import ROOT, Case, Source, build
from poetc.schedule.model.checker import check
from poetc.schedule.model.clock import Clock
from poetc.schedule.model.errors import SolveError
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Problem
from poetc.schedule.params import SearchParams
from poetc.schedule.search.infeasibility import least_ram
from poetc.schedule.solve import solve
from tests.schedule_problems import random_problem

RESULTS = ROOT / "docs" / "ablation.csv"
GAP = 1e-3
SMALL = 30
"""Operations of small random problems, at most."""
TIME_S = 3600.0
"""Time limit of a run: not what ends it."""
LESS_WORK = 0.9
"""What takes no more than this share of the work is quicker."""
SAME = 1e-6
"""Relative difference of energies and bounds that is none."""


INTRODUCTION = """# What each technique of the search gains

Written by `benchmarks/ablation.py`. Each technique of `SearchParams` is switched off alone, on
{trials} instances with a few seconds of work each, of which {settled} are settled with all of them.
*Used* counts the instances in which the search comes to it. In how many it gains something, and in
how many it loses: *energy* is that of the schedule, *bound* what is proven, *work* ({less} or more)
what it takes where both runs settle the same. In brackets the greatest gain: energy and bound in
percent of the energy, work as a factor. Work that one step does not do is left for others, which
explains most losses. With so little effort the search hardly comes to the steps that improve and
bound large problems: that one of these gains nothing here is no verdict on it.
"""

DELETED = {
    "restrictions": "searched without paging, and without recomputes, as well: no gain in the 21 "
    "instances in which it was used, and more work in 6 of them",
}
"""What was deleted because it gained nothing, and what was measured of it then."""


@dataclass(frozen=True)
class Trial:
    """A case, the gap that is asked for, and the seconds of work for it. A number is the seed of a
    small random problem with everything that a problem can have (`tests/schedule_problems.py`).
    With `dma` transfers run beside computing, and idling takes a fifth of the power of computing.
    """

    case: Case | int
    dma: bool = False
    gap: float = GAP
    work: float = 1.5

    @property
    def name(self) -> str:
        """Unique."""
        name = f"small{self.case}" if isinstance(self.case, int) else self.case.name
        return name + ("/dma" if self.dma else "")

    def problem(self) -> Problem:
        """What is to be solved."""
        if isinstance(self.case, int):
            problem = random_problem(random.Random(self.case), SMALL)
        else:
            least = self.case.ram_of_least is not None
            problem = self.case.limit(*_free(self.case.source, least))
        if not self.dma:
            return problem
        time_ns = sum(operation.time_ns for operation in problem.operations)
        energy_nj = sum(operation.energy_nj for operation in problem.operations)
        idle_nw = energy_nj * 10**9 // (5 * time_ns)
        return dataclasses.replace(problem, dma=True, idle_power_nw=idle_nw)


@cache
def _free(source: Source, least: bool) -> tuple[Problem, int | None]:
    """The problem of a source without limits, and the least RAM where that is asked for."""
    free = build(source)
    return free, least_ram(Instance(free)).known if least else None


def trials() -> tuple[Trial, ...]:
    """All instances: from the POET paper, real training steps, random graphs; tight and loose."""

    def poet(graph: str, device: str, least: float, deadline: float | None = None) -> Case:
        return Case(Source("poet", graph, device), ram_of_least=least, deadline=deadline)

    def real(graph: str, device: str, least: float, deadline: float | None = None) -> Case:
        return Case(Source("real", graph, device), ram_of_least=least, deadline=deadline)

    def chance(operations: int, shape: str, share: float) -> Case:
        return Case(Source("random", str(operations), shape), ram_of_peak=share)

    return (
        Trial(poet("linear", "m4", 1.02)),
        Trial(poet("linear", "m4", 1.02, deadline=1.2)),
        Trial(poet("transformer", "a72", 1.02)),
        Trial(poet("vgg16", "m4", 1.02)),
        Trial(poet("vgg16_cifar", "m4", 1.02)),
        Trial(poet("vgg16_cifar", "m4", 1.1), gap=1e-5, work=6.0),
        Trial(poet("resnet18_cifar", "m4", 1.02), work=3.0),
        Trial(poet("resnet18_cifar", "m4", 1.25, deadline=1.5)),
        Trial(poet("resnet18_cifar", "m4", 2.5), work=12.0),
        Trial(poet("resnet18", "m4", 1.02)),
        Trial(real("dscnn", "nrf52840", 1.05)),
        Trial(real("dscnn", "nrf52840", 1.5)),
        Trial(real("resnet8", "nrf52840", 1.05)),
        Trial(real("resnet8", "nrf52840", 1.5)),
        Trial(real("bert_tiny", "rpi4b", 1.05)),
        Trial(chance(40, "narrow", 0.9)),
        Trial(chance(40, "narrow", 0.7)),
        Trial(chance(60, "wide", 0.8)),
        Trial(chance(100, "local", 0.8), work=3.0),
        Trial(chance(100, "narrow", 0.8)),
        Trial(chance(100, "even", 0.8)),
        Trial(chance(100, "wide", 0.75)),
        Trial(chance(250, "even", 0.8)),
        Trial(poet("linear", "m4", 1.02, deadline=1.05), dma=True),
        Trial(poet("transformer", "a72", 1.02), dma=True),
        Trial(poet("vgg16_cifar", "m4", 1.25), dma=True),
        Trial(real("dscnn", "nrf52840", 1.5), dma=True),
        Trial(real("resnet8", "nrf52840", 1.5, deadline=1.1), dma=True),
        Trial(1, work=3.0),
        Trial(2, work=3.0),
        Trial(4, work=6.0),
        Trial(7, work=3.0),
        Trial(3, dma=True, work=3.0),
        Trial(4, dma=True, work=3.0),
    )


@dataclass(frozen=True)
class Result:
    """A run: what became of it, energy and bound in nJ (inf and 0 where there is none), seconds of
    work. `without` is the technique that was off, "" with all of them; then `used` are those that
    the search came to."""

    trial: str
    without: str
    status: str
    energy_nj: float
    bound_nj: float
    work: float
    used: str = ""

    @property
    def settled(self) -> bool:
        """Whether the gap that was asked for is reached."""
        return self.status == "optimal"


class _Watched(SearchParams):
    """Notes the techniques that are asked for."""

    seen: set[str] = set()
    names = frozenset(SearchParams.techniques())

    def __getattribute__(self, name: str) -> object:
        if name in _Watched.names:
            _Watched.seen.add(name)
        return super().__getattribute__(name)


def measure(trial: Trial, problem: Problem, without: str = "") -> Result:
    """One run, checked."""
    clock = Clock(pace=1.0)
    params = _Watched().without(without) if without else _Watched()
    _Watched.seen.clear()
    try:
        found = solve(
            problem,
            time_limit_s=TIME_S,
            gap=trial.gap,
            params=params,
            clock=clock,
            effort_s=trial.work,
        )
    except SolveError:
        status, energy_nj, bound_nj = "none", math.inf, 0.0
    else:
        check(problem, found)
        status, energy_nj, bound_nj = found.status, found.energy_nj, found.bound_nj
    used = "" if without else " ".join(sorted(_Watched.seen))
    return Result(trial.name, without, status, energy_nj, bound_nj, round(clock.work, 3), used)


def run(chosen: Sequence[Trial], path: Path) -> None:
    """Measures what is not in the results yet."""
    known = {(result.trial, result.without) for result in read(path)}
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if not file.tell():
            writer.writerow([field.name for field in fields(Result)])

        def add(result: Result) -> None:
            writer.writerow(astuple(result))
            file.flush()
            print(result.trial, result.without or "all", result.energy_nj, file=sys.stderr)

        for trial in document.progress(chosen):
            problem = trial.problem()
            if (trial.name, "") not in known:
                add(measure(trial, problem))
            (base,) = (r for r in read(path) if r.trial == trial.name and not r.without)
            for technique in base.used.split():
                if (trial.name, technique) not in known:
                    add(measure(trial, problem, technique))


def read(path: Path) -> list[Result]:
    """The results so far."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [
            Result(
                row["trial"],
                row["without"],
                row["status"],
                float(row["energy_nj"]),
                float(row["bound_nj"]),
                float(row["work"]),
                row["used"],
            )
            for row in csv.DictReader(file)
        ]


@dataclass(frozen=True)
class Gain:
    """What a technique is worth in one instance: with it and without it."""

    on: Result
    off: Result

    @property
    def energy(self) -> float:
        """How much more is used without it, relatively; inf where there is no schedule then."""
        if self.on.energy_nj == self.off.energy_nj:
            return 0.0
        return _unless_same(self.off.energy_nj / self.on.energy_nj - 1)

    @property
    def bound(self) -> float:
        """How much less is proven without it, relatively to the energy."""
        if math.inf in (self.on.energy_nj, self.off.energy_nj):
            return 0.0
        return _unless_same((self.on.bound_nj - self.off.bound_nj) / self.on.energy_nj)

    @property
    def work(self) -> float:
        """The work without it over that with it where both settle the same, else 1."""
        if not (self.on.settled and self.off.settled) or self.energy:
            return 1.0
        return max(self.off.work, 1e-3) / max(self.on.work, 1e-3)

    @property
    def gains(self) -> bool:
        return self.energy > 0 or self.bound > 0 or self.work > 1 / LESS_WORK


def _unless_same(difference: float) -> float:
    return 0.0 if abs(difference) <= SAME else difference


def gains(results: Iterable[Result]) -> dict[str, list[Gain]]:
    """For each technique what it is worth where the search comes to it."""
    results = list(results)
    on = {result.trial: result for result in results if not result.without}
    found: dict[str, list[Gain]] = {name: [] for name in SearchParams.techniques()}
    for result in results:
        if result.without in found:
            found[result.without].append(Gain(on[result.trial], result))
    return found


def tables(results: Sequence[Result]) -> str:
    """The document."""
    on = [result for result in results if not result.without]
    settled = sum(result.settled for result in on)
    lines = [
        INTRODUCTION.format(trials=len(on), settled=settled, less=f"{1 - LESS_WORK:.0%}"),
        "| technique | what it does | used | energy | bound | work |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in gains(results).items():
        cells = [
            _cell([g.energy for g in found], 0.0, lambda v: f"{v:.2%}"),
            _cell([g.bound for g in found], 0.0, lambda v: f"{v:.2%}"),
            _cell([math.log(g.work) for g in found], -math.log(LESS_WORK), _factor),
        ]
        does = SearchParams.techniques()[name]
        lines.append(f"| `{name}` | {does} | {len(found)} | {' | '.join(cells)} |")
    useless = [name for name, found in gains(results).items() if not any(g.gains for g in found)]
    lines += ["", f"Without any gain here: {', '.join(useless) or 'none'}.", ""]
    lines += ["## Deleted", ""]
    lines += [f"- `{name}` {why}." for name, why in DELETED.items()]
    lines += [""]
    lines += [
        "## With all techniques",
        "",
        "| instance | energy (nJ) | gap | work |",
        "|---|---|---|---|",
    ]
    for result in on:
        none = math.isinf(result.energy_nj)
        energy = "none found" if none else f"{result.energy_nj:.0f}"
        gap = "" if none else f"{1 - result.bound_nj / max(result.energy_nj, 1):.2%}"
        lines.append(f"| {result.trial} | {energy} | {gap} | {result.work:.2f} |")
    return "\n".join(lines) + "\n"


def _factor(logarithm: float) -> str:
    return f"{math.exp(logarithm):.1f}x"


def _cell(values: Sequence[float], least: float, show) -> str:
    """How many gain and lose more than `least`, and the greatest gain."""
    up = [value for value in values if value > least]
    down = sum(value < -least for value in values)
    if not up:
        return f"0 / {down}" if down else ""
    most = max(up)
    text = "no schedule without" if math.isinf(most) else show(most)
    return f"{len(up)} / {down} ({text})"


def main(words: list[str]) -> None:
    """Measures, and prints the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args(words)
    if not asked.table:
        chosen = [trial for trial in trials() if re.search(asked.only, trial.name)]
        run(chosen, asked.results)
    print(tables(read(asked.results)), end="")


if __name__ == "__main__":
    document.run(main)
