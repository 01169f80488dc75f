"""`poet-verify`: static proof that a graph does in RAM what it says.

On every graph: values are defined before they are used, nothing is used after something else took
over its buffer, the new value of a parameter is made in the parameter's own buffer, and no two
results are one value.

On a scheduled graph also: every value in RAM ends exactly once (free, in-place reuse or return),
nothing is used after its end, and the bytes in RAM never exceed the budget `ram`. Where memory is
planned, no two buffers that are in use at the same time overlap, neither in the arena nor in
auxiliary storage, and all lie within `arena_bytes` and `storage_bytes`.

Where transfers do not go through the cache of the processor, what is paged in is alone on the lines
of the cache that it touches until the wait: a line that is forgotten then has bytes of nobody else.

Transfers that are split into a start and a wait end in the order in which they start, each before
the graph does. What is paged in takes its place in RAM at the start and is not used before the
wait; what is paged out stays in RAM until the wait.

Inputs and results in buffers of the caller take no RAM and have no place in the arena; they are
never paged, freed or taken over, and nothing is computed in place of them.

Arguments of page type are parameters. Their pages are there during the whole step, whatever is
written: a new value is written a bank away from the old one, and no write unit has bytes of two of
records, constants, either bank, and pages of the step. A result of page type is such an argument as
it came, or the page of a tensor computed in place of it.

A stream reads pages that are there, and writes pages that are complete when it ends. The slices
that it moves are those that the functions of its tiles were made for, which stay in them; each
element of a result is written once, and read by the loops behind that at the earliest.

Where computes have kernels, each kernel takes the buffers that the compute has, and no more
workspace than its cost says.

The proof reads the graph and the arguments of its kernels alone. It shares no code with the
scheduler or with the checker of schedules, so that a mistake there is found here. What a page and
a storage image are is defined once, for all (`page.py`, `image.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass

from poetc.ir.poet import (
    GraphOp,
    PageOutOp,
    PageOutStartOp,
    PageType,
    RunOp,
    StreamOp,
    offset_of,
    transfer_of,
)
from poetc.ir.symbols import named_in
from poetc.kernels.analysis import check_call, workspace_bytes
from poetc.passes.poet_verify.messages import fault, name_of, op_name
from poetc.passes.poet_verify.storage import verify_storage
from poetc.passes.poet_verify.streams import verify_stream
from poetc.passes.poet_verify.walk import Walk, is_planned, origin_of


@dataclass(frozen=True)
class PoetVerifyPass(ModulePass):
    """Checks every graph of the module and changes nothing."""

    name = "poet-verify"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for graph in op.walk():
            if isinstance(graph, GraphOp):
                verify_graph(graph)


def verify_graph(graph: GraphOp) -> None:
    """Raises a `VerificationError` that names operation and value if `graph` breaks a rule.

    A kernel that is none, or another one than its compute needs, is an `InputError`.
    """
    _verify_kernels(graph)
    for op in graph.block.ops:
        if isinstance(op, StreamOp):
            verify_stream(op)
    Walk(graph).run()
    _verify_updates(graph)
    _verify_pages(graph)
    if is_planned(graph):
        verify_storage(graph)


def _verify_kernels(graph: GraphOp) -> None:
    kernels = named_in(graph, FuncOp)
    for compute in graph.computes:
        # The existence of the kernel is verified with the operation.
        kernel = kernels.get(compute.kernel.string_value()) if compute.kernel else None
        if kernel is None:
            continue
        check_call(kernel, compute.operand_types, compute.result_types)
        needed, given = workspace_bytes(kernel), compute.cost.workspace if compute.cost else None
        if given is not None and needed > given:
            raise fault(
                compute,
                f"{op_name(compute)} has {given} bytes of workspace, its kernel takes {needed}",
            )


def _verify_updates(graph: GraphOp) -> None:
    """The new value of a parameter must be in the parameter's own buffer."""
    end = graph.return_op
    for i, parameter in enumerate(graph.arguments):
        result = graph.updates(i)
        if result is None:
            continue
        value = end.arguments[result]
        origin = origin_of(value, through_inplace=True)
        # On storage a new value is in the other bank: a stream needs no buffer of the old one.
        streamed = isinstance(origin.owner, StreamOp) and isinstance(parameter.type, PageType)
        if origin is not parameter and not streamed:
            raise fault(
                end,
                f"result {result}, the new value of parameter {name_of(parameter)}, is not "
                f"computed in its place: it is {name_of(value)} in the buffer of {name_of(origin)}",
            )
        new = transfer_of(value)
        if isinstance(parameter.type, PageType) and isinstance(new, PageOutOp | PageOutStartOp):
            old = new.tensor
            if not isinstance(old.owner, RunOp):
                raise fault(
                    new,
                    f"{op_name(new)} writes {name_of(old)} as the new value of parameter "
                    f"{name_of(parameter)}, but no compute made it",
                )
        if offset_of(value) != offset_of(parameter):
            raise fault(
                end,
                f"result {result}, the new value of parameter {name_of(parameter)} "
                f"at offset {offset_of(parameter)}, is at offset {offset_of(value)}",
            )


def _verify_pages(graph: GraphOp) -> None:
    """Checks that tensors on storage from step to step are parameters."""
    for argument in graph.arguments:
        role = graph.role(argument.index)
        if isinstance(argument.type, PageType) and role != "param":
            raise fault(
                graph,
                f"{name_of(argument)} is on storage before the step: its role must be param, "
                f"not {role}",
            )
    updated = {graph.updates(i) for i in range(len(graph.arguments))}
    for k, value in enumerate(graph.return_op.arguments):
        if isinstance(value.type, PageType) and k not in updated:
            raise fault(
                graph.return_op,
                f"result {k} is {name_of(value)}, a page, but no parameter's new value",
            )
