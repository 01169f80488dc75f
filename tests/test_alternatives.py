"""What the user leaves open is compared: more RAM or time never costs more, and bounds cover all of
it."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import RandomGraph, random_graphs
from test_passes_schedule import device

from poetc.errors import InfeasibleError, TimeLimitError
from poetc.passes.poet_schedule import ScheduleOptions, ScheduleReport, schedule_graph

SEEN: dict[str, int] = {}
"""How often parameters were in each place in what the property tests looked at."""


def scheduled(
    random: RandomGraph, ram_bytes: int, params: str, dma: bool, time_limit_s: float = 5.0
) -> ScheduleReport | None:
    _, graph = random.parse()
    options = ScheduleOptions(
        ram_bytes=ram_bytes,
        device=device(dma),
        params=params,
        time_limit_s=time_limit_s,
        gap=0.0,
    )
    try:
        return schedule_graph(graph, options)
    except (InfeasibleError, TimeLimitError):
        return None


@settings(max_examples=40, deadline=None)
@given(random_graphs(8), st.booleans())
def test_more_ram_never_costs_more(random: RandomGraph, dma: bool) -> None:
    _, graph = random.parse()
    most = schedule_graph(graph, ScheduleOptions()).use.peak_bytes
    before = math.inf
    for eighths in range(1, 10):
        found = scheduled(random, max(1, most * eighths // 8), "auto", dma)
        energy_nj = math.inf if found is None else found.use.energy_nj
        assert energy_nj <= before, eighths
        before = energy_nj
        if found is not None:
            SEEN[found.params] = SEEN.get(found.params, 0) + 1


@settings(max_examples=40, deadline=None)
@given(random_graphs(8), st.booleans(), st.floats(0.2, 1.1))
def test_auto_is_the_better_of_both(random: RandomGraph, dma: bool, share: float) -> None:
    _, graph = random.parse()
    most = schedule_graph(graph, ScheduleOptions()).use.peak_bytes
    ram_bytes = max(1, round(share * most))
    auto, *both = (scheduled(random, ram_bytes, p, dma) for p in ("auto", "ram", "storage"))
    energies = [report.use.energy_nj for report in both if report is not None]
    assert (auto is None) == (not energies)
    if auto is None:
        return
    assert auto.use.energy_nj <= min(energies)
    # What is optimal is so over both places, and the bound says no more than each of them.
    assert auto.bound_nj <= min(energies)
    assert {tried.params for tried in auto.tried} <= {"ram", "storage"}
    for tried in auto.tried:
        if tried.bound_nj is not None:
            assert auto.bound_nj <= tried.bound_nj


def test_both_places_were_seen() -> None:
    assert SEEN.get("ram", 0) >= 20 and SEEN.get("storage", 0) >= 20, SEEN
