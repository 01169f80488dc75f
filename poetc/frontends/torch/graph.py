"""A graph that PyTorch traced, run on arrays of JAX: what JAX writes as StableHLO."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from poetc.errors import InputError
from poetc.ir.types import BFLOAT16

PLACE = "poetc.place"
"""Key of what a traced operation is annotated with: its module, or what else it is in."""


@contextmanager
def wide_integers() -> Iterator[None]:
    """In it, JAX has PyTorch's integers of 64 bits, but makes other numbers with 32."""
    import jax  # pyright: ignore[reportMissingImports]

    option = "jax_explicit_x64_dtypes"
    before = getattr(jax.config, option)
    jax.config.update(option, "allow")
    try:
        yield
    finally:
        jax.config.update(option, before)


def run(graph: Any, arrays: Sequence[Any]) -> list[Any]:
    """Run the graph on arrays of JAX. Raises an InputError that lists all operations that cannot
    be lowered, with their modules and source lines."""
    import jax.numpy as jnp  # pyright: ignore[reportMissingImports]
    from torch.fx import map_arg  # pyright: ignore[reportMissingImports]

    from poetc.frontends import aten

    values: dict[Any, Any] = {}
    problems: dict[str, None] = {}
    given = iter(arrays)
    results: list[Any] = []

    def apply(node: Any) -> Any:
        meta = node.meta.get("val")
        if not _is_static(meta):
            raise aten.UnsupportedError(aten.VALUES)
        if any(values[operand] is None for operand in node.all_input_nodes):
            return None
        arguments, options = map_arg((node.args, node.kwargs), values.__getitem__)
        return aten.lower(node.target, arguments, options, meta)

    for node in graph.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(given)
        elif node.op == "get_attr":
            values[node] = jnp.asarray(array_of(getattr(graph, node.target)))
        elif node.op == "output":
            results = [aten.numbers(v) for v in map_arg(node.args[0], values.__getitem__)]
        else:
            try:
                values[node] = apply(node)
            except aten.UnsupportedError as problem:
                what = f": {problem}" if str(problem) else ""
                problems[f"  {_operation(node)}{_where(node)}{what}"] = None
                values[node] = aten.absent(node.meta.get("val"))
    if problems:
        raise InputError("\n".join(("operations that poetc cannot compile:", *problems)))
    return results


def _is_static(meta: Any) -> bool:
    """Whether shapes and numbers in what PyTorch says of a result are known."""
    import torch  # pyright: ignore[reportMissingImports]

    if isinstance(meta, list | tuple):
        return all(map(_is_static, meta))
    if isinstance(meta, torch.Tensor):
        return all(isinstance(size, int) for size in meta.shape)
    return not isinstance(meta, torch.SymInt | torch.SymFloat | torch.SymBool)


def _operation(node: Any) -> str:
    """The operation, and the one in the source that it is a part of."""
    part, whole = str(node.target), str(node.meta.get("original_aten", node.target))
    return part if part == whole else f"{part} of {whole}"


def _where(node: Any) -> str:
    """The module and the line of its source that an operation is from."""
    place = node.meta.get("custom", {}).get(PLACE)
    frames = re.findall(r'File "(.+)", line (\d+)', node.stack_trace or "")
    return (f" in {place}" if place else "") + source_of(frames)


def source_of(frames: Iterable[tuple[str, Any]]) -> str:
    """The innermost of files and lines that is not in a library."""
    import jax  # pyright: ignore[reportMissingImports]
    import torch  # pyright: ignore[reportMissingImports]

    own_folder = str(Path(__file__).parents[1])
    libraries = (
        own_folder,
        *(str(Path(file).parent) for file in (str(torch.__file__), str(jax.__file__))),
    )
    # Such as <string>, of code that is made at run time.
    libraries += ("<",)
    places = [f" ({file}:{line})" for file, line in frames if not file.startswith(libraries)]
    return places[-1] if places else ""


def array_of(tensor: Any) -> np.ndarray:
    """The elements of a tensor."""
    import torch  # pyright: ignore[reportMissingImports]

    here = tensor.detach().cpu()
    if here.dtype == torch.bfloat16:
        # NumPy does not know the type.
        return here.view(torch.int16).numpy().view(BFLOAT16.dtype)
    return here.numpy()
