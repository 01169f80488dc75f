"""A model as C: its sizes and places, its kernels, access to arguments and results.

How a step is done is up to the kind of program: one has its schedule as code (scheduled.py), the
other takes it as data (backends/plan/source.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from poetc.backends.c.buffers import (
    Buffer,
    kernel_buffers,
    kernel_calls,
    overlapping_arguments,
    tile_buffers,
)
from poetc.backends.c.expressions import element_c_type
from poetc.backends.c.layout import (
    TensorPlace,
    arena_alignment,
    argument_places,
    caller_names,
    check_sizes,
    result_places,
    static_ram_bytes,
)
from poetc.backends.c.libraries.library import MARK
from poetc.backends.c.printer import Signature, print_array
from poetc.backends.c.text import c_comment, c_identifier, in_section, local_table, unique, wrapped
from poetc.budget import Budget
from poetc.errors import InputError
from poetc.image import image_file, layout_of
from poetc.ir.poet import ComputeOp, GraphOp, RunOp, StreamOp, TileOp, runs_of
from poetc.saved import saved_layout
from poetc.tensors import ProgramTensor, ProgramTensors

if TYPE_CHECKING:
    from poetc.backends.c.entries import EntryProgram

_ARENA = """\
{section}
/* Aligned for the element types of all tensors. */
static union {{
    uint{alignment_bits}_t alignment;
    uint8_t bytes[{macro}_ARENA_BYTES];
}} arena IN_SECTION{on_lines};
"""

_OPEN = """\
poetc_status {name}_open(void *memory, uint32_t bytes, {name}_instance **instance)
{{
    *instance = NULL;
    if (memory == NULL || bytes < sizeof **instance) {{
        return POETC_TOO_SMALL;
    }}
    if ((uintptr_t)memory % {macro}_ARENA_ALIGNMENT != 0u) {{
        return POETC_MISALIGNED;
    }}
    *instance = ({name}_instance *)memory;
    return POETC_OK;
}}
"""


@dataclass(frozen=True)
class Kernel:
    """A kernel function and the computes that call it, or a tile function and the streams."""

    function: FuncOp
    computes: Sequence[RunOp]
    signature: Signature


class Program:
    """The text of one model; a subclass says how its steps are done."""

    headers: tuple[str, ...] = ()
    """Headers of the runtime that `model.c` includes beside those of kernels and image."""

    fixed_places = True
    """Whether everything stays where this schedule has it, so that offsets can be published."""

    plan_sector_bytes = 0
    """Flash that firmware sets aside for a plan that is sent to it."""

    def __init__(
        self,
        module: ModuleOp,
        graph: GraphOp,
        name: str,
        budget: Budget,
        arguments: Sequence[np.ndarray] = (),
        *,
        instances: bool = False,
    ) -> None:
        self.module, self.graph, self.name = module, graph, name
        self.instances = instances
        self.macro = name.upper()
        # Of an entry point, these are not called after it.
        self.model, self.function = name, f"{name}_step"
        self.parameters: Mapping[int, int] = {}
        self.entries: tuple[EntryProgram, ...] = ()
        self.alignment = arena_alignment(graph)
        check_sizes(graph)
        self.arena_bytes = static_ram_bytes(graph)
        self.storage_bytes = graph.storage_bytes or 0
        self.stack_bytes, self.static_bytes = budget.stack_bytes, budget.static_bytes
        self.ram_bytes = budget.used_bytes(self.arena_bytes)
        self.arguments = argument_places(graph)
        # The frozen arguments that are part of the program.
        self.frozen: dict[int, np.ndarray] = {}
        if arguments:
            self.frozen = {i: arguments[i] for i, p in enumerate(self.arguments) if p.frozen}
            for i, array in self.frozen.items():
                if array.dtype == np.float32 and not np.isfinite(array).all():
                    raise InputError(
                        f"argument {self.arguments[i].name} is frozen and has infinities or NaN, "
                        "which C has no constants for: --frozen=off or --frozen=storage"
                    )
            self.arguments = tuple(
                replace(place, of_caller=place.of_caller and i not in self.frozen)
                for i, place in enumerate(self.arguments)
            )
        self.results = result_places(graph)
        self.callers = caller_names(graph)
        for i, argument in enumerate(graph.arguments):
            if i in self.frozen:
                self.callers[argument] = self.frozen_name(i)
        self.has_pointers = any(p.of_caller for p in (*self.arguments, *self.results))
        self.image = layout_of(graph)
        self.saved = saved_layout(self.tensors())
        self.kernels = self._kernels()
        self.names = _value_names(graph)

    def frozen_name(self, i: int) -> str:
        """The array that is frozen argument `i`."""
        return f"{self.name}_frozen{i}"

    def frozen_source(self) -> str:
        """`model_frozen.c`: the frozen arguments as constants."""
        comment = f"{MARK} What the step reads and never writes, for flash."
        arrays = [
            f"{c_comment(f'Argument {i}: {self.arguments[i].name}')}\n"
            + print_array(
                f"const {self.frozen_type(i)} {self.frozen_name(i)}",
                array.reshape(-1),
                "IN_SECTION",
            )
            for i, array in self.frozen.items()
        ]
        section = in_section(self.macro, "CONST")
        return "\n".join([c_comment(comment), f'#include "{self.name}.h"\n', section, *arrays])

    def frozen_type(self, i: int) -> str:
        """The C type of the elements of frozen argument `i`."""
        return element_c_type(self.arguments[i].type.element_type)

    def published_offset(self, place: TensorPlace) -> int | None:
        """The offset of an argument or result that others may rely on, if it has one."""
        unknown = place.of_caller or place.frozen or (place.in_arena and not self.fixed_places)
        return None if unknown else place.offset

    def tensors(self) -> ProgramTensors:
        """Arguments, results and sizes as data."""
        return ProgramTensors(
            self.name,
            self.described(self.arguments),
            self.described(self.results),
            self.arena_bytes,
            self.static_bytes,
            self.stack_bytes,
            self.ram_bytes,
            self.storage_bytes,
            None if self.image is None else image_file(self.name),
            {e.name.removeprefix(f"{self.name}_"): e.entry_tensors() for e in self.entries},
        )

    def described(self, places: Sequence[TensorPlace]) -> tuple[ProgramTensor, ...]:
        """Arguments or results as data."""
        return tuple(place.described(self.published_offset(place)) for place in places)

    def _kernels(self) -> list[Kernel]:
        kernels: list[Kernel] = []
        taken: set[str] = set()
        for function, found in kernel_calls(self.module, self.graph):
            symbol = function.sym_name.data
            identifier = unique(f"{self.name}_kernel_{c_identifier(symbol)}", taken)
            calls = [self._buffers(function, op) for op in found]
            overlapping = overlapping_arguments(function, calls)
            runs = list(dict.fromkeys(map(_run_of, found)))
            kernels.append(Kernel(function, runs, Signature(identifier, False, overlapping)))
        return kernels

    def _buffers(self, function: FuncOp, op: ComputeOp | TileOp) -> list[Buffer]:
        """The buffers that a kernel or tile function is called with."""
        if isinstance(op, ComputeOp):
            return kernel_buffers(function, op, self.callers)
        stream = _run_of(op)
        assert isinstance(stream, StreamOp)
        return tile_buffers(stream, op, self.callers)

    def prototype(self, end: str) -> list[str]:
        """The head of the function that does a step."""
        start = f"poetc_status {self.function}("
        return wrapped(start, [*self.first(), "poetc_store *store", *self.pointers()], f"){end}")

    def pointers(self) -> list[str]:
        """The parameters of that function that are buffers of the caller."""
        return [f"{type_}{kind}{i}" for kind, i, type_ in self.callers_buffers()]

    def callers_buffers(self) -> list[tuple[str, int, str]]:
        """The arguments and results that are buffers of the caller: "argument" or "result", the
        number, and the type of a pointer to it."""
        return [
            (kind, i, f"{const}{element_c_type(place.type.element_type)} *")
            for kind, const, places in (
                ("argument", "const ", self.arguments),
                ("result", "", self.results),
            )
            for i, place in enumerate(places)
            if place.of_caller
        ]

    def first(self) -> list[str]:
        """The first parameter of functions that need the arena."""
        return [f"{self.model}_instance *instance"] if self.instances else []

    @property
    def instance(self) -> str:
        """The first argument in calls of those functions, with its comma; empty without
        instances."""
        return "instance, " if self.instances else ""

    def at(self, offset: int | str) -> str:
        """The C expression of a place in the arena."""
        return f"at({self.instance}{offset})"

    def about(self) -> str:
        """Sizes of the model, as comments say them."""
        graph = self.graph
        return (
            f"Graph @{graph.sym_name.data}: {len(self.arguments)} arguments, "
            f"{len(self.results)} results, {len(runs_of(graph))} computes, "
            f"{len(self.kernels)} kernels."
        )

    def source(self) -> str:
        """`model.c`."""
        programs = (self, *self.entries)
        headers = [f"{self.name}_kernels.h", *(["poetc_image.h"] if self.image is not None else [])]
        headers += ["poetc_slice.h"] if self.graph.block_bytes is not None else []
        lines = [
            c_comment(f"{MARK} {self.about()}"),
            f'#include "{self.name}.h"',
            "",
            "#include <stddef.h>",
            "",
            *(f'#include "{header}"' for header in (*headers, *self.headers)),
            "",
            *self.memory().splitlines(),
            "",
            *(line for program in programs for line in program.code()),
        ]
        return "\n".join(lines).rstrip() + "\n"

    def code(self) -> list[str]:
        """The functions of the step, or of an entry point."""
        return [
            *self.functions(),
            *self._access("argument", "void *", self.arguments),
            *self._table(
                "bool", "argument_is_parameter", [str(a.is_param).lower() for a in self.arguments]
            ),
            *self._access("result", "const void *", self.results),
            *self._is_callers("argument", self.arguments),
            *self._is_callers("result", self.results),
        ]

    def memory(self) -> str:
        """The definitions of what is in RAM, and of `at`, which gives the address of an offset."""
        raise NotImplementedError

    def arena(self) -> str:
        """The arena."""
        if self.instances:
            return _OPEN.format(name=self.model, macro=self.macro)
        on_lines = " POETC_ON_LINES" if self.graph.cache_line_bytes else ""
        bits = 8 * self.alignment
        section = in_section(self.macro, "ARENA")
        return _ARENA.format(
            macro=self.macro, section=section, on_lines=on_lines, alignment_bits=bits
        )

    def functions(self) -> list[str]:
        """`model_step`, and what it needs."""
        raise NotImplementedError

    def check(self) -> list[str]:
        """The beginning of a step: nothing is done where it would be done wrong."""
        return [
            f"    const poetc_status checked = {self.model}_check();",
            "    if (checked != POETC_OK) {",
            "        return checked;",
            "    }",
        ]

    def more_functions(self) -> str:
        """Declarations of what this kind of program has beside the others."""
        return ""

    def hook(self) -> str:
        """The comment in the header on the function that a step calls between computes."""
        return ""

    def lookup(self, kind: str, places: Sequence[TensorPlace]) -> list[str]:
        """The body of `model_argument` or `model_result`, as `kind` says."""
        raise NotImplementedError

    def _access(self, kind: str, pointer: str, places: Sequence[TensorPlace]) -> list[str]:
        unused = ["(void)instance;"] if self.instances else []
        return [
            f"{pointer}{self.name}_{kind}({', '.join([*self.first(), 'uint32_t i'])})",
            "{",
            *(_checked(places, "NULL", unused) + (self.lookup(kind, places) if places else [])),
            "}",
            "",
            *self._table("uint32_t", f"{kind}_bytes", [str(place.bytes) for place in places]),
        ]

    def _table(self, type_: str, what: str, values: Sequence[str]) -> list[str]:
        """A function that gives one of some values, by number."""
        nothing = "false" if type_ == "bool" else "0"
        found = [*local_table(type_, "value", values), "    return value[i];"] if values else []
        return [
            f"{type_} {self.name}_{what}(uint32_t i)",
            "{",
            *_checked(values, nothing),
            *found,
            "}",
            "",
        ]

    def _is_callers(self, kind: str, places: Sequence[TensorPlace]) -> list[str]:
        if not self.has_pointers:
            return []
        callers = [str(place.of_caller).lower() for place in places]
        return self._table("bool", f"{kind}_is_callers", callers)


def _run_of(op: Operation) -> RunOp:
    """The compute or stream that an operation is, or is in the tiles of."""
    while not isinstance(op, RunOp):
        parent = op.parent_op()
        assert parent is not None
        op = parent
    return op


def _checked(all: Sequence[object], nothing: str, unused: Sequence[str] = ()) -> list[str]:
    """Lines that return `nothing` if there is no number `i` among `all`."""
    if not all:
        return [f"    {line}" for line in (*unused, "(void)i;", f"return {nothing};")]
    return [f"    if (i >= {len(all)}u) {{", f"        return {nothing};", "    }"]


def _value_names(graph: GraphOp) -> Mapping[SSAValue, str]:
    """A name for each value, as in the IR: after its hint, or numbered."""
    taken: set[str] = set()
    names: dict[SSAValue, str] = {}
    values = (*graph.arguments, *(r for op in graph.block.ops for r in op.results))
    for number, value in enumerate(values):
        names[value] = "%" + unique(value.name_hint or str(number), taken)
    return names
