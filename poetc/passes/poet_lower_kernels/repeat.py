"""The kernel of a loop: one loop nest around the kernels of its body.

The body is a step: the values that the loop carries are its parameters, updated in place, and what
it writes into the tensors that it fills are its results. So it becomes a graph, is fused, and each
of its kernels is lowered, all as for `main`. Their loop nests then stand in one loop whose
iterations run in order. What they give each other is in workspaces of the loop.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.context import Context
from xdsl.dialects import affine, arith, func, memref
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    DictionaryAttr,
    FunctionType,
    IndexType,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    SymbolRefAttr,
    UnitAttr,
    i32,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr, AffineExpr, AffineMap

from poetc.ir import stablehlo as hlo
from poetc.ir.aliasing import ALIASING
from poetc.ir.buffers import buffer_type, element_bytes
from poetc.ir.poet import ComputeOp, GraphOp, YieldOp
from poetc.ir.stablehlo.bodies import body_key
from poetc.kernels.analysis import ITERATION, SEQUENTIAL, buffers, may_alias
from poetc.kernels.functions import kernel_function
from poetc.kernels.known import KnownKernels
from poetc.kernels.lower import Kernel, lower_kernel
from poetc.kernels.slices import replace_op
from poetc.passes.poet_fuse import fuse_graph
from poetc.passes.stablehlo_to_poet import StableHLOToPoetPass
from poetc.planning.order import order_graph
from poetc.schedule.arena.pack import Buffer, pack

_BEFORE, _ALWAYS = -1, 1 << 30
"""When workspaces live that are filled before the first iteration."""


def loop_of(block: Block) -> hlo.RepeatOp | None:
    """The loop that a body is, beside what is moved from constants."""
    return next((op for op in block.ops if isinstance(op, hlo.RepeatOp)), None)


def lower_loop(block: Block, name: str = "kernel") -> Kernel:
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

    def indices(self) -> list[_Index]:
        """The place in the tensor of an element of the window."""
        rank, stack = len(_shape(self.buffer)), self.stack
        return [
            _Index({k: 1}, stack.step, stack.first) if k == stack.axis else _Index({k: 1})
            for k in range(rank)
        ]


_Place = SSAValue | _Window
"""The place of a value of the body."""


@dataclass
class _Life:
    """The kernels of the body, from the first to the last, while which run a workspace holds
    something."""

    first: int
    last: int


class _Loop:
    def __init__(self, block: Block, loop: hlo.RepeatOp, name: str) -> None:
        self.block, self.loop, self.name = block, loop, name
        end = block.last_op
        assert end is not None
        self.outputs = list(end.operands)
        types = [buffer_type(hlo.tensor_type(value)) for value in (*block.args, *self.outputs)]
        self.entry = Block(arg_types=types)
        for n, argument in enumerate(self.entry.args):
            inputs = len(block.args)
            argument.name_hint = f"in{n}" if n < inputs else f"out{n - inputs}"
        self.inputs: dict[SSAValue, SSAValue] = dict(zip(block.args, self.entry.args, strict=False))
        self.lives: dict[SSAValue, _Life] = {}
        """Of what stands for each workspace until all of them have a place."""
        self.tables: list[memref.GlobalOp] = []
        self.lowered: dict[Hashable, Kernel] = {}

    def lower(self) -> Kernel:
        states = [self._state(value) for value in self.loop.results]
        operands = [self._operand(value) for value in self.loop.captured]
        for value, buffer in zip(self.loop.operands, states, strict=False):
            if self._is_read(buffer, states):
                self._store(value, buffer)
        step = Block(arg_types=[IndexType()])
        step.args[0].name_hint = "t"
        self._body(states, operands, step)
        step.add_op(affine.YieldOp.get())
        loop = affine.ForOp.from_region([], [], [], [], 0, self.loop.trips, Region(step))
        loop.attributes[SEQUENTIAL] = UnitAttr()
        self.entry.add_ops([loop, func.ReturnOp()])
        workspaces = self._place_workspaces()
        inputs, results = len(self.block.args), len(self.outputs)
        function = kernel_function(self.name, self.entry, inputs, results, workspaces)
        return Kernel(function, tuple(self.tables))

    # Buffers

    def _state(self, value: SSAValue) -> SSAValue:
        """Where a result of the loop is while it runs: where the kernel has it, if it does."""
        if value in self.outputs:
            return self.entry.args[len(self.block.args) + self.outputs.index(value)]
        return self._workspace(buffer_type(hlo.tensor_type(value)))

    def _operand(self, value: SSAValue) -> SSAValue:
        """Where the body reads a value from outside."""
        if value not in self.inputs:
            self.inputs[value] = self._workspace(buffer_type(hlo.tensor_type(value)))
            self._store(value, self.inputs[value])
        return self.inputs[value]

    def _workspace(self, type: Attribute, first: int = _BEFORE, last: int = _ALWAYS) -> SSAValue:
        """A stand-in for a workspace in use from the kernel `first` to the kernel `last`."""
        (space,) = Block(arg_types=[type]).args
        self.lives[space] = _Life(first, last)
        return space

    def _place_workspaces(self) -> int:
        """Makes arguments of the workspaces, one for each type of elements; how many. What does not
        live at the same time shares bytes."""
        by_element: dict[Attribute, list[SSAValue]] = {}
        for space in self.lives:
            by_element.setdefault(_memref_type(space).element_type, []).append(space)
        for n, (element, spaces) in enumerate(by_element.items()):
            align = element_bytes(element)
            lives = [self.lives[space] for space in spaces]
            packing = pack(
                [
                    Buffer(prod(_shape(space)) * align, life.first, life.last)
                    for space, life in zip(spaces, lives, strict=True)
                ],
                align,
            )
            size = packing.arena_bytes // align
            whole = self.entry.insert_arg(MemRefType(element, [size]), len(self.entry.args))
            whole.name_hint = f"ws{n}"
            for space, offset in zip(spaces, packing.offsets, strict=True):
                shape = _shape(space)
                strides = {k: prod(shape[k + 1 :]) for k in range(len(shape))}
                place = [_Index(strides, 0, offset // align)]
                for op in [use.operation for use in space.uses]:
                    _access(op, whole, place, None)
        return len(by_element)

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
        scratch = self._scratch(kernel, _BEFORE)
        self._inline(kernel.function, [*read, buffer, *scratch], self.entry, None)

    def _scratch(self, kernel: Kernel, at: int) -> list[SSAValue]:
        """The workspaces of a kernel that runs then."""
        needed = buffers(kernel.function, "workspace")
        return [self._workspace(each.type, at, at) for each in needed]

    # The body

    def _body(self, states: Sequence[SSAValue], operands: Sequence[SSAValue], step: Block) -> None:
        graph = _graph_of(self.loop)
        kernels = self._kernels(graph)
        order_graph(graph)
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
        for n, compute in enumerate(computes):
            kernel = kernels[compute]
            pairs = dict(compute.inplace_pairs)
            updated = {compute.operands[operand] for operand in pairs.values()}
            dying = [
                value
                for value in compute.operands
                if last[value] == n and places.get(value) in self.lives and value not in updated
            ]
            for k, result in enumerate(compute.results):
                if k in pairs:
                    places[result] = places[compute.operands[pairs[k]]]
                elif result not in places:
                    taken = _taken_over(compute, kernel.function, k, dying)
                    if taken is None:
                        places[result] = self._workspace(buffer_type(hlo.tensor_type(result)), n, n)
                    else:
                        dying.remove(taken)
                        places[result] = places[taken]
                space = places[result]
                if isinstance(space, SSAValue) and space in self.lives:
                    life = self.lives[space]
                    life.last = max(life.last, last.get(result, n))
            used: list[_Place] = [
                # Nothing reads the number of the step as a tensor: it is an index.
                step.args[0] if value is iteration else places[value]
                for value in (*compute.operands, *compute.results)
            ]
            arguments = [*used, *self._scratch(kernel, n)]
            self._inline(kernel.function, arguments, step, step.args[0])
        new = graph.return_op.operands[:carries]
        assert [places[value] for value in new] == list(states[:carries]), "not in place"

    def _kernels(self, graph: GraphOp) -> dict[ComputeOp, Kernel]:
        """The kernels of the body, which its computes name from then on."""
        found: dict[ComputeOp, Kernel] = {}
        module = graph.parent_op()
        assert isinstance(module, ModuleOp)
        for compute in graph.computes:
            of_step = [
                argument
                for argument, value in zip(compute.block.args, compute.operands, strict=True)
                if value is graph.block.args[0]
            ]
            found[compute] = kernel = self._part(compute.block, next(iter(of_step), None))
            compute.kernel = SymbolRefAttr(kernel.function.sym_name)
            if kernel.function.parent is None:
                module.body.block.add_op(kernel.function)
        return found

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
                _access(op, place.buffer, place.indices(), iteration)


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
    fuse_graph(graph, KnownKernels())
    return graph


def _taken_over(
    compute: ComputeOp, function: func.FuncOp, result: int, dying: Sequence[SSAValue]
) -> SSAValue | None:
    """An operand, read for the last time, whose buffer a result may have."""
    for value in compute.operands:
        if value in dying and value.type == compute.results[result].type:
            same = [n for n, other in enumerate(compute.operands) if other is value]
            if all(may_alias(function, result, n) for n in same):
                return value
    return None


@dataclass(frozen=True)
class _Index:
    """An index of an access as a linear function of those it had, and of the iteration."""

    of: Mapping[int, int]
    step: int = 0
    first: int = 0

    def expression(self, before: Sequence[AffineExpr], iteration: AffineExpr) -> AffineExpr:
        """The same of expressions."""
        total: AffineExpr = AffineConstantExpr(self.first)
        for k, factor in self.of.items():
            total = before[k] * AffineConstantExpr(factor) + total
        return iteration * AffineConstantExpr(self.step) + total if self.step else total


def _access(
    op: Operation, buffer: SSAValue, indices: Sequence[_Index], iteration: SSAValue | None
) -> None:
    """Makes an access one to another buffer."""
    block = op.parent_block()
    assert block is not None
    if isinstance(op, affine.LoadOp | affine.StoreOp):
        map = op.map.data
        operands = list(op.indices)
        if iteration is not None:
            # In a map that was read from text, loop variables may be symbols: they come last.
            operands.insert(map.num_dims, iteration)
        dims = map.num_dims + (iteration is not None)
        results = tuple(i.expression(map.results, AffineDimExpr(map.num_dims)) for i in indices)
        moved = AffineMapAttr(AffineMap(dims, map.num_symbols, results))
        if isinstance(op, affine.LoadOp):
            new = affine.LoadOp(buffer, operands, moved)
        else:
            new = affine.StoreOp(op.value, buffer, operands, moved)
    else:
        assert isinstance(op, memref.LoadOp | memref.StoreOp)
        places: list[SSAValue] = []
        for index in indices:
            terms = [(op.indices[k], factor) for k, factor in index.of.items()]
            if iteration is not None and index.step:
                terms.append((iteration, index.step))
            made = _sum(terms, index.first)
            for each in made:
                block.insert_op_before(each, op)
            places.append(made[-1].results[0])
        if isinstance(op, memref.LoadOp):
            new = memref.LoadOp.get(buffer, places)
        else:
            new = memref.StoreOp.get(op.value, buffer, places)
    replace_op(op, new)


def _sum(terms: Sequence[tuple[SSAValue, int]], first: int) -> list[Operation]:
    """Operations the last of which is the sum of a number and of products."""
    made: list[Operation] = [arith.ConstantOp.from_int_and_width(first, IndexType())]
    for value, factor in terms:
        total = made[-1].results[0]
        if factor != 1:
            constant = arith.ConstantOp.from_int_and_width(factor, IndexType())
            product = arith.MuliOp(value, constant.result)
            made += [constant, product]
            value = product.result
        made.append(arith.AddiOp(total, value))
    return made


def _closure(value: SSAValue) -> Iterator[SSAValue]:
    """The values that a value is computed from, in order, and the value itself."""
    found: dict[SSAValue, None] = {}

    def visit(value: SSAValue) -> None:
        if value not in found and isinstance(value.owner, Operation):
            for operand in value.owner.operands:
                visit(operand)
        found.setdefault(value)

    visit(value)
    return iter(found)


def _memref_type(buffer: SSAValue) -> MemRefType:
    assert isinstance(buffer.type, MemRefType)
    return buffer.type


def _shape(buffer: SSAValue) -> Sequence[int]:
    return _memref_type(buffer).get_shape()
