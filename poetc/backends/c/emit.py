"""Writes a scheduled and planned graph as a directory of C99.

    model.h, model.c       the arena, `model_step`, access to arguments and results
    kernels.h, kernels.c   the loop nests, one function for all computes that are equal
    poetc_math.h, .c       the mathematical functions in use, printed from kernels/math.mlir
    poetc_scalar.h, poetc_store.*, poetc_image.*, store_memory.*, store_file.*, main.c
                           from runtime/
    model_image.json       where parameters on storage are, if there are any (poetc/image.py)
    Makefile               builds main.c, the example

For a board (boards/), its sources and a linker script take the place of main.c, store_memory.* and
store_file.*. For the build system of a larger program (libraries/), the files are arranged as that
expects them.

`model.c` does exactly what the graph says: a call for each compute, page-out and page-in, at the
offsets of the memory plan.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Protocol

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from poetc.backends.c.boards import (
    LINKER_SCRIPT,
    Board,
    Firmware,
    board_sources,
    check_ram,
    linker_script,
    makefile,
)
from poetc.backends.c.buffers import kernel_buffers, overlapping_arguments
from poetc.backends.c.layout import (
    DEFAULT_STACK_BYTES,
    TensorPlace,
    arena_offset,
    argument_places,
    caller_names,
    check_sizes,
    result_places,
    static_ram_bytes,
)
from poetc.backends.c.libraries import (
    DEFAULT_LAYOUT,
    INDEX_FILES,
    Library,
    indexed,
    indexed_files,
    load_layout,
)
from poetc.backends.c.libraries.library import MARK as _MARK
from poetc.backends.c.libraries.library import renamed
from poetc.backends.c.printer import (
    Signature,
    c_comment,
    c_identifier,
    called_functions,
    element_c_type,
    print_function,
    print_prototype,
    print_table,
    tables_of,
)
from poetc.errors import InputError
from poetc.files import TEMPORARY_PREFIX, umask
from poetc.image import ImageLayout, layout_of, layout_text
from poetc.ir.graph import graphs, tensor_bytes
from poetc.ir.locations import source_location
from poetc.ir.poet import (
    AnyPageIn,
    AnyPageOut,
    ComputeOp,
    FreeOp,
    GraphOp,
    PageInOp,
    PageInStartOp,
    PageOutOp,
    PageOutStartOp,
    ReturnOp,
    WaitOp,
    offset_of,
    transfer_of,
)
from poetc.ir.transfers import join_transfers, transfer_slots
from poetc.kernels import mathlib

RUNTIME = Path(__file__).parent / "runtime"
"""The C sources that are copied into every generated directory."""

_HOST_ONLY = {
    "main.c",
    *(f"store_{where}.{ending}" for where in ("file", "memory", "thread") for ending in "ch"),
}
"""Those of `RUNTIME` that firmware for a board does without."""

_EXECUTOR = {"poetc_plan.c", "poetc_plan.h"}
"""Those of `RUNTIME` that only programs need that run plans."""

_ARENA = """\
/* Aligned for the element types of all tensors. */
static union {{
    uint32_t alignment;
    uint8_t bytes[{macro}_ARENA_BYTES];
}} arena;

static void *at(uint32_t offset)
{{
#if defined(__clang__) && defined(__arm__)
    /* Otherwise clang computes the addresses of many tensors early, and keeps them on the stack. */
    __asm__ volatile("" : "+r"(offset));
#endif
    return &arena.bytes[offset];
}}
"""

_NO_ARENA = """\
/* The arena is empty. Tensors without elements are here, where nothing is ever written. */
static const uint32_t nothing = 0;

static void *at(uint32_t offset)
{{
    return (void *)((uintptr_t)&nothing + offset);
}}
"""

DEFAULT_NAME = "model"
"""Begins the names of a model's symbols and files."""

_C_LIBRARY = (
    *("assert", "complex", "ctype", "errno", "fenv", "float", "inttypes", "iso646", "limits"),
    *("locale", "math", "setjmp", "signal", "stdarg", "stdbool", "stddef", "stdint", "stdio"),
    *("stdlib", "string", "tgmath", "time", "wchar", "wctype"),
)
_TAKEN = {*_C_LIBRARY, "kernels", *(p.stem.lower() for p in Path(__file__).parent.rglob("*.[ch]"))}
"""Names of files that the model's own cannot have."""

_OPS_IN_COMMENT = 12
_RETURN_FAILURE = ("    if (status != POETC_OK) {", "        return status;", "    }")
_END_FAILED_STEP = ("    if (status != POETC_OK) {", "        goto failed;", "    }")
_WIDTH = 100


