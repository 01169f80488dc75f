"""The claims of the POET paper, judged by what was measured here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

HOLDS, ELSEWHERE, PARTLY, NO, UNTESTED = "holds", "elsewhere", "partly", "no", "not tested"
ROUNDING = 0.005
"""What whole percents may hide."""
LITTLE = 0.05
"""A share of the energy that is small enough to explain small differences."""
ALONE = {"paging-only": "paging-only", "checkmate": "remat-only"}
"""The strategies with one technique, and what the paper calls them."""


@dataclass(frozen=True)
class Point:
    """One strategy within one budget.

    `origin` is "released" or "true" (from StableHLO), `share` the RAM from the least (0) to the
    unlimited peak (1), `deadline` a multiple of the time of all kernels. `energy`, `bound` and
    `time` are relative to the step with unlimited RAM, None where there is no schedule; `seconds`
    are those of the processor. `energy_j` and `time_s` are absolute.
    """

    graph: str
    origin: str
    device: str
    share: float
    ram_bytes: int
    deadline: float | None
    strategy: str
    status: str
    energy: float | None = None
    energy_j: float | None = None
    bound: float | None = None
    time: float | None = None
    time_s: float | None = None
    peak_bytes: int | None = None
    recomputes: int | None = None
    page_ins: int | None = None
    reordered: bool | None = None
    seconds: float = 0.0

    @property
    def budget(self) -> tuple:
        """What two points share that can be compared."""
        return (self.graph, self.origin, self.device, self.share, self.deadline)


@dataclass(frozen=True)
class Graph:
    """What explains much of the rest: `cheap` is the share of the step's energy that the kernels
    take which make the cheapest half of all bytes, `paging` the energy of writing all tensors once
    and reading them once, relative to the step's."""

    graph: str
    origin: str
    device: str
    operations: int
    energy_j: float
    least_bytes: int
    peak_bytes: int
    cheap: float
    paging: float


@dataclass(frozen=True)
class Finding:
    """Our number, a word for whether the claim holds, and why not where it does not."""

    ours: str
    verdict: str
    why: str = ""


Judge = Callable[[Sequence[Point], Sequence[Graph]], Finding]


@dataclass(frozen=True)
class Claim:
    """What the paper says, and how that is judged on the points of one origin."""

    text: str
    judge: Judge


def pairs(points: Sequence[Point], strategy: str, **fixed: str) -> list[tuple[Point, Point]]:
    """Points of `auto` and of another strategy within the same budget, both with a schedule, where
    RAM is short; `fixed` says which graph and device."""
    chosen = [
        p
        for p in points
        if p.energy is not None
        and p.share < 1
        and all(getattr(p, name) == value for name, value in fixed.items())
    ]
    auto = {p.budget: p for p in chosen if p.strategy == "auto"}
    return [(auto[p.budget], p) for p in chosen if p.strategy == strategy and p.budget in auto]


def saving(pair: tuple[Point, Point]) -> float:
    """How much less energy the first uses, relative to the second."""
    ours, theirs = pair
    return 1 - (ours.energy or 0.0) / (theirs.energy or 1.0)


def judged(measured: float, anywhere: float, claimed: float, ours: str, why: str) -> Finding:
    """Whether as many percent are measured as are claimed: where the paper says so, elsewhere, or
    half as many."""
    if measured >= claimed - ROUNDING:
        return Finding(ours, HOLDS)
    if anywhere >= claimed - ROUNDING:
        return Finding(ours, ELSEWHERE, why)
    return Finding(ours, PARTLY if measured >= claimed / 2 else NO, why)


def less_than_dtr(points: Sequence[Point], graphs: Sequence[Graph]) -> Finding:
    """Up to 35% less energy than DTR, ResNet-18 on TX2."""
    asked = _on_tx2(points, "ResNet-18")
    there = pairs(asked, "dtr")
    if not there:
        return Finding("", UNTESTED)
    best, most = max(map(saving, there)), max(pairs(points, "dtr"), key=saving)
    ours = f"ResNet-18: up to {best:.2%}; all graphs: up to {saving(most):.1%} ({_where(most[0])})"
    ours += _without(asked, "dtr")
    compared = {pair[0].budget for pair in there}
    alone = [
        (p.energy or 0.0) - 1
        for p in asked
        if p.strategy == "auto" and p.share < 1 and p.energy and p.budget not in compared
    ]
    why = _cheap(graphs, "ResNet-18", "dtr")
    if alone:
        why = (
            "With less RAM dtr has no schedule that could be compared, where auto takes at most "
            f"{max(alone):.2%} more than with unlimited RAM."
        )
    return judged(best, saving(most), 0.35, ours, why)


