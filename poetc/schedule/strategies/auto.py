"""`auto`: our search, in the given order of the operations and in others."""

from poetc.schedule.search.orders import several_orders
from poetc.schedule.search.state import Search
from poetc.schedule.strategies import strategy


@strategy()
def auto(search: Search) -> bool:
    """True when there provably is no schedule in the given order and none is found in another."""
    return several_orders(search)
