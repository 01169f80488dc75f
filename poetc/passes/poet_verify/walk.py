"""The walk through the operations of a graph in execution order: what is in RAM, and where."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, OpResult, SSAValue

from poetc.ir.buffers import element_bytes
from poetc.ir.graph import tensor_bytes
from poetc.ir.locations import source_location
from poetc.ir.poet import (
    ComputeOp,
    FreeOp,
    GraphOp,
    PageInOp,
    PageInStartOp,
    PageOutOp,
    PageOutStartOp,
    PageType,
    ReturnOp,
    RunOp,
    StreamOp,
    WaitOp,
    offset_of,
    transfer_of,
)
from poetc.passes.poet_verify.messages import fault, name_of, op_name, transfer_name


class Placed:
    """Tensors in the arena, which are apart from each other, in the order of their places."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._tensors: list[tuple[SSAValue, int]] = []

    def add(self, value: SSAValue, size: int) -> None:
        """Adds a tensor of some bytes that overlaps no other."""
        start = offset_of(value)
        assert start is not None
        at = bisect_left(self._starts, start)
        self._starts.insert(at, start)
        self._tensors.insert(at, (value, size))

    def remove(self, value: SSAValue) -> None:
        """Removes a tensor that was added."""
        start = offset_of(value)
        assert start is not None
        at = bisect_left(self._starts, start)
        del self._starts[at], self._tensors[at]

    def overlapping(self, offset: int, size: int) -> SSAValue | None:
        """A tensor that has some of these bytes, if there is one."""
        # As they are apart, the last one that begins before the end is the one to end last.
        before = bisect_left(self._starts, offset + size)
        if not before:
            return None
        value, bytes = self._tensors[before - 1]
        return value if offset < self._starts[before - 1] + bytes else None


