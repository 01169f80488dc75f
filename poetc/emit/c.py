"""`--emit=c`: a directory of C."""

from __future__ import annotations

from poetc.emit import Backend, Job
from poetc.errors import InputError
from poetc.options import Given, default
from poetc.streams import file_name


def _check(given: Given, output: str | None) -> None:
    from poetc.backends.c.boards import load_board
    from poetc.backends.c.emit import check_library, check_runs

    if file_name(output) is None:
        raise InputError("--emit=c needs -o DIRECTORY")
    board, layout = load_board(given.text("board")), given.value("layout")
    check_library(given.text("name"), layout, board)
    if given.text("data") is not None:
        try:
            check_runs(layout, board)
        except InputError as error:
            raise InputError(f"--data: {error.message}") from error
    if given.value("arena") == "caller" and given.text("executor") == "plan":
        raise InputError("--arena=caller cannot go with --executor=plan: plans have one arena")
    if given.text("kernels") == "tvm":
        _check_compiled_kernels(given)
    elif given.flags("target"):
        raise InputError("--target says what TVM code is for; give --kernels=tvm as well")


def _check_compiled_kernels(given: Given) -> None:
    """Refuse what --kernels=tvm cannot go with."""
    from poetc.backends.c.boards import load_board
    from poetc.backends.tvm.bare import kernels_for

    layout = given.value("layout")
    reasons = {
        "--profile": "it has the costs of kernels in C" if given.text("profile") else "",
        **{
            f"--{name}=measure": f"a C compiler measures the {name}"
            if given.text(name) == "measure"
            else ""
            for name in ("stack", "flash")
        },
        f"--layout={layout}": (
            "they are built by a Makefile" if layout != default("layout") else ""
        ),
    }
    for option, reason in reasons.items():
        if reason:
            raise InputError(f"--kernels=tvm cannot go with {option}: {reason}")
    kernels_for(given.text("target"), load_board(given.text("board")))


def _emit(job: Job) -> None:
    from poetc.backends.c.emit import emit
    from poetc.backends.c.share import Optimise

    given, compiled = job.given, job.step.compiled
    options = compiled.options
    compiler, board = None, options.board
    if given.text("kernels") == "tvm":
        from poetc.backends.tvm.bare import kernels_for

        compiler, board = kernels_for(given.text("target"), board)
    assert job.output is not None
    emit(
        compiled.module,
        job.output,
        stack_bytes=compiled.stack_bytes,
        static_bytes=options.static_bytes,
        board=board,
        ram_bytes=options.ram_bytes if options.ram_scope == "all" else None,
        layout=given.value("layout"),
        name=given.value("name"),
        instances=given.value("arena") == "caller",
        optimise=Optimise(given.value("optimise")),
        executor=options.executor,
        compiler=compiler,
        step=job.data,
        entries=compiled.points,
    )


BACKEND = Backend(
    _emit,
    takes=("layout", "name", "arena", "data", "kernels", "optimise"),
    borrows=("target",),
    says="says how C is written; give --emit=c as well",
    check=_check,
    has_entries=True,
    # Copies of iterations are code.
    keeps_loops=lambda given: given.text("kernels") == "tvm" or given.text("optimise") == "size",
)
