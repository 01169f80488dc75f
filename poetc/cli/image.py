"""`poetc pack` and `poetc unpack`: storage images, and saved parameters."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from poetc.cli.arguments import Parser
from poetc.terminal import say
from poetc.units import format_bytes

if TYPE_CHECKING:
    from poetc.image_files import PackedProgram


def build_parser(command: str) -> Parser:
    """The command line of `poetc pack` and `poetc unpack`."""
    packs = command == "pack"
    source, result = ("params.npz", "image.bin") if packs else ("image.bin", "params.npz")
    parser = Parser(
        prog=f"poetc {command}",
        description=(
            "Make the storage image of a program with parameters on storage, or, of one with "
            "parameters in RAM, what it loads."
            if packs
            else "Read the parameters back from the storage image of a program, or from what it "
            "has saved."
        ),
        epilog="arrays are named arg0, arg1, ... by argument"
        + (", or as the parameters are; others are ignored" if packs else ""),
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("program", help="directory that --emit=c wrote, or the ..._image.json in it")
    add("input", metavar=source)
    add("-o", "--output", metavar=result, required=True)
    if packs:
        what = "bytes (default), or a C file with a table for flash"
        add("--to", choices=("bytes", "c"), default="bytes", help=what)
    add("-q", "--quiet", action="store_true", help="no summary")
    return parser


def run(command: str, arguments: argparse.Namespace) -> int:
    """Packs parameters, or reads them; the exit code."""
    from poetc.image_files import packed_program, refuse_overwriting, unpack_file

    program = packed_program(arguments.program)
    refuse_overwriting(arguments.output, program.file, arguments.input)
    done = f"{arguments.output}: "
    if command == "pack":
        done += format_bytes(_pack(program, arguments))
    else:
        sequence = unpack_file(program.layout, arguments.input, arguments.output)
        done += "saved" if sequence is None else f"sequence {sequence}"
    if not arguments.quiet:
        values = sum(tensor.bytes for tensor in program.layout.tensors)
        count = len(program.layout.tensors)
        say(f"{done}, {count} parameters, {format_bytes(values)}")
    return 0


def _pack(program: PackedProgram, arguments: argparse.Namespace) -> int:
    """Packs as is asked for; how many bytes that has, in the program or in the file."""
    from poetc.backends.c.save import parameter_table
    from poetc.files import write_whole
    from poetc.image import ImageLayout
    from poetc.image_files import pack_file, packed

    layout = program.layout
    if arguments.to == "bytes":
        pack_file(layout, arguments.input, arguments.output)
        return program.bytes
    data = packed(layout, arguments.input)
    if isinstance(layout, ImageLayout):
        data = data[: layout.parameters_end]
    text = parameter_table(
        program.name, data, layout.identity, image=isinstance(layout, ImageLayout)
    )
    write_whole(arguments.output, text.encode())
    return len(data)
