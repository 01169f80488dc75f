"""Executes a poet.graph the way a device with explicit residence does.

Residence, the peak and the traffic are tracked from the operations as they run, sharing nothing
with the scheduler, its checker or the memory planner, so that their mistakes show here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from poetc.interpreter.functions import (
    InterpreterError,
    check_arguments,
    run_block,
)
from poetc.interpreter.memory import (
    Bytes,
    Memory,
    Pages,
    Separate,
    bytes_of,
    describe,
    name_of,
    offset_in,
    padded,
    poisoned,
)
from poetc.interpreter.streams import run_stream
from poetc.ir import poet
from poetc.ir.locations import source_location
from poetc.ir.stablehlo.base import Array


@dataclass(frozen=True)
class Run:
    """The results of one execution of a graph, and counts of its transfers and recomputes.

    `peak_bytes` is the most RAM in use at once, reached at `peak_at`: tensors in RAM plus, during a
    compute, its results and workspace less the operands whose buffers its results take over, each
    in whole words.
    `recomputes` counts computes that repeated an earlier one on the same operands.
    """

    results: list[Array]
    peak_bytes: int
    peak_at: str
    page_ins: int
    page_in_bytes: int
    page_outs: int
    page_out_bytes: int
    recomputes: int


@dataclass
class Machine:
    """RAM, storage and the counters while a graph runs."""

    ram: Memory
    storage: Memory
    ram_bytes: int | None
    # In buffers of the caller: no part of RAM.
    callers: frozenset[SSAValue] = frozenset()
    outside: Memory = field(default_factory=Separate)
    # New values of parameters -> how far the new page is from the old one.
    banked: dict[SSAValue, int] = field(default_factory=dict)
    # Transfers that have not been waited for, the oldest first, with what they move.
    under_way: dict[poet.PageOutStartOp | poet.PageInStartOp, Array] = field(default_factory=dict)
    resident: dict[SSAValue, int] = field(default_factory=dict)
    ended_by: dict[SSAValue, str] = field(default_factory=dict)
    offsets: dict[SSAValue, int | None] = field(default_factory=dict)
    in_use: int = 0
    peak_bytes: int = 0
    peak_at: str = "start"
    page_ins: int = 0
    page_in_bytes: int = 0
    page_outs: int = 0
    page_out_bytes: int = 0
    recomputes: int = 0
    # Equal numbers are equal tensors, whichever stay in RAM or on storage holds them.
    numbers: dict[SSAValue, int] = field(default_factory=dict)
    executed: dict[tuple[Any, ...], list[tuple[poet.RunOp, list[int]]]] = field(
        default_factory=dict
    )

    def begin(self, value: SSAValue, array: Array, offset: int | None, number: int | None) -> None:
        """The stay of a tensor in RAM, or of a page on storage, begins."""
        self.numbers[value] = len(self.numbers) if number is None else number
        self.offsets[value] = offset
        if isinstance(value.type, poet.PageType):
            self.storage.write(value, array, offset)
            return
        self.memory(value).write(value, array, offset)
        self.resident[value] = self.size(value)
        self.in_use += self.resident[value]

    def memory(self, value: SSAValue) -> Memory:
        """Where a tensor is."""
        return self.outside if value in self.callers else self.ram

    def size(self, value: SSAValue) -> int:
        """RAM that a tensor occupies."""
        return 0 if value in self.callers else padded(bytes_of(value.type))

    def need(self, extra: int, where: str) -> None:
        """Counts `extra` bytes beside the resident tensors."""
        used = self.in_use + extra
        if self.ram_bytes is not None and used > self.ram_bytes:
            raise InterpreterError(f"{where} needs {used} bytes of RAM, {self.ram_bytes} allowed")
        if used > self.peak_bytes:
            self.peak_bytes, self.peak_at = used, where

    def touch(self, op: Operation, value: SSAValue) -> None:
        if any(isinstance(s, poet.PageInStartOp) and s.tensor is value for s in self.under_way):
            raise InterpreterError(
                f"{describe(op)} uses {name_of(value)}, which has not arrived", source_location(op)
            )
        if value not in self.resident:
            ended = self.ended_by.get(value, "it was never made")
            raise InterpreterError(
                f"{describe(op)} uses {name_of(value)}, which is not in RAM: {ended}",
                source_location(op),
            )

    def touch_own(self, op: Operation, value: SSAValue) -> None:
        """`op` does something with the buffer of `value` that only its owner may."""
        if value in self.callers:
            raise InterpreterError(
                f"{describe(op)} takes {name_of(value)}, whose buffer is the caller's",
                source_location(op),
            )

    def end(self, value: SSAValue, reason: str) -> None:
        """The stay of a tensor in RAM ends."""
        for start in self.under_way:
            if start.operands[0] is value:
                raise InterpreterError(
                    f"{name_of(value)} ends before {describe(start)} of it is waited for: {reason}",
                    source_location(start),
                )
        self.in_use -= self.resident.pop(value)
        self.ended_by[value] = reason

    # One method for each operation of a graph

    def compute(self, op: poet.ComputeOp) -> None:
        where = describe(op)
        for operand in op.operands:
            self.touch(op, operand)
        takes_over = {result: op.operands[operand] for result, operand in op.inplace_pairs}
        workspace = op.cost.workspace if op.cost is not None else 0
        for value in (*takes_over.values(), *(op.results[result] for result in takes_over)):
            self.touch_own(op, value)
        needed = sum(map(self.size, op.results)) + padded(workspace)
        reused = sum(self.resident[operand] for operand in takes_over.values())
        self.need(needed - reused, where)

        offsets = [poet.offset_of(result) for result in op.results]
        for i, (result, offset) in enumerate(zip(op.results, offsets, strict=True)):
            if i not in takes_over:
                self.memory(result).reserve(name_of(result), offset, bytes_of(result.type))
            elif offset != self.offsets[takes_over[i]]:
                raise InterpreterError(
                    f"{name_of(op.results[i])} at offset {offset} is in place of "
                    f"{name_of(takes_over[i])} at offset {self.offsets[takes_over[i]]}",
                    source_location(op),
                )
        scratch = f"the workspace of {where}", offset_in(op.workspace_offset), workspace
        self.ram.reserve(*scratch)
        operands = [self.memory(operand).read(operand) for operand in op.operands]
        arrays = run_block(op.block, operands, _no_calls)
        numbers = self.number(op)
        for operand in takes_over.values():
            self.end(operand, f"{where} took over its buffer")
        for result, array, offset, number in zip(op.results, arrays, offsets, numbers, strict=True):
            self.begin(result, array, offset, number)
        self.ram.reserve(*scratch)

    def number(self, op: poet.RunOp) -> list[int]:
        """Numbers of the results: those of an earlier equal compute, or else new ones."""
        key = op.label, tuple(self.numbers[operand] for operand in op.operands)
        same_operands = self.executed.setdefault(key, [])
        for earlier, numbers in same_operands:
            if earlier.body.is_structurally_equivalent(op.body):
                self.recomputes += 1
                return numbers
        fresh = len(self.numbers)
        numbers = list(range(fresh, fresh + len(op.results)))
        same_operands.append((op, numbers))
        return numbers

    def start(self, op: poet.AnyPageOut | poet.AnyPageIn) -> None:
        """A transfer reads what it moves; where that goes is undefined until it ends."""
        tensor, page = op.tensor, op.page
        size = bytes_of(tensor.type)
        split = isinstance(op, poet.PageOutStartOp | poet.PageInStartOp)
        if not split and self.under_way:
            raise self.out_of_order(op)
        if isinstance(op, poet.AnyPageOut):
            self.touch(op, tensor)
            self.touch_own(op, tensor)
            array = self.ram.read(tensor)
            self.storage.reserve(name_of(page), self.page_offset(op.page), size)
            self.page_outs += 1
            self.page_out_bytes += size
        else:
            self.need(padded(size), f"{op.name} of {name_of(tensor)}")
            array = self.storage.read(page)
            self.ram.reserve(name_of(tensor), offset_in(op.offset), size)
            self.begin(tensor, poisoned(tensor), offset_in(op.offset), self.numbers[page])
            self.page_ins += 1
            self.page_in_bytes += size
        if split:
            self.under_way[op] = array
        else:
            self.arrive(op, array)

    def wait(self, op: poet.WaitOp) -> None:
        if op.start not in self.under_way:
            raise InterpreterError(
                f"{op.name} for {describe(op.start)}, which has not started", source_location(op)
            )
        if next(iter(self.under_way)) is not op.start:
            raise self.out_of_order(op)
        self.arrive(op.start, self.under_way.pop(op.start))

    def out_of_order(self, op: Operation) -> InterpreterError:
        """`op` ends a transfer that is not the oldest."""
        oldest = next(iter(self.under_way))
        return InterpreterError(
            f"{describe(op)} before the wait for {describe(oldest)} of "
            f"{name_of(oldest.operands[0])}, which began first",
            source_location(op),
        )

    def arrive(self, op: poet.AnyPageOut | poet.AnyPageIn, array: Array) -> None:
        """The transfer of `array` is over; nothing may have changed its buffer meanwhile."""
        tensor = op.tensor
        if isinstance(op, poet.AnyPageOut):
            expected = array
            self.begin(op.page, array, self.page_offset(op.page), self.numbers[tensor])
        else:
            expected = poisoned(tensor)
        if self.ram.read(tensor).tobytes() != expected.tobytes():
            raise InterpreterError(
                f"{name_of(tensor)} was overwritten during its {op.name}", source_location(op)
            )
        if not isinstance(op, poet.AnyPageOut):
            self.ram.write(tensor, array, offset_in(op.offset))

    def page_offset(self, page: SSAValue) -> int | None:
        """Where a page is written."""
        offset = poet.offset_of(page)
        return None if offset is None else offset + self.banked.get(page, 0)

    def free(self, op: poet.FreeOp) -> None:
        self.touch(op, op.tensor)
        self.touch_own(op, op.tensor)
        self.ram.erase(op.tensor)
        self.end(op.tensor, "it was freed")

    def finish(self, graph: poet.GraphOp, op: poet.ReturnOp) -> list[Array]:
        """The results; nothing else may be left in RAM if the graph says when values end."""
        if self.under_way:
            raise self.out_of_order(op)
        results: list[Array] = []
        for value in op.arguments:
            if isinstance(value.type, poet.PageType):
                results.append(self.storage.read(value))
            else:
                self.touch(op, value)
                results.append(self.memory(value).read(value))
        # A parameter that the step does not update stays in RAM for the next step.
        kept = {
            self.numbers[argument]
            for i, argument in enumerate(graph.arguments)
            if graph.role(i) == "param" and graph.updates(i) is None and not graph.is_stored(i)
        }
        leaks = [
            name_of(value)
            for value in self.resident
            if value not in op.arguments
            and self.numbers[value] not in kept
            and value not in self.callers
        ]
        if graph.is_scheduled and leaks:
            raise InterpreterError(
                f"still in RAM at the end of @{graph.sym_name.data}: {', '.join(leaks)}",
                source_location(op),
            )
        for i, argument in enumerate(graph.arguments):
            k = graph.updates(i)
            if k is None:
                continue
            offset = self.offsets[argument]
            if offset is not None and (new := graph.new_page(i)) is not None:
                offset += self.banked[new]
            if self.offsets[op.arguments[k]] != offset:
                raise InterpreterError(
                    f"result {k} is the new value of {name_of(argument)} but not in its place",
                    source_location(op),
                )
        return results

    def check_stored(self, graph: poet.GraphOp, arrays: Sequence[Array]) -> None:
        """The old values of parameters on storage are needed until the step is committed."""
        for i, (argument, array) in enumerate(zip(graph.arguments, arrays, strict=True)):
            if graph.is_stored(i) and self.storage.read(argument).tobytes() != array.tobytes():
                raise InterpreterError(f"the step overwrites {name_of(argument)} on storage")


def _no_calls(name: str, operands: list[Array]) -> list[Array]:
    raise InterpreterError(f"a compute cannot call @{name}")


def run_graph(
    graph: poet.GraphOp | ModuleOp,
    args: Sequence[Any],
    ram_bytes: int | None = None,
    *,
    arena: bool = False,
) -> Run:
    """Executes a poet.graph at any stage of the pipeline, scheduled or not.

    `graph` may be a module that contains exactly one. A tensor is in RAM from the operation that
    makes it until it is freed, taken over in place, or returned; arguments of tensor type are in
    RAM and those of page type on storage from the start; their values are given and returned as
    arrays, too. With `ram_bytes`, needing more is an error.

    With `arena` all tensors live at their planned offsets in one buffer of `arena_bytes`, and pages
    in one of `storage_bytes`; undefined bytes are poisoned, so that a wrong offset gives a wrong
    result. Parameters on storage are in bank 0 at the start, their new values in bank 1 at the end.

    Raises InterpreterError, naming operation and value, for any use of a tensor that is not in RAM,
    for one left over at the end of a scheduled graph, and for arguments of the wrong type.
    """
    if isinstance(graph, ModuleOp):
        graphs = [op for op in graph.ops if isinstance(op, poet.GraphOp)]
        if len(graphs) != 1:
            raise InterpreterError(f"expected one poet.graph in the module, found {len(graphs)}")
        graph = graphs[0]
    types = [
        type_.tensor if isinstance(type_, poet.PageType) else type_
        for type_ in graph.function_type.inputs
    ]
    arrays = check_arguments(graph.sym_name.data, types, args)
    if arena:
        if graph.arena_bytes is None:
            raise InterpreterError("the graph has no memory plan")
        ram = Bytes("arena", graph.arena_bytes)
        storage = Pages("storage", graph.storage_bytes or 0)
        machine = Machine(ram, storage, ram_bytes)
    else:
        machine = Machine(Separate(), Separate(), ram_bytes)
    machine.callers = graph.caller_values()
    for i in range(len(arrays)):
        if (page := graph.new_page(i)) is not None:
            machine.banked[page] = graph.bank_bytes or 0
    for i, (argument, array) in enumerate(zip(graph.arguments, arrays, strict=True)):
        machine.begin(argument, array, graph.offset(i), None)
    machine.need(0, "start")
    for op in graph.block.ops:
        match op:
            case poet.ComputeOp():
                machine.compute(op)
            case poet.StreamOp():
                run_stream(machine, op)
            case poet.PageOutOp() | poet.PageInOp() | poet.PageOutStartOp() | poet.PageInStartOp():
                machine.start(op)
            case poet.WaitOp():
                machine.wait(op)
            case poet.FreeOp():
                machine.free(op)
            case poet.ReturnOp():
                results = machine.finish(graph, op)
                machine.check_stored(graph, arrays)
                return Run(
                    results,
                    machine.peak_bytes,
                    machine.peak_at,
                    machine.page_ins,
                    machine.page_in_bytes,
                    machine.page_outs,
                    machine.page_out_bytes,
                    machine.recomputes,
                )
            case _:
                raise InterpreterError(
                    f"cannot interpret {op.name} in a graph", source_location(op)
                )
    raise InterpreterError(f"@{graph.sym_name.data} does not return")
