"""Sources in Python that can be compiled: functions of JAX, modules of PyTorch and xDSL, and
text."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

from poetc.errors import InputError
from poetc.ir.text import check_entry, read_module
from poetc.streams import read

if TYPE_CHECKING:
    from poetc.frontends.files import Lowered


@dataclass(frozen=True)
class Part:
    """An argument or result of the source: its name, the numbers of its tensors in flat order, and
    the pytree that they are (`PyTreeDef`; None: one tensor)."""

    name: str
    numbers: range
    structure: Any = None

    def flat(self, value: Any) -> list[Any]:
        """The tensors of a value. Raises InputError for another structure."""
        if self.structure is None:
            return [value]
        leaves, structure = _tree().flatten(value)
        if structure != self.structure:
            raise InputError(f"{self.name} is {self.structure}, not {structure}")
        return leaves

    def tree(self, tensors: Sequence[Any]) -> Any:
        """The value with these tensors."""
        if self.structure is None:
            return tensors[0]
        return self.structure.unflatten(tensors)


@dataclass(frozen=True)
class Source:
    """A training step as it was given.

    `data` are text, bytecode or a module, `name` is what it is called in messages. `arguments` and
    `results` are None where they are those of `@main`. `values` are those of arguments that are
    known, by number. Arguments in `settings` keep their values until they are given others. A
    source that does not return a tuple has one result. `entries` are other entry points, as far as
    more is known of them than the module says.
    """

    name: str
    data: bytes | ModuleOp
    arguments: tuple[Part, ...] | None = None
    results: tuple[Part, ...] | None = None
    values: Mapping[int, Any] = field(default_factory=dict)
    settings: frozenset[int] = frozenset()
    returns_tuple: bool = True
    entries: Mapping[str, Source] = field(default_factory=dict)

    def module(self) -> ModuleOp:
        """The module, for the caller to change. Raises InputError for what is none."""
        if isinstance(self.data, ModuleOp):
            return self.data.clone()
        return read_module(self.data, self.name)


def source_of(
    source: Any,
    args: Sequence[Any],
    *,
    loss: Callable[..., Any] | None = None,
    optimiser: Any = None,
    donate_argnums: Any = None,
    predict: Any = None,
    frontend_options: Mapping[str, Any] | None = None,
) -> Source:
    """The source that `poetc.compile` is given. Raises InputError for anything else."""
    options = dict(frontend_options or {})
    if loss is not None or optimiser is not None:
        if loss is None or optimiser is None:
            raise InputError("a module of PyTorch is compiled with both: loss=..., optimiser=...")
        if len(args) != 2:
            raise InputError("args of a module of PyTorch are two: inputs and targets")
        return _of_torch(source, args, loss, optimiser, options | {"predict": predict})
    if options:
        raise InputError(f"{', '.join(options)} are for modules of PyTorch, with their loss")
    is_module = isinstance(source, ModuleOp | str | bytes | os.PathLike)
    if predict is not None and is_module:
        raise InputError("predict is for functions and modules of frameworks; MLIR has @predict")
    if isinstance(source, ModuleOp):
        return _of_module(source, args)
    if isinstance(source, str | bytes | os.PathLike):
        return _of_text(source, args)
    if any(base.__module__.startswith("torch.") for base in type(source).__mro__):
        raise InputError("a module of PyTorch is compiled with loss=... and optimiser=...")
    if not callable(source):
        raise InputError(
            "the source is a function of JAX, a module of PyTorch or xDSL, MLIR text or a path, "
            f"not of the type {type(source).__name__}"
        )
    from poetc.frontends.jax import lower

    entries = {} if predict is None else {"predict": predict}
    lowered = lower(source, args, donate_argnums=donate_argnums, lines=True, entries=entries)
    return _of_lowered(lowered, getattr(source, "__name__", "step"))


def _of_lowered(lowered: Lowered, name: str) -> Source:
    """A step that a frontend has made."""
    returned = lowered.result_structure
    # A named tuple is one result.
    several = (returned.node_data() or (None,))[0] is tuple
    results = returned.children() if several else [returned]
    return Source(
        name,
        lowered.text.encode(),
        _parts(lowered.tops, lowered.structure.children()),
        _parts([f"result {k}" for k in range(len(results))], results),
        dict(enumerate(lowered.arguments)),
        returns_tuple=several,
        entries={n: _of_lowered(each, n) for n, each in lowered.entries.items()},
    )


def _parts(names: Sequence[str], structures: Sequence[Any]) -> tuple[Part, ...]:
    parts: list[Part] = []
    start = 0
    for name, structure in zip(names, structures, strict=True):
        numbers = range(start, start + structure.num_leaves)
        start = numbers.stop
        is_leaf = structure.num_nodes == structure.num_leaves == 1
        parts.append(Part(name, numbers, None if is_leaf else structure))
    return tuple(parts)


def _of_torch(
    module: Any,
    args: Sequence[Any],
    loss: Callable[..., Any],
    optimiser: Any,
    options: Mapping[str, Any],
) -> Source:
    """The step of a module of PyTorch."""
    from poetc.frontends.torch import lower

    inputs, targets = args
    lowered = lower(module, loss, optimiser, inputs, targets, **options)
    found = _of_lowered(lowered, type(module).__name__)
    entries = {n: _inputs_apart(s, lowered.entries[n]) for n, s in found.entries.items()}
    return replace(_inputs_apart(found, lowered), entries=entries)


def _inputs_apart(found: Source, lowered: Lowered) -> Source:
    """The same with each input, target and setting as an argument of its own."""
    parts: list[Part] = []
    settings: set[int] = set()
    for part in found.arguments or ():
        if part.name in ("settings", "inputs", "targets"):
            parts += [Part(lowered.names[i], range(i, i + 1)) for i in part.numbers]
            settings |= set(part.numbers) if part.name == "settings" else set()
        else:
            parts.append(part)
    return replace(found, arguments=tuple(parts), settings=frozenset(settings))


def _of_module(module: ModuleOp, args: Sequence[Any]) -> Source:
    """A copy, with its locations, of a module that is checked as text is when it is read."""
    try:
        module.verify()
    except VerifyException as error:
        raise InputError(f"<module> is not valid: {error}") from error
    check_entry(module)
    return Source("<module>", module.clone(), values=dict(enumerate(args)))


def _of_text(source: str | bytes | os.PathLike[str], args: Sequence[Any]) -> Source:
    values = dict(enumerate(args))
    if isinstance(source, bytes):
        return Source("<bytes>", source, values=values)
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return Source("<string>", source.encode(), values=values)
    return Source(*read(str(Path(source))), values=values)


def _tree() -> Any:
    import jax  # pyright: ignore[reportMissingImports]

    return jax.tree


def signature_of(args: Any) -> Any:
    """The signature that JAX compiles a function for: structure, shapes and types of its
    arguments."""
    leaves, structure = _tree().flatten(args)
    return structure, tuple((np.shape(leaf), _dtype(leaf)) for leaf in leaves)


def as_jax(args: Any) -> Any:
    """Pytrees whose leaves have the types that JAX makes of them: f32 of f64 and of numbers."""

    def as_typed(leaf: Any) -> Any:
        wanted = _dtype(leaf)
        if str(getattr(leaf, "dtype", "")) == wanted:
            return leaf
        return np.asarray(leaf).astype(wanted)

    return _tree().map(as_typed, args)


def _dtype(leaf: Any) -> str:
    import jax  # pyright: ignore[reportMissingImports]

    dtype = getattr(leaf, "dtype", None)
    if dtype is not None and str(dtype).startswith("key<"):
        return str(dtype)
    return str(jax.dtypes.canonicalize_dtype(np.result_type(leaf) if dtype is None else dtype))
