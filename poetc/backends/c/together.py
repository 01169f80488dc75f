"""Loads and stores that one instruction may do (`kernels/together.py`) as C: macros of
`poetc_together.h`, to which registers are given that follow each other, as the instruction wants
them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap

from xdsl.dialects import affine, func
from xdsl.dialects.builtin import Float32Type
from xdsl.ir import Block, Operation

from poetc.backends.c.text import guarded
from poetc.kernels.together import Group, accesses_together

_MOST = 8
"""The most loads or stores that there is a macro for."""

_REGISTERS = 32
_KEPT_FREE = 3
"""Registers for what is under way between loads and sums."""
_LEAST = 2 * _MOST
"""Registers that are given in turn, however many values a loop carries."""


class Registers:
    """The loads and stores of a function that are done together. `groups` has them with the names
    of their registers, by the first of them; `printed` has the others."""

    def __init__(self, groups: Sequence[Group] = ()) -> None:
        """`groups` are such accesses, of one block those that come first before others."""
        self.groups: dict[Operation, tuple[Group, Sequence[str]]] = {}
        self.printed: set[Operation] = set()
        blocks: dict[Block, list[Group]] = {}
        for group in groups:
            # Of what is not needed some may be gone.
            if len(group) <= _MOST and all(op.parent is not None for op in group):
                assert group[0].parent is not None
                blocks.setdefault(group[0].parent, []).append(group)
        used: dict[Block, int] = {}
        for block in reversed(blocks):
            inside = [count for inner, count in used.items() if block.is_ancestor(inner)]
            used[block] = self._assign(block, blocks[block], max(inside, default=0))

    def _assign(self, block: Block, groups: Sequence[Group], inside: int) -> int:
        """Gives registers for a block, one after the other: a compiler moves what is still needed
        from those that are given again. Those that the loop carries values in are left to it, as
        are for stores those first ones that are given in loops inside, beside which there are the
        sums that are stored. Returns how many are given."""
        last = block.last_op
        handed_on = () if last is None else last.operands
        carried = sum(isinstance(value.type, Float32Type) for value in handed_on)
        count = max(_REGISTERS - _KEPT_FREE - carried, _LEAST)
        position = {op: at for at, op in enumerate(block.ops)}
        taken: dict[int, int] = {}
        first, given = 0, inside
        for group in groups:
            size = len(group)
            if inside and isinstance(group[0], affine.StoreOp):
                first, count = max(first, min(inside, _REGISTERS - size)), _REGISTERS
            taken = {register: end for register, end in taken.items() if end > position[group[0]]}
            starts = [s for s in (*range(first, count), *range(first)) if s + size <= count]
            start = next(
                (s for s in starts if taken.keys().isdisjoint(range(s, s + size))), starts[0]
            )
            first = start + size
            self.groups[group[0]] = group, [f"s{start + i}" for i in range(size)]
            self.printed.update(group[1:])
            for i, op in enumerate(group):
                uses = [use for result in op.results for use in result.uses]
                ends = (position.get(use.operation, len(position)) for use in uses)
                taken[start + i] = max(ends, default=0)
            given = max(given, start + size)
        return given


def together_header() -> str:
    """`poetc_together.h`, with the macros for 2 to `_MOST` floats."""
    about = (
        "Floats that follow each other in memory, loaded or stored by one instruction where the "
        "processor has one for several and no vectors: Arm with registers for floats. An "
        "instruction wants registers that follow each other, which a compiler does not give to "
        "separate floats by itself: r0 and so on are theirs. From and to them it moves values as "
        "it likes."
    )
    counts = range(2, _MOST + 1)
    one = "defined(__GNUC__) && defined(__arm__) && defined(__ARM_FP) && !defined(__ARM_NEON)"
    parts = [f"#if {one}\n", "/* What an instruction reads or writes of memory. */"]
    parts += [f"struct poetc_floats_{n} {{\n    float values[{n}];\n}};" for n in counts]
    parts += ["", *map(_load_by_one, counts), *map(_store_by_one, counts), "#else\n"]
    parts += [*map(_load_each, counts), *map(_store_each, counts), "#endif\n"]
    return guarded("POETC_TOGETHER_H", about, [], ["\n".join(parts)])


def _load_by_one(count: int) -> str:
    at = range(count)
    registers = _listed("%{}", at)
    return _macro(
        "LOAD",
        count,
        "const float *const place_ = (place);",
        *(f"register float v{i}_ __asm__(#r{i});" for i in at),
        f'__asm__("vldmia %{count}, {{{registers}}}"',
        *_operands(_listed('"=t"(v{}_)', at)),
        f'        : "r"(place_), "m"(*(const struct poetc_floats_{count} *)place_));',
        *(f"v{i} = v{i}_;" for i in at),
    )


def _store_by_one(count: int) -> str:
    at = range(count)
    registers = _listed("%{}", range(2, count + 2))
    return _macro(
        "STORE",
        count,
        "float *const place_ = (place);",
        *(f"const float v{i}_value_ = (v{i});" for i in at),
        *(f"register float v{i}_ __asm__(#r{i}) = v{i}_value_;" for i in at),
        f'__asm__("vstmia %1, {{{registers}}}"',
        f'        : "=m"(*(struct poetc_floats_{count} *)place_)',
        *_operands('"r"(place_), ' + _listed('"t"(v{}_)', at) + ");"),
    )


def _load_each(count: int) -> str:
    loads = (f"v{i} = place_[{i}];" for i in range(count))
    return _macro("LOAD", count, "const float *const place_ = (place);", *loads)


def _store_each(count: int) -> str:
    """All values are known before the first is stored."""
    values = (f"const float v{i}_value_ = (v{i});" for i in range(count))
    stores = (f"place_[{i}] = v{i}_value_;" for i in range(count))
    return _macro("STORE", count, "float *const place_ = (place);", *values, *stores)


def _macro(does: str, count: int, *lines: str) -> str:
    names = f"{_listed('v{}', range(count))}, place, {_listed('r{}', range(count))}"
    body = ["do {", *(f"    {line}" for line in lines)]
    text = [f"#define POETC_{does}_{count}({names})", *(f"    {line}" for line in body)]
    return "".join(f"{line} \\\n" for line in text) + "    } while (0)\n"


def _operands(text: str) -> list[str]:
    """Operands of an instruction, in lines that are not too long."""
    return wrap(text, 80, initial_indent=" " * 8 + ": ", subsequent_indent=" " * 10)


def _listed(form: str, numbers: Iterable[int]) -> str:
    return ", ".join(map(form.format, numbers))


def together_in(function: func.FuncOp) -> list[Group]:
    """The loads and stores of a function that are done together."""
    loops = (op for op in function.walk() if isinstance(op, affine.ForOp))
    return [group for loop in loops for group in accesses_together(loop)]
