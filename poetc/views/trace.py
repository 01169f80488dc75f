"""`--trace`: the step in Chrome's trace format, which Perfetto (ui.perfetto.dev) opens.

The format is that of "Trace Event Format" (Google): complete events ("X") with a beginning and a
duration in microseconds, counters ("C"), and names of the lanes as metadata ("M").
"""

from __future__ import annotations

import json
from typing import Any

from poetc.views.step import StepView, live_bytes

LANES = ("compute", "stalls", "page-ins", "page-outs")
"""Lanes of the trace, by their thread number from 1 on."""


def trace_json(view: StepView, name: str) -> str:
    """The trace of a step of the program `name`, as JSON text: kernels, stalls and transfers in
    lanes, and the live bytes of each kind as a counter."""
    events = [_meta("process_name", 0, name)]
    events += [_meta("thread_name", lane, text) for lane, text in enumerate(LANES, start=1)]
    tensors = view.tensors
    for run in view.runs:
        arguments: dict[str, Any] = {
            "energy_nj": run.energy_nj,
            "recomputes": run.recomputes,
            "source": run.source,
            "reads": [tensors[v].name for v in run.reads],
            "writes": [tensors[v].name for v in run.writes],
        }
        events.append(_event(run.kernel, 1, run.begin_ns, run.end_ns, arguments))
    for stall in view.stalls:
        title = f"wait for page-{stall.direction} of {tensors[stall.tensor].name}"
        events.append(_event(title, 2, stall.begin_ns, stall.end_ns, {}))
    for move in view.moves:
        lane = 3 if move.direction == "in" else 4
        arguments = {
            "bytes": move.bytes,
            "energy_nj": move.energy_nj,
            "stall_ns": move.stall_ns,
            "kind": tensors[move.tensor].kind,
        }
        name = tensors[move.tensor].name
        events.append(_event(name, lane, move.begin_ns, move.end_ns, arguments))
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": events + _counters(view)}) + "\n"


def _meta(what: str, lane: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": 1, "tid": lane, "name": what, "args": {"name": name}}


def _event(name: str, lane: int, begin_ns: int, end_ns: int, arguments: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": 1,
        "tid": lane,
        "name": name,
        "ts": begin_ns / 1000,
        "dur": (end_ns - begin_ns) / 1000,
        "args": arguments,
    }


def _counters(view: StepView) -> list[dict[str, Any]]:
    """The live bytes of each kind, wherever one of them changes."""
    return [
        {"ph": "C", "pid": 1, "name": "live bytes", "ts": time_ns / 1000, "args": live}
        for time_ns, live in live_bytes(view)
    ]
