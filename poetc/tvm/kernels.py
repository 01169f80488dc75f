"""PrimFuncs as kernels of a schedule: what they cost, and in a form that works in an arena.

A kernel of Relax expects each tensor at the start of an allocation, has no argument in place of
another, and allocates its own scratch memory. `kernel_of` makes one of it whose arguments lie
anywhere and may share bytes where that is proven, and whose scratch memory is among its arguments,
behind the results. What it computes, and in which order, stays as it is.
"""

# TVM's annotations are narrower than what it takes.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false
from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx

from poetc.backends.tvm.pipeline import NOALIAS
from poetc.schedule.arena import pack as arena
from poetc.schedule.arena.pack import pack, round_up

ALIGN_BYTES = 64
"""Where tensors begin in the arena: at multiples of what TVM gives allocations."""

PAGE_BYTES = 4096
"""TVM's pool of scratch memory takes whole pages of this size."""

STACK_BYTES = 1024
"""Scratch memory up to this size is on the stack (`kMaxStackAlloca` of TVM's runtime)."""

_UNKNOWN_CALLS = ("tirx.tvm_call_packed", "tirx.tvm_call_cpacked", "tirx.call_extern")
"""Calls of functions that may allocate memory or have effects."""


class Unsupported(Exception):  # noqa: N818
    """Why something cannot be scheduled; the importer lists it with all others."""


