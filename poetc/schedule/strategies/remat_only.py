"""`remat-only`: the ablation of the POET paper (ICML 2022) without paging, which is the question
that Checkmate asks."""

from poetc.schedule.search.restricted import restricted
from poetc.schedule.search.state import Search
from poetc.schedule.strategies import strategy


@strategy()
def remat_only(search: Search) -> bool:
    """Our search without paging; True when there provably is no schedule without."""
    return restricted(search, variants=False, paging=False)
