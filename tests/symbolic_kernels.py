"""What a kernel computes, as expressions: every loop is run, and each number is the operation that
makes it. Two kernels that store the same expressions do the same operations in the same order for
each element."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from xdsl.dialects import affine, arith, func, memref
from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.ir.affine import AffineMap

from poetc.kernels.analysis import buffers


class Recorder:
    """Runs a kernel. The numbers of expressions that are equal are equal, across kernels."""

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}

    def number(self, *what: Hashable) -> int:
        return self.numbers.setdefault(what, len(self.numbers))

    def stored(
        self, function: func.FuncOp, shared: Sequence[tuple[int, int]] = ()
    ) -> dict[tuple[int, tuple[int, ...]], int]:
        """For each element of the results, by result and index, what was stored last; each element
        at most once. The `shared` pairs of a result and an operand are one buffer."""
        self.memory: dict[tuple[int, tuple[int, ...]], int] = {}
        arguments = list(function.body.block.args)
        self.buffer: dict[SSAValue, int] = {a: i for i, a in enumerate(arguments)}
        results = buffers(function, "results")
        operands = buffers(function, "inputs")
        for result, operand in shared:
            self.buffer[results[result]] = self.buffer[operands[operand]]
        self.once: set[tuple[int, tuple[int, ...]]] = set()
        self.results = {self.buffer[value] for value in results}
        self.values: dict[SSAValue, int] = {}
        self._block(function.body.block)
        return {
            (number, at): found
            for number, result in enumerate(results)
            for (buffer, at), found in self.memory.items()
            if buffer == self.buffer[result]
        }

    def _block(self, block: Block) -> list[int]:
        for op in block.ops:
            if isinstance(op, affine.YieldOp | func.ReturnOp):
                return [self.values[value] for value in op.operands]
            self._run(op)
        return []

    def _at(self, map_: AffineMap, operands: Sequence[SSAValue]) -> tuple[int, ...]:
        numbers = [self.values[value] for value in operands]
        return tuple(map_.eval(numbers[: map_.num_dims], numbers[map_.num_dims :]))

    def _run(self, op: Operation) -> None:
        match op:
            case affine.ForOp():
                (low,) = self._at(op.lowerBoundMap.data, op.lowerBoundOperands)
                (high,) = self._at(op.upperBoundMap.data, op.upperBoundOperands)
                carried = [self.values[value] for value in op.inits]
                for i in range(low, high):
                    body = op.body.block
                    self.values.update(zip(body.args, (i, *carried), strict=True))
                    carried = self._block(body)
                self.values.update(zip(op.results, carried, strict=True))
            case affine.IfOp():
                condition = op.condition.data
                numbers = [self.values[value] for value in op.args]
                dims, symbols = numbers[: condition.num_dims], numbers[condition.num_dims :]
                holds = True
                for c in condition.constraints:
                    left, right = (e.eval(dims, symbols) for e in (c.lhs, c.rhs))
                    holds &= {"eq": left == right, "ge": left >= right, "le": left <= right}[
                        c.kind.name
                    ]
                region = op.then_region if holds else op.else_region
                found = self._block(region.block) if region.blocks else []
                self.values.update(zip(op.results, found, strict=True))
            case affine.LoadOp():
                self.values[op.result] = self._load(op.memref, self._at(op.map.data, op.indices))
            case affine.StoreOp():
                place = (self.buffer[op.memref], self._at(op.map.data, op.indices))
                assert isinstance(op.memref.type, MemRefType)
                shape = op.memref.type.get_shape()
                assert all(0 <= i < n for i, n in zip(place[1], shape, strict=True))
                assert place not in self.once or place[0] not in self.results, "stored twice"
                self.once.add(place)
                self.memory[place] = self.values[op.value]
            case affine.ApplyOp():
                (self.values[op.result],) = self._at(op.map.data, op.mapOperands)
            case arith.ConstantOp() if isinstance(op.result.type, IndexType):
                assert isinstance(op.value, IntegerAttr)
                self.values[op.result] = op.value.value.data
            case memref.GetGlobalOp():
                self.buffer[op.memref] = -1 - self.number("table", str(op.name_))
            case _:
                assert not op.regions and len(op.results) == 1, op.name
                operands = (self.values[value] for value in op.operands)
                known = (*sorted((k, str(v)) for k, v in op.properties.items()),)
                self.values[op.results[0]] = self.number(
                    op.name, str(op.results[0].type), known, *operands
                )

    def _load(self, buffer: SSAValue, at: tuple[int, ...]) -> int:
        place = (self.buffer[buffer], at)
        assert isinstance(buffer.type, MemRefType)
        assert all(0 <= i < n for i, n in zip(at, buffer.type.get_shape(), strict=True))
        return self.memory[place] if place in self.memory else self.number("element", *place)
