"""Gathers, scatters and dynamic slices against XLA: windows that stick out on either side.

XLA moves a slice of `gather`, of `dynamic_slice` and of `dynamic_update_slice` inside the operand,
and leaves out an update of `scatter` whose window is not wholly inside. JAX relies on both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_harness import Array, Case, check, module_of

from poetc.interpreter import run_func
from poetc.interpreter.functions import run_block
from poetc.ir import stablehlo as hlo
from poetc.ir.stablehlo_attributes import GatherDims, ScatterDims
from poetc.ir.text import module_text, parse_module
from poetc.passes.stablehlo_simplify import RULES
from poetc.simplify.driver import simplify_block
from tests.models.make_results import xla_results

jax = pytest.importorskip("jax", reason="JAX is optional: pip install 'poetc[jax]'")

CASES_IN_ONE = 8
"""Cases that are compiled together, by XLA and by the C compiler."""


def _numbers(draw: Callable[..., Any], low: int, high: int, count: int) -> list[int]:
    return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))


@st.composite
def _accesses(
    draw: Callable[..., Any], least_indexed: int, edge: bool = False
) -> tuple[list[int], GatherDims, list[int], Array]:
    """Shape of the operand, dimension numbers, slice sizes, and indices from far below the operand
    to far above it. `least_indexed`, 0 or 1, is the least number of indexed dimensions. With `edge`
    windows are as large as the operand and begin within one element of its beginning."""
    rank = draw(st.integers(1, 3))
    shape = _numbers(draw, 1 + edge, 5, rank)
    roles = draw(
        st.lists(
            st.sampled_from(["window", "window", "collapsed", "batch"]),
            min_size=rank,
            max_size=rank,
        )
    )
    if least_indexed and "window" not in roles:
        roles[0] = "window"
    batching, collapsed, kept = (
        [d for d in range(rank) if roles[d] == role] for role in ("batch", "collapsed", "window")
    )
    # Sooner or later every dimension that can be is indexed, in any order.
    free = [d for d in range(rank) if d not in batching]
    indexed = draw(st.permutations(free))[: draw(st.integers(least_indexed, len(free)))]
    least = shape if edge else [1] * rank
    sizes = [draw(st.integers(least[d], shape[d])) if d in kept else 1 for d in range(rank)]
    leading = _numbers(draw, 1, 3, draw(st.integers(0, 2)))
    batch = [*leading, *(shape[d] for d in batching)]
    order = draw(st.permutations(range(len(batch))))
    where = [order.index(len(leading) + i) for i in range(len(batching))]
    vector = draw(st.integers(0, len(batch)))
    indices_shape = [batch[d] for d in order]
    if len(indexed) == 1 and draw(st.booleans()):
        vector = len(batch)  # index vectors of one element need no dimension
    else:
        indices_shape.insert(vector, len(indexed))
        where = [d + (d >= vector) for d in where]
    out_rank = len(batch) + len(kept)
    offsets = sorted(draw(st.permutations(range(out_rank)))[: len(kept)])
    dims = GatherDims(
        tuple(offsets), tuple(collapsed), tuple(batching), tuple(where), tuple(indexed), vector
    )
    near = st.integers(-6, 8)
    far = st.sampled_from([-(2**31), 2**31 - 1, -(2**31) + 1, 2**31 - 2])
    count = int(np.prod(indices_shape))
    place = st.integers(-1, 1) if edge else near | far
    places = draw(st.lists(place, min_size=count, max_size=count))
    return shape, dims, sizes, np.array(places, np.int32).reshape(indices_shape)


def _floats(draw: Callable[..., Any], shape: Sequence[int]) -> Array:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    # Whole numbers: sums are exact, so that their order, which XLA chooses freely, is no matter.
    return rng.integers(-99, 99, shape).astype(np.float32)


@st.composite
def _gathers(draw: Callable[..., Any]) -> Case:
    shape, dims, sizes, indices = draw(_accesses(least_indexed=0))
    return Case.of(
        lambda x, i: hlo.GatherOp(x, i, dims, sizes), _floats(draw, shape), indices, note="gather"
    )


@st.composite
def _scatters(draw: Callable[..., Any]) -> Case:
    # Where index vectors have no elements, XLA on the CPU adds the last window only.
    access = _accesses(least_indexed=1, edge=draw(st.booleans()))
    shape, dims, sizes, indices = draw(access)
    window = iter([sizes[d] for d in range(len(shape)) if d not in _removed(dims)])
    batch = iter([n for d, n in enumerate(indices.shape) if d != dims.index_vector_dim])
    rank = len(dims.offset_dims) + indices.ndim - (dims.index_vector_dim < indices.ndim)
    updates = [next(window) if d in dims.offset_dims else next(batch) for d in range(rank)]
    scatter = ScatterDims(
        dims.offset_dims,
        dims.collapsed_slice_dims,
        dims.operand_batching_dims,
        dims.start_indices_batching_dims,
        dims.start_index_map,
        dims.index_vector_dim,
    )
    kind = draw(st.sampled_from(["add", "replace"]))
    return Case.of(
        lambda x, i, u: hlo.ScatterOp(x, i, u, scatter, kind),
        _floats(draw, shape),
        indices,
        _floats(draw, updates),
        note="scatter",
    )


@st.composite
def _windows(draw: Callable[..., Any]) -> Case:
    """A dynamic slice or update: some of the starts are constants, any may be far outside."""
    rank = draw(st.integers(0, 3))
    shape = _numbers(draw, 1, 5, rank)
    sizes = [draw(st.integers(0, n)) for n in shape]
    place = st.integers(-6, 8) | st.sampled_from([-(2**31), 2**31 - 1])
    places = [np.array(draw(place), np.int32) for _ in shape]
    known = [draw(st.booleans()) for _ in shape]

    def starts(computed: Sequence[Any]) -> list[Any]:
        rest = iter(computed)
        pairs = zip(known, places, strict=True)
        return [hlo.ConstantOp(at) if is_known else next(rest) for is_known, at in pairs]

    computed = [at for is_known, at in zip(known, places, strict=True) if not is_known]
    x = _floats(draw, shape)
    if draw(st.booleans()):
        return Case.of(
            lambda x, *i: hlo.DynamicSliceOp(x, starts(i), sizes), x, *computed, note="window"
        )
    return Case.of(
        lambda x, u, *i: hlo.DynamicUpdateSliceOp(x, u, starts(i)),
        x,
        _floats(draw, sizes),
        *computed,
        note="update",
    )


@st.composite
def _updates(draw: Callable[..., Any]) -> Case:
    """Updates one after the other at known places, with slices of what is there in between."""
    shape = _numbers(draw, 1, 4, 2)
    count = draw(st.integers(2, 5))
    axis = draw(st.integers(0, 1))
    updates: list[tuple[list[int], Array]] = []
    for _ in range(count):
        sizes = list(shape)
        sizes[axis] = draw(st.integers(0, shape[axis]))
        at = _numbers(draw, -1, 4, 2)
        updates.append((at, _floats(draw, sizes)))
    reads = [draw(st.none() | st.sampled_from([1, 2])) for _ in range(count)]

    def build(x: Any, *values: Any) -> list[Any]:
        found: list[Any] = []
        for (at, _), value, read in zip(updates, values, reads, strict=True):
            starts = [hlo.ConstantOp(np.array(i, np.int32)) for i in at]
            x = hlo.DynamicUpdateSliceOp(x, value, starts)
            if read is not None:
                last = [max(1, n - 1) for n in shape]
                found.append(hlo.SliceOp(x, [0, 0], last, [read, 1]))
        return [*found, x]

    return Case.of(build, _floats(draw, shape), *(u for _, u in updates), note="updates")


def _removed(dims: GatherDims) -> set[int]:
    return {*dims.collapsed_slice_dims, *dims.operand_batching_dims}


def _sticks_out(case: Case) -> bool:
    """Whether some window is partly inside the operand and partly outside."""
    op = case.block.first_op
    if not isinstance(op, hlo.ScatterOp):
        return False
    dims, indices = op.dnums, case.args[1].astype(np.int64)
    if dims.index_vector_dim == indices.ndim:
        indices = indices[..., None]
    else:
        indices = np.moveaxis(indices, dims.index_vector_dim, -1)
    removed = {*dims.inserted_window_dims, *dims.input_batching_dims}
    kept = [d for d in range(case.args[0].ndim) if d not in removed]
    window = dict(zip(kept, (case.args[2].shape[d] for d in dims.update_window_dims), strict=True))
    mapped = dims.scatter_dims_to_operand_dims
    sizes, ends = [window.get(d, 1) for d in mapped], [case.args[0].shape[d] for d in mapped]
    touches = ((indices < ends) & (indices + sizes > 0)).all(axis=-1)
    outside = ((indices < 0) | (indices + sizes > ends)).any(axis=-1)
    return bool((touches & outside).any())


@pytest.mark.slow
def test_indexed_access_is_that_of_xla():
    seen: Counter[str] = Counter()

    @settings(max_examples=12, deadline=None)
    @given(st.lists(_gathers() | _scatters(), min_size=CASES_IN_ONE, max_size=CASES_IN_ONE))
    def agree(cases: list[Case]) -> None:
        check_against_xla(cases)
        for case in cases:
            seen[case.note] += 1
            seen["partly outside"] += _sticks_out(case)
        check(cases)

    agree()
    assert min(seen["gather"], seen["scatter"], seen["partly outside"]) >= 1, seen


def check_against_xla(cases: list[Case]) -> None:
    """The interpreter gives what XLA gives."""
    module, arguments = module_of(cases)
    text = module_text(module)
    found = run_func(parse_module(text), arguments)
    for a, b in zip(found, xla_results(text, arguments), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=str(cases))


@pytest.mark.slow
def test_windows_at_computed_places_are_those_of_xla():
    seen: Counter[str] = Counter()

    @settings(max_examples=6, deadline=None)
    @given(st.lists(_windows() | _updates(), min_size=CASES_IN_ONE, max_size=CASES_IN_ONE))
    def agree(cases: list[Case]) -> None:
        check_against_xla(cases)
        # Gathers, slices and selects are in their place: the kernels of these do the same.
        expected = [run_block(case.block, case.args, no_calls) for case in cases]
        for case, results in zip(cases, expected, strict=True):
            simplify_block(case.block, RULES)
            assert not any(hlo.is_expanded(op) for op in case.block.ops), case
            found = run_block(case.block, case.args, no_calls)
            for a, b in zip(found, results, strict=True):
                np.testing.assert_array_equal(a, b, err_msg=str(case))
            seen[case.note] += 1
        check(cases)

    agree()
    assert min(seen["window"], seen["update"], seen["updates"]) >= 1, seen


def no_calls(name: str, operands: list[Array]) -> list[Array]:
    raise AssertionError(f"no function @{name}")
