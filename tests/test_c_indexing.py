"""Index arithmetic of the C backend: the printed C has the value of the affine expression."""

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind, AffineExpr

from poetc.backends.c.indexing import comparison, to_c, value_of
from poetc.ir.index import Facts, Index, Quotient, Variable

BOUNDS = ((0, 5), (-3, 4), (2, 2))
VARIABLES = tuple(Variable(f"v{i}", *bounds) for i, bounds in enumerate(BOUNDS))
DIMS = tuple(map(Index.of, VARIABLES))


class CInt(int):
    """An int whose `/` and `%` are those of C, where they agree with MLIR's."""

    def __truediv__(self, other: int) -> "CInt":
        assert self >= 0
        return CInt(int(self) // other)

    def __mod__(self, other: int) -> "CInt":
        assert self >= 0
        return CInt(int(self) % other)

    def __add__(self, other: int) -> "CInt":
        return CInt(int(self) + other)

    def __sub__(self, other: int) -> "CInt":
        return CInt(int(self) - other)

    def __mul__(self, other: int) -> "CInt":
        return CInt(int(self) * other)

    def __neg__(self) -> "CInt":
        return CInt(-int(self))

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: int) -> "CInt":
        return CInt(other - int(self))


def evaluate(text: str, values: tuple[int, ...]) -> int:
    return eval(text, {f"v{i}": CInt(value) for i, value in enumerate(values)})


def raw(kind: AffineBinaryOpKind, lhs: AffineExpr, rhs: int) -> AffineExpr:
    return AffineBinaryOpExpr(kind, lhs, AffineExpr.constant(rhs))


def expressions() -> st.SearchStrategy[AffineExpr]:
    leaves = st.one_of(
        st.integers(0, len(BOUNDS) - 1).map(AffineExpr.dimension),
        st.integers(-20, 20).map(AffineExpr.constant),
    )
    divisors = st.integers(1, 7)

    def extend(inner: st.SearchStrategy[AffineExpr]) -> st.SearchStrategy[AffineExpr]:
        kinds = AffineBinaryOpKind
        return st.one_of(
            st.builds(lambda a, b: AffineBinaryOpExpr(kinds.Add, a, b), inner, inner),
            st.builds(lambda a, c: raw(kinds.Mul, a, c), inner, st.integers(-6, 6)),
            st.builds(lambda a, c: raw(kinds.FloorDiv, a, c), inner, divisors),
            st.builds(lambda a, c: raw(kinds.CeilDiv, a, c), inner, divisors),
            st.builds(lambda a, c: raw(kinds.Mod, a, c), inner, divisors),
        )

    return st.recursive(leaves, extend, max_leaves=8)


def points() -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*(st.integers(low, high) for low, high in BOUNDS))


@settings(deadline=None)
@given(expressions(), points())
def test_value(expression: AffineExpr, values: tuple[int, ...]) -> None:
    index = value_of(expression, DIMS, len(DIMS))
    assert evaluate(to_c(index), values) == expression.eval(values, ())


@settings(deadline=None)
@given(expressions(), points())
def test_bounds(expression: AffineExpr, values: tuple[int, ...]) -> None:
    index = value_of(expression, DIMS, len(DIMS))
    assert index.low <= expression.eval(values, ()) <= index.high


@settings(deadline=None)
@given(expressions(), expressions(), points())
def test_value_under_guard(
    expression: AffineExpr, guard: AffineExpr, values: tuple[int, ...]
) -> None:
    facts = Facts((value_of(guard, DIMS, len(DIMS)),))
    index = value_of(expression, DIMS, len(DIMS), facts)
    text = to_c(index, facts)
    if guard.eval(values, ()) >= 0:
        assert evaluate(text, values) == expression.eval(values, ())


@settings(deadline=None)
@given(expressions(), points(), st.sampled_from([">=", "=="]))
def test_comparison(expression: AffineExpr, values: tuple[int, ...], operator: str) -> None:
    text = comparison(value_of(expression, DIMS, len(DIMS)), operator)
    value = expression.eval(values, ())
    assert evaluate(text, values) == (value >= 0 if operator == ">=" else value == 0)


def test_division_that_is_not_needed() -> None:
    i, j = Index.of(Variable("i", 0, 9)), Index.of(Variable("j", 0, 5))
    assert (i * 6 + j).divide(6) == (i, j)
    assert (j + 12).divide(6) == (Index(2), j)
    assert i // 2 // 3 == i // 6


def test_quotient_and_remainder_join() -> None:
    i = Index.of(Variable("i", 0, 99))
    quotient, remainder = Index.of(Quotient(i, 7, False)), Index.of(Quotient(i, 7, True))
    assert quotient * 7 + remainder == i
    assert quotient * 14 + remainder * 2 == i * 2
    assert quotient * 7 + remainder * 2 != i


def test_digits_of_a_number_join() -> None:
    """What takes a number apart into three digits and puts it together again, in any order."""
    i, j = Index.of(Variable("i", 0, 15)), Index.of(Variable("j", 0, 24))
    number = i * 25 + j
    high = number // 80 * 80
    middle = number // 16 % 5 * 16
    low = number % 16
    for parts in permutations((high, middle, low)):
        assert sum(parts[1:], parts[0]) == number
    assert (number + 3) // 16 * 16 + (number + 3) % 16 == number + 3
    start = Index.of(Variable("start", 0, 15)) * 25
    assert high + middle + low - start // 80 * 80 == number - start // 80 * 80


def test_unknown_sign_is_an_error() -> None:
    unknown = Index.of(Variable("row"))
    with pytest.raises(ValueError, match="row"):
        to_c(unknown // 3)
    assert to_c(unknown // 3, Facts((unknown,))) == "row / 3"


def test_product_of_variables_is_an_error() -> None:
    product = AffineBinaryOpExpr(
        AffineBinaryOpKind.Mul, AffineExpr.dimension(0), AffineExpr.dimension(1)
    )
    with pytest.raises(ValueError, match="quasi-affine"):
        value_of(product, DIMS, len(DIMS))
