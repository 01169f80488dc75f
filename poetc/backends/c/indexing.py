"""Index arithmetic: quasi-affine expressions in a normal form that prints as short C.

An `Index` is a sum of integer multiples of terms and a constant. A term is a C variable with known
bounds, or the quotient or remainder of an `Index` by a positive constant. Quotients and remainders
round towards minus infinity, as in MLIR; C rounds towards zero, so they are printed with `/` and
`%` only where the dividend is known not to be negative, and otherwise shifted by a multiple of the
divisor first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineConstraintKind,
    AffineDimExpr,
    AffineExpr,
    AffineMap,
    AffineSet,
    AffineSymExpr,
)
from xdsl.utils.hints import isa


@dataclass(frozen=True)
class Variable:
    """A C variable of type int32_t with inclusive bounds; None is unknown."""

    name: str
    low: int | None = None
    high: int | None = None


@dataclass(frozen=True)
class Quotient:
    """`dividend` divided by `divisor` > 0, rounded down."""

    dividend: Index
    divisor: int


@dataclass(frozen=True)
class Remainder:
    """What remains of `dividend` after `Quotient`: 0 <= remainder < divisor."""

    dividend: Index
    divisor: int


Term: TypeAlias = Variable | Quotient | Remainder


@dataclass(frozen=True)
class Index:
    """The sum of `coefficient * term` over `terms`, plus `constant`."""

    terms: tuple[tuple[Term, int], ...] = ()
    constant: int = 0

    @staticmethod
    def of(term: Term) -> Index:
        return Index(((term, 1),))

    def __add__(self, other: Index) -> Index:
        terms = dict(self.terms)
        for term, coefficient in other.terms:
            terms[term] = terms.get(term, 0) + coefficient
        return _normal(terms, self.constant + other.constant)

    def __mul__(self, factor: int) -> Index:
        if factor == 0:
            return Index()
        return Index(tuple((t, c * factor) for t, c in self.terms), self.constant * factor)

    def __sub__(self, other: Index) -> Index:
        return self + other * -1

    @property
    def variables(self) -> frozenset[str]:
        """The names of all variables in it."""
        names: set[str] = set()
        for term, _ in self.terms:
            names |= {term.name} if isinstance(term, Variable) else term.dividend.variables
        return frozenset(names)

    @property
    def bounds(self) -> tuple[int | None, int | None]:
        """Inclusive bounds that follow from those of the variables; None is unknown."""
        low: int | None = self.constant
        high: int | None = self.constant
        for term, coefficient in self.terms:
            ends = _bounds(term)
            bottom, top = ends if coefficient > 0 else (ends[1], ends[0])
            low = None if low is None or bottom is None else low + coefficient * bottom
            high = None if high is None or top is None else high + coefficient * top
        return low, high


@dataclass(frozen=True)
class Facts:
    """Indices known to be >= 0 where an expression stands: the guards around it."""

    nonnegative: tuple[Index, ...] = ()

    def and_(self, indices: Sequence[Index]) -> Facts:
        return Facts((*self.nonnegative, *indices))

    def low(self, index: Index) -> int | None:
        """A lower bound of `index`, from the bounds of its variables and from the guards."""
        lows = [index.bounds[0]]
        # index = fact + (index - fact), and fact >= 0
        lows += [(index - fact).bounds[0] for fact in self.nonnegative]
        return max((low for low in lows if low is not None), default=None)

    def high(self, index: Index) -> int | None:
        """An upper bound of `index`."""
        low = self.low(index * -1)
        return None if low is None else -low


NO_FACTS = Facts()


def _bounds(term: Term) -> tuple[int | None, int | None]:
    match term:
        case Variable():
            return term.low, term.high
        case Quotient():
            low, high = term.dividend.bounds
            return (
                None if low is None else low // term.divisor,
                None if high is None else high // term.divisor,
            )
        case Remainder():
            return 0, term.divisor - 1


def _normal(terms: dict[Term, int], constant: int) -> Index:
    """Drops zero terms and joins `c * k * (x / c) + k * (x % c)` to `k * x`."""
    terms = {term: coefficient for term, coefficient in terms.items() if coefficient}
    for term, coefficient in terms.items():
        if isinstance(term, Remainder):
            quotient = _quotient(term.dividend, term.divisor)
            if terms.get(quotient) == coefficient * term.divisor:
                del terms[term], terms[quotient]
                return _normal(terms, constant) + term.dividend * coefficient
    return Index(tuple(terms.items()), constant)


def _quotient(index: Index, divisor: int) -> Quotient:
    """The quotient of an index, which may be a quotient itself."""
    if index.constant == 0 and len(index.terms) == 1:
        term, coefficient = index.terms[0]
        if isinstance(term, Quotient) and coefficient == 1:
            return Quotient(term.dividend, term.divisor * divisor)
    return Quotient(index, divisor)


def divide(index: Index, divisor: int, facts: Facts = NO_FACTS) -> tuple[Index, Index]:
    """Quotient and remainder of `index` by `divisor` > 0, simplified with what is known."""
    nested = _quotient(index, divisor)
    if nested.dividend != index:
        return Index.of(nested), Index.of(Remainder(index, divisor))
    whole = {t: c // divisor for t, c in index.terms if c % divisor == 0}
    rest = Index(tuple((t, c) for t, c in index.terms if c % divisor), index.constant)
    # Multiples of the divisor leave the remainder alone, the constant's too.
    extra, constant = divmod(rest.constant, divisor)
    for shift in (extra, 0):
        part = Index(rest.terms, constant if shift == extra else rest.constant)
        low, high = facts.low(part), facts.high(part)
        if low is not None and high is not None and low // divisor == high // divisor:
            step = low // divisor
            quotient = Index(tuple(whole.items()), shift + step)
            return quotient, part - Index((), step * divisor)
    if not whole:
        return Index.of(Quotient(index, divisor)), Index.of(Remainder(index, divisor))
    return (
        Index(tuple(whole.items())) + Index.of(Quotient(rest, divisor)),
        Index.of(Remainder(rest, divisor)),
    )


def from_affine(
    expression: AffineExpr,
    dims: Sequence[Index],
    symbols: Sequence[Index] = (),
    facts: Facts = NO_FACTS,
) -> Index:
    """The value of an affine expression of the given dimensions and symbols.

    Raises ValueError for products of two variables and divisors that are not positive constants.
    """
    match expression:
        case AffineConstantExpr():
            return Index((), expression.value)
        case AffineDimExpr():
            return dims[expression.position]
        case AffineSymExpr():
            return symbols[expression.position]
        case AffineBinaryOpExpr():
            left = from_affine(expression.lhs, dims, symbols, facts)
            right = from_affine(expression.rhs, dims, symbols, facts)
            if expression.kind is AffineBinaryOpKind.Add:
                return left + right
            if expression.kind is AffineBinaryOpKind.Mul and not left.terms:
                return right * left.constant
            if right.terms:
                raise ValueError(f"not quasi-affine: {expression}")
            constant = right.constant
            if expression.kind is AffineBinaryOpKind.Mul:
                return left * constant
            if constant <= 0:
                raise ValueError(f"divisor is not positive: {expression}")
            match expression.kind:
                case AffineBinaryOpKind.FloorDiv:
                    return divide(left, constant, facts)[0]
                case AffineBinaryOpKind.CeilDiv:
                    return divide(left + Index((), constant - 1), constant, facts)[0]
                case _:
                    return divide(left, constant, facts)[1]
    raise ValueError(f"unknown affine expression {expression}")


def mapped(map_: AffineMap, indices: Sequence[Index], facts: Facts) -> list[Index]:
    """The results of an affine map for these operands."""
    dims, symbols = indices[: map_.num_dims], indices[map_.num_dims :]
    return [from_affine(e, dims, symbols, facts) for e in map_.results]


def constraints_of(
    set_: AffineSet, indices: Sequence[Index], facts: Facts
) -> Iterator[tuple[Index, bool]]:
    """The constraints of an affine set: what must not be negative, or be zero if the second is
    true. Each is simplified by the facts and by those before it, as they are tested in order."""
    dims, symbols = indices[: set_.num_dims], indices[set_.num_dims :]
    for constraint in set_.constraints:
        left, right = (
            from_affine(e, dims, symbols, facts) for e in (constraint.lhs, constraint.rhs)
        )
        index = left - right
        if constraint.kind is AffineConstraintKind.le:
            index = index * -1
        equal = constraint.kind is AffineConstraintKind.eq
        facts = facts.and_([index, index * -1] if equal else [index])
        yield index, equal


def flat_index(buffer: SSAValue, indices: Sequence[Index]) -> Index:
    """The index of an element counted from the start of its buffer, which is row-major."""
    assert isa(buffer.type, MemRefType)
    flat = Index()
    for size, index in zip(buffer.type.get_shape(), indices, strict=True):
        flat = flat * size + index
    return flat


def index_arithmetic(op: Operation, index: Callable[[SSAValue], Index]) -> Index | None:
    """The result of arithmetic on indices, if it is linear; `index` returns that of an operand."""
    match op:
        case arith.AddiOp():
            return index(op.lhs) + index(op.rhs)
        case arith.SubiOp():
            return index(op.lhs) - index(op.rhs)
        case arith.MuliOp() if not index(op.lhs).terms:
            return index(op.rhs) * index(op.lhs).constant
        case arith.MuliOp() if not index(op.rhs).terms:
            return index(op.lhs) * index(op.rhs).constant
    return None


def to_c(index: Index, facts: Facts = NO_FACTS) -> str:
    """The C expression of `index`, without parentheses around it.

    Raises ValueError if, by the bounds of its variables, a part of it may exceed int32_t, or if the
    sign of a dividend is unknown.
    """
    return _sum(index, facts)


def comparison(index: Index, operator: str, facts: Facts = NO_FACTS) -> str:
    """The C expression of `index >= 0` or `index == 0`, with negative terms moved to the right."""
    left = {t: c for t, c in index.terms if c > 0}
    right = {t: -c for t, c in index.terms if c < 0}
    if not left and operator == ">=":
        # constant >= right
        return f"{_sum(Index(tuple(right.items())), facts)} <= {index.constant}"
    if not left:
        left, right = right, left
        index = index * -1
    constant = index.constant
    left_index = Index(tuple(left.items()), constant if right and constant > 0 else 0)
    right_index = Index(tuple(right.items()), -constant if not right or constant < 0 else 0)
    return f"{_sum(left_index, facts)} {operator} {_sum(right_index, facts)}"


def _sum(index: Index, facts: Facts) -> str:
    constant = index.constant
    parts: list[tuple[str, int, Index]] = []  # text without its sign, sign, value
    # Positive terms first, so that the expression does not start with a minus.
    for term, coefficient in sorted(index.terms, key=lambda part: part[1] < 0):
        text, shift = _term(term, facts)
        constant -= shift * coefficient
        size = abs(coefficient)
        first = not parts and coefficient < 0
        if (size != 1 or first) and not isinstance(term, Variable):
            # In a product, or behind a sign.
            text = f"({text})"
        if size != 1:
            text = f"{size} * {text}"
        value = Index(((term, coefficient),), shift * coefficient)
        parts.append((text, coefficient, value))
    if constant > 0 and all(coefficient < 0 for _, coefficient, _ in parts):
        parts.insert(0, (str(constant), 1, Index((), constant)))
    elif constant:
        parts.append((str(abs(constant)), constant, Index((), constant)))
    result = ""
    value = Index()
    for text, sign, part in parts:
        if result:
            result += f" - {text}" if sign < 0 else f" + {text}"
        else:
            result = f"-{text}" if sign < 0 else text
        value = Index((*value.terms, *part.terms), value.constant + part.constant)
        for sub in (part, value):
            low, high = sub.bounds
            if (low is not None and low <= -(2**31)) or (high is not None and high >= 2**31):
                raise ValueError(f"the index {result} does not fit in 32 bits")
    return result or "0"


def _term(term: Term, facts: Facts) -> tuple[str, int]:
    """The C expression of a term, and by how much it is too large."""
    if isinstance(term, Variable):
        return term.name, 0
    dividend, shift = _shifted(term.dividend, term.divisor, facts)
    if isinstance(term, Quotient):
        return f"{_operand(dividend, facts)} / {term.divisor}", shift
    return f"{_operand(dividend, facts)} % {term.divisor}", 0


def _operand(index: Index, facts: Facts) -> str:
    text = _sum(index, facts)
    simple = len(index.terms) == 1 and index.constant == 0 and index.terms[0][1] == 1
    return text if simple and isinstance(index.terms[0][0], Variable) else f"({text})"


def _shifted(index: Index, divisor: int, facts: Facts) -> tuple[Index, int]:
    """`index` plus the multiple `shift * divisor` that makes it non-negative, and `shift`."""
    low = facts.low(index)
    if low is None:
        raise ValueError(f"sign of the dividend in {to_c(index)} / {divisor} is unknown")
    shift = -(low // divisor) if low < 0 else 0
    return index + Index((), shift * divisor), shift
