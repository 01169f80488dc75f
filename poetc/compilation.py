"""From a module, and what is asked for, to a compiled step with its summary: what the command line,
the sweep and Python share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ModuleOp, StringAttr

from poetc.costmodel.device import (
    NO_STORAGE,
    known_devices,
    known_storages,
    load_device,
    with_storage,
)
from poetc.driver import Compiled, compile_module
from poetc.errors import InputError
from poetc.ir.graph import graphs
from poetc.ir.poet import GraphOp
from poetc.ir.text import make_context
from poetc.options import SEARCH, TILES, Given
from poetc.pipeline import Observer, unobserved
from poetc.planning.solver import ProgressCallback
from poetc.report import Summary, summarize
from poetc.report_ram import caller_bytes
from poetc.request import GIVE_UNSCHEDULED, Options
from poetc.units import format_bytes

if TYPE_CHECKING:
    from poetc.backends.c.flash import FlashUse


@dataclass(frozen=True)
class CompiledStep:
    """A compiled step. `name` is what its input is called in messages."""

    name: str
    compiled: Compiled
    flash: FlashUse | None = None

    @cached_property
    def summary(self) -> Summary:
        """The report of it; made when it is first asked for, which takes seconds."""
        return replace(summarize(self.compiled, self.name), flash=self.flash)

    @cached_property
    def brief(self) -> Summary:
        """The same without the search for the least RAM, which takes most of that time."""
        found = summarize(self.compiled, self.name, least_ram=False)
        return replace(found, flash=self.flash)


def _quiet(message: str) -> None:
    pass


def compile_step(
    module: ModuleOp,
    name: str,
    options: Options,
    given: Given | None = None,
    *,
    warn: Callable[[str], None] = _quiet,
    progress: ProgressCallback | None = None,
    observe: Observer = unobserved,
) -> CompiledStep:
    """Compiles a verified module in place. `given` are the options that were given.

    Raises InputError for what cannot be compiled, and for options that would change nothing, and
    what `compile_module` raises where there is no schedule.
    """
    for graph in graphs(module):
        if graph.is_scheduled:
            options = _for_scheduled(given or Given(), options, graph, warn)
    compiled = compile_module(make_context(), module, options, progress=progress, observe=observe)
    graph = compiled.graph
    if all(graph.role(i) == "input" for i in range(len(graph.arguments))):
        warn(
            "no result is the new value of an argument, so nothing is kept from step to step; "
            "lower the step with donate_argnums"
        )
    flash = _flash(compiled, given or Given())
    if flash is not None and not flash.fits:
        warn(
            f"the program takes {format_bytes(flash.total_bytes)} of flash, and "
            f"{options.device.name} has {format_bytes(flash.device_bytes or 0)}; frozen weights "
            "can be on storage (--frozen=storage), and --cc with -Os makes code smaller"
        )
    return CompiledStep(name, compiled, flash)


def _flash(compiled: Compiled, given: Given) -> FlashUse | None:
    """The flash of the step and of other entry points with what they read in flash, if it is to be
    measured."""
    options = compiled.options
    if options.flash_compiler is None:
        return None
    from poetc.backends.c.emit import DEFAULT_NAME, generate
    from poetc.backends.c.flash import measure_flash
    from poetc.backends.c.share import Optimise

    files = generate(
        compiled.module,
        board=options.board,
        executor=options.executor,
        entries=compiled.points,
        optimise=Optimise(given.value("optimise")),
    )
    names = ("step", *(point.name for point in compiled.points))
    use = measure_flash(
        files, options.flash_compiler, DEFAULT_NAME, [f"{DEFAULT_NAME}_{name}" for name in names]
    )
    has_bytes = options.device.flash_bytes if options.board is None else options.board.flash_bytes
    weights_bytes = caller_bytes(compiled.graph)["frozen"]
    return replace(use, weights_bytes=weights_bytes, device_bytes=has_bytes or None)


def _for_scheduled(
    given: Given, options: Options, graph: GraphOp, warn: Callable[[str], None]
) -> Options:
    """The options for a graph that was scheduled before: for its device and storage, if none were
    given.

    What it takes is compared with limits later. Raises InputError for options that only a search
    could follow, and for another device or storage than its own.
    """
    if unused := given.flags(*SEARCH.values(), *TILES):
        raise InputError(
            f"the input is scheduled already, so {' '.join(unused)} would change nothing; "
            f"{GIVE_UNSCHEDULED}"
        )
    name, storage = _text(graph, "device"), _text(graph, "storage")
    if name is None or (name, storage) == (options.device.name, options.device.chosen_storage):
        return options
    own, device_name = options.device, options.device_name
    if name != own.name:
        if asked := given.flags("device", "profile"):
            raise _other(given, asked[0], f"device {name}")
        if name not in known_devices():
            warn(f"the input is scheduled for device {name}; --device=FILE.toml describes it")
            return options
        own, device_name = load_device(name), name
    elif own.chosen_storage is not None:
        own = load_device(device_name)
    asked_for = with_storage(own, options.storage)
    if storage == asked_for.chosen_storage:
        return replace(options, device=asked_for, device_name=device_name)
    if asked := given.flags("storage"):
        raise _other(given, asked[0], f"storage {storage or 'of the device'}")
    if storage not in (NO_STORAGE, *known_storages()):
        warn(f"the input is scheduled for storage {storage}; --storage=FILE.toml describes it")
        return replace(options, device=own, device_name=device_name)
    made_for = with_storage(own, storage)
    return replace(options, device=made_for, device_name=device_name, storage=storage)


def _other(given: Given, flag: str, made_for: str) -> InputError:
    asked = f"{flag}={given.text(flag.removeprefix('--'))}"
    return InputError(
        f"the input is scheduled already, for {made_for}, but {asked} is asked for; "
        f"{GIVE_UNSCHEDULED}"
    )


def _text(graph: GraphOp, name: str) -> str | None:
    attribute = graph.attributes.get(name)
    return attribute.data if isinstance(attribute, StringAttr) else None
