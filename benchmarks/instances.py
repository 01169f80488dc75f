"""The instances of the optimiser benchmark.

`poet`: the graphs of the POET paper's code with its device costs. `real`: training steps from
`tests/models` after fusion, with our cost model. `random`: layered graphs from seeded generators,
rematerialization only, minimising time. `remat`: the largest of the POET graphs in the same way,
for comparison with published results. The limits of an instance are relative to the least RAM, the
unlimited peak and the unlimited time of its problem, so a `Case` says how to make the problem and
how to limit it, and `limit` does so.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import random
from dataclasses import dataclass, field
from pathlib import Path

from poetc.schedule.heuristics.order import footprint
from poetc.schedule.model.graphs import load
from poetc.schedule.model.problem import Operation, Place, Problem, Tensor, Variant

ROOT = Path(__file__).parent.parent
POET_GRAPHS = Path(__file__).parent / "poet_graphs"
MODELS = ROOT / "tests" / "models"

POET_NAMES = (
    "linear",
    "transformer",
    "vgg16",
    "vgg16_cifar",
    "resnet18",
    "resnet18_cifar",
    "bert",
    "resnet50",
)
POET_DEVICES = ("m0", "m4", "a72")
REAL_NAMES = ("resnet8", "dscnn", "bert_tiny", "vgg16", "resnet18", "bert_base")
REAL_DEVICES = ("nrf52840", "rpi4b")
RANDOM_LIMITS_S = {100: 60.0, 250: 64.0, 500: 120.0, 1000: 240.0}
"""Operations of the random graphs, and their time limits: where there is a published time for the
size, at most a tenth of the longest."""


@dataclass(frozen=True)
class Shape:
    """Of a random graph: operations a layer, edges an operation, and the share of the edges that
    come from any earlier layer instead of the last one."""

    width: int
    edges: int
    skip: float


SHAPES = {"narrow": Shape(6, 4, 0.2), "even": Shape(12, 6, 0.1), "wide": Shape(24, 8, 0.05)}

REMAT = "remat"
"""Group and device of graphs with published results, whose tensors cannot be paged."""
LOCAL = "local"
"""The shape of the random graphs that are like the published ones (`local`)."""
WIDTHS = {100: 0.27, 250: 0.43, 500: 0.36, 1000: 0.31}
"""Operations of the published random layered graphs, and the width parameter of each."""


@dataclass(frozen=True)
class Source:
    """Where a problem without limits comes from: `group` is "poet", "real", "activations" (the same
    with the RAM that the POET paper counts: all but parameters and gradients), "random" or "remat";
    `device` is the shape of a random graph ("local" or one of `SHAPES`), whose `graph` is its
    number of operations, and `REMAT` where the costs are the times on an m4."""

    group: str
    graph: str
    device: str

    @property
    def name(self) -> str:
        """Unique."""
        prefix = "random" if self.group == "random" else ""
        return f"{prefix}{self.graph}/{self.device}"

    @property
    def compiled(self) -> bool:
        """Whether poetc makes it of a training step, which takes longer than many a solve."""
        return self.group in ("real", "activations")


@dataclass(frozen=True)
class Case:
    """One instance: a source, its limits, and what the solver is asked for.

    Exactly one of `ram_bytes`, `ram_of_least` (times the least RAM that is known to work),
    `ram_of_peak` (times the unlimited peak) and `ram_between` (the least RAM is 0, the unlimited
    peak 1) is set. `deadline` is a multiple of the time that all
    operations take once.
    """

    source: Source
    ram_bytes: int | None = None
    ram_of_least: float | None = None
    ram_of_peak: float | None = None
    ram_between: float | None = None
    deadline: float | None = None
    time_limit_s: float = field(default=60.0, kw_only=True)
    gap: float = field(default=0.01, kw_only=True)

    @property
    def ram(self) -> str:
        """The RAM limit as it is asked for."""
        if self.ram_of_least is not None:
            return f"{self.ram_of_least:g}x"
        if self.ram_between is not None:
            return f"least+{self.ram_between:.0%}"
        return f"{self.ram_of_peak:.0%}" if self.ram_of_peak is not None else f"{self.ram_bytes}B"

    @property
    def name(self) -> str:
        """Unique; RAM and deadline as they are asked for."""
        deadline = f"/deadline{self.deadline:g}x" if self.deadline is not None else ""
        return f"{self.source.name}/{self.ram}{deadline}"

    @property
    def needs_least(self) -> bool:
        """Whether the limit of RAM is relative to the least RAM."""
        return self.ram_of_least is not None or self.ram_between is not None

    def limit(self, problem: Problem, least_bytes: int | None) -> Problem:
        """`problem`, which is that of the source, with the limits of this case."""
        if self.needs_least and least_bytes is None:
            raise ValueError(f"{self.name} needs the least RAM of its problem")
        if self.ram_of_least is not None:
            ram = int(self.ram_of_least * (least_bytes or 0))
        elif self.ram_between is not None:
            least = least_bytes or 0
            ram = least + int(self.ram_between * (peak_bytes(problem) - least))
        elif self.ram_of_peak is not None:
            ram = int(self.ram_of_peak * peak_bytes(problem))
        else:
            ram = self.ram_bytes
        total_ns = sum(o.time_ns for o in problem.operations)
        deadline_ns = None if self.deadline is None else int(self.deadline * total_ns)
        return dataclasses.replace(problem, ram_bytes=ram, deadline_ns=deadline_ns)


def cases() -> tuple[Case, ...]:
    """All instances, in the order of the tables."""
    found: list[Case] = []
    for graph in POET_NAMES:
        for device in POET_DEVICES:
            source = Source("poet", graph, device)
            found += [Case(source, ram_of_least=r) for r in (1.02, 1.25, 1.5, 2.5)]
            found.append(Case(source, ram_of_least=1.25, deadline=1.5))
    # The example of the paper's released code, and a tighter one.
    example = Source("poet", "resnet18_cifar", "m4")
    found.append(Case(example, ram_bytes=737_719, deadline=1.5, time_limit_s=30.0, gap=0.001))
    found.append(Case(example, ram_bytes=300_000, deadline=2.0))
    for graph in REAL_NAMES:
        for device in REAL_DEVICES:
            source = Source("real", graph, device)
            found += [Case(source, ram_of_least=r, time_limit_s=120.0) for r in (1.05, 1.5, 2.5)]
    for operations, limit_s in RANDOM_LIMITS_S.items():
        for shape in (LOCAL, *SHAPES):
            source = Source("random", str(operations), shape)
            # The overheads of interest are below 1%: the search must not stop at that gap.
            found += [
                Case(source, ram_of_peak=share, time_limit_s=limit_s, gap=0.001)
                for share in (0.9, 0.8)
            ]
    # As many operations and edges as the graph with published results, in a tenth of their time.
    found += [
        Case(Source(REMAT, "resnet50", REMAT), ram_of_peak=share, time_limit_s=6.5, gap=0.001)
        for share in (0.9, 0.8)
    ]
    return tuple(found)


def build(source: Source) -> Problem:
    """The problem of a source, without limits."""
    if source.group == "poet":
        return load(POET_GRAPHS / f"{source.graph}.json", source.device)
    if source.compiled:
        scope = "activations" if source.group == "activations" else "all"
        return _real(source.graph, source.device, scope)
    if source.group == REMAT:
        problem = load(POET_GRAPHS / f"{source.graph}.json", "m4")
        return dataclasses.replace(
            problem,
            operations=tuple(
                dataclasses.replace(o, energy_nj=o.time_ns) for o in problem.operations
            ),
            tensors=tuple(dataclasses.replace(t, pageable=False) for t in problem.tensors),
            idle_power_nw=0,
        )
    if source.device == LOCAL:
        return local(int(source.graph))
    return layered(int(source.graph), SHAPES[source.device])


def layered(operations: int, shape: Shape, seed: int = 1) -> Problem:
    """A random graph of layers of about `shape.width` operations, each with about `shape.edges`
    distinct inputs and one result. Sizes are 1 to 100 KiB, times 1 to 100 µs, drawn uniformly;
    energy is time; nothing can be paged."""
    rng = random.Random(f"{operations} {shape} {seed}")
    layers: list[range] = []
    while (first := layers[-1].stop if layers else 0) < operations:
        width = rng.randint(max(1, shape.width // 2), 3 * shape.width // 2)
        layers.append(range(first, min(first + width, operations)))
    inputs: list[set[int]] = [set() for _ in range(operations)]
    for before, layer in itertools.pairwise(layers):
        for k in layer:
            wanted = rng.randint(max(1, shape.edges // 2), 3 * shape.edges // 2)
            for _ in range(wanted):
                near = rng.random() >= shape.skip
                pool = before if near else range(before.stop)
                choice = [v for v in pool if v not in inputs[k]] or range(before.stop)
                inputs[k].add(rng.choice(choice))
        # Whatever nothing reads would be of no use: an operation of the next layer reads it.
        for v in set(before) - set().union(*(inputs[k] for k in layer)):
            inputs[rng.choice(layer)].add(v)
    times = [rng.randint(1, 100) * 1000 for _ in range(operations)]
    return Problem(
        tuple(
            Operation(f"op{k}", tuple(sorted(inputs[k])), (k,), times[k], times[k])
            for k in range(operations)
        ),
        tuple(
            Tensor(f"t{v}", rng.randint(1, 100) * 1024, pageable=False) for v in range(operations)
        ),
    )


def local(operations: int, seed: int = 1) -> Problem:
    """A random layered graph of the kind that the published results are about, as Gagrani et al.
    describe it ("Neural Topological Ordering for Computation Graphs", NeurIPS 2022, appendix A),
    with the parameters of the graphs of Bartan et al. ("Moccasin", ICML 2023) of `WIDTHS`.

    Matched: the law of the number and widths of layers (variability 0.75); edges between
    neighbouring layers (density 0.2), each operation reading a stretch of the layer before that
    lies where it lies itself; 14% of all edges skip layers; one source and one sink that take no
    time; times uniform to 1,000; sizes in tens, whose mean (2,030) and quartiles are those of the
    published graph of 100 operations; an order with a peak below that of layer by layer (by a tenth
    there, by 3 to 10% here). The edges come out as there, 2.4 an operation at 100 operations and
    5.8 at 1,000. The graphs themselves are others."""
    rng = random.Random(f"{LOCAL} {operations} {seed}")
    width = WIDTHS.get(operations, 0.35)
    mean = operations / math.ceil(math.sqrt(operations * (1 / width - 1)))
    layers = [range(0, 1)]
    while (first := layers[-1].stop) < operations - 1:
        wide = rng.randint(math.ceil(mean * 0.25), math.floor(mean * 1.75))
        layers.append(range(first, min(first + wide, operations - 1)))
    layers.append(range(operations - 1, operations))
    inputs: list[set[int]] = [set() for _ in range(operations)]
    for before, layer in itertools.pairwise(layers):
        _join(rng, inputs, before, layer)
    skipping = math.ceil(sum(map(len, inputs)) * 0.14 / (1 - 0.14))
    while skipping:
        a = rng.randrange(len(layers) - 3)
        b = rng.randrange(a + 2, len(layers) - 1)
        at = rng.random()
        to = min(at + 0.2 * rng.random(), 0.999)
        source = layers[a][int(at * len(layers[a]))]
        target = layers[b][int(to * len(layers[b]))]
        skipping -= source not in inputs[target]
        inputs[target].add(source)
    times = [0, *(rng.randint(1, 1000) for _ in range(operations - 2)), 0]
    sizes = [10 * max(1, round(abs(rng.gauss(0, 255)))) for _ in range(operations)]
    order = _thrifty(rng, inputs, sizes)
    place = {k: at for at, k in enumerate(order)}
    return Problem(
        tuple(
            Operation(
                f"op{k}", tuple(sorted(place[j] for j in inputs[k])), (at,), times[k], times[k]
            )
            for at, k in enumerate(order)
        ),
        tuple(Tensor(f"t{k}", sizes[k], pageable=False) for k in order),
    )


def _join(rng: random.Random, inputs: list[set[int]], before: range, layer: range) -> None:
    """Edges between neighbouring layers: each operation of the wider one is joined to as many
    neighbours of its own place in the other as its share of the edges."""
    wide, other = (before, layer) if len(before) >= len(layer) else (layer, before)
    edges = int(0.2 * len(wide) * len(other) + 0.8 * len(wide))
    shares = [edges // len(wide)] * len(wide)
    for index in rng.sample(range(len(wide)), edges % len(wide)):
        shares[index] += 1
    for index, share in enumerate(shares):
        middle = round(index * (len(other) - 1) / max(len(wide) - 1, 1))
        start = min(max(middle - share // 2, 0), len(other) - min(max(share, 1), len(other)))
        for neighbour in other[start : start + max(share, 1)]:
            source, target = (
                (wide[index], neighbour) if wide is before else (neighbour, wide[index])
            )
            inputs[target].add(source)
    # With few edges some operation of the narrower layer may be left out.
    for target in layer:
        if not inputs[target]:
            inputs[target].add(before[(target - layer.start) * len(before) // len(layer)])
    for source in set(before) - set().union(*(inputs[target] for target in layer)):
        inputs[layer[(source - before.start) * len(layer) // len(before)]].add(source)


def _thrifty(rng: random.Random, inputs: list[set[int]], sizes: list[int]) -> list[int]:
    """An order that runs, of three ready operations taken at random, the one that adds least."""
    waiting = [len(read) for read in inputs]
    readers: list[list[int]] = [[] for _ in inputs]
    for k in range(len(inputs)):
        for j in sorted(inputs[k]):
            readers[j].append(k)
    left = [len(reading) for reading in readers]

    def adds(k: int) -> int:
        return sizes[k] - sum(sizes[j] for j in inputs[k] if left[j] == 1)

    order: list[int] = []
    ready = [k for k, count in enumerate(waiting) if not count]
    while ready:
        k = min(rng.sample(ready, min(3, len(ready))), key=adds)
        ready.remove(k)
        order.append(k)
        for j in inputs[k]:
            left[j] -= 1
        for j in readers[k]:
            waiting[j] -= 1
            ready += [j] if not waiting[j] else []
    return order


def _real(model: str, device_name: str, scope: str) -> Problem:
    """A training step after fusion, ordered, with the costs of a device; the RAM is that of
    `scope`."""
    from poetc.costmodel.device import load_device
    from poetc.ir.graph import graphs
    from poetc.ir.text import make_context, parse_module
    from poetc.pipeline import front_passes, run_passes
    from poetc.planning.problem import problem_view
    from poetc.request import Options

    path = MODELS / f"{model}.mlir"
    module = parse_module(path.read_text(), str(path))
    run_passes(make_context(), module, front_passes(module, device_name), lambda *_: None)
    device = load_device(device_name)
    options = Options(device=device, device_name=device_name, ram_scope=scope)
    (graph,) = graphs(module)
    return problem_view(graph, options.schedule_options(graph)).problem


def peak_bytes(problem: Problem) -> int:
    """The most RAM in use when each operation runs once and everything is freed at its last use."""
    return footprint(problem, range(len(problem.operations))).peak_bytes


def to_json(problem: Problem) -> str:
    """The same text for the same problem, always."""

    def plain(value: Place | frozenset[int]) -> str | list[int]:
        return sorted(value) if isinstance(value, frozenset) else value.value

    return json.dumps(dataclasses.asdict(problem), default=plain, separators=(",", ":"))


def from_json(text: str) -> Problem:
    """The inverse of `to_json`."""
    data = json.loads(text)

    def place(value: str | None) -> Place | None:
        return None if value is None else Place(value)

    def tensor(fields: dict) -> Tensor:
        return Tensor(**{**fields, "start": place(fields["start"]), "end": place(fields["end"])})

    def variant(fields: dict) -> Variant:
        return Variant(**{**fields, "streamed": frozenset(fields["streamed"])})

    def operation(fields: dict) -> Operation:
        lists = {name: tuple(fields[name]) for name in ("inputs", "outputs")}
        lists |= {"inplace": tuple(map(tuple, fields["inplace"]))}
        lists |= {"variants": tuple(map(variant, fields.get("variants", ())))}
        return Operation(**{**fields, **lists})

    data["tensors"] = tuple(map(tensor, data["tensors"]))
    data["operations"] = tuple(map(operation, data["operations"]))
    return Problem(**data)
