"""The `poetc` command: arguments, files, exit codes; the work is done in `pipeline.py`."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from poetc import __version__
from poetc.budget import Deadline
from poetc.errors import InputError, PoetcError
from poetc.files import check_parent, write_whole
from poetc.schedule import strategies
from poetc.terminal import (
    ProgressLine,
    drop_output,
    flush,
    is_terminal,
    read_input,
    say,
    warn,
    write_data,
)
from poetc.units import (
    format_bytes,
    parse_bytes,
    parse_count,
    parse_fraction,
    parse_seconds,
)

if TYPE_CHECKING:
    from xdsl.context import Context
    from xdsl.dialects.builtin import ModuleOp

    from poetc.backends.c.emit import Executor
    from poetc.backends.c.measure import Entry
    from poetc.backends.tvm.emit import TuningOptions
    from poetc.costmodel.device import Device
    from poetc.costmodel.profile import Profile
    from poetc.ir.poet import GraphOp
    from poetc.passes.stablehlo_split import Split
    from poetc.pipeline import Options
    from poetc.profile import Log
    from poetc.report import Summary

DEFAULT_DEVICE = "nrf52840"
EMIT = ("ir", "c", "plan", "tvm", "report")
IMAGE_COMMANDS = ("pack", "unpack")
PROFILE_COMMAND = "profile"
SEARCH_OPTIONS = ("strategy", "paging", "remat", "time_limit", "gap", "ram_scope")
"""Options that say how to search, and so mean nothing where nothing is searched."""


STDOUT = "-"
"""An output of that name is standard output."""

# Seconds that the end of the process waits for a solver that was left behind.
LEAVE_S = 0.5
MAY_BE_EMPTY = ("cflags",)
"""Options whose empty value means something."""


class Parser(argparse.ArgumentParser):
    """A command line, of which whatever is wrong is one InputError with one line."""

    def error(self, message: str) -> NoReturn:
        """What argparse calls for bad usage."""
        raise InputError(f"{message}; see {self.prog} --help")

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """The arguments. Raises InputError for values that are empty, or nobody can read."""
        arguments = self.parse_args(words)
        for action in self._actions:
            value = getattr(arguments, action.dest, None)
            name = action.option_strings[-1] if action.option_strings else f"{action.dest}"
            if value == [] or (value == "" and action.dest not in MAY_BE_EMPTY):
                raise InputError(f"{name} is given without a value; see {self.prog} --help")
            if isinstance(value, str) and any(ord(c) < 32 or ord(c) == 127 for c in value):
                raise InputError(f"{name}={value!a}: control characters")
        return arguments


def build_parser() -> Parser:
    """The command line, as `poetc --help` shows it."""
    parser = Parser(
        prog="poetc",
        description="Compile a neural-network training step (StableHLO or poet IR) into a program "
        "that runs inside a fixed amount of RAM.",
        epilog="commands for parameters on storage: poetc pack, poetc unpack; "
        "to measure what kernels cost: poetc profile; "
        "exit codes: 0 done, 2 bad usage or input, 3 proven infeasible, 4 time limit with "
        "no schedule, 5 internal error, 130 interrupted",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("input", nargs="?", help="MLIR file, or - for standard input")
    add("--ram", metavar="SIZE", help="all of the RAM of the step, for example 32KB")
    # What is None here was not given, and has the default of `_options`.
    add("--device", help=f"name or .toml file (default {DEFAULT_DEVICE})")
    add("--profile", metavar="FILE", help="measured costs, as poetc profile writes them")
    add("--deadline", metavar="TIME", help="for example 20ms, or 1.5x the unlimited step's time")
    add("--emit", choices=EMIT, default="ir", help="what to write (default %(default)s)")
    add(
        "--executor",
        choices=("code", "plan"),
        help="what runs the schedule: code (default), or plans, which --emit=plan makes and the "
        "program of --emit=c runs",
    )
    add(
        "-o",
        "--output",
        metavar="PATH",
        help="file, or directory for --emit=c (default, and -: stdout)",
    )
    add(
        "--target",
        metavar="TRIPLE[:CPU]",
        help="with --emit=tvm or --kernels=tvm: what code is for, for example aarch64 or "
        "cortex-a72 (default host)",
    )
    add(
        "--kernels",
        choices=("c", "tvm"),
        help="with --emit=c: kernels as C (default), or compiled by TVM for --target, which is "
        "faster on cores with floating point",
    )
    add(
        "--tuning",
        metavar="DIRECTORY",
        help="with --emit=tvm: arrange loops as was found fastest in these measurements",
    )
    add(
        "--tune",
        metavar="TRIALS",
        help="with --tuning: first measure so many arrangements of each hot kernel here, and add "
        "them",
    )
    add(
        "--strategy",
        choices=[name for name in strategies.names() if name not in strategies.INTERNAL],
        help=f"default {strategies.DEFAULT}",
    )
    add("--paging", choices=("on", "off"), help="use auxiliary storage (default on)")
    add("--remat", choices=("on", "off"), help="recompute kernels (default on)")
    add(
        "--params",
        choices=("auto", "ram", "storage"),
        help="where parameters are between steps; auto: on storage if RAM is too small for them",
    )
    add(
        "--split",
        metavar="off|auto|NAME:K,...",
        help="parameters in K parts each, by argument number or name; auto (default): where the "
        "step does not fit otherwise",
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
        "--layout",
        choices=("make", "cmake", "arduino", "zephyr"),
        help="with --emit=c: a directory with a Makefile (default), or a library for CMake, for "
        "Arduino, or for Zephyr",
    )
    add(
        "--data",
        metavar="FILE.npz",
        help="with --emit=c: arguments of a step (arg0, arg1, ...) and its results, if known "
        "(out0, ...); make run in the directory runs it on them and compares",
    )
    add("--name", help="with --emit=c: begins the names of symbols and files (default model)")
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


def build_image_parser(command: str) -> Parser:
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


def build_profile_parser() -> Parser:
    """The command line of `poetc profile`."""
    parser = Parser(
        prog=f"poetc {PROFILE_COMMAND}",
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
    add("--board", metavar="NAME", help="where to measure (default host, this machine)")
    add("--cpu", metavar="CORE", help="core of the board (default: its first)")
    add("--cflags", metavar="OPTIONS", default="-O2", help="of the compiler (default %(default)s)")
    add(
        "--data",
        metavar="FILE.npz",
        help="arguments of a step, named arg0, arg1, ...; kernels are measured on values like "
        "those that they get then (default: random ones)",
    )
    add("--split", metavar="NAME:K,...", help="parameters in parts, as poetc --split has them")
    add("--program", metavar="DIRECTORY", help="only write the program that measures")
    add("--from", metavar="LOG", dest="log", help="what that program has printed on a board")
    add("-q", "--quiet", action="store_true", help="no summary")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. Without `argv` it is that of this process, which
    is to end then."""
    if argv is not None:
        return _main(list(argv))
    status = _main(sys.argv[1:])
    # There is nothing left to interrupt; Python would print where it is in ending its threads.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    solver = sys.modules.get("poetc.schedule.highs")
    if solver is not None and not solver.settle(LEAVE_S):
        # HiGHS does not look at the clock everywhere.
        flush()
        os._exit(status)
    return status


