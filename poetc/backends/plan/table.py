"""The table of a model: what a program that runs plans has built in, and a plan refers to.

It lists the tensors and operations of a graph in an order that does not depend on how the graph is
scheduled: two schedules of one model have the same table, so that a plan made from either runs on
firmware made from the other. An operation is a kernel and the tensors that it works on; that a
schedule runs it twice, or moves its results to storage and back, does not show.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.dialects.builtin import StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from poetc.backends.c.printer import tables_of
from poetc.errors import InputError
from poetc.image import ImageLayout, layout_of
from poetc.ir.graph import tensor_bytes
from poetc.ir.locations import source_location
from poetc.ir.poet import (
    AnyPageOut,
    ComputeOp,
    GraphOp,
    PageType,
    transfer_of,
)
from poetc.ir.stream_use import refuse_tiles
from poetc.ir.symbols import named_in
from poetc.kernels.analysis import buffers, may_alias, workspace_bytes
from poetc.page import page_bytes
from poetc.schedule.arena.pack import round_up

WORD_BYTES = 4
"""Places in the arena and in storage are multiples of this."""

MAX_TENSORS = 2**16 - 1
"""Tensors are numbered in 16 bits."""

_FORMAT = "poetc plan table 1"


@dataclass(frozen=True)
class Kernel:
    """A kernel function. `workspace_bytes` are in one piece; `pairs` are the (result, operand)
    positions that may be one buffer."""

    function: FuncOp
    operands: int
    results: int
    workspace_bytes: int
    pairs: tuple[tuple[int, int], ...]

    @property
    def name(self) -> str:
        return self.function.sym_name.data


@dataclass(frozen=True)
class Operation:
    """A kernel (its number) on tensors. `results` follow each other."""

    kernel: int
    operands: tuple[int, ...]
    results: range


@dataclass(frozen=True)
class Argument:
    """Argument i is tensor i. `new_value` is the tensor that updates it, None where nothing does.

    `page_offset` is its place in the storage image in bytes, in bank 0; None in RAM.
    """

    is_param: bool
    new_value: int | None
    page_offset: int | None


@dataclass(frozen=True)
class Table:
    """Tensors, operations, kernels. `tensor_bytes` are without padding; `results` are tensors."""

    arguments: tuple[Argument, ...]
    tensor_bytes: tuple[int, ...]
    operations: tuple[Operation, ...]
    kernels: tuple[Kernel, ...]
    results: tuple[int, ...]
    image: ImageLayout | None

    @cached_property
    def identity(self) -> int:
        """A number that differs between tables: the CRC-32 of all that they say, kernels included.

        A plan names the one that it was made for.
        """
        image = 0 if self.image is None else self.image.identity
        lines = [
            _FORMAT,
            f"image {image:08x}, results {self.results}, bytes {self.tensor_bytes}",
            *(f"argument {a.is_param} {a.new_value} {a.page_offset}" for a in self.arguments),
            *(f"run {op.kernel} {op.operands}" for op in self.operations),
            *(_kernel_text(kernel) for kernel in self.kernels),
        ]
        return zlib.crc32("\n".join(lines).encode())

    def padded_bytes(self, tensor: int) -> int:
        """What a tensor takes in the arena."""
        return round_up(self.tensor_bytes[tensor], WORD_BYTES)

    @property
    def pages_start(self) -> int:
        """Where pages of a step may begin in storage, in bytes."""
        return 0 if self.image is None else self.image.pages_start

    @property
    def storage_bound_bytes(self) -> int:
        """Room in storage for the parameters there and a page of each other tensor."""
        stored = {i for i, a in enumerate(self.arguments) if a.page_offset is not None}
        stored |= {self.arguments[i].new_value for i in stored}
        pages = (page_bytes(b) for t, b in enumerate(self.tensor_bytes) if t not in stored)
        return self.pages_start + sum(pages)


@dataclass(frozen=True)
class Numbered:
    """The table of a graph, and the numbers of its values and computes in it. The number of a page
    is that of its tensor."""

    table: Table
    tensors: Mapping[SSAValue, int]
    operations: Mapping[ComputeOp, int]


def tensor_count(graph: GraphOp) -> int:
    """How many tensors the table of a graph has; it need not be scheduled."""
    return len(graph.arguments) + sum(len(node.compute.results) for node in _ordered(graph)[0])


def refuse_arguments(graph: GraphOp) -> None:
    """Raises InputError for arguments that plans cannot hold; the graph need not be scheduled."""
    name = f"graph @{graph.sym_name.data}"
    if any(graph.is_frozen(i) for i in range(len(graph.arguments))):
        raise InputError(
            f"{name}: plans have all arguments in the arena or on storage: --frozen=off, or "
            "--frozen=storage --params=storage"
        )
    if graph.io != "arena":
        raise InputError(f"{name}: plans have inputs and results in the arena: --io=arena")


def table_of(graph: GraphOp) -> Numbered:
    """The table of a graph with a memory plan.

    Raises InputError for what plans cannot hold.
    """
    refuse_arguments(graph)
    refuse_tiles(graph, "plans")
    name = f"graph @{graph.sym_name.data}"
    stored = [graph.is_stored(i) for i in range(len(graph.arguments)) if graph.role(i) == "param"]
    if any(stored) and not all(stored):
        raise InputError(f"{name}: plans have all parameters on storage, or none: --params=storage")
    order, nodes = _ordered(graph)
    first: dict[_Node, int] = {}
    count = len(graph.arguments)
    for node in order:
        first[node] = count
        count += len(node.compute.results)
    if count > MAX_TENSORS:
        raise InputError(f"{name} has {count:,} tensors; plans can do {MAX_TENSORS:,}")
    tensors = {value: _number(key, first) for value, key in nodes.items()}
    kernels, kernel_numbers = _kernels(graph, order)
    position = {node: k for k, node in enumerate(order)}
    operations = [
        Operation(
            kernel_numbers[node.kernel],
            tuple(_number(key, first) for key in node.operands),
            range(first[node], first[node] + len(node.compute.results)),
        )
        for node in order
    ]
    table = Table(
        arguments=tuple(_argument(graph, i, tensors) for i in range(len(graph.arguments))),
        tensor_bytes=tuple(
            [_bytes(a) for a in graph.arguments]
            + [_bytes(result) for node in order for result in node.compute.results]
        ),
        operations=tuple(operations),
        kernels=kernels,
        results=tuple(tensors[value] for value in graph.return_op.arguments),
        image=layout_of(graph),
    )
    numbers: dict[ComputeOp, int] = {}
    for compute in graph.computes:
        node = _node_of(nodes, compute)
        if node not in position:
            raise InputError(
                f'poet.compute "{compute.label.data}" makes nothing that a result depends on; '
                "a plan cannot run it",
                source_location(compute),
            )
        numbers[compute] = position[node]
    return Numbered(table, tensors, numbers)


# Numbers that do not depend on the schedule


@dataclass(frozen=True, eq=False)
class _Node:
    """An operation, by what it computes: a kernel and tensors, each an argument (a number) or a
    result of a node."""

    kernel: str
    operands: tuple[_Key, ...]
    compute: ComputeOp


_Key = int | tuple[_Node, int]


def _number(key: _Key, first: Mapping[_Node, int]) -> int:
    # Results of what no result of the graph depends on have no number.
    return key if isinstance(key, int) else first.get(key[0], -1) + key[1]


def _node_of(keys: Mapping[SSAValue, _Key], compute: ComputeOp) -> _Node | None:
    key = keys[compute.results[0]] if compute.results else None
    return key[0] if isinstance(key, tuple) else None


def _ordered(graph: GraphOp) -> tuple[list[_Node], dict[SSAValue, _Key]]:
    """The operations that results depend on, depth first from these; and each value's key."""
    keys: dict[SSAValue, _Key] = {argument: argument.index for argument in graph.arguments}
    known: dict[tuple[str, tuple[_Key, ...]], _Node] = {}
    for op in graph.block.ops:
        if isinstance(op, ComputeOp):
            if op.kernel is None:
                raise InputError(
                    f'poet.compute "{op.label.data}" has no kernel; run poet-lower-kernels'
                )
            what = (op.kernel.root_reference.data, tuple(keys[value] for value in op.operands))
            node = known.setdefault(what, _Node(*what, op))
            keys |= {result: (node, r) for r, result in enumerate(op.results)}
            continue
        for result in op.results:
            # None makes a transfer under way: what it moves is the result of its wait.
            transfer = transfer_of(result)
            if transfer is not None:
                moved = transfer.tensor if isinstance(transfer, AnyPageOut) else transfer.page
                keys[result] = keys[moved]
    order: dict[_Node, None] = {}
    for value in graph.return_op.arguments:
        _visit(keys[value], order)
    return list(order), keys


