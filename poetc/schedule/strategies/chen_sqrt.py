"""`chen-sqrt`: Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost" (2016):
keep checkpoints at every √n-th of n blocks of the forward part, make each segment again when the
backward part reaches it. What is beyond the chains of the paper is as in `chen_greedy.py`.
"""

from __future__ import annotations

import math

from poetc.schedule.search.state import Search
from poetc.schedule.strategies import strategy
from poetc.schedule.strategies._chain import forward_chain, with_checkpoints


@strategy(turn=1)
def chen_sqrt(search: Search) -> bool:
    """About √n checkpoints, each segment recomputed once. One schedule; True when it does not keep
    to the limits."""
    chain = forward_chain(search.instance)
    search.note(chain.describe())
    stride = max(1, round(math.sqrt(chain.length)))
    search.offer(with_checkpoints(chain, chain.cuts[stride:-1:stride]), f"every {stride} blocks")
    return search.steps is None
