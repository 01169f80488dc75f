"""poetc from Python: `compile` and `jit` (docs/api.md). The names are those of the package."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, Unpack, overload

from poetc.options import Given
from poetc.planning.solver import ProgressCallback
from poetc.program import Program
from poetc.source import as_jax, signature_of, source_of

PathLike = str | os.PathLike[str]
Names = str | Sequence[str]
Size = int | str


class CompileOptions(TypedDict, total=False):
    """The options of the command line (docs/options.md), written as there or as what they mean:
    sizes in bytes, switches as bool, names as a list. None is what is not given."""

    ram: Size | None
    device: PathLike | None
    storage: PathLike | None
    profile: PathLike | None
    deadline: str | None
    executor: str | None
    target: str | None
    kernels: str | None
    tuning: PathLike | None
    tune: int | str | None
    strategy: str | None
    paging: bool | str | None
    remat: bool | str | None
    params: str | None
    frozen: Names | None
    train: Names | None
    pages: str | None
    stream: str | None
    block: Size | None
    io: str | None
    time_limit: float | str | None
    stop: str | None
    threads: int | str | None
    gap: float | str | None
    stack: Size | None
    flash: str | None
    board: str | None
    layout: str | None
    arena: str | None
    optimise: str | None
    data: PathLike | None
    name: str | None
    static: Size | None
    cc: str | None
    ram_scope: str | None


def compile(
    source: Any,
    args: Sequence[Any] = (),
    *,
    loss: Callable[..., Any] | None = None,
    optimiser: Any = None,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    seed: int | None = None,
    donate_argnums: int | Sequence[int] | Mapping[int, int] | None = None,
    predict: Any = None,
    progress: ProgressCallback | None = None,
    **options: Unpack[CompileOptions],
) -> Program:
    """Compiles a training step into a program that fits into `ram`, and runs in this process.

    `source` is
    - a function that `jax.jit` takes, with example arguments `args`; `donate_argnums` are those
      that it updates (`poetc.frontends.jax.lower`);
    - a `torch.nn.Module` with its `loss` and `optimiser`, where `args` are example inputs and
      targets, each a tensor or a tuple of them, and `clip_norm`, `clip_value` and `seed` are as in
      `poetc.frontends.torch.lower`;
    - an xDSL module, MLIR text, bytecode, or a path to a file of either; `args` are the arguments
      of `@main`, if they are known. `data="model.npz"` gives them, too.

    With `predict` there is another entry point, `Program.predict`: a function of JAX with its
    arguments, `(predict, (params, x))`, or example inputs of the module of PyTorch.

    The values of what the step updates are those that the program begins with. `progress` is called
    with how far the search is. Doubtful options are a UserWarning.

    Raises InputError for what cannot be compiled, InfeasibleError where provably no schedule meets
    `ram` and `deadline`, TimeLimitError where none was found; the `diagnosis` of both says why.
    What JAX, PyTorch or the source itself raise in tracing is passed on.
    """
    frontend = {"clip_norm": clip_norm, "clip_value": clip_value, "seed": seed}
    found = source_of(
        source,
        args,
        loss=loss,
        optimiser=optimiser,
        donate_argnums=donate_argnums,
        predict=predict,
        frontend_options={n: value for n, value in frontend.items() if value is not None},
    )
    return Program.of(found, Given.of(options), progress)


class JittedStep:
    """A training step of JAX that runs as a compiled program; `poetc.jit` makes it.

    There is a program for each structure, shapes and types of its arguments, compiled when they
    come first. Several threads may call it.
    """

    def __init__(self, step: Callable[..., Any], donate_argnums: Any, given: Given) -> None:
        self._step, self._donate_argnums, self._given = step, donate_argnums, given
        self._programs: dict[Any, Program] = {}
        self._lock = threading.Lock()
        functools.update_wrapper(self, step)

    def __call__(self, *args: Any) -> Any:
        """The results of the function for these arguments, with arrays of NumPy, which cannot be
        written. New values that it returned last are not copied into the program when they come
        back as arguments.

        Raises what `poetc.compile` and `Program.step` do.
        """
        return self.program(*args).call(*as_jax(args))

    def program(self, *args: Any) -> Program:
        """The program for arguments like these; the step is not done."""
        key = signature_of(args)
        with self._lock:
            if key not in self._programs:
                source = source_of(self._step, args, donate_argnums=self._donate_argnums)
                self._programs[key] = Program.of(source, self._given, callers=2)
            return self._programs[key]


@overload
def jit(step: Callable[..., Any], /) -> JittedStep: ...


@overload
def jit(
    *,
    donate_argnums: int | Sequence[int] | Mapping[int, int] | None = None,
    **options: Unpack[CompileOptions],
) -> Callable[[Callable[..., Any]], JittedStep]: ...


def jit(
    step: Callable[..., Any] | None = None,
    /,
    *,
    donate_argnums: int | Sequence[int] | Mapping[int, int] | None = None,
    **options: Unpack[CompileOptions],
) -> JittedStep | Callable[[Callable[..., Any]], JittedStep]:
    """A training step of JAX that is compiled when it is called: `@poetc.jit(ram="64KB")`.

    `donate_argnums` and the options are those of `compile`. Raises TypeError for options that there
    are not, InputError for values that they do not have.
    """
    given = Given.of(options)

    def decorate(function: Callable[..., Any]) -> JittedStep:
        return JittedStep(function, donate_argnums, given)

    return decorate if step is None else decorate(step)