@dataclass
class Walk:
    """The places of all values, from operation to operation."""

    graph: GraphOp
    in_ram: dict[SSAValue, int] = field(default_factory=dict)
    """Tensors in RAM, with their bytes: none for those in buffers of the caller."""
    ram_bytes: int = 0
    """The bytes of all of them."""
    placed: Placed = field(default_factory=Placed)
    """The tensors that have bytes in the arena."""
    pages: set[SSAValue] = field(default_factory=set)
    ended: dict[SSAValue, str] = field(default_factory=dict)
    """Values that were in RAM, and how that ended."""
    under_way: list[PageOutStartOp | PageInStartOp] = field(default_factory=list)
    """Transfers that have not been waited for, the oldest first."""

    def run(self) -> None:
        graph = self.graph
        self.is_scheduled = graph.is_scheduled
        self.callers = graph.caller_values()
        if (unwritten := graph.unwritten_output()) is not None:
            raise fault(
                graph.return_op,
                f"result {unwritten} is made by no compute, so nothing writes it into the buffer "
                "of the caller",
            )
        self.is_planned = is_planned(graph)
        self.budget = _budget(graph) if self.is_scheduled else None
        for argument in graph.arguments:
            if isinstance(argument.type, PageType):
                self.pages.add(argument)
            else:
                self._begin(argument, graph)
        self._fits(graph, {})
        for op in graph.block.ops:
            match op:
                case ComputeOp():
                    self._compute(op)
                case StreamOp():
                    if self.under_way:
                        oldest = transfer_name(self.under_way[0])
                        raise fault(op, f"{op_name(op)} before the wait for {oldest}")
                    self._compute(op)
                case PageOutOp() | PageOutStartOp():
                    self._use(op, op.tensor)
                    if op.tensor in self.callers:
                        raise fault(
                            op, f"{op_name(op)} of {name_of(op.tensor)}, which is the caller's"
                        )
                    self._transfer(op)
                    self.pages.add(op.page)
                case PageInOp() | PageInStartOp():
                    self._use(op, op.page)
                    self._transfer(op)
                    self._fits(op, {op.tensor: tensor_bytes(op.tensor.type)})
                    self._begin(op.tensor, op)
                case WaitOp():
                    self._wait(op)
                case FreeOp():
                    self._use(op, op.tensor)
                    self._end(op.tensor, "freed", op)
                case ReturnOp():
                    self._return(op)

    def _compute(self, op: RunOp) -> None:
        for operand in op.operands:
            self._use(op, operand)
        taken = {op.results[r]: op.operands[o] for r, o in op.inplace_pairs}
        resident = [r for r in op.results if not isinstance(r.type, PageType)]
        new: dict[SSAValue, int] = {r: self._bytes(r) for r in resident if r not in taken}
        self._fits(op, new, op.cost.workspace if op.cost else 0)
        if self.is_planned:
            self._verify_workspace(op)
        for result, operand in taken.items():
            if result in self.callers:
                raise fault(op, f"{name_of(result)}, which is the caller's, is not in its buffer")
            self._end(operand, f"taken over by {name_of(result)}", op)
            if self.is_planned and offset_of(result) != offset_of(operand):
                raise fault(
                    op,
                    f"{name_of(result)} at offset {offset_of(result)} is in place of "
                    f"{name_of(operand)} at offset {offset_of(operand)}",
                )
        for result in op.results:
            if isinstance(result.type, PageType):
                self.pages.add(result)
            else:
                self._begin(result, op)

    def _transfer(self, op: Operation) -> None:
        """`op` starts a transfer, or does it at once, which is a start and a wait."""
        if isinstance(op, PageOutStartOp | PageInStartOp):
            self.under_way.append(op)
        elif self.under_way:
            oldest = transfer_name(self.under_way[0])
            raise fault(op, f"{op_name(op)} before the wait for {oldest}, which began first")

    def _wait(self, op: WaitOp) -> None:
        if op.start not in self.under_way:
            raise fault(op, f"{op_name(op)} for {transfer_name(op.start)}, which has not started")
        oldest = self.under_way.pop(0)
        if oldest is not op.start:
            raise fault(
                op,
                f"{op_name(op)} for {transfer_name(op.start)} before that for "
                f"{transfer_name(oldest)}, which began first",
            )

    def _return(self, op: ReturnOp) -> None:
        if self.under_way:
            raise fault(op, f"{transfer_name(self.under_way[0])} is under way at the end")
        for value in dict.fromkeys(op.arguments):
            self._use(op, value)
            if value in self.in_ram:
                self._end(value, "returned", op)
        seen: dict[SSAValue, int] = {}
        for i, value in enumerate(op.arguments):
            if value in seen:
                raise fault(
                    op,
                    f"{name_of(value)} is result {seen[value]} and result {i}: one buffer for two",
                )
            seen[value] = i
        if not self.is_scheduled:
            return
        # A parameter that the step does not update is there before and after it.
        kept: set[SSAValue] = {
            argument
            for i, argument in enumerate(self.graph.arguments)
            if self.graph.role(i) == "param"
            and self.graph.updates(i) is None
            and isinstance(argument.type, TensorType)
        }
        kept |= self.callers
        for value in self.in_ram:
            origin = origin_of(value, through_inplace=False)
            if origin not in kept:
                raise fault(op, f"{name_of(value)} is never freed, taken over or returned")
            if self.is_planned and offset_of(value) != offset_of(origin):
                raise fault(
                    op,
                    f"parameter {name_of(origin)} ends at offset {offset_of(value)} "
                    f"but began at {offset_of(origin)}",
                )
            kept.remove(origin)
        for argument in kept - seen.keys() - self.callers:
            raise fault(
                op,
                f"parameter {name_of(argument)} must be in RAM at the end of the step "
                f"but was {self.ended[argument]}",
            )

    def _use(self, op: Operation, value: SSAValue) -> None:
        """`op` reads `value`, which must be where it can be read."""
        for start in self.under_way:
            made = start.tensor if isinstance(start, PageInStartOp) else start.page
            if made is value:
                raise fault(op, f"{op_name(op)} uses {name_of(value)} before it is waited for")
        if value in self.in_ram or value in self.pages:
            return
        if value in self.ended:
            verb = "frees" if isinstance(op, FreeOp) else "uses"
            raise fault(op, f"{op_name(op)} {verb} {name_of(value)}, which was {self.ended[value]}")
        if isinstance(op, PageInOp | PageInStartOp):
            raise fault(op, f"{op_name(op)} of {name_of(value)}, which is not paged out before")
        raise fault(op, f"{op_name(op)} uses {name_of(value)} before it is defined")

    def _begin(self, value: SSAValue, op: Operation) -> None:
        if self.is_planned:
            self._verify_place(value, op)
        size = self.in_ram[value] = self._bytes(value)
        self.ram_bytes += size
        if self.is_planned and size:
            self.placed.add(value, size)

    def _bytes(self, value: SSAValue) -> int:
        return 0 if value in self.callers else tensor_bytes(value.type)

    def _end(self, value: SSAValue, how: str, op: Operation) -> None:
        if value in self.callers and not isinstance(op, ReturnOp):
            raise fault(op, f"{name_of(value)}, which is the caller's, is {how}")
        for start in self.under_way:
            if start.operands[0] is value:
                raise fault(
                    op, f"{name_of(value)} is {how} before {transfer_name(start)} is waited for"
                )
        size = self.in_ram.pop(value)
        self.ram_bytes -= size
        if self.is_planned and size:
            self.placed.remove(value)
        where = source_location(op)
        self.ended[value] = f"{how} by {op_name(op)}" if isinstance(op, FreeOp) else how
        if where is not None:
            self.ended[value] += f" at {where}"

    def _fits(self, op: Operation, new: dict[SSAValue, int], workspace_bytes: int = 0) -> None:
        """While `op` runs, RAM holds what is there, what it makes and its workspace."""
        needed = self.ram_bytes + sum(new.values()) + workspace_bytes
        if self.budget is None or needed <= self.budget:
            return
        parts = [f"{name_of(value)} {bytes}" for value, bytes in _largest(self.in_ram | new)]
        if workspace_bytes:
            parts.insert(0, f"workspace {workspace_bytes}")
        raise fault(
            op,
            f"{op_name(op)} needs {needed} bytes of RAM, the budget is {self.budget}; "
            f"in RAM: {', '.join(parts)}",
        )

    # Places in the arena

    def _verify_place(self, value: SSAValue, op: Operation) -> None:
        offset, size = offset_of(value), tensor_bytes(value.type)
        if value in self.callers:
            if offset is not None:
                raise fault(op, f"{name_of(value)}, which is the caller's, is in the arena")
            return
        if offset is None:
            raise fault(op, f"{name_of(value)} has no offset though others have one")
        assert isinstance(value.type, TensorType)
        element = element_bytes(value.type.element_type)
        if offset % element:
            what = f"{name_of(value)} at offset {offset}"
            raise fault(op, f"{what} is not aligned to its {element} byte elements")
        self._verify_free(op, name_of(value), offset, size)
        if isinstance(op, PageInOp | PageInStartOp):
            first, last = _lines(self.graph, offset, size)
            arena = self.graph.arena_bytes
            if first < 0 or (arena is not None and last > arena):
                raise fault(
                    op,
                    f"{name_of(value)} at offset {offset} shares the last cache line "
                    f"of the arena, which has {arena} bytes",
                )
            self._verify_alone(op, name_of(value), first, last - first)

    def _verify_alone(self, op: Operation, what: str, offset: int, size: int) -> None:
        """Nobody else has bytes of cache lines that `what` takes."""
        if (other := self.placed.overlapping(offset, size)) is not None:
            at = offset_of(other)
            raise fault(op, f"{what} shares a cache line with {name_of(other)} at offset {at}")

    def _verify_workspace(self, op: RunOp) -> None:
        size = op.cost.workspace if op.cost else 0
        if not size:
            return
        if op.workspace_offset is None:
            raise fault(op, f"the workspace of {op_name(op)} has no offset")
        offset = op.workspace_offset.value.data
        what = f"the workspace of {op_name(op)}"
        self._verify_free(op, what, offset, size)
        for result in op.results:
            at = None if isinstance(result.type, PageType) else offset_of(result)
            if at is not None and overlap(offset, size, at, tensor_bytes(result.type)):
                raise fault(op, f"{what} at offset {offset} overlaps {name_of(result)} at {at}")

    def _verify_free(self, op: Operation, what: str, offset: int, size: int) -> None:
        arena = self.graph.arena_bytes
        if offset < 0:
            raise fault(op, f"{what} at offset {offset} begins before the arena")
        if arena is not None and offset + size > arena:
            raise fault(
                op, f"{what} at offset {offset} with {size} bytes ends past the arena of {arena}"
            )
        if (other := self.placed.overlapping(offset, size)) is not None:
            raise fault(
                op,
                f"{what} at offset {offset} with {size} bytes overlaps {name_of(other)} "
                f"at offset {offset_of(other)} with {self.in_ram[other]} bytes",
            )
        for start in self.under_way:
            if not isinstance(start, PageInStartOp) or start.tensor not in self.in_ram:
                continue
            at = offset_of(start.tensor)
            assert at is not None
            first, last = _lines(self.graph, at, tensor_bytes(start.tensor.type))
            if overlap(offset, size, first, last - first):
                raise fault(
                    op,
                    f"{what} at offset {offset} shares a cache line with "
                    f"{name_of(start.tensor)} at offset {at}, which is not waited for",
                )


