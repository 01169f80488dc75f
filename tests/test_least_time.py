"""The time that a step takes at least, whatever parameters are in shards."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from functools import cache

import pytest
import schedule_dma_oracle as oracle
from conftest import MODELS, more, read_model
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

from poetc.cli import main
from poetc.costmodel.cost import least_cost
from poetc.costmodel.device import load_device
from poetc.driver import SplitSource
from poetc.ir.text import make_context, parse_module
from poetc.passes.stablehlo_simplify import StableHLOSimplifyPass
from poetc.passes.stablehlo_split import splittable
from poetc.planning import split_bounds
from poetc.planning.problem import NO_LIMIT, problem_view, storage_of
from poetc.planning.split_candidates import Candidate, in_time
from poetc.planning.split_source import split_candidate
from poetc.request import Options
from poetc.schedule.exact.bounds import time_needed
from poetc.schedule.model import keep_all
from poetc.schedule.model.checker import replay
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Place, Problem
from poetc.schedule.model.rebuild import rebuild
from poetc.schedule.model.transfers import hurried
from poetc.splits import Split

DEVICE = load_device("nrf52840")
OPTIONS = Options(device=DEVICE, device_name="nrf52840", ram_bytes=1 << 20, params="storage")


def simplified(module: ModuleOp) -> ModuleOp:
    StableHLOSimplifyPass().apply(make_context(), module)
    return module


GESTURE = simplified(read_model("gesture_mlp"))

TINY = simplified(
    parse_module("""
func.func public @main(%w: tensor<4x2xf32> {tf.aliasing_output = 1 : i32}, %x: tensor<2x4xf32>)
    -> (tensor<f32>, tensor<4x2xf32>) {
  %e = stablehlo.exponential %x : tensor<2x4xf32>
  %y = stablehlo.dot_general %e, %w, contracting_dims = [1] x [0]
    : (tensor<2x4xf32>, tensor<4x2xf32>) -> tensor<2x2xf32>
  %t = stablehlo.tanh %y : tensor<2x2xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %l = stablehlo.reduce(%t init: %z) applies stablehlo.add across dimensions = [0, 1]
    : (tensor<2x2xf32>, tensor<f32>) -> tensor<f32>
  %g = stablehlo.dot_general %e, %t, contracting_dims = [0] x [0]
    : (tensor<2x4xf32>, tensor<2x2xf32>) -> tensor<4x2xf32>
  %w1 = stablehlo.subtract %w, %g : tensor<4x2xf32>
  return %l, %w1 : tensor<f32>, tensor<4x2xf32>
}
""")
)


WIDE = simplified(
    parse_module("""
