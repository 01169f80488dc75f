"""The pipeline: which passes run, in which order. Start reading here.

    StableHLO ── stablehlo-simplify (── stablehlo-split) ── stablehlo-to-poet ── poet-fuse
      ── poet-lower-kernels
      ── poet-annotate ── poet-order ── poet-schedule ── poet-plan-transfers ── poet-plan-memory
      ── poet-verify ── poet IR ── a backend (`backends/`, chosen in `cli/emit/`): C, TVM, a plan

Each of them is a pass that `xdsl-opt -p` or `poetc --passes` runs alone, and `compile_module` runs
the same ones. Only poet-schedule is more than its pass there: the search (`planning/search.py`)
also looks for parameters to split where the step does not fit, and then the passes before it have
run again for the step that is scheduled in the end. `Compiled.passes` are those that made the
module.

Input may also be poet IR at any stage; what has been done already is not done again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import VerifyException

from poetc.costmodel.device import Device
from poetc.diagnosis import Reason
from poetc.errors import InputError, PoetcError, UnscheduledError
from poetc.ir.graph import graphs
from poetc.ir.poet import GraphOp
from poetc.passes.poet_annotate import PoetAnnotatePass
from poetc.passes.poet_fuse import PoetFusePass
from poetc.passes.poet_lower_kernels import PoetLowerKernelsPass
from poetc.passes.poet_order import PoetOrderPass
from poetc.passes.poet_plan_memory import PoetPlanMemoryPass
from poetc.passes.poet_plan_transfers import PoetPlanTransfersPass
from poetc.passes.poet_schedule import PoetSchedulePass
from poetc.passes.poet_verify import PoetVerifyPass
from poetc.passes.stablehlo_simplify import StableHLOSimplifyPass
from poetc.passes.stablehlo_split import StableHLOSplitPass, splittable
from poetc.passes.stablehlo_to_poet import StableHLOToPoetPass
from poetc.planning.problem import ScheduleOptions, alignment_of
from poetc.planning.report import ScheduleReport
from poetc.planning.search import search, step_of
from poetc.planning.solver import ProgressCallback
from poetc.request import Options, check_given
from poetc.splits import Split, splits_text

if TYPE_CHECKING:
    from poetc.backends.c.stack import StackUse

Observer = Callable[[ModulePass, ModuleOp, float], None]
"""Called after each pass with the pass, the module and the seconds it took."""


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


def front_passes(
    module: ModuleOp,
    device_name: str,
    device: Device | None = None,
    splits: tuple[Split, ...] = (),
    io: str | None = None,
) -> tuple[ModulePass, ...]:
    """The passes that bring `module` to fused, annotated, ordered poet IR, from where it is.

    Parameters are split as `splits` say, which needs StableHLO. `io` says where inputs and results
    are. Costs that were made for another device than `device`, or may be from another profile, are
    made again; costs without a device, written by hand, are kept.
    """
    profile = _profile_path(device)
    split = splits_text(splits) if splits else None
    found = graphs(module)
    if not found:
        return (
            StableHLOSimplifyPass(),
            *((StableHLOSplitPass(split),) if split is not None else ()),
            StableHLOToPoetPass(io),
            PoetFusePass(),
            PoetLowerKernelsPass(),
            PoetAnnotatePass(device=device_name, profile=profile, split=split),
            PoetOrderPass(),
        )
    if splits:
        raise InputError("--split needs StableHLO; the input is poet IR already")
    passes: list[ModulePass] = []
    computes = [compute for graph in found for compute in graph.computes]
    if any(graph.is_scheduled for graph in found):
        return ()
    if any(compute.kernel is None for compute in computes):
        passes += [PoetFusePass(), PoetLowerKernelsPass()]
    made_for = {graph.attributes.get("device") for graph in found} - {None}
    stale = device is not None and (made_for if profile else made_for - {StringAttr(device.name)})
    if stale or any(compute.cost is None for compute in computes):
        passes += [PoetAnnotatePass(device=device_name, profile=profile), PoetOrderPass()]
    return tuple(passes)


def schedule_pass(options: Options, asked: ScheduleOptions) -> PoetSchedulePass:
    """The pass that schedules a graph as `asked`."""
    return PoetSchedulePass(
        ram=asked.arena_bytes,
        deadline=asked.deadline_ns,
        strategy=asked.strategy,
        paging=asked.paging,
        remat=asked.remat,
        time_limit=asked.time_limit_s,
        gap=asked.gap,
        device=options.device_name,
        profile=_profile_path(options.device),
        ram_scope=asked.ram_scope,
        params=asked.params,
        io=options.io,
    )


def plan_passes(options: Options) -> tuple[ModulePass, ...]:
    """The passes that write the plan of transfers and memory, and check the outcome."""
    align = alignment_of(options.device)
    return (
        PoetPlanTransfersPass(options.device_name, _profile_path(options.device)),
        PoetPlanMemoryPass(align),
        PoetVerifyPass(),
    )


def run_passes(
    ctx: Context, module: ModuleOp, passes: tuple[ModulePass, ...], observe: Observer
) -> None:
    """Run passes in order, and `observe` after each."""
    for step in passes:
        started = time.monotonic()
        step.apply(ctx, module)
        observe(step, module, time.monotonic() - started)


def verified(observe: Observer) -> Observer:
    """An observer that verifies the module and then calls `observe`.

    It raises AssertionError for invalid IR: not the user's fault, a pass left that behind.
    """

    def verify(step: ModulePass, module: ModuleOp, seconds: float) -> None:
        try:
            module.verify()
        except VerifyException as error:
            raise AssertionError(f"invalid IR after {step.name}: {error}") from error
        observe(step, module, seconds)

    return verify


def compile_module(
    ctx: Context,
    module: ModuleOp,
    options: Options,
    *,
    progress: ProgressCallback | None = None,
    observe: Observer = lambda step, module, seconds: None,
) -> Compiled:
    """Bring a verified module to scheduled poet IR with offsets, in place.

    Raises InputError for what cannot be compiled, InfeasibleError where no schedule exists,
    TimeLimitError where none was found, and `SolverInterrupted` on Ctrl-C without a schedule.
    """
    options = options.checked()
    splits = options.split if isinstance(options.split, tuple) else ()
    passes = front_passes(module, options.device_name, options.device, splits, options.io)
    source = _source(ctx, module, options, observe)
    for graph in graphs(module):
        if options.io is not None:
            graph.attributes["io"] = StringAttr(options.io)
    started = time.monotonic()
    run_passes(ctx, module, passes, observe)
    if source is not None:
        source.front_s = time.monotonic() - started
    step = step_of(module, ScheduleOptions())
    if step.graph.is_scheduled:
        return _compile_scheduled(ctx, module, step.graph, options, observe)
    known = options.with_program(module, step.graph)
    asked = known.schedule_options(step.graph)
    started = time.monotonic()
    try:
        found = search(replace(step, asked=asked), source, progress)
    except UnscheduledError as error:
        raise _for_user(error, options) from error
    if found.step.module is not module:
        assert source is not None
        passes = source.passes[found.step.module]
        _become(module, found.step.module)
    budget = found.step.asked.budget
    options = replace(known, static_bytes=budget.static_bytes, stack_bytes=budget.stack_bytes)
    schedule = schedule_pass(options, replace(found.step.asked, params=options.params))
    observe(schedule, module, time.monotonic() - started)
    *plan, verify = plan_passes(options)
    run_passes(ctx, module, tuple(plan), observe)
    run_passes(ctx, module, (verify,), verified(observe))
    passes = (*passes, schedule, *plan, verify)
    stack = None
    if options.stack_compiler is not None:
        options, stack = options.with_measured_stack(module, found.step.graph)
    return Compiled(module, found.step.graph, found.report, options, passes, stack)


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


def _profile_path(device: Device | None) -> str | None:
    return device.profile.path if device is not None and device.profile is not None else None


# Splitting


def _source(
    ctx: Context, module: ModuleOp, options: Options, observe: Observer
) -> SplitSource | None:
    """The step before its parameters are split; None for poet IR."""
    if graphs(module):
        return None
    refused = options.why_not_split()
    if options.ram_bytes is None:
        refused = refused or "there is no --ram"
    return SplitSource(ctx, module if refused else module.clone(), options, refused, observe)


class SplitSource:
    """A StableHLO module whose parameters may be split, for `planning.search`.

    `passes` are those that made each module that was built.
    """

    def __init__(
        self,
        ctx: Context,
        module: ModuleOp,
        options: Options,
        refused: str = "",
        observe: Observer = lambda step, module, seconds: None,
    ) -> None:
        self.ctx, self.module, self.options = ctx, module, options
        self.refused, self.observe = refused, observe
        self.size = _size(module)
        self.front_s = 0.0
        self.passes: dict[ModuleOp, tuple[ModulePass, ...]] = {}

    def splittable(self) -> Mapping[int, tuple[int, int]]:
        """For each parameter the argument that stands for those split alike, and in how many shards
        these can be had. The module is simplified then."""
        StableHLOSimplifyPass().apply(self.ctx, self.module)
        return splittable(self.module)

    def seconds(self, module: ModuleOp | None = None) -> float:
        """What a module of that size takes to become poet IR; None: the step as it is."""
        size = self.size if module is None else _size(module)
        return self.front_s / max(1, self.size) * size

    def build(
        self,
        splits: tuple[Split, ...],
        late: Callable[[ModuleOp], bool] = lambda module: False,
    ) -> tuple[ModuleOp, ScheduleOptions] | None:
        """A copy of the simplified module with those splits, as annotated poet IR, and what to
        schedule it for. None where it becomes too `late` for it once it is known how large the
        module is in shards.

        It is neither ordered nor verified: most candidates are only asked what they need, which
        depends on neither.
        """
        options, copy = self.options, self.module.clone()
        started = time.monotonic()
        passes = front_passes(copy, options.device_name, options.device, splits, options.io)
        for step in passes[1:-1]:
            step.apply(self.ctx, copy)
            if isinstance(step, StableHLOSplitPass) and late(copy):
                return None
        graph = step_of(copy, ScheduleOptions()).graph
        known = options.with_program(copy, graph)
        self.passes[copy] = passes
        if splits:
            self.observe(passes[1], copy, time.monotonic() - started)
        return copy, known.schedule_options(graph)


def _size(module: ModuleOp) -> int:
    """Operations, also those in regions."""
    return sum(1 for _ in module.walk())
