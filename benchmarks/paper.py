"""The tables, figures and claims of the POET paper (Patil et al., ICML 2022), measured again.

    nice python -m benchmarks.paper [--only REGEX] [--cache DIR] [--list]
        [--figures docs/paper] [--output docs/paper.md]

Every strategy on the paper's graphs and devices: on the graphs that were released with it, and on
the true training steps in tests/models, lowered from JAX. The page has the verdicts, which are
computed; the directory --figures gets the pictures and points.csv, every run. What a run may do is
counted, so the schedules depend on no machine. What has finished is kept in the cache, from which
an interrupted benchmark goes on. Takes about half an hour of one core.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import io
import re
import sys
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks import document
from benchmarks.instances import ROOT, Case, Source, peak_bytes, to_json
from benchmarks.optimiser import STRATEGIES, table
from benchmarks.paper_claims import CLAIMS, UNTESTED, Graph, Point
from benchmarks.paper_features import Features, features
from benchmarks.paper_pictures import TOP, panels
from benchmarks.runs import OURS, Cache, Problems, Run, digest, execute, solver_sources, sources
from poetc.files import write_whole
from poetc.schedule.model.problem import Problem
from poetc.schedule.strategies import names

RELEASED, TRUE = "released", "true"
GROUPS = {RELEASED: "poet", TRUE: "activations"}
GRAPHS = {
    "VGG-16": {RELEASED: "vgg16", TRUE: "vgg16"},
    "ResNet-18": {RELEASED: "resnet18", TRUE: "resnet18"},
    "BERT": {RELEASED: "bert", TRUE: "bert_base"},
}
DEVICES = {
    "M0": {RELEASED: "m0", TRUE: "mkr1000"},
    "M4F": {RELEASED: "m4", TRUE: "nrf52840"},
    "A72": {RELEASED: "a72", TRUE: "rpi4b"},
    "TX2": {TRUE: "jetson-tx2"},
}
"""The costs of a TX2 were not released."""
SHARES = (0.02, 0.1, 0.2, 0.4, 0.7, 1.0)
BERT_SHARES = (0.02, 0.1, 0.4, 1.0)
DEADLINES = (1.02, 1.1, 1.25, 1.5, 2.0)
DEADLINE_SHARE = 0.1
HURRIED = ("M4F", "TX2")
"""Devices of the figure with deadlines, for ResNet-18."""
MODEL_DEVICES = ("M4F", "TX2")
"""Where the paper's own model (`poet`) is solved: it takes all the effort that there is."""
GAP = 0.01
SAME = 1e-4
"""A relative difference that is none: the gap that is asked for is larger."""
OUR_EFFORT_S, EFFORT_S = 120.0, 7.0
TIME_S = 900.0
"""Time limit of a run: not what ends it."""


@dataclass(frozen=True)
class Place:
    """A graph on a device, of one origin."""

    graph: str
    origin: str
    device: str

    @property
    def source(self) -> Source:
        """What is solved."""
        graph, device = GRAPHS[self.graph][self.origin], DEVICES[self.device][self.origin]
        return Source(GROUPS[self.origin], graph, device)

    def budgets(self) -> list[Case]:
        """RAM from little to all that is of use, then deadlines with little RAM."""
        shares = BERT_SHARES if self.graph == "BERT" else SHARES
        found = [Case(self.source, ram_between=share) for share in shares]
        if self.graph == "ResNet-18" and self.device in HURRIED:
            found += [
                Case(self.source, ram_between=DEADLINE_SHARE, deadline=deadline)
                for deadline in DEADLINES
            ]
        return found

    def strategies(self, case: Case) -> list[str]:
        """Those that are run; `poet` where it can be solved at all, which takes all its effort."""
        modelled = self.graph != "BERT" and self.device in MODEL_DEVICES and case.deadline is None
        return [name for name in STRATEGIES if name != "poet" or modelled]


def places() -> list[Place]:
    """All, in the order of the figures."""
    return [
        Place(graph, origin, device)
        for graph in GRAPHS
        for origin in GROUPS
        for device, known in DEVICES.items()
        if origin in known
    ]


