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
    Variant,
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


def test_all_that_is_in_ram_at_the_start_may_be_the_limit() -> None:
    tensors = (Tensor("x", 4, start=Place.RAM),)
    operations = (Operation("f", (0,), (), 1, 1),)
    for ram_bytes, fits in ((4, True), (3, False)):
        some = Problem(operations, tensors, ram_bytes=ram_bytes)
        if fits:
            assert replay(some, (Compute(0), Free(0))).peak_bytes == 4
        else:
            with pytest.raises(ScheduleError, match="4 bytes are in RAM at the start, 3 are"):
                replay(some, (Compute(0), Free(0)))


def test_each_buffer_that_is_taken_over_is_saved() -> None:
    tensors = (
        Tensor("x", 4, start=Place.RAM),
        Tensor("y", 32, start=Place.RAM),
        Tensor("a", 4, end=Place.RAM),
        Tensor("b", 32, end=Place.RAM),
    )
    pairs = ((2, 0), (3, 1))
    some = Problem((Operation("f", (0, 1), (2, 3), 1, 1, inplace=pairs),), tensors)
    assert replay(some, (Compute(0, pairs),)).peak_bytes == 36
    assert replay(some, (Compute(0, pairs[1:]), Free(0))).peak_bytes == 40


def test_no_old_value_of_several_is_read() -> None:
    """Not in an operation that comes after another update, either."""
    tensors = (
        Tensor("v", 4, start=Place.STORAGE),
        Tensor("w", 4, start=Place.STORAGE),
        Tensor("v2", 4, end=Place.STORAGE, replaces=0),
        Tensor("w2", 4, end=Place.STORAGE, replaces=1),
    )
    updates = tuple(
        Operation(name, (old,), (old + 2,), 1, 1, inplace=((old + 2, old),))
        for name, old in (("f", 0), ("g", 1))
    )
    steps: tuple[Step, ...] = ()
    for k in (0, 1):
        steps += (PageIn(k), Compute(k, ((k + 2, k),)), PageOut(k + 2), Free(k + 2))
    assert replay(Problem(updates, tensors), steps).page_ins == 2
    for k, name in enumerate(("v", "w")):
        with pytest.raises(ScheduleError, match=f"page-in of tensor {name}, which tensor {name}2"):
            replay(Problem(updates, tensors), (*steps, PageIn(k)))


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
    assert check(problem(), replace(right, bound_nj=175)).energy_nj == 175
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


def streaming(**changes) -> Problem:
    """The same with variants: h streams a and b, or a and c; u streams everything, or w2 only."""

    def variant(*streamed: int) -> Variant:
        return Variant(frozenset(streamed), 3, time_ns=9, bus_ns=4, energy_nj=90, read_bytes=7)

    fixed = problem()
    f, g, h, u = fixed.operations
    h = replace(h, variants=(variant(A, B), replace(variant(A, C), written_bytes=11)))
    u = replace(u, variants=(variant(W, C, W2), variant(W2)))
    return replace(fixed, operations=(f, g, h, u), **changes)


TILED: tuple[Step, ...] = (
    Compute(F),
    PageOut(A),
    Free(X),
    Compute(G),
    PageOut(B),
    Free(B),
    Compute(H, variant=0),
    Free(A),
    PageOut(C),
    Compute(U, variant=0),
)


def without_tiled(index: int) -> tuple[Step, ...]:
    return (*TILED[:index], *TILED[index + 1 :])


def test_variants_are_counted() -> None:
    report = replay(streaming(), TILED)
    # The copy of a that stays in RAM takes its room beside c and the workspace of h, 8 and 3 bytes.
    assert report.bytes_at_step == (20, 20, 20, 54, 48, 48, 27, 24, 8, 11)
    assert report.energy_nj == 1 + 2 + 90 + 90 + 3 * 50
    assert (report.busy_ns, report.bus_ns, report.makespan_ns) == (40, 23, 63)
    assert (report.page_ins, report.page_outs, report.page_out_bytes) == (0, 3, 56)
    assert (report.streamed_in_bytes, report.streamed_out_bytes) == (14, 0)
    assert report.storage_bytes == 8 + 16 + 32 + 8 + 8
    replay(streaming(ram_bytes=54, storage_bytes=72, deadline_ns=63), TILED)


def test_a_streamed_result_is_on_storage_only() -> None:
    steps = (*TILED[:6], PageIn(B), Compute(H, variant=1), Free(A), Free(B), *TILED[9:], PageIn(C))
    report = replay(streaming(), steps)
    assert report.bytes_at_step[7] == 16 + 32 + 3
    assert (report.streamed_in_bytes, report.streamed_out_bytes) == (14, 11)


def test_variants_occupy_the_bus() -> None:
    report = replay(streaming(dma=True), TILED)
    # f 0-10; page-out a 10-15 beside g 10-30; page-out b 30-35, for which its free waits; h 35-44;
    # page-out c 44-49 and u, which waits for it, 49-58.
    assert report.makespan_ns == 58
    steps = (*TILED[:6], Compute(H, variant=0), PageOut(C), Free(A), Compute(U, variant=0))
    assert replay(streaming(dma=True), steps).makespan_ns == 58
    # Two page-outs under way, of which h waits for both: 10-15-20 beside g; h 30-39. What is paged
    # in meanwhile waits for h.
    resident = (*TILED[:5], PageIn(W), Compute(H, variant=0), Free(A), Free(B))
    tail = (Compute(U, ((W2, W),)), PageOut(W2), Free(W2))
    # g -30, b -35, w -38; h 38-47; u 47-127; w2 -132.
    assert replay(streaming(dma=True), (*resident, *tail)).makespan_ns == 132
    late = (*TILED[:5], Compute(H, variant=0), PageIn(W), Free(A), Free(B))
    # h 35-44; w 44-47; u 47-127; w2 -132.
    assert replay(streaming(dma=True), (*late, *tail)).makespan_ns == 132


