"""The RAM of a generated program, place by place: the numbers that the emitter and reports share.

All sizes and offsets are in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue

from poetc.errors import InputError
from poetc.ir.dense import dtype_of
from poetc.ir.graph import ALIGN_BYTES, round_up, tensor_bytes, widest_element_bytes
from poetc.ir.poet import GraphOp, PageType, offset_of, runs_of, tensor_type
from poetc.options import default
from poetc.tensors import ProgramTensor


def arena_alignment(graph: GraphOp) -> int:
    """The arena begins at a multiple of this, 4 or 8, so that the elements in it are aligned."""
    return max(ALIGN_BYTES, widest_element_bytes(graph))


MAX_BYTES = 2**31 - 1
"""The most bytes of the arena, of the storage and of each tensor. Offsets are uint32_t, subscripts
int32_t."""

STATIC_BYTES = 32
"""Static data beside the arena: none in the generated code, and the handle of the page store, which
the caller owns. No handle of the stores in `runtime/` is larger (on 64-bit hosts, too)."""

DEFAULT_STACK_BYTES: int = default("stack")
"""The stack reserved for a step, from `model_step` down, page store included."""


@dataclass(frozen=True)
class TensorPlace:
    """An argument or result: in the arena, a page in storage (of two, that in bank 0), or in a
    buffer of the caller, whose offset is 0. `frozen` is an argument that is never written, and the
    result that is this argument; the latter is in no buffer of its own.

    `updates` is, for a result, the parameter it replaces.
    """

    name: str
    type: TensorType
    offset: int
    is_param: bool = False
    updates: int | None = None
    on_storage: bool = False
    of_caller: bool = False
    frozen: bool = False

    @property
    def in_arena(self) -> bool:
        return not self.on_storage and not self.of_caller and not self.frozen

    @property
    def where(self) -> str:
        """The same in a word, as a `ProgramTensor` has it."""
        if self.on_storage:
            return "storage"
        if self.of_caller:
            return "caller"
        return "frozen" if self.frozen else "arena"

    def described(self, offset: int | None) -> ProgramTensor:
        """The same as data, with the offset that others may rely on."""
        return ProgramTensor(
            self.name,
            str(dtype_of(self.type.element_type)),
            self.shape,
            self.bytes,
            self.where,
            offset,
            self.is_param,
            self.updates,
        )

    @property
    def bytes(self) -> int:
        return tensor_bytes(self.type)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.get_shape()


def check_sizes(graph: GraphOp) -> None:
    """Raises InputError for what 32-bit index arithmetic in generated code cannot reach."""
    for i, argument in enumerate(graph.arguments):
        _check_size(f"argument {graph.arg_name(i)}", tensor_bytes(tensor_type(argument)))
    for compute in runs_of(graph):
        for result in compute.results:
            name = f"%{result.name_hint}" if result.name_hint else f"result {result.index}"
            what = f"tensor {name} of {compute.where}"
            _check_size(what, tensor_bytes(tensor_type(result)))
    name = graph.sym_name.data
    _check_size(f"the arena of graph @{name}", graph.arena_bytes or 0)
    _check_size(f"the storage of graph @{name}", graph.storage_bytes or 0)


def _check_size(what: str, bytes: int) -> None:
    if bytes > MAX_BYTES:
        raise InputError(f"{what} has {bytes:,} bytes; the C backend can do {MAX_BYTES:,}")


def static_ram_bytes(graph: GraphOp) -> int:
    """The `.data` and `.bss` of the generated code: its arena, if that is not empty, and a block of
    a page, where pages are in blocks."""
    if graph.arena_bytes is None:
        raise InputError(f"graph @{graph.sym_name.data} has no arena; run poet-plan-memory first")
    alignment = arena_alignment(graph)
    return block_offset(graph) + round_up(graph.block_bytes or 0, alignment)


def block_offset(graph: GraphOp) -> int:
    """The offset of a block of a page, behind the tensors in the arena."""
    return round_up(graph.arena_bytes or 0, arena_alignment(graph))


def arena_offset(value: SSAValue) -> int:
    """The offset of a tensor in the arena. Raises InputError if its graph has no memory plan."""
    offset = offset_of(value)
    if offset is None:
        raise InputError("a value has no place in the arena; run poet-plan-memory first")
    return offset


def argument_places(graph: GraphOp) -> tuple[TensorPlace, ...]:
    """The arguments, where the caller writes them before a step, or as pages.

    Raises InputError for an input on storage.
    """
    places: list[TensorPlace] = []
    callers = caller_names(graph)
    for i, argument in enumerate(graph.arguments):
        is_param = graph.role(i) == "param"
        place = _place(graph.arg_name(i), argument, callers, is_param=is_param)
        place = replace(place, frozen=graph.is_frozen(i))
        if place.on_storage and not place.is_param:
            raise InputError(f"input {place.name} is on storage; only parameters can be")
        places.append(place)
    return tuple(places)


def result_places(graph: GraphOp) -> tuple[TensorPlace, ...]:
    """The results, where the caller finds them after a step, or as pages.

    Raises InputError if the new value of a parameter is not where the next step expects it, and for
    any other result on storage.
    """
    updates = {graph.updates(i): i for i in range(len(graph.arguments))}
    callers = caller_names(graph)
    places: list[TensorPlace] = []
    for i, value in enumerate(graph.return_op.arguments):
        argument = updates.get(i)
        if argument is not None and graph.is_frozen(argument):
            type_ = tensor_type(value)
            places.append(
                TensorPlace(graph.result_name(i), type_, 0, updates=argument, frozen=True)
            )
            continue
        place = _place(graph.result_name(i), value, callers, updates=argument)
        if argument is None:
            if place.on_storage:
                raise InputError(f"result {place.name} is on storage; only new parameters can be")
        elif place.on_storage != isinstance(graph.arguments[argument].type, PageType):
            where = "on storage" if place.on_storage else "in RAM"
            raise InputError(f"parameter {graph.arg_name(argument)} ends the step {where} only")
        elif place.offset != graph.offset(argument):
            where = "the storage" if place.on_storage else "the arena"
            raise InputError(
                f"parameter {graph.arg_name(argument)} begins a step at offset "
                f"{graph.offset(argument)} of {where} but ends it at {place.offset}"
            )
        places.append(place)
    return tuple(places)


def caller_names(graph: GraphOp) -> dict[SSAValue, str]:
    """The values in buffers of the caller, with the names of their pointers in `model_step`.

    Raises InputError for a result that nothing would write.
    """
    if (unwritten := graph.unwritten_output()) is not None:
        raise InputError(f"result {unwritten} is made by no kernel, so it cannot be the caller's")
    callers = graph.caller_values()
    names = {a: f"argument{i}" for i, a in enumerate(graph.arguments) if a in callers}
    results = enumerate(graph.return_op.arguments)
    return names | {
        value: f"result{i}" for i, value in results if value in callers and value not in names
    }


def _place(
    name: str,
    value: SSAValue,
    callers: Mapping[SSAValue, str],
    *,
    is_param: bool = False,
    updates: int | None = None,
) -> TensorPlace:
    if value in callers:
        return TensorPlace(name, tensor_type(value), 0, of_caller=True)
    on_storage = isinstance(value.type, PageType)
    offset = offset_of(value) if on_storage else arena_offset(value)
    if offset is None:
        raise InputError(f"page {name} has no place in storage; run poet-plan-memory first")
    return TensorPlace(name, tensor_type(value), offset, is_param, updates, on_storage)
