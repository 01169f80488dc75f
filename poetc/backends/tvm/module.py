"""A scheduled and planned graph as a Relax module: the schedule, call for call.

    step(arena, store, inputs and results of the caller ...)
        views of the arena at the offsets of the memory plan
        one call of a PrimFunc for each compute, results and workspaces among its arguments
        packed calls that move pages between the arena and the store (runner.py)
        a kill for each free

    describe() -> what `Program.from_json` reads: where arguments and results are

The function is impure and has no dataflow block, so that the order of its calls is their order of
execution.
"""

# TVM's annotations are narrower than what it takes.
# pyright: reportArgumentType=false, reportReturnType=false
from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import ir, relax
from xdsl.dialects import memref
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, MemRefType, ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.utils.hints import isa

from poetc.backends.c.buffers import (
    kernel_buffers,
    kernel_calls,
    kernel_symbol,
    overlapping_arguments,
)
from poetc.backends.c.layout import (
    argument_places,
    caller_names,
    check_sizes,
    result_places,
    static_ram_bytes,
)
from poetc.backends.c.printer import tables_of
from poetc.backends.c.text import c_identifier
from poetc.backends.tvm.pipeline import same_promise
from poetc.backends.tvm.primfunc import prim_func
from poetc.backends.tvm.program import (
    DESCRIBE,
    IMAGE_COMMIT,
    IMAGE_OPEN,
    PAGE_IN,
    PAGE_OUT,
    STEP,
    Program,
)
from poetc.backends.tvm.scalars import element_dtype
from poetc.backends.tvm.stores import NEW, OLD, OWN, PAGE
from poetc.backends.tvm.tiles import Tiling, elements_of
from poetc.errors import InputError, collected
from poetc.image import layout_of
from poetc.ir.dense import to_array
from poetc.ir.graph import graphs
from poetc.ir.locations import source_location
from poetc.ir.poet import (
    AnyPageOut,
    ComputeOp,
    FreeOp,
    GraphOp,
    PageInOp,
    PageInStartOp,
    PageOutOp,
    PageOutStartOp,
    ReturnOp,
    WaitOp,
    offset_of,
)
from poetc.ir.stream_use import refuse_tiles

Arrangement = Callable[[FuncOp], tuple[FuncOp, Tiling]]
"""Chooses how the loops of a kernel run: in which order, in a copy, and in which tiles."""


def relax_module(module: ModuleOp, arrange: Arrangement | None = None) -> ir.IRModule:
    """The Relax module of the one graph of a module, with a PrimFunc for each kernel.

    Without `arrange`, loops run as they are written. Raises InputError if the graph is not
    scheduled or has no offsets yet, and for what TVM code cannot be generated of.
    """
    found = graphs(module)
    if len(found) != 1:
        raise InputError(f"a Relax module is made from one graph, not {len(found)}")
    return _Emitter(module, found[0], arrange or (lambda function: (function, {}))).emit()


def program_of(graph: GraphOp) -> Program:
    """The description of a planned graph for a runner."""
    arguments, results = (
        tuple(place.described(place.offset) for place in places)
        for places in (argument_places(graph), result_places(graph))
    )
    return Program(arguments, results, static_ram_bytes(graph), graph.storage_bytes or 0)


def _check_types(graph: GraphOp) -> None:
    """Raises InputError that lists all operations on elements that TVM code cannot hold."""
    faults: list[InputError] = []
    for op in (op for compute in graph.computes for op in compute.block.ops):
        for type_ in {value.type for value in (*op.operands, *op.results)}:
            try:
                if isinstance(type_, TensorType):
                    element_dtype(type_.element_type)
            except InputError as error:
                faults.append(InputError(f"{op.name}: {error.message}", source_location(op)))
    if faults:
        raise collected(faults)


@dataclass(frozen=True)
class _Kernel:
    """A kernel in the Relax module, and the tables that it takes behind its other arguments."""

    function: FuncOp
    variable: ir.GlobalVar
    tables: Sequence[relax.Expr]


