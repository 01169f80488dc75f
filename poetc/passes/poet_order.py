"""poet-order: reorders kernels so that values die early.

A gradient is consumed as soon as it exists, instead of all of them at the end of the step. Data
dependences hold, and whatever reads a parameter stays ahead of its update. The peak of live bytes
never exceeds that of the order it was given.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from poetc.ir.graph import graphs, reorder_block, view_unscheduled
from poetc.ir.poet import GraphOp
from poetc.passes.inplace import inplace_candidates
from poetc.schedule.order import low_peak_order


def order_graph(graph: GraphOp) -> None:
    """Reorders the computes of an unscheduled graph in place.

    An in-place pair whose operand now has a later reader is dropped.
    """
    view = view_unscheduled(graph, may_share=inplace_candidates(graph))
    order = low_peak_order(view.problem)
    if order == tuple(range(len(order))):
        return
    reorder_block(graph, [*(view.computes[k] for k in order), graph.return_op])
    needed = set(graph.return_op.arguments)
    for k in reversed(order):
        op = view.computes[k]
        op.inplace_pairs = [p for p in op.inplace_pairs if op.operands[p[1]] not in needed]
        needed.update(op.operands)


@dataclass(frozen=True)
class PoetOrderPass(ModulePass):
    """Reorders the kernels of each graph for a low peak of live bytes."""

    name = "poet-order"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for graph in graphs(op):
            order_graph(graph)
