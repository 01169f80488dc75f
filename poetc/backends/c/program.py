"""A model as C: the schedule of its graph, its kernels, access to arguments and results.

`model.c` does exactly what the graph says: a call for each compute, page-out and page-in, at the
offsets of the memory plan.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from poetc.backends.c.buffers import kernel_buffers, overlapping_arguments
from poetc.backends.c.check import check_function
from poetc.backends.c.expressions import element_c_type
from poetc.backends.c.layout import (
    TensorPlace,
    arena_alignment,
    arena_offset,
    argument_places,
    caller_names,
    check_sizes,
    result_places,
    static_ram_bytes,
)
from poetc.backends.c.libraries.library import MARK
from poetc.backends.c.printer import (
    Signature,
    print_array,
    print_function,
    print_prototype,
    print_table,
    tables_of,
)
from poetc.backends.c.text import (
    WIDTH,
    c_comment,
    c_identifier,
    guarded,
    indented,
    local_table,
    unique,
    wrapped,
)
from poetc.budget import Budget
from poetc.errors import InputError
from poetc.image import ImageLayout, image_file, layout_of
from poetc.ir.dense import dtype_of
from poetc.ir.graph import tensor_bytes
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
from poetc.ir.transfers import transfer_slots
from poetc.tensors import ProgramTensor, ProgramTensors

_ARENA = """\
/* Aligned for the element types of all tensors. */
static union {{
    uint{alignment_bits}_t alignment;
    uint8_t bytes[{macro}_ARENA_BYTES];
}} arena{on_lines};
"""

_AT = """\

static void *at(uint32_t offset)
{
#if defined(__clang__) && defined(__arm__)
    /* Otherwise clang computes the addresses of many tensors early, and keeps them on the stack. */
    __asm__ volatile("" : "+r"(offset));
#endif
    return &arena.bytes[offset];
}
"""

_NO_ARENA = """\
/* The arena is empty. Tensors without elements are here, where nothing is ever written. */
static const uint32_t nothing = 0;

