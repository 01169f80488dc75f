"""`poetc`: compiles a step; the work is done in `pipeline.py`, and written by a backend."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from poetc import __version__
from poetc.cli import emit
from poetc.cli.arguments import Parser, given
from poetc.cli.files import check_writable, file_name, read, write
from poetc.cli.passes import Observer, refuse_others, run_passes_alone
from poetc.cli.request import options_of
from poetc.errors import InputError, UnscheduledError
from poetc.options import OPTIONS, SEARCH
from poetc.terminal import ProgressLine, is_terminal, say, warn

if TYPE_CHECKING:
    from xdsl.context import Context
    from xdsl.dialects.builtin import ModuleOp

    from poetc.backends.c.emit import Executor
    from poetc.ir.poet import GraphOp
    from poetc.report import Summary
    from poetc.request import Options


def build_parser() -> Parser:
    """The command line, as `poetc --help` shows it."""
    parser = Parser(
        prog="poetc",
        description="Compile a neural-network training step (StableHLO or poet IR) into a program "
        "that runs inside a fixed amount of RAM.",
        epilog="commands for parameters on storage: poetc pack, poetc unpack; "
        "to measure what kernels cost: poetc profile; to compare strategies and budgets: "
        "poetc compare, poetc pareto; "
        "exit codes: 0 done, 2 bad usage or input, 3 proven infeasible, 4 time limit with "
        "no schedule, 5 internal error, 130 interrupted",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("input", nargs="?", help="MLIR file, or - for standard input")
    # What is None was not given.
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
    add("--passes", metavar="PIPELINE", help="run just these passes, in xdsl-opt's syntax")
    add("--print-ir-after-all", action="store_true", help="IR after each pass, on stderr")
    add("--verify-each", action="store_true", help="verify the IR after each pass")
    add("--time-passes", action="store_true", help="seconds each pass took, on stderr")
    add("--json", action="store_true", help="the summary as JSON on stderr")
    add("-q", "--quiet", action="store_true", help="no summary and no progress")
    add("--list-devices", action="store_true", help="names of the known devices")
    add("--list-boards", action="store_true", help="names of the known boards")
    add("--version", action="version", version=f"poetc {__version__}")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Compiles, or lists what is known; the exit code."""
    if arguments.list_devices:
        from poetc.costmodel.device import known_devices, load_device

        names = known_devices()
        lines = [f"{name:<12} {load_device(name).description}\n" for name in names]
        write(None, "".join(lines))
        return 0
    if arguments.list_boards:
        from poetc.backends.c.boards import board_list

        write(None, "".join(f"{name:<12} {text}\n" for name, text in board_list()))
        return 0
    if arguments.input is None:
        raise InputError("no input file; see poetc --help")
    backend = emit.load(arguments.emit)
    options = options_of(arguments)
    options = replace(options, executor=_executor(arguments, backend, options))
    if arguments.passes is not None:
        refuse_others(arguments)
    emit.refuse_others(arguments, backend)
    backend.check(arguments)
    arguments.output = file_name(arguments.output)
    check_writable(arguments.output)
    name, data = read(arguments.input)

    from poetc.ir.text import make_context, read_module

    context = make_context()
    module = read_module(data, name)
    observer = Observer(arguments.print_ir_after_all, arguments.time_passes)
    if arguments.passes is not None:
        return run_passes_alone(arguments, context, module, observer)
    return _compile(arguments, backend, options, context, module, observer, name)


def _executor(
    arguments: argparse.Namespace, backend: emit.Backend, options: Options
) -> Executor | None:
    """What makes a program that runs plans, if that is asked for, or a plan for one."""
    from poetc.backends.plan.source import PlanExecutor

    if arguments.passes is not None or not backend.plans(arguments):
        return None
    if arguments.io == "caller":
        raise InputError("plans have inputs and results in the arena: --io=arena")
    has_storage = options.device.storage is not None
    ram_bytes = options.ram_bytes if options.ram_scope == "all" else None
    return PlanExecutor(ram_bytes, has_storage and options.paging)


def _for_scheduled(arguments: argparse.Namespace, options: Options, graph: GraphOp) -> Options:
    """The options for a graph that was scheduled before: for its device, if none was given.

    What it takes is compared with limits later. Raises InputError for options that only a search
    could follow, and for another device than its own.
    """
    from xdsl.dialects.builtin import StringAttr

    from poetc.costmodel.device import known_devices, load_device

    hint = "give the IR from before poet-schedule"
    if unused := given(arguments, *SEARCH.values()):
        raise InputError(
            f"the input is scheduled already, so {' '.join(unused)} would change nothing; {hint}"
        )
    attribute = graph.attributes.get("device")
    if not isinstance(attribute, StringAttr) or attribute.data == options.device.name:
        return options
    name = attribute.data
    if asked := given(arguments, "device", "profile"):
        option = asked[0].removeprefix("--")
        raise InputError(
            f"the input is scheduled already, for device {name}, but {asked[0]}="
            f"{getattr(arguments, option)} is asked for; {hint}"
        )
    if name not in known_devices():
        warn(f"the input is scheduled for device {name}; --device=FILE.toml describes it")
        return options
    return replace(options, device=load_device(name), device_name=name)


def _compile(
    arguments: argparse.Namespace,
    backend: emit.Backend,
    options: Options,
    context: Context,
    module: ModuleOp,
    observer: Observer,
    name: str,
) -> int:
    from poetc.driver import compile_module
    from poetc.ir.graph import graphs
    from poetc.pipeline import verified

    step = None
    if arguments.data is not None:
        from poetc.step_data import read_step

        step = read_step(module, arguments.data)
    for graph in graphs(module):
        if graph.is_scheduled:
            options = _for_scheduled(arguments, options, graph)
    progress = ProgressLine() if is_terminal() and not arguments.quiet else None
    try:
        compiled = compile_module(
            context,
            module,
            options,
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

    @cache
    def summary() -> Summary:
        from poetc.report import summarize

        return summarize(compiled, name)

    note = backend.emit(emit.Job(arguments, compiled, options, step, summary))
    if note is not None and not arguments.quiet and not arguments.json:
        say(f"{arguments.output or 'standard output'}: {note}")
    observer.finish(compiled.passes)
    interrupted = compiled.report is not None and compiled.report.interrupted
    if not any(compiled.graph.updates(i) is not None for i in range(len(compiled.graph.arguments))):
        warn(
            "no result is the new value of an argument, so nothing is kept from step to step; "
            "lower the step with donate_argnums"
        )
    if not arguments.quiet:
        found = summary()
        say(json.dumps(found.to_json(), indent=2) if arguments.json else found.to_text())
    return 130 if interrupted else 0
