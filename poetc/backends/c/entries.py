"""Other entry points of a model: functions like its step that read the step's parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import ModuleOp

from poetc.backends.c.layout import TensorPlace, argument_places
from poetc.backends.c.printer import print_function
from poetc.backends.c.program import Kernel
from poetc.backends.c.scheduled import ScheduledProgram
from poetc.budget import Budget
from poetc.ir.poet import GraphOp
from poetc.tensors import EntryTensors


@dataclass(frozen=True)
class EntryPoint:
    """An entry point: its scheduled and planned graph, the one of its module. `parameters` gives,
    by the number of an argument, the argument of the step that it is."""

    name: str
    module: ModuleOp
    graph: GraphOp
    parameters: Mapping[int, int]


class EntryProgram(ScheduledProgram):
    """The text of one entry point, which is in the files of the step and shares its arena."""

    def __init__(self, entry: EntryPoint, step: ScheduledProgram) -> None:
        budget = Budget(None, step.static_bytes, step.stack_bytes)
        name = f"{step.name}_{entry.name}"
        super().__init__(entry.module, entry.graph, name, budget, instances=step.instances)
        self.parameters = entry.parameters
        self.model, self.function = step.model, self.name
        for i, j in entry.parameters.items():
            place, argument = step.arguments[j], entry.graph.arguments[i]
            if place.in_arena:
                self.callers[argument] = step.at(place.offset)
            elif j in step.frozen:
                self.callers[argument] = step.frozen_name(j)
        self.arguments = entry_arguments(entry, step.arguments)
        self.has_pointers = any(p.of_caller for p in (*self.arguments, *self.results))
        # Kernels of the step, or of an entry before, that do the same are not printed again.
        signatures = {_text(kernel): kernel.signature for kernel in reversed(step.kernels)}
        self.kernels = [
            replace(kernel, signature=signatures.get(_text(kernel), kernel.signature))
            for kernel in self.kernels
        ]
        self.by_symbol = {k.function.sym_name.data: k for k in self.kernels}

    def entry_tensors(self) -> EntryTensors:
        """Arguments and results as data."""
        return EntryTensors(
            self.function,
            self.described(self.arguments),
            self.described(self.results),
            tuple(self.parameters.get(i) for i in range(len(self.arguments))),
            self.arena_bytes,
        )


def entry_arguments(entry: EntryPoint, of_step: Sequence[TensorPlace]) -> tuple[TensorPlace, ...]:
    """The arguments of an entry point; those that are the step's are where they are `of_step`."""
    return tuple(
        of_step[entry.parameters[i]] if i in entry.parameters else place
        for i, place in enumerate(argument_places(entry.graph))
    )


def _text(kernel: Kernel) -> str:
    """The C of a kernel without its own name: equal for kernels that do the same."""
    return print_function(kernel.function, replace(kernel.signature, name="kernel"))


def add_entries(program: ScheduledProgram, entries: tuple[EntryPoint, ...]) -> None:
    """Adds entry points to the program of a step, whose arena and storage are for all then."""
    for entry in entries:
        added = EntryProgram(entry, program)
        program.entries = (*program.entries, added)
        known = {kernel.signature.name for kernel in program.kernels}
        program.kernels += [k for k in added.kernels if k.signature.name not in known]
        program.names = {**program.names, **added.names}
        program.arena_bytes = max(program.arena_bytes, added.arena_bytes)
        program.storage_bytes = max(program.storage_bytes, added.storage_bytes)
        program.alignment = max(program.alignment, added.alignment)
    budget = Budget(None, program.static_bytes, program.stack_bytes)
    program.ram_bytes = budget.used_bytes(program.arena_bytes)
