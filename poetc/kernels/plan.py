"""The plan of an attempt at lowering a body, which a later attempt may improve (lower.py)."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.ir import Operation, SSAValue

from poetc.ir import stablehlo

AxisKey = object


@dataclass(frozen=True)
class Plan:
    """The differences of one attempt at lowering from evaluating everything on demand."""

    # Intermediates kept in a workspace, each with the dimensions that surrounding loops fix.
    kept: dict[SSAValue, frozenset[int]] = field(default_factory=dict)
    # Loops that are split, each with the factors of its extent: saves divisions in index maps.
    splits: dict[AxisKey, tuple[int, ...]] = field(default_factory=dict)
    # Scatters whose updates are sorted by rows, in workspaces of their own.
    by_rows: tuple[stablehlo.ScatterOp, ...] = ()
    # Pairs of reductions that would share their loops, but must not.
    apart: frozenset[frozenset[Operation]] = frozenset()
