"""The names of a module: its functions, and its tables of constants."""

from __future__ import annotations

from typing import TypeVar

from xdsl.dialects.func import FuncOp
from xdsl.dialects.memref import GlobalOp
from xdsl.ir import Operation
from xdsl.traits import SymbolTable

Named = TypeVar("Named", FuncOp, GlobalOp)


def symbol_table(op: Operation | None) -> Operation | None:
    """The operation that names functions which `op` can use, itself or around it; None for one that
    is in no module."""
    while op is not None and not op.has_trait(SymbolTable):
        op = op.parent_op()
    return op


def named_in(op: Operation, kind: type[Named]) -> dict[str, Named]:
    """The functions, or the tables of constants, by name, of the module that `op` is or is in; none
    where it is in no module."""
    table = symbol_table(op)
    ops = table.regions[0].block.ops if table is not None else ()
    return {each.sym_name.data: each for each in ops if isinstance(each, kind)}
