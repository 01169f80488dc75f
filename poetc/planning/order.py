"""The order of the kernels of an unscheduled graph."""

from __future__ import annotations

from poetc.ir.graph import FREE_STORAGE, reorder_block, view_unscheduled
from poetc.ir.poet import GraphOp
from poetc.planning.inplace import inplace_candidates
from poetc.schedule.heuristics.order import Order, find_order


def order_graph(graph: GraphOp, store_params: bool = False) -> Order:
    """Reorders the computes of an unscheduled graph in place.

    With `store_params`, parameters count only while a kernel reads them. An in-place pair whose
    operand now has a later reader is dropped. Returns what was found, by the index of the computes
    before.
    """
    view = view_unscheduled(
        graph,
        storage=FREE_STORAGE,
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
