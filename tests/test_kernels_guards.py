"""Guards of reductions are solved for positions: what is left to run over, and the same bits."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_harness import Case, check, interpret, lower, same_bits
from xdsl.dialects.builtin import ModuleOp, TensorType, f32, i32
from xdsl.dialects.func import FuncOp

from poetc.ir import stablehlo as hlo
from poetc.ir.index import Condition, Index, Quotient, Var, constant
from poetc.ir.stablehlo_attributes import ConvDims, ScatterDims
from poetc.ir.text import module_text, parse_module
from poetc.kernels.analysis import IN_ALL, may_alias, work, workspace_bytes
from poetc.kernels.solving import solve

Rng = np.random.Generator


def value(index: Index, at: Mapping[Var, int]) -> int:
    """An index, as a number, by the definition of its atoms."""
    total = index.const
    for atom, factor in index.terms:
        if isinstance(atom, Quotient):
            inner = value(atom.of, at)
            total += factor * (inner % atom.divisor if atom.remainder else inner // atom.divisor)
        else:
            assert isinstance(atom, Var)
            total += factor * at[atom]
    return total


def holds(condition: Condition, at: Mapping[Var, int]) -> bool:
    number = value(condition.index, at)
    return number == 0 if condition.equal else number >= 0


def places(*vars: Var) -> list[dict[Var, int]]:
    numbers = product(*(range(var.extent) for var in vars))
    return [dict(zip(vars, place, strict=True)) for place in numbers]


small = st.integers(-4, 4)


@given(st.lists(st.integers(1, 5), min_size=2, max_size=2), small, small, small, st.integers(1, 5))
def test_quotients_and_remainders(extents, a, b, c, divisor):
    x, y = (Var(i, n) for i, n in enumerate(extents))
    index = Index.of(x) * a + Index.of(y) * b + c
    for at in places(x, y):
        assert value(index // divisor, at) == value(index, at) // divisor
        assert value(index % divisor, at) == value(index, at) % divisor


@st.composite
def conditions(draw, vars):
    """As windows, strides, dilations and counted indices make them."""
    index = constant(draw(st.integers(-9, 9)))
    for var in vars:
        index += Index.of(var) * draw(small)
    kind = draw(st.sampled_from(["low", "range", "multiple", "equal"]))
    if kind == "multiple":
        return [Condition(index % draw(st.integers(2, 6)), equal=True)]
    if kind == "range":
        return [Condition(index), Condition(constant(draw(st.integers(-1, 9))) - index)]
    return [Condition(index, equal=kind == "equal")]


@given(st.data())
def test_candidates_are_the_positions_that_satisfy_the_conditions(data):
    extents = data.draw(st.lists(st.integers(1, 6), min_size=3, max_size=3))
    outside, first, second = (Var(i, n, axis=i) for i, n in enumerate(extents))
    wanted = [
        condition
        for _ in range(data.draw(st.integers(1, 3)))
        for condition in data.draw(conditions([outside, first, second]))
    ]
    inner = solve(second, wanted, frozenset())
    outer = solve(first, inner.conditions, frozenset([inner.step]))
    for around in range(outside.extent):
        expected = [
            (at[first], at[second])
            for at in places(first, second)
            if all(holds(c, at | {outside: around}) for c in wanted)
        ]
        found = []
        for at in places(outer.step, inner.step):
            at[outside] = around
            if all(holds(c, at) for c in outer.conditions):
                position = inner.position.substitute({first: outer.position})
                found.append((value(outer.position, at), value(position, at)))
        assert found == expected
    assert outer.step.extent <= first.extent
    assert inner.step.extent <= second.extent


def scalar(number: float) -> hlo.ConstantOp:
    return hlo.ConstantOp.splat(number, TensorType(f32, ()))


def counted(rows: int) -> hlo.IotaOp:
    return hlo.IotaOp(TensorType(i32, (rows, 1)), 0)


def numbers(rng: Rng, *shape: int) -> Any:
    """Floats with zeros of both signs, and now and then what is not finite."""
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
    found = rng.normal(size=shape).astype(np.float32)
    chosen = rng.choice(special[: 5 if rng.random() < 0.3 else 2], size=shape)
    return np.where(rng.random(shape) < 0.5, found, chosen)


def padded_sum(rng: Rng, kind: str, padding: float, start: float) -> Case:
    rank = int(rng.integers(1, 4))
    shape = [int(n) for n in rng.integers(1, 5, rank)]
    low, high = ([int(n) for n in rng.integers(-1, 4, rank)] for _ in range(2))
    interior = [int(n) for n in rng.integers(0, 3, rank)]
    sizes = [n + a + b + (n - 1) * i for n, a, b, i in zip(shape, low, high, interior, strict=True)]
    if min(sizes) < 1:
        return padded_sum(rng, kind, padding, start)
    window = [int(rng.integers(1, n + 1)) for n in sizes]
    strides, dilations = ([int(n) for n in rng.integers(1, 3, rank)] for _ in range(2))
    window = [min(w, (n - 1) // d + 1) for w, n, d in zip(window, sizes, dilations, strict=True)]
    dims = [d for d in range(rank) if rng.random() < 0.6]
    x = numbers(rng, *shape)

    def build(x: Any) -> list[Any]:
        wide = hlo.PadOp(x, scalar(padding), low, high, interior)
        turned = hlo.TransposeOp(wide, range(rank)[::-1])
        windows = hlo.ReduceWindowOp(
            wide, scalar(start), window, kind, strides, [(0, 0)] * rank, [1] * rank, dilations
        )
        return [windows, hlo.ReduceOp(turned, scalar(start), dims, kind)]

    return Case.of(build, x, note=f"{kind} from {start} of padding {padding}")


@pytest.mark.slow
def test_sums_go_past_padding_only_where_it_changes_nothing():
    rng = np.random.default_rng(0)
    sums = product(["add"], [0.0, -0.0, 1.0], [0.0, -0.0, 2.0])
    limits = product(["maximum"], [-np.inf, 0.0], [-np.inf, 0.0])
    check([padded_sum(rng, *choice) for choice in [*sums, *limits] for _ in range(4)])


def counted_scatter(rng: Rng) -> Case:
    """Indices that are counted, from a start and with a stride; some are read from memory."""
    rows, columns, updates = (int(n) for n in rng.integers(1, 7, 3))
    dims = int(rng.integers(1, 3))
    first, step = int(rng.integers(0, 3)), int(rng.integers(1, 3))
    wide = first + step * (updates - 1) + 1
    window = int(rng.integers(1, columns + 1)) if dims == 1 else 1
    inserted = (0,) if dims == 1 else (0, 1)
    dnums = ScatterDims((1,) if dims == 1 else (), inserted, (), (), tuple(range(dims)), 1)
    from_memory = rng.integers(-1, columns + 1, (updates, 1)).astype(np.int32)
    shape = [updates, window] if dims == 1 else [updates]

    def build(x: Any, memory: Any, values: Any) -> Any:
        count = counted(wide)
        indices = hlo.SliceOp(count, [first, 0], [wide, 1], [step, 1])
        if dims == 2:
            indices = hlo.ConcatenateOp([indices, memory], 1)
        return hlo.ScatterOp(x, indices, values, dnums)

    return Case.of(build, numbers(rng, rows, columns), from_memory, numbers(rng, *shape))


def test_scatter_to_counted_places():
    rng = np.random.default_rng(1)
    check([counted_scatter(rng) for _ in range(40)])


def embedding_gradient(rng: Rng) -> Case:
    """Tables of rows, some indices outside, most of them several times, in a step of SGD."""
    indexed = int(rng.integers(1, 3))
    table = [int(n) for n in rng.integers(1, 9, indexed)]
    batch = [[8], [9, 1], [2, 5], [3, 1, 4]][rng.integers(4)]
    width = 4 * (2 + 4 * int(np.prod(batch)) // int(np.prod(table)))
    vector = int(rng.integers(0, len(batch) + 1))
    where = [int(d) for d in rng.permutation(indexed)]
    window = int(rng.integers(0, len(batch) + 1))
    dnums = ScatterDims((window,), tuple(range(indexed)), (), (), tuple(where), vector)
    columns = [rng.integers(-1, table[d] + 1, batch).astype(np.int32) for d in where]
    indices = np.stack(columns, vector)
    updates = [*batch[:window], width, *batch[window:]]
    dtype = np.float32 if rng.random() < 0.8 else np.int32
    old, weights, new = (
        numbers(rng, *shape) if dtype == np.float32 else rng.integers(-9, 9, shape).astype(dtype)
        for shape in ([*table, width], [*table, width], updates)
    )
    whole = bool(rng.random() < 0.3)

    def build(old: Any, weights: Any, indices: Any, new: Any) -> Any:
        gradient = hlo.ScatterOp(old, indices, new, dnums)
        return gradient if whole else hlo.SubtractOp(weights, gradient)

    return Case.of(build, old, weights, indices, new)


@pytest.mark.slow
def test_scatter_by_rows():
    rng = np.random.default_rng(2)
    cases = [embedding_gradient(rng) for _ in range(30)]
    check(cases)
    assert all(IN_ALL in str(lower(case.block)) for case in cases)


ROWS = ScatterDims((1,), (0,), (), (), (0,), 1)


def floats(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def average_pool_gradient(gradient: Any) -> Any:
    padded = hlo.PadOp(gradient, scalar(0.0), [0, 24, 4], [0, 24, 4], [0, 0, 0])
    return hlo.ReduceWindowOp(
        padded, scalar(0.0), [1, 25, 5], "add", [1, 1, 1], [(0, 0)] * 3, [1] * 3, [1] * 3
    )


def strided_pool_gradient(gradient: Any) -> Any:
    padded = hlo.PadOp(gradient, scalar(0.0), [1, 0], [1, 0], [1, 0])
    return hlo.ReduceWindowOp(
        padded, scalar(0.0), [2, 1], "add", [1, 1], [(0, 0)] * 2, [1] * 2, [1] * 2
    )


def first_rows(table: Any, values: Any) -> Any:
    return hlo.ScatterOp(table, counted(32), values, ROWS)


def image_gradient(gradient: Any, kernel: Any) -> Any:
    dims = ConvDims(0, 2, (1,), 1, 2, (0,), 0, 2, (1,))
    return hlo.ConvolutionOp(gradient, kernel, dims, [1], [(2, 1)], lhs_dilation=[2])


@pytest.mark.parametrize(
    ("build", "args", "adds", "iterations"),
    [
        # The one window of each place is the same for all places.
        (average_pool_gradient, [floats(64, 1, 1)], 64, 64 * (1 + 25 + 125)),
        (strided_pool_gradient, [floats(16, 8)], 32 * 8, 16 + 32 + 32 * 8),
        (first_rows, [floats(500, 64), floats(32, 64)], 32 * 64, 500 * 65),
        # Each of 32 places has at most 2 of 3 taps, on 4 channels.
        (image_gradient, [floats(1, 16, 4), floats(3, 4, 1)], 47 * 4, 16 + 32 * 3 + 47 * 4),
    ],
)
def test_only_candidates_are_run_over(build, args, adds, iterations):
    function = lower(Case.of(build, *args).block)
    done = work(function)
    assert done.adds == adds
    assert done.iterations <= iterations
    assert "mod" not in str(function)
    assert "floordiv" not in str(function)


def embedding(table: Any, indices: Any, values: Any) -> Any:
    return hlo.ScatterOp(table, indices, values, ROWS)


@pytest.mark.parametrize("rows", [500, 1000])
def test_an_embedding_gradient_takes_rows_and_tokens_not_their_product(rows: int):
    args = [floats(rows, 64), np.zeros((32, 1), np.int32), floats(32, 64)]
    function = lower(Case.of(embedding, *args).block)
    done = work(function)
    assert done.adds == 32 * 64
    assert done.iterations <= rows * (64 + 1 + 2) + 32 * (64 + 2) + 2
    assert workspace_bytes(function) == 4 * (rows + 1 + 32)
    assert may_alias(function, 0, 0)
    (again,) = parse_module(module_text(ModuleOp([function])), "kernel").ops
    assert isinstance(again, FuncOp)
    assert work(again) == done
    assert may_alias(again, 0, 0)


@pytest.mark.parametrize(
    "table, batch", [((3000,), (16,)), ((5, 800), (2, 12)), ((70000,), (9, 1)), ((7, 11000), (10,))]
)
def test_an_embedding_gradient_in_a_large_vocabulary(
    table: tuple[int, ...], batch: tuple[int, ...]
):
    """The workspace is one of updates; those of one row keep their order."""
    rng = np.random.default_rng(sum(table))
    vector = len(batch)
    dims = tuple(range(len(table)))
    dnums = ScatterDims((vector,), dims, (), (), dims, vector)
    # Many are at the same few rows, at both ends, and outside.
    places = [np.array([-1, 0, 1, n // 2, n - 2, n - 1, n]) for n in table]
    indices = np.stack([rng.choice(p, batch) for p in places], -1).astype(np.int32)
    old, new = numbers(rng, *table, 2), numbers(rng, *batch, 2)

    def build(old: Any, indices: Any, new: Any) -> Any:
        return hlo.ScatterOp(old, indices, new, dnums)

    case = Case.of(build, old, indices, new)
    function = lower(case.block)
    updates = int(np.prod(batch))
    axes = sum(n > 1 for n in batch)
    assert workspace_bytes(function) <= 4 * (256 + 2 * updates * (1 + axes))
    done = work(function)
    assert done.iterations <= int(np.prod(table)) * 3 + 3 * (2 * 256 + 2 * updates) + 4 * updates
    expected = old.copy()
    with np.errstate(invalid="ignore"):
        for at in np.ndindex(*batch):
            row = tuple(indices[at].tolist())
            if all(0 <= r < n for r, n in zip(row, table, strict=True)):
                expected[row] += new[at]
    check([case])
    (result,) = interpret(case.block, case.args)
    assert same_bits(result, expected)


def test_few_updates_or_narrow_rows_are_compared():
    for rows, width, updates in [(500, 64, 4), (500, 2, 32), (2, 64, 32)]:
        args = [floats(rows, width), np.zeros((updates, 1), np.int32), floats(updates, width)]
        assert not workspace_bytes(lower(Case.of(embedding, *args).block))
