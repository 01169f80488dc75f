"""JAX: a training step, written as the files that poetc compiles.

    from poetc.frontends.jax import export

    export(step, (params, opt_state, x, y), "model")     # model.mlir, model.npz

`step(params, opt_state, x, y) -> (params, opt_state, loss)` is any function that `jax.jit` takes.
Which arguments the step updates, and which result is the new value of which, is found by the
structure of the pytrees and never by shapes alone: `jax.jit` gives a donated buffer to the first
result of the same shape, which may be that of another tensor.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from poetc.errors import InputError
from poetc.frontends.files import Exported, Lowered, check_types, require
from poetc.patterns import chosen

Donated = int | Sequence[int] | Mapping[int, int] | None
"""The arguments that a step updates, and the results that update them."""

EntryPoint = tuple[Callable[..., Any], Sequence[Any]]
"""A function beside the step, and its arguments."""


@dataclass(frozen=True)
class _Tree:
    """A pytree, or a part of one, of tensors: its structure (`PyTreeDef`), the number of its first
    leaf in flat order, and names and types (`float32[4,3]`) of its leaves."""

    structure: Any
    start: int
    names: tuple[str, ...]
    types: tuple[str, ...]

    def fits(self, other: _Tree) -> bool:
        return self.structure == other.structure and self.types == other.types

    def parts(self) -> Iterator[_Tree]:
        """Itself and all trees in it, the outer ones first."""
        trees: deque[_Tree] = deque([self])
        while trees:
            tree = trees.popleft()
            yield tree
            start = 0
            for structure in tree.structure.children():
                end = start + structure.num_leaves
                trees.append(
                    _Tree(
                        structure,
                        tree.start + start,
                        tree.names[start:end],
                        tree.types[start:end],
                    )
                )
                start = end


def export(
    step: Callable[..., Any],
    args: Sequence[Any],
    path: str | os.PathLike[str],
    *,
    donate_argnums: Donated = None,
    frozen: str | Sequence[str] = (),
    results: bool | Sequence[np.ndarray] = False,
    **entries: EntryPoint,
) -> Exported:
    """Write `NAME.mlir` and `NAME.npz` of `step(*args)` for the path `NAME` or `NAME.mlir`.

    Each of `entries`, such as `predict=(predict, (params, x))`, is a function with its arguments
    that reads parameters of the step, and is another entry point of the module. The other arguments
    are those of `lower`. Raises InputError as that does, and if a file cannot be written.
    """
    lowered = lower(
        step,
        args,
        donate_argnums=donate_argnums,
        frozen=frozen,
        results=results,
        entries=entries,
    )
    return lowered.write(path)


def lower(
    step: Callable[..., Any],
    args: Sequence[Any],
    *,
    donate_argnums: Donated = None,
    frozen: str | Sequence[str] = (),
    results: bool | Sequence[np.ndarray] = False,
    lines: bool = False,
    entries: Mapping[str, EntryPoint] | None = None,
) -> Lowered:
    """`step(*args)` in StableHLO, in memory.

    `args` are example arguments, pytrees of arrays; their values are kept. With `results`, so is
    what JAX computes for them, or the results given, in flat order. With `lines`, the text says
    from which lines of Python its operations are.

    `donate_argnums` are the positions of the arguments that the step updates: each goes with the
    first result, or tree in a result, of the same structure, shapes and types that is not taken
    yet. A mapping says which: `{0: 1}` for argument 0 whose new value is result 1. By default they
    are all arguments that are containers (a dictionary, a tuple, ...; an array may have the shape
    of a result by chance) and have such a result, of which there must be at least one.

    `frozen` are names of arguments, or of trees or tensors in them (`params.encoder`), also with
    `*`, that no step changes: weights that are not trained. They are read where they are, such as
    in flash. Those that come back unchanged need not be named.

    `entries` are functions with their arguments, by the names of the entry points that they become.
    What they have in common with the arguments that the step updates, or that are frozen, is the
    same array in `args`, or has the same name; all else is an input.

    Raises InputError for an argument to be updated without a result that fits, for types and
    values that poetc does not have, and where JAX is missing. What JAX raises while it traces
    `step` is passed on.
    """
    jax = require("jax", "the frontend for JAX")
    from jax.tree_util import (  # pyright: ignore[reportMissingImports]
        keystr,
        tree_flatten_with_path,
    )

    def named(trees: tuple[Any, ...], tops: Sequence[str]) -> tuple[list[str], list[Any], Any]:
        """Names, leaves and structure of several pytrees, each with a name of its own."""
        leaves, structure = tree_flatten_with_path(trees)
        names: list[str] = []
        for path, _ in leaves:
            top = tops[int(path[0].idx)]
            inside = keystr(tuple(path[1:]), simple=True, separator=".")
            names.append(f"{top}.{inside}" if inside else top)
        return names, [leaf for _, leaf in leaves], structure

    if not isinstance(args, tuple | list):
        raise InputError(
            f"the arguments of the step are a tuple, one entry for each, not {type(args).__name__}"
        )
    step, args = _with_raw_keys(step, tuple(args))
    arguments_named = _argument_names(step, args)
    names, leaves, structure = named(args, arguments_named)
    check_types(
        (name, type(leaf).__name__ + ", which has no values")
        for name, leaf in zip(names, leaves, strict=True)
        if isinstance(leaf, jax.ShapeDtypeStruct)
    )
    _check_leaves(names, leaves)
    traced = jax.jit(step, keep_unused=True).trace(*args)
    given = traced.jaxpr.in_avals
    out = traced.out_info
    # A named tuple is one result.
    outs = out if type(out) is tuple else (out,)
    tops = [f"result {i}" for i in range(len(outs))]
    out_names, out_leaves, out_structure = named(outs, tops)
    check_types(
        (name, str(leaf.dtype))
        for name, leaf in zip((*names, *out_names), (*given, *out_leaves), strict=True)
    )

    arguments = _Tree(structure, 0, tuple(names), tuple(map(_type, given)))
    result = _Tree(out_structure, 0, tuple(out_names), tuple(map(_type, out_leaves)))
    try:
        updates = _updates(arguments, result, donate_argnums)
    except InputError as error:
        raise _with_hint(error, args) from error
    kept = _frozen(names, [frozen] if isinstance(frozen, str) else frozen)
    parameters = {id(leaves[i]): names[i] for i in sorted(updates.keys() | kept)}
    others = {
        name: _entry(name, entry, parameters, lines) for name, entry in (entries or {}).items()
    }
    text = _text(traced.lower(lowering_platforms=("cpu",)), names, updates, kept, lines, others)
    values = [np.asarray(leaf, aval.dtype) for leaf, aval in zip(leaves, given, strict=True)]
    wide = [
        f"  {name}"
        for name, leaf, value in zip(names, leaves, values, strict=True)
        if value.dtype.kind in "iu" and not np.array_equal(value, np.asarray(leaf))
    ]
    if wide:
        what = "integers of more than 32 bits, which JAX has with jax_enable_x64:"
        raise InputError("\n".join((what, *wide)))
    expected: Any = jax.tree.leaves(jax.jit(step)(*args)) if results is True else results or ()
    return Lowered(
        text,
        tuple(names),
        updates,
        tuple(values),
        tuple(np.asarray(array) for array in expected),
        tuple(arguments_named),
        structure,
        jax.tree.structure(out),
        {name: entry.lowered for name, entry in others.items()},
    )


@dataclass(frozen=True)
class _Entry:
    """An entry point in StableHLO, and for each of its arguments the parameter of the step that it
    is by the array given for it."""

    lowered: Lowered
    parameters: tuple[str | None, ...]


def _entry(name: str, entry: Any, parameters: Mapping[int, str], lines: bool) -> _Entry:
    """Lowers an entry point; `parameters` are the names of those of the step by their arrays."""
    import jax  # pyright: ignore[reportMissingImports]

    if not (isinstance(entry, tuple) and len(entry) == 2 and callable(entry[0])):
        raise InputError(
            f"{name} is no option, and no entry point, which is a function with its arguments: "
            f"{name}=({name}, (params, x))"
        )
    function, args = entry
    found = lower(function, args, donate_argnums=(), lines=lines)
    same = tuple(parameters.get(id(leaf)) for leaf in jax.tree.leaves(args))
    known = set(parameters.values())
    if not any(same) and known.isdisjoint(found.names):
        raise InputError(
            f"{name} reads no parameter of the step: none of its arguments is an array that the "
            f"step updates or that is frozen, nor called like one: {', '.join(sorted(known))}"
        )
    return _Entry(found, same)


def _check_leaves(names: Sequence[str], leaves: Sequence[Any]) -> None:
    """Raises InputError that lists what is no array and no number among the arguments."""
    others = [
        f"  {name}: {type(leaf).__name__}"
        for name, leaf in zip(names, leaves, strict=True)
        if not hasattr(leaf, "dtype") and not isinstance(leaf, bool | int | float | complex)
    ]
    if others:
        raise InputError(
            "\n".join(
                (
                    "the arguments of a step are arrays; these are not:",
                    *others,
                    "give the step the arrays alone, as equinox.partition(model, equinox.is_array) "
                    "has them, and put the rest in again inside of it (equinox.combine)",
                )
            )
        )


def _with_hint(error: InputError, args: Sequence[Any]) -> InputError:
    """The error about arguments to be updated, with advice if one is of flax.nnx."""
    kinds = {kind.__module__ for arg in args for kind in type(arg).__mro__}
    if not any(name.startswith("flax.nnx.") for name in kinds):
        return error
    return InputError(
        f"{error.message}\nobjects of flax.nnx are changed in place, which nobody outside of the "
        "step sees: give it nnx.state(...) of them, and return their new state"
    )


def _with_raw_keys(
    step: Callable[..., Any], args: tuple[Any, ...]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The step and its arguments with the data of random keys (unsigned integers) in place of keys,
    which StableHLO has not."""
    import jax  # pyright: ignore[reportMissingImports]

    def is_key(leaf: Any) -> bool:
        kind = getattr(leaf, "dtype", None)
        return jax.dtypes.issubdtype(  # pyright: ignore[reportPrivateImportUsage]
            kind, jax.dtypes.prng_key
        )

    def raw(tree: Any) -> Any:
        return jax.tree.map(lambda x: jax.random.key_data(x) if is_key(x) else x, tree)

    leaves, structure = jax.tree.flatten(args)
    keys = {i: jax.random.key_impl(leaf) for i, leaf in enumerate(leaves) if is_key(leaf)}

    @functools.wraps(step)
    def on_raw_keys(*given: Any) -> Any:
        values = jax.tree.leaves(given)
        for i, kind in keys.items():
            values[i] = jax.random.wrap_key_data(values[i], impl=kind)
        return raw(step(*jax.tree.unflatten(structure, values)))

    return on_raw_keys, raw(args)


