"""The table of a model: what a program that runs plans has built in, and a plan refers to.

It lists the tensors and operations of a graph in an order that does not depend on how the graph is
scheduled: two schedules of one model have the same table, so that a plan made from either runs on
firmware made from the other. An operation is a kernel and the tensors that it works on; that a
schedule runs it twice, or moves its results to storage and back, does not show.

Where kernels run in tiles, that is made for one schedule: such a table has the operations of that
schedule, each with an identity of its own, by which plans name them. What they make is numbered
by what they compute, so several may make the same, whole or in different tiles.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from xdsl.dialects.builtin import StringAttr, SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Region, SSAValue
from xdsl.printer import Printer

from poetc.backends.c.buffers import kernel_symbol
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
    RunOp,
    StreamOp,
    TileOp,
    runs_of,
    tensor_type,
    transfer_of,
)
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
    """A kernel function, or the functions of a kernel that runs in tiles as `run` does. Its
    `workspace_bytes` are in one piece; `pairs` are the (result, operand) positions that may be one
    buffer, `streamed` the positions of operands, and then results, that are on storage meanwhile.
    """

    name: str
    run: RunOp
    functions: tuple[FuncOp, ...]
    workspace_bytes: int
    pairs: tuple[tuple[int, int], ...]
    streamed: frozenset[int] = frozenset()

    @property
    def operands(self) -> int:
        return len(self.run.operands)

    @property
    def results(self) -> int:
        return len(self.run.results)

    @property
    def placed(self) -> int:
        """How many of its results have a place in the arena."""
        return sum(self.operands + r not in self.streamed for r in range(self.results))

    @cached_property
    def text(self) -> str:
        """A text that is the same for equal kernels, whatever their values and functions are
        called."""
        functions = [_function_text(function) for function in self.functions]
        lines = [*functions, f"pairs {self.pairs}"]
        if isinstance(self.run, StreamOp):
            streamed = sorted(self.streamed)
            lines += [f"streamed {streamed}, {self.workspace_bytes} bytes", _tiles_text(self.run)]
        return "\n".join(lines)


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
    block_bytes: int | None
    """The size of the blocks of pages, where kernels run in tiles."""
    computed: tuple[str, ...]
    """For each tensor that is no argument, the kernel that makes it and its operands."""

    @cached_property
    def identity(self) -> int:
        """A number that differs between tables: the CRC-32 of all that they say, kernels included;
        where operations have identities of their own, of what they compute.

        A plan names the one that it was made for.
        """
        image = 0 if self.image is None else self.image.identity
        operations = (f"run {op.kernel} {op.operands}" for op in self.operations)
        kernels = (kernel.text for kernel in self.kernels)
        blocks = (f"blocks {self.block_bytes}", *self.computed)
        lines = [
            _FORMAT,
            f"image {image:08x}, results {self.results}, bytes {self.tensor_bytes}",
            *(f"argument {a.is_param} {a.new_value} {a.page_offset}" for a in self.arguments),
            *((*operations, *kernels) if self.block_bytes is None else blocks),
        ]
        return zlib.crc32("\n".join(lines).encode())

    @cached_property
    def identities(self) -> tuple[int, ...]:
        """The identities of the operations, which differ where pages are in blocks."""
        if self.block_bytes is None:
            return ()
        texts = [zlib.crc32(kernel.text.encode()) for kernel in self.kernels]
        return tuple(
            zlib.crc32(f"{texts[op.kernel]} {op.operands} {op.results}".encode())
            for op in self.operations
        )

    def padded_bytes(self, tensor: int) -> int:
        """The bytes of a tensor in the arena."""
        return round_up(self.tensor_bytes[tensor], WORD_BYTES)

    @property
    def pages_start(self) -> int:
        """The offset in storage, in bytes, from which pages of a step may begin."""
        return 0 if self.image is None else self.image.pages_start

    @property
    def storage_bound_bytes(self) -> int:
        """Room in storage for the parameters there and a page of each other tensor."""
        stored = self.on_storage
        pages = (self.page_bytes(t) for t in range(len(self.tensor_bytes)) if t not in stored)
        return self.pages_start + sum(pages)

    def page_bytes(self, tensor: int) -> int:
        """The bytes of a page of a tensor on storage."""
        return page_bytes(self.tensor_bytes[tensor], block_bytes=self.block_bytes)

    @property
    def on_storage(self) -> frozenset[int]:
        """The parameters there, as they come and as they end."""
        stored = {i for i, a in enumerate(self.arguments) if a.page_offset is not None}
        new = {self.arguments[i].new_value for i in stored}
        return frozenset(stored | {tensor for tensor in new if tensor is not None})


@dataclass(frozen=True)
class Numbered:
    """The table of a graph, and the numbers of its values and runs in it. The number of a page is
    that of its tensor."""

    table: Table
    tensors: Mapping[SSAValue, int]
    operations: Mapping[RunOp, int]


def tensor_count(graph: GraphOp) -> int:
    """How many tensors the table of a graph has; it need not be scheduled."""
    return len(graph.arguments) + sum(len(node.run.results) for node in _ordered(graph)[0])


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
    name = f"graph @{graph.sym_name.data}"
    stored = [graph.is_stored(i) for i in range(len(graph.arguments)) if graph.role(i) == "param"]
    if any(stored) and not all(stored):
        raise InputError(f"{name}: plans have all parameters on storage, or none: --params=storage")
    order, nodes = _ordered(graph)
    first: dict[_Node, int] = {}
    count = len(graph.arguments)
    for node in order:
        first[node] = count
        count += len(node.run.results)
    if count > MAX_TENSORS:
        raise InputError(f"{name} has {count:,} tensors; plans can do {MAX_TENSORS:,}")
    tensors = {value: _number(key, first) for value, key in nodes.items()}
    made_of = {node: tuple(_number(key, first) for key in node.operands) for node in order}
    kernels = _Kernels(graph)
    numbers: dict[RunOp, int] = {}
    operations: dict[Operation, int] = {}
    for node, runs in _runs(graph, order, nodes).items():
        made = range(first[node], first[node] + len(node.run.results))
        for run in runs:
            operation = Operation(kernels.number(run), made_of[node], made)
            numbers[run] = operations.setdefault(operation, len(operations))
    table = Table(
        arguments=tuple(_argument(graph, i, tensors) for i in range(len(graph.arguments))),
        tensor_bytes=tuple(
            [_bytes(a) for a in graph.arguments]
            + [_bytes(result) for node in order for result in node.run.results]
        ),
        operations=tuple(operations),
        kernels=tuple(kernels.found),
        results=tuple(tensors[value] for value in graph.return_op.arguments),
        image=layout_of(graph),
        block_bytes=graph.block_bytes,
        computed=tuple(f"{node.meaning} of {made_of[node]}" for node in order),
    )
    return Numbered(table, tensors, numbers)


# Numbers that do not depend on the schedule


@dataclass(frozen=True, eq=False)
class _Node:
    """An operation, by what it computes, of tensors: each an argument (a number) or a result of a
    node. `run` is one that does it."""

    meaning: str
    operands: tuple[_Key, ...]
    run: RunOp


_Key = int | tuple[_Node, int]


def _number(key: _Key, first: Mapping[_Node, int]) -> int:
    # Results of what no result of the graph depends on have no number.
    return key if isinstance(key, int) else first.get(key[0], -1) + key[1]


def _runs(
    graph: GraphOp, order: Iterable[_Node], keys: Mapping[SSAValue, _Key]
) -> dict[_Node, list[RunOp]]:
    """The computes and streams that do each of the operations of `order`."""
    runs: dict[_Node, list[RunOp]] = {node: [] for node in order}
    for run in runs_of(graph):
        key = keys[run.results[0]] if run.results else None
        node = key[0] if isinstance(key, tuple) else None
        if node not in runs:
            raise InputError(
                f'{run.name} "{run.label.data}" makes nothing that a result depends on; '
                "a plan cannot run it",
                source_location(run),
            )
        runs[node].append(run)
    return runs


def _ordered(graph: GraphOp) -> tuple[list[_Node], dict[SSAValue, _Key]]:
    """The operations that results depend on, depth first from these; and each value's key."""
    keys: dict[SSAValue, _Key] = {argument: argument.index for argument in graph.arguments}
    known: dict[tuple[str, tuple[_Key, ...]], _Node] = {}
    for op in graph.block.ops:
        if isinstance(op, RunOp):
            what = (_region_text(op.body), tuple(keys[value] for value in op.operands))
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
    return tensor_bytes(tensor_type(value))