def measure(chosen: Sequence[Place], cache: Cache, jobs: int) -> tuple[list[Point], list[Graph]]:
    """Every run, and what the graphs are like. Raises RuntimeError where one cannot be made."""
    problems = Problems(cache)
    runs: list[tuple[Place, Run]] = []
    graphs: list[Graph] = []
    for place in chosen:
        for case in place.budgets():
            problem = problems.limited(case)
            text = to_json(problem)
            for name in place.strategies(case):
                effort_s = OUR_EFFORT_S if name in OURS else EFFORT_S
                runs.append((place, Run(case, name, problem, text, TIME_S, GAP, effort_s)))
        least_bytes = problems.limited(Case(place.source, ram_between=0.0)).ram_bytes
        graphs.append(graph_of(place, problem, least_bytes or 0))
    results = execute([run for _, run in runs], cache, jobs)
    if crashed := sum(result["status"] == "crashed" for result in results):
        raise RuntimeError(f"{crashed} runs crashed")
    points = [point(place, run, result) for (place, run), result in zip(runs, results, strict=True)]
    return points, graphs


def point(place: Place, run: Run, result: dict) -> Point:
    """What became of a run."""
    found = "energy" in result
    return Point(
        place.graph,
        place.origin,
        place.device,
        run.case.ram_between or 0.0,
        run.problem.ram_bytes or 0,
        run.case.deadline,
        run.strategy,
        result["status"],
        result.get("energy"),
        result["energy_nj"] / 1e9 if found else None,
        result.get("bound"),
        result.get("time"),
        result["makespan_ns"] / 1e9 if found else None,
        result.get("peak_bytes"),
        result.get("recomputes"),
        result.get("page_ins"),
        result.get("reordered"),
        round(result.get("processor_seconds", result["seconds"]), 1),
    )


def graph_of(place: Place, problem: Problem, least_bytes: int) -> Graph:
    """What a graph is like: how cheap recomputing and paging are in it."""
    total_nj = sum(operation.energy_nj for operation in problem.operations)
    made = [
        (sum(problem.tensors[v].bytes for v in operation.outputs), operation.energy_nj)
        for operation in problem.operations
    ]
    # What takes no RAM is free to keep; the rest, from the least energy a byte on.
    made = sorted(((b, e) for b, e in made if b), key=lambda each: each[1] / each[0])
    half, cheap_nj = sum(b for b, _ in made) / 2, 0
    for bytes, energy_nj in made:
        if (half := half - bytes) < 0:
            break
        cheap_nj += energy_nj
    paged_nj = sum(
        tensor.pagein_energy_nj + tensor.pageout_energy_nj
        for tensor in problem.tensors
        if tensor.pageable and tensor.start is None and tensor.bytes
    )
    return Graph(
        place.graph,
        place.origin,
        place.device,
        len(problem.operations),
        total_nj / 1e9,
        least_bytes,
        peak_bytes(problem),
        cheap_nj / total_nj,
        paged_nj / total_nj,
    )


def all_features(cache: Cache) -> list[Features]:
    """The features of every strategy that there is."""
    version = digest(solver_sources(), sources("benchmarks/paper_features.py"))

    def one(name: str) -> Features:
        made = cache.remember(
            "features", digest(name, version), lambda: dataclasses.asdict(features(name))
        )
        return Features(**made)

    return [one(name) for name in document.progress(names())]


