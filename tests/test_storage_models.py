"""Real training steps with parameters on storage, all the way: budgets, bits, XLA's numbers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from c_support import compile_c
from compiled import SANITIZE, Model, build, prepare, run, worst_error
from conftest import more
from pages import ROOT, run_commands
from power import parameters
from test_models import XLA_TOLERANCE
from xdsl.dialects.builtin import ModuleOp

from poetc.backends.c.layout import DEFAULT_STACK_BYTES, STATIC_BYTES
from poetc.image import layout_of, pack, unpack
from poetc.ir.graph import graphs
from poetc.passes.poet_verify import verify_graph
from poetc.planning.plan import schedule_and_plan
from poetc.tensors import read_tensors

KB = 1024
BUDGETS = {
    "kws_conv": 8 * KB,
    "gesture_mlp": 12 * KB,
    "dscnn": 128 * KB,
    "resnet8": 224 * KB,
    "lenet5": 224 * KB,
    "bert_micro": 352 * KB,
}
"""Bytes of RAM for everything: arena, static data, stack."""

SMALL = ("kws_conv", "gesture_mlp")
AUTO = (*SMALL, "lenet5")
"""Models that are also compiled with the compiler choosing where parameters are."""

RESERVED = STATIC_BYTES + DEFAULT_STACK_BYTES


def scheduled(model: Model, ram_bytes: int | None, params: str) -> ModuleOp:
    """A scheduled copy of the module; any schedule that fits will do."""
    module = model.module.clone()
    budget = None if ram_bytes is None else ram_bytes - RESERVED
    graph = graphs(module)[0]
    schedule_and_plan(graph, model.options(budget, params=params, gap=0.5))
    verify_graph(graph)
    return module


def run_stored(
    program: Path, module: ModuleOp, arguments: list[np.ndarray], like: list[np.ndarray], steps: int
) -> list[np.ndarray]:
    """Runs steps of a program with parameters on storage; all results, from RAM and image."""
    graph = graphs(module)[0]
    layout = layout_of(graph)
    assert layout is not None
    image = program.parent / "pages.bin"
    image.write_bytes(pack(layout, parameters(layout, arguments)))
    data = program.parent / "data"
    data.mkdir(exist_ok=True)
    for i, array in enumerate(arguments):
        if not graph.is_stored(i):
            (data / f"arg{i}.bin").write_bytes(np.ascontiguousarray(array).tobytes())
    done = subprocess.run([program, data, str(steps), image], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    sequence, stored = unpack(layout, image.read_bytes())
    assert sequence == steps
    new = {p.argument: a for p, a in zip(layout.tensors, stored, strict=True)}
    updates = {graph.updates(i): i for i in range(len(arguments)) if graph.is_stored(i)}
    return [
        new[updates[i]]
        if i in updates
        else np.frombuffer((data / f"out{i}.bin").read_bytes(), a.dtype).reshape(a.shape)
        for i, a in enumerate(like)
    ]


def assert_same_bits(got: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert [a.tobytes() for a in got] == [a.tobytes() for a in expected]


def assert_close_to_xla(got: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert worst_error(got, expected) <= XLA_TOLERANCE


def assert_ram(directory: Path, ram_bytes: int) -> None:
    """`.data` and `.bss` are the arena that the header gives, and everything is in the budget."""
    tensors = read_tensors(directory)
    core = ("model", "model_kernels", "poetc_math", "poetc_store", "poetc_image")
    static_bytes = 0
    for name in core:
        source = directory / f"{name}.c"
        if source.exists():
            path = compile_c([source], directory / f"{name}.o", flags=("-O2", "-c"))
            size = subprocess.run(["size", path], capture_output=True, text=True, check=True)
            static_bytes += sum(map(int, size.stdout.splitlines()[1].split()[1:3]))
    assert static_bytes == tensors.arena_bytes
    total = static_bytes + tensors.static_bytes + tensors.stack_bytes
    assert total == tensors.ram_bytes <= ram_bytes


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SMALL, *more(*(name for name in BUDGETS if name not in SMALL))])
def test_budgets(name: str, tmp_path: Path) -> None:
    model = prepare(name)
    full = build(scheduled(model, None, "ram"), tmp_path / "full")
    expected = run(full, model.arguments, model.expected)
    assert_close_to_xla(expected, model.expected)
    for params in ("storage", "auto") if name in AUTO else ("storage",):
        module = scheduled(model, BUDGETS[name], params)
        directory = tmp_path / params
        program = build(module, directory, *SANITIZE)
        assert_ram(directory, BUDGETS[name])
        if layout_of(graphs(module)[0]) is None:
            got = run(program, model.arguments, model.expected)
        else:
            got = run_stored(program, module, model.arguments, model.expected, 1)
        assert_same_bits(got, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gesture_mlp", *more("kws_conv")])
def test_many_steps(name: str, tmp_path: Path) -> None:
    """Training goes on from the image, with the bits that it has in RAM."""
    model = prepare(name)
    steps = 20
    full = build(scheduled(model, None, "ram"), tmp_path / "full")
    module = scheduled(model, BUDGETS[name], "storage")
    program = build(module, tmp_path / "stored")
    expected = run(full, model.arguments, model.expected, steps)
    got = run_stored(program, module, model.arguments, model.expected, steps)
    assert_same_bits(got, expected)
    assert expected[0] < model.expected[0]


@pytest.mark.slow
def test_unlimited_ram(tmp_path: Path) -> None:
    """Parameters on storage without any budget."""
    model = prepare("gesture_mlp")
    module = scheduled(model, None, "storage")
    got = run_stored(build(module, tmp_path), module, model.arguments, model.expected, 1)
    assert_close_to_xla(got, model.expected)


@pytest.mark.slow
def test_example(tmp_path: Path) -> None:
    """A run of the program for each step trains as one run does."""
    printed = run_commands(f"python examples/storage.py {tmp_path} --steps 3", ROOT)
    model = prepare("gesture_mlp")
    full = build(scheduled(model, None, "ram"), tmp_path / "full")
    expected = run(full, model.arguments, model.expected, 3)
    first, last, *changes = re.findall(r"^(?:step|arg).*$", printed, re.MULTILINE)
    assert first == f"step 1: loss {model.expected[0]:.6f}"
    assert last == f"step 3: loss {expected[0]:.6f}"
    assert [line.split(":")[0] for line in changes] == [f"arg{i}" for i in range(6)]
    with np.load(tmp_path / "trained.npz") as trained:
        assert_same_bits([trained[f"arg{i}"] for i in range(6)], expected[1:])
