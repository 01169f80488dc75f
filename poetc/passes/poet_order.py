"""poet-order: reorders kernels so that values die early.

A gradient is consumed as soon as it exists, instead of all of them at the end of the step. Data
dependences hold, and whatever reads a parameter stays ahead of its update. The peak of live bytes
never exceeds that of the order it was given.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from poetc.errors import InputError
from poetc.ir.graph import graphs
from poetc.planning.order import order_graph


@dataclass(frozen=True)
class PoetOrderPass(ModulePass):
    """Reorders the kernels of each graph for a low peak of live bytes.

    `params` says where parameters are between steps: "ram" or "storage".
    """

    name = "poet-order"

    params: str = "ram"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.params not in ("ram", "storage"):
            raise InputError(f"params is ram or storage, not {self.params}")
        for graph in graphs(op):
            order_graph(graph, self.params == "storage")