def _main(words: list[str]) -> int:
    try:
        if words and words[0] in IMAGE_COMMANDS:
            return _run_image(words[0], build_image_parser(words[0]).parse(words[1:]))
        if words and words[0] == PROFILE_COMMAND:
            return _run_profile(build_profile_parser().parse(words[1:]))
        return _run(build_parser().parse(words))
    except PoetcError as error:
        say(f"poetc: error: {error}")
        return error.exit_code
    except BrokenPipeError:
        # The reader of stdout went away; nothing left to say there.
        drop_output()
        return 0
    except KeyboardInterrupt:
        say("poetc: interrupted")
        return 130
    except MemoryError:
        say("poetc: error: not enough memory for this input")
        return InputError.exit_code
    except RecursionError:
        say("poetc: error: the input is nested too deeply")
        return InputError.exit_code
    except Exception as error:
        if os.environ.get("POETC_TRACEBACK"):
            raise
        say(
            f"poetc: internal error: {type(error).__name__}: {error}\n"
            "This is a defect of poetc. With POETC_TRACEBACK=1 it shows where."
        )
        return PoetcError.exit_code


def _run(arguments: argparse.Namespace) -> int:
    if arguments.list_devices:
        from poetc.costmodel.device import known_devices, load_device

        names = known_devices()
        lines = [f"{name:<12} {load_device(name).description}\n" for name in names]
        _write(None, "".join(lines))
        return 0
    if arguments.list_boards:
        from poetc.backends.c.boards import board_list

        _write(None, "".join(f"{name:<12} {text}\n" for name, text in board_list()))
        return 0
    if arguments.input is None:
        raise InputError("no input file; see poetc --help")
    options = _options(arguments)
    if arguments.passes is not None:
        _refuse_with_passes(arguments)
    elif arguments.emit == "c" and arguments.output in (None, STDOUT):
        raise InputError("--emit=c needs -o DIRECTORY")
    elif arguments.emit == "plan" and arguments.output is None:
        raise InputError("--emit=plan needs -o FILE, or -o - for standard output")
    arguments.output = _file_name(arguments.output)
    _check_library(arguments)
    _check_tvm(arguments)
    _check_writable(arguments.output)
    name, data = _read(arguments.input)

    from poetc.ir.text import make_context, read_module

    context = make_context()
    module = read_module(data, name)
    observer = _Observer(arguments.print_ir_after_all, arguments.time_passes)
    if arguments.passes is not None:
        return _run_passes(arguments, context, module, observer)
    return _compile(arguments, options, context, module, observer, name)


