"""A graph as one DAG of StableHLO operations."""

from __future__ import annotations

from xdsl.ir import Operation, OpResult, SSAValue

from poetc.ir import stablehlo as hlo
from poetc.ir.poet import ComputeOp, GraphOp
from poetc.ir.stablehlo.base import Fuses
from poetc.passes.poet_fuse.facts import fuses


class Flat:
    """The graph as one DAG of StableHLO ops; values are arguments or results of those ops."""

    def __init__(self, graph: GraphOp, keep_copies: bool = False) -> None:
        """With `keep_copies`, the copy that ends an update stays apart from what it copies."""
        self.graph = graph
        self.keep_copies = keep_copies
        self.ops: list[Operation] = []
        self.alias: dict[SSAValue, SSAValue] = {}
        self.updates: dict[SSAValue, SSAValue] = {}
        """New value of a parameter → the parameter whose buffer it takes over."""
        self.copies: set[SSAValue] = set()
        for compute in graph.computes:
            for inner, outer in zip(compute.block.args, compute.operands, strict=True):
                self.alias[inner] = self.resolve(outer)
            self.ops += [op for op in compute.block.ops if op is not compute.yield_op]
            for index, yielded in enumerate(compute.yield_op.operands):
                self._bind(compute, index, yielded)
        self.results = [self.resolve(v) for v in graph.return_op.operands]
        self.position: dict[SSAValue, int] = {
            value: i for i, op in enumerate(self.ops) for value in op.results
        }
        self.users: dict[SSAValue, list[tuple[Operation, int]]] = {}
        """The operations that have a value as an operand, and as which."""
        for op in self.ops:
            for i, value in enumerate(self.operands(op)):
                self.users.setdefault(value, []).append((op, i))
        self.live = self._live()
        """The operations that a result of the graph depends on."""

    def resolve(self, value: SSAValue) -> SSAValue:
        return self.alias.get(value, value)

    def _bind(self, compute: ComputeOp, index: int, yielded: SSAValue) -> None:
        """Make result `index` another name of what the body yields.

        A compute that yields an operand is a copy: an op of its own, unless it only moves a value
        that nobody else keeps into the buffer of a parameter, where that can be made directly.
        """
        pairs = dict(compute.inplace_pairs)
        parameter = self.resolve(compute.operands[pairs[index]]) if index in pairs else None
        value = self.resolve(yielded)
        if yielded in compute.block.args:
            source = compute.operands[compute.block.args.index(yielded)]
            direct = (
                not self.keep_copies
                and parameter is not None
                and isinstance(value.owner, Operation)
                and (
                    fuses(value.owner) is not Fuses.LOOP
                    or self._replaces(value, parameter, compute)
                )
                and value not in self.updates
                and value not in self.copies
                and source not in self.graph.return_op.operands
            )
            if not direct:
                copy = hlo.ReshapeOp(value, hlo.shape_of(value))
                self.ops.append(copy)
                value = copy.results[0]
                self.copies.add(value)
        if parameter is not None:
            self.updates[value] = parameter
        self.alias[compute.results[index]] = value

    def _replaces(self, value: SSAValue, parameter: SSAValue, copy: ComputeOp) -> bool:
        """Whether a loop, which makes the new value of a parameter, begins with the old one in its
        place, and only it reads that."""
        assert isinstance(value, OpResult)
        at = [n for n, operand in enumerate(self.operands(value.op)) if operand is parameter]
        readers = {use.operation for use in parameter.uses} - {copy}
        return at == [value.index] and len(readers) == 1

    def _live(self) -> set[Operation]:
        live: set[Operation] = set()
        stack = [v.owner for v in self.results]
        while stack:
            op = stack.pop()
            if isinstance(op, Operation) and op not in live:
                live.add(op)
                stack.extend(v.owner for v in self.operands(op))
        return live

    def operands(self, op: Operation) -> list[SSAValue]:
        return [self.resolve(v) for v in op.operands]
