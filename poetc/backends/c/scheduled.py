"""A model whose schedule is code: the step does exactly what the graph says.

`model_step` has a call for each compute, page-out and page-in, at the offsets of the memory plan.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from poetc.backends.c.block_pages import BlockPages
from poetc.backends.c.buffers import kernel_buffers, kernel_symbol
from poetc.backends.c.layout import TensorPlace, arena_offset
from poetc.backends.c.program import Program
from poetc.backends.c.streams import (
    RETURN,
    checked_call,
    if_failed,
    most_ahead,
    slots_begin,
    slots_end,
)
from poetc.backends.c.text import (
    WIDTH,
    c_comment,
    c_identifier,
    indented,
    local_table,
    wrapped,
)
from poetc.budget import Budget
from poetc.errors import InputError
from poetc.image import ImageLayout
from poetc.ir.graph import tensor_bytes
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
    PageType,
    ReturnOp,
    RunOp,
    StreamOp,
    WaitOp,
    is_banked,
    offset_of,
    runs_of,
)
from poetc.ir.transfers import transfer_slots

_AT = """\

static void *at({first}uint32_t offset)
{{
#if defined(__clang__) && defined(__arm__)
    /* Otherwise clang computes the addresses of many tensors early, and keeps them on the stack. */
    __asm__ volatile("" : "+r"(offset));
#endif
    return &{arena}bytes[offset];
}}
"""

_NO_ARENA = """\
/* The arena is empty. Tensors without elements are here, where nothing is ever written. */
static const uint32_t nothing = 0;

static void *at({first}uint32_t offset)
{{
{unused}    return (void *)((uintptr_t)&nothing + offset);
}}
"""


_BEFORE = """\
#ifdef {macro}_HOOK
#define BEFORE(compute) \\
    do {{ \\
        if ({macro}_HOOK({instance}compute) != 0) {{ \\
            {end} \\
        }} \\
    }} while (0)

const char *{name}_compute_name(uint32_t compute)
{{
    static const char *const names[] = {{
        {names},
    }};
    return compute < {macro}_COMPUTES ? names[compute] : "";
}}
#else
#define BEFORE(compute) ((void)0)
#endif
"""


class ScheduledProgram(Program):
    """The text of one model whose step is printed as C."""

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
        super().__init__(module, graph, name, budget, arguments, instances=instances)
        # The pages of updated parameters, old values and new ones: in one bank or the other.
        self.old_pages: set[SSAValue] = set()
        self.new_pages: set[SSAValue] = set()
        for argument in graph.arguments:
            new = graph.new_page(argument.index)
            if new is not None:
                self.new_pages.add(new)
            if is_banked(graph, argument.index):
                self.old_pages.add(argument)
        own: list[SSAValue] = []
        for op in graph.block.ops:
            made = [op.page] if isinstance(op, AnyPageOut) else op.results
            streamed = isinstance(op, AnyPageOut | StreamOp)
            own += [page for page in made if streamed and isinstance(page.type, PageType)]
        self.own_pages = {
            page: k for k, page in enumerate((p for p in own if p not in self.new_pages), 1)
        }
        self.by_symbol = {k.function.sym_name.data: k for k in self.kernels}
        self.slots = transfer_slots(graph)
        self.transfers = max(self.slots.values(), default=-1) + 1
        streams = [op for op in graph.block.ops if isinstance(op, StreamOp)]
        self.transfers = max([self.transfers, *map(most_ahead, streams)])

    def memory(self) -> str:
        first = "".join(f"{each}, " for each in self.first())
        programs = (self, *self.entries)
        if not any(p.arguments or p.results or runs_of(p.graph) for p in programs):
            return self.arena() if self.instances else ""
        if not self.arena_bytes:
            unused = "    (void)instance;\n" if self.instances else ""
            opened = f"{self.arena()}\n" if self.instances else ""
            return opened + _NO_ARENA.format(first=first, unused=unused)
        arena = "instance->" if self.instances else "arena."
        return self.arena() + _AT.format(first=first, arena=arena)

    def functions(self) -> list[str]:
        blocks = BlockPages(self)
        body = [*self._unread(), *self.check(), *self._steps(blocks)]
        if self.instances and not any("instance" in line for line in body):
            body.insert(0, "    (void)instance;")
        before = [*blocks.definitions(), *self._before()]
        return [*before, *self.prototype(""), "{", *body, "}", ""]

    def hook(self) -> str:
        macro, computes = self.macro, len(runs_of(self.graph))
        if not computes:
            return ""
        about = (
            f"With {macro}_HOOK defined, for all files, as the name of a function: it is called "
            f"before each compute, with its number from 0 on, and with {macro}_COMPUTES at the "
            "end, before new parameters, if there are any, become the current ones. If it returns "
            "anything but 0 all ends with POETC_CANCELLED."
        )
        parameters = ", ".join([*(f"const {each}" for each in self.first()), "uint32_t compute"])
        return f"""\
{c_comment(about)}
#ifdef {macro}_HOOK
#define {macro}_COMPUTES {computes}
int {macro}_HOOK({parameters});
const char *{self.name}_compute_name(uint32_t compute);
#endif

