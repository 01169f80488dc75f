"""The schedule of a graph as a plan."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import SSAValue

from poetc.backends.c.layout import arena_offset
from poetc.backends.plan.check import check
from poetc.backends.plan.codec import encode
from poetc.backends.plan.plan import (
    MAX_STEPS,
    Page,
    PageIn,
    PageOut,
    Plan,
    PlanError,
    Run,
    Step,
    Wait,
    image_pages,
)
from poetc.backends.plan.table import WORD_BYTES, Numbered, Table, table_of
from poetc.errors import InputError
from poetc.ir.poet import (
    AnyPageOut,
    ComputeOp,
    FreeOp,
    GraphOp,
    PageInOp,
    PageInStartOp,
    PageOutOp,
    PageOutStartOp,
    PageType,
    ReturnOp,
    RunOp,
    StreamOp,
    WaitOp,
    offset_of,
)


def plan_bytes(graph: GraphOp) -> bytes:
    """The plan of a graph with a memory plan. Raises InputError for one that has none."""
    numbered = table_of(graph)
    return encode(plan_of(numbered, graph), numbered.table)


def plan_of(numbered: Numbered, graph: GraphOp) -> Plan:
    """The schedule of a graph with a memory plan. Raises InputError for one that has no plan."""
    table = numbered.table
    first_listed = image_pages(table)
    places: dict[int, int] = {}  # tensor -> place of its page
    for page in _made_pages(graph):
        if _image_page(numbered, graph, page) is None:
            tensor, place = numbered.tensors[page], _offset(page)
            if places.setdefault(tensor, place) != place:
                raise InputError(
                    f"a tensor is paged out to {places[tensor]} and to {place}; a plan has one "
                    "page for each tensor"
                )
    listed = {tensor: first_listed + k for k, tensor in enumerate(sorted(places))}
    steps: list[Step] = []
    for op in graph.block.ops:
        match op:
            case ComputeOp() | StreamOp():
                steps.append(_run(numbered, op))
            case PageOutOp() | PageOutStartOp():
                own = _image_page(numbered, graph, op.page)
                steps.append(PageOut(listed[numbered.tensors[op.tensor]] if own is None else own))
            case PageInOp() | PageInStartOp():
                tensor = numbered.tensors[op.page]
                page = listed.get(tensor)
                if page is None:
                    page = _image_page_of(table, tensor)
                steps.append(PageIn(page, arena_offset(op.tensor)))
            case WaitOp() | FreeOp() | ReturnOp():
                pass
            case _:
                raise InputError(f"a plan cannot hold {op.name}")
        if isinstance(op, PageOutOp | PageInOp | WaitOp):
            steps.append(Wait())
    if len(steps) > MAX_STEPS:
        raise InputError(f"{len(steps):,} steps; a plan has at most {MAX_STEPS:,}")
    plan = Plan(
        identity=table.identity,
        arena_bytes=-(-(graph.arena_bytes or 0) // WORD_BYTES) * WORD_BYTES,
        storage_bytes=graph.storage_bytes or 0,
        arguments=tuple(
            arena_offset(a) for a in graph.arguments if table.arguments[a.index].page_offset is None
        ),
        pages=tuple(Page(tensor, places[tensor]) for tensor in sorted(places)),
        steps=tuple(steps),
    )
    try:
        check(plan, table)
    except PlanError as error:
        raise InputError(
            f"graph @{graph.sym_name.data}: {error.message}. Computes that do the same on the same "
            "tensors are one operation of a plan; stablehlo-simplify merges them"
        ) from error
    return plan


def _run(numbered: Numbered, run: RunOp) -> Run:
    number = numbered.operations[run]
    kernel = numbered.table.kernels[numbered.table.operations[number].kernel]
    workspace = None
    if kernel.workspace_bytes:
        if run.workspace_offset is None:
            raise InputError(
                f'{run.name} "{run.label.data}" has no place for its workspace; '
                "run poet-plan-memory first"
            )
        workspace = run.workspace_offset.value.data
    placed = (result for result in run.results if not isinstance(result.type, PageType))
    return Run(number, tuple(map(arena_offset, placed)), workspace)


def _made_pages(graph: GraphOp) -> Iterator[SSAValue]:
    """The pages that a step writes."""
    for op in graph.block.ops:
        if isinstance(op, AnyPageOut):
            yield op.page
        elif isinstance(op, StreamOp):
            yield from (result for result in op.results if isinstance(result.type, PageType))


def _offset(page: SSAValue) -> int:
    offset = offset_of(page)
    if offset is None:
        raise InputError("a page has no place in storage; run poet-plan-memory first")
    return offset


def _image_page(numbered: Numbered, graph: GraphOp, page: SSAValue) -> int | None:
    """The number of a page that is made, if it is the new value of a parameter there."""
    new = {graph.new_page(i) for i in range(len(graph.arguments))} - {None}
    return _image_page_of(numbered.table, numbered.tensors[page]) if page in new else None


def _image_page_of(table: Table, tensor: int) -> int:
    if tensor < len(table.arguments):
        return tensor
    (argument,) = (i for i, a in enumerate(table.arguments) if a.new_value == tensor)
    return len(table.arguments) + argument