def _layout(arguments: argparse.Namespace) -> str:
    """The layout of the generated C."""
    from poetc.backends.c.libraries import DEFAULT_LAYOUT

    return arguments.layout or DEFAULT_LAYOUT


def _check_library(arguments: argparse.Namespace) -> None:
    """Refuse a layout and a name that would be refused, or have no effect, after the search."""
    if arguments.emit != "c":
        if given := _given(arguments, "layout", "name", "data"):
            raise InputError(f"{' '.join(given)} says how C is written; give --emit=c as well")
        return
    from poetc.backends.c.boards import load_board
    from poetc.backends.c.emit import check_library, check_runs

    board = load_board(arguments.board)
    check_library(arguments.name, _layout(arguments), board)
    if arguments.data is not None:
        try:
            check_runs(_layout(arguments), board)
        except InputError as error:
            raise InputError(f"--data: {error.message}") from error


def _check_tvm(arguments: argparse.Namespace) -> None:
    """Refuse what TVM code cannot be generated for before the search, not after it."""
    if arguments.emit != "c" and (given := _given(arguments, "kernels")):
        raise InputError(f"{' '.join(given)} says how C is written; give --emit=c as well")
    if arguments.emit != "tvm":
        named = ("tuning", "tune") if arguments.kernels == "tvm" else ("target", "tuning", "tune")
        if given := _given(arguments, *named):
            instead = "--emit=tvm, or --kernels=tvm," if named[0] == "target" else "--emit=tvm"
            words = " ".join(given)
            raise InputError(f"{words} says what TVM code is for; give {instead} too")
        if arguments.kernels == "tvm":
            _check_compiled_kernels(arguments)
        return
    if given := _given(arguments, "board"):
        raise InputError(f"{' '.join(given)} is for firmware, in C: --emit=c")
    from poetc.backends.tvm.emit import HOST, check

    check(arguments.output, _target(arguments, HOST), _tuning(arguments))


