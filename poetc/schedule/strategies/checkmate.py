"""`checkmate`: optimal recompute without paging (Jain et al., "Checkmate", MLSys 2020).

The paper minimises time under a memory limit; here it is energy, as everywhere, and the deadline
holds as well.
"""

from poetc.schedule.search.restricted import restricted
from poetc.schedule.search.state import Search
from poetc.schedule.strategies import strategy


@strategy()
def checkmate(search: Search) -> bool:
    """Our search without paging; True when there provably is no schedule without."""
    return restricted(search, variants=False, paging=False)
