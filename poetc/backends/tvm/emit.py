"""`poetc --emit=tvm`: the one entry from the driver, which imports TVM only when it is called."""

from __future__ import annotations

from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from poetc.backends.tvm.requirement import require_tvm
from poetc.files import write_whole
from poetc.image import layout_of, layout_text
from poetc.ir.graph import graphs

HOST = "host"
"""The target that is the machine that this runs on."""


def check(output: str | None, target: str) -> None:
    """Raises InputError for what would be refused after the search: no TVM, a target or the name
    of a file that says nothing."""
    require_tvm("--emit=tvm")
    from poetc.backends.tvm.build import check_output, machine

    machine(target)
    if output is not None:
        check_output(output)


def emit(module: ModuleOp, output: str, target: str) -> None:
    """Compiles the scheduled graph of a module for a target, to a library or objects.

    If it has parameters on storage, their description for `poetc pack` is written beside it:
    `model_image.json` for `model.so`.
    """
    from poetc.backends.tvm.build import compile_graph, machine, write

    on = machine(target)
    executable = compile_graph(module, on)
    layout = layout_of(graphs(module)[0])
    if layout is not None:
        comment = "Parameters on storage, for poetc pack and poetc unpack."
        described = Path(output).with_name(f"{Path(output).stem}_image.json")
        write_whole(described, layout_text(layout, comment))
    write(executable, output, on)


def text(module: ModuleOp) -> str:
    """The Relax module, as TVMScript."""
    from poetc.backends.tvm.module import relax_module

    return relax_module(module).script() + "\n"
