"""Writes a scheduled and planned graph as a directory of C99.

    model_build.h          the number of the run that all files are of
    model.h, model.c       the arena, `model_step`, access to arguments and results
    model_kernels.h, .c    the loop nests, one function for all computes that are equal
    model_save.c           parameters in RAM as bytes, and back
    poetc_*, store_*       the runtime, the same for all models (runtime_files.py)
    main.c                 an example
    model_tensors.json     the arguments and results as data (poetc/tensors.py)
    model_image.json       where parameters on storage are, if there are any (poetc/image.py)
    model_kernels_tvm.s    kernels that are compiled already (--kernels=tvm)
    Makefile               builds main.c, the example
    data/, compare.*       arguments and expected results of a step (libraries/step.py)

For a board (boards/), its sources and a linker script take the place of main.c, store_memory.* and
store_file.*. For the build system of a larger program (libraries/), the files are arranged as that
expects them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypedDict, Unpack

from xdsl.dialects.builtin import ModuleOp

from poetc.backends.c.boards import (
    LINKER_SCRIPT,
    Board,
    Firmware,
    board_sources,
    check_ram,
    linker_script,
    makefile,
    template_name,
)
from poetc.backends.c.build_id import with_build_id
from poetc.backends.c.directory import write_generated
from poetc.backends.c.entries import EntryPoint, add_entries
from poetc.backends.c.expressions import called_functions
from poetc.backends.c.header import header
from poetc.backends.c.kernel_files import kernels_header, kernels_source
from poetc.backends.c.layout import DEFAULT_STACK_BYTES
from poetc.backends.c.libraries import DEFAULT_LAYOUT, RUNS, indexed, load_layout
from poetc.backends.c.libraries.library import MARK, Library, renamed
from poetc.backends.c.printer import tables_of
from poetc.backends.c.program import Kernel, Program
from poetc.backends.c.runtime_files import RUNTIME, is_runtime, marked, printed_sources, runtime_id
from poetc.backends.c.save import save_source
from poetc.backends.c.scheduled import ScheduledProgram
from poetc.backends.c.share import Optimise
from poetc.backends.c.step_files import step_files
from poetc.backends.c.text import c_comment, c_identifier
from poetc.budget import Budget
from poetc.costmodel.device import NO_CACHE_LINE_BYTES
from poetc.description import header_name
from poetc.errors import InputError
from poetc.image import image_file, layout_text
from poetc.ir.graph import graphs
from poetc.ir.poet import GraphOp, StreamOp, runs_of
from poetc.ir.transfers import join_transfers
from poetc.options import default
from poetc.step_data import StepData
from poetc.tensors import SUFFIX

_HOST_ONLY = {
    "main.c",
    *(f"store_{where}.{ending}" for where in ("file", "memory", "thread") for ending in "ch"),
}
"""Files of `RUNTIME` that firmware for a board does without."""

_SLICES = {"poetc_slice.c", "poetc_slice.h"}
"""Files of `RUNTIME` that only programs with kernels in tiles need."""

_EXECUTOR = {"poetc_plan.c", "poetc_plan.h"}
"""Files of `RUNTIME` that only programs that run plans need."""

DEFAULT_NAME: str = default("name")
"""Begins the names of a model's symbols and files."""

MOST_LETTERS = 200
"""The longest such name: file systems end at 255 letters, and names of files have more letters than
that of the model."""

