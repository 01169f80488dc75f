"""Chooses how the loops of hot kernels run by measuring, with TVM's MetaSchedule.

MetaSchedule's own rules are out of the question: they need kernels as blocks, which loop nests with
guards and carried values are not, and they reorder sums, which changes bits. So it is given a
stand-in for each kernel: a PrimFunc with the same parameters and one block, which its traces
annotate with a `Choice` (tiling.py). A choice concerns parallel loops only. The kernel is built
from the choice and measured, and the trace stored in MetaSchedule's database, whose files are
`database_workload.json` and `database_tuning_record.json`. All choices have the same bits.

Traces are sampled here, not by MetaSchedule's search: to start that takes half a minute, and
without rules of its own it would not do more.
"""

# TVM's annotations are narrower than what it takes.
# pyright: reportArgumentType=false, reportReturnType=false
from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import ir, tirx
from tvm.s_tir import SBlock, SBlockRealize, Schedule
from tvm.s_tir import meta_schedule as ms
from xdsl.dialects.builtin import MemRefType, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.utils.hints import isa

from poetc.backends.c.buffers import kernel_symbol
from poetc.backends.c.printer import tables_of
from poetc.backends.tvm import pipeline
from poetc.backends.tvm.build import Machine
from poetc.backends.tvm.primfunc import prim_func
from poetc.backends.tvm.scalars import element_dtype
from poetc.backends.tvm.tiles import elements_of
from poetc.backends.tvm.tiling import Alternatives, Choice, arrange
from poetc.errors import InputError
from poetc.ir.graph import graphs
from poetc.ir.symbols import named_in
from poetc.kernels.analysis import work

WORTH = 0.01
"""Kernels with less than this share of the step's float operations are not tuned."""
PROMISING = 3.0
"""Choices that cost more than so many times the rule's, in the model, are not measured."""
MEASURED_S = 0.1
"""Seconds for each choice."""
ATTEMPTS = 10_000
"""Choices that are made at random, at most; few are promising."""
BLOCK = "kernel"
MAIN = "main"


class Tuning:
    """The records of a directory, for one machine."""

    def __init__(self, directory: str, on: Machine) -> None:
        """Makes the directory if there is none. Raises InputError if its files are no records."""
        self.on, self.directory = on, Path(directory)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.database = ms.database.JSONDatabase(work_dir=str(self.directory))
        except OSError as error:
            raise InputError(f"--tuning={directory}: {error.strerror}") from error
        except (RuntimeError, ValueError) as error:
            raise InputError(f"--tuning={directory}: not records of MetaSchedule") from error

    def choice(self, function: FuncOp) -> Choice | None:
        """The fastest that was measured for a kernel, None if none was."""
        workload = self.workload(function)
        if not self.database.has_workload(workload):
            return None
        records = self.database.get_top_k(self.database.commit_workload(workload), 1)
        if not records:
            return None
        schedule = Schedule(workload)
        records[0].trace.apply_to_schedule(schedule, remove_postproc=True)
        choice = _choice_of(schedule.mod)
        if Alternatives(function, self.on.vectors).cost(choice) == float("inf"):
            raise InputError(
                f"--tuning={self.directory}: the records are of another version of poetc"
            )
        return choice

    def workload(self, function: FuncOp) -> ir.IRModule:
        """The stand-in for a kernel on this machine."""
        return ir.IRModule({MAIN: _stand_in(function, self.on)})

    def tune(self, functions: Sequence[FuncOp], trials: int) -> None:
        """Measures so many choices for each kernel, the rule's among them, and records them."""
        for function in functions:
            workload = self.workload(function)
            entry = self.database.commit_workload(workload)
            about = ms.arg_info.ArgInfo.from_entry_func(workload, remove_preproc=False)
            for schedule in _samples(workload, Alternatives(function, self.on.vectors), trials):
                seconds = self._seconds(function, _choice_of(schedule.mod))
                record = ms.database.TuningRecord(
                    schedule.trace, entry, [seconds], self.on.target, about
                )
                self.database.commit_tuning_record(record)

    def _seconds(self, function: FuncOp, choice: Choice) -> float:
        """The least time of a run, of several, on buffers full of ones."""
        arranged, tiling = arrange(function, self.on.vectors, choice)
        module = ir.IRModule({MAIN: prim_func(arranged, MAIN, tiling=tiling)})
        pipeline.register()
        library = tvm.tirx.build(module, target=self.on.target, pipeline=pipeline.NAME)
        run = library[MAIN]
        arguments: list[Any] = []
        for argument in function.body.block.args:
            assert isa(argument.type, MemRefType)
            dtype = element_dtype(argument.type.element_type)
            arguments.append(tvm.runtime.tensor(np.ones(elements_of(argument.type), dtype)))
        least, spent = float("inf"), 0.0
        while spent < MEASURED_S:
            started = time.perf_counter()
            run(*arguments)
            took = time.perf_counter() - started
            least, spent = min(least, took), spent + took
        return least


