"""The kernel of a loop: one loop nest around the kernels of its body.

The body is a step: the values that the loop carries are its parameters, updated in place, and what
it writes into the tensors that it fills are its results. So it becomes a graph, is fused, and each
of its kernels is lowered, all as for `main`. Their loop nests then stand in one loop whose
iterations run in order. What they give each other is in workspaces of the loop.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import affine, func, memref
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    DictionaryAttr,
    FunctionType,
    IndexType,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    StringAttr,
    UnitAttr,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr, AffineExpr, AffineMap

from poetc.ir import stablehlo as hlo
from poetc.ir.aliasing import ALIASING
from poetc.ir.poet import ComputeOp, GraphOp, YieldOp
from poetc.ir.types import type_in_kernel
from poetc.kernels.analysis import ITERATION, SEQUENTIAL, buffers, may_alias
from poetc.kernels.lower import Kernel, lower_kernel
from poetc.passes.poet_fuse import fuse_graph
from poetc.passes.poet_lower_kernels.keys import body_key
from poetc.passes.stablehlo_to_poet import StableHLOToPoetPass


def loop_of(block: Block) -> hlo.RepeatOp | None:
    """The loop that a body is, beside what is moved from constants."""
    return next((op for op in block.ops if isinstance(op, hlo.RepeatOp)), None)


def lower_loop(block: Block, name: str) -> Kernel:
    """The kernel of a compute whose body is a loop. InputError where an operation in the loop is
    not supported."""
    loop = loop_of(block)
    assert loop is not None
    return _Loop(block, loop, name).lower()


@dataclass(frozen=True)
class _Window:
    """The window of a tensor that an iteration writes."""

    buffer: SSAValue
    stack: hlo.Stack


_Place = SSAValue | _Window
"""Where a value of the body is."""


class _Loop:
    def __init__(self, block: Block, loop: hlo.RepeatOp, name: str) -> None:
        self.block, self.loop, self.name = block, loop, name
        end = block.last_op
        assert end is not None
        self.outputs = list(end.operands)
        types = [_memref(value.type) for value in (*block.args, *self.outputs)]
        self.entry = Block(arg_types=types)
        for n, argument in enumerate(self.entry.args):
            inputs = len(block.args)
            argument.name_hint = f"in{n}" if n < inputs else f"out{n - inputs}"
        self.inputs: dict[SSAValue, SSAValue] = dict(zip(block.args, self.entry.args, strict=False))
        self.workspaces: list[SSAValue] = []
        self.free: list[SSAValue] = []
        """Workspaces that hold nothing that is still read."""
        self.tables: list[memref.GlobalOp] = []
        self.lowered: dict[Hashable, Kernel] = {}

    def lower(self) -> Kernel:
        states = [self._state(value) for value in self.loop.results]
        operands = [self._operand(value) for value in self.loop.captured]
        for value, buffer in zip(self.loop.operands, states, strict=False):
            if self._is_read(buffer, states):
                self._store(value, buffer)
        graph = _graph_of(self.loop)
        step = Block(arg_types=[IndexType()])
        step.args[0].name_hint = "t"
        self._body(graph, states, operands, step)
        step.add_op(affine.YieldOp.get())
        loop = affine.ForOp.from_region([], [], [], [], 0, self.loop.trips, Region(step))
        loop.attributes[SEQUENTIAL] = UnitAttr()
        self.entry.add_ops([loop, func.ReturnOp()])
        for n, workspace in enumerate(self.workspaces):
            workspace.name_hint = f"ws{n}"
        function = func.FuncOp(
            self.name,
            FunctionType.from_lists(self.entry.arg_types, []),
            Region(self.entry),
            visibility=StringAttr("private"),
        )
        for key, number in (
            ("inputs", len(self.block.args)),
            ("results", len(self.outputs)),
            ("workspace", len(self.workspaces)),
        ):
            function.attributes[f"poet.{key}"] = IntegerAttr(number, i64)
        return Kernel(function, tuple(self.tables))

    # Buffers

    def _state(self, value: SSAValue) -> SSAValue:
        """Where a result of the loop is while it runs: where the kernel has it, if it does."""
        if value in self.outputs:
            return self.entry.args[len(self.block.args) + self.outputs.index(value)]
        return self._workspace(_memref(value.type))

    def _operand(self, value: SSAValue) -> SSAValue:
        """Where the body reads a value from outside."""
        if value not in self.inputs:
            self.inputs[value] = self._workspace(_memref(value.type))
            self._store(value, self.inputs[value])
        return self.inputs[value]

    def _workspace(self, type: Attribute) -> SSAValue:
        """A buffer that is free, or a new one."""
        for buffer in self.free:
            if buffer.type == type:
                self.free.remove(buffer)
                return buffer
        self.workspaces.append(self.entry.insert_arg(type, len(self.entry.args)))
        return self.workspaces[-1]

    def _is_read(self, buffer: SSAValue, states: Sequence[SSAValue]) -> bool:
        """Whether anything is left of what a tensor was before the loop."""
        n = states.index(buffer) - self.loop.carries
        if n < 0:
            return True
        end = self.loop.body.block.last_op
        assert end is not None
        stack = self.loop.stacks[n]
        whole, part = self.loop.results[self.loop.carries + n], end.operands[self.loop.carries + n]
        extent, window = (hlo.shape_of(value)[stack.axis] for value in (whole, part))
        return not stack.covers(extent, window, self.loop.trips)

    def _store(self, value: SSAValue, buffer: SSAValue) -> None:
        """Fills a buffer before the loop."""
        body, copies = Block(), dict[SSAValue, SSAValue]()
        for needed in _closure(value):
            if isinstance(needed, BlockArgument):
                copies[needed] = body.insert_arg(needed.type, len(body.args))
            elif isinstance(needed.owner, Operation):
                copy = needed.owner.clone(copies)
                body.add_op(copy)
                copies[needed] = copy.results[0]
        body.add_op(YieldOp(copies[value]))
        read = [self.inputs[needed] for needed in copies if isinstance(needed, BlockArgument)]
        kernel = self._part(body, None)
        scratch = [self._workspace(each.type) for each in buffers(kernel.function, "workspace")]
        self._inline(kernel.function, [*read, buffer, *scratch], self.entry, None)
        self.free += scratch

    # The body

    def _body(
        self,
        graph: GraphOp,
        states: Sequence[SSAValue],
        operands: Sequence[SSAValue],
        step: Block,
    ) -> None:
        iteration, *arguments = graph.block.args
        carries = self.loop.carries
        places: dict[SSAValue, _Place] = dict(
            zip(arguments, [*states[:carries], *operands], strict=True)
        )
        windows = graph.return_op.operands[carries:]
        for value, buffer, stack in zip(windows, states[carries:], self.loop.stacks, strict=True):
            places[value] = _Window(buffer, stack)
        computes = list(graph.computes)
        last = {value: n for n, compute in enumerate(computes) for value in compute.operands}
        held: dict[SSAValue, SSAValue] = {}
        """Values in workspaces that may be used for others afterwards."""
        for n, compute in enumerate(computes):
            of_step = [
                argument
                for argument, value in zip(compute.block.args, compute.operands, strict=True)
                if value is iteration
            ]
            kernel = self._part(compute.block, next(iter(of_step), None))
            dying = {v for v in compute.operands if v in held and last[v] == n}
            pairs = dict(compute.inplace_pairs)
            for k, result in enumerate(compute.results):
                if k in pairs:
                    places[result] = places[compute.operands[pairs[k]]]
                elif result not in places:
                    taken = _taken_over(compute, kernel.function, k, dying)
                    if taken is not None:
                        dying.remove(taken)
                        held[result] = held.pop(taken)
                    else:
                        held[result] = self._workspace(_memref(result.type))
                    places[result] = held[result]
            scratch = [self._workspace(each.type) for each in buffers(kernel.function, "workspace")]
            used: list[_Place] = [
                # Nothing reads the number of the step as a tensor: it is an index.
                step.args[0] if value is iteration else places[value]
                for value in (*compute.operands, *compute.results)
            ]
            self._inline(kernel.function, [*used, *scratch], step, step.args[0])
            unread = [v for v in compute.results if v in held and v not in last]
            self.free += [*scratch, *(held.pop(value) for value in (*dying, *unread))]

    def _part(self, body: Block, iteration: SSAValue | None) -> Kernel:
        """The kernel of a part of the loop; equal parts have one."""
        key = body_key(body), None if iteration is None else body.args.index(iteration)  # pyright: ignore
        if key not in self.lowered:
            name = f"{self.name}_part{len(self.lowered)}"
            nested = loop_of(body) is not None
            kernel = lower_loop(body, name) if nested else lower_kernel(body, name, iteration)
            self.lowered[key] = kernel
            self.tables += kernel.globals
        return self.lowered[key]

    def _inline(
        self,
        function: func.FuncOp,
        arguments: Sequence[_Place],
        into: Block,
        iteration: SSAValue | None,
    ) -> None:
        """Puts the loop nests of a part behind what is in a block."""
        source = function.body.block
        values: dict[SSAValue, SSAValue] = {}
        windows: dict[SSAValue, _Window] = {}
        for argument, place in zip(source.args, arguments, strict=False):
            if isinstance(place, _Window):
                # Stands for the window until all accesses are those of the tensor.
                values[argument] = Block(arg_types=[argument.type]).args[0]
                windows[values[argument]] = place
            else:
                values[argument] = place
        if ITERATION in function.attributes:
            assert iteration is not None
            values[source.args[-1]] = iteration
        into.add_ops([op.clone(values) for op in source.ops if not isinstance(op, func.ReturnOp)])
        for window, place in windows.items():
            assert iteration is not None
            for op in [use.operation for use in window.uses]:
                _access(op, place, iteration)


def _graph_of(loop: hlo.RepeatOp) -> GraphOp:
    """The body as a graph of kernels: carried values are parameters."""
    body = loop.body.clone()
    end = body.block.last_op
    assert end is not None
    returned = list(end.operands)
    body.block.erase_op(end)
    body.block.add_op(func.ReturnOp(*returned))
    inputs, outputs = body.block.arg_types, [value.type for value in returned]
    attributes = [
        {ALIASING: IntegerAttr(n - 1, i32)} if 1 <= n <= loop.carries else {}
        for n in range(len(inputs))
    ]
    main = func.FuncOp(
        "main",
        FunctionType.from_lists(inputs, outputs),
        body,
        arg_attrs=ArrayAttr([DictionaryAttr(each) for each in attributes]),
    )
    module = ModuleOp([main])
    StableHLOToPoetPass(frozen="off").apply(Context(), module)
    (graph,) = (op for op in module.ops if isinstance(op, GraphOp))
    fuse_graph(graph)
    return graph


def _taken_over(
    compute: ComputeOp, function: func.FuncOp, result: int, dying: set[SSAValue]
) -> SSAValue | None:
    """An operand, read for the last time, whose buffer a result may have."""
    for value in compute.operands:
        if value in dying and value.type == compute.results[result].type:
            same = [n for n, other in enumerate(compute.operands) if other is value]
            if all(may_alias(function, result, n) for n in same):
                return value
    return None


def _access(op: Operation, window: _Window, iteration: SSAValue) -> None:
    """Makes an access to a window one to the tensor."""
    stack, block = window.stack, op.parent_block()
    assert block is not None
    if isinstance(op, affine.LoadOp | affine.StoreOp):
        map, indices = _moved(op.map.data, op.indices, stack, iteration)
        if isinstance(op, affine.LoadOp):
            new = affine.LoadOp(window.buffer, indices, map)
        else:
            new = affine.StoreOp(op.value, window.buffer, indices, map)
    else:
        assert isinstance(op, memref.LoadOp)
        places = list(op.indices)
        shift = AffineMap(2, 0, (AffineDimExpr(0) + _start(stack, AffineDimExpr(1)),))
        moved = affine.ApplyOp([places[stack.axis], iteration], AffineMapAttr(shift))
        block.insert_op_before(moved, op)
        places[stack.axis] = moved.result
        new = memref.LoadOp.get(window.buffer, places)
    block.insert_op_before(new, op)
    for old, result in zip(op.results, new.results, strict=True):
        result.name_hint = old.name_hint
        old.replace_all_uses_with(result)
    block.erase_op(op)


def _moved(
    map: AffineMap, operands: Sequence[SSAValue], stack: hlo.Stack, iteration: SSAValue
) -> tuple[AffineMapAttr, list[SSAValue]]:
    # In a map that was read from text, loop variables may be symbols.
    results = list(map.results)
    results[stack.axis] = results[stack.axis] + _start(stack, AffineDimExpr(map.num_dims))
    indices = [*operands[: map.num_dims], iteration, *operands[map.num_dims :]]
    moved = AffineMap(map.num_dims + 1, map.num_symbols, tuple(results))
    return AffineMapAttr(moved), indices


def _start(stack: hlo.Stack, iteration: AffineExpr) -> AffineExpr:
    """Where the window of an iteration begins."""
    return iteration * AffineConstantExpr(stack.step) + AffineConstantExpr(stack.first)


def _closure(value: SSAValue) -> Iterator[SSAValue]:
    """What a value is computed from, in order, and it itself."""
    found: dict[SSAValue, None] = {}

    def visit(value: SSAValue) -> None:
        if value not in found and isinstance(value.owner, Operation):
            for operand in value.owner.operands:
                visit(operand)
        found.setdefault(value)

    visit(value)
    return iter(found)


def _memref(type: Attribute) -> MemRefType:
    return MemRefType(type_in_kernel(hlo.element_type_of(type)), hlo.shape_of(type))


__all__ = ["loop_of", "lower_loop"]
