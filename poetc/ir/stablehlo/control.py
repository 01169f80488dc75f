"""The end of a region."""

from xdsl.dialects.builtin import TensorType
from xdsl.irdl import IRDLOperation, irdl_op_definition, traits_def, var_operand_def
from xdsl.traits import IsTerminator, Pure

from poetc.ir.stablehlo.base import Value


@irdl_op_definition
class ReturnOp(IRDLOperation):
    """Ends the body of a reduction."""

    name = "stablehlo.return"
    inputs = var_operand_def(TensorType)
    traits = traits_def(Pure(), IsTerminator())

    assembly_format = "$inputs attr-dict `:` type($inputs)"

    def __init__(self, *values: Value):
        super().__init__(operands=[values])
