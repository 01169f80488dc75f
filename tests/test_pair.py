"""Two nests in one loop over tiles: the update of a weight, and the gradient of its layer's
input."""

from collections import Counter
from collections.abc import Iterator
from itertools import product
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kernel_harness import same_bits
from numpy.random import Generator
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue

from poetc.costmodel.device import load_device
from poetc.costmodel.slices import slice_costs
from poetc.errors import InputError, UnscheduledError
from poetc.interpreter import run_graph
from poetc.ir.graph import graphs
from poetc.ir.loops import loops_around
from poetc.ir.poet import (
    ComputeOp,
    CostAttr,
    PageType,
    SliceInOp,
    StreamOp,
    TileOp,
    tile_starts,
)
from poetc.ir.symbols import named_in
from poetc.ir.text import make_context, parse_module
from poetc.kernels.analysis import buffer_bytes
from poetc.kernels.distribute import distribute
from poetc.passes.poet_pair import PoetPairPass
from poetc.passes.poet_stream import PoetStreamPass
from poetc.passes.poet_verify import verify_graph
from poetc.pipeline import front_passes, run_passes
from poetc.planning.memory import plan_graph_memory
from poetc.planning.pairs import join, pairs
from poetc.planning.tile_loops import stream_of
from poetc.planning.tile_search import KernelTiles
from poetc.planning.tile_search import pairs as nest_pairs

DEVICE = load_device("nrf52840")


LAYERS = ("dense", "flat", "convolution")


