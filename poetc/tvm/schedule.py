"""`PoetSchedule`: a Relax module pass that makes functions run within a budget of RAM."""

# TVM's annotations are narrower than what it takes.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false
from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, tirx
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr

from poetc.backends.tvm import pipeline
from poetc.budget import Budget, Deadline
from poetc.costmodel.device import Device, load_device, with_storage
from poetc.diagnosis import Diagnosis, Reason
from poetc.errors import InfeasibleError, InputError, TimeLimitError, UnscheduledError
from poetc.options import SearchOptions, check_search, default, search_fields
from poetc.passes.poet_verify import verify_graph
from poetc.planning.order import order_graph
from poetc.planning.plan import schedule_and_plan
from poetc.planning.problem import ScheduleOptions, deadline_of
from poetc.planning.report import ScheduleReport
from poetc.planning.solver import diagnosis
from poetc.schedule import strategies
from poetc.schedule.model.errors import SolverInterrupted
from poetc.tvm import pages
from poetc.tvm.exporter import export_function
from poetc.tvm.importer import Imported, import_function, kernel_name
from poetc.tvm.kernels import ALIGN_BYTES
from poetc.units import parse_bytes

ATTRIBUTE = "poetc"
"""Attribute of a scheduled function: what it takes, by name (see docs/relax.md)."""


@dataclass(frozen=True)
class _Options(SearchOptions):
    """The arguments of `PoetSchedule`, checked."""

    functions: tuple[str, ...] | None
    ram_bytes: int | None
    deadline: Deadline | None
    device: Device


def PoetSchedule(
    ram: int | str | None = None,
    device: str | os.PathLike[str] = "host",
    deadline: int | str | None = None,
    *,
    storage: str | os.PathLike[str] | None = None,
    paging: bool = default("paging"),
    remat: bool = default("remat"),
    strategy: str = default("strategy"),
    time_limit: float = default("time_limit"),
    stop: str = default("stop"),
    threads: int = default("threads"),
    gap: float = default("gap"),
    functions: str | Sequence[str] | None = None,
) -> tvm.transform.Pass:
    """A module pass that schedules Relax functions so that each takes at most `ram` bytes beside
    its arguments.

    ram: bytes, or a size such as "64KB": what a call may have allocated at any one time, results
        included. None: no limit; then nothing runs again and nothing is paged.
    device: name or .toml file, for the costs of kernels and transfers (default "host").
    storage: in place of the device's own: a name, a .toml file, or "none".
    deadline: for a call, by these costs: nanoseconds, a time such as "20ms", or "1.5x" the time
        that it takes with unlimited RAM.
    paging, remat: whether tensors may go to storage; whether kernels may run again.
    strategy, time_limit (seconds, for each function), stop, threads, gap: as in `poetc`.
    functions: names, or one; None: all functions that can be called from outside.

    The module is legalized (`LegalizeOps`) and its functions are rewritten; the kernels stay as
    they are, tuned ones, too. A scheduled function has an attribute "poetc" with what it takes.
    Ctrl-C ends the search for a function, which then gets the best schedule found so far; without
    one, KeyboardInterrupt is raised.
    Raises InputError for wrong options. The pass raises InputError for functions that cannot be
    scheduled, listing all the reasons; InfeasibleError where no schedule exists; TimeLimitError
    where none was found.
    """
    _check_types(paging=paging, remat=remat, time_limit=time_limit, gap=gap, device=device)
    _check_types(**({} if storage is None else {"storage": storage}))
    if strategy not in strategies.names():
        raise InputError(f"strategy={strategy!r}: there are {', '.join(strategies.names())}")
    if not 0 < time_limit < float("inf"):
        raise InputError(f"time_limit={time_limit}: not a positive number of seconds")
    if not 0 <= gap < 1:
        raise InputError(f"gap={gap}: must be at least 0 and below 1")
    if isinstance(functions, str):
        functions = [functions]
    if functions is not None and not (functions and all(isinstance(f, str) for f in functions)):
        raise InputError(f"functions={functions!r}: names of functions; None for all")
    if deadline is not None and not isinstance(deadline, str):
        if not isinstance(deadline, int):
            raise InputError(f'deadline={deadline!r}: whole nanoseconds, "20ms", or "1.5x"')
        deadline = f"{deadline}ns"
    options = _Options(
        None if functions is None else tuple(dict.fromkeys(functions)),
        None if ram is None else parse_bytes(str(ram), "ram"),
        None if deadline is None else Deadline.parse(deadline, "deadline"),
        with_storage(load_device(os.fspath(device)), storage and os.fspath(storage)),
        paging=paging,
        remat=remat,
        strategy=strategy,
        time_limit_s=time_limit,
        stop=stop,
        threads=threads,
        gap=gap,
    )
    check_search(options)

    def transform(module: ir.IRModule, _: tvm.transform.PassContext) -> ir.IRModule:
        try:
            return _schedule_module(module, options)
        except SolverInterrupted as stop:
            raise KeyboardInterrupt from stop

    return tvm.transform.module_pass(transform, opt_level=0, name="PoetSchedule")


