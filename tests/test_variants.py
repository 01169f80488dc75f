"""Tiles of kernels against counting what each tile touches, and against trying all of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations, product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_harness import Case, elements_touched, lower
from test_kernels_bodies import random_case
from test_kernels_ops import (
    Rng,
    conv_case,
    dot_case,
    floats,
    ints,
    limited,
    movement_case,
    reduce_case,
    scalar,
    window_case,
)
from xdsl.dialects import affine, func, memref
from xdsl.ir import BlockArgument, Operation

from poetc.costmodel.device import load_device
from poetc.costmodel.slices import Rates, SliceCosts, slice_costs
from poetc.errors import InputError
from poetc.ir import stablehlo as hlo
from poetc.ir.stablehlo_attributes import ConvDims, GatherDims
from poetc.ir.text import parse_module
from poetc.kernels.distribute import distribute
from poetc.kernels.tiles import nest_loops, tile
from poetc.planning.tile_search import KernelTiles
from poetc.variants.bounds import product_bytes
from poetc.variants.nests import Nest, Stream, nest_model, streamed_buffers
from poetc.variants.tiling import IMPOSSIBLE_BYTES, NestSearch

COSTS = slice_costs(load_device("nrf52840"))
WRITES = SliceCosts(Rates(0.0, 0.0), Rates(1.0, 0.0), 1, 1.0)
"""How many writes there are: whatever its size, one clears a page."""

MOST_ITERATIONS = 3000


def slice_of(
    stream: Stream, sizes: Sequence[int], ranges: Sequence[tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    """First and last index + 1, along each dimension, of the slice of one tile.

    `sizes` are the iterations in a tile of each loop of the nest, `ranges` first and last iteration
    + 1 of this tile. Rows that are read by position are not known: InputError.
    """
    found: list[tuple[int, int]] = []
    for dim in stream.dims:
        if dim.rows:
            raise InputError("which rows a slice has is in memory")
        reach = dim.high - dim.low + 1 + sum(abs(c) * (sizes[loop] - 1) for loop, c in dim.terms)
        if reach >= dim.extent:
            found.append((0, dim.extent))
            continue
        ends = [(c * ranges[loop][0], c * (ranges[loop][1] - 1)) for loop, c in dim.terms]
        low = dim.low + sum(map(min, ends))
        high = dim.high + sum(map(max, ends)) + 1
        found.append((min(max(low, 0), dim.extent), max(min(high, dim.extent), 0)))
    return tuple(found)


def models(kernel: func.FuncOp) -> Iterator[tuple[func.FuncOp, Nest]]:
    """The models of a kernel as a whole, if its loops are in one, and of each of its nests."""
    for function in (kernel, *nests(kernel)):
        if (model := nest_model(function)) is not None:
            yield function, model


def nests(kernel: func.FuncOp) -> list[func.FuncOp]:
    """Nests that run one after the other."""
    return [nest.function for nest in distribute(kernel).nests]


Box = tuple[tuple[int, int], ...]


def touched(access: Operation, ranges: Mapping[BlockArgument, tuple[int, int]]) -> Box | None:
    """First and last index along each dimension that an access touches."""
    elements = touched_elements(access, ranges)
    if not elements:
        return None
    return tuple((min(along), max(along) + 1) for along in zip(*elements, strict=True))


def touched_elements(
    access: Operation, ranges: Mapping[BlockArgument, tuple[int, int]]
) -> set[tuple[int, ...]]:
    """What an access touches while the loops given run over these ranges and all others from end
    to end."""
    assert isinstance(access, affine.LoadOp | affine.StoreOp)
    return set(map(tuple, elements_touched(access, ranges).T.tolist()))


def joined(boxes: list[Box]) -> Box:
    """The least box around all of them."""
    along = (list(zip(*dim, strict=True)) for dim in zip(*boxes, strict=True))
    return tuple((min(low), max(high)) for low, high in along)


def volume(box: Box | None) -> int:
    return 0 if box is None else int(np.prod([hi - lo for lo, hi in box]))


def written_in(boxes: list[Box], shape: Sequence[int]) -> int:
    """How many writes of adjacent bytes these slices of a tensor are, and of clearing it: one where
    they do not go from its first to its last byte."""
    numbers = np.arange(prod(shape)).reshape(shape)
    each = [numbers[tuple(slice(*along) for along in box)].reshape(-1) for box in boxes]
    runs = sum(1 + int((np.diff(own) > 1).sum()) for own in each if own.size)
    return runs + bool((np.diff(np.concatenate(each)) < 0).any())


class Run:
    """A nest run tile by tile."""

    def __init__(
        self, function: func.FuncOp, nest: Nest, tiles: tuple[int, ...], order: tuple[int, ...]
    ) -> None:
        loops = [op for op in function.walk() if isinstance(op, affine.ForOp)]
        self.nest, self.order, self.sizes = nest, order, tiles
        self.variables = [loops[loop.number].body.block.args[0] for loop in nest.loops]
        self.ranges = [
            [(s, min(s + t, loop.extent)) for s in range(0, loop.extent, t)]
            for loop, t in zip(nest.loops, tiles, strict=True)
        ]
        self.tiles = [
            dict(zip(order, at, strict=True))
            for at in product(*(range(len(self.ranges[loop])) for loop in order))
        ]

    def slices(self, stream: Stream) -> list[tuple[Box, Box | None]]:
        """Of each tile the slice, and what is touched."""
        found: list[tuple[Box, Box | None]] = []
        for at in self.tiles:
            ranges = [self.ranges[n][at[n]] for n in range(len(self.variables))]
            here = dict(zip(self.variables, ranges, strict=True))
            each = [box for a in stream.accesses if (box := touched(a, here)) is not None]
            found.append((slice_of(stream, self.sizes, ranges), joined(each) if each else None))
        return found

    def moved(self, stream: Stream) -> list[Box]:
        """The slices that are moved, in turn, if that is whenever a loop has advanced that a slice
        depends on."""
        boxes = {
            tuple(at[n] for n in range(len(self.variables))): box
            for at, (box, _) in zip(self.tiles, self.slices(stream), strict=True)
        }
        depends = [
            n
            for n in range(len(self.variables))
            if any(box != boxes[(*at[:n], 0, *at[n + 1 :])] for at, box in boxes.items())
        ]
        found, last = [], None
        for at in self.tiles:
            if any(at[n] for n in at if n not in stream.needed_in and n not in depends):
                continue  # it is there from the first one, or done at the last one only
            here = tuple(at[n] for n in depends)
            if here != last:
                found.append(boxes[tuple(at[n] for n in range(len(self.variables)))])
                last = here
        return found

    def fills(self, stream: Stream) -> bool:
        """Whether the tiles store all of their slices, and each element in one tile only."""
        once: set[tuple[int, ...]] = set()
        for at in self.tiles:
            if any(at[n] for n in at if n not in stream.needed_in):
                continue
            ranges = [self.ranges[n][at[n]] for n in range(len(self.variables))]
            here = dict(zip(self.variables, ranges, strict=True))
            elements = {e for access in stream.accesses for e in touched_elements(access, here)}
            box = slice_of(stream, self.sizes, ranges)
            if len(elements) != volume(box) or not once.isdisjoint(elements):
                return False
            once |= elements
        return True

    def unfinished(self) -> list[tuple[int, int, int]]:
        """Of a sum, and of each of its terms that is one: the bytes that it carries, how many of
        them wait at most, those of the tile that runs counted, and of how many tiles of the
        parallel loops these are."""
        found: list[tuple[int, int, int]] = []
        carried = 0
        for size in sorted({loop.resumed_bytes for loop in self.nest.loops} - {0}):
            within = [n for n, loop in enumerate(self.nest.loops) if loop.resumed_bytes >= size]
            # Each run of these loops, for each iteration of those around, is a sum of its own.
            others = [n for n in range(len(self.nest.loops)) if n not in within]
            seen: dict[tuple[int, ...], list[int]] = {}
            for step, at in enumerate(self.tiles):
                seen.setdefault(tuple(at[n] for n in others), []).append(step)
            most = tiles = 0
            for step in range(len(self.tiles)):
                running = [
                    at
                    for at, steps in seen.items()
                    if len(steps) > 1 and steps[0] <= step <= steps[-1]
                ]
                sums = 0
                for at in running:
                    sizes = [
                        self.ranges[n][k][1] - self.ranges[n][k][0]
                        for n, k in zip(others, at, strict=True)
                        if n < self.nest.parallel
                    ]
                    sums += int(np.prod(sizes))
                most, tiles = max(most, sums), max(tiles, len(running))
            found.append((size - carried, most, tiles))
            carried = size
        return found


def random_tiling(rng: Rng, search: NestSearch) -> tuple[tuple[int, ...], tuple[int, ...]]:
    nest = search.nest
    tiles = [int(rng.choice(own)) for own in search.sizes]
    sums = range(nest.parallel, len(tiles))
    if sums:
        at = int(rng.choice(sums))
        for loop in sums:
            if loop < at:
                tiles[loop] = 1
            elif loop > at:
                tiles[loop] = search.sizes[loop][-1]
    return tuple(tiles), search.orders[int(rng.integers(len(search.orders)))]


def small(nest: Nest) -> bool:
    return 0 < prod(loop.extent for loop in nest.loops) <= MOST_ITERATIONS


def assert_counts(kernel: func.FuncOp, rng: Rng, exact: bool = False) -> tuple[int, int]:
    """Random tilings of each nest: what tiles touch is in their slices, and what is moved and kept
    is what the search says. How many slices there were, and how many are touched to both ends."""
    slices = tight = 0
    for function, nest in models(kernel):
        if not small(nest) or any(dim.rows for s in nest.streams for dim in s.dims):
            continue
        tiles, order = random_tiling(rng, NestSearch(nest, COSTS))
        tiled = NestSearch(nest, COSTS, orders=[order]).weigh(tiles)
        run = Run(function, nest, tiles, order)
        moved = {True: 0, False: 0}
        ram = writes = 0
        if tiled.ram_bytes >= IMPOSSIBLE_BYTES:
            assert any(s.stored and not run.fills(s) for s in nest.streams)
            continue
        for stream in nest.streams:
            assert not stream.stored or run.fills(stream)
            found = run.slices(stream)
            for box, inner in found:
                slices += 1
                tight += box == inner
                assert inner is None or joined([box, inner]) == box
            slices_moved = run.moved(stream)
            moved[stream.stored] += sum(map(volume, slices_moved)) * stream.element_bytes
            if stream.stored:
                writes += written_in(slices_moved, [dim.extent for dim in stream.dims])
            ram += -(-max(volume(box) for box, _ in found) * stream.element_bytes // 4) * 4
        assert moved == {False: tiled.read_bytes, True: tiled.written_bytes}
        assert NestSearch(nest, WRITES, orders=[order]).weigh(tiles).write_ns == writes
        in_result = nest.sum_in_result
        for carried_bytes, sums, in_tiles in run.unfinished():
            ram += sums * (carried_bytes - (in_result if in_tiles == 1 else 0))
            in_result = 0
        # A slice at an edge has its place as if it were not cut off.
        assert tiled.ram_bytes == ram or (not exact and tiled.ram_bytes > ram)
        assert tiled.steps == len(run.tiles)
    return slices, tight


EXACT = (dot_case, reduce_case)
"""What tiles of these kernels touch are whole slices; others leave out holes and padding."""


@pytest.mark.parametrize(
    "make",
    [*EXACT, random_case, conv_case, window_case, movement_case],
    ids=lambda make: make.__name__,
)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_tiles_move_what_the_search_says(make, seed):
    rng = np.random.default_rng(seed)
    slices, tight = assert_counts(lower(make(rng).block), rng, make in EXACT)
    assert tight == slices or make not in EXACT


def test_slices_of_a_padded_convolution_are_exact():
    rng = np.random.default_rng(3)
    case = Case.of(
        lambda x, w: hlo.ConvolutionOp(x, w, ConvDims.nhwc(), (2, 1), ((1, 1), (2, 2))),
        floats(rng, 1, 9, 6, 2),
        floats(rng, 3, 3, 2, 4),
    )
    function = lower(case.block)
    for _ in range(6):
        slices, tight = assert_counts(function, rng)
        # Of tiles of one window position that is in the padding nothing is touched.
        assert 2 * tight > slices > 0


@pytest.mark.parametrize("make", [dot_case, conv_case, reduce_case, movement_case])
def test_the_best_tiling_is_near_the_best_of_all(make):
    rng = np.random.default_rng(0)
    kernels = [lower(case.block) for case in limited(make, 23, 12)]
    kernels += [lower(make(rng).block) for _ in range(6)]
    for _, nest in (model for kernel in kernels for model in models(kernel)):
        loops = range(len(nest.loops))
        extents = [loop.extent for loop in nest.loops]
        if not small(nest) or np.prod(extents[: nest.parallel]) > 600 or len(extents) > 5:
            continue
        orders = [
            order
            for order in permutations(loops)
            if (sums := [loop for loop in order if loop >= nest.parallel]) == sorted(sums)
        ]
        every = [tuple(range(1, extent + 1)) for extent in extents]
        search = NestSearch(nest, COSTS, most=200)
        for limit in (600, 1000, 2000, 100_000):
            best = NestSearch(nest, COSTS, sizes=every, orders=orders, most=1 << 30).front(limit)
            found = search.front(limit)
            assert bool(found) == bool(best)
            if best:
                assert found[-1].transfer_ns <= 1.1 * best[-1].transfer_ns


def test_nothing_is_left_out():
    rng = np.random.default_rng(5)
    for _ in range(40):
        for function, model in models(lower(random_case(rng).block)):
            arguments = function.body.block.args[: len(streamed_buffers(function))]
            expected = {
                op
                for op in function.walk()
                if isinstance(op, affine.LoadOp | affine.StoreOp | memref.LoadOp)
                and op.memref in arguments
            }
            assert {a for s in model.streams for a in s.accesses} == expected


def test_softmax_in_turn_or_together():
    """Rows of maximum, sum and elements: for each row, or for all rows one after the other."""
    rng = np.random.default_rng(0)

    def softmax(x):
        top = hlo.ReduceOp(x, scalar(-np.inf), (1,), "maximum")
        top = hlo.BroadcastInDimOp(top, (0,), (8, 100))
        powers = hlo.ExponentialOp(hlo.SubtractOp(x, top))
        total = hlo.ReduceOp(powers, scalar(0.0), (1,), "add")
        total = hlo.BroadcastInDimOp(total, (0,), (8, 100))
        return hlo.DivideOp(powers, total)

    (_, together), *in_turn = models(lower(Case.of(softmax, floats(rng, 8, 100)).block))
    extents = [[loop.extent for loop in nest.loops] for _, nest in in_turn]
    assert extents == [[8, 100], [8, 4, 25], [8, 100]]
    assert [loop.extent for loop in together.loops] == [8]
    best = NestSearch(together, COSTS).front()[-1]
    assert (best.read_bytes, best.written_bytes) == (3200, 3200)
    parts = [NestSearch(nest, COSTS).front()[-1] for _, nest in in_turn]
    of_x = [part.read_bytes for part in parts]
    assert all(3200 <= read_bytes <= 3200 + 2 * 4 * 8 for read_bytes in of_x)


def test_rows_are_read_by_their_index():
    rng = np.random.default_rng(0)
    dnums = GatherDims((1,), (0,), (), (), (0,), 1)
    case = Case.of(
        lambda x, i: hlo.GatherOp(x, i, dnums, (1, 8)),
        floats(rng, 1000, 8),
        ints(rng, 0, 9, 5, 1),
    )
    nest = nest_model(lower(case.block))
    assert nest is not None
    for tiled in NestSearch(nest, COSTS).front():
        assert tiled.read_bytes == 5 * 8 * 4 + 5 * 4
        assert tiled.written_bytes == 5 * 8 * 4


def test_blocks_and_runs_cost():
    costs = SliceCosts(Rates(100.0, 2.0), Rates(300.0, 3.0), 64, 0.5)
    one, many = np.array([1.0]), np.array([10.0])
    # Whole blocks, a latency for each run.
    assert costs.read_ns(one, np.array([128.0]), np.array([64])) == [100 + 2 * 128]
    assert costs.read_ns(many, np.array([64.0]), np.array([64])) == [10 * (100 + 2 * 64)]
    assert costs.read_ns(one, np.array([1.0]), np.array([64])) == [100 + 2 * 64]
    # 32 bytes from a multiple of 16: of four places one is across the edge of a block.
    assert costs.read_ns(one, np.array([32.0]), np.array([16])) == [100 + 2 * 64 * 5 / 4]
    whole, part = (np.array([128.0]), np.array([64])), (np.array([32.0]), np.array([16]))
    assert costs.write_ns(one, *whole, 128) == [300 + 3 * 128] == costs.append_ns(one, *whole)
    # What is written in part is read before: where the run ends, and where it begins.
    parts_ns = 300 + 3 * 80, 100 + 2 * 64
    assert costs.append_ns(many, *part) == [10 * (parts_ns[0] + parts_ns[1] * 5 / 8)]
    assert costs.energy_nj(np.array([10.0])) == [5]
    assert costs.gap_bytes == 50
    # Blocks that are written in part are written empty before: one for each run that another one
    # follows, or all in turn; but where nothing is before what is there already.
    runs = np.array([1.0, 2.0, 5.0])
    cleared = [costs.write_ns(runs, *whole, n) - costs.append_ns(runs, *whole) for n in (1000, 65)]
    assert cleared[0].tolist() == [0, 300 + 3 * 64, 4 * (300 + 3 * 64)]
    assert cleared[1].tolist() == [0, 300 + 3 * 64, 300 + 3 * 128]


def test_a_result_on_storage_in_one_run_is_written_once():
    rng = np.random.default_rng(2)
    costs = slice_costs(load_device("microbit-cortex-m0"))
    kernel = KernelTiles(lower(Case.of(hlo.ExponentialOp, floats(rng, 64, 64)).block), costs)
    found = [kernel.fastest(frozenset(streamed), 1 << 20) for streamed in ((0, 1), (0,))]
    on_storage, in_ram = found
    assert on_storage is not None and in_ram is not None
    one, size = np.array([1.0]), 4 * 64 * 64
    (once,) = costs.append_ns(one, np.array([float(size)]), np.array([costs.block_bytes]))
    more_ns = on_storage.transfer_ns - in_ram.transfer_ns
    assert more_ns == pytest.approx(once, rel=1e-6)
    assert on_storage.written_bytes == size and in_ram.written_bytes == 0


@pytest.mark.parametrize("streamed", range(3))
def test_where_a_buffer_fits_tiles_are_not_made_for_it(streamed: int) -> None:
    """Tiles of any loops move all of it once, as the kernel does that runs whole."""
    rng = np.random.default_rng(3)

    def biased(x, w, bias):
        out = hlo.ConvolutionOp(x, w, ConvDims.nhwc(), (1, 1), ((1, 1), (1, 1)))
        return hlo.TanhOp(hlo.AddOp(out, hlo.BroadcastInDimOp(bias, (3,), (1, 8, 8, 6))))

    case = Case.of(biased, floats(rng, 1, 8, 8, 2), floats(rng, 3, 3, 2, 6), floats(rng, 6))
    kernel = KernelTiles(lower(case.block), COSTS)
    found = kernel.fastest(frozenset({streamed}), 1 << 20)
    assert found is not None and found.read_bytes == 4 * case.args[streamed].size
    assert [tiled.tiles for loop in found.loops for tiled in loop.tiled] == [()]


def product_search(rng: Rng, m: int, k: int, n: int) -> NestSearch:
    """The search for tiles of a product of matrices."""
    block = Case.of(
        lambda x, w: hlo.DotGeneralOp(x, w, lhs_contract=(1,), rhs_contract=(0,)),
        floats(rng, m, k),
        floats(rng, k, n),
    ).block
    nest = nest_model(lower(block))
    assert nest is not None
    return NestSearch(nest, COSTS)


def test_everything_at_once_moves_everything_once():
    search = product_search(np.random.default_rng(2), 12, 20, 16)
    best = search.front()[-1]
    assert best.read_bytes == 4 * (12 * 20 + 20 * 16) and best.written_bytes == 4 * 12 * 16
    beside = search.front(resident=frozenset({0}))[-1]
    assert (beside.read_bytes, beside.written_bytes) == (4 * 20 * 16, 4 * 12 * 16)


def test_a_product_in_little_ram_moves_what_it_must():
    """At least 2mnk/√S - 2S elements with room for S: Smith, Lowery, Langou and van de Geijn, A
    tight I/O lower bound for matrix multiplication, 2019."""
    search = product_search(np.random.default_rng(2), 40, 30, 20)
    found, once = search.front(), 40 * 30 + 30 * 20 + 40 * 20
    for tiled in found:
        elements = tiled.ram_bytes / 4
        least = 2 * 40 * 30 * 20 / np.sqrt(elements) - 2 * elements
        assert tiled.read_bytes + tiled.written_bytes >= 4 * max(once, least)
        bound = product_bytes(search.nest, {0, 1, 2}, tiled.ram_bytes)
        assert bound == pytest.approx(4 * max(0.0, least), rel=1e-6)
        assert product_bytes(search.nest, {0, 1}, tiled.ram_bytes) == 0
    assert len(found) > 3 and found[0].ram_bytes < 4 * once / 8


@pytest.mark.parametrize("make", [conv_case, dot_case, random_case], ids=lambda make: make.__name__)
def test_no_tiles_move_less_than_the_bound(make):
    """Nor do slices that are whole move more than it, where each tensor is moved once."""
    rng, tight = np.random.default_rng(9), 0
    for _ in range(8):
        kernel = lower(make(rng).block)
        tiles = KernelTiles(kernel, COSTS)
        for way in tiles.front(tiles.streamable, 1 << 20, 4) if tiles.streamable else ():
            least = tiles.least_moved_bytes(tiles.streamable, way.workspace_bytes)
            assert least <= way.read_bytes + way.written_bytes
            tight += least == way.read_bytes + way.written_bytes
    assert tight


def test_devices_without_storage_have_no_tiles():
    with pytest.raises(InputError, match="has no auxiliary storage"):
        slice_costs(replace(load_device("nrf52840"), storage=None))


@pytest.mark.parametrize(
    "make", [dot_case, conv_case, reduce_case, random_case], ids=lambda make: make.__name__
)
def test_tile_functions_are_made_of_what_is_found(make):
    made = 0
    for seed in range(16):
        for part in nests(lower(make(np.random.default_rng(seed)).block)):
            model = nest_model(part)
            if model is None:
                continue
            if [loop.extent for loop in model.loops] != list(nest_loops(part).extents):
                continue  # some loops are kept whole
            places = {loop.number: at for at, loop in enumerate(model.loops)}
            for tiled in NestSearch(model, COSTS).front():
                tiles = [(places[loop], size) for loop, size in tiled.tiles]
                tile(part, "tile", tiles, frozenset(streamed_buffers(part)))
                made += 1
    assert made >= 5


BLOCKED = """
func.func private @blocked(%in0: memref<6x32xf32>, %out0: memref<6xf32>)
    attributes {poet.inputs = 1 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
  %zero = arith.constant 0.0 : f32
  affine.for %i = 0 to 6 {
    %0 = affine.for %b = 0 to 4 iter_args(%all = %zero) -> (f32) {
      %1 = affine.for %r = 0 to 8 iter_args(%part = %zero) -> (f32) {
        %2 = affine.load %in0[%i, %b * 8 + %r] : memref<6x32xf32>
        %3 = arith.addf %part, %2 : f32
        affine.yield %3 : f32
      }
      %4 = arith.addf %all, %1 : f32
      affine.yield %4 : f32
    }
    affine.store %0, %out0[%i] : memref<6xf32>
  }
  func.return
}
"""


def test_a_blocked_sum_keeps_its_total_and_its_part():
    (function,) = parse_module(BLOCKED, "blocked.mlir").ops
    assert isinstance(function, func.FuncOp)
    nest = nest_model(function)
    assert nest is not None
    assert [loop.resumed_bytes for loop in nest.loops] == [0, 4, 8]
    # The total waits in the result; the part, within a block, beside it.
    between, within = (
        NestSearch(nest, COSTS).weigh(tiles).ram_bytes for tiles in ((6, 1, 8), (6, 1, 4))
    )
    assert between == 4 * (6 * 8 + 6)
    assert within == 4 * (6 * 4 + 6 + 6)
