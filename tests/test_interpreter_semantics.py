"""The vectorised semantics against scalar loops written from the StableHLO specification."""

import itertools
import math
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poetc.ir import stablehlo as hlo
from poetc.ir.dense import dtype_of
from poetc.ir.stablehlo import semantics
from poetc.ir.types import is_float

F32 = np.float32
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5, 1e-45, 3e38], F32)
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(autouse=True)
def _quiet():
    with np.errstate(all="ignore"):
        yield


def floats(rng, shape, special=False):
    """Random values of very different magnitudes, so that the order of a sum shows."""
    values = rng.standard_normal(shape) * 10.0 ** rng.integers(-4, 5, shape)
    values = np.asarray(values, F32)
    if special:
        values = np.where(rng.random(shape) < 0.3, rng.choice(SPECIAL, shape), values)
    return np.asarray(values, F32)


def assert_same_bits(actual, expected):
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if is_float(actual.dtype):
        nan = np.isnan(expected)
        assert (np.isnan(actual) == nan).all()
        actual = np.where(nan, 0, actual).astype(F32).view(np.int32)
        expected = np.where(nan, 0, expected).astype(F32).view(np.int32)
    assert (actual == expected).all()


def scalar_maximum(a, b):
    if np.isnan(a) or np.isnan(b):
        return F32(np.nan)
    if a == b == 0:
        return a if not np.signbit(a) else b
    return a if a > b else b


def scalar_minimum(a, b):
    return -scalar_maximum(-a, -b)


SCALAR = {
    "add": lambda a, b: a + b,
    "multiply": lambda a, b: a * b,
    "maximum": scalar_maximum,
    "minimum": scalar_minimum,
}


def indices(shape):
    return itertools.product(*map(range, shape))


# Element-wise


@pytest.mark.parametrize("kind", ["maximum", "minimum"])
def test_extremes_of_nan_and_zeros(kind):
    a, b = np.meshgrid(SPECIAL, SPECIAL)
    expected = [SCALAR[kind](x, y) for x, y in zip(a.ravel(), b.ravel(), strict=True)]
    actual = hlo.REDUCERS[kind].meaning(a, b)
    assert_same_bits(actual.ravel(), np.array(expected, F32))
    ints = np.array([-3, 2], np.int32), np.array([5, -9], np.int32)
    assert semantics.maximum(*ints).tolist() == [5, 2]
    assert semantics.minimum(*ints).tolist() == [-3, -9]


def test_sign_keeps_zeros_and_nan():
    assert_same_bits(semantics.sign(SPECIAL), np.array([np.nan, 1, -1, 0, -0.0, 1, -1, 1, 1], F32))


def test_conversions():
    saturated = semantics.convert(
        np.array([np.nan, np.inf, -np.inf, 1.9, -1.9, 2147483647.0, -2147483648.0], F32),
        np.dtype(np.int32),
    )
    limit = 2**31
    assert_same_bits(
        saturated, np.array([0, limit - 1, -limit, 1, -1, limit - 1, -limit], np.int32)
    )
    assert semantics.convert(SPECIAL, np.dtype(bool)).tolist() == [
        *[True] * 3,
        False,
        False,
        *[True] * 4,
    ]
    assert_same_bits(
        semantics.convert(np.array([True, False]), np.dtype(F32)), np.array([1, 0], F32)
    )
    # 2**24 + 1 is halfway between two floats: to the even one.
    assert semantics.convert(np.array([2**24 + 1], np.int32), np.dtype(F32)) == 2**24


