"""Index expressions (`ir/index.py`) of C variables of type int32_t, and as C.

C rounds quotients towards zero, so they and remainders are printed with `/` and `%` only where the
dividend is known not to be negative, and otherwise shifted by a multiple of the divisor first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineConstraintKind, AffineExpr, AffineMap, AffineSet
from xdsl.utils.hints import isa

from poetc.ir.index import (
    NO_FACTS,
    ZERO,
    Atom,
    Facts,
    Index,
    Quotient,
    Variable,
    is_known,
    linearise,
)


def mapped(map_: AffineMap, indices: Sequence[Index], facts: Facts) -> list[Index]:
    """The results of an affine map for these operands."""
    return [value_of(e, indices, map_.num_dims, facts) for e in map_.results]


def value_of(
    expression: AffineExpr, indices: Sequence[Index], dims: int, facts: Facts = NO_FACTS
) -> Index:
    """The value of an affine expression of the first `dims` indices as dimensions and the others
    as symbols.

    Raises ValueError for products of two variables and divisors that are not positive constants.
    """
    # Typed for integers; it computes with operators that indices have.
    numbers = cast(Sequence[int], indices)
    value = expression.eval(numbers[:dims], numbers[dims:])
    return Index(value) if isinstance(value, int) else cast(Index, value).substitute({}, facts)


def constraints_of(
    set_: AffineSet, indices: Sequence[Index], facts: Facts
) -> Iterator[tuple[Index, bool]]:
    """The constraints of an affine set: what must not be negative, or be zero if the second is
    true. Each is simplified by the facts and by those before it, as they are tested in order."""
    for constraint in set_.constraints:
        left, right = (
            value_of(side, indices, set_.num_dims, facts)
            for side in (constraint.lhs, constraint.rhs)
        )
        index = left - right
        if constraint.kind is AffineConstraintKind.le:
            index = -index
        equal = constraint.kind is AffineConstraintKind.eq
        facts = facts.and_([index, -index] if equal else [index])
        yield index, equal


def flat_index(buffer: SSAValue, indices: Sequence[Index]) -> Index:
    """The index of an element counted from the start of its buffer, which is row-major."""
    assert isa(buffer.type, MemRefType)
    return linearise(indices, buffer.type.get_shape())


def variables_of(index: Index) -> frozenset[str]:
    """The names of all variables in it."""
    return frozenset(atom.name for atom in index.atoms() if isinstance(atom, Variable))


def index_arithmetic(op: Operation, index: Callable[[SSAValue], Index]) -> Index | None:
    """The result of arithmetic on indices, if it is linear; `index` returns that of an operand."""
    match op:
        case arith.AddiOp():
            return index(op.lhs) + index(op.rhs)
        case arith.SubiOp():
            return index(op.lhs) - index(op.rhs)
        case arith.MuliOp() if not index(op.lhs).terms:
            return index(op.rhs) * index(op.lhs).const
        case arith.MuliOp() if not index(op.rhs).terms:
            return index(op.lhs) * index(op.rhs).const
    return None


def to_c(index: Index, facts: Facts = NO_FACTS) -> str:
    """The C expression of `index`, without parentheses around it.

    Raises ValueError if, by the bounds of its variables, a part of it may exceed int32_t, or if the
    sign of a dividend is unknown.
    """
    return _sum(*_parts(index, facts))


def comparison(index: Index, operator: str, facts: Facts = NO_FACTS) -> str:
    """The C expression of `index >= 0` or `index == 0`, with negative terms moved to the right."""
    parts, constant = _parts(index, facts)
    left = [part for part in parts if part.coefficient > 0]
    right = [part.negated() for part in parts if part.coefficient < 0]
    if not left and operator == ">=":
        return f"{_sum(right, 0)} <= {constant}"
    if not left:
        left, right, constant = right, left, -constant
    on_left = constant if right and constant > 0 else 0
    return f"{_sum(left, on_left)} {operator} {_sum(right, on_left - constant)}"


@dataclass(frozen=True)
class _Part:
    """A term as C, its coefficient, and the value of what is printed of both."""

    text: str
    coefficient: int
    value: Index

    def negated(self) -> _Part:
        return _Part(self.text, -self.coefficient, -self.value)


def _parts(index: Index, facts: Facts) -> tuple[list[_Part], int]:
    """The parts that are added up, and the constant that is added to them."""
    constant = index.const
    parts: list[_Part] = []
    for term, coefficient in index.terms:
        text, shift = _term(term, facts)
        constant -= shift * coefficient
        value = Index(shift * coefficient, {term: coefficient})
        parts.append(_Part(text, coefficient, value))
    return parts, constant


def _sum(parts: Sequence[_Part], constant: int) -> str:
    result = ""
    total = ZERO
    # Positive terms first, so that the expression does not start with a minus.
    parts = sorted(parts, key=lambda part: part.coefficient < 0)
    number = _Part(str(abs(constant)), constant, Index(constant))
    if constant > 0 and all(part.coefficient < 0 for part in parts):
        parts.insert(0, number)
    elif constant:
        parts.append(number)
    for part in parts:
        text, size = part.text, 1 if part is number else abs(part.coefficient)
        if (size != 1 or (not result and part.coefficient < 0)) and " " in text:
            # In a product, or behind a sign.
            text = f"({text})"
        if size != 1:
            text = f"{size} * {text}"
        if result:
            result += f" - {text}" if part.coefficient < 0 else f" + {text}"
        else:
            result = f"-{text}" if part.coefficient < 0 else text
        total += part.value
        for sub in (part.value, total):
            if (sub.low <= -(2**31) and is_known(sub.low)) or (
                sub.high >= 2**31 and is_known(sub.high)
            ):
                raise ValueError(f"the index {result} does not fit in 32 bits")
    return result or "0"


def _term(term: Atom, facts: Facts) -> tuple[str, int]:
    """The C expression of a term, and by how much it is too large."""
    if isinstance(term, Variable):
        return term.name, 0
    assert isinstance(term, Quotient), term
    dividend, shift = _shifted(term.of, term.divisor, facts)
    if term.remainder:
        return f"{_operand(dividend, facts)} % {term.divisor}", 0
    return f"{_operand(dividend, facts)} / {term.divisor}", shift


def _operand(index: Index, facts: Facts) -> str:
    text = to_c(index, facts)
    return text if isinstance(index.single(), Variable) else f"({text})"


def _shifted(index: Index, divisor: int, facts: Facts) -> tuple[Index, int]:
    """`index` plus the multiple `shift * divisor` that makes it non-negative, and `shift`."""
    low = facts.low(index)
    if not is_known(low):
        raise ValueError(f"sign of the dividend in {to_c(index)} / {divisor} is unknown")
    shift = -(low // divisor) if low < 0 else 0
    return index + shift * divisor, shift
