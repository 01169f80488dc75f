"""`poet-verify`: static proof that a graph does in RAM what it says.

On every graph: values are defined before they are used, nothing is used after something else took
over its buffer, the new value of a parameter is made in the parameter's own buffer, and no two
results are one value.

On a scheduled graph also: every value in RAM ends exactly once (free, in-place reuse or return),
nothing is used after its end, and the bytes in RAM never exceed the budget `ram`. Where memory is
planned, no two buffers that are in use at the same time overlap, neither in the arena nor in
auxiliary storage, and all lie within `arena_bytes` and `storage_bytes`.

Where transfers do not go through the cache of the processor, what is paged in is alone on the lines
of the cache that it touches until the wait: a line that is forgotten then has bytes of nobody else.

Transfers that are split into a start and a wait end in the order in which they start, each before
the graph does. What is paged in takes its place in RAM at the start and is not used before the
wait; what is paged out stays in RAM until the wait.

Inputs and results in buffers of the caller take no RAM and have no place in the arena; they are
never paged, freed or taken over, and nothing is computed in place of them.

Arguments of page type are parameters. Their pages are there during the whole step, whatever is
written: a new value is written a bank away from the old one, and no write unit has bytes of two of
records, constants, either bank, and pages of the step. A result of page type is such an argument as
it came, or the page of a tensor computed in place of it.

Where computes have kernels, each kernel takes the buffers that the compute has, and no more
workspace than its cost says.

The proof reads the graph and the arguments of its kernels alone. It shares no code with the
scheduler or with the checker of schedules, so that a mistake there is found here. What a page and
a storage image are is defined once, for all (`page.py`, `image.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue
from xdsl.passes import ModulePass

from poetc.errors import InputError, PoetcError
from poetc.image import layout_of
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
    WaitOp,
    offset_of,
    transfer_of,
)
from poetc.ir.types import element_bytes
from poetc.kernels.analysis import check_call, workspace_bytes
from poetc.page import PAGE_ALIGN_BYTES, page_bytes


class VerificationError(PoetcError):
    """A graph breaks one of the rules above; after our own passes, an internal error."""


@dataclass(frozen=True)
class PoetVerifyPass(ModulePass):
    """Checks every graph of the module and changes nothing."""

    name = "poet-verify"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for graph in op.walk():
            if isinstance(graph, GraphOp):
                verify_graph(graph)


def verify_graph(graph: GraphOp) -> None:
    """Raises a `VerificationError` that names operation and value if `graph` breaks a rule.

    A kernel that is none, or another one than its compute needs, is an `InputError`.
    """
    _verify_kernels(graph)
    _Walk(graph).run()
    _verify_updates(graph)
    _verify_pages(graph)
    if _is_planned(graph):
        _verify_storage(graph)


def _verify_kernels(graph: GraphOp) -> None:
    module = graph.parent_op()
    if not isinstance(module, ModuleOp):
        return
    kernels = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
    for compute in graph.computes:
        # That the kernel exists is verified with the operation.
        kernel = kernels.get(compute.kernel.string_value()) if compute.kernel else None
        if kernel is None:
            continue
        check_call(kernel, compute.operand_types, compute.result_types)
        needed, given = workspace_bytes(kernel), compute.cost.workspace if compute.cost else None
        if given is not None and needed > given:
            raise _error(
                compute,
                f"{_op(compute)} has {given} bytes of workspace, its kernel takes {needed}",
            )


# The walk through the operations, in execution order


@dataclass
class _Walk:
    """What is where, from operation to operation."""

    graph: GraphOp
    in_ram: dict[SSAValue, int] = field(default_factory=dict)
    """Tensors in RAM, with their bytes: none for those in buffers of the caller."""
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
            raise _error(
                graph.return_op,
                f"result {unwritten} is made by no compute, so nothing writes it into the buffer "
                "of the caller",
            )
        self.is_planned = _is_planned(graph)
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
                case PageOutOp() | PageOutStartOp():
                    self._use(op, op.tensor)
                    if op.tensor in self.callers:
                        raise _error(op, f"{_op(op)} of {_value(op.tensor)}, which is the caller's")
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

    def _compute(self, op: ComputeOp) -> None:
        for operand in op.operands:
            self._use(op, operand)
        taken = {op.results[r]: op.operands[o] for r, o in op.inplace_pairs}
        new: dict[SSAValue, int] = {r: self._bytes(r) for r in op.results if r not in taken}
        self._fits(op, new, op.cost.workspace if op.cost else 0)
        if self.is_planned:
            self._verify_workspace(op)
        for result, operand in taken.items():
            if result in self.callers:
                raise _error(op, f"{_value(result)}, which is the caller's, is not in its buffer")
            self._end(operand, f"taken over by {_value(result)}", op)
            if self.is_planned and offset_of(result) != offset_of(operand):
                raise _error(
                    op,
                    f"{_value(result)} at offset {offset_of(result)} is in place of "
                    f"{_value(operand)} at offset {offset_of(operand)}",
                )
        for result in op.results:
            self._begin(result, op)

    def _transfer(self, op: Operation) -> None:
        """`op` starts a transfer, or does it at once, which is a start and a wait."""
        if isinstance(op, PageOutStartOp | PageInStartOp):
            self.under_way.append(op)
        elif self.under_way:
            oldest = _transfer(self.under_way[0])
            raise _error(op, f"{_op(op)} before the wait for {oldest}, which began first")

    def _wait(self, op: WaitOp) -> None:
        if op.start not in self.under_way:
            raise _error(op, f"{_op(op)} for {_transfer(op.start)}, which has not started")
        oldest = self.under_way.pop(0)
        if oldest is not op.start:
            raise _error(
                op,
                f"{_op(op)} for {_transfer(op.start)} before that for {_transfer(oldest)}, which "
                "began first",
            )

    def _return(self, op: ReturnOp) -> None:
        if self.under_way:
            raise _error(op, f"{_transfer(self.under_way[0])} is under way at the end")
        for value in dict.fromkeys(op.arguments):
            self._use(op, value)
            if value in self.in_ram:
                self._end(value, "returned", op)
        seen: dict[SSAValue, int] = {}
        for i, value in enumerate(op.arguments):
            if value in seen:
                raise _error(
                    op,
                    f"{_value(value)} is result {seen[value]} and result {i}: one buffer for two",
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
            origin = _origin(value, through_inplace=False)
            if origin not in kept:
                raise _error(op, f"{_value(value)} is never freed, taken over or returned")
            if self.is_planned and offset_of(value) != offset_of(origin):
                raise _error(
                    op,
                    f"parameter {_value(origin)} ends at offset {offset_of(value)} "
                    f"but began at {offset_of(origin)}",
                )
            kept.remove(origin)
        for argument in kept - seen.keys() - self.callers:
            raise _error(
                op,
                f"parameter {_value(argument)} must be in RAM at the end of the step "
                f"but was {self.ended[argument]}",
            )

    def _use(self, op: Operation, value: SSAValue) -> None:
        """`op` reads `value`, which must be where it can be read."""
        for start in self.under_way:
            made = start.tensor if isinstance(start, PageInStartOp) else start.page
            if made is value:
                raise _error(op, f"{_op(op)} uses {_value(value)} before it is waited for")
        if value in self.in_ram or value in self.pages:
            return
        if value in self.ended:
            verb = "frees" if isinstance(op, FreeOp) else "uses"
            raise _error(op, f"{_op(op)} {verb} {_value(value)}, which was {self.ended[value]}")
        if isinstance(op, PageInOp | PageInStartOp):
            raise _error(op, f"{_op(op)} of {_value(value)}, which is not paged out before")
        raise _error(op, f"{_op(op)} uses {_value(value)} before it is defined")

    def _begin(self, value: SSAValue, op: Operation) -> None:
        if self.is_planned:
            self._verify_place(value, op)
        self.in_ram[value] = self._bytes(value)

    def _bytes(self, value: SSAValue) -> int:
        return 0 if value in self.callers else tensor_bytes(value.type)

    def _end(self, value: SSAValue, how: str, op: Operation) -> None:
        if value in self.callers and not isinstance(op, ReturnOp):
            raise _error(op, f"{_value(value)}, which is the caller's, is {how}")
        for start in self.under_way:
            if start.operands[0] is value:
                raise _error(
                    op, f"{_value(value)} is {how} before {_transfer(start)} is waited for"
                )
        del self.in_ram[value]
        where = source_location(op)
        self.ended[value] = f"{how} by {_op(op)}" if isinstance(op, FreeOp) else how
        if where is not None:
            self.ended[value] += f" at {where}"

    def _fits(self, op: Operation, new: dict[SSAValue, int], workspace_bytes: int = 0) -> None:
        """While `op` runs, RAM holds what is there, what it makes and its workspace."""
        buffers = self.in_ram | new
        needed = sum(buffers.values()) + workspace_bytes
        if self.budget is None or needed <= self.budget:
            return
        parts = [f"{_value(value)} {bytes}" for value, bytes in _largest(buffers)]
        if workspace_bytes:
            parts.insert(0, f"workspace {workspace_bytes}")
        raise _error(
            op,
            f"{_op(op)} needs {needed} bytes of RAM, the budget is {self.budget}; "
            f"in RAM: {', '.join(parts)}",
        )

    # Places in the arena

    def _verify_place(self, value: SSAValue, op: Operation) -> None:
        offset, size = offset_of(value), tensor_bytes(value.type)
        if value in self.callers:
            if offset is not None:
                raise _error(op, f"{_value(value)}, which is the caller's, is in the arena")
            return
        if offset is None:
            raise _error(op, f"{_value(value)} has no offset though others have one")
        assert isinstance(value.type, TensorType)
        element = element_bytes(value.type.element_type)
        if offset % element:
            raise _error(
                op,
                f"{_value(value)} at offset {offset} is not aligned to its {element} byte elements",
            )
        self._verify_free(op, _value(value), offset, size)
        if isinstance(op, PageInOp | PageInStartOp):
            first, last = self._lines(offset, size)
            arena = self.graph.arena_bytes
            if first < 0 or (arena is not None and last > arena):
                raise _error(
                    op,
                    f"{_value(value)} at offset {offset} shares the last cache line "
                    f"of the arena, which has {arena} bytes",
                )
            self._verify_alone(op, _value(value), first, last - first)

    def _lines(self, offset: int, size: int) -> tuple[int, int]:
        """Where the cache lines that these bytes touch begin and end."""
        line = self.graph.cache_line_bytes or 1
        return offset // line * line, -(-(offset + size) // line) * line

    def _verify_alone(self, op: Operation, what: str, offset: int, size: int) -> None:
        """Nobody else has bytes of cache lines that `what` takes."""
        for other, other_size in self.in_ram.items():
            at = offset_of(other)
            if (
                other not in self.callers
                and at is not None
                and _overlap(offset, size, at, other_size)
            ):
                raise _error(op, f"{what} shares a cache line with {_value(other)} at offset {at}")

    def _verify_workspace(self, op: ComputeOp) -> None:
        size = op.cost.workspace if op.cost else 0
        if not size:
            return
        if op.workspace_offset is None:
            raise _error(op, f"the workspace of {_op(op)} has no offset")
        offset = op.workspace_offset.value.data
        what = f"the workspace of {_op(op)}"
        self._verify_free(op, what, offset, size)
        for result in op.results:
            at = offset_of(result)
            if at is not None and _overlap(offset, size, at, tensor_bytes(result.type)):
                raise _error(op, f"{what} at offset {offset} overlaps {_value(result)} at {at}")

    def _verify_free(self, op: Operation, what: str, offset: int, size: int) -> None:
        arena = self.graph.arena_bytes
        if offset < 0:
            raise _error(op, f"{what} at offset {offset} begins before the arena")
        if arena is not None and offset + size > arena:
            raise _error(
                op, f"{what} at offset {offset} with {size} bytes ends past the arena of {arena}"
            )
        for other, other_size in self.in_ram.items():
            if other in self.callers:
                continue
            at = offset_of(other)
            assert at is not None
            if _overlap(offset, size, at, other_size):
                raise _error(
                    op,
                    f"{what} at offset {offset} with {size} bytes overlaps {_value(other)} "
                    f"at offset {at} with {other_size} bytes",
                )
        for start in self.under_way:
            if not isinstance(start, PageInStartOp) or start.tensor not in self.in_ram:
                continue
            at = offset_of(start.tensor)
            assert at is not None
            first, last = self._lines(at, tensor_bytes(start.tensor.type))
            if _overlap(offset, size, first, last - first):
                raise _error(
                    op,
                    f"{what} at offset {offset} shares a cache line with {_value(start.tensor)} at "
                    f"offset {at}, which is not waited for",
                )


def _budget(graph: GraphOp) -> int | None:
    """The bytes that everything in RAM must fit in, where the graph gives such a budget."""
    arena = graph.arena_bytes
    if graph.ram is not None and arena is not None and arena > graph.ram:
        raise _error(graph, f"the arena of {arena} bytes is over the budget of {graph.ram}")
    return graph.ram


def _is_planned(graph: GraphOp) -> bool:
    """Whether buffers have places in the arena."""
    return graph.arena_bytes is not None or any(
        offset_of(value) is not None
        for value in (*graph.arguments, *(r for op in graph.block.ops for r in op.results))
    )


# Parameters and their new values


def _verify_updates(graph: GraphOp) -> None:
    """The new value of a parameter must be in the parameter's own buffer."""
    end = graph.return_op
    for i, parameter in enumerate(graph.arguments):
        result = graph.updates(i)
        if result is None:
            continue
        value = end.arguments[result]
        origin = _origin(value, through_inplace=True)
        if origin is not parameter:
            raise _error(
                end,
                f"result {result}, the new value of parameter {_value(parameter)}, is not computed "
                f"in its place: it is {_value(value)} in the buffer of {_value(origin)}",
            )
        new = transfer_of(value)
        if isinstance(parameter.type, PageType) and isinstance(new, PageOutOp | PageOutStartOp):
            old = new.tensor
            if not isinstance(old.owner, ComputeOp):
                raise _error(
                    new,
                    f"{_op(new)} writes {_value(old)} as the new value of parameter "
                    f"{_value(parameter)}, but no compute made it",
                )
        if offset_of(value) != offset_of(parameter):
            raise _error(
                end,
                f"result {result}, the new value of parameter {_value(parameter)} "
                f"at offset {offset_of(parameter)}, is at offset {offset_of(value)}",
            )


