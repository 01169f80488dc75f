"""Index expressions: integer linear combinations of loop variables, with known ranges.

An `Index` is `const + Σ coefficient · atom`. An atom is a loop variable (`Var`), a variable of
generated code (`Variable`), a position read from memory (`Dynamic`), or a quotient or remainder of
an index by a constant (`Quotient`). All have an inclusive range, which is what lets
`(i*32 + j) floordiv 32` become `i` and what proves that an access is in bounds. Division rounds
towards minus infinity, as in MLIR.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import AffineMapAttr, AffineSetAttr
from xdsl.ir import SSAValue
from xdsl.ir.affine import (
    AffineConstantExpr,
    AffineConstraintExpr,
    AffineConstraintKind,
    AffineExpr,
    AffineMap,
    AffineSet,
)

BOUNDLESS = 1 << 200
"""In place of a bound that is not known. Bounds that are computed from it are not `is_known`."""


def is_known(bound: int) -> bool:
    """Whether a bound of an index says anything."""
    return abs(bound) < 1 << 100


class NotQuasiAffineError(ValueError):
    """An index is divided by, or multiplied with, something that is not a positive constant."""


@dataclass(eq=False)
class Var:
    """A loop variable, running over `0 .. extent-1`."""

    number: int  # creation order: outer loops first
    extent: int
    axis: object = None  # what the loop runs over, stable from one attempt to the next
    part: int = 0  # which factor of a split axis
    ssa: SSAValue | None = None
    depth: int = 0  # of the scope the loop opens
    open: bool = True

    @property
    def low(self) -> int:
        return 0

    @property
    def high(self) -> int:
        return max(self.extent - 1, 0)

    @property
    def key(self) -> tuple:
        return (0, self.number)


@dataclass(eq=False)
class Dynamic:
    """A position that is read from memory, already clamped to `0 .. high`."""

    number: int
    high: int
    ssa: SSAValue
    depth: int
    low: int = 0

    @property
    def key(self) -> tuple:
        return (1, self.number)


@dataclass(frozen=True)
class Variable:
    """A variable of generated code."""

    name: str
    low: int = -BOUNDLESS
    high: int = BOUNDLESS
    depth: ClassVar[int] = 0
    key: ClassVar[tuple] = ()
    """The same for all: terms stay in the order in which they were added, and are printed so."""


@dataclass(frozen=True)
class Quotient:
    """`of floordiv divisor`, or `of mod divisor`."""

    of: Index
    divisor: int
    remainder: bool
    key: tuple = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        inner = tuple((atom.key, c) for atom, c in self.of.terms)
        named = any(key == Variable.key for key, _ in inner)
        key = (2, self.remainder, self.divisor, inner, self.of.const)
        object.__setattr__(self, "key", Variable.key if named else key)

    @property
    def low(self) -> int:
        return 0 if self.remainder else self.of.low // self.divisor

    @property
    def high(self) -> int:
        if self.remainder:
            inside = self.of.low >= 0 and self.of.high < self.divisor
            return self.of.high if inside else self.divisor - 1
        return self.of.high // self.divisor

    @property
    def depth(self) -> int:
        return self.of.depth


Atom = Var | Variable | Dynamic | Quotient


class Index:
    """An immutable, normalised index expression; hashable, equal when structurally equal."""

    __slots__ = ("_hash", "const", "high", "low", "terms")

    const: int
    terms: tuple[tuple[Atom, int], ...]
    low: int
    high: int

    def __init__(self, const: int = 0, terms: Mapping[Atom, int] | None = None) -> None:
        kept = [(atom, c) for atom, c in terms.items() if c] if terms else []
        if len(kept) > 1:
            kept, const = _merge_quotients(kept, const)
            kept.sort(key=lambda term: term[0].key)
        self.const = const
        self.terms = tuple(kept)
        low = high = const
        for atom, c in kept:
            low += c * (atom.low if c > 0 else atom.high)
            high += c * (atom.high if c > 0 else atom.low)
        self.low, self.high = low, high
        self._hash = hash((const, self.terms))

    @staticmethod
    def of(atom: Atom) -> Index:
        return Index(0, {atom: 1})

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Index)
            and self._hash == other._hash
            and self.const == other.const
            and self.terms == other.terms
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return " + ".join([f"{c}*{atom.key}" for atom, c in self.terms] + [str(self.const)])

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.const + other, dict(self.terms)) if other else self
        if not other.terms:
            return self + other.const
        terms = dict(self.terms)
        for atom, c in other.terms:
            terms[atom] = terms.get(atom, 0) + c
        return Index(self.const + other.const, terms)

    __radd__ = __add__

    def __mul__(self, factor: Index | int) -> Index:
        if isinstance(factor, Index):
            if factor.terms and self.terms:
                raise NotQuasiAffineError("a product of two variables is not quasi-affine")
            return factor * self.const if factor.terms else self * factor.const
        if factor == 1:
            return self
        return Index(self.const * factor, {atom: c * factor for atom, c in self.terms})

    __rmul__ = __mul__

    def __neg__(self) -> Index:
        return self * -1

    def __sub__(self, other: Index | int) -> Index:
        return self + (-other)

    def __floordiv__(self, divisor: int) -> Index:
        return self.divide(divisor)[0]

    def __mod__(self, divisor: int) -> Index:
        return self.divide(divisor)[1]

    def divide(self, divisor: int, facts: Facts | None = None) -> tuple[Index, Index]:
        """Quotient and remainder; multiples of the divisor leave, and what is left is kept only
        where its range does not decide the answer. Raises NotQuasiAffineError for a divisor that
        is not a positive constant."""
        if not isinstance(divisor, int) or divisor < 1:
            raise NotQuasiAffineError("a divisor is not a positive constant")
        if divisor == 1:
            return self, ZERO
        facts = facts or NO_FACTS
        whole = {atom: c // divisor for atom, c in self.terms if c % divisor == 0}
        parts = {atom: c for atom, c in self.terms if c % divisor != 0}
        quotient = Index(self.const // divisor, whole)
        rest = Index(self.const % divisor, parts)
        # A multiple of the divisor more or less of each: -x mod 2 is x where x is 0 or 1.
        for more in (0, *sorted({-(c // divisor) for c in parts.values()} - {0})):
            left = rest + Index(0, dict.fromkeys(parts, more * divisor))
            shift = facts.low(left) // divisor
            if shift == facts.high(left) // divisor:
                moved = Index(shift, dict.fromkeys(parts, -more))
                return quotient + moved, left - shift * divisor
        return (
            quotient + Index.of(_quotient(rest, divisor)),
            Index.of(Quotient(rest, divisor, True)),
        )

    @property
    def depth(self) -> int:
        """Depth of the innermost scope that defines one of the atoms; 0 for a constant."""
        return max((atom.depth for atom, _ in self.terms), default=0)

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def substitute(self, replace: Mapping[Var, Index], facts: Facts | None = None) -> Index:
        """With indices in place of variables, simplified with what is known."""
        if not facts and not any(var in replace for var in self.vars()):
            return self
        result = Index(self.const)
        for atom, c in self.terms:
            if isinstance(atom, Quotient):
                inner = atom.of.substitute(replace, facts)
                part = inner.divide(atom.divisor, facts)[atom.remainder]
            elif isinstance(atom, Var) and atom in replace:
                part = replace[atom]
            else:
                part = Index.of(atom)
            result = result + part * c
        return result

    def single(self) -> Atom | None:
        """The atom that this index is equal to, or None."""
        if self.const == 0 and len(self.terms) == 1 and self.terms[0][1] == 1:
            return self.terms[0][0]
        return None

    def atoms(self) -> Iterator[Atom]:
        """All atoms, those inside quotients too."""
        for atom, _ in self.terms:
            yield atom
            if isinstance(atom, Quotient):
                yield from atom.of.atoms()

    def vars(self) -> Iterator[Var]:
        return (atom for atom in self.atoms() if isinstance(atom, Var))

    @property
    def is_dynamic(self) -> bool:
        return any(isinstance(atom, Dynamic) for atom in self.atoms())


def _quotient(index: Index, divisor: int) -> Quotient:
    """The quotient of an index, which may be a quotient itself."""
    inner = index.single()
    if isinstance(inner, Quotient) and not inner.remainder:
        return Quotient(inner.of, inner.divisor * divisor, False)
    return Quotient(index, divisor, False)


def _merge_quotients(
    terms: list[tuple[Atom, int]], const: int
) -> tuple[list[tuple[Atom, int]], int]:
    """Put `(x floordiv c)*c*k + (x mod c)*k` back together as `x*k`."""
    for atom, c in terms:
        if not isinstance(atom, Quotient) or not atom.remainder:
            continue
        partner = _quotient(atom.of, atom.divisor)
        if (partner, c * atom.divisor) in terms:
            merged: dict[Atom, int] = {a: k for a, k in terms if a != atom and a != partner}
            for inner, k in atom.of.terms:
                merged[inner] = merged.get(inner, 0) + k * c
            return _merge_quotients(
                [(a, k) for a, k in merged.items() if k], const + atom.of.const * c
            )
    return terms, const


ZERO = Index()


@dataclass(frozen=True)
class Facts:
    """Indices known to be >= 0 where an expression stands: the guards around it. False: none."""

    nonnegative: tuple[Index, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.nonnegative)

    def and_(self, indices: Sequence[Index]) -> Facts:
        """These facts and the given ones."""
        return Facts((*self.nonnegative, *indices))

    def low(self, index: Index) -> int:
        """A lower bound of `index`, from the bounds of its variables and from the facts."""
        # index = fact + (index - fact), and fact >= 0
        return max((index.low, *((index - fact).low for fact in self.nonnegative)))

    def high(self, index: Index) -> int:
        """An upper bound of `index`."""
        return min((index.high, *((index + fact).high for fact in self.nonnegative)))


NO_FACTS = Facts()


def constant(value: int) -> Index:
    """A constant index."""
    return Index(value)


@dataclass(frozen=True)
class Condition:
    """`index >= 0`, or `index == 0`."""

    index: Index
    equal: bool = False

    @property
    def depth(self) -> int:
        return self.index.depth

    def substitute(self, replace: Mapping[Var, Index]) -> Condition:
        """With indices in place of variables."""
        return Condition(self.index.substitute(replace), self.equal)

    def negative(self) -> bool:
        """Never true, judging by the ranges of the variables."""
        if self.equal:
            return self.index.low > 0 or self.index.high < 0
        return self.index.high < 0


NEVER = Condition(constant(-1))


def holds(condition: Condition, facts: Iterable[Condition]) -> bool:
    """Whether `condition` follows from variable ranges and one of `facts`. Sound, not complete."""
    index = condition.index
    if condition.equal:
        return (index.low == 0 == index.high) or any(
            fact.equal and (fact.index == index or fact.index == -index) for fact in facts
        )
    if index.low >= 0:
        return True
    for fact in facts:
        if (index - fact.index * _ratio(index, fact.index)).low >= 0:
            return True
    if len(index.terms) == 1:
        atom, c = index.terms[0]
        if isinstance(atom, Quotient) and not atom.remainder:
            if c == 1:
                return holds(Condition(atom.of + index.const * atom.divisor), facts)
            if c == -1:
                limit = index.const * atom.divisor + atom.divisor - 1
                return holds(Condition(constant(limit) - atom.of), facts)
    return False


def _ratio(index: Index, fact: Index) -> int:
    """How many times `fact >= 0` has to be used for its first atom to leave `index`."""
    for atom, c in fact.terms:
        for other, k in index.terms:
            if other == atom and k % c == 0 and k // c > 0:
                return k // c
    return 1


def within(index: Index, size: int) -> tuple[Condition, Condition]:
    """The conditions for `0 <= index < size`."""
    if not size:
        return NEVER, NEVER
    return Condition(index), Condition(constant(size - 1) - index)


def linearise(indices: Sequence[Index], shape: Sequence[int]) -> Index:
    """Row-major position of `indices` in `shape`."""
    total = ZERO
    for index, size in zip(indices, shape, strict=True):
        total = total * size + index
    return total


def delinearise(position: Index, shape: Sequence[int]) -> list[Index]:
    """Indices in `shape` of the row-major `position`."""
    indices: list[Index] = []
    for dim, size in reversed(list(enumerate(shape))):
        outermost = prod(shape[:dim]) == 1  # what is left is in range
        indices.append(ZERO if size == 1 else position if outermost else position % size)
        position = position // size if size else ZERO
    return indices[::-1]


def reshape(indices: Sequence[Index], source: Sequence[int], target: Sequence[int]) -> list[Index]:
    """Indices in `target` of the element at `indices` in `source`: dimension by dimension where the
    sizes agree, else within the smallest groups of dimensions with equal products."""
    result: list[Index] = []
    s = t = 0
    if prod(source) == 0:
        return [ZERO] * len(target)
    while s < len(source) or t < len(target):
        s_end, t_end = min(s + 1, len(source)), min(t + 1, len(target))
        left, right = prod(source[s:s_end]), prod(target[t:t_end])
        while left != right:
            if left < right:
                left *= source[s_end]
                s_end += 1
            else:
                right *= target[t_end]
                t_end += 1
        result += delinearise(linearise(indices[s:s_end], source[s:s_end]), target[t:t_end])
        s, t = s_end, t_end
    return result


class _Dims:
    """Numbers the SSA values of variables as dimensions of an affine map."""

    def __init__(self) -> None:
        self.operands: list[SSAValue] = []

    def expression(self, index: Index) -> AffineExpr:
        terms = (self._atom(atom) * c for atom, c in index.terms)
        return sum(terms, AffineExpr.constant(0)) + index.const

    def _atom(self, atom: Atom) -> AffineExpr:
        if isinstance(atom, Quotient):
            inner = self.expression(atom.of)
            return inner % atom.divisor if atom.remainder else inner // atom.divisor
        assert isinstance(atom, Var) and atom.ssa is not None
        if atom.ssa not in self.operands:
            self.operands.append(atom.ssa)
        return AffineExpr.dimension(self.operands.index(atom.ssa))


def affine_map(indices: Sequence[Index]) -> tuple[AffineMapAttr, list[SSAValue]]:
    """The indices as an affine map and the loop variables it applies to."""
    dims = _Dims()
    results = tuple(dims.expression(index) for index in indices)
    return AffineMapAttr(AffineMap(len(dims.operands), 0, results)), dims.operands


def affine_set(conditions: Sequence[Condition]) -> tuple[AffineSetAttr, list[SSAValue]]:
    """The conjunction of the conditions as an affine set and the loop variables it applies to."""
    dims = _Dims()
    zero = AffineConstantExpr(0)
    constraints = tuple(
        AffineConstraintExpr(
            AffineConstraintKind.eq if condition.equal else AffineConstraintKind.ge,
            dims.expression(condition.index),
            zero,
            canonicalize=False,
        )
        for condition in conditions
    )
    return AffineSetAttr(AffineSet(len(dims.operands), 0, constraints)), dims.operands
