"""What less RAM costs: the real training steps at budgets from the least feasible to the unlimited.

    python -m benchmarks.models [--device NAME] [--time-limit S] [MODEL ...]
        [--output docs/models.md]

RAM is everything: arena, static data and stack reserve. Energy and time are the cost model's, as
ratios to the step with unlimited RAM and parameters in RAM.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from benchmarks import document
from poetc.backends.c.layout import DEFAULT_STACK_BYTES, STATIC_BYTES
from poetc.costmodel.device import load_device
from poetc.driver import compile_module
from poetc.ir.graph import graphs
from poetc.ir.text import make_context, parse_module
from poetc.pipeline import front_passes, run_passes
from poetc.planning.problem import problem_view
from poetc.request import Options
from poetc.schedule.model.checker import Report
from poetc.schedule.model.instance import Instance
from poetc.schedule.search.infeasibility import least_ram

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
)
FRACTIONS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
"""Budgets, from the least RAM known to work (0) to the unlimited peak (1)."""

TARGETS = {
    "gesture_mlp": 12 << 10,
    "kws_conv": 8 << 10,
    "lenet5": 224 << 10,
    "dscnn": 128 << 10,
    "resnet8": 224 << 10,
    "bert_micro": 352 << 10,
}
"""Sizes of RAM in microcontrollers, in which parameters are where there is room."""

HEAD = """# What less RAM costs

Made by `python -m benchmarks.models --device {device} --time-limit {limit:g}`.

- *parameters*: in RAM from step to step, or on storage; *auto* is where there is room for them.
- *RAM*: everything, in bytes: arena, static data and stack reserve. Budgets go from the least for
  which there is a schedule to what unlimited RAM takes.
- *waste*: bytes of the arena beyond the most that are alive at once. Where it is not 0, the arena
  is within the budget, and one without waste would cost more than 0.2% of the energy, or was not
  found.
- *moves*: page-ins that are there only because no arena would fit otherwise
  (`schedule/arena/relocate.py`); they are among the page-ins.
- *energy*, *time*: relative to unlimited RAM with parameters in RAM.
- *gap*: between the energy and its proven lower bound.

Models of many megabytes are in [the optimiser's tables](optimiser.md).
"""


def rows(name: str, module: ModuleOp, options: Options) -> Iterator[str]:
    """One table row a budget: parameters in RAM, on storage, and where there is room."""
    context = make_context()
    run_passes(context, module, front_passes(module, options.device_name), lambda *_: None)
    base = compile_module(context, module.clone(), replace(options, params="ram")).report
    assert base is not None
    for params in ("ram", "storage"):
        own = replace(options, params=params)
        for ram_bytes in budgets(module, own):
            yield row(name, module, replace(own, ram_bytes=ram_bytes), base.use)
    if name in TARGETS:
        target = replace(options, params="auto", ram_bytes=TARGETS[name])
        yield row(name, module, target, base.use)


def budgets(module: ModuleOp, options: Options) -> Iterator[int]:
    """The budgets to try, all of the RAM."""
    (graph,) = graphs(module)
    problem = problem_view(graph, options.schedule_options(graph)).problem
    least = least_ram(Instance(problem)).known
    unlimited = compile_module(make_context(), module.clone(), options).report
    assert least is not None and unlimited is not None
    peak = unlimited.use.peak_bytes
    for fraction in FRACTIONS:
        yield options.budget.used_bytes(int(least + (peak - least) * fraction))


def row(name: str, module: ModuleOp, options: Options, base: Report) -> str:
    """One row; `base` is what energy and time are relative to."""
    assert options.ram_bytes is not None
    report = compile_module(make_context(), module.clone(), options).report
    assert report is not None and report.memory is not None
    use = report.use
    auto = options.params == "auto"
    place = f"auto: {report.params}" if auto else report.params
    return (
        f"| {name} | {place} | {options.ram_bytes:,} "
        f"| {report.memory.arena_bytes - use.peak_bytes} | {report.moves} "
        f"| {use.energy_nj / base.energy_nj:.4f} "
        f"| {use.makespan_ns / base.makespan_ns:.4f} | {report.gap:.2%} "
        f"| {len(use.recomputes)} | {use.page_ins} | {use.page_outs} |"
    )


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--device", default="nrf52840")
    parser.add_argument("--time-limit", type=float, default=60.0)
    arguments = parser.parse_args(words)
    options = Options(
        device=load_device(arguments.device),
        device_name=arguments.device,
        static_bytes=STATIC_BYTES,
        stack_bytes=DEFAULT_STACK_BYTES,
        time_limit_s=arguments.time_limit,
    )
    print(HEAD.format(device=arguments.device, limit=arguments.time_limit))
    print(
        "| model | parameters | RAM | waste | moves | energy | time | gap "
        "| recomputes | page-ins | page-outs |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name in document.progress(document.chosen(arguments.models, NAMES)):
        path = MODELS / f"{name}.mlir"
        for row in rows(name, parse_module(path.read_text(), str(path)), options):
            print(row, flush=True)
    return 0


if __name__ == "__main__":
    document.run(main)