class _Emitter:
    """State while one graph is written."""

    def __init__(self, module: ModuleOp, graph: GraphOp, arrange: Arrangement) -> None:
        refuse_tiles(graph, "--emit=tvm")
        check_sizes(graph)
        _check_types(graph)
        self.module, self.graph, self.arrange = module, graph, arrange
        self.image = layout_of(graph)
        # The kinds of pages in `stores.py`; others are of kind PAGE.
        self.kinds: dict[SSAValue, int] = {}
        for argument in graph.arguments:
            new = graph.new_page(argument.index)
            if new is not None:
                self.kinds |= {argument: OLD, new: NEW}
        if self.image is not None:
            own = [
                op.page
                for op in graph.block.ops
                if isinstance(op, AnyPageOut) and op.page not in self.kinds
            ]
            self.kinds |= {page: OWN + k for k, page in enumerate(own)}
        self.callers = caller_names(graph)
        self.program = program_of(graph)
        self.builder = relax.BlockBuilder()
        self.kernels: dict[str, _Kernel] = {}
        self.views: dict[SSAValue, relax.Var] = {}
        self.arena = relax.Var("arena", relax.TensorType((self.program.arena_bytes,), "uint8"))
        self.store = relax.Var("store", relax.AnyType())
        self.buffers = self.caller_buffers()

    def caller_buffers(self) -> dict[str, relax.Var]:
        """The parameters for buffers of the caller by name, inputs first."""
        values = [*self.graph.arguments, *self.graph.return_op.arguments]
        buffers: dict[str, relax.Var] = {}
        for value in values:
            if (name := self.callers.get(value)) is not None:
                buffers[name] = relax.Var(name, _flat_type(value))
        return buffers

    def emit(self) -> ir.IRModule:
        self.add_kernels()
        parameters = [self.arena, self.store, *self.buffers.values()]
        with self.builder.function(STEP, parameters, pure=False):
            if self.image is not None:
                unit, bank = self.image.unit_bytes, self.image.bank_bytes
                numbers = (self.image.identity, unit, bank, zlib.crc32(str(self.graph).encode()))
                self.effect(IMAGE_OPEN, *map(relax.prim_value, numbers))
            for op in self.graph.block.ops:
                self.operation(op)
            if NEW in self.kinds.values():
                self.effect(IMAGE_COMMIT)
            self.builder.emit_func_output(relax.Tuple([]))
        with self.builder.function(DESCRIBE, []):
            text = json.dumps(self.program.to_json())
            self.builder.emit_func_output(ir.StringImm(text))
        return same_promise(self.builder.get())

    def add_kernels(self) -> None:
        for function, computes in kernel_calls(self.module, self.graph):
            symbol = function.sym_name.data
            name = f"kernel_{c_identifier(symbol)}"
            calls = [
                kernel_buffers(function, compute, self.callers)
                for compute in computes
                if isinstance(compute, ComputeOp)
            ]
            noalias = not overlapping_arguments(function, calls)
            arranged, tiling = self.arrange(function)
            made = prim_func(arranged, name, noalias=noalias, tiling=tiling)
            variable = self.builder.add_func(made, name)
            tables = [relax.const(table_values(t)) for t in tables_of(function)]
            self.kernels[symbol] = _Kernel(function, variable, tables)

    def operation(self, op: Operation) -> None:
        match op:
            case ComputeOp():
                self.call(op)
            case PageOutOp() | PageOutStartOp():
                self.transfer(PAGE_OUT, op.page, op.tensor)
            case PageInOp() | PageInStartOp():
                self.transfer(PAGE_IN, op.page, op.tensor)
            case WaitOp():
                # A transfer is over when its start returns.
                pass
            case FreeOp():
                view = self.views.pop(op.tensor, None)
                if view is not None:
                    self.builder.emit(relax.op.memory.kill_tensor(view))
            case ReturnOp():
                pass
            case _:
                raise InputError(f"the TVM backend does not know {op.name}")

    def call(self, compute: ComputeOp) -> None:
        kernel = self.kernels[kernel_symbol(compute)]
        values = [*compute.operands, *compute.results]
        buffers = kernel_buffers(kernel.function, compute, self.callers)
        types = kernel.function.function_type.inputs.data
        operands: list[relax.Expr] = []
        for i, (buffer, type_) in enumerate(zip(buffers, types, strict=True)):
            if i < len(values):
                operands.append(self.view(values[i], buffer.offset))
            else:
                assert isa(type_, MemRefType)
                dtype = element_dtype(type_.element_type)
                space = self.slice(buffer.offset, elements_of(type_), dtype, "workspace")
                operands.append(space)
        self.builder.emit(relax.Call(kernel.variable, [*operands, *kernel.tables]))

    def transfer(self, function: str, page: SSAValue, tensor: SSAValue) -> None:
        offset, place = offset_of(page), offset_of(tensor)
        if offset is None or place is None:
            raise InputError("a page has no place in storage; run poet-plan-memory first")
        kind = self.kinds.get(page, PAGE)
        view = self.view(tensor, place)
        self.effect(function, relax.prim_value(offset), relax.prim_value(kind), view)

    def effect(self, function: str, *operands: relax.Expr) -> None:
        """A call of the runner, which returns nothing and which no pass may drop."""
        nothing = [relax.TupleType([])]
        called = relax.ExternFunc(function)
        self.builder.emit(relax.Call(called, [self.store, *operands], ty_args=nothing))

    def view(self, value: SSAValue, offset: int) -> relax.Expr:
        """The tensor of a value: one view as long as it stays in RAM."""
        if (name := self.callers.get(value)) is not None:
            return self.buffers[name]
        if value not in self.views:
            assert isinstance(value.type, TensorType)
            dtype = element_dtype(value.type.element_type)
            count = int(np.prod(value.type.get_shape(), dtype=np.int64))
            self.views[value] = self.slice(offset, count, dtype, value.name_hint or "tensor")
        return self.views[value]

    def slice(self, offset: int, elements: int, dtype: str, name: str) -> relax.Var:
        """A view of the arena."""
        shape = relax.ShapeExpr([elements])
        view = relax.op.memory.view(self.arena, shape, dtype, relax.prim_value(offset))
        return self.builder.emit(view, name_hint=name)


def _flat_type(value: SSAValue) -> relax.TensorType:
    assert isinstance(value.type, TensorType)
    count = int(np.prod(value.type.get_shape(), dtype=np.int64))
    return relax.TensorType((count,), element_dtype(value.type.element_type))


def table_values(table: memref.GlobalOp) -> np.ndarray:
    """A table of constants as it is in memory: flat, booleans as bytes."""
    if not isinstance(table.initial_value, DenseIntOrFPElementsAttr):
        raise InputError(f"memref.global @{table.sym_name.data} has no value")
    flat = np.ascontiguousarray(to_array(table.initial_value)).reshape(-1)
    return flat.astype(np.int8) if flat.dtype == np.bool_ else flat
