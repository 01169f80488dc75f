"""ATen operations as functions of JAX arrays: what PyTorch's traced training step becomes.

`LOWERINGS` has one function per operator, or overload of one, with PyTorch's arguments: tensors are
arrays, and so are results, of PyTorch's shapes. `decompositions()` are those of PyTorch that bring
everything else down to these. Only what poetc can compile is here, so that what is missing is
reported with its place in the module rather than with a line of StableHLO.

Gradients of windows and convolutions are those that JAX derives from the forward operation, because
poetc's kernels for them are made for that form. This module needs torch and jax.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import jax  # pyright: ignore[reportMissingImports]
import torch  # pyright: ignore[reportMissingImports]
from jax import Array, lax  # pyright: ignore[reportMissingImports]
from jax import numpy as jnp  # pyright: ignore[reportMissingImports]
from torch._decomp import get_decompositions  # pyright: ignore[reportMissingImports]
from torch.export import default_decompositions  # pyright: ignore[reportMissingImports]

aten = torch.ops.aten

TYPES: dict[Any, str] = {
    torch.float32: "float32",
    torch.int32: "int32",
    torch.int64: "int32",
    torch.bool: "bool",
}
"""Element types: PyTorch's → ours. Whole numbers are 32 bits wide, as everywhere in JAX."""


MAXIMA = object()
"""In place of the indices that max pooling returns: its gradient finds the maxima again."""


class UnsupportedError(Exception):
    """A form of an operation that is not lowered; the message says which and what would work."""


_RANDOM = (
    "random numbers; a step gives the same results for the same arguments (use p=0 for dropout, or "
    "eval() on that module, or give random numbers as an input)"
)

Lowering = Callable[..., Any]
LOWERINGS: dict[Any, Lowering] = {}


def _lowers(*targets: Any) -> Callable[[Lowering], Lowering]:
    def register(function: Lowering) -> Lowering:
        LOWERINGS.update(dict.fromkeys(targets, function))
        return function

    return register


def lowering(target: Any) -> Lowering | None:
    """The function for a target of an FX node, if there is one."""
    found = LOWERINGS.get(target)
    return found or LOWERINGS.get(getattr(target, "overloadpacket", None))


def lower(target: Any, arguments: Sequence[Any], options: dict[str, Any], meta: Any) -> Any:
    """What an FX node computes from arrays; `meta` is what PyTorch says of its result.

    Raises UnsupportedError.
    """
    function = lowering(target)
    if function is None:
        random = torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())
        raise UnsupportedError(_RANDOM if random else "")
    if any(argument is MAXIMA for argument in arguments) and function is not _max_pool2d_backward:
        raise UnsupportedError("the indices of max_pool2d (only its gradient may use them)")
    return _typed(function(*arguments, **options), meta)


def _typed(result: Any, meta: Any) -> Any:
    """A result of the type that PyTorch gives it; `meta` is PyTorch's."""
    if isinstance(meta, list | tuple):
        return tuple(_typed(part, like) for part, like in zip(result, meta, strict=True))
    if not isinstance(result, Array) or not isinstance(meta, torch.Tensor):
        return result
    if meta.dtype not in TYPES:
        raise UnsupportedError(f"{meta.dtype} (float32, int64, int32 and bool are supported)")
    assert result.shape == tuple(meta.shape), (result.shape, meta.shape)
    return result.astype(TYPES[meta.dtype])


def absent(meta: Any) -> Any:
    """Takes the place of a result that cannot be computed, to find the problems after it."""
    if isinstance(meta, list | tuple):
        return [absent(part) for part in meta]
    if isinstance(meta, torch.Tensor) and all(isinstance(size, int) for size in meta.shape):
        return jnp.zeros(tuple(meta.shape), TYPES.get(meta.dtype, "float32"))
    return None


