"""How much stack a generated step takes, measured with the user's C compiler.

The sources are compiled with `-fstack-usage`, which gives the frame of each function, and the calls
between functions are read from the sources themselves, which we know: no recursion, and function
pointers only to the operations of the page store. The bound is the deepest chain of calls.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import DictionaryAttr, ModuleOp

from poetc.backends.c.emit import generate
from poetc.backends.c.libraries.library import OPTIONS
from poetc.errors import InputError
from poetc.ir.graph import graphs, round_up, write_schedule
from poetc.ir.poet import GraphOp
from poetc.ir.transfers import FEW, most_under_way, split_at_once
from poetc.passes.poet_plan_memory import plan_graph_memory
from poetc.schedule.problem import Compute, Free, PageIn, PageOut, Place, Problem, Step

if TYPE_CHECKING:
    from poetc.backends.c.boards import Board
    from poetc.backends.c.emit import Executor
    from poetc.passes.poet_schedule import ScheduleOptions

FLAGS = ("-std=c99", "-O2", *OPTIONS, "-fstack-usage", "-c")
"""With these the sources are compiled; those of the generated Makefile, and frame sizes."""

NO_RED_ZONE = "-mno-red-zone"
"""For x86-64, where a function that calls no other may use 128 bytes below its frame. With this
they are part of the frame, and counted."""

LIBRARY_BYTES = 64
"""For what compilers call that is not in the sources: memcpy, software floating point."""

RETURN_ADDRESS_BYTES = 8
"""For each call, if the compiler does not count it as part of the frame."""

SLACK_BYTES = 32
"""What a step may take beyond what was expected before it was scheduled."""

TRANSFER_BYTES = 48
"""The most that a `poetc_transfer` takes without a cache; a step has some on its stack."""

_DEFINITION = re.compile(r"^[A-Za-z_][\w \t*]*?(\w+)\(([^;{}]*)\)\n\{\n(.*?)^\}", re.M | re.S)
_INDIRECT = re.compile(r"->\s*(\w+)\(")
_TABLE = re.compile(r"^\s*\.(\w+)\s*=\s*(\w+)\s*,", re.M)
_CALL = re.compile(r"(?<![\w>.])(\w+)\s*\(")
_COMMENT = re.compile(r"/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'", re.S)
_HOSTED = re.compile(r"#include <(?:pthread|stdio|stdlib|unistd)\.h>")


@dataclass(frozen=True)
class StackUse:
    """The stack of a step in bytes, from `model_step` down, and the calls that take it."""

    bytes: int
    chain: tuple[str, ...]


def find_compiler(command: str | None) -> tuple[str, ...]:
    """The C compiler as a command with options: `command`, or gcc or cc on the PATH.

    Raises InputError where there is none.
    """
    try:
        words = tuple(shlex.split(command)) if command is not None else ()
    except ValueError as error:
        raise InputError(f"--cc={command}: not a command: {error}") from error
    candidates = words[:1] if command is not None else ("gcc", "cc")
    for name in candidates:
        if shutil.which(name) is not None:
            return (name, *words[1:])
    if command is None:
        raise InputError("--stack=measure needs a C compiler, and neither gcc nor cc is here; --cc")
    raise InputError(f"--cc={command}: there is no such compiler")


def measure_stack(
    module: ModuleOp,
    compiler: tuple[str, ...],
    *,
    name: str = "model",
    board: Board | None = None,
    executor: Executor | None = None,
) -> StackUse:
    """The stack of a step of the one graph of `module`, scheduled and with a memory plan.

    The page store is that of the board, or the one in memory: that of a port may take more. Raises
    InputError if the compiler fails, or does not know how much stack functions take.
    """
    files = generate(module, name=name, board=board, executor=executor)
    sources = {
        file: _COMMENT.sub(" ", text)
        for file, text in files.items()
        if file.endswith((".c", ".h")) and not _HOSTED.search(text)
    }
    calls = call_graph(sources)
    units = [file for file in sources if file.endswith(".c")]
    frames = _frames({f: t for f, t in files.items() if f in sources}, units, compiler)
    unknown = frames.keys() - calls.keys()
    if unknown:
        raise InputError(
            f"--stack=measure: {shlex.join(compiler)} adds functions that are in no source: "
            f"{', '.join(sorted(unknown))}"
        )
    return _deepest(f"{name}_step", calls, frames)


def transfer_bytes(graph: GraphOp) -> int:
    """The most that a `poetc_transfer` takes: with a cache, a line for the trailer and whole ones
    for the rest."""
    line = graph.cache_line_bytes
    return TRANSFER_BYTES if line is None else line + round_up(TRANSFER_BYTES, line)


def expected_stack(
    module: ModuleOp,
    compiler: tuple[str, ...],
    options: ScheduleOptions,
    board: Board | None = None,
    executor: Executor | None = None,
) -> StackUse:
    """The stack of a step of the one graph of `module`, as far as can be told before scheduling.

    What a schedule decides is how many calls a step makes, and which kernels work in place. Two
    programs are measured: one with nothing but calls in place, and one with as many transfers as
    `options` may lead to. `SLACK_BYTES` are added for what is between them.
    """
    from poetc.passes.poet_schedule import mark_cache_line, problem_view
    from poetc.schedule.solve import solve

    asked = replace(options, ram_bytes=None, deadline_ns=None, ram_scope="all", params="ram")
    has_storage = options.device is not None and options.device.storage is not None
    limited = options.ram_bytes is not None
    store = options.params == "storage" or (options.params == "auto" and limited and has_storage)

    def measure(asked: ScheduleOptions, steps: Callable[[Problem], Sequence[Step]]) -> StackUse:
        copy = module.clone()
        (graph,) = graphs(copy)
        view = problem_view(graph, asked)
        write_schedule(view, steps(view.problem))
        # Of a graph where nothing is freed or moved, nothing else says so.
        graph.attributes.setdefault("schedule", DictionaryAttr({}))
        mark_cache_line(graph, options.device)
        plan_graph_memory(graph, options.align)
        if options.device is None or not options.device.dma or (board and not board.dma):
            return measure_stack(copy, compiler, board=board, executor=executor)
        split_at_once(graph)
        use = measure_stack(copy, compiler, board=board, executor=executor)
        more = FEW - 1 if most_under_way(graph) else 0
        return replace(use, bytes=use.bytes + more * transfer_bytes(graph))

    def most_transfers(problem: Problem) -> Sequence[Step]:
        return _with_most_transfers(problem, limited and options.paging)

    measured: list[StackUse] = []
    if not any(graph.has_parts for graph in graphs(module)):
        # Parameters in parts are never in RAM from step to step.
        measured.append(measure(asked, lambda problem: solve(problem, strategy="keep-all").steps))
    if store:
        try:
            measured.append(measure(replace(asked, params="storage"), most_transfers))
        except InputError:
            # Not every graph can have its parameters on storage.
            store = False
    if not store:
        measured.append(measure(asked, most_transfers))
    most = max(measured, key=lambda use: use.bytes)
    return replace(most, bytes=most.bytes + SLACK_BYTES)


def _with_most_transfers(problem: Problem, paging: bool) -> tuple[Step, ...]:
    """Each operation once; with `paging` nothing stays in RAM that may be on storage."""
    tensors = problem.tensors
    ram = {v for v, tensor in enumerate(tensors) if tensor.start is Place.RAM}
    stored = {v for v, tensor in enumerate(tensors) if tensor.start is Place.STORAGE}
    last_use = [max(readers, default=-1) for readers in problem.readers()]
    steps: list[Step] = []

    def tidy(k: int) -> None:
        for v in sorted(ram):
            needed = last_use[v] > k or tensors[v].end is Place.RAM
            if needed and v not in stored and not (paging and tensors[v].pageable):
                continue
            if (needed or tensors[v].end is Place.STORAGE) and v not in stored:
                steps.append(PageOut(v))
                stored.add(v)
            steps.append(Free(v))
            ram.discard(v)

    def fetch(wanted: Iterable[int]) -> None:
        for v in wanted:
            if v not in ram:
                steps.append(PageIn(v))
                ram.add(v)

    for k, operation in enumerate(problem.operations):
        fetch(operation.inputs)
        replaced = {v: old for v in operation.outputs if (old := tensors[v].replaces) is not None}
        steps.append(Compute(k, tuple(replaced.items())))
        ram.difference_update(replaced.values())
        ram.update(operation.outputs)
        tidy(k)
    fetch(v for v, tensor in enumerate(tensors) if tensor.end is Place.RAM)
    return tuple(steps)


def call_graph(sources: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """For each function that is defined in `sources`, without comments, those that it may call."""
    bodies: dict[str, str] = {}
    targets: dict[str, set[str]] = {}
    for text in sources.values():
        for found in _DEFINITION.finditer(text):
            bodies[found[1]] = bodies.get(found[1], "") + found[3]
        for member, function in _TABLE.findall(text):
            targets.setdefault(member, set()).add(function)
    calls: dict[str, frozenset[str]] = {}
    for function, body in bodies.items():
        called = set(_CALL.findall(body))
        for member in _INDIRECT.findall(body):
            called |= targets.get(member, set())
        calls[function] = frozenset(called & bodies.keys())
    return calls


def _frames(
    files: Mapping[str, str], units: list[str], compiler: tuple[str, ...]
) -> dict[str, int]:
    """The frame of each function that the compiler did not inline everywhere."""
    frames: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="poetc-stack-") as name:
        directory = Path(name)
        for file, text in files.items():
            (directory / file).write_text(text, encoding="utf-8")
        # For compilers that come without a C library.
        library = directory / "library"
        library.mkdir()
        (library / "string.h").write_text(
            "#include <stddef.h>\nvoid *memcpy(void *, const void *, size_t);\n"
        )
        (directory / "probe.c").write_text("void probe(void);\nvoid probe(void)\n{\n}\n")
        flags = _target_flags(compiler)
        for unit in ("probe.c", *units):
            found = _compile(unit, directory, compiler, flags)
            if unit == "probe.c" and not found:
                shown = shlex.join(compiler)
                raise InputError(f"--stack=measure: {shown} does not know -fstack-usage")
            frames |= found
    extra = 0 if frames.pop("probe") else RETURN_ADDRESS_BYTES
    return {function: frame + extra for function, frame in frames.items()}


def _target_flags(compiler: tuple[str, ...]) -> tuple[str, ...]:
    """What frames are measured with on the compiler's target, beside `FLAGS`."""
    command = [*compiler, "-dumpmachine"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (NO_RED_ZONE,) if done.stdout.startswith(("x86_64", "amd64")) else ()


def _compile(
    unit: str, directory: Path, compiler: tuple[str, ...], flags: Sequence[str]
) -> dict[str, int]:
    command = [*compiler, *FLAGS, *flags, "-idirafter", "library", unit]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    shown = shlex.join(compiler)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        message = next((line for line in lines if "error" in line), lines[-1])
        raise InputError(f"--stack=measure: {shown} does not compile {unit}: {message}")
    usage = directory / Path(unit).with_suffix(".su")
    if not usage.exists():
        # Nor does clang write one where there are no functions.
        return {}
    frames: dict[str, int] = {}
    for line in usage.read_text().splitlines():
        where, frame, kind = line.split("\t")
        function = re.sub(r"\..*", "", where.rsplit(":", 1)[1])
        if kind not in ("static", "dynamic,bounded"):
            raise InputError(f"--stack=measure: {shown} finds no bound for the stack of {function}")
        # Parts that were split off a function may be on the stack together with it.
        frames[function] = frames.get(function, 0) + int(frame)
    return frames


def _deepest(root: str, calls: Mapping[str, frozenset[str]], frames: Mapping[str, int]) -> StackUse:
    """The chain of calls from `root` that takes most stack. Inlined functions have no frame."""
    known: dict[str, StackUse] = {}

    def below(function: str, callers: tuple[str, ...]) -> StackUse:
        assert function not in callers, f"{function} calls itself"
        if function not in known:
            deepest = max(
                (below(callee, (*callers, function)) for callee in sorted(calls[function])),
                key=lambda use: use.bytes,
                default=StackUse(LIBRARY_BYTES, ()),
            )
            frame = frames.get(function, 0)
            chain = ((function,) if function in frames else ()) + deepest.chain
            known[function] = StackUse(frame + deepest.bytes, chain)
        return known[function]

    return below(root, ())
