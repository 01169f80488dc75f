"""What the stage rules and the order of the first runs cost on small random problems.

    python -m benchmarks.stage_rules [--seeds N] [--output docs/stage_rules.md]

Each problem is solved to the optimum by exhaustive searches (`tests/schedule_free_oracle.py`) that
obey fewer and fewer rules, and by `solve`. Takes about ten minutes.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks import document
from poetc.schedule.heuristics.order import find_order
from poetc.schedule.model.checker import check, replay
from poetc.schedule.model.errors import InfeasibleProblem
from poetc.schedule.model.problem import Compute, Operation, Place, Problem, Step, Tensor
from poetc.schedule.solve import solve
from tests.schedule_free_oracle import (
    FREE,
    ORDERED,
    ORDERED_ONCE,
    STAGES,
    Rules,
    cheapest,
    least_ram,
    permuted,
)

TIGHTNESS = (0.0, 0.25, 0.5, 0.75)
"""RAM, from the least of the stage rules (0) to what keeping everything needs (1)."""


class Builder:
    """Makes a problem an operation at a time; sizes 1 to 4 bytes, energies 1 to 6 nJ, transfers at
    a price per byte."""

    def __init__(self, rng: random.Random, page_nj: int | None) -> None:
        self.rng, self.page_nj = rng, page_nj
        self.operations: list[Operation] = []
        self.tensors: list[Tensor] = []

    def tensor(self, size: int | None = None, fixed: bool = False, **fields) -> int:
        """A new tensor; `fixed` says that it is never paged."""
        size = self.rng.randint(1, 4) if size is None else size
        energy = 0 if self.page_nj is None else size * self.page_nj
        self.tensors.append(
            Tensor(
                f"t{len(self.tensors)}",
                size,
                pageable=self.page_nj is not None and not fixed,
                pagein_energy_nj=energy,
                pageout_energy_nj=energy,
                **fields,
            )
        )
        return len(self.tensors) - 1

    def run(self, *inputs: int, like: int | None = None) -> int:
        """A new operation; returns its result, as big as `like`."""
        size = None if like is None else self.tensors[like].bytes
        return self.append(inputs, self.tensor(size), ())

    def update(self, parameter: int, *inputs: int) -> int:
        """A new operation that replaces a parameter."""
        size = self.tensors[parameter].bytes
        result = self.tensor(size, fixed=True, replaces=parameter, end=Place.RAM)
        return self.append((parameter, *inputs), result, ((result, parameter),))

    def append(self, inputs: Sequence[int], result: int, inplace: tuple) -> int:
        energy = self.rng.randint(1, 6)
        read = tuple(dict.fromkeys(inputs))
        name = f"o{len(self.operations)}"
        self.operations.append(Operation(name, read, (result,), energy, energy, inplace=inplace))
        return result

    def problem(self) -> Problem:
        """What was made, in the order that the compiler would choose."""
        problem = Problem(tuple(self.operations), tuple(self.tensors))
        return permuted(problem, tuple(find_order(problem).operations))


def training(b: Builder) -> None:
    """Four layers, the loss, and the gradients, which read activations."""
    _backward(b, [b.run()], 4)


def residual(b: Builder) -> None:
    """The same with a sum of two activations now and then."""
    _backward(b, [b.run()], 4, skip=0.5)


def _backward(b: Builder, activations: list[int], layers: int, skip: float = 0.0) -> None:
    read: list[tuple[int, ...]] = []
    for _ in range(layers - 1):
        inputs = [activations[-1]]
        if len(activations) > 1 and b.rng.random() < skip:
            inputs.append(b.rng.choice(activations[:-1]))
        activations.append(b.run(*inputs))
        read.append(tuple(inputs))
    gradient = b.run(activations[-1], like=activations[-1])
    for inputs, result in zip(reversed(read), reversed(activations[1:]), strict=True):
        also = (result,) if b.rng.random() < 0.5 else ()
        gradient = b.run(gradient, *inputs, *also, like=inputs[0])


def updates(b: Builder) -> None:
    """Three layers, the loss, gradients, and updates in place; where tensors may be paged the first
    layer has no parameter, to keep the search short."""
    first = 0 if b.page_nj is None else 1
    parameters = {k: b.tensor(b.rng.randint(1, 2), True, start=Place.RAM) for k in range(first, 3)}
    activations = [b.tensor(start=Place.RAM)]
    for k in range(3):
        also = (parameters[k],) if k in parameters else ()
        activations.append(b.run(activations[-1], *also))
    gradient = b.run(activations[-1], like=activations[-1])
    for k in reversed(parameters):
        following = gradient
        if k > first:
            following = b.run(gradient, parameters[k], like=activations[k])
        b.update(parameters[k], gradient, activations[k])
        gradient = following


def skips(b: Builder) -> None:
    """A chain that reads old results again."""
    results = [b.run()]
    for _ in range(8):
        inputs = [results[-1]]
        if len(results) > 2 and b.rng.random() < 0.7:
            inputs.append(b.rng.choice(results[:-2]))
        results.append(b.run(*inputs))


def layered(b: Builder) -> None:
    """Layers of one to three operations, each with one or two inputs from the layer before and now
    and then one from further back."""
    layers = [[b.run() for _ in range(b.rng.randint(1, 2))]]
    while len(b.operations) < 9:
        width = min(b.rng.randint(1, 3), 9 - len(b.operations))
        layer = []
        for _ in range(width):
            inputs = b.rng.sample(layers[-1], min(len(layers[-1]), b.rng.randint(1, 2)))
            if b.rng.random() < 0.3:
                inputs.append(b.rng.choice(b.rng.choice(layers)))
            layer.append(b.run(*inputs))
        layers.append(layer)


def branches(b: Builder) -> None:
    """Two branches that meet, and read the stem again."""
    stem = b.run()
    ends = []
    for _ in range(2):
        result = stem
        for _ in range(3):
            result = b.run(result, *((stem,) if b.rng.random() < 0.3 else ()))
        ends.append(result)
    b.run(b.run(*ends), stem)


SHAPES: dict[str, Callable[[Builder], None]] = {
    shape.__name__: shape for shape in (training, residual, updates, skips, layered, branches)
}


@dataclass(frozen=True)
class Point:
    """One problem at one RAM. Energies in nJ; `ordered` and `once` are optima with the order of the
    first runs given, `free` that of no rules, `reordered` the optimum of the stage rules in the
    order of that one's first runs; `solved` is what `solve` finds (None: "infeasible")."""

    shape: str
    paging: bool
    seed: int
    tightness: float
    stages: int
    once: int
    ordered: int
    free: int
    reordered: int | None
    solved: int | None

    @property
    def cost(self) -> float:
        """Of all the rules, relative to the optimum without."""
        return self.stages / self.free - 1