def _argument_names(step: Callable[..., Any], args: tuple[Any, ...]) -> list[str]:
    """The names of the function's arguments; `arg<i>` where it does not say."""
    try:
        parameters = list(inspect.signature(step).parameters.values())
    except (TypeError, ValueError):  # a builtin
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [*names, *(f"arg{i}" for i in range(len(names), len(args)))][: len(args)]


def _type(tensor: Any) -> str:
    return f"{tensor.dtype}[{','.join(map(str, tensor.shape))}]"


def _updates(
    arguments: _Tree, results: _Tree, donated: int | Sequence[int] | Mapping[int, int] | None
) -> dict[int, int]:
    """Flat number of an argument → that of the result that is its new value."""
    args, outs = _children(arguments), _children(results)
    if donated is None:
        wanted: dict[int, int | None] = {
            i: None for i, arg in enumerate(args) if arg.structure.num_nodes > 1 and arg.names
        }
    elif isinstance(donated, Mapping):
        wanted = dict(donated)
    else:
        wanted = dict.fromkeys([donated] if isinstance(donated, int) else donated)
    updates: dict[int, int] = {}
    problems: list[str] = []
    for i, k in wanted.items():
        if not 0 <= i < len(args) or (k is not None and not 0 <= k < len(outs)):
            problems.append(
                f"  argument {i}{'' if k is None else f', result {k}'}: the step has {len(args)} "
                f"arguments and {len(outs)} results"
            )
            continue
        taken = set(updates.values())
        found = [
            tree
            for tree in (results.parts() if k is None else [outs[k]])
            if taken.isdisjoint(range(tree.start, tree.start + len(tree.names)))
        ]
        new = next((tree for tree in found if args[i].fits(tree)), None)
        if new is not None:
            updates |= {args[i].start + j: new.start + j for j in range(len(new.names))}
        elif donated is not None:
            problems.append(_misfit(args[i], i, found))
    if problems:
        raise InputError("\n".join(("donated arguments without a new value:", *problems)))
    if donated is None and not updates:
        arrays = [i for i, arg in enumerate(args) if any(map(arg.fits, results.parts()))]
        single = f", donate_argnums={arrays[0]} if argument {arrays[0]} is" if arrays else ""
        raise InputError(
            f"the step returns no {'container' if arrays else 'argument'} with the same structure, "
            "shapes and types, so that none is updated; donate_argnums=() if that is meant"
            f"{single}"
        )
    return updates


