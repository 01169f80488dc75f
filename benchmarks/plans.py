"""Plans: their bytes, and what running one takes compared with a schedule that is code.

    python -m benchmarks.plans bytes        bytes of the plan for each model and budget
    python -m benchmarks.plans executor     flash, RAM, stack and instructions of a step

Prints the tables of docs/plan.md. The second needs QEMU and arm-none-eabi-gcc.
"""

from __future__ import annotations

import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks import document
from benchmarks.boards import MODELS, STORAGE, _make, compile_model
from benchmarks.step_counts import count_steps
from poetc.backends.c.boards import load_board
from poetc.backends.c.layout import DEFAULT_STACK_BYTES, STATIC_BYTES
from poetc.backends.c.measure.emulate import counter
from poetc.backends.plan.codec import encode
from poetc.backends.plan.lower import plan_of
from poetc.backends.plan.plan import PageIn, PageOut, Run
from poetc.backends.plan.source import PlanExecutor
from poetc.backends.plan.table import table_of
from poetc.costmodel.device import load_device
from poetc.driver import compile_module
from poetc.ir.text import make_context, parse_module
from poetc.request import Options
from poetc.tensors import read_tensors

KB = 1024
DEVICE = "nrf52840"


@dataclass(frozen=True)
class Case:
    """A model in that much RAM (None: unlimited), in bytes."""

    model: str
    params: str = "ram"
    ram_bytes: int | None = None
    strategy: str = "auto"


CASES = (
    Case("gesture_mlp"),
    Case("gesture_mlp", "ram", 9728),
    Case("gesture_mlp", "storage", 7 * KB),
    Case("kws_conv"),
    Case("kws_conv", "ram", 8704),
    Case("kws_conv", "storage", 6 * KB),
    Case("lenet5"),
    Case("lenet5", "ram", 268 * KB),
    Case("lenet5", "storage", 224 * KB),
    Case("dscnn"),
    Case("dscnn", "storage", 128 * KB),
    Case("resnet8"),
    Case("resnet8", "ram", 512 * KB),
    Case("resnet8", "storage", 224 * KB),
    Case("resnet8", "storage", 256 * KB, "capuchin"),
    Case("bert_micro"),
    Case("bert_micro", "storage", 352 * KB),
    Case("mlp_mnist"),
    Case("mlp_mnist", "storage", 768 * KB),
    Case("ae_mnist"),
    Case("ae_mnist", "storage", 768 * KB),
)


def plan_bytes() -> None:
    """Prints the table of bytes."""
    print(
        "| model | parameters | RAM | strategy | kernels run | page-ins | page-outs | plan |\n"
        "|---|---|--:|---|--:|--:|--:|--:|"
    )
    for case in CASES:
        print(_bytes_row(case), flush=True)


def _bytes_row(case: Case) -> str:
    path = MODELS / f"{case.model}.mlir"
    options = Options(
        device=load_device(DEVICE),
        device_name=DEVICE,
        ram_bytes=case.ram_bytes,
        static_bytes=STATIC_BYTES,
        stack_bytes=DEFAULT_STACK_BYTES,
        strategy=case.strategy,
        params=case.params,
        executor=PlanExecutor(),
    )
    module = parse_module(path.read_text(), str(path))
    graph = compile_module(make_context(), module, options).graph
    numbered = table_of(graph)
    plan = plan_of(numbered, graph)
    runs = [step.operation for step in plan.steps if isinstance(step, Run)]
    again = len(runs) - len(set(runs))
    cells = (
        case.model,
        "in RAM" if case.params == "ram" else "on storage",
        "unlimited" if case.ram_bytes is None else f"{case.ram_bytes:,}",
        case.strategy,
        f"{len(runs)}, {again} again" if again else f"{len(runs)}",
        f"{sum(isinstance(step, PageIn) for step in plan.steps)}",
        f"{sum(isinstance(step, PageOut) for step in plan.steps)}",
        f"{len(encode(plan, numbered.table)):,}",
    )
    return f"| {' | '.join(cells)} |"


FIRMWARE = (
    ("gesture_mlp", "microbit", "cortex-m0", ("--ram=32KB",)),
    ("gesture_mlp", "lm3s6965", "cortex-m0", ("--ram=10KB", STORAGE)),
    ("kws_conv", "microbit", "cortex-m0", ("--ram=32KB",)),
    ("kws_conv", "lm3s6965", "cortex-m4", ("--ram=10KB", STORAGE)),
    (
        "resnet8",
        "mps2-an386",
        "cortex-m4",
        ("--ram=257KB", STORAGE, "--strategy=capuchin"),
    ),
)


def executor() -> None:
    """Prints the table of firmware."""
    print(
        "| model | board, core | options | schedule | flash | static | stack used "
        "| instructions |\n|---|---|---|---|--:|--:|--:|--:|"
    )
    with tempfile.TemporaryDirectory(prefix="poetc-plans-") as name, counter() as plugin:
        for number, (model, board, cpu, options) in enumerate(document.progress(FIRMWARE)):
            static = 0
            for kind in ("plan", "code"):
                directory = Path(name) / f"{number}-{kind}"
                # As much is set aside for code, so that the schedule is the same.
                same = (f"--static={static}",) if kind == "code" else ()
                words = (f"--board={board}", *options, f"--executor={kind}", *same)
                compile_model(model, directory, words)
                (step,) = count_steps(directory, cpu, plugin)
                printed = _make(directory, "run", f"CPU={cpu}")
                used = re.search(r"stack: (\d+) of \d+ bytes, status: ok", printed)
                assert used is not None, printed
                sizes = _make(directory, "size", f"CPU={cpu}")
                section = {k: int(v) for k, v in re.findall(r"^(\.[\w.]+) +(\d+)", sizes, re.M)}
                own = load_board(board)
                assert own is not None
                static = read_tensors(directory).static_bytes
                cells = (
                    model,
                    f"{board}, {cpu}",
                    f"`{' '.join(options)}`",
                    kind,
                    f"{section['.text'] + section['.data']:,}",
                    f"{static if kind == 'plan' else own.static_bytes:,}",
                    f"{int(used[1]):,}",
                    f"{step.instructions:,}",
                )
                print(f"| {' | '.join(cells)} |", flush=True)


COMMANDS = {"bytes": plan_bytes, "executor": executor}


def main(words: list[str]) -> None:
    """Prints the tables that are asked for."""
    if not words or any(word not in COMMANDS for word in words):
        sys.exit(f"usage: python -m benchmarks.plans {'|'.join(COMMANDS)}")
    for word in words:
        COMMANDS[word]()


if __name__ == "__main__":
    document.run(main)
