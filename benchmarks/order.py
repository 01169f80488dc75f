"""How much RAM the order of the kernels saves, before anything is recomputed or paged.

    python -m benchmarks.order [MODEL ...] [--output docs/order.md]

All numbers are bytes alive at once in the arena, parameters included, everything freed at its last
use, buffers taken over in place where that is allowed.
"""

from __future__ import annotations

import argparse
import time

from xdsl.dialects.builtin import ModuleOp

from benchmarks import document, models
from poetc.ir.graph import FREE_STORAGE, graphs, view_unscheduled
from poetc.ir.text import make_context, parse_module
from poetc.passes.poet_fuse import PoetFusePass
from poetc.passes.poet_lower_kernels import PoetLowerKernelsPass
from poetc.passes.stablehlo_simplify import StableHLOSimplifyPass
from poetc.passes.stablehlo_to_poet import StableHLOToPoetPass
from poetc.planning.inplace import inplace_candidates
from poetc.schedule.heuristics.order import find_order, footprint
from poetc.schedule.model.problem import Place, Problem

NAMES = (*models.NAMES, "bert_base")

HEAD = """# Order

`poet-order` puts the kernels into an order in which few bytes are alive at once. Made by
`python -m benchmarks.order`. Bytes are those alive at once before scheduling, parameters included,
with buffers taken over in place where that is allowed.

- *operations*: the program as JAX writes it, one kernel an operation, in place only the updates;
  all gradients are alive before the first of them.
- *fused*: the same order after `poet-fuse`, which evaluates most updates where the gradient is
  made.
- *ordered*: after `poet-order`. *Bound*: no order has less, from minimum cuts and exact search;
  "=" where that is the peak reached.
- *parameters*: of the bytes before, those that are parameters and stay whatever the order.
- *on storage*: parameters count only while a kernel reads them, ordered for that.
"""


def prepare(module: ModuleOp, fuse: bool) -> None:
    """The passes before poet-order that matter for memory."""
    context = make_context()
    passes = [StableHLOSimplifyPass(), StableHLOToPoetPass()]
    passes += [PoetFusePass(), PoetLowerKernelsPass()] if fuse else []
    for step in passes:
        step.apply(context, module)


def problem_of(module: ModuleOp, stored: bool) -> Problem:
    """The unscheduled graph of `module` as a problem, parameters in RAM or on storage."""
    graph = graphs(module)[0]
    storage = FREE_STORAGE if stored else None
    share = inplace_candidates(graph)
    return view_unscheduled(graph, storage=storage, store_params=stored, may_share=share).problem


def program_peak(problem: Problem) -> int:
    """Bytes alive at once in the given order."""
    return footprint(problem, range(len(problem.operations))).peak_bytes


def row(name: str) -> str:
    """One row of the table."""
    path = models.MODELS / f"{name}.mlir"
    module = parse_module(path.read_text(), str(path))
    flat = module.clone()
    prepare(flat, fuse=False)
    prepare(module, fuse=True)
    problem = problem_of(module, stored=False)
    old = {t.replaces for t in problem.tensors}
    parameters = sum(
        t.bytes
        for v, t in enumerate(problem.tensors)
        if t.start is not None and (v in old or t.end is Place.RAM)
    )
    started = time.monotonic()
    found = find_order(problem)
    seconds = time.monotonic() - started
    stored = problem_of(module, stored=True)
    apart = find_order(stored)
    return (
        f"| {name} | {len(problem.operations)} | {program_peak(problem_of(flat, False)):,} "
        f"| {program_peak(problem):,} | {found.footprint.peak_bytes:,} "
        f"| {'=' if found.optimal else f'{found.bound_bytes:,}'} | {parameters:,} "
        f"| {program_peak(stored):,} | {apart.footprint.peak_bytes:,} "
        f"| {'=' if apart.optimal else f'{apart.bound_bytes:,}'} | {seconds:.2f} |"
    )


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    arguments = parser.parse_args(words)
    print(HEAD)
    print(
        "| model | kernels | operations | fused | ordered | bound | parameters "
        "| on storage: fused | ordered | bound | s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name in document.progress(document.chosen(arguments.models, NAMES)):
        print(row(name), flush=True)
    return 0


if __name__ == "__main__":
    document.run(main)
