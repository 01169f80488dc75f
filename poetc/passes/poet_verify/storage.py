"""Places in auxiliary storage: pages needed together do not overlap, nor share write units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.ir import BlockArgument, Operation, SSAValue

from poetc.errors import InputError
from poetc.image import layout_of
from poetc.ir.graph import tensor_bytes
from poetc.ir.poet import GraphOp, PageType, is_banked, offset_of, transfer_of
from poetc.page import PAGE_ALIGN_BYTES, page_bytes
from poetc.passes.poet_verify.messages import fault, name_of
from poetc.passes.poet_verify.walk import overlap


@dataclass(frozen=True)
class _PageUse:
    value: SSAValue
    part: str
    """Of the storage: what loses its content together."""
    offset: int
    size: int
    """With trailer and padding."""
    first: int
    last: int
    """Indices of the operations between which the page must stay as it is."""

    @property
    def what(self) -> str:
        """For messages: a page is longer than its tensor."""
        return f"the page {name_of(self.value)} at offset {self.offset} with {self.size} bytes"


def verify_storage(graph: GraphOp) -> None:
    """Pages that must be kept at the same time do not overlap, and all fit in `storage_bytes`."""
    pages = list(_page_uses(graph))
    for i, page in enumerate(pages):
        op = page.value.owner if isinstance(page.value.owner, Operation) else graph
        if page.offset < 0 or page.offset % PAGE_ALIGN_BYTES:
            raise fault(op, f"{page.what}: offsets in storage are multiples of {PAGE_ALIGN_BYTES}")
        if graph.storage_bytes is None:
            raise fault(graph, "there are pages but the graph has no storage_bytes")
        if page.offset + page.size > graph.storage_bytes:
            raise fault(op, f"{page.what} ends past the storage of {graph.storage_bytes}")
        for other in pages[:i]:
            together = page.first <= other.last and other.first <= page.last
            if together and overlap(page.offset, page.size, other.offset, other.size):
                raise fault(op, f"{page.what} overlaps {other.what}, which is still needed")
    if any(isinstance(argument.type, PageType) for argument in graph.arguments):
        _verify_units(graph, pages)
        try:
            layout_of(graph)
        except InputError as error:
            raise fault(graph, error.message) from error


def _verify_units(graph: GraphOp, pages: list[_PageUse]) -> None:
    """A write that is cut off spoils nothing but what is being replaced anyway."""
    unit = graph.storage_unit
    if unit is None or unit <= 0:
        raise fault(graph, "parameters are on storage but the graph has no storage_unit")
    owner: dict[int, _PageUse | None] = {0: None, 1: None}  # None: the records
    for page in pages:
        op = page.value.owner if isinstance(page.value.owner, Operation) else graph
        for number in range(page.offset // unit, -(-(page.offset + page.size) // unit)):
            other = owner.setdefault(number, page)
            if other is not None and other.part == page.part:
                continue
            what = f"{name_of(other.value)}, {other.part}" if other else "a record"
            raise fault(
                op,
                f"{name_of(page.value)} at offset {page.offset}, {page.part}, shares write unit "
                f"{number} of {unit} bytes with {what}",
            )


def _page_uses(graph: GraphOp) -> Iterator[_PageUse]:
    index = {op: i for i, op in enumerate(graph.block.ops)}
    end = len(index)

    def page_size(page: SSAValue) -> int:
        assert isinstance(page.type, PageType)
        return page_bytes(tensor_bytes(page.type.tensor), block_bytes=graph.block_bytes)

    new_pages = {graph.new_page(i) for i in range(len(graph.arguments))}
    values = (*graph.arguments, *(r for op in graph.block.ops for r in op.results))
    for page in values:
        if not isinstance(page.type, PageType):
            continue
        offset, size = offset_of(page), page_size(page)
        if offset is None:
            op = page.owner if isinstance(page.owner, Operation) else graph
            raise fault(op, f"{name_of(page)} has no offset in storage though buffers have one")
        if not isinstance(page, BlockArgument):
            # The offset of a new value, that of the old one, is verified with the updates.
            maker = transfer_of(page) or page.owner
            if page not in new_pages:
                # Transfers run in the order of their starts: between these it must be there.
                first = index[maker]
                last = max((index[use.operation] for use in page.uses), default=first)
                yield _PageUse(page, "a page of the step", offset, size, first, last)
            continue
        # The banks change places with each step: each page has both of its places all the time.
        if not is_banked(graph, page.index):
            yield _PageUse(page, "a constant", offset, size, -1, end)
            continue
        bank = graph.bank_bytes
        if bank is None:
            raise fault(graph, "parameters on storage are updated but there is no bank_bytes")
        yield _PageUse(page, "in bank 0", offset, size, -1, end)
        yield _PageUse(page, "in bank 1", offset + bank, size, -1, end)
