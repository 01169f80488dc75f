"""Random bodies of many operations and results, lowered and run against the interpreter."""

from typing import Any

import numpy as np
import pytest
from kernel_harness import Case, check
from test_kernels_ops import floats, ints, random_movement, scalar
from xdsl.ir import Operation, SSAValue

from poetc.ir import stablehlo as hlo
from poetc.ir.stablehlo_attributes import GatherDims, ScatterDims
from poetc.kernels.lower import lower_kernel

Rng = np.random.Generator
SIZES = (2, 3, 4, 1)


def pick(rng: Rng, values: list[SSAValue], shape: tuple[int, ...] | None = None) -> SSAValue:
    """A value, recent ones more likely, of the given shape if any."""
    fitting = [v for v in values if shape is None or hlo.shape_of(v) == shape]
    weights = np.arange(1, len(fitting) + 1, dtype=float) ** 2
    return fitting[int(rng.choice(len(fitting), p=weights / weights.sum()))]


def random_op(rng: Rng, values: list[SSAValue], rows: SSAValue) -> Operation:
    x = pick(rng, values)
    shape = hlo.shape_of(x)
    kind = int(rng.integers(12))
    if kind <= 1:
        op = rng.choice([hlo.NegateOp, hlo.ExponentialOp, hlo.TanhOp, hlo.AbsOp])  # pyright: ignore
        return op(x)
    if kind <= 4:
        op = rng.choice([hlo.AddOp, hlo.SubtractOp, hlo.MultiplyOp, hlo.MaximumOp])  # pyright: ignore
        return op(x, pick(rng, values, shape))
    if kind == 5:
        y = pick(rng, values, shape)
        return hlo.SelectOp(hlo.CompareOp(x, y, "GT", "FLOAT"), y, x)
    if kind <= 7:
        # Rows or columns back to the space they came from.
        wide = [v for v in values if len(hlo.shape_of(v)) > len(shape)]
        if wide:
            target = hlo.shape_of(pick(rng, wide))
            dims, start = [], 0
            for n in shape:
                found = [d for d in range(start, len(target)) if target[d] == n]
                if not found:
                    break
                dims.append(found[0])
                start = found[0] + 1
            if len(dims) == len(shape):
                return hlo.BroadcastInDimOp(x, dims, target)
    if kind <= 9 and shape:
        dims = [d for d in range(len(shape)) if rng.random() < 0.5]
        init = scalar(float(rng.choice([0.0, -np.inf])))
        return hlo.ReduceOp(x, init, dims, str(rng.choice(["add", "maximum"])))
    if kind == 10:
        for y in reversed(values):
            other = hlo.shape_of(y)
            if shape and other and shape[-1] == other[0]:
                last = len(shape) - 1
                return hlo.DotGeneralOp(x, y, lhs_contract=(last,), rhs_contract=(0,))
    if len(shape) == 2 and rng.random() < 0.5:
        if rng.random() < 0.5:
            dnums = GatherDims((1,), (0,), (), (), (0,), 1)
            return hlo.GatherOp(x, rows, dnums, (1, shape[1]))
        updates = hlo.BroadcastInDimOp(scalar(0.5), (), (3, shape[1]))
        return hlo.ScatterOp(x, rows, updates, ScatterDims((1,), (0,), (), (), (0,), 1))
    return random_movement(rng, x)


def random_case(rng: Rng) -> Case:
    n = [int(rng.choice(SIZES)) for _ in range(3)]

    def build(*inputs: Any) -> list[SSAValue]:
        *operands, rows = inputs
        values: list[SSAValue] = list(operands)
        made: list[SSAValue] = []
        for _ in range(int(rng.integers(2, 12))):
            value = SSAValue.get(random_op(rng, values, rows))
            if np.prod(hlo.shape_of(value)) <= 256 and len(hlo.shape_of(value)) <= 4:
                values.append(value)
                if isinstance(value.owner, Operation):
                    made.append(value)
        if not made:
            made.append(SSAValue.get(hlo.NegateOp(values[0])))
        count = int(rng.integers(1, 4))
        return list(dict.fromkeys([made[-1], *(pick(rng, made) for _ in range(count - 1))]))

    x = floats(rng, *n)
    rows = ints(rng, -1, 4, 3, 1)
    return Case.of(build, x, floats(rng, *n), floats(rng, n[2]), floats(rng, n[1], n[2]), rows)


@pytest.mark.parametrize("seed", range(3))
def test_random_bodies(seed: int):
    rng = np.random.default_rng(seed)
    check([random_case(rng) for _ in range(40)])


def test_lowering_is_deterministic():
    rng = np.random.default_rng(12)
    for _ in range(10):
        case = random_case(rng)
        texts = {str(lower_kernel(case.block, "k").function) for _ in range(2)}
        assert len(texts) == 1


def test_reductions_that_wait_for_each_other():
    """Two reductions and, of each, another one: the second of one pair over the same elements as
    the first of the other."""

    def build(x: SSAValue) -> list[SSAValue]:
        wide = hlo.shape_of(x)

        def reduce(value: Any, kind: str, init: float) -> SSAValue:
            return SSAValue.get(hlo.ReduceOp(value, scalar(init), [1], kind))

        def over_rows(value: SSAValue) -> hlo.BroadcastInDimOp:
            return hlo.BroadcastInDimOp(value, (0,), wide)

        total, most = reduce(x, "add", 0.0), reduce(x, "maximum", -np.inf)
        centred = hlo.SubtractOp(x, over_rows(total))
        squares = reduce(hlo.MultiplyOp(centred, centred), "add", 0.0)
        below = reduce(hlo.SubtractOp(x, over_rows(most)), "add", 0.0)
        both = hlo.AddOp(over_rows(below), over_rows(squares))
        return [SSAValue.get(hlo.MultiplyOp(both, centred))]

    check([Case.of(build, floats(np.random.default_rng(0), 3, 6))])