@dataclass(frozen=True)
class Ram:
    """Least RAM of one problem by all rules, with the order only, and by none, in bytes."""

    shape: str
    paging: bool
    stages: int
    ordered: int
    free: int


def unlimited(shape: str, paging: bool, seed: int) -> Problem:
    """The problem of a seed, without limits."""
    rng = random.Random(f"{shape} {paging} {seed}")
    builder = Builder(rng, rng.choice((1, 2)) if paging else None)
    SHAPES[shape](builder)
    return builder.problem()


def measure(shape: str, paging: bool, seed: int) -> tuple[Ram, list[Point]]:
    """All that is reported about one problem."""
    problem = unlimited(shape, paging, seed)

    def least(rules: Rules) -> int:
        found = least_ram(problem, rules)
        assert found is not None
        return found

    ram = Ram(shape, paging, least(STAGES), least(ORDERED), least(FREE))
    peak = solve(problem, strategy="keep-all").peak_bytes
    points = []
    limits: dict[int, float] = {}
    for tightness in TIGHTNESS:
        limits.setdefault(round(ram.stages + tightness * (peak - ram.stages)), tightness)
    for limit, tightness in limits.items():
        if limit < peak:
            limited = dataclasses.replace(problem, ram_bytes=limit)
            points.append(_point(limited, shape, paging, seed, tightness))
    return ram, points