INTRODUCTION = f"""# The POET paper, measured again

Made by `nice python -m benchmarks.paper --output docs/paper.md`: numbers, pictures and verdicts.
The paper is Patil, Jain, Dutta, Stoica and Gonzalez, "POET: Training Neural Networks on Tiny
Devices with Integrated Rematerialization and Paging", ICML 2022
([arXiv](https://arxiv.org/abs/2207.07697)). `auto` is [our search](schedule.md), `poet` the paper's
model unchanged, the others are [baselines](baselines.md), written from their papers. Compared are
schedules that have passed the checker, with energies by the [cost model](cost-model.md): nothing of
this was measured on a board, and the paper's own baselines may be other programs than these.

*Released* are the graphs of the paper's code with its costs for M0, M4F and A72. Gradients are a
chain in them, transfers take no time, and the A72 has a page cache. *True* are training steps of
the same networks as JAX lowers them, after fusion, with the devices `mkr1000`, `nrf52840`, `rpi4b`
(without page cache) and `jetson-tx2` (whose FLOP/s are an estimate), all with DMA. As in the paper
the RAM is that of activations, without parameters and their gradients (`--ram-scope=activations`).

Energy and time are relative to the step with unlimited RAM. Budgets are
{", ".join(f"{share:.0%}" for share in SHARES)} of the way from the least RAM to the unlimited peak
({len(BERT_SHARES)} of these for BERT). A search ends within {GAP:.0%} of its bound, so that smaller
differences say nothing of the methods, or when its effort is spent: that of {OUR_EFFORT_S:g} s of
one core for `auto`, of {EFFORT_S:g} s for the others. `poet` is solved for VGG-16 and ResNet-18 on
{" and ".join(MODEL_DEVICES)} only, without deadlines. Every run is in
[points.csv](paper/points.csv)."""


CLAIMS_TEXT = """\
A claim *holds* if within some budget as many percent were measured as are claimed, with the graph
and on the device that it names (on all devices where TX2 has no costs). *Elsewhere*: with another
graph or on another device only. *Partly*: half as many. *No*: less."""


def claims_table(points: Sequence[Point], graphs: Sequence[Graph]) -> str:
    """Each claim on each origin: our number, the verdict, why not."""
    lines = []
    for claim in CLAIMS:
        for origin in GROUPS:
            finding = claim.judge(
                [p for p in points if p.origin == origin], [g for g in graphs if g.origin == origin]
            )
            if finding.verdict == UNTESTED:
                continue
            verdict = f"**{finding.verdict}**"
            lines.append((claim.text, origin, finding.ours, verdict, finding.why))
    return table(("the paper", "graphs", "here", "verdict", "why not"), lines)


def features_table(all_features: Sequence[Features], points: Sequence[Point]) -> str:
    """The paper's Table 1: what each strategy can, by what its schedules do."""
    lines = []
    for has in all_features:
        mine = [p for p in points if p.strategy == has.strategy and p.energy is not None]
        schedules = has.schedules + len(mine)

        def used(share: float, *fields: str, mine=mine, has=has, schedules=schedules) -> str:
            count = round(share * has.schedules)
            count += sum(all(getattr(p, name) for name in fields) for p in mine)
            return f"yes ({count / schedules:.0%})" if count else "–"

        lines.append(
            (
                f"`{has.strategy}`",
                schedules,
                used(has.remat, "recomputes"),
                used(has.paging, "page_ins"),
                used(has.together, "recomputes", "page_ins"),
                used(has.order, "reordered"),
                *("yes" if value else "–" for value in (has.power, has.time)),
                *("yes" if value else "–" for value in (has.optimal, has.general)),
            )
        )
    head = ("strategy", "schedules", "rematerialization", "paging", "both in one", "order")
    return table((*head, "power", "time", "optimal", "general graphs"), lines)


FEATURES_TEXT = """\
After the paper's Table 1, which compares what methods are made for. Here every strategy was run,
and a feature is what is seen in its schedules: kernels that run again, page-ins, both in one
schedule, first runs in another order than the given one (in brackets the share of schedules, those
of the figures and of six small problems). *Power*: where nothing but energies is different, the
schedule is another one. *Time*: a deadline is met that is missed by the schedule without one.
*Optimal*: in all six problems it is proven that no schedule of its kind takes less energy. *General
graphs*: RAM is saved in a graph without an articulation point. `remat-only` is `checkmate`; `milp`
is `auto` in the given order. Both are in the six problems only."""


def graphs_table(graphs: Sequence[Graph]) -> str:
    """What the graphs are like."""
    return table(
        ("graph", "origin", "device", "kernels", "energy", "least RAM", "peak", "cheap", "paging"),
        (
            (
                g.graph,
                g.origin,
                g.device,
                g.operations,
                f"{g.energy_j:,.1f} J",
                f"{g.least_bytes:,}",
                f"{g.peak_bytes:,}",
                f"{g.cheap:.2%}",
                f"{g.paging:.2%}",
            )
            for g in graphs
        ),
    )


