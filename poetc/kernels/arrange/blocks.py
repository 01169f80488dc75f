"""Parallel loops cut into blocks that run outside of the loops around them, so that what a block
loads stays in a cache for all iterations of these.

    for i in 0 to 16:                    for b in 0 to 8:
      for k in 0 to 512:                   for i in 0 to 16:
        for c in 0 to 4608:                  for k in 0 to 64:
          ... w[c, k] * x[i, c]   becomes      for c in 0 to 4608:
                                                 ... w[c, 64 b + k] * x[i, c]
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects import affine
from xdsl.dialects.builtin import AffineMapAttr, IndexType, UnitAttr
from xdsl.ir import Block, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from poetc.ir.loops import loops_around, nest_around
from poetc.kernels.access import linear_addresses
from poetc.kernels.addresses import SEQUENTIAL, extent
from poetc.kernels.analysis import buffer_bytes
from poetc.kernels.arrange.legality import may_jam

BLOCKS = "poet.blocks"
"""Attribute of a parallel `affine.for` over blocks, of which one at a time stays in a cache."""


def block_outside(loop: affine.ForOp, lanes: int, cache_bytes: int) -> None:
    """Cuts a parallel loop into blocks of whole vectors, outside of the parallel loops around it
    with nothing else in them, where less is loaded from beyond a cache then.

    The caller knows that the iterations of the loop are independent (`legality.py`).
    """
    nest = nest_around(loop, may_jam)
    # Of a buffer that is read by row (`terms.py`) the rows for a block of terms are in the cache.
    if not nest or any(SEQUENTIAL in outer.attributes for outer in loops_around(loop)):
        return
    variable, *around = (one.body.block.args[0] for one in (loop, *nest))
    again, once = _loaded(loop, variable, around)
    count, repeats = extent(loop), prod(map(extent, nest))
    sizes = (size for size in range(lanes, count, lanes) if count % size == 0)
    size = max((s for s in sizes if again * s <= cache_bytes * count), default=0)
    if size and again > cache_bytes and again * (repeats - 1) > once * (count // size - 1):
        _cut(loop, nest[0], size)


def _loaded(loop: affine.ForOp, variable: SSAValue, around: Sequence[SSAValue]) -> tuple[int, int]:
    """Bytes of the buffers that a loop loads again in each iteration of those around it, and of
    those that each iteration of this one loads again."""
    again: set[SSAValue] = set()
    once: set[SSAValue] = set()
    loads = [op for op in loop.walk() if isinstance(op, affine.LoadOp)]
    for load, address in linear_addresses(loads).items():
        assert isinstance(load, affine.LoadOp)
        moved = {v for v in (variable, *around) if address is None or address.terms.get(v)}
        if moved == {variable}:
            again.add(load.memref)
        elif variable not in moved:
            once.add(load.memref)
    return sum(map(buffer_bytes, again)), sum(map(buffer_bytes, once))


def _cut(loop: affine.ForOp, outermost: affine.ForOp, size: int) -> None:
    """Runs so many iterations of a loop at a time, in a new loop around the outermost one."""
    variable = loop.body.block.args[0]
    block = Block(arg_types=[IndexType()])
    block.args[0].name_hint = variable.name_hint
    blocks = affine.ForOp.from_region([], [], [], [], 0, extent(loop) // size, Region(block))
    blocks.attributes[BLOCKS] = UnitAttr()
    Rewriter.insert_op(blocks, InsertPoint.before(outermost))
    outermost.detach()
    block.add_ops([outermost, affine.YieldOp.get()])
    loop.properties["upperBoundMap"] = AffineMapAttr(AffineMap.constant_map(size))
    place = AffineExpr.dimension(0) * size + AffineExpr.dimension(1)
    position = affine.ApplyOp([block.args[0], variable], AffineMapAttr(AffineMap(2, 0, (place,))))
    variable.replace_uses_with_if(position.result, lambda use: use.operation is not position)
    assert loop.body.block.first_op is not None
    Rewriter.insert_op(position, InsertPoint.before(loop.body.block.first_op))
