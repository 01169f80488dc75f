"""How the step of a program is called: which arguments of the source are parameters, which are
inputs, and how their tensors, which the program has by number, become them and come from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from poetc.arrays import as_numpy
from poetc.backends.c.layout import TensorPlace
from poetc.errors import InputError
from poetc.ir.dense import dtype_of
from poetc.source import Part, Source


class Signature:
    """The arguments and results of a source, for a program that has its tensors in these places.

    `names` are those of the arguments by number, `kept` the numbers of parameters: what the step
    updates, and what is frozen.
    """

    def __init__(
        self, source: Source, arguments: Sequence[TensorPlace], results: Sequence[TensorPlace]
    ) -> None:
        self._places, self._source = arguments, source
        self.names = _unique([place.name for place in arguments])
        self.kept = frozenset(i for i, p in enumerate(arguments) if p.is_param or p.frozen)
        parts = source.arguments or _singles(self.names)
        self._parts = {part.name: part for part in parts}
        asked = [part for part in parts if not self.kept.issuperset(part.numbers)]
        self._settings = [p for p in asked if source.settings.issuperset(p.numbers)]
        self._positional = [p for p in asked if p not in self._settings]
        self._outputs = source.results or _singles([place.name for place in results])

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs in order, settings last."""
        return tuple(part.name for part in (*self._positional, *self._settings))

    def parameters(self, values: Mapping[str, Any]) -> dict[int, np.ndarray]:
        """Tensors of parameters by their names. Raises InputError for names that there are not."""
        numbers = {self.names[i]: i for i in sorted(self.kept)}
        if unknown := sorted(values.keys() - numbers.keys()):
            raise InputError(f"no parameter {', '.join(unknown)}; there are {', '.join(numbers)}")
        return {numbers[name]: self.array(numbers[name], value) for name, value in values.items()}

    def kept_part(self, name: str) -> Part:
        """An argument that consists of parameters. Raises InputError for any other."""
        found = {n: p for n, p in self._parts.items() if self.kept.issuperset(p.numbers)}
        if name not in found:
            raise InputError(f"the program keeps no argument {name!r}, but {', '.join(found)}")
        return found[name]

    def array(self, i: int, value: Any) -> np.ndarray:
        """A tensor that is given for argument `i`. Raises InputError for another shape or type."""
        place = self._places[i]
        return as_numpy(value, self.names[i], place.shape, dtype_of(place.type.element_type))

    def arrays(self, part: Part, value: Any) -> dict[int, np.ndarray]:
        """The tensors that are given for an argument. Raises InputError as `array` does."""
        leaves = part.flat(value)
        return {i: self.array(i, leaf) for i, leaf in zip(part.numbers, leaves, strict=True)}

    def bound(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> dict[int, np.ndarray]:
        """The tensors of the inputs of a step; settings, which are kept, are copies.

        Raises TypeError for inputs that are missing or too many, InputError for those that do not
        fit.
        """
        names = [part.name for part in self._positional]
        if len(inputs) > len(names):
            raise TypeError(
                f"there are {len(names)} inputs ({', '.join(names)}), not {len(inputs)}"
            )
        given = dict(zip(names, inputs, strict=False))
        if twice := sorted(given.keys() & named.keys()):
            raise TypeError(f"{', '.join(twice)}: given by position and by name")
        if unknown := sorted(named.keys() - set(self.inputs)):
            raise TypeError(f"no input {', '.join(unknown)}; there are {', '.join(self.inputs)}")
        given |= named
        if missing := [name for name in names if name not in given]:
            raise TypeError(f"no value for {', '.join(missing)}")
        found: dict[int, np.ndarray] = {}
        for name, value in given.items():
            arrays = self.arrays(self._parts[name], value)
            found |= {i: a.copy() if i in self._source.settings else a for i, a in arrays.items()}
        return found

    def leaves(self, args: Sequence[Any]) -> dict[int, Any]:
        """The value for each tensor, given all arguments of the source."""
        if len(args) != len(self._parts):
            raise TypeError(f"the step takes {len(self._parts)} arguments, not {len(args)}")
        return {
            i: leaf
            for part, value in zip(self._parts.values(), args, strict=True)
            for i, leaf in zip(part.numbers, part.flat(value), strict=True)
        }

    def results(self, tensors: Sequence[np.ndarray | None]) -> Any:
        """The results of a step, made of tensors; a single one stands alone."""
        found = [
            part.tree([tensors[k] for k in part.numbers])
            for part in self._outputs
            if any(tensors[k] is not None for k in part.numbers)
        ]
        return found[0] if len(found) == 1 else tuple(found)

    def returned(self, tensors: Sequence[np.ndarray]) -> Any:
        """The results of the source, made of tensors."""
        found = [part.tree([tensors[k] for k in part.numbers]) for part in self._outputs]
        return tuple(found) if self._source.returns_tuple else found[0]


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    """The names, `arg<i>` in place of those that several have."""
    counts = Counter(names)
    return tuple(name if counts[name] == 1 else f"arg{i}" for i, name in enumerate(names))


def _singles(names: Sequence[str]) -> tuple[Part, ...]:
    """Tensors of the source, each by itself."""
    return tuple(Part(name, range(i, i + 1)) for i, name in enumerate(names))