def far_from_capuchin(points: Sequence[Point], graphs: Sequence[Graph]) -> Finding:
    """Capuchin takes 73 to 141% more than with full memory, POET under 1%, ResNet-18 on A72."""
    there = pairs(points, "capuchin", graph="ResNet-18", device="A72")
    if not there:
        return Finding("", UNTESTED)
    mine = [(ours.energy or 0.0) - 1 for ours, _ in there]
    theirs = [(other.energy or 0.0) - 1 for _, other in there]
    _, worst = max(pairs(points, "capuchin"), key=lambda pair: pair[1].energy or 0.0)
    ours = (
        f"capuchin {min(theirs):.2%} to {max(theirs):.2%} more, "
        f"auto {min(mine):.2%} to {max(mine):.2%}; "
        f"most of all: capuchin {(worst.energy or 0.0) - 1:.1%} more ({_where(worst)})"
    )
    if max(mine) >= 0.01:
        return Finding(ours, NO, "auto takes more than 1%.")
    why = _paging(graphs, "ResNet-18", "A72")
    return judged(max(theirs), (worst.energy or 0.0) - 1, 0.73, ours, why)


def better_than_pofo(points: Sequence[Point], graphs: Sequence[Graph]) -> Finding:
    """8.3% less RAM and 13% less time than POFO, ResNet-18 on TX2."""
    asked = _on_tx2(points, "ResNet-18")
    same = [_faster(*pair) for pair in pairs(asked, "pofo")]
    if not same:
        return Finding("", UNTESTED)
    found = [p for p in asked if p.energy is not None]
    smaller = [
        _faster(ours, theirs)
        for ours in found
        for theirs in found
        if (ours.strategy, theirs.strategy, ours.device) == ("auto", "pofo", theirs.device)
        and (ours.peak_bytes or 0) <= (1 - 0.0825) * (theirs.peak_bytes or 0)
    ]
    most = max(smaller, default=0.0)
    ours = f"time within the same budget: {_change(-max(same))} to {_change(-min(same))}"
    ours += f"; with 8.3% less RAM at best {_change(-most)}" if smaller else ""
    ours += _without(asked, "pofo")
    slowest = max((p.time or 1.0) - 1 for p in found if p.strategy == "pofo")
    why = (
        f"The schedules of pofo here take at most {slowest:.2%} more time than the step with "
        "unlimited RAM: more than that cannot be saved."
    )
    return judged(most, most, 0.13, ours, why)


def better_than_one_technique(points: Sequence[Point], graphs: Sequence[Graph]) -> Finding:
    """Up to 40% less than with one technique alone, VGG-16."""
    single = {strategy: pairs(points, strategy, graph="VGG-16") for strategy in ALONE}
    if not all(single.values()):
        return Finding("", UNTESTED)
    best = {strategy: max(map(saving, there)) for strategy, there in single.items()}
    most = max((pair for strategy in ALONE for pair in pairs(points, strategy)), key=saving)
    ours = "VGG-16: up to " + " and ".join(f"{best[s]:.2%} less than {ALONE[s]}" for s in ALONE)
    ours += f"; all graphs: {saving(most):.1%} less than {ALONE[most[1].strategy]} "
    ours += f"({_where(most[0])})"
    ours += "".join(_without(_of(points, "VGG-16"), strategy) for strategy in ALONE)
    better: dict[tuple, float] = {}
    for pair in (pair for there in single.values() for pair in there):
        budget = pair[0].budget
        better[budget] = min(saving(pair), better.get(budget, 1.0))
    why = (
        "In every budget one of the two is nearly as good as both: against the better one at most "
        f"{max(better.values()):.2%} are saved."
    )
    return judged(max(best.values()), saving(most), 0.40, ours, why)


