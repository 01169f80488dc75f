"""`monet`: optimal recompute and choice of implementations without paging (Shah et al., "Memory
Optimization for Deep Networks", ICLR 2021).

The implementations of an operation are its variants. As in the other strategies without paging,
only what starts or must end on storage is moved, whole or streamed. Energy is minimised, not time.
"""

from poetc.schedule.search.restricted import restricted
from poetc.schedule.search.state import Search
from poetc.schedule.strategies import strategy


@strategy()
def monet(search: Search) -> bool:
    """Our search without paging, with variants; True when there provably is no schedule."""
    return restricted(search, paging=False)
