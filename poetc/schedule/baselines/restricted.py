"""`checkmate`, `remat-only` and `paging-only`: our search with one of the two ways to save RAM.

- `checkmate`: optimal recompute without paging (Jain et al., "Checkmate", MLSys 2020).
  The paper minimises time under a memory limit; here it is energy, as everywhere, and the deadline
  holds as well.
- `remat-only`, `paging-only`: the ablations of the POET paper (ICML 2022): its model
  with one of the two. Without paging that is the question that Checkmate asks.

The bound is a bound for schedules of the same kind.
"""

from __future__ import annotations

import dataclasses

from poetc.schedule import limits
from poetc.schedule.portfolio import portfolio
from poetc.schedule.search import Search


def remat_only(search: Search) -> bool:
    """The portfolio without paging; True when there provably is no schedule without."""
    return _search(search, paging=False)


def paging_only(search: Search) -> bool:
    """The portfolio in which each operation runs once; True when there provably is no such
    schedule."""
    return _search(search, remat=False)


def _search(search: Search, **changes: bool) -> bool:
    search.instance = dataclasses.replace(search.instance, **changes)
    limits.refuse_hopeless(search)
    return portfolio(search)
