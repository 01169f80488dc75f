"""Tracing: what a function of tensors does, as a graph of ATen operations with their places."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from poetc.errors import InputError
from poetc.frontends.torch.graph import PLACE, source_of


def trace(
    step: Callable[..., Any], example: Sequence[Any], examine: Callable[[Any], None] | None = None
) -> Any:
    """A function of tensors as a graph of ATen operations without side effects.

    Backward and optimiser must run before effects can be taken away, so it is traced twice;
    `examine` is shown the first graph, which has them still. Raises InputError for what depends on
    the values of tensors.
    """
    import torch  # pyright: ignore[reportMissingImports]
    from torch._dispatch.python import (  # pyright: ignore[reportMissingImports]
        enable_python_dispatcher,
    )
    from torch._subclasses.fake_tensor import (  # pyright: ignore[reportMissingImports]
        DataDependentOutputException,
        DynamicOutputShapeException,
    )
    from torch.func import functionalize  # pyright: ignore[reportMissingImports]
    from torch.fx import Interpreter  # pyright: ignore[reportMissingImports]
    from torch.fx.experimental.proxy_tensor import (  # pyright: ignore[reportMissingImports]
        make_fx,
    )
    from torch.fx.experimental.symbolic_shapes import (  # pyright: ignore[reportMissingImports]
        GuardOnDataDependentSymNode,
    )
    from torch.fx.traceback import preserve_node_meta  # pyright: ignore[reportMissingImports]

    from poetc.frontends.aten import REFUSED, decompositions

    options = {"tracing_mode": "fake", "_allow_non_fake_inputs": True}
    # The dispatcher in Python has the batch norm that says what it updates.
    with preserve_node_meta(), enable_python_dispatcher(), _without_mkldnn(torch):
        try:
            effects = make_fx(step, record_stack_traces=True, **options)(*example)
        except (
            DataDependentOutputException,
            DynamicOutputShapeException,
            GuardOnDataDependentSymNode,
        ) as error:
            frames = traceback.extract_tb(error.__traceback__)
            place = source_of((frame.filename, frame.lineno) for frame in frames)
            operator = getattr(error, "func", None)
            if known := REFUSED.get(getattr(operator, "overloadpacket", None)):
                raise InputError(f"{operator}{place}: {known}") from error
            raise InputError(
                "the step does something else for other values of its tensors"
                f"{place}{f', in {operator}' if operator else ''}; a step is the same operations "
                "each time: use torch.where, or decide by what is no tensor (is_causal=True with a "
                "mask, lengths that are numbers)"
            ) from error
        except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
            # The step has been done, so that it is not the fault of who wrote it.
            frames = traceback.extract_tb(error.__traceback__)
            place = source_of((frame.filename, frame.lineno) for frame in frames)
            raise InputError(
                f"PyTorch cannot trace the step{place}: {error}; do that part before the step, or "
                "with operations of docs/coverage.md"
            ) from error
        if examine is not None:
            examine(effects)
        _place_backward(effects)

        def again(*tensors: Any) -> Any:
            return Interpreter(effects).run(*tensors)

        graph = make_fx(functionalize(again), decomposition_table=decompositions(), **options)(
            *example
        )
    graph.graph.eliminate_dead_code()
    return graph


@contextmanager
def _without_mkldnn(torch: Any) -> Iterator[None]:
    """A context in which an LSTM is made of operations (`mkldnn.flags` sets more, and warns)."""
    flags = torch.backends.mkldnn.set_flags
    (enabled, *_) = flags(_enabled=False, _fp32_precision=None)
    try:
        yield
    finally:
        flags(_enabled=enabled, _fp32_precision=None)


def _place_backward(graph: Any) -> None:
    """Give operations of the backward pass the places of those whose gradients they are.

    Both have the sequence number of the autograd node, the forward operation first.
    """
    forward: dict[int, Any] = {}
    for node in graph.graph.nodes:
        number = node.meta.get("seq_nr")
        origin = forward.setdefault(number, node)
        if PLACE not in node.meta.get("custom", {}) and PLACE in origin.meta.get("custom", {}):
            place = f"the gradient of {origin.meta['custom'][PLACE]}"
            node.meta["custom"] = {PLACE: place}
            node.stack_trace = origin.stack_trace


def number_backward(value: Any) -> None:
    """Let what is traced in the backward pass have the sequence numbers of the autograd nodes."""
    from torch.fx.traceback import (  # pyright: ignore[reportMissingImports]
        reset_grad_fn_seq_nr,
        set_grad_fn_seq_nr,
    )

    seen = {None}
    rest = [value.grad_fn]
    while rest:
        node = rest.pop()
        if node not in seen:
            seen.add(node)
            rest.extend(following for following, _ in node.next_functions)
            number = node._sequence_nr()
            node.register_prehook(lambda *_, number=number: set_grad_fn_seq_nr(number))
            node.register_hook(lambda *_: reset_grad_fn_seq_nr())


def place(name: str) -> Any:
    """A context in which traced operations are annotated with the name."""
    from torch.fx.traceback import annotate  # pyright: ignore[reportMissingImports]

    return annotate({PLACE: name})


def name_places(module: Any) -> None:
    """Let each module annotate what is traced in it with its name."""
    open_places: list[Any] = []

    def enter(name: str) -> None:
        open_places.append(place(name))
        open_places[-1].__enter__()

    def leave(*_: Any) -> None:
        open_places.pop().__exit__(None, None, None)

    for name, part in module.named_modules():
        label = name or type(part).__name__
        part.register_forward_pre_hook(lambda *_, label=label: enter(label), prepend=True)
        part.register_forward_hook(leave, always_call=True)