def random_step(rng: Generator, layer: str) -> tuple[str, list[np.ndarray]]:
    """The text of the backward pass of a dense layer, of one whose input is flat only there, or of
    a convolution, with the update of its weight, and arguments."""
    if layer == "dense":
        x, w = (int(rng.integers(1, 3)), int(rng.integers(20, 60))), int(rng.integers(10, 40))
        shapes, forward = [x, (x[1], w)], lambda x, w: x @ w
    elif layer == "flat":
        x = (1, *(int(n) for n in rng.integers(3, 6, 3)))
        shapes = [x, (prod(x), int(rng.integers(10, 40)))]
        forward = lambda x, w: x.reshape(1, -1) @ w  # noqa: E731
    else:
        size, taps = int(rng.integers(2, 5)), int(rng.integers(1, 4))
        groups = int(rng.integers(1, 3))
        ins, outs = groups * int(rng.integers(4, 10)), groups * int(rng.integers(4, 10))
        stride = int(rng.integers(1, 3))
        shapes = [(1, size, size, ins), (taps, taps, ins // groups, outs)]

        def forward(x, w):
            return jax.lax.conv_general_dilated(
                x,
                w,
                (stride, stride),
                "SAME",
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
                feature_group_count=groups,
            )

    masked = bool(rng.integers(2))

    def step(w, x, dy):
        _, back = jax.vjp(forward, x, w)
        dx, dw = back(dy)
        return w - jnp.float32(0.1) * dw, jnp.where(x > 0, dx, 0) if masked else dx

    dy = jax.eval_shape(forward, *(jax.ShapeDtypeStruct(s, np.float32) for s in shapes)).shape
    types = [jax.ShapeDtypeStruct(s, np.float32) for s in (shapes[1], shapes[0], dy)]
    text = jax.jit(step, donate_argnums=0).lower(*types).as_text()
    return text, [rng.normal(size=t.shape).astype(np.float32) for t in types]


def paired(text: str, arrange: bool) -> ModuleOp:
    """The step with costs, whose one weight is read and updated by one kernel."""
    module = parse_module(text, "random.mlir")
    passes = front_passes(module, "nrf52840", DEVICE, arrange=arrange, tiles=True)
    names = [one.name for one in passes]
    at = names.index("poet-lower-kernels")
    run_passes(make_context(), module, passes[:at], lambda *_: None)
    (graph,) = graphs(module)
    # As if there were no room for it.
    weight = next(a for i, a in enumerate(graph.arguments) if graph.updates(i) is not None)
    readers = len({use.operation for use in weight.uses})
    found = [join(*pair) for pair in pairs(graph, lambda parameter, beside: True)]
    assert len(found) == (readers > 1)
    run_passes(make_context(), module, passes[at:], lambda *_: None)
    return module


def joint_loops(stream: StreamOp) -> list[list[TileOp]]:
    """The tiles of each loop of a stream in which two functions run."""
    found: dict[object, list[TileOp]] = {}
    for op in stream.tiles.block.walk():
        if isinstance(op, TileOp):
            found.setdefault(op.parent_block(), []).append(op)
    return [tiles for tiles in found.values() if len(tiles) > 1]


@pytest.mark.slow
def test_random_steps_keep_their_bits() -> None:
    joint: Counter[str] = Counter()
    for seed, layer in product(range(2), LAYERS):
        rng = np.random.default_rng(seed)
        text, arguments = random_step(rng, layer)
        module = paired(text, arrange=bool(seed % 2))
        expected = run_graph(module.clone(), arguments)
        beside_bytes = sum(a.nbytes for a in arguments[1:]) + arguments[1].nbytes
        ram_bytes = int(beside_bytes + arguments[0].nbytes * rng.uniform(0.1, 0.9)) // 4 * 4
        try:
            PoetStreamPass(ram_bytes, block=64).apply(make_context(), module)
        except UnscheduledError:
            continue
        (graph,) = graphs(module)
        plan_graph_memory(graph)
        module.verify()
        verify_graph(graph)
        run = run_graph(graph, arguments, ram_bytes, arena=True)
        for result, other in zip(run.results, expected.results, strict=True):
            assert same_bits(result, other)
        streams = [op for op in graph.block.ops if isinstance(op, StreamOp)]
        joint[layer] += sum(len(joint_loops(stream)) for stream in streams)
    assert all(joint[layer] for layer in LAYERS), joint


def moved(stream: StreamOp) -> tuple[int, int]:
    """Bytes that a stream reads and writes, slice by slice, as far as they are in the tensor."""
    read = written = 0
    for op in stream.tiles.block.walk():
        for starts, shape, whole in slices(op):
            count = prod(
                max(0, min(start + size, extent) - max(start, 0))
                for start, size, extent in zip(starts, shape, whole, strict=True)
            )
            if isinstance(op, SliceInOp):
                read += 4 * count
            else:
                written += 4 * count
    return read, written


def slices(op) -> Iterator[tuple[list[int], tuple[int, ...], tuple[int, ...]]]:
    """Where each slice of an operation begins, its shape, and that of its tensor."""
    if not hasattr(op, "starts"):
        return
    loops = loops_around(op)
    for point in np.ndindex(*(len(tile_starts(loop)) for loop in loops)):
        values = {
            loop.body.block.args[0]: tile_starts(loop)[n]
            for loop, n in zip(loops, point, strict=True)
        }
        positions = [values[position] for position in op.positions]
        begin = op.starts.data
        split = positions[: begin.num_dims], positions[begin.num_dims :]
        starts = [int(expr.eval(*split)) for expr in begin.results]
        yield starts, op.buffer.type.get_shape(), tuple(op.extents())


def page(type_: Attribute) -> SSAValue:
    """A tensor on storage."""
    assert isinstance(type_, TensorType)
    return ComputeOp("page", [], [PageType(type_)]).results[0]


def test_slices_that_both_read_are_moved_once() -> None:
    """What the search says that a loop of both moves is what its slices are."""
    joint: Counter[str] = Counter()
    for seed, layer in product(range(3), LAYERS):
        rng = np.random.default_rng(seed)
        text, _ = random_step(rng, layer)
        module = paired(text, arrange=False)
        (graph,) = graphs(module)
        weights = [a for i, a in enumerate(graph.arguments) if graph.updates(i) is not None]
        functions = named_in(module, FuncOp)
        for compute in graph.computes:
            assert isinstance(compute, ComputeOp) and compute.kernel is not None
            kernel = functions[compute.kernel.string_value()].clone()
            tiles = KernelTiles(kernel, slice_costs(DEVICE))
            sizes = [buffer_bytes(buffer) for buffer in kernel.body.block.args]
            updated = {at for at, value in enumerate(compute.operands) if value in weights}
            updated.add(len(compute.operands) + len(compute.results) - 1)
            way = tiles.fastest(frozenset(updated), int(sum(sizes) * rng.uniform(0.1, 0.6)))
            if way is None:
                continue
            values = [
                page(value.type) if n in way.streamed else value
                for n, value in enumerate(compute.operands)
            ]
            names = [[f"t{n}" for n, _ in enumerate(loop.tiled)] for loop in way.loops]
            stream = stream_of(compute, way, names, values, CostAttr(0))
            found = moved(stream)
            both = joint_loops(stream)
            if both:
                assert found == (way.read_bytes, way.written_bytes)
            for own in both:
                shared = set(own[0].buffers) & set(own[1].buffers)
                assert any(isinstance(buffer.owner, SliceInOp) for buffer in shared)
                joint[layer] += 1
    assert all(joint[layer] for layer in LAYERS), joint


@pytest.mark.parametrize(
    ("other", "found"), [("%a[%j * -1 + 3]", [((0, 1), 1, {0})]), ("%y[%j * -1 + 3]", [])]
)
def test_nests_that_need_each_other_are_no_pair(other: str, found: list[object]) -> None:
    """The second nest reads what the first one reads, or also what it makes, in another order."""
    module = parse_module(
        f"""
        func.func private @k(%a: memref<4xf32>, %y: memref<4xf32>, %z: memref<4xf32>)
        attributes {{poet.inputs = 1 : i64, poet.results = 2 : i64, poet.workspace = 0 : i64}} {{
          affine.for %i = 0 to 4 {{
            %0 = affine.load %a[%i] : memref<4xf32>
            affine.store %0, %y[%i] : memref<4xf32>
          }}
          affine.for %j = 0 to 4 {{
            %1 = affine.load %a[%j] : memref<4xf32>
            %2 = affine.load {other} : memref<4xf32>
            %3 = arith.addf %1, %2 : f32
            affine.store %3, %z[%j] : memref<4xf32>
          }}
          func.return
        }}
        """
    )
    both = nest_pairs(distribute(named_in(module, FuncOp)["k"]))
    assert [(pair.nests, pair.at, pair.shared) for pair in both] == found


def test_what_is_lowered_is_refused() -> None:
    text, _ = random_step(np.random.default_rng(0), "dense")
    module = parse_module(text, "random.mlir")
    passes = front_passes(module, "nrf52840", DEVICE)
    run_passes(make_context(), module, passes, lambda *_: None)
    with pytest.raises(InputError, match="poet-pair runs before poet-lower-kernels"):
        PoetPairPass(100).apply(make_context(), module)