@dataclass(frozen=True)
class Buffer:
    """A tensor argument of a kernel."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * (-(-tvm.DataType(self.dtype).bits // 8))


@dataclass(frozen=True)
class Kernel:
    """A PrimFunc that takes operands, results and scratch memory, in this order, anywhere in RAM.

    Scratch memory is together `scratch_bytes`, in which each buffer has its offset. `may_share` has
    the pairs (result, operand) that may be the same bytes; where they are, `overlapping` is the
    function to call. `pool_bytes` is the scratch memory that the function still allocates, beside
    the arena. `flops` counts floating-point operations.
    """

    function: tirx.PrimFunc
    operands: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
    scratch_offsets: tuple[int, ...]
    scratch_bytes: int
    may_share: tuple[tuple[int, int], ...]
    pool_bytes: int
    flops: int

    @property
    def overlapping(self) -> tirx.PrimFunc:
        """The function without the promise that no two arguments share bytes."""
        return self.function.with_attr(NOALIAS, False)


def kernel_of(function: tirx.PrimFunc, operands: int) -> Kernel:
    """The kernel that does what `function` does, whose first parameters are operands.

    Raises Unsupported for functions that are no blocks and loops on tensors of static shape, and
    for those that call functions of which nothing is known.
    """
    _check(function)
    parameters = list(function.params)
    root = function.body.block
    scratch = _whole_life(function)
    kept = [b for b in root.alloc_buffers if not _among(b, scratch)]
    block = s_tir.SBlock(
        root.iter_vars,
        root.reads,
        root.writes,
        root.name_hint,
        root.body,
        root.init,
        kept,
        root.match_buffers,
        root.annotations,
    )
    body = s_tir.SBlockRealize([], True, block)
    made = tirx.PrimFunc([*parameters, *scratch], body, function.ret_type, function.attrs)
    made = _anywhere(made.without_attr("global_symbol"))
    buffers = tuple(map(_buffer, scratch))
    packing = pack(_lives(root, scratch, buffers), ALIGN_BYTES)
    if packing.arena_bytes < sum(round_up(buffer.bytes, ALIGN_BYTES) for buffer in buffers):
        made = made.with_attr(NOALIAS, False)
    return Kernel(
        made,
        tuple(map(_buffer, parameters[:operands])),
        tuple(map(_buffer, parameters[operands:])),
        buffers,
        packing.offsets,
        packing.arena_bytes,
        tuple(_may_share(root, parameters[:operands], parameters[operands:])),
        _pool_bytes(made),
        _flops(function),
    )


def _check(function: tirx.PrimFunc) -> None:
    if not isinstance(function.body, s_tir.SBlockRealize):
        raise Unsupported("its PrimFunc is lowered already; schedule before lowering")
    for parameter in function.params:
        if not tirx.is_buffer_var(parameter):
            raise Unsupported(f"parameter {parameter.name} of its PrimFunc is no tensor")
        _buffer(parameter)
    called = {op.name for op in _calls(function)}
    if unknown := called.intersection(_UNKNOWN_CALLS):
        raise Unsupported(
            f"its PrimFunc calls functions ({', '.join(sorted(unknown))}) whose memory and effects "
            "are unknown"
        )


def _buffer(parameter: ir.Var) -> Buffer:
    extents = parameter.ty.shape
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):
        raise Unsupported("its PrimFunc has no static shapes")
    return Buffer(tuple(int(extent) for extent in extents), str(parameter.ty.dtype))


def _calls(root: Any) -> Iterator[ir.Op]:
    """The operators that are called anywhere in a function."""
    found: list[ir.Op] = []

    def visit(call: ir.Call) -> None:
        if isinstance(call.op, ir.Op):
            found.append(call.op)

    tvm_ffi.structural_walk(root, (ir.Call, visit))
    return iter(found)


def _among(buffer: ir.Var, buffers: Iterable[ir.Var]) -> bool:
    return any(buffer.same_as(other) for other in buffers)


def _whole_life(function: tirx.PrimFunc) -> list[ir.Var]:
    """The buffers that a function allocates and that are alive in more than one of its loops.

    TVM allocates others inside the loop that has all of their uses, and only as much as an
    iteration needs.
    """
    module = tvm.IRModule({"main": function})
    module = s_tir.transform.LowerInitBlock()(module)
    module = s_tir.transform.PlanAndUpdateBufferAllocationLocation()(module)
    placed = module["main"].body.block.alloc_buffers
    return [b for b in function.body.block.alloc_buffers if _among(b, placed)]


def _statements(root: s_tir.SBlock) -> list[Any]:
    """The statements of a function, in order."""
    return list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]


def _lives(
    root: s_tir.SBlock, scratch: Sequence[ir.Var], buffers: Sequence[Buffer]
) -> list[arena.Buffer]:
    """From which statement to which each buffer is used."""
    lives: list[arena.Buffer] = []
    for variable, buffer in zip(scratch, buffers, strict=True):
        uses = [i for i, s in enumerate(_statements(root)) if _among(variable, _variables(s))]
        lives.append(arena.Buffer(buffer.bytes, min(uses, default=0), max(uses, default=0)))
    return lives


def _variables(statement: Any) -> list[ir.Var]:
    found: list[ir.Var] = []
    tvm_ffi.structural_walk(statement, (ir.Var, found.append))
    return found


def _anywhere(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with parameters that need not be at the start of an allocation."""
    replaced: dict[ir.Var, ir.Var] = {}
    for old in function.params:
        type_ = old.ty
        replaced[old] = tirx.decl_buffer(
            type_.shape,
            type_.dtype,
            old.name,
            strides=type_.strides,
            data_alignment=type_.data_alignment,
            offset_factor=1,
            layout=type_.layout,
        )

    def swap(variable: ir.Var) -> ir.Var:
        return replaced.get(variable, variable)

    return tvm_ffi.structural_map(function, (ir.Var, swap))