def emit(
    module: ModuleOp,
    directory: str | Path,
    *,
    name: str = DEFAULT_NAME,
    stack_bytes: int = DEFAULT_STACK_BYTES,
    static_bytes: int | None = None,
    board: Board | None = None,
    ram_bytes: int | None = None,
    layout: str = DEFAULT_LAYOUT,
    executor: Executor | None = None,
) -> None:
    """Writes the one graph of `module` to `directory`, which appears complete or not at all.

    `name` begins all symbols of the model and names its files. `stack_bytes` is what is reserved
    for the stack, `static_bytes` for static data beside the arena (by default, what the stores of
    the layout or the board need); on a host both only enter the reported RAM. With a `board` the
    program is firmware that links into `ram_bytes` (by default, all that the board has), otherwise
    a library whose `layout` is one of libraries/. With an `executor` the schedule is not printed as
    C: the program runs plans (backends/plan/). If `directory` exists, generated files in it are
    replaced, the directory itself and other files are kept. Raises InputError for what cannot be
    generated or written, and if files that are not generated would be overwritten.
    """
    files = generate(
        module,
        name=name,
        stack_bytes=stack_bytes,
        static_bytes=static_bytes,
        board=board,
        ram_bytes=ram_bytes,
        layout=layout,
        executor=executor,
    )
    write_generated(files, directory)


def write_generated(files: Mapping[str, str], directory: str | Path) -> None:
    """Writes generated files as `emit` does: all or none, and over none that are not generated."""
    if not os.fspath(directory):
        raise InputError("cannot write to a directory without a name")
    try:
        _write(files, Path(os.path.realpath(directory)))
    except OSError as error:
        raise InputError(f"cannot write {directory}: {error.strerror}") from error


def generate(
    module: ModuleOp,
    *,
    name: str = DEFAULT_NAME,
    stack_bytes: int = DEFAULT_STACK_BYTES,
    static_bytes: int | None = None,
    board: Board | None = None,
    ram_bytes: int | None = None,
    layout: str = DEFAULT_LAYOUT,
    executor: Executor | None = None,
) -> dict[str, str]:
    """The content of every generated file by its path; the options are those of `emit`."""
    check_library(name, layout, board)
    arrangement = load_layout(layout)
    found = graphs(module)
    if len(found) != 1:
        raise InputError(f"C is generated from one graph, not {len(found)}")
    if board is not None and not board.dma:
        # A start would do all of the transfer: whole ones take less RAM.
        module = module.clone()
        found = graphs(module)
        join_transfers(found[0])
    if static_bytes is None:
        static_bytes = arrangement.static_bytes if board is None else board.static_bytes
        static_bytes += executor.state_bytes(found[0]) if executor is not None else 0
    if executor is None:
        program = Program(module, found[0], name, stack_bytes, static_bytes)
    else:
        program = executor.program(module, found[0], name, stack_bytes, static_bytes)
    used = {symbol for kernel in program.kernels for symbol in called_functions(kernel.function)}
    files = {
        f"{name}.h": program.header(),
        f"{name}.c": program.source(),
        "kernels.h": program.kernels_header(),
        "kernels.c": program.kernels_source("poetc_math.h" if used else None),
    }
    if used:
        files["poetc_math.h"], files["poetc_math.c"] = math_sources(used)
    copied = {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted(RUNTIME.iterdir())
        if path.name not in (_HOST_ONLY if board is not None else ())
        and path.name not in (_EXECUTOR if executor is None else ())
    }
    example = "main.c"
    if board is not None:
        example = "firmware.c"
        copied |= board_sources(board)
    copied[example] = renamed(copied[example], name)
    files |= {file: _marked(text) for file, text in copied.items()}
    if program.image is not None:
        comment = f"{_MARK} Parameters on storage, for poetc pack and poetc unpack."
        files[image_file(name)] = layout_text(program.image, comment)
    if board is None:
        library = Library(
            name,
            files,
            None if program.image is None else image_file(name),
            program.ram_bytes,
            program.stack_bytes,
            program.storage_bytes,
            _marked,
        )
        return indexed(arrangement.index, arrangement.arrange(library))
    firmware = _firmware(program, board, files, ram_bytes)
    files[LINKER_SCRIPT] = linker_script(firmware, _MARK)
    files["Makefile"] = makefile(firmware, _MARK)
    return indexed("Makefile", files)


