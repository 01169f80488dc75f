"""Calls of each operator of PyTorch's Core ATen that poetc lowers, on small tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch_modules import torch

aten = torch.ops.aten

Calls = Callable[[Any, Any], tuple[Any, ...]]
"""Operator, tensors → what several calls of it return."""


def name_of(operator: Any) -> str:
    """`add.Tensor` for `aten.add.Tensor`, `abs` for `aten.abs.default`."""
    return str(operator).removeprefix("aten.").removesuffix(".default")


def operator_of(name: str) -> Any:
    """The operator of a name, as `name_of` writes it."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet), overload or "default")


def tensors() -> dict[str, Any]:
    """Arguments of the calls: `x`, `y` any numbers, `p` between 0.1 and 0.9, `q` above 1, `n`, `m`
    whole numbers, `k` indices from 0 to 2, `b`, `c` truths."""
    torch.manual_seed(7)
    x = torch.randn(3, 4)
    # Numbers that are whole or equal are where rounding and ties are.
    x[0, :2] = torch.tensor([1.0, -2.5])
    y = torch.randn(3, 4)
    y[0, 0] = 1.0
    return {
        "x": x,
        "y": y,
        "p": torch.rand(3, 4) * 0.8 + 0.1,
        "q": torch.rand(3, 4) * 2 + 1.1,
        "v": torch.randn(4),
        "s": torch.randn(2, 3, 8),
        "t": torch.randn(2, 8, 3),
        "image": torch.randn(2, 4, 6, 5),
        "volume": torch.randn(1, 2, 4, 5, 4),
        "weight": torch.randn(6, 2, 3, 3),
        "weight1": torch.randn(4, 3, 3),
        "weight3": torch.randn(3, 2, 2, 2, 2),
        "grid": torch.rand(2, 3, 4, 2) * 2.4 - 1.2,
        "n": torch.randint(-9, 9, (3, 4)),
        "m": torch.randint(1, 5, (3, 4)),
        "k": torch.tensor([[0, 2, 1, 2], [2, 0, 1, 1], [1, 1, 0, 2]]),
        "i": torch.tensor([2, 0, 2, 1]),
        "b": torch.rand(3, 4) < 0.5,
        "c": torch.rand(3, 4) < 0.5,
    }


def _unary(argument: str) -> Calls:
    return lambda f, t: (f(getattr(t, argument)),)


def _both(f: Any, t: Any) -> tuple[Any, ...]:
    return f(t.x, t.y), f(t.n, t.m)


def _number(f: Any, t: Any) -> tuple[Any, ...]:
    return f(t.x, 1), f(t.n, 3)


def _bits(f: Any, t: Any) -> tuple[Any, ...]:
    return f(t.n, t.m), f(t.b, t.c)


def _moments(x: Any, keepdim: bool = False) -> tuple[Any, Any]:
    return x.mean(-1, keepdim), x.var(-1, keepdim=keepdim).rsqrt()


_ANY = """abs alias ceil clone cos cosh erf exp expm1 floor isinf isnan neg reciprocal relu round
    sigmoid sign sin sinh tan tanh trunc asinh atan _to_copy"""
_SMALL = "acos asin atanh log log10 log2 log1p rsqrt sqrt"
_BOTH = """mul.Tensor maximum minimum eq.Tensor ge.Tensor gt.Tensor le.Tensor lt.Tensor
    ne.Tensor"""
_NUMBER = """add.Scalar sub.Scalar mul.Scalar eq.Scalar ge.Scalar gt.Scalar le.Scalar lt.Scalar
    ne.Scalar"""
_BITS = "bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor"
_BITS_NUMBER = "bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar"
_TRUTHS = "logical_and logical_or logical_xor"

NO_GRADIENT = {
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training",
    "atan2.out",
    "copy",
    "native_group_norm_backward",
    "native_layer_norm_backward",
}
"""Operators that PyTorch itself has no derivative of, with all that the calls give them."""