def _frozen(names: Sequence[str], asked: Sequence[str]) -> set[int]:
    """The flat numbers of the arguments that `asked` names."""
    found: set[int] = set()
    unknown: list[str] = []
    for name in asked:
        numbers = chosen(names, name)
        found.update(numbers)
        if not numbers:
            unknown.append(name)
    if unknown:
        raise InputError(f"frozen: no argument {', '.join(unknown)}; there are {', '.join(names)}")
    return found


def _children(tree: _Tree) -> list[_Tree]:
    """The trees that a tuple consists of."""
    return list(islice(tree.parts(), 1, 1 + len(tree.structure.children())))


def _misfit(argument: _Tree, index: int, results: Sequence[_Tree]) -> str:
    """Why no result is the new value of an argument: what differs from one of its structure."""
    alike = [tree for tree in results if tree.structure == argument.structure]
    if not alike:
        return f"  argument {index}: no result that is left has its structure"
    lines = [
        f"  {name}: {old}, in {other}: {new}"
        for name, old, other, new in zip(
            argument.names, argument.types, alike[0].names, alike[0].types, strict=True
        )
        if old != new
    ]
    return "\n".join(lines)


def _text(
    lowered: Any,
    names: Sequence[str],
    updates: Mapping[int, int],
    frozen: Collection[int],
    lines: bool,
    others: Mapping[str, _Entry],
) -> str:
    """StableHLO of a lowered step, with what each argument is called and updated by, and of other
    entry points."""
    from jaxlib.mlir import ir  # pyright: ignore[reportMissingImports]

    module = lowered.compiler_ir("stablehlo")
    with module.context:
        main = ir.SymbolTable(module.operation)["main"]
        count = len(main.regions[0].blocks[0].arguments)
        if count != len(names):
            # Arguments that JAX adds: tokens of effects, constants taken out of the function.
            raise InputError(
                f"JAX lowers the step to a function of {count} arguments instead of {len(names)}; "
                "debugging output and other side effects cannot be compiled"
            )
        i32 = ir.IntegerType.get_signless(32)
        attributes = []
        for i, name in enumerate(names):
            entries: dict[str, Any] = {"poet.name": ir.StringAttr.get(name)}
            if i in updates:
                entries["tf.aliasing_output"] = ir.IntegerAttr.get(i32, updates[i])
            if i in frozen:
                entries["poet.frozen"] = ir.UnitAttr.get()
            attributes.append(ir.DictAttr.get(entries))
        main.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
        for name, entry in others.items():
            _add_entry(module, name, entry)
        return module.operation.get_asm(enable_debug_info=lines)


