"""Programs that run plans, plans for them, and plans that were damaged: helpers of tests."""

from __future__ import annotations

import random
import struct
import subprocess
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path

import numpy as np
from c_support import SANITIZED, STRICT, build_c
from power import parameters
from xdsl.dialects.builtin import ModuleOp

from poetc.backends.c.emit import emit
from poetc.backends.plan.codec import encode
from poetc.backends.plan.lower import plan_of
from poetc.backends.plan.plan import PageIn, Plan, Run
from poetc.backends.plan.source import PlanExecutor
from poetc.backends.plan.table import Table, table_of
from poetc.image import ImageLayout, layout_of, pack, page_offset
from poetc.ir.graph import graphs
from poetc.page import PAGE_TRAILER_BYTES, block_ranges

DRIVER = Path(__file__).parent / "plan_driver.c"
HEADER_BYTES, CRC_BYTES = 24, 4


class Status(IntEnum):
    """Those of poetc_store.h that have to do with plans."""

    OK = 0
    DAMAGED = 11
    FOREIGN = 12
    TOO_LARGE = 13
    INVALID = 14


@dataclass(frozen=True)
class Outcome:
    """What became of a plan: was it accepted, how did its step end, a CRC of the results."""

    loaded: int
    stepped: int
    crc: int

    @property
    def ran(self) -> bool:
        return self.loaded == Status.OK and self.stepped != 0xFFFFFFFF


@dataclass(frozen=True)
class Program:
    """A program that runs plans of one model, built with sanitizers; and the table in it."""

    directory: Path
    table: Table

    def run(self, plans: Iterable[bytes], most_steps: int = 1_000_000) -> list[Outcome]:
        """Loads each and, if it is accepted, runs one step from the same arguments; not more than
        that many in all."""
        return [Outcome(*record) for record in self._drive(plans, str(most_steps))]

    def with_faults(self, plan: bytes) -> tuple[int, int, int]:
        """Lets each call of the page store fail, and then repeats the step: the calls in a step,
        the steps that did not notice, and the repetitions with other results."""
        (record,) = self._drive([plan], "1", "faults")
        return record

    def _drive(self, plans: Iterable[bytes], *words: str) -> Iterator[tuple[int, int, int]]:
        file, out = self.directory / "plans.bin", self.directory / "outcomes.bin"
        file.write_bytes(b"".join(struct.pack("<I", len(plan)) + plan for plan in plans))
        done = subprocess.run(
            [self.directory / "driver", self.directory, file, out, *words],
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return struct.iter_unpack("<3I", out.read_bytes())


def plan_for(module: ModuleOp) -> tuple[Plan, Table]:
    """The schedule of the one graph of a module as a plan, and the table that it refers to."""
    (graph,) = graphs(module)
    numbered = table_of(graph)
    return plan_of(numbered, graph), numbered.table


def build_program(
    module: ModuleOp,
    directory: Path,
    arguments: Sequence[np.ndarray],
    *flags: str,
    compiler: str = "gcc",
    executor: PlanExecutor | None = None,
) -> Program:
    """A program whose plans may take as much RAM as `executor` says, or as that of `module`."""
    emit(module, directory, executor=executor or PlanExecutor())
    (graph,) = graphs(module)
    layout = layout_of(graph)
    image = b"" if layout is None else pack(layout, parameters(layout, list(arguments)))
    end = 0 if layout is None else layout.parameters_end
    (directory / "image.bin").write_bytes(image[:end])
    pages = ",".join(f"{{{offset},{length}}}" for offset, length in pages_of(layout))
    for i, array in enumerate(arguments):
        (directory / f"arg{i}.bin").write_bytes(np.ascontiguousarray(array).tobytes())
    sources = [path for path in directory.glob("*.c") if path.name != "main.c"]
    defined = [] if "-pthread" in flags else [p for p in sources if p.name == "store_thread.c"]
    command = (compiler, *STRICT, *(flags or SANITIZED))
    included = (f"-DMODEL_PAGES={pages}", f"-I{directory}")
    sources = [*sorted(set(sources) - set(defined)), DRIVER]
    build_c((*command, *included), sources, directory / "driver")
    return Program(directory, table_of(graph).table)


def results_crc(
    module: ModuleOp, arguments: Sequence[np.ndarray], results: Sequence[np.ndarray]
) -> int:
    """The CRC of an `Outcome` with these results: those in the arena, and what is on storage."""
    (graph,) = graphs(module)
    layout = layout_of(graph)
    stored = {graph.updates(i): i for i in range(len(arguments)) if graph.is_stored(i)}
    crc, image = 0, b""
    for k, array in enumerate(results):
        if k not in stored:
            crc = crc * 31 + zlib.crc32(np.ascontiguousarray(array).tobytes())
    if layout is not None:
        new = {i: results[k] for k, i in stored.items() if k is not None}
        values = [new.get(t.argument, arguments[t.argument]) for t in layout.tensors]
        old = pack(layout, [arguments[t.argument] for t in layout.tensors])
        # Old values stay in bank 0, new ones are in bank 1, constants are equal.
        image = bytes(a | b for a, b in zip(old, pack(layout, values, 1), strict=True))
    return with_pages(crc, image, layout)


def pages_of(layout: ImageLayout | None) -> list[tuple[int, int]]:
    """Offsets and lengths of the values of parameters, in both banks of those that are updated; of
    pages in blocks, those of each block.

    What is behind them, and the record, depend on the program as well as on the values.
    """
    if layout is None:
        return [(0, 0)]
    found: set[tuple[int, int]] = set()
    for tensor in layout.tensors:
        for bank in (0, 1):
            at = page_offset(layout, tensor, bank)
            for begin, end in block_ranges(tensor.bytes, tensor.block_bytes):
                found.add((at + begin, end - begin))
                at += PAGE_TRAILER_BYTES
    return sorted(found)


def with_pages(crc: int, image: bytes, layout: ImageLayout | None) -> int:
    """The CRC of an `Outcome`, where `crc` is that of the results in the arena."""
    for offset, length in pages_of(layout):
        crc = crc * 31 + zlib.crc32(image[offset : offset + length])
    return crc % 2**32


# Damage


def sealed(data: bytes) -> bytes:
    """`data` with its own length in the header, if there is one, and the CRC at its end."""
    if len(data) < HEADER_BYTES + CRC_BYTES:
        return data
    body = data[:8] + struct.pack("<I", len(data)) + data[12:-CRC_BYTES]
    return body + struct.pack("<I", zlib.crc32(body))


def damaged(data: bytes, rng: random.Random) -> bytes:
    """`data` with something wrong: bits, bytes, length, order, or a field of the header."""
    spoiled = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(spoiled))
        match rng.randrange(8):
            case 0 | 1 | 2:
                spoiled[at] ^= 1 << rng.randrange(8)
            case 3:
                spoiled[at] = rng.choice((0, 0xFF, rng.randrange(256)))
            case 4:
                del spoiled[at : at + rng.randrange(1, 4)]
            case 5:
                spoiled[at:at] = rng.randbytes(rng.randrange(1, 4))
            case 6:
                other = rng.randrange(len(spoiled))
                spoiled[at], spoiled[other] = spoiled[other], spoiled[at]
            case _:
                field = rng.choice((12, 16, 20))
                spoiled[field : field + 4] = struct.pack(
                    "<I", rng.randrange(1 << rng.choice((8, 32)))
                )
        if len(spoiled) < HEADER_BYTES + CRC_BYTES + 1:
            spoiled = bytearray(data)
    return bytes(spoiled)


