"""The call graph of a module: which function calls which."""

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.traits import SymbolTable

from poetc.errors import InputError
from poetc.ir.locations import source_location


def public_functions(module: ModuleOp) -> list[FuncOp]:
    """The functions that can be called from outside, in their order."""
    functions = [op for op in module.ops if isinstance(op, FuncOp)]
    return [f for f in functions if f.sym_visibility is None or f.sym_visibility.data == "public"]


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