_TYPES: dict[str, tuple[type | tuple[type, ...], str]] = {
    "paging": (bool, "True or False"),
    "remat": (bool, "True or False"),
    "time_limit": ((int, float), "a number of seconds"),
    "gap": ((int, float), "a number"),
    "device": ((str, os.PathLike), "the name of a device, or a file"),
    "storage": ((str, os.PathLike), "the name of a kind of storage, a file, or 'none'"),
}


def _check_types(**options: object) -> None:
    for name, value in options.items():
        types, words = _TYPES[name]
        if not isinstance(value, types):
            raise InputError(f"{name}={value!r}: {words}")


def _schedule_module(module: ir.IRModule, options: _Options) -> ir.IRModule:
    names = _functions(module, options.functions)
    if done := [name for name in names if ATTRIBUTE in (module[name].attrs or {})]:
        raise InputError(f"scheduled already: Relax function @{', @'.join(done)}")
    module = _legalized(module)
    others = _others(module, names)
    builder = relax.BlockBuilder(others)
    kernels: dict[tuple[str, bool], ir.GlobalVar] = {}

    def add_kernel(name: str, function: tirx.PrimFunc) -> ir.GlobalVar:
        key = name, bool(function.attrs.get(pipeline.NOALIAS, False))
        if key not in kernels:
            kernels[key] = builder.add_func(function, name)
        return kernels[key]

    made: dict[str, relax.Function] = {}
    for name in names:
        reachable = relax.transform.DeadCodeElimination([name])(module)
        imported = import_function(reachable, name, options.device)
        attrs = {ATTRIBUTE: _schedule(imported, options)}
        made[name] = export_function(imported, module[name], attrs, builder, add_kernel)
    functions = {v: f for v, f in builder.get().functions.items() if v.name_hint not in made}
    # Who calls them does so by these variables.
    functions |= {module.get_global_var(name): function for name, function in made.items()}
    return pipeline.same_promise(
        ir.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)
    )


def _legalized(module: ir.IRModule) -> ir.IRModule:
    """The module with calls of PrimFuncs in place of operators, as TVM's own pipelines make it."""
    # Some operators become calls of what the target has.
    target = tvm.target.Target.current() or tvm.target.Target("llvm")
    if target.kind.name not in ("llvm", "c"):
        raise InputError(f"poetc schedules for processors, not for the target {target.kind.name}")
    steps = [
        relax.backend.DispatchSampling(),
        relax.backend.DispatchSortScan(),
        relax.transform.LegalizeOps(),
    ]
    with target:
        return tvm.transform.Sequential(steps)(module)


def _functions(module: ir.IRModule, wanted: Sequence[str] | None) -> list[str]:
    """The names of the functions to schedule."""
    known = [v.name_hint for v, f in module.functions.items() if isinstance(f, relax.Function)]
    if wanted is None:
        public = [name for name in known if "global_symbol" in (module[name].attrs or {})]
        if not public:
            raise InputError("the module has no Relax function that can be called from outside")
        return public
    if missing := [name for name in wanted if name not in known]:
        raise InputError(
            f"no Relax function {', '.join(missing)} in the module; there are {', '.join(known)}"
        )
    return list(wanted)


def _others(module: ir.IRModule, names: Sequence[str]) -> ir.IRModule:
    """`module` without the functions of these names, and without kernels that only they call."""
    kept = {v: f for v, f in module.functions.items() if v.name_hint not in names}
    called = set[str]()

    def visit(variable: ir.GlobalVar) -> None:
        called.add(variable.name_hint)

    for function in kept.values():
        tvm_ffi.structural_walk(function, (ir.GlobalVar, visit))
    return ir.IRModule(
        {
            v: f
            for v, f in kept.items()
            if not isinstance(f, tirx.PrimFunc)
            or "global_symbol" in (f.attrs or {})
            or v.name_hint in called
        }
    )


