"""Steps in little RAM, as C: kernels run in tiles, with their tensors on storage.

    python -m benchmarks.streaming [MODEL ...]

Prints a table of docs/streaming.md. Each model is compiled for an nRF52840 with parameters whole,
then with gcc, and run on this machine for one step; the results are compared with XLA's, and must
be the same bits as those of the program with unlimited RAM. The largest models take minutes. A
model that does not fit has a line that says so, and the program fails at its end.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from benchmarks import document
from benchmarks.accuracy import text_of
from benchmarks.boards import results
from poetc.cli import main as poetc
from poetc.compilation import CompiledStep, compile_step
from poetc.errors import UnscheduledError
from poetc.ir.graph import graphs
from poetc.ir.poet import StreamOp
from poetc.ir.text import module_text, parse_module
from poetc.options import Given
from poetc.planning.problem import ScheduleOptions
from poetc.request import options_of
from poetc.schedule.model.clock import PACE, Clock

LIMIT_S = 60
"""The time limit whose work the search for most may do."""

SLOWER = 40
"""How many times as long as the limit that may take here."""


@dataclass(frozen=True)
class Case:
    """A model, and all of the RAM that it is to take; with its `stack` as --stack has it, and the
    time limit whose work the search for it may do."""

    model: str
    ram_kib: int
    stack: str = "1024"
    limit_s: float = LIMIT_S


CASES = (
    Case("gesture_mlp", 3),
    Case("kws_conv", 4),
    Case("mlp_mnist", 4, "measure"),
    Case("lenet5", 8),
    Case("ae_mnist", 32),
    Case("bert_micro", 32),
    Case("dscnn", 32),
    Case("resnet8", 32),
    Case("resnet18", 64),
    Case("resnet18", 256),
    Case("vgg16", 256),
    Case("bert_tiny", 256),
    Case("bert_base", 1024, "1440", 120),
)


def main(words: list[str]) -> None:
    """Prints the table."""
    models = document.chosen(words, [case.model for case in CASES])
    print(
        "| model | RAM for it | takes | in tiles | read | written | storage | furthest from XLA |\n"
        "|---|--:|--:|--:|--:|--:|--:|--:|"
    )
    fits = True
    for case in document.progress([case for case in CASES if case.model in models]):
        with tempfile.TemporaryDirectory(prefix="poetc-streaming-") as name:
            try:
                row = _row(case, Path(name))
            except UnscheduledError as error:
                fits = False
                row = f"| {case.model} | {case.ram_kib} KB | {error.diagnosis.text()} | | | | | |"
            print(row, flush=True)
    if not fits:
        sys.exit(1)


def _row(case: Case, directory: Path) -> str:
    ram_bytes = case.ram_kib * 1024
    streams = write_steps(case.model, ram_bytes, directory, case.stack, limit_s=case.limit_s)
    data = directory / "step.npz"
    printed = run_c(directory / "small.mlir", data, directory / "little", f"--stack={case.stack}")
    run_c(directory / "step.mlir", data, directory / "unlimited")
    assert results(directory / "little") == results(directory / "unlimited"), f"{case}: other bits"
    ram = re.search(r"RAM: (\d+) bytes, storage: (\d+) bytes, status: ok", printed)
    differences = [float(d) for d in re.findall(r"relative difference (\S+)", printed)]
    assert ram is not None and differences and int(ram[1]) <= ram_bytes, printed
    moved = _moved(directory / "small.mlir")
    cells = (
        case.model,
        f"{case.ram_kib} KB",
        f"{int(ram[1]):,} B",
        f"{streams} kernels",
        *(f"{size / 1000:,.0f} KB" for size in moved),
        f"{int(ram[2]) / 1000:,.0f} KB",
        f"{max(differences):.1e}",
    )
    return f"| {' | '.join(cells)} |"


def _write_data(text: str, arguments: list[np.ndarray], path: Path) -> None:
    """The arguments and what XLA gives for them."""
    from tests.models.make_results import xla_program

    found = [np.asarray(result) for result in xla_program(text)(list(arguments))()]
    arrays = {f"arg{i}": a for i, a in enumerate(arguments)}
    arrays |= {f"out{i}": a for i, a in enumerate(found)}
    np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]


def write_steps(
    model: str,
    ram_bytes: int,
    directory: Path,
    stack: str,
    limit_s: float = LIMIT_S,
    **given: str,
) -> int:
    """How many kernels run in tiles in a step in `ram_bytes` of RAM, with all that is in it, as
    --stack and other options are `given`.

    Writes it to small.mlir, what it was made of to step.mlir, and arguments and results to
    step.npz. Raises UnscheduledError where it does not fit.
    """
    text, arguments = text_of(model, directory)
    asked = {"ram": ram_bytes, "stack": stack, "params": "storage"}
    asked |= given
    module = compiled_by_work(parse_module(text, model), model, asked, limit_s).compiled.module
    (directory / "step.mlir").write_text(text)
    (directory / "small.mlir").write_text(module_text(module))
    _write_data(text, arguments, directory / "step.npz")
    (graph,) = graphs(module)
    return sum(isinstance(op, StreamOp) for op in graph.block.ops)


def compiled_by_work(
    module: ModuleOp, name: str, given: Mapping[str, str | int], limit_s: float = LIMIT_S
) -> CompiledStep:
    """A step that is compiled with the work of a time limit, however long that takes here, so that
    a loaded machine finds the same."""

    def clock(asked: ScheduleOptions) -> Clock:
        return Clock(SLOWER * asked.time_limit_s, PACE / SLOWER)

    options = options_of(Given.of({**given, "stop": "work", "time_limit": limit_s}), lambda _: None)
    with patch.object(ScheduleOptions, "new_clock", clock):
        return compile_step(module, name, options)


def run_c(source: Path, data: Path, out: Path, *options: str, make: Sequence[str] = ()) -> str:
    """What the program of a step says when it runs once; `options` are those of poetc."""
    words = [str(source), "--emit=c", "-q", "-o", str(out), f"--data={data}", *options]
    if poetc(words) != 0:
        sys.exit(1)
    make = ["make", "-s", "-C", str(out), "run", "CFLAGS=-O2", *make]
    done = subprocess.run(make, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    return done.stdout + done.stderr


def _moved(source: Path) -> tuple[int, int]:
    """Bytes that a step reads from storage and writes to it, as the summary has them."""
    report = source.with_suffix(".json")
    if poetc([str(source), "--emit=report", "-q", "-o", str(report)]) != 0:
        sys.exit(1)
    found = json.loads(report.read_text())
    return found["page_in_bytes"], found["page_out_bytes"]


if __name__ == "__main__":
    document.run(main)
