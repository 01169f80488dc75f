"""Loads and stores of lowered kernels: their indices, read back from affine maps, and the loops
around them; and affine maps and conditions evaluated on arrays.

In the text of an affine load or store loop variables are not told from symbols, and xDSL reads all
of them as symbols; hence dimensions and symbols are the same here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Generic, TypeVar, cast

import numpy as np
from xdsl.dialects import affine, arith, func, memref
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, MemRefType
from xdsl.ir import Block, BlockArgument, Operation, SSAValue
from xdsl.ir.affine import (
    AffineConstraintKind,
    AffineExpr,
    AffineMap,
    AffineSet,
)

from poetc.ir.index import Index, NotQuasiAffineError, constant
from poetc.ir.loops import loops_around, parents

TILES = "poet.tiles"
"""Attribute of a tile function: trip count and tile of each loop that begins at one of its last
arguments, in their order."""

LOADS = (affine.LoadOp, memref.LoadOp)
STORES = (affine.StoreOp, memref.StoreOp)
Access = affine.LoadOp | affine.StoreOp | memref.LoadOp | memref.StoreOp


Form = TypeVar("Form")


class _Operands(list[Any]):
    """Operands of a map, of which those that are None are not to be used."""

    def __getitem__(self, position: Any) -> Any:
        operand = super().__getitem__(position)
        if operand is None:
            raise NotQuasiAffineError(f"operand {position} is not known")
        return operand


@dataclass(frozen=True)
class Reader(Generic[Form]):
    """Reads indices as forms that `constant` makes from numbers, and that have the operators of
    numbers. An index that depends on a value which is not `known` is None, as is one for which an
    operator raises NotQuasiAffineError."""

    known: Mapping[SSAValue, Form]
    constant: Callable[[int], Form]

    def results(self, map: AffineMap, operands: Sequence[SSAValue]) -> list[Form | None]:
        """The results of a map."""
        values = [self.value(operand) for operand in operands]
        dims, symbols = _Operands(values[: map.num_dims]), _Operands(values[map.num_dims :])
        return [self._result(expr, dims, symbols) for expr in map.results]

    def access(self, op: Access) -> list[Form | None]:
        """The indices of a load or store."""
        if isinstance(op, memref.LoadOp | memref.StoreOp):
            return [self.value(index) for index in op.indices]
        return self.results(op.map.data, list(op.indices))

    def value(self, value: SSAValue) -> Form | None:
        """A value of type index."""
        if value in self.known:
            return self.known[value]
        match value.owner:
            case affine.ApplyOp() as op:
                return self.results(op.map.data, list(op.mapOperands))[0]
            case arith.ConstantOp(value=IntegerAttr() as number):
                return self.constant(number.value.data)
            case _:
                return None

    def _result(self, expr: AffineExpr, dims: _Operands, symbols: _Operands) -> Form | None:
        try:
            result: Any = expr.eval(dims, symbols)
        except NotQuasiAffineError:
            return None
        return self.constant(result) if isinstance(result, int) else result


def map_indices(
    map: AffineMap, operands: Sequence[SSAValue], known: Mapping[SSAValue, Index]
) -> list[Index | None]:
    """The results of a map; None for one that depends on a value which is not `known`."""
    return Reader(known, constant).results(map, operands)


def access_indices(op: Access, known: Mapping[SSAValue, Index]) -> list[Index | None]:
    """The indices of a load or store; None for one that was read from memory."""
    return Reader(known, constant).access(op)


def index_value(value: SSAValue, known: Mapping[SSAValue, Index]) -> Index | None:
    """A value of type index."""
    return Reader(known, constant).value(value)


@dataclass(frozen=True)
class Linear:
    """`Σ coefficient · loop variable + const`.

    The variables are values of the function, so that accesses are compared wherever each was read.
    An `Index` has variables of its own making, with ranges, and quotients of them, which would not
    be told from variables here.
    """

    const: int = 0
    terms: Mapping[SSAValue, int] = field(default_factory=dict)

    def __add__(self, other: Linear | int) -> Linear:
        if isinstance(other, int):
            return Linear(self.const + other, self.terms)
        terms = dict(self.terms)
        for v, c in other.terms.items():
            terms[v] = terms.get(v, 0) + c
        return Linear(self.const + other.const, terms)

    __radd__ = __add__

    def __mul__(self, factor: Linear | int) -> Linear:
        if isinstance(factor, Linear):
            if factor.terms and self.terms:
                raise NotQuasiAffineError("a product of two variables is not linear")
            return factor * self.const if factor.terms else self * factor.const
        return Linear(self.const * factor, {v: c * factor for v, c in self.terms.items()})

    __rmul__ = __mul__

    def __neg__(self) -> Linear:
        return self * -1

    def __floordiv__(self, divisor: int) -> Linear:
        raise NotQuasiAffineError("a quotient is not linear")

    __mod__ = __floordiv__


def linear_indices(op: Access) -> list[Linear | None]:
    """The indices of a load or store, in the variables of the loops around it and the starts of a
    tile; None for one that is not linear in them, and another number at each evaluation."""
    return _linear_reader(op).access(op)


def linear_address(op: Access) -> Linear | None:
    """The address of a load or store in its row-major buffer, in elements; None where one of the
    `linear_indices` is."""
    return _address(op, linear_indices(op))


def linear_addresses(ops: Iterable[Access]) -> dict[Operation, Linear | None]:
    """The `linear_address` of each of some loads and stores, most of which are in a few blocks."""
    return {place.op: _address(place.op, place.indices) for place in places_of(ops)}


def _address(op: Access, indices: Sequence[Linear | None]) -> Linear | None:
    assert isinstance(op.memref.type, MemRefType)
    address, stride = Linear(), 1
    for index, size in zip(indices[::-1], op.memref.type.get_shape()[::-1], strict=True):
        if index is None:
            return None
        address += index * stride
        stride *= size
    return address


@dataclass(frozen=True)
class Place:
    """The place of a load or store: the operations around it, the innermost first, the loops among
    them, the outermost first, the starts of a tile, and its linear indices."""

    op: Access
    parents: tuple[Operation, ...]
    loops: tuple[affine.ForOp, ...]
    starts: tuple[SSAValue, ...]
    indices: tuple[Linear | None, ...]

    @cached_property
    def form(self) -> tuple[object, ...]:
        """A key that accesses in the same loops at a fixed distance from one another share."""
        # By identity, as looking up hashes of operations and values takes longer.
        terms = (
            None if index is None else tuple((id(v), c) for v, c in index.terms.items())
            for index in self.indices
        )
        return (*map(id, self.loops), *terms)


def places_of(ops: Iterable[Access]) -> list[Place]:
    """The places of loads and stores that are compared with many others."""
    found: list[Place] = []
    known: dict[Block | None, tuple[Callable[..., Place], Reader[Linear]]] = {}
    for op in ops:
        if (block := op.parent_block()) not in known:
            around = tuple(parents(op))
            loops = tuple(each for each in around[::-1] if isinstance(each, affine.ForOp))
            starts = starts_around(around[-1] if around else op)
            place = partial(Place, parents=around, loops=loops, starts=starts)
            known[block] = place, _reader_in(loops, starts)
        place, reader = known[block]
        found.append(place(op, indices=tuple(reader.access(op))))
    return found


def linear_constraints(guard: affine.IfOp) -> Iterator[tuple[Linear | None, bool]]:
    """The constraints of a guard: a form that must not be negative, or must be zero if the second
    is true, in the variables of the loops around it; None for a form that is not linear in them."""
    condition, reader = guard.condition.data, _linear_reader(guard)
    for each in condition.constraints:
        sides = AffineMap(condition.num_dims, condition.num_symbols, (each.lhs, each.rhs))
        left, right = reader.results(sides, guard.args)
        if each.kind is AffineConstraintKind.le:
            left, right = right, left
        difference = None if left is None or right is None else left + -right
        yield difference, each.kind is AffineConstraintKind.eq


def _linear_reader(op: Operation) -> Reader[Linear]:
    return _reader_in(loops_around(op), starts_around(op))


def _reader_in(loops: Sequence[affine.ForOp], starts: Sequence[SSAValue]) -> Reader[Linear]:
    variables = (*starts, *(loop.body.block.args[0] for loop in loops))
    return Reader({v: Linear(0, {v: 1}) for v in variables}, Linear)


def tiles_of(function: func.FuncOp) -> tuple[tuple[int, int], ...]:
    """Trip count and tile of each loop that runs in tiles, if it is a tile function."""
    attribute = function.attributes.get(TILES)
    numbers = attribute.get_values() if isinstance(attribute, DenseArrayBase) else ()
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def tile_of(start: BlockArgument) -> tuple[int, int]:
    """Trip count and tile of the loop that begins at this argument of a tile function."""
    function = start.block.parent_op()
    assert isinstance(function, func.FuncOp)
    return tiles_of(function)[start.index - len(start.block.args)]


def starts_around(op: Operation) -> tuple[BlockArgument, ...]:
    """The starts of a tile, if an operation is in a tile function: its last arguments."""
    parent: Operation | None = op
    while parent is not None and not isinstance(parent, func.FuncOp):
        parent = parent.parent_op()
    if parent is None or TILES not in parent.attributes:
        return ()
    arguments = parent.body.block.args
    return tuple(arguments[len(arguments) - len(tiles_of(parent)) :])


def value_of(expr: AffineExpr, operands: Sequence[np.ndarray], dims: int) -> np.ndarray:
    """An expression of the first `dims` operands as dimensions and the others as symbols, element
    by element."""
    # Typed for integers; it computes with operators that arrays have.
    numbers = cast(Sequence[int], operands)
    return np.asarray(expr.eval(numbers[:dims], numbers[dims:]))


def holds(condition: AffineSet, operands: Sequence[np.ndarray]) -> np.ndarray:
    """Where a condition on operands, dimensions and then symbols, holds."""
    result = np.asarray(True)
    for constraint in condition.constraints:
        left, right = (
            value_of(side, operands, condition.num_dims)
            for side in (constraint.lhs, constraint.rhs)
        )
        match constraint.kind:
            case AffineConstraintKind.ge:
                result = result & (left >= right)
            case AffineConstraintKind.le:
                result = result & (left <= right)
            case AffineConstraintKind.eq:
                result = result & (left == right)
    return result