def _check_compiled_kernels(arguments: argparse.Namespace) -> None:
    """Refuse what --kernels=tvm cannot go with."""
    from poetc.backends.c.boards import load_board
    from poetc.backends.c.libraries import DEFAULT_LAYOUT
    from poetc.backends.tvm.bare import kernels_for

    reasons = {
        "--profile": "it has the costs of kernels in C" if arguments.profile else "",
        "--stack=measure": "a C compiler measures the stack"
        if arguments.stack == "measure"
        else "",
        f"--layout={_layout(arguments)}": (
            "they are built by a Makefile" if _layout(arguments) != DEFAULT_LAYOUT else ""
        ),
    }
    for option, reason in reasons.items():
        if reason:
            raise InputError(f"--kernels=tvm cannot go with {option}: {reason}")
    kernels_for(arguments.target, load_board(arguments.board))


def _target(arguments: argparse.Namespace, default: str) -> str:
    """What TVM code is for; an empty name is a name."""
    return default if arguments.target is None else arguments.target


def _tuning(arguments: argparse.Namespace) -> TuningOptions | None:
    """What --tuning and --tune ask for."""
    from poetc.backends.tvm.emit import TuningOptions

    if arguments.tuning is None:
        if arguments.tune is not None:
            raise InputError("--tune adds to measurements; --tuning=DIRECTORY says where they are")
        return None
    if arguments.tune is None:
        return TuningOptions(arguments.tuning)
    return TuningOptions(arguments.tuning, parse_count(arguments.tune, "--tune", "trials"))


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
        count = len(layout.parameters)
        say(f"{done}, {count} parameters, {format_bytes(values)}")
    return 0


def _run_profile(arguments: argparse.Namespace) -> int:
    from poetc.costmodel.profile import load_profile
    from poetc.image_files import refuse_overwriting
    from poetc.profile import labels_for, merged, profile_of

    arguments.output = _file_name(arguments.output)
    output, model, log_file = arguments.output, arguments.input, arguments.log
    given = _given(arguments, "output") + (["--from"] if log_file is not None else [])
    if arguments.program is not None and given:
        raise InputError(f"--program only writes a program; {' '.join(given)} cannot go with it")
    if output is not None:
        refuse_overwriting(output, *(f for f in (model, log_file, arguments.data) if f))
        _check_writable(output)
    known = load_profile(output) if output is not None and Path(output).is_file() else None
    if log_file is not None:
        log = _read_profile_log(arguments)
        labels = {} if model is None else labels_for(log, _kernels_of(arguments), log_file)
    else:
        measured = _measure(arguments, known)
        if measured is None:
            return 0
        log, labels = measured
    new = profile_of(log, labels, output or "-")
    profile = merged(known, new)
    _write(output, profile.to_toml())
    if not arguments.quiet:
        text = f"{len(new.kernels)} kernels measured, {len(profile.kernels)} in all"
        say(f"{profile.origin}: {text}, in {profile.unit}")
    return 0


def _read_profile_log(arguments: argparse.Namespace) -> Log:
    """What the program that measures has printed on the user's board."""
    from poetc.profile import read_log_file

    log = read_log_file(arguments.log, arguments.cflags)
    for option, found in (("board", log.board), ("cpu", log.cpu)):
        if getattr(arguments, option) not in (None, found):
            asked = _given(arguments, option)[0]
            raise InputError(
                f"{asked}={getattr(arguments, option)}, but {arguments.log} is from {found}"
            )
    return log


def _measure(
    arguments: argparse.Namespace, known: Profile | None
) -> tuple[Log, Mapping[str, str]] | None:
    """What was measured of the kernels that are not known, and their names.

    None if all are known, or if the program that measures was only to be written.
    """
    from poetc.backends.c.boards import HOST
    from poetc.profile import check_core, check_same, labels_for, measure, write_program

    model, board = arguments.input, arguments.board or HOST
    if model is None:
        raise InputError("no input file; see poetc profile --help")
    cpu = check_core(board, arguments.cpu)
    entries = _kernels_of(arguments)
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


def _kernels_of(arguments: argparse.Namespace) -> tuple[Entry, ...]:
    """The kernels of the model that is to be profiled."""
    from poetc.ir.text import make_context, read_module
    from poetc.profile import entries_of

    name, data = _read(arguments.input)
    splits = () if arguments.split is None else _split(arguments.split)
    if isinstance(splits, str):
        raise InputError(f"--split={splits}: name parameters and their number of parts")
    return entries_of(make_context(), read_module(data, name), splits, arguments.data)


