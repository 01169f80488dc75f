"""`--plot`: memory over the step as a figure for a paper, drawn by matplotlib."""

from __future__ import annotations

import io

from poetc.views.step import LIFE_KINDS, StepView, live_bytes

WIDTH_IN, HEIGHT_IN, DOTS_PER_IN = 6.5, 2.8, 200
"""Of the figure: the width of a text column on letter paper."""


def memory_figure(view: StepView, limit_bytes: int | None, format: str) -> bytes:
    """Live bytes of the arena by kind over time, with a line at `limit_bytes`, the RAM for it. The
    same step gives the same bytes.

    `format` is svg, png or pdf. Needs matplotlib.
    """
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
    axes = figure.add_subplot()
    moments = live_bytes(view)
    times_ms = [time_ns / 1e6 for time_ns, _ in moments]
    kinds = [kind for kind in LIFE_KINDS if any(live[kind] for _, live in moments)]
    rows = [[live[kind] / 1024 for _, live in moments] for kind in kinds]
    if rows:
        labels = [kind.replace("_", " ") for kind in kinds]
        axes.stackplot(times_ms, *rows, labels=labels, linewidth=0, step="post")
    if limit_bytes is not None:
        axes.axhline(limit_bytes / 1024, color="black", linewidth=0.8, linestyle="--")
    axes.set_xlim(0, view.makespan_ns / 1e6 or 1)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("time (ms)")
    axes.set_ylabel("live bytes (KiB)")
    figure.legend(loc="outside upper center", ncols=len(kinds) or 1, frameon=False, fontsize=8)
    out = io.BytesIO()
    metadata = {} if format == "png" else {"Date" if format == "svg" else "CreationDate": None}
    with matplotlib.rc_context({"svg.hashsalt": "poetc", "font.size": 9}):
        figure.savefig(out, format=format, dpi=DOTS_PER_IN, metadata=metadata)
    return out.getvalue()
