"""What the strategies find on many problems, how fast, and how far from the bound.

    python -m benchmarks.optimiser [--only REGEX] [--strategies A,B] [--time-limit S]
        [--gap G] [--jobs N] [--list] [--cache DIR] [--output DIR]

Writes optimiser.csv (every run) and optimiser.md (summary and tables), into docs/ after a run of
everything, else into the cache directory, or where --output says. Each run is a process of its own.
What has finished is kept in the cache under a hash of the problem, the options and the sources that
`poetc.schedule.solve` is made of, so a benchmark that was interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import io
import re
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.instances import ROOT, Case, cases, to_json
from benchmarks.runs import BASELINE_LIMIT_S, MEMORY_BYTES, OURS, Cache, Problems, Run, execute
from poetc.files import write_whole

STRATEGIES = (
    "auto",
    "poet",
    "checkmate",
    "paging-only",
    "keep-all",
    "chen-sqrt",
    "chen-greedy",
    "griewank",
    "dtr",
    "capuchin",
    "pofo",
)
"""Without `milp` (`auto` in the given order only) and the synonym `remat-only` (checkmate)."""

MILPS: dict[str, tuple[str, ...]] = {
    "poet": ("m4", "nrf52840"),
    "paging-only": ("m4", "nrf52840"),
    "checkmate": ("m4", "nrf52840", "local", "narrow", "even", "wide", "remat"),
}
"""Baselines that solve a MILP, and on which devices (or shapes of random graphs) they run: on the
other devices the same graphs have other energies. Nothing can be paged in random graphs, where
`poet` is `checkmate`."""

TARGET_GAP = 0.01
ROUNDING = 1e-6
LATE_S = 2.0
"""Seconds by which a solve may miss its time limit."""
OVERHEAD = ("random", "remat")
"""Groups in which time is minimised."""
PUBLISHED = {
    ("250", "90%"): (0.009, 55.0),
    ("250", "80%"): (0.049, 640.0),
    ("1000", "90%"): (0.007, 3600.0),
    ("1000", "80%"): (0.034, 3600.0),
    ("resnet50", "90%"): (0.002, 65.0),
    ("resnet50", "80%"): (0.003, 65.0),
}
"""Overhead and seconds on 16 cores: Bartan et al., "Moccasin: Efficient Tensor Rematerialization
for Neural Networks", ICML 2023, for their random layered graphs of that size and RAM, and for a
training graph of ResNet-50 with 353 operations and 751 edges."""


@dataclass(frozen=True)
class Row:
    """One line of the table. Energy, time and bound are relative to the step with unlimited RAM;
    `status` is "optimal", "feasible" or why there is no schedule."""

    group: str
    instance: str
    operations: int
    ram_bytes: int
    deadline: str
    strategy: str
    status: str
    energy: float | None
    time: float | None
    bound: float | None
    gap: float | None
    seconds: float
    processor_seconds: float | None
    peak_memory_mib: int
    time_limit_s: float
    target_gap: float

    @property
    def met(self) -> bool:
        """Within the target gap (at which the search ends, but for rounding), in time."""
        return (
            self.gap is not None
            and self.gap <= self.target_gap + ROUNDING
            and self.seconds <= self.time_limit_s + LATE_S
        )


def row(run: Run, result: dict) -> Row:
    """The line of the table for a run."""
    case = run.case
    return Row(
        case.source.group,
        case.name,
        len(run.problem.operations),
        run.problem.ram_bytes or 0,
        f"{case.deadline:g}x" if case.deadline is not None else "",
        run.strategy,
        result["status"],
        result.get("energy"),
        result.get("time"),
        result.get("bound"),
        result.get("gap"),
        round(result["seconds"], 2),
        result.get("processor_seconds"),
        round(result["rss_bytes"] / 2**20),
        run.time_limit_s,
        # Where the overhead is the question the search goes on below the target.
        TARGET_GAP if case.source.group in OVERHEAD else case.gap,
    )


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """All rows, ratios with six digits after the point."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in dataclasses.fields(Row))
    for line in rows:
        values = dataclasses.astuple(line)
        writer.writerow(f"{v:.6f}" if isinstance(v, float) else v for v in values)
    write_whole(path, text.getvalue())


