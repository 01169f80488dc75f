"""What more RAM saves: energy, time and bytes moved of a step against its RAM.

    python -m benchmarks.streaming_curve [MODEL ...] [--picture=FILE.svg]

Prints a table: each model compiled for an nRF52840 with parameters whole, in RAM from 8 KB to what
it takes unlimited, each budget about 1.4 times the one before. The picture has energies and bounds,
relative to unlimited RAM. It fails where more RAM takes more energy, beyond the gap that the search
ends at.
"""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import document
from benchmarks.arguments import MODELS
from poetc.compilation import compile_step
from poetc.errors import UnscheduledError
from poetc.files import write_whole
from poetc.ir.text import parse_module
from poetc.options import OPTIONS, Given
from poetc.report import Summary
from poetc.request import options_of

NAMES = ("gesture_mlp", "mlp_mnist", "lenet5", "dscnn", "resnet8", "bert_micro")

LEAST_KIB = 8

STEP = math.sqrt(2)
"""How many times as much RAM each budget has as the one before."""

PICTURE = "--picture"


@dataclass(frozen=True)
class Point:
    """All of the RAM that a step may take, and what came of it."""

    ram_bytes: int
    summary: Summary

    @property
    def energy_nj(self) -> int:
        assert self.summary.energy_nj is not None
        return self.summary.energy_nj


def main(words: list[str]) -> int:
    """Prints the table, and writes the picture; 1 where an energy rises."""
    words, picture = _without_picture(words)
    curves: dict[str, list[Point]] = {}
    print(
        "| model | RAM | takes | kernels in tiles | recomputed | read | written | time | energy | "
        "at least |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    )
    for model in document.progress(document.chosen(words, NAMES)):
        curves[model] = _curve(model)
    if picture is not None:
        write_whole(picture, drawn(curves))
    risen = [
        f"{model} at {rise.ram_bytes:,} B" for model in curves for rise in rises(curves[model])
    ]
    if risen:
        print(f"more RAM takes more energy: {', '.join(risen)}", file=sys.stderr)
    return int(bool(risen))


def budgets(most_bytes: int) -> list[int]:
    """RAM in bytes, from the least to `most_bytes`, which is the last."""
    found = [LEAST_KIB << 10]
    while found[-1] * STEP < most_bytes:
        found.append(int(found[-1] * STEP) // 4 * 4)
    return [*(each for each in found if each < most_bytes), most_bytes]


def rises(points: Sequence[Point]) -> list[Point]:
    """Those that take more energy than one with less RAM, beyond the gap."""
    gap = OPTIONS["gap"].value(None)
    least, found = math.inf, []
    for point in points:
        if point.energy_nj * (1 - gap) > least:
            found.append(point)
        least = min(least, point.energy_nj)
    return found


def _curve(model: str) -> list[Point]:
    unlimited = _compiled(model, None)
    points: list[Point] = []
    for ram_bytes in budgets(unlimited.ram.total_bytes):
        try:
            summary = _compiled(model, ram_bytes)
        except UnscheduledError as error:
            print(f"{model}, {ram_bytes:,} B: {error.diagnosis.text()}", file=sys.stderr)
            continue
        points.append(Point(ram_bytes, summary))
        print(_row(model, points[-1]), flush=True)
    return points


def _compiled(model: str, ram_bytes: int | None) -> Summary:
    given: dict[str, str | int] = {"split": "off"} | (
        {} if ram_bytes is None else {"ram": ram_bytes}
    )
    options = options_of(Given.of(given), lambda warning: None)
    text = (MODELS / f"{model}.mlir").read_text()
    return compile_step(parse_module(text, model), model, options).brief


def _row(model: str, point: Point) -> str:
    found = point.summary
    assert found.time_ns is not None and found.unlimited_energy_nj and found.bound_nj is not None
    relative = found.unlimited_energy_nj
    cells = (
        model,
        f"{point.ram_bytes / 1024:,.1f} KB",
        f"{found.ram.total_bytes:,} B",
        str(found.streams),
        str(found.recomputes),
        f"{found.page_in_bytes / 1024:,.0f} KB",
        f"{found.page_out_bytes / 1024:,.0f} KB",
        f"{found.time_ns / 1e6:,.1f} ms",
        f"{point.energy_nj / 1e6:,.2f} mJ, ×{point.energy_nj / relative:.2f}",
        f"×{found.bound_nj / relative:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def drawn(curves: dict[str, list[Point]]) -> bytes:
    """The curves as SVG, the same bytes for the same points. Needs matplotlib."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "poetc", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.add_subplot()
        for model, points in curves.items():
            kib = [point.ram_bytes / 1024 for point in points]
            energy = [p.energy_nj / (p.summary.unlimited_energy_nj or 1) for p in points]
            bound = [
                (p.summary.bound_nj or 0) / (p.summary.unlimited_energy_nj or 1) for p in points
            ]
            (line,) = axes.plot(kib, energy, marker=".", label=model)
            axes.plot(kib, bound, linestyle=":", color=line.get_color())
        axes.set(xscale="log", yscale="log", xlabel="RAM in KB", ylabel="energy, of unlimited RAM")
        axes.legend(title="dotted: bound")
        axes.grid(which="both", linewidth=0.3)
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
        return out.getvalue()


def _without_picture(words: Sequence[str]) -> tuple[list[str], Path | None]:
    rest = [word for word in words if not word.startswith(f"{PICTURE}=")]
    named = [Path(word.split("=", 1)[1]) for word in words if word not in rest]
    if PICTURE in rest:
        sys.exit(f"{PICTURE}=FILE.svg")
    return rest, named[-1] if named else None


if __name__ == "__main__":
    document.run(main)
