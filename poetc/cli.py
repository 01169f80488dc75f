"""The `poetc` command: arguments, files, exit codes; the work is done in `pipeline.py`."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from poetc import __version__
from poetc.errors import InputError, PoetcError
from poetc.files import write_whole
from poetc.units import format_bytes, format_energy, parse_bytes, parse_duration_ns, parse_fraction

if TYPE_CHECKING:
    from xdsl.context import Context
    from xdsl.dialects.builtin import ModuleOp

    from poetc.ir.poet import GraphOp
    from poetc.pipeline import Options
    from poetc.report import Summary
    from poetc.schedule.solve import Progress

DEFAULT_DEVICE = "nrf52840"
# Those of schedule/solve.py, which --help must not import for the solver it brings along.
STRATEGIES = (
    "auto",
    "poet",
    "checkmate",
    "remat-only",
    "paging-only",
    "pofo",
    "capuchin",
    "dtr",
    "chen-sqrt",
    "chen-greedy",
    "griewank",
    "keep-all",
)
EMIT = ("ir", "c", "report")
IMAGE_COMMANDS = ("pack", "unpack")
SEARCH_OPTIONS = ("strategy", "paging", "remat", "time_limit", "gap", "ram_scope")
"""Options that say how to search, and so mean nothing where nothing is searched."""


def build_parser() -> argparse.ArgumentParser:
    """The command line, as `poetc --help` shows it."""
    parser = argparse.ArgumentParser(
        prog="poetc",
        description="Compile a neural-network training step (StableHLO or poet IR) into a program "
        "that runs inside a fixed amount of RAM.",
        epilog="commands for parameters on storage: poetc pack, poetc unpack; "
        "exit codes: 0 done, 2 bad usage or input, 3 proven infeasible, 4 time limit with "
        "no schedule, 5 internal error, 130 interrupted",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("input", nargs="?", help="MLIR file, or - for standard input")
    add("--ram", metavar="SIZE", help="all of the RAM of the step, for example 32KB")
    # What is None here was not given, and has the default of `_options`.
    add("--device", help=f"name or .toml file (default {DEFAULT_DEVICE})")
    add("--deadline", metavar="TIME", help="for example 20ms, or 1.5x the unlimited step's time")
    add("--emit", choices=EMIT, default="ir", help="what to write (default %(default)s)")
    add("-o", "--output", metavar="PATH", help="file, or directory for --emit=c (default: stdout)")
    add("--strategy", choices=STRATEGIES, help="default auto")
    add("--paging", choices=("on", "off"), help="use auxiliary storage (default on)")
    add("--remat", choices=("on", "off"), help="recompute kernels (default on)")
    add(
        "--params",
        choices=("auto", "ram", "storage"),
        help="where parameters are between steps; auto: on storage if RAM is too small for them",
    )
    add(
        "--io",
        choices=("arena", "caller"),
        help="where inputs and results are: in the arena (default), or in buffers of the caller, "
        "which --ram does not count",
    )
    add("--time-limit", metavar="SECONDS", help="for the solver (default 60)")
    add("--gap", metavar="FRACTION", help="stop this close to optimal (default 1%%)")
    add(
        "--stack",
        metavar="SIZE|measure",
        help="stack reserve inside --ram (default 1KB); measure: what this model takes, found out "
        "with the C compiler",
    )
    add(
        "--board",
        metavar="NAME",
        help="firmware for a board, with --emit=c; --ram is all of its RAM, by default what it has",
    )
    add(
        "--static",
        metavar="SIZE",
        help="static data beside the arena, inside --ram (default: what the stores that come with "
        "poetc, or the board, need)",
    )
    add(
        "--cc",
        metavar="COMMAND",
        help="C compiler for --stack=measure, with its options (default: gcc or cc)",
    )
    add(
        "--ram-scope",
        choices=("all", "activations"),
        help="what --ram covers: everything, or as the POET paper all but parameters and gradients",
    )
    add("--passes", metavar="PIPELINE", help="run just these passes, in xdsl-opt's syntax")
    add("--print-ir-after-all", action="store_true", help="IR after each pass, on stderr")
    add("--time-passes", action="store_true", help="seconds each pass took, on stderr")
    add("--json", action="store_true", help="the summary as JSON on stderr")
    add("-q", "--quiet", action="store_true", help="no summary and no progress")
    add("--list-devices", action="store_true", help="names of the known devices")
    add("--list-boards", action="store_true", help="names of the known boards")
    add("--version", action="version", version=f"poetc {__version__}")
    return parser


def build_image_parser(command: str) -> argparse.ArgumentParser:
    """The command line of `poetc pack` and `poetc unpack`."""
    packs = command == "pack"
    source, result = ("params.npz", "image.bin") if packs else ("image.bin", "params.npz")
    parser = argparse.ArgumentParser(
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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if words and words[0] in IMAGE_COMMANDS:
            return _run_image(words[0], build_image_parser(words[0]).parse_args(words[1:]))
        return _run(build_parser().parse_args(words))
    except PoetcError as error:
        print(f"poetc: error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # The reader of stdout went away; nothing left to say there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("poetc: interrupted", file=sys.stderr)
        return 130
    except RecursionError:
        print("poetc: error: the input is nested too deeply", file=sys.stderr)
        return InputError.exit_code
    except Exception as error:
        if os.environ.get("POETC_TRACEBACK"):
            raise
        print(
            f"poetc: internal error: {type(error).__name__}: {error}\n"
            "This is a defect of poetc. With POETC_TRACEBACK=1 it shows where.",
            file=sys.stderr,
        )
        return PoetcError.exit_code


def _run(arguments: argparse.Namespace) -> int:
    if arguments.list_devices:
        from poetc.costmodel.device import known_devices, load_device

        names = known_devices()
        lines = [f"{name:<12} {load_device(name).description}\n" for name in names]
        _write_text(None, "".join(lines))
        return 0
    if arguments.list_boards:
        from poetc.backends.c.boards import board_list

        _write_text(None, "".join(f"{name:<12} {text}\n" for name, text in board_list()))
        return 0
    if arguments.input is None:
        raise InputError("no input file; see poetc --help")
    options = _options(arguments)
    if arguments.passes is not None:
        _refuse_with_passes(arguments)
    elif arguments.emit == "c" and arguments.output is None:
        raise InputError("--emit=c needs -o DIRECTORY")
    _check_writable(arguments.output)
    name, data = _read(arguments.input)

    from poetc.ir.text import make_context, read_module

    context = make_context()
    module = read_module(data, name)
    observer = _Observer(arguments.print_ir_after_all, arguments.time_passes)
    if arguments.passes is not None:
        return _run_passes(arguments, context, module, observer)
    return _compile(arguments, options, context, module, observer, name)


def _run_image(command: str, arguments: argparse.Namespace) -> int:
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
        print(f"{done}, {len(layout.tensors)} parameters, {format_bytes(values)}", file=sys.stderr)
    return 0


def _refuse_with_passes(arguments: argparse.Namespace) -> None:
    """Options of the whole pipeline mean nothing to single passes."""
    given = _given(
        arguments,
        *("ram", "deadline", "stack", "static", "cc", "board", "device", "params", "io"),
        *SEARCH_OPTIONS,
    )
    given += [f"--emit={arguments.emit}"] if arguments.emit != "ir" else []
    if given:
        raise InputError(
            f"{' '.join(given)} cannot go with --passes, which runs just those passes; "
            "they have options of their own, for example poet-schedule{ram=8192}"
        )


def _given(arguments: argparse.Namespace, *names: str) -> list[str]:
    """Those of the options that are on the command line, as they are written there."""
    return [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name) is not None]


def _for_scheduled(arguments: argparse.Namespace, options: Options, graph: GraphOp) -> Options:
    """The options for a graph that was scheduled before: for its device, if none was given.

    What it takes is compared with limits later. Raises InputError for options that only a search
    could follow, and for another device than its own.
    """
    from xdsl.dialects.builtin import StringAttr

    from poetc.costmodel.device import known_devices, load_device

    hint = "give the IR from before poet-schedule"
    if given := _given(arguments, *SEARCH_OPTIONS):
        raise InputError(
            f"the input is scheduled already, so {' '.join(given)} would change nothing; {hint}"
        )
    attribute = graph.attributes.get("device")
    if not isinstance(attribute, StringAttr) or attribute.data == options.device.name:
        return options
    name = attribute.data
    if arguments.device is not None:
        raise InputError(
            f"the input is scheduled already, for device {name}, but --device={arguments.device} "
            f"is asked for; {hint}"
        )
    if name not in known_devices():
        _warn(f"the input is scheduled for device {name}; --device=FILE.toml describes it")
        return options
    return replace(options, device=load_device(name), device_name=name)


def _compile(
    arguments: argparse.Namespace,
    options: Options,
    context: Context,
    module: ModuleOp,
    observer: _Observer,
    name: str,
) -> int:
    from poetc.ir.graph import graphs
    from poetc.ir.text import module_text
    from poetc.pipeline import compile_module

    for graph in graphs(module):
        if graph.is_scheduled:
            options = _for_scheduled(arguments, options, graph)
    progress = _Terminal() if sys.stderr.isatty() and not arguments.quiet else None
    compiled = compile_module(
        context,
        module,
        options,
        progress=progress,
        observe=observer,
    )
    if progress is not None:
        progress.clear()

    @cache
    def summary() -> Summary:
        from poetc.report import summarize

        return summarize(compiled, name)

    if arguments.emit == "c":
        from poetc.backends.c.emit import emit

        emit(
            compiled.module,
            arguments.output,
            stack_bytes=compiled.options.stack_bytes,
            static_bytes=compiled.options.static_bytes,
            board=options.board,
            ram_bytes=compiled.options.ram_bytes if options.ram_scope == "all" else None,
        )
    elif arguments.emit == "report":
        _write_text(arguments.output, json.dumps(summary().to_json(), indent=2) + "\n")
    else:
        _write_text(arguments.output, module_text(compiled.module))
    observer.finish()
    interrupted = compiled.report is not None and compiled.report.interrupted
    if not any(compiled.graph.updates(i) is not None for i in range(len(compiled.graph.arguments))):
        _warn(
            "no result is the new value of an argument, so nothing is kept from step to step; "
            "lower the step with donate_argnums"
        )
    if not arguments.quiet:
        found = summary()
        text = json.dumps(found.to_json(), indent=2) if arguments.json else found.to_text()
        print(text, file=sys.stderr)
    return 130 if interrupted else 0


def _run_passes(
    arguments: argparse.Namespace, context: Context, module: ModuleOp, observer: _Observer
) -> int:
    from xdsl.passes import ModulePass
    from xdsl.universe import Universe
    from xdsl.utils.arg_spec import parse_pipeline
    from xdsl.utils.exceptions import ArgSpecParseError

    from poetc.ir.graph import graphs
    from poetc.ir.text import module_text
    from poetc.pipeline import run_passes

    known = Universe.get_multiverse().all_passes
    passes: list[ModulePass] = []
    try:
        specs = list(parse_pipeline(arguments.passes))
    except ArgSpecParseError as error:
        raise InputError(f"--passes: {_one_line(error)}") from error
    for spec in specs:
        if spec.name not in known:
            ours = ", ".join(n for n in sorted(known) if n.startswith(("poet-", "stablehlo-")))
            raise InputError(f"--passes: unknown pass '{spec.name}'; poetc's passes are {ours}")
        try:
            passes.append(known[spec.name]().from_spec(spec))
        except (ArgSpecParseError, ValueError, TypeError) as error:
            raise InputError(f"--passes: {spec.name}: {_one_line(error)}") from error
    for step in passes:
        if step.name.startswith("poet-") and not graphs(module):
            raise InputError(
                f"--passes: {step.name} works on poet.graph and there is none; "
                "stablehlo-simplify,stablehlo-to-poet make it"
            )
        try:
            run_passes(context, module, (step,), observer)
        except PoetcError:
            raise
        except Exception as error:
            if type(step).__module__.startswith("poetc."):
                raise
            raise InputError(f"--passes: {step.name} does not apply here: {error}") from error
    _write_text(arguments.output, module_text(module))
    observer.finish()
    return 0


def _one_line(error: BaseException) -> str:
    """What xDSL says about a pipeline: the column, and the last line, below a copy of the text."""
    text = str(error).strip()
    column = re.search(r"^pass-pipeline:\d+:(\d+)$", text, re.MULTILINE)
    place = f"column {column[1]}: " if column else ""
    return place + (text.splitlines() or ["malformed"])[-1].strip()


def _options(arguments: argparse.Namespace) -> Options:
    from poetc.backends.c.boards import check_ram, load_board
    from poetc.backends.c.layout import DEFAULT_STACK_BYTES, STATIC_BYTES
    from poetc.costmodel.device import load_device
    from poetc.pipeline import Options

    ram_bytes = None
    ram_scope = arguments.ram_scope or "all"
    if arguments.ram is not None:
        ram_bytes = parse_bytes(arguments.ram, "--ram")
        bare = arguments.ram.strip().isdigit() and ram_scope == "all"
        if bare and ram_bytes < 1024:
            _warn(f"--ram={arguments.ram} is {ram_bytes} bytes; did you mean {arguments.ram}KB?")
    board = load_board(arguments.board)
    stack_bytes, stack_compiler = DEFAULT_STACK_BYTES, None
    if arguments.stack == "measure":
        from poetc.backends.c.stack import find_compiler

        default = None if board is None else board.compiler
        stack_compiler = find_compiler(default if arguments.cc is None else arguments.cc)
    elif arguments.cc is not None:
        raise InputError("--cc is the compiler that --stack=measure runs; give that, too")
    elif arguments.stack is not None:
        stack_bytes = parse_bytes(arguments.stack, "--stack")
    deadline = None
    if arguments.deadline is not None:
        deadline = parse_duration_ns(arguments.deadline, "--deadline")
    try:
        time_limit_s = 60.0 if arguments.time_limit is None else float(arguments.time_limit)
    except ValueError:
        time_limit_s = -1.0
    if not 0 < time_limit_s < float("inf"):
        raise InputError(f"--time-limit={arguments.time_limit}: not a positive number of seconds")
    device_name = DEFAULT_DEVICE if arguments.device is None else arguments.device
    device = load_device(device_name)
    static_bytes = STATIC_BYTES if board is None else board.static_bytes
    if arguments.static is not None:
        static_bytes = parse_bytes(arguments.static, "--static")
    if board is not None:
        if ram_bytes is None:
            ram_bytes = board.ram_bytes
        elif ram_scope == "all":
            check_ram(board, ram_bytes)
    elif ram_bytes is not None and ram_bytes > device.ram_bytes:
        _warn(f"--ram={arguments.ram} is more than the {device.ram_bytes:,} bytes of {device.name}")
    return Options(
        device=device,
        device_name=device_name,
        ram_bytes=ram_bytes,
        deadline=deadline,
        static_bytes=static_bytes,
        stack_bytes=stack_bytes,
        strategy=arguments.strategy or "auto",
        paging=arguments.paging != "off",
        remat=arguments.remat != "off",
        time_limit_s=time_limit_s,
        gap=parse_fraction("1%" if arguments.gap is None else arguments.gap, "--gap"),
        ram_scope=ram_scope,
        params=arguments.params or "auto",
        stack_compiler=stack_compiler,
        io=arguments.io,
        board=board,
    )


def _warn(message: str) -> None:
    print(f"poetc: warning: {message}", file=sys.stderr)


def _read(path: str) -> tuple[str, bytes]:
    try:
        if path == "-":
            # Python leaves out a standard input that was closed.
            return "<stdin>", sys.stdin.buffer.read() if sys.stdin is not None else b""
        return path, Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from error


def _check_writable(output: str | None) -> None:
    """Fail before the work is done, not after it."""
    if output is None:
        return
    target = Path(os.path.realpath(output))
    if target.exists() and not target.is_file():
        # A directory that gets files, or a device that is written as it is.
        if not os.access(target, os.W_OK):
            raise InputError(f"cannot write {output}: permission denied")
        return
    parent = target.parent
    if not parent.is_dir():
        raise InputError(f"cannot write {output}: {parent} is not a directory")
    if not os.access(parent, os.W_OK):
        raise InputError(f"cannot write {output}: {parent} is not writable")


def _write_text(output: str | None, text: str) -> None:
    """Write all of a file or nothing; without a name, standard output."""
    if output is not None:
        write_whole(output, text)
        return
    if sys.stdout is None:
        raise InputError("cannot write standard output: it is closed")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # Nothing more can be flushed at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise InputError(f"cannot write standard output: {error.strerror}") from error


class _Observer:
    """Prints the IR after each pass and, at the end, the time that each took."""

    def __init__(self, print_ir: bool, print_times: bool) -> None:
        self.print_ir, self.print_times = print_ir, print_times
        self.times: list[tuple[str, float]] = []

    def __call__(self, name: str, module: ModuleOp, seconds: float) -> None:
        self.times.append((name, seconds))
        if self.print_ir:
            from poetc.ir.text import module_text

            print(f"// ----- IR after {name} -----\n{module_text(module)}", file=sys.stderr)

    def finish(self) -> None:
        if self.print_times:
            for name, seconds in self.times:
                print(f"{seconds:9.3f} s  {name}", file=sys.stderr)


class _Terminal:
    """One line on the terminal that follows the solver."""

    def __init__(self) -> None:
        self.shown = 0.0
        self.width = 0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self.shown < 0.1:
            return
        self.shown = now
        found = math.isfinite(progress.energy_nj)
        best = format_energy(progress.energy_nj) if found else "none yet"
        gap = f"  gap {progress.gap:.2%}" if found else ""
        bound = format_energy(progress.bound_nj)
        line = f"solving {progress.seconds:5.1f} s  schedule {best}  bound {bound}{gap}"
        print(f"\r{line:<{self.width}}", end="", file=sys.stderr, flush=True)
        self.width = len(line)

    def clear(self) -> None:
        """Remove the line."""
        if self.width:
            print(f"\r{' ' * self.width}\r", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