GRAPHS_TEXT = """\
*Cheap*: the share of the energy that the kernels take which make the cheapest half of all bytes.
*Paging*: the energy of writing every tensor once and reading it once, relative to the step."""


def model_text(points: Sequence[Point]) -> str:
    """How far the paper's own model gets with its effort."""
    mine = [p for p in points if p.strategy == "poet"]
    found = sum(p.energy is not None for p in mine)
    return (
        f"The paper's own model, `poet`, has a schedule after {EFFORT_S:g} s of effort in {found} "
        f"of {len(mine)} budgets. It is solved by HiGHS; the paper gives Gurobi ten minutes."
    )


def energies_table(points: Sequence[Point]) -> str:
    """Energy of every strategy at one budget of each graph and device."""
    chosen = [p for p in points if p.share == DEADLINE_SHARE and p.deadline is None]
    found = {(p.budget, p.strategy): p for p in chosen}
    lines = []
    for budget in dict.fromkeys(p.budget for p in chosen):
        cells = [found.get((budget, strategy)) for strategy in STRATEGIES]
        best = min(c.energy for c in cells if c is not None and c.energy is not None)
        shown = []
        for cell in cells:
            energy = cell.energy if cell is not None else None
            if energy is None:
                shown.append("" if cell is None else cell.status)
            else:
                near = energy <= best * (1 + SAME)
                shown.append(f"**{energy:.4f}**" if near else f"{energy:.4f}")
        lines.append((budget[0], budget[1], budget[2], *shown))
    return table(("graph", "origin", "device", *STRATEGIES), lines)


def energy_picture(points: Sequence[Point], graph: str) -> bytes:
    """Energy against RAM, a row of panels for each origin."""
    grid = [
        [
            (
                f"{graph}, {device}, {origin}",
                [p for p in points if (p.graph, p.origin, p.device) == (graph, origin, device)],
            )
            for device, known in DEVICES.items()
            if origin in known
        ]
        for origin in GROUPS
    ]
    return panels(grid, _ram_mib, _energy_j, ("RAM (MiB)", "energy (J)"))


def pictures(points: Sequence[Point]) -> dict[str, tuple[str, str, bytes]]:
    """For each file a heading, a caption and the picture."""
    free = [p for p in points if p.deadline is None]

    def some(strategies: Sequence[str], graph: str, device: str) -> list:
        return [
            [
                (
                    f"{graph}, {device}, {origin}",
                    [
                        p
                        for p in free
                        if p.strategy in strategies
                        and (p.graph, p.origin, p.device) == (graph, origin, device)
                    ],
                )
                for origin in GROUPS
                if origin in DEVICES[device]
            ]
        ]

    def percent(p: Point) -> float:
        return 100 * ((p.energy or 1.0) - 1)

    hurried = [
        (
            f"ResNet-18, {device}, {origin}",
            [
                p
                for p in points
                if p.deadline is not None and (p.origin, p.device) == (origin, device)
            ],
        )
        for device in HURRIED
        for origin in GROUPS
        if origin in DEVICES[device]
    ]
    capped = f"The energy axis ends at {TOP:g} times that of unlimited RAM."
    found = {
        f"energy-{GRAPHS[graph][RELEASED]}.svg": (
            f"Energy against RAM: {graph}",
            capped,
            energy_picture(free, graph),
        )
        for graph in GRAPHS
    }
    over = "energy over unlimited (%)"
    ablation = ("auto", "paging-only", "checkmate")
    return found | {
        "capuchin.svg": (
            "Capuchin: ResNet-18 on A72",
            "What is used beyond the energy with full memory.",
            panels(
                some(("auto", "poet", "capuchin"), "ResNet-18", "A72"),
                _ram_mib,
                percent,
                ("RAM (MiB)", over),
                cap=False,
            ),
        ),
        "pofo.svg": (
            "POFO: ResNet-18 on TX2",
            "Time against the RAM that a schedule really takes.",
            panels(
                some(("auto", "poet", "pofo"), "ResNet-18", "TX2"),
                lambda p: (p.peak_bytes or 0) / 2**20,
                lambda p: p.time_s or 0.0,
                ("RAM (MiB)", "time (s)"),
                cap=False,
            ),
        ),
        "deadlines.svg": (
            "Time budgets: ResNet-18",
            f"RAM {DEADLINE_SHARE:.0%} of the way from the least to the peak. {capped}",
            panels(
                [hurried],
                lambda p: p.deadline or 0.0,
                _energy_j,
                ("deadline (times that of all kernels)", "energy (J)"),
            ),
        ),
        "ablation.svg": (
            "One technique or both: VGG-16",
            "Paging only, rematerialization only, and both with `auto`.",
            panels(
                [
                    [
                        panel
                        for device in DEVICES
                        for panel in some(ablation, "VGG-16", device)[0]
                        if panel[0].endswith(origin)
                    ]
                    for origin in GROUPS
                ],
                _ram_mib,
                percent,
                ("RAM (MiB)", over),
                cap=False,
            ),
        ),
    }


