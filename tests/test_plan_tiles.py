"""Plans of steps whose kernels run in tiles: the bits of the step that is not scheduled, or they
are refused."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from compiled import Model
from plans import (
    Outcome,
    Program,
    Status,
    build_program,
    mutations,
    plan_for,
    reordered,
    results_crc,
    sealed,
)
from test_plan import assert_agree
from test_read_ahead import ahead
from test_stream_c import expected_after, streamed
from xdsl.dialects.builtin import ModuleOp

from poetc.backends.plan.check import check
from poetc.backends.plan.codec import decode, encode
from poetc.backends.plan.plan import PageIn, Plan, PlanError, Run
from poetc.backends.plan.source import PlanExecutor
from poetc.backends.plan.table import table_of
from poetc.ir.graph import graphs

MORE_BYTES = 64


def right(model: Model, module: ModuleOp) -> int:
    return results_crc(module, model.arguments, expected_after(model.module, model.arguments, 1))


@cache
def small() -> tuple[Model, ModuleOp]:
    return streamed("gesture_mlp", 1100, 64)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Program, int]:
    """A program with some more arena than its own schedule needs, and the CRC of its results."""
    model, module = small()
    (graph,) = graphs(module)
    assert graph.arena_bytes is not None
    executor = PlanExecutor(graph.arena_bytes + 4096)
    target = tmp_path_factory.mktemp("tiles")
    return build_program(module, target, model.arguments, executor=executor), right(model, module)


def shifted(plan: Plan, by_bytes: int) -> Plan:
    """All of it further on in the arena."""
    return replace(
        plan,
        arena_bytes=plan.arena_bytes + by_bytes,
        arguments=tuple(place + by_bytes for place in plan.arguments),
        steps=tuple(
            replace(step, place=step.place + by_bytes)
            if isinstance(step, PageIn)
            else replace(
                step,
                places=tuple(place + by_bytes for place in step.places),
                workspace=None if step.workspace is None else step.workspace + by_bytes,
            )
            if isinstance(step, Run)
            else step
            for step in plan.steps
        ),
    )


@pytest.mark.slow
def test_the_same_bits_wherever_all_is(program: tuple[Program, int]) -> None:
    built, crc = program
    plan, table = plan_for(small()[1])
    assert built.table.identity == table.identity
    assert any(kernel.streamed for kernel in table.kernels)
    plans = [plan, shifted(plan, MORE_BYTES)]
    data = [encode(each, table) for each in plans]
    assert [decode(each, table) for each in data] == plans
    assert built.run([*data, data[0]]) == [Outcome(Status.OK, Status.OK, crc)] * 3


@pytest.mark.slow
def test_a_convolution_in_tiles(tmp_path: Path) -> None:
    model, module = streamed("kws_conv", 4096, 64)
    built = build_program(module, tmp_path, model.arguments)
    plan, table = plan_for(module)
    crc = right(model, module)
    assert built.run([encode(plan, table)]) == [Outcome(Status.OK, Status.OK, crc)]


@pytest.mark.slow
def test_slices_are_read_ahead(tmp_path: Path) -> None:
    """A thread reads them while tiles run; the thread sanitizer finds no race."""
    model, _, module = ahead("gesture_mlp", 1900, 64, 2000)
    races = ("-O1", "-fsanitize=thread", "-DPOETC_STORE_THREAD", "-pthread")
    built = build_program(module, tmp_path, model.arguments, *races)
    assert "poetc_slice_in_ahead" in (tmp_path / "model.c").read_text()
    plan, table = plan_for(module)
    crc = right(model, module)
    assert built.run([encode(plan, table)]) == [Outcome(Status.OK, Status.OK, crc)]


def test_other_tiles_are_of_another_program(program: tuple[Program, int]) -> None:
    """What the step computes is the same, and so what plans are for; kernels in tiles differ."""
    _, module = streamed("gesture_mlp", 3000, 64)
    plan, table = plan_for(module)
    own = table_of(graphs(small()[1])[0]).table
    assert table.identity == own.identity and table.identities != own.identities
    data = encode(plan, table)
    assert [outcome.loaded for outcome in program[0].run([data])] == [Status.FOREIGN]
    with pytest.raises(PlanError, match="a kernel that this program lacks"):
        decode(data, own)


def test_damaged_plans(program: tuple[Program, int]) -> None:
    """Under sanitizers: what the program accepts is what Python accepts, and gives the right
    bits."""
    built, crc = program
    plan, table = plan_for(small()[1])
    data = [encode(plan, table), encode(shifted(plan, MORE_BYTES), table)]
    spoiled = [sealed(each) for each in mutations(data, 1000, seed=1)]
    rng = random.Random(2)
    tried = [reordered(plan, table, rng) for _ in range(1500)]
    changed = [each for each in tried if each is not None]
    for plans in (spoiled, changed):
        outcomes = built.run(plans)
        assert {o.loaded for o in outcomes} >= {Status.OK, Status.INVALID}
        assert_agree(plans, outcomes, table, crc)


def test_every_call_of_the_store_may_fail(program: tuple[Program, int]) -> None:
    plan, table = plan_for(small()[1])
    calls, unnoticed, wrong = program[0].with_faults(encode(plan, table))
    assert calls > 100 and (unnoticed, wrong) == (0, 0)


def test_why_a_plan_is_refused() -> None:
    """A page of the step that is not made, that has no place, or that another one is put over."""
    plan, table = plan_for(small()[1])
    tensors = {page.tensor for page in plan.pages}

    def made(step: Run) -> set[int]:
        """The tensors of the listed pages that a step makes in tiles."""
        operation = table.operations[step.operation]
        kernel = table.kernels[operation.kernel]
        results = enumerate(operation.results, kernel.operands)
        return {tensor for n, tensor in results if n in kernel.streamed and tensor in tensors}

    makes = next(step for step in plan.steps if isinstance(step, Run) and made(step))
    (tensor,) = made(makes)
    steps = tuple(step for step in plan.steps if step != makes)
    with pytest.raises(PlanError, match=f"tensor {tensor} is not on storage, or not any more"):
        check(replace(plan, steps=steps), table)
    others = tuple(page for page in plan.pages if page.tensor != tensor)
    first = plan.steps.index(makes) + 1
    with pytest.raises(PlanError, match=f"tensor {tensor} has no page"):
        check(replace(plan, pages=others, steps=plan.steps[:first]), table)
    operation = table.operations[makes.operation]
    read = next(t for t in operation.operands if t in tensors)
    place = next(page.place for page in plan.pages if page.tensor == read)
    over = tuple(replace(p, place=place) if p.tensor == tensor else p for p in plan.pages)
    with pytest.raises(PlanError, match=f"tensor {read} is not on storage, or not any more"):
        check(replace(plan, pages=over), table)