def _budget(graph: GraphOp) -> int | None:
    """The bytes that everything in RAM must fit in, where the graph gives such a budget."""
    arena = graph.arena_bytes
    if graph.ram is not None and arena is not None and arena > graph.ram:
        raise fault(graph, f"the arena of {arena} bytes is over the budget of {graph.ram}")
    return graph.ram


def is_planned(graph: GraphOp) -> bool:
    """Whether buffers have places in the arena."""
    return graph.arena_bytes is not None or any(
        offset_of(value) is not None
        for value in (*graph.arguments, *(r for op in graph.block.ops for r in op.results))
    )


def overlap(a: int, a_size: int, b: int, b_size: int) -> bool:
    return a < b + b_size and b < a + a_size


def _lines(graph: GraphOp, offset: int, size: int) -> tuple[int, int]:
    """Where the cache lines that these bytes touch begin and end."""
    line = graph.cache_line_bytes or 1
    return offset // line * line, -(-(offset + size) // line) * line


def _largest(buffers: dict[SSAValue, int], count: int = 8) -> list[tuple[SSAValue, int]]:
    return sorted(buffers.items(), key=lambda buffer: -buffer[1])[:count]


def origin_of(value: SSAValue, *, through_inplace: bool) -> SSAValue:
    """Back through transfers, and in-place computes if asked for, to where it all began."""
    while isinstance(value, OpResult):
        if (transfer := transfer_of(value)) is not None:
            value = transfer.operands[0]
            continue
        op = value.owner
        if not (through_inplace and isinstance(op, ComputeOp)):
            break
        operand = dict(op.inplace_pairs).get(value.index)
        if operand is None:
            break
        value = op.operands[operand]
    return value
