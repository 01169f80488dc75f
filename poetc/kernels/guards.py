"""Guards of lowered kernels."""

from __future__ import annotations

from xdsl.dialects import affine

from poetc.kernels.dependences import yielded


def only_guard(op: affine.ForOp) -> affine.IfOp | None:
    """The guard that is all there is in a loop, if nothing happens where it does not hold: code
    runs the loop where the guard holds."""
    guard, *others = op.body.block.ops
    if not isinstance(guard, affine.IfOp) or any(not isinstance(o, affine.YieldOp) for o in others):
        return None
    carried = tuple(op.body.block.args[1:])
    other = tuple(yielded(guard.else_region.block)) if guard.else_region.blocks else ()
    is_empty = not guard.else_region.blocks or len(guard.else_region.block.ops) <= 1
    handed_on = tuple(yielded(op.body.block)) == tuple(guard.results)
    return guard if is_empty and handed_on and other == carried else None