def _refuse_with_passes(arguments: argparse.Namespace) -> None:
    """Options of the whole pipeline mean nothing to single passes."""
    given = _given(
        arguments,
        *("ram", "deadline", "stack", "static", "cc", "board", "device", "profile"),
        *("params", "split", "io"),
        *("layout", "name", "data", "executor", "kernels"),
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
    if asked := _given(arguments, "device", "profile"):
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
    options: Options,
    context: Context,
    module: ModuleOp,
    observer: _Observer,
    name: str,
) -> int:
    from poetc.ir.graph import graphs
    from poetc.ir.text import module_text
    from poetc.pipeline import compile_module

    step = None
    if arguments.data is not None:
        from poetc.step_data import read_step

        step = read_step(module, arguments.data)
    for graph in graphs(module):
        if graph.is_scheduled:
            options = _for_scheduled(arguments, options, graph)
    progress = ProgressLine() if is_terminal() and not arguments.quiet else None
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
        from poetc.backends.c.emit import DEFAULT_NAME, emit

        compiler, board = None, options.board
        if arguments.kernels == "tvm":
            from poetc.backends.tvm.bare import kernels_for

            compiler, board = kernels_for(arguments.target, board)
        emit(
            compiled.module,
            arguments.output,
            stack_bytes=compiled.options.stack_bytes,
            static_bytes=compiled.options.static_bytes,
            board=board,
            ram_bytes=compiled.options.ram_bytes if options.ram_scope == "all" else None,
            layout=_layout(arguments),
            name=arguments.name or DEFAULT_NAME,
            executor=options.executor,
            compiler=compiler,
            step=step,
        )
    elif arguments.emit == "plan":
        from poetc.backends.plan.codec import identity_of
        from poetc.backends.plan.lower import plan_bytes

        plan = plan_bytes(compiled.graph)
        _write(arguments.output, plan)
        if not arguments.quiet and not arguments.json:
            text = f"a plan of {len(plan)} bytes for table 0x{identity_of(plan):08x}"
            say(f"{arguments.output or 'standard output'}: {text}")
    elif arguments.emit == "tvm":
        from poetc.backends.tvm.emit import HOST, emit, text

        if arguments.output is None:
            _write(None, text(compiled.module))
        else:
            target, tuning = _target(arguments, HOST), _tuning(arguments)
            note = emit(compiled.module, arguments.output, target, tuning)
            if note is not None and not arguments.quiet and not arguments.json:
                say(f"{arguments.output}: {note}")
    elif arguments.emit == "report":
        _write(arguments.output, json.dumps(summary().to_json(), indent=2) + "\n")
    else:
        _write(arguments.output, module_text(compiled.module))
    observer.finish()
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
    _write(arguments.output, module_text(module))
    observer.finish()
    return 0


def _split(text: str) -> tuple[Split, ...] | str:
    from poetc.passes.stablehlo_split import parse_splits

    return text if text in ("off", "auto") else parse_splits(text)


def _one_line(error: BaseException) -> str:
    """What xDSL says about a pipeline: the column, and the last line, below a copy of the text."""
    text = str(error).strip()
    column = re.search(r"^pass-pipeline:\d+:(\d+)$", text, re.MULTILINE)
    place = f"column {column[1]}: " if column else ""
    return place + (text.splitlines() or ["malformed"])[-1].strip()


