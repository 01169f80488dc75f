"""Types, attributes and traits of the poet dialect."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from xdsl.dialects.builtin import I64, IntegerAttr, TensorType, i64
from xdsl.ir import Attribute, Data, Operation, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import EffectInstance, MemoryEffect, MemoryEffectKind, OpTrait
from xdsl.utils.exceptions import VerifyException

IO_PLACES = ("arena", "caller")
"""The places where inputs and results of a graph may be."""

NO_OFFSET = -1
"""Stands among the offsets of results for one that is in a buffer of the caller."""

STORED = "poet.stored"
"""Unit attribute of a parameter that is on storage between steps, wherever others are."""

BANKED = "poet.banked"
"""Unit attribute of a page that another graph updates: its value is in one bank or the other."""

ROLES = ("input", "param", "frozen")
"""The roles of a graph argument: given anew for each step, kept from step to step, or never
written. A frozen one is read where it is, such as in flash, and takes no RAM."""


def verify_static_tensor(type: Attribute, what: str) -> None:
    if not isinstance(type, TensorType) or not type.has_static_shape():
        raise VerifyException(f"{what} must be a tensor of static shape, got {type}")


def i64_or_none(value: int | None) -> IntegerAttr[I64] | None:
    return None if value is None else IntegerAttr(value, i64)


def int_or_none(attr: IntegerAttr | None) -> int | None:
    return None if attr is None else attr.value.data


def verify_offset(value: int | None, what: str) -> None:
    if value is not None and value < 0:
        raise VerifyException(f"{what} must not be negative, got {value}")


@irdl_attr_definition
class PageType(ParametrizedAttribute, TypeAttribute):
    """The copy of a tensor on auxiliary storage: `!poet.page<tensor<4xf32>>`."""

    name = "poet.page"

    tensor: TensorType

    def verify(self) -> None:
        verify_static_tensor(self.tensor, "the content of a page")


def content(type: Attribute) -> Attribute:
    """The type of the tensor that a value is, or a page is of."""
    return type.tensor if isinstance(type, PageType) else type


def tensor_type(value: SSAValue) -> TensorType:
    """The type of a value that is a tensor, or of the tensor that a page is of."""
    type = content(value.type)
    assert isinstance(type, TensorType)
    return type


@irdl_attr_definition
class TransferType(ParametrizedAttribute, TypeAttribute):
    """A page or tensor that is still being transferred: `!poet.transfer<!poet.page<...>>` to
    storage, `!poet.transfer<tensor<...>>` from there."""

    name = "poet.transfer"

    content: PageType | TensorType

    def verify(self) -> None:
        if isinstance(self.content, TensorType):
            verify_static_tensor(self.content, "what is transferred")


class Cost(NamedTuple):
    """The fields of a `CostAttr`, in the order they are printed."""

    energy_nj: int
    time_ns: int
    workspace: int
    flops: int
    read_ns: int = 0
    write_ns: int = 0


@irdl_attr_definition
class CostAttr(Data[Cost]):
    """The cost of one run of a kernel.

    `energy_nj` and `time_ns` are those of one run, `workspace` is scratch RAM in bytes beside the
    operands and results, `flops` counts floating-point operations. Of the time, slices are read for
    `read_ns` and written for `write_ns`, in tiles. All are plain integers.
    """

    name = "poet.cost"

    def __init__(
        self,
        energy_nj: int | Cost,
        time_ns: int = 0,
        workspace: int = 0,
        flops: int = 0,
        read_ns: int = 0,
        write_ns: int = 0,
    ) -> None:
        # The parser constructs an attribute from its data, here a whole `Cost`.
        is_whole = isinstance(energy_nj, Cost)
        fields = time_ns, workspace, flops, read_ns, write_ns
        super().__init__(energy_nj if is_whole else Cost(energy_nj, *fields))

    @property
    def energy_nj(self) -> int:
        return self.data.energy_nj

    @property
    def time_ns(self) -> int:
        return self.data.time_ns

    @property
    def workspace(self) -> int:
        """Scratch RAM in bytes."""
        return self.data.workspace

    @property
    def flops(self) -> int:
        return self.data.flops

    @property
    def read_ns(self) -> int:
        """The part of the time in which slices are read."""
        return self.data.read_ns

    @property
    def write_ns(self) -> int:
        """The part of the time in which slices are written."""
        return self.data.write_ns

    @property
    def slices_ns(self) -> int:
        """The part of the time in which slices are moved."""
        return self.read_ns + self.write_ns

    def verify(self) -> None:
        for field, value in self.data._asdict().items():
            verify_offset(value, f"{field} of a cost")
        if self.slices_ns > self.time_ns:
            raise VerifyException(
                f"slices are moved for {self.slices_ns} ns of a cost that has {self.time_ns} ns"
            )

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Cost:
        values: list[int] = []
        with parser.in_angle_brackets():
            for i, field in enumerate(Cost._fields):
                if i and field not in Cost._field_defaults:
                    parser.parse_punctuation(",")
                elif i and parser.parse_optional_punctuation(",") is None:
                    break
                parser.parse_keyword(field)
                parser.parse_punctuation("=")
                values.append(parser.parse_integer(allow_boolean=False))
        return Cost(*values)

    def print_parameter(self, printer: Printer) -> None:
        fields = list(self.data._asdict().items())
        if not self.slices_ns:
            fields = [field for field in fields if field[0] not in Cost._field_defaults]
        with printer.in_angle_brackets():
            printer.print_list(fields, lambda f: printer.print_string(f"{f[0]} = {f[1]}"))


class AllocatesResults(MemoryEffect):
    """Each result is a new live range or a new page.

    Two equal operations must therefore not be merged: the second may be a recomputation on purpose.
    One whose results nobody uses, not even to free them, may be removed.
    """

    @classmethod
    def get_effects(cls, op: Operation) -> set[EffectInstance]:
        return {EffectInstance(MemoryEffectKind.ALLOC, result) for result in op.results}


class InGraph(OpTrait):
    """An operation that stands directly in a graph."""

    def verify(self, op: Operation) -> None:
        parent = op.parent_op()
        if parent is not None and parent.name != "poet.graph":
            raise VerifyException(f"'{op.name}' expects parent op 'poet.graph'")


def type_list(types: Iterable[Attribute]) -> str:
    return ", ".join(str(type) for type in types)