def check_library(name: str | None, layout: str, board: Board | None) -> None:
    """Raises InputError for a name that symbols and files of a model cannot begin with, and for a
    layout that is unknown, or not one for that name or a board."""
    name = DEFAULT_NAME if name is None else name
    if not name or c_identifier(name) != name or not name[0].isalpha() or name.startswith("poetc"):
        raise InputError(f"{name!r} cannot begin the names of C symbols")
    if name.lower() in _TAKEN:  # some file systems do not tell upper case from lower
        raise InputError(f"{name!r} cannot be the name of a model: other files are called that")
    load_layout(layout).check_name(name)
    if board is not None and layout != DEFAULT_LAYOUT:
        raise InputError(
            f"firmware for {board.name} has a layout of its own; --layout={layout} is for the "
            "model as a library, without --board"
        )


def _marked(text: str) -> str:
    """C code with the mark in front."""
    return f"{c_comment(_MARK)}\n{text}"


def _firmware(
    program: Program, board: Board, files: Iterable[str], ram_bytes: int | None
) -> Firmware:
    """What the linker script and the Makefile of a board need to know."""
    if program.callers:
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
    )


def image_file(name: str = DEFAULT_NAME) -> str:
    """The name of the file that describes the storage image of a model."""
    return f"{name}_image.json"


def math_sources(symbols: Iterable[str]) -> tuple[str, str]:
    """`poetc_math.h` and `poetc_math.c` with the given functions and those that they call."""
    needed = {callee for symbol in symbols for callee in mathlib.callees(symbol)}
    functions = [(s, f) for s, f in mathlib.functions().items() if s in needed]
    prototypes: list[str] = []
    definitions: list[str] = []
    for symbol, function in functions:
        private = function.sym_visibility is not None and function.sym_visibility.data == "private"
        signature = Signature(symbol, static=private)
        definitions.append(print_function(function, signature))
        if not private:
            prototypes.append(print_prototype(function, signature))
    about = (
        f"{_MARK} Mathematical functions, printed from poetc's kernels/math.mlir:\n"
        "float32 only, the same bits on every target, within 2 ulp of the exact value."
    )
    header = _guarded("POETC_MATH_H", about, [], ["".join(prototypes)])
    includes = ['#include "poetc_math.h"', '#include "poetc_scalar.h"']
    source = "\n".join([c_comment(about), "\n".join(includes), "", "\n".join(definitions)])
    return header, source


# The program


@dataclass(frozen=True)
class Kernel:
    """A kernel function and the computes that call it."""

    function: FuncOp
    computes: Sequence[ComputeOp]
    signature: Signature


class Executor(Protocol):
    """What makes programs that take their schedule as data."""

    def state_bytes(self, graph: GraphOp) -> int:
        """Static data of such a program beside that of others; the graph need not be scheduled."""
        ...

    def program(
        self, module: ModuleOp, graph: GraphOp, name: str, stack_bytes: int, static_bytes: int
    ) -> Program: ...


