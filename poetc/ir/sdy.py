"""Shardings that say nothing: those of Shardy (`sdy`) on a mesh of one device.

JAX writes them where arrays are on a `Mesh`. The reader drops them (`without_shardings`), so that
nothing else knows the dialect.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, SymbolNameConstraint
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Data, Dialect, Operation
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from poetc.errors import InputError
from poetc.ir.locations import source_location

_PREFIX = "sdy."
_AXIS = re.compile(r'"(?:[^"\\]|\\.)*"\s*=\s*(\d+)')
_INLINE_MESH = re.compile(r"\bmesh\s*(<\[[^\]]*\])")


class _TextAttr(Data[str]):
    """The text between angle brackets, unchanged."""

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> str:
        """Parse up to the bracket that closes."""
        with parser.in_angle_brackets():
            return parser._parse_unregistered_attr_body(None).strip()

    def print_parameter(self, printer: Printer) -> None:
        """Print what was read."""
        with printer.in_angle_brackets():
            printer.print_string(self.data)


@irdl_attr_definition
class MeshAttr(_TextAttr):
    """`#sdy.mesh<["x"=2, "y"=4]>`."""

    name = "sdy.mesh"

    @property
    def devices(self) -> int:
        """How many devices there are."""
        return devices_of(self.data)


@irdl_attr_definition
class ShardingAttr(_TextAttr):
    """`#sdy.sharding<@mesh, [{"x"}, {}]>`."""

    name = "sdy.sharding"


@irdl_attr_definition
class ShardingPerValueAttr(_TextAttr):
    """`#sdy.sharding_per_value<[<@mesh, [{"x"}]>]>`."""

    name = "sdy.sharding_per_value"


def devices_of(axes: str) -> int:
    """The devices of a mesh with `["x"=2, "y"=4]`."""
    return math.prod(int(size) for size in _AXIS.findall(axes))


@irdl_op_definition
class MeshOp(IRDLOperation):
    """Names a mesh."""

    name = "sdy.mesh"
    sym_name = prop_def(SymbolNameConstraint())
    mesh = prop_def(MeshAttr)

    @classmethod
    def parse(cls, parser: Parser) -> MeshOp:
        """Parse `@name = <["x"=1]> {...}`."""
        name = parser.parse_symbol_name()
        parser.parse_punctuation("=")
        mesh = MeshAttr(MeshAttr.parse_parameter(parser))
        attributes = parser.parse_optional_attr_dict()
        return cls.create(properties={"sym_name": name, "mesh": mesh}, attributes=attributes)

    def print(self, printer: Printer) -> None:
        """Print the same."""
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        printer.print_string(" = ")
        self.mesh.print_parameter(printer)
        printer.print_op_attributes(self.attributes)

    def verify_(self) -> None:
        """Only one device is nothing to say."""
        if self.mesh.devices != 1:
            raise VerifyException(
                f"mesh @{self.sym_name.data} has {self.mesh.devices} devices; lower the step for "
                "one device"
            )


@irdl_op_definition
class ShardingConstraintOp(IRDLOperation):
    """Its operand."""

    name = "sdy.sharding_constraint"
    operand = operand_def(AnyAttr())
    result = result_def(AnyAttr())
    sharding = prop_def(ShardingAttr)
    traits = traits_def(Pure())

    @classmethod
    def parse(cls, parser: Parser) -> ShardingConstraintOp:
        """Parse `%value <@mesh, [{}]> {...} : type`."""
        operand = parser.parse_unresolved_operand()
        sharding = ShardingAttr(ShardingAttr.parse_parameter(parser))
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        type = parser.parse_type()
        return cls.create(
            operands=[parser.resolve_operand(operand, type)],
            result_types=[type],
            properties={"sharding": sharding},
            attributes=attributes,
        )

    def print(self, printer: Printer) -> None:
        """Print the same."""
        printer.print_string(" ")
        printer.print_operand(self.operand)
        printer.print_string(" ")
        self.sharding.print_parameter(printer)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.result.type)

    def verify_(self) -> None:
        """The types are the same."""
        if self.operand.type != self.result.type:
            raise VerifyException(f"operand is {self.operand.type}, result {self.result.type}")


def sharding_faults(module: ModuleOp) -> Iterator[InputError]:
    """Shardings over several devices of a mesh that they bring along. (Those that are named have
    faults of their own.)"""
    for op in module.walk():
        for attribute in (*op.attributes.values(), *op.properties.values()):
            for text in _texts(attribute):
                for axes in _INLINE_MESH.findall(text):
                    if devices_of(axes) != 1:
                        message = f"a sharding over {devices_of(axes)} devices; lower the step for "
                        yield InputError(f"{message}one device", source_location(op))


def _texts(attribute: Attribute) -> Iterator[str]:
    """The texts of all shardings in an attribute."""
    if isinstance(attribute, _TextAttr):
        yield attribute.data
    elif isinstance(attribute, ArrayAttr):
        for element in cast("ArrayAttr[Attribute]", attribute):
            yield from _texts(element)
    elif isinstance(attribute, DictionaryAttr):
        for element in attribute.data.values():
            yield from _texts(element)


def drop_shardings(module: ModuleOp) -> None:
    """Removes meshes, and the shardings of what has no fault."""
    for op in list(module.walk()):
        if isinstance(op, MeshOp):
            _erase(op)
        elif isinstance(op, ShardingConstraintOp):
            op.result.replace_all_uses_with(op.operand)
            _erase(op)
        else:
            for name in [name for name in op.attributes if name.startswith(_PREFIX)]:
                del op.attributes[name]
            if isinstance(op, FuncOp):
                for key in ("arg_attrs", "res_attrs"):
                    if (of_values := op.properties.get(key)) is not None:
                        op.properties[key] = _without(of_values)


def _without(of_values: Any) -> ArrayAttr:
    """Dictionaries of arguments or results, without shardings."""
    return ArrayAttr(
        DictionaryAttr({k: v for k, v in d.data.items() if not k.startswith(_PREFIX)})
        for d in of_values
    )


def _erase(op: Operation) -> None:
    op.detach()
    op.erase()


SDY = Dialect("sdy", [MeshOp, ShardingConstraintOp], [MeshAttr, ShardingAttr, ShardingPerValueAttr])
