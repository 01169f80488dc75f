"""`--emit=tvm`: a program for TVM, which is imported only when it is called for."""

from __future__ import annotations

import os
from pathlib import Path

from poetc.backends.tvm import HOST
from poetc.emit import Backend, Job
from poetc.errors import InputError
from poetc.files import write_whole
from poetc.image import image_file, layout_of, layout_text
from poetc.options import Given
from poetc.streams import file_name, write

RECORDS = "database_tuning_record.json"
"""MetaSchedule's name of the file with its measurements."""


def _plans(given: Given) -> bool:
    if given.text("executor") is not None:
        raise InputError("--executor says what C is written, not TVM code")
    return False


def _check(given: Given, output: str | None) -> None:
    from poetc.backends.tvm.requirement import require_tvm

    if unused := given.flags("board"):
        raise InputError(f"{' '.join(unused)} is for firmware, in C: --emit=c")
    if given.text("flash") == "measure":
        raise InputError("--flash=measure is of a program in C: --emit=c")
    directory, trials = given.text("tuning"), given.value("tune")
    if directory is None and trials is not None:
        raise InputError("--tune adds to measurements; --tuning=DIRECTORY says where they are")
    require_tvm("--emit=tvm")
    from poetc.backends.tvm.build import check_output, machine

    target = _target(given)
    machine(target)
    output = file_name(output)
    if output is not None:
        check_output(output)
    if directory is None:
        return
    if output is None:
        raise InputError("--tuning says how kernels run; -o FILE writes them")
    if trials and target != HOST:
        raise InputError(f"--tune measures on this machine; that says nothing of {target}")
    if not trials and not os.path.isfile(Path(directory) / RECORDS):  # noqa: PTH113
        raise InputError(f"--tuning={directory}: no measurements there; --tune=TRIALS makes them")


def _target(given: Given) -> str:
    """The target of TVM code; an empty name is a name."""
    target = given.text("target")
    return HOST if target is None else target


def _emit(job: Job) -> str | None:
    """Compiles the step to a library or objects; without a file, prints it as TVMScript.

    If it has parameters on storage, their description for `poetc pack` is written beside it:
    `model_image.json` for `model.so`. With --tuning, returns how many kernels are arranged as was
    found fastest; raises InputError if there is none.
    """
    from poetc.backends.tvm.build import compile_graph, machine
    from poetc.backends.tvm.build import write as write_code
    from poetc.backends.tvm.module import relax_module

    module = job.step.compiled.module
    if job.output is None:
        write(None, relax_module(module).script() + "\n")
        return None
    on, note = machine(_target(job.given)), None
    directory, trials = job.given.text("tuning"), job.given.value("tune")
    if directory is None:
        executable = compile_graph(module, on)
    else:
        from poetc.backends.tvm.tuning import Tuning, hot_kernels

        records = Tuning(directory, on)
        hot = hot_kernels(module, on)
        if trials:
            records.tune(hot, trials)
        found = sum(records.choice(function) is not None for function in hot)
        if not found:
            raise InputError(
                f"--tuning={directory} has no kernel of this step for {on.name}; "
                "--tune=TRIALS measures them"
            )
        note = f"{found} of {len(hot)} hot kernels run as measured ({directory})"
        executable = compile_graph(module, on, records.choice)
    layout = layout_of(job.step.compiled.graph)
    if layout is not None:
        comment = "Parameters on storage, for poetc pack and poetc unpack."
        described = Path(job.output).with_name(image_file(Path(job.output).stem))
        write_whole(described, layout_text(layout, comment))
    write_code(executable, job.output, on)
    return note


BACKEND = Backend(
    _emit,
    takes=("target", "tuning", "tune"),
    says="says what TVM code is for; give --emit=tvm, or --kernels=tvm with --target",
    check=_check,
    plans=_plans,
    keeps_loops=lambda given: True,
    untiled=lambda given: "--emit=tvm has none; --emit=c has",
)