def decompositions() -> dict[Any, Any]:
    """Operator → PyTorch's own decomposition of it, for all that have no lowering here."""
    table = dict(default_decompositions().items())
    table |= get_decompositions(
        [
            aten._log_softmax,
            aten._native_batch_norm_legit,
            aten._native_batch_norm_legit_functional,
            aten._native_batch_norm_legit_no_training,
            aten._softmax,
            aten.addmm,
            aten.gelu,
            aten.native_group_norm,
            aten.native_layer_norm,
        ]
    )
    return {target: function for target, function in table.items() if lowering(target) is None}


# Element-wise

LOWERINGS |= {
    aten.abs: jnp.abs,
    aten.bitwise_and: jnp.bitwise_and,
    aten.bitwise_not: jnp.bitwise_not,
    aten.bitwise_or: jnp.bitwise_or,
    aten.bitwise_xor: jnp.bitwise_xor,
    aten.eq: jnp.equal,
    aten.erf: lax.erf,
    aten.exp: jnp.exp,
    aten.ge: jnp.greater_equal,
    aten.gt: jnp.greater,
    aten.isinf: lambda x: jnp.abs(x) == jnp.inf,
    aten.isnan: lambda x: x != x,
    aten.le: jnp.less_equal,
    aten.log: jnp.log,
    aten.logical_and: jnp.logical_and,
    aten.logical_not: jnp.logical_not,
    aten.logical_or: jnp.logical_or,
    aten.lt: jnp.less,
    aten.maximum: jnp.maximum,
    aten.minimum: jnp.minimum,
    aten.mul: jnp.multiply,
    aten.ne: jnp.not_equal,
    aten.neg: jnp.negative,
    aten.relu: lambda x: jnp.maximum(x, 0),
    aten.reciprocal: lambda x: 1 / x,
    aten.rsqrt: lax.rsqrt,
    aten.sign: jnp.sign,
    aten.sigmoid: lambda x: 1 / (1 + jnp.exp(-x)),
    aten.sqrt: jnp.sqrt,
    aten.tanh: jnp.tanh,
    aten.where: jnp.where,
    operator.getitem: operator.getitem,
}


@_lowers(aten.add)
def _add(x: Array, y: Any, alpha: float = 1) -> Array:
    return x + (y if alpha == 1 else y * alpha)


@_lowers(aten.sub)
def _sub(x: Array, y: Any, alpha: float = 1) -> Array:
    return x - (y if alpha == 1 else y * alpha)


@_lowers(aten.div.Tensor, aten.div.Scalar)
def _div(x: Array, y: Any) -> Array:
    return x / y


@_lowers(aten.pow)
def _pow(x: Any, y: Any) -> Array:
    if isinstance(y, float | int):
        if y == 0.5:
            return jnp.sqrt(x)
        if float(y).is_integer():
            return lax.integer_pow(x, int(y))
    return lax.pow(*jnp.broadcast_arrays(jnp.float32(x), jnp.float32(y)))


@_lowers(aten.clamp)
def _clamp(x: Array, low: Any = None, high: Any = None) -> Array:
    x = x if low is None else jnp.maximum(x, low)
    return x if high is None else jnp.minimum(x, high)


LOWERINGS[aten.hardtanh] = _clamp


@_lowers(aten.leaky_relu)
def _leaky_relu(x: Array, slope: float = 0.01) -> Array:
    return jnp.where(x > 0, x, x * slope)


