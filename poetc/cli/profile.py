"""`poetc profile`: what kernels and transfers cost."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from poetc.cli.arguments import Parser
from poetc.errors import InputError
from poetc.options import OPTIONS, PROFILE
from poetc.streams import check_writable, file_name, read, write
from poetc.terminal import say

if TYPE_CHECKING:
    from poetc.backends.c.measure import Entry
    from poetc.costmodel.profile import Profile
    from poetc.profile import Log


STEP = ("frozen", "train", "pages")
"""Options that say what the kernels of a step are, as `poetc` takes them."""


def build_parser() -> Parser:
    """The command line of `poetc profile`."""
    parser = Parser(
        prog=PROFILE,
        description="Measure what the kernels of a model and the transfers of a board cost: count "
        "instructions in the emulator of a board, or take the time on this machine.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("input", nargs="?", help="MLIR file, or - for standard input")
    add(
        "-o",
        "--output",
        metavar="FILE",
        help="the profile; what it lacks is added if it is there (default, and -: stdout)",
    )
    add("--cpu", metavar="CORE", help="core of the board (default: its first)")
    add("--cflags", metavar="OPTIONS", default="-O2", help="of the compiler (default %(default)s)")
    parser.add_options(
        [
            replace(OPTIONS["board"], help="where to measure (default host, this machine)"),
            replace(
                OPTIONS["data"],
                help="arguments of a step, named arg0, arg1, ...; kernels are measured on values "
                "like those that they get then (default: random ones)",
            ),
            *(OPTIONS[name] for name in STEP),
        ]
    )
    add("--program", metavar="DIRECTORY", help="only write the program that measures")
    add("--from", metavar="LOG", dest="log", help="what that program has printed on a board")
    add("-q", "--quiet", action="store_true", help="no summary")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Measures, or reads what was measured, and writes the profile; the exit code."""
    from poetc.costmodel.profile import load_profile
    from poetc.image_files import refuse_overwriting
    from poetc.profile import labels_for, merged, profile_of

    arguments.output = file_name(arguments.output)
    output, model, log_file = arguments.output, arguments.input, arguments.log
    unused = (["--output"] if output is not None else []) + (
        ["--from"] if log_file is not None else []
    )
    if arguments.program is not None and unused:
        raise InputError(f"--program only writes a program; {' '.join(unused)} cannot go with it")
    if output is not None:
        refuse_overwriting(output, *(f for f in (model, log_file, arguments.data) if f))
        check_writable(output)
    known = load_profile(output) if output is not None and Path(output).is_file() else None
    if log_file is not None:
        log = _read_log(arguments)
        labels = (
            {}
            if model is None
            else labels_for(log, _kernels_of(arguments, log.board, log.cpu), log_file)
        )
    else:
        measured = _measure(arguments, known)
        if measured is None:
            return 0
        log, labels = measured
    new = profile_of(log, labels, output or "-")
    profile = merged(known, new)
    write(output, profile.to_toml())
    if not arguments.quiet:
        text = f"{len(new.kernels)} kernels measured, {len(profile.kernels)} in all"
        say(f"{profile.origin}: {text}, in {profile.unit}")
    return 0


def _read_log(arguments: argparse.Namespace) -> Log:
    """The log that the measuring program printed on the user's board."""
    from poetc.profile import read_log_file

    log = read_log_file(arguments.log, arguments.cflags)
    for option, found in (("board", log.board), ("cpu", log.cpu)):
        if getattr(arguments, option) not in (None, found):
            raise InputError(
                f"--{option}={getattr(arguments, option)}, but {arguments.log} is from {found}"
            )
    return log


def _measure(
    arguments: argparse.Namespace, known: Profile | None
) -> tuple[Log, Mapping[str, str]] | None:
    """The measurements of the kernels that are not known yet, and their names.

    None if all are known, or if the program that measures was only to be written.
    """
    from poetc.backends.c.boards import HOST
    from poetc.profile import check_core, check_same, labels_for, measure, write_program

    model, board = arguments.input, arguments.board or HOST
    if model is None:
        raise InputError("no input file; see poetc profile --help")
    cpu = check_core(board, arguments.cpu)
    entries = _kernels_of(arguments, board, cpu)
    if arguments.program is not None:
        write_program(entries, board, cpu, model, arguments.program)
        return None
    if known is not None:
        check_same(known, board=board, cpu=cpu, flags=arguments.cflags)
        entries = tuple(entry for entry in entries if entry.key not in known.kernels)
        if not entries:
            if not arguments.quiet:
                say(f"{known.origin}: all kernels are in {known.path}")
            return None
    log = measure(entries, board, cpu, arguments.cflags, model)
    return log, labels_for(log, entries, model)


def _kernels_of(arguments: argparse.Namespace, board: str, cpu: str) -> tuple[Entry, ...]:
    """The kernels of the model that is to be profiled, as they are for a core of a board."""
    from poetc.backends.c.boards import arranges, load_board
    from poetc.costmodel.profile import device_name
    from poetc.ir.text import make_context, read_module
    from poetc.profile import entries_of

    name, data = read(arguments.input)
    step = {name: OPTIONS[name].value(getattr(arguments, name)) for name in STEP}
    return entries_of(
        make_context(),
        read_module(data, name),
        arguments.data,
        device_name=device_name(board, cpu),
        arrange=arranges(load_board(board)),
        **step,
    )
