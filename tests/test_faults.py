"""Every transfer of a step fails once, in every way: the status says so, the parameters stay as
they were, and the step can be done again.

The programs are built with the address and undefined-behaviour sanitizers (fault_runner.c).
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from c_support import SANITIZED, compile_c
from compiled import Model, prepare
from conftest import more
from firmware import compile_board, make
from power import Fault, parameters
from test_c_runtime import (
    CORRUPT,
    NO_IMAGE,
    OK,
    OUT_OF_RANGE,
    READ_FAILED,
    SHORT_TRANSFER,
    TIMED_OUT,
    WRITE_FAILED,
)
from xdsl.dialects.builtin import ModuleOp

from poetc.backends.c.boards import board_sources, load_board
from poetc.backends.c.emit import emit
from poetc.errors import InputError
from poetc.image import layout_of, pack, unpack
from poetc.image_files import read_layout
from poetc.ir.graph import graphs
from poetc.planning.plan import schedule_and_plan
from poetc.tensors import read_tensors

pytestmark = pytest.mark.usefixtures("whole")

TESTS = Path(__file__).parent
VERIFY, LATER = "-DPOETC_VERIFY_WRITES", "-DLATER"
QUICK_KERNELS = "kernels without sanitizers"
FIRST = 2**32 - 1
"""The sequence before the step: that of the new values wraps."""


class Kind(IntEnum):
    """What a transfer is (power_store.c)."""

    READ = 0
    WRITE = 1
    SYNC = 2
    START_READ = 3
    START_WRITE = 4
    WAIT_READ = 5
    WAIT_WRITE = 6


@dataclass(frozen=True)
class Call:
    """A transfer: offset and length in bytes."""

    kind: Kind
    offset: int
    length: int


@dataclass(frozen=True)
class Step:
    """A step: its status, how often it was tried, what is on storage then, the results in RAM."""

    status: int
    attempts: int
    image: bytes
    results: tuple[bytes, ...]


class Runner:
    """A step of a model as a program that has faults."""

    def __init__(
        self, module: ModuleOp, directory: Path, arguments: Sequence[np.ndarray], *flags: str
    ) -> None:
        graph = graphs(module)[0]
        self.layout = layout_of(graph)
        self.directory = directory
        emit(module, directory / "out")
        tensors = read_tensors(directory / "out")
        self.storage = tensors.storage_bytes
        self.sizes = [place.bytes for place in tensors.results if place.where == "arena"]
        stored = [a for i, a in enumerate(arguments) if graph.is_stored(i)]
        inputs = [a for i, a in enumerate(arguments) if not graph.is_stored(i)]
        self.before = bytes(self.storage)
        if self.layout is not None:
            assert len(stored) == len(self.layout.tensors)
            values = parameters(self.layout, arguments)
            self.before = pack(self.layout, values, FIRST).ljust(self.storage, b"\0")
        (directory / "inputs.bin").write_bytes(
            b"".join(np.ascontiguousarray(a).tobytes() for a in inputs)
        )
        self.program = directory / "runner"
        sources = [p for p in (directory / "out").glob("*.c") if p.name != "main.c"]
        if QUICK_KERNELS in flags:
            flags = tuple(flag for flag in flags if flag != QUICK_KERNELS)
            kernels = next(p for p in sources if p.name == "model_kernels.c")
            sources.remove(kernels)
            sources.append(compile_c([kernels], directory / "kernels.o", flags=("-O3", "-c")))
        sources += [TESTS / "fault_runner.c"]
        if "-DCARD" in flags:
            board = load_board("generic")
            assert board is not None
            for name in ("sd_card.c", "sd_card.h", "store_block.c", "store_block.h"):
                (directory / "out" / name).write_text(board_sources(board)[name])
            sources += [directory / "out" / n for n in ("sd_card.c", "store_block.c")]
            sources += [TESTS / "sd_card_model.c"]
            flags = (*flags, f"-DCARD_BLOCKS={self.storage // 512 + 1}", "-DCARD_SPEED=5")
            flags = (*flags, "-O2")
        else:
            sources += [TESTS / "power_store.c"]
        first = next(i for i, place in enumerate(tensors.arguments) if place.where == "arena")
        where = f"model_argument({first})-MODEL_ARG{first}_OFFSET"
        flags = (
            *(*SANITIZED, *flags, f"-I{directory / 'out'}", f"-I{TESTS}"),
            *("-Wno-missing-prototypes", f"-DARENA=((uint8_t*){where})", "-pthread"),
        )
        compile_c(sources, self.program, flags=flags)

    def output(self, image: bytes, trials: bytes, *words: int) -> memoryview:
        (self.directory / "image.bin").write_bytes(image)
        done = subprocess.run(
            [self.program, "image.bin", "inputs.bin", *map(str, words)],
            cwd=self.directory,
            input=trials,
            capture_output=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return memoryview(done.stdout)

    def run(
        self, trials: Iterable[tuple[int, int]], image: bytes | None = None
    ) -> tuple[Step, list[tuple[int, ...]], Iterator[tuple[Step, Step]]]:
        """The undisturbed step, its log, and for each trial the failed step and the next one."""
        trials = list(trials)
        packed = b"".join(struct.pack("<2I", *trial) for trial in trials)
        rest = self.output(self.before if image is None else image, packed)
        last = [bytes(self.storage)] * 2

        def numbers(count: int) -> list[int]:
            nonlocal rest
            found, rest = rest[: 4 * count], rest[4 * count :]
            return list(struct.unpack(f"<{count}I", found))

        def step(slot: int) -> Step:
            nonlocal rest
            status, attempts, changed = numbers(3)
            if changed:
                last[slot], rest = bytes(rest[: self.storage]), rest[self.storage :]
            results: list[bytes] = []
            for size in self.sizes if slot == 1 else ():
                results.append(bytes(rest[:size]))
                rest = rest[size:]
            return Step(status, attempts, last[slot], tuple(results))

        reference = step(1)
        (count,) = numbers(1)
        log = [tuple(numbers(3)) for _ in range(count)]
        return reference, log, ((step(0), step(1)) for _ in trials)

    def calls(self) -> tuple[Step, list[Call]]:
        """The undisturbed step, and its transfers."""
        reference, log, _ = self.run([])
        assert reference.status == OK
        return reference, [Call(Kind(kind), offset, length) for kind, offset, length in log]

    def state(self, image: bytes) -> tuple[int, tuple[bytes, ...]] | None:
        """Sequence and bits of the parameters on storage, if there are any."""
        if self.layout is None:
            return None
        sequence, arrays = unpack(self.layout, image)
        return sequence, tuple(array.tobytes() for array in arrays)

    def is_record(self, call: Call) -> bool:
        moves = call.kind in (Kind.READ, Kind.WRITE)
        return moves and self.layout is not None and call.offset < 2 * self.layout.unit_bytes

    def is_parameter(self, call: Call) -> bool:
        return self.layout is not None and call.offset < self.layout.pages_start


# What each fault should lead to


def expected(runner: Runner, call: Call, fault: Fault, verified: bool) -> set[int]:
    """The statuses that a step may have if this transfer fails in that way."""
    reads = call.kind in (Kind.READ, Kind.START_READ, Kind.WAIT_READ)
    moves = call.kind in (Kind.READ, Kind.WRITE)
    starts = call.kind in (Kind.START_READ, Kind.START_WRITE)
    failed = READ_FAILED if reads else WRITE_FAILED
    match fault:
        case Fault.ERROR:
            return {failed}
        case Fault.LATE_ERROR:
            # What could not be started is not moved either, so there is nothing late about it.
            return {OK} if starts else {failed}
        case Fault.TIME_OUT:
            return {TIMED_OUT}
        case Fault.SHORT:
            return {SHORT_TRANSFER} if moves else {OK}
        case Fault.DEAD:
            # With several transfers under way, another one may be the first to show it.
            return {READ_FAILED, WRITE_FAILED}
        case Fault.FLIP:
            if not moves or (reads and runner.is_record(call)):
                return {OK}  # a record is read once more
            if not reads and runner.is_parameter(call) and not verified:
                return {CORRUPT} if runner.is_record(call) else {OK, CORRUPT}
            return {CORRUPT}


MODELS = {
    "gesture_mlp": (8 * 1024, "storage"),
    "kws_conv": (8 * 1024, "storage"),
    "lenet5": (192 * 1024, "storage"),
    "pages": (8_500, "ram"),
}
"""Bytes of the arena, and where parameters are."""


@cache
def scheduled(name: str) -> tuple[Model, ModuleOp]:
    arena_bytes, params = MODELS[name]
    model = prepare("gesture_mlp" if name == "pages" else name)
    options = model.options(arena_bytes, params=params, gap=0.5)
    schedule_and_plan(graphs(model.module)[0], options)
    return model, model.module


def runner(name: str, directory: Path, *flags: str) -> Runner:
    model, module = scheduled(name)
    return Runner(module, directory, model.arguments, *flags)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("gesture_mlp", "synchronous"),
        ("kws_conv", "later"),
        ("pages", "later"),
        *more(
            ("gesture_mlp", "later"),
            ("kws_conv", "synchronous"),
            ("pages", "synchronous"),
            ("lenet5", "later"),
        ),
    ],
)
def test_every_transfer(name: str, mode: str, tmp_path: Path) -> None:
    flags = (VERIFY, LATER) if mode == "later" else (VERIFY,)
    flags += (QUICK_KERNELS,) if name == "lenet5" else ()
    machine = runner(name, tmp_path, *flags)
    reference, calls = machine.calls()
    before, after = machine.state(machine.before), machine.state(reference.image)
    assert {Kind.START_READ, Kind.WAIT_WRITE} <= {c.kind for c in calls} or mode != "later"
    if machine.layout is not None:
        # Record 0, which is empty, is read twice; record 1; all again before the commit.
        # Then record 0 is written and read back.
        assert sum(map(machine.is_record, calls)) == 8 and calls[-1].kind is Kind.READ
    trials = [(i, fault) for i in range(len(calls)) for fault in Fault]
    failed = 0
    for (i, fault), (step, again) in zip(trials, machine.run(trials)[2], strict=True):
        where = f"{fault.name} of transfer {i}, {calls[i]}"
        assert step.status in expected(machine, calls[i], fault, True), where
        failed += step.status != OK
        state = machine.state(step.image)
        if step.status == OK:
            assert state == after, where
            continue
        if fault is Fault.DEAD and state != before:
            # The record is whole, but nobody could say so any more.
            assert state == after and i >= len(calls) - 2, where
            continue
        assert state == before, where
        assert again.status == OK and machine.state(again.image) == after, where
        assert again.results == reference.results and again.attempts == 1, where
    assert failed > 0.6 * len(trials)


@pytest.mark.slow
def test_bits_that_flip_unseen(tmp_path: Path) -> None:
    """Without verification: what was written wrong is found when it is read, in the next step at
    the latest, and nothing wrong is ever used."""
    machine = runner("gesture_mlp", tmp_path)
    reference, calls = machine.calls()
    before, after = machine.state(machine.before), machine.state(reference.image)
    damaged = 0
    trials = [(i, Fault.FLIP) for i in range(len(calls))]
    for (i, _), (step, again) in zip(trials, machine.run(trials)[2], strict=True):
        assert step.status in expected(machine, calls[i], Fault.FLIP, False), calls[i]
        try:
            state = machine.state(step.image)
        except InputError as error:
            assert "is damaged" in error.message and calls[i].kind is Kind.WRITE
            assert step.status == OK and again.status == CORRUPT
            damaged += 1
        else:
            assert state == (after if step.status == OK else before)
            if step.status != OK:
                assert again.status == OK and machine.state(again.image) == after
    writes = sum(c.kind is Kind.WRITE and machine.is_parameter(c) for c in calls)
    assert damaged == writes - 1 > 4  # all but the record, which is read back


@pytest.mark.slow
@pytest.mark.parametrize("rate", [40, *more(5)])
def test_storms(rate: int, tmp_path: Path) -> None:
    """Of a thousand transfers `rate` fail, whichever and however, in whatever a step does after a
    failure, too. In the end the parameters are those of a calm run on the same inputs."""
    machine = runner("kws_conv", tmp_path, VERIFY, LATER, "-DSTORM")
    steps = 30
    calm = machine.output(machine.before, b"", steps, 0, 1)
    assert struct.unpack("<I", calm[:4]) == (0,)
    failures = 0
    for seed in range(1, 6):
        found = machine.output(machine.before, b"", steps, rate, 1_000_003 * seed)
        failures += struct.unpack("<I", found[:4])[0]
        assert machine.state(bytes(found[4:])) == machine.state(bytes(calm[4:]))
    assert failures > rate


# A memory card


class CardFault(IntEnum):
    """Faults of the bus and of the card (sd_card_model.h)."""

    FLIP_REPLY = 1
    FLIP_COMMAND = 2
    BUS_DEAD = 3
    BUS_ONCE = 4
    MUTE = 5
    BUSY = 6
    ERROR_TOKEN = 7
    RESPONSE = 8
    STATUS = 9
    DAMAGE = 10


LASTING = (CardFault.BUS_DEAD, CardFault.MUTE, CardFault.BUSY)
"""Faults that last until they are repaired, so that a record cannot be erased either."""

READ_BLOCK, WRITE_BLOCK, SEND_STATUS = 17, 24, 13

CARD_TRIALS = (
    # Fault, which bit or what the card says, bytes after the beginning of a command, statuses.
    (CardFault.FLIP_COMMAND, 3, 2, {OK}),
    (CardFault.FLIP_COMMAND, 6, 40, {OK}),
    (CardFault.FLIP_REPLY, 2, 8, {OK, READ_FAILED, WRITE_FAILED, TIMED_OUT}),
    (CardFault.FLIP_REPLY, 5, 60, {OK, READ_FAILED, WRITE_FAILED}),
    (CardFault.BUS_ONCE, 0, 30, {OK, WRITE_FAILED}),
    (CardFault.BUS_DEAD, 0, 20, {READ_FAILED, WRITE_FAILED, TIMED_OUT}),
    (CardFault.MUTE, 0, 0, {TIMED_OUT}),
    (CardFault.MUTE, 0, 12, {READ_FAILED, WRITE_FAILED, TIMED_OUT}),
    (CardFault.BUSY, 0, 0, {READ_FAILED, WRITE_FAILED, TIMED_OUT}),  # looks like an answer, first
    (CardFault.BUSY, 0, 600, {OK, READ_FAILED, WRITE_FAILED, TIMED_OUT}),
    (CardFault.ERROR_TOKEN, 1, 0, {READ_FAILED}),
    (CardFault.ERROR_TOKEN, 4, 0, {OK, CORRUPT}),
    (CardFault.ERROR_TOKEN, 8, 0, {OUT_OF_RANGE}),
    (CardFault.RESPONSE, 0x0B, 0, {OK}),
    (CardFault.RESPONSE, 0x0D, 0, {WRITE_FAILED}),
    (CardFault.STATUS, 4, 0, {WRITE_FAILED}),
    (CardFault.DAMAGE, 0, 0, {OK, CORRUPT}),
)
HAPPENS = {
    CardFault.ERROR_TOKEN: READ_BLOCK,
    CardFault.DAMAGE: READ_BLOCK,
    CardFault.RESPONSE: WRITE_BLOCK,
    CardFault.STATUS: SEND_STATUS,
}
"""The commands at which the faults of a card show."""


@pytest.mark.slow
@pytest.mark.parametrize("verified", [True, *more(False)], ids=["verified", "plain"])
def test_every_command_of_a_card(verified: bool, tmp_path: Path) -> None:
    """The step on the driver of memory cards, whose card or bus fails at every command."""
    # What the bus does is the same with and without verification; what the card does is not.
    flags = ("-DCARD", *([VERIFY] if verified else []))
    machine = runner("gesture_mlp", tmp_path, *flags)
    layout = machine.layout
    assert layout is not None and layout.unit_bytes == 512
    reference, log, _ = machine.run([])
    assert reference.status == OK and {i for _, i, _ in log} == {READ_BLOCK, WRITE_BLOCK, 13}
    before, after = machine.state(machine.before), machine.state(reference.image)
    trials = [
        (command, trial)
        for command in log
        for trial in CARD_TRIALS
        if HAPPENS.get(trial[0], command[1] if verified else 0) == command[1]
    ]
    # A block that is damaged for good is a loss, if it is one of the current bank, or its record.
    kept = range((layout.pages_start - layout.bank_bytes) // 512, layout.pages_start // 512)
    opened = next(command for command in log if command[2] == FIRST & 1)
    words = [
        (start + delay + 1, fault | bit << 8) for (start, *_), (fault, bit, delay, _) in trials
    ]
    seen: set[tuple[CardFault, int]] = set()
    for (command, trial), (step, again) in zip(trials, machine.run(words)[2], strict=True):
        fault, bit, delay, statuses = trial
        where = f"{fault.name} {bit} at {delay} of command {command}"
        if fault is CardFault.DAMAGE and command[2] in (FIRST & 1, *kept):
            if command[2] not in kept and command != opened:
                # A commit looks for another program's step, and there is none.
                assert step.status == OK and machine.state(step.image) == after, where
            else:
                assert step.status == (CORRUPT if command[2] in kept else NO_IMAGE), where
            continue
        ended = {OK} if fault in LASTING and command == log[-1] else set()
        assert step.status in statuses | ended, where
        seen.add((fault, step.status))
        state = machine.state(step.image)
        if step.status == OK:
            assert state == after, where
            continue
        if state != before:
            assert fault in LASTING and command in log[-4:] and state == after, where
            continue
        assert again.status == OK and machine.state(again.image) == after, where
        assert again.results == reference.results, where
        # A damaged page is found when it is read, and again when it is written in part.
        assert again.attempts <= (2 if fault is CardFault.DAMAGE else 1), where
    assert {fault for fault, _ in seen} == (set(CardFault) if verified else HAPPENS.keys())


# A board


@pytest.mark.slow
def test_a_card_that_loses_data(tmp_path: Path) -> None:
    """In the emulator, reads and writes of one block fail behind the back of the card, which gives
    what it has, or nothing. The firmware says so and ends with an exit status; what was
    trained before is still there."""
    options = ("--ram=8KB", "--params=storage", "--stack=640")
    fw = compile_board("gesture_mlp", tmp_path / "fw", "lm3s6965", *options)
    storage, makefile = fw / "data" / "storage.bin", fw / "Makefile"
    flags = f"-O2 {VERIFY}"
    assert make(fw, "run", "STEPS=2", flags=flags).returncode == 0
    trained = storage.read_bytes()
    text = makefile.read_text()
    makefile.write_text(text.replace("file=storage.bin", "file=blkdebug:faults.conf:storage.bin"))
    layout = read_layout(fw / "model_image.json")
    bank = layout.pages_start - 2 * layout.bank_bytes
    for kind, offset in (
        ("read", bank + 1024),  # what is current after two steps: bank 0
        ("write", layout.unit_bytes),  # the record of the third
        ("write", bank + layout.bank_bytes + 1024),  # a new value
    ):
        sector = offset // 512
        (fw / "data" / "faults.conf").write_text(
            f'[inject-error]\nevent = "none"\niotype = "{kind}"\nerrno = "5"\n'
            f'sector = "{sector}"\nonce = "off"\n'
        )
        storage.write_bytes(trained)
        done = make(fw, "run", flags=flags)
        assert f"{kind} error on host side" in done.stderr
        assert done.returncode != 0 and "step 0: a page is corrupt" in done.stderr
        assert "status: ok" not in done.stderr + done.stdout
        assert unpack(layout, storage.read_bytes())[0] == 2
    makefile.write_text(text)
    assert make(fw, "run", flags=flags).returncode == 0
    assert unpack(layout, storage.read_bytes())[0] == 3


@pytest.mark.slow
def test_a_storage_that_is_too_short(tmp_path: Path) -> None:
    """A file that ends within the parameters."""
    options = ("--ram=12KB", "--params=storage")
    fw = compile_board("gesture_mlp", tmp_path / "fw", "microbit", *options)
    storage = fw / "data" / "storage.bin"
    image = storage.read_bytes()
    storage.write_bytes(image[:3000])
    done = make(fw, "run")
    assert done.returncode != 0 and "step 0: the page store moved too few bytes" in done.stderr
    storage.write_bytes(image)
    assert make(fw, "run").returncode == 0