def _options(arguments: argparse.Namespace) -> Options:
    from poetc.backends.c.boards import check_ram, load_board
    from poetc.backends.c.layout import DEFAULT_STACK_BYTES
    from poetc.backends.c.libraries import load_layout
    from poetc.costmodel.device import device_of
    from poetc.pipeline import Options

    ram_bytes = None
    ram_scope = arguments.ram_scope or "all"
    if arguments.ram is not None:
        ram_bytes = parse_bytes(arguments.ram, "--ram")
        bare = arguments.ram.strip().isdigit() and ram_scope == "all"
        if bare and ram_bytes < 1024:
            warn(f"--ram={arguments.ram} is {ram_bytes} bytes; did you mean {arguments.ram}KB?")
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
        deadline = Deadline.parse(arguments.deadline, "--deadline")
    time_limit_s = 60.0
    if arguments.time_limit is not None:
        time_limit_s = parse_seconds(arguments.time_limit, "--time-limit")
    device = device_of(arguments.device, arguments.profile, DEFAULT_DEVICE)
    device_name = arguments.device or DEFAULT_DEVICE
    if arguments.device is None and device.profile is not None:
        device_name = device.profile.device_name
    profile = device.profile
    if board is not None and profile is not None and profile.board != board.name:
        raise InputError(
            f"profile {arguments.profile} is of board {profile.board}, not of --board={board.name}"
        )
    layout = load_layout(_layout(arguments))
    static_bytes = layout.static_bytes if board is None else board.static_bytes
    if arguments.static is not None:
        static_bytes = parse_bytes(arguments.static, "--static")
    if board is not None:
        if ram_bytes is None:
            ram_bytes = board.ram_bytes
        elif ram_scope == "all":
            check_ram(board, ram_bytes)
    elif ram_bytes is not None and ram_bytes > device.ram_bytes:
        warn(f"--ram={arguments.ram} is more than the {device.ram_bytes:,} bytes of {device.name}")
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
        split=_split("auto" if arguments.split is None else arguments.split),
        board=board,
        executor=_executor(arguments, ram_bytes if ram_scope == "all" else None, device),
    )


def _executor(
    arguments: argparse.Namespace, ram_bytes: int | None, device: Device
) -> Executor | None:
    """What makes a program that runs plans, if that is asked for, or a plan for one."""
    from poetc.backends.plan.source import PlanExecutor

    if arguments.passes is not None:
        return None
    if arguments.executor is not None and arguments.emit == "tvm":
        raise InputError("--executor says what C is written, not TVM code")
    if arguments.executor == "code" and arguments.emit == "plan":
        raise InputError("--emit=plan is for programs with --executor=plan, not --executor=code")
    if arguments.executor != "plan" and arguments.emit != "plan":
        return None
    if arguments.io == "caller":
        raise InputError("plans have inputs and results in the arena: --io=arena")
    return PlanExecutor(ram_bytes, device.storage is not None and arguments.paging != "off")


def _read(path: str) -> tuple[str, bytes]:
    try:
        if path == "-":
            return "<stdin>", read_input()
        return path, Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from error


def _check_writable(output: str | None) -> None:
    """Fail before the work is done, not after it."""
    if output is None:
        return
    target = Path(os.path.realpath(output))
    try:
        special = target.exists() and not target.is_file()
    except OSError as error:
        raise InputError(f"cannot write {output}: {error.strerror}") from error
    if special:
        # A directory that gets files, or a device that is written as it is.
        if not os.access(target, os.W_OK):
            raise InputError(f"cannot write {output}: permission denied")
        return
    parent = target.parent
    check_parent(output)
    if not os.access(parent, os.W_OK):
        raise InputError(f"cannot write {output}: {parent} is not writable")


def _file_name(output: str | None) -> str | None:
    """The name of an output file, None for standard output."""
    return None if output == STDOUT else output


def _write(output: str | None, content: str | bytes) -> None:
    """Write all of a file or nothing; without a name, standard output."""
    if output is not None:
        write_whole(output, content)
        return
    write_data(content)


class _Observer:
    """Prints the IR after each pass and, at the end, the time that each took."""

    def __init__(self, print_ir: bool, print_times: bool) -> None:
        self.print_ir, self.print_times = print_ir, print_times
        self.times: list[tuple[str, float]] = []

    def __call__(self, name: str, module: ModuleOp, seconds: float) -> None:
        self.times.append((name, seconds))
        if self.print_ir:
            from poetc.ir.text import module_text

            say(f"// ----- IR after {name} -----\n{module_text(module)}")

    def finish(self) -> None:
        if self.print_times:
            for name, seconds in self.times:
                say(f"{seconds:9.3f} s  {name}")


if __name__ == "__main__":
    sys.exit(main())
