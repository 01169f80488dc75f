"""Executes lowered kernels on NumPy arrays: what they do to memory, bit for bit.

A parallel loop runs all of its iterations at once: its variable, and what depends on it, has an
axis of its own. Sums run in their order, an iteration at a time, and so does a loop whose
iterations share memory. Every access is checked, so that a kernel that reads or writes outside of a
buffer is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType

import numpy as np
from xdsl.dialects import affine, arith, func, memref
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    MemRefType,
)
from xdsl.ir import Attribute, Block, SSAValue

from poetc.interpreter.functions import InterpreterError
from poetc.interpreter.scalars import scalar, scalar_dtype
from poetc.ir.dense import dtype_of, to_array
from poetc.ir.locations import source_location
from poetc.ir.stablehlo.base import Array
from poetc.kernels.access import holds, value_of
from poetc.kernels.analysis import IN_ALL, SEQUENTIAL

_MOST_AT_ONCE = 1 << 22
"""Iterations that are done at once, at most: what they compute is in memory together."""


def memory_dtype(type_: Attribute) -> np.dtype:
    """How numbers of a type are held in buffers: a boolean takes a byte."""
    dtype = dtype_of(type_)
    return np.dtype(np.uint8) if dtype == np.bool_ else dtype


def tables_of(tables: Iterable[memref.GlobalOp]) -> dict[str, Array]:
    """The tables of constants by name, as `run_kernel` takes them."""
    found: dict[str, Array] = {}
    for op in tables:
        if isinstance(op.initial_value, DenseIntOrFPElementsAttr):
            array = to_array(op.initial_value)
            found[op.sym_name.data] = array.astype(memory_dtype(op.type.element_type))
    return found


def run_kernel(
    function: func.FuncOp,
    buffers: Sequence[Array],
    positions: Sequence[int] = (),
    tables: Mapping[str, Array] = MappingProxyType({}),
) -> None:
    """Runs a kernel on its buffers, which it changes.

    They have the shapes of its arguments and elements as `memory_dtype` says; two may be the same
    memory. `positions` are its arguments of type index, which come last. Raises InterpreterError
    for an access outside of a buffer, and for operations that kernels do not have.
    """
    arguments = function.body.block.args
    values: list[Array] = [*buffers, *(np.asarray(position) for position in positions)]
    run = _Run(function, dict(zip(arguments, values, strict=True)), tables)
    with np.errstate(all="ignore"):
        run.block(function.body.block)


@dataclass
class _Run:
    function: func.FuncOp
    values: dict[SSAValue, Array]
    tables: Mapping[str, Array]
    # Iterations done at once, for each parallel loop around, and which of them are active.
    lanes: tuple[int, ...] = ()
    active: Array | None = None

    def get(self, value: SSAValue) -> Array:
        """A value with one axis for each parallel loop around."""
        array = self.values[value]
        missing = len(self.lanes) - array.ndim
        return array.reshape(array.shape + (1,) * missing) if missing else array

    def block(self, block: Block) -> list[Array]:
        """The values that the block yields."""
        for op in block.ops:
            match op:
                case affine.YieldOp() | func.ReturnOp():
                    return [self.get(operand) for operand in op.operands]
                case affine.ForOp():
                    self._loop(op)
                case affine.IfOp():
                    self._if(op)
                case affine.LoadOp() | memref.LoadOp():
                    self.values[op.results[0]] = self._load(op, op.memref)
                case affine.StoreOp() | memref.StoreOp():
                    self._store(op, op.memref, op.value)
                case affine.ApplyOp():
                    operands = [self.get(operand) for operand in op.mapOperands]
                    (expr,) = op.map.data.results
                    self.values[op.result] = value_of(expr, operands, op.map.data.num_dims)
                case memref.GetGlobalOp():
                    name = op.name_.string_value()
                    if name not in self.tables:
                        raise InterpreterError(f"no table @{name}", source_location(op))
                    self.values[op.memref] = self.tables[name]
                case arith.ConstantOp():
                    assert isinstance(op.value, IntegerAttr | FloatAttr)
                    type_ = scalar_dtype(op.result.type)
                    self.values[op.result] = np.asarray(op.value.value.data).astype(type_)
                case _:
                    operands = [self.get(operand) for operand in op.operands]
                    self.values[op.results[0]] = np.asarray(scalar(op, operands))
        return []

    # Loops and guards

    def _loop(self, op: affine.ForOp) -> None:
        low, high = self._bound(op, True), self._bound(op, False)
        body = op.body.block
        count = int(high.max() - low.min()) if low.size and high.size else 0
        if count > 0 and low.size == high.size == 1 and self._at_once(op, count):
            lanes, active = self.lanes, self.active
            self.lanes = (*lanes, count)
            first = int(low.reshape(()))
            shape = (1,) * len(lanes) + (count,)
            self.values[body.args[0]] = np.arange(first, first + count).reshape(shape)
            if active is not None:
                self.active = active[..., None]
            self.block(body)
            self.lanes, self.active = lanes, active
            return
        carried = [self.get(start) for start in op.inits]
        outside = self.active
        for position in range(int(low.min()), int(high.max())) if count > 0 else ():
            inside = (position >= low) & (position < high)
            self.values[body.args[0]] = np.asarray(position)
            self.values.update(zip(body.args[1:], carried, strict=True))
            self.active = _both(outside, inside)
            after = self.block(body)
            carried = [_chosen(inside, a, b) for a, b in zip(after, carried, strict=True)]
        self.active = outside
        self.values.update(zip(op.results, carried, strict=True))

    def _bound(self, op: affine.ForOp, lower: bool) -> Array:
        bound = op.lowerBoundMap.data if lower else op.upperBoundMap.data
        operands = op.lowerBoundOperands if lower else op.upperBoundOperands
        arrays = [self.get(operand) for operand in operands]
        found = [value_of(expr, arrays, bound.num_dims) for expr in bound.results]
        return reduce(np.maximum if lower else np.minimum, found)

    def _at_once(self, op: affine.ForOp, count: int) -> bool:
        """Whether the iterations of a loop can be done at once."""
        if op.inits or SEQUENTIAL in op.attributes or op.step.value.data != 1:
            return False
        if count * int(np.prod(self.lanes, dtype=np.int64)) > _MOST_AT_ONCE:
            return False
        variables = _depending(op.body.block.args[0])
        for inner in op.walk():
            if isinstance(inner, memref.StoreOp) or IN_ALL in inner.attributes:
                return False
            # An element that every iteration writes is not theirs alone.
            if isinstance(inner, affine.StoreOp) and variables.isdisjoint(inner.indices):
                return False
        return True

    def _if(self, op: affine.IfOp) -> None:
        arrays = [self.get(operand) for operand in op.args]
        where = holds(op.condition.data, arrays)
        outside = self.active
        sides: list[list[Array] | None] = []
        for region, side in ((op.then_region, where), (op.else_region, ~where)):
            found = None
            if side.any() and region.blocks:
                self.active = outside if side.all() else _both(outside, side)
                found = self.block(region.block)
            sides.append(found)
        self.active = outside
        then, other = sides
        for i, result in enumerate(op.results):
            if then is None or other is None:
                only = then if other is None else other
                assert only is not None
                self.values[result] = only[i]
            else:
                self.values[result] = _chosen(where, then[i], other[i])

    # Memory

    def _indices(
        self, op: affine.LoadOp | affine.StoreOp | memref.LoadOp | memref.StoreOp, memory: SSAValue
    ) -> list[Array]:
        """Where an access is, 0 where it is not done; InterpreterError if that is outside."""
        operands = [self.get(index) for index in op.indices]
        if isinstance(op, affine.LoadOp | affine.StoreOp):
            map = op.map.data
            operands = [value_of(expr, operands, map.num_dims) for expr in map.results]
        found: list[Array] = []
        assert isinstance(memory.type, MemRefType)
        for dim, (index, size) in enumerate(zip(operands, memory.type.get_shape(), strict=True)):
            outside = (index < 0) | (index >= size)
            if outside.any():
                wrong = outside if self.active is None else outside & self.active
                if wrong.any():
                    raise InterpreterError(
                        f"kernel @{self.function.sym_name.data}: {op.name} at "
                        f"{int(np.broadcast_to(index, wrong.shape)[wrong][0])} in dimension {dim} "
                        f"of %{memory.name_hint} : {memory.type}",
                        source_location(op),
                    )
                index = np.where(outside, 0, index)
            found.append(index)
        return found

    def _load(self, op: affine.LoadOp | memref.LoadOp, memory: SSAValue) -> Array:
        buffer = self.values[memory]
        dtype = scalar_dtype(op.results[0].type)
        if not buffer.size:
            return np.zeros((1,) * len(self.lanes), dtype)
        loaded = np.asarray(buffer[tuple(self._indices(op, memory))])
        return loaded.astype(dtype, copy=False)

    def _store(
        self, op: affine.StoreOp | memref.StoreOp, memory: SSAValue, value: SSAValue
    ) -> None:
        buffer = self.values[memory]
        indices, array = self._indices(op, memory), self.get(value)
        array = array.astype(buffer.dtype, copy=False)
        if self.active is None:
            buffer[tuple(indices)] = array
        elif self.active.any():
            spread = np.broadcast_arrays(self.active, array, *indices)
            active, array, *indices = spread
            buffer[tuple(index[active] for index in indices)] = array[active]


def _both(a: Array | None, b: Array) -> Array:
    return b if a is None else a & b


def _chosen(condition: Array, yes: Array, no: Array) -> Array:
    return yes if condition.all() else np.where(condition, yes, no)


def _depending(value: SSAValue) -> set[SSAValue]:
    """The value, and those that are computed from it."""
    found, pending = {value}, [value]
    while pending:
        for use in pending.pop().uses:
            for result in use.operation.results:
                if result not in found:
                    found.add(result)
                    pending.append(result)
    return found
