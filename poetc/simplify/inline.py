"""Inlining of private functions."""

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.ir import SSAValue
from xdsl.traits import SymbolTable

from poetc.errors import InputError
from poetc.ir.locations import source_location


def calls_in(function: FuncOp) -> Iterator[CallOp]:
    """The calls in the body of a function."""
    return (op for op in function.body.walk() if isinstance(op, CallOp))


def callee_of(call: CallOp) -> FuncOp:
    """The function that is called; InputError where it has no body or is not there."""
    function = SymbolTable.lookup_symbol(call, call.callee)
    if not isinstance(function, FuncOp) or function.is_declaration:
        raise InputError(f"{call.callee} is called but has no body", source_location(call))
    return function


def callees_first(module: ModuleOp) -> list[FuncOp]:
    """All functions, each after those it calls; InputError where there is recursion."""
    callees = {
        op: {callee_of(call) for call in calls_in(op)}
        for op in module.ops
        if isinstance(op, FuncOp)
    }
    order: list[FuncOp] = []
    while leaves := [f for f, called in callees.items() if not called & callees.keys()]:
        order += leaves
        for leaf in leaves:
            del callees[leaf]
    if callees:
        raise _recursion_error(callees)
    return order


def _recursion_error(callees: dict[FuncOp, set[FuncOp]]) -> InputError:
    """Names the functions of the cycles: those left without the ones that nobody calls."""
    while True:
        called = set().union(*callees.values())
        if callees.keys() <= called:
            break
        callees = {f: called_by_f for f, called_by_f in callees.items() if f in called}
    names = ", ".join(f"@{function.sym_name.data}" for function in callees)
    return InputError(
        f"recursion among functions is not supported: {names}",
        source_location(next(iter(callees))),
    )


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
