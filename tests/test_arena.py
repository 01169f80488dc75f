"""Arena packing against known answers, exhaustive search and an independent validator."""

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.arena_instances import CAPACITY_BYTES, perfect
from poetc.schedule.arena.check import ArenaError, check_packing
from poetc.schedule.arena.pack import EFFORT, Buffer, Packing, pack


def checked(
    buffers: list[Buffer], align: int = 4, effort: int = EFFORT, target_bytes: int = 0
) -> Packing:
    packing = pack(buffers, align, effort, target_bytes=target_bytes)
    check_packing(
        [b.bytes for b in buffers],
        [(b.first, b.last) for b in buffers],
        packing.offsets,
        packing.arena_bytes,
        align,
        own_align=[b.align for b in buffers],
    )
    assert packing.bound_bytes <= packing.arena_bytes
    return packing


def live_bytes(buffers: list[Buffer], step: int) -> int:
    return sum(own_bytes(b) for b in buffers if b.first <= step <= b.last)


def fits(buffers: list[Buffer], height: int, placed: tuple[int, ...] = ()) -> bool:
    """Whether some aligned offsets keep `buffers` below `height`: all are tried."""
    if len(placed) == len(buffers):
        return True
    new = buffers[len(placed)]
    meeting = [
        (offset, offset + own_bytes(old))
        for old, offset in zip(buffers, placed, strict=False)
        if old.first <= new.last and new.first <= old.last
    ]
    size = own_bytes(new)
    return any(
        all(offset + size <= begin or offset >= end for begin, end in meeting)
        and fits(buffers, height, (*placed, offset))
        for offset in range(0, height - size + 1, new.align)
    )


def own_bytes(buffer: Buffer) -> int:
    """What a buffer takes: whole multiples of its alignment."""
    return math.ceil(buffer.bytes / buffer.align) * buffer.align


def test_overlapping_in_a_row():
    packing = checked([Buffer(100, 0, 1), Buffer(80, 1, 2), Buffer(60, 2, 3)])
    assert packing.arena_bytes == 180 and packing.optimal


def test_same_lifetime_never_aliases():
    packing = checked([Buffer(8, 0, 5)] * 7)
    assert sorted(packing.offsets) == [8 * i for i in range(7)]


def test_end_to_start_shares():
    packing = checked([Buffer(64, 0, 1), Buffer(64, 2, 3), Buffer(64, 4, 9)])
    assert packing.offsets == (0, 0, 0) and packing.arena_bytes == 64


def test_both_ends_of_a_lifetime_are_included():
    """One that begins at the step in which another ends is alive with it."""
    assert checked([Buffer(64, 0, 1), Buffer(64, 1, 2)]).arena_bytes == 128


@pytest.mark.parametrize("align", [1, 4, 8, 64, 512])
def test_offsets_are_aligned_and_one_byte_less_is_caught(align: int):
    buffers = [Buffer(100, 0, 1), Buffer(81, 1, 2), Buffer(63, 2, 3), Buffer(7, 1, 3)]
    packing = checked(buffers, align)
    assert all(offset % align == 0 for offset in packing.offsets)
    sizes = [b.bytes for b in buffers]
    lifetimes = [(b.first, b.last) for b in buffers]
    top = max(o + b for o, b in zip(packing.offsets, sizes, strict=True))
    assert packing.arena_bytes - align < top <= packing.arena_bytes
    check_packing(sizes, lifetimes, packing.offsets, top, align)
    with pytest.raises(ArenaError, match=f"ends at {top}, outside {top - 1} bytes"):
        check_packing(sizes, lifetimes, packing.offsets, top - 1, align)


@pytest.mark.parametrize("spirals", [0.0, 0.3])
@pytest.mark.parametrize("count", [150, 300, 450])
def test_perfect_packings_are_found(count: int, spirals: float):
    buffers = perfect(1, count, steps=1024, unit_bytes=1024, spirals=spirals)
    assert count <= len(buffers) < count + 5
    assert {live_bytes(buffers, t) for t in range(1024)} == {CAPACITY_BYTES}
    assert checked(buffers).arena_bytes == CAPACITY_BYTES


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(5, 60), st.integers(4, 40), st.floats(0, 0.5))
def test_small_perfect_packings_are_found(seed: int, count: int, steps: int, spirals: float):
    buffers = perfect(seed, count, steps=steps, spirals=spirals)
    assert checked(buffers).arena_bytes == CAPACITY_BYTES


def test_nothing_and_empty_buffers():
    assert pack([]) == Packing((), 0, 0)
    assert checked([Buffer(0, 0, 9), Buffer(4, 3, 3)]).arena_bytes == 4