static void *at(uint32_t offset)
{
    return (void *)((uintptr_t)&nothing + offset);
}
"""

_OPS_IN_COMMENT = 12
_RETURN_FAILURE = ("    if (status != POETC_OK) {", "        return status;", "    }")
_END_FAILED_STEP = ("    if (status != POETC_OK) {", "        goto failed;", "    }")


@dataclass(frozen=True)
class Kernel:
    """A kernel function and the computes that call it."""

    function: FuncOp
    computes: Sequence[ComputeOp]
    signature: Signature


class Program:
    """The text of one model.

    A subclass may do steps in another way: then it has other `memory`, `functions` and `lookup`.
    """

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
    ) -> None:
        self.module, self.graph, self.name = module, graph, name
        self.macro = name.upper()
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
                        "which C has no constants for: --frozen=off"
                    )
            self.arguments = tuple(
                replace(place, of_caller=place.of_caller and i not in self.frozen)
                for i, place in enumerate(self.arguments)
            )
        self.results = result_places(graph)
        self.has_null = not all(place.in_arena for place in (*self.arguments, *self.results))
        self.callers = caller_names(graph)
        for i, argument in enumerate(graph.arguments):
            if i in self.frozen:
                self.callers[argument] = self.frozen_name(i)
        self.has_pointers = any(p.of_caller for p in (*self.arguments, *self.results))
        self.image = layout_of(graph)
        # The pages of updated parameters, old values and new ones: in one bank or the other.
        self.old_pages: set[SSAValue] = set()
        self.new_pages: set[SSAValue] = set()
        for argument in graph.arguments:
            new = graph.new_page(argument.index)
            if new is not None:
                self.old_pages.add(argument)
                self.new_pages.add(new.page)
        own = (op.page for op in graph.block.ops if isinstance(op, AnyPageOut))
        self.own_pages = {
            page: k for k, page in enumerate((p for p in own if p not in self.new_pages), 1)
        }
        self.kernels = self._kernels()
        self.by_symbol = {k.function.sym_name.data: k for k in self.kernels}
        self.names = _value_names(graph)
        self.slots = transfer_slots(graph)
        self.transfers = max(self.slots.values(), default=-1) + 1

    def frozen_name(self, i: int) -> str:
        """The array that is frozen argument `i`."""
        return f"{self.name}_frozen{i}"

    def frozen_source(self) -> str:
        """`model_frozen.c`: the frozen arguments as constants."""
        comment = f"{MARK} What the step reads and never writes, for flash."
        arrays = [
            f"{c_comment(f'Argument {i}: {self.arguments[i].name}')}\n"
            + print_array(f"const {self.frozen_type(i)} {self.frozen_name(i)}", array.reshape(-1))
            for i, array in self.frozen.items()
        ]
        return "\n".join([c_comment(comment), f'#include "{self.name}.h"\n', *arrays])

    def frozen_type(self, i: int) -> str:
        """The C type of the elements of frozen argument `i`."""
        return element_c_type(self.arguments[i].type.element_type)

    def published_offset(self, place: TensorPlace) -> int | None:
        """The offset of an argument or result that others may rely on, if it has one."""
        unknown = place.of_caller or place.frozen or (place.in_arena and not self.fixed_places)
        return None if unknown or place.part_offsets else place.offset

    def tensors(self) -> ProgramTensors:
        """Arguments, results and sizes as data."""
        return ProgramTensors(
            self.name,
            tuple(map(self._tensor, self.arguments)),
            tuple(map(self._tensor, self.results)),
            self.arena_bytes,
            self.static_bytes,
            self.stack_bytes,
            self.ram_bytes,
            self.storage_bytes,
            None if self.image is None else image_file(self.name),
        )

    def _tensor(self, place: TensorPlace) -> ProgramTensor:
        return ProgramTensor(
            place.name,
            str(dtype_of(place.type.element_type)),
            place.shape,
            place.bytes,
            _where(place),
            self.published_offset(place),
            place.part_offsets,
            place.is_param,
            place.updates,
        )

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

    def prototype(self, end: str) -> list[str]:
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

    def about(self) -> str:
        graph = self.graph
        return (
            f"Graph @{graph.sym_name.data}: {len(self.arguments)} arguments, "
            f"{len(self.results)} results, {len(graph.computes)} computes, "
            f"{len(self.kernels)} kernels."
        )

    # model.c

    def source(self) -> str:
        """`model.c`."""
        headers = ["kernels.h", *(["poetc_image.h"] if self.image is not None else [])]
        lines = [
            c_comment(f"{MARK} {self.about()}"),
            f'#include "{self.name}.h"',
            "",
            *(["#include <stddef.h>", ""] if self.has_null else []),
            *(f'#include "{header}"' for header in (*headers, *self.headers)),
            "",
            *self.memory().splitlines(),
            "",
            *self.functions(),
            *self._access("argument", "void *", self.arguments),
            f"bool {self.name}_argument_is_parameter(uint32_t i)",
            "{",
            *local_table("bool", "parameter", [str(a.is_param).lower() for a in self.arguments]),
            "    return parameter[i];",
            "}",
            "",
            *self._access("result", "const void *", self.results),
            *self._is_callers("argument", self.arguments),
            *self._is_callers("result", self.results),
        ]
        return "\n".join(lines).rstrip() + "\n"

    def memory(self) -> str:
        """What is in RAM, and `at`, which says where something is there."""
        return self.arena() + _AT if self.arena_bytes else _NO_ARENA

    def arena(self) -> str:
        """The arena."""
        on_lines = " POETC_ON_LINES" if self.graph.cache_line_bytes else ""
        bits = 8 * arena_alignment(self.graph)
        return _ARENA.format(macro=self.macro, on_lines=on_lines, alignment_bits=bits)

    def functions(self) -> list[str]:
        """`model_step`, and what it needs."""
        body = [*self._unread(), *self.check(), *self._steps()]
        return [*self.prototype(""), "{", *body, "}", ""]

    def _unread(self) -> list[str]:
        """What keeps compilers from warning of arguments that no kernel reads."""
        return [
            f"    (void)argument{i};"
            for i, place in enumerate(self.arguments)
            if place.of_caller
            and not any(
                isinstance(use.operation, ComputeOp) for use in self.graph.arguments[i].uses
            )
        ]

    def check(self) -> list[str]:
        """The beginning of a step: nothing is done where it would be done wrong."""
        return [
            f"    const poetc_status checked = {self.name}_check();",
            "    if (checked != POETC_OK) {",
            "        return checked;",
            "    }",
        ]

    def more_functions(self) -> str:
        """Declarations of what this kind of program has beside the others."""
        return ""

    def lookup(self, kind: str, places: Sequence[TensorPlace]) -> list[str]:
        """The body of `model_argument` or `model_result`."""
        offsets = [str(place.offset) if place.in_arena else "UINT32_MAX" for place in places]
        found = "at(offset[i])"
        if not all(place.in_arena for place in places):
            found = f"offset[i] == UINT32_MAX ? NULL : {found}"
        return [*local_table("uint32_t", "offset", offsets), f"    return {found};"]

    def _steps(self) -> list[str]:
        lines: list[str] = []
        pages = False
        for op in self.graph.block.ops:
            match op:
                case ComputeOp():
                    lines += ["", *indented(self._comment(op)), *self._call(op)]
                case PageOutOp() | PageInOp() | PageOutStartOp() | PageInStartOp():
                    pages = True
                    lines += ["", *indented(self._comment(op)), *self._transfer(op)]
                case WaitOp():
                    lines += ["", *indented(self._comment(op)), *self._wait(op)]
                case FreeOp():
                    lines += indented(self._comment(op))
                case ReturnOp():
                    lines += ["", *indented(self._comment(op))]
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
            "    poetc_state state = {0, 0, 0};",
            *wrapped(
                "    poetc_status status = poetc_image_open(",
                ["store", f"{macro}_LAYOUT_ID", f"{macro}_STORAGE_UNIT", "&state"],
                ");",
            ),
            *_RETURN_FAILURE,
            "    /* What this step writes has a tag: a hash of all that it is given. */",
            *wrapped(
                "    state.new_tag = poetc_tag_word(",
                [f"{macro}_BUILD_ID", "state.sequence"],
                ");",
            ),
        ]
        for i, place in enumerate(self.arguments):
            # What is frozen is the same in each step, and may be large.
            if not place.on_storage and not place.frozen:
                where = f"at({place.offset})" if place.in_arena else f"argument{i}"
                what = ["state.new_tag", where, str(place.bytes)]
                lines += wrapped("    state.new_tag = poetc_tag_bytes(", what, ");")
        if self.old_pages:
            lines += [
                "    /* Parameters are read from one bank, new values written to the other. */",
                f"    const uint32_t old_bank = (state.sequence & 1u) * {macro}_BANK_BYTES;",
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
                ["store", f"{macro}_LAYOUT_ID", f"{macro}_STORAGE_UNIT", "&state"],
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
        return c_comment(text, WIDTH - 4)

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
        what, bank, tag = "page", "", ""
        if page in self.old_pages:
            what, bank, tag = "parameter", " + old_bank", "state.old_tag"
        elif page in self.new_pages:
            what, bank, tag = "parameter", " + new_bank", "state.new_tag"
        elif self.image is not None and transfer_of(page) is not None:
            self._verify_outside_image(offset, self.image)
            # What another step left there, or this one before, is none of them.
            tag = f"state.new_tag + {self.own_pages[page]}u"
        verb = "out" if isinstance(op, AnyPageOut) else "in"
        where = [f"{offset}{bank}", f"at({arena_offset(tensor)})", str(size)]
        if isinstance(op, PageOutStartOp | PageInStartOp):
            if verb == "in":
                what = "page"
            arguments = ["store", f"&transfer[{self.slots[op]}]", *where, tag or "0"]
            return self._checked(f"poetc_{what}_{verb}_start", arguments)
        if not tag:
            return self._checked(f"poetc_{what}_{verb}", ["store", *where])
        tagged = "_tagged" if what == "page" else ""
        return self._checked(f"poetc_{what}_{verb}{tagged}", ["store", *where, tag])

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
            *self.lookup(kind, places),
            "}",
            "",
            f"uint32_t {n}_{kind}_bytes(uint32_t i)",
            "{",
            *local_table("uint32_t", "bytes", [str(place.bytes) for place in places]),
            "    return bytes[i];",
            "}",
            "",
        ]

    def _is_callers(self, kind: str, places: Sequence[TensorPlace]) -> list[str]:
        if not self.has_pointers:
            return []
        return [
            f"bool {self.name}_{kind}_is_callers(uint32_t i)",
            "{",
            *local_table("bool", "callers", [str(place.of_caller).lower() for place in places]),
            "    return callers[i];",
            "}",
            "",
        ]

    # kernels.h and kernels.c

    def kernels_header(self) -> str:
        about = f"{MARK} Kernels of {self.name}; none of them keeps anything between calls."
        prototypes = [print_prototype(k.function, k.signature) for k in self.kernels]
        return guarded(
            f"{self.macro}_KERNELS_H", about, ["#include <stdint.h>"], ["\n".join(prototypes)]
        )

    def kernels_source(self, kernels: Sequence[Kernel], symbols: Collection[str]) -> str:
        """`kernels.c` with these kernels, which call the mathematical functions `symbols`."""
        headers = [f"{self.name}.h", "poetc_check.h", *(["poetc_math.h"] if symbols else [])]
        includes = ['#include "kernels.h"', ""]
        includes += [f'#include "{header}"' for header in (*headers, "poetc_scalar.h")]
        parts = [c_comment(f"{MARK} Kernels of {self.name}."), "\n".join(includes) + "\n"]
        tables = dict.fromkeys(t for kernel in kernels for t in tables_of(kernel.function))
        parts += [print_table(table) for table in tables]
        for kernel in kernels:
            parts.append(
                c_comment(self._origin(kernel))
                + "\n"
                + print_function(kernel.function, kernel.signature)
            )
        parts.append(check_function(self.name, symbols))
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


def _where(place: TensorPlace) -> str:
    """Where an argument or result is, as `model_tensors.json` says it."""
    if place.on_storage:
        return "storage"
    if place.of_caller:
        return "caller"
    return "frozen" if place.frozen else "arena"