def _visit(key: _Key, order: dict[_Node, None]) -> None:
    """Adds the operation that makes a tensor after those that it depends on."""
    if isinstance(key, int) or key[0] in order:
        return
    pending: list[tuple[_Node, Iterator[_Key]]] = [(key[0], iter(key[0].operands))]
    while pending:
        node, operands = pending[-1]
        following = next(
            (k[0] for k in operands if isinstance(k, tuple) and k[0] not in order), None
        )
        if following is None:
            order[node] = None
            pending.pop()
        else:
            pending.append((following, iter(following.operands)))


# Parts of the table


def _bytes(value: SSAValue) -> int:
    return tensor_bytes(value.type.tensor if isinstance(value.type, PageType) else value.type)


def _argument(graph: GraphOp, i: int, tensors: Mapping[SSAValue, int]) -> Argument:
    result = graph.updates(i)
    new = None if result is None else tensors[graph.return_op.arguments[result]]
    return Argument(
        is_param=graph.role(i) == "param",
        new_value=None if new == i else new,
        page_offset=graph.offset(i) if graph.is_stored(i) else None,
    )


def _kernels(graph: GraphOp, order: Sequence[_Node]) -> tuple[tuple[Kernel, ...], dict[str, int]]:
    """The kernels in the order in which operations need them first, and their numbers by name."""
    functions = named_in(graph, FuncOp)
    numbers: dict[str, int] = {}
    kernels: list[Kernel] = []
    for node in order:
        if node.kernel in numbers:
            continue
        function = functions.get(node.kernel)
        if function is None or not function.body.blocks:
            raise InputError(f"kernel @{node.kernel} has no definition")
        numbers[node.kernel] = len(kernels)
        operands, results = len(buffers(function, "inputs")), len(buffers(function, "results"))
        pairs = [
            (r, o) for r in range(results) for o in range(operands) if may_alias(function, r, o)
        ]
        space = round_up(workspace_bytes(function), WORD_BYTES)
        kernels.append(Kernel(function, operands, results, space, tuple(pairs)))
    return tuple(kernels), numbers


def _kernel_text(kernel: Kernel) -> str:
    """What a kernel is, whatever its values are called."""
    function = kernel.function.clone()
    for op in function.walk():
        for region in op.regions:
            for block in region.blocks:
                for argument in block.args:
                    argument.name_hint = None
        for result in op.results:
            result.name_hint = None
    function.sym_name = StringAttr("kernel")
    tables = [str(table) for table in tables_of(kernel.function)]
    return "\n".join([str(function), *tables, f"pairs {kernel.pairs}"])
