"""`poetc`: compiles a step; the work is done in `pipeline.py`, and written by a backend."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from poetc import __version__, emit, views
from poetc.cli.arguments import Parser, given
from poetc.cli.passes import Observer, refuse_others, run_passes_alone
from poetc.errors import InputError, UnscheduledError
from poetc.options import OPTIONS, Given
from poetc.streams import check_writable, file_name, read, write
from poetc.terminal import ProgressLine, is_terminal, say, warn

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from poetc.request import Options


def build_parser() -> Parser:
    """The command line, as `poetc --help` shows it."""
    parser = Parser(
        prog="poetc",
        description="Compile a neural-network training step (StableHLO or poet IR) into a program "
        "that runs inside a fixed amount of RAM.",
        epilog="commands for parameters on storage: poetc pack, poetc unpack; "
        "to measure what kernels cost: poetc profile; to compare strategies and budgets: "
        "poetc compare, poetc pareto; what --device and --storage may be: "
        "poetc devices; why a budget is missed: poetc explain; "
        "exit codes: 0 done, 2 bad usage or input, 3 proven infeasible, 4 time limit with "
        "no schedule, 5 internal error, 130 interrupted",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("input", nargs="?", help="MLIR file, or - for standard input")
    # An option that is None was not given.
    parser.add_options(OPTIONS.values())
    add(
        "--emit",
        choices=emit.names(),
        default=emit.DEFAULT,
        help="what to write (default %(default)s)",
    )
    add(
        "-o",
        "--output",
        metavar="PATH",
        help="file, or directory for --emit=c (default, and -: stdout)",
    )
    for name, picture in views.PICTURES.items():
        add(f"--{name}", metavar=picture.metavar, help=f"also write {picture.help}")
    add("--passes", metavar="PIPELINE", help="run just these passes, in xdsl-opt's syntax")
    add("--print-ir-after-all", action="store_true", help="IR after each pass, on stderr")
    add("--verify-each", action="store_true", help="verify the IR after each pass")
    add("--time-passes", action="store_true", help="seconds each pass took, on stderr")
    add("--json", action="store_true", help="the summary as JSON on stderr")
    add("-q", "--quiet", action="store_true", help="no summary and no progress")
    add("--list-boards", action="store_true", help="names of the known boards")
    add("--version", action="version", version=f"poetc {__version__}")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Compiles, or lists what is known; the exit code."""
    if arguments.list_boards:
        from poetc.backends.c.boards import board_list

        write(None, "".join(f"{name:<12} {text}\n" for name, text in board_list()))
        return 0
    if arguments.input is None:
        raise InputError("no input file; see poetc --help")
    backend = emit.load(arguments.emit)
    asked = given(arguments)

    from poetc.request import options_of

    options = options_of(asked, warn)
    pictures = {name: path for name in views.PICTURES if (path := getattr(arguments, name))}
    if arguments.passes is not None:
        refuse_others(arguments)
    else:
        executor = emit.executor(asked, backend, options)
        arrange = not backend.keeps_loops(asked)
        untiled = backend.untiled(asked)
        options = replace(options, executor=executor, arrange=arrange, untiled=untiled)
    emit.refuse_others(asked, backend)
    backend.check(asked, arguments.output)
    arguments.output = file_name(arguments.output)
    check_writable(arguments.output)
    taken = {} if arguments.output is None else {os.path.realpath(arguments.output): "-o"}
    for name, path in pictures.items():
        views.check(name, path)
        check_writable(path)
        if (other := taken.setdefault(os.path.realpath(path), f"--{name}")) != f"--{name}":
            raise InputError(f"{other} and --{name} write the same file {path}")
    name, data = read(arguments.input)

    from poetc.ir.text import entry_functions, make_context, read_module

    module = read_module(data, name)
    if arguments.passes is None:
        others = [function.sym_name.data for function in entry_functions(module)[1:]]
        emit.check_entries(others, arguments.emit, asked)
    observer = Observer(arguments.print_ir_after_all, arguments.time_passes)
    if arguments.passes is not None:
        return run_passes_alone(arguments, make_context(), module, observer)
    return _compile(arguments, asked, backend, options, module, observer, name, pictures)


def _compile(
    arguments: argparse.Namespace,
    asked: Given,
    backend: emit.Backend,
    options: Options,
    module: ModuleOp,
    observer: Observer,
    name: str,
    pictures: Mapping[str, str],
) -> int:
    from poetc.compilation import compile_step
    from poetc.pipeline import verified

    data = None
    if arguments.data is not None:
        from poetc.step_data import read_step

        data = read_step(module, arguments.data)
    progress = ProgressLine() if is_terminal() and not arguments.quiet else None
    doubts: list[str] = []
    try:
        step = compile_step(
            module,
            name,
            options,
            asked,
            warn=doubts.append,
            progress=progress,
            observe=verified(observer) if arguments.verify_each else observer,
        )
    except UnscheduledError as error:
        if arguments.json:
            say(json.dumps({"diagnosis": error.diagnosis.to_json()}, indent=2))
        raise
    finally:
        if progress is not None:
            progress.clear()
        for doubt in doubts:
            warn(doubt)
    drawn = views.draw(step, pictures)
    if data is not None:
        data = data.held_by(step.compiled.graph)
    note = backend.emit(emit.Job(step, asked, arguments.output, data))
    if note is not None and not arguments.quiet and not arguments.json:
        say(f"{arguments.output or 'standard output'}: {note}")
    for path, content in drawn.items():
        write(path, content)
    observer.finish(step.compiled.passes)
    if not arguments.quiet:
        found = step.summary
        say(json.dumps(found.to_json(), indent=2) if arguments.json else found.to_text())
    report = step.compiled.report
    return 130 if report is not None and report.interrupted else 0
