"""The arguments and expected results of one step, as an `.npz` file has them.

arg0, arg1, ...   the arguments, parameters included
out0, out1, ...   the results, those that are known
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from poetc.errors import InputError
from poetc.image_files import ArrayFile
from poetc.interpreter.functions import tensor_of
from poetc.ir.graph import graphs
from poetc.ir.poet import GraphOp, tensor_type
from poetc.ir.text import entry_functions
from poetc.ir.types import computed_dtype, rounded

Type = tuple[tuple[int, ...], np.dtype]
"""Shape and type of a tensor."""

_NUMBERED = re.compile(r"(arg|out)(\d+)", re.ASCII)


@dataclass(frozen=True)
class StepData:
    """The arguments of a step, and by their numbers the results that are known."""

    arguments: tuple[np.ndarray, ...]
    results: Mapping[int, np.ndarray]

    def held_by(self, graph: GraphOp) -> StepData:
        """The same, rounded where the graph that was made of the step holds weights in 16 bits."""
        types = argument_types(graph)
        arguments = [
            rounded(array, dtype)
            for array, (_, dtype) in zip(self.arguments, types.values(), strict=True)
        ]
        results = _result_types(graph)
        return StepData(
            tuple(arguments), {k: rounded(a, results[k][1]) for k, a in self.results.items()}
        )


def argument_types(graph: GraphOp) -> dict[int, Type]:
    """The types of arguments, by their numbers."""
    return {i: tensor_of(tensor_type(a)) for i, a in enumerate(graph.arguments)}


def _result_types(graph: GraphOp) -> list[Type]:
    return [tensor_of(tensor_type(value)) for value in graph.return_op.arguments]


def read_step(module: ModuleOp, path: str) -> StepData:
    """The arguments and expected results in the `.npz` file `path`, for the step of a module.

    Raises InputError for a file that is none or is damaged, that lacks an argument, or has one or a
    result that the step has not, or of another shape or type. Numbers of float32 are rounded where
    a float of 16 bits is needed.
    """
    found = graphs(module)
    if found:
        arguments, results = argument_types(found[0]), _result_types(found[0])
    else:
        function = entry_functions(module)[0]
        arguments = dict(enumerate(map(tensor_of, function.function_type.inputs)))
        results = [tensor_of(type_) for type_ in function.function_type.outputs]
    file = _open(path, [*arguments.values(), *results])
    for name in file:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            continue
        count, what = (
            (len(arguments), "arguments") if match[1] == "arg" else (len(results), "results")
        )
        if len(match[2]) > 9 or int(match[2]) >= count:
            raise InputError(f"{path} has {name[:40]}; the model has {count} {what}")
    read = read_arguments(arguments, file)
    known = {k: _array(file, f"out{k}", t) for k, t in enumerate(results) if f"out{k}" in file}
    return StepData(tuple(read.values()), known)


def read_arguments(types: Mapping[int, Type], file: ArrayFile | str) -> dict[int, np.ndarray]:
    """The arguments of these types in an `.npz` file. Raises InputError as `read_step` does."""
    arrays = _open(file, list(types.values())) if isinstance(file, str) else file
    found: dict[int, np.ndarray] = {}
    for i, type_ in types.items():
        if f"arg{i}" not in arrays:
            raise InputError(f"{arrays.path} has no arg{i}; the model takes {len(types)}")
        found[i] = _array(arrays, f"arg{i}", type_)
    return found


def _open(path: str, types: Sequence[Type]) -> ArrayFile:
    most_bytes = max((math.prod(s) * computed_dtype(t).itemsize for s, t in types), default=0)
    return ArrayFile(path, most_bytes)


def _array(file: ArrayFile, name: str, type_: Type) -> np.ndarray:
    shape, dtype = type_
    array = rounded(file[name], dtype)
    if (array.shape, array.dtype) != (shape, dtype):
        raise InputError(
            f"{file.path}: {name} must be {dtype} of shape {shape}, "
            f"not {array.dtype} of shape {array.shape}"
        )
    return array
