"""Every operation, with random attributes, lowered and run against the interpreter."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import more
from kernel_harness import ELEMENTS, Array, Case, check
from ml_dtypes import bfloat16
from xdsl.dialects.builtin import TensorType, f32, i32

from poetc.ir import stablehlo as hlo
from poetc.ir.stablehlo_attributes import ConvDims, GatherDims, ScatterDims
from poetc.ir.types import ELEMENT_TYPES

Rng = np.random.Generator


def floats(rng: Rng, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def ints(rng: Rng, low: int, high: int, *shape: int) -> Array:
    return rng.integers(low, high, shape).astype(np.int32)


def some(rng: Rng, low: int, high: int, count: int) -> list[int]:
    """`count` numbers in low .. high."""
    return [int(n) for n in rng.integers(low, high + 1, count)]


def scalar(value: float) -> hlo.ConstantOp:
    return hlo.ConstantOp.splat(value, TensorType(f32, ()))


SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 3e38, 1e-42, 0.3, 2.5e9, -7.75], np.float32
)

UNARY = [
    hlo.NegateOp,
    hlo.AbsOp,
    hlo.ExponentialOp,
    hlo.LogOp,
    hlo.RsqrtOp,
    hlo.SqrtOp,
    hlo.TanhOp,
    hlo.SignOp,
    hlo.IsFiniteOp,
]
BINARY = [
    hlo.AddOp,
    hlo.SubtractOp,
    hlo.MultiplyOp,
    hlo.DivideOp,
    hlo.MaximumOp,
    hlo.MinimumOp,
    hlo.PowerOp,
]


def test_elementwise_floats():
    a, b = (x.reshape(-1) for x in np.meshgrid(SPECIAL, SPECIAL))
    cases = [Case.of(op, SPECIAL, note=op.name) for op in UNARY]
    cases += [Case.of(op, a.copy(), b.copy(), note=op.name) for op in BINARY]
    for direction in ("EQ", "NE", "GE", "GT", "LE", "LT"):
        cases.append(
            Case.of(lambda x, y, d=direction: hlo.CompareOp(x, y, d, "FLOAT"), a.copy(), b.copy())
        )
    for element in ELEMENT_TYPES:
        cases.append(Case.of(lambda x, e=element: hlo.ConvertOp(x, e), SPECIAL))
    check(cases)


def test_conversions_of_half_precision():
    """All floats of 16 bits; those of 32 bits between two of them, in the middle and beside it."""
    halves = [np.arange(1 << 16, dtype=np.uint16).view(t) for t in (np.float16, bfloat16)]
    cases = [Case.of(lambda x: hlo.ConvertOp(x, f32), half) for half in halves]
    for half in halves:
        numbers = half.astype(np.float32)
        numbers = np.sort(numbers[np.isfinite(numbers)])
        middle = (numbers[1:] / 2 + numbers[:-1] / 2).astype(np.float32)
        beside = [np.nextafter(middle, np.float32(end)) for end in (-np.inf, np.inf)]
        x = np.concatenate([numbers, middle, *beside, SPECIAL])
        cases.append(Case.of(lambda x, t=ELEMENTS[half.dtype]: hlo.ConvertOp(x, t), x))
    check(cases)


def integer_cases(dtype: np.dtype) -> Iterator[Case]:
    """All operations on one type of integers, for numbers at the ends of its range."""
    limits = np.iinfo(dtype)
    numbers = [0, 1, 2, 7, limits.max, limits.min, limits.max // 3, limits.min // 5]
    numbers = np.array([*numbers, *(-1, -7)] if limits.min else numbers, dtype)
    a, b = (x.reshape(-1).copy() for x in np.meshgrid(numbers, numbers))
    element = ELEMENTS[dtype]
    for op in hlo.OPERATIONS:
        if issubclass(op, hlo.BinaryElementwiseOp) and element in op.ELEMENTS:
            yield Case.of(op, a, b, note=op.name)
        elif op in (hlo.NegateOp, hlo.AbsOp, hlo.SignOp, hlo.NotOp) and element in op.ELEMENTS:
            yield Case.of(op, numbers, note=op.name)
    for direction in ("EQ", "NE", "GE", "GT", "LE", "LT"):
        yield Case.of(lambda x, y, d=direction: hlo.CompareOp(x, y, d), a, b)
    for other in ELEMENT_TYPES:
        yield Case.of(lambda x, e=other: hlo.ConvertOp(x, e), numbers)


@pytest.mark.slow
def test_elementwise_integers():
    integers = [type for type in ELEMENT_TYPES.values() if type.dtype.kind in "iu"]
    assert len(integers) == 8
    check([case for type in integers for case in integer_cases(type.dtype)])


def test_elementwise_booleans():
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    cases = [Case.of(op, a, b, note=op.name) for op in (hlo.AndOp, hlo.OrOp, hlo.XorOp)]
    cases.append(Case.of(hlo.NotOp, a))
    for element in ELEMENT_TYPES:
        cases.append(Case.of(lambda x, e=element: hlo.ConvertOp(x, e), a))
    x, y = SPECIAL[:4], SPECIAL[4:8]
    cases += [Case.of(hlo.SelectOp, pred, x, y) for pred in (a, np.array(True), np.array(False))]
    for direction in ("EQ", "NE", "GE", "GT"):
        cases.append(Case.of(lambda p, q, d=direction: hlo.CompareOp(p, q, d, None), a, b))
    check(cases)


def test_constants():
    cases = [
        Case.of(lambda x, v=v: hlo.AddOp(x, hlo.ConstantOp(np.full(3, v, np.float32))), SPECIAL[:3])
        for v in SPECIAL
    ]
    for dim in (0, 1):
        for element in (f32, i32):
            cases.append(Case.of(lambda d=dim, e=element: hlo.IotaOp(TensorType(e, (3, 4)), d)))
    check(cases)


# Data movement


def random_movement(rng: Rng, x: Any) -> Any:
    """A data-movement operation with random attributes on `x`."""
    shape = hlo.shape_of(x)
    rank = len(shape)
    match rng.integers(8):
        case 0:
            extra = some(rng, 1, 3, int(rng.integers(0, 2)))
            out_rank = rank + len(extra)
            dims = rng.permutation(out_rank)[:rank]
            if rng.random() < 0.7:
                dims = np.sort(dims)
            result = [int(rng.integers(1, 4)) for _ in range(out_rank)]
            for size, dim in zip(shape, dims, strict=True):
                result[dim] = size if size != 1 else result[dim]
            return hlo.BroadcastInDimOp(x, [int(d) for d in dims], result)
        case 1:
            return hlo.ReshapeOp(x, random_factors(rng, int(np.prod(shape))))
        case 2:
            return hlo.TransposeOp(x, [int(d) for d in rng.permutation(rank)])
        case 3:
            return hlo.ReverseOp(x, [d for d in range(rank) if rng.random() < 0.5])
        case 4:
            starts = [int(rng.integers(0, n)) for n in shape]
            limits = [int(rng.integers(s + 1, n + 1)) for s, n in zip(starts, shape, strict=True)]
            return hlo.SliceOp(x, starts, limits, some(rng, 1, 3, rank))
        case 5 | 6:
            interior = some(rng, 0, 2, rank)
            dilated = [n + (n - 1) * g for n, g in zip(shape, interior, strict=True)]
            low, high = some(rng, -2, 2, rank), some(rng, -2, 2, rank)
            for i, n in enumerate(dilated):
                if low[i] + n + high[i] < 1:
                    low[i] = high[i] = 0
            return hlo.PadOp(x, scalar(7.5), low, high, interior)
        case _:
            dim = int(rng.integers(rank)) if rank else 0
            return hlo.ConcatenateOp([x, hlo.NegateOp(x), x], dim) if rank else x


def random_factors(rng: Rng, total: int) -> list[int]:
    """A random shape with `total` elements."""
    shape: list[int] = []
    while total > 1:
        divisors = [d for d in range(1, total + 1) if total % d == 0]
        shape.append(int(rng.choice(divisors)))
        total //= shape[-1]
    if rng.random() < 0.3:
        shape.insert(int(rng.integers(len(shape) + 1)), 1)
    return shape


def limited(make: Callable[[Rng], Case], seed: int, count: int, limit: int = 4096) -> list[Case]:
    """Random cases whose results are not too large."""
    rng = np.random.default_rng(seed)
    cases: list[Case] = []
    while len(cases) < count:
        case = make(rng)
        terminator = case.block.last_op
        assert terminator is not None
        if all(0 < np.prod(hlo.shape_of(v)) <= limit for v in terminator.operands):
            cases.append(case)
    return cases


def movement_case(rng: Rng) -> Case:
    def build(x):
        for _ in range(int(rng.integers(1, 5))):
            x = random_movement(rng, x)
        return hlo.NegateOp(x)

    shape = some(rng, 1, 6, int(rng.integers(1, 4)))
    return Case.of(build, floats(rng, *shape))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *more(1, 2)])
def test_data_movement(seed: int):
    check(limited(movement_case, seed, 40))


# Reductions


def reduce_case(rng: Rng) -> Case:
    rank = int(rng.integers(1, 4))
    shape = some(rng, 1, 5, rank)
    dims = [d for d in range(rank) if rng.random() < 0.6]
    kind = str(rng.choice(["add", "maximum", "minimum", "multiply"]))
    return Case.of(lambda x, i: hlo.ReduceOp(x, i, dims, kind), floats(rng, *shape), floats(rng))


def test_reduce():
    cases = limited(reduce_case, 1, 40)
    flags = np.random.default_rng(2).random((3, 4)) < 0.5
    for kind in ("and", "or"):
        cases.append(
            Case.of(lambda x, i, k=kind: hlo.ReduceOp(x, i, [1], k), flags, np.array(True))
        )
    check(cases)


def dot_case(rng: Rng) -> Case:
    batch, contract = int(rng.integers(0, 3)), int(rng.integers(0, 3))
    lhs_free, rhs_free = int(rng.integers(0, 3)), int(rng.integers(0, 3))
    sizes = some(rng, 1, 4, batch + contract)

    def operand(free: int) -> tuple[Array, list[int], list[int]]:
        order = [int(d) for d in rng.permutation(batch + contract + free)]
        all_sizes = sizes + some(rng, 1, 4, free)
        shape = [all_sizes[d] for d in order]
        where = [order.index(d) for d in range(batch + contract)]
        return floats(rng, *shape), where[:batch], where[batch:]

    lhs, lhs_batch, lhs_contract = operand(lhs_free)
    rhs, rhs_batch, rhs_contract = operand(rhs_free)
    return Case.of(
        lambda a, b: hlo.DotGeneralOp(
            a,
            b,
            lhs_batch=lhs_batch,
            rhs_batch=rhs_batch,
            lhs_contract=lhs_contract,
            rhs_contract=rhs_contract,
        ),
        lhs,
        rhs,
    )


@pytest.mark.slow
def test_dot_general():
    check(limited(dot_case, 3, 40))


def conv_case(rng: Rng) -> Case:
    spatial = 2 if rng.random() < 0.8 else 1
    feature_groups = int(rng.choice([1, 1, 1, 2, 3]))
    batch_groups = int(rng.choice([1, 2, 3])) if feature_groups == 1 and rng.random() < 0.4 else 1
    group_features, batch = int(rng.integers(1, 4)), int(rng.integers(1, 3)) * batch_groups
    out_features = int(rng.integers(1, 3)) * feature_groups * batch_groups
    window, size = some(rng, 1, 3, spatial), some(rng, 1, 6, spatial)
    input_dims = [int(d) for d in rng.permutation(spatial + 2)]
    kernel_dims = [int(d) for d in rng.permutation(spatial + 2)]
    output_dims = [int(d) for d in rng.permutation(spatial + 2)]
    layouts = rng.random()
    if layouts < 0.3:
        input_dims = output_dims = [0, spatial + 1, *range(1, spatial + 1)]
        kernel_dims = [spatial, spatial + 1, *range(spatial)]
    elif layouts < 0.5:
        input_dims = output_dims = [0, 1, *range(2, spatial + 2)]
        kernel_dims = [1, 0, *range(2, spatial + 2)]
    dims = ConvDims(
        input_dims[0],
        input_dims[1],
        tuple(input_dims[2:]),
        kernel_dims[0],
        kernel_dims[1],
        tuple(kernel_dims[2:]),
        output_dims[0],
        output_dims[1],
        tuple(output_dims[2:]),
    )
    image, kernel = [0] * (spatial + 2), [0] * (spatial + 2)
    for dim, n in zip(input_dims, [batch, group_features * feature_groups, *size], strict=True):
        image[dim] = n
    for dim, n in zip(kernel_dims, [group_features, out_features, *window], strict=True):
        kernel[dim] = n
    strides, lhs_dilation, rhs_dilation = (some(rng, 1, 3, spatial) for _ in range(3))
    padding = [tuple(some(rng, -1, 2, 2)) for _ in range(spatial)]
    return Case.of(
        lambda a, b: hlo.ConvolutionOp(
            a,
            b,
            dims,
            strides,
            padding,
            lhs_dilation,
            rhs_dilation,
            feature_groups,
            batch_groups,
        ),
        floats(rng, *image),
        floats(rng, *kernel),
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *more(1, 2)])
def test_convolution(seed: int):
    check(limited(conv_case, seed, 40))


def test_convolution_of_nothing():
    dims = ConvDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
    check(
        [
            Case.of(
                lambda x, w: hlo.ConvolutionOp(
                    x, w, dims, padding=((3, 3), (3, 3)), rhs_dilation=(2, 2)
                ),
                np.ones((2, 0, 0, 3), np.float32),
                np.ones((3, 3, 3, 4), np.float32),
            )
        ]
    )


def window_case(rng: Rng) -> Case:
    rank = int(rng.integers(1, 4))
    shape, window, strides = some(rng, 1, 6, rank), some(rng, 1, 3, rank), some(rng, 1, 3, rank)
    base, dilations = some(rng, 1, 2, rank), some(rng, 1, 2, rank)
    padding = [tuple(some(rng, -1, 2, 2)) for _ in range(rank)]
    kind, init = [("add", 0.0), ("maximum", -np.inf), ("minimum", np.inf)][rng.integers(3)]
    return Case.of(
        lambda x: hlo.ReduceWindowOp(
            x, scalar(init), window, kind, strides, padding, base, dilations
        ),
        floats(rng, *shape),
    )


@pytest.mark.slow
def test_reduce_window():
    check(limited(window_case, 5, 40))


def pool_gradient_case(rng: Rng) -> Case:
    rank = int(rng.integers(1, 4))
    shape = some(rng, 2, 7, rank)
    window, strides = some(rng, 1, 3, rank), some(rng, 1, 3, rank)
    window = [min(w, n) for w, n in zip(window, shape, strict=True)]
    padding = [(0, 0) if rng.random() < 0.5 else tuple(some(rng, 0, w - 1, 2)) for w in window]
    windows = [
        (n + low + high - w) // s + 1
        for n, (low, high), w, s in zip(shape, padding, window, strides, strict=True)
    ]
    x = ints(rng, 0, 4, *shape).astype(np.float32)
    direction = str(rng.choice(["GE", "GE", "GT", "LE"]))
    return Case.of(
        lambda x, source, init: hlo.SelectAndScatterOp(
            x, source, init, window, strides, padding, direction
        ),
        x,
        floats(rng, *windows),
        floats(rng),
    )


@pytest.mark.slow
def test_select_and_scatter():
    check(limited(pool_gradient_case, 6, 40))


# Indexed access


def gather_parts(rng: Rng) -> tuple[list[int], list[int], GatherDims, list[int], list[int]]:
    """Operand shape, indices shape, dimension numbers, slice sizes, window shape."""
    rank = int(rng.integers(1, 4))
    shape = some(rng, 1, 5, rank)
    roles = [str(rng.choice(["batch", "collapsed", "window"], p=[0.2, 0.3, 0.5])) for _ in shape]
    batching = [d for d in range(rank) if roles[d] == "batch"]
    collapsed = [d for d in range(rank) if roles[d] == "collapsed"]
    kept = [d for d in range(rank) if roles[d] == "window"]
    indexed = [d for d in range(rank) if d not in batching and rng.random() < 0.7]
    indexed = [int(d) for d in rng.permutation(indexed)]
    slice_sizes = [1 if d not in kept else int(rng.integers(1, shape[d] + 1)) for d in range(rank)]
    batch = [*some(rng, 1, 3, int(rng.integers(0, 3))), *(shape[d] for d in batching)]
    order = [int(d) for d in rng.permutation(len(batch))]
    batch_shape = [batch[d] for d in order]
    first = len(batch) - len(batching)
    where = [order.index(first + i) for i in range(len(batching))]
    vector = int(rng.integers(0, len(batch) + 1))
    if len(indexed) == 1 and rng.random() < 0.3:
        vector = len(batch)
        indices_shape = list(batch_shape)
    else:
        indices_shape = list(batch_shape)
        indices_shape.insert(vector, len(indexed))
        where = [d + (d >= vector) for d in where]
    out_rank = len(batch) + len(kept)
    offsets = sorted(int(d) for d in rng.permutation(out_rank)[: len(kept)])
    dnums = GatherDims(
        tuple(offsets), tuple(collapsed), tuple(batching), tuple(where), tuple(indexed), vector
    )
    return shape, indices_shape, dnums, slice_sizes, [slice_sizes[d] for d in kept]


def gather_case(rng: Rng) -> Case:
    while True:
        shape, indices_shape, dnums, slice_sizes, _ = gather_parts(rng)
        if 0 not in indices_shape:
            break
    return Case.of(
        lambda x, i: hlo.GatherOp(x, i, dnums, slice_sizes),
        floats(rng, *shape),
        ints(rng, -2, 7, *indices_shape),
    )


def test_gather():
    check(limited(gather_case, 7, 40))


def scatter_case(rng: Rng) -> Case:
    while True:
        shape, indices_shape, g, _, window = gather_parts(rng)
        if 0 not in indices_shape:
            break
    dnums = ScatterDims(
        g.offset_dims,
        g.collapsed_slice_dims,
        g.operand_batching_dims,
        g.start_indices_batching_dims,
        g.start_index_map,
        g.index_vector_dim,
    )
    batch = [n for d, n in enumerate(indices_shape) if d != g.index_vector_dim]
    updates, in_batch, in_window = [], iter(batch), iter(window)
    for d in range(len(batch) + len(window)):
        updates.append(next(in_window) if d in g.offset_dims else next(in_batch))
    return Case.of(
        lambda x, i, u: hlo.ScatterOp(x, i, u, dnums),
        floats(rng, *shape),
        ints(rng, -1, 6, *indices_shape),
        floats(rng, *updates),
    )


@pytest.mark.slow
def test_scatter():
    check(limited(scatter_case, 8, 40))
