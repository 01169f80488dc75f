"""What less RAM costs: the real training steps at budgets from the least feasible to the unlimited.

    python benchmarks/models.py [--device NAME] [MODEL ...] > docs/models.md

RAM is everything: arena, static data and stack reserve. Energy and time are the cost model's, as
ratios to the step with unlimited RAM.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from poetc.backends.c.layout import DEFAULT_STACK_BYTES, STATIC_BYTES
from poetc.costmodel.device import load_device
from poetc.ir.graph import graphs
from poetc.ir.text import make_context, parse_module
from poetc.passes.poet_schedule import problem_view
from poetc.pipeline import Options, compile_module, front_passes, run_passes, schedule_options
from poetc.schedule.instance import Instance
from poetc.schedule.limits import least_ram

MODELS = Path(__file__).parent.parent / "tests" / "models"
NAMES = (
    "gesture_mlp",
    "kws_conv",
    "lenet5",
    "dscnn",
    "resnet8",
    "bert_micro",
    "mlp_mnist",
    "ae_mnist",
    "resnet18",
    "vgg16",
    "bert_tiny",
)
FRACTIONS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Budgets, from the least RAM known to work (0) to the unlimited peak (1)."""


def rows(name: str, module: ModuleOp, options: Options) -> list[str]:
    """One table row a budget."""
    context = make_context()
    run_passes(context, module, front_passes(module, options.device_name), lambda *_: None)
    graph = graphs(module)[0]
    reserved = options.static_bytes + options.stack_bytes
    problem = problem_view(graph, schedule_options(options, 1, None)).problem
    least = least_ram(Instance(problem)).known
    assert least is not None
    unlimited = compile_module(context, module.clone(), options).report
    assert unlimited is not None
    peak = unlimited.use.peak_bytes
    table: list[str] = []
    for fraction in FRACTIONS:
        ram_bytes = int(least + (peak - least) * fraction) + reserved
        started = time.monotonic()
        limited = Options(**{**vars(options), "ram_bytes": ram_bytes})
        report = compile_module(context, module.clone(), limited).report
        seconds = time.monotonic() - started
        assert report is not None and report.memory is not None
        use = report.use
        table.append(
            f"| {name} | {len(graph.computes)} | {ram_bytes:,} "
            f"| {report.memory.arena_bytes - use.peak_bytes} "
            f"| {use.energy_nj / unlimited.use.energy_nj:.4f} "
            f"| {use.makespan_ns / unlimited.use.makespan_ns:.4f} | {report.gap:.2%} "
            f"| {len(use.recomputes)} | {use.page_ins} | {use.page_outs} | {seconds:.1f} |"
        )
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=NAMES)
    parser.add_argument("--device", default="nrf52840")
    arguments = parser.parse_args()
    options = Options(
        device=load_device(arguments.device),
        device_name=arguments.device,
        static_bytes=STATIC_BYTES,
        stack_bytes=DEFAULT_STACK_BYTES,
    )
    print("# What less RAM costs\n")
    print(
        f"Made by `python benchmarks/models.py --device {arguments.device}`. RAM is everything in"
    )
    print(
        "bytes; waste is the arena beyond the peak of live bytes; energy and time are relative to"
    )
    print("unlimited RAM; gap is between the energy and its proven lower bound.\n")
    print(
        "| model | kernels | RAM | waste | energy | time | gap "
        "| recomputes | page-ins | page-outs | s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name in arguments.models:
        path = MODELS / f"{name}.mlir"
        for row in rows(name, parse_module(path.read_text(), str(path)), options):
            print(row, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
