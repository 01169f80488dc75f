"""`--emit=tvm`: a program for TVM."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from poetc.cli.arguments import given, value
from poetc.cli.emit import Backend, Job
from poetc.cli.files import file_name, write
from poetc.errors import InputError

if TYPE_CHECKING:
    from poetc.backends.tvm.emit import TuningOptions


def _plans(arguments: argparse.Namespace) -> bool:
    if arguments.executor is not None:
        raise InputError("--executor says what C is written, not TVM code")
    return False


def _check(arguments: argparse.Namespace) -> None:
    from poetc.backends.tvm.emit import HOST, check

    if unused := given(arguments, "board"):
        raise InputError(f"{' '.join(unused)} is for firmware, in C: --emit=c")
    check(file_name(arguments.output), _target(arguments, HOST), _tuning(arguments))


def _target(arguments: argparse.Namespace, default: str) -> str:
    """What TVM code is for; an empty name is a name."""
    return default if arguments.target is None else arguments.target


def _tuning(arguments: argparse.Namespace) -> TuningOptions | None:
    """What --tuning and --tune ask for."""
    from poetc.backends.tvm.emit import TuningOptions

    if arguments.tuning is None:
        if arguments.tune is not None:
            raise InputError("--tune adds to measurements; --tuning=DIRECTORY says where they are")
        return None
    if arguments.tune is None:
        return TuningOptions(arguments.tuning)
    return TuningOptions(arguments.tuning, value(arguments, "tune"))


def _emit(job: Job) -> str | None:
    from poetc.backends.tvm.emit import HOST, emit, text

    arguments, module = job.arguments, job.compiled.module
    if arguments.output is None:
        write(None, text(module))
        return None
    return emit(module, arguments.output, _target(arguments, HOST), _tuning(arguments))


BACKEND = Backend(
    _emit,
    takes=("target", "tuning", "tune"),
    says="says what TVM code is for; give --emit=tvm, or --kernels=tvm with --target",
    check=_check,
    plans=_plans,
)
