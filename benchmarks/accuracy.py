"""Rounding errors of a training step: poetc and XLA against the same step in float64.

    python -m benchmarks.accuracy [MODEL ...] [--output docs/accuracy.md]

The reference is the same StableHLO with all floats of 64 bits, by XLA. What XLA gives in 32 bits
stands beside a model; where it does not, it is computed. poetc's is the generated C (its bits are
the same on every target). The error of a tensor is that of what the step changes in a parameter, or
of the result, relative to its largest element: the root of the mean of squares over its elements,
and the largest. The table has the mean and the largest of all tensors. Rounding the new value to 32
bits is no part of it: half a unit in its last place is taken off.

`mobilenet_v1_N` is MobileNet v1 of a quarter of the width, on one image of 96 x 96 pixels of two
classes, with batch norm (mobilenet.py), from the seeds 0 to 4: a single one says little, as the
ratio differs from seed to seed. The benchmark fails if the mean error of poetc is more than a tenth
larger than XLA's on a model of the tests, unless it is below 2^-24, half a unit in the last place
of 1.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import document
from benchmarks.arguments import MODELS, arguments_of
from benchmarks.backends import Model, c_backend, scheduled
from poetc.compare import floor

MOBILENETS = {f"mobilenet_v1_{seed}": seed for seed in range(5)}
ROUNDING = 2.0**-24
NAMES = (
    "gesture_mlp",
    "kws_conv",
    "lenet5",
    "mlp_mnist",
    "ae_mnist",
    "dscnn",
    "resnet8",
    "bert_micro",
    "resnet18",
    "vgg16",
    *MOBILENETS,
)


@dataclass(frozen=True)
class Errors:
    """Of the tensors of a step, relative to the largest change of each: the mean of their roots of
    mean squares, and the largest error of an element."""

    mean: float
    largest: float


def errors(
    model: Model, got: list[np.ndarray], exact: list[np.ndarray], parameters: dict[int, int]
) -> Errors:
    """Of results against those in float64. `parameters`: results that are new values of which
    arguments."""
    at_least = floor(exact)
    roots: list[float] = []
    largest: list[float] = []
    for i, (ours, reference) in enumerate(zip(got, exact, strict=True)):
        error = np.abs(ours.astype(np.float64) - reference)
        rounding = np.spacing(np.abs(reference).astype(np.float32)).astype(np.float64) / 2
        error = np.maximum(error - rounding, 0.0)
        before = model.arguments[parameters[i]] if i in parameters else 0.0
        change = max(float(np.max(np.abs(reference - before))), at_least)
        roots.append(float(np.sqrt(np.mean(error**2))) / change)
        largest.append(float(np.max(error)) / change)
    return Errors(float(np.mean(roots)), max(largest))


def in_float64(text: str) -> str:
    """The same program on floats of 64 bits."""
    wide = re.sub(
        r"dense<0x([0-9A-Fa-f]{8})> : (tensor<[\dx]*f32>)",
        lambda found: f"dense<0x{_widened(found[1])}> : {found[2]}",
        text,
    )
    return re.sub(r"(?<=[x<])f32(?=>)", "f64", wide)


def _widened(digits: str) -> str:
    single = np.array(int(digits, 16), np.uint32).view(np.float32)
    return f"{int(single.astype(np.float64).view(np.uint64)):016X}"


def text_of(name: str, directory: Path) -> tuple[str, list[np.ndarray]]:
    """A step as StableHLO, and its arguments."""
    if name not in MOBILENETS:
        text = (MODELS / f"{name}.mlir").read_text()
        return text, arguments_of(name, text)
    from benchmarks.mobilenet import step_and_arguments
    from poetc.frontends.jax import export

    export(*step_and_arguments(seed=MOBILENETS[name]), str(directory / name))
    with np.load(directory / f"{name}.npz") as arrays:
        count = sum(key.startswith("arg") for key in arrays)
        arguments = [arrays[f"arg{i}"] for i in range(count)]
    return (directory / f"{name}.mlir").read_text(), arguments


def measure(name: str) -> tuple[Errors, Errors]:
    """Of poetc and of XLA."""
    from tests.models.make_results import xla_program

    with tempfile.TemporaryDirectory() as directory:
        text, arguments = text_of(name, Path(directory))
        stored = MODELS / f"{name}.npz"
        if stored.exists():
            with np.load(stored) as arrays:
                count = sum(key.startswith("out") for key in arrays)
                by_xla = [arrays[f"out{i}"] for i in range(count)]
        else:
            by_xla = [np.asarray(result) for result in xla_program(text)(arguments)()]
        wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in arguments]
        exact = [np.asarray(result) for result in xla_program(in_float64(text))(wide)()]
        assert all(array.dtype == np.float64 for array in exact)
        updates = _updates(text)
        names = {argument: f"arg{argument}" for argument in updates}
        model = Model(name, text, names, arguments, by_xla)
        program = c_backend(model, scheduled(text, name), Path(directory) / "c")
        program.refill()
        program.step()
        ours = list(program.results())
    updated = {result: argument for argument, result in updates.items()}
    return errors(model, ours, exact, updated), errors(model, by_xla, exact, updated)


def _updates(text: str) -> dict[int, int]:
    """The result that is the new value of each parameter, by its argument."""
    head = re.search(r"@main\((.*?)\) *->", text, re.DOTALL)
    assert head is not None
    found: dict[int, int] = {}
    for argument, words in enumerate(re.split(r"%arg\d+:", head[1])[1:]):
        if (alias := re.search(r"tf\.aliasing_output = (\d+)", words)) is not None:
            found[argument] = int(alias[1])
    return found


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    names = document.chosen(parser.parse_args(words).names, NAMES)
    print("# Rounding errors\n\nMade by `python -m benchmarks.accuracy`.\n")
    print((__doc__ or "").split("\n\n", 2)[2])
    print("| model | poetc: mean | XLA: mean | poetc / XLA | poetc: largest | XLA: largest |")
    print("|---|--:|--:|--:|--:|--:|")
    worse: list[str] = []
    for name in document.progress(names):
        ours, xla = measure(name)
        cells = [f"{ours.mean:.1e}", f"{xla.mean:.1e}", f"{ours.mean / xla.mean:.2f}"]
        cells += [f"{ours.largest:.1e}", f"{xla.largest:.1e}"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
        if name not in MOBILENETS and ours.mean > max(1.1 * xla.mean, ROUNDING):
            worse.append(name)
    if worse:
        print(f"worse than XLA: {', '.join(worse)}", file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    document.run(main)