@pytest.mark.parametrize(
    ("kind", "element"), [(kind, e) for kind, op in hlo.REDUCERS.items() for e in op.ELEMENTS]
)
def test_identity(kind, element):
    dtype = dtype_of(element)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = np.array([limits.min, 0, 1, 77, limits.max // 2 + 1, limits.max], dtype)
    elif dtype == np.bool_:
        values = np.array([False, True])
    else:
        values = SPECIAL[~(np.signbit(SPECIAL) & (SPECIAL == 0))].astype(dtype)
    neutral = np.asarray(hlo.identity(kind, element))
    assert neutral.dtype == values.dtype
    assert_same_bits(hlo.REDUCERS[kind].meaning(neutral, values), values)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_powers_of_integers(dtype):
    """All of them, against Python's: modulo 256, and rational where the exponent is negative."""
    limits = np.iinfo(dtype)
    x, n = (a.ravel() for a in np.meshgrid(*[np.arange(limits.min, limits.max + 1)] * 2))

    def power(x: int, n: int) -> int:
        if n >= 0:
            return pow(x, n, 256)
        return int(1 / Fraction(x) ** -n) % 256 if x else 0

    expected = np.array([power(*pair) for pair in zip(x.tolist(), n.tolist(), strict=True)])
    found = semantics.power(x.astype(dtype), n.astype(dtype))
    np.testing.assert_array_equal(found.astype(np.uint8), expected)


# Data movement


def test_iota():
    assert semantics.iota((2, 3), 1, np.dtype(np.int32)).tolist() == [[0, 1, 2]] * 2
    assert semantics.iota((2, 3), 0, np.dtype(F32)).tolist() == [[0.0] * 3, [1.0] * 3]


def test_broadcast_in_dim():
    x = np.arange(6).reshape(2, 3)
    assert_same_bits(semantics.broadcast_in_dim(x, (2, 4, 3), (0, 2)), np.stack([x] * 4, 1))
    assert_same_bits(semantics.broadcast_in_dim(x, (3, 2), (1, 0)), x.T)
    assert_same_bits(semantics.broadcast_in_dim(x[:, :1], (2, 3), (0, 1)), x[:, :1].repeat(3, 1))
    assert_same_bits(semantics.broadcast_in_dim(np.array(7), (2,), ()), np.array([7, 7]))


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_pad(data):
    rank = data.draw(st.integers(0, 2))
    shape = [data.draw(st.integers(0, 4)) for _ in range(rank)]
    low = [data.draw(st.integers(-3, 3)) for _ in range(rank)]
    high = [data.draw(st.integers(-3, 3)) for _ in range(rank)]
    interior = [data.draw(st.integers(0, 2)) for _ in range(rank)]
    x = np.arange(1, math.prod(shape) + 1).reshape(shape)
    dilated = [n + max(n - 1, 0) * gap for n, gap in zip(shape, interior, strict=True)]
    result = np.full([max(0, a + n + b) for a, n, b in zip(low, dilated, high, strict=True)], -1)
    for i in indices(shape):
        j = tuple(a + k * (gap + 1) for a, k, gap in zip(low, i, interior, strict=True))
        if all(0 <= k < n for k, n in zip(j, result.shape, strict=True)):
            result[j] = x[i]
    assert_same_bits(semantics.pad(x, np.array(-1), low, high, interior), result)


# Reductions


@settings(max_examples=30, deadline=None)
@given(seed=seeds, shape=st.lists(st.integers(1, 5), min_size=1, max_size=3), data=st.data())
def test_reduce(seed, shape, data):
    rng = np.random.default_rng(seed)
    dims = data.draw(st.lists(st.sampled_from(range(len(shape))), unique=True, min_size=1))
    kind = data.draw(st.sampled_from(list(SCALAR)))
    x = floats(rng, shape, special=data.draw(st.booleans()))
    init = np.array(data.draw(st.sampled_from([0.0, -0.0, 1.0, -np.inf])), F32)
    kept = [d for d in range(len(shape)) if d not in dims]
    expected = np.full([shape[d] for d in kept], init, F32)
    for i in indices(shape):
        j = tuple(i[d] for d in kept)
        expected[j] = SCALAR[kind](expected[j], x[i])
    actual = semantics.reduce(x, np.asarray(init), dims, hlo.REDUCERS[kind].meaning)
    assert_same_bits(actual, expected)


@pytest.mark.parametrize("size", [9, 129, 4096])
def test_long_sums_are_sequential(size):
    x = floats(np.random.default_rng(size), size)
    total = product = F32(0)
    for element in x:
        total = total + element
        product = product + element * element
    assert_same_bits(semantics.reduce(x, np.array(0, F32), [0], np.add), total)
    assert_same_bits(semantics.dot_general(x, x, [], [], [0], [0]), product)


def test_reduce_of_booleans():
    x = np.array([[True, False], [True, True]])
    assert semantics.reduce(x, np.array(True), [1], np.bitwise_and).tolist() == [False, True]
    assert semantics.reduce(x, np.array(False), [0, 1], np.bitwise_or).tolist() is True


def test_integer_sums_wrap():
    x = np.array([2**31 - 1, 1], np.int32)
    assert semantics.reduce(x, np.array(0, np.int32), [0], np.add) == -(2**31)


@settings(max_examples=30, deadline=None)
@given(seed=seeds, data=st.data())
def test_dot_general(seed, data):
    rng = np.random.default_rng(seed)
    sizes = {name: data.draw(st.integers(1, 4)) for name in "bcklmn"}
    batch = data.draw(st.sampled_from(["", "b", "bc"]))
    contract = data.draw(st.sampled_from(["", "k", "kl"]))
    lhs_names = data.draw(st.permutations(batch + contract + "m"))
    rhs_names = data.draw(st.permutations(batch + contract + "n"))
    lhs = floats(rng, [sizes[n] for n in lhs_names])
    rhs = floats(rng, [sizes[n] for n in rhs_names])
    expected = np.zeros([sizes[n] for n in [*batch, "m", "n"]], F32)
    for i in indices(expected.shape):
        at = dict(zip([*batch, "m", "n"], i, strict=True))
        for k in indices([sizes[n] for n in contract]):
            at.update(zip(contract, k, strict=True))
            a, b = lhs[tuple(at[n] for n in lhs_names)], rhs[tuple(at[n] for n in rhs_names)]
            expected[i] = expected[i] + F32(a * b)
    actual = semantics.dot_general(
        lhs,
        rhs,
        [lhs_names.index(n) for n in batch],
        [rhs_names.index(n) for n in batch],
        [lhs_names.index(n) for n in contract],
        [rhs_names.index(n) for n in contract],
    )
    assert_same_bits(actual, expected)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(seed=seeds, data=st.data())
def test_convolution(seed, data):
    rng = np.random.default_rng(seed)
    draw = data.draw
    rank = draw(st.integers(1, 2))
    spatial = [str(d) for d in range(rank)]
    feature_groups, batch_groups = draw(st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2), (1, 3)]))
    groups = feature_groups * batch_groups
    small = st.integers(1, 2)
    batch, in_features = draw(small) * batch_groups, draw(small) * feature_groups
    out_features = draw(small) * groups
    dim = [
        {
            "in": draw(st.integers(1, 5)),
            "window": draw(st.integers(1, 3)),
            "stride": draw(st.integers(1, 3)),
            "low": draw(st.integers(-2, 3)),
            "high": draw(st.integers(-2, 3)),
            "lhs_dilation": draw(st.integers(1, 3)),
            "rhs_dilation": draw(st.integers(1, 2)),
        }
        for _ in range(rank)
    ]
    out = []
    for d in dim:
        padded = d["low"] + (d["in"] - 1) * d["lhs_dilation"] + 1 + d["high"]
        reach = (d["window"] - 1) * d["rhs_dilation"] + 1
        out.append(max(0, (padded - reach) // d["stride"] + 1))
    lhs_names = draw(st.permutations(["b", "f", *spatial]))
    rhs_names = draw(st.permutations(["i", "o", *spatial]))
    out_names = draw(st.permutations(["b", "f", *spatial]))
    lhs_sizes = {"b": batch, "f": in_features, **{s: dim[int(s)]["in"] for s in spatial}}
    rhs_sizes = {
        "i": in_features // feature_groups,
        "o": out_features,
        **{s: dim[int(s)]["window"] for s in spatial},
    }
    out_sizes = {
        "b": batch // batch_groups,
        "f": out_features,
        **{s: out[int(s)] for s in spatial},
    }
    lhs = floats(rng, [lhs_sizes[n] for n in lhs_names])
    rhs = floats(rng, [rhs_sizes[n] for n in rhs_names])
    expected = np.zeros([out_sizes[n] for n in out_names], F32)
    for i in indices(expected.shape):
        at = dict(zip(out_names, i, strict=True))
        group = at["f"] // (out_features // groups)
        for k in indices([d["window"] for d in dim]):
            position = []
            for s, d in enumerate(dim):
                p = at[str(s)] * d["stride"] + k[s] * d["rhs_dilation"] - d["low"]
                inside = p % d["lhs_dilation"] == 0 and 0 <= p // d["lhs_dilation"] < d["in"]
                position.append(p // d["lhs_dilation"] if inside else None)
            if None in position:
                continue
            for c in range(rhs_sizes["i"]):
                left = {
                    "b": at["b"] + (group * out_sizes["b"] if batch_groups > 1 else 0),
                    "f": c + (group * rhs_sizes["i"] if feature_groups > 1 else 0),
                    **dict(zip(spatial, position, strict=True)),
                }
                right = {"i": c, "o": at["f"], **dict(zip(spatial, k, strict=True))}
                a = lhs[tuple(left[n] for n in lhs_names)]
                b = rhs[tuple(right[n] for n in rhs_names)]
                expected[i] = expected[i] + F32(a * b)
    dims = SimpleNamespace(
        input_batch=lhs_names.index("b"),
        input_feature=lhs_names.index("f"),
        input_spatial=[lhs_names.index(s) for s in spatial],
        kernel_input_feature=rhs_names.index("i"),
        kernel_output_feature=rhs_names.index("o"),
        kernel_spatial=[rhs_names.index(s) for s in spatial],
        output_batch=out_names.index("b"),
        output_feature=out_names.index("f"),
        output_spatial=[out_names.index(s) for s in spatial],
    )
    actual = semantics.convolution(
        lhs,
        rhs,
        dims,
        [d["stride"] for d in dim],
        [(d["low"], d["high"]) for d in dim],
        [d["lhs_dilation"] for d in dim],
        [d["rhs_dilation"] for d in dim],
        feature_groups,
        batch_groups,
        expected.shape,
    )
    assert_same_bits(actual, expected)


@settings(max_examples=30, deadline=None)
@given(seed=seeds, data=st.data())
def test_reduce_window(seed, data):
    rng = np.random.default_rng(seed)
    draw = data.draw
    rank = draw(st.integers(1, 2))

    def ints(low, high):
        return [draw(st.integers(low, high)) for _ in range(rank)]

    shape, window, strides = ints(1, 5), ints(1, 3), ints(1, 3)
    base, dilation, low, high = ints(1, 2), ints(1, 2), ints(0, 2), ints(0, 2)
    out = [
        max(0, (a + (n - 1) * g + 1 + b - ((w - 1) * d + 1)) // s + 1)
        for a, n, g, b, w, d, s in zip(
            low, shape, base, high, window, dilation, strides, strict=True
        )
    ]
    kind = draw(st.sampled_from(list(SCALAR)))
    x = floats(rng, shape, special=draw(st.booleans()))
    init = np.asarray(hlo.identity(kind, hlo.f32))
    expected = np.full(out, init, F32)
    for o in indices(out):
        for k in indices(window):
            p = [o[d] * strides[d] + k[d] * dilation[d] - low[d] for d in range(rank)]
            if all(p[d] % base[d] == 0 and 0 <= p[d] // base[d] < shape[d] for d in range(rank)):
                element = x[tuple(p[d] // base[d] for d in range(rank))]
                expected[o] = SCALAR[kind](expected[o], element)
    combine = hlo.REDUCERS[kind].meaning
    actual = semantics.reduce_window(
        x, init, window, strides, base, dilation, list(zip(low, high, strict=True)), combine, out
    )
    assert_same_bits(actual, expected)


@settings(max_examples=30, deadline=None)
@given(seed=seeds, data=st.data())
def test_select_and_scatter(seed, data):
    rng = np.random.default_rng(seed)
    draw = data.draw
    shape, window, strides, low, high = (
        [draw(st.integers(a, b)) for _ in range(2)]
        for a, b in [(1, 5), (1, 3), (1, 3), (0, 1), (0, 1)]
    )
    out = [
        max(0, (a + n + b - w) // s + 1)
        for a, n, b, w, s in zip(low, shape, high, window, strides, strict=True)
    ]
    direction = draw(st.sampled_from(["GE", "GT", "LE", "LT"]))
    # Few different values, so that windows contain equal ones.
    x = rng.choice(np.array([1, 2, 3, np.nan, 0.0, -0.0], F32), shape)
    source, init = floats(rng, out), np.asarray(0.5, F32)
    expected = np.full(shape, init, F32)
    for o in indices(out):
        best = None
        for k in indices(window):
            p = tuple(o[d] * strides[d] + k[d] - low[d] for d in range(2))
            if not all(0 <= p[d] < shape[d] for d in range(2)):
                continue
            if best is None or not semantics.COMPARISONS[direction](x[best], x[p]):
                best = p
        if best is not None:
            expected[best] = expected[best] + source[o]
    actual = semantics.select_and_scatter(
        x, source, init, window, strides, list(zip(low, high, strict=True)), direction
    )
    assert_same_bits(actual, expected)


# Indexed access

ROWS = SimpleNamespace(
    offset_dims=[2],
    collapsed_slice_dims=[0],
    operand_batching_dims=[],
    start_indices_batching_dims=[],
    start_index_map=[0],
    index_vector_dim=2,
    update_window_dims=[2],
    inserted_window_dims=[0],
    input_batching_dims=[],
    scatter_indices_batching_dims=[],
    scatter_dims_to_operand_dims=[0],
)
PICKS = SimpleNamespace(
    offset_dims=[0],
    collapsed_slice_dims=[2],
    operand_batching_dims=[1],
    start_indices_batching_dims=[0],
    start_index_map=[2],
    index_vector_dim=2,
    update_window_dims=[0],
    inserted_window_dims=[2],
    input_batching_dims=[1],
    scatter_indices_batching_dims=[0],
    scatter_dims_to_operand_dims=[2],
)
WINDOWS = SimpleNamespace(
    offset_dims=[0, 2],
    collapsed_slice_dims=[],
    operand_batching_dims=[],
    start_indices_batching_dims=[],
    start_index_map=[1, 0],
    index_vector_dim=0,
    update_window_dims=[0, 2],
    inserted_window_dims=[],
    input_batching_dims=[],
    scatter_indices_batching_dims=[],
    scatter_dims_to_operand_dims=[1, 0],
)


def test_gather_rows_clamps():
    x = np.arange(12, dtype=F32).reshape(4, 3)
    rows = np.array([[[1], [-5]], [[3], [9]]], np.int32)
    assert_same_bits(semantics.gather(x, rows, ROWS, [1, 3]), x[[[1, 0], [3, 3]]])


def test_starts_over_the_signed_range_are_beyond_the_end():
    x = np.arange(12, dtype=F32).reshape(4, 3)
    rows = np.array([[[1], [2**63]], [[3], [2**64 - 1]]], np.uint64)
    assert_same_bits(semantics.gather(x, rows, ROWS, [1, 3]), x[[[1, 3], [3, 3]]])


def test_gather_one_pick_per_row():
    x = np.arange(12, dtype=F32).reshape(1, 3, 4)
    picks = np.array([2, 0, 7], np.int32).reshape(3, 1, 1)
    expected = np.array([2, 4, 11], F32).reshape(1, 3, 1)
    assert_same_bits(semantics.gather(x, picks, PICKS, [1, 1, 1]), expected)


def test_gather_windows_with_swapped_index_columns():
    x = np.arange(20, dtype=F32).reshape(4, 5)
    starts = np.array([[1, 4, -1], [0, 9, 1]], np.int32)  # columns, then rows
    expected = np.stack([x[0:2, 1:4], x[2:4, 2:5], x[1:3, 0:3]], 1)
    assert_same_bits(semantics.gather(x, starts, WINDOWS, [2, 3]), expected)


@settings(max_examples=20, deadline=None)
@given(seed=seeds)
def test_scatter_adds_in_order_and_drops_what_is_outside(seed):
    rng = np.random.default_rng(seed)
    x, rows = floats(rng, (4, 3)), rng.integers(-1, 5, (2, 5, 1)).astype(np.int32)
    updates = floats(rng, (2, 5, 3))
    expected = x.copy()
    for i, j in indices((2, 5)):
        if 0 <= rows[i, j, 0] < 4:
            expected[rows[i, j, 0]] = expected[rows[i, j, 0]] + updates[i, j]
    assert_same_bits(semantics.scatter(x, rows, updates, ROWS, "add"), expected)
    far = np.full(rows.shape, np.iinfo(np.int64).max)
    assert_same_bits(semantics.scatter(x, far, updates, ROWS, "add"), x)


@settings(max_examples=20, deadline=None)
@given(seed=seeds)
def test_scatter_one_pick_per_row(seed):
    rng = np.random.default_rng(seed)
    x, picks = floats(rng, (2, 3, 4)), rng.integers(-1, 5, (3, 2, 1)).astype(np.int32)
    updates = floats(rng, (2, 3, 2))
    expected = x.copy()
    for row, pick, w in itertools.product(range(3), range(2), range(2)):
        if 0 <= picks[row, pick, 0] < 4:
            place = w, row, picks[row, pick, 0]
            expected[place] = expected[place] + updates[w, row, pick]
    assert_same_bits(semantics.scatter(x, picks, updates, PICKS, "add"), expected)


@settings(max_examples=20, deadline=None)
@given(seed=seeds)
def test_scatter_overlapping_windows(seed):
    rng = np.random.default_rng(seed)
    x, starts = floats(rng, (4, 5)), rng.integers(-1, 5, (2, 6)).astype(np.int32)
    updates = floats(rng, (2, 6, 3))
    expected = x.copy()
    for s, i, j in itertools.product(range(6), range(2), range(3)):
        row, column = starts[1, s], starts[0, s]
        if 0 <= row <= 4 - 2 and 0 <= column <= 5 - 3:
            place = row + i, column + j
            expected[place] = expected[place] + updates[i, s, j]
    assert_same_bits(semantics.scatter(x, starts, updates, WINDOWS, "add"), expected)
