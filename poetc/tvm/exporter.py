"""A scheduled graph as a Relax function, in its order: the counterpart of `importer.py`.

    def f(arguments of the original function):
        pages = open_pages(...)                if there are transfers
        arena = alloc_storage(...)
        a tensor in the arena for each stay in RAM, in the shape that a kernel wants
        a storage of its own for each result, where it is made
        one call of a PrimFunc for each compute, scratch memory last
        a kill for each free
        return the results, in the structure of the original

All tensors of the step but arguments and results are in the arena. The function has no dataflow
block, so that the order of its calls is their order of execution. It is pure to its callers, and
says so (`relax.force_pure`), though it is not inside.
"""

# TVM's annotations are narrower than what it takes.
# pyright: reportArgumentType=false, reportReturnType=false, reportAttributeAccessIssue=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, relax, tirx
from xdsl.ir import Operation, SSAValue

from poetc.ir.poet import (
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
from poetc.tvm import pages
from poetc.tvm.importer import Imported, Tensor, Value, flat_bytes, kernel_name
from poetc.tvm.kernels import Buffer, Kernel

AddKernel = Callable[[str, tirx.PrimFunc], ir.GlobalVar]
"""Adds a PrimFunc to the module, under a name like the given one."""


def export_function(
    imported: Imported,
    original: relax.Function,
    attrs: dict[str, Any],
    builder: relax.BlockBuilder,
    add_kernel: AddKernel,
) -> relax.Function:
    """The function that does what `original` does, as the planned graph of `imported` says.

    `attrs` are added to the attributes of the original. `add_kernel` adds to the module of
    `builder`, which must not have a function of that name.
    """
    return _Exporter(imported, original, builder, add_kernel).export(attrs)


class _Exporter:
    """State while one function is written."""

    def __init__(
        self,
        imported: Imported,
        original: relax.Function,
        builder: relax.BlockBuilder,
        add_kernel: AddKernel,
    ) -> None:
        self.imported, self.original, self.add_kernel = imported, original, add_kernel
        self.builder = builder
        self.graph: GraphOp = imported.graph
        self.made_by_us = set(self.graph.return_op.arguments)
        self.sources = dict(zip(self.graph.arguments, imported.sources, strict=True))
        # The storage of each value, and the tensors on it by shape and type.
        self.storages: dict[SSAValue, relax.Var] = {}
        self.views: dict[SSAValue, dict[Buffer, relax.Var]] = {}
        self.kernels: dict[str, ir.GlobalVar] = {}
        self.arena: relax.Var | None = None
        self.pages: relax.Var | None = None

    def export(self, attrs: dict[str, Any]) -> relax.Function:
        for name, kernel in self.imported.kernels.items():
            function = kernel.overlapping if self.is_in_place(name) else kernel.function
            self.kernels[name] = self.add_kernel(name, function)
        known = dict(self.original.attrs or {})
        with self.builder.function(
            self.imported.name,
            list(self.original.params),
            attrs={**known, **attrs, "relax.force_pure": True},
            pure=bool(self.original.is_pure),
        ):
            if self.graph.storage_bytes:
                size = relax.prim_value(self.graph.storage_bytes)
                self.pages = self.call(pages.OPEN, relax.AnyType(), size)
            if self.graph.arena_bytes:
                self.arena = self.allocate(self.graph.arena_bytes, "arena")
            for op in self.graph.block.ops:
                self.operation(op)
            result = self.result(self.imported.results)
            if self.arena is not None:
                self.builder.emit(relax.op.memory.kill_storage(self.arena))
            self.builder.emit_func_output(result)
        return relax.utils.copy_with_new_vars(self.builder.get()[self.imported.name])

    def is_in_place(self, name: str) -> bool:
        """Whether some call of a kernel has results in place of operands."""
        return any(c.inplace_pairs for c in self.graph.computes if kernel_name(c) == name)

    def operation(self, op: Operation) -> None:
        match op:
            case ComputeOp():
                self.compute(op)
            case PageOutOp() | PageOutStartOp():
                self.transfer(pages.OUT, op.page, op.tensor)
            case PageInOp() | PageInStartOp():
                self.transfer(pages.IN, op.page, op.tensor)
            case FreeOp():
                self.kill(op.tensor)
            case WaitOp() | ReturnOp():
                # A transfer is over when its start returns.
                pass
            case _:
                raise AssertionError(f"{op.name} in a scheduled graph")

    def compute(self, compute: ComputeOp) -> None:
        name = kernel_name(compute)
        kernel: Kernel = self.imported.kernels[name]
        buffers = (*kernel.operands, *kernel.results)
        values = [*compute.operands, *compute.results]
        arguments = [self.tensor(v, b) for v, b in zip(values, buffers, strict=True)]
        scratch = self.scratch(compute, kernel)
        self.builder.emit(relax.Call(self.kernels[name], [*arguments, *scratch]))
        for tensor in scratch:
            self.builder.emit(relax.op.memory.kill_tensor(tensor))
        for _, operand in compute.inplace_pairs:
            self.kill(compute.operands[operand])

    def scratch(self, compute: ComputeOp, kernel: Kernel) -> list[relax.Var]:
        if not kernel.scratch:
            return []
        assert compute.workspace_offset is not None
        start = compute.workspace_offset.value.data
        return [
            self.place(self.arena, start + offset, buffer, "scratch")
            for buffer, offset in zip(kernel.scratch, kernel.scratch_offsets, strict=True)
        ]

    def transfer(self, function: str, page: SSAValue, tensor: SSAValue) -> None:
        offset = offset_of(page)
        assert offset is not None
        flat = self.tensor(tensor, Buffer((flat_bytes(tensor),), "uint8"))
        self.call(function, relax.TupleType([]), self.pages, relax.prim_value(offset), flat)

    def call(self, function: str, type_: ir.Type, *operands: Any) -> relax.Var:
        """A packed call, which no pass may drop."""
        call = relax.Call(relax.ExternFunc(function), list(operands), ty_args=[type_])
        return self.builder.emit(call)

    # Tensors

    def tensor(self, value: SSAValue, buffer: Buffer) -> relax.Expr:
        """A value in the shape that is wanted; one tensor as long as the value stays in RAM."""
        views = self.views.setdefault(value, {})
        if buffer not in views:
            views[buffer] = self.new_tensor(value, buffer)
        return views[buffer]

    def new_tensor(self, value: SSAValue, buffer: Buffer) -> relax.Expr:
        if (source := self.sources.get(value)) is not None:
            return self.in_shape(source.expr, buffer)
        name = value.name_hint or "tensor"
        if value not in self.made_by_us:
            return self.place(self.arena, offset_of(value), buffer, name)
        if value not in self.storages:
            self.storages[value] = self.allocate(flat_bytes(value), f"{name}_storage")
        return self.place(self.storages[value], 0, buffer, name)

    def in_shape(self, expr: relax.Expr | None, buffer: Buffer) -> relax.Expr:
        """An argument, a part of one or a constant, seen in a shape."""
        if isinstance(expr, relax.TupleGetItem):
            expr = self.builder.emit(expr)
        assert expr is not None
        if buffer.shape == tuple(int(extent) for extent in expr.ty.shape.values):
            return expr
        view = relax.op.memory.view(expr, relax.ShapeExpr(buffer.shape))
        return self.builder.emit(view)

    def allocate(self, bytes: int, name: str) -> relax.Var:
        size = relax.ShapeExpr([bytes])
        storage = relax.op.memory.alloc_storage(size, 0, "global", "uint8")
        return self.builder.emit(storage, name_hint=name)

    def place(
        self, storage: relax.Var | None, offset: int | None, buffer: Buffer, name: str
    ) -> relax.Var:
        assert storage is not None and offset is not None
        shape = relax.ShapeExpr(buffer.shape)
        tensor = relax.op.memory.alloc_tensor(storage, offset, shape, buffer.dtype)
        return self.builder.emit(tensor, name_hint=name)

    def kill(self, value: SSAValue) -> None:
        for view in self.views.pop(value, {}).values():
            self.builder.emit(relax.op.memory.kill_tensor(view))

    def result(self, value: Value) -> relax.Expr:
        if not isinstance(value, Tensor):
            return relax.Tuple([self.result(field) for field in value])
        buffer = Buffer(value.shape, value.dtype)
        if value.expr is not None:
            return self.in_shape(value.expr, buffer)
        return self.tensor(value.value, buffer)
