"""poet-pair: one kernel for the update of a parameter and for what else reads it last.

The backward pass reads the weight of a layer for the gradient of the layer's input, and its update
reads it again. Where the weight is on storage both kernels page it in. As one kernel whose nests
run in one loop over tiles (`poet-stream`) they page each slice in once.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from poetc.errors import InputError
from poetc.ir.graph import graphs
from poetc.planning.pairs import join_pairs
from poetc.units import check_limit


@dataclass(frozen=True)
class PoetPairPass(ModulePass):
    """Joins two computes of each graph for each parameter that does not fit into `ram` bytes beside
    what else they read and write: the compute of its new value, and the last of the others that
    read it. They stay apart where one of them needs what the other one computes, and where what
    else they read and write leaves too little RAM for slices (`pays`)."""

    name = "poet-pair"

    ram: int

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Raises InputError where kernels are lowered or scheduled already, and for a `ram` that
        is none."""
        check_limit(self.ram, "ram")
        for graph in graphs(op):
            if graph.is_scheduled or any(c.kernel is not None for c in graph.computes):
                raise InputError("poet-pair runs before poet-lower-kernels")
            join_pairs(graph, self.ram)
