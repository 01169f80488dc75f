"""What a generated program keeps in RAM, and where: the numbers that the emitter and reports share.

All sizes and offsets are in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, BlockArgument, OpResult, SSAValue

from poetc.errors import InputError
from poetc.ir.graph import round_up, tensor_bytes
from poetc.ir.poet import ComputeOp, GraphOp, PageInOp

ARENA_ALIGNMENT = 4
"""The arena begins at a multiple of this, so that float and int32_t in it are aligned."""

MAX_BYTES = 2**31 - 1
"""Of the arena, the storage and each tensor. Offsets are uint32_t, subscripts int32_t."""

STATIC_BYTES = 32
"""Static data beside the arena: none in the generated code, and the handle of the page store, which
the caller owns. No handle of the stores in `runtime/` is larger (on 64-bit hosts, too)."""

DEFAULT_STACK_BYTES = 1024
"""The stack reserved for a step, from `model_step` down, page store included."""


@dataclass(frozen=True)
class TensorPlace:
    """An argument or result in the arena. `updates` is, for a result, the parameter it replaces."""

    name: str
    type: TensorType
    offset: int
    is_param: bool = False
    updates: int | None = None

    @property
    def bytes(self) -> int:
        return tensor_bytes(self.type)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.get_shape()


def check_sizes(graph: GraphOp) -> None:
    """Raises InputError for what 32-bit index arithmetic in generated code cannot reach."""
    for i, argument in enumerate(graph.arguments):
        _check_size(f"argument {graph.arg_name(i)}", tensor_bytes(argument.type))
    for compute in graph.computes:
        for result in compute.results:
            name = f"%{result.name_hint}" if result.name_hint else f"result {result.index}"
            what = f'tensor {name} of poet.compute "{compute.label.data}"'
            _check_size(what, tensor_bytes(result.type))
    name = graph.sym_name.data
    _check_size(f"the arena of graph @{name}", graph.arena_bytes or 0)
    _check_size(f"the storage of graph @{name}", graph.storage_bytes or 0)


def _check_size(what: str, bytes: int) -> None:
    if bytes > MAX_BYTES:
        raise InputError(f"{what} has {bytes:,} bytes; the C backend can do {MAX_BYTES:,}")


def static_ram_bytes(graph: GraphOp) -> int:
    """The `.data` and `.bss` of the generated code: its arena, which is never quite empty."""
    if graph.arena_bytes is None:
        raise InputError(f"graph @{graph.sym_name.data} has no arena; run poet-plan-memory first")
    return max(round_up(graph.arena_bytes, ARENA_ALIGNMENT), ARENA_ALIGNMENT)


def arena_offset(value: SSAValue) -> int:
    """Where a tensor value lies in the arena. Raises InputError if its graph has no memory plan."""
    offset: int | None = None
    owner = value.owner
    if isinstance(value, BlockArgument):
        graph = value.block.parent_op()
        assert isinstance(graph, GraphOp)
        offset = graph.offset(value.index)
    elif isinstance(owner, ComputeOp) and isinstance(value, OpResult):
        offset = None if owner.result_offsets is None else owner.result_offsets[value.index]
    elif isinstance(owner, PageInOp):
        offset = None if owner.offset is None else owner.offset.value.data
    if offset is None:
        raise InputError("a value has no place in the arena; run poet-plan-memory first")
    return offset


def argument_places(graph: GraphOp) -> tuple[TensorPlace, ...]:
    """The arguments, where the caller writes them before a step."""
    return tuple(
        TensorPlace(
            graph.arg_name(i), _tensor(argument.type), arena_offset(argument), _is_param(graph, i)
        )
        for i, argument in enumerate(graph.arguments)
    )


def result_places(graph: GraphOp) -> tuple[TensorPlace, ...]:
    """The results, where the caller finds them after a step.

    Raises InputError if the new value of a parameter is not where the next step expects it.
    """
    updates = {graph.updates(i): i for i in range(len(graph.arguments))}
    places: list[TensorPlace] = []
    for i, value in enumerate(graph.return_op.arguments):
        argument = updates.get(i)
        place = TensorPlace(
            graph.result_name(i), _tensor(value.type), arena_offset(value), updates=argument
        )
        if argument is not None and place.offset != graph.offset(argument):
            raise InputError(
                f"parameter {graph.arg_name(argument)} begins a step at offset "
                f"{graph.offset(argument)} of the arena but ends it at {place.offset}"
            )
        places.append(place)
    return tuple(places)


def _is_param(graph: GraphOp, index: int) -> bool:
    return graph.role(index) == "param"


def _tensor(type_: Attribute) -> TensorType:
    if not isinstance(type_, TensorType):
        raise InputError("the C backend has no arguments or results on auxiliary storage")
    return type_
