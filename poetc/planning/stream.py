"""Schedules a step in little RAM: kernels that do not fit run in tiles.

Parameters are on storage between steps. Each kernel runs as it is where its operands, results and
workspace fit together; then values stay in RAM until room is needed, and the one that is needed
again last is paged out. Else it runs in tiles, with everything on storage but small operands.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from xdsl.dialects.builtin import (
    DictionaryAttr,
    FunctionType,
    IntegerAttr,
    ModuleOp,
    SymbolRefAttr,
    TensorType,
    i64,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from poetc.costmodel.device import Device
from poetc.costmodel.slices import slice_costs
from poetc.errors import InputError
from poetc.ir.graph import ALIGN_BYTES, graphs, reorder_block, tensor_bytes
from poetc.ir.locations import source_location
from poetc.ir.poet import (
    ComputeOp,
    FreeOp,
    GraphOp,
    PageInOp,
    PageOutOp,
    PageType,
    ReturnOp,
    StreamOp,
)
from poetc.planning.stream_memory import plan_stream_memory
from poetc.planning.tile_loops import TiledKernel, stream_of, tile_kernel
from poetc.schedule.arena.pack import round_up

_SMALL = 16
"""An operand that takes at most such a part of the RAM stays there while a kernel runs in tiles."""


BLOCK_BYTES = 512
"""Of a block of a page, unless something else is asked for: what many storages write together."""

_ATTEMPTS = 8
"""What does not pack into the RAM is scheduled in less, so often at most."""


def stream_graphs(
    module: ModuleOp,
    ram_bytes: int,
    device: Device,
    align: int = ALIGN_BYTES,
    block_bytes: int = BLOCK_BYTES,
) -> None:
    """Schedules the unscheduled graphs of a module, whose kernels are lowered, within `ram_bytes`,
    with places in arena and storage. Where kernels run in tiles, pages are in blocks of
    `block_bytes`, and one block of RAM is beside the arena.

    Raises InputError, changing nothing, for a graph that is scheduled, and, naming kernel and
    bytes, where a kernel takes more in any tiles.
    """
    excess_before: dict[str, int] = {}
    budgets = {graph.sym_name.data: ram_bytes for graph in graphs(module)}
    for _ in range(_ATTEMPTS):
        trial = module.clone()
        excess: dict[str, int] = {}
        streamings: list[_Streaming] = []
        for graph in graphs(trial):
            name = graph.sym_name.data
            streamings.append(_Streaming(graph, trial, budgets[name], device))
            try:
                streamings[-1].run()
            except InputError as error:
                # In less than was asked for there may be no tiles any more.
                if budgets[name] == ram_bytes:
                    raise
                raise _unpacked(name, ram_bytes, excess_before[name]) from error
            if any(isinstance(op, StreamOp) for op in graph.block.ops):
                graph.attributes["block_bytes"] = IntegerAttr(block_bytes, i64)
            excess[name] = plan_stream_memory(graph, align) - ram_bytes
            graph.attributes["ram"] = IntegerAttr(ram_bytes, i64)
        if all(more <= 0 for more in excess.values()):
            for streaming in streamings:
                streaming.drop_kernels()
            module.detach_region(module.body)
            module.add_region(trial.detach_region(trial.body))
            return
        for name, more in excess.items():
            budgets[name] -= max(more, 0)
        excess_before = excess
    name = max(excess, key=lambda name: excess[name])
    raise _unpacked(name, ram_bytes, excess[name])


def _unpacked(name: str, ram_bytes: int, excess_bytes: int) -> InputError:
    return InputError(
        f"graph @{name}: no packing into {ram_bytes} bytes was found; {ram_bytes + excess_bytes} "
        "bytes would do"
    )


@dataclass
class _Streaming:
    graph: GraphOp
    module: ModuleOp
    ram_bytes: int
    device: Device
    ops: list[Operation] = field(default_factory=list)
    # Tensors in RAM and on storage, by their values in the graph that is not scheduled.
    ram: dict[SSAValue, SSAValue] = field(default_factory=dict)
    pages: dict[SSAValue, SSAValue] = field(default_factory=dict)
    done: dict[tuple[str, frozenset[int], int], TiledKernel | None] = field(default_factory=dict)

    def run(self) -> None:
        graph = self.graph
        if graph.is_scheduled:
            raise InputError(f"graph @{graph.sym_name.data} is scheduled already")
        self.costs = slice_costs(self.device)
        self.functions = {f.sym_name.data: f for f in self.module.ops if isinstance(f, FuncOp)}
        self.names = {
            op.properties["sym_name"].data  # pyright: ignore[reportAttributeAccessIssue]
            for op in self.module.ops
            if "sym_name" in op.properties
        }
        self.callers = graph.caller_values()
        computes = list(graph.computes)
        self.uses: dict[SSAValue, list[int]] = {}
        for at, compute in enumerate(computes):
            for operand in compute.operands:
                self.uses.setdefault(operand, []).append(at)
        returned = list(graph.return_op.arguments)
        updates = {k: i for i in range(len(graph.arguments)) if (k := graph.updates(i)) is not None}
        stored = [
            a
            for a in graph.arguments
            if graph.role(a.index) == "param" and isinstance(a.type, TensorType)
        ]
        # New values of parameters are on storage at the end, other results in RAM.
        self.new = {v for k, v in enumerate(returned) if updates.get(k) is not None}
        self.locked = {v for k, v in enumerate(returned) if updates.get(k) is None}
        for argument in graph.arguments:
            if argument in stored:
                type_ = argument.type
                assert isinstance(type_, TensorType)
                page = Rewriter.replace_value_with_new_type(argument, PageType(type_))
                self.pages[page] = page
                if argument is not page:
                    self._rename(argument, page)
                    returned = [page if v is argument else v for v in returned]
            else:
                self.ram[argument] = argument
        self._drop_dead(-1)
        for at, compute in enumerate(computes):
            self._compute(at, compute)
            self._drop_dead(at)
        results = [self.pages[v] if k in updates else self.ram[v] for k, v in enumerate(returned)]
        self.ops.append(ReturnOp(*results))
        reorder_block(graph, self.ops)
        graph.function_type = FunctionType.from_lists(
            [a.type for a in graph.arguments], [v.type for v in results]
        )
        graph.attributes["schedule"] = DictionaryAttr({})

    def drop_kernels(self) -> None:
        """Leaves out the kernels that run in tiles everywhere."""
        used = {c.kernel for graph in graphs(self.module) for c in graph.computes}
        for name, _, _ in self.done:
            kernel = self.functions[name]
            if SymbolRefAttr(name) not in used and kernel.parent is not None:
                kernel.detach()
                kernel.erase()

    def _rename(self, old: SSAValue, new: SSAValue) -> None:
        """A value has another type now, and so is another one."""
        for held in (self.new, self.locked):
            if old in held:
                held.remove(old)
                held.add(new)
        if old in self.uses:
            self.uses[new] = self.uses.pop(old)

    # RAM

    def _bytes(self, value: SSAValue) -> int:
        if value in self.callers:
            return 0
        type_ = value.type.tensor if isinstance(value.type, PageType) else value.type
        return round_up(tensor_bytes(type_), ALIGN_BYTES)

    @property
    def _used(self) -> int:
        return sum(map(self._bytes, self.ram))

    def _next(self, value: SSAValue, at: int) -> int | None:
        return next((use for use in self.uses.get(value, ()) if use > at), None)

    def _page_out(self, value: SSAValue) -> None:
        if value not in self.pages:
            op = PageOutOp(self.ram[value])
            self.ops.append(op)
            self.pages[value] = op.page

    def _free(self, value: SSAValue) -> None:
        self.ops.append(FreeOp(self.ram.pop(value)))

    def _page_in(self, value: SSAValue) -> None:
        op = PageInOp(self.pages[value])
        op.tensor.name_hint = value.name_hint
        self.ops.append(op)
        self.ram[value] = op.tensor

    def _drop_dead(self, at: int) -> None:
        """Frees what nothing needs any more."""
        for value in list(self.ram):
            if value in self.callers or value in self.locked or self._next(value, at) is not None:
                continue
            if value in self.new:
                self._page_out(value)
            self._free(value)

    def _make_room(self, limit: int, keep: Iterable[SSAValue], at: int) -> None:
        """Pages out what is needed again last, until what is in RAM takes no more than `limit`."""
        fixed = {*keep, *self.locked, *self.callers}
        while self._used > limit:
            others = [value for value in self.ram if value not in fixed]
            if not others:
                return
            last = max(others, key=lambda value: self._next(value, at - 1) or at)
            self._page_out(last)
            self._free(last)

    # Kernels

    def _compute(self, at: int, compute: ComputeOp) -> None:
        operands = list(dict.fromkeys(compute.operands))
        taken = {operand for _, operand in compute.inplace_pairs}
        made = sum(
            self._bytes(result)
            for result in compute.results
            if result.index not in dict(compute.inplace_pairs)
        )
        workspace = round_up(compute.cost.workspace if compute.cost else 0, ALIGN_BYTES)
        room = self.ram_bytes - made - workspace
        others = sum(self._bytes(v) for v in self.locked if v in self.ram and v not in operands)
        if sum(map(self._bytes, operands)) + others <= room:
            missing = [operand for operand in operands if operand not in self.ram]
            self._make_room(room - sum(map(self._bytes, missing)), operands, at)
            for operand in missing:
                self._page_in(operand)
            old = [compute.operands[operand] for operand in taken]
            compute.operands = [self.ram[operand] for operand in compute.operands]
            self.ops.append(compute)
            for value in old:
                del self.ram[value]
            self.ram |= {result: result for result in compute.results}
        else:
            self._stream(at, compute)

    def _stream(self, at: int, compute: ComputeOp) -> None:
        assert compute.kernel is not None
        kernel = self.functions[compute.kernel.string_value()]
        operands = list(compute.operands)
        small = {v for v in operands if self._bytes(v) * _SMALL <= self.ram_bytes}
        resident = {v for v in operands if v in small or v in self.callers}
        count = len(operands)
        streamed = frozenset(n for n, v in enumerate(operands) if v not in resident) | {
            count + n
            for n, result in enumerate(compute.results)
            if result not in self.locked
            and result not in self.callers
            and self._bytes(result) * _SMALL > self.ram_bytes
        }
        kept = [v for v in self.ram if v in self.locked and v not in resident]
        tiled = self._tiled(compute, kernel, streamed, [*resident, *kept])
        if tiled is None and resident - self.callers:
            resident &= self.callers
            every = range(count + len(compute.results))
            values = [*operands, *compute.results]
            streamed = frozenset(
                n for n in every if values[n] not in self.callers and values[n] not in self.locked
            )
            kept = [v for v in self.ram if v in self.locked]
            tiled = self._tiled(compute, kernel, streamed, [*resident, *kept])
        if tiled is None:
            raise InputError(
                f'poet.compute "{compute.label.data}" takes more than {self.ram_bytes} bytes of '
                "RAM in any tiles",
                source_location(compute),
            )
        for n in tiled.streamed:
            if n < count and operands[n] in self.ram:
                self._page_out(operands[n])
        whole = {operands[n] for n in range(count) if n not in tiled.streamed}
        results = [r for n, r in enumerate(compute.results, count) if n not in tiled.streamed]
        room = self.ram_bytes - round_up(tiled.workspace_bytes, ALIGN_BYTES)
        room -= sum(map(self._bytes, results))
        missing = [v for v in dict.fromkeys(operands) if v in whole and v not in self.ram]
        self._make_room(room - sum(map(self._bytes, missing)), whole, at)
        for value in missing:
            self._page_in(value)
        values = [
            self.pages[v] if n in tiled.streamed else self.ram[v] for n, v in enumerate(operands)
        ]
        stream = stream_of(compute, kernel, tiled, values, self.costs)
        self.ops.append(stream)
        for n, (old, new) in enumerate(zip(compute.results, stream.results, strict=True), count):
            new.name_hint = old.name_hint
            (self.pages if n in tiled.streamed else self.ram)[old] = new

    def _tiled(
        self,
        compute: ComputeOp,
        kernel: FuncOp,
        streamed: frozenset[int],
        resident: Iterable[SSAValue],
    ) -> TiledKernel | None:
        """The tiles of a kernel, with its functions in the module."""

        def room(streamed: frozenset[int]) -> int:
            results = enumerate(compute.results, len(compute.operands))
            here = {*resident, *(result for n, result in results if n not in streamed)}
            return self.ram_bytes - sum(map(self._bytes, here))

        limit = room(streamed)
        key = (kernel.sym_name.data, streamed, limit)
        if key not in self.done:
            found = tile_kernel(kernel, streamed, limit, self.costs, self._name)
            if found is not None and found.streamed != streamed:
                streamed = found.streamed
                found = tile_kernel(kernel, streamed, room(streamed), self.costs, self._name)
            self.done[key] = found
            if found is not None:
                self.module.body.block.add_ops(tiled.function for tiled in found.tiled)
        return self.done[key]

    def _name(self, kernel: str) -> str:
        name, number = f"{kernel}_tile", 0
        while name in self.names:
            number += 1
            name = f"{kernel}_tile{number}"
        self.names.add(name)
        return name
