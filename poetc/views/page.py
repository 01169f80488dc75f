"""`--report`: the step as one HTML page that opens without a network.

The pictures are Vega-Lite's (`templates/page.js` has their specification), whose JavaScript comes
from the package vl-convert-python and stands in the page.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from poetc.report import Summary
from poetc.report_ram import KINDS
from poetc.report_rows import tried_text
from poetc.units import format_bytes, format_energy, format_time
from poetc.views.step import LIFE_KINDS, Run, StepView, Tiles, stacked

if TYPE_CHECKING:
    from poetc.planning.report import ScheduleReport

LIBRARIES = "window.vegaEmbed = vegaEmbed;"
"""The function of Vega-Lite's JavaScript that the page uses."""

MOST_NAMED = 6
"""Kernels that a sentence names."""


def page_html(view: StepView, summary: Summary, report: ScheduleReport | None) -> str:
    """The page for a step. `report` is None for one that was scheduled before. Needs
    vl-convert-python."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("poetc.views", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    data = json.dumps(page_data(view, summary), separators=(",", ":"))
    return environment.get_template("page.html").render(
        summary=summary,
        answers=list(answers(view, summary)),
        energy=list(energy_rows(view, summary)),
        against=list(against_unlimited(summary, report)),
        ram=list(ram_rows(summary)),
        storage=list(storage_rows(summary)),
        tried=[tried_text(each) for each in summary.tried or ()],
        # In a script element only this could end it.
        data=data.replace("</", "<\\/"),
        library=_library(),
    )


@cache
def _library() -> str:
    """The JavaScript of the pictures, which takes a second or two to bundle."""
    import vl_convert

    return vl_convert.javascript_bundle(LIBRARIES).replace("</script", "<\\/script")


def page_data(view: StepView, summary: Summary) -> dict[str, Any]:
    """The content of the pictures and of the tables of tensors and kernels, as plain data. Tensors
    and live ranges are referred to by their index, times are in ns."""
    return {
        "kinds": LIFE_KINDS,
        "arena": view.arena_bytes,
        "energy": summary.energy_nj,
        "tensors": [(t.name, t.kind, t.type, t.source) for t in view.tensors],
        "lives": [
            (
                *(life.tensor, life.begins, life.bytes, life.offset),
                *(life.begin_ns, life.end_ns, life.begin, life.end),
            )
            for life in view.lives
        ],
        "blocks": [
            (block.life, block.bottom, block.begin_ns, block.end_ns, block.begin, block.end)
            for block in stacked(view.lives)
        ],
        "runs": [
            (
                *(run.kernel, run.source, int(run.recomputes), run.begin_ns, run.end_ns),
                *(run.energy_nj, run.step, run.reads, run.writes),
                None if run.tiles is None else _tiles_data(run.tiles),
            )
            for run in view.runs
        ],
        "moves": [
            (
                *(move.tensor, move.direction, move.bytes, move.begin_ns, move.end_ns),
                *(move.energy_nj, move.stall_ns, move.step),
            )
            for move in view.moves
        ],
        "stalls": [
            (stall.tensor, stall.direction, stall.begin_ns, stall.end_ns) for stall in view.stalls
        ],
    }


def _tiles_data(tiles: Tiles) -> tuple[Any, ...]:
    slices = [(each.tensor, each.direction, each.count, each.bytes) for each in tiles.slices]
    return tiles.text, tiles.read_ns, tiles.write_ns, slices


def answers(view: StepView, summary: Summary) -> Iterator[str]:
    """Answers to the first questions about a schedule, one or two sentences each: which tensors are
    live at the peak, which kernels are recomputed or run in tiles, how long computing waits for
    transfers, and how far the schedule may be from optimal."""
    peak = summary.ram.peak
    largest = ", ".join(f"{t.name} ({format_bytes(t.bytes)})" for t in peak.tensors[:3])
    where = f", from {peak.location}" if peak.location else ""
    held = f"Most RAM is live at {peak.at}{where}: {format_bytes(peak.bytes)}. "
    yield held + (f"The largest tensors are {largest}." if largest else "")
    for least in summary.ram.least:
        place = "in RAM" if least.params == "ram" else "on storage"
        place += " and kernels in tiles" if least.tiles else ""
        kept = "inputs or results need" if least.tiles else "what is kept between steps needs"
        who = f'kernel "{least.kernel}" needs' if least.kernel else kept
        known = "no schedule is known" if least.known_bytes is None else "it can run in"
        size = "" if least.known_bytes is None else f" {format_bytes(least.known_bytes)}"
        yield (
            f"With parameters {place} {known}{size}; nothing runs so in less than "
            f"{format_bytes(least.bound_bytes)}, which {who}."
        )
    again = [run for run in view.runs if run.recomputes]
    if again:
        yield f"Kernels are recomputed {len(again)} times, {_share(again, view)}."
    else:
        yield "No kernel is recomputed."
    tiled = [run for run in view.runs if run.tiles is not None]
    if tiled:
        yield f"Kernels run in tiles {len(tiled)} times, {_share(tiled, view)}."
    waits_ns = sum(stall.end_ns - stall.begin_ns for stall in view.stalls)
    waits_ns += sum(run.tiles.read_ns + run.tiles.write_ns for run in tiled if run.tiles)
    if summary.page_ins or summary.page_outs:
        yield (
            f"{summary.page_ins} page-ins and {summary.page_outs} page-outs"
            f"{', with the slices of tiles,' if tiled else ''} move "
            f"{format_bytes(summary.page_in_bytes + summary.page_out_bytes)}; computing waits "
            f"{waits_ns / max(1, view.makespan_ns):.2%} of the time for them."
        )
    if summary.gap is not None and summary.bound_nj is not None:
        bound = format_energy(summary.bound_nj)
        yield (
            f"It is proven that no schedule takes less than {bound}: the gap is {summary.gap:.2%}, "
            f"so a better schedule could save at most that much of the energy."
        )


def _share(runs: Sequence[Run], view: StepView) -> str:
    """The share of the time that some runs of kernels take, and which kernels they are."""
    time_ns = sum(run.end_ns - run.begin_ns for run in runs)
    named = dict.fromkeys(f"{run.kernel} ({run.source})" for run in runs)
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    share = time_ns / max(1, view.makespan_ns)
    return f"{share:.2%} of the time: {', '.join([*named][:MOST_NAMED])}{more}"


def energy_rows(view: StepView, summary: Summary) -> Iterator[tuple[str, str, float]]:
    """Where the energy goes: what, how much, and its share."""

    def computing_nj(recomputes: bool) -> int:
        found = (run for run in view.runs if run.recomputes is recomputes)
        return sum(r.energy_nj - (r.tiles.slices_nj if r.tiles else 0) for r in found)

    spent = {
        "kernels, first runs": computing_nj(False),
        "kernels, recomputed": computing_nj(True),
        "slices of tiles": sum(r.tiles.slices_nj for r in view.runs if r.tiles),
        "page-ins": sum(m.energy_nj for m in view.moves if m.direction == "in"),
        "page-outs": sum(m.energy_nj for m in view.moves if m.direction == "out"),
    }
    total = summary.energy_nj if summary.energy_nj is not None else sum(spent.values())
    spent["idle power"] = total - sum(spent.values())
    for name, energy_nj in spent.items():
        if energy_nj > 0:
            yield name, format_energy(energy_nj), energy_nj / max(1, total)


def against_unlimited(
    summary: Summary, report: ScheduleReport | None
) -> Iterator[tuple[str, str, str, str]]:
    """The step beside the same with unlimited RAM: what, this, that, and the ratio."""
    pairs: list[tuple[str, int | None, int | None, Any]] = [
        ("energy", summary.energy_nj, summary.unlimited_energy_nj, format_energy),
        ("time", summary.time_ns, summary.unlimited_time_ns, format_time),
    ]
    if report is not None:
        live = summary.ram.peak.bytes
        pairs.append(("peak of live bytes", live, report.unlimited.peak_bytes, format_bytes))
    for name, this, other, text in pairs:
        if this is not None and other is not None:
            yield name, text(this), text(other), f"{this / max(1, other):.3f}"


def ram_rows(summary: Summary) -> Iterator[tuple[str, str, str]]:
    """RAM by kind: at the peak, and the most at any moment."""
    ram = summary.ram
    for kind in KINDS:
        if ram.most[kind]:
            at_peak, most = format_bytes(ram.at_peak[kind]), format_bytes(ram.most[kind])
            yield kind.replace("_", " "), at_peak, most
    yield "arena beyond the peak", format_bytes(ram.waste_bytes), ""
    yield "static data", format_bytes(ram.static_bytes), ""
    yield "stack", format_bytes(ram.stack_bytes), ""
    yield "all of the RAM", format_bytes(ram.total_bytes), ""


def storage_rows(summary: Summary) -> Iterator[tuple[str, str]]:
    """Flash and storage: what lies there, and what each step writes."""
    frozen = summary.ram.caller_bytes["frozen"]
    if frozen:
        yield "frozen weights, in flash", format_bytes(frozen)
    if summary.flash is not None:
        yield "all of the flash", format_bytes(summary.flash.total_bytes)
    yield "storage", format_bytes(summary.storage_bytes)
    written = summary.page_out_bytes
    if written:
        yield "written by a step", f"{format_bytes(written)} in {summary.page_outs} page-outs"
        times = written / max(1, summary.storage_bytes)
        yield "wear", f"a step writes {times:.2f} of the storage that it uses"
