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
from poetc.ir.graph import FREE_STORAGE, graphs, reorder_block, view_unscheduled
from poetc.ir.poet import GraphOp
from poetc.passes.inplace import inplace_candidates
from poetc.schedule.heuristics.order import Order, find_order


def order_graph(graph: GraphOp, store_params: bool = False) -> Order:
    """Reorders the computes of an unscheduled graph in place.

    With `store_params`, parameters count only while a kernel reads them. An in-place pair whose
    operand now has a later reader is dropped. Returns what was found, by the index of the computes
    before.
    """
    view = view_unscheduled(
        graph,
        storage=FREE_STORAGE if store_params else None,
        store_params=store_params,
        may_share=inplace_candidates(graph),
    )
    found = find_order(view.problem)
    order = found.operations
    if order == tuple(range(len(order))):
        return found
    reorder_block(graph, [*(view.computes[k] for k in order), graph.return_op])
    needed = set(graph.return_op.arguments)
    for k in reversed(order):
        op = view.computes[k]
        op.inplace_pairs = [p for p in op.inplace_pairs if op.operands[p[1]] not in needed]
        needed.update(op.operands)
    return found


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
