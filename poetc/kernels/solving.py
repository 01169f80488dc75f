"""The positions on the axes of a reduction that satisfy its conditions, found without trying all of
them.

A condition that is linear in a position is solved for it: `0 <= position + f <= c` holds at `c + 1`
positions at most, which begin at `-f`; `(position + f) mod d == 0` at every d-th one, from
`-f mod d` on. What is left to run over are those candidates, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd

from poetc.ir.index import Condition, Index, Quotient, Var, constant, holds, within


@dataclass(frozen=True)
class Candidates:
    """An axis after solving: `position`, in terms of `step` and of the axes outside."""

    step: Var
    position: Index
    conditions: tuple[Condition, ...]  # that have to be tested still, of all axes
    inner: frozenset[Var]  # what axes inside run over: unknown here


def solve(var: Var, conditions: Sequence[Condition], inner: frozenset[Var]) -> Candidates:
    """The candidates for `var`, by those conditions that do not depend on axes inside of it."""
    solved = Candidates(var, Index.of(var), tuple(conditions), inner)
    while solved.step.extent > 1:
        fewer = _congruence(solved) or _interval(solved)
        if fewer is None:
            break
        solved = fewer
    return solved


def _congruence(old: Candidates) -> Candidates | None:
    """By a condition that a position is a multiple of a number."""
    var = old.step
    for condition in old.conditions:
        atom = condition.index.single()
        if not condition.equal or not isinstance(atom, Quotient) or not atom.remainder:
            continue
        split = _coefficient(atom.of, old)
        if split is None:
            continue
        factor, rest = split
        common = gcd(factor, atom.divisor)
        every = atom.divisor // common
        if every == 1:
            continue
        inverse = pow(factor // common, -1, every)
        first = ((-rest // common) * inverse) % every
        kept = [c for c in old.conditions if c is not condition]
        if common > 1:
            kept.append(Condition(rest % common, equal=True))
        return _narrowed(old, first, every, -(-var.extent // every), kept)
    return None


def _interval(old: Candidates) -> Candidates | None:
    """By the two conditions between which there are the fewest positions."""
    var = old.step
    best: tuple[int, Index, list[Condition]] | None = None
    for upper, (other, end) in _bounds(old, -1):
        for lower, (factor, start) in _bounds(old, 1):
            width = start + end
            if factor != -other or not width.is_constant or width.const < 0:
                continue
            extent = width.const // factor + 1
            if extent >= (var.extent if best is None else best[0]):
                continue
            met = {lower} if not lower.equal or (lower is upper and factor == 1) else set()
            if width.const % factor == factor - 1 and not upper.equal:
                met.add(upper)
            kept = [c for c in old.conditions if c not in met]
            best = extent, -(start // factor), kept
    if best is None:
        return None
    extent, first, kept = best
    return _narrowed(old, first, 1, extent, kept)


def _bounds(old: Candidates, sign: int) -> Iterator[tuple[Condition, tuple[int, Index]]]:
    """Conditions `factor * step + rest >= 0` with a factor of that sign, the factor and the rest.
    One that an index is zero is two of them."""
    for condition in old.conditions:
        for index in (condition.index, -condition.index) if condition.equal else (condition.index,):
            split = _coefficient(index, old)
            if split is not None and split[0] * sign > 0:
                yield condition, split


def _coefficient(index: Index, old: Candidates) -> tuple[int, Index] | None:
    """`factor` and `rest` of `factor * step + rest`; None where it depends on the step otherwise or
    not at all, or on what is not known there."""
    factor = dict(index.terms).get(old.step, 0)
    rest = index - Index.of(old.step) * factor
    unknown = not old.inner.isdisjoint(rest.vars()) or old.step in set(rest.vars())
    return (factor, rest) if factor and not unknown and not rest.is_dynamic else None


def _narrowed(
    old: Candidates, first: Index, every: int, extent: int, kept: Sequence[Condition]
) -> Candidates:
    """With `first + every * step` in place of the step, of which there are `extent`."""
    step = Var(old.step.number, extent, (old.step.axis, every, extent))
    place = first + (Index.of(step) if extent > 1 else constant(0)) * every
    conditions = [*kept, *within(Index.of(old.step), old.step.extent)]
    replaced = (_simplified(condition.substitute({old.step: place})) for condition in conditions)
    left = tuple(c for c in dict.fromkeys(replaced) if not holds(c, ()))
    return Candidates(step, old.position.substitute({old.step: place}), left, old.inner)


def _simplified(condition: Condition) -> Condition:
    """The condition without a common factor of its terms."""
    common = gcd(*(factor for _, factor in condition.index.terms))
    if common <= 1 or (condition.equal and condition.index.const % common):
        return condition
    terms = {atom: factor // common for atom, factor in condition.index.terms}
    return Condition(Index(condition.index.const // common, terms), condition.equal)