def test_whole_step_buffers_lie_at_the_bottom():
    packing = checked([Buffer(10, 3, 4), Buffer(6, 0, 9), Buffer(4, 1, 2), Buffer(2, 0, 9)])
    assert packing.offsets == (12, 0, 12, 8)


def test_alignment_rounds_sizes():
    packing = checked([Buffer(1, 0, 1), Buffer(1, 0, 1), Buffer(3, 1, 1)], align=16)
    assert sorted(packing.offsets) == [0, 16, 32] and packing.arena_bytes == 48
    assert checked([Buffer(5, 0, 0), Buffer(3, 0, 0)], align=1).arena_bytes == 8
    for align in (0, 3):
        with pytest.raises(ValueError):
            pack([], align=align)
        with pytest.raises(ValueError):
            Buffer(4, 0, 0, align)


def test_a_buffer_with_an_alignment_shares_its_lines_with_nobody():
    packing = checked([Buffer(4, 0, 2), Buffer(40, 0, 1, 32), Buffer(4, 1, 2)])
    assert packing.offsets[1] % 32 == 0 and packing.arena_bytes == 64 + 8
    sizes, lifetimes = [4, 40], [(0, 1), (1, 2)]
    check_packing(sizes, lifetimes, [40, 0], 44, 4)
    check_packing(sizes, lifetimes, [64, 0], 68, 4, own_align=[1, 32])
    for offsets, arena, message in (
        ([40, 0], 68, "overlap while both are alive"),
        ([0, 16], 80, "at 16, which is not a multiple of 32"),
        ([0, 32], 72, "ends at 96, outside 72"),
    ):
        with pytest.raises(ArenaError, match=message):
            check_packing(sizes, lifetimes, offsets, arena, 4, own_align=[1, 32])


def test_no_buffer_lies_at_the_bottom_where_that_lifts_others():
    """A small buffer that is always alive is best on top of those that must be aligned."""
    packing = checked([Buffer(4, 0, 3), Buffer(32, 0, 1, 32), Buffer(32, 2, 3, 32)])
    assert packing.offsets == (32, 0, 0) and packing.arena_bytes == packing.bound_bytes == 36


def test_optimum_above_the_peak_is_proven():
    table = [(3, 3, 7), (1, 0, 1), (4, 6, 6), (3, 3, 3), (3, 1, 1)]
    table += [(4, 5, 6), (2, 2, 5), (3, 1, 4), (4, 0, 1), (4, 2, 2)]
    buffers = [Buffer(*row) for row in table]
    buffers.sort(key=lambda b: (-b.bytes, b.first))
    live = [live_bytes(buffers, t) for t in range(8)]
    packing = checked(buffers, align=1)
    assert max(live) == 11 and not fits(buffers, 11)
    assert packing.arena_bytes == packing.bound_bytes == 12


# At most 5 bytes are alive at once; no packing has less than 6.
GAP = ((2, 0, 0), (3, 0, 1), (1, 1, 2), (2, 2, 2), (1, 1, 3), (1, 2, 3), (3, 3, 4), (2, 4, 4))

lifetimes = st.tuples(st.integers(0, 12), st.integers(0, 8))


@st.composite
def buffer_lists(
    draw: st.DrawFn, most: int, sizes: st.SearchStrategy[int], aligns: tuple[int, ...] = (1,)
) -> list[Buffer]:
    rows = draw(st.lists(st.tuples(sizes, lifetimes, st.sampled_from(aligns)), max_size=most))
    return [Buffer(size, first, first + length, align) for size, (first, length), align in rows]


@settings(max_examples=80, deadline=None)
@given(buffer_lists(6, st.integers(0, 9)) | buffer_lists(6, st.integers(0, 9), (1, 2, 4)))
def test_optimal_on_small_problems(buffers: list[Buffer]):
    packing = checked(buffers, align=1)
    assert packing.optimal
    peak = max((live_bytes(buffers, t) for t in range(21)), default=0)
    assert packing.arena_bytes == peak or not fits(buffers, packing.arena_bytes - 1)


@settings(max_examples=30, deadline=None)
@given(buffer_lists(6, st.integers(1, 6), (1, 2, 4)), st.integers(0, 2))
@example([Buffer(*row) for row in GAP], 0)
@example([Buffer(*row) for row in GAP], 1)
def test_a_target_is_reached_whenever_it_can_be(buffers: list[Buffer], more: int):
    target = max((live_bytes(buffers, t) for t in range(21)), default=0) + more
    packing = checked(buffers, align=1, target_bytes=target)
    assert (packing.arena_bytes <= target) == fits(buffers, target)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(20, 60), st.sampled_from([1, 4, 32]))
