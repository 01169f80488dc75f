"""`--emit=tvm`: a program for TVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poetc.emit import Backend, Job
from poetc.errors import InputError
from poetc.options import Given
from poetc.streams import file_name, write

if TYPE_CHECKING:
    from poetc.backends.tvm.emit import TuningOptions


def _plans(given: Given) -> bool:
    if given.text("executor") is not None:
        raise InputError("--executor says what C is written, not TVM code")
    return False


def _check(given: Given, output: str | None) -> None:
    from poetc.backends.tvm.emit import HOST, check

    if unused := given.flags("board"):
        raise InputError(f"{' '.join(unused)} is for firmware, in C: --emit=c")
    if given.text("flash") == "measure":
        raise InputError("--flash=measure is of a program in C: --emit=c")
    check(file_name(output), _target(given, HOST), _tuning(given))


def _target(given: Given, default: str) -> str:
    """The target of TVM code; an empty name is a name."""
    target = given.text("target")
    return default if target is None else target


def _tuning(given: Given) -> TuningOptions | None:
    """The options --tuning and --tune."""
    from poetc.backends.tvm.emit import TuningOptions

    directory, trials = given.text("tuning"), given.value("tune")
    if directory is None:
        if trials is not None:
            raise InputError("--tune adds to measurements; --tuning=DIRECTORY says where they are")
        return None
    return TuningOptions(directory) if trials is None else TuningOptions(directory, trials)


def _emit(job: Job) -> str | None:
    from poetc.backends.tvm.emit import HOST, emit, text

    module = job.step.compiled.module
    if job.output is None:
        write(None, text(module))
        return None
    return emit(module, job.output, _target(job.given, HOST), _tuning(job.given))


BACKEND = Backend(
    _emit,
    takes=("target", "tuning", "tune"),
    says="says what TVM code is for; give --emit=tvm, or --kernels=tvm with --target",
    check=_check,
    plans=_plans,
    keeps_loops=lambda given: True,
    untiled=lambda given: "--emit=tvm has none; --emit=c has",
)
