"""The driver: a module, and what the user asked for, becomes a scheduled module with offsets."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass

from poetc.backends.c.entries import EntryPoint
from poetc.backends.c.layout import static_ram_bytes
from poetc.diagnosis import Reason
from poetc.entries import bind, separate
from poetc.errors import InputError, PoetcError, UnscheduledError
from poetc.ir.graph import graphs
from poetc.ir.poet import GraphOp
from poetc.ir.symbols import named_in
from poetc.kernels.known import KernelContext
from poetc.options import default
from poetc.passes.poet_arrange_kernels import PoetArrangeKernelsPass, arrange_alike, names_by_key
from poetc.passes.poet_lower_kernels import PoetLowerKernelsPass
from poetc.passes.poet_pair import PoetPairPass
from poetc.passes.poet_plan_memory import PoetPlanMemoryPass
from poetc.passes.poet_verify import PoetVerifyPass
from poetc.pipeline import (
    Observer,
    front_passes,
    plan_passes,
    run_passes,
    schedule_pass,
    verified,
)
from poetc.planning.entries import check_shared, kept_bytes, parameters_first, share_places
from poetc.planning.problem import ScheduleOptions, alignment_of
from poetc.planning.report import ScheduleReport
from poetc.planning.search import search
from poetc.planning.solver import ProgressCallback
from poetc.planning.tiles import Step, Tiles, block_sizes, step_of
from poetc.request import Options, check_given, check_parameters

if TYPE_CHECKING:
    from poetc.backends.c.stack import StackUse


@dataclass(frozen=True)
class Compiled:
    """A scheduled module with offsets, and the `passes` that made it. `report` is None if the input
    was scheduled already.

    `options` are those asked for; if the stack was measured, with what it came to, and `stack`
    tells how.
    """

    module: ModuleOp
    graph: GraphOp
    report: ScheduleReport | None
    options: Options
    passes: tuple[ModulePass, ...]
    stack: StackUse | None = None
    entries: tuple[Entry, ...] = ()

    @property
    def arena_bytes(self) -> int:
        """The arena, which is large enough for each entry point."""
        graphs = (self.graph, *(entry.compiled.graph for entry in self.entries))
        return max(map(static_ram_bytes, graphs))

    @property
    def points(self) -> tuple[EntryPoint, ...]:
        """The other entry points as the C backend takes them."""
        return tuple(entry.point for entry in self.entries)

    @property
    def ram_bytes(self) -> int:
        """All of the RAM that the program takes on the device."""
        budget = replace(self.options.budget, stack_bytes=self.stack_bytes)
        return budget.used_bytes(self.arena_bytes)

    @property
    def stack_bytes(self) -> int:
        """The stack that is reserved, for whichever entry point takes most."""
        all_of = (self, *(entry.compiled for entry in self.entries))
        return max(each.options.stack_bytes for each in all_of)


@dataclass(frozen=True)
class Entry:
    """Another entry point of the module: what was compiled of it, and by the numbers of its
    arguments the parameters of the step that they are."""

    name: str
    compiled: Compiled
    parameters: Mapping[int, int]

    @property
    def point(self) -> EntryPoint:
        """The same as the C backend takes it."""
        return EntryPoint(self.name, self.compiled.module, self.compiled.graph, self.parameters)


def compile_module(
    ctx: Context,
    module: ModuleOp,
    options: Options,
    *,
    progress: ProgressCallback | None = None,
    observe: Observer = lambda step, module, seconds: None,
) -> Compiled:
    """Bring a verified module to scheduled poet IR with offsets, in place.

    Where it has other entry points beside the step, they are compiled for the same RAM, and the
    step alone is in the module then.

    Raises InputError for what cannot be compiled, InfeasibleError where no schedule exists,
    TimeLimitError where none was found, and `SolverInterrupted` on Ctrl-C without a schedule.
    """
    ctx = KernelContext.of(ctx)
    options.check()
    others = {} if graphs(module) else separate(module)
    if others and options.ram_scope != "all":
        raise InputError(
            f"--ram-scope={options.ram_scope} is for a step without other entry points"
        )
    if others and options.executor is not None:
        raise InputError("a program that runs plans, and a plan, have no other entry points")
    spare = module.clone() if others else None

    def step_of_all(options: Options) -> Compiled:
        kept = None if options.stack_compiler is None else module.clone()
        try:
            return _compile(ctx, module, options, progress, observe, has_entries=bool(others))
        except UnscheduledError as error:
            taken_bytes = error.diagnosis.stack_bytes or 0
            if kept is None or taken_bytes <= options.least_stack_bytes:
                raise
            # Kernels in tiles take more than whole ones, which are known before the search.
            _become(module, kept)
            return step_of_all(replace(options, least_stack_bytes=taken_bytes))

    def beside(step: Compiled) -> tuple[Entry, ...]:
        alike = {} if spare is None else _arranged(ctx, spare, step)
        return tuple(
            _compile_entry(ctx, other.clone(), name, step, alike, progress, observe)
            for name, other in others.items()
        )

    step = step_of_all(options)
    failures: list[UnscheduledError] = []
    while True:
        try:
            return replace(step, entries=beside(step))
        except UnscheduledError as error:
            failures.append(error)
            leaner = _for_entries(options, step.graph)
            if spare is None or leaner is None:
                # Nothing is proven unless all is; then by what needs least.
                raise min(failures, key=_told_first) from None
        _become(module, spare.clone())
        step = step_of_all(leaner)


def _told_first(error: UnscheduledError) -> tuple[bool, float]:
    """A key that is least for the failure of an entry point that is told of several."""
    found = error.diagnosis
    return found.proven, found.needed_bytes or math.inf


def _for_entries(options: Options, step: GraphOp) -> Options | None:
    """The options of a step beside which other entry points need less RAM than beside `step`, for
    one of which there is no schedule; None where there are no such options."""
    if options.ram_bytes is None or options.device.storage is None:
        return None
    stored = any(map(step.is_stored, range(len(step.arguments))))
    if options.params == "auto" and not stored:
        return replace(options, params="storage")
    # An entry point can run in tiles if pages are in blocks; small ones leave more RAM.
    block_bytes = step.block_bytes or math.inf
    size = next((s for s in block_sizes(options.block_bytes) if s < block_bytes), None)
    if size is None or options.why_not_stream():
        return None
    return replace(options, params="storage", block_bytes=size, in_blocks=True)


def _arranged(ctx: Context, module: ModuleOp, step: Compiled) -> Mapping[str, FuncOp]:
    """The kernels of a step that was made of `module`, by what they are known by before their loops
    are arranged; none where they are not."""
    before, rest = _until(PoetArrangeKernelsPass, step.passes)
    if not rest:
        return {}
    copy = module.clone()
    run_passes(ctx, copy, before, lambda step, module, seconds: None)
    # A step in tiles has lost the kernels that only they are made of.
    arranged = named_in(step.module, FuncOp)
    return {key: arranged[name] for key, name in names_by_key(copy).items() if name in arranged}


def _until(
    kind: type[ModulePass], passes: tuple[ModulePass, ...]
) -> tuple[tuple[ModulePass, ...], tuple[ModulePass, ...]]:
    """The passes before the first of a kind, and the rest; all of them and none where there is no
    such pass."""
    at = next((at for at, each in enumerate(passes) if isinstance(each, kind)), len(passes))
    return passes[:at], passes[at:]


def _compile_entry(
    ctx: Context,
    module: ModuleOp,
    name: str,
    step: Compiled,
    alike: Mapping[str, FuncOp],
    progress: ProgressCallback | None,
    observe: Observer,
) -> Entry:
    """Compiles an entry that reads the parameters of the step, for the RAM that they leave."""
    parameters = bind(module, name, step.graph)
    options = step.options
    base_bytes = kept_bytes(step.graph, alignment_of(options.device))
    stored = any(step.graph.is_stored(j) for j in parameters.values())
    in_blocks = step.graph.block_bytes is not None
    own = replace(
        options,
        ram_bytes=None if options.ram_bytes is None else options.ram_bytes - base_bytes,
        deadline=None,
        frozen=default("frozen"),
        train=None,
        pages=default("pages"),
        params="storage" if stored else "ram",
        block_bytes=step.graph.block_bytes,
        in_blocks=in_blocks,
        untiled=options.untiled or ("" if in_blocks else "pages of the step are in one piece"),
    )

    def settle(graph: GraphOp) -> Options:
        share_places(graph, step.graph, parameters, base_bytes)
        return options

    try:
        found = _compile(ctx, module, own, progress, observe, settle=settle, alike=alike)
    except UnscheduledError as error:
        beside = f", beside parameters of {base_bytes:,} B" if base_bytes else ""
        beside += ", with pages in blocks as the step has them" if in_blocks else ""
        raise UnscheduledError.of(replace(error.diagnosis, subject=f"@{name}{beside}")) from error
    check_shared(found.graph, step.graph, parameters)
    return Entry(name, found, parameters)


def _compile(
    ctx: Context,
    module: ModuleOp,
    options: Options,
    progress: ProgressCallback | None,
    observe: Observer,
    *,
    has_entries: bool = False,
    settle: Callable[[GraphOp], Options] | None = None,
    alike: Mapping[str, FuncOp] | None = None,
) -> Compiled:
    """Compiles a module with one entry point. Beside a step that `has_entries`, these run between
    its steps. `settle` moves the places of an entry before they are verified, and gives the options
    whose RAM is all of it. Kernels that are as `alike` has them, before their loops are arranged,
    are arranged as there, so that they share code."""
    passes = front_passes_of(module, options)
    untiled = options.why_not_stream()
    # Kernels that would run in tiles if the user let them, or wanted another form of the program.
    free = replace(options, stream="auto", untiled="")
    tileable = not untiled or not free.why_not_stream()
    for graph in graphs(module):
        if options.io is not None and not graph.is_scheduled:
            graph.attributes["io"] = StringAttr(options.io)
    source = _Source(ctx, module, options, alike or {})
    started = time.monotonic()
    unlowered, rest = _until(PoetLowerKernelsPass, passes)
    run_passes(ctx, module, unlowered, observe)
    if tileable:
        source.unlowered = module.clone()
    source.run(module, rest, observe)
    step = step_of(module, ScheduleOptions())
    if step.graph.is_scheduled:
        return _compile_scheduled(ctx, module, step.graph, options, observe)
    check_parameters(step.graph, options)
    known = options.with_program(module, step.graph)
    asked = known.schedule_options(step.graph)
    step = replace(step, asked=asked)

    started = time.monotonic()
    try:
        blocks = options.block_bytes, options.in_blocks
        tiles = Tiles(untiled, tileable, *blocks, source.in_tiles)
        found = search(step, progress, tiles)
    except UnscheduledError as error:
        raise _for_user(error, options) from error
    if found.step.module is not module:
        passes = source.passes[found.step.module]
        _become(module, found.step.module)
    budget = found.step.asked.budget
    options = replace(known, static_bytes=budget.static_bytes, stack_bytes=budget.stack_bytes)
    schedule = schedule_pass(options, replace(found.step.asked, params=options.params))
    observe(schedule, module, time.monotonic() - started)
    *plan, verify = plan_passes(options)
    if has_entries:
        parameters_first(found.step.graph, alignment_of(options.device))
    run_passes(ctx, module, tuple(plan), observe)
    if settle is not None:
        options = replace(options, ram_bytes=settle(found.step.graph).ram_bytes)
    run_passes(ctx, module, (verify,), verified(observe))
    passes = (*passes, schedule, *plan, verify)
    stack = None
    if options.stack_compiler is not None:
        options, stack = options.with_measured_stack(module, found.step.graph)
    return Compiled(module, found.step.graph, found.report, options, passes, stack)


def front_passes_of(
    module: ModuleOp,
    options: Options,
    tiles: bool = False,
    pairs: bool = False,
) -> tuple[ModulePass, ...]:
    """The `front_passes` for what is asked, or those that make what `tiles` are made of, where
    `pairs` of kernels may be one."""
    return front_passes(
        module,
        options.device_name,
        options.device,
        options.io,
        options.frozen,
        options.train,
        options.pages,
        options.arranges,
        tiles,
        options.ram_bytes if pairs else None,
    )


def _compile_scheduled(
    ctx: Context, module: ModuleOp, graph: GraphOp, options: Options, observe: Observer
) -> Compiled:
    """The same for a module that came with a schedule."""
    memory = (PoetPlanMemoryPass(),) if graph.arena_bytes is None else ()
    passes = (*memory, PoetVerifyPass())
    try:
        run_passes(ctx, module, passes, verified(observe))
    except UnscheduledError:
        raise
    except PoetcError as error:
        # The schedule is the user's: what is wrong with it is wrong with the input.
        raise InputError(error.message, error.location) from error
    stack = None
    if options.stack_compiler is not None:
        options, stack = options.with_measured_stack(module, graph)
    check_given(graph, options)
    return Compiled(module, graph, None, options, passes, stack)


def _for_user(error: UnscheduledError, options: Options) -> UnscheduledError:
    """`error` for the command line, where a module has one graph."""
    found = replace(error.diagnosis, subject="")
    overlaps = options.device.dma and (options.board is None or options.board.dma)
    if options.stack_compiler is not None and overlaps and found.reason is Reason.RAM:
        less = "a device without transfers beside computing (dma = false), which takes less stack,"
        found = replace(found, remedies=(*found.remedies, less))
    return UnscheduledError.of(found)


def _become(module: ModuleOp, other: ModuleOp) -> None:
    """Moves what is in `other` into `module`, in place of what is there."""
    for op in list(module.ops):
        op.detach()
        op.erase(safe_erase=False)
    for op in list(other.ops):
        op.detach()
        module.body.block.add_op(op)


class _Source:
    """The step before its kernels are lowered (`unlowered`), of which the step that tiles are made
    of is made.

    `passes` are those that made each module that was built, `tiled` the step that tiles are made
    of, once it was built, and its passes. Kernels that are as `alike` has them, before their loops
    are arranged, are arranged as there, so that they share code.
    """

    def __init__(
        self, ctx: Context, module: ModuleOp, options: Options, alike: Mapping[str, FuncOp]
    ) -> None:
        self.ctx, self.options, self.alike = ctx, options, alike
        self.unlowered = module
        self.tile_passes = {
            pairs: front_passes_of(module, options, tiles=True, pairs=pairs)
            for pairs in (False, True)
        }
        self.passes: dict[ModuleOp, tuple[ModulePass, ...]] = {}
        self.tiled: dict[bool, tuple[ModuleOp, tuple[ModulePass, ...]]] = {}

    def run(self, module: ModuleOp, passes: tuple[ModulePass, ...], observe: Observer) -> None:
        """Runs passes; what is `alike` is arranged alike."""
        before, rest = _until(PoetArrangeKernelsPass, passes)
        run_passes(self.ctx, module, before, observe)
        names = names_by_key(module) if self.alike and rest else {}
        run_passes(self.ctx, module, rest[:1], observe)
        arrange_alike(module, names, self.alike)
        run_passes(self.ctx, module, rest[1:], observe)

    def in_tiles(self, pairs: bool = False) -> Step:
        """The step with whole parameters, and with the kernels that tiles are made of, where
        `pairs` of them may be one."""
        if pairs not in self.tiled:
            made = self.unlowered.clone()
            passes = self.tile_passes[pairs]
            done = len(_until(PoetPairPass if pairs else PoetLowerKernelsPass, passes)[0])
            self.run(made, passes[done:], lambda step, module, seconds: None)
            self.tiled[pairs] = made, passes
        made, passes = self.tiled[pairs]
        copy = made.clone()
        step = step_of(copy, ScheduleOptions())
        known = self.options.with_program(copy, step.graph)
        self.passes[copy] = passes
        return replace(step, asked=known.schedule_options(step.graph))
