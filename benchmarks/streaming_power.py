"""Ten steps with momentum in little RAM, with power that goes at random.

    python -m benchmarks.streaming_power [MODEL ...]

Steps of tests/models, with a velocity for each parameter, are compiled for an nRF52840 and run on a
store of which power takes, at a random write or sync, what was not synced yet, with RAM full of
garbage at each start. Each time the parameters are those of before the step or those of after it;
in the end they must be the same bits as those of ten steps with unlimited RAM that nothing
disturbed. Prints a table of docs/streaming.md. Takes minutes.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import document
from benchmarks.arguments import MODELS, arguments_of
from benchmarks.boards import results
from benchmarks.streaming import compiled_by_work, run_c
from poetc.image import pack
from poetc.ir.graph import graphs
from poetc.ir.poet import StreamOp
from poetc.ir.text import parse_module

sys.path.insert(0, str(MODELS.parent))
from tests.power import OK, Loss, Machine, parameters

RAM_KIB = {"gesture_mlp": 3, "resnet8": 48}
"""Of each model, with everything."""

STEPS = 10

INTACT = 4
"""One start in so many is not cut off."""


def main(words: list[str]) -> None:
    """Prints the table."""
    print(
        "| model | RAM for it | takes | in tiles | starts | power goes before the record | "
        "after it | bits |\n|---|--:|--:|--:|--:|--:|--:|---|"
    )
    for model in document.progress(document.chosen(words, RAM_KIB)):
        with tempfile.TemporaryDirectory(prefix="poetc-streaming-power-") as name:
            print(_row(model, Path(name)), flush=True)


def _row(model: str, directory: Path) -> str:
    plain, ram_bytes = (MODELS / f"{model}.mlir").read_text(), RAM_KIB[model] * 1024
    text, velocities = with_momentum(plain)
    arguments = arguments_of(model, plain)
    arguments += [np.zeros_like(each) for each in arguments[:velocities]]
    expected = _unlimited(text, arguments, directory)

    given = {"ram": ram_bytes}
    compiled = compiled_by_work(parse_module(text, model), model, given).compiled
    assert compiled.ram_bytes <= ram_bytes
    (graph,) = graphs(compiled.module)
    inputs = {i: a for i, a in enumerate(arguments) if graph.role(i) == "input"}
    machine = Machine(compiled.module, directory / "little", inputs)
    image = pack(machine.layout, parameters(machine.layout, arguments))
    image, starts, before, after = _trained(machine, image)
    _, found = machine.state(image)
    assert len(found) == 2 * velocities
    for parameter, value in zip(machine.layout.tensors, found, strict=True):
        result = graph.updates(parameter.argument)
        assert result is not None and value == expected[result], parameter.name
    cells = (
        model,
        f"{RAM_KIB[model]} KB",
        f"{compiled.ram_bytes:,} B",
        f"{sum(isinstance(op, StreamOp) for op in graph.block.ops)} kernels",
        *map(str, (starts, before, after)),
        "those of unlimited RAM",
    )
    return f"| {' | '.join(cells)} |"


def _trained(machine: Machine, image: bytes) -> tuple[bytes, int, int, int]:
    """The image after all steps, how often the device started, and how often power went, before a
    step was done and after it."""
    choose = random.Random(0)
    machine.power_on(image)
    assert machine.step() == OK
    events = len(machine.events)
    first, state = machine.state(image)
    step = starts = before = after = 0
    while step < STEPS:
        machine.power_on(image)
        intact = choose.randrange(INTACT) == 0
        if not intact:
            # As often among the last ones, which commit the step.
            begin = choose.choice((0, events - 6))
            machine.cut(choose.randrange(begin, events), choose.randrange(64), spoil=True)
            machine.loss(Loss.RANDOM, choose.randrange(1, 2**32))
        assert (machine.step() == OK) == intact
        image = machine.image
        sequence, found = machine.state(image)
        done = (sequence - first) - step
        assert done == 1 or (done == 0 and not intact and found == state)
        starts += 1
        before += not done
        after += done and not intact
        step, state = step + done, found
    return image, starts, before, after


def _unlimited(text: str, arguments: list[np.ndarray], directory: Path) -> dict[int, bytes]:
    """The results of the last of all steps in unlimited RAM."""
    source, data = directory / "step.mlir", directory / "step.npz"
    source.write_text(text)
    np.savez(data, **{f"arg{i}": a for i, a in enumerate(arguments)})  # pyright: ignore
    out = directory / "unlimited"
    run_c(source, data, out)
    steps = [out / "model_example", out / "data", str(STEPS)]
    subprocess.run(steps, check=True, capture_output=True)
    return results(out)


def with_momentum(text: str) -> tuple[str, int]:
    """A step of SGD, as JAX prints it, with a velocity v for each parameter, and how many there
    are: v = 0.9 v + g takes the place of the gradient g. They are the last arguments and
    results."""
    update = r"    (%\d+) = stablehlo.multiply (%\d+), (%\d+) : (tensor<.*?>)\n"
    update += r"    (%\d+) = stablehlo.subtract (%arg\d+), \1 : .*\n"
    head, body = text.split("\n  }\n", 1)
    velocities: list[tuple[str, str]] = []

    def with_velocity(found: re.Match[str]) -> str:
        scaled, rate, gradient, type_, new, parameter = found.groups()
        old = f"%v{len(velocities)}"
        velocities.append((old, type_))
        return (
            f"    {old}_share = stablehlo.constant dense<0.9> : {type_}\n"
            f"    {old}_kept = stablehlo.multiply {old}_share, {old} : {type_}\n"
            f"    {old}_new = stablehlo.add {old}_kept, {gradient} : {type_}\n"
            f"    {scaled} = stablehlo.multiply {rate}, {old}_new : {type_}\n"
            f"    {new} = stablehlo.subtract {parameter}, {scaled} : {type_}\n"
        )

    head = re.sub(update, with_velocity, head)
    results = len(re.findall("tf.aliasing_output", head)) + 1
    assert len(velocities) == results - 1, "an update is not that of SGD"
    types = "".join(f", {type_}" for _, type_ in velocities)
    more = "".join(
        f", {name}: {type_} {{tf.aliasing_output = {results + k} : i32}}"
        for k, (name, type_) in enumerate(velocities)
    )
    head = re.sub(r"\) -> \((.*)\) \{\n", rf"{more}) -> (\1{types}) {{\n", head, count=1)
    names = "".join(f", {name}_new" for name, _ in velocities)
    head = re.sub(r"    return (.*?) : (.*)$", rf"    return \1{names} : \2{types}", head)
    return f"{head}\n  }}\n{body}", len(velocities)


if __name__ == "__main__":
    document.run(main)