def _optimum(problem: Problem, rules: Rules) -> int | None:
    found = cheapest(problem, rules)
    if found is None:
        return None
    assert replay(problem, found.steps).energy_nj == found.energy_nj
    return found.energy_nj


def _point(problem: Problem, shape: str, paging: bool, seed: int, tightness: float) -> Point:
    stages = _optimum(problem, STAGES)
    found = cheapest(problem, FREE)
    assert stages is not None and found is not None
    free = found.energy_nj
    ordered = once = reordered = stages
    if free < stages:
        ordered = _optimum(problem, ORDERED)
        once = _optimum(problem, ORDERED_ONCE) if ordered != stages else stages
        reordered = _optimum(permuted(problem, _first_runs(found.steps)), STAGES)
    assert ordered is not None and once is not None
    try:
        schedule = solve(problem, gap=0.0)
        check(problem, schedule)
        solved = schedule.energy_nj
    except InfeasibleProblem:
        solved = None
    return Point(
        shape,
        paging,
        seed,
        tightness,
        stages,
        once,
        ordered,
        free,
        reordered,
        solved,
    )


def _first_runs(steps: Sequence[Step]) -> tuple[int, ...]:
    runs = (step.operation for step in steps if isinstance(step, Compute))
    return tuple(dict.fromkeys(runs))


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _cost(points: Sequence[Point]) -> tuple[str, ...]:
    """How often and how much the rules cost at these points."""
    costs = [p.cost for p in points]
    costly = [c for c in costs if c > 0]
    if not costly:
        return (str(len(points)), "0.0%", "", "")
    return (
        str(len(points)),
        _percent(len(costly) / len(points)),
        _percent(statistics.mean(costs)),
        _percent(max(costs)),
    )


CAUSES: dict[str, Callable[[Point], tuple[int, int]]] = {
    "order of the first runs": lambda p: (p.ordered, p.free),
    "an operation runs again once in a stage": lambda p: (p.once, p.ordered),
    "recomputes of a stage are in the order of the problem": lambda p: (p.stages, p.once),
}


def _cause(points: Sequence[Point], cause: Callable[[Point], tuple[int, int]]) -> tuple[str, ...]:
    losses = [more / less - 1 for more, less in map(cause, points)]
    costly = sum(loss > 0 for loss in losses)
    return (
        str(costly),
        _percent(costly / len(points)),
        _percent(statistics.mean(losses)),
        _percent(max(losses)),
    )


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines))


def report(rams: Sequence[Ram], points: Sequence[Point]) -> str:
    """The document."""
    paging = {True: "paging", False: "no paging"}
    groups = list(dict.fromkeys((p.shape, p.paging) for p in points))
    costly = [p for p in points if p.cost > 0]
    regained = [p for p in costly if p.reordered == p.free]
    below = [p for p in points if p.solved is not None and p.solved < p.stages]
    found = [p for p in costly if p.solved == p.free]
    head = ("limits", "rules cost something", "mean cost", "largest cost")
    shapes = _table(
        ("shape", "", *head),
        (
            (s, paging[g], *_cost([p for p in points if (p.shape, p.paging) == (s, g)]))
            for s, g in groups
        ),
    )
    tightness = _table(
        ("RAM", *head),
        ((f"{t:g}", *_cost([p for p in points if p.tightness == t])) for t in TIGHTNESS),
    )
    causes = _table(
        ("rule", "limits", "share", "mean cost", "largest cost"),
        ((name, *_cause(points, cause)) for name, cause in CAUSES.items()),
    )
    ram_lines = []
    for group in paging.items():
        mine = [r for r in rams if r.paging == group[0]]
        for name, less in (("order of the first runs", "free"), ("recomputes", "ordered")):
            more = "ordered" if less == "free" else "stages"
            losses = [getattr(r, more) / getattr(r, less) - 1 for r in mine]
            share = sum(loss > 0 for loss in losses) / len(losses)
            ram_lines.append(
                (
                    name,
                    group[1],
                    str(len(mine)),
                    _percent(share),
                    _percent(statistics.mean(losses)),
                    _percent(max(losses)),
                )
            )
    least = _table(
        ("rule", "", "problems", "costs something", "mean cost", "largest cost"), ram_lines
    )
    return TEXT.format(
        problems=len(rams),
        points=len(points),
        shapes=shapes,
        tightness=tightness,
        causes=causes,
        costly=len(costly),
        regained=len(regained),
        below=len(below),
        found=len(found),
        least=least,
    )


