"""Composites: calls of a function that say what it is."""

from __future__ import annotations

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, StringAttr, SymbolRefAttr, TensorType
from xdsl.dialects.func import CallOp
from xdsl.ir import Attribute
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.traits import Pure


@irdl_op_definition
class CompositeOp(IRDLOperation):
    """The results of the function `decomposition`. The reader puts a call of it in place."""

    name = "stablehlo.composite"
    inputs = var_operand_def(TensorType)
    outputs = var_result_def(TensorType)
    called = prop_def(StringAttr, prop_name="name")
    decomposition = prop_def(SymbolRefAttr)
    composite_attributes = opt_prop_def(DictionaryAttr)
    version = opt_prop_def(IntegerAttr)
    traits = traits_def(Pure())

    @classmethod
    def parse(cls, parser: Parser) -> CompositeOp:
        """As MLIR prints it: `"name" %0, %1 {decomposition = @f, ..} : (types) -> types`."""
        properties: dict[str, Attribute] = {"name": StringAttr(parser.parse_str_literal())}
        operands = parser.parse_optional_undelimited_comma_separated_list(
            parser.parse_optional_unresolved_operand, parser.parse_unresolved_operand
        )
        attributes = parser.parse_optional_attr_dict()
        for name in ("decomposition", "composite_attributes", "version"):
            if name in attributes:
                properties[name] = attributes.pop(name)
        parser.parse_punctuation(":")
        position = parser.pos
        type = parser.parse_function_type()
        return cls.create(
            operands=parser.resolve_operands(operands or (), type.inputs.data, position),
            result_types=type.outputs.data,
            properties=properties,
            attributes=attributes,
        )

    def call(self) -> CallOp:
        """The call that does the same."""
        return CallOp(self.decomposition, self.inputs, self.result_types)
