"""Page-ins beside a data cache that the DMA does not go through: what is forgotten with a line of
the cache must have bytes of nobody else. The cache is `cache_store.c`; its lines have 32 bytes."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from c_support import compile_c, load_library
from compiled import DEVICE, Model, prepare
from conftest import more
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from random_poet import poet_graphs
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64

from poetc.backends.c.emit import emit, generate
from poetc.backends.c.runtime_files import RUNTIME, on_lines
from poetc.backends.plan.source import PlanExecutor
from poetc.costmodel.device import Device, load_device
from poetc.errors import InputError
from poetc.image import layout_of, pack, unpack
from poetc.ir.graph import graphs
from poetc.ir.poet import GraphOp, PageInOp, PageInStartOp, offset_of
from poetc.passes.poet_verify import verify_graph
from poetc.passes.poet_verify.messages import VerificationError
from poetc.planning.memory import plan_graph_memory
from poetc.planning.plan import schedule_and_plan
from poetc.planning.report import ScheduleReport

HERE = Path(__file__).parent
LINE = 32
MODELS = {
    "gesture_mlp": 0.8,
    "kws_conv": 0.7,
    "mlp_mnist": 0.95,
    "ae_mnist": 0.95,
    "lenet5": 0.9,
    "resnet8": 0.6,
}
"""With the share of the RAM of the unlimited program that they are scheduled for."""


def device(line_bytes: int) -> Device:
    return replace(load_device(DEVICE), cache_line_bytes=line_bytes)


def scheduled(model: Model, unlimited: ScheduleReport, line_bytes: int) -> ModuleOp:
    """A schedule in less RAM than the unlimited program has, with parameters on storage."""
    module = model.module.clone()
    options = model.options(
        int(MODELS[model.name] * unlimited.use.peak_bytes),
        params="storage",
        strategy="paging-only",  # as fast as it is the same everywhere
        device=device(line_bytes),
    )
    schedule_and_plan(graphs(module)[0], options)
    return module


class Program:
    """A program with its pages on a store with DMA beside a cache."""

    def __init__(self, module: ModuleOp, model: Model, directory: Path) -> None:
        self.graph = graphs(module)[0]
        emit(module, directory)
        sources = [p for p in directory.glob("*.c") if p.name != "main.c"]
        flags = ("-O1", f"-I{directory}", f"-I{HERE}")
        library = load_library([*sources, HERE / "cache_store.c"], directory / "m.so", flags=flags)
        library.model_argument.restype = library.model_result.restype = ctypes.c_void_p
        self.library, self.model = library, model
        self.layout = layout_of(self.graph)
        content = bytes(self.graph.storage_bytes or 0)
        if self.layout is not None:
            stored = [model.arguments[p.argument] for p in self.layout.tensors]
            content = pack(self.layout, stored)
        self.content = ctypes.create_string_buffer(content, max(1, len(content)))
        self.memory, self.cache = (ctypes.create_string_buffer(64) for _ in range(2))
        library.poetc_memory_store_init(self.memory, self.content, len(content))
        library.cache_store_open(self.cache, self.memory)

    def run(self) -> tuple[int, list[bytes]]:
        """The status of a step, and its results, wherever they are."""
        for i, array in enumerate(self.model.arguments):
            if not self.graph.is_stored(i):
                data = np.ascontiguousarray(array).tobytes()
                ctypes.memmove(self.library.model_argument(i), data, len(data))
        status = self.library.model_step(self.cache)
        if status != 0:
            return status, []
        stored: dict[int | None, bytes] = {}
        if self.layout is not None:
            _, arrays = unpack(self.layout, self.content.raw)
            for parameter, array in zip(self.layout.tensors, arrays, strict=True):
                stored[self.graph.updates(parameter.argument)] = array.tobytes()
        results: list[bytes] = []
        for i in range(len(self.graph.return_op.arguments)):
            size = self.library.model_result_bytes(i)
            results.append(
                stored[i] if i in stored else ctypes.string_at(self.library.model_result(i), size)
            )
        return status, results

    @property
    def read(self) -> int:
        """Page-ins that were done beside the processor."""
        return ctypes.c_uint32.from_buffer(self.cache, 2 * ctypes.sizeof(ctypes.c_void_p)).value


went_wrong: dict[str, bool] = {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["gesture_mlp", *more("kws_conv", "ae_mnist", "mlp_mnist", "lenet5", "resnet8")]
)
def test_models(name: str, tmp_path: Path) -> None:
    """With whole lines the bits are those of the unlimited program."""
    model = prepare(name)
    kept, unlimited = model.schedule(None)
    status, expected = Program(kept, model, tmp_path / "unlimited").run()
    assert status == 0
    module = scheduled(model, unlimited, LINE)
    graph = graphs(module)[0]
    verify_graph(graph)
    assert graph.cache_line_bytes == LINE
    program = Program(module, model, tmp_path / "lines")
    assert program.run() == (0, expected) and program.read > 0
    # As if there was no cache.
    words = Program(scheduled(model, unlimited, 4), model, tmp_path / "words")
    went_wrong[name] = words.run() != (0, expected)


def test_without_whole_lines_models_are_wrong() -> None:
    """So the cache is one, and the steps are such that it matters."""
    if went_wrong:
        assert sum(went_wrong.values()) >= len(went_wrong) // 2, went_wrong


def overlapped(line_bytes: int) -> GraphOp:
    model = prepare("gesture_mlp")
    return graphs(scheduled(model, model.schedule(None)[1], line_bytes))[0]


def test_what_the_verifier_says_of_a_plan_without_lines() -> None:
    graph = overlapped(4)
    assert graph.cache_line_bytes is None
    verify_graph(graph)
    graph.attributes["cache_line_bytes"] = IntegerAttr(LINE, i64)
    with pytest.raises(VerificationError, match="cache line"):
        verify_graph(graph)
    plan_graph_memory_again(graph)
    verify_graph(graph)
    page_ins = [op for op in graph.block.ops if isinstance(op, PageInOp | PageInStartOp)]
    assert page_ins
    for op in page_ins:
        assert (offset_of(op.tensor) or 0) % LINE == 0


def plan_graph_memory_again(graph: GraphOp) -> None:
    """By itself, the pass takes the line from the graph."""
    del graph.attributes["ram"]
    before = graph.storage_bytes
    plan_graph_memory(graph)
    assert graph.storage_bytes == before  # pages are no longer for it


@pytest.mark.slow
def test_a_page_in_moved_towards_its_neighbour_is_refused() -> None:
    """A place that is free, but on a line of which somebody else has bytes."""
    graph = overlapped(LINE)
    verify_graph(graph)
    messages: list[str] = []
    for op in graph.block.ops:
        if not isinstance(op, PageInStartOp | PageInOp):
            continue
        assert op.offset is not None
        place = op.offset
        for move in (-LINE, -4, 4, LINE):
            op.offset = IntegerAttr(place.value.data + move, i64)
            try:
                verify_graph(graph)
            except VerificationError as error:
                messages.append(error.message)
        op.offset = place
    assert any("shares a cache line with" in message for message in messages)


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(poet_graphs("split"), st.sampled_from([8, 16, 32, 64]))
def test_plans_of_random_graphs_keep_to_the_lines(graph: GraphOp, line_bytes: int) -> None:
    page_ins = [op for op in graph.block.ops if isinstance(op, PageInOp | PageInStartOp)]
    assume(page_ins)
    del graph.attributes["ram"]
    try:
        plan_graph_memory(graph)
    except InputError:
        assume(False)  # a tensor is paged in while it is there, which no schedule does
    storage = graph.storage_bytes
    graph.attributes["cache_line_bytes"] = IntegerAttr(line_bytes, i64)
    plan_graph_memory(graph)
    verify_graph(graph)
    assert graph.storage_bytes == storage
    assert all((offset_of(op.tensor) or 0) % line_bytes == 0 for op in page_ins)


def test_the_record_of_a_transfer(tmp_path: Path) -> None:
    """The DMA writes the trailer: its line has nothing else, and a record has whole lines."""
    header = (RUNTIME / "poetc_store.h").read_text()
    (tmp_path / "poetc_store.h").write_text(on_lines(header, LINE))
    (tmp_path / "poetc_version.h").write_text((RUNTIME / "poetc_version.h").read_text())
    (tmp_path / "record.c").write_text(
        f"""
#include "poetc_store.h"
#include <stddef.h>
typedef char begins[offsetof(poetc_transfer, trailer) % {LINE} == 0 ? 1 : -1];
typedef char alone[offsetof(poetc_transfer, offset) == {LINE} ? 1 : -1];
typedef char whole[sizeof(poetc_transfer) % {LINE} == 0 ? 1 : -1];
extern begins *a; extern alone *b; extern whole *c;
int aligned(void);
int aligned(void)
{{
    poetc_transfer transfer[2];
    return (int)((uintptr_t)&transfer[1] % {LINE}u);
}}
"""
    )
    compile_c([tmp_path / "record.c"], tmp_path / "record.o", flags=("-c", "-O2"))


def test_plans_are_refused() -> None:
    """What a device is sent is checked there, where nothing is known of lines."""
    graph = overlapped(LINE)
    module = graph.parent_op()
    assert isinstance(module, ModuleOp)
    with pytest.raises(InputError, match="--executor=code"):
        generate(module, executor=PlanExecutor())
