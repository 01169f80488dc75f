"""The request of the user, and the RAM of the program beside the arena."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp

from poetc.backends.c.layout import static_ram_bytes
from poetc.budget import Budget, Deadline
from poetc.costmodel.device import Device, device_of
from poetc.diagnosis import Diagnosis, Reason
from poetc.errors import InputError, TimeLimitError
from poetc.ir.poet import GraphOp, stays_on_storage
from poetc.options import SEARCH, Given, SearchOptions, default, search_fields
from poetc.passes.stablehlo_to_poet import frozen_on_storage
from poetc.planning.problem import ScheduleOptions, alignment_of, deadline_of
from poetc.units import format_bytes, format_time

if TYPE_CHECKING:
    from poetc.backends.c.boards import Board
    from poetc.backends.c.emit import Executor
    from poetc.backends.c.stack import StackUse


GIVE_UNSCHEDULED = "give the IR from before poet-schedule"
"""The advice where a schedule that came with the input is in the way."""


@dataclass(frozen=True)
class Options(SearchOptions):
    """The request of the user.

    `ram_bytes`, `static_bytes`, `stack_bytes` and `ram_scope` are the `budget`.
    `storage` is what was chosen in place of the device's own, which `device` has already; None: its
    own. `params` says where parameters are between steps: "ram", "storage", or "auto": in RAM if
    that is possible, else on storage. `frozen` is the option of stablehlo-to-poet, `train` that of
    stablehlo-train (None: all parameters), `pages` how weights are held. With `io="caller"`, inputs
    and results are in buffers of the caller, which are not counted; None is what the input says, or
    "arena". With `stack_compiler`, a C compiler and its options, the stack is measured instead of
    given, for a `board` with the page store that it has; a schedule that was found before has taken
    `least_stack_bytes` (0: there was none). With `flash_compiler` the flash is measured. The
    program that `executor` makes has more static data, which depends on the model; None: the
    schedule is printed as code. Without `arrange`, loops of kernels are left as they are lowered.
    Kernels run in tiles as `stream` says, with pages in blocks of `block_bytes` (None: of a size
    that is tried); not where what is to be written has none, which `untiled` names. With
    `in_blocks`, pages are in blocks even where no kernel runs in tiles, as those of an entry point
    are where the step has such pages.
    """

    device: Device
    device_name: str
    ram_bytes: int | None = None
    storage: str | None = None
    deadline: Deadline | None = None
    static_bytes: int = 0
    stack_bytes: int = 0
    params: str = default("params")
    stack_compiler: tuple[str, ...] | None = None
    least_stack_bytes: int = 0
    flash_compiler: tuple[str, ...] | None = None
    io: str | None = None
    board: Board | None = None
    executor: Executor | None = None
    frozen: str = default("frozen")
    train: str | None = None
    pages: str = default("pages")
    arrange: bool = True
    stream: str = default("stream")
    block_bytes: int | None = default("block")
    untiled: str = ""
    in_blocks: bool = False

    @property
    def budget(self) -> Budget:
        """The limit of RAM, and what is set aside from it."""
        return Budget(self.ram_bytes, self.static_bytes, self.stack_bytes, self.ram_scope)

    def check(self) -> None:
        """Raises InputError where parameters, or what is frozen, are to be on storage and cannot be
        there."""
        asked = "--params=storage" if self.params == "storage" else ""
        if not asked and frozen_on_storage(self.frozen):
            asked = f"--frozen={self.frozen}"
        if asked:
            if self.device.storage is None:
                why = self.device.why_no_storage(self.device_name)
                raise InputError(f"{asked} cannot go with {why}")
            if self.ram_scope != "all":
                raise InputError(f"{asked} cannot go with --ram-scope={self.ram_scope}")

    @property
    def arranges(self) -> bool:
        """Whether loops of kernels are arranged; with a profile, as they were when measured."""
        from poetc.backends.c.boards import arranges, load_board

        profile = self.device.profile
        return self.arrange and arranges(
            self.board if profile is None else load_board(profile.board)
        )

    def why_not_stream(self) -> str:
        """The reason, such as an option, why kernels do not run in tiles; nothing if they may."""
        if self.stream == "never":
            return "--stream=never"
        if self.params == "ram":
            return "--params=ram"
        if self.ram_scope != "all":
            return f"--ram-scope={self.ram_scope}"
        if self.strategy != default("strategy"):
            return f"--strategy={self.strategy}"
        if not self.paging:
            return "--paging=off"
        if self.device.profile is not None:
            return "--profile has whole ones"
        if self.device.storage is None:
            return self.device.why_no_storage(self.device_name)
        if self.untiled:
            return self.untiled
        return "there is no --ram" if self.ram_bytes is None else ""

    def with_program(self, module: ModuleOp, graph: GraphOp) -> Options:
        """The same with what the program of an unscheduled graph has beside the arena: static data
        of the executor, and the stack, as far as that can be told before scheduling."""
        options = self
        if self.executor is not None:
            static_bytes = self.static_bytes + self.executor.state_bytes(graph)
            options = replace(self, static_bytes=static_bytes)
        if self.stack_compiler is None:
            return options
        if self.least_stack_bytes:
            return replace(options, stack_bytes=self.least_stack_bytes)
        from poetc.planning.stack import expected_stack

        asked = options.schedule_options(graph)
        stack = expected_stack(module, self.stack_compiler, asked, self.board, self.executor)
        return replace(options, stack_bytes=stack.bytes)

    def schedule_options(self, graph: GraphOp) -> ScheduleOptions:
        """The request to the scheduler."""
        return ScheduleOptions(
            budget=self.budget,
            deadline_ns=deadline_of(graph, self.deadline),
            device=self.device,
            align=alignment_of(self.device),
            params=self.params,
            **search_fields(self),
        )

    def with_measured_stack(self, module: ModuleOp, graph: GraphOp) -> tuple[Options, StackUse]:
        """The same with the stack that the scheduled program takes, and how it was measured.

        Raises TimeLimitError where there is no RAM for it.
        """
        from poetc.backends.c.stack import measure_stack

        assert self.stack_compiler is not None
        stack = measure_stack(module, self.stack_compiler, board=self.board, executor=self.executor)
        reserve_bytes = max(stack.bytes, self.stack_bytes)
        options = replace(self, stack_bytes=stack.bytes)
        used_bytes = options.budget.used_bytes(static_ram_bytes(graph))
        if self.ram_bytes is not None and self.ram_scope == "all" and used_bytes > self.ram_bytes:
            raise TimeLimitError(
                Diagnosis(
                    Reason.STACK,
                    ram_bytes=self.ram_bytes,
                    needed_bytes=used_bytes,
                    stack_bytes=stack.bytes,
                    remedies=(f"--stack={reserve_bytes}",),
                )
            )
        return options, stack


def options_of(given: Given, warn: Callable[[str], None]) -> Options:
    """The request, of what is given and of defaults; what is doubtful goes to `warn`.

    Raises InputError for what nobody can read, and for what contradicts.
    """
    from poetc.backends.c.boards import check_ram, load_board
    from poetc.backends.c.libraries import load_layout

    ram, ram_bytes, ram_scope = given.text("ram"), given.value("ram"), given.value("ram_scope")
    if ram is not None and ram_bytes < 1024 and ram.strip().isdigit() and ram_scope == "all":
        warn(f"--ram={ram} is {ram_bytes} bytes; did you mean {ram}KB?")
    board = load_board(given.text("board"))
    compilers = _compilers(given, board)
    measured = compilers["stack"] is not None
    storage = given.text("storage")
    device = device_of(given.text("device"), given.text("profile"), default("device"), storage)
    device_name = given.value("device")
    profile = device.profile
    if given.text("device") is None and profile is not None:
        device_name = profile.device_name
    if board is not None and profile is not None and profile.board != board.name:
        raise InputError(
            f"profile {given.text('profile')} is of board {profile.board}, not of "
            f"--board={board.name}"
        )
    static_bytes = load_layout(given.value("layout")).static_bytes
    if board is not None:
        static_bytes = board.static_bytes
        if ram_bytes is None:
            ram_bytes = board.ram_bytes
        elif ram_scope == "all":
            check_ram(board, ram_bytes)
    elif ram_bytes is not None and ram_bytes > device.ram_bytes:
        warn(f"--ram={ram} is more than the {device.ram_bytes:,} bytes of {device.name}")
    if given.flags("static"):
        static_bytes = given.value("static")
    return Options(
        device=device,
        device_name=device_name,
        storage=storage,
        ram_bytes=ram_bytes,
        deadline=given.value("deadline"),
        static_bytes=static_bytes,
        stack_bytes=default("stack") if measured else given.value("stack"),
        params=given.value("params"),
        stack_compiler=compilers["stack"],
        flash_compiler=compilers["flash"],
        io=given.text("io"),
        frozen=given.value("frozen"),
        train=given.value("train"),
        pages=given.value("pages"),
        stream=given.value("stream"),
        block_bytes=given.value("block"),
        board=board,
        **{field: given.value(option) for field, option in SEARCH.items()},
    )


def _compilers(given: Given, board: Board | None) -> dict[str, tuple[str, ...] | None]:
    """The C compiler that is to measure the stack, and the one for the flash; None if none is."""
    from poetc.backends.c.compiler import find_compiler

    known = None if board is None else board.compiler
    asked = given.text("cc")
    measured = [name for name in ("stack", "flash") if given.text(name) == "measure"]
    if asked is not None and not measured:
        raise InputError(
            "--cc is the compiler that --stack=measure and --flash=measure run; give one of them, "
            "too"
        )
    command = known if asked is None else asked
    return {
        name: find_compiler(command, f"--{name}=measure") if name in measured else None
        for name in ("stack", "flash")
    }


def check_parameters(graph: GraphOp, options: Options) -> None:
    """Raises InputError where parameters are to be on storage, and there are none: a program that
    only predicts updates nothing, and what it reads may be a weight or an input."""
    arguments = range(len(graph.arguments))
    if options.params != "storage" or any(graph.role(i) == "param" for i in arguments):
        return
    frozen = [graph.arg_name(i) for i in arguments if graph.is_frozen(i)]
    named = "" if frozen else ",NAME,..."
    of = frozen or [graph.arg_name(i) for i in arguments]
    raise InputError(
        "--params=storage: no argument is updated, so there is no parameter that could be there; "
        f"weights that are only read go there with --frozen=storage{named}"
        + (f" ({', '.join(of)})" if frozen else f"; there are {', '.join(of)}")
    )


def check_given(graph: GraphOp, options: Options) -> None:
    """Raises InputError unless a schedule that came with the input keeps to what is asked for."""
    params = [
        i
        for i in range(len(graph.arguments))
        if graph.role(i) == "param" and not stays_on_storage(graph, i)
    ]
    other = [i for i in params if graph.is_stored(i) != (options.params == "storage")]
    if options.params != "auto" and other:
        raise InputError(
            f"the input is scheduled already, with parameter {graph.arg_name(other[0])} "
            f"{'on storage' if graph.is_stored(other[0]) else 'in RAM'}, but --params="
            f"{options.params} is asked for; {GIVE_UNSCHEDULED}"
        )
    if options.io not in (None, graph.io):
        raise InputError(
            f"the input is scheduled already, with io = {graph.io}, but --io={options.io} is "
            f"asked for; {GIVE_UNSCHEDULED}"
        )
    used = options.budget.used_bytes(static_ram_bytes(graph))
    if options.ram_bytes is not None and used > options.ram_bytes:
        raise InputError(
            f"the input is scheduled already and takes {format_bytes(used)}, more than the "
            f"{format_bytes(options.ram_bytes)} asked for; {GIVE_UNSCHEDULED}"
        )
    if options.deadline is None:
        return
    found = graph.attributes.get("schedule")
    known = found.data if isinstance(found, DictionaryAttr) else {}
    times = [known.get(name) for name in ("makespan_ns", "unlimited_makespan_ns")]
    if not all(isinstance(time_ns, IntegerAttr) for time_ns in times):
        raise InputError(
            f"the input is scheduled already and does not say its time; {GIVE_UNSCHEDULED}"
        )
    makespan_ns, unlimited_ns = (t.value.data for t in times if isinstance(t, IntegerAttr))
    limit_ns = options.deadline.within_ns(unlimited_ns)
    if makespan_ns > limit_ns:
        raise InputError(
            f"the input is scheduled already and takes {format_time(makespan_ns)}, longer than the "
            f"deadline of {format_time(limit_ns)}; {GIVE_UNSCHEDULED}"
        )