def under_ten_minutes(points: Sequence[Point], graphs: Sequence[Graph]) -> Finding:
    """Every solve takes less than ten minutes."""
    mine = [p for p in points if p.strategy == "auto"]
    if not mine:
        return Finding("", UNTESTED)
    slowest = max(mine, key=lambda p: p.seconds)
    solved = sum(p.energy is not None for p in mine)
    closed = sum(p.status == "optimal" for p in mine)
    ours = (
        f"auto: {slowest.seconds:.0f} s of one core at most ({_where(slowest)}); {solved} of "
        f"{len(mine)} with a schedule, {closed} of them within 1% of the bound"
    )
    if slowest.seconds >= 600 or solved < len(mine):
        return Finding(ours, NO, "Some took longer, or have no schedule.")
    if closed < len(mine):
        worst = max(1 - (p.bound or 0.0) / (p.energy or 1.0) for p in mine)
        why = (
            f"The gap is up to {worst:.1%} when the effort is spent that was given here, a "
            "fraction of ten minutes."
        )
        return Finding(ours, PARTLY, why)
    return Finding(ours, HOLDS)


CLAIMS = (
    Claim("Up to 35% less energy than DTR (ResNet-18, TX2)", less_than_dtr),
    Claim(
        "Capuchin takes 73 to 141% more energy than full memory, POET less than 1% more "
        "(ResNet-18, A72)",
        far_from_capuchin,
    ),
    Claim("8.3% less RAM and 13% less time than POFO (ResNet-18, TX2)", better_than_pofo),
    Claim(
        "Up to 40% less energy than paging only or rematerialization only (VGG-16)",
        better_than_one_technique,
    ),
    Claim("Solved in less than 10 minutes", under_ten_minutes),
)


def _faster(ours: Point, theirs: Point) -> float:
    """How much less time the first takes, relative to the second."""
    return 1 - (ours.time or 0.0) / (theirs.time or 1.0)


def _change(share: float) -> str:
    """-0.013 as "-1.30%"."""
    return f"{share + 0.0:+.2%}"


def _of(points: Sequence[Point], graph: str) -> list[Point]:
    return [p for p in points if p.graph == graph]


def _on_tx2(points: Sequence[Point], graph: str) -> list[Point]:
    """The points of a graph on a TX2; on all devices where there is none."""
    there = _of(points, graph)
    return [p for p in there if p.device == "TX2"] or there


def _where(point: Point) -> str:
    """A budget in words."""
    return f"{point.graph}, {point.device}, {_size(point.ram_bytes)}"


def _size(bytes: int) -> str:
    return f"{bytes / 2**20:.3g} MiB" if bytes >= 2**20 else f"{bytes / 2**10:.3g} KiB"


def _without(points: Sequence[Point], strategy: str) -> str:
    """In how many of the budgets in which `auto` has a schedule the strategy has none."""
    auto = {p.budget for p in points if p.strategy == "auto" and p.energy is not None}
    asked = [p for p in points if p.strategy == strategy and p.budget in auto]
    none = sum(p.energy is None for p in asked)
    name = ALONE.get(strategy, strategy)
    return f"; {name} has no schedule in {none} of {len(asked)} budgets" if none else ""


def _cheap(graphs: Sequence[Graph], graph: str, strategy: str) -> str:
    """Why a method that recomputes is nearly as good."""
    most = max((g.cheap for g in graphs if g.graph == graph), default=1.0)
    if most > LITTLE:
        return f"{strategy} comes near the best schedule where it has one."
    return (
        f"Half of the bytes of {graph} are made by kernels that take {most:.2%} of the energy. "
        f"Where {strategy} has a schedule it recomputes those, too, and little is left to save."
    )


def _paging(graphs: Sequence[Graph], graph: str, device: str) -> str:
    """Why paging cannot cost that much."""
    shares = [g.paging for g in graphs if (g.graph, g.device) == (graph, device)]
    all_once = f"{max(shares):.2%}" if shares else "little"
    return (
        "At the costs of this device, writing every tensor once and reading it once takes "
        f"{all_once} of the energy of the step: what mostly pages does not come near 73%."
    )
