"""Prints `model.h`: sizes and places as macros, and the functions of a model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from poetc.backends.c.accessors import accessors
from poetc.backends.c.check import ABOUT
from poetc.backends.c.expressions import element_c_type
from poetc.backends.c.layout import TensorPlace, arena_alignment
from poetc.backends.c.libraries.library import MARK
from poetc.backends.c.save import save_functions, save_macros
from poetc.backends.c.text import c_comment, defines, guarded, wrapped
from poetc.image import ImageLayout

if TYPE_CHECKING:
    from poetc.backends.c.program import Program


def header(program: Program) -> str:
    """`model.h`."""
    sizes = (
        c_comment(
            "RAM in bytes: the arena (arguments, results, everything between, workspace), the "
            "handle of the page store, and the stack reserved for a step; auxiliary storage."
        )
        + "\n"
        + defines(
            [
                (f"{program.macro}_ARENA_BYTES", program.arena_bytes),
                (f"{program.macro}_ARENA_ALIGNMENT", _alignment(program)),
                (f"{program.macro}_STATIC_BYTES", program.static_bytes),
                (f"{program.macro}_STACK_BYTES", program.stack_bytes),
                (f"{program.macro}_RAM_BYTES", program.ram_bytes),
                (f"{program.macro}_STORAGE_BYTES", program.storage_bytes),
            ]
        )
    )
    if program.has_pointers:
        bytes = sum(p.bytes for p in (*program.arguments, *program.results) if p.of_caller)
        comment = "Bytes of the buffers of the caller; not part of the RAM above."
        sizes += f"\n{c_comment(comment)}\n" + defines([(f"{program.macro}_CALLER_BYTES", bytes)])
    if program.image is not None:
        sizes += "\n" + _image_sizes(program, program.image)
    if program.saved is not None:
        sizes += "\n" + save_macros(program, program.saved)
    opening = _instance(program) if program.instances else ""
    functions = "\n".join(_functions(each) for each in (program, *program.entries))
    text = f"""\
#ifdef __cplusplus
extern "C" {{
#endif

{c_comment(ABOUT)}
poetc_status {program.name}_check(void);

{opening}{_kept(program)}{functions}{program.more_functions()}
#ifdef __cplusplus
}}
#endif
"""
    about = f"{MARK} {program.about()}"
    includes = ["#include <stdbool.h>", "#include <stdint.h>", "", '#include "poetc_store.h"']
    tensors = [part for each in (program, *program.entries) for part in _places(each)]
    if program.frozen:
        tensors.append(_frozen(program))
    body = [sizes, "\n\n".join(tensors) + "\n", text]
    return guarded(f"{program.macro}_H", about, includes, body)


def _places(program: Program) -> list[str]:
    """Counts and tables of the arguments and results."""
    counts = defines(
        [
            (f"{program.macro}_ARGUMENTS", len(program.arguments)),
            (f"{program.macro}_RESULTS", len(program.results)),
        ]
    )
    inputs = (
        "inputs are buffers of the caller."
        if program.graph.io == "caller"
        else "inputs are written before each call, which reuses their bytes."
    )
    offsets = "Offsets are in bytes from the start of the arena"
    if not program.fixed_places:
        offsets = "Where they are in the arena is up to the plan"
    return [
        counts,
        c_comment(
            f"Arguments. {inputs.capitalize()} {offsets}, page offsets from that of the store "
            "(in bank 0)."
            if program.image is not None
            else "Arguments. Parameters are written once and stay in the arena; "
            f"{inputs} {offsets}."
        ),
        *_tensors(program, "ARG", "Argument", program.arguments),
        c_comment(
            "Results, from the end of a step to the start of the next."
            if program.function != program.name
            else "Results, until another function of the model is called."
        ),
        *_tensors(program, "RESULT", "Result", program.results),
    ]


def _functions(program: Program) -> str:
    """Declares the step, or an entry point, and access to arguments and results."""
    n = program.name
    step = (
        f"One step. `store` may be null if the model does not page ({program.macro}_STORAGE_BYTES "
        "is 0). After any status but POETC_OK the arena is to be filled anew, parameters "
        "included."
    )
    if program.image is not None:
        step = (
            "One step. `store` holds the image. After any status but POETC_OK its parameters "
            "are as before, and the step can be repeated once the arena is filled anew."
        )
    if program.function == n:
        step = (
            f"The entry point @{n.removeprefix(f'{program.model}_')}. It reads the parameters of "
            "the step and changes none, whatever it returns. Inputs and results of the step, and "
            "of other entry points, are lost."
        )
    frozen = [place for place in program.arguments if place.frozen]
    if program.has_pointers:
        callers = program.graph.io == "caller"
        read = ["inputs"] if callers else []
        read += ["frozen arguments"] if any(place.of_caller for place in frozen) else []
        results = ", and results, which are good when it returns POETC_OK" if callers else ""
        step += (
            f" The other pointers are buffers of the caller, aligned to "
            f"{arena_alignment(program.graph)} bytes, that overlap neither each other nor anything "
            f"else: {' and '.join(read)}, which are left as they are{results}."
        )
    elsewhere = [
        *(["of the caller"] if program.has_pointers else []),
        *(["on storage"] if program.image is not None else []),
        *(["that are frozen"] if frozen else []),
    ]
    where = "Where argument and result `i` are in the arena, and their sizes. Null, 0 or false for "
    where += f"a number that there is not{'; null for those ' if elsewhere else ''}"
    where += f"{' or '.join(elsewhere)}."
    newline = "\n"
    one = ", ".join([*program.first(), "uint32_t i"])
    return f"""\
{c_comment(step)}
{newline.join(program.prototype(";"))}

