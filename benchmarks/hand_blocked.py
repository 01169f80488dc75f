"""Kernels of poetc against such that are blocked by hand (hand_blocked.c), on a Cortex-M4F.

    python -m benchmarks.hand_blocked

Prints a table of docs/kernels.md: instructions of a kernel in a step of a model, compiled by gcc
-O2 and counted in the emulator. Both do the same operations in the same order, and results must be
the same bits. Needs QEMU and arm-none-eabi-gcc.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from xdsl.dialects.func import FuncOp

from benchmarks import document
from benchmarks.backends import scheduled
from benchmarks.bare_kernels import STACK_BYTES, results_of
from benchmarks.boards import MODELS, write_data
from benchmarks.step_counts import count_steps
from poetc.backends.c.boards import load_board
from poetc.backends.c.emit import emit
from poetc.backends.c.measure.emulate import counter
from poetc.kernels.analysis import work

BOARD, CPU = "mps2-an386", "cortex-m4"
BY_HAND = Path(__file__).parent / "hand_blocked.c"


@dataclass(frozen=True)
class Case:
    """A kernel of a model and the function that is written by hand, with its buffers."""

    title: str
    model: str
    kernel: str
    by_hand: str


CASES = (
    Case("dense", "mlp_mnist", "dot_add_maximum", "dense_forward(in0, in1, in2, out0)"),
    Case(
        "gradient of a dense layer's weights",
        "mlp_mnist",
        "dot_multiply_subtract",
        "dense_gradient(in0, in1, in2, out0)",
    ),
    Case("convolution", "lenet5", "conv_add_tanh_1", "conv_forward(in0, in1, in2, out0)"),
    Case(
        "gradient of its weights",
        "lenet5",
        "conv_multiply_subtract_1",
        "conv_gradient(in0, in1, in2, out0)",
    ),
    Case("depthwise convolution", "dscnn", "conv_1", "depthwise_forward(in0, in1, out0)"),
    Case(
        "gradient of its weights",
        "dscnn",
        "conv_multiply_subtract",
        "depthwise_gradient(in0, in1, in2, out0)",
    ),
)


def with_hand_written(text: str, cases: list[Case]) -> str:
    """Generated kernels, with those of the cases written by hand."""
    for case in cases:
        body = re.compile(rf"(\nvoid model_kernel_{case.kernel}\([^{{]*\)\n)\{{\n.*?\n\}}\n", re.S)
        text, count = body.subn(rf"\1{{\n    {case.by_hand};\n}}\n", text)
        assert count == 1, case.kernel
    start = text.index("\nvoid ")
    return f"{text[:start]}\n{BY_HAND.read_text()}{text[start:]}"


def main(words: list[str]) -> None:
    """Prints the table."""
    assert not words, __doc__
    described = load_board(BOARD)
    assert described is not None
    print(
        "| kernel | of | products | poetc | by hand | poetc / by hand | poetc for each product |\n"
        "|---|---|--:|--:|--:|--:|--:|"
    )
    for model in document.progress(dict.fromkeys(case.model for case in CASES)):
        cases = [case for case in CASES if case.model == model]
        module = scheduled((MODELS / f"{model}.mlir").read_text(), model, True, f"{BOARD}-{CPU}")
        functions = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
        counted: list[dict[str, int]] = []
        results: list[tuple[bytes, ...]] = []
        with tempfile.TemporaryDirectory(prefix="poetc-hand-") as name, counter() as plugin:
            directory = Path(name)
            emit(module, directory, board=replace(described, cpus=(CPU,)), stack_bytes=STACK_BYTES)
            write_data(model, directory)
            kernels = directory / "model_kernels.c"
            generated = kernels.read_text()
            for text in (generated, with_hand_written(generated, cases)):
                kernels.write_text(text)
                for path in (directory / "data").glob("out*.bin"):
                    path.unlink()
                (step,) = count_steps(directory, CPU, plugin, words=("CFLAGS=-O2",))
                counted.append(dict(step.calls))
                results.append(results_of(directory))
        assert results[0] and results[0] == results[1], f"{model}: other bits"
        for case in cases:
            products = work(functions[case.kernel]).muls
            ours, by_hand = (calls[f"model_kernel_{case.kernel}"] for calls in counted)
            cells = (
                case.title,
                f"{model}, `{case.kernel}`",
                f"{products:,}",
                f"{ours:,}",
                f"{by_hand:,}",
                f"{ours / by_hand:.2f}",
                f"{ours / products:.2f}",
            )
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    document.run(main)
