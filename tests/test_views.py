"""Pictures of a step: they show what the checker and the report say, and work in a browser."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from conftest import MODELS, more

from poetc import views
from poetc.cli import main
from poetc.compilation import CompiledStep, compile_step
from poetc.ir.graph import view_scheduled
from poetc.ir.text import read_module
from poetc.options import Given
from poetc.planning.problem import alignment_of, storage_of
from poetc.request import options_of
from poetc.schedule.model.checker import replay
from poetc.units import format_time
from poetc.views.step import live_bytes, stacked, step_view
from poetc.views.trace import LANES

CASES = {
    "gesture_mlp": [
        {},
        {"ram": "9600"},
        {"ram": "8KB"},
        {"ram": "3KB", "stream": "auto"},
    ],
    "kws_conv": [{"ram": "8KB"}],
    "lenet5": [{"ram": "210KB"}, {"ram": "210KB", "device": "mkr1000"}],
}


@cache
def compiled(model: str, case: int) -> CompiledStep:
    path = MODELS / f"{model}.mlir"
    asked = {"device": "nrf52840", "time_limit": "30", "stop": "work", "stream": "never"}
    given = Given(asked | CASES[model][case])
    options = options_of(given, warn=lambda message: None)
    return compile_step(read_module(path.read_bytes(), path.name), path.name, options)


def drawn(step: CompiledStep, picture: str, path: str) -> str | bytes:
    return views.draw(step, {picture: path})[path]


pytestmark = pytest.mark.usefixtures("by_work")

TILES = 3
"""The case of gesture_mlp with kernels in tiles."""

STEPS = [
    *(("gesture_mlp", case) for case in range(len(CASES["gesture_mlp"]))),
    ("kws_conv", 0),
    *more(("lenet5", 0), ("lenet5", 1)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "case"), STEPS)
def test_what_is_shown_is_what_is_scheduled(model: str, case: int) -> None:
    """RAM, time, energy and transfers add up to what the report says."""
    step = compiled(model, case)
    view, summary = step_view(step.compiled), step.summary
    peak_bytes = max(sum(live.values()) for _, live in live_bytes(view))
    assert peak_bytes == summary.ram.peak.bytes
    blocks = stacked(view.lives)
    assert max(b.bottom + view.lives[b.life].bytes for b in blocks) == peak_bytes
    busy_ns = sum(run.end_ns - run.begin_ns for run in view.runs)
    stalled_ns = sum(stall.end_ns - stall.begin_ns for stall in view.stalls)
    assert busy_ns + stalled_ns == view.makespan_ns == summary.time_ns
    assert stalled_ns == sum(move.stall_ns for move in view.moves)
    assert sum(run.recomputes for run in view.runs) == summary.recomputes
    tiles = [run.tiles for run in view.runs if run.tiles is not None]
    assert len(tiles) == summary.streams
    moved = [(move.direction, 1, move.bytes) for move in view.moves]
    moved += [(each.direction, each.count, each.bytes) for t in tiles for each in t.slices]
    for direction, count, size in (
        ("in", summary.page_ins, summary.page_in_bytes),
        ("out", summary.page_outs, summary.page_out_bytes),
    ):
        assert sum(n for d, n, _ in moved if d == direction) == count
        assert sum(n for d, _, n in moved if d == direction) == size
    device = step.compiled.options.device
    idle_nj = round(device.idle_power_w * view.makespan_ns)
    spent_nj = sum(run.energy_nj for run in view.runs) + sum(m.energy_nj for m in view.moves)
    assert abs(spent_nj + idle_nj - (summary.energy_nj or 0)) <= 1


@pytest.mark.slow
@pytest.mark.parametrize(("model", "case"), STEPS)
def test_what_is_shown_is_what_the_checker_counts(model: str, case: int) -> None:
    """Which runs the steps of the graph on its own."""
    compiled_step = compiled(model, case).compiled
    graph, device = compiled_step.graph, compiled_step.options.device
    storage, align = storage_of(device, graph.block_bytes), alignment_of(device)
    checked_view = view_scheduled(graph, storage=storage, align=align)
    report = replay(checked_view.problem, checked_view.steps)
    view = step_view(compiled_step)
    peak_bytes = max(sum(live.values()) for _, live in live_bytes(view))
    assert peak_bytes == report.peak_bytes + (graph.block_bytes or 0)
    assert view.makespan_ns == report.makespan_ns
    tiles = [run.tiles for run in view.runs if run.tiles is not None]
    slices_ns = sum(each.read_ns + each.write_ns for each in tiles)
    assert sum(m.end_ns - m.begin_ns for m in view.moves) + slices_ns == report.bus_ns
    spent_nj = sum(run.energy_nj for run in view.runs) + sum(m.energy_nj for m in view.moves)
    assert spent_nj == report.energy_nj
    assert all(0 <= r.tiles.slices_nj < r.energy_nj for r in view.runs if r.tiles is not None)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "case"), STEPS)
def test_blocks_and_buffers_do_not_overlap(model: str, case: int) -> None:
    """In the arena and in the stack, where each block of a live range follows the one before."""
    view = step_view(compiled(model, case).compiled)
    blocks = stacked(view.lives)
    assert view.lives and blocks

    def apart(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
        """Rectangles: from and to of the steps, of the times, and of the bytes."""
        same_step = a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]
        return not same_step or a[5] <= b[4] or b[5] <= a[4]

    def lives() -> Iterator[tuple[int, ...]]:
        for life in view.lives:
            top = life.offset + life.bytes
            yield life.begin, life.end, life.begin_ns, life.end_ns, life.offset, top
            assert life.offset >= 0 and top <= view.arena_bytes

    def stack() -> Iterator[tuple[int, ...]]:
        for b in blocks:
            top = b.bottom + view.lives[b.life].bytes
            yield b.begin, b.end, b.begin_ns, b.end_ns, b.bottom, top

    for rectangles in (lives(), stack()):
        assert all(apart(a, b) for a, b in combinations(list(rectangles), 2))
    for index, life in enumerate(view.lives):
        own = sorted((b.begin, b.begin_ns, b.end, b.end_ns) for b in blocks if b.life == index)
        assert own[0][:2] == (life.begin, life.begin_ns)
        assert own[-1][2:] == (life.end, life.end_ns)
        assert all(a[2:] == b[:2] for a, b in pairwise(own))


@pytest.mark.slow
@pytest.mark.parametrize("case", [3, TILES])
def test_trace(case: int) -> None:
    """Events of a lane come one after the other, and the counter has the peak of the report."""
    step = compiled("gesture_mlp", case)
    events = json.loads(drawn(step, "trace", "x"))["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X", "C"}
    for lane in range(1, len(LANES) + 1):
        own = [e for e in events if e["ph"] == "X" and e["tid"] == lane]
        assert own
        ends = [e["ts"] + e["dur"] for e in own]
        assert all(e["ts"] >= end - 1e-6 for e, end in zip(own[1:], ends, strict=False))
    counters = [sum(e["args"].values()) for e in events if e["ph"] == "C"]
    assert max(counters) == step.summary.ram.peak.bytes
    for lane, size in ((3, step.summary.page_in_bytes), (4, step.summary.page_out_bytes)):
        own = [e["args"]["bytes"] for e in events if e["ph"] == "X" and e["tid"] == lane]
        assert sum(own) == size
    # A kernel in tiles says what the events of its slices show.
    kernels = [e["args"] for e in events if e["ph"] == "X" and e["tid"] == 1]
    told_ns = [sum(each.get(name, 0) for each in kernels) for name in ("read_ns", "write_ns")]
    for lane, told in zip((3, 4), told_ns, strict=True):
        moves = [e for e in events if e["ph"] == "X" and e["tid"] == lane]
        shown = sum(e["dur"] for e in moves if e["name"].startswith("slices of "))
        assert 1000 * shown == pytest.approx(told)
    assert step.summary.timeline is not None
    assert sum(told_ns) == step.summary.timeline.slices_ns


def test_figure() -> None:
    """A picture that an SVG reader reads, the same each time, and a PNG."""
    step = compiled("gesture_mlp", 1)
    svg = drawn(step, "plot", "memory.svg")
    assert svg == drawn(step, "plot", "memory.svg")
    groups = [e.get("id", "") for e in ElementTree.fromstring(svg).iter()]
    kinds = {
        kind for _, live in live_bytes(step_view(step.compiled)) for kind in live if live[kind]
    }
    assert sum(name.startswith("FillBetweenPolyCollection") for name in groups) == len(kinds) > 2
    assert drawn(step, "plot", "memory.PNG")[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--plot=memory.gif"], "--plot=memory.gif: the name ends with one of .svg, .png, .pdf"),
        (["--report=no/where.html"], "cannot write no/where.html: there is no"),
        (["--trace=-"], "--trace=-: pictures are written into files"),
        (["--report=./a.svg", "--plot=a.svg"], "--report and --plot write the same file a.svg"),
        (["-o", "a.json", "--trace=a.json"], "-o and --trace write the same file a.json"),
        (["--trace=t.json", "--passes=poet-order"], "--trace cannot go with --passes"),
    ],
)
def test_refused_before_the_search(
    options: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([str(MODELS / "gesture_mlp.mlir"), "--ram=9600", *options]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_pictures_leave_kernels_in_tiles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where kernels in tiles take less energy than whole ones, they run so; the IR has the same
    pictures, but for the places in the source."""
    words = ["--emit=ir", "-q", "--device=nrf52840"]
    source = [str(MODELS / "gesture_mlp.mlir"), "--ram=8KB"]
    source += ["--stop=work", "--time-limit=50"]
    traces = tmp_path / "first.json", tmp_path / "second.json"
    assert main([*source, *words, f"--trace={traces[0]}"]) == 0
    text = capsys.readouterr().out
    assert "poet.stream" in text
    scheduled = tmp_path / "gesture_mlp.mlir"
    scheduled.write_text(text)
    assert main([str(scheduled), *words, f"--trace={traces[1]}"]) == 0
    events = [json.loads(path.read_text())["traceEvents"] for path in traces]
    for event in itertools.chain(*events):
        event["args"].pop("source", None)
    assert events[0][1:] == events[1][1:]