# One function


def _schedule(imported: Imported, options: _Options) -> dict[str, int | float | str]:
    """Schedules the graph of a function in place; what the function then takes."""
    graph = imported.graph
    order_graph(graph)
    budget = _budget(imported, options.ram_bytes)
    short = budget.arena_bytes is not None and budget.arena_bytes <= 0 and bool(graph.computes)
    asked = ScheduleOptions(
        # Where results alone are too much the answer is still what is needed in all.
        budget=_budget(imported, budget.reserved_bytes + 1) if short else budget,
        deadline_ns=deadline_of(graph, options.deadline),
        device=options.device,
        align=ALIGN_BYTES,
        **search_fields(options),
    )
    try:
        report = schedule_and_plan(graph, asked)
    except UnscheduledError as error:
        raise _for_user(error.diagnosis, imported, options) from error
    if short:
        found = diagnosis(graph, replace(asked, budget=budget), Reason.RESERVED)
        raise _for_user(replace(found, proven=True), imported, options)
    verify_graph(graph)
    return _summary(imported, report)


def _summary(imported: Imported, report: ScheduleReport) -> dict[str, int | float | str]:
    graph = imported.graph
    found = graph.attributes["schedule"]
    assert isinstance(found, DictionaryAttr)
    numbers = {k: v.value.data for k, v in found.data.items() if isinstance(v, IntegerAttr)}
    arena_bytes = graph.arena_bytes or 0
    return {
        "ram_bytes": arena_bytes + imported.result_bytes + imported.pool_bytes,
        "arena_bytes": arena_bytes,
        "result_bytes": imported.result_bytes,
        "argument_bytes": imported.argument_bytes,
        "pool_bytes": imported.pool_bytes,
        "storage_bytes": graph.storage_bytes or 0,
        "status": report.status,
        "gap": report.gap,
        **numbers,
    }


def _budget(imported: Imported, ram_bytes: int | None) -> Budget:
    """The RAM of a call, of which results and pools are no part of the arena."""
    names = "results", "scratch memory that kernels allocate"
    return Budget(ram_bytes, imported.result_bytes, imported.pool_bytes, names=names)


def _for_user(diagnosis: Diagnosis, imported: Imported, options: _Options) -> UnscheduledError:
    """The error for a diagnosis, with the names that Relax has."""
    kernel = diagnosis.kernel
    if kernel is not None:
        compute = imported.graph.computes[kernel.number - 1]
        kernel = replace(kernel, function=kernel_name(compute))
    subject = f"Relax function @{imported.name}"
    return UnscheduledError.of(
        replace(diagnosis, subject=subject, ram_bytes=options.ram_bytes, kernel=kernel)
    )


class _InfeasibleError(InfeasibleError):
    def __init__(self, message: str) -> None:
        super().__init__(Diagnosis(Reason.REPORTED, proven=True, words=message))


class _TimeLimitError(TimeLimitError):
    def __init__(self, message: str) -> None:
        super().__init__(Diagnosis(Reason.REPORTED, words=message))


# Pipelines

PIPELINE = "poetc-schedule"
"""Schedules and lowers: `relax.get_pipeline(PIPELINE, ram="64MB")`."""


def relax_pipeline(ram: int | str | None = None, **options: Any) -> tvm.transform.Pass:
    """Schedules a module and lowers it, for `tvm.compile(..., relax_pipeline=...)`.

    Takes what `PoetSchedule` takes.
    """
    scheduled = PoetSchedule(ram, **options)
    return tvm.transform.Sequential([scheduled, pipeline.relax_pipeline()], name=PIPELINE)


def register() -> None:
    """Makes TVM know the pipelines, our errors, and the functions for pages."""
    pipeline.register()
    pages.register()
    if PIPELINE not in relax.pipeline.PIPELINE_MAP:
        relax.register_pipeline(PIPELINE)(relax_pipeline)
    # Errors pass through TVM, as a name and a message, on their way to whoever runs the pass.
    for error in (InputError, InfeasibleError, TimeLimitError, KeyboardInterrupt):
        tvm_ffi.register_error(error.__name__, error)
    tvm_ffi.register_error(InfeasibleError.__name__, _InfeasibleError)
    tvm_ffi.register_error(TimeLimitError.__name__, _TimeLimitError)
