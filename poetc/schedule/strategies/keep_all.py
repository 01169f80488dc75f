"""`keep-all`: what a framework does by default: free at last use, no recompute, no paging.

Tensors that start on storage are paged in before their first use, those that must end there are
written when they are made.
"""

from __future__ import annotations

from poetc.schedule.model.keep_all import sequence
from poetc.schedule.search.state import Search
from poetc.schedule.strategies import strategy


@strategy()
def keep_all(search: Search) -> bool:
    """Offers the one schedule there is; True (no schedule of this kind) when it breaks a limit."""
    search.offer(sequence(search.instance), "keep-all")
    return search.steps is None
