"""What it gains that transfers run beside computing.

    python -m benchmarks.transfers

Prints the table of docs/transfers.md. Times are those of the timeline, for the device of each row.
"""

from __future__ import annotations

import argparse

from benchmarks import document, models
from poetc.costmodel.device import load_device
from poetc.driver import compile_module
from poetc.ir.poet import GraphOp
from poetc.ir.text import make_context, parse_module
from poetc.ir.timeline import simulate
from poetc.ir.transfers import join_transfers, most_under_way
from poetc.planning.problem import storage_of
from poetc.request import Options
from poetc.units import format_time

ROWS = (
    ("gesture_mlp", "nrf52840", 0.9),
    ("kws_conv", "nrf52840", 0.7),
    ("lenet5", "nrf52840", 0.9),
    ("dscnn", "nrf52840", 0.5),
    ("resnet8", "nrf52840", 0.5),
    ("bert_micro", "nrf52840", 0.5),
    ("dscnn", "mkr1000", 0.5),
    ("resnet8", "rpi4b", 0.5),
)
"""Models, devices, and the share of the RAM of the unlimited step that there is."""

HEAD = """\
| model | device | arena | pages | computing | one by one | overlapped | stalls | bus in use | under way |
|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"""  # noqa: E501


def compiled(name: str, device_name: str, ram_bytes: int | None) -> GraphOp:
    """A scheduled graph, with its parameters on storage if there is a limit."""
    path = models.MODELS / f"{name}.mlir"
    options = Options(
        load_device(device_name),
        device_name,
        ram_bytes,
        time_limit_s=10.0,
        params="ram" if ram_bytes is None else "storage",
        stream="never",  # slices of tiles are not split into start and wait
    )
    return compile_module(make_context(), parse_module(path.read_text(), str(path)), options).graph


def row(name: str, device_name: str, share: float) -> str:
    """One row of the table."""
    storage = storage_of(load_device(device_name))
    assert storage is not None
    unlimited = compiled(name, device_name, None)
    graph = compiled(name, device_name, round(share * (unlimited.arena_bytes or 0)))
    split, most = simulate(graph, storage), most_under_way(graph)
    join_transfers(graph)
    whole = simulate(graph, storage)
    gained = 1 - split.makespan_ns / whole.makespan_ns
    stalls = split.stall_ns / split.makespan_ns
    return (
        f"| {name} | {device_name} | {graph.arena_bytes:,} | {len(split.transfers)} "
        f"| {format_time(split.compute_ns)} | {format_time(whole.makespan_ns)} "
        f"| {format_time(split.makespan_ns)} (−{gained:.1%}) | {stalls:.1%} "
        f"| {split.bus_use:.1%} | {most} |"
    )


def main(words: list[str]) -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(HEAD)
    for name, device_name, share in ROWS:
        print(row(name, device_name, share), flush=True)


if __name__ == "__main__":
    document.run(main)