def mutations(plans: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """`count` damaged plans; none begins with one of `plans`, as bytes after a plan do no harm."""
    rng = random.Random(seed)
    while count:
        spoiled = damaged(rng.choice(plans), rng)
        if not spoiled.startswith(tuple(plans)):
            count -= 1
            yield spoiled


def reordered(plan: Plan, table: Table, rng: random.Random) -> bytes | None:
    """A plan with steps that were moved, dropped, doubled or given other places: well-formed, and
    not far from right. None where that cannot be written."""
    steps = list(plan.steps)
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(steps))
        step = steps[at]
        match rng.randrange(5):
            case 0:
                steps.insert(rng.randrange(len(steps)), steps.pop(at))
            case 1:
                del steps[at]
            case 2:
                steps.insert(rng.randrange(len(steps)), step)
            case _ if isinstance(step, Run):
                place = rng.randrange(0, plan.arena_bytes + 4, 4)
                places = list(step.places)
                if places:
                    places[rng.randrange(len(places))] = place
                    steps[at] = replace(step, places=tuple(places))
                elif step.workspace is not None:
                    steps[at] = replace(step, workspace=place)
            case _ if isinstance(step, PageIn):
                steps[at] = replace(step, place=rng.randrange(0, plan.arena_bytes + 4, 4))
            case _:
                pass
        if not steps:
            return None
    changed = replace(plan, steps=tuple(steps))
    return None if changed == plan else encode(changed, table)