class Program:
    """The text of one model."""

    fixed_places = True
    """Whether everything stays where this schedule has it, so that offsets can be published."""

    plan_sector_bytes = 0
    """Flash that firmware sets aside for a plan that is sent to it."""

    def __init__(
        self, module: ModuleOp, graph: GraphOp, name: str, stack_bytes: int, static_bytes: int
    ) -> None:
        self.module, self.graph, self.name = module, graph, name
        self.macro = name.upper()
        check_sizes(graph)
        self.arena_bytes = static_ram_bytes(graph)
        self.storage_bytes = graph.storage_bytes or 0
        self.stack_bytes, self.static_bytes = stack_bytes, static_bytes
        self.ram_bytes = self.arena_bytes + static_bytes + stack_bytes
        self.arguments = argument_places(graph)
        self.results = result_places(graph)
        self.callers = caller_names(graph)
        self.image = layout_of(graph)
        # The pages of updated parameters, old values and new ones: in one bank or the other.
        self.old_pages: set[SSAValue] = set()
        self.new_pages: set[SSAValue] = set()
        for argument in graph.arguments:
            new = graph.new_page(argument.index)
            if new is not None:
                self.old_pages.add(argument)
                self.new_pages.add(new.page)
        self.kernels = self._kernels()
        self.by_symbol = {k.function.sym_name.data: k for k in self.kernels}
        self.names = _value_names(graph)
        self.slots = transfer_slots(graph)
        self.transfers = max(self.slots.values(), default=-1) + 1

    def _kernels(self) -> list[Kernel]:
        functions = {op.sym_name.data: op for op in self.module.ops if isinstance(op, FuncOp)}
        callers: dict[str, list[ComputeOp]] = {}
        for compute in self.graph.computes:
            if compute.kernel is None:
                raise InputError(
                    f'poet.compute "{compute.label.data}" has no kernel; run poet-lower-kernels'
                )
            callers.setdefault(compute.kernel.root_reference.data, []).append(compute)
        kernels: list[Kernel] = []
        taken: set[str] = set()
        for symbol, computes in callers.items():
            identifier = unique(f"{self.name}_kernel_{c_identifier(symbol)}", taken)
            function = functions.get(symbol)
            if function is None or not function.body.blocks:
                raise InputError(f"kernel @{symbol} has no definition")
            overlapping = overlapping_arguments(function, computes, self.callers)
            kernels.append(Kernel(function, computes, Signature(identifier, False, overlapping)))
        return kernels

    # model.h

    def header(self) -> str:
        sizes = (
            c_comment(
                "RAM in bytes: the arena (arguments, results, everything between, workspace), the "
                "handle of the page store, and the stack reserved for a step; auxiliary storage."
            )
            + "\n"
            + defines(
                [
                    (f"{self.macro}_ARENA_BYTES", self.arena_bytes),
                    (f"{self.macro}_STATIC_BYTES", self.static_bytes),
                    (f"{self.macro}_STACK_BYTES", self.stack_bytes),
                    (f"{self.macro}_RAM_BYTES", self.ram_bytes),
                    (f"{self.macro}_STORAGE_BYTES", self.storage_bytes),
                ]
            )
        )
        if self.callers:
            bytes = sum(p.bytes for p in (*self.arguments, *self.results) if p.of_caller)
            comment = "Bytes of the buffers of the caller; not part of the RAM above."
            sizes += f"\n{c_comment(comment)}\n" + defines([(f"{self.macro}_CALLER_BYTES", bytes)])
        if self.image is not None:
            sizes += "\n" + self._image_sizes(self.image)
        counts = defines(
            [
                (f"{self.macro}_ARGUMENTS", len(self.arguments)),
                (f"{self.macro}_RESULTS", len(self.results)),
            ]
        )
        inputs = (
            "inputs are buffers of the caller."
            if self.callers
            else "inputs are written before each step, which reuses their bytes."
        )
        offsets = "Offsets are in bytes from the start of the arena"
        if not self.fixed_places:
            offsets = "Where they are in the arena is up to the plan"
        tensors = [
            c_comment(
                f"Arguments. {inputs.capitalize()} {offsets}, page offsets from that of the store "
                "(in bank 0)."
                if self.image is not None
                else "Arguments. Parameters are written once and stay in the arena; "
                f"{inputs} {offsets}."
            ),
            *(self._tensor("ARG", "Argument", i, place) for i, place in enumerate(self.arguments)),
            c_comment("Results, from the end of a step to the start of the next."),
            *(self._tensor("RESULT", "Result", i, place) for i, place in enumerate(self.results)),
        ]
        n = self.name
        step = (
            f"One step. `store` may be null if the model does not page ({self.macro}_STORAGE_BYTES "
            "is 0). After any status but POETC_OK the arena is to be filled anew, parameters "
            "included."
        )
        where = "Where argument and result `i` are in the arena, and their sizes."
        if self.image is not None:
            step = (
                "One step. `store` holds the image. After any status but POETC_OK its parameters "
                "are as before, and the step can be repeated once the arena is filled anew."
            )
            where = (
                "Where argument and result `i` are in the arena, and their sizes. Null for those "
                "on storage."
            )
        if self.callers:
            step += (
                " The other pointers are buffers of the caller, aligned to 4 bytes, that overlap "
                "neither each other nor anything else: inputs, which are left as they are, and "
                "results, which are good when it returns POETC_OK."
            )
            where = (
                "Where argument and result `i` are in the arena, and their sizes. Null for those "
                + ("of the caller or on storage." if self.image is not None else "of the caller.")
            )
        newline = "\n"
        functions = f"""\
#ifdef __cplusplus
extern "C" {{
#endif

{c_comment(step)}
{newline.join(self._prototype(";"))}

{self._caller_access()}{c_comment(where)}
void *{n}_argument(uint32_t i);
uint32_t {n}_argument_bytes(uint32_t i);
bool {n}_argument_is_parameter(uint32_t i);
const void *{n}_result(uint32_t i);
uint32_t {n}_result_bytes(uint32_t i);
{self.more_functions()}
#ifdef __cplusplus
}}
#endif
"""
        about = f"{_MARK} {self.about()}"
        includes = ["#include <stdbool.h>", "#include <stdint.h>", "", '#include "poetc_store.h"']
        body = [sizes, counts, "\n\n".join(tensors) + "\n", functions]
        return _guarded(f"{self.macro}_H", about, includes, body)

    def more_functions(self) -> str:
        """Declarations of what this kind of program has beside the others."""
        return ""

    def _prototype(self, end: str) -> list[str]:
        """The head of the function that does a step."""
        pointers = [
            f"{const}{element_c_type(place.type.element_type)} *{kind}{i}"
            for kind, const, places in (
                ("argument", "const ", self.arguments),
                ("result", "", self.results),
            )
            for i, place in enumerate(places)
            if place.of_caller
        ]
        start = f"poetc_status {self.name}_step("
        return wrapped(start, ["poetc_store *store", *pointers], f"){end}")

    def _caller_access(self) -> str:
        """For programs that do not know which buffers are theirs, such as the example."""
        if not self.callers:
            return ""
        n, macro = self.name, self.macro
        pointers = [
            f"({const}{element_c_type(place.type.element_type)} *)({kind})[{i}]"
            for kind, const, places in (
                ("argument", "const ", self.arguments),
                ("result", "", self.results),
            )
            for i, place in enumerate(places)
            if place.of_caller
        ]
        call = wrapped(f"    {n}_step(", ["store", *pointers], ")")
        comment = (
            "A step on arrays of pointers, by number; and whether argument and result `i` are "
        )
        return f"""\
{c_comment(comment + "buffers of the caller.")}
#define {macro}_STEP_ON(store, argument, result) \\
{(" " + chr(92) + chr(10)).join(call)}
bool {n}_argument_is_callers(uint32_t i);
bool {n}_result_is_callers(uint32_t i);

"""

    def _image_sizes(self, image: ImageLayout) -> str:
        comment = (
            "The storage image: what identifies its layout, the write unit that keeps its parts "
            "apart, the distance between the two pages of an updated parameter (poetc_image.h)."
        )
        return f"{c_comment(comment)}\n" + defines(
            [
                (f"{self.macro}_LAYOUT_ID", f"0x{image.identity:08x}u"),
                (f"{self.macro}_STORAGE_UNIT", image.unit_bytes),
                (f"{self.macro}_BANK_BYTES", image.bank_bytes),
            ]
        )

    def about(self) -> str:
        graph = self.graph
        return (
            f"Graph @{graph.sym_name.data}: {len(self.arguments)} arguments, "
            f"{len(self.results)} results, {len(graph.computes)} computes, "
            f"{len(self.kernels)} kernels."
        )

    def _tensor(self, kind: str, title: str, i: int, place: TensorPlace) -> str:
        role = ""
        if place.is_param:
            role = ", parameter"
        elif kind == "ARG":
            role = ", input"
        elif place.updates is not None:
            role = f", new value of argument {place.updates}"
        if place.on_storage:
            role += ", on storage"
        if place.of_caller:
            role += ", the caller's"
        if place.part_offsets:
            role += f", in {len(place.part_offsets)} parts"
        shape = "x".join(map(str, place.shape)) or "scalar"
        prefix = f"{self.macro}_{kind}{i}"
        type_ = element_c_type(place.type.element_type)
        comment = c_comment(f"{title} {i}: {place.name}, {type_} {shape}{role}")
        offset = f"{prefix}_PAGE_OFFSET" if place.on_storage else f"{prefix}_OFFSET"
        unknown = place.of_caller or (place.in_arena and not self.fixed_places)
        sizes = [] if unknown else [(offset, place.offset)]
        if place.part_offsets:
            sizes = [
                (f"{prefix}_PART{k}_PAGE_OFFSET", at) for k, at in enumerate(place.part_offsets)
            ]
        sizes.append((f"{prefix}_BYTES", place.bytes))
        return comment + "\n" + defines(sizes).rstrip()

    # model.c

    def source(self) -> str:
        n = self.name
        places = (*self.arguments, *self.results)
        lines = [
            c_comment(f"{_MARK} {self.about()}"),
            f'#include "{n}.h"',
            "",
            *([] if all(p.in_arena for p in places) else ["#include <stddef.h>", ""]),
            '#include "kernels.h"',
            *(['#include "poetc_image.h"'] if self.image is not None else []),
            "",
            *(_ARENA if self.arena_bytes else _NO_ARENA).format(macro=self.macro).splitlines(),
            "",
            *self._prototype(""),
            "{",
            *self._steps(),
            "}",
            "",
            *self._access("argument", "void *", self.arguments),
            f"bool {n}_argument_is_parameter(uint32_t i)",
            "{",
            *self._table("bool", "parameter", [str(a.is_param).lower() for a in self.arguments]),
            "    return parameter[i];",
            "}",
            "",
            *self._access("result", "const void *", self.results),
            *self._is_callers("argument", self.arguments),
            *self._is_callers("result", self.results),
        ]
        return "\n".join(lines).rstrip() + "\n"

    def _steps(self) -> list[str]:
        lines: list[str] = []
        pages = False
        for op in self.graph.block.ops:
            match op:
                case ComputeOp():
                    lines += ["", *_indented(self._comment(op)), *self._call(op)]
                case PageOutOp() | PageInOp() | PageOutStartOp() | PageInStartOp():
                    pages = True
                    lines += ["", *_indented(self._comment(op)), *self._transfer(op)]
                case WaitOp():
                    lines += ["", *_indented(self._comment(op)), *self._wait(op)]
                case FreeOp():
                    lines += _indented(self._comment(op))
                case ReturnOp():
                    lines += ["", *_indented(self._comment(op))]
                case _:
                    raise InputError(f"the C backend does not know {op.name}")
        if self.image is not None:
            lines = self._open() + lines + self._commit()
        else:
            start = ["    poetc_status status;"] if pages else ["    (void)store;"]
            lines = [*start, *lines, "    return POETC_OK;"]
        if not self.transfers:
            return lines
        return [
            # Not zero-initialised: compilers call memset for that.
            f"    poetc_transfer transfer[{self.transfers}];",
            f"    poetc_transfers_init(transfer, {self.transfers});",
            *lines,
            "",
            "failed:",
            "    /* Nothing uses the arena any more when the step is over. */",
            f"    return poetc_pages_abandon(store, transfer, {self.transfers}, status);",
        ]

    def _open(self) -> list[str]:
        """Which bank of the image has the current values of parameters."""
        macro = self.macro
        lines = [
            "    uint32_t sequence = 0;",
            *wrapped(
                "    poetc_status status = poetc_image_open(",
                ["store", f"{macro}_LAYOUT_ID", f"{macro}_STORAGE_UNIT", "&sequence"],
                ");",
            ),
            *_RETURN_FAILURE,
        ]
        if self.old_pages:
            lines += [
                "    /* Parameters are read from one bank, new values written to the other. */",
                f"    const uint32_t old_bank = (sequence & 1u) * {macro}_BANK_BYTES;",
                f"    const uint32_t new_bank = {macro}_BANK_BYTES - old_bank;",
            ]
        return lines

    def _commit(self) -> list[str]:
        if not self.old_pages:
            return ["    return POETC_OK;"]
        macro = self.macro
        return [
            "    /* Until here the old values are the current ones, then the new ones are. */",
            *wrapped(
                "    return poetc_image_commit(",
                ["store", f"{macro}_LAYOUT_ID", f"{macro}_STORAGE_UNIT", "sequence + 1u"],
                ");",
            ),
        ]

    def _comment(self, op: Operation) -> str:
        operands = ", ".join(self.names[v] for v in op.operands)
        results = ", ".join(self.names[v] for v in op.results)
        text = f"{results} = " if results else ""
        text += op.name
        if isinstance(op, ComputeOp):
            text += f' "{op.label.data}" ({operands})'
            for result, operand in op.inplace_pairs:
                text += f", {self.names[op.results[result]]} in place of "
                text += self.names[op.operands[operand]]
        else:
            text += f" {operands}"
        return c_comment(text, _WIDTH - 4)

    def _call(self, compute: ComputeOp) -> list[str]:
        assert compute.kernel is not None
        kernel = self.by_symbol[compute.kernel.root_reference.data]
        buffers = kernel_buffers(kernel.function, compute, self.callers)
        places = [buffer.name or f"at({buffer.offset})" for buffer in buffers]
        return wrapped(f"    {kernel.signature.name}(", places, ");")

    def _checked(self, function: str, arguments: Sequence[str]) -> list[str]:
        """A call whose failure ends the step."""
        end = _END_FAILED_STEP if self.transfers else _RETURN_FAILURE
        return [*wrapped(f"    status = {function}(", arguments, ");"), *end]

    def _wait(self, op: WaitOp) -> list[str]:
        return self._checked("poetc_page_wait", ["store", f"&transfer[{self.slots[op.start]}]"])

    def _transfer(self, op: AnyPageOut | AnyPageIn) -> list[str]:
        page, tensor = op.page, op.tensor
        offset = offset_of(page)
        if offset is None:
            raise InputError("a page has no place in storage; run poet-plan-memory first")
        size = tensor_bytes(tensor.type)
        what, bank, tag = "page", "", "0"
        if page in self.old_pages:
            what, bank, tag = "parameter", " + old_bank", "sequence"
        elif page in self.new_pages:
            what, bank, tag = "parameter", " + new_bank", "sequence + 1u"
        elif self.image is not None and transfer_of(page) is not None:
            self._verify_outside_image(offset, self.image)
        verb = "out" if isinstance(op, AnyPageOut) else "in"
        where = [f"{offset}{bank}", f"at({arena_offset(tensor)})", str(size)]
        if isinstance(op, PageOutStartOp | PageInStartOp):
            if verb == "in":
                what = "page"
            arguments = ["store", f"&transfer[{self.slots[op]}]", *where, tag]
            return self._checked(f"poetc_{what}_{verb}_start", arguments)
        tags = [tag] if what == "parameter" else []
        return self._checked(f"poetc_{what}_{verb}", ["store", *where, *tags])

    def _verify_outside_image(self, offset: int, image: ImageLayout) -> None:
        """A page of the step must not even share a write unit with parameters."""
        if offset < image.pages_start:
            raise InputError(
                f"a page of the step at {offset} is within the parameters on storage, "
                f"which end at {image.pages_start}"
            )

    def _access(self, kind: str, pointer: str, places: Sequence[TensorPlace]) -> list[str]:
        n = self.name
        return [
            f"{pointer}{' ' if pointer[-1] != '*' else ''}{n}_{kind}(uint32_t i)",
            "{",
            *self._offsets(places),
            "}",
            "",
            f"uint32_t {n}_{kind}_bytes(uint32_t i)",
            "{",
            *self._table("uint32_t", "bytes", [str(place.bytes) for place in places]),
            "    return bytes[i];",
            "}",
            "",
        ]

    def _offsets(self, places: Sequence[TensorPlace]) -> list[str]:
        if all(place.in_arena for place in places):
            offsets = [str(place.offset) for place in places]
            return [*self._table("uint32_t", "offset", offsets), "    return at(offset[i]);"]
        offsets = [str(place.offset) if place.in_arena else "UINT32_MAX" for place in places]
        return [
            *self._table("uint32_t", "offset", offsets),
            "    return offset[i] == UINT32_MAX ? NULL : at(offset[i]);",
        ]

    def _is_callers(self, kind: str, places: Sequence[TensorPlace]) -> list[str]:
        if not self.callers:
            return []
        return [
            f"bool {self.name}_{kind}_is_callers(uint32_t i)",
            "{",
            *self._table("bool", "callers", [str(place.of_caller).lower() for place in places]),
            "    return callers[i];",
            "}",
            "",
        ]

    def _table(self, type_: str, name: str, values: Sequence[str]) -> list[str]:
        values = values or ["0"]
        return wrapped(f"    static const {type_} {name}[{len(values)}] = {{", values, "};")

    # kernels.h and kernels.c

    def kernels_header(self) -> str:
        about = f"{_MARK} Kernels of {self.name}; none of them keeps anything between calls."
        prototypes = [print_prototype(k.function, k.signature) for k in self.kernels]
        return _guarded(
            f"{self.macro}_KERNELS_H", about, ["#include <stdint.h>"], ["\n".join(prototypes)]
        )

    def kernels_source(self, math_header: str | None) -> str:
        includes = ['#include "kernels.h"', ""]
        if math_header is not None:
            includes.append(f'#include "{math_header}"')
        includes.append('#include "poetc_scalar.h"')
        parts = [c_comment(f"{_MARK} Kernels of {self.name}."), "\n".join(includes) + "\n"]
        tables = dict.fromkeys(t for kernel in self.kernels for t in tables_of(kernel.function))
        parts += [print_table(table) for table in tables]
        for kernel in self.kernels:
            parts.append(
                c_comment(self._origin(kernel))
                + "\n"
                + print_function(kernel.function, kernel.signature)
            )
        return "\n".join(parts)

    def _origin(self, kernel: Kernel) -> str:
        """What the kernel computes and for which operations of the graph."""
        calls: dict[str, list[str]] = {}
        for compute in kernel.computes:
            results = ", ".join(self.names[result] for result in compute.results)
            results = f"({results})" if len(compute.results) > 1 else results
            calls.setdefault(compute.label.data, []).append(results)
        computes = "; ".join(
            f'"{label}" of {", ".join(results)}' for label, results in calls.items()
        )
        body = list(kernel.computes[0].block.ops)[:-1]
        ops: list[str] = []
        for op in body:
            location = source_location(op)
            ops.append(f"{op.name}:{location.line}" if location is not None else op.name)
        if len(ops) > _OPS_IN_COMMENT:
            ops = [*ops[:_OPS_IN_COMMENT], f"and {len(ops) - _OPS_IN_COMMENT} more"]
        return f"{computes}\nfrom {', '.join(ops) or 'its operands'}"


