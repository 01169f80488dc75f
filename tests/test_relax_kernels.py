"""Kernels of Relax as `poetc.tvm` takes them: anywhere in RAM, in place, with scratch memory."""

# TVM's annotations are narrower than what it takes.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tvm", reason="poetc.tvm is optional: pip install 'poetc[tvm]'")

import relax_scripts as scripts
import tvm
from relax_functions import run
from tvm import relax, s_tir, tirx

from poetc.tvm import PoetSchedule
from poetc.tvm.kernels import NOALIAS, PAGE_BYTES, Kernel, Unsupported, _may_share, kernel_of

PAIRS = {
    "add": [(0, 0), (0, 1)],
    "add_row": [(0, 0)],
    "interchanged": [(0, 0)],
    "transposed": [],
    "shifted": [],
    "sums": [],
    "copied_first": [(0, 0)],
    "read_again": [(1, 0)],
    "written_twice": [],
    "run_twice": [],
    "in_halves": [],
    "reversed_rows": [],
    "unread": [(0, 0)],
    "by_another_name": [],
    "chain": [(0, 0)],
}
"""PrimFuncs, and which (result, operand) may be the same bytes."""


def operands_of(function: tirx.PrimFunc) -> int:
    return len(function.params) - (2 if function is scripts.read_again else 1)


def call(function: tirx.PrimFunc, arrays: list[tvm.runtime.Tensor]) -> None:
    tvm.compile(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}), "llvm")[
        "main"
    ](*arrays)


def memory(kernel: Kernel) -> list[tvm.runtime.Tensor]:
    """Arguments: random operands, and whatever is in results and scratch memory."""
    random = np.random.default_rng(0)
    buffers = (*kernel.operands, *kernel.results, *kernel.scratch)
    arrays = [random.standard_normal(buffer.shape).astype("float32") for buffer in buffers]
    return [tvm.runtime.tensor(array) for array in arrays]


@pytest.mark.parametrize("name", PAIRS)
def test_results_in_place_of_operands(name: str) -> None:
    """The pairs are those expected, and the kernel does the same in place."""
    function = getattr(scripts, name)
    kernel = kernel_of(function, operands_of(function))
    assert list(kernel.may_share) == PAIRS[name]
    apart = memory(kernel)
    call(kernel.function, apart)
    expected = [array.numpy() for array in apart]
    for result, operand in kernel.may_share:
        arrays = memory(kernel)
        first = len(kernel.operands)
        arrays[first + result] = arrays[operand]
        call(kernel.overlapping, arrays)
        for i in range(len(kernel.results)):
            assert np.array_equal(arrays[first + i].numpy(), expected[first + i])


@pytest.mark.slow
def test_scratch_memory_is_an_argument() -> None:
    kernel = kernel_of(scripts.chain, 1)
    assert len(kernel.scratch) == 3
    # The first and the third are never needed at once; so the kernel may not take them for apart.
    size = 32 * 32 * 4
    assert kernel.scratch_bytes == 2 * size
    first, second, third = kernel.scratch_offsets
    assert first == third != second
    assert not kernel.function.attrs[NOALIAS]
    assert kernel.pool_bytes == 0
    copied = kernel_of(scripts.copied_first, 1)
    assert copied.scratch_bytes == 256
    x = relax.Var("x", relax.TensorType((32, 32), "float32"))
    module = calling(scripts.chain, [x], (32, 32))
    array = tvm.runtime.tensor(np.arange(1024, dtype="float32").reshape(32, 32))
    scheduled = PoetSchedule()(module)
    assert run(scheduled, "main", (array,)).bits == run(module, "main", (array,), "default").bits


def calling(
    function: tirx.PrimFunc, operands: list[relax.Var], shape: tuple[int, ...]
) -> tvm.IRModule:
    """A Relax function that calls a PrimFunc."""
    builder = relax.BlockBuilder()
    kernel = builder.add_func(function, "kernel")
    with builder.function("main", operands):
        with builder.dataflow():
            called = relax.call_tir(kernel, operands, relax.TensorType(shape, "float32"))
            result = builder.emit_output(builder.emit(called))
        builder.emit_func_output(result)
    return builder.get()


def test_tuned_kernels_keep_their_scratch_memory() -> None:
    """Loops in tiles of 32 rows, each with a buffer of its own, which TVM takes from its pool."""
    schedule = s_tir.Schedule(scripts.product)
    block = schedule.get_sblock("c")
    local = schedule.cache_write(block, 0, "global")
    outer, _ = schedule.split(schedule.get_loops(local)[0], [2, 32])
    schedule.compute_at(block, outer)
    tuned = schedule.mod["main"]
    assert kernel_of(tuned, 2).pool_bytes == 32 * 64 * 4
    schedule.parallel(outer)
    assert kernel_of(schedule.mod["main"], 2).pool_bytes == 2 * 32 * 64 * 4
    assert 32 * 64 * 4 % PAGE_BYTES == 0
    names = ("a", "b")
    operands = [relax.Var(name, relax.TensorType((64, 64), "float32")) for name in names]
    module = calling(tuned, operands, (64, 64))
    scheduled = PoetSchedule("32KB")(module)
    numbers = scheduled["main"].attrs["poetc"]
    assert numbers["pool_bytes"] == 32 * 64 * 4
    assert numbers["ram_bytes"] == 32 * 64 * 4 + 64 * 64 * 4
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((64, 64)).astype("float32") for _ in names]
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    done = run(scheduled, "main", tensors)
    assert done.bits == run(module, "main", tensors, "default").bits
    assert done.allocated_bytes == numbers["result_bytes"]


def test_an_operand_whose_address_is_taken_is_not_written_over() -> None:
    root, (a, c) = scripts.by_address.body.block, scripts.by_address.params
    assert not list(_may_share(root, [a], [c]))


def test_kernels_that_cannot_be_scheduled() -> None:
    with pytest.raises(Unsupported, match=r"calls functions \(tirx.call_extern\) whose memory"):
        kernel_of(scripts.calls_out, 1)
    with pytest.raises(Unsupported, match="its PrimFunc has no static shapes"):
        kernel_of(scripts.symbolic, 1)
    lowered = s_tir.transform.LowerOpaqueBlock()(
        s_tir.transform.ConvertBlocksToOpaque()(tvm.IRModule({"main": scripts.add}))
    )["main"]
    with pytest.raises(Unsupported, match="lowered already"):
        kernel_of(lowered, 2)
