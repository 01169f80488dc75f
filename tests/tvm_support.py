"""Helpers of the tests of the TVM backend. They are skipped where TVM is not installed."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
from compiled import Model
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from poetc.image import layout_of, pack, unpack
from poetc.ir.graph import graphs, tensor_bytes
from poetc.ir.poet import AnyPageIn, AnyPageOut, ComputeOp
from poetc.passes.poet_schedule import schedule_and_plan

tvm = pytest.importorskip("tvm", reason="the TVM backend is optional: pip install 'poetc[tvm]'")

from poetc.backends.tvm.build import compile_graph, compile_module, machine  # noqa: E402
from poetc.backends.tvm.module import relax_module  # noqa: E402
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


def compiled(module: ModuleOp, *, plain: bool = False):
    """The executable of a scheduled module for this machine; loops as they are written if plain."""
    if plain:
        return compile_module(relax_module(module), machine())
    return compile_graph(module, machine())


def fresh_store(module: ModuleOp, arguments: Sequence[np.ndarray]) -> MemoryStore:
    """A store with nothing good in it but the parameters that begin there."""
    graph = graphs(module)[0]
    layout = layout_of(graph)
    content = bytes([FILL]) * (graph.storage_bytes or 0)
    if layout is not None:
        named = {f"arg{p.argument}": arguments[p.argument] for p in layout.parameters}
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
            if not place.is_param:
                self.step.write(i, self.arguments[i])
        self.step.run()
        assert (self.memory[self.arena_bytes :] == FILL).all(), "written behind the arena"
        stored: dict[int, np.ndarray] = {}
        if self.layout is not None:
            _, arrays = unpack(self.layout, self.store.data)
            stored = {p.argument: a for p, a in zip(self.layout.parameters, arrays, strict=True)}
        return [
            self.step.read(i) if place.where != "storage" else stored[place.updates or 0]
            for i, place in enumerate(self.step.program.results)
        ]


def bits(arrays: Sequence[np.ndarray]) -> list[bytes]:
    return [array.tobytes() for array in arrays]


def planned_traffic(module: ModuleOp) -> tuple[int, int, int, int]:
    """Pages in and out, and their bytes, as the graph says."""
    ops = list(graphs(module)[0].block.ops)
    ins = [tensor_bytes(op.tensor.type) for op in ops if isinstance(op, AnyPageIn)]
    outs = [tensor_bytes(op.tensor.type) for op in ops if isinstance(op, AnyPageOut)]
    return len(ins), len(outs), sum(ins), sum(outs)


def planned_calls(module: ModuleOp) -> list[str]:
    """What the step does in order: kernels by name, pages."""

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

    calls = (call(op) for op in graphs(module)[0].block.ops)
    return [name for name in calls if name is not None]


def machine_text(executable) -> str:
    """The instructions of the virtual machine."""
    return executable.as_text()


def compiled_calls(executable) -> list[str]:
    """The same, from the instructions of the virtual machine."""
    text = machine_text(executable).split("@step:")[1].split("\n@")[0]
    names = re.findall(r"^\s+call\s+(\S+)", text, re.MULTILINE)
    return [name for name in names if name.startswith(("kernel_", "poetc."))]
