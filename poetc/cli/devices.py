"""`poetc devices`: the devices and kinds of storage that come with poetc."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from poetc.cli.arguments import Parser
from poetc.streams import write

COMMAND = "devices"


def build_parser() -> Parser:
    """The command line of `poetc devices`."""
    return Parser(
        prog=f"poetc {COMMAND}",
        description="List what --device and --storage may be. Each is a file that names the source "
        "of every number; both options also take a file of yours.",
        allow_abbrev=False,
    )


def run(arguments: argparse.Namespace) -> int:
    """Writes both tables; the exit code."""
    from poetc.costmodel.listing import DEVICE_HEAD, STORAGE_HEAD, device_rows, storage_rows

    devices = _aligned([DEVICE_HEAD, *device_rows()])
    write(None, f"{devices}\n{_aligned([STORAGE_HEAD, *storage_rows()])}")
    return 0


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "".join(f"{line}\n" for line in lines)
