"""The pipeline: which passes run, in which order. Start reading here.

    StableHLO ── stablehlo-simplify (── stablehlo-train) ── stablehlo-to-poet
      ── poet-fuse (── poet-pair) ── poet-lower-kernels
      ── poet-annotate ── poet-order ── poet-schedule ── poet-plan-transfers ── poet-plan-memory
      ── poet-read-ahead ── poet-verify ── poet IR ── a backend (`backends/`, chosen in `emit/`): C,
      TVM, a plan

Each of them is a pass that `xdsl-opt -p` or `poetc --passes` runs alone. The driver (`driver.py`)
runs the same ones. Only poet-schedule is more than its pass there: the search
(`planning/search.py`) also looks for kernels to run in tiles, and where some do, the passes before
it have run again for the step that is scheduled in the end, by poet-stream.

Input may also be poet IR at any stage; what has been done already is not done again.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import VerifyException

from poetc.costmodel.device import Device
from poetc.errors import InputError
from poetc.ir.graph import graphs
from poetc.options import SEARCH, default
from poetc.passes.poet_annotate import PoetAnnotatePass
from poetc.passes.poet_arrange_kernels import PoetArrangeKernelsPass
from poetc.passes.poet_fuse import PoetFusePass
from poetc.passes.poet_lower_kernels import PoetLowerKernelsPass
from poetc.passes.poet_order import PoetOrderPass
from poetc.passes.poet_pair import PoetPairPass
from poetc.passes.poet_plan_memory import PoetPlanMemoryPass
from poetc.passes.poet_plan_transfers import PoetPlanTransfersPass
from poetc.passes.poet_read_ahead import PoetReadAheadPass
from poetc.passes.poet_schedule import PoetSchedulePass
from poetc.passes.poet_stream import PoetStreamPass
from poetc.passes.poet_verify import PoetVerifyPass
from poetc.passes.stablehlo_pages import StableHLOPagesPass
from poetc.passes.stablehlo_simplify import StableHLOSimplifyPass
from poetc.passes.stablehlo_to_poet import StableHLOToPoetPass
from poetc.passes.stablehlo_train import StableHLOTrainPass
from poetc.planning.problem import ScheduleOptions, alignment_of
from poetc.request import Options

Observer = Callable[[ModulePass, ModuleOp, float], None]
"""Called after each pass with the pass, the module and the seconds it took."""


def front_passes(
    module: ModuleOp,
    device_name: str,
    device: Device | None = None,
    io: str | None = None,
    frozen: str = default("frozen"),
    train: str | None = None,
    pages: str = default("pages"),
    arrange: bool = True,
    tiles: bool = False,
    pairs_ram: int | None = None,
) -> tuple[ModulePass, ...]:
    """The passes that bring `module` to fused, annotated, ordered poet IR, from where it is.

    `io` says where inputs and results
    are, `frozen` which arguments are never written, `train` which parameters are trained, `pages`
    how weights are held. Without `arrange`, loops of kernels stay as they are lowered; for a step
    whose kernels may run in `tiles` they stay beside those that are arranged, and with `pairs_ram`
    bytes of RAM those that had better read a parameter together are one. Costs that
    were made for another device than `device`, or may be from another profile, are annotated again;
    costs without a device, written by hand, are kept.
    """
    profile = _profile_path(device)
    step = {"frozen": frozen, "train": train, "pages": pages}
    made = " ".join(
        f"--{name}={shlex.quote(text)}"
        for name, text in step.items()
        if text is not None and text != default(name)
    )
    pair = () if pairs_ram is None else (PoetPairPass(pairs_ram),)
    kernels: tuple[ModulePass, ...] = (PoetFusePass(), *pair, PoetLowerKernelsPass())
    if arrange:
        kernels = (*kernels, PoetArrangeKernelsPass(device_name, profile, keeps=tiles))
    found = graphs(module)
    if not found:
        return (
            *simplify_passes(train, pages, frozen),
            StableHLOToPoetPass(io, frozen),
            *kernels,
            PoetAnnotatePass(device=device_name, profile=profile, made=made),
            PoetOrderPass(),
        )
    if made:
        raise InputError(f"the input is poet IR already; {made} needs StableHLO")
    passes: list[ModulePass] = []
    computes = [compute for graph in found for compute in graph.computes]
    if any(graph.is_scheduled for graph in found):
        return ()
    if any(compute.kernel is None for compute in computes):
        passes += kernels
    made_for = {graph.attributes.get("device") for graph in found} - {None}
    stale = device is not None and (made_for if profile else made_for - {StringAttr(device.name)})
    if stale or any(compute.cost is None for compute in computes):
        passes += [PoetAnnotatePass(device=device_name, profile=profile), PoetOrderPass()]
    return tuple(passes)


def simplify_passes(
    train: str | None = None, pages: str = default("pages"), frozen: str = default("frozen")
) -> tuple[ModulePass, ...]:
    """The passes that bring StableHLO to its normal form, with the parameters trained that `train`
    names (None: all), and weights held as `pages` says."""
    passes: list[ModulePass] = [StableHLOSimplifyPass()]
    if train is not None:
        passes += [StableHLOTrainPass(train), StableHLOSimplifyPass()]
    if pages != default("pages"):
        passes += [StableHLOPagesPass(pages, frozen)]
    return tuple(passes)


def schedule_pass(options: Options, asked: ScheduleOptions) -> ModulePass:
    """The pass that schedules a graph as `asked`."""
    if asked.block_bytes is not None and asked.arena_bytes is not None:
        align = alignment_of(options.device)
        limits = asked.arena_bytes, options.device_name, align
        return PoetStreamPass(*limits, asked.block_bytes, asked.in_blocks)
    return PoetSchedulePass(
        ram=asked.arena_bytes,
        deadline=asked.deadline_ns,
        device=options.device_name,
        profile=_profile_path(options.device),
        storage=options.storage,
        params=asked.params,
        io=options.io,
        **{option: getattr(asked, field) for field, option in SEARCH.items()},
    )


def plan_passes(options: Options) -> tuple[ModulePass, ...]:
    """The passes that write the plan of transfers and memory, and check the outcome."""
    align = alignment_of(options.device)
    return (
        PoetPlanTransfersPass(options.device_name, _profile_path(options.device), options.storage),
        PoetPlanMemoryPass(align),
        PoetReadAheadPass(options.device_name, _profile_path(options.device), options.storage),
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


def unobserved(step: ModulePass, module: ModuleOp, seconds: float) -> None:
    """An observer that does nothing."""


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


def _profile_path(device: Device | None) -> str | None:
    profile = None if device is None else device.profile
    return None if profile is None else str(profile.path)
