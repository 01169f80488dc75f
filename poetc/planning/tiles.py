"""A step whose kernels may run in tiles: what is scheduled for it, the least RAM that it takes, and
what is said where that does not help."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from xdsl.dialects.builtin import ModuleOp

from poetc.budget import BLOCK
from poetc.diagnosis import Diagnosis, LeastRam, Reason
from poetc.errors import InputError
from poetc.ir.graph import graphs
from poetc.ir.poet import GraphOp
from poetc.page import BLOCK_BYTES, LEAST_BLOCK_BYTES
from poetc.planning.problem import ScheduleOptions, instance_of, problem_view
from poetc.planning.solver import kernel_of
from poetc.planning.variants import KnownTiles
from poetc.schedule.exact.bounds import ram_needed_in_any_order
from poetc.schedule.model.clock import Clock
from poetc.schedule.search.infeasibility import least_ram
from poetc.units import format_bytes

LEAST_S = 0.3
"""Seconds for a schedule in the least RAM, once it is known which tiles need least."""

TOLD_S = 4.0
"""Seconds of a time limit for those tiles, where they are for a message only."""


@dataclass(frozen=True)
class Step:
    """A module with one graph, annotated and ordered, and what to schedule it for."""

    module: ModuleOp
    graph: GraphOp
    asked: ScheduleOptions


@dataclass(frozen=True)
class Tiles:
    """Kernels in tiles: why there are none (`refused`; empty: there may be), whether there could be
    if that were not asked for (`possible`), the bytes of a block of a page (None: of a size that is
    tried), whether pages are `in_blocks` even where no kernel runs in tiles, the step with the
    kernels that tiles are made of, ordered, of which pairs may be one, and what is `known` of its
    tiles, without pairs and with them."""

    refused: str
    possible: bool
    block_bytes: int | None
    in_blocks: bool
    build: Callable[[bool], Step]
    known: tuple[KnownTiles, KnownTiles] = field(default_factory=lambda: _known_of_two())

    @property
    def sizes(self) -> tuple[int, ...]:
        """The bytes of blocks to try."""
        return block_sizes(self.block_bytes)

    def limited(
        self, step: Step, whole: ScheduleOptions, block_bytes: int, pairs: bool = False
    ) -> Step:
        """The built step, which may have `pairs`, with such blocks, within the limits of time of
        the one with `whole` kernels: a deadline that is a multiple is one of their time."""
        asked = replace(
            step.asked,
            budget=replace(step.asked.budget, block_bytes=block_bytes),
            params="storage",
            deadline_ns=whole.deadline_ns,
            time_limit_s=whole.time_limit_s,
            in_blocks=self.in_blocks,
            clock=whole.clock,
            known_tiles=self.known[pairs],
        )
        return replace(step, asked=asked)


def block_sizes(asked_bytes: int | None) -> tuple[int, ...]:
    """The bytes of blocks to try, where those that were asked for are given: the last ones leave
    most RAM."""
    return (BLOCK_BYTES, LEAST_BLOCK_BYTES) if asked_bytes is None else (asked_bytes,)


def _known_of_two() -> tuple[KnownTiles, KnownTiles]:
    """What is known of two steps with the same kernels, before anything is."""
    one = KnownTiles()
    return one, KnownTiles(both=one.both)


def step_of(module: ModuleOp, asked: ScheduleOptions) -> Step:
    """A module as a step. Raises InputError unless it has one graph."""
    found = graphs(module)
    if len(found) != 1:
        names = ", ".join(f"@{g.sym_name.data}" for g in found) or "none"
        raise InputError(f"expected one poet.graph in the module, found {names}")
    return Step(module, found[0], asked)


def least_in_tiles_nj(step: Step) -> int:
    """Energy of each kernel as it is, and of moving once all parameters that every schedule
    moves; slices take no less than whole pages, but where a table is read by rows."""
    budget = replace(step.asked.budget, total_bytes=None, block_bytes=0)
    asked = replace(step.asked, budget=budget, deadline_ns=None, params="storage")
    return instance_of(problem_view(step.graph, asked).problem, asked).least_energy_nj


def least_ram_in_tiles(graph: GraphOp, options: ScheduleOptions) -> LeastRam:
    """The least RAM for which there is a schedule of an unscheduled graph whose kernels are as they
    are lowered, and what is proven necessary in any tiles, whatever time and energy it takes.
    `options` have the block of a page."""
    budget = options.budget
    unlimited = replace(budget, total_bytes=None)
    asked = replace(options, budget=unlimited, deadline_ns=None, params="storage")
    view = problem_view(graph, asked)
    assert view.any_tiles is not None
    found = least_ram(instance_of(view.problem, asked), LEAST_S, other_orders=False)
    bound_bytes, operation = ram_needed_in_any_order(instance_of(view.any_tiles, asked))
    kernel = None if operation is None else kernel_of(graph, view.computes[operation])
    known_bytes = None if found.known is None else budget.used_bytes(found.known)
    return LeastRam(known_bytes, budget.used_bytes(bound_bytes), kernel=kernel, tiles=True)


def beside_tiles(
    failure: Diagnosis, tiles: Tiles, found: Diagnosis | None, asked: ScheduleOptions
) -> Diagnosis:
    """`failure` of whole kernels with what is known of kernels in tiles, whose search has `found`
    that (None: there was none). What holds at the ends of the step holds for them, too."""
    needs_ram = failure.reason is Reason.RAM and failure.is_proof
    if tiles.refused and needs_ram:
        words = f"kernels were not run in tiles ({tiles.refused})"
        known_bytes = None if (least := _told(tiles, asked)) is None else least.known_bytes
        if known_bytes is not None:
            words += f", in which {format_bytes(known_bytes)} are enough"
        return replace(failure, tiles=words)
    if tiles.refused or found is None or failure.reason is Reason.RESERVED:
        return failure
    if failure.reason is Reason.RAM:
        failure = replace(failure, whole=True)
    if found.reason is Reason.RESERVED:
        block = format_bytes(dict(found.reserved)[BLOCK])
        return replace(failure, tiles=f"{BLOCK}, {block}, leaves nothing for kernels in tiles")
    late = failure.is_about_time and found.is_about_time
    if found.proven and late:
        return failure
    if not failure.proven or not needs_ram or failure.needed_bytes is None:
        words = "there is no schedule" if found.proven else "no schedule was found"
        proven = failure.proven and found.proven
        remedies = failure.remedies or found.remedies
        tiles_words = f"{words} with kernels in tiles"
        return replace(failure, proven=proven, tiles=tiles_words, remedies=remedies)
    return replace(
        found,
        subject=failure.subject,
        restrictions=failure.restrictions,
        tried=failure.tried,
        tiles=failure.needed_words(),
    )


def unproven(found: Diagnosis) -> Diagnosis:
    """The diagnosis `found` with blocks of one size, without its proof: there was no time for
    blocks of other sizes."""
    return replace(
        found,
        reason=Reason.SEARCH,
        proven=False,
        needed_bytes=None,
        kernel=None,
        remedies=("a longer --time-limit",),
    )


def _told(tiles: Tiles, asked: ScheduleOptions) -> LeastRam | None:
    """The least RAM in tiles, where only the user keeps kernels from running in them."""
    if not tiles.possible:
        return None
    try:
        step = tiles.build(False)
        asked = tiles.limited(step, asked, tiles.sizes[-1]).asked
        clock = Clock(TOLD_S, counted=asked.counted)
        return least_ram_in_tiles(step.graph, replace(asked, clock=clock, time_limit_s=TOLD_S))
    except InputError:
        # Not even by other options.
        return None
