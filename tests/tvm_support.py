"""Helpers of the tests of the TVM backend. They are skipped where TVM is not installed."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compiled import DEVICE, Model, prepare, worst_error
from conftest import MODELS, read_model
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from poetc.compare import floor
from poetc.costmodel.device import load_device
from poetc.driver import compile_module as schedule_module
from poetc.image import layout_of, pack, unpack
from poetc.ir.graph import graphs, tensor_bytes
from poetc.ir.poet import AnyPageIn, AnyPageOut, ComputeOp
from poetc.ir.text import make_context, parse_module
from poetc.pipeline import front_passes, run_passes
from poetc.planning.plan import schedule_and_plan
from poetc.planning.problem import problem_view
from poetc.request import Options
from poetc.schedule.model.instance import Instance
from poetc.schedule.search.infeasibility import least_ram

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.arguments import arguments_of, update_error
from tests.models.make_results import xla_results

tvm = pytest.importorskip("tvm", reason="the TVM backend is optional: pip install 'poetc[tvm]'")

from poetc.backends.tvm.build import (  # noqa: E402
    Machine,
    compile_graph,
    compile_module,
    host_options,
    machine,
)
from poetc.backends.tvm.module import relax_module  # noqa: E402
from poetc.backends.tvm.program import Program  # noqa: E402
from poetc.backends.tvm.runner import Step, aligned  # noqa: E402
from poetc.backends.tvm.stores import MemoryStore  # noqa: E402

MARGIN = 4096
"""Bytes behind the arena that a program must leave alone."""

FILL = 0xA5


def scheduled(model: Model, ram_bytes: int | None, **changes) -> ModuleOp:
    """A scheduled copy of the module."""
    module = model.module.clone()
    schedule_and_plan(graphs(module)[0], model.options(ram_bytes, **changes))
    return module


def within(name: str, ram_bytes: int | None) -> ModuleOp:
    """A model as the command line schedules it in so many bytes of arena, quickly: parameters in
    RAM where there is room, else on storage."""
    options = Options(load_device(DEVICE), DEVICE, ram_bytes, time_limit_s=20.0, gap=0.5)
    return schedule_module(make_context(), read_model(name), options).module


def training_step(name: str) -> Model:
    """A model with its arguments and XLA's results: those beside it, or made here."""
    if (MODELS / f"{name}.npz").exists():
        return prepare(name)
    text = (MODELS / f"{name}.mlir").read_text()
    module = parse_module(text, name)
    passes = front_passes(module, DEVICE, arrange=False)
    run_passes(make_context(), module, passes, lambda *_: None)
    arguments = arguments_of(name, text)
    return Model(name, module, arguments, xla_results(text, arguments))


def least_arena_bytes(step: Model) -> int:
    """The least that there is a schedule for with whole parameters."""
    found: list[int] = []
    for params in ("ram", "storage"):
        problem = problem_view(graphs(step.module)[0], step.options(1, params=params)).problem
        known = least_ram(Instance(problem)).known
        assert known is not None
        found.append(known)
    return min(found)


def budgets(step: Model, unlimited: ModuleOp) -> dict[str, int]:
    """Bytes of arena: 60% and 40% of what the step takes when it is not limited, and the least."""
    arena_bytes = graphs(unlimited)[0].arena_bytes
    assert arena_bytes is not None
    percent = arena_bytes // 100
    return {"60%": 60 * percent, "40%": 40 * percent, "least": least_arena_bytes(step)}


def compiled(module: ModuleOp, *, plain: bool = False):
    """The executable of a scheduled module for this machine. If plain, loops run as they are
    written and LLVM does not optimise: that is made soon, is slow, and has the same bits."""
    if not plain:
        return compile_graph(module, machine())
    return compile_module(relax_module(module), _unoptimised())


def _unoptimised() -> Machine:
    on = machine()
    return replace(on, target=tvm.target.Target(host_options() | {"opt-level": 0}))


def fresh_store(module: ModuleOp, arguments: Sequence[np.ndarray]) -> MemoryStore:
    """A store with nothing good in it but the parameters that begin there."""
    graph = graphs(module)[0]
    layout = layout_of(graph)
    content = bytes([FILL]) * (graph.storage_bytes or 0)
    if layout is not None:
        named = {f"arg{p.argument}": arguments[p.argument] for p in layout.tensors}
        image = pack(layout, named)
        content = image[: layout.parameters_end] + content[layout.parameters_end :]
    return MemoryStore(content)


