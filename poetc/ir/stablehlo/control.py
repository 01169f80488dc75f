"""Loops, branches, barriers, and the end of a region."""

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import TensorType, i1, i32
from xdsl.ir import Attribute, Block, Region
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_region_def,
    var_result_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, Pure
from xdsl.utils.exceptions import VerifyException

from poetc.ir import dense
from poetc.ir.stablehlo.base import (
    INTS,
    Array,
    Value,
    check,
    check_tensor,
    check_type,
    element_type_of,
    ints,
    shape_of,
    tensor_type,
    with_shape,
)

Execute = Callable[[Block, Sequence[Array]], list[Array]]
"""Runs a block on arguments; gives what its terminator returns."""


@irdl_op_definition
class ReturnOp(IRDLOperation):
    """Ends a region, with its results."""

    name = "stablehlo.return"
    inputs = var_operand_def(TensorType)
    traits = traits_def(Pure(), IsTerminator())

    assembly_format = "$inputs attr-dict `:` type($inputs)"

    def __init__(self, *values: Value):
        super().__init__(operands=[values])


class ControlOp(IRDLOperation):
    """An op that runs its regions, which may use values from outside. It is as pure as they are."""

    outputs = var_result_def(TensorType)
    traits = traits_def(Pure())

    def verify_(self) -> None:
        for index, operand in enumerate(self.operands):
            check_tensor(f"operand {index}", operand.type)
        for index, result in enumerate(self.results):
            check_tensor(f"result {index}", result.type)
        self.verify_op()

    def verify_op(self) -> None:
        """Check what is special to the op; operands and results are supported tensors."""
        raise NotImplementedError

    def run(self, operands: Sequence[Array], execute: Execute) -> list[Array]:
        """The meaning of the op: its results for these operands."""
        raise NotImplementedError


def check_region(
    name: str, region: Region, arguments: Sequence[Attribute], results: Sequence[Attribute]
) -> None:
    """One block that takes and returns values of these types."""
    check(len(region.blocks) == 1, f"{name} has {len(region.blocks)} blocks, expected one")
    _check_types(f"{name} takes", region.block.arg_types, arguments)
    end = region.block.last_op
    if not isinstance(end, ReturnOp):
        raise VerifyException(f"{name} does not end with {ReturnOp.name}")
    _check_types(f"{name} returns", end.operand_types, results)


def _check_types(what: str, found: Sequence[Attribute], expected: Sequence[Attribute]) -> None:
    if tuple(found) != tuple(expected):
        names = [", ".join(map(str, types)) or "nothing" for types in (found, expected)]
        raise VerifyException(f"{what} {names[0]}, expected {names[1]}")


@irdl_op_definition
class WhileOp(ControlOp):
    """Runs the body on its own results, at first on the operands, as long as the condition holds of
    them."""

    name = "stablehlo.while"
    inputs = var_operand_def(TensorType)
    cond = region_def()
    body = region_def()

    @classmethod
    def parse(cls, parser: Parser) -> "WhileOp":
        """As JAX prints it: `(%i = %c, ..) : types cond {..} do {..}`."""
        pairs = parser.parse_comma_separated_list(
            parser.Delimiter.PAREN, lambda: cls._parse_carried(parser)
        )
        types: Sequence[Attribute] = ()
        if parser.parse_optional_punctuation(":") is not None:
            types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        if len(types) != len(pairs):
            parser.raise_error(f"expected {len(pairs)} types")
        attributes = parser.parse_optional_attr_dict_with_keyword()
        operands = [
            parser.resolve_operand(operand, type)
            for (_, operand), type in zip(pairs, types, strict=True)
        ]
        arguments = [name.resolve(type) for (name, _), type in zip(pairs, types, strict=True)]
        regions: list[Region] = []
        for keyword in ("cond", "do"):
            parser.parse_keyword(keyword)
            regions.append(parser.parse_region(arguments))
        return cls.create(
            operands=operands,
            result_types=types,
            attributes={} if attributes is None else attributes.data,
            regions=regions,
        )

    @staticmethod
    def _parse_carried(parser: Parser):
        name = parser.parse_argument(expect_type=False)
        parser.parse_punctuation("=")
        return name, parser.parse_unresolved_operand()

    def verify_op(self) -> None:
        types = self.operand_types
        _check_types("results are", self.result_types, types)
        check_region("the condition", self.cond, types, (TensorType(i1, ()),))
        check_region("the body", self.body, types, types)

    def run(self, operands: Sequence[Array], execute: Execute) -> list[Array]:
        values = list(operands)
        while execute(self.cond.block, values)[0]:
            values = execute(self.body.block, values)
        return values


