"""Counts how often a reduction is evaluated, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from xdsl.ir import Operation

from poetc.ir.index import Condition, Index, Quotient, Var


@dataclass(frozen=True)
class Evaluation:
    """One place where a reduction is evaluated."""

    loops: tuple[Var, ...]  # around it
    conditions: tuple[Condition, ...]  # guards around it
    at: tuple[Index, ...]
    with_op: Operation | None = None  # the reduction whose loops it shares

    def count(self) -> int:
        """How often it is evaluated."""
        return _count(self.loops, self.conditions)


def _count(loops: Sequence[Var], conditions: Sequence[Condition]) -> int:
    """Number of iterations of the loops that satisfy the conditions, without iterating: loops that
    share no condition are counted apart."""
    total = 1
    pending = list(conditions)
    left = list(loops)
    while left:
        group = [left.pop(0)]
        chosen: list[Condition] = []
        grown = True
        while grown:
            grown = False
            for condition in list(pending):
                used = set(condition.index.vars())
                if used & set(group):
                    pending.remove(condition)
                    chosen.append(condition)
                    joined = [var for var in left if var in used]
                    left = [var for var in left if var not in used]
                    group += joined
                    grown = True
        total *= _count_group(group, chosen)
    return total


def _count_group(group: Sequence[Var], conditions: Sequence[Condition]) -> int:
    size = prod(var.extent for var in group)
    if not conditions or size > 1 << 20:
        return size
    grids = np.meshgrid(*(np.arange(var.extent) for var in group), indexing="ij", sparse=True)
    positions: dict[Var, np.ndarray] = dict(zip(group, grids, strict=True))
    keep = np.ones([var.extent for var in group], dtype=bool)
    for condition in conditions:
        if condition.index.is_dynamic:
            continue
        number = _evaluate(condition.index, positions)
        keep &= (number == 0) if condition.equal else (number >= 0)
    return int(keep.sum())


def _evaluate(index: Index, positions: dict[Var, np.ndarray]) -> np.ndarray:
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
