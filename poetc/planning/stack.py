"""How much stack a step takes, as far as that can be told before it is scheduled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import DictionaryAttr, ModuleOp

from poetc.backends.c.stack import StackUse, measure_stack, transfer_bytes
from poetc.errors import InputError
from poetc.ir.graph import graphs, write_schedule
from poetc.ir.transfers import FEW, most_under_way, split_at_once
from poetc.planning.memory import plan_graph_memory
from poetc.planning.problem import NO_LIMIT, ScheduleOptions, mark_cache_line, problem_view
from poetc.schedule.model.problem import Compute, Free, PageIn, PageOut, Place, Problem, Step
from poetc.schedule.solve import solve

if TYPE_CHECKING:
    from poetc.backends.c.boards import Board
    from poetc.backends.c.emit import Executor

SLACK_BYTES = 32
"""Bytes of stack that a step may take beyond those expected before it was scheduled."""


def expected_stack(
    module: ModuleOp,
    compiler: tuple[str, ...],
    options: ScheduleOptions,
    board: Board | None = None,
    executor: Executor | None = None,
) -> StackUse:
    """The stack of a step of the one graph of `module`, as far as can be told before scheduling.

    What a schedule decides is how many calls a step makes, and which kernels work in place. Two
    programs are measured: one with nothing but calls in place, and one with as many transfers as
    `options` may lead to. `SLACK_BYTES` are added for what is between them.
    """
    asked = replace(options, budget=NO_LIMIT, deadline_ns=None, ram_scope="all", params="ram")
    has_storage = options.device is not None and options.device.storage is not None
    limited = options.arena_bytes is not None
    store = options.params == "storage" or (options.params == "auto" and limited and has_storage)

    def measure(asked: ScheduleOptions, steps: Callable[[Problem], Sequence[Step]]) -> StackUse:
        copy = module.clone()
        (graph,) = graphs(copy)
        view = problem_view(graph, asked)
        write_schedule(view, steps(view.problem))
        # Of a graph where nothing is freed or moved, nothing else says so.
        graph.attributes.setdefault("schedule", DictionaryAttr({}))
        mark_cache_line(graph, options.device)
        plan_graph_memory(graph, options.align)
        if options.device is None or not options.device.dma or (board and not board.dma):
            return measure_stack(copy, compiler, board=board, executor=executor)
        split_at_once(graph)
        use = measure_stack(copy, compiler, board=board, executor=executor)
        more = FEW - 1 if most_under_way(graph) else 0
        return replace(use, bytes=use.bytes + more * transfer_bytes(graph))

    def most_transfers(problem: Problem) -> Sequence[Step]:
        return _with_most_transfers(problem, limited and options.paging)

    measured = [measure(asked, lambda problem: solve(problem, strategy="keep-all").steps)]
    if store:
        try:
            measured.append(measure(replace(asked, params="storage"), most_transfers))
        except InputError:
            # Not every graph can have its parameters on storage.
            store = False
    if not store:
        measured.append(measure(asked, most_transfers))
    most = max(measured, key=lambda use: use.bytes)
    return replace(most, bytes=most.bytes + SLACK_BYTES)


def _with_most_transfers(problem: Problem, paging: bool) -> tuple[Step, ...]:
    """Each operation once; with `paging` nothing stays in RAM that may be on storage."""
    tensors = problem.tensors
    ram = {v for v, tensor in enumerate(tensors) if tensor.start is Place.RAM}
    stored = {v for v, tensor in enumerate(tensors) if tensor.start is Place.STORAGE}
    last_use = [max(readers, default=-1) for readers in problem.readers()]
    steps: list[Step] = []

    def tidy(k: int) -> None:
        for v in sorted(ram):
            needed = last_use[v] > k or tensors[v].end is Place.RAM
            if needed and v not in stored and not (paging and tensors[v].pageable):
                continue
            if (needed or tensors[v].end is Place.STORAGE) and v not in stored:
                steps.append(PageOut(v))
                stored.add(v)
            steps.append(Free(v))
            ram.discard(v)

    def fetch(wanted: Iterable[int]) -> None:
        for v in wanted:
            if v not in ram:
                steps.append(PageIn(v))
                ram.add(v)

    for k, operation in enumerate(problem.operations):
        fetch(operation.inputs)
        replaced = {v: old for v in operation.outputs if (old := tensors[v].replaces) is not None}
        steps.append(Compute(k, tuple(replaced.items())))
        ram.difference_update(replaced.values())
        ram.update(operation.outputs)
        tidy(k)
    fetch(v for v, tensor in enumerate(tensors) if tensor.end is Place.RAM)
    return tuple(steps)
