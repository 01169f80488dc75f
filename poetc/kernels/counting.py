"""Counts iterations that pass guards, and so how often a reduction is evaluated, exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TypeVar

import numpy as np
from xdsl.ir import Operation

from poetc.ir.index import Condition, Index, Quotient, Var

_MOST = 1 << 20
"""Positions that are enumerated at once."""

V = TypeVar("V")
Positions = Mapping[V, np.ndarray]
Test = tuple[frozenset[V], Callable[[Positions[V]], np.ndarray]]
"""The variables that it is about, and where it passes at their positions."""


def passing(ranges: Mapping[V, range], tests: Sequence[Test[V]]) -> int:
    """How many positions of the variables pass all tests, of which each is about some of them.

    Variables that share no test are counted apart, so that a two-dimensional convolution needs two
    small enumerations. Of more than about a million positions that share tests, all count.
    """
    total, left = 1, list(ranges)
    while left:
        group: set[V] = {left[0]}
        pending = list(group)
        while pending:
            variable = pending.pop()
            for used in (used for used, _ in tests if variable in used):
                fresh = {each for each in used if each in ranges} - group
                group |= fresh
                pending += fresh
        members = [variable for variable in left if variable in group]
        left = [variable for variable in left if variable not in group]
        extents = [len(ranges[variable]) for variable in members]
        shared = [test for used, test in tests if used & group]
        if not shared or prod(extents) > _MOST:
            total *= prod(extents)
            continue
        every = (np.asarray(ranges[variable]) for variable in members)
        grids = np.meshgrid(*every, indexing="ij", sparse=True)
        positions = dict(zip(members, grids, strict=True))
        keep = np.ones(extents, dtype=bool)
        for test in shared:
            keep &= test(positions)
        total *= int(keep.sum())
    return total


@dataclass(frozen=True)
class Evaluation:
    """One place where a reduction is evaluated."""

    loops: tuple[Var, ...]  # around it
    conditions: tuple[Condition, ...]  # guards around it
    at: tuple[Index, ...]
    with_op: Operation | None = None  # the reduction whose loops it shares

    def count(self) -> int:
        """How often it is evaluated."""
        ranges = {var: range(var.extent) for var in self.loops}
        return passing(
            ranges, [(frozenset(c.index.vars()), partial(_holds, c)) for c in self.conditions]
        )


def _holds(condition: Condition, positions: Positions[Var]) -> np.ndarray:
    if condition.index.is_dynamic:
        return np.asarray(True)
    number = _evaluate(condition.index, positions)
    return number == 0 if condition.equal else number >= 0


def _evaluate(index: Index, positions: Positions[Var]) -> np.ndarray:
    total = np.asarray(index.const)
    for atom, c in index.terms:
        if isinstance(atom, Var):
            number = positions.get(atom, np.asarray(0))
        else:
            assert isinstance(atom, Quotient)
            inner = _evaluate(atom.of, positions)
            number = inner % atom.divisor if atom.remainder else inner // atom.divisor
        total = total + number * c
    return total