def test_library_that_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(views, "find_spec", lambda name: None)
    page = tmp_path / "page.html"
    assert main([str(MODELS / "gesture_mlp.mlir"), f"--report={page}"]) == 2
    assert "--report needs pip install 'poetc[report]'" in capsys.readouterr().err


@contextmanager
def opened(step: CompiledStep, page: Path) -> Iterator[Any]:
    """The tab of Chromium with the page of a step, in dark, which may say nothing."""
    sync_api = pytest.importorskip("playwright.sync_api")
    page.write_text(str(drawn(step, "report", page.name)))
    said: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        context = browser.new_context(color_scheme="dark", offline=True)
        tab = context.new_page()
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.goto(page.as_uri())
        tab.wait_for_selector("body[data-drawn=time]")
        yield tab
        browser.close()
    assert not said


@pytest.mark.slow
def test_page_in_a_browser(tmp_path: Path) -> None:
    """In Chromium: no error, tooltips, a tensor picked with the mouse and with the keyboard, both
    axes, and dark."""
    step = compiled("gesture_mlp", 1)
    loss = step.summary.ram.peak.tensors[0].name
    with opened(step, tmp_path / "page.html") as tab:
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)"
        marks = tab.locator("#picture .mark-rect path")
        assert marks.count() > 3 * len(step_view(step.compiled).runs)
        marks.first.hover()
        tab.wait_for_selector("#vg-tooltip-element.visible")
        assert "live from" in tab.inner_text("#vg-tooltip-element")
        marks.first.click()
        name = tab.inner_text("#life").split(":")[0]
        assert name == tab.inner_text("#tensors tr.picked td >> nth=0")
        tab.keyboard.press("Escape")
        assert tab.inner_text("#life") == ""
        tab.locator("#tensors td button", has_text=loss).first.focus()
        tab.keyboard.press("Enter")
        assert loss in tab.inner_text("#life") and "read by" in tab.inner_text("#life")
        tab.check("input[value=steps]")
        tab.wait_for_selector("body[data-drawn=steps]")
        tab.locator("#kernels th button", has_text="time").click()
        times = tab.locator("#kernels tbody tr td:nth-child(2)").all_inner_texts()
        costs = [c.cost.time_ns for c in step.compiled.graph.computes if c.cost is not None]
        assert times[0] == format_time(max(costs))
        assert "Kernels" in tab.inner_text("body")


