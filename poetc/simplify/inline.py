"""Inlining of private functions; optimization barriers go too."""

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.ir import SSAValue

from poetc.ir.calls import callee_of, callees_first, calls_in
from poetc.ir.stablehlo import OptimizationBarrierOp


def inline_calls(module: ModuleOp) -> None:
    """Replace every call by the body of its callee and erase private functions called nowhere else.

    Callees come first, so no body that is copied still holds a call.
    """
    inlined: set[FuncOp] = set()
    for function in callees_first(module):
        for call in list(calls_in(function)):
            callee = callee_of(call)
            _inline(call, callee)
            inlined.add(callee)
    for function in inlined:
        if function.sym_visibility is not None and function.sym_visibility.data == "private":
            function.detach()
            function.erase()


def remove_barriers(module: ModuleOp) -> None:
    """Replace the results of every optimization barrier by its operands."""
    for op in list(module.walk()):
        if isinstance(op, OptimizationBarrierOp):
            for result, operand in zip(op.outputs, op.inputs, strict=True):
                result.replace_all_uses_with(operand)
            op.detach()
            op.erase()


def _inline(call: CallOp, callee: FuncOp) -> None:
    block = call.parent
    assert block is not None
    body = callee.body.block
    values: dict[SSAValue, SSAValue] = dict(zip(body.args, call.operands, strict=True))
    for op in body.ops:
        if op is body.last_op:
            break
        block.insert_op_before(op.clone(values), call)
    results = [values[operand] for operand in body.last_op.operands] if body.last_op else []
    for old, new in zip(call.results, results, strict=True):
        old.replace_all_uses_with(new)
    block.erase_op(call)
