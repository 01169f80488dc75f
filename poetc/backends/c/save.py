"""Prints `model_save.c`: parameters in RAM as bytes in a store, and back (poetc/saved.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poetc.backends.c.libraries.library import MARK
from poetc.backends.c.text import c_comment, defines, in_section, local_table
from poetc.saved import SavedLayout

if TYPE_CHECKING:
    from poetc.backends.c.program import Program

_SAVE = (
    "Writes the parameters, which are in RAM, to a store from `offset` on, a multiple of 4: what a "
    "program keeps while it is off. A saving that was cut off, or mixed with another, is not "
    "loaded."
)
_LOAD = (
    "Reads them back. POETC_NO_IMAGE: there are none of this model, and nothing is changed. After "
    "any other failure parameters are to be written or loaded anew. Names, types and shapes are "
    "the identity of a model, so another schedule of it reads the same bytes. `poetc pack` makes "
    "them, `poetc unpack` reads them, and with --to=c they are a table in flash, for "
    "poetc_memory_store_init_const (store_memory.h)."
)


def save_macros(program: Program, layout: SavedLayout) -> str:
    """The constants in `model.h` beside the functions."""
    comment = "Parameters as bytes: what identifies them, and how many there are."
    return f"{c_comment(comment)}\n" + defines(
        [
            (f"{program.macro}_PARAMETERS_ID", f"0x{layout.identity:08x}u"),
            (f"{program.macro}_PARAMETERS_BYTES", layout.bytes),
        ]
    )


def save_functions(program: Program) -> str:
    """The declarations in `model.h`."""
    n, macro = program.name, program.macro
    parameters = ", ".join([*program.first(), "poetc_store *store", "uint32_t offset"])
    return f"""\
{c_comment(_SAVE)}
poetc_status {n}_save({parameters});

{c_comment(_LOAD)}
poetc_status {n}_load({parameters});
extern const uint8_t {n}_parameters[{macro}_PARAMETERS_BYTES];

"""


def save_source(program: Program, layout: SavedLayout) -> str:
    """`model_save.c`."""
    n, macro = program.name, program.macro
    parameters = ", ".join([*program.first(), "poetc_store *store", "uint32_t offset"])
    data = f"{n}_argument({program.instance}argument[k])"
    count = len(layout.tensors)
    arguments = local_table("uint32_t", "argument", [str(t.argument) for t in layout.tensors])
    offsets = local_table("uint32_t", "place", [str(t.offset) for t in layout.tensors])
    tables = "\n".join(line.removeprefix("    ") for line in (*arguments, *offsets))
    return f"""\
{c_comment(f"{MARK} Parameters as bytes.")}
#include "{n}.h"
#include "poetc_image.h"

/* Which arguments are parameters, and where their pages are. */
{tables}

poetc_status {n}_save({parameters})
{{
    uint32_t tag = {macro}_PARAMETERS_ID;
    for (uint32_t k = 0; k < {count}u; ++k) {{
        tag = poetc_tag_bytes(tag, {data}, {n}_argument_bytes(argument[k]));
    }}
    uint8_t head[8];
    poetc_put_u32(head, {macro}_PARAMETERS_ID);
    poetc_put_u32(head + 4, tag);
    poetc_status status = poetc_page_out(store, offset, head, sizeof head);
    for (uint32_t k = 0; k < {count}u && status == POETC_OK; ++k) {{
        status = poetc_page_out_tagged(store, offset + place[k], {data},
                                       {n}_argument_bytes(argument[k]), tag);
    }}
    return status == POETC_OK ? poetc_sync(store) : status;
}}

poetc_status {n}_load({parameters})
{{
    uint8_t head[8] = {{0}};
    poetc_status status = poetc_page_in(store, offset, head, sizeof head);
    if (status == POETC_CORRUPT
        || (status == POETC_OK && poetc_get_u32(head) != {macro}_PARAMETERS_ID)) {{
        return POETC_NO_IMAGE;
    }}
    for (uint32_t k = 0; k < {count}u && status == POETC_OK; ++k) {{
        status = poetc_page_in_tagged(store, offset + place[k], {data},
                                      {n}_argument_bytes(argument[k]),
                                      poetc_get_u32(head + 4));
    }}
    return status;
}}
"""


def parameter_table(name: str, data: bytes, identity: int, *, image: bool) -> str:
    """A C file with saved parameters, or with a storage `image`, as a table for flash."""
    macro = name.upper()
    array, size, expected = ("parameters", "PARAMETERS_BYTES", "PARAMETERS_ID")
    if image:
        array, size, expected = ("image", "IMAGE_BYTES", "LAYOUT_ID")
    rows = [", ".join(map(str, data[i : i + 20])) for i in range(0, len(data), 20)]
    body = ",\n    ".join(rows)
    about = f"{MARK} Parameters of {name}, which poetc pack made of arrays."
    return f"""\
{c_comment(about)}
#include "{name}.h"

#if {macro}_{expected} != 0x{identity:08x}u
#error "these are not the parameters of {name}: run poetc pack again"
#endif

{in_section(macro, "CONST")}
const uint8_t {name}_{array}[{macro}_{size}] IN_SECTION = {{
    {body},
}};
"""
