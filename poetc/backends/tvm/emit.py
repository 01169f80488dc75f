"""`poetc --emit=tvm`: the one entry from the driver, which imports TVM only when it is called."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from poetc.backends.tvm import HOST
from poetc.backends.tvm.requirement import require_tvm
from poetc.errors import InputError
from poetc.files import write_whole
from poetc.image import image_file, layout_of, layout_text
from poetc.ir.graph import graphs

RECORDS = "database_tuning_record.json"
"""MetaSchedule's name of the file with its measurements."""


@dataclass(frozen=True)
class TuningOptions:
    """Use the measurements in `directory`, after making so many `trials` for each hot kernel."""

    directory: str
    trials: int = 0


def check(output: str | None, target: str, tuning: TuningOptions | None = None) -> None:
    """Raises InputError for what would be refused after the search: no TVM, a target or the name
    of a file that says nothing, measurements of another machine."""
    require_tvm("--emit=tvm")
    from poetc.backends.tvm.build import check_output, machine

    machine(target)
    if output is not None:
        check_output(output)
    if tuning is None:
        return
    if output is None:
        raise InputError("--tuning says how kernels run; -o FILE writes them")
    if tuning.trials and target != HOST:
        raise InputError(f"--tune measures on this machine; that says nothing of {target}")
    if not tuning.trials and not os.path.isfile(Path(tuning.directory) / RECORDS):  # noqa: PTH113
        raise InputError(
            f"--tuning={tuning.directory}: no measurements there; --tune=TRIALS makes them"
        )


def emit(
    module: ModuleOp, output: str, target: str, tuning: TuningOptions | None = None
) -> str | None:
    """Compiles the scheduled graph of a module for a target, to a library or objects.

    If it has parameters on storage, their description for `poetc pack` is written beside it:
    `model_image.json` for `model.so`. With `tuning`, returns how many kernels are arranged as was
    found fastest; raises InputError if there is none.
    """
    from poetc.backends.tvm.build import compile_graph, machine, write

    on = machine(target)
    note = None
    if tuning is None:
        executable = compile_graph(module, on)
    else:
        from poetc.backends.tvm.tuning import Tuning, hot_kernels

        records = Tuning(tuning.directory, on)
        hot = hot_kernels(module, on)
        if tuning.trials:
            records.tune(hot, tuning.trials)
        found = sum(records.choice(function) is not None for function in hot)
        if not found:
            raise InputError(
                f"--tuning={tuning.directory} has no kernel of this step for {target}; "
                "--tune=TRIALS measures them"
            )
        note = f"{found} of {len(hot)} hot kernels run as measured ({tuning.directory})"
        executable = compile_graph(module, on, records.choice)
    layout = layout_of(graphs(module)[0])
    if layout is not None:
        comment = "Parameters on storage, for poetc pack and poetc unpack."
        described = Path(output).with_name(image_file(Path(output).stem))
        write_whole(described, layout_text(layout, comment))
    write(executable, output, on)
    return note


def text(module: ModuleOp) -> str:
    """The Relax module, as TVMScript."""
    from poetc.backends.tvm.module import relax_module

    return relax_module(module).script() + "\n"