def test_a_variant_that_streams_nothing_leaves_the_bus() -> None:
    tensors = (Tensor("a", 1, start=Place.STORAGE, pagein_time_ns=10),)
    slow = Variant(frozenset(), 0, time_ns=4, bus_ns=0, energy_nj=0)
    one = Problem(
        (Operation("f", (), (), 1, 0, variants=(slow,)), Operation("g", (0,), (), 1, 0)),
        tensors,
        dma=True,
    )
    steps = (PageIn(0), Compute(0, variant=0), Compute(1), Free(0))
    assert replay(one, steps).makespan_ns == 11


def test_a_streamed_new_value_leaves_the_old_one_in_ram() -> None:
    steps = (*TILED[:9], PageIn(W), Compute(U, variant=1), Free(W))
    assert replay(streaming(), steps).bytes_at_step[9:] == (16, 19, 16)
    with pytest.raises(ScheduleError, match="tensor w is never freed"):
        replay(streaming(), steps[:-1])


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (without_tiled(1), "step 5: operation h streams tensor a, not on storage"),
        (without_tiled(8), "step 8: operation u streams tensor c, not on storage"),
        ((*TILED[:6], Compute(H, variant=2)), "step 6: operation h has no variant 2"),
        ((*TILED[:6], Compute(H, variant=-1)), "step 6: operation h has no variant -1"),
        (
            (*TILED[:6], Compute(H, variant=1)),
            "step 6: operation h reads tensor b, which is not in RAM",
        ),
        (
            (*TILED[:7], Compute(H, variant=0)),
            "step 7: operation h makes tensor c, already in RAM",
        ),
        (
            (*TILED[:7], PageIn(B), Compute(H, variant=1)),
            "step 8: operation h makes tensor c, already in RAM",
        ),
        (
            (*TILED[:9], Free(C), PageIn(B), Compute(H, variant=1)),
            "step 11: operation h streams tensor c, on storage already",
        ),
        (
            (*TILED[:6], Compute(H, ((C, A),), variant=0)),
            "step 6: operation h streams tensor c or tensor a, which share a buffer",
        ),
        (
            (*TILED[:6], PageIn(B), Compute(H, ((C, B),), variant=1)),
            "step 7: operation h streams tensor c or tensor b, which share a buffer",
        ),
        (
            (*TILED[:9], PageIn(W), Compute(U, ((W2, W),), variant=1)),
            "step 10: operation u streams tensor w2 or tensor w, which share a buffer",
        ),
        ((*TILED, Free(W2)), "step 10: free of tensor w2, which is not in RAM"),
        ((*TILED, PageIn(W)), "step 10: page-in of tensor w, which tensor w2 replaced"),
        (
            (*TILED, Compute(U, variant=0)),
            "step 10: operation u reads tensor w, which tensor w2 replaced",
        ),
    ],
)
def test_broken_variants(steps: tuple[Step, ...], message: str) -> None:
    with pytest.raises(ScheduleError) as error:
        replay(streaming(), steps)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ram_bytes": 53}, "step 3: operation g needs 54 bytes of RAM, 53 are available"),
        (
            {"storage_bytes": 71},
            "step 9: operation u, which streams tensor w2, uses 72 of 71 bytes of storage",
        ),
    ],
)
def test_broken_limits_of_variants(changes: dict, message: str) -> None:
    with pytest.raises(ScheduleError) as error:
        replay(streaming(**changes), TILED)
    assert str(error.value) == message


def test_workspace_of_a_variant_counts() -> None:
    steps = (
        *TILED[:6],
        Compute(H, variant=0),
        Free(A),
        PageOut(C),
        PageIn(W),
        Compute(U, variant=1),
    )
    # u reads w and c in RAM, with 3 bytes of slices.
    assert replay(streaming(), (*steps, Free(W))).bytes_at_step[10] == 8 + 8 + 3


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        (Variant(frozenset(), 0, 3, 4, 0), "operation u, variant 0: bus_ns is more than time_ns"),
        (
            Variant(frozenset(), -1, 3, 1, 0),
            "operation u, variant 0: workspace_bytes is negative",
        ),
        (
            Variant(frozenset((A,)), 0, 3, 1, 0),
            "operation u, variant 0 streams tensor 2, neither input nor output",
        ),
        (
            Variant(frozenset((9,)), 0, 3, 1, 0),
            "operation u, variant 0 streams tensor 9, neither input nor output",
        ),
        (
            Variant(frozenset((W,)), 0, 3, 1, 0),
            "operation u, variant 0 makes w2 in place of a tensor that it streams",
        ),
        (
            Variant(frozenset((C,)), 0, 3, 1, 0),
            "operation u, variant 0 streams c, which may not be paged",
        ),
    ],
)
def test_contradictory_variants(variant: Variant, message: str) -> None:
    fixed = problem()
    tensors = list(fixed.tensors)
    tensors[C] = replace(tensors[C], pageable=False)
    operations = (*fixed.operations[:3], replace(fixed.operations[U], variants=(variant,)))
    with pytest.raises(ProblemError) as error:
        replace(fixed, tensors=tuple(tensors), operations=operations)
    assert str(error.value) == message
