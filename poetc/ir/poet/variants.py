"""What poet-variants says of a kernel: ways to run it in less RAM."""

from __future__ import annotations

from typing import NamedTuple

from xdsl.ir import Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from poetc.ir.poet.attributes import verify_offset

VARIANTS = "poet.variants"
"""Attribute of a compute: an array of `#poet.variant`, by growing RAM."""


class TiledNest(NamedTuple):
    """Loops of one nest, by their numbers in the kernel, and the tile loops from the outermost on:
    (loop, iterations in a tile)."""

    loops: tuple[int, ...]
    tiles: tuple[tuple[int, int], ...]


class VariantData(NamedTuple):
    """The fields of a `VariantAttr`, in the order they are printed."""

    ram: int
    moved: int
    least: int
    runs: int
    time_ns: int
    energy_nj: int
    buffers: int
    resident: tuple[int, ...]
    nests: tuple[TiledNest, ...]


@irdl_attr_definition
class VariantAttr(Data[VariantData]):
    """One way to run a kernel.

    `ram` is all of it, `moved` between storage and RAM, `least` what any tiling moves in that RAM,
    in bytes; `runs` of bytes that are adjacent on storage; `time_ns` and `energy_nj` with the
    transfers. `resident` are operands and then results, by number, that are in RAM whole. Each
    slice has one or two `buffers`. Of each of the `nests`: its loops, by number, and the tile loops
    from the outermost on, with iterations in a tile.
    """

    name = "poet.variant"

    def verify(self) -> None:
        for field, value in zip(VariantData._fields, self.data, strict=True):
            if isinstance(value, int):
                verify_offset(value, f"{field} of a variant")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> VariantData:
        def integer() -> int:
            return parser.parse_integer(allow_boolean=False, allow_negative=False)

        def integers() -> tuple[int, ...]:
            return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, integer))

        def tile() -> tuple[int, int]:
            loop = integer()
            parser.parse_keyword("by")
            return loop, integer()

        def nest() -> TiledNest:
            loops = integers()
            parser.parse_keyword("tiles")
            tiles = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, tile)
            return TiledNest(loops, tuple(tiles))

        def nests() -> tuple[TiledNest, ...]:
            return tuple(parser.parse_comma_separated_list(parser.Delimiter.SQUARE, nest))

        values: dict[str, int | tuple[int, ...] | tuple[TiledNest, ...]] = {}
        with parser.in_angle_brackets():
            for number, field in enumerate(VariantData._fields):
                if number:
                    parser.parse_punctuation(",")
                parser.parse_keyword(field)
                parser.parse_punctuation("=")
                values[field] = {"resident": integers, "nests": nests}.get(field, integer)()
        return VariantData(**values)  # type: ignore[arg-type]

    def print_parameter(self, printer: Printer) -> None:
        *numbers, resident, nests = self.data
        texts = [f"{name} = {n}" for name, n in zip(VariantData._fields, numbers, strict=False)]
        texts.append(f"resident = {list(resident)}")
        each = [
            f"{list(loops)} tiles [{', '.join(f'{loop} by {n}' for loop, n in tiles)}]"
            for loops, tiles in nests
        ]
        texts.append(f"nests = [{', '.join(each)}]")
        with printer.in_angle_brackets():
            printer.print_string(", ".join(texts))
