"""Random numbers of a step, from a seed that is one of its arguments.

The n-th random tensor of a step has for its element i a number that depends on nothing but the
seed, n and i: 32 bits, hashed. PyTorch computes them with the same operations, to the same bits.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from poetc.errors import InputError
from poetc.frontends.torch.training import Tensors

_GOLDEN = -0x61C88647  # 2**32 / golden ratio, as the signed number of 32 bits that it is


def _signed(bits: int) -> int:
    return bits - (1 << 32) if bits >> 31 else bits


def _hash(x: Any) -> Any:
    """lowbias32 of C. Wellons: an invertible hash of 32 bits in which each bit of the result
    depends on all bits of the argument."""
    x = x ^ ((x >> 16) & 0xFFFF)
    x = x * _signed(0x7FEB352D)
    x = x ^ ((x >> 15) & 0x1FFFF)
    x = x * _signed(0x846CA68B)
    return x ^ ((x >> 16) & 0xFFFF)


def first_seeds(torch: Any, seed: int | None) -> Tensors:
    """The seed as an argument of the step, if there is one. InputError if it has not 32 bits."""
    if seed is None:
        return OrderedDict()
    if not isinstance(seed, int) or not -(2**31) <= seed < 2**31:
        raise InputError(f"the seed is a whole number of 32 bits with sign, not {seed!r}")
    return OrderedDict(seed=torch.tensor(seed, dtype=torch.int32))


def next_seeds(seeds: Tensors) -> Tensors:
    """The seed of the step after one, if it has any."""
    return OrderedDict((name, seed + 1) for name, seed in seeds.items())


def seeded(torch: Any, seeds: Tensors) -> Any:
    """A context in which random numbers depend on the seed, an int32 scalar, if there is one, and
    on how many random tensors there were before."""
    if not seeds:
        return nullcontext()
    from torch.utils._python_dispatch import (  # pyright: ignore[reportMissingImports]
        TorchDispatchMode,
    )

    aten = torch.ops.aten
    (seed,) = seeds.values()
    count = 0

    def bits(shape: Sequence[int]) -> Any:
        nonlocal count
        count += 1
        place = torch.arange(math.prod(shape), dtype=torch.int32)
        return _hash(place + _hash(seed + _signed(count * _GOLDEN & 0xFFFFFFFF))).view(shape)

    def uniform(shape: Sequence[int], type: Any = torch.float32) -> Any:
        """From 0, which may be, to 1, which is not: 24 bits."""
        return (((bits(shape) >> 8) & 0xFFFFFF).to(torch.float32) * 2**-24).to(type)

    def normal(shape: Sequence[int], type: Any = torch.float32) -> Any:
        # Box and Muller; the logarithm is not of 0.
        size = torch.sqrt(-2 * torch.log(1 - uniform(shape)))
        return (size * torch.cos(2 * math.pi * uniform(shape))).to(type)

    def exponential(shape: Sequence[int]) -> Any:
        return -torch.log(1 - uniform(shape))

    def multinomial(x: Any, count: int, replacement: bool = False, **_: Any) -> Any:
        if count == 1 or not replacement:
            return (x / exponential(x.shape)).topk(count).indices
        edges = x.cumsum(-1)
        place = uniform((*x.shape[:-1], count)) * edges[..., -1:]
        found = (place[..., None] >= edges[..., None, :]).sum(-1)
        return found.clamp(max=x.shape[-1] - 1)

    def whole(low: int, high: int, shape: Sequence[int], type: Any = None) -> Any:
        part = torch.floor(uniform(shape) * (high - low)).clamp(max=high - low - 1) + low
        return part.to(type or torch.int64)

    def dropout(x: Any, p: float, train: bool | None) -> tuple[Any, Any]:
        if train is False:
            return x.clone(), torch.ones_like(x, dtype=torch.bool)
        kept = uniform(x.shape) < 1 - p
        return x * kept * (1 / (1 - p) if p < 1 else 0.0), kept

    def filled(make: Callable[..., Any]) -> Callable[..., Any]:
        def fill(x: Any, *arguments: Any, generator: Any = None) -> Any:
            return x.copy_(make(x, *arguments))

        return fill

    def of(make: Callable[..., Any]) -> Callable[..., Any]:
        def new(shape: Sequence[int], dtype: Any = None, **_: Any) -> Any:
            return make(shape, dtype or torch.get_default_dtype())

        return new

    def like(make: Callable[..., Any]) -> Callable[..., Any]:
        def new(x: Any, dtype: Any = None, **_: Any) -> Any:
            return make(x.shape, dtype or x.dtype)

        return new

    makers: dict[Any, Callable[..., Any]] = {
        aten.native_dropout.default: dropout,
        aten.bernoulli.default: lambda x, generator=None: (uniform(x.shape) < x).to(x.dtype),
        aten.bernoulli.p: lambda x, p, generator=None: (uniform(x.shape) < p).to(x.dtype),
        aten.bernoulli_.float: filled(lambda x, p=0.5: uniform(x.shape) < p),
        aten.bernoulli_.Tensor: filled(lambda x, p: uniform(x.shape) < p),
        aten.exponential_.default: filled(lambda x, rate=1.0: exponential(x.shape) / rate),
        aten.multinomial.default: multinomial,
        aten.rand.default: of(uniform),
        aten.rand_like.default: like(uniform),
        aten.uniform_.default: filled(lambda x, a=0.0, b=1.0: uniform(x.shape) * (b - a) + a),
        aten.randn.default: of(normal),
        aten.randn_like.default: like(normal),
        aten.normal_.default: filled(lambda x, mean=0.0, std=1.0: normal(x.shape) * std + mean),
        aten.randint.default: lambda high, shape, dtype=None, **_: whole(0, high, shape, dtype),
        aten.randint.low: lambda a, b, shape, dtype=None, **_: whole(a, b, shape, dtype),
        aten.randperm.default: lambda n, **_: torch.sort(bits((n,))).indices,
    }

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(
            self,
            function: Any,
            types: Any,
            arguments: Sequence[Any] = (),
            options: Mapping[str, Any] | None = None,
        ) -> Any:
            make = makers.get(function) or function
            return make(*arguments, **(options or {}))

    return Mode()