def table(head: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """A Markdown table; None is an empty cell."""
    cells = [head, ["---"] * len(head), *lines]
    return "\n".join(
        f"| {' | '.join('' if c is None else str(c) for c in line)} |" for line in cells
    )


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def summary(rows: Sequence[Row]) -> str:
    """Per group and time limit, what `auto` achieved."""
    lines = []
    for group, limit in dict.fromkeys((r.group, r.time_limit_s) for r in rows):
        mine = [r for r in rows if (r.group, r.time_limit_s, r.strategy) == (group, limit, "auto")]
        if not mine:
            continue
        gaps = [r.gap for r in mine if r.gap is not None]
        lines.append(
            (
                group,
                f"{limit:g} s",
                len(mine),
                len(gaps),
                sum(r.met for r in mine),
                _number(max(gaps, default=None), ".2%"),
                f"{max(r.seconds for r in mine):.1f}",
                max(r.peak_memory_mib for r in mine),
            )
        )
    head = ("group", "limit", "instances", "with a schedule", "within the target gap in time")
    return table((*head, "worst gap", "slowest, s", "most memory, MiB"), lines)


def missed(rows: Sequence[Row]) -> str:
    """The instances on which `auto` misses the target."""
    lines = [
        (
            r.instance,
            r.status,
            _number(r.energy, ".4f"),
            _number(r.gap, ".2%"),
            f"{r.target_gap:g}",
            f"{r.seconds:.1f}",
            _number(r.processor_seconds, ".1f"),
        )
        for r in rows
        if r.strategy == "auto" and not r.met
    ]
    head = ("instance", "status", "energy", "gap", "target", "s", "processor s")
    return table(head, lines) if lines else "None."


def comparison(rows: Sequence[Row]) -> str:
    """Per group and baseline, how much more energy than `auto` its schedules use."""
    auto = {r.instance: r for r in rows if r.strategy == "auto"}
    lines = []
    for group, strategy in dict.fromkeys((r.group, r.strategy) for r in rows):
        if strategy == "auto":
            continue
        both = only_auto = only_other = 0
        more: list[float] = []
        for other in rows:
            if (other.group, other.strategy) != (group, strategy) or other.instance not in auto:
                continue
            mine = auto[other.instance].energy
            if other.energy is not None and mine:
                both += 1
                more.append(other.energy / mine - 1)
            only_auto += other.energy is None and mine is not None
            only_other += other.energy is not None and mine is None
        if not (both or only_auto or only_other):
            continue
        lines.append(
            (
                group,
                strategy,
                both,
                only_auto,
                only_other,
                _number(statistics.median(more) if more else None, "+.2%"),
                _number(max(more, default=None), "+.2%"),
                sum(m < -1e-9 for m in more),
                _number(-min(more) if more and min(more) < -1e-9 else None, ".2%"),
            )
        )
    head = ("group", "strategy", "both have a schedule", "only auto", "only the baseline")
    return table(
        (*head, "median, to auto", "worst, to auto", "better than auto", "by at most"), lines
    )


def published(runs: Sequence[Run], results: Sequence[dict]) -> str:
    """Random graphs of the sizes of the published ones: our overhead at a tenth of their time."""
    lines = []
    for run, result in zip(runs, results, strict=True):
        source = run.case.source
        known = PUBLISHED.get((source.graph, run.case.ram)) if source.group in OVERHEAD else None
        if known is None or run.strategy != "auto":
            continue
        overhead, seconds = known
        then = [e for s, e in result.get("trace", ()) if s <= seconds / 10]
        there = [s for s, e in result.get("trace", ()) if e <= 1 + overhead]
        lines.append(
            (
                run.case.name,
                f"{overhead:.1%} in {seconds:g} s",
                _number(min(then) - 1 if then else None, ".2%"),
                _number(result["energy"] - 1 if "energy" in result else None, ".2%"),
                _number(result["bound"] - 1 if "bound" in result else None, ".2%"),
                _number(min(there) if there else None, ".1f"),
            )
        )
    head = ("instance", "published", "ours in a tenth of that", "ours at the end", "bound")
    return table((*head, "published overhead reached after, s"), lines) if lines else ""


def details(rows: Sequence[Row]) -> str:
    """`auto` in full for each instance of a group."""
    return table(
        (
            "instance",
            "operations",
            "RAM",
            "deadline",
            "energy",
            "time",
            "bound",
            "gap",
            "s",
            "processor s",
            "MiB",
        ),
        (
            (
                r.instance,
                r.operations,
                f"{r.ram_bytes:,}",
                r.deadline,
                _number(r.energy, ".4f") or r.status,
                _number(r.time, ".4f"),
                _number(r.bound, ".4f"),
                _number(r.gap, ".2%"),
                f"{r.seconds:.1f}",
                _number(r.processor_seconds, ".1f"),
                r.peak_memory_mib,
            )
            for r in rows
            if r.strategy == "auto"
        ),
    )


def energies(rows: Sequence[Row]) -> str:
    """Energy of every strategy for each instance of a group."""
    strategies = list(dict.fromkeys(r.strategy for r in rows))
    found = {(r.instance, r.strategy): r for r in rows}
    lines = []
    for instance in dict.fromkeys(r.instance for r in rows):
        cells = [found.get((instance, strategy)) for strategy in strategies]
        lines.append(
            (instance, *(_number(c.energy, ".4f") or c.status if c else "" for c in cells))
        )
    return table(("instance", *strategies), lines)


INTRODUCTION = f"""\
Energy, time and bound are relative to the step with unlimited RAM: each operation once, nothing
paged that need not be. The bound is that of the strategy, see [schedule](schedule.md); the gap is
between the energy and it. s is the wall time of `solve`, processor s the time of the processor that
it used, MiB the peak of its process, Python included. Baselines have {BASELINE_LIMIT_S:g} s.
`linear/m0/1.25x/deadline1.5x`: RAM 1.25 times the least that is known to work, deadline 1.5 times
the time of all operations. `random250/even/90%`: RAM 90% of the unlimited peak. A strategy without
a schedule: none found (its rules give none within the limits), undefined (not for such a graph),
infeasible (proven, for its kind of schedules), time limit, killed (long after the limit) or out of
memory ({MEMORY_BYTES >> 30} GiB). Strategies that solve a MILP run on m4 and nrf52840 only,
`checkmate` also where nothing can be paged."""


def write_markdown(path: Path, runs: Sequence[Run], results: Sequence[dict]) -> None:
    """Summary first, then the tables of each group."""
    rows = [row(run, result) for run, result in zip(runs, results, strict=True)]
    parts = [
        "# The optimiser",
        "Made by `python -m benchmarks.optimiser`; every run is in [optimiser.csv](optimiser.csv).",
        INTRODUCTION,
        "## Summary",
        summary(rows),
        f"The target is a gap of {TARGET_GAP:.0%}, and 0.1% for the released example of POET "
        "(737,719 B). Where `auto` misses it within its limit:",
        missed(rows),
        "## Baselines",
        comparison(rows),
    ]
    if text := published(runs, results):
        parts += [
            "## Against published results",
            "Bartan et al. (Moccasin, ICML 2023), 16 cores: random layered graphs of that size, a\n"
            "training graph of ResNet-50 with 353 operations, 751 edges (ours has 335 and 683).\n"
            "The shape `local` follows the same law, the others have about 6 edges an operation.\n"
            "Overhead is time over unlimited time.",
            text,
        ]
    for group in dict.fromkeys(r.group for r in rows):
        of_group = [r for r in rows if r.group == group]
        parts += [f"## Group {group}", details(of_group)]
        if len({r.strategy for r in of_group}) > 1:
            parts += ["Energy of all strategies:", energies(of_group)]
    write_whole(path, "\n\n".join(parts) + "\n")


def runs_on(strategy: str, case: Case) -> bool:
    """Is this case one of those of the strategy?"""
    return strategy not in MILPS or case.source.device in MILPS[strategy]


def plan(
    chosen: Sequence[Case],
    strategies: Sequence[str],
    cache: Cache,
    time_limit_s: float | None = None,
    gap: float | None = None,
) -> list[Run]:
    """The runs for these cases; problems and least RAM are made here. Cases that cannot be made are
    reported on standard error and left out."""
    problems = Problems(cache)
    runs: list[Run] = []
    for case in chosen:
        try:
            problem = problems.limited(case)
        except RuntimeError as error:
            print(f"{case.name}: {error}", file=sys.stderr)
            continue
        text = to_json(problem)
        stop = case.gap if gap is None else gap
        for name in strategies:
            if not runs_on(name, case):
                continue
            own_s = case.time_limit_s if name in OURS else BASELINE_LIMIT_S
            limit_s = own_s if time_limit_s is None else time_limit_s
            runs.append(Run(case, name, problem, text, limit_s, stop))
    return runs


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.optimiser", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", metavar="REGEX", default="", help="instances whose name matches")
    parser.add_argument("--strategies", default=",".join(STRATEGIES), help="separated by commas")
    parser.add_argument("--time-limit", type=float, metavar="S", help="for every run")
    parser.add_argument("--gap", type=float, metavar="G", help="to stop at, for every run")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--list", action="store_true", help="only name the instances")
    parser.add_argument("--cache", type=Path, default=ROOT / ".bench", metavar="DIR")
    parser.add_argument("--output", type=Path, metavar="DIR", help="where the tables go")
    options = parser.parse_args(arguments)
    every = cases()
    chosen = [case for case in every if re.search(options.only, case.name)]
    strategies = tuple(options.strategies.split(","))
    if options.list:
        for case in chosen:
            print(f"{case.name}  {case.time_limit_s:g} s")
        return 0
    if not chosen:
        parser.error(f"no instance matches {options.only!r}")
    if unknown := set(strategies) - {*STRATEGIES, "milp", "remat-only"}:
        parser.error(f"no strategy {', '.join(sorted(unknown))}; there are {', '.join(STRATEGIES)}")
    cache = Cache(options.cache)
    runs = plan(chosen, strategies, cache, options.time_limit, options.gap)
    results = execute(runs, cache, options.jobs)
    everything = len(chosen) == len(every) and set(STRATEGIES) <= set(strategies)
    complete = everything and options.time_limit is None and options.gap is None
    output = options.output or (ROOT / "docs" if complete else options.cache)
    output.mkdir(parents=True, exist_ok=True)
    rows = [row(run, result) for run, result in zip(runs, results, strict=True)]
    crashed = sum(result["status"] == "crashed" for result in results)
    wanted = sum(runs_on(strategy, case) for case in chosen for strategy in strategies)
    if crashed or len(runs) < wanted:
        failed = f"{crashed} runs crashed, {wanted - len(runs)} could not be made"
        print(f"{failed}: no tables are written", file=sys.stderr)
        return 1
    write_csv(output / "optimiser.csv", rows)
    write_markdown(output / "optimiser.md", runs, results)
    print(f"{len(rows)} runs: {output / 'optimiser.csv'}, {output / 'optimiser.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