def _argument(graph: GraphOp, i: int, tensors: Mapping[SSAValue, int]) -> Argument:
    result = graph.updates(i)
    new = None if result is None else tensors[graph.return_op.arguments[result]]
    return Argument(
        is_param=graph.role(i) == "param",
        new_value=None if new == i else new,
        page_offset=graph.offset(i) if graph.is_stored(i) else None,
    )


class _Kernels:
    """The kernels of a graph in the order in which operations need them first."""

    def __init__(self, graph: GraphOp) -> None:
        self.functions = named_in(graph, FuncOp)
        self.found: list[Kernel] = []
        self.numbers: dict[str, int] = {}

    def number(self, run: RunOp) -> int:
        """The number of the kernel of a run."""
        if isinstance(run, ComputeOp):
            name = key = kernel_symbol(run)
            if key not in self.numbers:
                self._add(key, self._whole(name, run))
            return self.numbers[key]
        assert isinstance(run, StreamOp)
        kernel = self._in_tiles(run)
        key = f"{kernel.text}\noperands {[list(run.operands).index(v) for v in run.operands]}"
        if key not in self.numbers:
            self._add(key, kernel)
        return self.numbers[key]

    def _add(self, key: str, kernel: Kernel) -> None:
        self.numbers[key] = len(self.found)
        self.found.append(kernel)

    def _whole(self, name: str, run: ComputeOp) -> Kernel:
        function = self._function(name)
        operands, results = len(buffers(function, "inputs")), len(buffers(function, "results"))
        pairs = [
            (r, o) for r in range(results) for o in range(operands) if may_alias(function, r, o)
        ]
        space = round_up(workspace_bytes(function), WORD_BYTES)
        return Kernel(name, run, (function,), space, tuple(pairs))

    def _in_tiles(self, run: StreamOp) -> Kernel:
        values = (*run.operands, *run.results)
        return Kernel(
            run.label.data,
            run,
            tuple(self._function(name) for name in _tile_names(run)),
            round_up(run.workspace_bytes, WORD_BYTES),
            run.inplace_pairs,
            frozenset(n for n, value in enumerate(values) if isinstance(value.type, PageType)),
        )

    def _function(self, name: str) -> FuncOp:
        function = self.functions.get(name)
        if function is None or not function.body.blocks:
            raise InputError(f"kernel @{name} has no definition")
        return function