_SYSTEM = (
    *("aio", "alloca", "assert", "complex", "cpio", "ctype", "dirent", "dlfcn", "endian", "errno"),
    *("fcntl", "features", "fenv", "float", "fmtmsg", "fnmatch", "ftw", "glob", "grp", "iconv"),
    *("inttypes", "iso646", "langinfo", "libgen", "limits", "locale", "malloc", "math", "monetary"),
    *("mqueue", "ndbm", "netdb", "newlib", "nl_types", "poll", "pthread", "pwd", "regex", "sched"),
    *("search", "semaphore", "setjmp", "signal", "spawn", "stdalign", "stdarg", "stdatomic"),
    *("stdbool", "stddef", "stdint", "stdio", "stdlib", "stdnoreturn", "string", "strings"),
    *("stropts", "syslog", "tar", "termios", "tgmath", "threads", "time", "trace", "uchar"),
    *("ulimit", "unistd", "utime", "utmpx", "wchar", "wctype", "wordexp"),
)
"""Headers of C and POSIX, and others that those of C libraries include. Where the directory of the
model's is searched first, one of the same name would take their place."""

_TAKEN = {
    *_SYSTEM,
    *(p.stem.lower() for p in Path(__file__).parent.rglob("*.[ch]")),
}
"""Names of files that the model's own cannot have."""

_TAKEN_PREFIXES = (
    *("board_read", "board_write", "caller", "check", "do", "is_of", "load", "open", "place"),
)
"""With these before `_step`, `_argument`, `_result` or `_plan`, our own functions begin."""


class Executor(Protocol):
    """A maker of programs that take their schedule as data."""

    def state_bytes(self, graph: GraphOp) -> int:
        """Static data of such a program beside that of others; the graph need not be scheduled."""
        ...

    def program(self, module: ModuleOp, graph: GraphOp, name: str, budget: Budget) -> Program: ...


class KernelCompiler(Protocol):
    """A compiler of kernels in place of the C compiler of the program."""

    def assembly(self, kernels: Sequence[Kernel], stack_bytes: int | None) -> str:
        """The functions of the kernels, for a stack of so many bytes (None: of any size)."""
        ...


class EmitOptions(TypedDict, total=False):
    """How C is generated, by keyword.

    `name` begins all symbols of the model and names its files. `stack_bytes` is what is reserved
    for the stack, `static_bytes` for static data beside the arena (by default, what the stores of
    the layout or the board need); on a host both only enter the reported RAM. With a `board` the
    program is firmware that links into `ram_bytes` (by default, all that the board has), otherwise
    a library whose `layout` is one of libraries/. With an `executor` the schedule is not printed as
    C: the program runs plans (backends/plan/). With a `compiler`, kernels are assembly. `entries`
    are other entry points, which read the parameters of the step. With `instances` the arena is the
    caller's, and functions take a pointer to it. `optimise` says which kernels share code.
    """

    name: str
    stack_bytes: int
    static_bytes: int | None
    board: Board | None
    ram_bytes: int | None
    layout: str
    executor: Executor | None
    compiler: KernelCompiler | None
    entries: Sequence[EntryPoint]
    instances: bool
    optimise: Optimise


def emit(
    module: ModuleOp,
    directory: str | Path,
    *,
    step: StepData | None = None,
    **options: Unpack[EmitOptions],
) -> None:
    """Writes the one graph of `module` to `directory`, which appears complete or not at all.

    The `options` are `EmitOptions`. With a `step`, its data are in the directory, and what runs it
    and compares the results.
    If `directory` exists, generated files in it are replaced, the directory itself and other files
    are kept. Raises InputError for what cannot be generated or written, and if files that are not
    generated would be overwritten.
    """
    files, data = _generate(module, step, **options)
    # Data first: where files are replaced one by one, nothing builds until all are there.
    write_generated({**data, **files}, directory)


def generate(module: ModuleOp, **options: Unpack[EmitOptions]) -> dict[str, str]:
    """The content of every generated file by its path."""
    files, _ = _generate(module, None, **options)
    return files