TEXT = """\
# What the stage rules cost

Made by `python -m benchmarks.stage_rules`.

The [stage rules](schedule.md) say that operations run for the first time in a given order, and that
between two first runs each operation runs again at most once, in that order. The RAM, the pages and
the checker do not ask for that. Here {problems} random problems of 7 to 9 operations, at {points}
limits of RAM in all, are solved to the optimum by exhaustive search with these rules and without
(`tests/schedule_free_oracle.py`). The given order is the one that the compiler's search for a low
peak finds. Cost is energy of the optimum with the rules over that without, less one; the mean
counts all problems.

{shapes}

`training` is a chain forward and back, `residual` one with sums of earlier activations, `updates`
one with parameters updated in place, `skips` a chain that reads old results, `layered` and
`branches` have operations that do not depend on each other.

By RAM: 0 is the least that works with the rules, 1 what keeping everything needs.

{tightness}

## Which rule

Each rule is taken away after those above it are put in place: the order of the first runs costs
what is lost with that order and no other rule.

{causes}

The rules cost something at {costly} limits. In the order of the first runs of the unrestricted
optimum, the stage rules reach the same energy at {regained} of them. `solve` tries other orders as
well: asked for a gap of 0, it was below the optimum of the stage rules in the given order at
{below} limits, and reached the unrestricted optimum at {found} of those {costly}.

## Least RAM

The same for the least RAM with which there is a schedule at all.

{least}

## Where it is lost

Only where the operations have more than one order. In `updates` a gradient waits for nothing, but
updates may wait: a low peak runs each as soon as it can, from the last layer to the first, and what
they read is then recomputed layer by layer, each from the start. The optimum now and then runs the
update of an earlier layer first and makes the activations of later ones from what that one read, in
one sweep, or it runs the next gradient first and pages a gradient instead of activations. In
`branches` the branch that needs more room and leaves less should come first: where the peak of the
whole is elsewhere, an order of low peak does not care. In `layered` an operation should run while
its inputs are in RAM for another one.

What runs again within a stage is another matter. That an operation runs again at most once, and in
the order of the problem, cost nothing at any of these limits; it made the least RAM higher now and
then, without paging. An operation is worth running twice in a stage only where the stage makes
two tensors again, from an ancestor that has no room beside one of them while that one is made.

So `solve` keeps the stage rules and changes the order. On problems as small as these, it solves the
model in one order after another: those of low peak, then those in which one operation runs earlier
or later, around the given order and the best one so far. What it proves holds for the given order
and the one of its schedule.
"""


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=14, help="problems of each kind")
    seeds = parser.parse_args(words).seeds
    rams, points = [], []
    for shape in document.progress(SHAPES):
        for paging in (False, True):
            for seed in range(seeds):
                ram, found = measure(shape, paging, seed)
                rams.append(ram)
                points += found
                for p in found:
                    if p.cost > 0:
                        print(p, file=sys.stderr, flush=True)
            print(f"{shape}, paging {paging}: {len(points)} limits", file=sys.stderr, flush=True)
    print(report(rams, points), end="")
    return 0


if __name__ == "__main__":
    document.run(main)