{program.hook()}{_caller_access(program)}{c_comment(where)}
void *{n}_argument({one});
uint32_t {n}_argument_bytes(uint32_t i);
bool {n}_argument_is_parameter(uint32_t i);
const void *{n}_result({one});
uint32_t {n}_result_bytes(uint32_t i);

{accessors(program)}"""


def _alignment(program: Program) -> str:
    lines = program.graph.cache_line_bytes
    return f"{program.alignment}u" if not lines else "POETC_CACHE_LINE_BYTES"


def _instance(program: Program) -> str:
    """Declares what the caller has: the arena."""
    n, macro = program.name, program.macro
    about = (
        f"All that the model keeps in RAM. There may be any number of instances, each good for one "
        f"call at a time. {macro}_CALLER_ARENA says that functions take one."
    )
    opening = (
        "An instance in memory of the caller: POETC_TOO_SMALL if that has less than "
        f"{macro}_ARENA_BYTES, POETC_MISALIGNED if it does not begin at a multiple of "
        f"{macro}_ARENA_ALIGNMENT; the instance is null then. Nothing is written there."
    )
    lines = " POETC_ON_LINES" if program.graph.cache_line_bytes else ""
    bytes = f"{macro}_ARENA_BYTES" if program.arena_bytes else "1"
    return f"""\
{c_comment(about)}
#define {macro}_CALLER_ARENA 1
typedef union {{
    uint{8 * program.alignment}_t alignment;
    uint8_t bytes[{bytes}];
}} {n}_instance{lines};

{c_comment(opening)}
poetc_status {n}_open(void *memory, uint32_t bytes, {n}_instance **instance);

"""


def _kept(program: Program) -> str:
    """Declarations for parameters that are kept from step to step, or come with the program."""
    text = ""
    if program.image is not None:
        comment = "What `poetc pack --to=c` makes: the store holds it at first, from offset 0 on."
        size = f"{program.macro}_IMAGE_BYTES"
        text = f"{c_comment(comment)}\nextern const uint8_t {program.name}_image[{size}];\n\n"
    return text if program.saved is None else text + save_functions(program)


def _frozen(program: Program) -> str:
    """Declares the arguments that are part of the program."""
    comment = c_comment("What is frozen: kernels read it where it is.")
    arrays = [
        f"extern const {program.frozen_type(i)} {program.frozen_name(i)}[{array.size}];"
        for i, array in program.frozen.items()
    ]
    return "\n".join([comment, *arrays])


def _caller_access(program: Program) -> str:
    """For programs that do not know which buffers are theirs, such as the example."""
    if not program.has_pointers:
        return ""
    n = program.name
    pointers = [f"({type_})({kind})[{i}]" for kind, i, type_ in program.callers_buffers()]
    instance = ["instance"] if program.instances else []
    call = wrapped(f"    {program.function}(", [*instance, "store", *pointers], ")")
    comment = "The same on arrays of pointers, by number; and whether argument and result `i` are "
    return f"""\
{c_comment(comment + "buffers of the caller.")}
#define {program.function.upper()}_ON({", ".join([*instance, "store"])}, argument, result) \\
{(" " + chr(92) + chr(10)).join(call)}
bool {n}_argument_is_callers(uint32_t i);
bool {n}_result_is_callers(uint32_t i);

"""


def _image_sizes(program: Program, image: ImageLayout) -> str:
    comment = (
        "The storage image: what identifies its layout, the write unit that keeps its parts "
        "apart, the distance between the two pages of an updated parameter (poetc_image.h)."
    )
    return f"{c_comment(comment)}\n" + defines(
        [
            (f"{program.macro}_LAYOUT_ID", f"0x{image.identity:08x}u"),
            (f"{program.macro}_STORAGE_UNIT", image.unit_bytes),
            (f"{program.macro}_BANK_BYTES", image.bank_bytes),
            (f"{program.macro}_IMAGE_BYTES", image.parameters_end),
        ]
    )


def _tensors(
    program: Program, kind: str, title: str, places: Sequence[TensorPlace]
) -> Iterator[str]:
    """The lines of the header on arguments or results. One with a name of its own has a constant of
    that name, which is its number."""
    names = ["_".join(re.findall("[A-Z0-9]+", place.name.upper())) for place in places]
    for i, (place, name) in enumerate(zip(places, names, strict=True)):
        numbered = name in (f"ARG{i}", f"OUT{i}") or not re.search("[A-Z]", name)
        own = not numbered and names.count(name) == 1
        number = f"{program.macro}_{kind}_{name}" if own else None
        yield _tensor(program, kind, title, i, place, number)


def _tensor(
    program: Program, kind: str, title: str, i: int, place: TensorPlace, number: str | None
) -> str:
    role = ""
    if kind == "ARG" and i in program.parameters:
        role = f", argument {program.parameters[i]} of the step"
    elif place.is_param:
        role = ", parameter"
    elif place.frozen:
        role = ", frozen" if kind == "ARG" else f", argument {place.updates} as it came"
    elif kind == "ARG":
        role = ", input"
    elif place.updates is not None:
        role = f", new value of argument {place.updates}"
    if place.on_storage:
        role += ", on storage"
    if place.of_caller:
        role += ", the caller's"
    shape = "x".join(map(str, place.shape)) or "scalar"
    prefix = f"{program.macro}_{kind}{i}"
    type_ = element_c_type(place.type.element_type)
    comment = c_comment(f"{title} {i}: {place.name}, {type_} {shape}{role}")
    offset = f"{prefix}_PAGE_OFFSET" if place.on_storage else f"{prefix}_OFFSET"
    published = program.published_offset(place)
    sizes = [] if number is None else [(number, i)]
    sizes += [] if published is None else [(offset, published)]
    sizes.append((f"{prefix}_BYTES", place.bytes))
    return comment + "\n" + defines(sizes).rstrip()