def _generate(
    module: ModuleOp,
    step: StepData | None,
    *,
    name: str = DEFAULT_NAME,
    stack_bytes: int = DEFAULT_STACK_BYTES,
    static_bytes: int | None = None,
    board: Board | None = None,
    ram_bytes: int | None = None,
    layout: str = DEFAULT_LAYOUT,
    executor: Executor | None = None,
    compiler: KernelCompiler | None = None,
    entries: Sequence[EntryPoint] = (),
    instances: bool = False,
    optimise: Optimise = Optimise.BALANCED,
) -> tuple[dict[str, str], dict[str, bytes]]:
    """The files that `generate` gives, and the data for one run."""
    check_library(name, layout, board)
    if step is not None:
        check_runs(layout, board)
    arrangement = load_layout(layout)
    found = graphs(module)
    if len(found) != 1:
        raise InputError(f"C is generated from one graph, not {len(found)}")
    _check_tiles(found[0])
    if board is not None and not board.dma:
        module, graph = _with_whole_transfers(module)
        found = (graph,)
    if static_bytes is None:
        static_bytes = arrangement.static_bytes if board is None else board.static_bytes
        static_bytes += executor.state_bytes(found[0]) if executor is not None else 0
    budget = Budget(ram_bytes, static_bytes, stack_bytes)
    if executor is None:
        arguments = () if step is None else step.arguments
        program = ScheduledProgram(module, found[0], name, budget, arguments, instances=instances)
        add_entries(program, tuple(_for_board(entry, board) for entry in entries))
    else:
        program = executor.program(module, found[0], name, budget)
    # Tables of constants are in kernels.c, and what reads them.
    printed = [k for k in program.kernels if compiler is None or tables_of(k.function)]
    compiled = [k for k in program.kernels if compiler is not None and not tables_of(k.function)]
    used = {symbol for kernel in printed for symbol in called_functions(kernel.function)}
    files = {
        f"{name}.h": header(program),
        f"{name}.c": program.source(),
        header_name(name): "",
        f"{name}_kernels.h": kernels_header(program),
        f"{name}_kernels.c": kernels_source(program, printed, used, optimise),
    }
    if program.frozen:
        files[f"{name}_frozen.c"] = program.frozen_source()
    if program.saved is not None:
        files[f"{name}_save.c"] = save_source(program, program.saved)
    if compiler is not None and compiled:
        text = compiler.assembly(compiled, None if board is None else program.stack_bytes)
        files[f"{name}_kernels_tvm.s"] = f"{c_comment(MARK)}\n{text}"
    # A shared runtime has all that other models may need.
    unused = set() if executor else _EXECUTOR
    if found[0].block_bytes is None:
        # The executor of plans knows pages in blocks.
        unused = unused | _SLICES - ({"poetc_slice.h"} if executor else set())
    copied = {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted(RUNTIME.iterdir())
        if path.name not in (_HOST_ONLY if board is not None else ())
        and path.name not in (() if arrangement.shared_runtime else unused)
    }
    if board is not None:
        copied |= board_sources(board)
    copied |= printed_sources()
    line_bytes = found[0].cache_line_bytes or NO_CACHE_LINE_BYTES
    runtime: dict[str, str] = {}
    for file, text in copied.items():
        text = marked(file, text, line_bytes)
        (runtime if is_runtime(text) else files)[file] = renamed(text, name)
    described = f"{name}{SUFFIX}"
    files[described] = program.tensors().to_text(f"{MARK} Arguments and results.")
    if program.image is not None:
        comment = f"{MARK} Parameters on storage, for poetc pack and poetc unpack."
        files[image_file(name)] = layout_text(program.image, comment)
    run = None if step is None else step_files(program, step)
    data = {} if run is None else run.data
    if board is None:
        library = Library(
            name,
            files,
            runtime,
            runtime_id(line_bytes),
            tuple(file for file in files if file.endswith(".json")),
            program.ram_bytes,
            program.stack_bytes,
            program.storage_bytes,
            partial(marked, line_bytes=line_bytes),
            run,
        )
        arranged = indexed(arrangement.index, arrangement.arrange(library), data)
        return with_build_id(arranged, name, arrangement.index, line_bytes=line_bytes), data
    files |= runtime
    firmware = replace(_firmware(program, board, files, ram_bytes), step=run)
    files |= {} if run is None else run.sources
    files[LINKER_SCRIPT] = linker_script(firmware)
    files["Makefile"] = makefile(firmware)
    template = template_name(board)
    copied_by_users = () if template is None else (template,)
    listed = indexed("Makefile", files, data)
    return with_build_id(listed, name, "Makefile", copied_by_users, line_bytes), data


