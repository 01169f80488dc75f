"""The results of a module in the mode `eval()`: an entry point beside the step."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from poetc.errors import InputError
from poetc.frontends.torch.graph import array_of, run
from poetc.frontends.torch.trace import name_places, trace
from poetc.frontends.torch.training import Training


def prediction(
    torch: Any, given: Training, inputs: Sequence[Any]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function and its arguments: parameters and buffers, called as the step calls them, and
    the inputs. Its results are the tensors that the module returns.

    Raises InputError for what cannot be traced, and for a module that returns no tensor.
    """
    import jax  # pyright: ignore[reportMissingImports]

    training = given.copy()
    parts = (training.parameters(), training.buffers())
    example = [t.detach() for part in parts for t in part.values()]
    example += [t.detach().clone() for t in inputs]
    graph = trace(_function(torch, training), example)

    def predict(parameters: Any, buffers: Any, inputs: Any) -> Any:
        results = run(graph, [*parameters.values(), *buffers.values(), *inputs])
        return results[0] if len(results) == 1 else tuple(results)

    kept = [OrderedDict((k, array_of(v)) for k, v in part.items()) for part in parts]
    arguments = (*kept, tuple(map(array_of, inputs)))
    # Of the types that they have, also integers of 64 bits.
    return predict, jax.tree.map(lambda array: jax.numpy.asarray(array, array.dtype), arguments)


def _function(torch: Any, training: Training) -> Callable[..., list[Any]]:
    """The module as a function of its parameters, its buffers and inputs."""
    from torch.nn.attention import (  # pyright: ignore[reportMissingImports]
        SDPBackend,
        sdpa_kernel,
    )
    from torch.nn.utils.stateless import (  # pyright: ignore[reportMissingImports]
        _reparametrize_module,
    )
    from torch.utils import _pytree as pytree  # pyright: ignore[reportMissingImports]

    module = training.module.eval()
    names = [*training.parameters(), *training.buffers()]
    name_places(module)

    def function(*tensors: Any) -> list[Any]:
        own = iter([tensor.clone() for tensor in tensors])
        kept = dict(zip(names, islice(own, len(names)), strict=True))
        swapped = _reparametrize_module(module, kept, tie_weights=True)
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), swapped:
            returned = pytree.tree_leaves(module(*own))
        if not returned or not all(isinstance(each, torch.Tensor) for each in returned):
            raise InputError("predict: the module returns what is no tensor, or nothing")
        return [each.detach() for each in returned]

    return function
