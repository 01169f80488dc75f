"""`milp`: what `auto` does in the given order of the operations."""

from poetc.schedule.search.portfolio import portfolio
from poetc.schedule.search.state import Search
from poetc.schedule.strategies import strategy


@strategy()
def milp(search: Search) -> bool:
    """True when there provably is no schedule in the given order."""
    return portfolio(search)
