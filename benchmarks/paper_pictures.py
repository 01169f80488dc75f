"""The figures of the POET paper, drawn from points: the same points give the same bytes."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.paper_claims import Point

PANEL_IN = (2.6, 2.2)
TOP = 1.6
"""Energy at which a panel of energies ends, relative to unlimited RAM: some baselines take ten
times as much, and nothing else would be seen."""
COLORS = {
    "auto": "#000000",
    "poet": "#d62728",
    "checkmate": "#1f77b4",
    "paging-only": "#ff7f0e",
    "keep-all": "#7f7f7f",
    "chen-sqrt": "#bcbd22",
    "chen-greedy": "#2ca02c",
    "griewank": "#8c564b",
    "dtr": "#9467bd",
    "capuchin": "#17becf",
    "pofo": "#e377c2",
}
MARKERS = dict(zip(COLORS, "osv^XPD*<>h", strict=True))
NAMES = {"checkmate": "checkmate, remat-only"}


def panels(
    grid: Sequence[Sequence[tuple[str, Sequence[Point]]]],
    x: Callable[[Point], float],
    y: Callable[[Point], float],
    labels: tuple[str, str],
    cap: bool = True,
) -> bytes:
    """An SVG of rows of panels, each with a title and its points, one line a strategy; `labels` are
    those of the axes. With `cap` the energy axis ends at `TOP`. Needs matplotlib."""
    import matplotlib
    from matplotlib.figure import Figure

    rows, columns = len(grid), max(map(len, grid))
    size = (PANEL_IN[0] * columns, PANEL_IN[1] * rows + 0.6)
    with matplotlib.rc_context(
        {
            "svg.hashsalt": "poetc",
            "svg.fonttype": "none",
            "font.size": 8,
            "font.sans-serif": ["DejaVu Sans"],
        }
    ):
        figure = Figure(figsize=size, layout="constrained")
        figure.patch.set_facecolor("white")
        drawn: dict[str, Any] = {}
        for at, row in enumerate(grid):
            for column, (title, points) in enumerate(row):
                axes = figure.add_subplot(rows, columns, at * columns + column + 1)
                axes.set_title(title, fontsize=8)
                for strategy in COLORS:
                    line = _line(axes, [p for p in points if p.strategy == strategy], x, y)
                    if line is not None:
                        drawn[strategy] = line
                full = [p for p in points if p.energy and p.energy_j]
                if cap and full:
                    unlimited = (full[0].energy_j or 0.0) / (full[0].energy or 1.0)
                    axes.set_ylim(0.97 * unlimited, TOP * unlimited)
                axes.set_xlabel(labels[0])
                axes.set_ylabel(labels[1] if not column else "")
                axes.locator_params(nbins=4)
        names = [name for name in COLORS if name in drawn]
        figure.legend(
            [drawn[name] for name in names],
            [NAMES.get(name, name) for name in names],
            loc="outside lower center",
            ncols=min(len(names), 3 * columns // 2 + 1),
            frameon=False,
        )
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    # A hundredth of a point is enough, and with the indentation that is half of the bytes.
    return re.sub(rb"\n +", b"\n", re.sub(rb"(\.\d\d)\d+", rb"\1", out.getvalue()))


def _line(
    axes: Any,
    points: Sequence[Point],
    x: Callable[[Point], float],
    y: Callable[[Point], float],
) -> Any:
    """The line of a strategy in a panel, None where it has no schedule."""
    there = sorted((x(p), y(p)) for p in points if p.energy is not None)
    if not there:
        return None
    name = points[0].strategy
    # Others lie on our line where they are as good: it is drawn below them, and thicker.
    ours = name == "auto"
    (line,) = axes.plot(
        *zip(*there, strict=True),
        color=COLORS[name],
        marker=MARKERS[name],
        markersize=5.5 if ours else 3.0,
        linewidth=2.2 if ours else 0.9,
        zorder=2 if ours else 3,
    )
    return line