def _verify_pages(graph: GraphOp) -> None:
    """What is on storage from step to step is a parameter."""
    for argument in graph.arguments:
        role = graph.role(argument.index)
        if isinstance(argument.type, PageType) and role != "param":
            raise _error(
                graph,
                f"{_value(argument)} is on storage before the step: its role must be param, not "
                f"{role}",
            )
    updated = {graph.updates(i) for i in range(len(graph.arguments))}
    for k, value in enumerate(graph.return_op.arguments):
        if isinstance(value.type, PageType) and k not in updated:
            raise _error(
                graph.return_op,
                f"result {k} is {_value(value)}, a page, but no parameter's new value",
            )


def _origin(value: SSAValue, *, through_inplace: bool) -> SSAValue:
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


# Places in auxiliary storage


@dataclass(frozen=True)
class _PageUse:
    value: SSAValue
    part: str
    """Of the storage: what loses its content together."""
    offset: int
    size: int
    """With trailer and padding."""
    first: int
    last: int
    """Indices of the operations between which the page must stay as it is."""

    @property
    def what(self) -> str:
        """For messages: a page is longer than its tensor."""
        return f"the page {_value(self.value)} at offset {self.offset} with {self.size} bytes"


def _verify_storage(graph: GraphOp) -> None:
    """Pages that must be kept at the same time do not overlap, and all fit in `storage_bytes`."""
    pages = list(_page_uses(graph))
    for i, page in enumerate(pages):
        op = page.value.owner if isinstance(page.value.owner, Operation) else graph
        if page.offset < 0 or page.offset % PAGE_ALIGN_BYTES:
            raise _error(op, f"{page.what}: offsets in storage are multiples of {PAGE_ALIGN_BYTES}")
        if graph.storage_bytes is None:
            raise _error(graph, "there are pages but the graph has no storage_bytes")
        if page.offset + page.size > graph.storage_bytes:
            raise _error(op, f"{page.what} ends past the storage of {graph.storage_bytes}")
        for other in pages[:i]:
            together = page.first <= other.last and other.first <= page.last
            if together and _overlap(page.offset, page.size, other.offset, other.size):
                raise _error(op, f"{page.what} overlaps {other.what}, which is still needed")
    if any(isinstance(argument.type, PageType) for argument in graph.arguments):
        _verify_units(graph, pages)
        try:
            layout_of(graph)
        except InputError as error:
            raise _error(graph, error.message) from error


