"""The results of `@main` that are new values of arguments."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr
from xdsl.dialects.func import FuncOp

from poetc.errors import InputError, collected
from poetc.ir.dataflow import computed_from
from poetc.ir.locations import source_location

ALIASING = "tf.aliasing_output"
"""Argument attribute by which JAX says that the argument's buffer becomes that of result k."""


def updates_of(main: FuncOp) -> dict[int, int]:
    """Argument index → index of the result that is its new value.

    Raises InputError that lists all that `aliasing_faults` gives.
    """
    updates, faults = _read(main)
    if faults:
        raise collected(faults)
    return updates


def read_for_results(main: FuncOp) -> set[int]:
    """Arguments that results other than new values depend on, such as the weights that the loss
    reads; all where there are no such results."""
    arguments, last = main.body.block.args, main.body.block.last_op
    assert last is not None
    plain = set(range(len(last.operands))) - set(updates_of(main).values())
    read = computed_from(last.operands[k] for k in plain)
    return {i for i, argument in enumerate(arguments) if not plain or argument in read}


def aliasing_faults(main: FuncOp) -> list[InputError]:
    """The faults of the attributes of arguments that say which result is their new value."""
    return _read(main)[1]


def _read(main: FuncOp) -> tuple[dict[int, int], list[InputError]]:
    results = main.function_type.outputs.data
    updates: dict[int, int] = {}
    problems: list[str] = []
    for i, attributes in enumerate(main.arg_attrs or ()):
        aliasing = attributes.data.get(ALIASING)
        if aliasing is None:
            continue
        where = f"{ALIASING} of argument {i}"
        if not isinstance(aliasing, IntegerAttr) or not 0 <= aliasing.value.data < len(results):
            problems.append(f"{where} is {aliasing}, @main has {len(results)} results")
            continue
        result = aliasing.value.data
        type = main.function_type.inputs.data[i]
        taken = next((other for other, known in updates.items() if known == result), None)
        if type != results[result]:
            problems.append(
                f"{where}: argument of type {type}, result {result} of type {results[result]}"
            )
        elif taken is not None:
            problems.append(f"{where}: result {result} is that of argument {taken} already")
        else:
            updates[i] = result
    return updates, [InputError(problem, source_location(main)) for problem in problems]
