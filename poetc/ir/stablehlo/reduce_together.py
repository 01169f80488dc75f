"""`stablehlo.reduce` in general: of several operands, with any body."""

from collections.abc import Sequence

from xdsl.dialects.builtin import TensorType
from xdsl.irdl import irdl_op_definition, prop_def, region_def, var_operand_def
from xdsl.printer import Printer

from poetc.ir.stablehlo.base import (
    INTS,
    Array,
    check,
    check_dims,
    check_type,
    ints,
    shape_of,
    with_shape,
)
from poetc.ir.stablehlo.bodies import fold
from poetc.ir.stablehlo.control import ControlOp, Execute, check_region
from poetc.ir.stablehlo.folds import check_pure_body
from poetc.ir.stablehlo_attributes import Dims, print_dims


@irdl_op_definition
class ReduceTogetherOp(ControlOp):
    """Combines the elements of several tensors along some dimensions with a body of any arithmetic.

    The operands are those tensors, then what each starts from. The dialect has `ReduceOp` under the
    name, whose parser makes one of these where it is needed; `stablehlo-simplify` makes a fold of
    each result.
    """

    name = "stablehlo.reduce"
    arguments = var_operand_def(TensorType)
    dimensions = prop_def(INTS)
    body = region_def()

    @property
    def dims(self) -> Dims:
        """The reduced dimensions."""
        return ints(self.dimensions)

    @property
    def count(self) -> int:
        """The number of tensors."""
        return len(self.operands) // 2

    def print(self, printer: Printer) -> None:
        def one(number: int) -> None:
            with printer.in_parens():
                printer.print_ssa_value(self.operands[number])
                printer.print_string(" init: ")
                printer.print_ssa_value(self.operands[self.count + number])

        printer.print_list(range(self.count), one)
        printer.print_string(" across dimensions = ")
        print_dims(printer, self.dims)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_operation_type(self)
        printer.print_string(" reducer")
        values = self.body.block.args
        for number in range(self.count):
            with printer.in_parens():
                pair = (values[number], values[self.count + number])
                printer.print_list(pair, printer.print_block_argument)
            printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)

    def verify_op(self) -> None:
        check(len(self.operands) == 2 * self.count > 0, "expected as many starts as operands")
        check(len(self.results) == self.count, f"expected {self.count} results")
        shape = shape_of(self.operands[0])
        check_dims("dimensions", self.dims, len(shape))
        kept = [n for d, n in enumerate(shape) if d not in self.dims]
        for number in range(self.count):
            value = self.operands[number]
            check_type(f"operand {number}", value.type, with_shape(value, shape))
            init = self.operands[self.count + number]
            check_type(f"init {number}", init.type, with_shape(value, ()))
            check_type(f"result {number}", self.results[number].type, with_shape(value, kept))
        scalars = [with_shape(value, ()) for value in self.operands[self.count :]]
        check_region("the body", self.body, [*scalars, *scalars], scalars)

    def run(self, operands: Sequence[Array], execute: Execute) -> list[Array]:
        check_pure_body(self, self.body)
        arrays, inits = operands[: self.count], operands[self.count :]
        return fold(self.body.block, arrays, inits, self.dims)
