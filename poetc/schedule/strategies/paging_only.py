"""`paging-only`: the ablation of the POET paper (ICML 2022) without recomputing."""

from poetc.schedule.search.restricted import restricted
from poetc.schedule.search.state import Search
from poetc.schedule.strategies import strategy


@strategy()
def paging_only(search: Search) -> bool:
    """Our search in which each operation runs once; True when there provably is no such
    schedule."""
    return restricted(search, remat=False)