def _add_entry(module: Any, name: str, entry: _Entry) -> None:
    """Moves the functions of an entry point into a module, with names of their own."""
    from jaxlib.mlir import ir  # pyright: ignore[reportMissingImports]

    for function in module.body.operations:
        # The step may call a function that is called like the entry point.
        if ir.StringAttr(function.attributes["sym_name"]).value == name:
            ir.SymbolTable.replace_all_symbol_uses(name, f"main_{name}", module.operation)
            ir.SymbolTable.set_symbol_name(function.operation, f"main_{name}")
    other = ir.Module.parse(entry.lowered.text, module.context)
    functions = list(other.body.operations)
    for function in functions:
        old = ir.StringAttr(function.attributes["sym_name"]).value
        new = name if old == "main" else f"{name}_{old}"
        ir.SymbolTable.replace_all_symbol_uses(old, new, other.operation)
        ir.SymbolTable.set_symbol_name(function.operation, new)
        if old == "main":
            attributes = [
                ir.DictAttr.get(
                    {named.name: named.attr for named in ir.DictAttr(given)}
                    | ({} if same is None else {"poet.parameter": ir.StringAttr.get(same)})
                )
                for given, same in zip(
                    ir.ArrayAttr(function.attributes["arg_attrs"]), entry.parameters, strict=True
                )
            ]
            function.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
    for function in functions:
        function.operation.detach_from_parent()
        module.body.append(function)
