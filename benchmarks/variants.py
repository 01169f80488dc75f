"""What streaming costs where nothing is kept between kernels: every kernel runs in tiles, with all
its operands and results on storage.

    python -m benchmarks.variants [MODEL ...]

Prints the tables of docs/streaming.md: how little RAM kernels can run in; and for several budgets
the bytes that are moved in a step, each kernel run in the way that takes the least energy within
the budget, with the time of transfers, energy and time of the step.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from xdsl.dialects.func import FuncOp

from benchmarks import document
from poetc.costmodel.cost import Cost
from poetc.costmodel.device import Device, load_device
from poetc.costmodel.slices import slice_costs
from poetc.ir.graph import graphs
from poetc.ir.text import make_context, parse_module
from poetc.kernels.analysis import buffer_bytes, buffers
from poetc.pipeline import front_passes, run_passes
from poetc.variants.kernel import KernelSearch, Variant

MODELS = Path(__file__).parent.parent / "tests" / "models"
NAMES = ("mlp_mnist", "lenet5", "dscnn", "resnet8", "resnet18", "vgg16", "bert_tiny")
DEVICE = "nrf52840"
BUDGETS = (24 * 1024, 96 * 1024, 240 * 1024)


@dataclass(frozen=True)
class Kernel:
    """A kernel with the computes that run it, and what one of them costs."""

    function: FuncOp
    computes: int
    cost: Cost


def main(words: list[str]) -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    names = document.chosen(parser.parse_args(words).models, NAMES)
    device = load_device(DEVICE)
    least: list[str] = []
    moved: list[str] = []
    for name in document.progress(names):
        kernels = _kernels(name, device)
        started = time.process_time()
        found = [_ways(kernel, device) for kernel in kernels]
        seconds = time.process_time() - started
        needed = [each[0].ram_bytes for each in found]
        computes = sum(kernel.computes for kernel in kernels)
        least.append(
            f"| {name} | {computes} | {len(kernels)} | {max(needed):,} | {seconds:.1f} s |"
        )
        moved += [_row(name, budget, kernels, found, device) for budget in BUDGETS]
    print(
        "| model | kernels | different ones | least RAM for all | search |\n"
        "|---|--:|--:|--:|--:|\n" + "\n".join(least) + "\n\n"
        "| model | RAM for a kernel | moved | of the least | runs | transfers | energy | time |\n"
        "|---|--:|--:|--:|--:|--:|--:|--:|\n" + "\n".join(moved)
    )


def _kernels(name: str, device: Device) -> list[Kernel]:
    module = parse_module((MODELS / f"{name}.mlir").read_text(), name)
    passes = front_passes(module, DEVICE, device, arrange=False)
    run_passes(make_context(), module, passes, lambda *_: None)
    functions = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
    (graph,) = graphs(module)
    times: Counter[str] = Counter()
    costs: dict[str, Cost] = {}
    for compute in graph.computes:
        assert compute.kernel is not None and compute.cost is not None
        symbol = compute.kernel.string_value()
        times[symbol] += 1
        costs[symbol] = Cost(compute.cost.time_ns, compute.cost.energy_nj)
    return [Kernel(functions[symbol], n, costs[symbol]) for symbol, n in times.items()]


def _ways(kernel: Kernel, device: Device) -> list[Variant]:
    """All variants, with the transfers of what they have resident."""
    search = KernelSearch(kernel.function, device, kernel.cost, max(BUDGETS))
    costs, found = search.costs, []
    inputs = len(buffers(kernel.function, "inputs"))
    for resident in search.resident_sets():
        read = written = 0
        ns = 0.0
        for number in resident:
            size = buffer_bytes(kernel.function.body.block.args[number])
            whole = np.array([float(size)])
            move = costs.read_ns if number < inputs else costs.write_ns
            ns += float(move(np.ones(1), whole, np.array([costs.block_bytes]))[0])
            read += size * (number < inputs)
            written += size * (number >= inputs)
        for variant in search.variants(resident, most=1000):
            # Nothing is computed meanwhile.
            found.append(
                replace(
                    variant,
                    read_bytes=variant.read_bytes + read,
                    written_bytes=variant.written_bytes + written,
                    runs=variant.runs + len(resident),
                    time_ns=round(variant.time_ns + ns),
                    energy_nj=round(variant.energy_nj + costs.power_w * ns),
                    least_bytes=variant.least_bytes + read + written,
                )
            )
    return sorted(found, key=lambda variant: variant.ram_bytes)


def _row(
    name: str, budget: int, kernels: list[Kernel], found: list[list[Variant]], device: Device
) -> str:
    bytes_moved = bytes_least = runs = time_ns = energy_nj = alone_ns = alone_nj = 0
    for kernel, each in zip(kernels, found, strict=True):
        within = [variant for variant in each if variant.ram_bytes <= budget]
        if not within:
            return f"| {name} | {budget // 1024} KB | a kernel needs more | | | | | |"
        best = min(within, key=lambda variant: (variant.energy_nj, variant.time_ns))
        # Of those that take hardly more energy, the fastest.
        best = min(
            (v for v in within if v.energy_nj <= 1.02 * best.energy_nj),
            key=lambda variant: variant.time_ns,
        )
        times = kernel.computes
        bytes_moved += times * best.moved_bytes
        bytes_least += times * best.least_bytes
        runs += times * best.runs
        time_ns += times * best.time_ns
        energy_nj += times * best.energy_nj
        alone_ns += times * kernel.cost.time_ns
        alone_nj += times * kernel.cost.energy_nj
    transfers_s = (energy_nj - alone_nj) / slice_costs(device).power_w / 1e9
    cells = (
        name,
        f"{budget // 1024} KB",
        f"{bytes_moved / 1e6:.1f} MB",
        f"×{bytes_moved / bytes_least:.2f}",
        f"{runs:,}",
        f"{transfers_s:.2f} s",
        f"{energy_nj / 1e6:,.0f} mJ, ×{energy_nj / alone_nj:.1f}",
        f"{time_ns / 1e9:.2f} s, ×{time_ns / alone_ns:.2f}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    document.run(main)
