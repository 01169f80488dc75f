"""The meaning of the StableHLO operations, as functions on NumPy arrays.

Every function gives, for each element of its result, the same sequence of IEEE 754 operations as
the generated code, so the bits agree. Work is vectorised only across elements of a result, never
along a reduction:

- `reduce`: the initial value, then the reduced elements in row-major order.
- `dot_general`: +0.0, then one rounded product and one rounded sum for each contracted position.
- `convolution`: +0.0, then kernel positions in row-major order, input features innermost; positions
  in the padding or in dilation holes contribute nothing.
- `reduce_window`: the initial value, then the window in row-major order, padding skipped.

Sums of floats of these four are added in `blocks` (`sums.py`).
- `select_and_scatter`, `scatter`: contributions in row-major order of the source or the indices.

Maximum and minimum propagate NaN and order -0.0 below +0.0. Integers wrap around. Callers run these
functions under `numpy.errstate(all="ignore")`: overflow and division by zero have defined results.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from poetc.ir.stablehlo.sums import Blocks
from poetc.ir.types import computed_dtype, is_float

Array = np.ndarray[Any, np.dtype[Any]]
Ints = Sequence[int]


# Element-wise


def maximum(a: Array, b: Array) -> Array:
    """The larger element, NaN if either is; +0.0 of +0.0 and -0.0 (`arith.maximumf`)."""
    larger = np.asarray(np.maximum(a, b))
    if not is_float(larger.dtype):
        return larger
    # NumPy returns either zero; the sum of two zeros is -0.0 only if both are.
    return np.where((a == 0) & (b == 0), a + b, larger)


def minimum(a: Array, b: Array) -> Array:
    """The smaller element, NaN if either is; -0.0 of +0.0 and -0.0 (`arith.minimumf`)."""
    smaller = np.asarray(np.minimum(a, b))
    if not is_float(smaller.dtype):
        return smaller
    return np.where((a == 0) & (b == 0), -(-a + -b), smaller)


def sign(x: Array) -> Array:
    """-1, 0 or 1; zeros keep their sign and NaN stays NaN."""
    return np.where(x == 0, x, np.sign(x)).astype(x.dtype)


def divide(a: Array, b: Array) -> Array:
    """a / b, of integers towards zero; all bits for b = 0, and the smallest by -1 is itself."""
    if is_float(a.dtype):
        return np.divide(a, b)
    one = a.dtype.type(1)
    divisor = np.where(b == 0, one, b)
    # The quotient is rounded down: one more where it is negative and something is left.
    down = np.floor_divide(a, divisor)
    quotient = down + ((np.fmod(a, divisor) != 0) & ((a < 0) != (divisor < 0)))
    return np.where(b == 0, ~a.dtype.type(0), quotient).astype(a.dtype)


def remainder(a: Array, b: Array) -> Array:
    """a - b * (a / b) of integers, with the sign of a; a for b = 0."""
    return np.where(b == 0, a, np.fmod(a, np.where(b == 0, a.dtype.type(1), b)))


def power(x: Array, exponent: Array) -> Array:
    """Integers to the power of integers; of a negative exponent only 1 and -1 leave anything."""
    negative = exponent < 0
    base, left = x, np.where(negative, exponent & x.dtype.type(1), exponent)
    result = np.ones_like(base)
    while left.any():
        result = np.where(left & 1, result * base, result)
        base, left = base * base, left >> 1
    return np.where(negative & (x != 1) & (x + x.dtype.type(1) != 0), 0, result).astype(x.dtype)


def rounded(function: Callable[[float], float], x: Array) -> Array:
    """A function of float64 numbers on each element, its result rounded to the type of `x`."""
    return np.array([function(element) for element in x.ravel().tolist()], x.dtype).reshape(x.shape)


def lgamma(x: Array) -> Array:
    """The logarithm of the absolute value of the gamma function, of float64."""

    def one(number: float) -> float:
        if not math.isfinite(number):
            return math.nan if math.isnan(number) else math.inf
        return math.inf if number <= 0 and number == math.floor(number) else math.lgamma(number)

    return np.vectorize(one, [np.float64])(x)


def digamma(x: Array) -> Array:
    """The derivative of `lgamma`: by its asymptotic series, for numbers of 10 or more."""
    pole = (x <= 0) & (x == np.floor(x))
    mirrored = x < 0
    positive = np.where(mirrored, 1 - x, x)
    shifted, total = positive, np.zeros_like(x)
    for _ in range(10):
        step = shifted < 10
        total = np.where(step, total - 1 / shifted, total)
        shifted = np.where(step, shifted + 1, shifted)
    square = 1 / (shifted * shifted)
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square / 240)))
    total = total + np.log(shifted) - 0.5 / shifted - series
    total = np.where(mirrored, total - math.pi / np.tan(math.pi * x), total)
    return np.where(pole, math.nan, total)


def polygamma(order: Array, x: Array) -> Array:
    """The derivative of `digamma` of that order, which is 0 or more, of float64: by a sum, and by
    the formula of Euler and Maclaurin for the rest."""
    s = order + 1
    far = x + 30
    total = sum((x + k) ** -s for k in range(30)) + far ** (1 - s) / (s - 1) + far**-s / 2
    total = total + s * far ** (-s - 1) / 12 - s * (s + 1) * (s + 2) * far ** (-s - 3) / 720
    sign = np.where(order % 2 == 0, -1, 1)
    factorial = np.vectorize(math.gamma, [np.float64])(s)
    return np.where(order == 0, digamma(x), sign * factorial * total)


def erf_inv(x: Array) -> Array:
    """The inverse of the error function, of float64: by halving intervals, and by Newton's method
    where its relative error would be large."""
    erf = np.vectorize(math.erf, [np.float64])
    low, high = np.full(x.shape, -6.0), np.full(x.shape, 6.0)
    for _ in range(60):
        middle = (low + high) / 2
        above = erf(middle) > x
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    root = x * math.sqrt(math.pi) / 2
    for _ in range(20):
        root = root - (erf(root) - x) * math.sqrt(math.pi) / 2 * np.exp(np.minimum(root * root, 1))
    inside = np.where(np.abs(x) < 0.5, root, high)
    return np.where(np.abs(x) < 1, inside, np.where(np.abs(x) == 1, x * math.inf, math.nan))


def convert(x: Array, dtype: np.dtype[Any]) -> Array:
    """Conversion to `dtype`; float to integer truncates, saturates, and turns NaN into 0."""
    if dtype == np.bool_:
        return x != 0
    if not is_float(x.dtype) or is_float(dtype):
        # Floats of 16 bits come from those of 32: numbers that have too many digits for either
        # are rounded twice.
        return x.astype(computed_dtype(dtype)).astype(dtype)
    limits = np.iinfo(dtype)
    wide = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0)
    # Float64 may round the largest integer up, so the upper end is compared rather than clipped.
    inside = (wide >= limits.min) & (wide < float(limits.max))
    clamped = np.where(wide < 0, limits.min, limits.max).astype(dtype)
    return np.where(inside, np.where(inside, wide, 0.0).astype(dtype), clamped)


def total_order(x: Array) -> Array:
    """Integers in the order of floats that has -0.0 before +0.0, NaN with a sign before all other
    numbers and NaN without one after them."""
    bits = x.astype(computed_dtype(x.dtype)).view(np.int32)
    return bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))


COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}

# Data movement


def iota(shape: Ints, dim: int, dtype: np.dtype[Any]) -> Array:
    """Each element is its own index along `dim`."""
    along = convert(np.arange(shape[dim]), dtype)
    return np.broadcast_to(along.reshape([-1 if d == dim else 1 for d in range(len(shape))]), shape)


def broadcast_in_dim(x: Array, shape: Ints, dims: Ints) -> Array:
    """Dimension i of `x` becomes dimension `dims[i]` of the result; the others repeat it."""
    spread = np.transpose(x, np.argsort(np.asarray(dims, dtype=np.int64)))
    aligned = [1] * len(shape)
    for size, dim in zip(spread.shape, sorted(dims), strict=True):
        aligned[dim] = size
    return np.broadcast_to(spread.reshape(aligned), shape)


def pad(x: Array, value: Array, low: Ints, high: Ints, interior: Ints) -> Array:
    """Padding around and between elements; negative `low` and `high` cut elements off."""
    dilated = [size + max(size - 1, 0) * gap for size, gap in zip(x.shape, interior, strict=True)]
    result = np.full(
        [max(a + size + b, 0) for a, size, b in zip(low, dilated, high, strict=True)],
        value,
        dtype=x.dtype,
    )
    taps = [
        _tap(out, size, -before, 1, gap + 1)
        for out, size, before, gap in zip(result.shape, x.shape, low, interior, strict=True)
    ]
    if (found := _all_found(taps)) is not None:
        into, out_of = found
        result[into] = x[out_of]
    return result


# Windows


def _tap(
    out_size: int, in_size: int, offset: int, stride: int, dilation: int
) -> tuple[slice, slice] | None:
    """The (output, input) positions joined by one window position along one dimension.

    Output o reads position o * stride + offset of the input spread out by `dilation`; outputs that
    would read outside it or in a hole are left out. None if that leaves no output.
    """
    position = np.arange(out_size) * stride + offset
    real = (position >= 0) & (position <= (in_size - 1) * dilation) & (position % dilation == 0)
    outputs = np.flatnonzero(real)
    if not outputs.size:
        return None
    # Congruences make both progressions arithmetic.
    inputs = position[outputs] // dilation
    return _progression(outputs), _progression(inputs)


def _progression(indices: Array) -> slice:
    first, last = int(indices[0]), int(indices[-1])
    step = int(indices[1]) - first if indices.size > 1 else 1
    return slice(first, last + 1, step)


def _all_found(
    taps: Sequence[tuple[slice, slice] | None],
) -> tuple[tuple[slice, ...], tuple[slice, ...]] | None:
    present = [tap for tap in taps if tap is not None]
    if len(present) < len(taps):
        return None
    return tuple(out for out, _ in present), tuple(source for _, source in present)


def _taps(
    out_shape: Ints,
    in_shape: Ints,
    window: Ints,
    strides: Ints,
    pad_low: Ints,
    base_dilations: Ints,
    window_dilations: Ints,
) -> Iterator[tuple[tuple[int, ...], tuple[tuple[slice, ...], tuple[slice, ...]] | None]]:
    """Window positions in row-major order, each with the output and input elements it joins; None
    where there are none."""
    per_dimension = [
        [
            _tap(out, size, k * window_dilation - before, stride, base_dilation)
            for k in range(extent)
        ]
        for out, size, extent, stride, before, base_dilation, window_dilation in zip(
            out_shape,
            in_shape,
            window,
            strides,
            pad_low,
            base_dilations,
            window_dilations,
            strict=True,
        )
    ]
    for k in itertools.product(*map(range, window)):
        yield k, _all_found([taps[i] for taps, i in zip(per_dimension, k, strict=True)])


# Reductions


class _Total:
    """Results that terms are combined with, one after the other, over loops of such extents.

    `part` is what the next term is combined with, `result` is complete after all of them.
    """

    def __init__(self, result: Array, extents: Ints, blocks: Blocks | None) -> None:
        self.result = result
        self.part = result if blocks is None else np.full_like(result, -0.0)
        self._terms = iter(()) if blocks is None else blocks.terms(extents)
        self._left = next(self._terms, -1)

    def next(self, terms: int = 1) -> None:
        """So many terms are combined, or will never be."""
        for _ in range(terms):
            self._left -= 1
            if self._left == 0:
                self.result += self.part
                self.part[...] = -0.0
                self._left = next(self._terms, -1)


def reduce(
    x: Array,
    init: Array,
    dims: Ints,
    combine: Callable[[Array, Array], Array],
    blocks: Blocks | None = None,
) -> Array:
    """Folds the dimensions `dims` of `x` into `init` with `combine`."""
    folded = sorted(dims)
    kept = [d for d in range(x.ndim) if d not in folded]
    shape = [x.shape[d] for d in kept]
    rows = x.transpose(folded + kept).reshape([math.prod(x.shape[d] for d in folded), *shape])
    result = np.full(shape, init, dtype=x.dtype)
    total = _Total(result, [x.shape[d] for d in folded], blocks)
    for row in rows:
        total.part[...] = combine(total.part, row)
        total.next()
    return result


def dot_general(
    lhs: Array,
    rhs: Array,
    lhs_batch: Ints,
    rhs_batch: Ints,
    lhs_contract: Ints,
    rhs_contract: Ints,
    blocks: Blocks | None = None,
) -> Array:
    """Sum of products over the contracted dimensions: batch, then lhs, then rhs dimensions."""

    def split(x: Array, batch: Ints, contract: Ints) -> tuple[Array, list[int]]:
        free = [d for d in range(x.ndim) if d not in batch and d not in contract]
        moved = x.transpose([*contract, *batch, *free])
        sizes = [math.prod(x.shape[d] for d in dims) for dims in (contract, batch, free)]
        return moved.reshape(sizes), [x.shape[d] for d in free]

    left, left_shape = split(lhs, lhs_batch, lhs_contract)
    right, right_shape = split(rhs, rhs_batch, rhs_contract)
    result = np.zeros((left.shape[1], left.shape[2], right.shape[2]), dtype=lhs.dtype)
    product = np.empty_like(result)
    total = _Total(result, [lhs.shape[d] for d in lhs_contract], blocks)
    for a, b in zip(left, right, strict=True):
        np.multiply(a[:, :, None], b[:, None, :], out=product)
        total.part += product
        total.next()
    return result.reshape([lhs.shape[d] for d in lhs_batch] + left_shape + right_shape)


def convolution(
    lhs: Array,
    rhs: Array,
    dims: Any,
    strides: Ints,
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Ints,
    rhs_dilation: Ints,
    feature_groups: int,
    batch_groups: int,
    shape: Ints,
    blocks: Blocks | None = None,
) -> Array:
    """Convolution with the dimension numbers `dims` (a `ConvDims`) and the result type's `shape`.

    Both kinds of groups become one dimension:
    result group g pairs group g of the output features with group g of the input features or of the
    input batch.
    """
    images = lhs.transpose([dims.input_batch, *dims.input_spatial, dims.input_feature])
    kernel = rhs.transpose(
        [*dims.kernel_spatial, dims.kernel_input_feature, dims.kernel_output_feature]
    )
    batch, *in_spatial, _ = images.shape
    *window, group_features, out_features = kernel.shape
    groups = feature_groups * batch_groups
    out_spatial = [shape[d] for d in dims.output_spatial]
    batch //= batch_groups

    # Input features lead so that each step of the sum reads one contiguous block:
    # images [feature, batch, spatial..., group], kernel [spatial..., feature, group, output].
    rank = len(in_spatial)
    images = images.reshape([batch_groups, batch, *in_spatial, feature_groups, group_features])
    images = images.transpose([rank + 3, 1, *range(2, rank + 2), 0, rank + 2])
    images = np.ascontiguousarray(images).reshape([group_features, batch, *in_spatial, groups])
    kernel = np.ascontiguousarray(kernel).reshape(
        [*window, group_features, groups, out_features // groups]
    )
    result = np.zeros([batch, *out_spatial, groups, out_features // groups], dtype=lhs.dtype)
    layout = [dims.output_batch, *dims.output_spatial, dims.output_feature]
    total = _Total(result, [*window, group_features], blocks)
    for k, found in _taps(
        out_spatial,
        in_spatial,
        window,
        strides,
        [low for low, _ in padding],
        lhs_dilation,
        rhs_dilation,
    ):
        if found is None:
            total.next(group_features)
            continue
        into, out_of = found
        for image, weight in zip(images[:, :, *out_of], kernel[k], strict=True):
            total.part[:, *into] += image[..., None] * weight
            total.next()
    order = np.argsort(layout)
    return result.reshape([batch, *out_spatial, out_features]).transpose(order)


def reduce_window(
    x: Array,
    init: Array,
    window: Ints,
    strides: Ints,
    base_dilations: Ints,
    window_dilations: Ints,
    padding: Sequence[tuple[int, int]],
    combine: Callable[[Array, Array], Array],
    shape: Ints,
    blocks: Blocks | None = None,
) -> Array:
    """Folds each window of `x` into `init`; padding and holes are skipped."""
    result = np.full(shape, init, dtype=x.dtype)
    total = _Total(result, window, blocks)
    for _, found in _taps(
        shape,
        x.shape,
        window,
        strides,
        [low for low, _ in padding],
        base_dilations,
        window_dilations,
    ):
        if found is not None:
            into, out_of = found
            total.part[into] = combine(total.part[into], x[out_of])
        total.next()
    return result


def select_and_scatter(
    x: Array,
    source: Array,
    init: Array,
    window: Ints,
    strides: Ints,
    padding: Sequence[tuple[int, int]],
    select_direction: str,
) -> Array:
    """Adds each source element to the element that its window of `x` selects.

    A window is scanned in row-major order; the element chosen so far stays while comparing it with
    the next one in `select_direction` holds.
    """
    stays = COMPARISONS[select_direction]
    place = np.arange(x.size).reshape(x.shape)
    chosen = np.zeros(source.shape, dtype=x.dtype)
    chosen_place = np.full(source.shape, -1)
    ones = [1] * x.ndim
    lows = [low for low, _ in padding]
    for _, found in _taps(source.shape, x.shape, window, strides, lows, ones, ones):
        if found is None:
            continue
        into, out_of = found
        replace = (chosen_place[into] < 0) | ~stays(chosen[into], x[out_of])
        chosen[into] = np.where(replace, x[out_of], chosen[into])
        chosen_place[into] = np.where(replace, place[out_of], chosen_place[into])
    result = np.full(x.size, init, dtype=x.dtype)
    hit = chosen_place >= 0
    # ufunc.at adds one by one, in the order of its index array.
    np.add.at(result, chosen_place[hit], source[hit])
    return result.reshape(x.shape)


# Indexed access


def _starts(
    indices: Array,
    rank: int,
    index_vector_dim: int,
    index_map: Ints,
    operand_batching: Ints,
    indices_batching: Ints,
) -> Array:
    """Start of the window in each operand dimension (last axis) for each index vector."""
    if index_vector_dim == indices.ndim:
        vectors = indices[..., None]
    else:
        vectors = np.moveaxis(indices, index_vector_dim, -1)
    if vectors.dtype == np.uint64:  # beyond the ends of every tensor, not before their begins
        vectors = np.minimum(vectors, np.iinfo(np.int64).max)
    shape = vectors.shape[:-1]
    starts = np.zeros((*shape, rank), dtype=np.int64)
    starts[..., list(index_map)] = vectors
    for operand_dim, dim in zip(operand_batching, indices_batching, strict=True):
        axis = dim - (dim > index_vector_dim)
        starts[..., operand_dim] = iota(shape, axis, np.dtype(np.int64))
    return starts


def _coordinates(starts: Array, window_dims: Ints, window: Ints) -> list[Array]:
    """Per operand dimension, its coordinates for each index vector and window position."""
    shape = [*starts.shape[:-1], *window]
    leading = starts.ndim - 1
    coordinates: list[Array] = []
    for dim in range(starts.shape[-1]):
        start = starts[..., dim].reshape([*starts.shape[:-1], *[1] * len(window)])
        if dim in window_dims:
            start = start + iota(shape, leading + window_dims.index(dim), np.dtype(np.int64))
        coordinates.append(np.broadcast_to(start, shape))
    return coordinates


def gather(x: Array, indices: Array, dnums: Any, slice_sizes: Ints) -> Array:
    """Slices of `x` at the places that `indices` name, moved inside where they would stick out."""
    starts = _starts(
        indices,
        x.ndim,
        dnums.index_vector_dim,
        dnums.start_index_map,
        dnums.operand_batching_dims,
        dnums.start_indices_batching_dims,
    )
    limits = np.asarray(x.shape, dtype=np.int64) - np.asarray(slice_sizes, dtype=np.int64)
    starts = np.clip(starts, 0, np.maximum(limits, 0))
    for dim in dnums.operand_batching_dims:
        assert slice_sizes[dim] == 1
    removed = {*dnums.collapsed_slice_dims, *dnums.operand_batching_dims}
    window_dims = [d for d in range(x.ndim) if d not in removed]
    coordinates = _coordinates(starts, window_dims, [slice_sizes[d] for d in window_dims])
    values = x[tuple(coordinates)]
    leading = starts.ndim - 1
    return np.moveaxis(values, range(leading, values.ndim), dnums.offset_dims)


def scatter(
    x: Array,
    indices: Array,
    updates: Array,
    dnums: Any,
    kind: str | Callable[[Array, Array], Array],
) -> Array:
    """`x` plus ("add"), or with ("replace"), the windows of updates at the places that `indices`
    name, one after the other, or what a function makes of both; a window that is not wholly inside
    `x` is left out."""
    starts = _starts(
        indices,
        x.ndim,
        dnums.index_vector_dim,
        dnums.scatter_dims_to_operand_dims,
        dnums.input_batching_dims,
        dnums.scatter_indices_batching_dims,
    )
    removed = {*dnums.inserted_window_dims, *dnums.input_batching_dims}
    window_dims = [d for d in range(x.ndim) if d not in removed]
    leading = starts.ndim - 1
    # Index vectors lead, so that row-major order is the order of the contract.
    updates = np.moveaxis(updates, dnums.update_window_dims, range(leading, updates.ndim))
    window = updates.shape[leading:]
    sizes = np.ones(x.ndim, dtype=np.int64)
    sizes[window_dims] = window
    inside = ((starts >= 0) & (starts <= x.shape - sizes)).all(axis=-1)
    result = x.copy()
    places = _coordinates(starts[inside], window_dims, window)
    if kind == "replace":
        result[tuple(places)] = updates[inside]
    elif kind == "add":
        np.add.at(result, tuple(places), updates[inside])
    else:
        assert callable(kind)
        count = int(inside.sum())
        places = [np.broadcast_to(place, (count, *window)) for place in places]
        for number, update in enumerate(updates[inside]):
            place = tuple(one[number] for one in places)
            result[place] = kind(result[place], update)
    return result
