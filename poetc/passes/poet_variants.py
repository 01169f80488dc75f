"""poet-variants: says of each compute in which ways its kernel can run in tiles.

They are those that poet-stream chooses among (`planning/variants.py`). The attribute is for
readers: nothing else changes.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    IntegerAttr,
    ModuleOp,
    i64,
)

from poetc.ir.graph import graphs
from poetc.passes.poet_stream import PoetStreamPass
from poetc.planning.problem import problem_view
from poetc.planning.variants import buffers_of
from poetc.schedule.model.problem import Variant

VARIANTS = "poet.variants"
"""Attribute of a compute: an array of dictionaries with the fields of a `Variant`."""


@dataclass(frozen=True)
class PoetVariantsPass(PoetStreamPass):
    """Annotates each compute with the ways to run it in tiles that fit into the RAM of
    poet-stream, whose options it takes."""

    name = "poet-variants"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Raises InputError for computes without a cost, and devices without storage."""
        for graph in graphs(op):
            view = problem_view(graph, self.options)
            for compute, operation in zip(view.computes, view.problem.operations, strict=True):
                buffers = buffers_of(compute, operation)
                # The optimiser also weighs those that need least, where nothing fits.
                fit = (v for v in operation.variants if v.workspace_bytes <= self.ram)
                ways = (_attribute(variant, buffers) for variant in fit)
                compute.attributes[VARIANTS] = ArrayAttr(list(ways))


def _attribute(variant: Variant, buffers: Mapping[int, frozenset[int]]) -> DictionaryAttr:
    """The fields of a variant, with its tensors as numbers of operands and then results."""
    streamed = sorted(frozenset[int]().union(*(buffers[v] for v in variant.streamed)))
    numbers = {name: n for name, n in asdict(variant).items() if name != "streamed"}
    return DictionaryAttr(
        {"streamed": DenseArrayBase.from_list(i64, streamed)}
        | {name: IntegerAttr(n, i64) for name, n in numbers.items()}
    )
