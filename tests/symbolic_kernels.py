"""What a kernel computes, as expressions: every loop is run, and each number is the operation that
makes it. Two kernels that store the same expressions do the same operations in the same order for
each element."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cache

from xdsl.dialects import affine, arith, func, memref
from xdsl.dialects.builtin import IndexType, IntegerAttr, MemRefType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from poetc.kernels.analysis import buffers


@cache
def evaluator(
    exprs: tuple[AffineExpr, ...], dims: int, symbols: int
) -> Callable[..., tuple[int, ...]]:
    """A function of the values of dimensions and symbols that returns those of the expressions."""
    names = ", ".join([*(f"d{i}" for i in range(dims)), *(f"s{i}" for i in range(symbols))])
    text = "".join(f"{e}, " for e in exprs).replace("floordiv", "//").replace("mod", "%")
    return eval(f"lambda {names}: ({text})")


@cache
def kind(op: Operation) -> tuple[Hashable, ...]:
    """What an operation without regions does with its operands."""
    assert not op.regions and len(op.results) == 1, op.name
    known = (*sorted((k, str(v)) for k, v in op.properties.items()),)
    return op.name, str(op.results[0].type), known


COMPARISONS = {"eq": int.__eq__, "ge": int.__ge__, "le": int.__le__}


class Recorder:
    """Runs a kernel. The numbers of expressions that are equal are equal, across kernels. Each
    element of a result is stored `once`, or else also while it is not finished."""

    def __init__(self, *, once: bool = True) -> None:
        self.numbers: dict[Hashable, int] = {}
        self.only_once = once

    def number(self, *what: Hashable) -> int:
        return self.numbers.setdefault(what, len(self.numbers))

    def stored(
        self, function: func.FuncOp, shared: Sequence[tuple[int, int]] = ()
    ) -> dict[tuple[int, tuple[int, ...]], int]:
        """For each element of the results, by result and index, what was stored last. The `shared`
        pairs of a result and an operand are one buffer."""
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
        self.steps: dict[Block, list[Callable[[], list[int] | None]]] = {}
        self._block(function.body.block)
        return {
            (number, at): found
            for number, result in enumerate(results)
            for (buffer, at), found in self.memory.items()
            if buffer == self.buffer[result]
        }

    def _block(self, block: Block) -> list[int]:
        steps = self.steps.get(block)
        if steps is None:
            steps = self.steps[block] = [self._step(op) for op in block.ops]
        yielded: list[int] = []
        for step in steps:
            yielded = step() or []
        return yielded

    def _at(self, map_: AffineMap, operands: Sequence[SSAValue]) -> Callable[[], tuple[int, ...]]:
        """Returns a function, as do those below: each operation is looked at once."""
        values, found = self.values, evaluator(map_.results, map_.num_dims, map_.num_symbols)
        return lambda: found(*[values[operand] for operand in operands])

    def _step(self, op: Operation) -> Callable[[], list[int] | None]:
        values = self.values
        match op:
            case affine.YieldOp() | func.ReturnOp():
                operands = tuple(op.operands)
                return lambda: [values[value] for value in operands]
            case affine.ForOp():
                return self._loop(op)
            case affine.IfOp():
                return self._choice(op)
            case affine.LoadOp():
                place, result = self._place(op.memref, op.map.data, op.indices), op.result

                def load() -> None:
                    at = place()
                    known = self.memory.get(at)
                    values[result] = self.number("element", *at) if known is None else known

                return load
            case affine.StoreOp():
                place, value = self._place(op.memref, op.map.data, op.indices), op.value

                def store() -> None:
                    at = place()
                    again = self.only_once and at in self.once and at[0] in self.results
                    assert not again, "stored twice"
                    self.once.add(at)
                    self.memory[at] = values[value]

                return store
            case affine.ApplyOp():
                at, result = self._at(op.map.data, tuple(op.mapOperands)), op.result
                return lambda: values.update([(result, at()[0])])
            case arith.ConstantOp() if isinstance(op.result.type, IndexType):
                assert isinstance(op.value, IntegerAttr)
                values[op.result] = op.value.value.data
                return lambda: None
            case memref.GetGlobalOp():
                self.buffer[op.memref] = -1 - self.number("table", str(op.name_))
                return lambda: None
            case _:
                does, operands, result = kind(op), tuple(op.operands), op.results[0]

                def compute() -> None:
                    values[result] = self.number(*does, *[values[value] for value in operands])

                return compute

    def _loop(self, op: affine.ForOp) -> Callable[[], None]:
        values, body = self.values, op.body.block
        low = self._at(op.lowerBoundMap.data, tuple(op.lowerBoundOperands))
        high = self._at(op.upperBoundMap.data, tuple(op.upperBoundOperands))
        arguments, inits, results = body.args, tuple(op.inits), tuple(op.results)

        def loop() -> None:
            carried = [values[value] for value in inits]
            for i in range(*low(), *high()):
                values.update(zip(arguments, (i, *carried), strict=True))
                carried = self._block(body)
            values.update(zip(results, carried, strict=True))

        return loop

    def _choice(self, op: affine.IfOp) -> Callable[[], None]:
        values, condition = self.values, op.condition.data
        sides = (*(side for c in condition.constraints for side in (c.lhs, c.rhs)),)
        found = evaluator(sides, condition.num_dims, condition.num_symbols)
        comparisons = [COMPARISONS[c.kind.name] for c in condition.constraints]
        operands, results = tuple(op.args), tuple(op.results)

        def choice() -> None:
            numbers = iter(found(*[values[value] for value in operands]))
            holds = all(compare(next(numbers), next(numbers)) for compare in comparisons)
            region = op.then_region if holds else op.else_region
            yielded = self._block(region.block) if region.blocks else []
            values.update(zip(results, yielded, strict=True))

        return choice

    def _place(
        self, buffer: SSAValue, map_: AffineMap, operands: Sequence[SSAValue]
    ) -> Callable[[], tuple[int, tuple[int, ...]]]:
        assert isinstance(buffer.type, MemRefType)
        at, shape, number = (
            self._at(map_, tuple(operands)),
            buffer.type.get_shape(),
            self.buffer[buffer],
        )

        def place() -> tuple[int, tuple[int, ...]]:
            index = at()
            assert all(0 <= i < n for i, n in zip(index, shape, strict=True))
            return number, index

        return place