class Run:
    """A program with guarded memory and a fresh store, and what its steps did."""

    def __init__(self, module: ModuleOp, executable, arguments: Sequence[np.ndarray]) -> None:
        self.graph = graphs(module)[0]
        self.layout = layout_of(self.graph)
        assert self.graph.arena_bytes is not None
        self.arena_bytes = (self.graph.arena_bytes + 3) // 4 * 4
        self.memory = aligned(self.arena_bytes + MARGIN)
        self.memory[:] = FILL
        self.store = fresh_store(module, arguments)
        self.step = Step(executable, self.store, self.memory[: self.arena_bytes])
        self.arguments = arguments
        self.step.write_all(arguments)

    def run(self) -> list[np.ndarray]:
        """One step on the arguments; all results, from RAM and from storage."""
        for i, place in enumerate(self.step.program.arguments):
            if not place.parameter:
                self.step.write(i, self.arguments[i])
        self.step.run()
        assert (self.memory[self.arena_bytes :] == FILL).all(), "written behind the arena"
        stored: dict[int, np.ndarray] = {}
        if self.layout is not None:
            _, arrays = unpack(self.layout, self.store.data)
            stored = {p.argument: a for p, a in zip(self.layout.tensors, arrays, strict=True)}
        return [
            self.step.read(i) if place.where != "storage" else stored[place.updates or 0]
            for i, place in enumerate(self.step.program.results)
        ]


def broken_promises(module: ModuleOp, executable, program: Run, ram_bytes: int | None) -> list[str]:
    """What a program that has done one step has done otherwise than its schedule says."""
    broken: list[str] = []

    def expect(what: str, found: object, planned: object) -> None:
        if found != planned:
            broken.append(f"{what}: {found}, not {planned} as planned")

    graph = graphs(module)[0]
    expect("calls", compiled_calls(executable), planned_calls(module))
    expect("allocations of the virtual machine", "alloc_" in machine_text(executable), False)
    expect("bytes of arena", program.step.program.arena_bytes, graph.arena_bytes)
    written = np.flatnonzero(program.memory != FILL)
    expect("bytes of memory up to the last that was written", written[-1] + 1, graph.arena_bytes)
    fits = ram_bytes is None or (graph.arena_bytes or 0) <= ram_bytes
    expect(f"arena within {ram_bytes} bytes", fits, True)
    moved = program.step.pager.traffic
    traffic = (moved.pages_in, moved.pages_out, moved.bytes_in, moved.bytes_out)
    expect("pages in and out, and their bytes", traffic, planned_traffic(module))
    return broken


def largest_error(step: Model, results: Sequence[np.ndarray]) -> float:
    """The largest difference of the results from XLA's."""
    return worst_error(list(results), step.expected)


def largest_update_error(step: Model, results: Sequence[np.ndarray], program: Program) -> float:
    """The same of what the step adds to its parameters, which is small beside them: relative to the
    largest change of each parameter, without what rounding the new parameter explains."""
    at_least = floor(step.expected)
    return max(
        update_error(step.arguments[place.updates], got, expected, at_least)
        for place, got, expected in zip(program.results, results, step.expected, strict=True)
        if place.updates is not None
    )


def bits(arrays: Sequence[np.ndarray]) -> list[bytes]:
    return [array.tobytes() for array in arrays]


def planned_traffic(module: ModuleOp) -> tuple[int, int, int, int]:
    """Pages in and out, and their bytes, as the graph says."""
    ops = list(graphs(module)[0].block.ops)
    ins = [tensor_bytes(op.tensor.type) for op in ops if isinstance(op, AnyPageIn)]
    outs = [tensor_bytes(op.tensor.type) for op in ops if isinstance(op, AnyPageOut)]
    return len(ins), len(outs), sum(ins), sum(outs)


def planned_calls(module: ModuleOp) -> list[str]:
    """What the step does in order: kernels by name, pages, the image around them."""

    def call(op: Operation) -> str | None:
        match op:
            case ComputeOp():
                assert op.kernel is not None
                return f"kernel_{op.kernel.root_reference.data}"
            case _ if isinstance(op, AnyPageOut):
                return "poetc.page_out"
            case _ if isinstance(op, AnyPageIn):
                return "poetc.page_in"
        return None

    graph = graphs(module)[0]
    calls = [name for name in map(call, graph.block.ops) if name is not None]
    if layout_of(graph) is not None:
        return ["poetc.image_open", *calls, "poetc.image_commit"]
    return calls


def machine_text(executable) -> str:
    """The instructions of the virtual machine."""
    return executable.as_text()


def compiled_calls(executable) -> list[str]:
    """The same, from the instructions of the virtual machine."""
    text = machine_text(executable).split("@step:")[1].split("\n@")[0]
    names = re.findall(r"^\s+call\s+(\S+)", text, re.MULTILINE)
    return [name for name in names if name.startswith(("kernel_", "poetc."))]
