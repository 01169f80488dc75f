"""Several entry points of one module: a step that trains, and others that read its parameters.

The step is the public function `@step`, or `@main`. Another public function, such as `@predict`,
is compiled by the same passes, for the same RAM, after the step. An argument of it that is called
like a parameter of the step, by its `poet.name` or by `poet.parameter = "name"`, is that parameter:
it is read where the step leaves it, and never written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    ModuleOp,
    StringAttr,
    TensorType,
    UnitAttr,
    f32,
)
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from poetc.errors import InputError, collected
from poetc.ir.aliasing import updates_of
from poetc.ir.calls import callee_of, calls_in
from poetc.ir.locations import source_location
from poetc.ir.poet import STORED, GraphOp, tensor_type
from poetc.ir.text import entry_functions
from poetc.passes.stablehlo_pages import TYPES, hold
from poetc.passes.stablehlo_to_poet import FROZEN, argument_names
from poetc.passes.stablehlo_train import main_of

PARAMETER = "poet.parameter"
"""Attribute of an argument of an entry: the name or number of the parameter of the step that it
is."""

_TAKEN = re.compile(
    r"(step|check|argument|result|compute|arena|static|stack|ram|storage|bank|layout|caller|build|"
    r"arg|plan|hook|kernel|frozen|shared|load|section|set|get|init|version|size|align|save|open|"
    r"instance|parameter|image|page|slice|stream)"
    r"s?([_\d].*)?"
)
"""Words with which names of other symbols of a model begin."""


def separate(module: ModuleOp) -> dict[str, ModuleOp]:
    """Leaves the step in `module`, as `@main`; the others, each as `@main` of a module, by name.

    Raises InputError for names that C functions cannot have, or that would look like others.
    """
    step, *others = entry_functions(module)
    found: dict[str, ModuleOp] = {}
    for entry in others:
        name = entry.sym_name.data
        first = name.split("_")[0]
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", name):
            why = "lower-case letters, digits and _ make one, 41 at most"
        elif _TAKEN.fullmatch(name):
            why = f"functions of the model that begin with {first} are others"
        elif shorter := [e.sym_name.data for e in others if name.startswith(f"{e.sym_name.data}_")]:
            why = f"functions of @{shorter[0]} begin like that"
        else:
            why = ""
        if why:
            raise InputError(
                f"@{name} cannot be an entry point, as a function of C is called after it: {why}",
                source_location(entry),
            )
        copy = module.clone()
        same = next(op for op in copy.ops if isinstance(op, FuncOp) and op.sym_name.data == name)
        _keep(copy, same)
        found[name] = copy
    if others or step.sym_name.data != "main":
        _keep(module, step)
    return found


def _keep(module: ModuleOp, entry: FuncOp) -> None:
    """Removes all functions that `entry` does not call, and makes it `@main`."""
    needed: set[Operation] = set()
    waiting = [entry]
    while waiting:
        function = waiting.pop()
        if function not in needed:
            needed.add(function)
            waiting += [callee_of(call) for call in calls_in(function)]
    for op in list(module.ops):
        if isinstance(op, FuncOp) and op not in needed:
            Rewriter.erase_op(op)
        elif isinstance(op, FuncOp) and op is not entry:
            op.sym_visibility = StringAttr("private")
    entry.sym_name = StringAttr("main")


def bind(module: ModuleOp, name: str, step: GraphOp) -> Mapping[int, int]:
    """The arguments of an entry, `@main` of `module`, that are parameters of the planned `step`: by
    their numbers, those of the step. They are marked as frozen, on storage if they are there.

    Raises InputError that lists all arguments that are called like parameters and are of another
    type, or like none where that is asked for, and results that would be new values.
    """
    main = main_of(module)
    problems = [
        f"@{name}: argument {i} is to be updated by result {k}; only the step updates parameters"
        for i, k in updates_of(main).items()
    ]
    known: dict[str, list[int]] = {}
    for i in range(len(step.arguments)):
        if step.role(i) != "input":
            known.setdefault(step.arg_name(i), []).append(i)
            known.setdefault(f"arg{i}", []).append(i)
    parameters: dict[int, int] = {}
    given = [attributes.data for attributes in main.arg_attrs or ()]
    for i, own in enumerate(argument_names(main)):
        asked = given[i].get(PARAMETER) if given else None
        wanted = asked.data if isinstance(asked, StringAttr) else own
        found = list(dict.fromkeys(known.get(wanted or "", ())))
        if asked is not None and len(found) != 1:
            count = "no parameter has" if not found else f"{len(found)} parameters have"
            names = ", ".join(n for n in known if len(known[n]) == 1 and not _numbered(n)) or "none"
            problems.append(
                f"@{name}: {PARAMETER} of argument {i} is {asked}: {count} that name; there are "
                f"{names}"
            )
        elif len(found) == 1 and not (asked is None and _numbered(wanted or "")):
            parameters[i] = found[0]
    problems += [
        f"@{name}: argument {i} has {FROZEN}, but is no parameter of the step"
        for i, attributes in enumerate(given)
        if FROZEN in attributes and i not in parameters
    ]
    for i, j in parameters.items():
        own, type_ = main.function_type.inputs.data[i], _type_of(step.arguments[j])
        if own != type_ and not _held(own, type_):
            problems.append(
                f"@{name}: argument {i} is the parameter {step.arg_name(j)} of the step, by its "
                f"name, but is {own} and not {type_}"
            )
    if problems:
        raise collected([InputError(problem, source_location(main)) for problem in problems])
    attributes = [dict(each) for each in given] or [{} for _ in main.function_type.inputs]
    for i, j in parameters.items():
        attributes[i][FROZEN] = UnitAttr()
        if step.is_stored(j):
            attributes[i][STORED] = UnitAttr()
        type_ = _type_of(step.arguments[j])
        if main.function_type.inputs.data[i] != type_:
            hold(main, i, None, type_.element_type)
    main.arg_attrs = ArrayAttr(map(DictionaryAttr, attributes))
    main.update_function_type()
    return parameters


def _numbered(name: str) -> bool:
    return re.fullmatch(r"arg\d+", name) is not None


def _held(own: Attribute, type_: TensorType) -> bool:
    """Whether the step holds in 16 bits (`--pages`) what an entry takes as f32."""
    if not isinstance(own, TensorType) or own.get_shape() != type_.get_shape():
        return False
    return own.element_type == f32 and type_.element_type in TYPES.values()


def _type_of(argument: SSAValue) -> TensorType:
    """The type of an argument of the step, which may be a page, without what else it says."""
    type_ = tensor_type(argument)
    return TensorType(type_.element_type, type_.get_shape())