func.func public @main(%w: tensor<2x3xf32> {tf.aliasing_output = 1 : i32},
    %v: tensor<3x2xf32> {tf.aliasing_output = 2 : i32}, %x: tensor<2x2xf32>)
    -> (tensor<2x2xf32>, tensor<2x3xf32>, tensor<3x2xf32>) {
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<2x2xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %t = stablehlo.tanh %y : tensor<2x3xf32>
  %z = stablehlo.dot_general %t, %v, contracting_dims = [1] x [0]
    : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>
  %s = stablehlo.tanh %z : tensor<2x2xf32>
  %e = stablehlo.dot_general %t, %s, contracting_dims = [0] x [0]
    : (tensor<2x3xf32>, tensor<2x2xf32>) -> tensor<3x2xf32>
  %d = stablehlo.dot_general %s, %v, contracting_dims = [1] x [1]
    : (tensor<2x2xf32>, tensor<3x2xf32>) -> tensor<2x3xf32>
  %g = stablehlo.dot_general %x, %d, contracting_dims = [0] x [0]
    : (tensor<2x2xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %w1 = stablehlo.subtract %w, %g : tensor<2x3xf32>
  %v1 = stablehlo.subtract %v, %e : tensor<3x2xf32>
  return %s, %w1, %v1 : tensor<2x2xf32>, tensor<2x3xf32>, tensor<3x2xf32>
}
""")
)
WIDE_SPLITS = [Split(0, 2, 0), Split(0, 2, 1), Split(0, 3, 1)]
WIDE_SPLITS += [Split(1, 2, 0), Split(1, 3, 0), Split(1, 2, 1)]


def in_parts(module: ModuleOp, splits: tuple[Split, ...]) -> tuple[Candidate, Problem]:
    candidate = split_candidate(SplitSource(make_context(), module, OPTIONS), splits)
    asked = replace(candidate.asked, budget=NO_LIMIT)
    return candidate, problem_view(candidate.graph, replace(asked, params="storage")).problem


GESTURE_WHOLE, _ = in_parts(GESTURE, ())
WIDE_WHOLE, _ = in_parts(WIDE, ())


MASKED = simplified(
    parse_module("""
func.func public @main(%w: tensor<6x4xf32> {tf.aliasing_output = 1 : i32}, %x: tensor<2x6xf32>)
    -> (tensor<f32>, tensor<6x4xf32>) {
  %mask = stablehlo.constant dense<[[1.0, 1.0, 0.0, 2.0]]> : tensor<1x4xf32>
  %keep = stablehlo.constant dense<[true, true, false, false]> : tensor<4xi1>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %zs = stablehlo.constant dense<0.0> : tensor<2x4xf32>
  %e = stablehlo.exponential %x : tensor<2x6xf32>
  %y = stablehlo.dot_general %e, %w, contracting_dims = [1] x [0]
    : (tensor<2x6xf32>, tensor<6x4xf32>) -> tensor<2x4xf32>
  %t = stablehlo.tanh %y : tensor<2x4xf32>
  %masks = stablehlo.broadcast_in_dim %mask, dims = [0, 1]
    : (tensor<1x4xf32>) -> tensor<2x4xf32>
  %keeps = stablehlo.broadcast_in_dim %keep, dims = [1] : (tensor<4xi1>) -> tensor<2x4xi1>
  %m = stablehlo.multiply %t, %masks : tensor<2x4xf32>
  %k = stablehlo.select %keeps, %m, %zs : tensor<2x4xi1>, tensor<2x4xf32>
  %r = stablehlo.exponential %k : tensor<2x4xf32>
  %g = stablehlo.dot_general %e, %r, contracting_dims = [0] x [0]
    : (tensor<2x6xf32>, tensor<2x4xf32>) -> tensor<6x4xf32>
  %g2 = stablehlo.multiply %g, %g : tensor<6x4xf32>
  %l = stablehlo.reduce(%g2 init: %z) applies stablehlo.add across dimensions = [0, 1]
    : (tensor<6x4xf32>, tensor<f32>) -> tensor<f32>
  %b = stablehlo.broadcast_in_dim %l, dims = [] : (tensor<f32>) -> tensor<6x4xf32>
  %u = stablehlo.divide %g, %b : tensor<6x4xf32>
  %w1 = stablehlo.subtract %w, %u : tensor<6x4xf32>
  return %l, %w1 : tensor<f32>, tensor<6x4xf32>
}
""")
)
"""Shards have less of the masks: %m is %t in half of it, %k is 0. A gradient with two readers, and
what it is of, are in pieces though no parameter is beside them."""


def assert_no_less(module: ModuleOp, whole: Candidate, splits: tuple[Split, ...]) -> None:
    """Time and energy that are proven for any shards are kept by these."""
    _, problem = in_parts(module, splits)
    instance = Instance(problem)
    assert time_needed(instance) >= whole.least_time_ns
    assert instance.least_energy_nj >= whole.least_nj
    asked = replace(whole.asked, budget=NO_LIMIT, params="storage")
    least_flops = sum(split_bounds.least_flops(problem_view(whole.graph, asked)).values())
    computing_ns = sum(operation.time_ns for operation in problem.operations)
    assert computing_ns >= least_cost(least_flops, DEVICE).time_ns


@pytest.mark.parametrize("split", [(), *(Split(0, n, 0) for n in (2, 3, 6)), Split(0, 2, 1)])
@pytest.mark.parametrize("masked", [True, False])
def test_what_shards_need_not_do(masked: bool, split: Split | tuple[()]) -> None:
    """What a mask makes needless in a shard, and sums of blocks, are no part of the bound."""
    module = MASKED if masked else GESTURE
    whole = in_parts(module, ())[0]
    if not masked and split:
        split = replace(split, parameter=1)
    assert_no_less(module, whole, (split,) if split else ())


def test_most_of_computing_is_proven() -> None:
    """All but maxima, comparisons and what has the mask of the labels."""
    asked = replace(GESTURE_WHOLE.asked, budget=NO_LIMIT, params="storage")
    least_flops = sum(split_bounds.least_flops(problem_view(GESTURE_WHOLE.graph, asked)).values())
    flops = sum(c.cost.flops for c in GESTURE_WHOLE.graph.computes if c.cost)
    assert 0.97 * flops <= least_flops <= flops


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(st.data())
def test_parts_take_no_less(data: st.DataObject) -> None:
    """Of any parameters, in any number, along any axis. Parameter 1 in 2 shards along axis 0 is a
    sum of 36 terms in two blocks: in shards their sum begins with the first block, not with 0."""
    most = dict(splittable(GESTURE).values())
    chosen = data.draw(st.sets(st.sampled_from(sorted(most)), min_size=1, max_size=2))
    splits = []
    for parameter in sorted(chosen):
        shape = GESTURE_WHOLE.graph.arguments[parameter].type.get_shape()  # pyright: ignore
        axis = data.draw(st.integers(0, len(shape) - 1))
        splits.append(Split(parameter, data.draw(st.integers(2, min(shape[axis], 6))), axis))
    assert_no_less(GESTURE, GESTURE_WHOLE, tuple(splits))


def quick(problem: Problem) -> int:
    """What a schedule takes that has RAM for all and overlaps what it can."""
    steps = rebuild(Instance(problem), keep_all.sequence(Instance(problem)))
    return replay(problem, hurried(problem, steps)).makespan_ns


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(st.data())
def test_parameters_that_stay_as_they_are(data: st.DataObject) -> None:
    """What is proven with some parameters decided holds for all parts of the others."""
    most = dict(splittable(GESTURE).values())
    splits: list[Split] = []
    for parameter in data.draw(st.permutations(sorted(most)))[:2]:
        shape = GESTURE_WHOLE.graph.arguments[parameter].type.get_shape()  # pyright: ignore
        axis = data.draw(st.integers(0, len(shape) - 1))
        splits.append(Split(parameter, data.draw(st.integers(2, min(shape[axis], 5))), axis))
    _, problem = in_parts(GESTURE, tuple(splits))
    makespan_ns = quick(problem)
    for number in range(len(splits) + 1):
        decided, _ = in_parts(GESTURE, tuple(splits[:number]))
        still_open = {split.parameter for split in splits[number:]}
        assert decided.least_with_open_ns(still_open) <= makespan_ns  # pyright: ignore
        assert decided.least_with_open_ns(set(most)) <= makespan_ns


@pytest.mark.slow
@pytest.mark.parametrize(("deadline", "ram_bytes"), [(1.2, 1000), (1.7, 84), *more((2.5, 1000))])
def test_all_splits_that_may_be_in_time(deadline: float, ram_bytes: int) -> None:
    """The search over the splits of one parameter after the other leaves those that a look at each
    combination does."""
    limit_ns = round(deadline * WIDE_WHOLE.least_time_ns)
    storage = storage_of(DEVICE)
    assert storage is not None
    groups = {argument: [argument] for argument in (0, 1)}

    @cache
    def build(splits: tuple[Split, ...]) -> Candidate:
        return in_parts(WIDE, splits)[0]

    left = in_time(build, WIDE_WHOLE, groups, storage, ram_bytes, limit_ns)
    every = [[(), *((s,) for s in WIDE_SPLITS if s.parameter == p)] for p in groups]
    expected = {
        splits
        for splits in (sum(some, ()) for some in itertools.product(*every))
        if (candidate := build(splits)).needed_bytes <= ram_bytes
        and candidate.least_with_open_ns(()) <= limit_ns
    }
    assert not left.others
    assert {candidate.splits for candidate in left.candidates} == expected
    assert left.least_time_ns > limit_ns


@pytest.mark.slow
@pytest.mark.parametrize("splits", [(), (Split(0, 2, 1),)])
def test_nothing_is_faster(splits: tuple[Split, ...]) -> None:
    """By an oracle that tries all schedules; what comes before the first page-in, and what is for
    the loss alone, may go on beside transfers."""
    whole, _ = in_parts(TINY, ())
    candidate, problem = in_parts(TINY, splits)
    # With RAM for all, paging and running again what is there would only take longer.
    small = replace(
        problem,
        ram_bytes=sum(t.bytes for t in problem.tensors),
        operations=tuple(replace(o, repeatable=False) for o in problem.operations),
        tensors=tuple(
            replace(t, pageable=Place.STORAGE in (t.start, t.end)) for t in problem.tensors
        ),
    )
    assert oracle.cheapest(replace(small, deadline_ns=whole.least_time_ns - 1)) is None
    least_ns = candidate.least_with_open_ns(())
    assert oracle.cheapest(replace(small, deadline_ns=least_ns - 1)) is None
    assert oracle.cheapest(replace(small, deadline_ns=4 * whole.least_time_ns)) is not None


@pytest.mark.slow
@pytest.mark.parametrize("ram", ["6KB", *more("5KB", "8KB")])
def test_no_parts_meet_a_deadline_that_is_too_short(
    ram: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """That all computing takes less proves nothing: transfers begin before it and end after it."""
    model = str(MODELS / "gesture_mlp.mlir")
    words = [f"--ram={ram}", "--deadline=1.02x", "--stream=never"]
    status = main([model, *words, "-o", "/dev/null"])
    text = capsys.readouterr().err
    assert status == 3, text
    bound = re.search(r"in shards it takes at least ([\d.]+) ms", text)
    computing_ns = sum(c.cost.time_ns for c in GESTURE_WHOLE.graph.computes if c.cost)
    assert bound and float(bound[1]) > 1.02e-6 * computing_ns, text
