"""The pipeline: which passes run, in which order. Start reading here.

    StableHLO ── stablehlo-simplify (── stablehlo-split) ── stablehlo-to-poet ── poet-fuse
      ── poet-lower-kernels
      ── poet-annotate ── poet-order ── poet-schedule ── poet-plan-transfers ── poet-plan-memory
      ── poet-verify ── poet IR, or C

Each of them is a pass that `xdsl-opt -p` or `poetc --passes` runs alone. The driver runs them
through `compile_module`, with one difference: schedule, transfers and memory are planned together,
because a schedule whose arena does not fit is changed until it does. Where none fits, parameters
are split (split_search.py), and the rest runs again.

Input may also be poet IR at any stage; what has been done already is not done again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp, StringAttr
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import VerifyException

from poetc.backends.c.layout import static_ram_bytes
from poetc.budget import Budget, Deadline
from poetc.costmodel.device import Device
from poetc.errors import (
    InfeasibleError,
    InputError,
    PoetcError,
    TimeLimitError,
    UnscheduledError,
)
from poetc.ir.graph import ALIGN_BYTES, GraphView, graphs
from poetc.ir.locations import kernel_location
from poetc.ir.poet import GraphOp
from poetc.options import SearchOptions, default, search_fields
from poetc.passes.poet_annotate import PoetAnnotatePass
from poetc.passes.poet_fuse import PoetFusePass
from poetc.passes.poet_lower_kernels import PoetLowerKernelsPass
from poetc.passes.poet_order import PoetOrderPass
from poetc.passes.poet_plan_memory import plan_graph_memory
from poetc.passes.poet_schedule import (
    ScheduleOptions,
    ScheduleReport,
    Tried,
    deadline_of,
    describe,
    problem_view,
    schedule_and_plan,
    storage_of,
    with_bound,
)
from poetc.passes.poet_verify import PoetVerifyPass
from poetc.passes.stablehlo_simplify import StableHLOSimplifyPass
from poetc.passes.stablehlo_split import (
    Split,
    StableHLOSplitPass,
    splits_text,
    splittable,
)
from poetc.passes.stablehlo_to_poet import StableHLOToPoetPass
from poetc.schedule.exact.bounds import ram_needed_in_any_order, time_needed
from poetc.schedule.model.errors import InfeasibleProblem
from poetc.schedule.model.instance import Instance
from poetc.schedule.search.infeasibility import least_ram
from poetc.split_bounds import least_time_ns
from poetc.split_search import Candidate, candidates, ends_bytes, in_time
from poetc.units import format_bytes, format_time

if TYPE_CHECKING:
    from poetc.backends.c.boards import Board
    from poetc.backends.c.emit import Executor
    from poetc.backends.c.stack import StackUse
    from poetc.schedule.solve import Progress

PATIENCE = 0.5
"""Share of the time after which a search without a schedule leaves the rest to parameters in parts,
or to finer ones."""

BETTER_SHARE = 0.3
"""Share of the time that is left, where there is a schedule, for parts that may be better."""

CUT = 0.7
"""Share of its time from which on a search without a schedule is taken for cut short."""

PROOF_SHARE = 0.8
"""Share of the time that is left for a proof that no parts keep to the limits."""

LEAST_RAM_S = 0.3
"""For the least RAM that an error names, where the search has not found it out."""

Observer = Callable[[str, ModuleOp, float], None]
"""Called after each pass with its name, the module and the seconds it took."""


@dataclass(frozen=True)
class Options(SearchOptions):
    """What the user asked for.

    `ram_bytes`, `static_bytes`, `stack_bytes` and `ram_scope` are the `budget`.
    `params` says where parameters are between steps: "ram", "storage", or "auto": in RAM if that is
    possible, else on storage. With `io="caller"`, inputs and results are in buffers of the caller,
    which are not counted; None is what the input says, or "arena". With `stack_compiler`, a C
    compiler and its options, the stack is measured instead of given, for a `board` with the page
    store that it has. The program that `executor` makes has more static data, which depends on the
    model; None: the schedule is printed as code.
    """

    device: Device
    device_name: str
    ram_bytes: int | None = None
    deadline: Deadline | None = None
    static_bytes: int = 0
    stack_bytes: int = 0
    params: str = default("params")
    stack_compiler: tuple[str, ...] | None = None
    io: str | None = None
    board: Board | None = None
    executor: Executor | None = None
    split: tuple[Split, ...] | str = default("split")

    @property
    def budget(self) -> Budget:
        """The limit of RAM, and what is set aside from it."""
        return Budget(self.ram_bytes, self.static_bytes, self.stack_bytes, self.ram_scope)


@dataclass(frozen=True)
class Compiled:
    """A scheduled module with offsets. `report` is None if the input was scheduled already.

    `options` are those asked for; if the stack was measured, with what it came to, and `stack`
    tells how.
    """

    module: ModuleOp
    graph: GraphOp
    report: ScheduleReport | None
    options: Options
    stack: StackUse | None = None


def front_passes(
    module: ModuleOp,
    device_name: str,
    device: Device | None = None,
    splits: tuple[Split, ...] = (),
) -> tuple[ModulePass, ...]:
    """The passes that bring `module` to fused, annotated, ordered poet IR, from where it is.

    Parameters are split as `splits` say, which needs StableHLO.
    Costs that were made for another device than `device`, or may be from another profile, are made
    again; costs without a device, written by hand, are kept.
    """
    profile = device.profile.path if device is not None and device.profile is not None else None
    split = splits_text(splits) if splits else None
    found = graphs(module)
    if not found:
        return (
            StableHLOSimplifyPass(),
            *((StableHLOSplitPass(split),) if split is not None else ()),
            StableHLOToPoetPass(),
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


def run_passes(
    ctx: Context, module: ModuleOp, passes: tuple[ModulePass, ...], observe: Observer
) -> None:
    """Run passes in order, and `observe` after each."""
    for step in passes:
        started = time.monotonic()
        step.apply(ctx, module)
        observe(step.name, module, time.monotonic() - started)


def verified(observe: Observer) -> Observer:
    """An observer that verifies the module and then calls `observe`.

    It raises AssertionError for invalid IR: not the user's fault, a pass left that behind.
    """

    def verify(name: str, module: ModuleOp, seconds: float) -> None:
        try:
            module.verify()
        except VerifyException as error:
            raise AssertionError(f"invalid IR after {name}: {error}") from error
        observe(name, module, seconds)

    return verify


def compile_module(
    ctx: Context,
    module: ModuleOp,
    options: Options,
    *,
    progress: Callable[[Progress], bool | None] | None = None,
    observe: Observer = lambda name, module, seconds: None,
) -> Compiled:
    """Bring a verified module to scheduled poet IR with offsets, in place.

    Raises InputError for what cannot be compiled, InfeasibleError where no schedule exists,
    TimeLimitError where none was found, and `SolverInterrupted` on Ctrl-C without a schedule.
    """
    options = _with_splits_on_storage(options)
    asked = options
    splits = options.split if isinstance(options.split, tuple) else ()
    passes = front_passes(module, options.device_name, options.device, splits)
    whole = module.clone() if _may_be_split(module, options) else None
    begin_s = time.monotonic()
    _run_front(ctx, module, passes, options, observe)
    front_s = time.monotonic() - begin_s
    graph = _only_graph(module)
    given = graph.is_scheduled
    options = _with_executor(graph, options)
    if options.stack_compiler is not None and not given:
        options = _with_expected_stack(module, options)
    report = None
    started = time.monotonic()
    if not given:
        search = _Search(ctx, module, options, asked, whole, front_s, progress, observe)
        graph, options, report = search.run()
        observe("poet-schedule", module, time.monotonic() - started)
    elif graph.arena_bytes is None:
        plan_graph_memory(graph)
        observe("poet-plan-memory", module, time.monotonic() - started)
    try:
        run_passes(ctx, module, (PoetVerifyPass(),), verified(observe))
    except PoetcError as error:
        if given:
            # The schedule is the user's: what is wrong with it is wrong with the input.
            raise InputError(error.message, error.location) from error
        raise
    stack = None
    if options.stack_compiler is not None:
        options, stack = _with_measured_stack(module, graph, options)
    if given:
        _check_given(graph, options)
    return Compiled(module, graph, report, options, stack)


def _run_front(
    ctx: Context,
    module: ModuleOp,
    passes: tuple[ModulePass, ...],
    options: Options,
    observe: Observer,
) -> None:
    """Bring a module to where it can be scheduled."""
    for step in passes:
        # The order of operations depends on it already.
        _mark_io(module, options)
        run_passes(ctx, module, (step,), observe)
    if not any(graph.is_scheduled for graph in graphs(module)):
        _mark_io(module, options)


# Splitting


def _with_splits_on_storage(options: Options) -> Options:
    """`options` with parameters on storage, if some are asked for in parts."""
    if not isinstance(options.split, tuple):
        return options
    text = splits_text(options.split)
    if options.params == "ram":
        raise InputError(f"--split={text}: parameters in parts are on storage, not in RAM")
    if options.device.storage is None:
        raise InputError(f"--split={text}: device {options.device_name} has no storage")
    return replace(options, params="storage")


def _may_be_split(module: ModuleOp, options: Options) -> bool:
    """Whether parameters are to be split if the step does not fit otherwise."""
    asked = options.split == "auto" and options.ram_bytes is not None
    return asked and not _why_not_split(options) and not graphs(module)


def _why_not_split(options: Options) -> str:
    """Which option keeps parameters from being split; nothing if none does."""
    if options.split == "off":
        return "--split=off"
    if options.params == "ram":
        return "--params=ram"
    if options.ram_scope != "all":
        return f"--ram-scope={options.ram_scope}"
    if options.device.profile is not None:
        return "--profile has whole ones; --split, here and for poetc profile, says which to split"
    return f"--device={options.device_name}, no storage" if options.device.storage is None else ""


def _is_about_ram(error: PoetcError) -> bool:
    """Whether less need of RAM could help where there is no schedule."""
    found = _problem(error)
    return found is None or (found.time_bound_ns is None and found.fastest_ns is None)


def _problem(error: BaseException | None) -> InfeasibleProblem | None:
    """What is proven, where an error says it in other words."""
    while error is not None and not isinstance(error, InfeasibleProblem):
        error = error.__cause__
    return error


def _fastest_ns(error: PoetcError) -> float:
    """The shortest makespan known where the deadline is missed."""
    found = _problem(error)
    assert found is not None
    return math.inf if found.fastest_ns is None else found.fastest_ns


def _without_split(error: UnscheduledError, options: Options) -> UnscheduledError:
    """`error`, with a word on parameters that were not split though that might have helped."""
    if not isinstance(error, InfeasibleError) or not _is_about_ram(error):
        return error
    if isinstance(options.split, tuple):
        return error
    return _with_words(
        error, f"parameters were not split ({_why_not_split(options) or 'the input is poet IR'})"
    )


def _with_words(error: UnscheduledError, words: str, kind: type | None = None) -> UnscheduledError:
    """`error`, which is of that kind then, with more to say."""
    more = (kind or type(error))(f"{error.message}; {words}" if words else error.message)
    more.__cause__ = error.__cause__
    return more


@dataclass(frozen=True)
class _Found:
    """A schedule, with what it is for."""

    module: ModuleOp
    graph: GraphOp
    options: Options
    report: ScheduleReport


@dataclass(frozen=True)
class _Failure:
    """A search without a schedule: of the parts of a `candidate`, None for parameters as they are.
    One that is `cut_short` may find something in more time than `spent_s`."""

    candidate: Candidate | None
    error: UnscheduledError
    spent_s: float
    cut_short: bool


class _Search:
    """Schedules `module`, which is poet IR, or `whole`, the same as it came, with parameters in
    parts; the latter if that may be of use. All of it takes the time limit of `asked`, what the
    user asked for; `options` are the same with what is known of the program beside the arena.
    `front_s` is what `whole` took to become poet IR, and what others of its size will take.
    """

    def __init__(
        self,
        ctx: Context,
        module: ModuleOp,
        options: Options,
        asked: Options,
        whole: ModuleOp | None,
        front_s: float,
        progress: Callable[[Progress], bool | None] | None,
        observe: Observer,
    ) -> None:
        self.ctx, self.module, self.options, self.asked = ctx, module, options, asked
        self.whole, self.progress, self.observe = whole, progress, observe
        self.front_s_per_operation = front_s / max(1, _size(whole)) if whole is not None else 0.0
        self.graph = _only_graph(module)
        self.deadline_ns = deadline_of(self.graph, options.deadline)
        self.end_s = time.monotonic() + options.time_limit_s
        self.best: _Found | None = None
        self.tried: list[Tried] = []
        self.failures: list[_Failure] = []
        self.splittable = True

    def run(self) -> tuple[GraphOp, Options, ScheduleReport]:
        """The graph in `module`, which is scheduled then; with its options, and how it was found.

        Raises InfeasibleError where it is proven that there is no schedule, and TimeLimitError
        where none was found; both say how much RAM is known to be enough, and how much is needed.
        """
        patience = 1.0 if self.whole is None else PATIENCE
        self._try(self.module, self.graph, self.options, None, patience)
        failure = self.failures[-1].error if self.failures else None
        if self.whole is not None:
            try:
                unsplit = _candidate((), self.module, self.graph, self.options)
            except InputError as error:
                if failure is not None:
                    failure = _with_words(failure, f"parameters were not split ({error.message})")
            else:
                failure = self._in_parts(self.whole, unsplit)
        elif failure is not None:
            failure = _without_split(failure, self.asked)
        if self.best is None:
            assert failure is not None
            raise _with_words(failure, self._ram_words()) from failure.__cause__
        return self._chosen(self.best)

    def _chosen(self, best: _Found) -> tuple[GraphOp, Options, ScheduleReport]:
        """The best that was found, in place of the module, with the bound for all that was tried.

        What is said on the graph is said again, as the bound is part of it."""
        bounds = [tried.bound_nj for tried in self.tried if tried.bound_nj is not None]
        report = with_bound(best.report, min(bounds), self.asked.gap)
        report = replace(report, tried=tuple(self.tried))
        describe(best.graph, report)
        if best.module is not self.module:
            for op in list(self.module.ops):
                op.detach()
                op.erase(safe_erase=False)
            for op in list(best.module.ops):
                op.detach()
                self.module.body.block.add_op(op)
        return best.graph, best.options, report

    def _try(
        self,
        module: ModuleOp,
        graph: GraphOp,
        options: Options,
        candidate: Candidate | None,
        patience: float,
    ) -> None:
        """Schedules one module. A search without a schedule takes the share `patience` of the
        time and leaves the rest to others."""
        begin_s = time.monotonic()
        left_s = max(0.0, self.end_s - begin_s)
        splits = _splits_text(candidate)
        try:
            report = _schedule(
                graph, replace(options, time_limit_s=left_s), self.progress, patience
            )
        except UnscheduledError as error:
            spent_s = time.monotonic() - begin_s
            cut_short = isinstance(error, TimeLimitError) and spent_s >= CUT * patience * left_s
            self.failures.append(_Failure(candidate, error, spent_s, cut_short))
            if candidate is not None:
                none = isinstance(error, InfeasibleError)
                bound_nj = None if none else candidate.least_nj
                self.tried.append(Tried("storage", splits, None, bound_nj, searched=True))
            else:
                self.tried += error.tried
            return
        self.tried += [replace(tried, splits=splits) for tried in report.tried]
        if self.best is None or report.use.energy_nj < self.best.report.use.energy_nj:
            self.best = _Found(module, graph, options, report)

    def _in_parts(self, whole: ModuleOp, unsplit: Candidate) -> UnscheduledError | None:
        """Tries parameters in parts, ever finer ones until there is a schedule, and further as long
        as they may be better than it. What to raise if there is no schedule."""
        asked = self.asked
        begin_s = time.monotonic()
        until_s = begin_s + BETTER_SHARE * max(0.0, self.end_s - begin_s)
        least_ns = unsplit.least_time_ns

        def over(candidate: Candidate = unsplit) -> bool:
            """Whether this one, and those that are finer, are of no interest."""
            if self.best is None:
                return self._too_late(least_ns) or time.monotonic() >= self.end_s
            energy_nj = self.best.report.use.energy_nj
            # Transfers of parts take no less than those of the whole.
            late = time.monotonic() >= until_s or self.best.report.interrupted
            return late or candidate.least_nj >= energy_nj * (1 - asked.gap)

        def late(module: ModuleOp) -> bool:
            """Whether there is no time to make poet IR of it, nor interest."""
            needed_s = self.front_s_per_operation * _size(module)
            return over() or time.monotonic() + needed_s >= self.end_s

        if not over(unsplit) and not late(whole):
            StableHLOSimplifyPass().apply(self.ctx, whole)
            self.splittable = any(most > 1 for _, most in splittable(whole).values())
            if self.best is None and self.deadline_ns is not None:
                least_ns = self._least_time_ns(whole, unsplit, late)
            seen = self.observe
            for tried in split_candidates(self.ctx, whole, asked, unsplit, seen, late):
                if not tried.splits or over(tried):
                    break
                self._try(tried.module, tried.graph, tried.options, tried, PATIENCE)
            self._again()
        return None if self.best is not None else self._failure(unsplit, least_ns)

    def _too_late(self, time_ns: int) -> bool:
        return self.deadline_ns is not None and time_ns > self.deadline_ns

    def _least_time_ns(
        self, whole: ModuleOp, unsplit: Candidate, late: Callable[[ModuleOp], bool]
    ) -> int:
        """What the step takes at least in any parts that fit, as far as it is proven by a search
        over them in a share of the time. Those that may be in time are tried."""
        storage, begin_s = storage_of(self.asked.device), time.monotonic()
        until_s = begin_s + PROOF_SHARE * max(0.0, self.end_s - begin_s)
        ram_bytes, deadline_ns = self.options.ram_bytes, self.deadline_ns
        assert storage is not None and ram_bytes is not None and deadline_ns is not None

        def build(splits: tuple[Split, ...]) -> Candidate | None:
            if late(whole) or time.monotonic() > until_s:
                return None
            return _unordered(self.ctx, whole, self.asked, splits, late)

        groups: dict[int, list[int]] = {}
        for argument, (stands, _) in splittable(whole).items():
            groups.setdefault(stands, []).append(argument)
        left = in_time(build, unsplit, groups, storage, ram_bytes, deadline_ns)
        for tried in left.candidates:
            if self.best is None and tried.splits and not late(whole):
                _ordered(self.ctx, tried)
                self._try(tried.module, tried.graph, tried.options, tried, PATIENCE)
        proven = not left.others and not left.candidates
        return left.least_time_ns if proven else unsplit.least_time_ns

    def _again(self) -> None:
        """Schedules what was cut short once more, in the time that is left by others, as long as
        there is no schedule."""
        waiting = [failure for failure in self.failures if failure.cut_short]
        while waiting and self.best is None:
            share = 1 / len(waiting)
            failure = waiting.pop(0)
            if (self.end_s - time.monotonic()) * share <= failure.spent_s:
                continue
            candidate = failure.candidate
            self.failures.remove(failure)
            self.tried = [t for t in self.tried if t.splits != _splits_text(candidate)]
            if candidate is None:
                self._try(self.module, self.graph, self.options, None, share)
            else:
                self._try(candidate.module, candidate.graph, candidate.options, candidate, share)

    def _failure(self, unsplit: Candidate, least_ns: int) -> UnscheduledError:
        """What to raise where there is no schedule, with or without parts, which take `least_ns` at
        least: that of what was tried last without a proof; else, where the deadline is what is
        missed, that of the fastest; else the last. It is a proof if no parts can change what is
        proven."""
        first = self.failures[0].error
        ram_bytes = self.options.ram_bytes
        assert ram_bytes is not None
        if self._too_late(least_ns) and isinstance(first, InfeasibleError):
            found = _problem(first)
            shorter = found is not None and least_ns < (found.time_bound_ns or math.inf)
            parts = f"with parameters in parts it takes at least {format_time(least_ns)}"
            return _with_words(first, parts if shorter else "")
        if unsplit.ends_bytes > ram_bytes and isinstance(first, InfeasibleError):
            what = "splitting parameters does not help: what is in RAM before and after the step"
            return _with_words(first, f"{what} takes {format_bytes(unsplit.ends_bytes)}")
        unproven = [f for f in self.failures if isinstance(f.error, TimeLimitError)]
        late = [f for f in self.failures if not _is_about_ram(f.error)]
        told = (unproven or self.failures)[-1]
        best = "best"
        if late and not unproven:
            told = min(late, key=lambda f: _fastest_ns(f.error))
            best = "fastest"
        candidate, failure = told.candidate, told.error
        if not self.splittable:
            return _with_words(failure, "there is no parameter that could be split")
        if candidate is not None:
            splits = _splits_text(candidate)
            words = f"that is with --split={splits}, the {best} that was found"
        elif len(self.failures) > 1:
            words = "parameters in parts do no better"
        else:
            words = "no parameters in parts that may do were found"
        return _with_words(failure, f"{words}; of others nothing is proven", TimeLimitError)

    def _ram_words(self) -> str:
        """What is known and what is proven of the RAM that is needed, whatever time it takes."""
        options = self.options
        if options.ram_bytes is None:
            return ""
        view = _most_frugal(self.graph, options)
        bound = ram_needed_in_any_order(_instance(view, options))[0]
        if self.whole is not None and self.splittable:
            bound = min(bound, ends_bytes(view.problem))
        known: list[tuple[int, str]] = []
        for failure in self.failures:
            candidate, found = failure.candidate, _problem(failure.error)
            bytes = None if found is None else found.least_ram_bytes
            if bytes is None and (candidate is None or failure is self.failures[-1]):
                graph, asked = self.graph, options
                if candidate is not None:
                    graph, asked = candidate.graph, candidate.options
                instance = _instance(_most_frugal(graph, asked), asked)
                bytes = least_ram(instance, LEAST_RAM_S, other_orders=False).known
            if bytes is not None:
                splits = _splits_text(candidate)
                known.append((bytes, f" with --split={splits}" if splits else ""))
        reserved = options.budget.reserved_bytes
        words = "none was found"
        if known:
            bytes, how = min(known)
            words = f"{format_bytes(bytes + reserved)}{how}"
        words = f"least RAM known to work: {words}; proven: {format_bytes(bound + reserved)}"
        if self.deadline_ns is not None:
            words = f"without a deadline, {words}"
        if options.strategy != "auto":
            words += "; a strategy other than auto may need more"
        return words + (f"; {reserved} B of that are static data and stack" if reserved else "")


def _splits_text(candidate: Candidate | None) -> str:
    """Its parameters in parts, as `--split` has them; nothing for None."""
    return "" if candidate is None else splits_text(candidate.splits)


def _size(module: ModuleOp) -> int:
    """Operations, also those in regions."""
    return sum(1 for _ in module.walk())


def _most_frugal(graph: GraphOp, options: Options) -> GraphView:
    """The problem with the parameters where they need least RAM, of where they may be."""
    asked = schedule_options(options, None, None)
    may_be_stored = options.device.storage is not None and options.ram_scope == "all"
    if graph.has_parts or (options.params != "ram" and may_be_stored):
        try:
            return problem_view(graph, replace(asked, params="storage"))
        except InputError:
            if options.params == "storage":
                raise
    return problem_view(graph, replace(asked, params="ram"))


def _instance(view: GraphView, options: Options) -> Instance:
    return Instance(view.problem, remat=options.remat, paging=options.paging)


def split_candidates(
    ctx: Context,
    module: ModuleOp,
    options: Options,
    unsplit: Candidate,
    observe: Observer,
    late: Callable[[ModuleOp], bool] = lambda module: False,
) -> Iterator[Candidate]:
    """`module`, which is simplified StableHLO, with its parameters in parts and on storage so that
    it may fit into the RAM that `options` give; see `split_search.candidates`. The search ends when
    it is too `late` to begin or go on with a module."""
    assert options.ram_bytes is not None

    def build(splits: tuple[Split, ...]) -> Candidate | None:
        started = time.monotonic()
        found = None if late(module) else _unordered(ctx, module, options, splits, late)
        if found is None:
            return None
        observe(StableHLOSplitPass.name, found.module, time.monotonic() - started)
        return found

    for found in candidates(build, unsplit, splittable(module), options.ram_bytes):
        # What does not fit in any order is for the message only.
        fits = found.splits and found.needed_bytes <= options.ram_bytes
        yield _ordered(ctx, found) if fits else found


def split_candidate(
    ctx: Context, module: ModuleOp, options: Options, splits: tuple[Split, ...]
) -> Candidate:
    """A copy of a simplified module, with those splits, up to where it can be scheduled."""
    found = _unordered(ctx, module, options, splits)
    assert found is not None
    return _ordered(ctx, found)


def _unordered(
    ctx: Context,
    module: ModuleOp,
    options: Options,
    splits: tuple[Split, ...],
    late: Callable[[ModuleOp], bool] = lambda module: False,
) -> Candidate | None:
    """The same before its operations are reordered, and not verified: most candidates are only
    asked what they need, which depends on neither. None where it becomes too `late` for it once it
    is known how large the module is in parts."""
    copy = module.clone()
    _, *passes, order = front_passes(copy, options.device_name, options.device, splits)
    assert isinstance(order, PoetOrderPass)
    for step in passes:
        _mark_io(copy, options)
        step.apply(ctx, copy)
        if isinstance(step, StableHLOSplitPass) and late(copy):
            return None
    _mark_io(copy, options)
    graph = _only_graph(copy)
    options = _with_executor(graph, options)
    if options.stack_compiler is not None:
        options = _with_expected_stack(copy, options)
    return _candidate(splits, copy, graph, options)


def _ordered(ctx: Context, candidate: Candidate) -> Candidate:
    """Reorders the operations of a candidate, in place."""
    run_passes(ctx, candidate.module, (PoetOrderPass(),), lambda name, module, seconds: None)
    return candidate


def _candidate(
    splits: tuple[Split, ...], module: ModuleOp, graph: GraphOp, options: Options
) -> Candidate:
    """What an unscheduled graph needs at least, with parameters on storage."""
    view = problem_view(graph, replace(schedule_options(options, None, None), params="storage"))
    storage = storage_of(options.device)
    assert storage is not None
    instance = _instance(view, options)
    needed_bytes, operation = ram_needed_in_any_order(instance)
    used_bytes = options.budget.used_bytes
    kernel = None if operation is None else view.computes[operation]
    return Candidate(
        splits,
        module,
        graph,
        options,
        used_bytes(needed_bytes),
        used_bytes(ends_bytes(view.problem)),
        kernel,
        least_time_ns(view, storage, options.device),
        instance.least_energy_nj,
        lambda still_open: max(
            least_time_ns(view, storage, options.device, still_open),
            0 if still_open else time_needed(instance),
        ),
    )


def _with_executor(graph: GraphOp, options: Options) -> Options:
    """`options` with the static data that a program of the executor has beside that of others."""
    if options.executor is None:
        return options
    return replace(options, static_bytes=options.static_bytes + options.executor.state_bytes(graph))


def _with_expected_stack(module: ModuleOp, options: Options) -> Options:
    """`options` with what the stack will come to, as far as that can be told before scheduling."""
    from poetc.planning.stack import expected_stack

    assert options.stack_compiler is not None
    asked = schedule_options(options, options.ram_bytes, None)
    stack = expected_stack(module, options.stack_compiler, asked, options.board, options.executor)
    return replace(options, stack_bytes=stack.bytes)


def _with_measured_stack(
    module: ModuleOp, graph: GraphOp, options: Options
) -> tuple[Options, StackUse]:
    """`options` with the stack that the scheduled program takes, if there is RAM for it."""
    from poetc.backends.c.stack import measure_stack

    assert options.stack_compiler is not None
    stack = measure_stack(
        module, options.stack_compiler, board=options.board, executor=options.executor
    )
    reserve = max(stack.bytes, options.stack_bytes)
    options = replace(options, stack_bytes=stack.bytes)
    used = options.budget.used_bytes(static_ram_bytes(graph))
    if options.ram_bytes is not None and options.ram_scope == "all" and used > options.ram_bytes:
        raise TimeLimitError(
            f"the step takes {stack.bytes} bytes of stack, more than was expected before it was "
            f"scheduled, and {used} bytes of RAM in all; --stack={reserve} sets enough aside"
        )
    return options, stack


def _mark_io(module: ModuleOp, options: Options) -> None:
    for graph in graphs(module):
        if options.io is not None:
            graph.attributes["io"] = StringAttr(options.io)


def _check_given(graph: GraphOp, options: Options) -> None:
    """Whether a schedule that came with the input keeps to what the command line asks for."""
    hint = "give the IR from before poet-schedule"
    params = [i for i in range(len(graph.arguments)) if graph.role(i) == "param"]
    other = [i for i in params if graph.is_stored(i) != (options.params == "storage")]
    if options.params != "auto" and other:
        raise InputError(
            f"the input is scheduled already, with parameter {graph.arg_name(other[0])} "
            f"{'on storage' if graph.is_stored(other[0]) else 'in RAM'}, but --params="
            f"{options.params} is asked for; {hint}"
        )
    if options.io not in (None, graph.io):
        raise InputError(
            f"the input is scheduled already, with io = {graph.io}, but --io={options.io} is "
            f"asked for; {hint}"
        )
    used = options.budget.used_bytes(static_ram_bytes(graph))
    if options.ram_bytes is not None and used > options.ram_bytes:
        raise InputError(
            f"the input is scheduled already and takes {format_bytes(used)}, more than the "
            f"{format_bytes(options.ram_bytes)} asked for; {hint}"
        )
    if options.deadline is None:
        return
    found = graph.attributes.get("schedule")
    known = found.data if isinstance(found, DictionaryAttr) else {}
    times = [known.get(name) for name in ("makespan_ns", "unlimited_makespan_ns")]
    if not all(isinstance(time_ns, IntegerAttr) for time_ns in times):
        raise InputError(f"the input is scheduled already and does not say its time; {hint}")
    makespan_ns, unlimited_ns = (t.value.data for t in times if isinstance(t, IntegerAttr))
    limit_ns = options.deadline.within_ns(unlimited_ns)
    if makespan_ns > limit_ns:
        raise InputError(
            f"the input is scheduled already and takes {format_time(makespan_ns)}, longer than the "
            f"deadline of {format_time(limit_ns)}; {hint}"
        )


def _only_graph(module: ModuleOp) -> GraphOp:
    found = graphs(module)
    if len(found) != 1:
        names = ", ".join(f"@{g.sym_name.data}" for g in found) or "none"
        raise InputError(f"expected one poet.graph in the module, found {names}")
    return found[0]


def _schedule(
    graph: GraphOp,
    options: Options,
    progress: Callable[[Progress], bool | None] | None,
    patience: float,
) -> ScheduleReport:
    """Schedules one graph in place, in the time of `options`; errors are in the user's terms."""
    if options.params == "storage" or graph.has_parts:
        what = "parameters in parts" if graph.has_parts else "--params=storage"
        if options.params == "ram":
            raise InputError(f"{what} are on storage; they cannot go with --params=ram")
        if options.device.storage is None:
            raise InputError(f"{what}: device {options.device_name} has no storage")
        if options.ram_scope != "all":
            raise InputError(f"{what} cannot go with --ram-scope={options.ram_scope}")
    deadline_ns = deadline_of(graph, options.deadline)
    arena_bytes = options.budget.arena_bytes
    if arena_bytes is not None and arena_bytes <= 0:
        raise InfeasibleError(
            f"--ram={options.ram_bytes} leaves nothing for tensors: {options.static_bytes} bytes "
            f"of static data and {options.stack_bytes} bytes of stack are set aside"
        )
    started_s = time.monotonic()
    try:
        asked = replace(schedule_options(options, arena_bytes, deadline_ns), patience=patience)
        if graph.has_parts:
            asked = replace(asked, params="storage")
        return schedule_and_plan(graph, asked, progress)
    except UnscheduledError as error:
        kind, message = InfeasibleError, error.message
        if isinstance(error.__cause__, InfeasibleProblem):
            message = _explain(error.__cause__, graph, options)
        if isinstance(error, TimeLimitError):
            kind = TimeLimitError
            message += f"; {_what_may_help(options, time.monotonic() - started_s)}"
        raise kind(message, tried=error.tried) from error