@pytest.mark.slow
def test_page_of_a_step_in_tiles(tmp_path: Path) -> None:
    """In Chromium: how each kernel runs, where its time goes, and what it moves of which tensor."""
    step = compiled("gesture_mlp", TILES)
    runs = [run for run in step_view(step.compiled).runs if run.tiles is not None]
    with opened(step, tmp_path / "page.html") as tab:
        rows = tab.locator("#kernels tbody tr", has_text="in tiles")
        titles = [row.get_attribute("title") for row in rows.all()]
        assert len(titles) == len(runs)
        for run in runs:
            assert run.tiles is not None
            assert any(f"tiles: {run.tiles.text}; computing" in title for title in titles)
        moved = tab.locator("#tensors tbody tr td:nth-child(7)").all_inner_texts()
        total = sum(int(text.replace(",", "")) for text in moved)
        assert total == step.summary.page_in_bytes + step.summary.page_out_bytes
        marks = tab.locator('#picture .mark-rect path[fill="#72b7b2"]')
        assert marks.count() == len(runs)
        marks.first.hover()
        tab.wait_for_selector("#vg-tooltip-element.visible")
        tip = tab.inner_text("#vg-tooltip-element")
        assert runs[0].kernel in tip and "reading" in tip
        assert "kernel in tiles reads is shown" in tab.inner_text("body")
