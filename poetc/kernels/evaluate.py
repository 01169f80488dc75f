"""Evaluates elements of the values of a compute body, on demand, into a loop nest.

`element(value, at)` emits whatever computes one element: data movement becomes index arithmetic,
element-wise operations scalar expressions, reductions sequential loops (reductions.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import MemRefType, StringAttr, UnitAttr
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from poetc.errors import InputError
from poetc.ir import stablehlo
from poetc.ir.buffers import type_in_kernel
from poetc.ir.dense import dtype_of, from_array
from poetc.ir.index import ZERO, Condition, Dynamic, Index, Quotient, Var
from poetc.ir.stablehlo import element_type_of, shape_of
from poetc.ir.stablehlo.conversion import converted
from poetc.ir.stablehlo.index_maps import Indices, Move
from poetc.ir.stablehlo.indexing import Gather
from poetc.kernels import expressions
from poetc.kernels.builder import Builder, Val
from poetc.kernels.plan import Plan
from poetc.kernels.reductions import Reductions


class NeedsBuffer(Exception):  # noqa: N818
    """`value` has to be in memory for the body to be lowered."""

    def __init__(self, value: SSAValue) -> None:
        self.value = value


class Evaluator(Reductions):
    """One attempt at lowering a body under a plan."""

    def __init__(
        self,
        block: Block,
        builder: Builder,
        plan: Plan,
        inputs: dict[SSAValue, SSAValue],
        workspace: dict[SSAValue, SSAValue],
        by_rows: dict[stablehlo.ScatterOp, list[SSAValue]],
        partners: Callable[[Operation, Sequence[Operation]], Iterable[Operation]],
        name: str,
        iteration: tuple[SSAValue, SSAValue] | None = None,
    ) -> None:
        """`iteration` is the number of the step of a loop around: as a tensor, and as an index."""
        super().__init__(builder, plan, workspace, by_rows, partners)
        self.iteration = iteration
        self._order = {op: i for i, op in enumerate(block.ops)}
        self.inputs = inputs
        self.name = name
        self.globals: list[memref.GlobalOp] = []
        self._tables: dict[Operation, SSAValue] = {}
        self._dynamics: dict[SSAValue, Dynamic] = {}

    def element(self, value: SSAValue, at: Indices) -> Val:
        """The element of `value` at `at`."""
        shape = shape_of(value)
        index = tuple(ZERO if n == 1 else i for i, n in zip(at, shape, strict=True))
        key = (value, index)
        if (found := self.b.recall(key)) is not None:
            return found
        return self.b.remember(key, self._element(value, index).of(element_type_of(value)))

    def _element(self, value: SSAValue, at: tuple[Index, ...]) -> Val:
        if isinstance(value, BlockArgument):
            return self.load(self.inputs[value], at)
        if (found := self.reload(value, at)) is not None:
            return found
        if value in self.plan.kept:
            return self.kept(value, at)
        return self.compute(value, at)

    def compute(self, value: SSAValue, at: tuple[Index, ...]) -> Val:
        """The element, from the operation that defines it."""
        op = value.owner
        assert isinstance(op, Operation)
        if isinstance(op, stablehlo.ElementwiseOp):
            self._chain(op, at)
            elements = [self.element(o, op.operand_at(o, at)) for o in op.operands]
            return op.lower(self.b, *elements)
        if isinstance(op, stablehlo.ReductionOp):
            return self.reduced(op, at)
        match op:
            case stablehlo.ConstantOp():
                return self._constant(op, at)
            case stablehlo.IotaOp():
                return expressions.from_index(self.b, at[op.dim], element_type_of(value))
            case stablehlo.PositionOp():
                return self._position(op)
            case stablehlo.GatherOp():
                return self._gather(op, at)
        if not isinstance(op, stablehlo.MovementOp):
            raise InputError(f"{op.name} is not supported in kernels")
        moves = op.moves(at)

        def choose(i: int) -> Sequence[Val]:
            move = moves[i]
            return self.b.guarded(
                move.conditions,
                lambda: [self.element(move.source, move.indices)],
                lambda: choose(i + 1),
            )

        for move in moves:
            self.request_splits(condition.index for condition in move.conditions)
            guards = [condition.index for condition in move.conditions]
            if any(index.is_dynamic for index in guards) or any(map(_divides, move.indices)):
                # Guards and divisions are affine, they cannot depend on memory: gather from a
                # buffer instead.
                raise NeedsBuffer(value)
        if isinstance(op, stablehlo.ConcatenateOp) and len(moves) > 2:
            return self._search(moves, at[op.dim], op.dim)[0]
        return choose(0)[0]

    def _search(self, moves: Sequence[Move], position: Index, dim: int) -> Sequence[Val]:
        """The element of a concatenation of many tensors, by halves."""
        if len(moves) == 1:
            return [self.element(moves[0].source, moves[0].indices)]
        middle = len(moves) // 2
        # Where the right half begins: there its index is zero.
        start = position - moves[middle].indices[dim]
        return self.b.guarded(
            [Condition(start - 1 - position)],
            lambda: self._search(moves[:middle], position, dim),
            lambda: self._search(moves[middle:], position, dim),
            [Condition(position - start)],
        )

    def _chain(self, op: stablehlo.ElementwiseOp, at: tuple[Index, ...]) -> None:
        """Evaluate the element-wise operations that `op` depends on from the first one on: chains
        of hundreds would otherwise go as deep as they are long."""
        chain: set[stablehlo.ElementwiseOp] = set()
        stack = [op]
        while stack:
            for operand in stack.pop().operands:
                producer = operand.owner
                if (
                    isinstance(producer, stablehlo.ElementwiseOp)
                    and producer not in chain
                    and operand not in self.written
                    and operand not in self.plan.kept
                    and self.b.recall((operand, op.operand_at(operand, at))) is None
                ):
                    chain.add(producer)
                    stack.append(producer)
        for producer in sorted(chain, key=self._order.__getitem__):
            value = producer.results[0]
            self.element(value, op.operand_at(value, at))

    def _constant(self, op: stablehlo.ConstantOp, at: tuple[Index, ...]) -> Val:
        array = op.array()
        type = element_type_of(op.results[0])
        if not array.size:
            return self.b.constant(0, type)  # never read
        if _is_splat(array):
            return self.b.constant(array.flat[0].item(), type)
        if op not in self._tables:
            name = f"{self.name}_table{len(self.globals)}"
            code = type_in_kernel(type)
            buffer_type = MemRefType(code, shape_of(op.results[0]))
            bits = op.value if code == type else from_array(array.view(dtype_of(code)), code)
            self.globals.append(
                memref.GlobalOp.get(
                    StringAttr(name),
                    buffer_type,
                    bits,
                    sym_visibility=StringAttr("private"),
                    constant=UnitAttr(),
                )
            )
            get = memref.GetGlobalOp(name, buffer_type)
            self.b.scopes[0].block.add_op(get)
            self._tables[op] = get.memref
        return self.load(self._tables[op], at)

    def _position(self, op: stablehlo.PositionOp) -> Val:
        type = element_type_of(op.result)
        if self.iteration is not None and op.iteration is self.iteration[0]:
            step = Index.of(Var(0, op.trips, ssa=self.iteration[1]))
            return expressions.from_index(self.b, step * op.step + op.first, type)
        number = converted(self.b, self.element(op.iteration, ()), type)
        scaled = self.b.binary(arith.MuliOp, number, self.b.constant(op.step, type))
        return self.b.binary(arith.AddiOp, scaled, self.b.constant(op.first, type))

    def _gather(self, op: stablehlo.GatherOp, at: tuple[Index, ...]) -> Val:
        gather = Gather(op, at)
        indices = list(gather.base)
        for dim, limit, (operand, read) in gather.starts():
            number = self.element(operand, read)
            known = self.b.positions.get(number.ssa)
            if known is not None and known.low >= 0 and known.high <= limit:
                indices[dim] += known
                continue
            start = expressions.clamp(self.b, expressions.to_index(self.b, number), limit)
            atom = Dynamic(self.b.number(), limit, start.ssa, start.depth)
            # One atom for one value: so that equal elements are recognised.
            atom = self._dynamics.setdefault(start.ssa, atom)
            indices[dim] += Index.of(atom)
        return self.element(op.operand, indices)


def _divides(index: Index) -> bool:
    """Whether a position that was read from memory is divided."""
    return any(isinstance(atom, Quotient) and atom.of.is_dynamic for atom in index.atoms())


def _is_splat(array: np.ndarray) -> bool:
    """Whether all elements have the same bits, of which there is one at least."""
    return array.size > 0 and array.tobytes() == array.flat[0].tobytes() * array.size
