"""`stablehlo-pages`: weights are held in 16 bits, and computed with in 32.

A weight of f32 that the step updates, or that is frozen, becomes an argument of f16 or bf16, which
is converted where it is read. Its new value is rounded once, at the end of the step: to nearest,
ties to even. All that comes afterwards sees a step that was written so: `poet-fuse` puts the
conversions into the kernels that read and write the weight, so that there is no copy in f32, and
its page has half the bytes. State of the optimiser stays as it is: a second moment is often too
small for f16.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import FunctionType, ModuleOp, TensorType, bf16, f16, f32
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Operation
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from poetc.errors import InputError
from poetc.ir import stablehlo as hlo
from poetc.ir.aliasing import read_for_results, updates_of
from poetc.ir.locations import source_location
from poetc.options import default
from poetc.passes.stablehlo_to_poet import frozen_arguments
from poetc.passes.stablehlo_train import main_of

TYPES: dict[str, Attribute] = {"f16": f16, "bf16": bf16}


@dataclass(frozen=True)
class StableHLOPagesPass(ModulePass):
    """Holds weights as `type`, "f16" or "bf16". `frozen` is that of `stablehlo-to-poet`.

    The module must have been through `stablehlo-simplify`. Raises InputError if there is no weight
    of f32.
    """

    name = "stablehlo-pages"

    type: str
    frozen: str = default("frozen")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.type not in TYPES:
            raise InputError(f"type is {' or '.join(TYPES)}, not {self.type}")
        main = main_of(op)
        updates = updates_of(main)
        kept = updates.keys() | frozen_arguments(main, self.frozen)
        arguments = main.body.block.args
        weights = [
            i
            for i in sorted(kept & read_for_results(main))
            if hlo.element_type_of(arguments[i]) == f32
        ]
        if not weights:
            raise InputError(
                f"--pages={self.type}: the step has no weight of f32 that it updates or that is "
                "frozen",
                source_location(main),
            )
        for i in weights:
            hold(main, i, updates.get(i), TYPES[self.type])
        returned = main.body.block.last_op
        assert returned is not None
        main.function_type = FunctionType.from_lists(
            [argument.type for argument in main.body.block.args],
            [operand.type for operand in returned.operands],
        )


def hold(main: FuncOp, i: int, result: int | None, element: Attribute) -> None:
    """Gives argument `i` that element type, and its new value, which is `result`."""
    block = main.body.block
    first, last = block.first_op, block.last_op
    assert first is not None and isinstance(last, ReturnOp)
    type = TensorType(element, hlo.shape_of(block.args[i]))
    argument = Rewriter.replace_value_with_new_type(block.args[i], type)
    wide = hlo.ConvertOp(argument, f32)
    argument.replace_all_uses_with(wide.result)
    wide.operands = [argument]
    wide.location = main.location
    block.insert_op_before(wide, first)
    if result is None:
        return
    returned = list(last.operands)
    new = returned[result]
    if new is wide.result:
        returned[result] = argument
    else:
        narrow = hlo.ConvertOp(new, element)
        narrow.location = new.owner.location if isinstance(new.owner, Operation) else main.location
        block.insert_op_before(narrow, last)
        returned[result] = narrow.result
    last.operands = returned