def test_more_effort_is_never_worse(seed: int, count: int, align: int):
    """Two groups, which share the effort, and sizes that leave holes."""
    rng = random.Random(seed)
    spans = [(rng.randrange(12), rng.randrange(12)) for _ in range(count)]
    buffers = [
        Buffer(rng.randint(1, 99), min(a, b) + shift, max(a, b) + shift, rng.choice((1, align)))
        for a, b in spans
        for shift in (0, 100)
    ]
    efforts = (0, 20_000, 100_000, 200_000, 400_000)
    heights = [checked(buffers, align=1, effort=effort).arena_bytes for effort in efforts]
    assert heights == sorted(heights, reverse=True)


def test_a_search_that_is_stopped_has_a_packing():
    buffers = perfect(2, 200, steps=50, spirals=0.2)
    stopped = pack(buffers, effort=10**12, stop=lambda: True)
    lifetimes = [(b.first, b.last) for b in buffers]
    check_packing([b.bytes for b in buffers], lifetimes, stopped.offsets, stopped.arena_bytes, 4)


@pytest.mark.slow
def test_the_first_packing_that_reaches_the_target_will_do():
    """The lowest heuristic is above the capacity, and a search for exactly that succeeds."""
    buffers = perfect(1, 300, steps=100, spirals=0.2)
    heuristic = checked(buffers, effort=0).arena_bytes
    assert heuristic > CAPACITY_BYTES
    assert checked(buffers, target_bytes=heuristic).arena_bytes <= heuristic
    lower = (heuristic + CAPACITY_BYTES) // 2
    assert checked(buffers, target_bytes=lower).arena_bytes <= lower
    assert checked(buffers).arena_bytes == CAPACITY_BYTES


@settings(max_examples=40, deadline=None)
@given(buffer_lists(60, st.integers(0, 4000), (1, 4, 32)), st.sampled_from([1, 4, 8, 512]))
def test_always_valid(buffers: list[Buffer], align: int):
    packing = checked(buffers, align, effort=20_000)
    assert packing == pack(buffers, align, effort=20_000)


@pytest.mark.parametrize(
    ("offsets", "arena", "message"),
    [
        ((0, 4), 16, "overlap while both are alive"),
        ((0, 8), 12, "outside 12 bytes"),
        ((0, 10), 20, "not a multiple of 4"),
        ((-4, 8), 20, "not a multiple of 4"),
    ],
)
def test_validator_rejects(offsets: tuple[int, ...], arena: int, message: str):
    with pytest.raises(ArenaError, match=message):
        check_packing([8, 8], [(0, 2), (2, 3)], offsets, arena, 4)


def test_validator_sees_through_nesting():
    with pytest.raises(ArenaError, match="inner"):
        check_packing([100, 4], [(0, 9), (4, 4)], [0, 48], 100, 4, ["outer", "inner"])


def is_packing(
    sizes: Sequence[int],
    lifetimes: Sequence[tuple[int, int]],
    offsets: Sequence[int],
    arena_bytes: int,
    align: int,
    own_align: Sequence[int],
) -> bool:
    """Whether no byte is anybody else's at any step, by writing all of them down."""
    taken: set[tuple[int, int]] = set()
    for size, (first, last), offset, own in zip(sizes, lifetimes, offsets, own_align, strict=True):
        whole = next(n for n in range(size, size + own) if n % own == 0)
        if offset not in range(0, arena_bytes - whole + 1, align) or offset % own:
            return False
        mine = {(b, s) for b in range(offset, offset + whole) for s in range(first, last + 1)}
        if mine & taken:
            return False
        taken |= mine
    return True


def test_a_packing_is_refused_where_a_byte_is_taken_twice_and_only_there() -> None:
    rng = random.Random(0)
    seen = {True: 0, False: 0}
    for _ in range(3000):
        count, align, top = rng.randint(1, 3), rng.choice((1, 2, 3, 4)), rng.randint(4, 14)
        sizes = [rng.randint(0, 6) for _ in range(count)]
        lifetimes = [(a, a + rng.randint(0, 2)) for a in (rng.randint(0, 4) for _ in range(count))]
        offsets = [rng.choice((-align, 0, align, 2 * align, rng.randint(0, 8))) for _ in sizes]
        own = rng.choice((None, [rng.choice((1, 1, 2, 4)) for _ in sizes]))
        expected = is_packing(sizes, lifetimes, offsets, top, align, own or [1] * count)
        try:
            check_packing(sizes, lifetimes, offsets, top, align, own_align=own)
            found = True
        except ArenaError as error:
            found = False
            assert "buffer" in str(error)
        assert found == expected, (sizes, lifetimes, offsets, top, align, own)
        seen[found] += 1
    assert min(seen.values()) > 300
    with pytest.raises(ArenaError, match="differ in number"):
        check_packing([4], [(0, 1)], [0, 4], 8, 4)
