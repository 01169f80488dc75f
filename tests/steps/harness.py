"""Compiles a training step at budgets of RAM, and runs what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from compiled import DEVICE, build, run
from conftest import load_arrays
from xdsl.dialects.builtin import ModuleOp

from poetc.backends.c.layout import DEFAULT_STACK_BYTES, STATIC_BYTES
from poetc.compare import floor, rounding_of, tolerance
from poetc.costmodel.device import load_device
from poetc.driver import Compiled, compile_module
from poetc.errors import TimeLimitError
from poetc.frontends.files import Exported
from poetc.ir.text import make_context, parse_module
from poetc.ir.types import is_float
from poetc.pipeline import front_passes, run_passes
from poetc.report import summarize
from poetc.request import Options

COUNTS = (1, 5)
"""After so many steps results are compared."""

QUICK_S = 0.2
"""What the search gets first, in which it finds nearly all schedules."""


@dataclass(frozen=True)
class Prepared:
    """A step as the scheduler takes it, and its arguments. `rounding` is that of its floats."""

    module: ModuleOp
    arguments: list[np.ndarray]
    rounding: float

    def compile(self, ram_bytes: int | None = None) -> Compiled:
        """Scheduled for so much RAM in all; any schedule that fits will do."""
        options = Options(
            load_device(DEVICE),
            DEVICE,
            ram_bytes,
            static_bytes=STATIC_BYTES,
            stack_bytes=DEFAULT_STACK_BYTES,
            gap=1e6,
            stream="never",
        )
        try:
            return self._compile(replace(options, time_limit_s=QUICK_S))
        except TimeLimitError:
            return self._compile(options)

    def _compile(self, options: Options) -> Compiled:
        return compile_module(make_context(), self.module.clone(), options)


def prepare(exported: Exported) -> Prepared:
    """What a frontend has written, through the passes that do not depend on a budget."""
    module = parse_module(exported.mlir.read_text(), str(exported.mlir))
    rounding = rounding_of(module)
    run_passes(make_context(), module, front_passes(module, DEVICE), lambda *_: None)
    return Prepared(module, load_arrays(exported.npz)[0], rounding)


def half_ram(unlimited: Compiled) -> int:
    """Half of what a step takes that is not limited, or the least that it can run with, which is
    proven."""
    ram = summarize(unlimited, "").ram
    known_bytes = min(least.known_bytes for least in ram.least if least.known_bytes is not None)
    assert known_bytes == min(least.bound_bytes for least in ram.least)
    return max(ram.total_bytes // 2, known_bytes)


def check(got: list[np.ndarray], expected: list[np.ndarray], rounding: float, steps: int) -> None:
    """Fails unless results are those of the framework. Integers are the same. Of floats the largest
    difference in a tensor is a small part of its largest element, but for what rounding leaves of
    numbers as large as those of the whole step: a gradient that is zero on paper is that."""
    least, share = steps * floor(expected, rounding), steps * tolerance(rounding)
    wrong: list[str] = []
    for number, (a, b) in enumerate(zip(got, expected, strict=True)):
        if not is_float(b.dtype):
            if not np.array_equal(a, b):
                wrong.append(f"result {number}: {a} is not {b}")
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        if not np.isfinite(b).all():
            wrong.append(f"result {number}: the framework has {b}")
            continue
        error, size = np.max(np.abs(a - b), initial=0.0), np.max(np.abs(b), initial=0.0)
        if not error <= share * size + least:
            wrong.append(f"result {number}: {a.shape} off by {error:.2g} of {size:.2g}")
    assert not wrong, f"after {steps} steps\n" + "\n".join(wrong)


def run_in_c(
    compiled: Compiled, prepared: Prepared, like: list[np.ndarray], directory: Path
) -> dict[int, list[np.ndarray]]:
    """The results after each of `COUNTS` steps in C."""
    program = build(compiled.module, directory, "-O0")
    return {count: run(program, prepared.arguments, like, count) for count in COUNTS}
