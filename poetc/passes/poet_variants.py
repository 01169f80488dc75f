"""poet-variants: says of each compute in which ways its kernel can run in tiles.

They are those that poet-stream chooses among (`planning/variants.py`). The attribute is for
readers: nothing else changes.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    IntegerAttr,
    ModuleOp,
    i64,
)

from poetc.ir.graph import GraphView, graphs
from poetc.ir.poet import ComputeOp
from poetc.passes.poet_stream import PoetStreamPass
from poetc.planning.problem import problem_view
from poetc.planning.tile_search import KernelTiles
from poetc.planning.variants import KnownTiles, buffers_of
from poetc.schedule.model.problem import Compute, Variant

VARIANTS = "poet.variants"
"""Attribute of a compute: an array of dictionaries with the fields of a `Variant`, and the bytes
that any tiles move in the same RAM."""


@dataclass(frozen=True)
class PoetVariantsPass(PoetStreamPass):
    """Annotates each compute with the ways to run it in tiles that fit into the RAM of
    poet-stream, whose options it takes."""

    name = "poet-variants"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Raises InputError for computes without a cost, and devices without storage."""
        known = KnownTiles()
        options = replace(self.options, known_tiles=known, time_limit_s=math.inf)
        for graph in graphs(op):
            view = _settled(problem_view(graph, options))
            for compute, operation in zip(view.computes, view.problem.operations, strict=True):
                # The optimiser also weighs those that need least, where nothing fits.
                fit = [v for v in operation.variants if v.workspace_bytes <= self.ram]
                ways: list[DictionaryAttr] = []
                if fit:
                    assert isinstance(compute, ComputeOp) and compute.kernel is not None
                    tiles = known.kernels[compute.kernel.string_value()]
                    buffers = buffers_of(compute, operation)
                    ways += (_attribute(variant, buffers, tiles) for variant in fit)
                compute.attributes[VARIANTS] = ArrayAttr(ways)


def _settled(view: GraphView) -> GraphView:
    """The view when it is known what all of its variants cost."""
    assert view.settle is not None
    operations = enumerate(view.problem.operations)
    all_of = [Compute(k, variant=n) for k, each in operations for n in range(len(each.variants))]
    found = view.settle(all_of)
    return view if found is None else _settled(found[1])


def _attribute(
    variant: Variant, buffers: Mapping[int, frozenset[int]], tiles: KernelTiles
) -> DictionaryAttr:
    """The fields of a variant, with its tensors as numbers of operands and then results, and what
    any tiles move of them in the same RAM."""
    streamed = frozenset[int]().union(*(buffers[v] for v in variant.streamed))
    numbers = {name: n for name, n in asdict(variant).items() if name != "streamed"}
    numbers["least_moved_bytes"] = tiles.least_moved_bytes(streamed, variant.workspace_bytes)
    return DictionaryAttr(
        {"streamed": DenseArrayBase.from_list(i64, sorted(streamed))}
        | {name: IntegerAttr(n, i64) for name, n in numbers.items()}
    )
