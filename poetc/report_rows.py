"""The summary of a compilation in rows: as text for a terminal, and as HTML for a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from poetc.options import default
from poetc.units import format_bytes, format_energy, format_time

if TYPE_CHECKING:
    from poetc.backends.c.flash import FlashUse
    from poetc.diagnosis import Tried
    from poetc.ir.timeline import Timeline
    from poetc.report import Summary
    from poetc.report_ram import LeastRam

TENSORS_IN_TEXT = 4
"""Tensors at the peak that are named."""

COLOURS = (
    *("#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#bbbbbb", "#000000"),
)
"""The colours of kinds of tensors, which people who do not see all colours tell apart (Paul Tol,
bright)."""


def as_text(summary: Summary) -> str:
    """One topic a block, one fact a line."""
    rows = [row for block in _blocks(summary) for row in (*block, ("", ""))][:-1]
    width = max(len(label) for label, _ in rows)
    return "\n".join(f"{label:<{width}}  {text}".rstrip() for label, text in rows)


def as_html(summary: Summary) -> str:
    """The same facts as a table, under a bar of what is live at the peak by kind."""
    blocks = [
        "".join(
            f"<tr><td style='text-align:left;white-space:pre'>{escape(label)}</td>"
            f"<td style='text-align:left'>{escape(text)}</td></tr>"
            for label, text in block
        )
        for block in _blocks(summary)
    ]
    table = "".join(f"<tbody>{block}</tbody>" for block in blocks)
    return f"<div class='poetc-report'>{_bar(summary)}<table>{table}</table></div>"


def _bar(summary: Summary) -> str:
    """RAM as one bar: live bytes at the peak by kind, what else is used, what is left."""
    ram = summary.ram
    parts = {kind.replace("_", " "): size for kind, size in ram.at_peak.items() if size}
    parts |= {
        "arena beyond the peak": max(0, ram.arena_bytes - ram.peak.bytes),
        "static data and stack": ram.total_bytes - ram.arena_bytes,
    }
    whole = max(1, ram.budget_bytes or 0, sum(parts.values()))
    pieces = "".join(
        f"<div title='{escape(kind)}: {size:,} B' style='width:{100 * size / whole:.2f}%;"
        f"background:{COLOURS[at % len(COLOURS)]}'></div>"
        for at, (kind, size) in enumerate(parts.items())
    )
    named = " ".join(
        f"<span><span style='color:{COLOURS[at % len(COLOURS)]}'>&#9632;</span> "
        f"{escape(kind)} {size:,} B</span>"
        for at, (kind, size) in enumerate(parts.items())
        if size
    )
    return (
        "<div style='display:flex;height:1.2em;border:1px solid currentColor'>"
        f"{pieces}</div><div>{named}</div>"
    )


def _blocks(summary: Summary) -> tuple[list[tuple[str, str]], ...]:
    """Labels and texts, by topic."""
    blocks = list(_asked(summary)), list(_ram(summary)), list(_schedule(summary))
    return (*blocks, list(_entries(summary))) if summary.entries else blocks


def _entries(summary: Summary) -> Iterator[tuple[str, str]]:
    """The step and other entry points side by side."""
    yield "Entry points", f"{format_bytes(summary.ram_of_all_bytes)} of RAM for all"
    for name, entry in {"step": summary, **summary.entries}.items():
        parts = [f"RAM {entry.ram.total_bytes:,} B"]
        parts += [format_time(entry.time_ns)] if entry.time_ns is not None else []
        parts += [format_energy(entry.energy_nj)] if entry.energy_nj is not None else []
        if entry.page_ins:
            parts.append(f"{entry.page_ins} page-ins, {format_bytes(entry.page_in_bytes)}")
        if entry.page_outs:
            parts.append(f"{entry.page_outs} page-outs, {format_bytes(entry.page_out_bytes)}")
        yield f"  {name}", "; ".join(parts)


def _asked(summary: Summary) -> Iterator[tuple[str, str]]:
    budget = summary.ram.budget_bytes
    before = ", scheduled before" if summary.scheduled_before else ""
    yield "Input", f"{summary.input}, {summary.kernels} kernels{before}"
    yield "Device", summary.device
    scope = "" if summary.ram.scope == "all" else f" of {summary.ram.scope}"
    yield "RAM budget", format_bytes(budget) + scope if budget else "unlimited"
    if not summary.scheduled_before:
        yield "Deadline", format_time(summary.deadline_ns) if summary.deadline_ns else "none"
    place = "on storage between steps" if summary.params == "storage" else "in RAM"
    yield "Parameters", place
    if summary.frozen_on_storage_bytes:
        size = format_bytes(summary.frozen_on_storage_bytes)
        yield "  frozen weights", f"{size} on storage, never written"
    if summary.pages != default("pages"):
        yield "  weights as", f"{summary.pages}, rounded after each step: not the bits of f32"


def _ram(summary: Summary) -> Iterator[tuple[str, str]]:
    ram, peak = summary.ram, summary.ram.peak
    yield "RAM of the step" if summary.entries else "RAM used", format_bytes(ram.total_bytes)
    yield "  arena", format_bytes(ram.arena_bytes)
    yield "  static data", format_bytes(ram.static_bytes)
    if ram.stack_chain is None:
        yield "  stack reserve", format_bytes(ram.stack_bytes)
    else:
        deepest = ram.stack_chain[-1] if ram.stack_chain else "the step"
        yield "  stack", f"{format_bytes(ram.stack_bytes)}, deepest in {deepest}"
    if any(ram.caller_bytes.values()):
        outside = {kind: format_bytes(n) for kind, n in ram.caller_bytes.items() if n}
        frozen = outside.pop("frozen", None)
        parts = [f"frozen weights: {frozen}"] if frozen else []
        if outside:
            named = ", ".join(f"{kind} {size}" for kind, size in outside.items())
            parts.append(f"buffers of the caller: {named}")
        yield "Not counted", "; ".join(parts)
    yield "Peak of live bytes", f"{format_bytes(peak.bytes)} at {peak.at}"
    where = [f'before kernel "{peak.kernel}"'] if peak.paged_in and peak.kernel else []
    where += [f"from {peak.location}"] if peak.location else []
    if where:
        yield "", " ".join(where)
    for kind in ram.most:
        if ram.most[kind]:
            most = "" if ram.at_peak[kind] == ram.most[kind] else f"{ram.most[kind]:,} B"
            text = format_bytes(ram.at_peak[kind])
            yield f"  {kind.replace('_', ' ')}", f"{text}, most {most}" if most else text
    shown, rest = peak.tensors[:TENSORS_IN_TEXT], peak.tensors[TENSORS_IN_TEXT:]
    for at, tensor in enumerate(shown):
        yield "" if at else "  largest", f"{tensor.bytes:,} B  {tensor.name}"
    if rest:
        yield "", f"{sum(tensor.bytes for tensor in rest):,} B  in {len(rest)} more"
    waste = ram.waste_bytes / max(1, peak.bytes)
    yield "Arena beyond that", f"{format_bytes(ram.waste_bytes)} ({waste:.2%})"
    for at, least in enumerate(ram.least):
        yield "" if at else "Least possible RAM", _least_text(least)
    yield "Storage used", format_bytes(summary.storage_bytes)
    if summary.flash is not None:
        yield from flash_rows(summary.flash)


def flash_rows(flash: FlashUse) -> Iterator[tuple[str, str]]:
    """The flash of a program, and what it is for."""
    has = f" of {format_bytes(flash.device_bytes)}" if flash.device_bytes is not None else ""
    said = "" if flash.fits else ", does not fit"
    yield "Flash", f"{format_bytes(flash.total_bytes)}{has}{said}"
    yield "  kernels", format_bytes(flash.kernels_bytes)
    yield "  step", format_bytes(flash.step_bytes)
    yield "  runtime", format_bytes(flash.runtime_bytes)
    yield "  compiler's library", format_bytes(flash.library_bytes)
    yield "  constants", format_bytes(flash.constants_bytes)
    if flash.weights_bytes:
        yield "  frozen weights", format_bytes(flash.weights_bytes)


def _schedule(summary: Summary) -> Iterator[tuple[str, str]]:
    if summary.streams:
        yield "Kernels in tiles", str(summary.streams)
    yield "Recomputed kernels", str(summary.recomputes)
    yield "Page-ins", f"{summary.page_ins}, {format_bytes(summary.page_in_bytes)}"
    yield "Page-outs", f"{summary.page_outs}, {format_bytes(summary.page_out_bytes)}"
    if summary.time_ns is not None:
        text = format_time(summary.time_ns)
        yield "Time", _against(text, summary.time_ns, summary.unlimited_time_ns)
    if summary.predicted_time_ns is not None:
        text = format_time(summary.predicted_time_ns)
        yield "  with pages placed", f"{text}, by the profile"
    if summary.timeline is not None and summary.timeline.bus_ns:
        yield from _timeline_text(summary.timeline)
    if summary.energy_nj is not None:
        text = format_energy(summary.energy_nj)
        yield "Energy", _against(text, summary.energy_nj, summary.unlimited_energy_nj)
    if summary.bound_nj is not None and summary.gap is not None:
        bound = format_energy(summary.bound_nj)
        yield "Energy bound", f"{bound} (gap {summary.gap:.2%}, {summary.status})"
    if summary.tried is not None and len(summary.tried) > 1:
        for at, tried in enumerate(summary.tried):
            yield "" if at else "  compared", tried_text(tried)
    if summary.strategy is not None:
        took = "" if summary.solver_seconds is None else f", {summary.solver_seconds:.1f} s"
        yield "Solver", f"{summary.strategy}{took}"
    if summary.ended_by_clock and not summary.interrupted:
        remedy = "--stop=work with a longer --time-limit makes every run the same"
        yield "Note", f"the time limit ended the search; {remedy}"
    if summary.interrupted:
        yield "Note", "interrupted: the best schedule found so far"


def _timeline_text(timeline: Timeline) -> Iterator[tuple[str, str]]:
    def share(time_ns: int) -> str:
        return f"{format_time(time_ns)} ({time_ns / max(1, timeline.makespan_ns):.2%} of the time)"

    if timeline.slices_ns:
        yield "  slices of tiles", share(timeline.slices_ns)
    if timeline.transfers:
        text = share(timeline.stall_ns)
        longest = max(timeline.transfers, key=lambda transfer: transfer.stall_ns)
        if longest.stall_ns:
            text += f", most {format_time(longest.stall_ns)} for the page-{longest.direction} of "
            text += longest.tensor
        yield "  stalls", text
    yield "  bus in use", share(timeline.bus_ns)


def tried_text(tried: Tried) -> str:
    where = "in RAM" if tried.params == "ram" else "on storage"
    where += ", kernels in tiles" if tried.tiles else ""
    if tried.bound_nj is None:
        what = "no schedule"
    elif tried.energy_nj is not None:
        what = f"{format_energy(tried.energy_nj)}, at least {format_energy(tried.bound_nj)}"
    else:
        found = "none found" if tried.searched else "not searched"
        what = f"at least {format_energy(tried.bound_nj)}, {found}"
    return f"parameters {where}: {what}"


def _against(text: str, value: int, unlimited: int | None) -> str:
    if unlimited is None:
        return text
    return f"{text} ({value / max(1, unlimited):.4f} of unlimited)"


def _least_text(least: LeastRam) -> str:
    place = "in RAM" if least.params == "ram" else "on storage"
    place += ", kernels in tiles" if least.tiles else ""
    if least.known_bytes is None:
        size = f"more than {format_bytes(least.bound_bytes)}"
    elif least.known_bytes > least.bound_bytes:
        size = f"{format_bytes(least.known_bytes)} or less, {least.bound_bytes:,} B at least,"
    else:
        size = format_bytes(least.known_bytes)
    kept = "inputs or results" if least.tiles else "what is kept between steps"
    who = f'kernel "{least.kernel}"' if least.kernel is not None else kept
    return f"{size} with parameters {place}: {who}"
