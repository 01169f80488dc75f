"""`--emit=c`: a directory of C."""

from __future__ import annotations

import argparse

from poetc.cli.arguments import given, value
from poetc.cli.emit import Backend, Job
from poetc.cli.files import file_name
from poetc.errors import InputError
from poetc.options import default


def _check(arguments: argparse.Namespace) -> None:
    from poetc.backends.c.boards import load_board
    from poetc.backends.c.emit import check_library, check_runs

    if file_name(arguments.output) is None:
        raise InputError("--emit=c needs -o DIRECTORY")
    board, layout = load_board(arguments.board), value(arguments, "layout")
    check_library(arguments.name, layout, board)
    if arguments.data is not None:
        try:
            check_runs(layout, board)
        except InputError as error:
            raise InputError(f"--data: {error.message}") from error
    if arguments.kernels == "tvm":
        _check_compiled_kernels(arguments)
    elif given(arguments, "target"):
        raise InputError("--target says what TVM code is for; give --kernels=tvm as well")


def _check_compiled_kernels(arguments: argparse.Namespace) -> None:
    """Refuse what --kernels=tvm cannot go with."""
    from poetc.backends.c.boards import load_board
    from poetc.backends.tvm.bare import kernels_for

    layout = value(arguments, "layout")
    reasons = {
        "--profile": "it has the costs of kernels in C" if arguments.profile else "",
        "--stack=measure": "a C compiler measures the stack"
        if arguments.stack == "measure"
        else "",
        f"--layout={layout}": (
            "they are built by a Makefile" if layout != default("layout") else ""
        ),
    }
    for option, reason in reasons.items():
        if reason:
            raise InputError(f"--kernels=tvm cannot go with {option}: {reason}")
    kernels_for(arguments.target, load_board(arguments.board))


def _emit(job: Job) -> None:
    from poetc.backends.c.emit import emit

    arguments, options = job.arguments, job.compiled.options
    compiler, board = None, options.board
    if arguments.kernels == "tvm":
        from poetc.backends.tvm.bare import kernels_for

        compiler, board = kernels_for(arguments.target, board)
    emit(
        job.compiled.module,
        arguments.output,
        stack_bytes=options.stack_bytes,
        static_bytes=options.static_bytes,
        board=board,
        ram_bytes=options.ram_bytes if options.ram_scope == "all" else None,
        layout=value(arguments, "layout"),
        name=value(arguments, "name"),
        executor=job.options.executor,
        compiler=compiler,
        step=job.step,
    )


BACKEND = Backend(
    _emit,
    takes=("layout", "name", "data", "kernels"),
    borrows=("target",),
    says="says how C is written; give --emit=c as well",
    check=_check,
)