def _tile_names(stream: StreamOp) -> list[str]:
    """The functions of its tiles, each once."""
    tiles = (op for op in stream.tiles.walk() if isinstance(op, TileOp))
    return list(dict.fromkeys(tile.function.root_reference.data for tile in tiles))


def _function_text(function: FuncOp) -> str:
    copy = function.clone()
    _strip_names(copy.body)
    copy.sym_name = StringAttr("kernel")
    return "\n".join([str(copy), *(str(table) for table in tables_of(function))])


def _tiles_text(stream: StreamOp) -> str:
    numbers = {name: n for n, name in enumerate(_tile_names(stream))}
    copy = stream.tiles.clone()
    for op in copy.walk():
        if isinstance(op, TileOp):
            op.function = SymbolRefAttr(f"tile{numbers[op.function.root_reference.data]}")
    return _region_text(copy)


def _region_text(region: Region) -> str:
    """A region, whatever its values are called."""
    copy = region.clone()
    _strip_names(copy)
    text = io.StringIO()
    Printer(text).print_region(copy)
    return text.getvalue()


def _strip_names(region: Region) -> None:
    for block in region.blocks:
        for argument in block.args:
            argument.name_hint = None
        for op in block.ops:
            for result in op.results:
                result.name_hint = None
            for inner in op.regions:
                _strip_names(inner)
