"""`poetc --passes`: some passes alone, and what is said of passes that run."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from poetc import emit, views
from poetc.cli.arguments import given
from poetc.errors import InputError, PoetcError
from poetc.options import OPTIONS
from poetc.streams import write
from poetc.terminal import say

if TYPE_CHECKING:
    from xdsl.context import Context
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.passes import ModulePass


class Observer:
    """Prints the IR after each pass and, at the end, the time that each took."""

    def __init__(self, print_ir: bool, print_times: bool) -> None:
        self.print_ir, self.print_times = print_ir, print_times
        self.times: list[tuple[str, float]] = []

    def __call__(self, step: ModulePass, module: ModuleOp, seconds: float) -> None:
        self.times.append((step.name, seconds))
        if self.print_ir:
            from poetc.ir.text import module_text

            say(f"// ----- IR after {step.pipeline_pass_spec()} -----\n{module_text(module)}")

    def finish(self, passes: Sequence[ModulePass]) -> None:
        """Says what made the module, as `xdsl-opt -p` and `--passes` take it, and the times."""
        if self.print_ir:
            pipeline = ",".join(str(step.pipeline_pass_spec()) for step in passes)
            say(f"// ----- pipeline: {pipeline}")
        if self.print_times:
            for name, seconds in self.times:
                say(f"{seconds:9.3f} s  {name}")


def refuse_others(arguments: argparse.Namespace) -> None:
    """Options of the whole pipeline mean nothing to single passes."""
    unused = given(arguments).flags(*(n for n, option in OPTIONS.items() if not option.alone))
    unused += [f"--emit={arguments.emit}"] if arguments.emit != emit.DEFAULT else []
    unused += [f"--{name}" for name in views.PICTURES if getattr(arguments, name) is not None]
    if unused:
        raise InputError(
            f"{' '.join(unused)} cannot go with --passes, which runs just those passes; "
            "they have options of their own, for example poet-schedule{ram=8192}"
        )


def run_passes_alone(
    arguments: argparse.Namespace, context: Context, module: ModuleOp, observer: Observer
) -> int:
    """Runs the passes that are asked for and writes the IR; the exit code."""
    from xdsl.universe import Universe
    from xdsl.utils.arg_spec import parse_pipeline
    from xdsl.utils.exceptions import ArgSpecParseError

    from poetc.ir.graph import graphs
    from poetc.ir.text import module_text
    from poetc.pipeline import run_passes, verified

    known = Universe.get_multiverse().all_passes
    passes: list[ModulePass] = []
    try:
        specs = list(parse_pipeline(arguments.passes))
    except ArgSpecParseError as error:
        raise InputError(f"--passes: {_one_line(error)}") from error
    for spec in specs:
        if spec.name not in known:
            ours = ", ".join(n for n in sorted(known) if n.startswith(("poet-", "stablehlo-")))
            raise InputError(f"--passes: unknown pass '{spec.name}'; poetc's passes are {ours}")
        try:
            passes.append(known[spec.name]().from_spec(spec))
        except (ArgSpecParseError, ValueError, TypeError) as error:
            raise InputError(f"--passes: {spec.name}: {_one_line(error)}") from error
    for step in passes:
        if step.name.startswith("poet-") and not graphs(module):
            raise InputError(
                f"--passes: {step.name} works on poet.graph and there is none; "
                "stablehlo-simplify,stablehlo-to-poet make it"
            )
        try:
            run_passes(context, module, (step,), verified(observer))
        except PoetcError:
            raise
        except Exception as error:
            if type(step).__module__.startswith("poetc."):
                raise
            raise InputError(f"--passes: {step.name} does not apply here: {error}") from error
    write(arguments.output, module_text(module))
    observer.finish(passes)
    return 0


def _one_line(error: BaseException) -> str:
    """xDSL's message about a pipeline: the column, and the last line, below a copy of the text."""
    text = str(error).strip()
    column = re.search(r"^pass-pipeline:\d+:(\d+)$", text, re.MULTILINE)
    place = f"column {column[1]}: " if column else ""
    return place + (text.splitlines() or ["malformed"])[-1].strip()
