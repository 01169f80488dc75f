"""How much stack a generated step takes, measured with the user's C compiler.

The sources are compiled with `-fstack-usage`, which gives the frame of each function, and the calls
between functions are read from the sources themselves, which we know: no recursion, and function
pointers only to the operations of the page store. The bound is the deepest chain of calls.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ModuleOp

from poetc.backends.c.compiler import HOSTED, workshop
from poetc.backends.c.emit import generate
from poetc.errors import InputError
from poetc.ir.graph import round_up
from poetc.ir.poet import GraphOp

if TYPE_CHECKING:
    from poetc.backends.c.boards import Board
    from poetc.backends.c.emit import Executor

WHAT = "--stack=measure"
"""The purpose of the compiler, in messages."""

FLAGS = ("-fstack-usage",)
"""With these the sources are compiled, beside those of `compiler`."""

NO_RED_ZONE = "-mno-red-zone"
"""For x86-64, where a function that calls no other may use 128 bytes below its frame. With this
they are part of the frame, and counted."""

VERIFIES = "-DPOETC_VERIFY_WRITES"
"""Without it, what is written is not read back."""

LIBRARY_BYTES = 64
"""For what compilers call that is not in the sources: memcpy, software floating point."""

RETURN_ADDRESS_BYTES = 8
"""For each call, if the compiler does not count it as part of the frame."""

TRANSFER_BYTES = 48
"""The most that a `poetc_transfer` takes without a cache; a step has some on its stack."""

_DEFINITION = re.compile(r"^[A-Za-z_][\w \t*]*?(\w+)\(([^;{}]*)\)\n\{\n(.*?)^\}", re.M | re.S)
_INDIRECT = re.compile(r"->\s*(\w+)\(")
_TABLE = re.compile(r"^\s*\.(\w+)\s*=\s*(\w+)\s*,", re.M)
_CALL = re.compile(r"(?<![\w>.])(\w+)\s*\(")
_COMMENT = re.compile(r"/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'", re.S)
_UNVERIFIED = re.compile(
    rf"{_COMMENT.pattern}|^#ifdef POETC_VERIFY_WRITES$.*?^#(?:else|endif)$", re.M | re.S
)


@dataclass(frozen=True)
class StackUse:
    """The stack of a step in bytes, from `model_step` down, and the calls that take it."""

    bytes: int
    chain: tuple[str, ...]


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
    left_out = _COMMENT if VERIFIES in compiler else _UNVERIFIED
    sources = {
        file: left_out.sub(" ", text)
        for file, text in files.items()
        if file.endswith((".c", ".h")) and not HOSTED.search(text)
    }
    calls = call_graph(sources)
    units = [file for file in sources if file.endswith(".c")]
    frames = _frames({f: t for f, t in files.items() if f in sources}, units, compiler)
    unknown = frames.keys() - calls.keys()
    if unknown:
        raise InputError(
            f"{WHAT}: {shlex.join(compiler)} adds functions that are in no source: "
            f"{', '.join(sorted(unknown))}"
        )
    return _deepest(f"{name}_step", calls, frames)


def transfer_bytes(graph: GraphOp) -> int:
    """The most that a `poetc_transfer` takes: with a cache, a line for the trailer and whole ones
    for the rest."""
    line = graph.cache_line_bytes
    return TRANSFER_BYTES if line is None else line + round_up(TRANSFER_BYTES, line)


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
    probe = {"probe.c": "void probe(void);\nvoid probe(void)\n{\n}\n"}
    with workshop({**files, **probe}, compiler, WHAT) as place:
        flags = (*FLAGS, *_target_flags(compiler))
        for unit in ("probe.c", *units):
            place.compile(unit, *flags)
            found = _frames_of(place.directory / Path(unit).with_suffix(".su"), compiler)
            if unit == "probe.c" and not found:
                raise InputError(f"{WHAT}: {shlex.join(compiler)} does not know -fstack-usage")
            frames |= found
    extra = 0 if frames.pop("probe") else RETURN_ADDRESS_BYTES
    return {function: frame + extra for function, frame in frames.items()}


def _target_flags(compiler: tuple[str, ...]) -> tuple[str, ...]:
    """Further flags for measuring frames on the compiler's target, beside `FLAGS`."""
    command = [*compiler, "-dumpmachine"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (NO_RED_ZONE,) if done.stdout.startswith(("x86_64", "amd64")) else ()


def _frames_of(usage: Path, compiler: tuple[str, ...]) -> dict[str, int]:
    if not usage.exists():
        # Nor does clang write one where there are no functions.
        return {}
    frames: dict[str, int] = {}
    for line in usage.read_text().splitlines():
        where, frame, kind = line.split("\t")
        function = re.sub(r"\..*", "", where.rsplit(":", 1)[1])
        if kind not in ("static", "dynamic,bounded"):
            shown = shlex.join(compiler)
            raise InputError(f"{WHAT}: {shown} finds no bound for the stack of {function}")
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
