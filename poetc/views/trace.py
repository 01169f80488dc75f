"""`--trace`: the step in Chrome's trace format, which Perfetto (ui.perfetto.dev) opens.

The format is that of "Trace Event Format" (Google): complete events ("X") with a beginning and a
duration in microseconds, counters ("C"), and names of the lanes as metadata ("M").
"""

from __future__ import annotations

import json
from typing import Any

from poetc.views.step import StepView, live_bytes, slice_times

LANES = ("compute", "stalls", "page-ins", "page-outs")
"""Lanes of the trace, by their thread number from 1 on."""

LANE_OF = {"in": 3, "out": 4}
"""Of a transfer in that direction."""


def trace_json(view: StepView, name: str) -> str:
    """The trace of a step of the program `name`, as JSON text: kernels, stalls and transfers in
    lanes, and the live bytes of each kind as a counter. What a kernel in tiles reads is one event
    as long as that takes, at the beginning of the kernel, what it writes one at its end."""
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
        if (tiles := run.tiles) is not None:
            arguments |= {
                "tiles": tiles.text,
                "read_ns": tiles.read_ns,
                "write_ns": tiles.write_ns,
                "slices_energy_nj": tiles.slices_nj,
            }
        events.append(_event(run.kernel, 1, run.begin_ns, run.end_ns, arguments))
    for stall in view.stalls:
        title = f"wait for page-{stall.direction} of {tensors[stall.tensor].name}"
        events.append(_event(title, 2, stall.begin_ns, stall.end_ns, {}))
    moves: list[dict[str, Any]] = []
    for run in view.runs:
        for direction, begin_ns, end_ns in slice_times(run):
            moved = [
                {"tensor": tensors[s.tensor].name, "slices": s.count, "bytes": s.bytes}
                for s in (run.tiles.slices if run.tiles is not None else ())
                if s.direction == direction
            ]
            moves.append(
                _event(
                    f"slices of {run.kernel}",
                    LANE_OF[direction],
                    begin_ns,
                    end_ns,
                    {"bytes": sum(each["bytes"] for each in moved), "slices": moved},
                )
            )
    for move in view.moves:
        arguments = {
            "bytes": move.bytes,
            "energy_nj": move.energy_nj,
            "stall_ns": move.stall_ns,
            "kind": tensors[move.tensor].kind,
        }
        name = tensors[move.tensor].name
        moves.append(_event(name, LANE_OF[move.direction], move.begin_ns, move.end_ns, arguments))
    events += sorted(moves, key=lambda event: event["ts"])
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