def _what_may_help(options: Options, seconds: float) -> str:
    """What to change where a search that took `seconds` found nothing."""
    changes = ["more --ram"] if options.ram_bytes is not None else []
    changes += ["a later --deadline"] if options.deadline is not None else []
    # A search that finds nothing leaves time for others.
    if seconds >= options.time_limit_s * PATIENCE**2 / 2:
        changes.append("a longer --time-limit")
    return f"{' or '.join(changes) or 'another --strategy'} may help"


def schedule_options(
    options: Options, arena_bytes: int | None, deadline_ns: int | None
) -> ScheduleOptions:
    """What the scheduler is asked for when that much of the RAM is left for the arena."""
    return ScheduleOptions(
        arena_bytes=arena_bytes,
        deadline_ns=deadline_ns,
        device=options.device,
        align=max(ALIGN_BYTES, options.device.alignment_bytes),
        params=options.params,
        **search_fields(options),
    )


def _explain(found: InfeasibleProblem, graph: GraphOp, options: Options) -> str:
    """What is proven, in the user's terms: all of the RAM, names of kernels.

    Where the proof is for the order of the operations at hand only, the message says so.
    """
    where = ""
    if found.operation is not None:
        compute = graph.computes[found.operation]
        location = kernel_location(compute)
        origin = "" if location is None else f", from {location}"
        where = (
            f' for kernel "{compute.label.data}" (number {found.operation + 1} of the step{origin})'
        )
    how = _restrictions(options)
    if not found.any_order and options.strategy == "auto":
        how += " with the operations in this order"
    if found.time_bound_ns is not None or found.fastest_ns is not None:
        lines = [f"no schedule{how} meets the deadline within this RAM{where}"]
        if found.time_bound_ns is not None:
            lines.append(f"the step takes at least {format_time(found.time_bound_ns)}")
        if found.fastest_ns is not None:
            lines.append(f"the fastest schedule known takes {format_time(found.fastest_ns)}")
        return "; ".join(lines)
    lines = [f"no schedule{how} fits into {format_bytes(options.ram_bytes or 0)}"]
    if found.ram_bound_bytes is not None:
        needed = format_bytes(found.ram_bound_bytes + options.budget.reserved_bytes)
        lines.append(f"at least {needed} are needed{where}")
    overlaps = options.device.dma and (options.board is None or options.board.dma)
    if options.stack_compiler is not None and overlaps:
        lines.append("the stack takes less without transfers beside computing (dma = false)")
    return "; ".join(lines)


def _restrictions(options: Options) -> str:
    """The options that forbid schedules, for messages: ` with --paging=off`, or nothing."""
    given = [f"--strategy={options.strategy}"] if options.strategy != "auto" else []
    given += ["--paging=off"] if not options.paging else []
    given += ["--remat=off"] if not options.remat else []
    given += [f"--params={options.params}"] if options.params != "auto" else []
    if options.device.storage is None and options.paging:
        given.append(f"--device={options.device_name} (it has no storage)")
    return f" with {' '.join(given)}" if given else ""
