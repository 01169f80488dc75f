"""Instructions of the steps of generated firmware, and of the calls that each makes, in QEMU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from poetc.backends.c.measure.emulate import CROSS, build, count, run_tool


@dataclass(frozen=True)
class StepCount:
    """Instructions of one step, call of `model_step` and return included, and those of each call
    that it makes, in order, with the name of the function; of those in turn what functions of
    mathematics take that they call."""

    instructions: int
    calls: tuple[tuple[str, int], ...]
    mathematics: tuple[int, ...]


def count_steps(
    directory: Path,
    cpu: str,
    plugin: Path,
    steps: int = 1,
    words: Sequence[str] = (),
    name: str = "model",
) -> tuple[StepCount, ...]:
    """The instructions of each step of generated firmware, which is run unchanged."""
    build(directory, cpu, words)
    program = directory / "build" / cpu / f"{name}.elf"
    listing = run_tool(
        (f"{CROSS}objdump", "-d", "--no-show-raw-insn", program), "reading the firmware"
    ).stdout
    calls: dict[int, tuple[int, str]] = {}
    function = ""
    lines = re.findall(r"^(?: +([0-9a-f]+):\s+(.*)|[0-9a-f]+ <(\w+)>:)$", listing, re.M)
    for (address, text, start), (after, *_) in zip(lines, [*lines[1:], ("", "", "")], strict=True):
        function = start or function
        called = re.match(r"bl\s+[0-9a-f]+ <(\w+)>", text)
        if called and (
            f"{name}_step" in (function, called[1])
            or (called[1].startswith("poetc_") and function.startswith(f"{name}_"))
        ):
            calls[int(address, 16)] = (int(after, 16), called[1])
    marks = sorted({*calls, *(after for after, _ in calls.values())})
    counted = count(directory, cpu, marks, plugin, (f"STEPS={steps}", *words))
    found: list[StepCount] = []
    inside: list[tuple[str, int]] = []
    mathematics = [0]
    # Calls that have not returned: where they return to, what is called, the count before.
    waiting: list[tuple[int, str, int]] = []
    for mark, executed in counted.marks:
        address = marks[mark]
        if waiting and address == waiting[-1][0]:
            _, called, before = waiting.pop()
            if called == f"{name}_step":
                found.append(StepCount(executed - before, tuple(inside), tuple(mathematics[:-1])))
                inside, mathematics = [], [0]
            elif len(waiting) == 1:
                inside.append((called, executed - before))
                mathematics.append(0)
            elif waiting:
                mathematics[-1] += executed - before
        if address in calls:
            waiting.append((*calls[address], executed))
    assert len(found) == steps, counted.printed
    return tuple(found)
