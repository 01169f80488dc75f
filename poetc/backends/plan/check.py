"""The check that a plan may run. `runtime/poetc_plan.c` does the same on the device."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from poetc.backends.plan.plan import (
    PageIn,
    PageOut,
    Plan,
    PlanError,
    Run,
    Step,
    Wait,
    page_tensor,
)
from poetc.backends.plan.table import WORD_BYTES, Kernel, Table


def check(plan: Plan, table: Table) -> None:
    """Raises PlanError unless running the plan computes what the model computes."""
    if plan.identity != table.identity:
        raise PlanError(f"the plan is for {plan.identity:08x}, this model is {table.identity:08x}")
    for what, size in (("arena", plan.arena_bytes), ("storage", plan.storage_bytes)):
        if size % WORD_BYTES or size >= 2**31:
            raise PlanError(f"{size} bytes of {what}: not a multiple of {WORD_BYTES} below 2 GB")
    if plan.storage_bytes < table.pages_start:
        raise PlanError("the plan has too little storage for the parameters there")
    state = _State(plan, table)
    for number, step in enumerate(plan.steps):
        try:
            state.step(step)
        except PlanError as error:
            raise PlanError(f"step {number} of the plan: {error.message}") from error
    state.finish()


@dataclass
class _State:
    """The tensors that are intact, by their place in the arena, those that have a page, and the
    transfers under way with their tensors. Nothing may overwrite a tensor of a transfer under
    way."""

    plan: Plan
    table: Table
    places: dict[int, int] = field(default_factory=dict)
    stored: set[int] = field(default_factory=set)
    transfers: deque[tuple[PageIn | PageOut, int]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        places = iter(self.plan.arguments)
        for tensor, argument in enumerate(self.table.arguments):
            if argument.page_offset is not None:
                self.stored.add(tensor)
                continue
            place, bytes = next(places), self.table.padded_bytes(tensor)
            self.fits(place, bytes)
            if list(self.overlapping(place, bytes)):
                raise PlanError(f"argument {tensor} of the plan overlaps another one")
            self.places[tensor] = place
        self.start = dict(self.places)
        pages, table = self.plan.pages, self.table
        own = table.on_storage
        for page in pages:
            end = page.place + self.page_bytes(page.tensor)
            good = page.tensor < len(table.tensor_bytes) and page.tensor not in own
            if not good or not table.pages_start <= page.place <= end <= self.plan.storage_bytes:
                raise PlanError(f"page of tensor {page.tensor} at {page.place} of the plan")
        if not all(a.tensor < b.tensor for a, b in pairwise(pages)):
            raise PlanError("pages of the plan are not in the order of their tensors")

    def page_bytes(self, tensor: int) -> int:
        return self.table.page_bytes(tensor) if tensor < len(self.table.tensor_bytes) else 0

    def fits(self, place: int, bytes: int) -> None:
        if place + bytes > self.plan.arena_bytes:
            raise PlanError(f"{bytes} bytes at {place} are not within the arena")

    def overlapping(self, place: int, bytes: int) -> Iterator[int]:
        """The tensors with bytes in common with a piece of the arena."""
        for tensor, at in self.places.items():
            if _overlap(place, bytes, at, self.table.padded_bytes(tensor)):
                yield tensor

    def overwrite(self, place: int, bytes: int) -> None:
        for tensor in list(self.overlapping(place, bytes)):
            self.leave(tensor)

    def leave(self, tensor: int) -> None:
        if any(tensor == moved for _, moved in self.transfers):
            raise PlanError(f"tensor {tensor} is overwritten while it is being transferred")
        self.places.pop(tensor, None)

    def need(self, tensor: int) -> int:
        if tensor not in self.places:
            raise PlanError(f"tensor {tensor} is not in the arena, or not any more")
        if any(tensor == moved for step, moved in self.transfers if isinstance(step, PageIn)):
            raise PlanError(f"tensor {tensor} is read before it has arrived")
        return self.places[tensor]

    def step(self, step: Step) -> None:
        match step:
            case Run():
                self.run(step)
            case PageIn(page, place):
                tensor = page_tensor(page, self.plan, self.table)
                bytes = self.table.padded_bytes(tensor)
                if tensor not in self.stored:
                    raise PlanError(f"tensor {tensor} is not on storage, or not any more")
                self.fits(place, bytes)
                self.leave(tensor)
                self.overwrite(place, bytes)
                self.places[tensor] = place
                self.transfers.append((step, tensor))
            case PageOut(page):
                if self.table.image is not None and page < len(self.table.arguments):
                    raise PlanError(f"page {page} has a parameter as it came")
                tensor = page_tensor(page, self.plan, self.table)
                self.need(tensor)
                if any(tensor == moved for _, moved in self.transfers):
                    raise PlanError(f"tensor {tensor} is paged out while it is being transferred")
                self.drop_pages(tensor)
                self.transfers.append((step, tensor))
            case Wait():
                if not self.transfers:
                    raise PlanError("there is no transfer to wait for")
                done, tensor = self.transfers.popleft()
                if isinstance(done, PageOut):
                    self.stored.add(tensor)

    def need_page(self, tensor: int) -> None:
        if tensor not in self.stored:
            raise PlanError(f"tensor {tensor} is not on storage, or not any more")
        if any(tensor == moved for _, moved in self.transfers):
            raise PlanError(f"tensor {tensor} is read in tiles while it is being transferred")

    def drop_pages(self, tensor: int) -> None:
        """Writing the page of a tensor destroys those that it overlaps. Parameters have places of
        their own."""
        pages = self.plan.pages
        if tensor in self.table.on_storage:
            return
        new = next((page for page in pages if page.tensor == tensor), None)
        if new is None:
            raise PlanError(f"tensor {tensor} has no page")
        bytes = self.page_bytes(new.tensor)
        for old in pages:
            if not _overlap(new.place, bytes, old.place, self.page_bytes(old.tensor)):
                continue
            if any(isinstance(out, PageOut) and t == old.tensor for out, t in self.transfers):
                raise PlanError(f"the page of tensor {old.tensor} is overwritten while it is made")
            self.stored.discard(old.tensor)

    def run(self, step: Run) -> None:
        table = self.table
        if step.operation >= len(table.operations):
            raise PlanError(f"there is no operation {step.operation}")
        operation = table.operations[step.operation]
        kernel = table.kernels[operation.kernel]
        operands: dict[int, tuple[int, int]] = {}
        for o, tensor in enumerate(operation.operands):
            if o not in kernel.streamed:
                operands[o] = self.need(tensor), table.padded_bytes(tensor)
        made = self.place_results(step, kernel, operation.results, operands)
        for o in range(kernel.operands):
            if o in kernel.streamed:
                self.need_page(operation.operands[o])
        if step.workspace is not None:
            space = (step.workspace, kernel.workspace_bytes)
            self.fits(*space)
            if any(_overlap(*space, *other) for other in (*operands.values(), *made.values())):
                raise PlanError(f"the workspace of {kernel.name} overlaps what it works on")
            self.overwrite(*space)
        for place, bytes in made.values():
            self.overwrite(place, bytes)
        for tensor in operation.results:
            self.leave(tensor)
        self.places |= {tensor: place for tensor, (place, _) in made.items()}
        self.stored.update(tensor for tensor in operation.results if tensor not in made)

    def place_results(
        self, step: Run, kernel: Kernel, results: range, operands: Mapping[int, tuple[int, int]]
    ) -> dict[int, tuple[int, int]]:
        """Place and bytes of the results in the arena; of others the page is about to be made."""
        made: dict[int, tuple[int, int]] = {}
        places = iter(step.places)
        for r, tensor in enumerate(results):
            if kernel.operands + r in kernel.streamed:
                self.drop_pages(tensor)
                continue
            place, bytes = next(places), self.table.padded_bytes(tensor)
            self.fits(place, bytes)
            for o, other in operands.items():
                if not _overlap(place, bytes, *other):
                    continue
                if (r, o) not in kernel.pairs or (place, bytes) != other:
                    raise PlanError(f"result {r} of {kernel.name} overlaps operand {o}")
            if any(_overlap(place, bytes, *other) for other in made.values()):
                raise PlanError(f"result {r} of {kernel.name} overlaps another result")
            made[tensor] = place, bytes
        return made

    def finish(self) -> None:
        """All results, and all parameters where the next step expects them."""
        if self.transfers:
            raise PlanError("the plan ends before a transfer does")
        arguments, on_storage = self.table.arguments, self.table.on_storage
        for k, tensor in enumerate(self.table.results):
            if tensor not in (self.stored if tensor in on_storage else self.places):
                raise PlanError(f"the plan ends without result {k}")
        for i, argument in enumerate(arguments):
            if not argument.is_param or i in on_storage:
                continue
            last = i if argument.new_value is None else argument.new_value
            if self.places.get(last) != self.start[i]:
                raise PlanError(f"the plan ends without parameter {i} in its place")


def _overlap(a: int, a_bytes: int, b: int, b_bytes: int) -> bool:
    return a_bytes > 0 and b_bytes > 0 and a < b + b_bytes and b < a + a_bytes
