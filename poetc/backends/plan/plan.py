"""Plans: schedules as byte strings.

A plan says where arguments are in the arena, where pages are in storage, and lists steps: run an
operation of the model's table (`table.py`), putting its results there; start to page a tensor in,
or out; wait for the transfer that was started first of those that have not been waited for. Which
tensors an operation reads is in the table. Nothing is freed: a tensor is there until other bytes
are put over it.

    0   "PTP" and the version, 1
    4   identity of the table
    8   bytes of the plan, all of it
    12  bytes of the arena that it needs
    16  bytes of storage that it needs
    20  number of steps (16 bits)
    22  number of pages (16 bits)
    24  bits, the least significant of each byte first:
        where pages are in blocks: number of operations (16 bits), identity of each (32 bits)
        for each argument in the arena: its place
        for each page: tensor, place in storage
        for each step: 2 bits and what they ask for
            0  run       operation, place of each result in the arena, place of the workspace if
                         it has one
            1  page in   page, place in the arena
            2  page out  page
            3  wait
        zeros up to a whole byte
        CRC-32 of everything before

Numbers in the first 24 bytes and the CRC are little-endian. Places are in words of 4 bytes. A field
has as many bits as the largest number in it needs: the arena or the storage in words, the last
operation, tensor or page. Where pages are in blocks, operations are numbered as the plan lists
them: kernels in tiles are made for one schedule, and a program may have others. Results that are on
storage go to their pages. Where parameters are on storage, pages 0 to A - 1 are the arguments as
they come, A to 2 A - 1 their new values, and the pages listed follow; otherwise those are all.

`check` is what makes a plan one that may run: each operation reads what the table says, intact, and
the step ends with all results where they belong. So a plan that passes it computes the same bits as
any other. `runtime/poetc_plan.c` decides the same on the device.
"""

from __future__ import annotations

from dataclasses import dataclass

from poetc.backends.plan.table import Table
from poetc.errors import InputError

MAX_STEPS = 2**16 - 1


class PlanError(InputError):
    """A plan that would be refused."""


@dataclass(frozen=True)
class Run:
    """Runs an operation of the table. `places` are those of its results in the arena, in bytes."""

    operation: int
    places: tuple[int, ...]
    workspace: int | None = None


@dataclass(frozen=True)
class PageIn:
    """Starts to read a page into the arena at `place`."""

    page: int
    place: int


@dataclass(frozen=True)
class PageOut:
    """Starts to write the tensor of a page there."""

    page: int


@dataclass(frozen=True)
class Wait:
    """Waits for the first transfer that was started and has not been waited for."""


Step = Run | PageIn | PageOut | Wait


@dataclass(frozen=True)
class Page:
    """A place in storage for a tensor, in bytes."""

    tensor: int
    place: int


@dataclass(frozen=True)
class Plan:
    """A schedule. `arguments` are the places of those in the arena, in order; `pages` are in the
    order of their tensors, which differ."""

    identity: int
    arena_bytes: int
    storage_bytes: int
    arguments: tuple[int, ...]
    pages: tuple[Page, ...]
    steps: tuple[Step, ...]


def image_pages(table: Table) -> int:
    """How many numbers of pages belong to the parameters on storage."""
    return 0 if table.image is None else 2 * len(table.arguments)


def page_tensor(page: int, plan: Plan, table: Table) -> int:
    """The tensor of a page. Raises PlanError where there is no such page."""
    arguments, image = table.arguments, image_pages(table)
    if page >= image + len(plan.pages):
        raise PlanError(f"there is no page {page}")
    if page >= image:
        return plan.pages[page - image].tensor
    argument = arguments[page % len(arguments)]
    tensor = page if page < len(arguments) else argument.new_value
    if argument.page_offset is None or tensor is None:
        raise PlanError(f"there is no page {page}")
    return tensor