def _ram_mib(p: Point) -> float:
    return p.ram_bytes / 2**20


def _energy_j(p: Point) -> float:
    return p.energy_j or 0.0


def csv_text(points: Sequence[Point]) -> str:
    """Every run."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in fields(Point))
    for each in points:
        writer.writerow(astuple(each))
    return text.getvalue()


def read_points(text: str) -> list[Point]:
    """The inverse of `csv_text`."""
    kinds = {field.name: str(field.type) for field in fields(Point)}

    def value(name: str, cell: str) -> Any:
        kind = kinds[name]
        if not cell and "None" in kind:
            return None
        if kind.startswith("bool"):
            return cell == "True"
        return float(cell) if "float" in kind else int(cell) if "int" in kind else cell

    rows = csv.DictReader(io.StringIO(text))
    return [Point(**{name: value(name, cell) for name, cell in row.items()}) for row in rows]


def page(
    points: Sequence[Point],
    graphs: Sequence[Graph],
    found: Sequence[Features],
    drawn: dict[str, tuple[str, str, bytes]],
) -> str:
    """The document."""
    parts = [
        INTRODUCTION,
        "## Claims",
        CLAIMS_TEXT,
        claims_table(points, graphs),
        model_text(points),
        "## Features",
        FEATURES_TEXT,
        features_table(found, points),
        "## What the graphs are like",
        GRAPHS_TEXT,
        graphs_table(graphs),
        "## Figures",
    ]
    for name, (heading, caption, _) in drawn.items():
        parts += [f"### {heading}", caption, f"![{heading}](paper/{name})"]
    parts += [
        f"## Energy with RAM {DEADLINE_SHARE:.0%} of the way from the least to the peak",
        "The best, and what is within a hundredth of a percent of it, in bold.",
        energies_table(points),
    ]
    return "\n\n".join(parts)


def main(words: list[str]) -> None:
    """Measures, draws, and prints the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", metavar="REGEX", default="", help="of graph/origin/device")
    parser.add_argument("--cache", type=Path, default=ROOT / ".bench", metavar="DIR")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--figures", type=Path, default=ROOT / "docs" / "paper", metavar="DIR")
    parser.add_argument("--list", action="store_true", help="only name the graphs")
    asked = parser.parse_args(words)
    chosen = [
        place
        for place in places()
        if re.search(asked.only, f"{place.graph}/{place.origin}/{place.device}")
    ]
    if asked.list:
        for place in chosen:
            print(f"{place.graph}/{place.origin}/{place.device}: {len(place.budgets())} budgets")
        return
    if not chosen:
        sys.exit(f"no graph matches {asked.only!r}")
    cache = Cache(asked.cache)
    points, graphs = measure(chosen, cache, asked.jobs)
    found = all_features(cache)
    drawn = pictures(points)
    asked.figures.mkdir(parents=True, exist_ok=True)
    text = page(points, graphs, found, drawn)
    write_whole(asked.figures / "points.csv", csv_text(points))
    for name, (_, _, picture) in drawn.items():
        write_whole(asked.figures / name, picture)
    print(text)


if __name__ == "__main__":
    document.run(main)