def _check_tiles(graph: GraphOp) -> None:
    """Raises InputError for kernels that run in tiles if pages are not in blocks."""
    if graph.block_bytes is None and any(isinstance(run, StreamOp) for run in runs_of(graph)):
        raise InputError(
            f"graph @{graph.sym_name.data} has poet.stream but no block_bytes; run poet-stream"
        )


def _with_whole_transfers(module: ModuleOp) -> tuple[ModuleOp, GraphOp]:
    """A copy of a module, and its graph, for a store without DMA: a start would do all of the
    transfer, and whole ones take less RAM."""
    copy = module.clone()
    (graph,) = graphs(copy)
    join_transfers(graph)
    return copy, graph


def _for_board(entry: EntryPoint, board: Board | None) -> EntryPoint:
    """An entry point as the board has its transfers."""
    if board is None or board.dma:
        return entry
    module, graph = _with_whole_transfers(entry.module)
    return replace(entry, module=module, graph=graph)


def check_library(name: str | None, layout: str, board: Board | None) -> None:
    """Raises InputError for a name that symbols and files of a model cannot begin with, and for a
    layout that is unknown, or not one for that name or a board."""
    name = DEFAULT_NAME if name is None else name
    if len(name) > MOST_LETTERS:
        raise InputError(
            f"{name[:20]}... has {len(name)} letters; names of files end before {MOST_LETTERS + 1}"
        )
    if not name or c_identifier(name) != name or not name[0].isalpha():
        raise InputError(f"{name!r} cannot begin the names of C symbols")
    if name.lower().startswith("poetc") or name in _TAKEN_PREFIXES:  # macros are in upper case
        raise InputError(f"{name!r} cannot be the name of a model: other symbols begin with that")
    if name.lower() in _TAKEN:  # some file systems do not tell upper case from lower
        raise InputError(f"{name!r} cannot be the name of a model: other files are called that")
    load_layout(layout).check_name(name)
    if board is not None and layout != DEFAULT_LAYOUT:
        raise InputError(
            f"firmware for {board.name} has a layout of its own; --layout={layout} is for the "
            "model as a library, without --board"
        )


def check_runs(layout: str, board: Board | None) -> None:
    """Raises InputError for a program that does not run on its own, and so not on data."""
    if board is not None and not board.qemu:
        raise InputError(f"{board.name} has no emulator that could run a step on data")
    if layout not in RUNS:
        raise InputError(f"--layout={layout} has no program that runs a step on data")


def _firmware(
    program: Program, board: Board, files: Iterable[str], ram_bytes: int | None
) -> Firmware:
    """The program as the linker script and the Makefile of a board need it."""
    if any(place.frozen and place.of_caller for place in program.arguments):
        raise InputError(
            f"the firmware for {board.name} needs what is frozen: --data with the arguments, or "
            "--frozen=off or --frozen=storage"
        )
    if program.has_pointers:
        raise InputError(
            f"the firmware for {board.name} has inputs and results in the arena: --io=arena"
        )
    ram_bytes = ram_bytes or board.ram_bytes or program.ram_bytes
    check_ram(board, max(ram_bytes, program.ram_bytes))
    return Firmware(
        board,
        program.name,
        tuple(file for file in files if file.endswith(".c")),
        tuple(file for file in files if file.endswith(".h")),
        program.stack_bytes,
        ram_bytes,
        program.storage_bytes,
        program.plan_sector_bytes,
        tuple(file for file in files if file.endswith(".s")),
    )