def _pool_bytes(function: tirx.PrimFunc) -> int:
    """Scratch memory that a function takes from TVM's pool, which keeps it."""
    steps = s_tir.transform
    module = tvm.transform.Sequential(
        [
            steps.LowerInitBlock(),
            steps.PlanAndUpdateBufferAllocationLocation(),
            steps.ConvertBlocksToOpaque(),
            steps.CompactBufferAllocation(),
            steps.LowerOpaqueBlock(),
        ]
    )(tvm.IRModule({"main": function}))
    total, threads = 0, 1

    def loop(stmt: tirx.For, visitor: tvm_ffi.StructuralVisitor) -> None:
        nonlocal threads
        # At most as many threads as iterations, each with memory of its own.
        own = int(stmt.extent) if stmt.kind == tirx.ForKind.PARALLEL else 1
        threads *= own
        visitor.default_visit(stmt)
        threads //= own

    def allocation(stmt: tirx.AllocBuffer, visitor: tvm_ffi.StructuralVisitor) -> None:
        nonlocal total
        size = _buffer(stmt.buffer).bytes
        if size > STACK_BYTES:
            total += threads * -(-size // PAGE_BYTES) * PAGE_BYTES
        visitor.default_visit(stmt)

    tvm_ffi.structural_visit(
        module["main"].body, [(tirx.For, loop), (tirx.AllocBuffer, allocation)]
    )
    return total


def _flops(function: tirx.PrimFunc) -> int:
    try:
        return int(s_tir.analysis.estimate_tir_flops(tvm.IRModule({"main": function})))
    except tvm.error.InternalError as error:
        raise Unsupported(f"the work of its PrimFunc is unknown: {error}") from error


# In place


def _may_share(
    root: s_tir.SBlock, operands: Sequence[ir.Var], results: Sequence[ir.Var]
) -> Iterator[tuple[int, int]]:
    """The pairs (result, operand) where no element of the operand is read after its bytes were
    written: the statements that name the operand come before all that name the result, or the last
    of them is the first of those and reads, for each element that it writes, the operand at that
    element and no other."""
    statements = _statements(root)
    named = [_variables(statement) for statement in statements]
    for r, result in enumerate(results):
        first = next((i for i, names in enumerate(named) if _among(result, names)), None)
        for o, operand in enumerate(operands):
            new, old = _buffer(result), _buffer(operand)
            if (new.elements, new.dtype) != (old.elements, old.dtype) or first is None:
                continue
            last = max((i for i, names in enumerate(named) if _among(operand, names)), default=-1)
            if last < first or (
                last == first and _element_by_element(statements[first], operand, result)
            ):
                yield r, o


def _element_by_element(statement: Any, operand: ir.Var, result: ir.Var) -> bool:
    """Whether a statement is loops around one block, which runs once for each element of the
    result, reads the operand only there, and then writes it."""
    loops: dict[ir.Var, int] = {}
    inner = statement
    while isinstance(inner, tirx.For):
        if not (isinstance(inner.extent, tirx.IntImm) and _is_zero(inner.min)):
            return False
        loops[inner.loop_var] = int(inner.extent)
        inner = inner.body
    if not isinstance(inner, s_tir.SBlockRealize) or not _always(inner.predicate):
        return False
    block, store = inner.block, inner.block.body
    if block.init is not None or block.match_buffers or not isinstance(store, tirx.BufferStore):
        return False
    if not store.buffer.same_as(result) or _among(result, _variables(store.value)):
        return False
    if not _one_to_one(block.iter_vars, inner.iter_values, loops):
        return False
    shape = _buffer(result).shape
    if shape != _buffer(operand).shape:
        return False
    # Each variable of the block is an index, so that no element is written twice.
    wide = [i for i, extent in enumerate(shape) if extent > 1]
    indices = [store.indices[i] for i in wide]
    variables = [v.var for v in block.iter_vars if int(v.dom.extent) > 1]
    if len(indices) != len(variables) or not all(_among(v, indices) for v in variables):
        return False
    loads = _loads(store, operand)
    # Whatever else names the operand may read it anywhere.
    if len(loads) != sum(name.same_as(operand) for name in _variables(store)):
        return False
    return all(load.indices[i].same_as(store.indices[i]) for load in loads for i in wide)


def _loads(statement: Any, buffer: ir.Var) -> list[ir.TensorLoad]:
    found: list[ir.TensorLoad] = []
    tvm_ffi.structural_walk(statement, (ir.TensorLoad, found.append))
    return [load for load in found if load.source.same_as(buffer)]


def _one_to_one(
    variables: Sequence[tirx.IterVar], values: Sequence[Any], loops: Mapping[ir.Var, int]
) -> bool:
    """Whether the variables of a block are the loops around it, each once and in its full range."""
    left = dict(loops)
    for variable, value in zip(variables, values, strict=True):
        extent = left.pop(value, None) if isinstance(value, ir.Var) else None
        single = extent is None and int(variable.dom.extent) == 1
        if not single and extent != int(variable.dom.extent):
            return False
    return all(extent == 1 for extent in left.values())


def _is_zero(value: Any) -> bool:
    return isinstance(value, tirx.IntImm) and int(value) == 0


def _always(predicate: Any) -> bool:
    return isinstance(predicate, tirx.IntImm) and bool(int(predicate))