def _verify_units(graph: GraphOp, pages: list[_PageUse]) -> None:
    """A write that is cut off spoils nothing but what is being replaced anyway."""
    unit = graph.storage_unit
    if unit is None or unit <= 0:
        raise _error(graph, "parameters are on storage but the graph has no storage_unit")
    owner: dict[int, _PageUse | None] = {0: None, 1: None}  # None: the records
    for page in pages:
        op = page.value.owner if isinstance(page.value.owner, Operation) else graph
        for number in range(page.offset // unit, -(-(page.offset + page.size) // unit)):
            other = owner.setdefault(number, page)
            if other is not None and other.part == page.part:
                continue
            what = f"{_value(other.value)}, {other.part}" if other else "a record"
            raise _error(
                op,
                f"{_value(page.value)} at offset {page.offset}, {page.part}, shares write unit "
                f"{number} of {unit} bytes with {what}",
            )


def _page_uses(graph: GraphOp) -> Iterator[_PageUse]:
    index = {op: i for i, op in enumerate(graph.block.ops)}
    end = len(index)
    new_pages = {graph.new_page(i) for i in range(len(graph.arguments))}
    values = (*graph.arguments, *(r for op in graph.block.ops for r in op.results))
    for page in values:
        if not isinstance(page.type, PageType):
            continue
        offset, size = offset_of(page), page_bytes(tensor_bytes(page.type.tensor))
        if offset is None:
            op = page.owner if isinstance(page.owner, Operation) else graph
            raise _error(op, f"{_value(page)} has no offset in storage though buffers have one")
        if not isinstance(page, BlockArgument):
            # That a new value has the offset of the old one is verified with the updates.
            maker = transfer_of(page)
            assert maker is not None
            if maker not in new_pages:
                # Transfers run in the order of their starts: between these it must be there.
                first = index[maker]
                last = max((index[use.operation] for use in page.uses), default=first)
                yield _PageUse(page, "a page of the step", offset, size, first, last)
            continue
        # The banks change places with each step: each page has both of its places all the time.
        if graph.new_page(page.index) is None:
            yield _PageUse(page, "a constant", offset, size, -1, end)
            continue
        bank = graph.bank_bytes
        if bank is None:
            raise _error(graph, "parameters on storage are updated but there is no bank_bytes")
        yield _PageUse(page, "in bank 0", offset, size, -1, end)
        yield _PageUse(page, "in bank 1", offset + bank, size, -1, end)


# Sizes and names


def _overlap(a: int, a_size: int, b: int, b_size: int) -> bool:
    return a < b + b_size and b < a + a_size


def _largest(buffers: dict[SSAValue, int], count: int = 8) -> list[tuple[SSAValue, int]]:
    return sorted(buffers.items(), key=lambda buffer: -buffer[1])[:count]


def _op(op: Operation) -> str:
    if isinstance(op, GraphOp):
        return f"the start of poet.graph @{op.sym_name.data}"
    label = op.properties.get("label")
    return f'{op.name} "{label.data}"' if isinstance(label, StringAttr) else op.name


def _transfer(op: PageOutStartOp | PageInStartOp) -> str:
    """A transfer under way, for messages."""
    return f"{_op(op)} of {_value(op.operands[0])}"


def _value(value: SSAValue) -> str:
    """The name of a value and what defines it, as names in the text may differ or be missing."""
    name = f"%{value.name_hint} " if value.name_hint else ""
    if isinstance(value, BlockArgument):
        return f"{name}(argument {value.index})"
    assert isinstance(value, OpResult)
    which = f"result {value.index} of " if len(value.owner.results) > 1 else ""
    return f"{name}({which}{_op(value.owner)})"


def _error(op: Operation, message: str) -> VerificationError:
    return VerificationError(message, source_location(op))
