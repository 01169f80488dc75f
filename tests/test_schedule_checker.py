"""Each rule of the checker: a schedule that breaks just that rule is rejected, and says what is
wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poetc.schedule.model.checker import check, replay
from poetc.schedule.model.errors import ScheduleError
from poetc.schedule.model.problem import (
    Compute,
    Free,
    Operation,
    PageIn,
    PageOut,
    Place,
    Problem,
    ProblemError,
    Schedule,
    Step,
    Tensor,
)

# x -> f -> a -> g -> b; h(a, b) -> c; the update u makes w2 out of w and c.
X, W, A, B, C, W2 = range(6)
F, G, H, U = range(4)


def problem(**changes) -> Problem:
    def tensor(name: str, size: int, **fields) -> Tensor:
        costs = {
            "pagein_time_ns": 3,
            "pagein_energy_nj": 30,
            "pageout_time_ns": 5,
            "pageout_energy_nj": 50,
        }
        return Tensor(name, size, **costs, **fields)

    tensors = (
        tensor("x", 4, start=Place.RAM),
        tensor("w", 8, start=Place.STORAGE),
        tensor("a", 16),
        tensor("b", 32),
        tensor("c", 8, end=Place.RAM),
        tensor("w2", 8, end=Place.STORAGE, replaces=W),
    )
    operations = (
        Operation("f", (X,), (A,), time_ns=10, energy_nj=1),
        Operation("g", (A,), (B,), time_ns=20, energy_nj=2, workspace_bytes=6),
        Operation("h", (A, B), (C,), time_ns=40, energy_nj=4, inplace=((C, A), (C, B))),
        Operation("u", (W, C), (W2,), time_ns=80, energy_nj=8, inplace=((W2, W),)),
    )
    return replace(Problem(operations, tensors), **changes)


GOOD: tuple[Step, ...] = (
    Compute(F),
    PageOut(A),
    Compute(G),
    Free(A),
    Free(X),
    PageIn(A),
    Compute(H, ((C, A),)),
    Free(B),
    PageIn(W),
    Compute(U, ((W2, W),)),
    PageOut(W2),
    Free(W2),
)


def without(*indices: int) -> tuple[Step, ...]:
    return tuple(step for index, step in enumerate(GOOD) if index not in indices)


def put(index: int, *steps: Step) -> tuple[Step, ...]:
    return (*GOOD[:index], *steps, *GOOD[index:])


def swap(index: int, step: Step) -> tuple[Step, ...]:
    return (*GOOD[:index], step, *GOOD[index + 1 :])


def test_counts() -> None:
    report = replay(problem(), GOOD)
    assert report.bytes_at_step == (20, 20, 58, 52, 36, 48, 48, 40, 16, 16, 16, 16)
    assert (report.peak_bytes, report.peak_step) == (58, 2)
    assert report.energy_nj == 1 + 2 + 4 + 8 + 2 * 50 + 2 * 30
    assert (report.busy_ns, report.bus_ns, report.makespan_ns) == (150, 16, 166)
    assert (report.page_ins, report.page_outs) == (2, 2)
    assert (report.page_in_bytes, report.page_out_bytes) == (24, 24)
    assert report.storage_bytes == 32  # w and w2 have a page each
    assert report.recomputes == ()


def test_limits_are_met_exactly() -> None:
    replay(problem(ram_bytes=58, deadline_ns=166, storage_bytes=32), GOOD)


def test_recomputes_are_listed() -> None:
    steps = (*GOOD[:4], Compute(F), *GOOD[4:5], *GOOD[6:])
    assert replay(problem(), steps).recomputes == (4,)


def test_peak_before_the_first_step() -> None:
    tensors = (Tensor("x", 4, start=Place.RAM),)
    report = replay(Problem((Operation("f", (), (), 1, 1),), tensors), (Free(0), Compute(0)))
    assert (report.peak_bytes, report.peak_step) == (4, None)


def test_idle_power_is_rounded_up() -> None:
    # 166 ns at 7 mW are 1.162 nJ.
    idle = replay(problem(idle_power_nw=7_000_000), GOOD).energy_nj
    assert idle == replay(problem(), GOOD).energy_nj + 2


def test_transfers_overlap_with_dma() -> None:
    report = replay(problem(dma=True), GOOD)
    # f 0-10; page-out a 10-15 beside g 10-30; page-in a 30-33; h 33-73; page-in w 73-76; u 76-156;
    # page-out w2 156-161, for which its free waits.
    assert report.makespan_ns == 161


def test_transfers_queue_on_the_bus() -> None:
    tensors = tuple(
        Tensor(name, 1, pageout_time_ns=10, start=Place.RAM, end=Place.STORAGE) for name in "ab"
    )
    one = Problem((Operation("f", (), (), 1, 0),), tensors, dma=True)
    steps = (PageOut(0), PageOut(1), Free(0), Compute(0), Free(1))
    # The free of a waits until 10, f runs 10-11, the page-out of b ends at 20.
    assert replay(one, steps).makespan_ns == 20


def test_reading_waits_for_the_page_in() -> None:
    tensors = (Tensor("a", 1, start=Place.STORAGE, pagein_time_ns=10),)
    one = Problem((Operation("f", (0,), (), 1, 0),), tensors, dma=True)
    assert replay(one, (PageIn(0), Compute(0), Free(0))).makespan_ns == 11


@pytest.mark.parametrize("transfer", [PageIn, PageOut])
def test_a_free_waits_for_the_transfer(transfer: type[PageIn] | type[PageOut]) -> None:
    start = Place.STORAGE if transfer is PageIn else Place.RAM
    tensors = (Tensor("a", 1, start=start, pagein_time_ns=10, pageout_time_ns=10),)
    one = Problem((Operation("f", (), (), 5, 0),), tensors, dma=True)
    assert replay(one, (transfer(0), Free(0), Compute(0))).makespan_ns == 15
    assert replay(one, (transfer(0), Compute(0), Free(0))).makespan_ns == 10


def test_a_free_without_a_transfer_does_not_wait() -> None:
    one = Problem(
        (Operation("f", (), (), 1, 0),), (Tensor("a", 1, start=Place.RAM),), None, dma=True
    )
    assert replay(one, (Free(0), Compute(0))).makespan_ns == 1


def test_taking_over_a_buffer_waits_for_its_page_out() -> None:
    paged = Tensor("a", 1, start=Place.RAM, pageout_time_ns=10, end=Place.STORAGE)
    tensors = (paged, Tensor("b", 1))
    one = Problem((Operation("f", (0,), (1,), 1, 0, inplace=((1, 0),)),), tensors, dma=True)
    assert replay(one, (PageOut(0), Compute(0, ((1, 0),)), Free(1))).makespan_ns == 11
    assert replay(one, (PageOut(0), Compute(0), Free(0), Free(1))).makespan_ns == 10


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (swap(0, Compute(9)), "step 0: operation 9 does not exist"),
        (swap(0, Compute(4)), "step 0: operation 4 does not exist"),
        (put(0, Free(9)), "step 0: tensor 9 does not exist"),
        (put(0, Free(6)), "step 0: tensor 6 does not exist"),
        (put(0, Free(-1)), "step 0: tensor -1 does not exist"),
        (without(5), "step 5: operation h reads tensor a, which is not in RAM"),
        (put(1, Compute(F)), "step 1: operation f makes tensor a, already in RAM"),
        (
            swap(6, Compute(H, ((C, X),))),
            "step 6: operation h may not make tensor c in the buffer of tensor x",
        ),
        (
            swap(6, Compute(H, ((C, A), (C, B)))),
            "step 6: operation h shares a buffer in place twice",
        ),
        (swap(9, Compute(U)), "step 9: operation u must make tensor w2 in place of tensor w"),
        (put(12, Compute(U)), "step 12: operation u reads tensor w, which tensor w2 replaced"),
        (put(12, PageIn(W)), "step 12: page-in of tensor w, which tensor w2 replaced"),
        (put(4, PageOut(A)), "step 4: page-out of tensor a, which is not in RAM"),
        (put(2, PageOut(A)), "step 2: page-out of tensor a, which is on storage already"),
        (without(1), "step 4: page-in of tensor a, which is not on storage"),
        (put(2, PageIn(A)), "step 2: page-in of tensor a, which is in RAM already"),
        (put(4, Free(A)), "step 4: free of tensor a, which is not in RAM"),
        (without(4), "tensor x is never freed"),
        (without(11), "tensor w2 is never freed"),
        (without(8, 9, 10, 11), "operation u never runs"),
        (put(12, Free(C)), "tensor c is not in RAM at the end"),
        (without(10), "tensor w2 is not on storage at the end"),
    ],
)
def test_broken_schedules(steps: tuple[Step, ...], message: str) -> None:
    with pytest.raises(ScheduleError) as error:
        replay(problem(), steps)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"ram_bytes": 57},
            "step 2: operation g needs 58 bytes of RAM, 57 are available",
        ),
        ({"ram_bytes": 3}, "4 bytes are in RAM at the start, 3 are available"),
        ({"deadline_ns": 165}, "takes 166 ns, the deadline is 165 ns"),
        ({"storage_bytes": 23}, "step 1: page-out of tensor a uses 24 of 23 bytes of storage"),
        ({"storage_bytes": 31}, "step 10: page-out of tensor w2 uses 32 of 31 bytes of storage"),
        ({"deadline_ns": 160, "dma": True}, "takes 161 ns, the deadline is 160 ns"),
    ],
)
def test_broken_limits(changes: dict, message: str) -> None:
    with pytest.raises(ScheduleError) as error:
        replay(problem(**changes), GOOD)
    assert str(error.value) == message


def test_page_in_counts_ram() -> None:
    steps = (Compute(F), PageOut(A), PageIn(W))
    with pytest.raises(ScheduleError, match="step 2: page-in of tensor w needs 28 bytes of RAM"):
        replay(problem(ram_bytes=27), steps)


def test_what_is_not_pageable_stays() -> None:
    fixed = problem()
    tensors = list(fixed.tensors)
    tensors[A] = replace(tensors[A], pageable=False)
    with pytest.raises(ScheduleError, match="step 1: tensor a may not be paged"):
        replay(replace(fixed, tensors=tuple(tensors)), GOOD)


def test_what_may_not_be_repeated_runs_once() -> None:
    fixed = problem()
    operations = (replace(fixed.operations[F], repeatable=False), *fixed.operations[1:])
    steps = (*GOOD[:4], Compute(F), *GOOD[4:5], *GOOD[6:])
    replay(fixed, steps)
    with pytest.raises(ScheduleError, match="step 4: operation f runs again but is not repeatable"):
        replay(replace(fixed, operations=operations), steps)


def test_what_starts_on_storage_counts_there() -> None:
    with pytest.raises(ScheduleError, match="8 of 7 bytes of storage are used"):
        replay(
            Problem(
                (Operation("f", (), (), 1, 1),),
                (Tensor("w", 8, start=Place.STORAGE),),
                storage_bytes=7,
            ),
            (Compute(0),),
        )


def test_claims_are_compared() -> None:
    right = Schedule(GOOD, energy_nj=175, bound_nj=15, makespan_ns=166, peak_bytes=58)
    assert check(problem(), right).energy_nj == 175
    assert right.gap == pytest.approx(160 / 175)
    for name, wrong in (("energy_nj", 174), ("makespan_ns", 165), ("peak_bytes", 57)):
        with pytest.raises(ScheduleError, match=f"claims {name} = {wrong}, it is"):
            check(problem(), replace(right, **{name: wrong}))
    with pytest.raises(ScheduleError, match="uses 175 nJ, its lower bound is 176 nJ"):
        check(problem(), replace(right, bound_nj=176))


GIVEN = Tensor("g", 4, start=Place.RAM)
MADE = Tensor("m", 4)


@pytest.mark.parametrize(
    ("operations", "tensors", "message"),
    [
        ((("f", (0,), (1,)),), (MADE, MADE), "operation f reads m before it is made"),
        ((("f", (), (0,)),), (GIVEN,), "operation f makes g, there from the start"),
        ((("f", (), (0,)), ("h", (), (0,))), (MADE,), "tensor m is made twice (at last by h)"),
        ((("f", (), (1,)),), (MADE,), "operation f names tensor 1, which does not exist"),
        ((), (MADE,), "tensor m is made by no operation and does not start anywhere"),
        ((), (replace(GIVEN, bytes=-1),), "tensor g: bytes is negative"),
        (
            (),
            (Tensor("g", 4, start=Place.STORAGE, pageable=False),),
            "tensor g starts on storage but may not be paged",
        ),
        (
            (("f", (), (0,)),),
            (Tensor("m", 4, end=Place.STORAGE, pageable=False),),
            "tensor m must end on storage but may not be paged",
        ),
        (
            (("f", (0,), (1,), ((0, 1),)),),
            (GIVEN, MADE),
            "operation f: in-place pair (0, 1) is not (output, input)",
        ),
        (
            (("f", (0,), (1,), ((1, 0),)),),
            (GIVEN, replace(MADE, bytes=5)),
            "operation f: m is bigger than g, whose buffer it would take",
        ),
        (
            (("f", (0,), (1,)),),
            (GIVEN, replace(MADE, replaces=0)),
            "operation f: m replaces g but not in place",
        ),
        (
            (("f", (0,), (1,), ((1, 0),)),),
            (GIVEN, replace(MADE, replaces=0, bytes=3)),
            "tensor m replaces g, which has another size",
        ),
        (
            (("f", (0,), (1,), ((1, 0),)),),
            (replace(GIVEN, end=Place.RAM), replace(MADE, replaces=0)),
            "tensor g is replaced by m and so cannot be there at the end",
        ),
        (
            (("f", (0,), (1,), ((1, 0),)), ("h", (0,), ())),
            (GIVEN, replace(MADE, replaces=0)),
            "operation h reads g after m replaced it",
        ),
    ],
)
def test_contradictory_problems(operations: tuple, tensors: tuple, message: str) -> None:
    with pytest.raises(ProblemError) as error:
        Problem(
            tuple(
                Operation(name, inputs, outputs, 1, 1, inplace=pairs[0] if pairs else ())
                for name, inputs, outputs, *pairs in operations
            ),
            tensors,
        )
    assert str(error.value) == message