def _value_names(graph: GraphOp) -> Mapping[SSAValue, str]:
    """A name for each value, as in the IR: after its hint, or numbered."""
    taken: set[str] = set()
    names: dict[SSAValue, str] = {}
    values = (*graph.arguments, *(r for op in graph.block.ops for r in op.results))
    for number, value in enumerate(values):
        names[value] = "%" + unique(value.name_hint or str(number), taken)
    return names


# Text


def unique(name: str, taken: set[str]) -> str:
    unique = name
    number = 1
    while unique in taken:
        number += 1
        unique = f"{name}_{number}"
    taken.add(unique)
    return unique


def _indented(text: str) -> list[str]:
    return [f"    {line}" for line in text.splitlines()]


def wrapped(start: str, items: Sequence[str], end: str) -> list[str]:
    """`start`, a list, `end`: on one line if it is short."""
    line = f"{start}{', '.join(items)}{end}"
    if len(line) <= _WIDTH:
        return [line]
    indent = " " * (len(start) - len(start.lstrip()) + 4)
    body = textwrap.fill(
        ", ".join(items) + end,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [start, *body.splitlines()]


def defines(pairs: Sequence[tuple[str, int | str]]) -> str:
    width = max(len(name) for name, _ in pairs)
    return "".join(f"#define {name:{width}} {value}\n" for name, value in pairs)


def _guarded(macro: str, about: str, includes: Sequence[str], body: Sequence[str]) -> str:
    parts = [f"{c_comment(about)}\n#ifndef {macro}\n#define {macro}\n"]
    if includes:
        parts.append("\n".join(includes) + "\n")
    return "\n".join([*parts, *body, "#endif\n"])


# Files


def _write(files: Mapping[str, str], target: Path) -> None:
    """Writes all files to a temporary directory, then puts them in place with renames."""
    if target.exists() and not target.is_dir():
        raise InputError(f"cannot write {target}: it is not a directory")
    exists = target.exists()
    # In an existing target, as that may be a mount point, or its parent not be writable.
    place = target if exists else target.parent
    fresh = Path(tempfile.mkdtemp(dir=place, prefix=TEMPORARY_PREFIX))
    try:
        for name, text in files.items():
            (fresh / name).parent.mkdir(parents=True, exist_ok=True)
            (fresh / name).write_text(text, encoding="utf-8")
        if exists:
            _put_into(files, fresh, target)
        else:
            fresh.chmod(0o777 & ~umask())
            fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _put_into(files: Iterable[str], fresh: Path, target: Path) -> None:
    """Moves files from `fresh` to `target`, or leaves that as it was.

    Files of an earlier run that are not among them go, and directories that are empty without them.
    Raises InputError, before anything is changed, if a file that is not generated is in the way.
    """
    directories = _directories(files)
    there = [name for name in files if os.path.lexists(target / name)]
    foreign = [name for name in there if not _is_generated(target / name)]
    foreign += [d for d in directories if os.path.lexists(target / d) and not (target / d).is_dir()]
    if foreign:
        raise InputError(
            f"cannot write {target}: not generated by poetc, and would be overwritten: "
            + ", ".join(foreign)
        )
    stale = _earlier_files(target) - set(files)
    stale = {name for name in stale if _is_generated(target / name)}
    backup = Path(tempfile.mkdtemp(dir=fresh))
    for name in (*there, *stale):
        (backup / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(target / name, backup / name)
    made: list[Path] = []
    try:
        for directory in directories:
            if not (target / directory).exists():
                (target / directory).mkdir()
                made.append(target / directory)
        for name in files:
            (fresh / name).replace(target / name)
        for name in stale:
            (target / name).unlink()
        for directory in reversed(_directories(stale)):
            if not any((target / directory).iterdir()):
                (target / directory).rmdir()
    except BaseException:
        for name in files:
            if name not in there and not (fresh / name).exists():
                (target / name).unlink(missing_ok=True)
        for name in (*there, *stale):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (backup / name).replace(target / name)
        for directory in reversed(made):
            directory.rmdir()
        raise


def _directories(files: Iterable[str]) -> list[str]:
    """The directories that the files are in, outer ones first; not the one of all."""
    parents = {str(parent) for name in files for parent in PurePath(name).parents}
    return sorted(parents - {"."})


def _earlier_files(directory: Path) -> set[str]:
    """The files that the index of an earlier run lists.

    The mark alone does not tell what an earlier run wrote: the user may have copied a file.
    """
    indexes = [directory / name for name in INDEX_FILES]
    texts = [path.read_text(errors="replace") for path in indexes if _is_generated(path)]
    return {name for text in texts for name in indexed_files(text)}


def _is_generated(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return _MARK.encode() in file.read(len(_MARK) + 16)
