"""The arguments and expected results of one step, as an `.npz` file has them.

    arg0, arg1, ...   the arguments, parameters included
    out0, out1, ...   the results, those that are known

Numbers are those of whole tensors: where a graph has parameters in shards, they are joined.
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
from poetc.ir.poet import GraphOp, PageType
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
    """The types of whole arguments, by the number of the first part."""
    return {i: _whole(graph, i) for i in range(len(graph.arguments)) if graph.is_first(i)}


def _whole(graph: GraphOp, i: int) -> Type:
    """Of argument `i`, or of the parameter of which it is the first part."""
    shape, dtype = _part(graph, i)
    part = graph.shard(i)
    if part is None:
        return shape, dtype
    sizes = [_part(graph, k)[0][part.axis] for k in graph.shards(i)]
    return (*shape[: part.axis], sum(sizes), *shape[part.axis + 1 :]), dtype


def _part(graph: GraphOp, i: int) -> Type:
    type_ = graph.arguments[i].type
    return tensor_of(type_.tensor if isinstance(type_, PageType) else type_)


def _result_types(graph: GraphOp) -> list[Type]:
    updated = {graph.updates(i): i for i in range(len(graph.arguments))}
    types: list[Type] = []
    for k, value in enumerate(graph.return_op.arguments):
        argument = updated.get(k)
        if argument is None:
            types.append(tensor_of(value.type))
        elif graph.is_first(argument):
            types.append(_whole(graph, argument))
    return types


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
