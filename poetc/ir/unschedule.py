"""Takes a schedule back out of a graph: which values hold the same tensor, and the graph without
operations that page and free and repeated kernels."""

from __future__ import annotations

from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.ir import Operation as IROperation
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from poetc.ir.graph import graphs, reorder_block
from poetc.ir.poet import (
    ComputeOp,
    GraphOp,
    PageInOp,
    PageInStartOp,
    PageOutOp,
    PageOutStartOp,
    PageType,
    RunOp,
)

_LEFT_BY_PASSES = (
    "ram",
    "activations_ram",
    "schedule",
    "arena_bytes",
    "storage_bytes",
    "bank_bytes",
    "block_bytes",
    "storage_unit",
    "cache_line_bytes",
)


def origins(graph: GraphOp) -> dict[SSAValue, SSAValue]:
    """For each value of `graph` the one that first held its tensor.

    A page and what is paged in hold the tensor that was paged out; a kernel that does what another
    did before, on the same tensors, makes the same tensors, in tiles or not.
    """
    origin: dict[SSAValue, SSAValue] = {argument: argument for argument in graph.arguments}
    first: dict[tuple[object, ...], list[RunOp]] = {}
    for op in graph.block.ops:
        match op:
            case RunOp():
                operands = tuple(origin[value] for value in op.operands)
                key = op.label, tuple(op.yield_op.operand_types), operands
                earlier = first.setdefault(key, [])
                same = next((o for o in earlier if o.body.is_structurally_equivalent(op.body)), op)
                if same is op:
                    earlier.append(op)
                origin.update(zip(op.results, same.results, strict=True))
            case PageOutOp() | PageOutStartOp():
                origin[op.page] = origin[op.tensor]
            case PageInOp() | PageInStartOp():
                origin[op.tensor] = origin[op.page]
            case _:
                pass
    return origin


def unscheduled(module: ModuleOp) -> GraphOp:
    """The graph of a copy of `module` as it was before it was scheduled, kernels beside it.

    Kernels are in the order of their first runs; in-place pairs of those are kept.
    """
    (graph,) = graphs(module.clone())
    for argument in graph.arguments:
        if isinstance(argument.type, PageType):
            Rewriter.replace_value_with_new_type(argument, argument.type.tensor)
    origin = origins(graph)
    first_runs: list[IROperation] = []
    for op in graph.block.ops:
        if isinstance(op, ComputeOp) and all(origin[result] is result for result in op.results):
            first_runs.append(op)
            op.operands = [origin[value] for value in op.operands]
            op.result_offsets = op.workspace_offset = None
    graph.return_op.operands = returned = [origin[v] for v in graph.return_op.arguments]
    reorder_block(graph, [*first_runs, graph.return_op])
    graph.function_type = FunctionType.from_lists(
        [argument.type for argument in graph.arguments], [value.type for value in returned]
    )
    for name in _LEFT_BY_PASSES:
        graph.attributes.pop(name, None)
    graph.set_arg_attrs("poet.offset", dict.fromkeys(range(len(graph.arguments))))
    return graph
