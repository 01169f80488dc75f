"""poet-lower-kernels: every compute gets a kernel, a function of loop nests beside the graph.

Equal bodies (operations, attributes, types, in-place pairs) share a function and are lowered once.
A function is named after the label of its first compute, with a number where that name is taken.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr, SymbolRefAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, OpResult, SSAValue
from xdsl.passes import ModulePass

from poetc.errors import InputError, PoetcError, collected
from poetc.ir.graph import graphs
from poetc.ir.locations import source_location
from poetc.ir.poet import ComputeOp, YieldOp
from poetc.kernels.analysis import may_alias
from poetc.kernels.known import KnownKernels, known_kernels, named
from poetc.kernels.lower import Kernel, lower_kernel
from poetc.passes.poet_lower_kernels.repeat import loop_of, lower_loop


@dataclass(frozen=True)
class PoetLowerKernelsPass(ModulePass):
    """Lowers compute bodies to functions; computes that have a kernel already are left alone."""

    name = "poet-lower-kernels"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Raises InputError that lists all operations that are not supported, and in-place pairs
        that kernels do not allow."""
        lower_kernels(op, known_kernels(ctx))


def lower_kernels(module: ModuleOp, known: KnownKernels | None = None) -> None:
    """Lowers the bodies of all computes of a module to functions; equal bodies share one. Kernels
    that are `known` are not lowered again."""
    known = known or KnownKernels()
    symbols = (op.properties.get("sym_name") for op in module.ops)
    names = {symbol.data for symbol in symbols if isinstance(symbol, StringAttr)}
    functions: dict[tuple[Kernel, Sequence[tuple[int, int]]], FuncOp] = {}
    faults: list[InputError] = []
    for graph in graphs(module):
        for compute in graph.computes:
            if compute.kernel is not None:
                continue
            try:
                key = _kernel_of(compute, known), compute.inplace_pairs
                if key not in functions:
                    functions[key] = _add(module, key[0], compute.label.data, names)
                _check_inplace(compute, functions[key])
            except InputError as error:
                faults += _refused_alone(compute) or [error]
                continue
            compute.kernel = SymbolRefAttr(functions[key].sym_name)
    if faults:
        raise collected(faults)


def _refused_alone(compute: ComputeOp) -> list[InputError]:
    """An error for each operation of a compute that is not supported.

    Lowering ends at the first; so each is lowered by itself, with the constants that it reads.
    """
    found: list[InputError] = []
    if loop_of(compute.block) is not None:
        return found
    for op in compute.block.ops:
        if isinstance(op, YieldOp):
            continue
        alone = Block()
        copies: dict[SSAValue, SSAValue] = {}
        for operand in op.operands:
            _copy_operand(operand, alone, copies)
        copy = op.clone(copies)
        alone.add_ops([copy, YieldOp(*copy.results)])
        try:
            lower_kernel(alone)
        except InputError as error:
            location = error.location or source_location(op) or source_location(compute)
            found.append(InputError(error.message, location))
    return found


def _copy_operand(value: SSAValue, into: Block, copies: dict[SSAValue, SSAValue]) -> None:
    """Copies a value into a block: an argument, or of a constant all operations it comes from."""
    if value in copies:
        return
    if not isinstance(value, OpResult) or not _is_constant(value):
        copies[value] = into.insert_arg(value.type, len(into.args))
        return
    for operand in value.op.operands:
        _copy_operand(operand, into, copies)
    copy = value.op.clone(copies)
    into.add_op(copy)
    copies.update(zip(value.op.results, copy.results, strict=True))


def _is_constant(value: SSAValue) -> bool:
    """Whether no argument is among what a value comes from."""
    return isinstance(value, OpResult) and all(map(_is_constant, value.op.operands))


def _kernel_of(compute: ComputeOp, known: KnownKernels) -> Kernel:
    try:
        return known.of(compute.block, lower_loop if loop_of(compute.block) else lower_kernel)
    except PoetcError as error:
        if error.location is not None:
            raise
        raise type(error)(
            f'poet.compute "{compute.label.data}": {error.message}', source_location(compute)
        ) from error


def _add(module: ModuleOp, kernel: Kernel, label: str, names: set[str]) -> FuncOp:
    """A copy of a kernel, which is in the module from then on, under a name that is free there."""
    name = _free_name(label, names)
    copy = named(kernel, name)
    names |= {name, *(table.sym_name.data for table in copy.globals)}
    module.body.block.add_ops([*copy.globals, copy.function])
    return copy.function


def _free_name(label: str, names: set[str]) -> str:
    base = re.sub(r"\W", "_", label, flags=re.ASCII) or "kernel"
    if base[0].isdigit():
        base = f"_{base}"
    name, number = base, 0
    while name in names:
        number += 1
        name = f"{base}_{number}"
    return name


def _check_inplace(compute: ComputeOp, function: FuncOp) -> None:
    for result, operand in compute.inplace_pairs:
        buffer = compute.operands[operand]
        for other, value in enumerate(compute.operands):
            if value is buffer and not may_alias(function, result, other):
                raise InputError(
                    f'poet.compute "{compute.label.data}": inplace [{result}, {operand}] is not '
                    f"legal, the kernel reads elements of operand {other} after result {result} "
                    "would have overwritten them",
                    source_location(compute),
                )


__all__ = ["PoetLowerKernelsPass", "lower_kernels"]