CALLS: dict[str, Calls] = {
    **dict.fromkeys(_ANY.split(), _unary("x")),
    **dict.fromkeys(_SMALL.split(), _unary("p")),
    **dict.fromkeys(_BOTH.split(), _both),
    **dict.fromkeys(_NUMBER.split(), _number),
    **dict.fromkeys(_BITS.split(), _bits),
    **dict.fromkeys(_BITS_NUMBER.split(), lambda f, t: (f(t.n, 6), f(t.b, True))),
    **dict.fromkeys(_TRUTHS.split(), lambda f, t: (f(t.b, t.x > 0),)),
    "acosh": _unary("q"),
    "bitwise_not": lambda f, t: (f(t.n), f(t.b)),
    "logical_not": lambda f, t: (f(t.b), f(t.x)),
    "_adaptive_avg_pool2d": lambda f, t: (f(t.image, [3, 5]), f(t.image, [4, 3])),
    "_adaptive_avg_pool2d_backward": lambda f, t: (f(t.image[..., :4, :2], t.image),),
    "_adaptive_avg_pool3d": lambda f, t: (f(t.volume, [2, 5, 2]), f(t.volume, [3, 2, 3])),
    "_cdist_forward": lambda f, t: (
        *(f(t.x, t.y[:2], p, None) for p in (1.0, 2.0, 3.0, float("inf"))),
    ),
    "_embedding_bag": lambda f, t: (
        *(f(t.x, t.i, torch.tensor([0, 1]), False, mode)[0] for mode in range(3)),
        f(t.x, t.i, torch.tensor([0, 3, 4]), False, 0, False, t.v, True)[0],
        f(t.x, t.i, torch.tensor([0, 2]), False, 1, padding_idx=0)[0],
    ),
    "_log_softmax": lambda f, t: (f(t.x, 1, False), f(t.x, 0, False)),
    "_native_batch_norm_legit": lambda f, t: (
        *f(t.x, t.v, t.v, t.v.clone(), t.v.exp(), True, 0.1, 1e-5),
        *f(t.x, t.v, t.v, t.v.clone(), t.v.exp(), False, 0.1, 1e-5)[:1],
    ),
    "_native_batch_norm_legit.no_stats": lambda f, t: f(t.x, t.v, t.v, True, 0.1, 1e-5),
    "_native_batch_norm_legit_no_training": lambda f, t: f(
        t.image, t.v, t.v, t.v, t.v.exp(), 0.1, 1e-5
    )[:1],
    "_pdist_forward": lambda f, t: (f(t.x, 2.0), f(t.x, 1.0), f(t.x, 3.0)),
    "_softmax": lambda f, t: (f(t.x, 1, False), f(t.x, 0, False)),
    "adaptive_avg_pool1d": lambda f, t: (f(t.s, [4]), f(t.s, [3])),
    "add.Tensor": lambda f, t: (f(t.x, t.y), f(t.x, t.v, alpha=2), f(t.n, t.x), f(t.n, t.m)),
    "addmm": lambda f, t: (f(t.v, t.x, t.p.T @ t.x), f(t.v[:3], t.x, t.y.T, beta=2, alpha=0.5)),
    "amax": lambda f, t: (f(t.x, [1]), f(t.x, [0, 1], True), f(t.n)),
    "amin": lambda f, t: (f(t.x, [1]), f(t.x, [0, 1], True), f(t.n)),
    "any": lambda f, t: (f(t.b), f(t.x)),
    "any.dim": lambda f, t: (f(t.b, 1), f(t.b, 0, True)),
    "any.dims": lambda f, t: (f(t.b, [0, 1]), f(t.b, [0], True)),
    "arange.start_step": lambda f, t: (f(1, 9, 3), f(9, 1, -2), f(0.0, 1.0, 0.3)),
    "argmax": lambda f, t: (f(t.x, 1), f(t.k, 0, True), f(t.x), f(t.k)),
    "argmin": lambda f, t: (f(t.x, 1), f(t.k, 0, True), f(t.x), f(t.k)),
    "as_strided": lambda f, t: (
        f(t.x, [4, 3], [3, 1]),
        f(t.x, [2, 3], [4, 1], 2),
        f(t.x, [3, 2, 2], [2, 3, 1], 1),
    ),
    "atan2": _both,
    "atan2.out": lambda f, t: (f(t.x, t.y, out=torch.empty_like(t.x)),),
    "avg_pool1d": lambda f, t: (f(t.s, [3], [2], [1]),),
    "avg_pool2d": lambda f, t: (
        f(t.image, [2, 2]),
        f(t.image, [3, 2], [2, 1], [1, 1], False, False),
        f(t.image, [3, 3], [2, 2], [1, 0], True),
        f(t.image, [3, 3], [2, 2], [1, 1], True, False),
        f(t.image, [2, 2], [1, 1], [0, 0], False, True, 3),
    ),
    "avg_pool2d_backward": lambda f, t: (
        f(t.image[..., :3, :2], t.image, [2, 2], [], [0, 0], False, True, None),
    ),
    "avg_pool3d": lambda f, t: (
        f(t.volume, [2, 2, 2]),
        f(t.volume, [3, 3, 2], [2, 2, 2], [1, 1, 0], True, False),
    ),
    "bmm": lambda f, t: (f(t.s, t.t),),
    "cat": lambda f, t: (f([t.x, t.y], 1), f([t.x, t.v[None], t.x[:0]], 0), f([t.x, t.n])),
    "clamp": lambda f, t: (f(t.x, -0.3, 0.4), f(t.x, max=0.1), f(t.n, -2)),
    "clamp.Tensor": lambda f, t: (f(t.x, t.y), f(t.x, None, t.y), f(t.x, -t.p, t.p)),
    "col2im": lambda f, t: (
        f(t.image.flatten(2)[:, :, :16], [5, 5], [2, 2], [1, 1], [0, 0], [1, 1]),
    ),
    "constant_pad_nd": lambda f, t: (f(t.x, [1, -2, 0, 2], 0.5), f(t.n, [2, 0], 3), f(t.b, [1, 1])),
    "convolution": lambda f, t: (
        f(t.image, t.weight, t.s[0, 0, :6], [2, 1], [1, 1], [1, 2], False, [0, 0], 2),
        f(t.image, t.weight[:4], None, [2, 2], [1, 0], [1, 1], True, [1, 0], 2),
        f(t.s, t.weight1, t.v, [1], [1], [2], False, [0], 1),
        f(t.volume, t.weight3, t.v[:3], [1, 2, 1], [1, 1, 0], [1, 1, 2], False, [0, 0, 0], 1),
        f(t.volume, t.weight3[:2], None, [2, 1, 1], [0, 1, 0], [1, 1, 1], True, [1, 0, 0], 1),
    ),
    "convolution_backward": lambda f, t: (
        *f(
            *(t.image[:, :3, :4, :3], t.image, t.weight[:3, :, :, :].repeat(1, 2, 1, 1), [3]),
            *([1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True]),
        ),
    ),
    "copy": lambda f, t: (f(t.x, t.v), f(t.x, t.n)),
    "cumsum": lambda f, t: (f(t.x, 1), f(t.n, 0), f(t.b, -1)),
    "diagonal": lambda f, t: (f(t.x), f(t.image, 1, 2, 3), f(t.x, -1)),
    "div.Tensor": lambda f, t: (f(t.x, t.y), f(t.n, t.m)),
    "div.Scalar": lambda f, t: (f(t.x, 3), f(t.n, 2)),
    "div.Tensor_mode": lambda f, t: (
        *(f(t.x, t.y, rounding_mode=mode) for mode in (None, "trunc", "floor")),
        *(f(t.n, t.m, rounding_mode=mode) for mode in ("trunc", "floor")),
    ),
    "div.Scalar_mode": lambda f, t: (
        f(t.x, 0.7, rounding_mode="floor"),
        f(t.n, -3, rounding_mode="trunc"),
    ),
    "elu": lambda f, t: (f(t.x), f(t.x, 0.5, 2.0, 0.7)),
    "embedding": lambda f, t: (f(t.x, t.k), f(t.x, t.i, 0)),
    "embedding_dense_backward": lambda f, t: (
        f(t.image[:, 0, :2, :4].flatten(0, 1), t.i, 3, -1, False),
        f(t.image[:, 0, :2, :4].flatten(0, 1), t.i, 3, 2, True),
    ),
    "empty.memory_format": lambda f, t: (f([2, 3]) * 0,),
    "empty_strided": lambda f, t: (f([2, 3], [1, 2]) * 0,),
    "expand": lambda f, t: (f(t.v, [3, -1]), f(t.x[:, :1], [2, 3, 5])),
    "fill.Scalar": lambda f, t: (f(t.x, 2), f(t.n, 2)),
    "flip": lambda f, t: (f(t.x, [0]), f(t.x, [0, -1])),
    "fmod.Tensor": lambda f, t: (f(t.x, t.y), f(t.n, t.m)),
    "fmod.Scalar": lambda f, t: (f(t.x, 0.7), f(t.n, -4)),
    "full": lambda f, t: (f([2, 3], 1.5), f([2], 3), f([], True)),
    "full_like": lambda f, t: (f(t.x, 2), f(t.n, 2)),
    "gather": lambda f, t: (f(t.x, 0, t.k), f(t.x, 1, t.k[:2, :3]), f(t.v, 0, t.i)),
    "gelu": lambda f, t: (f(t.x), f(t.x, approximate="tanh")),
    "grid_sampler_2d": lambda f, t: (
        *(
            f(t.image, t.grid, mode, padding, align)
            for mode, padding, align in ((0, 0, False), (0, 1, True), (1, 0, False), (0, 2, True))
        ),
        f(t.image, t.grid, 2, 0, False),
    ),
    "hardtanh": lambda f, t: (f(t.x), f(t.x, -0.3, 0.6)),
    "index.Tensor": lambda f, t: (
        f(t.x, [t.i]),
        f(t.x, [None, -1 - t.i]),
        f(t.x, [t.i, t.i[:, None] - 1]),
        f(t.image, [None, t.i, None, t.k]),
        f(t.image, [t.i[:2] % 2, None, t.k[:, :2]]),
        f(t.n, [t.i]),
    ),
    "index_put": lambda f, t: (
        f(t.x, [t.i], t.v, True),
        f(t.x, [t.i[:2]], t.v),
        f(t.x, [t.i, t.i[:, None]], t.v, True),
        f(t.image, [None, t.i[:2], t.i[2:]], t.v[:2, None]),
        f(t.x, [t.b], t.v[0].detach()),
        f(t.x, [t.b], t.v[0].detach(), True),
        f(t.image, [None, None, t.image[0, 0] > 0], t.v[:1].detach()),
    ),
    "index_select": lambda f, t: (f(t.x, 0, t.i), f(t.x, 1, t.i)),
    "leaky_relu": lambda f, t: (f(t.x), f(t.x, 0.3)),
    "masked_scatter": lambda f, t: (f(t.x, t.b, t.y), f(t.x, t.x > 9, t.v)),
    "max.dim": lambda f, t: (*f(t.x, 1), *f(t.k, 0, True)),
    "max_pool2d_with_indices": lambda f, t: (
        *f(t.image, [2, 2]),
        *f(t.image, [3, 3], [2, 2], [1, 1], [1, 1], True),
        *f(t.image, [2, 2], [1, 1], [0, 0], [2, 3]),
    ),
    "max_pool2d_with_indices_backward": lambda f, t: (
        f(
            *(t.image[..., :3, :2], t.image, [2, 2], [2, 2], [0, 0], [1, 1], False),
            aten.max_pool2d_with_indices(t.image, [2, 2])[1],
        ),
    ),
    "max_pool3d_with_indices": lambda f, t: (
        *f(t.volume, [2, 2, 2]),
        *f(t.volume, [3, 2, 2], [2, 2, 1], [1, 0, 1], [1, 2, 1], True),
    ),
    "mean": lambda f, t: (f(t.x),),
    "mean.dim": lambda f, t: (f(t.x, [1]), f(t.x, [0, 1], True), f(t.image, [2, 3])),
    "min.dim": lambda f, t: (*f(t.x, 1), *f(t.k, 0, True)),
    "mm": lambda f, t: (f(t.x, t.y.T),),
    "native_group_norm": lambda f, t: f(t.image, t.v, t.v, 2, 4, 30, 2, 1e-5),
    "native_group_norm_backward": lambda f, t: (
        *f(t.image, t.image, *_moments(t.image.view(2, 2, 60)), t.v, 2, 4, 30, 2, [True] * 3),
    ),
    "native_layer_norm": lambda f, t: f(t.x, [4], t.v, t.v, 1e-5),
    "native_layer_norm_backward": lambda f, t: (
        *f(t.x, t.y, [4], *_moments(t.y, True), t.v, t.v, [True] * 3),
    ),
    "permute": lambda f, t: (f(t.s, [2, 0, 1]),),
    "pow.Tensor_Tensor": lambda f, t: (f(t.p, t.y), f(t.q, t.n)),
    "pow.Tensor_Scalar": lambda f, t: (f(t.x, 2), f(t.x, 3), f(t.p, -1), f(t.p, 1.7), f(t.n, 3)),
    "pow.Scalar": lambda f, t: (f(2, t.x), f(0.5, t.n)),
    "prod": lambda f, t: (f(t.x), f(t.m)),
    "prod.dim_int": lambda f, t: (f(t.x, 1), f(t.x, 0, True)),
    "reflection_pad1d": lambda f, t: (f(t.s, [2, 3]),),
    "reflection_pad2d": lambda f, t: (f(t.image, [2, 1, 3, 2]),),
    "reflection_pad3d": lambda f, t: (f(t.volume, [2, 1, 3, 2, 0, 1]),),
    "remainder.Tensor": lambda f, t: (f(t.x, t.y), f(t.n, t.m)),
    "remainder.Scalar": lambda f, t: (f(t.x, 0.7), f(t.n, -4)),
    "repeat": lambda f, t: (f(t.x, [2, 1]), f(t.x, [2, 1, 3])),
    "replication_pad2d": lambda f, t: (f(t.image, [2, 1, 3, 2]),),
    "replication_pad3d": lambda f, t: (f(t.volume, [2, 1, 3, 2, 0, 1]),),
    "scalar_tensor": lambda f, t: (f(1.5), f(2), f(True)),
    "scatter.value": lambda f, t: (
        f(t.x, 0, t.k[:1], 9.0),
        f(t.x, 1, t.k, 5.0),
        f(t.n, 0, t.k[:, :2], 7),
    ),
    "scatter.src": lambda f, t: (
        f(t.x, 0, t.k[:1], t.y[:1]),
        f(t.x, 1, torch.tensor([[3, 1], [0, 2]]), t.y[1:, 1:3]),
    ),
    "scatter_add": lambda f, t: (f(t.x, 0, t.k, t.y), f(t.x, 1, t.k[:2, :3], t.y[1:, 1:])),
    "scatter_reduce.two": lambda f, t: (
        *(
            f(t.x, 0, t.k, t.y, reduce, include_self=own)
            for reduce in ("sum", "prod", "mean", "amax", "amin")
            for own in (True, False)
        ),
    ),
    "select.int": lambda f, t: (f(t.x, 0, 1), f(t.x, 1, -1)),
    "select_scatter": lambda f, t: (f(t.x, t.v, 0, 1), f(t.x, t.v[:3], 1, -1)),
    "slice.Tensor": lambda f, t: (f(t.x, 1, 1, 3), f(t.x, 1, 0, 9, 2), f(t.x, 0, -2)),
    "slice_scatter": lambda f, t: (f(t.x, t.y[:2], 0, 1), f(t.x, t.y[:, :2], 1, 0, 4, 2)),
    "sort": lambda f, t: (*f(t.x, 1), *f(t.p, 0, True), *f(t.v)),
    "split_with_sizes": lambda f, t: (*f(t.x, [1, 3], 1), *f(t.x, [2, 0, 1])),
    "squeeze.dim": lambda f, t: (f(t.x[:1], 0), f(t.x, 0)),
    "squeeze.dims": lambda f, t: (f(t.x[:1, None], [0, 1, 2]),),
    "sub.Tensor": lambda f, t: (f(t.x, t.y), f(t.x, t.v, alpha=2), f(t.n, t.m)),
    "sum.dim_IntList": lambda f, t: (f(t.x, [1]), f(t.n, [0, 1], True), f(t.x, []), f(t.b, [0])),
    "topk": lambda f, t: (*f(t.x, 2), *f(t.p, 3, 0, False)),
    "unsqueeze": lambda f, t: (f(t.x, 1), f(t.x, -1)),
    "upsample_bilinear2d.vec": lambda f, t: (
        f(t.image, [9, 11], False, None),
        f(t.image, None, True, [2.0, 1.5]),
        f(t.image, [3, 4], False, None),
    ),
    "upsample_nearest2d.vec": lambda f, t: (
        f(t.image, [9, 11], None),
        f(t.image, None, [2.0, 2.0]),
    ),
    "var.correction": lambda f, t: (
        f(t.x, [1]),
        f(t.x, None, correction=0),
        f(t.x, [0], keepdim=True),
    ),
    "var.dim": lambda f, t: (f(t.x, [1]), f(t.x, [0, 1], False, True)),
    "view": lambda f, t: (f(t.x, [2, -1]),),
    "where.self": lambda f, t: (f(t.b, t.x, t.y), f(t.b, t.v, t.x[0, 0]), f(t.b, t.n, t.m)),
    # What is no core operator but has a lowering, or a gradient, of its own.
    "__lshift__.Scalar": lambda f, t: (f(t.m, 2),),
    "__rshift__.Scalar": lambda f, t: (f(t.n, 2),),
    "_trilinear": lambda f, t: (f(t.x, t.y, t.p[:, :3], [1], [0], [2], [2], 1),),
    "_upsample_nearest_exact2d": lambda f, t: (f(t.image, [9, 3]), f(t.image, [12, 10], 2.0, 2.0)),
    "_weight_norm_interface": lambda f, t: (*f(t.x, t.x[:, :1].contiguous()), *f(t.x, t.y[:1], 1)),
    "adaptive_max_pool2d": lambda f, t: (*f(t.image, [3, 5]), *f(t.image, [4, 3])),
    "as_strided_scatter": lambda f, t: (f(t.x, t.y[:2, :3], [2, 3], [4, 1], 2),),
    "cummax": lambda f, t: (*f(t.x, 1), *f(t.k, 0)),
    "cummin": lambda f, t: (*f(t.x, 1), *f(t.k, 0)),
    "cumprod": lambda f, t: (f(t.x, 1), f(t.m, 0)),
    "digamma": _unary("q"),
    "embedding_renorm": lambda f, t: (f(t.x.detach(), t.i, 1.0, 2.0),),
    "erfc": _unary("x"),
    "erfinv": _unary("p"),
    "kthvalue": lambda f, t: (*f(t.p, 2), *f(t.p, 1, 0, True)),
    "lgamma": _unary("q"),
    "linalg_vector_norm": lambda f, t: (f(t.x), f(t.x, 1, [1]), f(t.x, float("inf"), [0], True)),
    "logcumsumexp": lambda f, t: (f(t.x, 1), f(t.x, 0)),
    "median": lambda f, t: (f(t.p),),
    "median.dim": lambda f, t: (*f(t.p, 1), *f(t.p, 0, True)),
    "rrelu_with_noise_functional": lambda f, t: (f(t.x, t.y.detach())[0],),
    "searchsorted.Tensor": lambda f, t: (
        f(t.v.sort()[0], t.x),
        f(t.y.sort()[0], t.x, side="right"),
    ),
    "sort.stable": lambda f, t: (*f(t.k, stable=True, dim=0, descending=True),),
    "unfold": lambda f, t: (f(t.x, 1, 2, 1), f(t.image, 2, 3, 2)),
    "upsample_bicubic2d": lambda f, t: (f(t.image, [9, 3], False), f(t.image, [8, 7], True)),
    "upsample_linear1d": lambda f, t: (f(t.s, [11], False),),
    "upsample_trilinear3d": lambda f, t: (f(t.volume, [3, 7, 6], True),),
}
