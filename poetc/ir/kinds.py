"""The purpose of each tensor of a graph, found from its dataflow alone.

`docs/report.md` defines the kinds. A result of a compute depends on those operands that its own
expression in the body reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xdsl.dialects.builtin import AnyFloat
from xdsl.ir import BlockArgument, OpResult, SSAValue

from poetc.ir.dataflow import reached
from poetc.ir.poet import GraphOp, RunOp, tensor_type
from poetc.ir.stablehlo import RepeatOp
from poetc.ir.unschedule import origins

TENSOR_KINDS = (
    "parameters",
    "optimiser_state",
    "activations",
    "gradients",
    "inputs",
    "outputs",
)
"""Kinds of tensors."""


def tensor_kinds(graph: GraphOp) -> dict[SSAValue, str]:
    """The kind of the tensor that each value of `graph` holds, pages included."""
    origin = origins(graph)
    flow = _Flow(graph, origin)
    kinds: dict[SSAValue, str] = {}
    for value in dict.fromkeys(origin.values()):
        kinds[value] = flow.kind(value)
    return {value: kinds[first] for value, first in origin.items()}


class _Flow:
    """The dataflow between tensors, each kernel counted once."""

    def __init__(self, graph: GraphOp, origin: Mapping[SSAValue, SSAValue]) -> None:
        self.graph = graph
        results = [origin[value] for value in graph.return_op.arguments]
        arguments = range(len(graph.arguments))
        updates = {i: at for i in arguments if (at := graph.updates(i)) is not None}
        self.updated = {results[at]: i for i, at in updates.items()}
        self.plain = {v for at, v in enumerate(results) if at not in updates.values()}
        self.reads = _reads(graph, origin)
        self.readers: dict[SSAValue, list[SSAValue]] = {value: [] for value in origin.values()}
        for value, read in self.reads.items():
            for operand in read:
                self.readers[operand].append(value)
        self.forward = self._forward()
        self.parameters = {i for i in updates if graph.arguments[i] in self.forward}

    def kind(self, value: SSAValue) -> str:
        if isinstance(value, BlockArgument):
            return self._kind_of_argument(value.index)
        if value in self.updated:
            return self._kind_of_argument(self.updated[value])
        if value in self.plain:
            return "outputs"
        if value in self.forward or self._is_saved_by_loop(value):
            return "activations"
        return self._kind_beside_forward(value)

    def _is_saved_by_loop(self, value: SSAValue) -> bool:
        """Whether a loop of the forward pass stacks a tensor for the backward pass."""
        compute = value.owner
        if not isinstance(compute, RunOp) or not self.forward.intersection(compute.results):
            return False
        source = compute.yield_op.arguments[compute.results.index(value)]
        loop = source.owner
        return isinstance(loop, RepeatOp) and loop.results.index(source) >= loop.carries

    def _kind_of_argument(self, i: int) -> str:
        if self.graph.role(i) == "input":
            return "inputs"
        is_state = self.graph.updates(i) is not None and i not in self.parameters
        return "optimiser_state" if is_state else "parameters"

    def _kind_beside_forward(self, value: SSAValue) -> str:
        """The kind of a tensor that only new values of arguments depend on."""
        behind = reached([value], lambda v: self.reads.get(v, ()))
        # Everything may depend on a norm or a loss scale: a number is no way from here to there.
        ahead = reached(
            [value], lambda v: self.readers[v] if v is value or _elements(v) != 1 else ()
        )
        needs = {v.index for v in behind if isinstance(v, BlockArgument)}
        if needs and all(self._kind_of_argument(i) == "optimiser_state" for i in needs):
            return "optimiser_state"
        leads_to = {self.updated[v] for v in ahead if v in self.updated}
        is_saved = needs & self.parameters <= leads_to and not leads_to >= self.parameters
        return "activations" if is_saved or not _is_float(value) else "gradients"

    def _forward(self) -> set[SSAValue]:
        """The values on which some result depends that is not the new value of an argument.

        In a step without such a result: what kernels read that update nothing.
        """
        if self.plain:
            return reached(self.plain, lambda v: self.reads.get(v, ()))
        return {
            operand
            for op in self.graph.block.ops
            if isinstance(op, RunOp) and not self.updated.keys() & set(op.results)
            for operand in op.operands
        }


def _reads(
    graph: GraphOp, origin: Mapping[SSAValue, SSAValue]
) -> dict[SSAValue, tuple[SSAValue, ...]]:
    """For each result of a kernel the tensors that its expression reads."""
    return {
        result: tuple(origin[operand] for operand in _read_for(op, result.index))
        for op in graph.block.ops
        if isinstance(op, RunOp)
        for result in op.results
        if origin[result] is result
    }


def _read_for(compute: RunOp, result: int) -> list[SSAValue]:
    """The operands that the body of `compute` reads to make a result."""

    def operands(value: SSAValue) -> Iterable[SSAValue]:
        if isinstance(value, OpResult):
            yield from (operand for op in value.owner.walk() for operand in op.operands)

    read = reached([compute.yield_op.arguments[result]], operands)
    pairs = zip(compute.block.args, compute.operands, strict=True)
    return [operand for argument, operand in pairs if argument in read]


def _is_float(value: SSAValue) -> bool:
    return isinstance(tensor_type(value).element_type, AnyFloat)


def _elements(value: SSAValue) -> int:
    count = 1
    for extent in tensor_type(value).get_shape():
        count *= extent
    return count