class BranchOp(ControlOp):
    """Runs one of its regions."""

    INDEX: ClassVar[Attribute]
    """Element type of the scalar that chooses it."""

    @property
    def index(self) -> Value:
        """The operand that chooses the branch."""
        return self.operands[0]

    @property
    def branches(self) -> Sequence[Region]:
        """The regions, in the order of the numbers that `chosen` gives."""
        return self.regions

    def chosen(self, index: Array) -> int:
        """The number of the branch for a value of `index`."""
        raise NotImplementedError

    def verify_op(self) -> None:
        check_type("operand 0", self.operands[0].type, TensorType(self.INDEX, ()))
        check(len(self.branches) > 0, "expected at least one branch")
        for number, branch in enumerate(self.branches):
            check_region(f"branch {number}", branch, (), self.result_types)

    def run(self, operands: Sequence[Array], execute: Execute) -> list[Array]:
        return execute(self.branches[self.chosen(operands[0])].block, ())


@irdl_op_definition
class IfOp(BranchOp):
    """The first region if the predicate holds, else the second."""

    name = "stablehlo.if"
    pred = operand_def(TensorType)
    true_branch = region_def()
    false_branch = region_def()
    INDEX: ClassVar = i1

    def chosen(self, index: Array) -> int:
        return 0 if index else 1


@irdl_op_definition
class CaseOp(BranchOp):
    """The region of that number; the last for a number that none has."""

    name = "stablehlo.case"
    number = operand_def(TensorType)
    numbered = var_region_def()
    INDEX: ClassVar = i32

    def chosen(self, index: Array) -> int:
        last = len(self.branches) - 1
        return int(index) if 0 <= index < last else last


@irdl_op_definition
class MapOp(ControlOp):
    """The result of the region, which is on scalars, for the elements in each place."""

    name = "stablehlo.map"
    inputs = var_operand_def(TensorType)
    dimensions = prop_def(INTS)
    computation = region_def()

    def verify_op(self) -> None:
        check(len(self.inputs) > 0, "expected at least one operand")
        check(len(self.results) == 1, f"{len(self.results)} results, expected one")
        shape = shape_of(self.inputs[0])
        for number, value in enumerate((*self.inputs, *self.results)):
            check_type(f"type {number}", value.type, with_shape(value, shape))
        expected = tuple(range(len(shape)))
        check(ints(self.dimensions) == expected, f"dimensions must be {list(expected)}")
        arguments = [with_shape(value, ()) for value in self.inputs]
        check_region("the body", self.computation, arguments, (with_shape(self.results[0], ()),))

    def run(self, operands: Sequence[Array], execute: Execute) -> list[Array]:
        result = self.results[0]
        found = np.empty(shape_of(result), dense.dtype_of(element_type_of(result)))
        for place in np.ndindex(found.shape):
            elements = [np.asarray(operand[place]) for operand in operands]
            found[place] = execute(self.computation.block, elements)[0]
        return [found]


@irdl_op_definition
class OptimizationBarrierOp(ControlOp):
    """The operands themselves. `stablehlo-simplify` removes it: the schedule decides what is
    recomputed."""

    name = "stablehlo.optimization_barrier"
    inputs = var_operand_def(TensorType)

    def __init__(self, values: Sequence[Value]):
        super().__init__(operands=[values], result_types=[[tensor_type(v) for v in values]])

    @classmethod
    def parse(cls, parser: Parser) -> "OptimizationBarrierOp":
        operands = parser.parse_optional_undelimited_comma_separated_list(
            parser.parse_optional_unresolved_operand, parser.parse_unresolved_operand
        )
        attributes = parser.parse_optional_attr_dict()
        types: Sequence[Attribute] = ()
        if operands:
            parser.parse_punctuation(":")
            types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        values = parser.resolve_operands(operands or [], types, parser.pos)
        return cls.create(operands=values, result_types=types, attributes=attributes)

    def print(self, printer: Printer) -> None:
        if self.inputs:
            printer.print_string(" ")
            printer.print_list(self.inputs, printer.print_ssa_value)
        printer.print_op_attributes(self.attributes)
        if self.inputs:
            printer.print_string(" : ")
            printer.print_list(self.inputs.types, printer.print_attribute)

    def verify_op(self) -> None:
        _check_types("results are", self.result_types, self.operand_types)

    def run(self, operands: Sequence[Array], execute: Execute) -> list[Array]:
        return list(operands)
