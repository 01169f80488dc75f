"""`poetc profile`: measures the kernels of a model and the transfers of a board.

    model ── passes up to poet-lower-kernels ── kernels, with values like those of a step
      ── program that measures (backends/c/measure) ── log ── profile (costmodel/profile.py)

The program runs in the emulator of a board, where instructions are counted, on this machine, or,
built and started by the user, on a real board, whose log is read from a file.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from poetc.backends.c.boards import HOST, load_board
from poetc.backends.c.directory import write_generated
from poetc.backends.c.libraries.library import OPTIONS
from poetc.backends.c.measure import Entry, generate, sample
from poetc.backends.c.measure.emulate import (
    build,
    count,
    counter,
    host_compiler,
    run_tool,
    symbols,
)
from poetc.costmodel.machine import measured_for
from poetc.costmodel.profile import KEY_DIGITS, BlockBuffer, Profile, Transfers, kernel_key
from poetc.errors import InputError, SourceLocation
from poetc.interpreter.functions import run_block
from poetc.ir.poet import ComputeOp, GraphOp
from poetc.ir.symbols import named_in
from poetc.ir.types import is_float
from poetc.ir.unschedule import unscheduled
from poetc.options import default
from poetc.passes.poet_annotate import PoetAnnotatePass
from poetc.pipeline import front_passes, run_passes, unobserved
from poetc.step_data import Type, argument_types, read_arguments

HOST_FLAGS = ("-std=c99", *OPTIONS)
"""As in the Makefile of a generated program."""

LOG_FORMAT = 1
_SEED = 1
_SYNTHETIC_INTEGERS = 10
"""Integer inputs are below this where no data are given: labels of classes, as a rule."""

_WITHIN = 0.01
"""A model of transfers without blocks is good enough if it is never farther off than this."""


@dataclass(frozen=True)
class Measured:
    """A line of the log: what was measured, at which offset and how many bytes, and the cost."""

    kind: str
    cost: float
    key: str = ""
    offset: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Log:
    """The output of the measuring program. `ticks_per_second` is 0 where instructions were
    counted."""

    board: str
    cpu: str
    flags: str
    compiler: str
    ticks_per_second: int
    block_bytes: int
    lines: tuple[Measured, ...]


# The kernels of a model, and what they work on


def entries_of(
    context: Context,
    module: ModuleOp,
    data: str | None = None,
    *,
    frozen: str = default("frozen"),
    train: str | None = None,
    pages: str = default("pages"),
    device_name: str = HOST,
    arrange: bool = True,
) -> tuple[Entry, ...]:
    """The kernels of a model, each once, with samples of what their operands hold in a step.

    The step is one on the arguments in the .npz file `data`; without it, on random ones. `frozen`,
    `train` and `pages` are the options of the command; with `arrange`, kernels are arranged for
    the device.
    """
    passes = front_passes(
        module,
        measured_for(device_name),
        frozen=frozen,
        train=train,
        pages=pages,
        arrange=arrange,
    )
    until = [isinstance(step, PoetAnnotatePass) for step in passes]
    run_passes(context, module, passes[: until.index(True)] if any(until) else passes, unobserved)
    graph = unscheduled(module)
    functions = named_in(module, FuncOp)
    arguments = step_arguments(graph, data)
    values: dict[SSAValue, np.ndarray] = dict(zip(graph.arguments, arguments, strict=True))
    found: dict[str, Entry] = {}
    with np.errstate(all="ignore"):
        for op in graph.block.ops:
            if not isinstance(op, ComputeOp):
                continue
            assert op.kernel is not None
            operands = [values[operand] for operand in op.operands]
            results = run_block(op.block, operands, _no_calls)
            values.update(zip(op.results, results, strict=True))
            function = functions[op.kernel.root_reference.data]
            key = kernel_key(function)
            if key not in found:
                samples = tuple(map(sample, operands))
                found[key] = Entry(key, op.label.data, function, samples, op.inplace_pairs)
    return tuple(found.values())


def _no_calls(name: str, operands: list[np.ndarray]) -> list[np.ndarray]:
    raise AssertionError(f"a compute calls @{name}")


def step_arguments(graph: GraphOp, path: str | None) -> list[np.ndarray]:
    """The arguments of a step: those in the .npz file `path`, or synthetic ones."""
    types = argument_types(graph)
    arrays = _synthetic(graph, types) if path is None else read_arguments(types, path)
    return [arrays[i] for i in types]


def _synthetic(graph: GraphOp, types: Mapping[int, Type]) -> dict[int, np.ndarray]:
    """Arguments where none are given: normally distributed, parameters with a variance of one over
    what is summed up with them, as they are initialised; small integers."""
    random = np.random.default_rng(_SEED)
    arrays: dict[int, np.ndarray] = {}
    for i, (shape, dtype) in types.items():
        if not is_float(dtype):
            most = 2 if dtype == np.bool_ else _SYNTHETIC_INTEGERS
            arrays[i] = random.integers(0, most, shape).astype(dtype)
            continue
        scale = 1.0
        if graph.role(i) != "input":
            scale = float(np.prod(shape[:-1])) ** -0.5 if len(shape) > 1 else 0.1
        arrays[i] = (random.standard_normal(shape) * scale).astype(dtype)
    return arrays


# Measuring


def check_core(board: str, cpu: str | None) -> str:
    """The core to measure on: the given one if the board has it, by default its first."""
    described = load_board(board)
    cores = (HOST,) if described is None else described.cpus
    if cpu is not None and cpu not in cores:
        raise InputError(f"--cpu={cpu}: {board} has {', '.join(cores)}")
    return cpu or cores[0]


def measure(entries: Sequence[Entry], board: str, cpu: str, flags: str, model: str) -> Log:
    """Builds the program and runs it, in the emulator of the board or on this machine."""
    described = load_board(board)
    if described is not None and not described.qemu:
        raise InputError(
            f"{board} is not emulated: --program=DIRECTORY writes the program that measures, for "
            "you to run, and --from=LOG reads what it prints"
        )
    with tempfile.TemporaryDirectory(prefix="poetc-profile-") as name:
        directory = Path(name)
        for file, text in generate(entries, described, cpu, model).items():
            (directory / file).write_text(text, encoding="utf-8")
        run = _run_on_host if described is None else _emulate
        printed = run(directory, cpu, flags)
    return read_log(printed, "the program that measures", flags)


def write_program(
    entries: Sequence[Entry], board: str, cpu: str, model: str, directory: str
) -> None:
    """Writes the program that measures, for a board that the user has."""
    write_generated(generate(entries, load_board(board), cpu, model), directory)


def _run_on_host(directory: Path, cpu: str, flags: str) -> str:
    program = directory / "measure"
    sources = sorted(directory.glob("*.c"))
    command = (host_compiler("measuring"), *flags.split(), *HOST_FLAGS, *sources, "-o", program)
    run_tool(command, "measuring")
    return run_tool((program,), "measuring").stdout


def _emulate(directory: Path, cpu: str, flags: str) -> str:
    """The output of the measuring program, with counts of instructions in place of its clock."""
    words = (f"CFLAGS={flags}",)
    build(directory, cpu, words)
    known = symbols(directory / "build" / cpu / "measure.elf")
    marks = [known["measure_begin"], known["measure_end"]]
    with counter() as plugin:
        counted = count(directory, cpu, marks, plugin, words)
    counts: list[int] = []
    begun = 0
    for mark, executed in counted.marks:
        if mark == 0:
            begun = executed
        else:
            counts.append(executed - begun)
    lines: list[str] = []
    number = iter(counts)
    for line in counted.printed.splitlines():
        if _LINE.fullmatch(line):
            line = f"{line.rsplit(' ', 1)[0]} {next(number)}"
        lines.append(line)
    assert next(number, None) is None, "measured more often than printed"
    return "\n".join(lines)


_HEADER = re.compile(rf"poetc-measure {LOG_FORMAT} (\S+) (\S+) (\d+) (\d+) (.+)")
_LINE = re.compile(
    rf"(?:(?P<kind>nothing|sync|commit|open)|kernel (?P<key>[0-9a-f]{{{KEY_DIGITS}}})"
    r"|(?P<way>in|out) (?P<offset>\d+) (?P<bytes>\d+)) (?P<cost>\d+)"
)


def read_log_file(path: str, flags: str) -> Log:
    """`read_log` of a file."""
    try:
        # A serial port may catch anything.
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from error
    log = read_log(text, path, flags)
    if log.ticks_per_second == 0:
        raise InputError(f"{path}: no time was measured: board_ticks_per_second() is 0 there")
    return log


def read_log(text: str, name: str, flags: str) -> Log:
    """The log in the output of the measuring program; lines before and after it are left alone.

    Raises InputError, with the line, for anything that it does not print.
    """
    header: re.Match[str] | None = None
    found: list[Measured] = []
    ended = False
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if line.startswith("poetc-measure "):
            # A board that was reset begins anew.
            header, found = _HEADER.fullmatch(line), []
            if header is None:
                raise _bad(name, number, f"not a measurement of format {LOG_FORMAT}: {line[:60]!r}")
        elif header is None or not line:
            continue
        elif line == "end":
            ended = True
            break
        elif (match := _LINE.fullmatch(line)) is not None:
            kind = match["kind"] or match["way"] or "kernel"
            cost = float(match["cost"])
            place = (match["key"] or "", int(match["offset"] or 0), int(match["bytes"] or 0))
            found.append(Measured(kind, cost, *place))
        else:
            raise _bad(name, number, f"not a line of a measurement: {line[:60]!r}")
    if header is None:
        raise InputError(f"{name}: no measurement in it; it begins with 'poetc-measure'")
    if not ended:
        raise InputError(f"{name}: the measurement has no end; the program did not finish")
    kinds = {line.kind for line in found}
    lacking = [k for k in ("nothing", "in", "out", "commit", "open") if k not in kinds]
    if lacking:
        raise InputError(f"{name}: nothing was measured of: {', '.join(lacking)}")
    board, cpu, ticks, block, compiler = header.groups()
    return Log(board, cpu, flags, compiler, int(ticks), int(block), tuple(found))


def _bad(name: str, number: int, message: str) -> InputError:
    return InputError(message, SourceLocation(name, number, 1))


def profile_of(log: Log, labels: Mapping[str, str], path: str) -> Profile:
    """The profile that follows from a log."""
    scale = 1e9 / log.ticks_per_second if log.ticks_per_second else 1.0
    nothing = min(line.cost for line in log.lines if line.kind == "nothing")
    lines = [replace(m, cost=max(0.0, m.cost - nothing) * scale) for m in log.lines]
    kernels = {m.key: m.cost for m in lines if m.kind == "kernel"}
    return Profile(
        Path(path),
        log.board,
        log.cpu,
        log.compiler,
        log.flags,
        "ns" if log.ticks_per_second else "instructions",
        _transfers([m for m in lines if m.kind not in ("kernel", "nothing")], log.block_bytes),
        kernels,
        {key: labels[key] for key in kernels if key in labels},
    )


def _transfers(lines: Sequence[Measured], block_bytes: int) -> Transfers:
    """The numbers that fit the measured transfers best, with blocks if that is better."""
    rounds = sum(m.kind == "open" for m in lines)
    whole = len(lines) // rounds if rounds else 0
    once = [
        replace(m, cost=float(np.median([lines[at + r * whole].cost for r in range(rounds)])))
        for at, m in enumerate(lines[:whole])
    ]
    image = {kind: next(m.cost for m in once if m.kind == kind) for kind in ("open", "commit")}
    plain = _fit(once, image, 0)
    if not block_bytes or plain.error <= _WITHIN:
        return plain
    return min(plain, _fit(once, image, block_bytes), key=lambda transfers: transfers.error)


def _fit(lines: Sequence[Measured], image: Mapping[str, float], block_bytes: int) -> Transfers:
    """Least squares of relative errors."""
    buffer = BlockBuffer(block_bytes) if block_bytes else None
    rows: list[list[float]] = []
    costs: list[float] = []
    for m in lines:
        if m.kind == "sync":
            if buffer is not None:
                buffer.sync()
            continue
        if m.kind not in ("in", "out"):
            continue
        out = m.kind == "out"
        row = [0.0 if out else 1.0, 0.0 if out else m.bytes, float(out), m.bytes if out else 0.0]
        if buffer is not None:
            row += map(float, buffer.move_page(out, m.offset, m.bytes))
        rows.append(row)
        costs.append(max(m.cost, 1.0))
    matrix, cost = np.array(rows), np.array(costs)
    found = least_squares(matrix / cost[:, None], np.ones(len(cost)))
    error = float(np.max(np.abs(matrix @ found - cost) / cost))
    names = ("in_fixed", "in_per_byte", "out_fixed", "out_per_byte")
    names += ("per_part", "block_read", "block_write", "copy_per_byte") if block_bytes else ()
    numbers = {name: float(f"{value:.6g}") for name, value in zip(names, found, strict=True)}
    return Transfers(**numbers, **image, block_bytes=block_bytes, error=round(error, 4))


def least_squares(matrix: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Least squares without negative numbers: what would be negative is left out, worst first."""
    columns = list(range(matrix.shape[1]))
    found = np.zeros(matrix.shape[1])
    while columns:
        solved = np.linalg.lstsq(matrix[:, columns], target, rcond=None)[0]
        if solved.min() >= 0:
            found[columns] = solved
            return found
        del columns[int(solved.argmin())]
    return found


def labels_for(log: Log, entries: Sequence[Entry], name: str) -> dict[str, str]:
    """Names of the kernels in a log. Raises InputError if it is not of the model with `entries`."""
    labels = {entry.key: entry.label for entry in entries}
    measured = {line.key for line in log.lines if line.kind == "kernel"}
    if unknown := sorted(measured - labels.keys()):
        raise InputError(f"{name}: kernel {unknown[0]} is none of this model's")
    return labels


def check_same(known: Profile, **ours: str) -> None:
    """Raises InputError if `known` was measured in another way than `ours`, fields by name."""
    for name, value in ours.items():
        theirs = getattr(known, name)
        if value != theirs:
            raise InputError(
                f"{known.path} was measured with {name} '{theirs}', this is with '{value}': "
                "write to another file"
            )


def merged(known: Profile | None, new: Profile) -> Profile:
    """`known` with the kernels of `new`. Raises InputError if they were measured in other ways."""
    if known is None:
        return new
    same = {name: getattr(new, name) for name in ("board", "cpu", "flags", "unit", "compiler")}
    check_same(known, **same)
    return replace(
        known,
        kernels={**known.kernels, **new.kernels},
        labels={**known.labels, **new.labels},
    )