def hot_kernels(module: ModuleOp, on: Machine) -> list[FuncOp]:
    """The kernels of a graph that take much of its time and have something to choose."""
    functions = named_in(module, FuncOp)
    (graph,) = graphs(module)
    flops: dict[str, int] = {}
    for compute in graph.computes:
        symbol = kernel_symbol(compute)
        flops[symbol] = flops.get(symbol, 0) + work(functions[symbol]).flops
    hot = [s for s, count in flops.items() if count >= WORTH * sum(flops.values())]
    found: dict[str, FuncOp] = {}
    for symbol in sorted(hot, key=lambda symbol: -flops[symbol]):
        function = functions[symbol]
        # A table may hold places to load from, and tuning fills buffers with anything.
        if Alternatives(function, on.vectors).any and not tables_of(function):
            found.setdefault(_identity(function), function)
    return list(found.values())


def _identity(function: FuncOp) -> str:
    """A number for what a kernel does, whatever it is called."""
    nameless = function.clone()
    nameless.sym_name = StringAttr(MAIN)
    return hashlib.sha256(str(nameless).encode()).hexdigest()


def _stand_in(function: FuncOp, on: Machine) -> tirx.PrimFunc:
    made: Any = prim_func(function, MAIN)
    nothing = tirx.Evaluate(tirx.IntImm("int32", 0))
    inner = SBlockRealize([], True, SBlock([], [], [], BLOCK, nothing))
    body = SBlockRealize([], True, SBlock([], [], [], "root", inner))
    stands = tirx.PrimFunc(made.params, body).with_attr("global_symbol", MAIN)
    vectors = f"{on.vectors.registers} of {on.vectors.lanes}"
    about = f"{_identity(function)} for {on.target} with vectors {vectors}"
    return stands.with_attr("poetc.kernel", about)


def _samples(workload: ir.IRModule, alternatives: Alternatives, count: int) -> Iterator[Schedule]:
    """A stand-in annotated with the rule's choice, then with others that are promising: at most
    `count` in all, no two the same, and every time the same ones."""
    rule = alternatives.rule
    limit = PROMISING * alternatives.cost(rule)
    lanes = [(0, 1) if may else (0,) for may in alternatives.lanes]
    seen: set[Choice] = set()
    for seed in range(ATTEMPTS):
        schedule = Schedule(workload, seed=1 + seed)
        block = schedule.get_sblock(BLOCK)
        by_rule = [[[int(i in rule.lanes)] for i in range(len(lanes))], [[c] for c in rule.copies]]
        options = by_rule if seed == 0 else [lanes, alternatives.copies]
        for kind, numbers_of in zip(("lanes", "copies"), options, strict=True):
            for i, numbers in enumerate(numbers_of):
                even = [1.0 / len(numbers)] * len(numbers)
                number = schedule.sample_categorical([*numbers], even)
                schedule.annotate(block, f"{kind}{i}", number)
        choice = _choice_of(schedule.mod)
        if choice not in seen and (seed == 0 or alternatives.cost(choice) <= limit):
            seen.add(choice)
            yield schedule
            if len(seen) == count:
                return


def _choice_of(module: ir.IRModule) -> Choice:
    """The choice that a stand-in is annotated with."""
    notes: Mapping[str, Any] = module[MAIN].body.block.body.block.annotations
    count = sum(key.startswith("copies") for key in notes)
    return Choice(
        tuple(i for i in range(count) if int(notes[f"lanes{i}"])),
        tuple(int(notes[f"copies{i}"]) for i in range(count)),
    )
