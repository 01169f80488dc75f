"""`poetc pack` and `poetc unpack`: storage images."""

from __future__ import annotations

import argparse

from poetc.cli.arguments import Parser
from poetc.terminal import say
from poetc.units import format_bytes


def build_parser(command: str) -> Parser:
    """The command line of `poetc pack` and `poetc unpack`."""
    packs = command == "pack"
    source, result = ("params.npz", "image.bin") if packs else ("image.bin", "params.npz")
    parser = Parser(
        prog=f"poetc {command}",
        description=(
            "Make the storage image of a program with parameters on storage."
            if packs
            else "Read the parameters back from the storage image of a program."
        ),
        epilog="arrays are named arg0, arg1, ... by argument"
        + (", or as the parameters are; others are ignored" if packs else ""),
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("program", help="directory that --emit=c wrote, or the ..._image.json in it")
    add("input", metavar=source)
    add("-o", "--output", metavar=result, required=True)
    add("-q", "--quiet", action="store_true", help="no summary")
    return parser


def run(command: str, arguments: argparse.Namespace) -> int:
    """Makes an image, or reads one; the exit code."""
    from poetc.image_files import (
        layout_file,
        pack_file,
        read_layout,
        refuse_overwriting,
        unpack_file,
    )

    described = layout_file(arguments.program)
    refuse_overwriting(arguments.output, described, arguments.input)
    layout = read_layout(described)
    if command == "pack":
        pack_file(layout, arguments.input, arguments.output)
        done = f"{arguments.output}: {format_bytes(layout.storage_bytes)}"
    else:
        sequence = unpack_file(layout, arguments.input, arguments.output)
        done = f"{arguments.output}: sequence {sequence}"
    if not arguments.quiet:
        values = sum(tensor.bytes for tensor in layout.tensors)
        count = len(layout.parameters)
        say(f"{done}, {count} parameters, {format_bytes(values)}")
    return 0