"""

    def _before(self) -> list[str]:
        """The macro that runs between computes, if a program asks for one."""
        if not runs_of(self.graph):
            return []
        end = "return POETC_CANCELLED;"
        if self.transfers:
            end = "status = POETC_CANCELLED; goto failed;"
        names = [f'"{c_identifier(compute.label.data)}"' for compute in runs_of(self.graph)]
        text = _BEFORE.format(
            instance=self.instance,
            macro=self.macro,
            name=self.name,
            end=end,
            names=",\n        ".join(names),
        )
        again = ["#undef BEFORE"] if self.name != self.model else []
        return [*again, *text.splitlines(), ""]

    def _unread(self) -> list[str]:
        """Statements that use arguments which no kernel reads, against warnings of compilers."""
        return [
            f"    (void)argument{i};"
            for i, place in enumerate(self.arguments)
            if place.of_caller
            and not any(isinstance(use.operation, RunOp) for use in self.graph.arguments[i].uses)
        ]

    def lookup(self, kind: str, places: Sequence[TensorPlace]) -> list[str]:
        """By the offset in the arena."""
        offsets = [str(place.offset) if place.in_arena else "UINT32_MAX" for place in places]
        found = self.at("offset[i]")
        if not all(place.in_arena for place in places):
            found = f"offset[i] == UINT32_MAX ? NULL : {found}"
        return [*local_table("uint32_t", "offset", offsets), f"    return {found};"]

    def _steps(self, blocks: BlockPages) -> list[str]:
        lines: list[str] = []
        pages, computes = False, 0
        for op in self.graph.block.ops:
            match op:
                case ComputeOp():
                    before = f"    BEFORE({computes});"
                    computes += 1
                    lines += ["", *indented(self._comment(op)), before, *self._call(op)]
                case StreamOp():
                    pages = True
                    before = f"    BEFORE({computes});"
                    computes += 1
                    call = self._checked(*blocks.stream(op))
                    lines += ["", *indented(self._comment(op)), before, *call]
                case PageOutOp() | PageInOp() | PageOutStartOp() | PageInStartOp():
                    pages = True
                    lines += ["", *indented(self._comment(op))]
                    whole = self.graph.block_bytes is not None
                    lines += self._checked(*blocks.whole(op)) if whole else self._transfer(op)
                case WaitOp():
                    lines += ["", *indented(self._comment(op)), *self._wait(op)]
                case FreeOp():
                    lines += indented(self._comment(op))
                case ReturnOp():
                    lines += ["", *indented(self._comment(op))]
                case _:
                    raise InputError(f"the C backend does not know {op.name}")
        if computes:
            lines += ["", f"    BEFORE({computes});"]
        if self.image is not None:
            lines = self._open() + lines + self._commit()
        else:
            start = ["    poetc_status status;"] if pages else ["    (void)store;"]
            lines = [*start, *lines, "    return POETC_OK;"]
        return [*slots_begin(self.transfers), *lines, *slots_end(self.transfers)]

    def _open(self) -> list[str]:
        """The lines that open the image and find the bank with the current values of parameters."""
        macro = self.model.upper()
        lines = [
            "    poetc_state state = {0, 0, 0};",
            *wrapped(
                "    poetc_status status = poetc_image_open(",
                ["store", f"{macro}_LAYOUT_ID", f"{macro}_STORAGE_UNIT", "&state"],
                ");",
            ),
            *if_failed(RETURN),
        ]
        if self.new_pages or self.own_pages:
            lines += self._new_tag()
        if self.old_pages:
            lines += [
                "    /* Parameters are read from one bank, new values written to the other. */",
                f"    const uint32_t bank_bytes = {macro}_BANK_BYTES;",
                "    const uint32_t old_bank = (state.sequence & 1u) * bank_bytes;",
            ]
        if self.new_pages:
            lines += ["    const uint32_t new_bank = bank_bytes - old_bank;"]
        return lines

    def _new_tag(self) -> list[str]:
        lines = [
            "    /* What this step writes has a tag: a hash of all that it is given. */",
            *wrapped(
                "    state.new_tag = poetc_tag_word(",
                [f"{self.model.upper()}_BUILD_ID", "state.sequence"],
                ");",
            ),
        ]
        for i, place in enumerate(self.arguments):
            # A frozen argument is the same in each step, and may be large.
            if not place.on_storage and not place.frozen:
                where = self.at(place.offset) if place.in_arena else f"argument{i}"
                what = ["state.new_tag", where, str(place.bytes)]
                lines += wrapped("    state.new_tag = poetc_tag_bytes(", what, ");")
        return lines

    def _commit(self) -> list[str]:
        if not self.new_pages:
            return ["    return POETC_OK;"]
        macro = self.model.upper()
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
        if isinstance(op, RunOp):
            text += f' "{op.label.data}" ({operands})'
            for result, operand in op.inplace_pairs:
                text += f", {self.names[op.results[result]]} in place of "
                text += self.names[op.operands[operand]]
        else:
            text += f" {operands}"
        return c_comment(text, WIDTH - 4)

    def _call(self, compute: ComputeOp) -> list[str]:
        kernel = self.by_symbol[kernel_symbol(compute)]
        buffers = kernel_buffers(kernel.function, compute, self.callers)
        places = [buffer.name or self.at(buffer.offset) for buffer in buffers]
        return wrapped(f"    {kernel.signature.name}(", places, ");")

    def _checked(self, function: str, arguments: Sequence[str]) -> list[str]:
        """A call whose failure ends the step."""
        return checked_call(function, arguments, "goto failed;" if self.transfers else RETURN)

    def _wait(self, op: WaitOp) -> list[str]:
        return self._checked("poetc_page_wait", ["store", f"&transfer[{self.slots[op.start]}]"])

    def place_of(self, page: SSAValue, state: str) -> tuple[str, str]:
        """The offset of a page in the store, and its tag, a field of `state`; empty for none."""
        offset = offset_of(page)
        if offset is None:
            raise InputError("a page has no place in storage; run poet-plan-memory first")
        for which, pages in (("old", self.old_pages), ("new", self.new_pages)):
            if page in pages:
                return f"{offset}u + {which}_bank", f"{state}{which}_tag"
        tag = ""
        if (own := self.own_pages.get(page)) is not None:
            # Pages that another step left there, or this one before, have another tag.
            if self.image is not None:
                _verify_outside_image(offset, self.image)
                tag = f"{state}new_tag + {own}u"
            elif self.graph.block_bytes is not None:
                tag = f"{own}u"
        return f"{offset}u", tag

    def _transfer(self, op: AnyPageOut | AnyPageIn) -> list[str]:
        page, tensor = op.page, op.tensor
        offset, tag = self.place_of(page, "state.")
        what = "parameter" if page in self.old_pages | self.new_pages else "page"
        verb = "out" if isinstance(op, AnyPageOut) else "in"
        where = [offset, self.at(arena_offset(tensor)), str(tensor_bytes(tensor.type))]
        if isinstance(op, PageOutStartOp | PageInStartOp):
            if verb == "in":
                what = "page"
            arguments = ["store", f"&transfer[{self.slots[op]}]", *where, tag or "0"]
            return self._checked(f"poetc_{what}_{verb}_start", arguments)
        if not tag:
            return self._checked(f"poetc_{what}_{verb}", ["store", *where])
        tagged = "_tagged" if what == "page" else ""
        return self._checked(f"poetc_{what}_{verb}{tagged}", ["store", *where, tag])


def _verify_outside_image(offset: int, image: ImageLayout) -> None:
    """A page of the step must not even share a write unit with parameters."""
    if offset < image.pages_start:
        raise InputError(
            f"a page of the step at {offset} is within the parameters on storage, "
            f"which end at {image.pages_start}"
        )
