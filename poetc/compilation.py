"""From a module, and what is asked for, to a compiled step with its summary: what the command line,
the sweep and Python share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ModuleOp, StringAttr

from poetc.costmodel.device import known_devices, load_device
from poetc.driver import Compiled, compile_module
from poetc.errors import InputError
from poetc.ir.graph import graphs
from poetc.ir.poet import GraphOp
from poetc.ir.text import make_context
from poetc.options import SEARCH, Given
from poetc.pipeline import Observer
from poetc.planning.solver import ProgressCallback
from poetc.report import Summary, summarize
from poetc.request import Options

if TYPE_CHECKING:
    from xdsl.passes import ModulePass


@dataclass(frozen=True)
class CompiledStep:
    """A compiled step. `name` is what its input is called in messages."""

    name: str
    compiled: Compiled

    @cached_property
    def summary(self) -> Summary:
        """What is reported of it; made when it is first asked for, which takes seconds."""
        return summarize(self.compiled, self.name)


def _quiet(message: str) -> None:
    pass


def _unobserved(step: ModulePass, module: ModuleOp, seconds: float) -> None:
    pass


def compile_step(
    module: ModuleOp,
    name: str,
    options: Options,
    given: Given | None = None,
    *,
    warn: Callable[[str], None] = _quiet,
    progress: ProgressCallback | None = None,
    observe: Observer = _unobserved,
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
    if all(graph.updates(i) is None for i in range(len(graph.arguments))):
        warn(
            "no result is the new value of an argument, so nothing is kept from step to step; "
            "lower the step with donate_argnums"
        )
    return CompiledStep(name, compiled)


def _for_scheduled(
    given: Given, options: Options, graph: GraphOp, warn: Callable[[str], None]
) -> Options:
    """The options for a graph that was scheduled before: for its device, if none was given.

    What it takes is compared with limits later. Raises InputError for options that only a search
    could follow, and for another device than its own.
    """
    hint = "give the IR from before poet-schedule"
    if unused := given.flags(*SEARCH.values()):
        raise InputError(
            f"the input is scheduled already, so {' '.join(unused)} would change nothing; {hint}"
        )
    attribute = graph.attributes.get("device")
    if not isinstance(attribute, StringAttr) or attribute.data == options.device.name:
        return options
    name = attribute.data
    if asked := given.flags("device", "profile"):
        option = asked[0].removeprefix("--")
        raise InputError(
            f"the input is scheduled already, for device {name}, but {asked[0]}="
            f"{given.text(option)} is asked for; {hint}"
        )
    if name not in known_devices():
        warn(f"the input is scheduled for device {name}; --device=FILE.toml describes it")
        return options
    return replace(options, device=load_device(name), device_name=name)
