"""Small instances of every operation that is read, of all element types and awkward shapes.

The verifier of an operation decides which of them there are: what it accepts must work everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from kernel_harness import Array, Case
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Block, Operation, Region
from xdsl.utils.exceptions import VerifyException

from poetc.ir import dense
from poetc.ir import stablehlo as hlo
from poetc.ir.buffers import element_bytes
from poetc.ir.stablehlo.chlo import FLOATS, NextAfterOp, PolygammaOp
from poetc.ir.stablehlo_attributes import ConvDims, GatherDims, ScatterDims
from poetc.ir.types import is_float

Shape = tuple[int, ...]
Instance = tuple[Callable[..., Any], Sequence[Array]]
"""What builds the operation from values, and arguments for them."""

SHAPES: tuple[Shape, ...] = ((), (4,), (0,), (2, 3), (3, 0), (1, 4))

ALL_SHAPES: tuple[Attribute, ...] = (hlo.f32, hlo.i32)
"""Element types that are combined with all shapes, the others with fewer: but for f32 also these,
where an operation is element-wise or only moves elements."""

Maker = Callable[[Attribute, Shape], Iterator[Instance]]


def numbers(element: Attribute, shape: Sequence[int], seed: int = 0) -> Array:
    """Numbers of that type, small and of either sign."""
    rng = np.random.default_rng(seed)
    dtype = dense.dtype_of(element)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if is_float(dtype):
        return rng.standard_normal(shape).astype(dtype)
    small = rng.integers(-9, 9, shape)
    # Unsigned numbers wrap to large ones.
    return small.astype(dtype)


def _indices(values: Sequence[Any] | int) -> Array:
    return np.array(values, np.int32)


def _unary(op: Any) -> Maker:
    def make(element: Attribute, shape: Shape) -> Iterator[Instance]:
        yield op, [numbers(element, shape)]

    return make


def _binary(op: Any) -> Maker:
    def make(element: Attribute, shape: Shape) -> Iterator[Instance]:
        yield op, [numbers(element, shape), numbers(element, shape, 1)]
        if shape == (4,):
            yield lambda x: op(x, x), [numbers(element, shape)]

    return make


def _power(element: Attribute, shape: Shape) -> Iterator[Instance]:
    exponent = numbers(element, shape, 1)
    if exponent.dtype.kind == "u":
        # XLA takes large ones for negative.
        exponent %= 32
    yield hlo.PowerOp, [numbers(element, shape), exponent]


def _convert(element: Attribute, shape: Shape) -> Iterator[Instance]:
    for target in hlo.ELEMENT_TYPES if shape == (4,) else ALL_SHAPES:
        yield lambda x, to=target: hlo.ConvertOp(x, to), [numbers(element, shape)]


def _polygamma(element: Attribute, shape: Shape) -> Iterator[Instance]:
    x = [np.abs(numbers(element, shape)) + dense.dtype_of(element).type(1)]
    for order in (0, 1, 2, 5):
        yield (
            lambda x, n=order: PolygammaOp(hlo.ConstantOp.splat(n, hlo.tensor_type(x)), x),
            x,
        )


def _next_after(element: Attribute, shape: Shape) -> Iterator[Instance]:
    if shape == (2, 3):
        special = np.array([0, -0.0, 1, -1, 1e-6, np.inf, -np.inf, np.nan])
        some = special if element in FLOATS else special[:4]
        pairs = np.broadcast_to(some.astype(dense.dtype_of(element)), (some.size, some.size))
        yield NextAfterOp, [pairs, pairs.T.copy()]


def _bitcast(element: Attribute, shape: Shape) -> Iterator[Instance]:
    for target in hlo.ELEMENT_TYPES:
        ratio = element_bytes(target) // element_bytes(element)
        of_parts = (*shape, ratio) if ratio > 1 else shape
        yield lambda x, to=target: hlo.BitcastConvertOp(x, to), [numbers(element, of_parts)]


def _reduce_precision(element: Attribute, shape: Shape) -> Iterator[Instance]:
    x = numbers(element, shape)
    if not is_float(x.dtype):
        return
    for bits in ((8, 7), (5, 10), (4, 3), (8, 23), (2, 1)):
        yield lambda x, bits=bits: hlo.ReducePrecisionOp(x, *bits), [x]
        yield lambda x, bits=bits: hlo.ReducePrecisionOp(x, *bits), [x * x.dtype.type(60000)]


def _compare(element: Attribute, shape: Shape) -> Iterator[Instance]:
    all_directions = ("EQ", "NE", "GE", "GT", "LE", "LT")
    for direction in all_directions if shape == (4,) else ("LE",):
        args = [numbers(element, shape), numbers(element, shape, 1)]
        yield lambda x, y, d=direction: hlo.CompareOp(x, y, d), args
        if shape == (4,):
            yield lambda x, d=direction: hlo.CompareOp(x, x, d), args[:1]


def _select(element: Attribute, shape: Shape) -> Iterator[Instance]:
    args = [numbers(element, shape), numbers(element, shape, 1)]
    yield hlo.SelectOp, [numbers(hlo.i1, shape), *args]
    for pred in (False, True):
        yield hlo.SelectOp, [np.array(pred), *args]


def _clamp(element: Attribute, shape: Shape) -> Iterator[Instance]:
    lower, x, upper = (numbers(element, shape, seed) for seed in range(3))
    yield hlo.ClampOp, [lower, x, upper]
    for a, b in ((-1, 1), (1, -1)):
        bounds = [np.array(bound).astype(x.dtype) for bound in (a, b)]
        yield hlo.ClampOp, [bounds[0], x, bounds[1]]


def _constant(element: Attribute, shape: Shape) -> Iterator[Instance]:
    yield lambda: hlo.ConstantOp(numbers(element, shape)), []
    yield lambda: hlo.ConstantOp(np.ones(shape, dense.dtype_of(element))), []


def _iota(element: Attribute, shape: Shape) -> Iterator[Instance]:
    for dim in range(len(shape)):
        yield lambda d=dim: hlo.IotaOp(TensorType(element, shape), d), []


def _broadcast(element: Attribute, shape: Shape) -> Iterator[Instance]:
    rank = len(shape)
    x = [numbers(element, shape)]
    wide = [3 if n == 1 else n for n in shape]
    yield lambda x: hlo.BroadcastInDimOp(x, range(1, rank + 1), (2, *wide)), x
    yield lambda x: hlo.BroadcastInDimOp(x, range(rank)[::-1], (*wide[::-1], 2)), x
    yield lambda x: hlo.BroadcastInDimOp(x, range(rank), (*shape, 0)), x


def _reshape(element: Attribute, shape: Shape) -> Iterator[Instance]:
    count = int(np.prod(shape))
    for target in ((*shape, 1), (count,), shape[::-1], (7, 0, 2)):
        yield lambda x, to=target: hlo.ReshapeOp(x, to), [numbers(element, shape)]


def _transpose(element: Attribute, shape: Shape) -> Iterator[Instance]:
    yield lambda x: hlo.TransposeOp(x, range(len(shape))[::-1]), [numbers(element, shape)]


def _reverse(element: Attribute, shape: Shape) -> Iterator[Instance]:
    for rank in range(len(shape) + 1):
        yield lambda x, r=rank: hlo.ReverseOp(x, range(r)), [numbers(element, shape)]


def _slice(element: Attribute, shape: Shape) -> Iterator[Instance]:
    x = [numbers(element, shape)]
    zeros = [0] * len(shape)
    yield lambda x: hlo.SliceOp(x, zeros, shape, [2] * len(shape)), x
    yield lambda x: hlo.SliceOp(x, [min(1, n) for n in shape], shape), x
    yield lambda x: hlo.SliceOp(x, zeros, zeros), x


def _pad(element: Attribute, shape: Shape) -> Iterator[Instance]:
    args = [numbers(element, shape), numbers(element, ())]
    for low, high, gap in ((1, 2, 0), (0, 1, 2), (-1, 1, 1), (0, -1, 0)):
        pads = [[n] * len(shape) for n in (low, high, gap)]
        yield lambda x, value, pads=pads: hlo.PadOp(x, value, *pads), args


def _concatenate(element: Attribute, shape: Shape) -> Iterator[Instance]:
    for dim, size in enumerate(shape):
        longer = [n + (d == dim) for d, n in enumerate(shape)]
        empty = [0 if d == dim else n for d, n in enumerate(shape)]
        args = [numbers(element, s) for s in (shape, longer, empty, shape)]
        yield lambda *inputs, d=dim: hlo.ConcatenateOp(inputs, d), args
        if size:
            yield lambda x, d=dim: hlo.ConcatenateOp([x], d), args[:1]


# Left and right operand, contracting and batching dimensions of both.
_DOTS: tuple[tuple[Shape, Shape, tuple[Sequence[int], ...]], ...] = (
    ((), (), ((), (), (), ())),
    ((3,), (3,), ((0,), (0,), (), ())),
    ((2, 3), (3, 4), ((1,), (0,), (), ())),
    ((2, 3), (4, 3), ((1,), (1,), (), ())),
    ((2, 0), (0, 3), ((1,), (0,), (), ())),
    ((0, 3), (3, 2), ((1,), (0,), (), ())),
    ((2, 1), (1, 3), ((1,), (0,), (), ())),
    ((2, 3, 4), (2, 4, 2), ((2,), (1,), (0,), (0,))),
    ((2, 3, 2), (2, 2, 4), ((0, 2), (0, 1), (), ())),
    ((2,), (3,), ((), (), (), ())),
)


def _dot(element: Attribute, shape: Shape) -> Iterator[Instance]:
    if shape == ():
        for left, right, dims in _DOTS:
            yield (
                lambda x, y, dims=dims: hlo.DotGeneralOp(x, y, *dims),
                [numbers(element, left), numbers(element, right, 1)],
            )


_NHWC = ConvDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
_NCHW = ConvDims(0, 1, (2, 3), 1, 0, (2, 3), 0, 1, (2, 3))
_ONE_D = ConvDims(0, 2, (1,), 1, 2, (0,), 0, 2, (1,))
_NO_D = ConvDims(0, 1, (), 0, 1, (), 0, 1, ())
_CONVOLUTIONS: tuple[tuple[Shape, Shape, ConvDims, dict[str, Any]], ...] = (
    ((1, 4, 5, 2), (3, 2, 2, 3), _NHWC, {"padding": ((1, 1), (0, 2))}),
    ((2, 2, 4, 4), (4, 1, 2, 2), _NCHW, {"feature_groups": 2, "strides": (2, 1)}),
    ((4, 3, 3, 1), (2, 2, 1, 4), _NHWC, {"batch_groups": 2, "rhs_dilation": (2, 1)}),
    ((1, 3, 2), (2, 2, 3), _ONE_D, {"lhs_dilation": (3,), "padding": ((-1, 2),)}),
    ((2, 3), (3, 4), _NO_D, {}),
    ((1, 4, 5, 2), (3, 2, 2, 3), _NHWC, {"padding": ((1, 0), (0, 1)), "reversal": (True, False)}),
    ((1, 5, 2), (3, 2, 3), _ONE_D, {"reversal": (True,)}),
    ((0, 4, 4, 1), (3, 3, 1, 2), _NHWC, {}),
    ((1, 0, 4, 1), (2, 2, 1, 2), _NHWC, {"padding": ((2, 1), (0, 0))}),
    ((1, 4, 4, 0), (2, 2, 0, 2), _NHWC, {}),
    ((1, 1, 1, 1), (1, 1, 1, 1), _NHWC, {}),
    ((1, 4, 4, 1), (2, 2, 1, 0), _NHWC, {}),
)


def _convolution(element: Attribute, shape: Shape) -> Iterator[Instance]:
    if shape == ():
        for image, kernel, dims, options in _CONVOLUTIONS:
            yield (
                lambda x, y, dims=dims, options=options: hlo.ConvolutionOp(x, y, dims, **options),
                [numbers(element, image), numbers(element, kernel, 1)],
            )


def _reducers(element: Attribute, shape: Shape) -> list[str]:
    """All kinds for one shape, two for the others."""
    kinds = [kind for kind, op in hlo.REDUCERS.items() if element in op.ELEMENTS]
    return kinds if shape == (2, 3) else kinds[:2]


def _reduce(element: Attribute, shape: Shape) -> Iterator[Instance]:
    for kind in _reducers(element, shape):
        # From another start XLA gives something else: it may start several times, or never.
        args = [numbers(element, shape), np.asarray(hlo.identity(kind, element))]
        for dims in {(), tuple(range(len(shape))), tuple(range(len(shape)))[:1]}:
            yield lambda x, init, d=dims, k=kind: hlo.ReduceOp(x, init, d, k), args


def _fold(element: Attribute, shape: Shape) -> Iterator[Instance]:
    """Carries the sum of what was larger than all before, and the largest so far."""

    def body() -> Region:
        scalar = TensorType(element, ())
        block = Block(arg_types=[scalar, scalar, scalar])
        total, largest, x = block.args
        larger = hlo.CompareOp(x, largest, "GT")
        zero = hlo.ConstantOp.splat(0, scalar)
        added = hlo.SelectOp(larger, x, zero)
        after = (hlo.AddOp(total, added), hlo.MaximumOp(largest, x))
        block.add_ops((larger, zero, added, *after, hlo.ReturnOp(*after)))
        return Region(block)

    inits = [np.zeros((), dense.dtype_of(element)), np.asarray(hlo.identity("maximum", element))]
    for dims in {tuple(range(len(shape))), tuple(range(len(shape)))[:1]}:
        for number in range(2):
            yield (
                lambda x, a, b, d=dims, n=number: hlo.FoldOp([x], [a, b], d, body(), n),
                [numbers(element, shape), *inits],
            )
    if not hlo.is_float(TensorType(element, ())):
        yield from _place_of_largest(element, shape)


def _place_of_largest(element: Attribute, shape: Shape) -> Iterator[Instance]:
    """Folds of two element types: as of jnp.argmax."""

    def body() -> Region:
        block = Block(arg_types=[TensorType(t, ()) for t in (hlo.f32, element) * 2])
        largest, place, x, here = block.args
        larger = hlo.CompareOp(x, largest, "GT")
        after = (hlo.SelectOp(larger, x, largest), hlo.SelectOp(larger, here, place))
        block.add_ops((larger, *after, hlo.ReturnOp(*after)))
        return Region(block)

    inits = [np.float32(-np.inf), np.zeros((), dense.dtype_of(element))]
    for dim in range(len(shape)):
        yield (
            lambda x, a, b, d=dim: hlo.FoldOp(
                [x, hlo.IotaOp(TensorType(element, shape), d)], [a, b], (d,), body(), 1
            ),
            [numbers(hlo.f32, shape), *map(np.asarray, inits)],
        )


def _reduce_window(element: Attribute, shape: Shape) -> Iterator[Instance]:
    rank = len(shape)
    for kind in _reducers(element, shape):
        yield (
            lambda x, init, k=kind: hlo.ReduceWindowOp(x, init, [2] * rank, k),
            [numbers(element, shape), np.asarray(hlo.identity(kind, element))],
        )
        yield (
            lambda x, k=kind: hlo.ReduceWindowOp(
                x,
                hlo.ConstantOp(np.asarray(hlo.identity(k, element))),
                [2] * rank,
                k,
                [1] * rank,
                [(2, 1)] * rank,
                [2] * rank,
                [1] * rank,
            ),
            [numbers(element, shape)],
        )


def _select_and_scatter(element: Attribute, shape: Shape) -> Iterator[Instance]:
    rank = len(shape)
    for low, stride, window, direction in ((0, 2, 2, "GE"), (1, 1, 2, "LT"), (1, 2, 3, "GT")):
        windows = [max(0, n + 2 * low - window) // stride + 1 for n in shape]
        windows = [w if n + 2 * low >= window else 0 for w, n in zip(windows, shape, strict=True)]
        yield (
            lambda x, source, init, low=low, stride=stride, window=window, d=direction: (
                hlo.SelectAndScatterOp(
                    x, source, init, [window] * rank, [stride] * rank, [(low, low)] * rank, d
                )
            ),
            [numbers(element, shape), numbers(element, windows, 1), numbers(element, ())],
        )


def _gather(element: Attribute, shape: Shape) -> Iterator[Instance]:
    table = numbers(element, (5, 3))
    rows = GatherDims((1,), (0,), (), (), (0,), 1)
    if shape == ():
        pick = GatherDims((), (0,), (), (), (0,), 0)
        yield (
            lambda x, i: hlo.GatherOp(x, i, pick, (1,)),
            [numbers(element, (5,)), _indices([7])],
        )
        batched = GatherDims((), (1,), (0,), (0,), (1,), 1)
        yield lambda x, i: hlo.GatherOp(x, i, batched, (1, 1)), [table, _indices([0, 1, 2, 3, -1])]
        windows = GatherDims((1, 2), (), (), (), (1, 0), 1)
        yield (
            lambda x, i: hlo.GatherOp(x, i, windows, (2, 2)),
            [table, _indices([[2, 4], [-1, 0], [0, 9]])],
        )
        yield lambda x, i: hlo.GatherOp(x, i, windows, (0, 2)), [table, _indices([[0, 0]])]
        yield lambda x, i: hlo.GatherOp(x, i, rows, (1, 2)), [table, _indices([[3], [5]])]
    if len(shape) == 1:
        places = np.arange(-1, shape[0] - 1, dtype=np.int32)[:, None]
        yield lambda x, i: hlo.GatherOp(x, i, rows, (1, 3)), [table, places]


def _scatter(element: Attribute, shape: Shape) -> Iterator[Instance]:
    table = numbers(element, (5, 3))
    rows = ScatterDims((1,), (0,), (), (), (0,), 1)
    if shape == ():
        pick = ScatterDims((), (0,), (), (), (0,), 0)
        yield (
            lambda x, i, u: hlo.ScatterOp(x, i, u, pick),
            [numbers(element, (5,)), _indices([4]), numbers(element, (), 1)],
        )
        batched = ScatterDims((), (1,), (0,), (0,), (1,), 1)
        yield (
            lambda x, i, u: hlo.ScatterOp(x, i, u, batched),
            [table, _indices([0, 1, 2, 3, -1]), numbers(element, (5,), 1)],
        )
        windows = ScatterDims((1, 2), (), (), (), (1, 0), 1)
        for kind in (*hlo.REDUCERS, "replace"):
            yield (
                lambda x, i, u, kind=kind: hlo.ScatterOp(x, i, u, pick, kind),
                [numbers(element, (5,)), _indices([4]), numbers(element, (), 1)],
            )
            yield (
                lambda x, i, u, kind=kind: hlo.ScatterOp(x, i, u, windows, kind),
                [table, _indices([[1, 3], [2, 0], [0, 0]]), numbers(element, (3, 2, 2), 1)],
            )
        yield (
            lambda x, i, u: hlo.ScatterOp(x, i, u, windows),
            [table, _indices([[1, 3], [2, 0], [0, 0], [1, 3]]), numbers(element, (4, 2, 2), 1)],
        )
    if len(shape) == 1:
        places = np.arange(-1, shape[0] - 1, dtype=np.int32)[:, None]
        yield (
            lambda x, i, u: hlo.ScatterOp(x, i, u, rows),
            [table, places, numbers(element, (shape[0], 3), 1)],
        )


def _dynamic_slice(element: Attribute, shape: Shape) -> Iterator[Instance]:
    sizes = [n - n // 2 for n in shape]
    starts = [_indices(d - 1) for d in range(len(shape))]
    yield lambda x, *i: hlo.DynamicSliceOp(x, i, sizes), [numbers(element, shape), *starts]


def _dynamic_update_slice(element: Attribute, shape: Shape) -> Iterator[Instance]:
    sizes = [n - n // 2 for n in shape]
    starts = [_indices(2 - d) for d in range(len(shape))]
    yield (
        lambda x, u, *i: hlo.DynamicUpdateSliceOp(x, u, i),
        [numbers(element, shape), numbers(element, sizes, 1), *starts],
    )


_DEFINED = (*hlo.StableHLO.operations, *hlo.CHLO.operations)


def _position(element: Attribute, shape: Shape) -> Iterator[Instance]:
    if shape == () and dense.dtype_of(element).kind in "iu":
        type = TensorType(element, ())
        for first, step in ((3, 2), (9, -1)):
            yield (
                lambda i, a=first, b=step: hlo.PositionOp(i, 10, a, b, type),
                [np.array(4, np.int32)],
            )


MAKERS: dict[type[Operation], Maker] = {
    **{op: _unary(op) for op in _DEFINED if issubclass(op, hlo.UnaryElementwiseOp)},
    **{op: _unary(op) for op in _DEFINED if issubclass(op, hlo.ChloUnaryOp)},
    **{op: _binary(op) for op in _DEFINED if issubclass(op, hlo.BinaryElementwiseOp)},
    hlo.PowerOp: _power,
    hlo.ClampOp: _clamp,
    hlo.ConvertOp: _convert,
    hlo.BitcastConvertOp: _bitcast,
    PolygammaOp: _polygamma,
    NextAfterOp: _next_after,
    hlo.ReducePrecisionOp: _reduce_precision,
    hlo.CompareOp: _compare,
    hlo.SelectOp: _select,
    hlo.ConstantOp: _constant,
    hlo.IotaOp: _iota,
    hlo.BroadcastInDimOp: _broadcast,
    hlo.ReshapeOp: _reshape,
    hlo.TransposeOp: _transpose,
    hlo.ReverseOp: _reverse,
    hlo.SliceOp: _slice,
    hlo.PadOp: _pad,
    hlo.ConcatenateOp: _concatenate,
    hlo.DotGeneralOp: _dot,
    hlo.ConvolutionOp: _convolution,
    hlo.ReduceOp: _reduce,
    hlo.FoldOp: _fold,
    hlo.PositionOp: _position,
    hlo.ReduceWindowOp: _reduce_window,
    hlo.SelectAndScatterOp: _select_and_scatter,
    hlo.GatherOp: _gather,
    hlo.ScatterOp: _scatter,
    hlo.DynamicSliceOp: _dynamic_slice,
    hlo.DynamicUpdateSliceOp: _dynamic_update_slice,
}
"""What makes the instances of each operation, for an element type and a shape."""


_SAMPLE = 5
"""About so many instances of an operation that is not element-wise have an element type that is
not combined with all shapes."""


def instances(op: type[Operation]) -> list[Case]:
    """The instances of an operation that its verifier accepts."""
    found: list[Case] = []
    for number, element in enumerate(hlo.ELEMENT_TYPES):
        cases = _accepted(op, element)
        if element not in ALL_SHAPES and not issubclass(op, hlo.ElementwiseOp):
            step = max(1, len(cases) // _SAMPLE)
            cases = cases[number % step :: step]
        found += cases
    return found


def _accepted(op: type[Operation], element: Attribute) -> list[Case]:
    found: list[Case] = []
    is_moved, is_elementwise = (issubclass(op, t) for t in (hlo.MovementOp, hlo.ElementwiseOp))
    shapes: Sequence[Shape] = ((2, 3),) if is_moved else ((4,),) if is_elementwise else ((), (2, 3))
    if element == hlo.f32 or (element in ALL_SHAPES and not (is_moved or is_elementwise)):
        shapes = SHAPES
    for shape in shapes:
        try:
            for build, args in MAKERS[op](element, shape):
                try:
                    case = Case.of(build, *args, note=f"{op.name} of {element} {shape}")
                except VerifyException:
                    continue
                found.append(case)
        except VerifyException:
            continue
    return found
