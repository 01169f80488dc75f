"""Index maps: which elements of its operands an operation needs for the element at an index.

An operation that moves elements has `moves`. One that combines many elements into one has a
`Reduction`: the loops that it runs over, in the order that poetc fixes for every target, and what
it reads at each position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from poetc.ir.index import NEVER, ZERO, Condition, Index, constant
from poetc.ir.stablehlo.base import StablehloOp, shape_of

Indices = Sequence[Index]
Read = tuple[SSAValue, list[Index]]
"""An element of a tensor."""


@dataclass(frozen=True)
class Axis:
    """A sequential loop of a reduction; positions that fail the guard contribute nothing."""

    key: object
    extent: int
    name: str
    guard: Callable[[Index], list[Condition]] | None = None

    def conditions(self, position: Index) -> list[Condition]:
        """The conditions under which a position contributes."""
        return self.guard(position) if self.guard is not None else []


@dataclass(frozen=True)
class Move:
    """The element is `source[indices]` where the conditions hold, else that of `otherwise`."""

    source: SSAValue
    indices: list[Index]
    conditions: list[Condition]
    otherwise: Read | None = None


def tap(
    out: Index,
    k: Index,
    size: int,
    *,
    stride: int = 1,
    low: int = 0,
    base_dilation: int = 1,
    window_dilation: int = 1,
) -> tuple[Index, list[Condition]]:
    """The input position that window position `k` of output `out` reads along one dimension, and
    the conditions for it to be neither in the padding nor in a dilation hole."""
    if not size:
        return ZERO, [NEVER]
    position = out * stride + k * window_dilation - low
    conditions = [Condition(position), Condition(constant((size - 1) * base_dilation) - position)]
    if base_dilation > 1:
        conditions.append(Condition(position % base_dilation, equal=True))
    return position // base_dilation, conditions


class Reduction:
    """Axes of a reduction for the result element `at`, and what it reads at positions on them."""

    def __init__(self, op: ReductionOp, at: Indices) -> None:
        self.op = op
        self.at = list(at)

    @property
    def axes(self) -> list[Axis]:
        """The sequential loops, outermost first."""
        raise NotImplementedError

    def reads(self, positions: Indices) -> list[Read]:
        """The operand elements that are combined at `positions` on the axes."""
        raise NotImplementedError


class ReductionOp(StablehloOp):
    """An operation that combines elements of its operands into each element of its result."""

    def reduction(self, at: Indices) -> Reduction:
        """How the result element `at` is found."""
        raise NotImplementedError


class ReductionAlong(Reduction):
    """Over some dimensions of tensors of one shape."""

    def __init__(
        self, op: ReductionOp, at: Indices, inputs: Sequence[SSAValue], dims: Sequence[int]
    ) -> None:
        super().__init__(op, at)
        self.inputs = inputs
        self.dims = dims

    @property
    def axes(self) -> list[Axis]:
        shape = shape_of(self.inputs[0])
        return [Axis((self.op, dim), shape[dim], "r") for dim in sorted(self.dims)]

    def reads(self, positions: Indices) -> list[Read]:
        kept, folded = iter(self.at), iter(positions)
        rank = len(shape_of(self.inputs[0]))
        at = [next(folded if d in self.dims else kept) for d in range(rank)]
        return [(operand, at) for operand in self.inputs]
