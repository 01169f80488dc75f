"""Helpers of tests that go all the way: a model compiled at a budget, built with gcc, and run."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from c_support import build_c
from conftest import MODELS, load_arrays, of_work, read_model
from xdsl.dialects.builtin import ModuleOp

from poetc.backends.c.emit import KernelCompiler, emit
from poetc.budget import Budget
from poetc.compare import differences
from poetc.costmodel.device import load_device
from poetc.image import ImageLayout, pack, unpack
from poetc.image_files import read_layout
from poetc.ir.graph import graphs
from poetc.ir.text import make_context
from poetc.pipeline import front_passes, run_passes
from poetc.planning.plan import schedule_and_plan
from poetc.planning.problem import ScheduleOptions, problem_view
from poetc.planning.report import ScheduleReport
from poetc.schedule.model.instance import Instance
from poetc.schedule.search.infeasibility import least_ram
from poetc.tensors import ProgramTensor, read_tensors

DEVICE = "nrf52840"
FLAGS = ("-std=c99", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-ffp-contract=off")
SANITIZE = ("-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
"""Without optimisation, which takes half of the time to compile."""


@dataclass(frozen=True)
class Model:
    """A model brought to annotated, ordered poet IR, with its arguments and XLA's results."""

    name: str
    module: ModuleOp
    arguments: list[np.ndarray]
    expected: list[np.ndarray]

    def options(self, arena_bytes: int | None = None, **changes) -> ScheduleOptions:
        """Options for quick tests: any schedule within 5% of the best, or found soon, will do."""
        settings = {"gap": 0.05, "device": load_device(DEVICE)} | changes
        if not settings.keys() & {"time_limit_s", "stop", "clock"}:
            settings |= of_work(1.0)
        return ScheduleOptions(budget=Budget(arena_bytes), **settings)

    def least_ram_bytes(self) -> int:
        """The least arena budget known to work."""
        problem = problem_view(graphs(self.module)[0], self.options(1)).problem
        least = least_ram(Instance(problem)).known
        assert least is not None
        return least

    def schedule(self, ram_bytes: int | None) -> tuple[ModuleOp, ScheduleReport]:
        """A scheduled copy of the module, with offsets."""
        module = self.module.clone()
        report = schedule_and_plan(graphs(module)[0], self.options(ram_bytes))
        return module, report


def prepare(name: str, arrange: bool = True, tiles: bool = False) -> Model:
    """`models/<name>.mlir` brought to the input of the scheduler; the caller's own copy. Loops of
    kernels stay as they are lowered unless `arrange`; with what `tiles` are made of."""
    model = _prepared(name, arrange, tiles)
    return replace(model, module=model.module.clone())


@cache
def _prepared(name: str, arrange: bool, tiles: bool) -> Model:
    return bring(name, read_model(name), *load_arrays(MODELS / f"{name}.npz"), arrange, tiles)


def bring(
    name: str,
    module: ModuleOp,
    arguments: list[np.ndarray],
    expected: list[np.ndarray],
    arrange: bool = True,
    tiles: bool = False,
) -> Model:
    """Bring a module that was just read to the input of the scheduler."""
    passes = front_passes(module, DEVICE, arrange=arrange, tiles=tiles)
    run_passes(make_context(), module, passes, lambda *_: None)
    return Model(name, module, arguments, expected)


def build(
    module: ModuleOp,
    directory: Path,
    *flags: str,
    compiler: str = "gcc",
    kernels: KernelCompiler | None = None,
) -> Path:
    """Emit C into `directory`, with assembly that a compiler makes of `kernels`, and build the
    example program."""
    emit(module, directory, compiler=kernels)
    sources = sorted((*directory.glob("*.c"), *directory.glob("*.s")))
    return build_c((compiler, *FLAGS, *flags), sources, directory / "program")


def run(
    program: Path, arguments: list[np.ndarray], like: list[np.ndarray], steps: int = 1
) -> list[np.ndarray]:
    """Run steps of a built program, and what `results_in` finds of them."""
    folder = program.parent
    data, storage = folder / "data", folder / "pages.bin"
    data.mkdir(exist_ok=True)
    for i, array in enumerate(arguments):
        (data / f"arg{i}.bin").write_bytes(np.ascontiguousarray(array).tobytes())
    layout = _layout(folder)
    if layout is not None:
        storage.write_bytes(pack(layout, {f"arg{i}": a for i, a in enumerate(arguments)}))
    done = subprocess.run([program, data, str(steps), storage], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return results_in(folder, arguments, like, storage)


def results_in(
    folder: Path, arguments: list[np.ndarray], like: list[np.ndarray], storage: Path
) -> list[np.ndarray]:
    """What a program in a folder has left in data/ and on its storage, with the shapes and types of
    `like`. A frozen argument that is returned is what it was."""
    stored: dict[int | None, np.ndarray] = {}
    if (layout := _layout(folder)) is not None:
        _, arrays = unpack(layout, storage.read_bytes())
        stored = {p.argument: a for p, a in zip(layout.tensors, arrays, strict=True)}

    def result(file: Path, place: ProgramTensor, array: np.ndarray) -> np.ndarray:
        if place.where == "storage":
            return stored[place.updates]
        if place.where == "frozen" and place.updates is not None:
            return arguments[place.updates]
        return np.frombuffer(file.read_bytes(), array.dtype).reshape(array.shape)

    places = read_tensors(folder).results[: len(like)]
    return [
        result(folder / "data" / f"out{i}.bin", place, array)
        for i, (place, array) in enumerate(zip(places, like, strict=True))
    ]


def _layout(folder: Path) -> ImageLayout | None:
    """Of the parameters on storage, if there are any."""
    image = read_tensors(folder).image
    return None if image is None else read_layout(folder / image)


def worst_error(got: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """Largest difference of all results of a step."""
    return max(differences(got, expected), default=0.0)
