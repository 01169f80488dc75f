"""`chen-greedy`: Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost" (2016):
keep checkpoints in the forward part, make each segment again when the backward part reaches it.

The paper has chains in mind. As in the comparison of Jain et al. (MLSys 2020)
checkpoints are made at articulation points of the forward graph. Parameters that have been
replaced, operations that may not run again and tensors that start or end somewhere are as in
`chain.with_checkpoints`.
"""

from __future__ import annotations

from itertools import accumulate

from poetc.schedule.search.state import Search
from poetc.schedule.strategies import strategy
from poetc.schedule.strategies._chain import Chain, forward_chain, with_checkpoints

# Thresholds tried by chen-greedy.
THRESHOLDS = 60


@strategy(turn=2)
def chen_greedy(search: Search) -> bool:
    """Checkpoint when the bytes made since the last checkpoint pass a threshold, for
    a sweep of thresholds; of the schedules that keep to the limits the one that uses least
    energy."""
    chain = forward_chain(search.instance)
    search.note(chain.describe())
    sizes = [_bytes(chain, b) for b in range(chain.length)]
    for chosen in dict.fromkeys(_place(chain, sizes, size) for size in _thresholds(sizes)):
        if search.finished:
            break
        search.offer(with_checkpoints(chain, chosen), f"{len(chosen)} checkpoints")
    return search.steps is None and search.remaining > 0


def _bytes(chain: Chain, b: int) -> int:
    """Bytes of the results of block b."""
    instance = chain.instance
    made = range(chain.cuts[b], chain.cuts[b + 1])
    return sum(instance.tensors[v].bytes for k in made for v in instance.operations[k].outputs)


def _thresholds(sizes: list[int]) -> list[int]:
    """The thresholds to try: sizes of segments, as only these make a difference; some of them where
    there are many."""
    sums = {0}
    for begin in range(len(sizes)):
        sums.update(accumulate(sizes[begin:]))
    ordered = sorted(sums)
    count = min(len(ordered), THRESHOLDS)
    return [ordered[i * (len(ordered) - 1) // max(count - 1, 1)] for i in range(count)]


def _place(chain: Chain, sizes: list[int], threshold: float) -> tuple[int, ...]:
    """The cuts at which the bytes since the last one pass the threshold."""
    chosen: list[int] = []
    since = 0
    for cut, size in zip(chain.cuts[1:-1], sizes, strict=False):
        since += size
        if since > threshold:
            chosen.append(cut)
            since = 0
    return tuple(chosen)
