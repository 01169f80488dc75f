"""The order of sums: what a block is, the same bits from kernels, errors against exact sums."""

from math import fsum, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_harness import Case, check, interpret

from poetc.ir import stablehlo as hlo
from poetc.ir.stablehlo.sums import MOST, blocks_of
from poetc.ir.stablehlo_attributes import ConvDims

F32 = np.float32
EPSILON = float(np.finfo(F32).eps) / 2
LOOPS = (
    [33],
    [64],
    [67],
    [784],
    [3, 3, 16],
    [7, 7],
    [2, 40],
    [5, 1, 9],
    [40, 3],
    [33, 1],
    [2, 2, 37],
)


def floats(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


@settings(deadline=None)
@given(extents=st.lists(st.integers(0, 70), max_size=3))
def test_blocks_have_all_terms_and_are_not_long(extents: list[int]):
    blocks = blocks_of(extents)
    if prod(extents) <= MOST:
        assert blocks is None
        return
    assert blocks is not None
    terms = list(blocks.terms(extents))
    assert sum(terms) == prod(extents)
    assert max(terms) <= MOST
    # Few are shorter: the last of a loop.
    assert sum(n < 12 for n in terms) <= prod(extents[: blocks.loop])


@pytest.mark.parametrize(
    ("extents", "first", "count"),
    [
        ([784], 28, 28),
        ([3, 3, 16], 16, 9),
        ([5, 5, 6], 30, 5),
        ([3, 3, 512], 32, 144),
        ([1, 32, 32], 32, 32),
        ([30522], 24, 1272),
    ],
)
def test_blocks_that_the_documentation_names(extents: list[int], first: int, count: int):
    blocks = blocks_of(extents)
    assert blocks is not None
    terms = list(blocks.terms(extents))
    assert (terms[0], len(terms)) == (first, count)


def test_a_sum_of_784_by_hand():
    x = floats(0, 784)
    total = F32(0)
    for start in range(0, 784, 28):
        part = x[start]
        for element in x[start + 1 : start + 28]:
            part = part + element
        total = total + part
    case = Case.of(lambda a, z: hlo.ReduceOp(a, z, [0], "add"), x, np.array(0, F32))
    assert interpret(case.block, case.args)[0] == total


def cases(loops: list[int], seed: int) -> list[Case]:
    """Sums over such loops: of elements, of products, of windows, beside a maximum."""
    x, y = floats(seed, *loops, 3), floats(seed + 1, *loops, 2)
    zero = np.array(-0.0 if seed % 2 else 0.0, F32)
    dims = list(range(len(loops)))

    def both(a, z):
        low = hlo.ReduceOp(a, z, dims, "maximum")
        return [low, hlo.ReduceOp(a, z, dims, "add")]

    found = [
        Case.of(lambda a, z: hlo.ReduceOp(a, z, dims, "add"), x, zero),
        Case.of(both, x, zero),
        Case.of(lambda a, b: hlo.DotGeneralOp(a, b, dims, dims), x, y),
        Case.of(lambda a, z: hlo.ReduceWindowOp(a, z, [*loops, 1], "add"), x, zero),
    ]
    if len(loops) == 3:
        layout = ConvDims(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
        image = floats(seed + 2, 1, loops[0] + 1, loops[1] + 2, loops[2])
        found += [
            Case.of(lambda a, b, p=padding: hlo.ConvolutionOp(a, b, layout, padding=p), image, x)
            for padding in (((0, 0), (0, 0)), ((1, loops[0]), (2, 0)))
        ]
    return found


@pytest.mark.slow
def test_kernels_add_in_the_order_of_the_interpreter():
    check([case for seed, loops in enumerate(LOOPS) for case in cases(loops, seed)])


@settings(max_examples=20, deadline=None)
@given(
    loops=st.lists(st.integers(1, 70), min_size=1, max_size=3).filter(lambda n: prod(n) < 20000),
    seed=st.integers(0, 1000),
)
def test_errors_grow_with_blocks_and_not_with_terms(loops: list[int], seed: int):
    x = floats(seed, *loops)
    case = Case.of(
        lambda a, z: hlo.ReduceOp(a, z, list(range(len(loops))), "add"), x, np.array(0, F32)
    )
    (total,) = interpret(case.block, case.args)
    numbers = x.ravel().astype(float).tolist()
    blocks = blocks_of(loops)
    longest = MOST if blocks is None else MOST + len(list(blocks.terms(loops)))
    bound = 1.01 * longest * EPSILON * fsum(map(abs, numbers))
    assert abs(float(total) - fsum(numbers)) <= bound