@_lowers(aten.elu)
def _elu(x: Array, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Array:
    below = (alpha * scale) * _expm1(jnp.minimum(x, 0) * input_scale)
    return jnp.where(x > 0, x * scale, below)


@_lowers(aten.lerp.Scalar)
def _lerp(start: Array, end: Array, weight: float) -> Array:
    # The form that PyTorch takes for each weight.
    difference = end - start
    return start + weight * difference if abs(weight) < 0.5 else end - difference * (1 - weight)


@_lowers(aten.log1p)
def _log1p(x: Array) -> Array:
    # Kahan: log(u) is wrong for the rounding of u = 1 + x, which log(u) / (u - 1) is not.
    u = 1 + x
    return jnp.where(u == 1, x, x * (jnp.log(u) / jnp.where(u == 1, 1, u - 1)))


@_lowers(aten.expm1)
def _expm1(x: Array) -> Array:
    # Kahan, as above; for -1 the quotient is 0 / 0 only where exp(x) is 0.
    u = jnp.exp(x)
    near = jnp.where(u == 1, x, (u - 1) * (x / jnp.where(u == 1, 1, jnp.log(u))))
    return jnp.where(jnp.abs(x) < 0.5, near, u - 1)


@_lowers(aten._to_copy, aten.clone, aten.detach, aten.alias, aten.lift_fresh_copy)
def _same(x: Array, **_: Any) -> Array:
    # The interpreter converts every result to the type that PyTorch says it has.
    return x


@_lowers(aten.copy)
def _copy(x: Array, source: Array, non_blocking: bool = False) -> Array:
    return jnp.broadcast_to(source, x.shape)


# New tensors


@_lowers(aten.full)
def _full(shape: Sequence[int], value: Any, **_: Any) -> Array:
    return jnp.full(shape, value)


@_lowers(aten.full_like)
def _full_like(x: Array, value: Any, **_: Any) -> Array:
    return jnp.full(x.shape, value)


@_lowers(aten.empty, aten.empty_permuted)
def _empty(shape: Sequence[int], *_: Any, **_options: Any) -> Array:
    return jnp.zeros(shape)


@_lowers(aten.new_empty_strided)
def _new_empty(_x: Array, shape: Sequence[int], *_: Any, **_options: Any) -> Array:
    return jnp.zeros(shape)


@_lowers(aten.scalar_tensor)
def _scalar_tensor(value: Any, **_: Any) -> Array:
    return jnp.asarray(value)


@_lowers(aten.arange.start_step)
def _arange(start: Any, end: Any, step: Any = 1, **_: Any) -> Array:
    count = lax.iota("int32", math.ceil((end - start) / step))
    return start + step * count


# Shapes

LOWERINGS |= {
    aten._unsafe_view: jnp.reshape,
    aten.cat: lambda tensors, dim=0: jnp.concatenate([x for x in tensors if x.size], dim),
    aten.flip: jnp.flip,
    aten.permute: jnp.transpose,
    aten.reshape: jnp.reshape,
    aten.t: jnp.transpose,
    aten.transpose: jnp.swapaxes,
    aten.unsqueeze: jnp.expand_dims,
    aten.view: jnp.reshape,
}


@_lowers(aten.as_strided)
def _as_strided(
    x: Array, shape: Sequence[int], strides: Sequence[int], offset: int | None = None
) -> Array:
    contiguous = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    if list(strides) != contiguous or offset or math.prod(shape) != x.size:
        raise UnsupportedError("strides that are not those of a contiguous tensor")
    return jnp.reshape(x, shape)


@_lowers(aten.split_with_sizes)
def _split(x: Array, sizes: Sequence[int], dim: int = 0) -> list[Array]:
    return jnp.split(x, list(accumulate(sizes))[:-1], dim)


@_lowers(aten.squeeze)
def _squeeze(x: Array, dims: Any = None) -> Array:
    dims = range(x.ndim) if dims is None else [dims] if isinstance(dims, int) else dims
    return jnp.squeeze(x, tuple(dim for dim in dims if x.shape[dim] == 1))


@_lowers(aten.expand)
def _expand(x: Array, shape: Sequence[int]) -> Array:
    own = (1,) * (len(shape) - x.ndim) + x.shape
    return jnp.broadcast_to(x, [a if b == -1 else b for a, b in zip(own, shape, strict=True)])


@_lowers(aten.repeat)
def _repeat(x: Array, repeats: Sequence[int]) -> Array:
    return jnp.tile(x, repeats)


@_lowers(aten.constant_pad_nd)
def _pad(x: Array, pads: Sequence[int], value: Any = 0) -> Array:
    pairs = [(0, 0, 0)] * (x.ndim - len(pads) // 2)
    pairs += [(pads[i], pads[i + 1], 0) for i in range(len(pads) - 2, -1, -2)]
    return lax.pad(x, jnp.asarray(value, x.dtype), pairs)


def _range(size: int, start: int | None, end: int | None, step: int) -> range:
    return range(size)[slice(start, end, step)]


@_lowers(aten.slice)
def _slice(
    x: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    taken = _range(x.shape[dim], start, end, step)
    return lax.slice_in_dim(x, taken.start, taken.stop, step, dim)


@_lowers(aten.select)
def _select(x: Array, dim: int, index: int) -> Array:
    return jnp.squeeze(lax.index_in_dim(x, index, dim), dim)


def _spread(x: Array, size: int, dim: int, taken: range, value: Any) -> Array:
    """`x` at the places `taken` along `dim`, of extent `size`, and `value` elsewhere."""
    high = size - taken.start - (len(taken) - 1) * taken.step - 1
    if not taken:
        return jnp.full((*x.shape[:dim], size, *x.shape[dim + 1 :]), value, x.dtype)
    pads = [(0, 0, 0)] * x.ndim
    pads[dim] = (taken.start, high, taken.step - 1)
    return lax.pad(x, jnp.asarray(value, x.dtype), pads)


@_lowers(aten.slice_backward)
def _slice_backward(
    g: Array, shape: Sequence[int], dim: int, start: int, end: int, step: int
) -> Array:
    dim %= len(shape)
    return _spread(g, shape[dim], dim, _range(shape[dim], start, end, step), 0)


@_lowers(aten.select_backward)
def _select_backward(g: Array, shape: Sequence[int], dim: int, index: int) -> Array:
    dim %= len(shape)
    index %= shape[dim]
    return _spread(jnp.expand_dims(g, dim), shape[dim], dim, range(index, index + 1), 0)


@_lowers(aten.slice_scatter)
def _slice_scatter(
    x: Array,
    source: Array,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Array:
    dim %= x.ndim
    size = x.shape[dim]
    taken = _range(size, start, end, step)
    source = jnp.broadcast_to(source, (*x.shape[:dim], len(taken), *x.shape[dim + 1 :]))
    if len(taken) == size:
        return source
    inside = _spread(jnp.full(source.shape, True), size, dim, taken, False)
    return jnp.where(inside, _spread(source, size, dim, taken, 0), x)


@_lowers(aten.select_scatter)
def _select_scatter(x: Array, source: Array, dim: int, index: int) -> Array:
    index %= x.shape[dim]
    return _slice_scatter(x, jnp.expand_dims(source, dim), dim, index, index + 1)


# Reductions


def _reduction(function: Callable[..., Array]) -> Lowering:
    def reduce(x: Array, dims: Any = None, keepdim: bool = False, **_: Any) -> Array:
        # No dimensions are all of them.
        axis = dims if isinstance(dims, int) else tuple(dims) if dims else None
        return function(x, axis=axis, keepdims=keepdim)

    return reduce


LOWERINGS |= {
    aten.all: _reduction(jnp.all),
    aten.amax: _reduction(jnp.max),
    aten.amin: _reduction(jnp.min),
    aten.max.default: jnp.max,
    aten.min.default: jnp.min,
    aten.any: _reduction(jnp.any),
    aten.mean: _reduction(jnp.mean),
    aten.sum: _reduction(jnp.sum),
}


def _extremum(reduce: Callable[..., Array]) -> Lowering:
    def find(x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
        value = reduce(x, axis=dim, keepdims=True)
        # Of several, the first.
        size = x.shape[dim]
        from_end = size - 1 - lax.broadcasted_iota("int32", x.shape, dim % x.ndim)
        index = size - 1 - jnp.max(jnp.where(x == value, from_end, 0), dim, keepdims=True)
        return (value, index) if keepdim else (jnp.squeeze(value, dim), jnp.squeeze(index, dim))

    return find


LOWERINGS |= {aten.max.dim: _extremum(jnp.max), aten.min.dim: _extremum(jnp.min)}


@_lowers(aten.argmax)
def _argmax(x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    if dim is None:
        raise UnsupportedError("argmax without a dimension")
    return LOWERINGS[aten.max.dim](x, dim, keepdim)[1]


@_lowers(aten.linalg_vector_norm)
def _norm(x: Array, order: float = 2, dims: Any = None, keepdim: bool = False, **_: Any) -> Array:
    sizes = {1: jnp.abs, 2: jnp.square, math.inf: jnp.abs}
    if order not in sizes:
        raise UnsupportedError(f"the norm of order {order} (1, 2 and inf are lowered)")
    total = _reduction(jnp.max if order == math.inf else jnp.sum)(sizes[order](x), dims, keepdim)
    return jnp.sqrt(total) if order == 2 else total


@_lowers(aten.var_mean.correction)
def _var_mean(
    x: Array, dims: Sequence[int] | None = None, *, correction: Any = 1, keepdim: bool = False
) -> tuple[Array, Array]:
    axis = tuple(dims) if dims else tuple(range(x.ndim))
    mean = jnp.mean(x, axis, keepdims=True)
    difference = x - mean
    count = math.prod(x.shape[i] for i in axis) - (1 if correction is None else correction)
    var = jnp.sum(difference * difference, axis, keepdims=keepdim) / count
    return var, mean if keepdim else jnp.squeeze(mean, axis)


@_lowers(aten.var.correction)
def _var(x: Array, *arguments: Any, **options: Any) -> Array:
    return _var_mean(x, *arguments, **options)[0]


# Matrices

LOWERINGS |= {
    aten.bmm: jnp.matmul,
    aten.dot: jnp.matmul,
    aten.mm: jnp.matmul,
    aten.mv: jnp.matmul,
}


# Convolutions


def _convolve(
    x: Array,
    weight: Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Array:
    if x.ndim == 3:  # one dimension is two of which one has the extent 1
        y = _convolve(
            x[:, :, None],
            weight[:, :, None],
            (1, *stride),
            (0, *padding),
            (1, *dilation),
            groups,
        )
        return y[:, :, 0]
    if x.ndim != 4:
        raise UnsupportedError(f"convolution over {x.ndim - 2} dimensions (1 and 2 are lowered)")
    return lax.conv_general_dilated(
        x,
        weight,
        stride,
        [(p, p) for p in padding],
        rhs_dilation=dilation,
        feature_group_count=groups,
    )


def _convolution_of(
    shape: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
) -> Callable[[Array, Array], Array]:
    """Input, weight → output of that shape."""

    def forward(x: Array, weight: Array) -> Array:
        return _convolve(x, weight, stride, padding, dilation, groups)

    def backward(x: Array, weight: Array) -> Array:
        # A transposed convolution is the gradient of a convolution from its output to its input.
        like = jax.ShapeDtypeStruct(tuple(shape), x.dtype)
        return jax.linear_transpose(lambda y: forward(y, weight), like)(x)[0]

    return backward if transposed else forward


def _transposed_shape(
    x: Array,
    weight: Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> tuple[int, ...]:
    sizes = (
        (n - 1) * s - 2 * p + d * (k - 1) + o + 1
        for n, k, s, p, d, o in zip(
            x.shape[2:], weight.shape[2:], stride, padding, dilation, output_padding, strict=True
        )
    )
    return (x.shape[0], weight.shape[1] * groups, *sizes)


@_lowers(aten.convolution)
def _convolution(
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Array:
    shape = (
        _transposed_shape(x, weight, stride, padding, dilation, output_padding, groups)
        if transposed
        else ()
    )
    y = _convolution_of(shape, stride, padding, dilation, transposed, groups)(x, weight)
    return y if bias is None else y + bias.reshape(-1, *(1,) * (y.ndim - 2))


@_lowers(aten.convolution_backward)
def _convolution_backward(
    g: Array,
    x: Array,
    weight: Array,
    _bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    _output_padding: Sequence[int],
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Array | None, Array | None, Array | None]:
    function = _convolution_of(g.shape, stride, padding, dilation, transposed, groups)
    return (
        jax.vjp(lambda x: function(x, weight), x)[1](g)[0] if wanted[0] else None,
        jax.vjp(lambda weight: function(x, weight), weight)[1](g)[0] if wanted[1] else None,
        jnp.sum(g, (0, *range(2, g.ndim))) if wanted[2] else None,
    )


# Windows


def _pair(value: int | Sequence[int]) -> tuple[int, int]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * 2 if len(values) == 1 else values  # pyright: ignore[reportReturnType]


def _windows(
    x: Array,
    size: int | Sequence[int],
    stride: Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    ceil_mode: bool,
) -> dict[str, Any]:
    """Arguments of `lax.reduce_window` for windows over the last two dimensions."""
    if ceil_mode:
        raise UnsupportedError("windows with ceil_mode=True (pad the input instead)")
    before = (1,) * (x.ndim - 2)
    return {
        "window_dimensions": (*before, *_pair(size)),
        "window_strides": (*before, *_pair(stride or size)),
        "padding": [(0, 0)] * len(before) + [(p, p) for p in _pair(padding)],
        "window_dilation": (*before, *_pair(dilation)),
    }


def _max_pool(x: Array, **windows: Any) -> Array:
    return lax.reduce_window(x, -jnp.inf, lax.max, **windows)


@_lowers(aten.max_pool2d_with_indices)
def _max_pool2d(
    x: Array,
    size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[Array, object]:
    return _max_pool(x, **_windows(x, size, stride, padding, dilation, ceil_mode)), MAXIMA


@_lowers(aten.max_pool2d_with_indices_backward)
def _max_pool2d_backward(
    g: Array,
    x: Array,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    _maxima: object,
) -> Array:
    windows = _windows(x, size, stride, padding, dilation, ceil_mode)
    if set(windows["window_dilation"]) != {1}:
        raise UnsupportedError("gradient of max_pool2d with dilation")
    return jax.vjp(lambda x: _max_pool(x, **windows), x)[1](g)[0]


def _average_pool(
    shape: Sequence[int],
    size: Sequence[int],
    stride: Sequence[int],
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Callable[[Array], Array]:
    def pool(x: Array) -> Array:
        windows = _windows(x, size, stride, padding, 1, ceil_mode)
        total = lax.reduce_window(x, 0.0, lax.add, **windows)
        if divisor is not None or count_include_pad or not any(_pair(padding)):
            return total / (divisor or math.prod(_pair(size)))
        return total / lax.reduce_window(jnp.ones(tuple(shape)), 0.0, lax.add, **windows)

    return pool


@_lowers(aten.avg_pool2d)
def _avg_pool2d(
    x: Array,
    size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Array:
    return _average_pool(x.shape, size, stride, padding, ceil_mode, count_include_pad, divisor)(x)


@_lowers(aten.avg_pool2d_backward)
def _avg_pool2d_backward(g: Array, x: Array, *arguments: Any) -> Array:
    return jax.linear_transpose(_average_pool(x.shape, *arguments), x)(g)[0]


@_lowers(aten._adaptive_avg_pool2d)
def _adaptive_avg_pool2d(x: Array, size: Sequence[int]) -> Array:
    if any(n % k for n, k in zip(x.shape[-2:], size, strict=True)):
        raise UnsupportedError(
            f"adaptive pooling of {x.shape[-2:]} to {tuple(size)}, not a divisor"
        )
    return _avg_pool2d(x, [n // k for n, k in zip(x.shape[-2:], size, strict=True)])


@_lowers(aten._adaptive_avg_pool2d_backward)
def _adaptive_avg_pool2d_backward(g: Array, x: Array) -> Array:
    return jax.linear_transpose(lambda x: _adaptive_avg_pool2d(x, g.shape[-2:]), x)(g)[0]


# Indices


def _at(x: Array, dim: int, index: Array) -> Any:
    """The places of `x` that `index` names along `dim`; they are within bounds."""
    return x.at[(slice(None),) * (dim % x.ndim) + (index,)]


_IN_BOUNDS = {"mode": "promise_in_bounds", "wrap_negative_indices": False}


@_lowers(aten.embedding)
def _embedding(weight: Array, indices: Array, *_: Any) -> Array:
    return weight.at[indices].get(**_IN_BOUNDS)


@_lowers(aten.embedding_dense_backward)
def _embedding_backward(
    g: Array, indices: Array, count: int, padding: int, by_frequency: bool
) -> Array:
    if by_frequency:
        raise UnsupportedError("embedding with scale_grad_by_freq=True")
    if padding >= 0:
        g = jnp.where((indices == padding)[..., None], 0, g)
    zeros = jnp.zeros((count, g.shape[-1]), g.dtype)
    return zeros.at[indices].add(g, **_IN_BOUNDS)


@_lowers(aten.index_select)
def _index_select(x: Array, dim: int, index: Array) -> Array:
    return _at(x, dim, index).get(**_IN_BOUNDS)


def _indexed(x: Array, indices: Sequence[Array | None]) -> Any:
    """The places that PyTorch's `x[indices]` names."""
    used = [(dim, jnp.asarray(index)) for dim, index in enumerate(indices) if index is not None]
    if len(used) != 1 or used[0][1].dtype == bool:
        raise UnsupportedError("other indices than whole numbers for one dimension")
    dim, index = used[0]
    # Elsewhere than in `gather` and `embedding`, negative ones count from the end.
    return _at(x, dim, jnp.where(index < 0, index + x.shape[dim], index))


@_lowers(aten.index)
def _index(x: Array, indices: Sequence[Array | None]) -> Array:
    return _indexed(x, indices).get(**_IN_BOUNDS)


@_lowers(aten.index_put)
def _index_put(
    x: Array, indices: Sequence[Array | None], source: Array, accumulate: bool = False
) -> Array:
    if not accumulate:
        raise UnsupportedError("assignment to elements (adding to them is lowered)")
    return _indexed(x, indices).add(source, **_IN_BOUNDS)


@_lowers(aten.gather)
def _gather(x: Array, dim: int, index: Array, **_: Any) -> Array:
    if x.ndim == 1:
        return _at(x, 0, index).get(**_IN_BOUNDS)
    _check_one_per_row(x, dim, index)
    picked = jnp.where(_picks(x, dim, index), x, jnp.zeros((), x.dtype))
    return jnp.sum(picked, dim, keepdims=True)


@_lowers(aten.scatter)
def _scatter(x: Array, dim: int, index: Array, source: Any, **options: Any) -> Array:
    if options:
        raise UnsupportedError(f"scatter with {', '.join(options)}")
    _check_one_per_row(x, dim, index)
    return jnp.where(_picks(x, dim, index), source, x)


@_lowers(aten.scatter_add)
def _scatter_add(x: Array, dim: int, index: Array, source: Array) -> Array:
    if x.ndim == 1:
        return _at(x, 0, index).add(source, **_IN_BOUNDS)
    _check_one_per_row(x, dim, index)
    return x + jnp.where(_picks(x, dim, index), source, jnp.zeros((), x.dtype))


def _check_one_per_row(x: Array, dim: int, index: Array) -> None:
    expected = list(x.shape)
    expected[dim] = 1
    if list(index.shape) != expected:
        raise UnsupportedError(
            f"indices of the shape {index.shape}, not one for each row of {x.shape}"
        )


def _picks(x: Array, dim: int, index: Array) -> Array:
    """Whether an element of `x` is the one that `index`, of extent 1 along `dim`, names."""
    return lax.broadcasted_iota("int32", x.shape, dim % x.ndim) == index


# What is there to measure and to check


@_lowers(
    aten._assert_async,
    torch.ops.profiler._record_function_enter_new,
    torch.ops.profiler._record_function_exit,
)
def _nothing(*_: Any) -> None:
    return None
