"""The page on the POET paper: verdicts follow from numbers, and every strategy is there."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import paper
from benchmarks.paper_claims import (
    CLAIMS,
    ELSEWHERE,
    HOLDS,
    NO,
    PARTLY,
    UNTESTED,
    Point,
    better_than_one_technique,
    better_than_pofo,
    far_from_capuchin,
    less_than_dtr,
    under_ten_minutes,
)
from benchmarks.paper_features import branching, features
from poetc.schedule.strategies import names

ROOT = Path(__file__).parent.parent


def made(strategy: str, energy: float | None, graph: str = "ResNet-18", **fields) -> Point:
    """A point in a made-up budget; times are 1 and RAM 1,000 bytes where nothing else is said."""
    status = "feasible" if energy is not None else "none found"
    point = Point(graph, "true", "TX2", 0.1, 1000, None, strategy, status, energy)
    return replace(point, **{"time": 1.0, "peak_bytes": 1000} | fields)


@pytest.mark.parametrize(
    ("dtr", "verdict"), [(2.0, HOLDS), (1.3, PARTLY), (1.1, NO), (0.9, NO), (None, UNTESTED)]
)
def test_less_than_dtr(dtr: float | None, verdict: str) -> None:
    found = less_than_dtr([made("auto", 1.0), made("dtr", dtr)], ())
    assert found.verdict == verdict
    if dtr is not None:
        assert f"up to {1 - 1 / dtr:.2%}" in found.ours


def test_what_holds_elsewhere_is_not_what_is_claimed() -> None:
    there = [made("auto", 1.0), made("dtr", 1.1)]
    other = [made("auto", 1.0, "BERT"), made("dtr", 2.0, "BERT")]
    assert less_than_dtr([*there, *other], ()).verdict == ELSEWHERE
    m0 = [replace(point, graph="ResNet-18", device="M0") for point in other]
    assert less_than_dtr([*there, *m0], ()).verdict == ELSEWHERE
    # Where nothing was measured on the device of the claim, others stand for it.
    assert less_than_dtr(m0, ()).verdict == HOLDS


def test_only_the_same_budget_is_compared() -> None:
    points = [made("auto", 1.0), made("dtr", 2.0, share=0.4), made("dtr", 2.0, deadline=1.5)]
    assert less_than_dtr(points, ()).verdict == UNTESTED
    # With all the RAM that is of use nobody saves anything.
    roomy = [made("auto", 1.0, share=1.0), made("dtr", 2.0, share=1.0)]
    assert less_than_dtr(roomy, ()).verdict == UNTESTED
    # A budget without a schedule of dtr is told, not counted.
    more = [made("auto", 1.0, share=0.2), made("dtr", None, share=0.2)]
    found = less_than_dtr([made("auto", 1.0), made("dtr", 2.0), *more], ())
    assert "no schedule in 1 of 2 budgets" in found.ours and "50.00%" in found.ours


@pytest.mark.parametrize(
    ("auto", "capuchin", "verdict"),
    [
        (1.005, 2.0, HOLDS),
        (1.02, 2.0, NO),
        (1.005, 1.5, PARTLY),
        (1.005, 1.2, NO),
        (1.005, 1.001, NO),
    ],
)
def test_far_from_capuchin(auto: float, capuchin: float, verdict: str) -> None:
    points = [made("auto", auto, device="A72"), made("capuchin", capuchin, device="A72")]
    assert far_from_capuchin(points, ()).verdict == verdict
    assert far_from_capuchin([made("auto", auto), made("capuchin", capuchin)], ()).verdict == (
        UNTESTED
    )


@pytest.mark.parametrize(
    ("ram", "time", "verdict"),
    [
        (917, 0.868, HOLDS),  # the paper's numbers
        (930, 0.868, NO),  # less time, but too much RAM
        (917, 0.9, PARTLY),
        (917, 1.0, NO),
        (800, 1.1, NO),
    ],
)
def test_better_than_pofo(ram: int, time: float, verdict: str) -> None:
    points = [made("auto", 1.0, peak_bytes=ram, time=time), made("pofo", 1.0)]
    assert better_than_pofo(points, ()).verdict == verdict
    # What is found on another device does not count where there is the paper's own.
    other = [replace(p, device="A72", time=p.time if p.strategy == "auto" else 9.0) for p in points]
    assert better_than_pofo([*points, *other], ()).verdict == verdict


@pytest.mark.parametrize(
    ("paging", "remat", "verdict"),
    [(1.7, 1.01, HOLDS), (1.01, 1.7, HOLDS), (1.3, 1.0, PARTLY), (1.0, 1.0, NO)],
)
def test_better_than_one_technique(paging: float, remat: float, verdict: str) -> None:
    points = [made("auto", 1.0), made("paging-only", paging), made("checkmate", remat)]
    points = [replace(point, graph="VGG-16") for point in points]
    assert better_than_one_technique(points, ()).verdict == verdict


def test_under_ten_minutes() -> None:
    quick, slow = (made("auto", 1.0, seconds=s, status="optimal") for s in (599.0, 600.0))
    assert under_ten_minutes([quick], ()).verdict == HOLDS
    assert under_ten_minutes([quick, slow], ()).verdict == NO
    assert under_ten_minutes([quick, made("auto", 1.0, status="feasible")], ()).verdict == PARTLY
    assert under_ten_minutes([quick, made("auto", None)], ()).verdict == NO
    assert under_ten_minutes([quick, made("dtr", None, seconds=999.0)], ()).verdict == HOLDS


def test_every_graph_is_on_every_device() -> None:
    found = [(p.graph, p.origin, p.device) for p in paper.places()]
    assert len(found) == len(set(found)) == 3 * (3 + 4)
    run = {
        name
        for place in paper.places()
        for case in place.budgets()
        for name in place.strategies(case)
    }
    assert run | {"remat-only", "monet", "milp"} == set(names())


def test_the_page() -> None:
    """Written by the script, of this version of the claims and strategies, with its pictures."""
    text = (ROOT / "docs" / "paper.md").read_text()
    assert text.startswith(paper.INTRODUCTION)
    # `monet` is `checkmate` where operations have no variants.
    for name in {*names()} - {"monet"}:
        assert re.search(rf"^\| `{name}` \| [0-9]+ \|", text, re.MULTILINE), name
    for claim in CLAIMS:
        assert f"| {claim.text} | released | " in text and f"| {claim.text} | true | " in text
    shown = re.findall(r"\]\(paper/(.*?\.svg)\)", text)
    folder = ROOT / "docs" / "paper"
    assert {*shown, "points.csv"} == {path.name for path in folder.iterdir()}
    assert all((folder / name).stat().st_size < 100_000 for name in shown)
    for page in ("mkdocs.yml", "README.md"):
        assert "paper.md" in (ROOT / page).read_text()


def test_the_page_says_what_the_points_say() -> None:
    """The claims are judged again on the points that were kept."""
    points = paper.read_points((ROOT / "docs" / "paper" / "points.csv").read_text())
    text = (ROOT / "docs" / "paper.md").read_text()
    for claim in CLAIMS:
        for origin in paper.GROUPS:
            found = claim.judge([p for p in points if p.origin == origin], ())
            assert f"| {claim.text} | {origin} | {found.ours} | **{found.verdict}** |" in text


def test_pictures_are_the_same_every_time() -> None:
    points = [
        made(strategy, energy, share=share, ram_bytes=int(1000 * share), energy_j=energy)
        for share in (0.1, 0.4)
        for strategy, energy in (("auto", 1.0), ("dtr", 1.1), ("pofo", None))
    ]
    once, again = (
        paper.panels([[("a title", points)]], paper._ram_mib, paper._energy_j, ("RAM", "energy"))
        for _ in range(2)
    )
    assert once == again and once.startswith(b"<?xml")
    assert b"dtr" in once and b"pofo" not in once


def test_features_are_those_of_schedules() -> None:
    dtr, capuchin, nothing = map(features, ("dtr", "capuchin", "keep-all"))
    assert dtr.remat == 1 and not dtr.paging and dtr.general
    assert capuchin.paging == 1 and capuchin.remat and capuchin.together
    # None of them looks at energies, or changes the order.
    assert not any(has.power or has.order or has.optimal for has in (dtr, capuchin, nothing))
    assert nothing.schedules == 0 and not nothing.general


def test_the_general_graph_has_no_articulation_point() -> None:
    """After no operation is its own result all that is still read."""
    for problem in branching():
        producers, readers = problem.producers(), problem.readers()
        for k in range(1, len(problem.operations) - 1):
            live = [
                v
                for v, reading in enumerate(readers)
                if (producers[v] or 0) < k and any(j > k for j in reading)
            ]
            assert live, k
