"""What more RAM saves: energy, time and bytes moved of a step against its RAM.

    python -m benchmarks.streaming_curve [MODEL ...]
    python -m benchmarks.streaming_curve --picture

The first prints the table of docs/streaming.md: each model compiled for an nRF52840 with parameters
whole, in RAM from the least in which a step in tiles is known to what it takes unlimited, each
budget as many times the one before. Searches end after work that is counted, so that a loaded
machine prints the same. It fails where more RAM takes more energy, beyond the gap that the search
ends at, or nothing fits. The second draws the table there as docs/streaming-curves.svg.
"""

from __future__ import annotations

import io
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import document
from benchmarks.arguments import MODELS
from benchmarks.streaming import compiled_by_work
from poetc.errors import UnscheduledError
from poetc.files import write_whole
from poetc.ir.text import parse_module
from poetc.options import OPTIONS
from poetc.report import Summary

NAMES = ("gesture_mlp", "kws_conv", "mlp_mnist", "lenet5", "dscnn", "resnet8")

BUDGETS = 8
"""Of each model."""

TOO_LITTLE_BYTES = 1200
"""RAM in which no step runs."""

LIMIT_S = 5
"""The time limit whose work a search may do."""

LONGER_S = 20
"""The same for `LARGE` models, and for finding the least RAM of any."""

LARGE = ("dscnn", "resnet8")

PAGE = Path(__file__).parents[1] / "docs" / "streaming.md"

PICTURE = "--picture"
"""Asks for `PAGE` drawn, in place of a table."""

HEAD = (
    "| model | RAM | takes | kernels in tiles | recomputed | read | written | time | energy | "
    "at least |"
)


@dataclass(frozen=True)
class Point:
    """All of the RAM that a step may take, and what came of it; None where nothing was found."""

    ram_bytes: int
    summary: Summary | None

    @property
    def energy_nj(self) -> float:
        if self.summary is None:
            return math.inf
        assert self.summary.energy_nj is not None
        return self.summary.energy_nj


def main(words: list[str]) -> int:
    """Prints the table, 1 where an energy rises; or draws the one that there is."""
    if words == [PICTURE]:
        picture = PAGE.with_name("streaming-curves.svg")
        write_whole(picture, drawn(PAGE.read_text()))
        print(picture.name)
        return 0
    curves: dict[str, list[Point]] = {}
    print(f"{HEAD}\n|---|{'--:|' * 9}", flush=True)
    for model in document.progress(document.chosen(words, NAMES)):
        curves[model] = _curve(model)
    risen = [
        f"{model} at {rise.ram_bytes:,} B" for model in curves for rise in rises(curves[model])
    ]
    if risen:
        print(f"more RAM takes more energy: {', '.join(risen)}", file=sys.stderr)
    return int(bool(risen))


def budgets(least_bytes: int, most_bytes: int) -> list[int]:
    """RAM in bytes, from the least to the most; each budget as many times the one before."""
    each = (most_bytes / least_bytes) ** (1 / (BUDGETS - 1))
    between = [int(least_bytes * each**n) // 4 * 4 for n in range(1, BUDGETS - 1)]
    return [least_bytes, *between, most_bytes]


def _least_bytes(model: str) -> int:
    try:
        _compiled(model, TOO_LITTLE_BYTES, LONGER_S)
    except UnscheduledError as error:
        least = error.diagnosis.least_ram
        if least is None or least.known_bytes is None:
            raise
        return least.known_bytes
    raise AssertionError(f"{model} runs in {TOO_LITTLE_BYTES} bytes")


def rises(points: Sequence[Point]) -> list[Point]:
    """Those that take more energy than one with less RAM, beyond the gap, or have no schedule in
    what is known to be enough."""
    gap = OPTIONS["gap"].value(None)
    least, found = math.inf, []
    for point in points:
        if point.summary is None or point.energy_nj * (1 - gap) > least:
            found.append(point)
        least = min(least, point.energy_nj)
    return found


def _curve(model: str) -> list[Point]:
    unlimited = _compiled(model, None)
    points: list[Point] = []
    for ram_bytes in budgets(_least_bytes(model), unlimited.ram.total_bytes):
        try:
            summary = _compiled(model, ram_bytes)
        except UnscheduledError as error:
            print(f"{model}, {ram_bytes:,} B: {error.diagnosis.text()}", file=sys.stderr)
            points.append(Point(ram_bytes, None))
            continue
        points.append(Point(ram_bytes, summary))
        print(_row(model, ram_bytes, summary), flush=True)
    return points


def _compiled(model: str, ram_bytes: int | None, limit_s: float | None = None) -> Summary:
    limit_s = limit_s or (LONGER_S if model in LARGE else LIMIT_S)
    given: dict[str, str | int] = {} if ram_bytes is None else {"ram": ram_bytes}
    module = parse_module((MODELS / f"{model}.mlir").read_text(), model)
    return compiled_by_work(module, model, given, limit_s).brief


def _row(model: str, ram_bytes: int, found: Summary) -> str:
    assert found.energy_nj is not None
    assert found.time_ns is not None and found.unlimited_energy_nj and found.bound_nj is not None
    relative = found.unlimited_energy_nj
    cells = (
        model,
        f"{ram_bytes / 1024:,.1f} KB",
        f"{found.ram.total_bytes:,} B",
        str(found.streams),
        str(found.recomputes),
        f"{found.page_in_bytes / 1024:,.0f} KB",
        f"{found.page_out_bytes / 1024:,.0f} KB",
        f"{found.time_ns / 1e6:,.1f} ms",
        f"{found.energy_nj / 1e6:,.2f} mJ, ×{found.energy_nj / relative:.2f}",
        f"×{found.bound_nj / relative:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def drawn(page: str) -> bytes:
    """The table on a page as SVG, the same bytes for the same table. Needs matplotlib."""
    import matplotlib
    from matplotlib.figure import Figure

    lines = page.splitlines()
    curves: dict[str, list[list[float]]] = {}
    for line in lines[lines.index(HEAD) + 2 :]:
        if not line.startswith("|"):
            break
        model, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        # Of an energy, the second number, which is relative.
        last = (re.findall(r"[\d,.]*\d", cell)[-1] for cell in cells)
        curves.setdefault(model, []).append([float(each.replace(",", "")) for each in last])
    with matplotlib.rc_context({"svg.hashsalt": "poetc", "svg.fonttype": "none", "font.size": 8}):
        figure = Figure(figsize=(7.2, 3.2), layout="constrained")
        energies, times, moves = figure.subplots(1, 3)
        for model, points in curves.items():
            ram, _, _, _, read, written, time, energy, bound = zip(*points, strict=True)
            (line,) = energies.plot(ram, energy, marker=".")
            energies.plot(ram, bound, linestyle=":", color=line.get_color())
            times.plot(ram, [each / time[-1] for each in time], marker=".", label=model)
            moves.plot(ram, list(map(sum, zip(read, written, strict=True))), marker=".")
        energies.set(yscale="log", title="energy, of unlimited RAM\n(dotted: bound)")
        times.set(yscale="log", title="time, of unlimited RAM")
        moves.set(yscale="log", title="KB read and written")
        for axes in (energies, times, moves):
            axes.set(xscale="log", xlabel="RAM in KB")
            axes.grid(linewidth=0.3)
        times.legend()
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
        return out.getvalue()


if __name__ == "__main__":
    document.run(main)
