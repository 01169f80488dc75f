"""Our search with one of the two ways to save RAM."""

from __future__ import annotations

import dataclasses

from poetc.schedule.search import infeasibility
from poetc.schedule.search.portfolio import portfolio
from poetc.schedule.search.state import Search


def restricted(search: Search, variants: bool = True, **changes: bool) -> bool:
    """The portfolio with `paging` or `remat` switched off, or without `variants` of operations;
    True when there provably is no schedule of this kind. The bound is one for schedules of the same
    kind."""
    instance = search.instance if variants else search.instance.without_variants()
    search.instance = dataclasses.replace(instance, **changes)
    infeasibility.refuse_hopeless(search)
    return portfolio(search)
